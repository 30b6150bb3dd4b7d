"""Tables put out: brought into the domains of a public schema, and to files, with cells
written as it declares them.

What becomes of a cell depends on that cell and the schema alone. A real has its
declared decimals (12.50, not 12.5) and form, a boolean its labels, a date is a day in
its form, a time of day likewise, and a datetime an ISO day with its time. Missing is an
empty cell. Parquet keeps types, so values go there as they are; the order of an ordinal
column's text stays with it.
"""

import csv
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from understudy.data import column as kinds
from understudy.data.column import (
    OTHER,
    Binned,
    Boolean,
    Categorical,
    Column,
    Date,
    Datetime,
    Real,
    table_columns,
)
from understudy.data.encoding.values import Cells, dtype
from understudy.data.reading.cells import distinct, missing_words, numbers_in, texts
from understudy.data.reading.files import Source, as_they_came, batches_of, open_source
from understudy.data.reading.written import Raw
from understudy.data.schema import Schema
from understudy.data.table import read_table
from understudy.ground.durable import own_file
from understudy.ground.errors import Effect, SchemaError

# what a spreadsheet takes for a formula, also in the wide letters of East Asia, and
# what it takes for a number anyway
_FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")
_A_NUMBER = re.compile(r"[-+]?[€$£]?[0-9][0-9.,]*\s*[%€$£]?")


def write_table(
    frame: pd.DataFrame,
    path: str | Path,
    schema: object,
    *,
    separator: str = ",",
    quoted: bool = False,
) -> None:
    """Write a .parquet file, or CSV under any other name; the options are of CSV
    (`csv_text`).
    """
    path = Path(path)
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
        return
    text = csv_text(frame, schema, separator=separator, quoted=quoted)
    path.write_text(text, encoding="utf-8", newline="")


def write_tables(
    frames: Mapping[str, pd.DataFrame],
    target: Path,
    schema: Any,
    suffix: str,
    **csv_options: Any,
) -> None:
    """Tables by name into a folder, as a holder brings them (`data.visits.reading`);
    one without a name as one file.
    """
    if "" in frames:
        write_table(frames[""], target, schema, **csv_options)
        return
    target.mkdir(parents=True, exist_ok=True)
    for name, part in schema.tables.items():
        write_table(frames[name], target / f"{name}{suffix}", part, **csv_options)


def csv_text(
    frame: pd.DataFrame, schema: object, *, separator: str = ",", quoted: bool = False
) -> str:
    """The table as CSV, `quoted` for a spreadsheet (`quote_formulas`).

    Columns that no table's schema declares (those of series, say) are written as pandas
    does.
    """
    declared: dict[str, Column] = {
        column.name: column for column in table_columns(getattr(schema, "columns", ()))
    }
    cells = {
        name: as_written(declared[name], frame[name])
        if name in declared
        else frame[name]
        for name in frame
    }
    table = pd.DataFrame(cells, columns=frame.columns)
    if quoted:
        table = quote_formulas(table)
    text = table.to_csv(index=False, lineterminator="\n", sep=separator)
    if "\r" not in text:
        return text
    # Python's writer leaves a carriage return without quotes, and readers end a line
    # there.
    return table.to_csv(
        index=False, lineterminator="\n", sep=separator, quoting=csv.QUOTE_ALL
    )


def quote_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows for a spreadsheet: a text that it would run as a formula has a ' before
    it.

    Such a text begins with = + - @, a tab or the end of a line, and is no number. Names
    of columns are treated alike. A category that was bought is a text that people
    wrote, so one of them may be a formula. Edges: a file of quoted texts no longer fits
    the schema; Parquet files stay as they are.
    """
    changed = frame.copy(deep=False)
    for position in range(frame.shape[1]):
        changed.isetitem(position, _with_quotes(frame.iloc[:, position]).array)
    return changed.set_axis([_quoted(name) for name in frame.columns], axis=1)


def _with_quotes(cells: Cells) -> Cells:
    changed = {word: _quoted(word) for word in _words(cells) if _quoted(word) != word}
    if not changed:
        return cells

    def quote(value: Any) -> Any:
        return changed[value] if isinstance(value, str) and value in changed else value

    return cells.astype(object).map(quote)


def _words(cells: Cells) -> set[str]:
    """The different texts of a column."""
    if isinstance(cells.dtype, pd.CategoricalDtype):
        return {value for value in cells.cat.categories if isinstance(value, str)}
    if cells.dtype.kind != "O":
        return set()
    return {value for value in cells if isinstance(value, str)}


def _quoted(text: Any) -> Any:
    is_formula = (
        isinstance(text, str) and _FORMULA.match(text) and not _A_NUMBER.fullmatch(text)
    )
    return f"'{text}" if is_formula else text


def as_written(column: Column, cells: Cells) -> Cells:
    """The cells as a file has them, where the schema says how that is; the rest as they
    are.
    """
    if isinstance(column, Binned) and column.form is not None:
        return cells.astype(object).map(column.as_text, na_action="ignore")
    if isinstance(column, Real) and column.decimals is not None:
        return cells.map(f"{{:.{column.decimals}f}}".format, na_action="ignore").astype(
            object
        )
    if isinstance(column, Boolean):
        words = dict(zip(column.values, column.labels, strict=True))
        return cells.astype(object).map(words, na_action="ignore")
    form = "%Y-%m-%d"
    if isinstance(column, Datetime):
        form += " %H:%M:%S" if column.resolution == "second" else " %H:%M"
    if isinstance(column, Date | Datetime):
        return pd.Series(cells.dt.strftime(form))
    return cells


def coarsen(source: Source, schema: Schema, name: str | None = None) -> pd.DataFrame:
    """The table with what lies outside a domain brought into it: numbers and days
    clipped to the bounds, the numbers of an ordinal to the nearest, texts to "(other)"
    where that is a category. The rest stays as it came. Guarantee: each row by itself
    and the public schema, so it costs no privacy. Edges: what is not of the column's
    kind stays, for `check_table` to name; a line of the file with too few or too many
    cells → SchemaError.
    """
    return _coarse(open_source(source, _wanted(source, schema), name), schema)


def coarsen_long(source: Source, schema: Schema, path: Path) -> Path:
    """The same of a long table by batches, into a Parquet file of its owner's, ids as
    text; or SchemaError.
    """
    kinds = {} if schema.person is None else {schema.person: "object"}
    kinds |= {column.name: str(dtype(column)) for column in schema.columns}
    types = pa.schema(
        [(name, _TYPES.get(kind, pa.string())) for name, kind in kinds.items()]
    )
    handle = own_file(path, os.O_WRONLY | os.O_TRUNC)
    with (
        os.fdopen(handle, "wb") as file,
        pyarrow.parquet.ParquetWriter(file, types) as writer,
    ):
        for raw in batches_of(source, _wanted(source, schema), long=True):
            if raw.columns and len(raw.numbers):
                rows = read_table(
                    _coarse(raw, schema), schema, raw.name, one_row_each=False
                ).frame
                if schema.person is not None:
                    rows[schema.person] = rows[schema.person].astype(str)
                writer.write_table(
                    pa.Table.from_pandas(rows, types, preserve_index=False)
                )
    return path


def _wanted(source: Source, schema: Schema) -> dict[str, bool]:
    columns = schema.expanded().columns
    numbers = [
        column.name
        for column in columns
        if isinstance(column, kinds.Integer | Real) and column.form is None
    ]
    return as_they_came(
        source, [column.name for column in columns], schema.person, numbers
    )


_TYPES = {
    "int64": pa.int64(),
    "Int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "boolean": pa.bool_(),
    "datetime64[ns]": pa.timestamp("ns"),
}


def _coarse(raw: Raw, schema: Schema) -> pd.DataFrame:
    broken = [fault for fault in raw.faults if fault.column is None]
    if broken:
        raise SchemaError(
            f"{raw.name}: a row {broken[0].reason}", effect=Effect.NOTHING_READ_FURTHER
        )
    declared = {column.name: column for column in schema.columns}
    return pd.DataFrame(
        {
            c: _fit(declared[c], cells) if c in declared else cells
            for c, cells in raw.columns.items()
        }
    )


def _fit(column: Column, cells: Cells) -> Cells:
    index, uniques = distinct(cells, missing_words(column))
    return pd.Series(np.append(_fit_values(column, uniques), np.nan)[index])


def _fit_values(column: Column, uniques: Cells) -> NDArray[Any]:
    values = uniques.to_numpy(None if uniques.dtype.kind in "iuf" else object)
    if isinstance(column, Binned) and not column.unbounded:
        numbers = numbers_in(column, uniques)
        low = column.edges[0]
        high = column.edges[-1] - (column.edges.dtype.kind == "i")
        lowest = column.low
        highest = column.high
        if column.form is not None:
            lowest, highest = (
                np.array(column.as_text(bound), dtype=object)
                for bound in (lowest, highest)
            )
        return np.where(
            numbers < low, lowest, np.where(numbers > high, highest, values)
        )
    if isinstance(column, Categorical) and OTHER in column.categories:
        words = texts(uniques)
        return np.where(pd.Series(words).isin(column.categories), words, OTHER)
    return values
