"""Tables, read by the public schema and checked against it before anything else sees them.

Text cells are read by the kind that the schema declares, so "007" stays text where the categories are
text, and 7 is a number where they are numbers. A cell is missing when it is empty or holds NA, NaN, null
or None, unless the schema declares that word as a category. Booleans may be written true/false, yes/no
or 1/0; dates are ISO days.

A table that is longer than memory is checked when it is opened and read in batches whenever it is needed. A protocol
that only adds up over rows (`gram`, where holders have different people, and of one holder) walks over `batches` and
holds one of them at a time: of a table that is held there is one. Any other asks for `frame`, and so reads all of it.

Guarantee: a `Table` from `read_table` or `open_table` fits its schema in every cell and has one row per person, or,
where the caller allows several (`one_row_each=False`), says of every row whose it is. Both are checked at every reading
of a long table: a batch is of use only once its reading has come to its end.
Edges: no rows → SchemaError; a single row is read, and is for a run to refuse; columns that the schema
does not know are never read. Messages quote the wrong value and are for the holder of the rows alone. Rows that change
between two readings, as a database's may, are taken as they are at each. Of an id of a long table 8 bytes are kept,
of a text under a key of this reading: two of n ids are taken for one with a probability of n²/2⁶⁵, and then the table
is refused, never the other way round.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import repeat
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from understudy.data.reading.cells import NOT_NULLABLE, Fault, read_cells, read_ids
from understudy.data.reading.coded import Batch, Marks
from understudy.data.reading.files import Raw, Source, batches_of, is_long, open_source
from understudy.data.reading.sources import ALL, Part, TableSource, source_at
from understudy.data.schema import Column, Integer, Real, Schema
from understudy.ground.check import nearest
from understudy.ground.errors import SchemaError

LISTED = '; "understudy schema check" lists all'


@dataclass(frozen=True, eq=False)
class Table:
    """Rows that fit their schema: the person column first, then the columns in the schema's order.

    Made by `read_table`. Its repr shows no rows.
    """

    frame: pd.DataFrame = field(repr=False)
    schema: Schema = field(repr=False)
    source: str
    long: ClassVar[bool] = False  # read in batches whenever rows are needed

    @property
    def rows(self) -> int:
        return len(self.frame)

    @property
    def people(self) -> NDArray[Any]:
        """Who each row is: the ids (whole numbers or text), or 0, 1, 2, … when the schema names no person."""
        if self.schema.person is None:
            return np.arange(self.rows)
        return self.frame[self.schema.person].to_numpy()

    def batches(self) -> Iterator[pd.DataFrame]:
        """All rows, in order, in parts of which one is held at a time; here all at once."""
        yield self.frame

    def code_batches(self) -> Iterator[Any]:
        """The same for whoever wants levels (`Codec.codes`): of a long table as they came, and not judged yet."""
        yield from self.batches()

    @property
    def repeated(self) -> int:
        """How many rows have the id of an earlier one."""
        return int(pd.Series(self.people).duplicated().sum())

    @property
    def again(self) -> Source:
        """Where the same rows can be read again."""
        return self.frame

    def take(self, rows: ArrayLike) -> "Table":
        """The table with these rows alone, in this order."""
        return Table(self.frame.iloc[np.asarray(rows)].reset_index(drop=True), self.schema, self.source)

    def first_of_each(self) -> "Table":
        """The first row of each person."""
        return self.take(np.sort(np.unique(self.people, return_index=True)[1]))


class StreamedTable(Table):
    """A long table, or a part of it; `rows` and `repeated` as when it was opened. Under a key `marks` has its ids."""

    def __init__(self, origin: TableSource, schema: Schema, part: Part = ALL, key: str | None = None) -> None:
        own = {"origin": origin, "schema": schema, "source": origin.name, "part": part, "key": key, "marks": Marks()}
        for name, value in own.items():
            object.__setattr__(self, name, value)  # as a frozen dataclass does

    long: ClassVar[bool] = True
    origin: TableSource
    part: Part
    key: str | None
    marks: Marks

    @cached_property
    def _counted(self) -> tuple[int, int]:
        """The rows, and how many have the id of an earlier one. Every cell is looked at."""
        from understudy.data.reading.parquet import pieces_of

        marks = Marks(self.key)
        if self.part == ALL and (of := pieces_of(self.origin, len(self.schema.names) + 1)) > 1:
            from understudy.ground.processes import in_processes

            told = {"source": asdict(self.origin), "schema": self.schema.to_dict(), "of": of, "key": marks.key}
            asks = [json.dumps(told | {"number": number}).encode() for number in range(of)]
            for answer in in_processes("understudy.data.table:checked_part", asks):
                marks.add(np.frombuffer(answer, np.uint64, offset=8), int.from_bytes(answer[:8], "big"))
            return marks.rows, marks.repeated
        for batch in self.uncoded(marks):
            for column in self.schema.columns:
                batch.check(column)
        object.__setattr__(self, "marks", marks if self.key else Marks())
        return marks.rows, marks.repeated

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
        return read_table(self.origin, self.schema, one_row_each=False).frame

    def batches(self) -> Iterator[pd.DataFrame]:
        """All rows, in order, a batch at a time. SchemaError at the end where a person came twice."""
        for batch in self.code_batches():
            yield pd.DataFrame({name: batch[name] for name in batch.columns})

    def code_batches(self) -> Iterator[Batch]:
        marks = Marks(self.key)
        yield from self.uncoded(marks)
        self.require_one_row_each(marks.repeated)
        object.__setattr__(self, "marks", marks if self.key else Marks())

    def require_one_row_each(self, repeated: int) -> None:
        if repeated:
            raise SchemaError(
                f'{self.source}, column "{self.schema.person}": {repeated:,} rows have the id of an earlier row, and a '
                "person has one row. Nothing was read further."
            )

    def uncoded(self, marks: Marks) -> Iterator[Batch]:
        """All rows as they came, a batch at a time; who they are is noted."""
        readers, hint = readers_of(self.schema, one_row_each=False), f" in the same part of it{LISTED}"
        for raw in _parts(self.origin, readers, long=True, part=self.part):
            judged(replace(raw, columns={}), readers, hint)

            def judge(name: str, raw: Raw = raw) -> "pd.Series[Any]":
                own = replace(raw, columns={name: raw.columns[name]}, faults=())
                return judged(own, readers, hint)[name]

            if len(raw.numbers):
                marks.note(None if self.schema.person is None else judge(self.schema.person), len(raw.numbers))
                yield Batch(raw.columns, len(raw.numbers), judge)


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One way in which a table does not fit its schema. `error=False` marks a mere notice."""

    source: str
    column: str | None
    row: int | None
    value: object
    reason: str
    error: bool = True

    def __str__(self) -> str:
        where = self.source if self.column is None else f'{self.source}, column "{self.column}"'
        if self.row is None:
            return f"{where}: {self.reason}"
        what = f"row {self.row:,}" if self.value is None else f"value {_show(self.value)} at row {self.row:,}"
        return f"{where}: {what} {self.reason}"


def read_table(source: Source, schema: Schema, name: str | None = None, *, one_row_each: bool = True) -> Table:
    """Read a .csv, .csv.gz or .parquet file, or a DataFrame, and check every cell against the schema.

    A person who comes twice is an error, unless `one_row_each=False` lets people have several rows.
    """
    raw, cells = read_columns(source, readers_of(schema, one_row_each), name, hint=LISTED)
    return Table(frame=pd.DataFrame(cells), schema=schema, source=raw.name)


def open_table(source: Source, schema: Schema, name: str | None = None, *, one_row_each: bool = True) -> Table:
    """The table, checked: held in memory, or where it is long, read in batches when it is needed."""
    if not _is_long(source, schema):
        return read_table(source, schema, name, one_row_each=one_row_each)
    table = StreamedTable(source_at(source), schema)
    if table.repeated and one_row_each:  # in this order: all of it is looked at
        table.require_one_row_each(table.repeated)
    return table


def checked_part(told: bytes) -> bytes:
    """What another process is asked for: the rows and the marks of a part whose every cell fits."""
    asked = json.loads(told)
    source = TableSource(**asked["source"] | {"missing": tuple(asked["source"]["missing"])})
    part = StreamedTable(source, Schema.from_dict(asked["schema"]), (asked["number"], asked["of"]), asked["key"])
    return part.rows.to_bytes(8, "big") + part.marks.all.tobytes()


def read_columns(
    source: Source, readers: Mapping[str, "Reader"], name: str | None = None, *, hint: str = ""
) -> tuple[Raw, dict[str, "pd.Series[Any]"]]:
    """The columns that the readers name, each in its own type; other columns are not read.

    The first cell that does not fit is a SchemaError, which says how many more there are.
    """
    raw = open_source(source, wanted(readers), name)
    return raw, judged(raw, readers, hint)


def judged(raw: Raw, readers: Mapping[str, "Reader"], hint: str = LISTED) -> dict[str, "pd.Series[Any]"]:
    """The cells of a table or of a part of it, each in its column's type. SchemaError where one does not fit."""
    cells, faults = scan(raw, readers)
    if count := sum(fault.count for fault in faults if fault.error):
        first = next(violations(raw.name, [fault for fault in faults if fault.error]))
        more = f" (and {count - 1:,} more{hint})" if count > 1 else ""
        raise SchemaError(f"{str(first).rstrip('.')}{more}. Nothing was read further.")
    return cells


def check_table(
    source: Source, schema: Schema, name: str | None = None, *, one_row_each: bool = True
) -> list[Violation]:
    """Everything that keeps the table from fitting the schema, and notices.

    Edges: of a long one, rows whose ids came before are counted, not listed.
    """
    long = _is_long(source, schema)
    readers, marks = readers_of(schema, one_row_each and not long), Marks()
    found: dict[Any, Violation] = {}
    for raw in _parts(source, readers, name, long=long):
        cells, faults = scan(raw, readers)
        # What is wrong with the header, or with a line that was read ahead, is said with every part.
        found |= {(one.column, one.row, one.reason): one for one in violations(raw.name, faults)}
        if long and one_row_each and schema.person in cells and not any(fault.error for fault in faults):
            marks.note(cells[schema.person], len(raw.numbers))
    if repeated := marks.repeated:
        reason = f"{repeated:,} rows have the id of an earlier row: a person has one row."
        again = Violation(source=raw.name, column=schema.person, row=None, value=None, reason=reason)
        found[again.column, again.row, again.reason] = again
    return list(found.values())


def _is_long(source: Source, schema: Schema) -> bool:
    return is_long(source, len(schema.names) + (schema.person is not None))


def _parts(
    source: Source, readers: Mapping[str, "Reader"], name: str | None = None, *, long: bool, part: Part = ALL
) -> Iterator[Raw]:
    for raw in batches_of(source, wanted(readers), name, long=long, part=part):
        # A part without rows is of use for its header and its faults alone.
        yield raw if len(raw.numbers) or not long else replace(raw, columns={})


def readers_of(schema: Schema, one_row_each: bool) -> dict[str, "Reader"]:
    """How each column is read, the person first."""
    person = {} if schema.person is None else {schema.person: id_reader(schema.person, one_row_each)}
    return person | {column.name: cell_reader(column) for column in schema.columns}


class Reader(NamedTuple):
    """How one column is read: whether it holds numbers, and its cells and row numbers → values and faults."""

    numeric: bool
    read: Callable[["pd.Series[Any]", NDArray[np.int64]], tuple["pd.Series[Any]", list[Fault]]]


def cell_reader(column: Column, gap: str = NOT_NULLABLE) -> Reader:
    """Values of the declared kind; `gap` is said of an empty cell."""
    plain = isinstance(column, Integer | Real) and column.form is None
    return Reader(plain, partial(read_cells, column, gap=gap))


def id_reader(name: str, one_row_each: bool) -> Reader:
    return Reader(False, partial(read_ids, name, one_row_each=one_row_each))


def wanted(readers: Mapping[str, Reader]) -> dict[str, bool]:
    """The columns to read, and whether each holds numbers."""
    return {name: reader.numeric for name, reader in readers.items()}


def scan(raw: Raw, readers: Mapping[str, Reader]) -> tuple[dict[str, "pd.Series[Any]"], list[Fault]]:
    """The cells in their own types (unusable where there is an error), and what is wrong with them."""
    faults = [*_header_faults(raw, readers), *raw.faults]
    cells: dict[str, pd.Series[Any]] = {}
    for name, reader in readers.items():
        if name in raw.columns:
            cells[name], found = reader.read(raw.columns[name], raw.numbers)
            faults += found
    if raw.columns and not len(raw.numbers):
        faults.append(Fault(reason="the table has no rows."))
    return cells, faults


def _header_faults(raw: Raw, declared: Mapping[str, Reader]) -> Iterator[Fault]:
    for name in declared:
        if name not in raw.header:
            spare = [str(label) for label in raw.header if label not in declared]
            yield Fault(column=name, reason=f"the header has no such column.{nearest(name, spare)}")
        elif raw.header.count(name) > 1:
            yield Fault(column=name, reason=f"appears {raw.header.count(name)} times in the header.")
    for label in dict.fromkeys(raw.header):
        if label not in declared:
            yield Fault(column=str(label), reason="is not in the schema, and is not read.", error=False)


def violations(name: str, faults: list[Fault]) -> Iterator[Violation]:
    """One for each row that a fault holds for."""
    for fault in faults:
        rows = (None,) if fault.rows is None else fault.rows.tolist()
        values = repeat(None, len(rows)) if fault.values is None else fault.values
        for row, value in zip(rows, values, strict=True):
            yield Violation(
                source=name, column=fault.column, row=row, value=value, reason=fault.reason, error=fault.error
            )


def _show(value: object) -> str:
    """A value as it stands in a message: numbers bare, text in quotes, nothing longer than a line."""
    text = f"{value:.15g}" if isinstance(value, float) else str(value)[:40]
    return f'"{text}"' if isinstance(value, str) and not re.fullmatch(r"[-+.\deE]+", text) else text
