"""The joint moments as server and holders see them alike: who holds what, the blocks of each release, and their noise.

Three releases: `MEANS` of every array by its holder alone, where a bound on norms is bought with how long rows are;
`JOINT`, all blocks of the second moments; `CLASSES`, where a label is declared, of every array the second moments of
every class, by its holder and the label's. Each is one Gaussian mechanism, whose price is split among its blocks by
`weights` (`privacy.secure.tied`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any

from understudy.data.encoding.codec import Codec
from understudy.data.encoding.frame import MOST_FEATURES, Frame
from understudy.data.kinds import TABLE, side_by_side
from understudy.ground.check import in_range, whole
from understudy.ground.errors import ConfigError
from understudy.privacy.secure.moments import noise_for
from understudy.privacy.secure.ring import Ring
from understudy.privacy.secure.tied import block_multipliers, one_for, reach
from understudy.protocols.moments.rows import Lengths
from understudy.protocols.moments.settings import check_norms
from understudy.protocols.moments.stages import MOST_DIRECTIONS, First, finest

KINDS = ("table", "image", "series")
SETTLED = ("features", "norms", "directions", "shares", "target", "private")
MEANS, JOINT, CLASSES = range(3)
Block = tuple[str, str]  # two holders in the order of all, or twice the same

# Of the joint release: a table's own pairs need little, since counts are large beside their noise.
_ARRAY, _ARRAYS, _TIE, _TABLE, _TABLES = 1.0, 1.0, 0.8, 0.1, 0.2
_FAR = 64  # noise beyond so many σ would wrap around: once in e^2048
_MESSAGE = 1 << 27  # bytes, at most


@dataclass(frozen=True)
class Noise:
    """Of one release: the norm of every vector in whole numbers, and σ of each block."""

    scale: int
    sigmas: Mapping[Block, float]


@dataclass(frozen=True)
class Label:
    """The column whose levels are the classes: whose it is, its place in that table, and in all of them."""

    holder: str
    column: int
    place: int
    classes: int


@dataclass(frozen=True, eq=False)
class Layout:
    """What follows from the schemas and the settings. Edges: what cannot be measured → ConfigError, nothing charged."""

    schemas: Mapping[str, Any]
    features: int
    target: str | None
    norms: float = 0.0  # of the budget, for bounds on norms

    def __post_init__(self) -> None:
        for name, schema in self.schemas.items():
            if (kind := getattr(schema, "kind", "table")) not in KINDS:
                raise ConfigError(
                    f"{name} holds rows of the kind {kind!r}, and tied takes {' or '.join(KINDS)}. Nothing was charged."
                )
        if len(self.schemas) < 2:
            raise ConfigError("tied needs two parties or more, of the same people. Nothing was charged.")
        if not self.arrays:
            raise ConfigError(
                "nobody holds images or series, and tied is for such beside tables: gram is for tables alone. "
                "Nothing was charged."
            )
        for name in self.arrays:
            if (label := getattr(self.schemas[name], "label", None)) is not None:
                raise ConfigError(
                    f'{name} declares the label "{label}" beside its rows, and tied takes classes from a table: '
                    "bring them as a column of one. Nothing was charged."
                )
        side_by_side(self.schemas)
        _ = self.label

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.schemas)

    @cached_property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """The levels of each column, table by table."""
        return {name: Codec(schema).sizes for name, schema in self.schemas.items() if TABLE.describes(schema)}

    @cached_property
    def frames(self) -> dict[str, Frame]:
        """The frame of each array."""
        return {
            name: Frame.declared(schema, self.features)
            for name, schema in self.schemas.items()
            if not TABLE.describes(schema)
        }

    @property
    def arrays(self) -> tuple[str, ...]:
        return tuple(name for name, schema in self.schemas.items() if not TABLE.describes(schema))

    @cached_property
    def label(self) -> Label | None:
        if self.target is None:
            return None
        before = 0
        for name, sizes in self.sizes.items():
            names = self.schemas[name].names
            if self.target in names:
                column = names.index(self.target)
                return Label(name, column, before + column, sizes[column])
            before += len(sizes)
        raise ConfigError(f'no table has a column "{self.target}". Nothing was charged.')

    @property
    def releases(self) -> int:
        return 2 if self.label is None else 3

    def shares(self, each: Sequence[float]) -> tuple[float, ...]:
        """Of each release, and last of the norms, if they are bought."""
        return (*map(float, each[: self.releases]), *([float(self.norms)] if self.norms else []))

    def norms_noise(self, multipliers: Sequence[float]) -> dict[str, float]:
        """The σ of each array's counts of lengths; of none where nothing is bought."""
        if not self.norms:
            return {}
        each = block_multipliers(multipliers[-1], self.weights(MEANS))
        return {
            name: noise_for(own, Lengths(self.frames[name]).sensitivity) for (name, _), own in each.items()
        }

    def width(self, name: str) -> int:
        """The length of a holder's vector in the joint release."""
        return self.frames[name].features if name in self.frames else sum(self.sizes[name])

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Those of the joint release."""
        return tuple(combinations_with_replacement(self.names, 2))

    def pairs(self, release: int) -> list[Block]:
        """Who multiplies with whom for a release."""
        if release == JOINT:
            return [(a, b) for a, b in self.blocks if a != b]
        if release == CLASSES and self.label is not None:
            owner = self.label.holder
            return [(a, b) for a, b in self.blocks if a != b and owner in (a, b) and {a, b} & {*self.frames}]
        return []

    def peers(self, name: str, release: int) -> tuple[str, ...]:
        """With whom this holder multiplies."""
        return tuple(b if name == a else a for a, b in self.pairs(release) if name in (a, b))

    def weights(self, release: int) -> dict[Block, float]:
        """How a release's price is split."""
        if release == MEANS:
            return {(name, name): 1.0 for name in self.arrays}
        if release == CLASSES:
            return dict.fromkeys(self.pairs(CLASSES), 1.0)
        return {block: self._weight(*block) for block in self.blocks}

    def _weight(self, a: str, b: str) -> float:
        tables = (a in self.sizes) + (b in self.sizes)
        if a == b:
            return _TABLE if tables else _ARRAY
        return (_ARRAYS, _TIE, _TABLES)[tables]

    def noise(self, release: int, multiplier: float) -> Noise:
        """The scale of a release and its σ, for a noise multiplier.

        Edges: more noise than can be drawn, or so many columns that a level would count nothing → ConfigError.
        """
        each = block_multipliers(multiplier, self.weights(release))
        if release == MEANS:
            firsts = {name: First(frame, 1).sensitivity for name, frame in self.frames.items()}
            return Noise(0, {block: noise_for(own, firsts[block[0]]) for block, own in each.items()})
        scale = finest(max(each.values()), 1)
        for name, sizes in self.sizes.items():
            if not one_for(scale, len(sizes)):
                raise ConfigError(
                    f"{name} has {len(sizes):,} columns, too many for so much noise. Nothing was charged."
                )
        sigmas = {
            (a, b): noise_for(own, reach(scale, across=release == JOINT and a != b))
            for (a, b), own in each.items()
        }
        return Noise(scale, sigmas)

    def ring(self, people: int, noises: Mapping[int, Noise]) -> Ring:
        """Numbers that hold the people's products and all noise."""
        return Ring.holding(
            max(
                people * noise.scale**2 + 3 * _FAR * max(noise.sigmas.values())
                for release, noise in noises.items()
                if release != MEANS
            )
        )

    def peer_widths(self, release: int, peers: Sequence[str], told: Mapping[str, int]) -> dict[str, int]:
        """How long the vectors of these holders are in a release; by class those of arrays are as was told."""
        if release == JOINT or self.label is None:
            return {peer: self.width(peer) for peer in peers}
        return {peer: told[peer] if peer in self.frames else self.label.classes for peer in peers}

    def chunk(self, release: int, most: int, directions: int, ring: Ring) -> int:
        """How many people go into one message: as many as fit, and no more than `most`."""
        widest = max(map(self.width, self.names)) if release == JOINT else directions * (directions + 1) // 2
        row = widest * ring.dtype.itemsize * max(1, len(self.names) - 1)  # bytes per person, at most
        return max(1, min(most, _MESSAGE // row))

    def stream(self, release: int, block: Block) -> int:
        """The number of a pad: each is for one message alone."""
        return release * len(self.blocks) + self.blocks.index(block)


def check_settings(config: Mapping[str, Any]) -> None:
    """Settings by which noise has a bound. Edges: any other → ConfigError, and nothing was charged."""
    whole(features=config["features"], directions=config["directions"])
    in_range(1, MOST_FEATURES, features=config["features"])
    in_range(1, MOST_DIRECTIONS // 4, directions=config["directions"])
    if type(config["private"]) is not bool:
        raise ConfigError(f"private is true or false, not {config['private']!r}. Nothing was charged.")
    check_norms(config["norms"])
    shares = config["shares"]
    if not isinstance(shares, tuple | list) or len(shares) != 3:
        raise ConfigError(f"shares are three, one for each release, not {shares!r}.")
    in_range(0.02, 0.9, **{f"share {place}": share for place, share in enumerate(shares, 1)})
    if config["target"] is not None and not isinstance(config["target"], str):
        raise ConfigError(f"target names a column of a table, not {config['target']!r}.")
