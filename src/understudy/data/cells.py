"""One column's cells, as they came, to values of the declared kind, and what is wrong with them.

Each different text is looked at once; the rows follow by index.
"""

import math
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import EXACT, Binned, Categorical, Column, Date, day_number, shorten
from understudy.data.dtypes import typed

MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")
TRUE_WORDS, FALSE_WORDS = ("true", "yes", "1", "1.0"), ("false", "no", "0", "0.0")
WHOLE_ID = r"0|-?[1-9][0-9]{0,17}"  # how str() writes an int64

Reasons = list[tuple[str, NDArray[np.bool_]]]  # each with the different values that it hits


@dataclass(frozen=True, kw_only=True, eq=False)
class Fault:
    """One reason, and every row it holds for; without rows it holds for the column or the table."""

    reason: str
    column: str | None = None
    rows: NDArray[np.int64] | None = None
    values: NDArray[Any] | None = None
    error: bool = True

    @property
    def count(self) -> int:
        return 1 if self.rows is None else len(self.rows)


def read_cells(
    column: Column, cells: "pd.Series[Any]", numbers: NDArray[np.int64]
) -> tuple["pd.Series[Any]", list[Fault]]:
    """The column's values in their own dtype, and every fault; `numbers` are the numbers of the rows."""
    words = set(MISSING_WORDS) - set(getattr(column, "categories", ()))
    try:
        where, seen = distinct(cells, words)
    except TypeError:
        return cells, [Fault(column=column.name, reason="holds lists or other values that are not single.")]
    values, reasons = _parse(column, seen)
    missing = where < 0
    faults = _faults(column.name, cells, numbers, where, reasons)
    if missing.any() and not column.nullable:
        reason = "has no value, and the column is not nullable."
        faults.insert(0, Fault(column=column.name, rows=numbers[missing], reason=reason))
    return (cells if faults else typed(column, np.append(values, 0)[where], missing)), faults


def read_ids(
    name: str, cells: "pd.Series[Any]", numbers: NDArray[np.int64]
) -> tuple["pd.Series[Any]", list[Fault]]:
    """The ids of people, as whole numbers or as text, and every fault."""
    try:
        where, seen = distinct(cells, set(MISSING_WORDS))
    except TypeError:
        return cells, [Fault(column=name, reason="holds lists or other values that are not single.")]
    missing = where < 0
    there = np.isin(np.arange(len(seen)), where)
    text = there & np.array([isinstance(value, str) for value in seen], dtype=bool)
    whole = there & np.array([_is_whole(value) for value in seen], dtype=bool)
    reasons = [("is neither a whole number of 64 bits nor text.", ~text & ~whole)]
    if text.any() and whole.any():
        mixed = (
            ("is text, where most ids are whole numbers.", text),
            ("is a number, where most are text.", whole),
        )
        reasons.append(min(mixed, key=lambda reason: reason[1].sum()))
    faults = _faults(name, cells, numbers, where, reasons)
    if missing.any():
        faults.insert(0, Fault(column=name, rows=numbers[missing], reason="has no id."))
    if (again := ~missing & cells.duplicated().to_numpy()).any():
        reason = "is the id of an earlier row: a person has one row."
        faults.append(Fault(column=name, rows=numbers[again], values=cells[again].to_numpy(), reason=reason))
    if faults:
        return cells, faults
    numeric = whole.all() or seen.str.fullmatch(WHOLE_ID).all()
    return pd.Series(seen.to_numpy().astype(np.int64 if numeric else object)[where]), []


def _faults(
    name: str, cells: "pd.Series[Any]", numbers: NDArray[np.int64], where: NDArray[np.intp], reasons: Reasons
) -> list[Fault]:
    """The rows behind each reason; a value is given its first reason alone."""
    faults, known = [], np.zeros(1, dtype=bool)
    for reason, mask in reasons:
        fresh = np.append(mask, False) & ~known  # the last entry is for missing cells
        known = known | fresh
        if (at := fresh[where]).any():
            faults.append(Fault(column=name, rows=numbers[at], values=cells[at].to_numpy(), reason=reason))
    return faults


def distinct(cells: "pd.Series[Any]", words: set[str]) -> tuple[NDArray[np.intp], "pd.Series[Any]"]:
    """The different values, and for each cell which one it holds: −1 where it is missing."""
    if isinstance(cells.dtype, np.dtype) and cells.dtype.kind in "iuf":  # quicker to judge than to compare
        return np.where(cells.isna(), -1, np.arange(len(cells))), cells
    where, uniques = pd.factorize(cells)
    seen = pd.Series(np.asarray(uniques))
    gone = np.append(seen.isin(words) if seen.dtype == object else np.zeros(len(seen), dtype=bool), True)
    return np.where(gone[where], -1, where), seen


def _parse(column: Column, seen: "pd.Series[Any]") -> tuple[NDArray[Any], Reasons]:
    """Values as the codec's numbers (text stays text), and reasons against them, in the order that counts."""
    if isinstance(column, Binned):
        return _parse_binned(column, seen)
    if isinstance(column, Categorical):
        text = isinstance(column.categories[0], str)
        values = seen.to_numpy(object) if text else floats(seen)
        listed = pd.Series(values).isin(column.categories).to_numpy()
        return values, [(f"is not one of the declared {shorten(column.labels)}.", ~listed)]
    words = seen.astype(str).str.strip().str.lower()
    true, false = words.isin(TRUE_WORDS).to_numpy(), words.isin(FALSE_WORDS).to_numpy()
    return true.astype(np.int64), [("is neither true nor false.", ~(true | false))]


def _parse_binned(column: Binned, seen: "pd.Series[Any]") -> tuple[NDArray[np.float64], Reasons]:
    dates, whole = isinstance(column, Date), column.edges.dtype.kind == "i"
    values = days(seen) if dates else floats(seen)
    low, high = column.edges[0], column.edges[-1] - whole  # the last edge of whole numbers lies one past high
    with np.errstate(invalid="ignore"):
        return values, [
            ("is not a date (YYYY-MM-DD)." if dates else "is not a number.", np.isnan(values)),
            ("is not finite.", np.isinf(values)),
            (
                "has a time of day." if dates else "is not a whole number.",
                whole & (values != np.floor(values)),
            ),
            (f"is below the declared low {_bound(column.low)}.", values < low),
            (f"is above the declared high {_bound(column.high)}.", values > high),
        ]


def floats(values: "pd.Series[Any]") -> NDArray[np.float64]:
    """Numbers, and text that reads as one, to the last bit; NaN for all else."""
    if values.dtype.kind in "biuf":
        return values.to_numpy(dtype=np.float64)
    return np.array([_float(value) for value in values], dtype=np.float64)


def _float(value: Any) -> float:
    try:
        return math.nan if isinstance(value, str) and "_" in value else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def texts(seen: "pd.Series[Any]") -> NDArray[Any]:
    """Values as text; a whole number loses the point that a column with gaps gives it."""
    plain = [int(v) if isinstance(v, float) and v.is_integer() else v for v in seen]
    return np.array([str(v) for v in plain], dtype=object)


def days(values: "pd.Series[Any]") -> NDArray[np.float64]:
    """Days since 1970-01-01, with the time of day as a fraction; NaN for what is no date."""
    return np.array([_day(value) for value in values], dtype=np.float64)


def _day(value: object) -> float:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return math.nan
    if not isinstance(value, date):
        return math.nan
    time = value.time() if isinstance(value, datetime) else datetime.min.time()
    seconds = time.hour * 3600 + time.minute * 60 + time.second + time.microsecond / 1e6
    return day_number(value) + seconds / 86400


def _is_whole(value: object) -> bool:
    if isinstance(value, float):  # what a whole number becomes in a column with gaps
        return value.is_integer() and abs(value) <= EXACT
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and abs(int(value)) < 2**63


def _bound(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
