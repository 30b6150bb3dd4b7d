"""The kinds of column, each with its public domain; one that exists is sound: it was
checked when it was made.
"""

from dataclasses import replace
from datetime import datetime, time
from typing import Any, TypeGuard

from understudy.data.column.base import EXACT as EXACT
from understudy.data.column.base import FALSE_WORDS as FALSE_WORDS
from understudy.data.column.base import OTHER as OTHER
from understudy.data.column.base import TRUE_WORDS as TRUE_WORDS
from understudy.data.column.base import Boolean as Boolean
from understudy.data.column.base import Categorical as Categorical
from understudy.data.column.base import Category as Category
from understudy.data.column.base import Column as Column
from understudy.data.column.base import Ordinal as Ordinal
from understudy.data.column.base import shorten as shorten
from understudy.data.column.numbers import DEFAULT_BINS as DEFAULT_BINS
from understudy.data.column.numbers import EPOCH as EPOCH
from understudy.data.column.numbers import FIRST_DAY as FIRST_DAY
from understudy.data.column.numbers import LARGEST as LARGEST
from understudy.data.column.numbers import LAST_DAY as LAST_DAY
from understudy.data.column.numbers import MOST_DECIMALS as MOST_DECIMALS
from understudy.data.column.numbers import RESOLUTIONS as RESOLUTIONS
from understudy.data.column.numbers import Binned as Binned
from understudy.data.column.numbers import Date as Date
from understudy.data.column.numbers import Datetime as Datetime
from understudy.data.column.numbers import Integer as Integer
from understudy.data.column.numbers import Real as Real
from understudy.data.column.numbers import day_number as day_number
from understudy.data.column.numbers import second_number as second_number
from understudy.data.column.one_of import OneOf as OneOf
from understudy.data.column.one_of import suggested as suggested
from understudy.data.column.one_of import table_columns as table_columns
from understudy.data.column.one_of import with_groups as with_groups


def is_unbounded(column: Column) -> TypeGuard[Binned]:
    """Whether it is a number, a day or a time of which no bounds are declared."""
    return isinstance(column, Binned) and column.unbounded


def widest(column: Binned) -> Binned:
    """Any number, day or time: the column between the widest bounds that there may be,
    in one bin.
    """
    if isinstance(column, Date):
        return replace(column, low=FIRST_DAY, high=LAST_DAY, bins=1)
    if isinstance(column, Datetime):
        last = datetime.combine(
            LAST_DAY,
            time(23, 59 if column.step < 3600 else 0, 59 if column.step < 60 else 0),
        )
        return replace(
            column, low=datetime.combine(FIRST_DAY, time.min), high=last, bins=1
        )
    if isinstance(column, Integer):
        return replace(column, low=-EXACT, high=EXACT, bins=1)
    plain: dict[str, Any] = {"decimals": None, "ends": False}
    return replace(column, low=-LARGEST, high=LARGEST, bins=1, **plain)
