"""The cells of a table, or of a part of it, judged by how each column is read: values
in their types, or what is wrong.

Rows of a long table become levels without a value for each cell (`Batch`): a text is
looked at once for all cells that hold it, and numbers are compared with bounds and
edges.

Guarantee: levels are those of the values that `cells` reads, and a cell that it would
refuse is refused, in its words: whatever is not plainly within its column's domain is
left to it.
Edges: messages quote the wrong value and are for the holder of the rows alone.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import (
    Binned,
    Categorical,
    Column,
    Integer,
    OneOf,
    Real,
    is_unbounded,
    widest,
)
from understudy.data.encoding.values import (
    Cells,
    Codes,
    Places,
    codes_of,
    found_levels,
    is_within,
    typed,
)
from understudy.data.reading import cells as reading
from understudy.data.reading.cells import NOT_NULLABLE, Fault, read_cells, read_ids
from understudy.data.reading.files import Source, batches_of, open_source
from understudy.data.reading.one_hot import fold_raw
from understudy.data.reading.sources import ALL, Part
from understudy.data.reading.written import Raw
from understudy.data.schema import Schema
from understudy.ground.check import nearest
from understudy.ground.errors import Effect, SchemaError

LISTED = '; "understudy schema check" lists all'
_FEW = 1_000  # words of a column whose levels are kept


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One way in which a table does not fit its schema. `error=False` marks a mere
    notice.
    """

    source: str
    column: str | None
    row: int | None
    value: object
    reason: str
    error: bool = True

    def __str__(self) -> str:
        where = (
            self.source
            if self.column is None
            else f'{self.source}, column "{self.column}"'
        )
        if self.row is None:
            return f"{where}: {self.reason}"
        position = (
            f"row {self.row:,}"
            if self.value is None
            else f"value {_show(self.value)} at row {self.row:,}"
        )
        return f"{where}: {position} {self.reason}"


def read_columns(
    source: Source,
    readers: Mapping[str, "Reader"],
    name: str | None = None,
    *,
    hint: str = "",
) -> tuple[Raw, dict[str, Cells]]:
    """The columns that the readers name, each in its own type; other columns are not
    read. The first cell that does not fit is a SchemaError, which says how many more
    there are.
    """
    raw = fold_raw(open_source(source, wanted(readers), name), groups_in(readers))
    return raw, judged(raw, readers, hint)


def judged(
    raw: Raw, readers: Mapping[str, "Reader"], hint: str = LISTED
) -> dict[str, Cells]:
    """The cells of a table or of a part of it, each in its column's type. SchemaError
    where one does not fit.
    """
    cells, faults = scan(raw, readers)
    count = sum(fault.count for fault in faults if fault.error)
    if count:
        first = next(violations(raw.name, [fault for fault in faults if fault.error]))
        more = f" (and {count - 1:,} more{hint})" if count > 1 else ""
        raise SchemaError(
            f"{str(first).rstrip('.')}{more}.", effect=Effect.NOTHING_READ_FURTHER
        )
    return cells


def readers_of(schema: Schema, one_row_each: bool) -> dict[str, "Reader"]:
    """How each column is read, the person first."""
    person = (
        {}
        if schema.person is None
        else {schema.person: id_reader(schema.person, one_row_each)}
    )
    return person | {column.name: cell_reader(column) for column in schema.columns}


class Reader(NamedTuple):
    """How one column is read: whether it holds numbers, and its cells and row numbers →
    values and faults.
    """

    numeric: bool
    read: Callable[[Cells, Places], tuple[Cells, list[Fault]]]
    group: OneOf | None = None  # of columns of which one is 1: it is read from these


def cell_reader(column: Column, gap: str = NOT_NULLABLE) -> Reader:
    """Values of the declared kind; `gap` is said of an empty cell."""
    plain = isinstance(column, Integer | Real) and column.form is None
    return Reader(
        plain,
        partial(read_cells, column, gap=gap),
        column if isinstance(column, OneOf) else None,
    )


def id_reader(name: str, one_row_each: bool) -> Reader:
    return Reader(False, partial(read_ids, name, one_row_each=one_row_each))


def groups_in(readers: Mapping[str, Reader]) -> list[OneOf]:
    return [reader.group for reader in readers.values() if reader.group is not None]


def wanted(readers: Mapping[str, Reader]) -> dict[str, bool]:
    """The columns to read; of a group its own, and the group itself, which rows that
    were folded before have.
    """
    parts = {part.name: False for group in groups_in(readers) for part in group.parts}
    return parts | {name: reader.numeric for name, reader in readers.items()}


def scan(
    raw: Raw, readers: Mapping[str, Reader]
) -> tuple[dict[str, Cells], list[Fault]]:
    """The cells in their own types (unusable where there is an error), and what is
    wrong with them.
    """
    faults = [*_header_faults(raw, readers), *raw.faults]
    cells: dict[str, Cells] = {}
    for name, reader in readers.items():
        if name in raw.columns:
            cells[name], column_faults = reader.read(raw.columns[name], raw.numbers)
            faults += column_faults
    if raw.columns and not len(raw.numbers):
        faults.append(Fault(reason="the table has no rows."))
    return cells, faults


def _header_faults(raw: Raw, declared: Mapping[str, Reader]) -> Iterator[Fault]:
    wanted_names = wanted(declared)
    for name, reader in declared.items():
        unfolded = reader.group is not None and name not in raw.header
        for expected in (
            reader.group.categories
            if reader.group is not None and unfolded
            else (name,)
        ):
            if expected not in raw.header:
                spare = [
                    str(label) for label in raw.header if label not in wanted_names
                ]
                yield Fault(
                    column=str(expected),
                    reason=f"the header has no such column.{nearest(expected, spare)}",
                )
            elif raw.header.count(expected) > 1:
                yield Fault(
                    column=str(expected),
                    reason=f"appears {raw.header.count(expected)} times in the header.",
                )
    for label in dict.fromkeys(raw.header):
        if label not in wanted_names:
            yield Fault(
                column=str(label),
                reason="is not in the schema, and is not read.",
                error=False,
            )


def violations(name: str, faults: list[Fault]) -> Iterator[Violation]:
    """One for each row that a fault holds for."""
    for fault in faults:
        rows = (None,) if fault.rows is None else fault.rows.tolist()
        values = repeat(None, len(rows)) if fault.values is None else fault.values
        for row, value in zip(rows, values, strict=True):
            properties: dict[str, Any] = {
                "column": fault.column,
                "reason": fault.reason,
                "error": fault.error,
            }
            yield Violation(source=name, row=row, value=value, **properties)


def _show(value: object) -> str:
    """A value as it stands in a message: numbers bare, text in quotes, nothing longer
    than a line.
    """
    text = f"{value:.15g}" if isinstance(value, float) else str(value)[:40]
    return (
        f'"{text}"'
        if isinstance(value, str) and not re.fullmatch(r"[-+.\deE]+", text)
        else text
    )


def raw_parts(
    source: Source,
    readers: Mapping[str, Reader],
    name: str | None = None,
    *,
    long: bool,
    part: Part = ALL,
) -> Iterator[Raw]:
    """A table in batches, as it stands; one that is not long in one."""
    for raw in batches_of(source, wanted(readers), name, long=long, part=part):
        # A part without rows is of use for its header and its faults alone.
        read = raw if len(raw.numbers) or not long else replace(raw, columns={})
        yield fold_raw(read, groups_in(readers))


class Batch:
    """Some rows as they came; each column is judged when it is asked for: as values, or
    as levels of one like it.
    """

    def __init__(
        self, cells: dict[str, Cells], rows: int, judge: Callable[[str], Cells]
    ) -> None:
        self._cells = cells
        self._rows = rows
        self._judge = judge

    def __len__(self) -> int:
        return self._rows

    @property
    def columns(self) -> list[str]:
        return list(self._cells)

    def __getitem__(self, name: str) -> Cells:
        return self._judge(name)

    def codes(self, column: Column) -> Codes:
        codes = _codes(column, self._cells[column.name])
        return codes_of(column, self[column.name]) if codes is None else codes

    def check(self, column: Column) -> None:
        if not _fits(
            widest(column) if is_unbounded(column) else column, self._cells[column.name]
        ):
            self._judge(column.name)


def _codes(column: Column, cells: Cells) -> Codes | None:
    """The level of each cell; None where that takes a closer look."""
    if isinstance(cells.dtype, pd.CategoricalDtype):
        codes: NDArray[Any] = _levels_of_words(column, cells.cat.categories)[
            cells.cat.codes.to_numpy()
        ]
    elif _is_plain(column) and cells.dtype.kind in "iuf":
        codes = found_levels(column, cells)
    else:
        return None
    return (
        None if len(codes) and codes.min() < 0 else codes.astype(np.int32, copy=False)
    )


def _fits(column: Column, cells: Cells) -> bool:
    """Whether every cell fits; False where that takes a closer look."""
    if isinstance(cells.dtype, pd.CategoricalDtype):
        levels = _levels_of_words(column, cells.cat.categories)
        codes = cells.cat.codes.to_numpy()
        fine = levels[:-1].min(initial=0) >= 0 and (
            column.nullable or codes.min(initial=0) >= 0
        )
        return bool(fine or levels[codes].min() >= 0)
    if (
        isinstance(column, Binned)
        and _is_plain(column)
        and cells.dtype.kind in "iuf"
        and is_within(column, cells)
    ):
        return True
    return _codes(column, cells) is not None


def _is_plain(column: Column) -> bool:
    if isinstance(column, Categorical):
        return not isinstance(column.categories[0], str)
    return isinstance(column, Integer | Real) and column.form is None


def _levels_of_words(column: Column, words: "pd.Index[Any]") -> Codes:
    """The level of each text, and after these that of a missing cell; −1 for what does
    not fit.
    """
    if len(words) <= _FEW and all(type(word) is str for word in words):
        return _levels_of_few(column, tuple(words))
    return _looked_up(column, words)


def _looked_up(column: Column, words: "tuple[str, ...] | pd.Index[Any]") -> Codes:
    texts = pd.Series(words, dtype=object)
    missing = texts.isin(reading.missing_words(column)).to_numpy()
    values, reasons = reading.parse(column, texts)
    fine = ~missing & ~np.logical_or.reduce([mask for _, mask in reasons])
    levels = np.full(len(texts) + 1, -1, dtype=np.int32)
    levels[:-1][fine] = codes_of(
        column, typed(column, values[fine], np.zeros(int(fine.sum()), dtype=bool))
    )
    if column.nullable:
        levels[:-1][missing] = levels[-1] = column.levels
    return levels


_levels_of_few = lru_cache(maxsize=256)(_looked_up)  # the same in every batch
