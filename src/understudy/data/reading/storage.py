"""How a DataFrame stores a column: one of a short, fixed list of dtypes that carry no
value.

A dtype of a source may hold what only one person has. A `category` lists every text,
also those of rows that were filtered out. A sparse dtype has a fill value, a time zone
has a name, and the width of an integer tells how large the largest is. Synthetic rows
never take a dtype from the source. They take its storage:

    in the source                          in synthetic rows
    bool, boolean, Arrow's bool            the same
    integers of any width and sign         int64, Int64 or Arrow's int64
    floats of any width                    float64, Float64 or Arrow's double
    category, Arrow's dictionary           category of the values that the schema lists
    text in objects, string, Arrow's text  text in objects, string[python] or
                                           string[pyarrow]
    days and times, with or without zone   datetime64[ns] by the clock on the wall
    sparse                                 that of its numbers, dense

Guarantee: a storage is one entry of this list and is chosen by a column's dtype alone.
The one exception: whether objects are texts is what more than half of all rows say, so
that one person decides only where it is half of them to the person.
Edges: a storage that would lose what was drawn (gaps among numpy's integers, fractions
among integers) is not taken. A category of numbers becomes one of texts where its
values were bought.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from understudy.data.column import Boolean, Categorical, Column, Date, table_columns
from understudy.data.encoding.values import Cells
from understudy.data.reading.cells import texts
from understudy.data.reading.writing import as_written

_TESTS = {
    "boolean": pd.api.types.is_bool_dtype,
    "integer": pd.api.types.is_integer_dtype,
    "real": pd.api.types.is_float_dtype,
    "datetime": pd.api.types.is_datetime64_any_dtype,
}
_NUMPY = {
    "boolean": np.dtype(bool),
    "integer": np.dtype(np.int64),
    "real": np.dtype(np.float64),
}
_MASKED = {
    "boolean": pd.BooleanDtype(),
    "integer": pd.Int64Dtype(),
    "real": pd.Float64Dtype(),
}
_ARROW = {
    "boolean": pd.ArrowDtype(pa.bool_()),
    "integer": pd.ArrowDtype(pa.int64()),
    "real": pd.ArrowDtype(pa.float64()),
}
_HOLDS = {  # which numbers a storage of numbers holds without loss
    "boolean": ("boolean",),
    "integer": ("boolean", "integer"),
    "real": ("boolean", "integer", "real"),
}


@dataclass(frozen=True)
class Storage:
    """A dtype without values.

    `kind` is that of its numbers, "text", "objects" (that are no texts), "category", or
    "" where the schema's own dtype is taken.
    """

    kind: str = ""
    dtype: Any = None


def dtype_kind(dtype: Any) -> str | None:
    """The kind of column that a dtype describes, "categorical" for texts; None for no
    kind.
    """
    if is_range(dtype):
        return None
    if _is_listed(dtype):
        return "categorical"
    for kind, is_one in _TESTS.items():
        if is_one(dtype):
            return kind
    is_text = pd.api.types.is_object_dtype(dtype) or pd.api.types.is_string_dtype(dtype)
    return "categorical" if is_text else None


def is_range(dtype: Any) -> bool:
    """Whether values are intervals or periods, as of `pandas.cut`: they are no text,
    and no kind describes them.
    """
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    return isinstance(dtype, pd.IntervalDtype | pd.PeriodDtype)


def has_range_objects(cells: Cells) -> bool:
    """Whether any of a column of objects is an interval or a period, which its dtype
    does not say.
    """
    return bool(pd.api.types.is_object_dtype(cells.dtype)) and not {
        pd.Interval,
        pd.Period,
    }.isdisjoint(map(type, cells))


def storages_of(frame: pd.DataFrame) -> dict[Any, Storage]:
    """How each column is stored whose name no other column has."""
    repeated = set(frame.columns[frame.columns.duplicated()])
    return {
        name: _storage_of(cells)
        for name, cells in frame.items()
        if name not in repeated
    }


def store(
    frame: pd.DataFrame, schema: object, storages: Mapping[Any, Storage]
) -> pd.DataFrame:
    """The table in these storages, as far as they hold its cells."""
    columns: dict[Any, Column] = {
        column.name: column for column in table_columns(getattr(schema, "columns", ()))
    }
    cells = dict(frame.items())
    for name in columns.keys() & cells.keys() & storages.keys():
        cells[name] = _stored(columns[name], cells[name], storages[name])
    stored = pd.DataFrame(cells)
    stored.attrs = frame.attrs
    return stored


def _storage_of(cells: Cells) -> Storage:
    dtype = cells.dtype
    if _is_listed(dtype):
        return Storage("category")
    kind = dtype_kind(dtype)
    if kind in _NUMPY:
        return Storage(kind, _of_library(dtype)[kind])
    if kind != "categorical":
        return Storage()
    if isinstance(dtype, pd.StringDtype):
        return Storage("text", pd.StringDtype(dtype.storage, dtype.na_value))
    if isinstance(dtype, pd.ArrowDtype):
        return Storage("text", pd.StringDtype("pyarrow"))
    return Storage(
        "objects" if _are_mostly_no_text(cells) else "text", np.dtype(object)
    )


def _is_listed(dtype: Any) -> bool:
    if isinstance(dtype, pd.ArrowDtype):
        return bool(pa.types.is_dictionary(dtype.pyarrow_dtype))
    return isinstance(dtype, pd.CategoricalDtype)


def _of_library(dtype: Any) -> Mapping[str, Any]:
    if isinstance(dtype, pd.ArrowDtype):
        return _ARROW
    return _NUMPY if isinstance(dtype, np.dtype | pd.SparseDtype) else _MASKED


def _are_mostly_no_text(cells: Cells) -> bool:
    """Whether more than half of all rows, gaps included, hold something else than a
    text.
    """
    other = [not isinstance(value, str) for value in cells.dropna()]
    return 2 * sum(other) > len(cells)


def _stored(column: Column, cells: Cells, storage: Storage) -> Cells:
    if storage.kind == "category":
        return _listed(column, cells)
    if storage.kind == "text":
        return _as_texts(as_written(column, cells)).astype(storage.dtype)
    if storage.kind == "objects":
        return _as_objects(column, cells)
    if (
        storage.kind not in _HOLDS
        or dtype_kind(cells.dtype) not in _HOLDS[storage.kind]
    ):
        return cells
    has_no_gaps = isinstance(storage.dtype, np.dtype) and storage.kind != "real"
    return cells if has_no_gaps and cells.isna().any() else cells.astype(storage.dtype)


def _listed(column: Column, cells: Cells) -> Cells:
    """A category of the values that the schema lists; other columns as the schema has
    them.
    """
    if isinstance(cells.dtype, pd.CategoricalDtype):
        return cells
    if isinstance(column, Categorical):
        values = list(column.categories)
    elif isinstance(column, Boolean):
        values = list(column.labels)
    else:
        return cells
    return as_written(column, cells).astype(pd.CategoricalDtype(values))


def _as_texts(cells: Cells) -> Cells:
    as_texts = pd.Series(texts(cells.astype(object)), index=cells.index, dtype=object)
    return as_texts.where(cells.notna(), np.nan)


def _as_objects(column: Column, cells: Cells) -> Cells:
    """Numbers, truth values and days as objects, with None for a gap."""
    objects = cells.dt.date if isinstance(column, Date) else cells.astype(object)
    return objects.astype(object).where(cells.notna(), None)
