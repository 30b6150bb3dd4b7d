"""One column's cells, as they came, to values of the declared kind, and what is wrong
with them.

Each different text is looked at once; the rows follow by index.

Guarantee: what a cell is read as depends on that cell, and the column's type, alone.
Whatever else stands in the column, a list, a number beyond all bounds or a text among
numbers, is that cell's own matter.
"""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data import column as kinds
from understudy.data.column import (
    EXACT,
    Binned,
    Categorical,
    Column,
    Date,
    Datetime,
    Integer,
)
from understudy.data.encoding.values import Cells, Floats, Places, typed
from understudy.data.reading.forms import ISO_DAY, read_day, read_number, read_time

NOT_NULLABLE = "has no value, and the column is not nullable."
MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")
# in a second: all that pandas has
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
WHOLE_ID = r"0|-?[1-9][0-9]{0,17}"  # how str() writes an int64

# each with the different values that it hits
Reasons = list[tuple[str, NDArray[np.bool_]]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Fault:
    """One reason, and every row it holds for; without rows it holds for the column or
    the table.
    """

    reason: str
    column: str | None = None
    rows: Places | None = None
    values: NDArray[Any] | None = None
    error: bool = True

    @property
    def count(self) -> int:
        return 1 if self.rows is None else len(self.rows)


def read_cells(
    column: Column, cells: Cells, numbers: Places, *, gap: str = NOT_NULLABLE
) -> tuple[Cells, list[Fault]]:
    """The column's values in their dtype, and every fault; `numbers`: rows'; `gap`:
    said of a forbidden empty cell.
    """
    index, uniques = distinct(cells, missing_words(column))
    values, reasons = parse(column, uniques)
    if uniques.dtype == object:
        reasons.insert(
            0,
            (
                "is not UTF-8.",
                np.array([isinstance(v, bytes) for v in uniques], dtype=bool),
            ),
        )
    missing = index < 0
    faults = _faults(column.name, cells, numbers, index, reasons)
    if missing.any() and not column.nullable:
        faults.insert(0, Fault(column=column.name, rows=numbers[missing], reason=gap))
    return (
        cells if faults else typed(column, np.append(values, 0)[index], missing)
    ), faults


_TEXT_OR_NOTHING = {str, float, type(None), type(pd.NA), type(pd.NaT)}


def missing_words(column: Column) -> set[str]:
    """What stands for "missing": all such words that the column does not declare."""
    declared = () if isinstance(column, Binned) else column.labels
    numbers = isinstance(column, Categorical) and not isinstance(
        column.categories[0], str
    )
    return set(MISSING_WORDS) - (set() if numbers else {*declared})


def read_ids(
    name: str, cells: Cells, numbers: Places, *, one_row_each: bool = True
) -> tuple[Cells, list[Fault]]:
    """The ids of people, as whole numbers or as text, and every fault."""
    index, uniques = distinct(cells, set(MISSING_WORDS))
    missing = index < 0
    plain = (
        uniques.dtype.kind in "iu"
        and len(uniques)
        and not missing.any()
        and -(2**63) < uniques.min() <= uniques.max() < 2**63
    )
    if plain and not (one_row_each and uniques.duplicated().any()):
        return pd.Series(uniques.to_numpy(np.int64)), []
    present = np.isin(np.arange(len(uniques)), index)
    if uniques.dtype.kind in "iu":
        values = uniques.to_numpy()
        text = np.zeros(len(uniques), dtype=bool)
        whole = present & (values > -(2**63)) & (values < 2**63)
    else:
        text = present & np.array(
            [isinstance(value, str) for value in uniques], dtype=bool
        )
        whole = present & np.array([_is_whole(value) for value in uniques], dtype=bool)
    reasons = [("is neither a whole number of 64 bits nor text.", ~text & ~whole)]
    if text.any() and whole.any():
        mixed = (
            ("is text, where most ids are whole numbers.", text),
            ("is a number, where most are text.", whole),
        )
        reasons.append(min(mixed, key=lambda reason: reason[1].sum()))
    faults = _faults(name, cells, numbers, index, reasons)
    if missing.any():
        faults.insert(0, Fault(column=name, rows=numbers[missing], reason="has no id."))
    # the last one is for missing cells
    ids_of_uniques = np.full(len(uniques) + 1, None, dtype=object)
    ids_of_uniques[:-1][text] = uniques[text]
    ids_of_uniques[:-1][whole] = [int(value) for value in uniques[whole]]
    ids = ids_of_uniques[index]
    if (
        one_row_each
        and (repeated := pd.notna(ids) & pd.Series(ids).duplicated().to_numpy()).any()
    ):
        reason = (
            "is the id of an earlier row: a person has one row, and many rows each "
            "are for `visits`."
        )
        faults.append(
            Fault(
                column=name,
                rows=numbers[repeated],
                values=cells[repeated].to_numpy(),
                reason=reason,
            )
        )
    if faults:
        return cells, faults
    numeric = whole.all() or uniques.str.fullmatch(WHOLE_ID).all()
    return pd.Series(ids.astype(np.int64 if numeric else object)), []


def _faults(
    name: str, cells: Cells, numbers: Places, index: NDArray[np.intp], reasons: Reasons
) -> list[Fault]:
    """The rows behind each reason; a value is given its first reason alone."""
    faults = []
    explained = np.zeros(1, dtype=bool)
    for reason, mask in reasons:
        newly_explained = (
            np.append(mask, False) & ~explained
        )  # the last entry is for missing cells
        explained = explained | newly_explained
        rows = newly_explained[index]
        if rows.any():
            faults.append(
                Fault(
                    column=name,
                    rows=numbers[rows],
                    values=cells[rows].to_numpy(),
                    reason=reason,
                )
            )
    return faults


def distinct(cells: Cells, words: set[str]) -> tuple[NDArray[np.intp], Cells]:
    """The different values, and which one each cell holds: −1 where it is missing. Only
    equal texts are one value: among objects 1, 1.0 and True are equal too, and the
    first of them would speak for all.
    """
    cells = texts_as_objects(cells)
    if cells.dtype == object:
        return _texts_apart(cells, words) or _one_by_one(cells, words)
    if cells.dtype.kind in "iuf":  # quicker to judge than to compare
        index = np.where(cells.isna(), -1, np.arange(len(cells)))
        if isinstance(cells.dtype, np.dtype):
            return index, cells
        plain = np.dtype(f"{cells.dtype.kind}{getattr(cells.dtype, 'itemsize', 8)}")
        # a column with gaps, and still exact
        return index, pd.Series(cells.to_numpy(dtype=plain, na_value=0))
    if isinstance(cells.dtype, pd.DatetimeTZDtype):
        cells = cells.dt.tz_localize(None)  # the day it was where it was written
    index, uniques = pd.factorize(cells)
    array = np.asarray(uniques)
    values = pd.Series(array, dtype=array.dtype)
    missing = np.append(
        values.isin(words)
        if values.dtype == object
        else np.zeros(len(values), dtype=bool),
        True,
    )
    return np.where(missing[index], -1, index), values


def texts_as_objects(cells: Cells) -> Cells:
    """The cells, with texts in objects where pandas holds them in a dtype of its own,
    as version 3 does by default. Whether a cell is a text is then asked of each.
    """
    is_text = isinstance(cells.dtype, pd.StringDtype)
    return cells.astype(object) if is_text else cells


def _texts_apart(
    cells: Cells, words: set[str]
) -> tuple[NDArray[np.intp], Cells] | None:
    """`distinct` where all that is there is text; None where something else is.

    Pandas' own table of texts ends a text at a zero byte, and refuses half of a
    surrogate pair: a dict does neither.
    """
    values = cells.tolist()
    if not set(map(type, values)) <= _TEXT_OR_NOTHING:
        return None
    distinct_values = dict.fromkeys(values)
    if not all(type(value) is str or _is_missing(value) for value in distinct_values):
        return None
    values_there = [
        value for value in distinct_values if type(value) is str and value not in words
    ]
    index = dict.fromkeys(distinct_values, -1) | dict(
        zip(values_there, range(len(values_there)), strict=True)
    )
    indices = np.fromiter(
        map(index.__getitem__, values), dtype=np.intp, count=len(values)
    )
    return indices, pd.Series(values_there, dtype=object)


def _one_by_one(
    cells: Iterable[Any], words: set[str]
) -> tuple[NDArray[np.intp], Cells]:
    index_of: dict[str, int] = {}
    values: list[Any] = []
    indices: list[int] = []
    for value in cells:
        index = -1
        if type(value) is str:
            index = -1 if value in words else index_of.setdefault(value, len(values))
        elif not _is_missing(value):
            index = len(values)
        if index == len(values):
            values.append(value)
        indices.append(index)
    return np.array(indices, dtype=np.intp), pd.Series(values, dtype=object)


def _is_missing(value: object) -> bool:
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and math.isnan(value)


def parse(column: Column, uniques: Cells) -> tuple[NDArray[Any], Reasons]:
    """Values as the codec's numbers (text stays text), and reasons against them, in the
    order that counts.
    """
    if isinstance(column, Binned):
        return _parse_binned(column, uniques)
    if not isinstance(column, Categorical):
        return _parse_boolean(column, uniques)
    declared = set(column.categories)
    if isinstance(column.categories[0], str):
        values = uniques.to_numpy(object)
        if kinds.OTHER in declared and not isinstance(column, kinds.Ordinal):
            values = np.array(
                [_listed_or_other(value, declared) for value in values], dtype=object
            )
        listed = np.array(
            [isinstance(value, str) and value in declared for value in values],
            dtype=bool,
        )
    else:
        values = floats(uniques)
        listed = np.isin(values, [*declared])
    return values, [
        (f"is not one of the declared {kinds.shorten(column.labels)}.", ~listed)
    ]


def _listed_or_other(value: Any, listed: Collection[Any]) -> Any:
    """A text as it is where it is listed, else "(other)"; what is no text stays, for a
    reason against it.
    """
    return kinds.OTHER if isinstance(value, str) and value not in listed else value


def _parse_boolean(column: Column, uniques: Cells) -> tuple[Places, Reasons]:
    """The labels as they are declared, and the common words where the labels are among
    them.
    """
    if (
        isinstance(uniques.dtype, np.dtype) and uniques.dtype.kind in "iuf"
    ):  # each different number once: by its bits, as −0.0 is written otherwise than 0.0
        numbers = uniques.to_numpy()
        index, bits = pd.factorize(numbers.view(f"u{numbers.dtype.itemsize}"))
        values, reasons = _parse_boolean(
            column, pd.Series(bits.view(numbers.dtype)).astype(object)
        )
        return values[index], [(reason, mask[index]) for reason, mask in reasons]
    no, yes = column.labels
    false_words = {no}
    true_words = {yes}
    words = [str(text).strip() for text in texts(uniques)]
    if no.lower() in kinds.FALSE_WORDS and yes.lower() in kinds.TRUE_WORDS:
        words = [word.lower() for word in words]
        false_words = set(kinds.FALSE_WORDS)
        true_words = set(kinds.TRUE_WORDS)
    true, false = (
        np.array([word in accepted for word in words], dtype=bool)
        for accepted in (true_words, false_words)
    )
    alternatives = (
        "true nor false" if column.labels == ("False", "True") else f"{no} nor {yes}"
    )
    return true.astype(np.int64), [(f"is neither {alternatives}.", ~(true | false))]


def _parse_binned(column: Binned, uniques: Cells) -> tuple[Floats, Reasons]:
    if kinds.is_unbounded(column):
        column = kinds.widest(column)
    dates = isinstance(column, Date)
    whole = column.edges.dtype.kind == "i"
    kind = "a number" if column.form is None else f'a number written as "{column.form}"'
    if isinstance(column, Datetime):
        kind = f"a time ({column.form or 'YYYY-MM-DD HH:MM:SS'})"
    elif isinstance(column, Date):
        kind = f"a date ({column.written})"
    elif isinstance(column, Integer) and column.form is not None:
        kind = f"a time of day ({column.form})"
    values = numbers_in(column, uniques)
    # the last edge of whole numbers lies one past high
    low = column.edges[0]
    high = column.edges[-1] - whole
    show = str if dates else column.as_text
    if isinstance(column.low, float):
        show = "{:g}".format
    # as the schema has them
    lowest = show(column.low)
    highest = show(column.high)
    with np.errstate(invalid="ignore"):
        return values, [
            (f"is not {kind}.", np.isnan(values)),
            ("is not finite.", np.isinf(values)),
            (
                f"{'has a time of day' if dates else 'is not a whole number'}.",
                whole & (values != np.floor(values)),
            ),
            (f"is below the declared low {lowest}.", values < low),
            (f"is above the declared high {highest}.", values > high),
        ]


def numbers_in(column: Binned, uniques: Cells) -> Floats:
    """Values on the column's own scale, text as it is declared to be written; NaN for
    all else.
    """
    if isinstance(column, Datetime):
        return np.floor(seconds(uniques, column.form) / column.step)
    if isinstance(column, Date):
        return days(uniques, column.written)
    form = column.form
    if (
        isinstance(column, Integer)
        and form is not None
        and uniques.dtype.kind not in "iuf"
    ):
        # steps after midnight
        return _map_values(
            uniques,
            lambda v: read_time(v, form) if isinstance(v, str | time) else _float(v),
        )
    return floats(uniques, form)


def _map_values(values: Cells, read: Callable[[Any], float]) -> Floats:
    return np.array([read(value) for value in values], dtype=np.float64)


def floats(values: Cells, written: str | None = None) -> Floats:
    """Numbers, and text that reads as one, to the last bit; NaN for all else, or text
    in another form.
    """
    if values.dtype.kind in "biuf":
        return values.to_numpy(dtype=np.float64)
    if written is None:
        return _map_values(values, _float)
    return _map_values(
        values, lambda v: read_number(v, written) if isinstance(v, str) else _float(v)
    )


def _float(value: Any) -> float:
    if not isinstance(value, str | Real | Decimal | np.bool_) or (
        isinstance(value, str) and "_" in value
    ):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def texts(values: Cells) -> NDArray[Any]:
    """Values as text; None for what is no single value, or cannot be written down. A
    whole number loses the point that a column with gaps gives it, and from 2^53 on
    there is no telling which it was.
    """
    dtype = values.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "iu":
        return np.array([*map(str, values.tolist())], dtype=object)
    if isinstance(dtype, np.dtype) and dtype.kind == "f":
        return _float_texts(values.to_numpy(dtype=np.float64))
    return np.array([_text(value) for value in values], dtype=object)


def _float_texts(numbers: Floats) -> NDArray[Any]:
    """`_text` of each number."""
    whole = np.isfinite(numbers) & (numbers == np.floor(numbers))
    exact = whole & (np.abs(numbers) < EXACT)
    words = np.full(len(numbers), None, dtype=object)
    words[~whole] = [*map(repr, numbers[~whole].tolist())]
    words[exact] = [*map(str, numbers[exact].astype(np.int64).tolist())]
    return words


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:  # half a surrogate pair
            return None
        return value
    if isinstance(value, float | np.floating):
        value = float(value)
        if not value.is_integer():
            return str(value)
        return str(int(value)) if abs(value) < EXACT else None
    # bool among them; str() refuses numbers that are too long
    if isinstance(value, int | np.integer):
        return str(value) if abs(int(value)) < 2**64 else None
    if isinstance(value, date):
        return None if math.isnan(_day(value)) else str(value)
    return str(value) if isinstance(value, Decimal | np.bool_) else None


def days(values: Cells, written: str = ISO_DAY) -> Floats:
    """Days since 1970-01-01, with the time of day as a fraction; NaN for what is no
    date, or text in another form.
    """
    if values.dtype.kind != "M" and written != ISO_DAY:
        return _map_values(
            values, lambda v: _day(read_day(v, written) if isinstance(v, str) else v)
        )
    if values.dtype.kind != "M":
        return _map_values(values, _day)
    moments = values.to_numpy()
    a_day = _TICKS[np.datetime_data(moments.dtype)[0]] * 86400
    whole, rest = np.divmod(moments.astype(np.int64), a_day)
    in_range = (
        ~np.isnat(moments)
        & (whole >= kinds.day_number(date.min))
        & (whole <= kinds.day_number(date.max))
    )
    return np.where(in_range, whole + rest / a_day, np.nan)


def _day(value: object) -> float:
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if not isinstance(value, date):
            return math.nan
        late = (
            kinds.second_number(value) % 86400 + value.microsecond / 1e6
            if isinstance(value, datetime)
            else 0
        )
        return kinds.day_number(value) + late / 86400
    except (ValueError, OverflowError, NotImplementedError):
        # no date, or one that no calendar has
        return math.nan


def seconds(values: Cells, written: str | None = None) -> Floats:
    """Whole seconds since 1970-01-01 00:00 by the clock on the wall, of ISO texts too;
    NaN for what is no date.
    """
    if values.dtype.kind != "M":
        return _map_values(
            values,
            lambda v: _second(
                (written and isinstance(v, str) and read_day(v, written)) or v
            ),
        )
    stamps = (
        values.dt.tz_localize(None) if values.dt.tz is not None else values
    ).to_numpy()
    whole = stamps.astype(np.int64) // _TICKS[np.datetime_data(stamps.dtype)[0]]
    return np.where(np.isnat(stamps), np.nan, whole)


def _second(value: object) -> float:
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if isinstance(value, datetime) and not math.isnan(_day(value)):
            return kinds.second_number(value)
        return 86400 * _day(value)
    except (ValueError, OverflowError, NotImplementedError):
        return math.nan


def _is_whole(value: object) -> bool:
    if isinstance(value, float):  # what a whole number becomes in a column with gaps
        return value.is_integer() and abs(value) < EXACT
    return (
        isinstance(value, int | np.integer)
        and not isinstance(value, bool)
        and abs(int(value)) < 2**63
    )
