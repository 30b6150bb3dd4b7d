"""Tables, read by the public schema and checked against it before anything else sees
them.

Text cells are read by the kind that the schema declares, so "007" stays text where the
categories are text, and 7 is a number where they are numbers. A cell is missing when it
is empty or holds NA, NaN, null or None, unless the schema declares that word as a
category.

A table that is longer than memory is checked when it is opened and read in batches
whenever it is needed. A protocol that only adds up rows (`gram`, where holders have
different people, and of one holder) walks over `batches`. One that needs every row at
its place (`gram` in a vertical partition, `dplt`, `tied`) holds what it makes of them
(`encoded`), and any other asks for `frame`, which is all of it.

Guarantee: a `Table` from `read_table` or `open_table` fits its schema in every cell and
has one row per person, or, where the caller allows several (`one_row_each=False`), says
of every row whose it is. Both are checked at every reading of a long table: a batch is
of use only once its reading has come to its end.
Edges: no rows → SchemaError; a single row is read, and is for a run to refuse; columns
that the schema does not know are never read. Messages quote the wrong value and are for
the holder of the rows alone. Rows that change between two readings, as a database's
may, are taken as they are at each; a part has to keep its people. Of an id of a long
table 8 bytes are kept, of a text under a key of this table: two of n ids are taken for
one with a probability of n²/2⁶⁵, and then the table is refused, never the other way
round.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from understudy.data.reading import judged
from understudy.data.reading.files import Source, described_source, is_long, open_source
from understudy.data.reading.judged import (
    LISTED,
    Batch,
    Violation,
    groups_in,
    raw_parts,
    read_columns,
    readers_of,
    wanted,
)
from understudy.data.reading.one_hot import fold_raw
from understudy.data.reading.sources import ALL, EngineFrame, Part, TableSource
from understudy.data.reading.written import Marks, Raw, room_for
from understudy.data.schema import Schema
from understudy.ground.errors import Effect, PartyError, SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from understudy.data.reading.spread import PartExecutor, Piece

_DESCRIBED = (TableSource, EngineFrame)
# rows, how many of them have the id of an earlier one, and of parts that were looked at
# apart who is in each (`Marks`)
Seen = tuple[int, int, dict[int, tuple[int, str]]]
_AGAIN = "the table cannot be read again as it was when it was opened."


@dataclass(frozen=True, eq=False)
class Table:
    """Rows that fit their schema, the person first, then columns in the schema's order.
    Its repr shows no rows.
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
        """Who each row is: the ids (whole numbers or text), or 0, 1, 2, … when the
        schema names no person.
        """
        if self.schema.person is None:
            return np.arange(self.rows)
        return self.frame[self.schema.person].to_numpy()

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that tell these rows, in this order, from others; of a long table
        the same for all.
        """
        if self.long:
            return bytes(32)
        rows = pd.util.hash_pandas_object(self.frame, index=False).to_numpy()
        return hashlib.sha256(rows.tobytes()).digest()

    def batches(self) -> Iterator[pd.DataFrame]:
        """All rows, in order, in parts of which one is held at a time; here all at
        once.
        """
        yield self.frame

    def code_batches(self) -> Iterator[Any]:
        """The same for whoever wants levels (`Codec.codes`): of a long table as they
        came, and not judged yet.
        """
        yield from self.batches()

    @property
    def repeated(self) -> int:
        """How many rows have the id of an earlier one."""
        return int(pd.Series(self.people).duplicated().sum())

    @property
    def reread_from(self) -> Source:
        """Where the same rows can be read again."""
        return self.frame

    def encoded(self, encode: Callable[[Any], NDArray[Any]]) -> NDArray[Any]:
        """What `encode` makes of the rows, in their order; of a long table batch by
        batch (`code_batches`).
        """
        return encode(self.frame)

    def take(self, rows: ArrayLike) -> "Table":
        return Table(
            self.frame.iloc[np.asarray(rows)].reset_index(drop=True),
            self.schema,
            self.source,
        )

    def first_of_each(self) -> "Table":
        return self.take(np.sort(np.unique(self.people, return_index=True)[1]))


class StreamedTable(Table):
    """A long table, or a part of it; `rows` and `repeated` as when it was opened. Under
    a key `marks` has its ids. Once it was asked for its `people`, every reading has to
    find the same ones in the same order.
    """

    def __init__(
        self, origin: Any, schema: Schema, part: Part = ALL, key: str | None = None
    ) -> None:
        from understudy.data.reading.spread import named_spread

        title = (
            origin.name
            if isinstance(origin, _DESCRIBED)
            else f"part {part[0] + 1} of {part[1]}"
        )
        fields_of_table = {
            "origin": origin,
            "schema": schema,
            "source": title,
            "part": part,
            "key": key,
            "marks": Marks(),
        }
        fields_of_table |= {
            "named": named_spread(),
            "known": None,
            "seen": None,
            "ids": secrets.token_hex(8),
        }
        for name, value in fields_of_table.items():
            object.__setattr__(self, name, value)  # as a frozen dataclass does

    long: ClassVar[bool] = True
    # the last: a part that an engine has cut
    origin: "TableSource | EngineFrame | pa.Table"
    part: Part
    key: str | None
    marks: Marks
    named: "PartExecutor | None"
    # a key, and a digest of the people's marks under it
    known: tuple[str, bytes] | None
    seen: Seen | None
    ids: str  # the key under which parts mark them

    @cached_property
    def spread(self) -> "PartExecutor | None":
        """Who reads its parts at the same time, if somebody does; nobody, where it is a
        part itself.
        """
        from understudy.data.reading.spread import spread_of

        is_part = self.part != ALL or self.key is not None
        return (
            None
            if is_part
            else spread_of(
                self.origin, self.named, list(wanted(readers_of(self.schema, False)))
            )
        )

    @property
    def _counted(self) -> Seen:
        # not `cached_property`, under whose lock a part in another thread would wait
        counted = self.seen
        if counted is None:
            counted = self._looked_at()
            object.__setattr__(self, "seen", counted)
        return counted

    def _looked_at(self) -> Seen:
        """Every cell is looked at."""
        marks = Marks(self.key)
        if isinstance(self.origin, EngineFrame):
            readers = readers_of(self.schema, one_row_each=False)
            judged.judged(
                fold_raw(open_source(self.origin, {}), groups_in(readers)), readers
            )
        if self.spread is not None:
            from understudy.data.reading.spread import found_by, task_of

            about = {"holder": self.source, "stage": "opening"}
            key = secrets.token_bytes(32)
            task = task_of(
                self,
                "understudy.data.table:checked_part",
                self.schema.to_dict(),
                about,
                key,
            )
            marks = found_by(self.spread, task)
            return marks.rows, marks.repeated, marks.parts
        for batch in self.uncoded(marks):
            for column in self.schema.columns:
                batch.check(column)
        object.__setattr__(self, "marks", marks if self.key else Marks())
        return marks.rows, marks.repeated, {}

    @property
    def rows(self) -> int:
        return self._counted[0]

    @property
    def repeated(self) -> int:
        return self._counted[1]

    @property
    def parts(self) -> dict[int, tuple[int, str]]:
        return self._counted[2]

    @property
    def reread_from(self) -> Source:
        return self.origin

    @cached_property
    def frame(self) -> pd.DataFrame:
        frame = read_table(self.origin, self.schema, one_row_each=False).frame
        marks = self._marks()
        if self.schema.person is not None:
            marks.note(frame[self.schema.person], len(frame))
            self._require_same(marks)
        return frame

    def batches(self) -> Iterator[pd.DataFrame]:
        """SchemaError at the end where a person came twice."""
        for batch in self.code_batches():
            yield pd.DataFrame({name: batch[name] for name in batch.columns})

    @property
    def people(self) -> NDArray[Any]:
        """The same, from the column of ids alone; texts have numpy's own type."""
        person = self.schema.person
        if person is None:
            return np.arange(self.rows)
        marks = self._marks()
        text = np.dtypes.StringDType()
        ids = (batch[person].to_numpy() for batch in self.uncoded(marks, [person]))
        parts = [
            batch_ids if batch_ids.dtype == np.int64 else batch_ids.astype(text)
            for batch_ids in ids
        ]
        kind = np.int64 if all(part.dtype == np.int64 for part in parts) else text
        self._require_same(marks)
        object.__setattr__(self, "known", (marks.key, marks.order.digest()))
        return np.concatenate([part.astype(kind, copy=False) for part in parts])

    def take(self, rows: ArrayLike) -> Table:
        return TakenTable(self, np.asarray(rows))

    def encoded(
        self,
        encode: Callable[[Any], NDArray[Any]],
        target_rows: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """The same; `target_rows`: of every row where it goes, or −1 where it goes
        nowhere.
        """
        rows = self.rows if target_rows is None else len(target_rows)
        start = 0
        codes: NDArray[Any] | None = None
        marks = self._marks()
        try:
            for batch in self.uncoded(marks):
                batch_codes = encode(batch)
                stop = min(start + len(batch), rows)
                target = (
                    np.arange(start, stop)
                    if target_rows is None
                    else target_rows[start:stop]
                )
                if codes is None:
                    codes = room_for(
                        (
                            rows if target_rows is None else int(target_rows.max()) + 1,
                            *batch_codes.shape[1:],
                        ),
                        batch_codes.dtype,
                    )
                start += len(batch)
                codes[target[target >= 0]] = batch_codes[: len(target)][target >= 0]
            if (
                codes is None
                or start != rows
                or (self.known is None and marks.repeated != self.repeated)
            ):
                raise SchemaError(f"{self.source} has other rows by now.")
            self._require_same(marks)
        except SchemaError as error:
            # which may quote rows, where a server waits for an answer
            raise PartyError(_AGAIN, effect=Effect.NOTHING_CHARGED_OR_SENT) from error
        return codes

    def code_batches(self) -> Iterator[Batch]:
        marks = self._marks()
        yield from self.uncoded(marks)
        self.require_one_row_each(marks.repeated)
        self._require_same(marks)
        if self.key and self.marks.rows and self.marks.people != marks.people:
            raise SchemaError(f"{self.source} has other rows by now.")
        object.__setattr__(self, "marks", marks if self.key else Marks())

    def require_one_row_each(self, repeated: int) -> None:
        if repeated:
            raise SchemaError(
                f'{self.source}, column "{self.schema.person}": {repeated:,} rows '
                "have the id of an earlier row, and a "
                "person has one row.",
                effect=Effect.NOTHING_READ_FURTHER,
            )

    def _marks(self) -> Marks:
        return Marks(self.known[0] if self.known else self.key)

    def _require_same(self, marks: Marks) -> None:
        if self.known is not None and self.known[1] != marks.order.digest():
            raise SchemaError(
                f"{self.source}: its people are others by now, or in another order."
            )

    def uncoded(
        self, marks: Marks, columns: Sequence[str] | None = None
    ) -> Iterator[Batch]:
        """All rows as they came, a batch at a time, or these columns of them; who they
        are is noted.
        """
        readers = readers_of(self.schema, one_row_each=False)
        hint = f" in the same part of it{LISTED}"
        readers = (
            readers if columns is None else {name: readers[name] for name in columns}
        )
        for raw in raw_parts(
            self.origin, readers, self.source, long=True, part=self.part
        ):
            judged.judged(replace(raw, columns={}), readers, hint)

            def judge(name: str, raw: Raw = raw) -> "pd.Series[Any]":
                one_column = replace(raw, columns={name: raw.columns[name]}, faults=())
                return judged.judged(one_column, readers, hint)[name]

            if len(raw.numbers):
                marks.note(
                    None if self.schema.person is None else judge(self.schema.person),
                    len(raw.numbers),
                )
                yield Batch(raw.columns, len(raw.numbers), judge)


class TakenTable(Table):
    """Some rows of a long table in an order of their own, read again when they are
    needed.
    """

    def __init__(self, whole: StreamedTable, order: NDArray[Any]) -> None:
        for name, value in {
            "whole": whole,
            "order": order,
            "schema": whole.schema,
            "source": whole.source,
        }.items():
            object.__setattr__(self, name, value)

    whole: StreamedTable
    order: NDArray[Any]

    @property
    def rows(self) -> int:
        return len(self.order)

    @property
    def people(self) -> NDArray[Any]:
        people: NDArray[Any] = self.whole.people[self.order]
        return people

    @cached_property
    def frame(self) -> pd.DataFrame:
        return self.whole.frame.iloc[self.order].reset_index(drop=True)

    def encoded(self, encode: Callable[[Any], NDArray[Any]]) -> NDArray[Any]:
        target_rows = np.full(self.whole.rows, -1, np.min_scalar_type(-self.whole.rows))
        target_rows[self.order] = np.arange(self.rows)
        return self.whole.encoded(encode, target_rows)

    def take(self, rows: ArrayLike) -> Table:
        return TakenTable(self.whole, self.order[np.asarray(rows)])


def read_table(
    source: Source,
    schema: Schema,
    name: str | None = None,
    *,
    one_row_each: bool = True,
) -> Table:
    """Read a .csv, .csv.gz or .parquet file, or a DataFrame, and check every cell
    against the schema. A person who comes twice is an error, unless
    `one_row_each=False` lets people have several rows.
    """
    raw, cells = read_columns(
        source, readers_of(schema, one_row_each), name, hint=LISTED
    )
    return Table(frame=pd.DataFrame(cells), schema=schema, source=raw.name)


def open_table(
    source: Source,
    schema: Schema,
    name: str | None = None,
    *,
    one_row_each: bool = True,
) -> Table:
    """The table, checked: held in memory, or where it is long, read in batches when it
    is needed.
    """
    if not _is_long(source, schema):
        return read_table(source, schema, name, one_row_each=one_row_each)
    table = StreamedTable(described_source(source), schema)
    if table.repeated and one_row_each:  # in this order: all of it is looked at
        table.require_one_row_each(table.repeated)
    return table


def checked_part(schema_dict: dict[str, Any]) -> "Callable[[Piece], dict[str, Any]]":
    """What is found in a part when a table is opened: who is there, once every cell was
    looked at.
    """
    from understudy.data.reading.spread import with_marks

    schema = Schema.from_dict(schema_dict)

    def check(piece: "Piece") -> dict[str, Any]:
        part = StreamedTable(piece.source, schema, piece.part, piece.key)
        _ = part.rows
        return with_marks(part.marks)

    return check


def check_table(
    source: Source, schema: Schema, *, one_row_each: bool = True
) -> list[Violation]:
    """Everything that keeps a table from fitting its schema, and notices; of a long
    one, ids that repeat as a count.
    """
    long = _is_long(source, schema)
    readers = readers_of(schema, one_row_each and not long)
    marks = Marks()
    by_key: dict[Any, Violation] = {}
    for raw in raw_parts(source, readers, long=long):
        cells, faults = judged.scan(raw, readers)
        # What is wrong with the header, or with a line that was read ahead, is said
        # with every part.
        by_key |= {
            (violation.column, violation.row, violation.reason): violation
            for violation in judged.violations(raw.name, faults)
        }
        if (
            long
            and one_row_each
            and schema.person in cells
            and not any(fault.error for fault in faults)
        ):
            marks.note(cells[schema.person], len(raw.numbers))
    repeated = marks.repeated
    if repeated:
        reason = (
            f"{repeated:,} rows have the id of an earlier row: a person has one row."
        )
        repeated_ids = Violation(
            source=raw.name, column=schema.person, row=None, value=None, reason=reason
        )
        by_key[repeated_ids.column, repeated_ids.row, repeated_ids.reason] = (
            repeated_ids
        )
    return list(by_key.values())


def _is_long(source: Source, schema: Schema) -> bool:
    return is_long(source, len(schema.names) + (schema.person is not None))
