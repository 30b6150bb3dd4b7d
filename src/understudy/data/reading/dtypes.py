"""The dtype of a column in a table, and values brought to it."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import Boolean, Categorical, Column, Date, Datetime, Ordinal


def typed(column: Column, values: NDArray[Any], missing: NDArray[np.bool_]) -> "pd.Series[Any]":
    """Values in the column's own dtype: text as it is, booleans from 0 and 1, all else from numbers.

    Dates come from days since 1970, times from the column's steps since then.
    """
    gap: Any = None if values.dtype == object else 0
    values = np.where(missing, gap, values)
    if isinstance(column, Boolean):
        values = np.array(column.values, dtype=object)[(values == 1).astype(np.int64)]
    if isinstance(column, Date):
        values = values.astype(np.int64).astype("datetime64[D]").astype("datetime64[ns]")
    if isinstance(column, Datetime):
        values = (values.astype(np.int64) * column.step).astype("datetime64[s]").astype("datetime64[ns]")
    series = pd.Series(values, dtype=dtype(column))
    return series.mask(missing) if missing.any() else series


def dtype(column: Column) -> "str | pd.CategoricalDtype":
    """The dtype of a column in a table: the plain one, or pandas' nullable one where it must hold gaps."""
    if isinstance(column, Categorical | Boolean):
        first = (column.values if isinstance(column, Boolean) else column.categories)[0]
        if isinstance(column, Ordinal) and isinstance(first, str):
            return pd.CategoricalDtype(list(column.categories), ordered=True)
        plain = {bool: "bool", str: "object", float: "float64"}.get(type(first), "int64")
    else:
        plain = {"integer": "int64", "real": "float64"}.get(column.kind, "datetime64[ns]")
    return {"bool": "boolean", "int64": "Int64"}.get(plain, plain) if column.nullable else plain
