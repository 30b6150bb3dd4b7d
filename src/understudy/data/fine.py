"""The fine cells of a table: as finely as its numbers are told apart, by the public schema alone.

A number whose bins are not declared has two resolutions. Its *levels*, on which pairs of columns are measured, are few
and are chosen from what was released (`data.levels`); its *fine cells*, on which the column is measured by itself, are
many and follow from the declared bounds. So nobody has to think about bins, and bounds may be far too wide.

One grid serves all scales. Whole numbers and days have a cell each while there are no more than `MOST` of them. Where
there are more, and for reals, cells are even on the scale of asinh(x/unit): near zero they are `unit`s, far from it a
fixed share of the value, and between two bounds of one sign that lie near each other they are nearly even.

Guarantee: cells depend on the declared bounds alone.
Edges: declared bins, categories and booleans stay as they are.
"""

import math
from dataclasses import replace

import numpy as np

from understudy.data.column import Binned, Column, Date, Integer, day_number
from understudy.data.schema import Schema

FAN = 8  # children of a node, where fine cells are measured as a tree
MOST = FAN**5  # cells of a column
_LONG = 64  # so many declared categories are as good as levels; of more, rare ones may share one
_UNIT = 1e-6  # of the larger bound: nearer to zero than this, values are told apart evenly
_NODES = 1 << 20  # of all columns' trees together


def fine_schema(schema: Schema) -> Schema:
    """The schema with fine bins in every column whose bins are not declared."""
    open_columns = sum(map(undeclared, schema.columns))
    most = MOST
    while most > FAN and open_columns * most > _NODES:
        most //= FAN
    return replace(schema, columns=tuple(_fine(column, most) for column in schema.columns))


def undeclared(column: Column) -> bool:
    """Whether the column is a number or a day without declared bins."""
    return isinstance(column, Binned) and column.bins is None


def to_buy(schema: Schema) -> bool:
    """Whether there are levels to choose: a number without declared bins, or a long list of categories."""
    return any(undeclared(column) or column.levels > _LONG for column in schema.columns)


def _fine(column: Column, most: int) -> Column:
    if not undeclared(column):
        return column
    assert isinstance(column, Binned)
    if isinstance(column, Date):
        return replace(column, bins=min(most, day_number(column.high) - day_number(column.low) + 1))
    if isinstance(column, Integer) and (count := column.high - column.low + 1) <= most:
        return replace(column, bins=count)
    edges = _spread(float(column.low), float(column.high), most)
    if isinstance(column, Integer):
        whole = sorted({column.low, *(int(edge) for edge in np.rint(edges[1:-1])), column.high})
        return replace(column, bins=tuple(whole))
    inner = np.unique(edges[1:-1])
    inner = inner[(inner > column.low) & (inner < column.high)]
    return replace(column, bins=(column.low, *map(float, inner), column.high))


def _spread(low: float, high: float, cells: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Edges that are even on the scale of asinh(x/unit), with zero among them where it lies inside."""
    unit = _UNIT * max(abs(low), abs(high))
    start, stop = math.asinh(low / unit), math.asinh(high / unit)
    edges = unit * np.sinh(np.linspace(start, stop, cells + 1))
    if low < 0 < high:
        edges[np.abs(edges).argmin()] = 0.0
    return np.asarray(edges)
