"""The fine cells of a table: as finely as its numbers are told apart, by the public schema alone.

A number whose bins are not declared has two resolutions. Its *levels*, on which pairs of columns are measured, are few
and are chosen from what was released (`data.levels`); its *fine cells*, on which the column is measured by itself, are
many and follow from the declared bounds. So nobody has to think about bins, and bounds may be far too wide.

One grid serves all scales. Whole numbers and days have a cell each while there are no more than `MOST` of them. Where
there are more, and for reals, cells are even on the scale of asinh(x/unit): near zero they are even, far from it a
fixed share of the value, and between two bounds of one sign that lie near each other they are nearly even. Zero, where
it lies within the bounds, is a cell of its own.

Guarantee: cells depend on the declared bounds alone.
Edges: declared bins, categories, booleans and up to `DEFAULT_BINS` whole numbers or days stay as they are.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.data.column import DEFAULT_BINS, Binned, Column, Date, Datetime, Integer, Ordinal, Real
from understudy.data.schema import Schema

FAN = 8  # children of a node, where fine cells are measured as a tree
MOST = FAN**5  # cells of a column
_LONG = 64  # so many declared categories are as good as levels; of more, rare ones may share one
_UNIT = 1e-6  # of the larger bound of a real: nearer to zero than this, cells are even
_LEAST = math.ulp(0.0)
_NODES = 1 << 20  # of all columns' trees together


@lru_cache(maxsize=8)
def fine_schema(schema: Schema) -> Schema:
    """The schema with fine bins in every column whose bins are not declared."""
    numbers = sum(map(_undeclared, schema.columns))
    most = MOST
    while most > FAN and numbers * most > _NODES:
        most //= FAN
    return replace(schema, columns=tuple(_fine(column, most) for column in schema.columns))


def is_bought(column: Column) -> bool:
    """Whether the column's levels are chosen: a number without declared bins, or a long list of categories."""
    return _undeclared(column) or (not isinstance(column, Binned) and column.levels > _LONG)


def is_tree(column: Column) -> bool:
    """Whether its fine cells are counted as a tree: they are many, and have an order."""
    return is_bought(column) and isinstance(column, Binned | Ordinal)


def _undeclared(column: Column) -> bool:
    if not isinstance(column, Binned) or column.bins is not None:
        return False
    return isinstance(column, Real) or _values(column) > DEFAULT_BINS


def _values(column: Binned) -> int:
    """How many whole numbers, days or times lie within the bounds."""
    return int(column.edges[-1] - column.edges[0])


def _fine(column: Column, most: int) -> Column:
    if not _undeclared(column):
        return column
    if isinstance(column, Date | Datetime):
        return replace(column, bins=min(most, _values(column)))
    if isinstance(column, Integer):
        if _values(column) <= most:
            return replace(column, bins=_values(column))
        edges = np.rint(_spread(column.low, column.high, most, 1.0)).astype(np.int64)
        inner = {int(edge) for edge in edges} | {0, 1}
        return replace(column, bins=_between(inner, column.low, column.high))
    assert isinstance(column, Real)
    if column.decimals is not None:
        return replace(column, bins=_decimal_edges(column, most))
    unit = max(_UNIT * max(abs(column.low), abs(column.high)), _LEAST)
    reals = set(_spread(column.low, column.high, most, unit).tolist()) | {0.0, _LEAST}
    return replace(column, bins=_between(reals, column.low, column.high))


def _decimal_edges(column: Real, most: int) -> tuple[float, ...]:
    """As of whole numbers, in units of the last decimal: every cell holds a number that can be drawn."""
    scale = 10.0 ** (column.decimals or 0)
    first, last = math.ceil(column.low * scale), math.floor(column.high * scale)
    steps = range(first, last + 1)
    if len(steps) > most:
        spread = np.rint(_spread(first, last, most, 1.0)).astype(np.int64)
        return _between(
            {int(step) / scale for step in spread} | {0.0, 1 / scale}, first / scale, column.high, column.low
        )
    return _between({step / scale for step in steps}, first / scale, column.high, column.low)


def _spread(low: float, high: float, cells: int, unit: float) -> NDArray[np.float64]:
    """Edges that are even on the scale of asinh(x/unit)."""
    return np.asarray(unit * np.sinh(np.linspace(math.asinh(low / unit), math.asinh(high / unit), cells + 1)))


def _between(
    edges: set[int] | set[float], low: float, high: float, begin: float | None = None
) -> tuple[Any, ...]:
    """All edges above `low` and below `high`, which is the last; the first is `begin`, or else `low`."""
    return (low if begin is None else begin, *sorted(edge for edge in edges if low < edge < high), high)
