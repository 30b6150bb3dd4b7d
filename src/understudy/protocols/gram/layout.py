"""The joint Gram matrix as server and holders see it alike: its blocks, who holds them, and what is released of them.

Holders with the same columns are a group (`data.grid`). A block of the matrix belongs to two groups, or to one and the
same: it is a sum of parts, one of every holder in them. Over rows there is one block with all holders in it, over
columns every block has one holder or two.

Noise. Every holder adds noise to its part, so that σ is left against those who pool theirs: with M holders of a block
of whom up to t do, σ/√(M − t), and σ itself where t ≥ M − 1 (`secure.sums`). What is released then has the variance
r·σ², r = M/(M − t) or M: over columns 1 within a holder and 2 across.

*Blocks differ in σ.* A person moves n_b cells of block b, and pays Σ n_b/σ_b², whatever the r_b. At that price the
variance of all that is released, Σ n_b·r_b·σ_b², is least for σ_b ∝ r_b^(−¼) (Lagrange: n_b·r_b·σ_b ∝ n_b/σ_b³): a
block that carries more shares gets less of each. Across two holders of columns σ is 2^(−¼) of that within one, and the
released deviation 2^¼ of it. Where all blocks have the same r, as over rows, this is one σ.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, islice

import torch
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.encoding.fine import fine_schema, is_bought
from understudy.data.encoding.levels import Levels
from understudy.data.grid import Block, Grid
from understudy.data.schema import Schema
from understudy.ground.errors import ConfigError, MessageError
from understudy.models.tables.bought_levels import most_width
from understudy.models.tables.strongest_triples import MOST_CELLS
from understudy.privacy.noise import DiscreteGaussianNoise
from understudy.privacy.secure.counts import Moved, movable, scaled
from understudy.privacy.secure.ring import Ring
from understudy.privacy.secure.sums import noise_share
from understudy.protocols.gram.trees import Trees, trees_of

# the fine tables' share of the budget: towards 0 and 1 noise grows without end
LEAST_FINE = 0.02
MOST_FINE = 0.9
WIDEST = 8192  # levels of all columns together
_MESSAGE = 1 << 27  # bytes, at most


@dataclass(frozen=True)
class Spread:
    """How a release's noise is spread: each block's σ over the release's, and the cells that a person moves."""

    factors: Mapping[Block, float]
    moved: Moved
    colluding: int

    def classes(self, sigma: float) -> list[tuple[float, int]]:
        """A release of noise σ as (σ, moved cells), one for each factor."""
        return [(scaled(sigma, factor), cells) for factor, cells in self.moved]

    def share(self, block: Block, holders: int, sigma: float) -> Fraction:
        """The scale of each holder's noise on a block that so many of them release together, in a release of σ."""
        colluding = min(self.colluding, max(1, holders - 1))
        return noise_share(Fraction(scaled(sigma, self.factors[block])), holders, colluding=colluding)

    def deviation(self, block: Block, holders: int, sigma: float) -> float:
        """The standard deviation of all their noise together; 0 for none."""
        share = self.share(block, holders, sigma)
        return math.sqrt(holders * DiscreteGaussianNoise(share).variance) if share else 0.0


@dataclass(frozen=True)
class Place:
    """Where a three-way table is counted: its block, and of each of its columns the group and the number in it."""

    block: Block
    columns: tuple[tuple[int, int], ...]

    @property
    def across(self) -> bool:
        """Whether two of its columns are with one group, and one with another."""
        return self.block[0] != self.block[1]

    def axes(self, group: int) -> list[int]:
        """Which axes of the table are this group's columns."""
        return [axis for axis, (own, _) in enumerate(self.columns) if own == group]


@dataclass(frozen=True, eq=False)
class Layout:
    """Blocks of the joint matrix, and the three-way tables (`triples`, by column names) that go with them.

    `fine`: where levels are to be chosen (`data.encoding.fine`), all columns' fine tables are released first. `levels`
    are those that were chosen, group by group; before that, and without it, they are as declared.
    """

    schemas: Mapping[str, Schema]
    triples: tuple[tuple[str, str, str], ...] = ()
    fine: bool = False
    levels: tuple[tuple[int, ...], ...] | None = None

    @cached_property
    def grid(self) -> Grid:
        return Grid.of(self.schemas)

    @cached_property
    def group_sizes(self) -> tuple[tuple[int, ...], ...]:
        """The levels of every column, group by group."""
        return self.levels or tuple(
            Codec(schema).sizes for schema in self.grid.one_each(self.schemas).values()
        )

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The length of a one-hot row of each group."""
        return tuple(map(sum, self.group_sizes))

    @cached_property
    def buys(self) -> bool:
        """Whether levels are bought, by a first release of fine tables."""
        return self.fine and any(map(is_bought, self.joint.columns))

    @cached_property
    def trees(self) -> tuple[Trees, ...]:
        """What is counted of each group's columns for the fine tables."""
        return trees_of([*self.grid.one_each(self.schemas).values()], fine_schema(self.joint))

    def on(self, levels: Levels) -> "Layout":
        """The same with these levels of all columns."""
        sizes = iter(levels.sizes)
        return replace(self, levels=tuple(tuple(islice(sizes, count)) for count in self._columns))

    def width_of(self, name: str) -> int:
        return self.widths[self.grid.group_of(name)]

    @cached_property
    def joint(self) -> Schema:
        return self.grid.join(self.schemas)

    @property
    def columns(self) -> int:
        return len(self.joint.columns)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The levels of every column."""
        return tuple(size for sizes in self.group_sizes for size in sizes)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        return self.grid.blocks

    def shape(self, block: Block) -> tuple[int, int]:
        g, h = block
        return self.widths[g], self.widths[h]

    def holders(self, block: Block) -> tuple[str, ...]:
        """Who has a part in the block."""
        return self.grid.holders(block)

    def spreads(
        self, colluding: int, *, across: bool = False, refined: int = 0, chosen: int = 0
    ) -> tuple[Spread, ...]:
        """The noise of each release, by what is public. The largest factor of what is released is 1.

        Pairs that are measured again, so many as `refined` says, all have the same noise, and triples with them, of
        which up to so many as `chosen` are named later: the price is agreed on before some are chosen, and with noise
        by block it would depend on how many of them lie across holders.
        Edges: nothing to release, or more to refine than there are pairs → ConfigError.
        """
        if refined > (pairs := math.comb(self.columns, 2)):
            raise ConfigError(
                f"there are {pairs:,} pairs of columns, those with a target among them, and no more can be measured "
                "twice. Nothing was charged."
            )
        wanted, cells = self.everything(across=across), Counter[Block]()
        for g, h in self.blocks:
            cells[g, h] = int(wanted[self._span(g), self._span(h)].sum())
        for names in self.triples if not refined else ():
            cells[self.triple(names).block] += 1
        if not +cells:
            raise ConfigError("no pair of columns lies across holders. Nothing was charged.")
        spreads = [self._spread(cells, colluding)]
        if self.buys:
            nodes = Counter({(group, group): trees.moved for group, trees in enumerate(self.trees)})
            spreads.insert(0, self._spread(nodes, colluding))
        if refined:
            even = dict.fromkeys(self.blocks, 1.0)
            spreads.append(Spread(even, ((1.0, refined + len(self.triples) + chosen),), colluding))
        return tuple(spreads)

    def _spread(self, cells: Counter[Block], colluding: int) -> Spread:
        """The least noise in all for a person who moves so many cells of each block."""
        shares = {block: len(self.holders(block)) for block in self.blocks}
        ratio = {block: count / max(1, count - colluding) for block, count in shares.items()}  # r
        least = min(ratio[block] for block in +cells)
        # Two square roots: the same to the last bit on every machine, as a power need not be.
        factors = {block: math.sqrt(math.sqrt(least / r)) for block, r in ratio.items()}
        moved = Counter[float]()
        for block, count in (+cells).items():
            moved[factors[block]] += count
        return Spread(factors, tuple(sorted(moved.items())), colluding)

    def shares(self, fine: float, scouting: float, *, again: bool) -> list[float]:
        """Each release's share of the budget: of the fine tables, of all pairs, and of some once more."""
        pairs = [scouting, 1 - scouting] if again else [1.0]
        return [fine, *((1 - fine) * share for share in pairs)] if self.buys else pairs

    def check_width(self) -> None:
        """Refuse a matrix that no machine would fit: declared levels are as many as they are, bought ones are few."""
        bought = [column for column in self.joint.columns if self.buys and is_bought(column)]
        sizes = {column.name: column.size for column in self.joint.columns if column not in bought}
        if (width := sum(sizes.values()) + (most_width(len(bought)) if bought else 0)) > WIDEST:
            largest = max(sizes.items(), key=lambda one: one[1], default=None)
            most = "" if largest is None else f", {largest[0]} {largest[1]:,} of them"
            raise ConfigError(
                f"the columns have {width:,} levels together{most}, and a joint table of more than {WIDEST:,} cannot "
                "be fitted. Declare fewer, or let levels be bought: `fine` above 0, and no `bins`. "
                "Nothing was read or charged."
            )

    def again(self, target: str | None, refined: int) -> int:
        """How many pairs are measured twice: those with the target, and so many others."""
        return refined + len(self.pairs_with(target))

    def choosable(self, target: str | None, wanted: int) -> int:
        """How many three-way tables with the target may be chosen: so many, if as many pairs of columns are with it."""
        if target is None:
            return 0
        self.pairs_with(target)
        return min(wanted, len(self.beside(target)))

    def beside(self, target: str) -> Tensor:
        """The pairs of columns, (n, 2), the lower first, that are with the target in no more than two groups."""
        place, group = self.joint.names.index(target), torch.repeat_interleave(torch.tensor(self._columns))
        others = torch.tensor([n for n in range(self.columns) if n != place], dtype=torch.int64)
        pairs = torch.combinations(others).reshape(-1, 2)
        of = group[pairs]
        return pairs[(of[:, 0] == of[:, 1]) | (of == group[place]).any(1)]

    def also(self, pairs: Tensor, most: int, target: str | None) -> "Layout":
        """The same with the three-way tables of these pairs of columns, (n, 2), and the target.

        Edges: more than `most`, one twice, columns of three groups, or too many cells → MessageError.
        """
        if target is None or not most:
            if len(pairs):
                raise MessageError("no three-way table was due. Nothing was charged or sent.")
            return self
        good = pairs.dtype == torch.int64 and pairs.ndim == 2 and pairs.shape[1] == 2
        named = [(a, b) for a, b in pairs.tolist()] if good else []
        good &= len(set(named)) == len(named) <= most
        if not good or not set(map(tuple, self.beside(target).tolist())).issuperset(named):
            raise MessageError(
                f"at most {most} different pairs of columns that are with the target, in two groups of holders or one, "
                "were due for three-way tables. Nothing was charged or sent."
            )
        names, place = self.joint.names, self.joint.names.index(target)
        if any(self.sizes[a] * self.sizes[b] * self.sizes[place] > MOST_CELLS for a, b in named):
            raise MessageError(
                f"a three-way table has more than {MOST_CELLS:,} cells. Nothing was charged or sent."
            )
        return replace(self, triples=(*self.triples, *((names[a], names[b], target) for a, b in named)))

    def together(self, most_holders: int) -> int:
        """By how much a person moves a cell at most: by one for each holder of the same columns that they are with.

        Over a grid alignment refuses such people; a server that departs from it counts nobody more often than there are
        holders in every group.
        """
        self.grid.check_most_holders(most_holders)
        return most_holders

    def chunk(self, most: int, ring: Ring, widths: Sequence[int] = ()) -> int:
        """How many people go into one message: as many as fit, and no more than `most`.

        `widths` of each group's rows, where these are not one-hot rows of their columns.
        """
        wide = max(widths or self.widths)
        row = wide * ring.dtype.itemsize * max(1, len(self.widths) - 1)  # bytes per person, at most
        return max(1, min(most, _MESSAGE // row))

    def stream(self, release: int, part: int) -> int:
        """The number of a pad: each is for one message alone. Parts are the blocks, then the triples.

        Triples that are chosen come with the last release: what it has more is beyond all numbers before it.
        """
        return release * (len(self.blocks) + len(self.triples)) + part

    # What is released of it

    def everything(self, *, across: bool = False) -> Tensor:
        """All columns and all their pairs, or the pairs `across` groups alone: (m, m), upper triangle.

        After fine tables of the columns it is the pairs alone, unless there are none.
        """
        group = torch.repeat_interleave(torch.tensor(self._columns))
        return ((group[:, None] != group) | (not across)).triu(int(self.buys and self.columns > 1))

    def pairs_with(self, target: str | None) -> Tensor:
        """All pairs with this column, the lower first: (m − 1, 2); none for None."""
        if target is None:
            return torch.empty(0, 2, dtype=torch.int64)
        if target not in self.joint.names:
            raise ConfigError(f'nobody has a column "{target}". Nothing was charged.')
        place = self.joint.names.index(target)
        others = torch.tensor([n for n in range(self.columns) if n != place], dtype=torch.int64)
        return torch.stack([others.clamp(max=place), others.clamp(min=place)], dim=1)

    def only(self, pairs: Tensor, expected: int, target: str | None = None) -> Tensor:
        """These pairs of columns: (pairs, 2) → (m, m), upper triangle.

        Edges: not so many pairs, or one with the target is missing → MessageError.
        """
        wanted = torch.zeros(self.columns, self.columns, dtype=torch.bool)
        good = pairs.dtype == torch.int64 and pairs.shape == (expected, 2)
        if good and bool(((pairs >= 0) & (pairs < self.columns)).all()):
            wanted[pairs[:, 0], pairs[:, 1]] = True
        if int(wanted.triu(1).sum()) != expected or not expected:
            raise MessageError(
                f"{expected} different pairs of columns were due, the lower first. Nothing was charged or sent."
            )
        if not bool(wanted[tuple(self.pairs_with(target).T)].all()):
            raise MessageError(f"all pairs with {target} were due. Nothing was charged or sent.")
        return wanted

    def cells(self, block: Block, wanted: Tensor) -> Tensor:
        """Which cells of the block that is. Within a group: the upper triangle."""
        rows, columns = (torch.repeat_interleave(torch.tensor(self.group_sizes[group])) for group in block)
        of_group = self._starts[block[0]], self._starts[block[1]]
        marked = wanted[rows[:, None] + of_group[0], columns[None, :] + of_group[1]]
        if block[0] == block[1]:
            return (marked & movable(self.group_sizes[block[0]])).triu()
        return marked

    def triple(self, names: Sequence[str]) -> Place:
        """Where the three-way table of these columns is counted. ConfigError where they are not of one group."""
        place = self.place(names)
        if place is None or place.across:
            raise ConfigError(f"{', '.join(names)} are not three columns of one holder. Nothing was charged.")
        return place

    def place(self, names: Sequence[str]) -> Place | None:
        """The same also where two of them are of one group and one of another; else None."""
        schemas = self.grid.one_each(self.schemas).values()
        found = {
            name: (group, number)
            for group, schema in enumerate(schemas)
            for number, name in enumerate(schema.names)
            if name in names
        }
        groups = sorted({group for group, _ in found.values()})
        if len(found) != 3 or len(groups) > 2:
            return None
        return Place((groups[0], groups[-1]), tuple(found[name] for name in names))

    def shape_of(self, place: Place) -> list[int]:
        """The levels along each axis of a three-way table."""
        return [self.group_sizes[group][number] for group, number in place.columns]

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return tuple(accumulate(self._columns, initial=0))

    @cached_property
    def _columns(self) -> tuple[int, ...]:
        return tuple(len(schema.columns) for schema in self.grid.one_each(self.schemas).values())

    def _span(self, group: int) -> slice:
        return slice(self._starts[group], self._starts[group + 1])
