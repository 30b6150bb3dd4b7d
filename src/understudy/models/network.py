"""What every network of a generator is: latent points in, rows out, and rebuilt by name from plain values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError

MOST_WEIGHTS = 1 << 28  # 1 GiB: a description from elsewhere cannot ask for more

M = TypeVar("M", bound=nn.Module)


class Network(nn.Module):
    """`keys` are the arguments that it is made with; its attributes of these names describe it."""

    kind: ClassVar[str]
    keys: ClassVar[tuple[str, ...]]
    latent: int

    def rows(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → rows: odds of levels (n, width), or values in [0, 1] (n, *shape)."""
        raise NotImplementedError

    def forward(self, z: Tensor) -> Any:
        return self.rows(z)

    def describe(self) -> dict[str, Any]:
        """Plain values from which `from_description` builds the same network."""
        said: dict[str, Any] = {"kind": self.kind}
        for key in self.keys:
            value: Any = getattr(self, key)
            said |= value.describe() if hasattr(value, "describe") else {key: plain(value)}
        return said

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Self:
        """The network that `describe` described, with fresh weights. ConfigError for anything else."""
        try:
            if description["kind"] != cls.kind:
                raise TypeError(f"kind {description['kind']!r:.60}")
            return cls(**cls.arguments(description))
        except ConfigError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"this describes no {cls.kind}: {error!r:.200}.") from None

    @classmethod
    def arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        """What the described network is made with."""
        if surplus := description.keys() - {"kind", *cls.keys}:
            raise TypeError(f"surplus {sorted(surplus)}")
        return {key: description[key] for key in cls.keys}


def plain(value: Any) -> Any:
    """Tuples as lists, whatever is in them."""
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def each_whole(**many: Iterable[int]) -> None:
    """Every one of these is a whole number of at least 1."""
    for name, values in many.items():
        for value in values:
            whole(**{name: value})


def check_weights(what: str, weights: int) -> None:
    """ConfigError where it has more than `MOST_WEIGHTS`."""
    if weights > MOST_WEIGHTS:
        raise ConfigError(f"{what} of {weights:,} weights is larger than {MOST_WEIGHTS:,}.")


def filled(module: M, values: Sequence[Tensor]) -> M:
    """The module with these parameters, in their order."""
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), values, strict=True):
            parameter.copy_(value)
    return module.eval()
