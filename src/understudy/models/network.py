"""Networks as plain values describe them: those that draw rows, and those that are
functions of one flat vector.

A `Network` has latent points in and rows out. A `Flat` holds no weights: it says how
the d numbers of a flat vector are to be read, so one vector is one model and a matrix
(clients, d) is a model for every client of a cohort. And where tensors live, and the
public seed of a network's first weights.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

import torch
from torch import Tensor, nn

from understudy.ground.check import one_of, whole
from understudy.ground.errors import ConfigError

MOST_WEIGHTS = 1 << 28  # 1 GiB: a description from elsewhere cannot ask for more
MOST_NOISE = 1 << 52  # of what is offered: its square is still a number
# beyond it a float32 latent no longer reaches every component evenly
MOST_COMPONENTS = 1 << 20

M = TypeVar("M", bound=nn.Module)
Shapes = dict[str, tuple[int, ...]]


class Described:
    """Rebuilt by name from plain values: the arguments that it is made with, which it
    has as attributes.
    """

    kind: ClassVar[str]
    keys: ClassVar[tuple[str, ...]]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return cls.keys

    def describe(self) -> dict[str, Any]:
        """Plain values from which `from_description` builds the same network."""
        description: dict[str, Any] = {"kind": self.kind}
        for name in self.names():
            value: Any = getattr(self, name)
            description |= (
                value.describe()
                if hasattr(value, "describe")
                else {name: _plain(value)}
            )
        return description

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Self:
        """The network that `describe` described, with fresh weights. ConfigError for
        anything else.
        """
        try:
            if description["kind"] != cls.kind:
                raise TypeError(f"kind {description['kind']!r:.60}")
            return cls(**cls.arguments(description))
        except ConfigError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"this describes no {cls.kind}: {error!r:.200}."
            ) from None

    @classmethod
    def arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        names = cls.names()
        given = description.keys() - {"kind"}
        if given != set(names):
            message = (
                f"this describes no {cls.kind}, which is described by "
                f"{', '.join(names)}"
            )
            raise ConfigError(f"{message}, not {', '.join(sorted(given)):.200}.")
        return {name: description[name] for name in names}


class Network(Described, nn.Module, ABC):
    latent: int

    @abstractmethod
    def rows(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → rows: odds of levels (n, width), or values in [0,
        1] (n, *shape).
        """

    def forward(self, z: Tensor) -> Any:
        return self.rows(z)

    @property
    def row_numbers(self) -> int:
        """How many numbers it holds for one row, where they are most: about, by its
        widest layer.
        """
        sides = (
            side for parameter in self.parameters() for side in parameter.shape[-2:]
        )
        return 3 * max(map(int, (self.latent, *sides)))


class Draws(Protocol):
    """All that networks ask of a random generator."""

    def uniform(self, *shape: int) -> Tensor: ...
    def normal(self, *shape: int) -> Tensor: ...
    def integers(self, high: int, *shape: int) -> Tensor: ...


class Flat(Described, ABC):
    """A network of named parameters, in torch's order: a frozen dataclass of whole
    numbers, or of tuples of them.
    """

    def __post_init__(self) -> None:
        for name in self.names():
            value = getattr(self, name)
            each_whole(**{name: value if isinstance(value, tuple) else (value,)})

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cast(Any, cls)))

    @classmethod
    def arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        given = super().arguments(description)
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
        }

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """Name → shape of every parameter, in the order in which they lie in the flat
        vector.
        """

    @property
    @abstractmethod
    def row_floats(self) -> int:
        """About how many numbers one pass over one row keeps; sizes the chunks of a
        cohort.
        """

    @property
    def size(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    def views(self, params: Tensor) -> dict[str, Tensor]:
        """Read a flat vector (…, d) as named parameters (…, *shape) that share its
        memory.
        """
        if params.shape[-1] != self.size:
            raise ConfigError(
                f"A {self.kind} has {self.size:,} parameters, not {params.shape[-1]:,}."
            )
        views = read(params, self.shapes.values())
        return dict(zip(self.shapes, views, strict=True))

    def flat(self, named: Mapping[str, Tensor]) -> Tensor:
        """Named parameters as one flat vector: the inverse of `views`."""
        if set(named) != set(self.shapes):
            raise ConfigError(
                f"A {self.kind} has parameters {sorted(self.shapes)}, not "
                f"{sorted(named)}."
            )
        for name, shape in self.shapes.items():
            given = tuple(named[name].shape)
            if given[-len(shape) :] != shape:
                raise ConfigError(f"{name} has shape {given}, not (…, {shape}).")
        parts = [
            named[name].flatten(-len(shape)) for name, shape in self.shapes.items()
        ]
        return torch.cat(parts, dim=-1)

    def init(self, rng: Draws, *, dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw a global model M_1: every layer uniform in ±1/√fan-in, as `torch.nn`
        does by default.
        """
        parts = []
        for shape in self.shapes.values():
            if len(shape) > 1:  # a bias follows its weight and shares its bound
                fan_in = math.prod(shape[1:])
                bound = 1 / math.sqrt(fan_in)
            uniform = rng.uniform(*shape).flatten()
            parts.append((2 * uniform - 1) * bound)
        return torch.cat(parts).to(dtype)


def read(params: Tensor, shapes: Collection[tuple[int, ...]]) -> list[Tensor]:
    """Consecutive parameters (…, *shape) of a flat vector (…, d), as views."""
    # One split, not a slice for each: its backward pass is one concatenation.
    sizes = [math.prod(shape) for shape in shapes]
    parts = torch.split(params, sizes, dim=-1)
    return [
        part.view(*part.shape[:-1], *shape)
        for part, shape in zip(parts, shapes, strict=True)
    ]


N = TypeVar("N", bound=Described)


def built(networks: Mapping[str, type[N]], description: Mapping[str, Any]) -> N:
    """The network that `describe` wrote down, from a short list; nothing else can be
    built.
    """
    kind = description.get("kind")
    if not isinstance(kind, str):
        kind = repr(kind)
    one_of(networks, kind=kind)
    return networks[kind].from_description(description)


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def each_whole(**many: Iterable[int]) -> None:
    """Every one of these is a whole number of at least 1."""
    for name, values in many.items():
        for value in values:
            whole(**{name: value})


def check_weights(what: str, weights: int) -> None:
    """ConfigError where it has more than `MOST_WEIGHTS`."""
    if weights > MOST_WEIGHTS:
        raise ConfigError(
            f"{what} of {weights:,} weights is larger than {MOST_WEIGHTS:,}."
        )


def widest(layers: Sequence[int]) -> int:
    """Of dense layers what a row takes at most: a layer, what follows it, and its copy
    behind the activation.
    """
    numbers = [before + 2 * after for before, after in pairwise(layers)]
    return max(numbers, default=layers[0])


def filled(module: M, values: Sequence[Tensor]) -> M:
    """The module with these parameters, in their order."""
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), values, strict=True):
            parameter.copy_(value)
    return module.eval()


def dense_shapes(**layers: tuple[int, int]) -> Shapes:
    """Weights (after, before) and biases of linear layers, by their names."""
    shapes: Shapes = {}
    for name, shape in layers.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


def shapes_only() -> bool:
    """Whether tensors are made without memory, for their shapes. Arithmetic on such
    loads a compiler: 2 s and 75 MB.
    """
    return torch.get_default_device().type == "meta"


def pick_device(name: str = "auto") -> torch.device:
    """`auto`: a GPU when there is one, else the CPU; otherwise the device of that
    name.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device must be auto, cpu or cuda, not {name!r}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"device {name!r} was asked for, but this machine has no GPU that PyTorch "
            "can use."
        )
    return device


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor there; to a GPU from pinned memory, since a copy from other memory
    waits for all that is queued.
    """
    held = (
        tensor.pin_memory()
        if device.type == "cuda" and tensor.device.type == "cpu"
        else tensor
    )
    return held.to(device, non_blocking=True)


@contextmanager
def first_weights(seed: int) -> Iterator[None]:
    """Inside, torch draws on the CPU from this public seed (`manual_seed` is slow);
    then as if nothing was drawn.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


class BlockSoftmax(nn.Module):
    """One softmax per block of columns, in as many operations as there are different
    block sizes.

    Blocks of one size become one tensor (n, size, blocks), so that a CPU runs along the
    blocks and not along two or three levels: 22 times as fast as block by block on 281
    binary attributes. No loop over attributes, no sum in random order, nothing that
    depends on values: it can be captured in a CUDA graph.
    """

    order: Tensor
    back: Tensor

    def __init__(self, blocks: Sequence[int]) -> None:
        super().__init__()
        by_size: dict[int, list[int]] = {}
        starts = accumulate(blocks, initial=0)
        for start, size in zip(starts, blocks, strict=False):
            by_size.setdefault(size, []).append(start)
        self.groups = [(size, len(same)) for size, same in by_size.items()]
        order = back = torch.empty(sum(blocks), dtype=torch.int64)
        if not shapes_only():
            columns = [
                torch.arange(size)[:, None] + torch.tensor(same)
                for size, same in by_size.items()
            ]
            order = torch.cat([group.flatten() for group in columns])
            back = order.argsort()
        self.register_buffer("order", order, persistent=False)
        self.register_buffer("back", back, persistent=False)

    def forward(self, logits: Tensor) -> Tensor:
        n = len(logits)
        lengths = [size * count for size, count in self.groups]
        parts = torch.split(logits.index_select(1, self.order), lengths, 1)
        grouped = (
            part.reshape(n, *group)
            for part, group in zip(parts, self.groups, strict=True)
        )
        return torch.cat(
            [part.softmax(1).flatten(1) for part in grouped],
            1,
        ).index_select(1, self.back)
