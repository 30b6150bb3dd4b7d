"""The kinds of column, each with its public domain. `schema.py` says what they mean together.

A column that exists is sound: everything is checked when it is made. Lists become tuples, and ISO text
becomes a date, so that a column reads the same from Python, TOML and JSON.
"""

from understudy.data.column.base import EXACT, Column, shorten
from understudy.data.column.categories import (
    FALSE_WORDS,
    TRUE_WORDS,
    WHOLE_NUMBER,
    Boolean,
    Categorical,
    Category,
    Ordinal,
)
from understudy.data.column.numbers import (
    DEFAULT_BINS,
    MOST_BINS,
    MOST_DECIMALS,
    OWN_LEVEL,
    Binned,
    Integer,
    Real,
)
from understudy.data.column.times import (
    EPOCH,
    FIRST_DAY,
    LAST_DAY,
    RESOLUTIONS,
    Date,
    Datetime,
    day_number,
    second_number,
)

__all__ = [
    "DEFAULT_BINS",
    "EPOCH",
    "EXACT",
    "FALSE_WORDS",
    "FIRST_DAY",
    "LAST_DAY",
    "MOST_BINS",
    "MOST_DECIMALS",
    "OWN_LEVEL",
    "RESOLUTIONS",
    "TRUE_WORDS",
    "WHOLE_NUMBER",
    "Binned",
    "Boolean",
    "Categorical",
    "Category",
    "Column",
    "Date",
    "Datetime",
    "Integer",
    "Ordinal",
    "Real",
    "day_number",
    "second_number",
    "shorten",
]
