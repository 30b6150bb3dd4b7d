"""The stages of gram, each one noisy release, and a holder's rows as they are counted.

- `FineTables`: hierarchical histograms of all columns.
- `Pairs`: cells of the joint Gram matrix, all pairs of columns or some once more, with
  3-way marginals and the digits of atoms.
- `Threes`: one signed sum for every three columns.

*In a horizontal partition* each holder counts the matrix Σ x xᵀ of its one-hot rows x,
and the matrices add up. *In a vertical partition* the blocks of two groups of holders
are secure products X_gᵀX_h. The holders of a group count 3-way marginals of its own
columns. For three columns in two groups, the holder of two of them forms one column of
all pairs of their levels and multiplies its 0/1 rows with the third column at a holder
of the other group. All such tables of a run go into one product, of which only the
cells of each table are released.

*With a union* each holder has rows of some people only. In a product, a person whom it
lacks is a zero row, and a person whom it has carries a last coordinate of 1. So blocks
across holders count the people at both, and the product also holds their number and
their 1-way marginals. Blocks within a holder count all of its own people.

Noise: the engine adds a discrete Gaussian to every cell; σ is `spread`'s factor of a
block times the σ of the release.
Guarantee: a person moves by 1 one cell of every column, pair of columns and 3-way
marginal that is marked, one node in every layer of every column's tree, one count of
each digit (`models.tables.spikes`), and every sum of three. In a union a person at both
moves `Layout.presence_moved` further cells by 1. None of this depends on which levels,
cells, halves, pairs and tables the server chose.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.codec import Codec, Codes, merged
from understudy.data.schema import Block, Schema
from understudy.ground.errors import Effect, MessageError, PartyError, SchemaError
from understudy.models.tables.spikes import Spikes
from understudy.models.tables.trees import Trees
from understudy.privacy.secure.counts import (
    gram_matrix,
    mirrored,
    one_hot,
    sums_of_threes,
    triple_table,
)
from understudy.privacy.secure.ring import Bits
from understudy.protocols.gram.layout import Layout, Names, Place
from understudy.protocols.joint.pricing import BlockSpec, NoiseAllocation
from understudy.protocols.joint.stage import (
    Multiplied,
    Product,
    Shares,
    Stage,
    block_name,
)

if TYPE_CHECKING:
    from understudy.data.table import Table

_PRESENCE = "presence"  # the block of people at both holders of a union
# rows in a batch: sums of so many signs are exact in float32 (below 2²⁴)
_ROWS = 1 << 18


class TableRows:
    """A holder's table, encoded as levels and counted in batches that add up.

    A table that fits in memory, and whatever enters a product, is encoded when the run
    begins, before anything is charged: SchemaError where a row does not fit the schema.
    Its cells are then kept, in a byte or two each. A long table that is only counted is
    encoded anew at each count. So is any table once "reach" has found bounds.
    Edges: rows of a long table that no longer fit, or a person who comes twice →
    PartyError, which names neither.
    """

    def __init__(
        self,
        table: "Table",
        layout: Layout,
        group: int,
        in_union: NDArray[Any] | None = None,
    ) -> None:
        self._table = table
        self.group = group
        # of a union: the sorted positions of its people, and the row of each
        self._rows_by_place: tuple[NDArray[Any], NDArray[Any]] | None = None
        if in_union is not None:
            order = np.argsort(in_union)
            self._rows_by_place = in_union[order], order
        # where levels are bought: the fine cell of every value, and its end where ends
        # are counted (`Trees.cells`)
        self._held: tuple[Trees | None, Codes] | None = None
        if not table.long:
            self._cells(layout.tops.get(group) or self._trees(layout))
        self._counted: tuple[Layout, Tensor] | None = None

    def codes(self, layout: Layout, start: int, stop: int) -> Codes:
        """The level of every value of people `start` to `stop`, (people, columns), of a
        table that is kept encoded.
        """
        return self._on_levels(self._cells(self._trees(layout))[start:stop], layout)

    def in_product(
        self,
        layout: Layout,
        start: int,
        stop: int,
        expand: Callable[[Codes], Bits],
    ) -> Bits:
        """The vectors that enter a secure product: `expand` of the codes of people
        `start` to `stop`, (people, width). In a union, zero rows for people whom this
        holder does not have.
        """
        if self._rows_by_place is None:
            return expand(self.codes(layout, start, stop))
        places, order = self._rows_by_place
        first, last = np.searchsorted(places, [start, stop])
        cells = self._cells(self._trees(layout))[order[first:last]]
        vectors = expand(self._on_levels(cells, layout))
        rows = np.zeros((stop - start, vectors.shape[1]), dtype=np.bool_)
        rows[places[first:last] - start] = vectors
        return rows

    def matrix(self, layout: Layout) -> Tensor:
        """Σ x xᵀ over one-hot rows x, exact. It is counted once for given levels and
        kept for later releases.
        """
        if self._counted is None or self._counted[0].levels is not layout.levels:
            sizes = layout.group_sizes[self.group]
            total = torch.zeros(sum(sizes), sum(sizes), dtype=torch.int64)
            for codes in self.code_batches(layout):
                total += gram_matrix(codes, sizes)
            self._counted = layout, total
        return self._counted[1]

    def code_batches(self, layout: Layout) -> Iterator[Codes]:
        """The level of every value, batch by batch."""
        for cells in self.cell_batches(self._trees(layout)):
            yield self._on_levels(cells, layout)

    def cell_batches(self, trees: Trees | None) -> Iterator[Codes]:
        """The leaf of every value in these trees, or its declared level, batch by
        batch.
        """
        if self._held is None:
            return self.batches(lambda some: self._encode(some, trees))
        cells = self._cells(trees)
        return (cells[start : start + _ROWS] for start in range(0, len(cells), _ROWS))

    def batches(self, encode: Callable[[Any], NDArray[Any]]) -> Iterator[NDArray[Any]]:
        """`encode` of all rows, batch by batch."""
        whole = [] if self._held is None else [self._table.encoded(encode)]
        try:
            yield from whole or map(encode, self._table.code_batches())
        except SchemaError as error:
            raise PartyError(
                "the table cannot be read again as it was when it was opened.",
                effect=Effect.CHARGED_AND_NOTHING_SENT,
            ) from error

    def _trees(self, layout: Layout) -> Trees | None:
        return layout.trees[self.group] if layout.buys else None

    def _cells(self, trees: Trees | None) -> Codes:
        """The leaves of a table that is kept encoded; encoded again for new bounds."""
        if self._held is None or _schema_of(self._held[0]) != _schema_of(trees):
            sizes = Codec(self._table.schema).sizes if trees is None else trees.sizes
            dtype = np.min_scalar_type(max(sizes))

            def encode(rows: Any) -> Codes:
                return self._encode(rows, trees).astype(dtype)

            self._held = (trees, self._table.encoded(encode))
        return self._held[1]

    def _encode(self, frame: Any, trees: Trees | None) -> Codes:
        if trees is None:
            return Codec(self._table.schema).codes(frame)
        return trees.cells(frame)

    def _on_levels(self, cells: Codes, layout: Layout) -> Codes:
        if layout.levels is None:
            return cells
        names = layout.joint.names
        places = [names.index(name) for name in self._table.schema.names]
        groups = layout.levels.groups
        return merged(cells, [groups[place] for place in places])


def _schema_of(trees: Trees | None) -> Schema | None:
    return None if trees is None else trees.schema


@dataclass(frozen=True, eq=False)
class FineTables(Stage[TableRows]):
    """Hierarchical histograms (Hay et al., VLDB 2010): one block for each group, with
    the counts of all nodes of all its columns' trees side by side. Levels are chosen
    from them. `reach`: instead the public cells over all numbers, of columns without
    declared bounds (`data.encoding.fine`).
    """

    layout: Layout
    spread: NoiseAllocation
    reach: bool = False

    @cached_property
    def trees(self) -> Mapping[int, Trees]:
        """The trees of each group."""
        return self.layout.tops if self.reach else dict(enumerate(self.layout.trees))

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        blocks = {}
        for g, trees in self.trees.items():
            blocks[str(g)] = BlockSpec(
                (g, g),
                (trees.nodes,),
                math.sqrt(trees.moved),
                factor=self.spread.factors[g, g],
            )
        return blocks

    def count(self, rows: TableRows) -> dict[str, Tensor]:
        trees = self.trees.get(rows.group)
        if trees is None:
            return {}
        nodes = torch.zeros(trees.nodes, dtype=torch.int64)
        for cells in rows.cell_batches(trees):
            nodes += trees.count(cells)
        return {str(rows.group): nodes}

    def read(
        self, sums: Mapping[str, Tensor], noise: Mapping[str, float]
    ) -> tuple[list[Tensor], list[float]]:
        """The noisy nodes of each group, and the standard deviation of their noise."""
        return [sums[key] for key in self.blocks], [noise[key] for key in self.blocks]


@dataclass(frozen=True)
class NoisyGram:
    """A release of cells of the Gram matrix.

    `gram`: the noisy counts (width, width), symmetric. `noise`: the standard deviation
    of each, 0 where exact. `measured`: which cells were released. `triples`: 3-way
    marginals, each with the numbers of its `columns`, its `table` of noisy counts, and
    their `noise`. `both`, in a union: the 1-way marginals among people at both holders,
    with their number last, (width + 1,), and the standard deviation of their noise.
    """

    gram: Tensor
    noise: Tensor
    measured: Tensor
    triples: list[dict[str, Any]]
    both: tuple[Tensor, float] | None = field(default=None, kw_only=True)


@dataclass(frozen=True, eq=False)
class Pairs(Multiplied[TableRows]):
    """1-way and 2-way marginals of the columns and pairs that are `wanted` (m, m), the
    3-way marginals `tables`, and the digits of atoms (`spikes`), the last under `loud`
    times the noise. A block holds only its marked cells; within a group those of the
    upper triangle. `again`: a second measurement, after all pairs.
    """

    layout: Layout
    wanted: Tensor
    tables: tuple[Names, ...]
    spread: NoiseAllocation
    again: bool = False
    spikes: tuple[Spikes, ...] = ()
    loud: float = 1.0

    @cached_property
    def marks(self) -> dict[Block, Tensor]:
        """Which cells of each block are released, for blocks that have any."""
        layout = self.layout
        marks = {}
        for block in layout.grid.blocks:
            if layout.marked_in(block, self.wanted):
                marks[block] = layout.cells(block, self.wanted)
        return marks

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The block and columns of each 3-way marginal."""
        places = [self.layout.place(names) for names in self.tables]
        return tuple(place for place in places if place is not None)

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        blocks = dict[str, BlockSpec]()
        layout = self.layout
        factors = self.spread.factors
        for block, marked in self.marks.items():
            moved = layout.marked_in(block, self.wanted)
            blocks[block_name(block)] = BlockSpec(
                block,
                (int(marked.sum()),),
                math.sqrt(moved),
                factor=factors[block],
            )
        for n, place in enumerate(self.places):
            blocks[self._table(n)] = BlockSpec(
                place.block,
                layout.shape_of(place),
                1.0,
                factor=factors[place.block],
            )
        for atoms in self.spikes:
            digits = atoms.shape[0]
            blocks[str(atoms.number)] = BlockSpec(
                (atoms.group, atoms.group),
                atoms.shape,
                math.sqrt(digits),
                factor=self.loud,
            )
        if self.presence:
            blocks[_PRESENCE] = BlockSpec(
                (0, 1),
                (sum(layout.widths) + 1,),
                math.sqrt(layout.presence_moved),
                factor=factors[0, 1],
            )
        return blocks

    @property
    def presence(self) -> bool:
        """Whether people at both holders of a union are counted in this stage."""
        return self.layout.union and not self.again

    @cached_property
    def product(self) -> Product | None:
        if not self.again:
            has_several = len(self.layout.widths) > 1
            widths = self.layout.product_widths
            return Product.of_all(widths) if has_several else None
        blocks = dict.fromkeys(place.block for place in self.places if place.across)
        if not blocks:
            return None
        groups = dict.fromkeys(group for block in blocks for group in block)
        again = {group: sum(self._table_sizes(group).values()) for group in groups}
        return Product(again, tuple(blocks))

    def count(self, rows: TableRows) -> dict[str, Tensor]:
        block = (rows.group, rows.group)
        parts = {}
        if block in self.marks:
            matrix = rows.matrix(self.layout)
            parts[block_name(block)] = matrix[self.marks[block]]
        return parts | self._own_triples(rows) | self._own_spikes(rows)

    def _own_triples(self, rows: TableRows) -> dict[str, Tensor]:
        """The three-way tables within this holder's group."""
        block = (rows.group, rows.group)
        sizes = self.layout.group_sizes[rows.group]
        columns = {}
        tables = {}
        for n, place in enumerate(self.places):
            if place.block == block:
                columns[n] = [column for _, column in place.columns]
                shape = self.layout.shape_of(place)
                tables[n] = torch.zeros(shape, dtype=torch.int64)
        if tables:
            for codes in rows.code_batches(self.layout):
                for n, table in tables.items():
                    table += triple_table(codes, sizes, columns[n])
        return {self._table(n): table for n, table in tables.items()}

    def _own_spikes(self, rows: TableRows) -> dict[str, Tensor]:
        """The digits of this holder's spikes."""
        spikes = [one for one in self.spikes if one.group == rows.group]
        if not spikes:
            return {}

        def encode(some: Any) -> NDArray[Any]:
            return np.stack([one.codes(some) for one in spikes], 1)

        parts: dict[str, Tensor] = {}
        for batch in rows.batches(encode):
            for one, codes in zip(spikes, batch.T, strict=True):
                key = str(one.number)
                counts = one.count(codes)
                parts[key] = parts[key] + counts if key in parts else counts
        return parts

    def vectors(self, rows: TableRows, start: int, stop: int) -> NDArray[Any]:
        def expand(codes: Codes) -> Bits:
            if self.again:
                return self._table_rows(codes, rows.group)
            levels = one_hot(codes, self.layout.group_sizes[rows.group])
            if not self.presence:
                return levels
            return np.pad(levels, ((0, 0), (0, 1)), constant_values=True)

        return rows.in_product(self.layout, start, stop, expand)

    def across(self, shares: Shares) -> dict[str, Tensor]:
        pair_shares = shares.get("pairs", {})
        widths = self.layout.widths
        parts = {}
        for block, marked in self.marks.items():
            if block in pair_shares:
                one, other = block
                product = pair_shares[block][: widths[one], : widths[other]]
                parts[block_name(block)] = product[marked]
        if self.presence and (0, 1) in pair_shares:
            product = pair_shares[0, 1]
            parts[_PRESENCE] = torch.cat([product[:-1, -1], product[-1]])
        again = shares.get("again", {})
        for n, place in enumerate(self.places):
            if place.across and place.block in again:
                parts[self._table(n)] = self._triple_in(again[place.block], n)
        return parts

    def _triple_in(self, product: Tensor, n: int) -> Tensor:
        """A 3-way marginal across two groups, cut out of the product of all of them."""
        place = self.places[n]
        one, other = place.block
        rows = self._table_spans(one)[n]
        columns = self._table_spans(other)[n]
        axes = [*place.axes(one), *place.axes(other)]
        shape = self.layout.shape_of(place)
        table = product[rows, columns].reshape([shape[axis] for axis in axes])
        return table.permute(*map(axes.index, range(3))).contiguous()

    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> NoisyGram:
        layout = self.layout
        width = sum(layout.widths)
        gram = torch.zeros(width, width, dtype=torch.int64)
        deviation = torch.zeros(width, width, dtype=torch.float64)
        released = torch.zeros(width, width, dtype=torch.bool)
        for block, marked in self.marks.items():
            name = block_name(block)
            at = layout.corner(block)
            gram[at][marked] = sums[name]
            deviation[at][marked] = noise[name]
            released[at] = marked
        tables = []
        for n, triple in enumerate(self.tables):
            columns = [layout.joint.names.index(column) for column in triple]
            key = self._table(n)
            tables.append({"columns": columns, "table": sums[key], "noise": noise[key]})
        both = (sums[_PRESENCE], noise[_PRESENCE]) if self.presence else None
        return NoisyGram(
            mirrored(gram),
            mirrored(deviation),
            released | released.T,
            tables,
            both=both,
        )

    # 3-way marginals across groups: a group's rows for the product of all of them, and
    # which part of the product each table is

    def _table_rows(self, codes: Codes, group: int) -> Bits:
        """One-hot rows of every table's level, or pair of levels, side by side."""
        sizes = self._table_sizes(group)
        columns = []
        for n in sizes:
            place = self.places[n]
            local_columns = [place.columns[axis][1] for axis in place.axes(group)]
            levels = tuple(codes[:, column] for column in local_columns)
            shape = self._table_shape(n, group)
            columns.append(np.ravel_multi_index(levels, shape))
        return one_hot(np.stack(columns, axis=1), list(sizes.values()))

    def _table(self, n: int) -> str:
        return block_name(self.places[n].block, n)

    def _table_shape(self, n: int, group: int) -> Sequence[int]:
        place = self.places[n]
        shape = self.layout.shape_of(place)
        return tuple(shape[axis] for axis in place.axes(group))

    def _table_sizes(self, group: int) -> dict[int, int]:
        """How many levels, or pairs of levels, the group's side of each table has."""
        sizes = {}
        for n, place in enumerate(self.places):
            if place.across and group in place.block:
                sizes[n] = math.prod(self._table_shape(n, group))
        return sizes

    def _table_spans(self, group: int) -> dict[int, slice]:
        spans = {}
        start = 0
        for n, size in self._table_sizes(group).items():
            spans[n] = slice(start, start + size)
            start += size
        return spans


@dataclass(frozen=True, eq=False)
class Threes(Stage[TableRows]):
    """One sum Σ s_a·s_b·s_c over people for every three columns a, b, c. The sign s of
    a column says in which half of its levels a person is. A person moves each sum by 1.
    From these sums the server finds triples that depend on each other beyond their
    pairs (`models.tables.strongest`). `upper`: which levels, of all columns side by
    side, are in their column's upper half.
    """

    layout: Layout
    upper: Any
    spread: NoiseAllocation

    def __post_init__(self) -> None:
        good = isinstance(self.upper, Tensor) and self.upper.dtype == torch.bool
        if not good or self.upper.shape != (sum(self.layout.sizes),):
            raise MessageError(
                "a half for every level of every column was due.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        n_triples = math.comb(self.layout.columns, 3)
        return {
            "threes": BlockSpec(
                (0, 0),
                (n_triples,),
                math.sqrt(n_triples),
                factor=self.spread.factors[0, 0],
            )
        }

    def count(self, rows: TableRows) -> dict[str, Tensor]:
        starts = np.cumsum([0, *self.layout.sizes[:-1]])
        sign = np.where(self.upper.numpy(), np.float32(1), np.float32(-1))
        total = torch.zeros(math.comb(self.layout.columns, 3), dtype=torch.int64)
        for codes in rows.code_batches(self.layout):
            for first in range(0, len(codes), _ROWS):
                levels = codes[first : first + _ROWS] + starts
                total += sums_of_threes(torch.from_numpy(sign[levels]))
        return {"threes": total}

    def read(
        self, sums: Mapping[str, Tensor], noise: Mapping[str, float]
    ) -> tuple[Tensor, float]:
        """The noisy sums, and the standard deviation of their noise."""
        return sums["threes"], noise["threes"]
