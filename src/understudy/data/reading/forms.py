"""How a column's cells are written where that is not the plain way: days as 31.12.1990,
numbers as 1,5 or $1,500.

A form is part of the schema and public. It says how text is read and how a file is
written; values in a table are days and numbers (5 for 5 %, and of a time of day how
many minutes or seconds it is past midnight), whatever the form.

Guarantee: what a text is read as depends on that text and the form alone.
Edges: text in any other form, ISO days and plain numbers included, is no value.
"""

import math
import re
from collections.abc import Iterable
from datetime import date, datetime, time
from functools import cache

import numpy as np

ISO_DAY = "YYYY-MM-DD"
# how digits are written: what parts thousands, and decimals
_BODIES = {
    "0": ("", "."),
    "0,0": ("", ","),
    "0,000.0": (",", "."),
    "0.000,0": (".", ","),
}
_SIGNS = (
    ("", ""),
    *(("", blank + sign) for blank in ("", " ") for sign in "%€$£"),
    *((sign, "") for sign in "€$£"),
)
_PLAIN, *NUMBER_FORMS = [
    f"{head}{body}{tail}" for head, tail in _SIGNS for body in _BODIES
]
# and a step in seconds
TIME_FORMS = {"HH:MM": 60, "H:MM": 60, "HH:MM:SS": 1, "H:MM:SS": 1}
A_DAY = 86400
_DAY = r"(?:DD?([./-])MM?\1YYYY|MM?([./-])DD?\2YYYY|YYYY([./-])MM?\3DD?)"
_UNITS = {
    "Y": "year",
    "M": "month",
    "D": "day",
    "H": "hour",
    "m": "minute",
    "S": "second",
}
_LETTERS = re.compile(r"([YMDHmS])\1*")
_LIKE_DAYS = re.compile(
    r"([0-9]+)([./-])([0-9]+)\2([0-9]+)"
    r"(?:([ T])(([0-9]{1,2}):[0-9]{2}(:[0-9]{2})?)(Z?))?"
)


def is_day_form(form: object, clock: bool = False) -> bool:
    """Whether it orders day, month and year, as "D.M.YYYY", with a midnight or none;
    with a `clock`, before HH:MM.
    """
    time = "[ T]HH?:MM(:SS)?Z?" if clock else "([ T]00?:00(:00)?Z?)?"
    return isinstance(form, str) and re.fullmatch(_DAY + time, form) is not None


@cache
def _pattern(form: str) -> re.Pattern[str]:
    def digits(part: re.Match[str]) -> str:
        width = str(len(part[0])) if len(part[0]) > 1 else "1,2"
        return rf"(?P<{_UNITS[part[1]]}>[0-9]{{{width}}})"

    return re.compile(_LETTERS.sub(digits, re.escape(form.replace(":MM", ":mm"))))


def read_day(text: str, form: str) -> datetime | None:
    """The day that a text in this form stands for, with its time if it has one, or
    None.
    """
    match = _pattern(form).fullmatch(text.strip())
    try:
        if match is None:
            return None
        units = {unit: int(n) for unit, n in match.groupdict().items()}
        return datetime(**units)  # type: ignore[arg-type]
    except ValueError:  # a 31 February
        return None


def write_day(day: date, form: str) -> str:
    return _LETTERS.sub(
        lambda part: f"{getattr(day, _UNITS[part[1]]):0{len(part[0])}}",
        form.replace(":MM", ":mm"),
    )


def day_form(words: set[str]) -> tuple[str, bool] | None:
    """The form that all these texts are days in, or times (day first, if both fit), and
    if both fit; or None.
    """
    matches = [part for word in words if (part := _LIKE_DAYS.fullmatch(word.strip()))]
    marks = {
        (part[2], part[5] or "", ":SS" if part[8] else "", part[9] or "")
        for part in matches
    }
    if len(matches) < len(words) or len(marks) != 1:
        return None
    day, month = (
        ("D", "M")
        if any(1 in map(len, part.group(1, 3, 4)) for part in matches)
        else ("DD", "MM")
    )
    ((mark, blank, seconds, zone),) = marks
    clock = (
        "H" if any(len(part[7] or "") == 1 for part in matches) else "HH"
    ) + f":MM{seconds}"
    clocks = {part[6] for part in matches}
    if len(clocks) == 1 and set(matches[0][6] or "0:") == set("0:"):
        (clock,) = clocks  # midnight, always
    clock = f"{blank}{clock}{zone}" if blank else ""
    orders = ((day, month, "YYYY"), (month, day, "YYYY"), ("YYYY", month, day))
    forms = [mark.join(order) + clock for order in orders]
    fits = [
        form
        for form in forms
        if all(read_day(word, form) is not None for word in words)
    ]
    return (fits[0], len(fits) > 1) if fits else None


def read_time(value: object, form: str) -> float:
    """How many steps after midnight a text in this form, or a time, is, rounded down;
    NaN for neither and 24:00.
    """
    if isinstance(value, time):
        return (value.hour * 3600 + value.minute * 60 + value.second) // TIME_FORMS[
            form
        ]
    first = "[0-9]{2}" if form.startswith("HH") else "[0-9]{1,2}"
    rest = form.count(":")
    match = (
        re.fullmatch(rf"({first})" + r":([0-9]{2})" * rest, value.strip())
        if isinstance(value, str)
        else None
    )
    parts = [int(part) for part in match.groups()] if match else [24]
    if parts[0] > 23 or max(parts) > 59:
        return math.nan
    return float(sum(part * 60**power for power, part in enumerate(reversed(parts))))


def write_time(steps: float, form: str) -> str:
    """The time so many steps after midnight, in this form."""
    minutes, seconds = divmod(int(steps) * TIME_FORMS[form], 60)
    hour = f"{minutes // 60:02}" if form.startswith("HH") else f"{minutes // 60}"
    return f"{hour}:{minutes % 60:02}" + (
        f":{seconds:02}" if form.endswith("SS") else ""
    )


def time_form(words: Iterable[str]) -> str | None:
    return next(
        (
            form
            for form in TIME_FORMS
            if not any(math.isnan(read_time(word, form)) for word in words)
        ),
        None,
    )


@cache
def _number(form: str) -> tuple[re.Pattern[str], str, str, str, str]:
    """What is a number in this form, what parts its thousands and decimals, and the
    signs before and after it.
    """
    head, body, tail = re.fullmatch(r"(\D?)([0,.]+)(.*)", form).groups()  # type: ignore[union-attr]
    group, mark = _BODIES[body]
    whole = (
        rf"0|[1-9][0-9]{{0,2}}(?:{re.escape(group)}[0-9]{{3}})*" if group else "[0-9]+"
    )
    sign = rf"\s*{re.escape(tail.strip())}" if tail else ""
    text = rf"([-+]?){re.escape(head)}({whole})(?:{re.escape(mark)}([0-9]+))?{sign}"
    return re.compile(text), group, mark, head, tail


def read_number(text: str, form: str) -> float:
    """The number that a text in this form stands for; NaN for what is none. A blank
    before a sign is free.
    """
    pattern, group, *_ = _number(form)
    match = pattern.fullmatch(text.strip())
    return (
        math.nan
        if match is None
        else float(f"{match[1]}{match[2].replace(group, '')}.{match[3] or 0}")
    )


def write_number(value: float, form: str, decimals: int | None) -> str:
    _, group, mark, head, tail = _number(form)
    plain = (
        np.format_float_positional(abs(value), trim="0")
        if decimals is None
        else f"{abs(value):.{decimals}f}"
    )
    whole, point, rest = plain.partition(".")
    digits = f"{int(whole):,}".replace(",", group) + (mark if point else "") + rest
    sign = "-" if value < 0 else ""
    return f"{sign}{head}{digits}{tail}"


def number_form(words: set[str]) -> tuple[str, int] | None:
    """The form that all these texts are numbers in, and the most decimals; None also if
    a mark may part thousands.
    """
    blank = any(re.search(r"\d\s+\D\s*$", word) for word in words)
    forms = [form for form in (_PLAIN, *NUMBER_FORMS) if (" " in form) == blank]
    fits = [
        form
        for form in forms
        if not any(math.isnan(read_number(word, form)) for word in words)
    ]
    if not fits or _PLAIN in fits:
        return None
    form = fits[0]
    mark = _number(fits[0])[2]
    grouped = [other for other in fits if _number(other)[1] == mark]
    if grouped and any(mark in word for word in words):
        if all(mark in word for word in words):
            return None
        form = grouped[0]  # some number has no mark: it parts thousands
    return form, max(
        count for word in words if (count := count_decimals(word, form)) is not None
    )


def count_decimals(text: str, form: str | None) -> int | None:
    """How many decimals a number in this form is written with; None where it is written
    otherwise.
    """
    if form is None:
        plain = re.fullmatch(r"[-+]?[0-9]*\.?([0-9]*)", text.strip())
        return None if plain is None else len(plain[1])
    number = _number(form)[0].fullmatch(text.strip())
    return None if number is None else len(number[3] or "")
