"""The releases of gram: fine tables of all columns, the joint Gram matrix, and some pairs of it once more with
three-way tables.

Over rows the matrix Σ x xᵀ of one-hot rows adds up, across columns its blocks are products X_gᵀX_h. A three-way table
of one group's columns is counted by its holders. Of three columns in two groups, two are with one of them: a holder of
these forms one column of them, of all pairs of their levels, and multiplies its 0/1 rows with the third column of a
holder of the other group. All such tables of a run go in one product, of which each table's cells alone are released.

Guarantee: a person moves one cell by 1 for every column, pair of columns and three-way table that is marked, and in
fine tables for every layer of every column's tree. Which levels, pairs and tables a server chose does not change that.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.codec import Codes
from understudy.data.schema import Block
from understudy.privacy.secure.counts import Moved, mirrored, one_hot, triple_table
from understudy.privacy.secure.ring import Bits
from understudy.protocols.gram.layout import Layout, Names, Place
from understudy.protocols.gram.rows import Rows
from understudy.protocols.gram.trees import Trees
from understudy.protocols.joint.pricing import BlockSpec
from understudy.protocols.joint.stage import Product, Shares, Stage, block_name


@dataclass(frozen=True)
class Spread:
    """How a release's noise is spread: each block's σ over the release's, and the cells that a person moves.

    *Blocks differ in σ.* Every holder of a block adds noise, so that σ is left against those who pool theirs: with M
    holders of whom up to t do, what is released has the variance r·σ², r = M/(M − t) or M (`secure.sums`). A person
    moves n_b cells of block b, and pays Σ n_b/σ_b², whatever the r_b. At that price the variance of all that is
    released, Σ n_b·r_b·σ_b², is least for σ_b ∝ r_b^(−¼) (Lagrange: n_b·r_b·σ_b ∝ n_b/σ_b³): a block that carries more
    shares gets less of each. Across two holders of columns σ is 2^(−¼) of that within one, and the released deviation
    2^¼ of it. Where all blocks have the same r, as over rows, this is one σ.
    """

    factors: Mapping[Block, float]
    moved: Moved

    @classmethod
    def least(cls, layout: Layout, cells: Counter[Block], colluding: int) -> "Spread":
        """The least noise in all for a person who moves so many cells of each block; the largest factor is 1."""
        shares = {block: len(layout.grid.holders(block)) for block in layout.grid.blocks}
        ratio = {block: count / max(1, count - colluding) for block, count in shares.items()}  # r
        least = min(ratio[block] for block in +cells)
        # Two square roots: the same to the last bit on every machine, as a power need not be.
        factors = {block: math.sqrt(math.sqrt(least / r)) for block, r in ratio.items()}
        moved = Counter[float]()
        for block, count in (+cells).items():
            moved[factors[block]] += count
        return cls(factors, tuple(sorted(moved.items())))

    @classmethod
    def even(cls, layout: Layout, cells: int) -> "Spread":
        """The same noise everywhere: for what is chosen after the price was agreed on."""
        return cls(dict.fromkeys(layout.grid.blocks, 1.0), ((1.0, cells),))


@dataclass(frozen=True, eq=False)
class FineTables(Stage[Rows]):
    """The trees of all columns, by which levels are chosen (`trees`): of each group all nodes in a row.

    `reach`: before them, the public cells of columns without bounds (`data.encoding.reach`).
    """

    layout: Layout
    spread: Spread
    reach: bool = False

    @cached_property
    def trees(self) -> Mapping[int, Trees]:
        """By group."""
        return self.layout.tops if self.reach else dict(enumerate(self.layout.trees))

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        return {
            str(g): BlockSpec((g, g), (trees.nodes,), math.sqrt(trees.moved), factor=self.spread.factors[g, g])
            for g, trees in self.trees.items()
        }

    def count(self, rows: Rows) -> dict[str, Tensor]:
        if (trees := self.trees.get(rows.group)) is None:
            return {}
        nodes = torch.zeros(trees.nodes, dtype=torch.int64)
        for cells in rows.cell_batches(trees):
            nodes += trees.count(cells)
        return {str(rows.group): nodes}

    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> tuple[list[Tensor], list[float]]:
        """Every group's nodes, and the deviation of their noise."""
        return [sums[key] for key in self.blocks], [noise[key] for key in self.blocks]


@dataclass(frozen=True)
class Counts:
    """A released matrix (width, width), the deviation of its noise, which cells were released, and three-way tables.

    A table has its columns' numbers, its counts, and the deviation of their noise.
    """

    gram: Tensor
    noise: Tensor
    measured: Tensor
    triples: list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Pairs(Stage[Rows]):
    """Columns and pairs of columns that are `wanted` (m, m), and three-way `tables`. `again`: after all pairs were.

    A block holds its marked cells, row by row; within a group those of the upper triangle.
    """

    layout: Layout
    wanted: Tensor
    tables: tuple[Names, ...]
    spread: Spread
    again: bool = False

    @cached_property
    def marks(self) -> dict[Block, Tensor]:
        """Which cells of each block are released, of those that have any."""
        layout, blocks = self.layout, self.layout.grid.blocks
        return {b: layout.cells(b, self.wanted) for b in blocks if layout.marked_in(b, self.wanted)}

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Where each three-way table is counted."""
        found = [self.layout.place(names) for names in self.tables]
        assert all(found)
        return tuple(place for place in found if place is not None)

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        factors = self.spread.factors
        pairs = {
            block_name(block): BlockSpec(
                block, (int(marked.sum()),), math.sqrt(self.layout.marked_in(block, self.wanted)), factor=factors[block]
            )
            for block, marked in self.marks.items()
        }
        return pairs | {
            self._table(n): BlockSpec(place.block, self.layout.shape_of(place), 1.0, factor=factors[place.block])
            for n, place in enumerate(self.places)
        }

    @cached_property
    def product(self) -> Product | None:
        if not self.again:
            return Product.of_all(self.layout.widths) if len(self.layout.widths) > 1 else None
        blocks = dict.fromkeys(place.block for place in self.places if place.across)
        widths = {g: sum(self._table_sizes(g).values()) for block in blocks for g in block}
        return Product(widths, tuple(blocks)) if blocks else None

    def count(self, rows: Rows) -> dict[str, Tensor]:
        own = (rows.group, rows.group)
        parts = {}
        if own in self.marks:
            parts[block_name(own)] = rows.matrix(self.layout)[self.marks[own]]
        held = {n: place for n, place in enumerate(self.places) if place.block == own}
        for n, place in held.items():
            parts[self._table(n)] = torch.zeros(self.layout.shape_of(place), dtype=torch.int64)
        for codes in rows.code_batches(self.layout) if held else ():
            for n, place in held.items():
                columns = [column for _, column in place.columns]
                parts[self._table(n)] += triple_table(codes, self.layout.group_sizes[rows.group], columns)
        return parts

    def vectors(self, rows: Rows, start: int, stop: int) -> NDArray[Any]:
        codes = rows.codes(self.layout, start, stop)
        if not self.again:
            return one_hot(codes, self.layout.group_sizes[rows.group])
        return self._table_rows(codes, rows.group)

    def across(self, shares: Shares) -> dict[str, Tensor]:
        held = shares.get("pairs", {})
        parts = {block_name(b): held[b][marked] for b, marked in self.marks.items() if b in held}
        for n, place in enumerate(self.places):
            if place.across and place.block in shares.get("again", {}):
                low, high = (self._table_spans(side)[n] for side in place.block)
                axes = [axis for side in place.block for axis in place.axes(side)]
                shape = [self.layout.shape_of(place)[axis] for axis in axes]
                table = shares["again"][place.block][low, high].reshape(shape)
                parts[self._table(n)] = table.permute(*map(axes.index, range(3))).contiguous()
        return parts

    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> Counts:
        layout, width = self.layout, sum(self.layout.widths)
        gram = torch.zeros(width, width, dtype=torch.int64)
        loud = torch.zeros(width, width, dtype=torch.float64)
        released = torch.zeros(width, width, dtype=torch.bool)
        for block, marked in self.marks.items():
            at = layout.corner(block)
            gram[at][marked] = sums[block_name(block)]
            loud[at][marked] = noise[block_name(block)]
            released[at] = marked
        names = layout.joint.names
        tables = [
            {
                "columns": [names.index(column) for column in triple],
                "table": sums[self._table(n)],
                "noise": noise[self._table(n)],
            }
            for n, triple in enumerate(self.tables)
        ]
        return Counts(mirrored(gram), mirrored(loud), released | released.T, tables)

    # Three-way tables across groups: a group's rows for the product of all of them, and where each table is in it

    def _table_rows(self, codes: Codes, group: int) -> Bits:
        """Of each table the pair of levels, or the level, as 0/1."""
        sizes = self._table_sizes(group)
        columns = [
            np.ravel_multi_index(
                tuple(codes[:, self.places[n].columns[axis][1]] for axis in self.places[n].axes(group)),
                self._table_shape(n, group),
            )
            for n in sizes
        ]
        return one_hot(np.stack(columns, axis=1), list(sizes.values()))

    def _table(self, n: int) -> str:
        return block_name(self.places[n].block, n)

    def _table_shape(self, n: int, group: int) -> Sequence[int]:
        place = self.places[n]
        return tuple(self.layout.shape_of(place)[axis] for axis in place.axes(group))

    def _table_sizes(self, group: int) -> dict[int, int]:
        """How many levels, or pairs of them, the group's part of each table has."""
        own = (n for n, place in enumerate(self.places) if place.across and group in place.block)
        return {n: math.prod(self._table_shape(n, group)) for n in own}

    def _table_spans(self, group: int) -> dict[int, slice]:
        sizes = self._table_sizes(group)
        ends = accumulate(sizes.values())
        return {n: slice(end - size, end) for (n, size), end in zip(sizes.items(), ends, strict=True)}
