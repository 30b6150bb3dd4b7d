"""The decoders of the autoencoders, as networks of a generator: a point of the prior in, a row out.

Jiang, dissertation, TUM 2024, §4.4.3: z ~ N(0, I), one number in [0, 1] for each slot of the encoded row.
Differs from the paper: it takes the largest slot of each column. Here a row's numbers are the odds of its levels, from
which a level can be drawn, too.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from understudy.data.encoding.features import slot_counts
from understudy.ground.check import whole
from understudy.ground.errors import ConfigError

_LOW = 60.0  # a column whose likeliest level has odds below e⁻⁶⁰ is scaled up
_MOST_PARAMETERS = 1 << 28  # 1 GiB: a description from elsewhere cannot ask for more

M = TypeVar("M", bound=nn.Module)


def check_sides(height: int, width: int) -> None:
    """Two strides of 2 and back must give the same image."""
    if height % 4 or width % 4:
        raise ConfigError(
            f"images must have sides that 4 divides, not {height} × {width}. Nothing was charged."
        )


def filled(module: M, values: Sequence[Tensor]) -> M:
    """The module with these parameters, in their order."""
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), values, strict=True):
            parameter.copy_(value)
    return module.eval()


class Described(nn.Module):
    """A module that its constructor's arguments describe."""

    kind: str
    latent: int

    def __init__(self, **sizes: Any) -> None:
        super().__init__()
        for name, value in sizes.items():
            for number in value if isinstance(value, tuple) else (value,):
                whole(**{name: number})
        self.described = sizes

    def describe(self) -> dict[str, Any]:
        """Plain values from which `from_description` builds the same network."""
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in self.described.items()}
        return {"kind": self.kind, **plain}

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Self:
        """The network that `describe` described, with fresh weights. ConfigError for anything else."""
        sizes = {k: tuple(v) if isinstance(v, list) else v for k, v in description.items() if k != "kind"}
        try:
            return cls(**sizes)
        except TypeError as error:
            raise ConfigError(f"this describes no {cls.kind}: {error}.") from None


class TableDecoder(Described):
    """Two dense layers, and from the slots to the odds of each level; `sizes` are the levels of each column."""

    kind = "decoder-table"
    source: Tensor
    other: Tensor
    sure: Tensor
    column: Tensor

    def __init__(self, sizes: Sequence[int], hidden: int, latent: int) -> None:
        super().__init__(sizes=tuple(sizes), hidden=hidden, latent=latent)
        self.latent, each = latent, slot_counts(sizes)
        whole(columns=len(each))
        if hidden * (latent + sum(each)) > _MOST_PARAMETERS:
            raise ConfigError(
                f"a decoder of {sum(each):,} × {hidden:,} weights is larger than {_MOST_PARAMETERS:,}."
            )
        self.layers = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, sum(each)))
        starts = accumulate(each, initial=0)
        levels = [
            (start + (level if size > 2 else 0), size == 2 and level == 0, size == 1)
            for start, size in zip(starts, sizes, strict=False)
            for level in range(size)
        ]
        for name, values in zip(("source", "other", "sure"), zip(*levels, strict=True), strict=True):
            self.register_buffer(name, torch.tensor(values), persistent=False)
        column = torch.tensor([place for place, size in enumerate(sizes) for _ in range(size)])
        self.register_buffer("column", column, persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → one number in [0, 1] for each slot (n, slots)."""
        out: Tensor = self.layers(z).sigmoid()
        return out

    def rows(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → the odds of every level, column by column (n, width)."""
        slots = self.layers(z)[:, self.source]  # (n, width)
        log = functional.logsigmoid(torch.where(self.other, -slots, slots)).masked_fill(self.sure, 0.0)
        # Weights that grew under noise can put every level of a column below the smallest float: odds are relative.
        columns = self.column.expand_as(log)
        most = log.new_zeros(len(log), len(self.described["sizes"])).scatter_reduce(
            1, columns, log, "amax", include_self=False
        )
        return (log - (most.gather(1, columns) + _LOW).clamp(max=0.0)).exp()


class ImageDecoder(Described):
    """A dense layer and two transposed convolutions of 4 × 4 and stride 2."""

    kind = "decoder-image"

    def __init__(self, height: int, width: int, channels: int, latent: int) -> None:
        super().__init__(height=height, width=width, channels=channels, latent=latent)
        check_sides(height, width)
        self.latent, inner = latent, channels * height * width // 8
        if inner * (latent + 1) > _MOST_PARAMETERS:
            raise ConfigError(
                f"a decoder of {inner:,} × {latent:,} weights is larger than {_MOST_PARAMETERS:,}."
            )
        self.layers = nn.Sequential(
            nn.Linear(latent, inner), nn.ReLU(), nn.Unflatten(1, (2 * channels, height // 4, width // 4)),
            nn.ConvTranspose2d(2 * channels, channels, 4, stride=2, padding=1), nn.ReLU(),
            nn.ConvTranspose2d(channels, 1, 4, stride=2, padding=1), nn.Sigmoid(), nn.Flatten(1, 2),
        )  # fmt: skip

    def rows(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → images in [0, 1] (n, height, width)."""
        out: Tensor = self.layers(z)
        return out
