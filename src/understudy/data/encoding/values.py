"""Values of a column as numbers: its levels, days or steps since 1970-01-01, its own numbers.

Edges: a value outside the declared domain, or of another type → SchemaError.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import Binned, Boolean, Categorical, Column, Date, Datetime
from understudy.data.pieces import Pieces

Codes = NDArray[np.int32]


def codes_of(column: Column, values: "pd.Series[Any]") -> Codes:
    """The level of each value. SchemaError where one lies outside the declared domain."""
    if isinstance(column, Boolean) and values.dtype == np.bool_:
        return values.to_numpy(np.int32)
    missing = pd.isna(values.array)
    codes = np.where(missing, column.levels if column.nullable else -1, _levels(column, values))
    if (wrong := codes < 0).any():
        row = int(wrong.argmax())
        said = "is missing" if missing[row] else f"is {values.iloc[row]}, outside {column.domain}"
        raise column.error(f"the value at row {row + 1:,} {said}. Nothing was encoded.")
    return codes.astype(np.int32)


def _levels(column: Column, values: "pd.Series[Any]") -> NDArray[np.integer]:
    """The level of each value, −1 where there is none."""
    if isinstance(column, Categorical) and isinstance(column.categories[0], str):
        return _texts(column.categories).get_indexer(pd.Index(values, dtype=object))
    if isinstance(column, Boolean) and values.dtype.kind not in "biuf":
        known: dict[Any, int] = {False: 0, True: 1} | {label: i for i, label in enumerate(column.values)}
        return np.array([known.get(value, -1) for value in values.astype(object)], dtype=np.int32)
    numbers = _moments(column, values) if isinstance(column, Date | Datetime) else _numbers(column, values)
    if isinstance(column, Categorical):
        return _place_among(column.categories, numbers)
    if isinstance(column, Binned):
        whole = column.edges.dtype.kind == "i"  # then the last edge lies one past high
        inside = (column.edges[0] <= numbers) & (numbers <= column.edges[-1] - whole)
        if whole:
            inside &= numbers == np.floor(numbers)
        return np.where(inside, np.searchsorted(column.edges[1:-1], numbers, side="right"), -1)
    numbered = isinstance(column, Boolean) and isinstance(column.values[0], int) and values.dtype.kind != "b"
    labels = column.values if isinstance(column, Boolean) and numbered else (0, 1)
    return _place_among(labels, numbers)


@lru_cache(maxsize=256)
def _texts(categories: tuple[Any, ...]) -> "pd.Index[Any]":
    """Looked up once, so that what it builds for that is there before other threads look."""
    index: pd.Index[Any] = pd.Index(categories, dtype=object)
    index.get_indexer(index[:1])
    return index


@lru_cache(maxsize=256)
def _in_order(known: tuple[Any, ...]) -> tuple[NDArray[np.float64], NDArray[np.integer]]:
    numbers = np.array(known, dtype=np.float64)
    order = numbers.argsort()
    return numbers[order], order


def _place_among(known: tuple[Any, ...], numbers: NDArray[np.float64]) -> NDArray[np.integer]:
    """Where each number stands among these, −1 where it does not."""
    ordered, order = _in_order(known)
    near = np.minimum(np.searchsorted(ordered, numbers), len(ordered) - 1)
    return np.where(ordered[near] == numbers, order[near], -1)


def _numbers(column: Column, values: "pd.Series[Any]") -> NDArray[np.float64]:
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "biuf":
        return values.to_numpy().astype(np.float64)
    try:
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise column.error(
            f"holds values that are not numbers ({values.dtype}). Nothing was encoded."
        ) from None


def _moments(column: Date | Datetime, values: "pd.Series[Any]") -> NDArray[np.float64]:
    """Days, or the column's steps, since 1970-01-01."""
    try:
        stamps = _dates(values).to_numpy("datetime64[s]")
    except (TypeError, ValueError):
        raise column.error(
            f"holds values that are not dates ({values.dtype}). Nothing was encoded."
        ) from None
    step = column.step if isinstance(column, Datetime) else 86400
    return np.where(np.isnat(stamps), np.nan, np.floor(stamps.astype(np.int64) / step))


def _dates(values: "pd.Series[Any]") -> "pd.Series[Any]":
    dates = isinstance(values.dtype, np.dtype) and values.dtype.kind == "M"
    return values if dates else pd.to_datetime(values)


def numbers_of(column: Column, values: "pd.Series[Any]") -> NDArray[np.float64]:
    """Values that have an order, as numbers that have the same; NaN where one is missing."""
    if isinstance(column, Date | Datetime):
        return _moments(column, values)
    if isinstance(column, Binned):
        return _numbers(column, values)
    return np.where(pd.isna(values.array), np.nan, _levels(column, values))


def places_of(pieces: Pieces, values: "pd.Series[Any]") -> NDArray[np.integer]:
    """The piece in which each value lies; the last of them for one that is missing, whether or not it may be."""
    column = pieces.column
    if pieces.edges is None:
        found = _levels(column, values)
    else:
        numbers = numbers_of(column, values)
        found = np.searchsorted(pieces.edges[1:-1], np.where(np.isnan(numbers), 0, numbers), side="right")
    return np.where(pd.isna(values.array), len(pieces.level) - 1, found)
