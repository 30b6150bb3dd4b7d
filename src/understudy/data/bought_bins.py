"""Levels that were bought, as declared bins: for methods that take levels as the schema has them.

Guarantee: bins come from levels that were released and paid for (`data.encoding.levels`), so that they are as public as
these. Edges: a list of categories stays as it is declared, also an ordered one: a schema has no name for several of
them together. A level that is the upper bound of whole numbers, days or times alone is one with the level before it.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.data.column import EPOCH, Binned, Column, Date, Datetime, Real
from understudy.data.encoding.fine import is_bought
from understudy.data.encoding.levels import Levels
from understudy.data.schema import Schema

_BEGIN = datetime(1970, 1, 1)


def bought_bins(levels: Levels) -> Schema:
    """The schema with the bought levels of its numbers, days and times as `bins`."""
    fine = levels.fine.schema.columns
    columns = zip(levels.schema.columns, fine, levels.groups, strict=True)
    return replace(levels.schema, columns=tuple(_declared(*column) for column in columns))


def _declared(own: Column, fine: Column, group: NDArray[np.int32]) -> Column:
    if not isinstance(own, Binned) or not isinstance(fine, Binned) or not is_bought(own):
        return own
    first = np.flatnonzero(np.diff(group[: fine.levels], prepend=-1))  # cell of each level
    inner = map(_value(own), fine.edges[first].tolist())
    bins = (own.low, *(edge for edge in inner if own.low < edge < own.high), own.high)
    return replace(own, bins=bins, ends=False) if isinstance(own, Real) else replace(own, bins=bins)


def _value(column: Binned) -> Callable[[Any], Any]:
    """What a schema has for an edge."""
    if isinstance(column, Date):
        return lambda day: date.fromordinal(EPOCH + day)
    if isinstance(column, Datetime):
        return lambda steps: _BEGIN + timedelta(seconds=steps * column.step)
    return lambda number: number
