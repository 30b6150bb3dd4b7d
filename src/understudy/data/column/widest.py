"""Any number, day or time: the widest bounds of columns that declare none."""

from dataclasses import replace
from datetime import datetime, time
from typing import Any, TypeGuard

from understudy.data.column.base import EXACT, Column
from understudy.data.column.numbers import FIRST_DAY, LARGEST, LAST_DAY, Binned, Date, Datetime, Integer


def is_unbounded(column: Column) -> TypeGuard[Binned]:
    """Whether it is a number, a day or a time of which no bounds are declared."""
    return isinstance(column, Binned) and column.unbounded


def widest(column: Binned) -> Binned:
    """The column between the widest bounds that there may be, in one bin."""
    if isinstance(column, Date):
        return replace(column, low=FIRST_DAY, high=LAST_DAY, bins=1)
    if isinstance(column, Datetime):
        last = datetime.combine(LAST_DAY, time(23, 59 if column.step < 3600 else 0, 59 if column.step < 60 else 0))
        return replace(column, low=datetime.combine(FIRST_DAY, time.min), high=last, bins=1)
    if isinstance(column, Integer):
        return replace(column, low=-EXACT, high=EXACT, bins=1)
    plain: dict[str, Any] = {"decimals": None, "ends": False}
    return replace(column, low=-LARGEST, high=LARGEST, bins=1, **plain)
