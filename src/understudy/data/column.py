"""The kinds of column, each with its public domain. `schema.py` says what they mean together.

A column that exists is sound: everything is checked when it is made. Lists become tuples, and ISO text
becomes a date, so that a column reads the same from Python, TOML and JSON.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime, time
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from understudy.data.forms import A_DAY, ISO_DAY, NUMBER_FORMS, TIME_FORMS, is_day_form, read_time, write_time
from understudy.errors import SchemaError

Category = str | int | float

OWN_LEVEL = 64  # up to so many whole numbers or days have a level each
DEFAULT_BINS = 16
MOST_BINS = 2**16
EXACT = 2**53  # whole numbers up to here are exact as floats
MOST_DECIMALS = 12
TRUE_WORDS, FALSE_WORDS = ("true", "yes", "1", "1.0"), ("false", "no", "0", "0.0")
WHOLE_NUMBER = r"0|-?[1-9][0-9]{0,14}"
RESOLUTIONS = {"second": 1, "minute": 60, "hour": 3600}
EPOCH = date(1970, 1, 1).toordinal()
FIRST_DAY, LAST_DAY = date(1678, 1, 1), date(2261, 12, 31)  # what datetime64[ns] can hold, in whole years


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """One column of a table. Use one of the kinds below."""

    kind: ClassVar[str]
    name: str
    nullable: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError(f"a column needs a name, not {self.name!r}.")
        if not isinstance(self.nullable, bool):
            raise self.error(f"nullable must be true or false, not {self.nullable!r}.")

    @property
    @abstractmethod
    def levels(self) -> int:
        """How many levels, without the missing one."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """A short text for each level, without the missing one."""

    @property
    @abstractmethod
    def domain(self) -> str:
        """The declared values in a few words."""

    @property
    def size(self) -> int:
        """How many levels, with the missing one."""
        return self.levels + self.nullable

    def to_dict(self) -> dict[str, Any]:
        """The column in plain types, without what is at its default."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return {"name": given.pop("name"), "kind": self.kind} | {key: _plain(v) for key, v in given.items()}

    def error(self, what: str) -> SchemaError:
        """An error that names this column."""
        return SchemaError(f'column "{self.name}": {what}')

    def _set(self, **values: object) -> None:
        for key, value in values.items():
            object.__setattr__(self, key, value)


@dataclass(frozen=True, kw_only=True)
class Categorical(Column):
    """One of a few values: all text, all whole numbers, or all numbers."""

    kind: ClassVar[str] = "categorical"
    categories: tuple[Category, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.categories, Sequence) or isinstance(self.categories, str):
            raise self.error(f"categories must be a list, not {self.categories!r}.")
        values = tuple(self.categories)
        if not values:
            raise self.error("categories is empty.")
        if not all(isinstance(v, str) for v in values):
            if not all(map(_is_number, values)):
                raise self.error("categories must be all text or all finite numbers.")
            if not all(isinstance(v, int) and abs(v) <= EXACT for v in values):
                values = tuple(map(float, values))
        if len(set(values)) < len(values):
            twice = next(v for i, v in enumerate(values) if v in values[:i])
            raise self.error(f"category {twice!r} is declared twice.")
        self._set(categories=values)

    @property
    def levels(self) -> int:
        return len(self.categories)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(str, self.categories))

    @property
    def domain(self) -> str:
        return shorten(self.labels)


@dataclass(frozen=True, kw_only=True)
class Ordinal(Categorical):
    """One of a few values whose order means something: `categories` runs from low to high."""

    kind: ClassVar[str] = "ordinal"

    @property
    def domain(self) -> str:
        return shorten(self.labels, " < ")


@dataclass(frozen=True, kw_only=True)
class Boolean(Column):
    """False or true. `labels` says how the two are written, false first: ("No", "Yes"), (0, 1)."""

    kind: ClassVar[str] = "boolean"
    labels: tuple[str, ...] = ("False", "True")

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.labels
        if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
            raise self.error(f"labels must be two, for false and for true, not {given!r}.")
        if not all(isinstance(label, str | int) for label in given):
            raise self.error(f"labels must be text or whole numbers, not {given!r}.")
        no, yes = labels = tuple(map(str, given))
        if no == yes or any(not label or label != label.strip() for label in labels):
            raise self.error(f"labels must differ, and have no blanks around them, not {given!r}.")
        if no.lower() in TRUE_WORDS or yes.lower() in FALSE_WORDS:
            raise self.error(f"labels are false first and true second, not {given!r}.")
        self._set(labels=labels)

    @property
    def values(self) -> tuple[Category, ...]:
        """False and true as they stand in a table: booleans, whole numbers, or the labels."""
        if tuple(label.lower() for label in self.labels) == ("false", "true"):
            return (False, True)
        whole = all(re.fullmatch(WHOLE_NUMBER, label) for label in self.labels)
        return tuple(map(int, self.labels)) if whole else self.labels

    @property
    def levels(self) -> int:
        return 2

    @property
    def domain(self) -> str:
        return ", ".join(self.labels)


@dataclass(frozen=True, kw_only=True)
class Binned(Column):
    """A number or a day between two bounds, both included, cut into bins."""

    low: Any
    high: Any
    bins: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        bins = self.bins
        if isinstance(bins, Sequence) and not isinstance(bins, str):
            bins = tuple(map(self._bound, bins))
        elif isinstance(bins, bool) or not isinstance(bins, int | None):
            raise self.error(f"bins must be a whole number or a list of edges, not {bins!r}.")
        self._set(low=self._bound(self.low), high=self._bound(self.high), bins=bins)
        if not self.low < self.high:
            raise self.error(f"low {self.low} is not below high {self.high}.")
        if isinstance(bins, int) and not 1 <= bins <= MOST_BINS:
            raise self.error(f"bins must lie between 1 and {MOST_BINS:,}, not {bins:,}.")
        if isinstance(bins, tuple) and any(a >= b for a, b in pairwise(bins)):
            raise self.error("the edges in bins must increase.")
        if isinstance(bins, tuple) and (len(bins) < 2 or (bins[0], bins[-1]) != (self.low, self.high)):
            raise self.error(f"the edges in bins must run from low {self.low} to high {self.high}.")
        if not (np.diff(self.edges) > 0).all():
            raise self.error(f"{bins} bins between {self.low} and {self.high}: some could never be filled.")

    @property
    @abstractmethod
    def edges(self) -> NDArray[Any]:
        """Where each level begins, and where the last one ends."""

    @abstractmethod
    def _bound(self, value: Any) -> Any:
        """A bound or an edge in this kind's own type, or an error."""

    @property
    def levels(self) -> int:
        return len(self.edges) - 1

    @property
    def domain(self) -> str:
        return f"{self.low} to {self.high}, {self.levels} levels"


@dataclass(frozen=True, kw_only=True)
class Integer(Binned):
    """A whole number from `low` to `high`, both included.

    `written` says how a text in a file is one that counts minutes or seconds from midnight: "HH:MM", "HH:MM:SS". Bounds
    and edges may then be times, too: "08:30".
    """

    kind: ClassVar[str] = "integer"
    low: int
    high: int
    bins: int | tuple[int, ...] | None = None
    written: str | None = None

    def __post_init__(self) -> None:
        if self.written not in (None, *TIME_FORMS):
            raise self.error(
                f"written must be one of {shorten(list(TIME_FORMS), ' | ')}, not {self.written!r}."
            )
        super().__post_init__()
        if self.written and not (self.low >= 0 and self.high < A_DAY // TIME_FORMS[self.written]):
            raise self.error(
                f"a time of day lies from 00:00 on and before 24:00, not {self.low} to {self.high}."
            )

    def said(self, value: int) -> str:
        """A value as a file has it: as a time of day where it is one."""
        return str(value) if self.written is None else write_time(value, self.written)

    def to_dict(self) -> dict[str, Any]:
        given = super().to_dict()
        if self.written is not None:
            given |= {"low": self.said(self.low), "high": self.said(self.high)}
            if isinstance(self.bins, tuple):
                given["bins"] = list(map(self.said, self.bins))
        return given

    @property
    def domain(self) -> str:
        return f"{self.said(self.low)} to {self.said(self.high)}, {self.levels} levels"

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """Where each level begins, and one past `high`."""
        return _whole_edges(self.low, self.high, self.bins)

    @property
    def labels(self) -> tuple[str, ...]:
        first, last = self.edges[:-1], self.edges[1:] - 1
        if self.written is None:
            return _spans(first, last)
        return _spans(*(np.array([self.said(value) for value in ends]) for ends in (first, last)))

    def _bound(self, value: Any) -> int:
        if isinstance(value, str | time) and self.written is not None:
            return self._time(value, self.written)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > EXACT:
            raise self.error(f"bounds and edges must be whole numbers within ±2^53, not {value!r}.")
        return value

    def _time(self, value: object, form: str) -> int:
        if math.isnan(steps := read_time(value, form)):
            raise self.error(f"{value!r} is not a time of day ({form}).")
        return int(steps)


@dataclass(frozen=True, kw_only=True)
class Real(Binned):
    """A number from `low` to `high`, both included. `decimals`: so many has a number that is drawn.

    `written` says how a text in a file is a number: "0,0" with a decimal comma, "0 %" with a sign (then 5 is 5 %).
    """

    kind: ClassVar[str] = "real"
    decimals: int | None = None
    low: float
    high: float
    bins: int | tuple[float, ...] | None = None
    written: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_decimals()
        if self.written not in (None, *NUMBER_FORMS):
            raise self.error(f"written must be one of {shorten(NUMBER_FORMS, ' | ')}, not {self.written!r}.")

    def _check_decimals(self) -> None:
        most = self.decimals
        if most is None:
            return
        if isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= MOST_DECIMALS:
            raise self.error(f"decimals must be a whole number from 0 to {MOST_DECIMALS}, not {most!r}.")
        if max(abs(self.low), abs(self.high)) * 10**most > EXACT:
            raise self.error(f"numbers up to {self.high:g} with {most} decimals have too many digits.")
        first, last = self.steps(self.edges)
        if (first > last).any():
            raise self.error(f"some bins hold no number of {most} decimals.")

    def steps(self, edges: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first and the last number between two edges each, in units of the last decimal.

        Exact: a step divided by its unit lies on the side of the edge that is said here.
        """
        unit = 10.0 ** (self.decimals or 0)

        def from_here(at: NDArray[np.float64]) -> NDArray[np.float64]:
            step = np.ceil(at * unit)
            step -= (step - 1) / unit >= at
            return step + (step / unit < at)

        first, last = from_here(edges[:-1]), from_here(edges[1:]) - 1
        last[-1] += (last[-1] + 1) / unit == edges[-1]  # the last bin holds its upper edge
        return first.astype(np.int64), last.astype(np.int64)

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        """From `low` to `high`, one more than there are bins."""
        if isinstance(self.bins, tuple):
            return np.array(self.bins)
        return np.linspace(self.low, self.high, (self.bins or DEFAULT_BINS) + 1)

    @property
    def labels(self) -> tuple[str, ...]:
        *most, last = (f"[{a:g}, {b:g}" for a, b in pairwise(self.edges))
        return (*(f"{text})" for text in most), f"{last}]")

    @property
    def domain(self) -> str:
        return f"{self.low:g} to {self.high:g}, {self.levels} levels"

    def _bound(self, value: Any) -> float:
        if not _is_number(value) or abs(value) > 1e300:  # so that high - low is finite
            raise self.error(f"bounds and edges must be numbers within ±1e300, not {value!r}.")
        return float(value)


@dataclass(frozen=True, kw_only=True)
class Date(Binned):
    """A day from `low` to `high`, both included. A time of day has no place here.

    `written` says how a text in a file is a day: "DD.MM.YYYY". Bounds and edges are ISO days all the same.
    """

    kind: ClassVar[str] = "date"
    low: date
    high: date
    bins: int | tuple[date, ...] | None = None
    written: str = ISO_DAY

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_day_form(self.written):
            raise self.error(
                "written must order a day, a month and a year, as DD.MM.YYYY, MM/DD/YYYY or D.M.YYYY do, "
                f"not {self.written!r}."
            )

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """Where each level begins, and one past `high`, in days since 1970-01-01."""
        bins = tuple(map(day_number, self.bins)) if isinstance(self.bins, tuple) else self.bins
        return _whole_edges(day_number(self.low), day_number(self.high), bins)

    @property
    def labels(self) -> tuple[str, ...]:
        days = self.edges.astype("datetime64[D]")
        return _spans(days[:-1], days[1:] - 1)

    def _bound(self, value: Any) -> date:
        if isinstance(value, str):
            try:
                value = date.fromisoformat(value)
            except ValueError:
                raise self.error(f"{value!r} is not a date (YYYY-MM-DD).") from None
        if isinstance(value, datetime) or not isinstance(value, date):
            raise self.error(f"bounds and edges must be dates without a time, not {value!r}.")
        if not FIRST_DAY <= value <= LAST_DAY:
            raise self.error(f"dates must lie between {FIRST_DAY} and {LAST_DAY}, not {value}.")
        return value


@dataclass(frozen=True, kw_only=True)
class Datetime(Binned):
    """A day and a time of day from `low` to `high`, both included, in steps of a second, a minute or an hour.

    Times have no zone: they are those of the clock on the wall. What is finer than the resolution is dropped.
    """

    kind: ClassVar[str] = "datetime"
    low: datetime
    high: datetime
    resolution: str = "second"
    bins: int | tuple[datetime, ...] | None = None

    def __post_init__(self) -> None:
        if self.resolution not in RESOLUTIONS:
            raise self.error(f"resolution must be one of {', '.join(RESOLUTIONS)}, not {self.resolution!r}.")
        super().__post_init__()

    @property
    def step(self) -> int:
        """The resolution in seconds."""
        return RESOLUTIONS[self.resolution]

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """Where each level begins, and one past `high`, in steps since 1970-01-01 00:00."""
        bins = tuple(map(self._number, self.bins)) if isinstance(self.bins, tuple) else self.bins
        return _whole_edges(self._number(self.low), self._number(self.high), bins)

    @property
    def labels(self) -> tuple[str, ...]:
        moments = (self.edges * self.step).astype("datetime64[s]")
        return _spans(moments[:-1], moments[1:] - self.step)

    @property
    def domain(self) -> str:
        return f"{self.low} to {self.high} by the {self.resolution}, {self.levels} levels"

    def _number(self, moment: datetime) -> int:
        return second_number(moment) // self.step

    def _bound(self, value: Any) -> datetime:
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                raise self.error(f"{value!r} is not a time (YYYY-MM-DD HH:MM:SS).") from None
        if not isinstance(value, datetime) or value.tzinfo is not None:
            raise self.error(f"bounds and edges must be days with a time and without a zone, not {value!r}.")
        if not FIRST_DAY <= value.date() <= LAST_DAY:
            raise self.error(f"times must lie between {FIRST_DAY} and {LAST_DAY}, not {value}.")
        if value.microsecond or second_number(value) % self.step:
            raise self.error(f"bounds and edges must be whole {self.resolution}s, not {value}.")
        return value


def second_number(moment: datetime) -> int:
    """Whole seconds since 1970-01-01 00:00."""
    return day_number(moment) * 86400 + moment.hour * 3600 + moment.minute * 60 + moment.second


def day_number(day: date) -> int:
    """Days since 1970-01-01."""
    return day.toordinal() - EPOCH


def shorten(values: Sequence[object], between: str = ", ", most: int = 6) -> str:
    """The first few of the values as text."""
    shown = between.join(map(str, values[:most]))
    return shown if len(values) <= most else f"{shown}{between}… ({len(values)} in all)"


def _whole_edges(low: int, high: int, bins: int | tuple[int, ...] | None) -> NDArray[np.int64]:
    """Bins of whole numbers: where each begins, and one past `high`, in exact arithmetic."""
    count = high - low + 1
    if bins is None:
        bins = count if count <= OWN_LEVEL else DEFAULT_BINS
    if isinstance(bins, int):
        return np.array([low + i * count // bins for i in range(bins + 1)], dtype=np.int64)
    return np.array((*bins[:-1], high + 1), dtype=np.int64)


def _spans(first: NDArray[Any], last: NDArray[Any]) -> tuple[str, ...]:
    return tuple(str(a) if a == b else f"{a}–{b}" for a, b in zip(first, last, strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value.isoformat() if isinstance(value, date) else value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
