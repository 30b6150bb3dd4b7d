"""The dtype of a column in a table, and values brought to it."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import Categorical, Column, Date


def typed(column: Column, values: NDArray[Any], missing: NDArray[np.bool_]) -> "pd.Series[Any]":
    """Values in the column's own dtype: text as it is, all else from numbers (dates from days since 1970)."""
    if values.dtype != object:
        values = np.where(missing, 0, values)
    if column.kind == "boolean":
        values = values == 1
    if isinstance(column, Date):
        values = values.astype(np.int64).astype("datetime64[D]").astype("datetime64[ns]")
    series = pd.Series(values, dtype=dtype(column))
    return series.mask(missing) if missing.any() else series


def dtype(column: Column) -> str:
    """The dtype of a column in a table: the plain one, or pandas' nullable one where it must hold gaps."""
    if isinstance(column, Categorical):
        first = column.categories[0]
        plain = "object" if isinstance(first, str) else "float64" if isinstance(first, float) else "int64"
    else:
        plain = {"boolean": "bool", "integer": "int64", "real": "float64"}.get(column.kind, "datetime64[ns]")
    return {"bool": "boolean", "int64": "Int64"}.get(plain, plain) if column.nullable else plain
