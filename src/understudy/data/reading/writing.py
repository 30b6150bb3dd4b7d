"""Tables to files, cells written as the schema declares them: what a cell is written as depends on that cell alone.

A real has its declared decimals (12.50, not 12.5) and form, a boolean its labels, a date is a day in its form, a time
of day likewise, and a datetime an ISO day with its time, whatever the other rows hold. Missing is an empty cell.
Parquet keeps types, so values go there as they are; the order of an ordinal column's text stays with it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from understudy.data.column import Binned, Boolean, Column, Date, Datetime, Real


def write_table(frame: pd.DataFrame, path: str | Path, schema: object) -> None:
    """Write a .parquet file, or CSV under any other name."""
    path = Path(path)
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        path.write_text(csv_text(frame, schema), encoding="utf-8")


def write_tables(frames: Mapping[str, pd.DataFrame], place: Path, schema: Any, suffix: str) -> None:
    """Tables by name into a folder, as a holder brings them (`data.visits.reading`); one without a name as one file."""
    if "" in frames:
        write_table(frames[""], place, schema)
        return
    place.mkdir(parents=True, exist_ok=True)
    for name, part in schema.tables.items():
        write_table(frames[name], place / f"{name}{suffix}", part)


def csv_text(frame: pd.DataFrame, schema: object) -> str:
    """The table as CSV. Columns that no table's schema declares (those of series, say) are written as pandas does."""
    known: dict[str, Column] = {column.name: column for column in getattr(schema, "columns", ())}
    cells = {name: _written(known[name], frame[name]) if name in known else frame[name] for name in frame}
    return pd.DataFrame(cells, columns=frame.columns).to_csv(index=False, lineterminator="\n")


def typed_like(frame: pd.DataFrame, schema: object, dtypes: Mapping[Any, Any]) -> pd.DataFrame:
    """The table in these types, where its cells allow it: text as the schema says that it is written.

    A type without room for a gap is left as it is where a value is missing.
    """
    known: dict[str, Column] = {column.name: column for column in getattr(schema, "columns", ())}
    return frame.assign(
        **{c: _typed_like(known[c], frame[c], dtypes[c]) for c in frame if c in known and c in dtypes}
    )


def _typed_like(column: Column, cells: "pd.Series[Any]", dtype: Any) -> "pd.Series[Any]":
    kinds = pd.api.types
    if kinds.is_object_dtype(dtype) or kinds.is_string_dtype(dtype):
        cells = _written(column, cells).astype(object)
        return cells if kinds.is_object_dtype(dtype) else cells.astype(dtype)
    plain = kinds.is_bool_dtype(dtype) or kinds.is_integer_dtype(dtype)
    gap = plain and cells.isna().any() and not kinds.is_extension_array_dtype(dtype)
    return cells if gap else cells.astype(dtype)


def _written(column: Column, cells: "pd.Series[Any]") -> "pd.Series[Any]":
    if isinstance(column, Binned) and column.form is not None:
        return cells.astype(object).map(column.said, na_action="ignore")
    if isinstance(column, Real) and column.decimals is not None:
        return cells.map(f"{{:.{column.decimals}f}}".format, na_action="ignore").astype(object)
    if isinstance(column, Boolean):
        words = dict(zip(column.values, column.labels, strict=True))
        return cells.astype(object).map(words, na_action="ignore")
    form = "%Y-%m-%d"
    if isinstance(column, Datetime):
        form += " %H:%M:%S" if column.resolution == "second" else " %H:%M"
    if isinstance(column, Date | Datetime):
        return pd.Series(cells.dt.strftime(form))
    return cells
