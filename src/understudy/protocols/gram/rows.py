"""A holder's rows for a joint Gram matrix: the levels of every column, and before these the fine cells."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from understudy.data.encoding.codec import Codec, Codes
from understudy.data.encoding.levels import merged
from understudy.ground.errors import PartyError, SchemaError
from understudy.privacy.secure.counts import gram_matrix
from understudy.protocols.gram.layout import Layout
from understudy.protocols.gram.trees import Trees

if TYPE_CHECKING:
    from understudy.data.table import Table


class Rows:
    """Rows in the common order, counted in batches that add up. Of a table that is held there is one batch, encoded
    here, before anything is charged: SchemaError where a row does not fit. A long one is encoded at each count anew,
    and so is a held one where bounds were found since.

    Edges: rows of a long table that fit the schema no more, or a person who comes twice by now → PartyError, which
    names neither.
    """

    def __init__(self, table: "Table", layout: Layout, group: int) -> None:
        self._table, self.group = table, group
        # Of bought levels the fine cell of every value, and ends where they are counted (`Trees.cells`).
        self._held: tuple[Trees | None, Codes] | None = None
        if not table.long:
            self._cells(layout.tops.get(group) or self._trees(layout))
        self._levels: tuple[Layout, Codes] | None = None
        self._counted: tuple[Layout, Tensor] | None = None

    def codes(self, layout: Layout) -> Codes:
        """The level of every cell, (people, columns), of rows that are held: no other are multiplied."""
        if self._levels is None or self._levels[0].levels is not layout.levels:
            self._levels = layout, self._on_levels(self._cells(self._trees(layout)), layout)
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
        for cells in self.cell_batches(self._trees(layout)):
            yield self._on_levels(cells, layout)

    def cell_batches(self, trees: Trees | None) -> Iterator[Codes]:
        """The cell of every value in these trees, or as it is declared, likewise."""
        if self._held is not None:
            yield self._cells(trees)
            return
        try:
            for batch in self._table.code_batches():
                yield self._encode(batch, trees)
        except SchemaError as error:
            raise PartyError(
                "the table cannot be read again as it was when it was opened. The release is paid for, and nothing "
                "was sent."
            ) from error

    def _trees(self, layout: Layout) -> Trees | None:
        return layout.trees[self.group] if layout.buys else None

    def _cells(self, trees: Trees | None) -> Codes:
        """Of rows that are held: encoded once for the same cells."""
        if self._held is None or (trees and trees.schema) != (self._held[0] and self._held[0].schema):
            self._held = trees, self._encode(self._table.frame, trees)
        return self._held[1]

    def _encode(self, frame: Any, trees: Trees | None) -> Codes:
        return Codec(self._table.schema).codes(frame) if trees is None else trees.cells(frame)

    def _on_levels(self, cells: Codes, layout: Layout) -> Codes:
        if layout.levels is None:
            return cells
        names, groups = layout.joint.names, layout.levels.groups
        return merged(cells, [groups[names.index(name)] for name in self._table.schema.names])
