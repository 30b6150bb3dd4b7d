"""A draft of a schema, read from rows: a place to begin, never something to send.

Guarantee: none. Categories and bounds come from the rows, and rounding them outwards
hides little, so the draft says `origin="rows"` and everything that leaves a holder
refuses it until someone marks it public or buys its domains.
Edges: no rows → SchemaError; a column with no values, with values of mixed types, or
with more different texts than `most_categories`, is left out, and the note names it.

How kinds are guessed, for the values that are there:

    true/false, yes/no, y/n or 0/1 alone boolean, with labels as they are written, if
                                         each is in one way
    an ordered pandas categorical        ordinal, with its own order
    whole numbers, at most 10 different  ordinal
    whole numbers                        integer, bounds rounded outwards
    numbers                              real, bounds rounded outwards, decimals where
                                         there are few
    numbers as 1,5 or 5 % or $1,500      real, with `written`
    ISO days                             date, from the first of January to the last of
                                         December
    days as 31.12.1990 or 12/31/1990     the same, with `written`; day first where no
                                         value tells
    times as 14:30 or 14:30:15           integer, from midnight to midnight, with
                                         `written`
    ISO days with a time                 datetime, likewise, by the second, the minute
                                         or the hour
    anything else ("007" included)       categorical
"""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data import column as kinds
from understudy.data.column import (
    Boolean,
    Categorical,
    Column,
    Date,
    Datetime,
    Integer,
    OneOf,
    Ordinal,
    Real,
    suggested,
    with_groups,
)
from understudy.data.drafted import READ_FROM, Drafted
from understudy.data.encoding.values import Cells, Floats
from understudy.data.header import apply_header, require_header
from understudy.data.id_names import is_id_name
from understudy.data.reading import forms
from understudy.data.reading.cells import (
    MISSING_WORDS,
    days,
    distinct,
    floats,
    seconds,
    texts,
)
from understudy.data.reading.files import Source, open_source
from understudy.data.reading.forms import TIME_FORMS, day_form
from understudy.data.reading.one_hot import fold_raw
from understudy.data.reading.written import Raw
from understudy.data.schema import Schema
from understudy.data.visits.schema import MOST_EVENTS, VisitSchema
from understudy.ground.check import nearest, whole
from understudy.ground.durable import replace as replace_file
from understudy.ground.errors import SchemaError

LARGEST = 1e299  # beyond, a rounded bound is no longer a good one
MANY_DECIMALS = 6  # more are a float's own digits, and nobody's format
# may stand for missing
_ODD = {"?", "-", "--", ".", "*", "-99", "-999", "999", "unknown", "Unknown", "UNKNOWN"}
# what texts may look like
_FORMS = {
    r"[-+]?[\d.]+,\d+\s*%?": (
        'numbers with a comma, which may part decimals (then say decimal = ",") '
        "or thousands"
    ),
    r"[-+]?[\d.,]+\s*%": "percentages, but not all in one form",
    r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}.*": (
        "days, but not all in one form with a year of four digits"
    ),
    r"\d{1,2}:\d{2}(:\d{2})?": "times of day, but not all in one form",
}
# what texts look like that no form reads, and what to write instead
_MONTH = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[.]?"
_UNREAD = {
    re.compile(r"[0-9]{1,2}([./-])[0-9]{1,2}\1[0-9]{2}([^0-9].*)?"): (
        "days with a year of two digits: write the year with four, as in 31.12.1990"
    ),
    re.compile(
        r"(.*[^0-9])?[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?\s*[ap][.]?m[.]?", re.IGNORECASE
    ): ("times with AM or PM: write them by 24 hours, as in 14:30"),
    re.compile(
        rf"([0-9]{{1,2}}[. -]+{_MONTH}|{_MONTH}[ -]+[0-9]{{1,2}},?)[ -]+[0-9]{{2,4}}.*",
        re.IGNORECASE,
    ): ("days with the name of a month: write them as 1990-12-31"),
}
_MOSTLY = 0.95  # of the different texts look so
_LOOKED_AT = 1_000  # texts, which are enough to tell
_SPELLINGS = (
    "yes and no are written in several ways, and are read as one boolean, written "
    "False and True"
)
# how a column of whole numbers is called that tells when an event was, and what is said
# where there is no such time
_TIMES = re.compile(
    r"(?:^|[^a-z])(?:day|date|time|timestamp|week|month|hour|minute|second)$",
    re.IGNORECASE,
)
_NO_ORDER = (
    "Events are in no order: if a day, a time or a whole number orders them, say "
    'which (time = "…").'
)
PLAIN_TIMES = {  # how pandas writes them
    "second": "YYYY-MM-DD HH:MM:SS",
    "minute": "YYYY-MM-DD HH:MM",
    "hour": "YYYY-MM-DD HH:MM",
}
IDS = "named like an id"
# of the cells of a column of numbers, so many of so many different words are odd ones,
# and more are categories
ODD_SHARE = 0.01
MOST_ODD_WORDS = 10
# numbers, days and times in any form
_DIGITS = re.compile(r"[-+$€£]?\s*[0-9][0-9.,:/ %$€£TZ+-]*")
FEW = 10  # so many different whole numbers are read as an order of categories
HEADER = Path(__file__).with_name("draft_header.toml").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A schema read from rows, why columns were left out, what somebody should decide
    about others, and the rows.

    `unread`: what texts of columns look like that are read as mere texts, or several
    spellings as one.
    """

    schema: Schema
    left_out: dict[str, str]
    remarks: dict[str, str]
    unread: dict[str, str]
    cells: dict[str, Cells] = field(repr=False)


def infer_schema(
    source: Source,
    person: str | None = None,
    *,
    name: str | None = None,
    most_categories: int = 64,
    header: bool | None = None,
) -> Schema:
    source = apply_header(source, header)
    return draft(
        source,
        person,
        name=name,
        most_categories=most_categories,
        groups=True,
        header=header,
    ).schema


def draft(
    source: Source,
    person: str | None = None,
    *,
    name: str | None = None,
    most_categories: int = 64,
    shared: float = 1,
    rows_are_people: bool = False,
    groups: bool = False,
    header: bool | None = None,
) -> Draft:
    """The same, with a reason for every column left out. Where a share of rows have one
    text, there may be more. Ids are left out once it is known who a person is; before
    that they stay, and somebody has to decide about them. With `groups`, columns of
    which exactly one is 1 in all rows are one column: private as all of a draft is.
    """
    whole(most_categories=most_categories)
    require_header(source, header)
    raw = open_source(source, None, name)
    if person is not None and person not in raw.columns:
        raise SchemaError(
            f"{raw.name}: there is no id column "
            f'"{person}".{nearest(person, map(str, raw.columns))} No draft was made.'
        )
    count = f"{len(raw.faults):,} rows" if raw.faults else ""
    if count:
        raise SchemaError(
            f"{raw.name}: {count} do not have as many cells as the header. No draft "
            "was made."
        )
    if not len(raw.numbers):
        raise SchemaError(f"{raw.name}: the table has no rows. No draft was made.")
    guesses = {
        c: _guess(str(c), cells, most_categories, shared)
        for c, cells in raw.columns.items()
        if c != person
    }
    ids = [c for c in guesses if is_id_name(c)]
    if person is not None or rows_are_people:
        guesses |= dict.fromkeys(ids, IDS)
    columns = tuple(column for column in guesses.values() if isinstance(column, Column))
    if not columns:
        raise SchemaError(f"{raw.name}: no column can be described. No draft was made.")
    rows = f"{len(raw.numbers):,} rows of {raw.name}"
    notes = [f"{READ_FROM} {rows}; private until marked public or bought."]
    why = {str(c): guesses[c] for c in raw.header if c != person}
    left_out = {
        column: reason for column, reason in why.items() if isinstance(reason, str)
    }
    if left_out:
        listed = "; ".join(f"{name} ({reason})" for name, reason in left_out.items())
        notes.append(f"Left out: {listed}.")
    cells_of = {str(c): cells for c, cells in raw.columns.items()}
    whole_columns = [
        column.name
        for column in columns
        if isinstance(column, Integer) and person is None
    ]
    unique = [c for c in whole_columns if cells_of[c].is_unique]
    if unique:
        notes.append(
            f"Different in every row, so perhaps the person: {', '.join(unique)}."
        )
    remarks = dict.fromkeys(map(str, ids), "named like an id: is this the person?")
    remarks |= dict.fromkeys(unique, "different in every row: is this the person?")
    if person is not None and (
        n_repeated := int(raw.columns[person].duplicated().sum())
    ):
        remarks[person] = (
            f"{n_repeated:,} rows of people who have an earlier one: keep one each, or "
            "see docs/visits.md"
        )
    for column in columns:
        if isinstance(column, Categorical) and (
            odd_words := sorted(_ODD & set(column.labels))
        ):
            shown = " and ".join(map(repr, odd_words))
            remarks[column.name] = (
                f"{shown}: a value, or missing? Then draft it with --missing "
                f"'{odd_words[0]}'"
            )
        if isinstance(column, Date) and (remark := _either_way(cells_of[column.name])):
            remarks[column.name] = remark
            notes.append(f"{column.name}: {remark}.")
    unread = {
        column.name: remark
        for column in columns
        if (remark := _unread(column, cells_of[column.name]))
    }
    if groups:
        columns = _grouped(columns, raw)
        question = (
            "in these rows exactly one of its columns is 1: is it so by what made them?"
        )
        remarks |= {
            column.name: question for column in columns if isinstance(column, OneOf)
        }
    marks = Drafted.from_columns(_today(), columns)
    about_people: dict[str, Any] = {
        "person": person,
        "rows_are_people": rows_are_people,
    }
    schema = Schema(
        columns=columns,
        **about_people,
        origin="rows",
        note=" ".join(notes),
        drafted=marks,
    )
    return Draft(
        schema=schema,
        left_out=left_out,
        remarks=remarks | unread,
        unread=unread,
        cells=cells_of,
    )


def looks_like(words: Collection[str]) -> str | None:
    """What nearly all of these texts look like that no form reads, and what to write;
    None for nothing known.

    Guarantee: none. It is computed from rows, and said to their holder alone.
    """
    sample = list(islice(words, _LOOKED_AT))
    descriptions = [
        description
        for form, description in _UNREAD.items()
        if _share(form, sample) >= _MOSTLY
    ]
    return "; ".join(descriptions) or None


def _share(form: re.Pattern[str], words: Collection[str]) -> float:
    return sum(form.fullmatch(word.strip()) is not None for word in words) / max(
        1, len(words)
    )


def _unread(column: Column, cells: Cells) -> str | None:
    """What the texts behind a drafted column look like, or that they are several
    spellings of yes and no.
    """
    if isinstance(column, Categorical) and isinstance(column.categories[0], str):
        return looks_like([str(category) for category in column.categories])
    if isinstance(column, Boolean) and cells.dtype.kind == "O":
        _, uniques = distinct(cells, set(MISSING_WORDS))
        words = {str(text) for text in texts(uniques)}
        return _SPELLINGS if _labels(words) is None else None
    return None


def _grouped(columns: tuple[Column, ...], raw: Raw) -> tuple[Column, ...]:
    """The columns with one for each group of which exactly one, or at most one, is 1 in
    all rows.
    """
    for names in suggested({column.name: column for column in columns}).values():
        try:
            grouped = with_groups(columns, [names])
        except SchemaError:  # they are written in different ways
            continue
        (group,) = (
            column
            for column in grouped
            if isinstance(column, OneOf) and column.part_names == names
        )
        for nullable in (False, True):
            candidate = replace(group, nullable=nullable)
            if not fold_raw(raw, [candidate]).faults:
                columns = tuple(
                    candidate if column == group else column for column in grouped
                )
                break
    return columns


def draft_visits(
    people: Source | None, events: Source, person: str | None = None
) -> tuple[VisitSchema, dict[str, Draft]]:
    """A draft of people with events, and those of its tables, by `person`, the column
    that both have.
    """
    headers = [
        require_header(source) for source in (people, events) if source is not None
    ]
    common = [
        column for column in headers[0] if len(headers) > 1 and column in headers[1]
    ]
    if person is None and len(common) != 1:
        raise SchemaError(
            "which column identifies people, in both tables? Say so (--person). No "
            "draft was made."
        )
    person = common[0] if person is None else person
    sources = {"people": None if headers[0] == [person] else people, "events": events}
    drafts = {
        part: draft(source, person)
        for part, source in sources.items()
        if source is not None
    }
    drafts["events"].remarks.pop(person, None)  # a person may have many
    always_present = [c for c in drafts["events"].schema.columns if not c.nullable]
    numbers = [c for c in always_present if isinstance(c, Integer)]
    calendar = [c.name for c in numbers if c.low >= 19_000_000 and c.high <= 21_000_000]
    drafts["events"].remarks.update(
        dict.fromkeys(
            calendar, "days as 20240131? Write them as 2024-01-31 before a run"
        )
    )
    moments = [c.name for c in always_present if isinstance(c, Date | Datetime)]
    moments += [c.name for c in numbers if _TIMES.search(c.name)] + calendar
    max_events = int(
        open_source(events, {person: False}).columns[person].value_counts().max()
    )
    most_events = min(max_events, MOST_EVENTS)
    parts: dict[str, Any] = {part: drafted.schema for part, drafted in drafts.items()}
    marks = Drafted.from_columns(
        _today(), parts["events"].columns, most_events=most_events
    )
    parts["events"] = replace(parts["events"], drafted=marks)
    parts |= {"time": moments[0]} if moments else {"note": _NO_ORDER}
    return VisitSchema(person=person, most_events=most_events, **parts), drafts


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def write_draft(schema: Schema | VisitSchema, path: str | Path) -> None:
    """Write a draft as TOML, under a header that says what it is and what to do with
    it.
    """
    path = Path(path)
    if path.suffix.lower() != ".toml":
        raise SchemaError(
            f"{path.name}: a draft is written as .toml, which can hold its warning."
        )
    if schema.origin != "rows":
        raise SchemaError("this schema is public and not a draft; use its save().")
    replace_file(path, (HEADER + schema.to_toml()).encode())


def _guess(
    name: str, cells: Cells, most_categories: int, shared: float
) -> Column | str:
    """The column, or why it is none."""
    if not name:
        return "it has no name"
    where, values = distinct(cells, set(MISSING_WORDS))
    common: dict[str, Any] = {"name": name, "nullable": bool((where < 0).any())}
    present = values.iloc[np.unique(where[where >= 0])]
    if isinstance(present.dtype, np.dtype) and present.dtype.kind in "iuf":
        present = present.drop_duplicates()  # numbers are not compared in `distinct`
    if present.empty:
        return "it has no value"
    order = cells.dtype if isinstance(cells.dtype, pd.CategoricalDtype) else None
    if (
        order is not None
        and order.ordered
        and all(isinstance(c, str) for c in order.categories)
    ):
        return Ordinal(categories=tuple(order.categories), **common)
    words = {str(text) for text in texts(present)}
    labels = _labels(words)
    if labels is not None:
        return Boolean(labels=labels, **common)
    if are_spellings(words):
        return Boolean(**common)
    numbers = _numbers(present)
    if numbers is not None:
        return _numeric(common, np.unique(numbers), _decimals(words))
    column = _in_a_form(common, present, words)
    if column is not None:
        return column
    day = days(present)
    if (
        (kinds.day_number(kinds.FIRST_DAY) <= day)
        & (day < kinds.day_number(kinds.LAST_DAY) + 1)
    ).all():
        return _moment(common, day, seconds(present))
    if not all(isinstance(value, str) for value in present):
        return (
            "its values are no UTF-8 (say the file's encoding), of several types, or "
            "beyond what a column holds"
        )
    if len(present) > most_categories and np.bincount(
        where[where >= 0]
    ).max() < shared * len(where):
        looks = looks_like(words)
        if looks is not None:
            return f"{len(present):,} different texts, like {looks}"
        alike = [
            f", like {looks}"
            for form, looks in _FORMS.items()
            if all(re.fullmatch(form, w) for w in words)
        ]
        return (
            f"{len(present):,} different texts{''.join(alike[:1])}; declare its "
            "categories if they are known"
        )
    return Categorical(categories=tuple(sorted(present)), **common)


def few_odd_words(cells: Cells) -> bool:
    """Whether these cells would be numbers, days or times, were it not for a few cells
    that hold something else.

    Guarantee: none. It is computed from rows, and said to their holder alone.
    Edges: a column of at most `FEW` different numbers is a list of categories, and a
    leading zero makes codes.
    """
    where, values = distinct(cells, set(MISSING_WORDS))
    is_number = np.isfinite(floats(values))
    is_text = np.array([isinstance(value, str) for value in values], dtype=bool)
    has_letters = np.array(
        [_DIGITS.fullmatch(str(value)) is None for value in values], dtype=bool
    )
    words = is_text & has_letters & ~is_number
    no_numbers = is_text & ~is_number
    return any(
        _are_few_odd(where, values, is_odd) for is_odd in (words, no_numbers, is_number)
    )


def _are_few_odd(where: NDArray[Any], values: Cells, is_odd: NDArray[np.bool_]) -> bool:
    """Whether few cells are odd, and all others are numbers, days or times. `where`:
    each cell's place in `values`.
    """
    present = where[where >= 0]
    odd_words = np.unique(present[is_odd[present]])
    odd_cells = int(is_odd[present].sum())
    if not 0 < len(odd_words) <= MOST_ODD_WORDS or odd_cells > math.ceil(
        ODD_SHARE * len(present)
    ):
        return False
    rest = values[np.unique(present[~is_odd[present]])]
    if rest.empty:
        return False
    return isinstance(
        _guess("rest", rest.reset_index(drop=True), FEW, 1),
        Integer | Real | Date | Datetime,
    )


def _in_a_form(
    common: dict[str, Any], present: Cells, words: set[str]
) -> Column | None:
    """A column of texts that are all written in one form that is not the plain one;
    None where they are not.
    """
    if all(isinstance(value, time) for value in present):
        clock: str | None = (
            "HH:MM:SS" if any(value.second for value in present) else "HH:MM"
        )
    elif not all(isinstance(value, str) for value in present):
        return None
    else:
        clock = forms.time_form(words)
    if clock is not None:
        return Integer(
            low=0, high=forms.A_DAY // TIME_FORMS[clock] - 1, written=clock, **common
        )
    form_of_days = day_form(words)
    if form_of_days is not None:
        day = days(present, form_of_days[0])
        if (
            (kinds.day_number(kinds.FIRST_DAY) <= day)
            & (day < kinds.day_number(kinds.LAST_DAY) + 1)
        ).all():
            column = _moment(common, day, seconds(present, form_of_days[0]))
            plain = (
                isinstance(column, Datetime)
                and form_of_days[0] == PLAIN_TIMES[column.resolution]
            )
            return column if plain else replace(column, written=form_of_days[0])
    number = forms.number_form(words)
    if number is not None:
        form, decimals = number
        numbers = np.unique([forms.read_number(word, form) for word in words])
        if np.abs(numbers).max() < LARGEST:
            return replace(
                _real(common, numbers, decimals if decimals <= MANY_DECIMALS else None),
                written=form,
            )
    return None


def _either_way(cells: Cells) -> str | None:
    """What to decide about days of which no value tells day from month; None where one
    does.
    """
    _, uniques = distinct(cells, set(MISSING_WORDS))
    form_of_days = day_form(
        {str(value) for value in uniques if value not in MISSING_WORDS}
    )
    if form_of_days is None or not form_of_days[1]:
        return None
    other = form_of_days[0].translate(str.maketrans("DM", "MD"))
    return (
        f'taken as {form_of_days[0]}, and no value tells: written = "{other}" puts the '
        "month "
        "first"
    )


def _labels(words: set[str]) -> tuple[str, str] | None:
    """How false and true are written; None where these are no booleans, or one is
    written in several ways.
    """
    plain = {
        word.removesuffix(".0") if word in ("0.0", "1.0") else word for word in words
    }
    false, true = (
        [w for w in plain if w.lower() in common_words]
        for common_words in (kinds.FALSE_WORDS, kinds.TRUE_WORDS)
    )
    if len(false) + len(true) == len(plain):
        if len(false) + len(true) == 1:  # the other of the two, in the same letters
            (word,) = plain
            false = false or [_alike(word, kinds.FALSE_WORDS, kinds.TRUE_WORDS)]
            true = true or [_alike(word, kinds.TRUE_WORDS, kinds.FALSE_WORDS)]
        return (false[0], true[0]) if len(false) == len(true) == 1 else None
    pairs = (("N", "Y"), ("n", "y"), ("F", "T"), ("f", "t"))
    return next((pair for pair in pairs if plain == set(pair)), None)


def are_spellings(words: set[str]) -> bool:
    """Whether all are common words for yes and no, and both are among them."""
    words_by_meaning = [
        {word for word in words if word.lower() in common_words}
        for common_words in (kinds.FALSE_WORDS, kinds.TRUE_WORDS)
    ]
    return all(words_by_meaning) and len(set.union(*words_by_meaning)) == len(words)


def _alike(word: str, to_words: Sequence[str], from_words: Sequence[str]) -> str:
    other = to_words[from_words.index(word.lower())]
    if word.islower():
        return other
    return other.upper() if word.isupper() else other.capitalize()


def _decimals(words: set[str]) -> int | None:
    """The most decimals that a number is written with, where all are written plainly
    and none has many.
    """
    counts = [forms.count_decimals(word, None) for word in words]
    max_decimals = max(
        MANY_DECIMALS + 1 if count is None else count for count in counts
    )
    return max_decimals if max_decimals <= MANY_DECIMALS else None


def _moment(common: dict[str, Any], day: Floats, second: Floats) -> Date | Datetime:
    """Days, or days with a time where some have one, of whole years."""
    first, last = (
        date.fromordinal(int(np.floor(end)) + kinds.EPOCH).year
        for end in (day.min(), day.max())
    )
    if (day == np.floor(day)).all():
        return Date(low=date(first, 1, 1), high=date(last, 12, 31), **common)
    fits = [
        name for name, step in kinds.RESOLUTIONS.items() if not (second % step).any()
    ]
    end = {"second": (23, 59, 59), "minute": (23, 59, 0), "hour": (23, 0, 0)}[fits[-1]]
    return Datetime(
        low=datetime(first, 1, 1),
        high=datetime(last, 12, 31, *end),
        resolution=fits[-1],
        **common,
    )


def _numbers(present: Cells) -> Floats | None:
    """The values as numbers that a column can bound, or None; text with a leading zero
    is a code.
    """
    if present.dtype == object and any(
        re.match(r"[-+]?0\d", str(value)) for value in present
    ):
        return None
    numbers = floats(present)
    return numbers if (np.abs(numbers) < LARGEST).all() else None


def _numeric(common: dict[str, Any], numbers: Floats, decimals: int | None) -> Column:
    if (numbers == np.floor(numbers)).all() and np.abs(
        numbers
    ).max() < kinds.EXACT / 10:
        if len(numbers) <= FEW:
            return Ordinal(categories=tuple(int(v) for v in numbers), **common)
        low, high = _outwards(float(numbers[0]), float(numbers[-1]))
        return Integer(low=int(low), high=int(high), **common)
    return _real(common, numbers, decimals)


def _real(common: dict[str, Any], numbers: Floats, decimals: int | None) -> Real:
    low, high = _outwards(float(numbers[0]), float(numbers[-1]))
    steps = 0 if decimals is None else int((high - low) * 10**decimals)
    if (
        decimals is None
        or steps < 2
        or max(abs(low), abs(high)) * 10**decimals > kinds.EXACT
    ):
        return Real(low=low, high=high, **common)
    bins = steps // 2 if steps < 2 * kinds.DEFAULT_BINS else None
    return Real(low=low, high=high, bins=bins, decimals=decimals, **common)


def _outwards(low: float, high: float) -> tuple[float, float]:
    """Round bounds outwards to one digit of their width, in decimals: (0.37, 87.2) to
    (0, 90).
    """
    step = Decimal(10) ** math.floor(math.log10(high - low or abs(high) or 1.0))
    below = (Decimal(repr(low)) / step).to_integral_value(ROUND_FLOOR)
    above = (Decimal(repr(high)) / step).to_integral_value(ROUND_CEILING)
    return float(below * step), float((above + (below == above)) * step)
