"""A holder's rows for a joint Gram matrix: the levels of every column, and before these the fine cells."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from understudy.data.encoding.codec import Codec, Codes
from understudy.data.encoding.levels import merged
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.ground.errors import PartyError, SchemaError
from understudy.privacy.secure.counts import gram_matrix
from understudy.protocols.gram.layout import Layout


class Rows:
    """Rows in the common order. Counts are of batches that add up; of a table that is held there is one."""

    def __init__(self, frame: pd.DataFrame, schema: Schema, layout: Layout, group: int) -> None:
        self._frame, self._schema, self.group = frame, schema, group
        self._trees = layout.trees[group] if layout.buys else None
        self._levels: tuple[Layout, Codes] | None = None
        self._counted: tuple[Layout, Tensor] | None = None

    def check(self) -> None:
        """Find out whether all rows fit, before anything is charged."""
        if self._trees is None:
            _ = self._declared
        else:
            _ = self._cells

    def codes(self, layout: Layout) -> Codes:
        """The level of every cell, (people, columns)."""
        if self._levels is None or self._levels[0].levels is not layout.levels:
            self._levels = (
                layout,
                self._declared if layout.levels is None else self._merged(self._cells, layout),
            )
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
        yield self.codes(layout)

    def cell_batches(self) -> Iterator[Codes]:
        """The fine cell of every value, likewise."""
        yield self._cells

    @cached_property
    def _declared(self) -> Codes:
        return Codec(self._schema).codes(self._frame)

    @cached_property
    def _cells(self) -> Codes:
        return self._fine(self._frame)

    def _fine(self, frame: pd.DataFrame) -> Codes:
        """The fine cell of every value, and ends where they are counted (`Trees.cells`)."""
        assert self._trees is not None
        return self._trees.cells(frame)

    def _merged(self, cells: Codes, layout: Layout) -> Codes:
        assert layout.levels is not None
        names, groups = layout.joint.names, layout.levels.groups
        return merged(cells, [groups[names.index(name)] for name in self._schema.names])


class StreamedRows(Rows):
    """Rows of a long table, over rows alone: encoded a batch at a time, at each count anew, and never held.

    Edges: rows that fit the schema no more, or a person who comes twice by now → PartyError, which names neither.
    """

    def __init__(self, table: Table, layout: Layout, group: int) -> None:
        super().__init__(pd.DataFrame(), table.schema, layout, group)
        self._table = table

    def check(self) -> None:
        """It was checked when it was opened, and is at each count."""

    def codes(self, layout: Layout) -> Codes:
        return np.empty((0, len(self._schema.columns)), dtype=np.int32)  # over rows nothing is multiplied

    def code_batches(self, layout: Layout) -> Iterator[Codes]:
        codec = Codec(self._schema)
        for frame in self._frames():
            yield codec.codes(frame) if layout.levels is None else self._merged(self._fine(frame), layout)

    def cell_batches(self) -> Iterator[Codes]:
        yield from map(self._fine, self._frames())

    def _frames(self) -> Iterator[pd.DataFrame]:
        try:
            yield from self._table.batches()
        except SchemaError as error:
            raise PartyError(
                "the table cannot be read again as it was when it was opened. The release is paid for, and nothing "
                "was sent."
            ) from error
