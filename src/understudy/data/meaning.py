"""What the tests of a condition mean for a column: where they cut its levels, and which pieces meet them.

Guarantee: all is checked against the public schema, before anything is drawn.
Edges: a column or a value that is not declared, or a value of the wrong type → SchemaError with the nearest name.
A bound of a range may lie outside the declared ones: nothing lies there.
"""

import math
from collections.abc import Sequence
from datetime import date, datetime
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.data import column as kinds
from understudy.data.column import Binned, Boolean, Categorical, Column, Date, Datetime, Integer, Real
from understudy.data.conditions import Compare, Missing, OneOf, Test, Value
from understudy.data.encoding.values import Pieces
from understudy.data.reading.forms import read_time
from understudy.ground.check import nearest

Mask = NDArray[np.bool_]


def cuts(test: Test, column: Column) -> list[float]:
    """Where the test tells values of one level apart. SchemaError where the test makes no sense for the column."""
    if isinstance(test, Missing):
        return []
    if isinstance(column, Binned):
        if isinstance(test, Compare):
            return [_edge(test, column)]
        return [place for value in test.values for place in _one(column, value)]
    if isinstance(test, OneOf):
        for value in test.values:
            _category(column, value)
    else:
        _in_order(test, column)
    return []


def holds(test: Test, pieces: Pieces) -> Mask:
    """Which pieces meet the test. They were cut where it says."""
    column, met = pieces.column, np.zeros(len(pieces.level), dtype=np.bool_)
    if isinstance(test, Missing):
        met[pieces.there :] = True
    elif pieces.edges is not None:
        met[: pieces.there] = _binned(test, column, pieces.edges[:-1])
    elif isinstance(test, OneOf):
        met[[_category(column, value) for value in test.values]] = True
    else:
        met[: pieces.there] = _in_order(test, column)
    return met


def _binned(test: Compare | OneOf, column: Column, begins: NDArray[Any]) -> Mask:
    assert isinstance(column, Binned)
    if isinstance(test, OneOf):
        return np.isin(begins, [_one(column, value)[0] for value in test.values])
    edge = _edge(test, column)
    return np.asarray(begins >= edge if test.order in (">", ">=") else begins < edge)


def _edge(test: Compare, column: Binned) -> float:
    """Where the values that meet a range begin or end, within the column's bounds."""
    place: float = _place(column, test.value)
    here = test.order in (">=", "<")  # the value itself lies above
    low, high = column.edges[[0, -1]].tolist()
    if column.edges.dtype.kind == "i":
        place = math.ceil(place) if here else math.floor(place) + 1
    elif isinstance(column, Real) and column.decimals is not None:
        place = _from(column, place) if here else math.nextafter(place, math.inf)
    return float(min(max(place, low), high))


def _from(column: Real, place: float) -> float:
    """Where a number begins to be above what lies below it. The last bin holds its upper edge."""
    return math.nextafter(place, -math.inf) if place == column.high else place


def _one(column: Binned, value: Value) -> tuple[float, float]:
    """Where one number or day begins and ends."""
    place = _place(column, value)
    if isinstance(column, Real):
        if column.decimals is None:
            raise column.error(
                f"a real number is exactly {value!r} with probability 0. Ask for a range, with `between`. {_NOTHING}"
            )
        if round(place, column.decimals) != place or not column.low <= place <= column.high:
            raise column.error(f"{value!r} is no value of {column.domain}. {_NOTHING}")
        return _from(column, place), min(math.nextafter(place, math.inf), column.high)
    if place != math.floor(place) or not column.edges[0] <= place < column.edges[-1]:
        raise column.error(f"{value!r} is no value of {column.domain}. {_NOTHING}")
    return int(place), int(place) + 1


def _place(column: Binned, value: Value) -> float:
    """A value on the column's own scale."""
    if isinstance(column, Date):
        try:
            return kinds.day_number(date.fromisoformat(value if isinstance(value, str) else ""))
        except ValueError:
            raise column.error(f"{value!r} is not a date ('YYYY-MM-DD'). {_NOTHING}") from None
    if isinstance(column, Datetime):
        try:
            moment = datetime.fromisoformat(value if isinstance(value, str) else "")
        except ValueError:
            raise column.error(f"{value!r} is not a time ('YYYY-MM-DD HH:MM:SS'). {_NOTHING}") from None
        return kinds.second_number(moment) / column.step
    if isinstance(column, Integer) and column.written is not None and isinstance(value, str):
        if math.isnan(steps := read_time(value, column.written)):
            raise column.error(f"{value!r} is not a time of day ({column.written!r}). {_NOTHING}")
        return steps
    if isinstance(value, bool | str):
        raise column.error(f"{value!r} is not a number. {_NOTHING}")
    return value


def _category(column: Column, value: Value) -> int:
    """The level of a declared value."""
    known: Sequence[Any] = column.categories if isinstance(column, Categorical) else (False, True)
    kind = str if isinstance(known[0], str) else int | float
    exact = isinstance(column, Boolean) or not isinstance(value, bool)
    if not isinstance(value, kind) or not exact or value not in known:
        quoted = [repr(one) if isinstance(one, str) else str(one) for one in known]
        hint = nearest(value, map(str, known))
        raise column.error(f"{value!r} is none of its values ({kinds.shorten(quoted)}).{hint} {_NOTHING}")
    return known.index(value)


def _in_order(test: Compare, column: Column) -> Mask:
    """Which declared values of a column stand in this order to a value."""
    if not isinstance(column, Categorical):
        raise column.error(f"false and true have no order {test.order}. Use ==. {_NOTHING}")
    known = column.categories
    rising = not isinstance(known[0], str) and all(a < b for a, b in pairwise(known))  # type: ignore[operator]
    if rising or (not isinstance(known[0], str) and not isinstance(column, kinds.Ordinal)):
        if isinstance(test.value, bool | str):
            raise column.error(f"{test.value!r} is not a number. {_NOTHING}")
        return ordered(np.array(known), test.order, test.value)
    if not isinstance(column, kinds.Ordinal):
        raise column.error(
            f"its values have no order {test.order}: it is categorical, not ordinal. Use == or in. {_NOTHING}"
        )
    return ordered(np.arange(len(known)), test.order, _category(column, test.value))


def ordered(values: NDArray[Any], order: str, other: Any) -> Mask:
    """Which values stand in this order to the other, or others."""
    compared = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[order]
    return np.asarray(compared(values.astype(np.float64), other))


_NOTHING = "Nothing was drawn."
