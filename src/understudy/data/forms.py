"""How a column's cells are written where that is not the plain way: days as 31.12.1990.

A form is part of the schema and public. It says how text is read and how a file is written; values in a table are days,
whatever the form.

Guarantee: what a text is read as depends on that text and the form alone.
Edges: text in any other form, ISO days included, is no value.
"""

import math
import re
from datetime import date
from functools import cache

ISO_DAY = "YYYY-MM-DD"
_DAY_FORM = re.compile(r"DD?([./-])MM?\1YYYY|MM?([./-])DD?\2YYYY|YYYY([./-])MM?\3DD?")
_DIGITS = {"YYYY": "(?P<Y>[0-9]{4})", "MM": "(?P<M>[0-9]{2})", "M": "(?P<M>[0-9]{1,2})"}
_DIGITS |= {key.replace("M", "D"): text.replace("M", "D") for key, text in _DIGITS.items() if "M" in key}
_LIKE_DAYS = re.compile(r"([0-9]+)([./-])([0-9]+)\2([0-9]+)")


def is_day_form(form: object) -> bool:
    """Whether it orders a day (DD, or D without a leading zero), a month (MM, M) and a year (YYYY) with . / or -."""
    return isinstance(form, str) and _DAY_FORM.fullmatch(form) is not None


@cache
def _pattern(form: str) -> re.Pattern[str]:
    return re.compile(re.sub("[YMD]+", lambda part: _DIGITS[part[0]], re.escape(form)))


def read_day(text: str, form: str) -> date | None:
    """The day that a text in this form stands for, or None."""
    found = _pattern(form).fullmatch(text.strip())
    try:
        return found and date(int(found["Y"]), int(found["M"]), int(found["D"]))
    except ValueError:  # a 31 February
        return None


def write_day(day: date, form: str) -> str:
    """The day in this form."""
    values = {"YYYY": f"{day.year:04}", "MM": f"{day.month:02}", "M": f"{day.month}"}
    values |= {"DD": f"{day.day:02}", "D": f"{day.day}"}
    return re.sub("[YMD]+", lambda part: values[part[0]], form)


def day_form(words: set[str]) -> tuple[str, bool] | None:
    """The form that all these texts are days in, and whether day and month could be the other way round; or None.

    Where both ways read all of them, the day comes first.
    """
    parts = [_LIKE_DAYS.fullmatch(word.strip()) for word in words]
    marks = {found and found[2] for found in parts}
    if len(marks) != 1 or None in marks:
        return None
    short = [found for found in parts if found and 1 in (len(found[1]), len(found[3]), len(found[4]))]
    day, month = ("D", "M") if short else ("DD", "MM")
    orders = ((day, month, "YYYY"), (month, day, "YYYY"), ("YYYY", month, day))
    (mark,) = marks
    fits = [
        form
        for form in (str(mark).join(order) for order in orders)
        if all(read_day(word, form) is not None for word in words)
    ]
    return (fits[0], len(fits) > 1) if fits else None


def day_or_nan(text: str, form: str, epoch: int) -> float:
    """Days since `epoch`, an ordinal; NaN for what is no day in this form."""
    day = read_day(text, form)
    return math.nan if day is None else day.toordinal() - epoch
