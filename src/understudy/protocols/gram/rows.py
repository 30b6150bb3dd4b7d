"""A holder's rows for a joint Gram matrix: the levels of every column, and before these the fine cells."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
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

_ROWS = 1 << 18  # that are looked at together


class Rows:
    """Rows in the common order, counted in batches that add up. What is held, and whatever is multiplied, is encoded
    here, before anything is charged: SchemaError where a row does not fit. Of a long one its cells are held then, in a
    byte or two each; one that is only counted is encoded at each count anew, and any where bounds were found since.

    Edges: rows of a long table that fit the schema no more, or a person who comes twice by now → PartyError, which
    names neither.
    """

    def __init__(self, table: "Table", layout: Layout, group: int) -> None:
        self._table, self.group = table, group
        # Of bought levels the fine cell of every value, and ends where they are counted (`Trees.cells`).
        self._held: tuple[Trees | None, Codes] | None = None
        if not table.long:
            self._cells(layout.tops.get(group) or self._trees(layout))
        self._counted: tuple[Layout, Tensor] | None = None

    def codes(self, layout: Layout, start: int, stop: int) -> Codes:
        """The level of every cell of these people, (people, columns): of rows that are held."""
        return self._on_levels(self._cells(self._trees(layout))[start:stop], layout)

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
        for cells in self.cell_batches(self._trees(layout)):
            yield self._on_levels(cells, layout)

    def cell_batches(self, trees: Trees | None) -> Iterator[Codes]:
        """The cell of every value in these trees, or as it is declared, likewise."""
        if self._held is not None:
            cells = self._cells(trees)
            yield from (cells[start : start + _ROWS] for start in range(0, len(cells), _ROWS))
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
            sizes = Codec(self._table.schema).sizes if trees is None else trees.sizes
            few = np.min_scalar_type(max(sizes))
            self._held = trees, self._table.encoded(lambda rows: self._encode(rows, trees).astype(few))
        return self._held[1]

    def _encode(self, frame: Any, trees: Trees | None) -> Codes:
        return Codec(self._table.schema).codes(frame) if trees is None else trees.cells(frame)

    def _on_levels(self, cells: Codes, layout: Layout) -> Codes:
        if layout.levels is None:
            return cells
        names, groups = layout.joint.names, layout.levels.groups
        return merged(cells, [groups[names.index(name)] for name in self._table.schema.names])
