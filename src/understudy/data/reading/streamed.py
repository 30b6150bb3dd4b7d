"""Tables that are longer than memory: checked once when they are opened, and read in batches whenever they are needed.

A protocol that only adds up over rows (`gram`, where holders have different people, and of one holder) reads `batches`
and holds one of them at a time. Any other asks for `frame`, and so reads all of it.

Guarantee: every cell is checked against the schema at every reading, and so is, where the schema names a person, that
nobody comes twice: a batch is of use only once its reading has come to its end.
Edges: rows that change between two readings, as a database's may, are taken as they are at each. Of an id 8 bytes are
kept, under a key of this reading: two of n ids are taken for one with a probability of n²/2⁶⁵, and then the table is
refused, never the other way round.
"""

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.reading.batches import batches_of, is_long
from understudy.data.reading.files import Raw, Source, Want, open_source
from understudy.data.reading.sources import TableSource, source_at
from understudy.data.schema import Schema
from understudy.data.table import (
    LISTED,
    Reader,
    Table,
    Violation,
    check_table,
    judged,
    read_table,
    readers_of,
    scan,
    violations,
    wanted,
)
from understudy.ground.errors import SchemaError


class StreamedTable(Table):
    """A long table. `rows` and `repeated` (rows with the id of an earlier one) are as they were when it was opened."""

    def __init__(self, origin: TableSource, schema: Schema) -> None:
        for key, value in {"origin": origin, "schema": schema, "source": origin.name}.items():
            object.__setattr__(self, key, value)  # as a frozen dataclass does
        ids = Ids()
        for batch in self._read():
            ids.note(batch, schema.person)
        object.__setattr__(self, "_counted", (ids.rows, ids.repeated))

    long: ClassVar[bool] = True
    origin: TableSource
    _counted: tuple[int, int]

    @property
    def rows(self) -> int:
        return self._counted[0]

    @property
    def repeated(self) -> int:
        return self._counted[1]

    @property
    def again(self) -> Source:
        return self.origin

    @cached_property
    def frame(self) -> pd.DataFrame:
        """All rows at once."""
        return read_table(self.origin, self.schema, one_row_each=False).frame

    def batches(self) -> Iterator[pd.DataFrame]:
        """All rows, in order, a batch at a time. SchemaError at the end where a person came twice."""
        ids = Ids()
        for batch in self._read():
            ids.note(batch, self.schema.person)
            yield batch
        require_one_row_each(self.source, self.schema, ids.repeated)

    def _read(self) -> Iterator[pd.DataFrame]:
        readers = readers_of(self.schema, one_row_each=False)
        hint = f" in the same part of it{LISTED}"
        for raw in _parts(self.origin, readers):
            cells = judged(raw, readers, hint)
            if len(raw.numbers):
                yield pd.DataFrame(cells)


def _parts(source: TableSource, readers: Mapping[str, Reader]) -> Iterator[Raw]:
    for raw in batches_of(source, wanted(readers), source.name):
        # One without rows is of use for its header and its faults alone.
        yield raw if len(raw.numbers) else replace(raw, columns={})


class Ids:
    """Who was there: a mark of 8 bytes for each id."""

    def __init__(self) -> None:
        self.rows = 0
        self._key = secrets.token_hex(8)
        self._marks: list[NDArray[np.uint64]] = []

    def note(self, batch: pd.DataFrame, person: str | None) -> None:
        self.rows += len(batch)
        if person is not None:
            # As text in one form, as alignment has it: a batch of "7" and "8" alone was read as numbers.
            words = batch[person].astype(str).str.normalize("NFC").to_numpy(object)
            self._marks.append(pd.util.hash_array(words, hash_key=self._key, categorize=False))

    @property
    def repeated(self) -> int:
        """How many rows have the id of an earlier one."""
        marks = np.sort(np.concatenate(self._marks)) if self._marks else np.empty(0, np.uint64)
        return int((marks[1:] == marks[:-1]).sum())


def require_one_row_each(name: str, schema: Schema, repeated: int) -> None:
    if repeated:
        raise SchemaError(
            f'{name}, column "{schema.person}": {repeated:,} rows have the id of an earlier row, and a person has one '
            "row. Nothing was read further."
        )


def check_rows(source: Source, schema: Schema) -> list[Violation]:
    """As `check_table`, of a table of any length: of a long one, rows whose ids came before are counted, not listed."""
    if (origin := _long(source, schema)) is None:
        return check_table(source, schema)
    readers, ids = readers_of(schema, one_row_each=False), Ids()
    found: dict[Any, Violation] = {}
    for raw in _parts(origin, readers):
        cells, faults = scan(raw, readers)
        # What is wrong with the header, or with a line that was read ahead, is said with every part.
        found |= {(one.column, one.row, one.reason): one for one in violations(raw.name, faults)}
        if len(raw.numbers) and not any(fault.error for fault in faults):
            ids.note(pd.DataFrame(cells), schema.person)
    if ids.repeated:
        reason = f"{ids.repeated:,} rows have the id of an earlier row: a person has one row."
        again = Violation(source=origin.name, column=schema.person, row=None, value=None, reason=reason)
        found[again.column, again.row, again.reason] = again
    return list(found.values())


def _long(source: Source, schema: Schema) -> TableSource | None:
    return long_source(source, len(schema.names) + (schema.person is not None))


def long_source(source: Source, columns: int) -> TableSource | None:
    """Where the rows lie, if so many columns of them are too many to hold."""
    if isinstance(source, pd.DataFrame) or hasattr(source, "__arrow_c_stream__"):
        return None
    described = source if isinstance(source, TableSource) else source_at(source)
    return described if is_long(described, columns) else None


def parts_of(source: Source, want: Want, *, columns: int) -> Iterator[Raw]:
    """The table in parts, in order: one, unless so many columns are too many to hold."""
    origin = long_source(source, columns)
    return iter([open_source(source, want)]) if origin is None else batches_of(origin, want, origin.name)


def open_table(
    source: Source, schema: Schema, name: str | None = None, *, one_row_each: bool = True
) -> Table:
    """The table, checked: held in memory, or where it is long, read in batches when it is needed."""
    if (origin := _long(source, schema)) is None:
        return read_table(source, schema, name, one_row_each=one_row_each)
    table = StreamedTable(origin, schema)
    if one_row_each:
        require_one_row_each(table.source, schema, table.repeated)
    return table
