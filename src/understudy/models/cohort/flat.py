"""Networks as plain functions of one flat parameter vector.

A network here holds no weights. It says how the d numbers of a flat vector are to be read, so one vector is one
model and a matrix (clients, d) is a model for every client of a cohort. The order is that of
`torch.nn.Module.parameters()`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Protocol, Self, cast

import torch
from torch import Tensor

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError

Shapes = dict[str, tuple[int, ...]]


class Uniform(Protocol):
    """All that `init` asks of a random generator: numbers in [0, 1)."""

    def uniform(self, *shape: int) -> Tensor: ...


class Flat(ABC):
    """A network of named parameters. Each is a frozen dataclass of whole numbers, or of tuples of them."""

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        for name, value in self._numbers().items():
            for number in value if isinstance(value, tuple) else (value,):
                whole(**{name: number})

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """Name → shape of every parameter, in the order in which they lie in the flat vector."""

    @property
    def size(self) -> int:
        """d, the length of the flat vector."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def views(self, params: Tensor) -> dict[str, Tensor]:
        """Read a flat vector (…, d) as named parameters (…, *shape) that share its memory."""
        if params.shape[-1] != self.size:
            raise ConfigError(f"A {self.kind} has {self.size:,} parameters, not {params.shape[-1]:,}.")
        return dict(zip(self.shapes, read(params, self.shapes.values()), strict=True))

    def flat(self, named: Mapping[str, Tensor]) -> Tensor:
        """Named parameters as one flat vector: the inverse of `views`."""
        if set(named) != set(self.shapes):
            raise ConfigError(f"A {self.kind} has parameters {sorted(self.shapes)}, not {sorted(named)}.")
        for name, shape in self.shapes.items():
            if tuple(named[name].shape[-len(shape) :]) != shape:
                raise ConfigError(f"{name} has shape {tuple(named[name].shape)}, not (…, {shape}).")
        return torch.cat([named[name].flatten(-len(shape)) for name, shape in self.shapes.items()], dim=-1)

    def init(self, rng: Uniform, *, dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw a global model M_1: every layer uniform in ±1/√fan-in, as `torch.nn` does by default."""
        parts = []
        for shape in self.shapes.values():
            if len(shape) > 1:  # a bias follows its weight and shares its bound
                bound = 1 / math.sqrt(math.prod(shape[1:]))
            parts.append((2 * rng.uniform(*shape).flatten() - 1) * bound)
        return torch.cat(parts).to(dtype)

    def describe(self) -> dict[str, Any]:
        """Plain JSON values from which `from_description` builds the same network."""
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in self._numbers().items()}
        return {"kind": self.kind, **plain}

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """The network that `describe` wrote down.

        Edges: another kind, a missing or surplus entry, a value that is not a whole number → ConfigError.
        """
        numbers = dict(description)
        if (kind := numbers.pop("kind", None)) != cls.kind:
            raise ConfigError(f"this describes no {cls.kind}, but {kind!r}.")
        names = {field.name for field in fields(cast(Any, cls))}
        if numbers.keys() != names:
            raise ConfigError(f"A {cls.kind} is described by {sorted(names)}, not {sorted(numbers)}.")
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in numbers.items()})

    def _numbers(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}


def read(params: Tensor, shapes: Collection[tuple[int, ...]]) -> list[Tensor]:
    """Consecutive parameters (…, *shape) of a flat vector (…, d), as views."""
    # One split, not a slice for each: its backward pass is one concatenation.
    parts = torch.split(params, [math.prod(shape) for shape in shapes], dim=-1)
    return [part.view(*part.shape[:-1], *shape) for part, shape in zip(parts, shapes, strict=True)]
