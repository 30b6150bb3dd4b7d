"""A holder's rows for a joint Gram matrix: the levels of every column, and before these the fine cells."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from understudy.data.encoding.codec import Codec, Codes
from understudy.data.encoding.levels import merged
from understudy.ground.errors import PartyError, SchemaError
from understudy.privacy.secure.counts import gram_matrix
from understudy.protocols.gram.layout import Layout

if TYPE_CHECKING:
    from understudy.data.table import Table


class Rows:
    """Rows in the common order, counted in batches that add up. Of a table that is held there is one batch, encoded
    here, before anything is charged: SchemaError where a row does not fit. A long one is encoded at each count anew.

    Edges: rows of a long table that fit the schema no more, or a person who comes twice by now → PartyError, which
    names neither.
    """

    def __init__(self, table: "Table", layout: Layout, group: int) -> None:
        self._table, self.group = table, group
        # Of bought levels the fine cell of every value, and ends where they are counted (`Trees.cells`).
        self._encode = layout.trees[group].cells if layout.buys else Codec(table.schema).codes
        self._held = None if table.long else self._encode(table.frame)
        self._levels: tuple[Layout, Codes] | None = None
        self._counted: tuple[Layout, Tensor] | None = None

    def codes(self, layout: Layout) -> Codes:
        """The level of every cell, (people, columns), of rows that are held: no other are multiplied."""
        assert self._held is not None
        if self._levels is None or self._levels[0].levels is not layout.levels:
            self._levels = layout, self._on_levels(self._held, layout)
        return self._levels[1]

    def matrix(self, layout: Layout) -> Tensor:
        """Σ x xᵀ over one-hot rows: counted once on the same levels, however many releases are made of it."""
        if self._counted is None or self._counted[0].levels is not layout.levels:
            sizes = layout.group_sizes[self.group]
            total = torch.zeros(sum(sizes), sum(sizes), dtype=torch.int64)
            for codes in self.code_batches(layout):
                total += gram_matrix(codes, sizes)
            self._counted = layout, total
        return self._counted[1]

    def code_batches(self, layout: Layout) -> Iterator[Codes]:
        """The level of every cell, in parts whose counts are to be added up."""
        if self._held is not None:
            yield self.codes(layout)
            return
        for cells in self.cell_batches():
            yield self._on_levels(cells, layout)

    def cell_batches(self) -> Iterator[Codes]:
        """The cell of every value, declared or fine, likewise."""
        if self._held is not None:
            yield self._held
            return
        try:
            yield from map(self._encode, self._table.code_batches())
        except SchemaError as error:
            raise PartyError(
                "the table cannot be read again as it was when it was opened. The release is paid for, and nothing "
                "was sent."
            ) from error

    def _on_levels(self, cells: Codes, layout: Layout) -> Codes:
        if layout.levels is None:
            return cells
        names, groups = layout.joint.names, layout.levels.groups
        return merged(cells, [groups[names.index(name)] for name in self._table.schema.names])
