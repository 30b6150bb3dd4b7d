"""Columns of numbers, days and times between two bounds, which are cut into bins."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from understudy.data.column.base import EXACT, Column, shorten
from understudy.data.reading import forms
from understudy.data.reading.forms import ISO_DAY, NUMBER_FORMS, TIME_FORMS, read_time
from understudy.ground.check import is_number
from understudy.ground.errors import Effect

OWN_LEVEL = 64  # up to so many whole numbers or days have a level each
DEFAULT_BINS = 16
MOST_BINS = 2**16
MOST_DECIMALS = 12
LARGEST = 1e300  # a bound of reals: high - low is finite
RESOLUTIONS = {"second": 1, "minute": 60, "hour": 3600}
EPOCH = date(1970, 1, 1).toordinal()
# what datetime64[ns] can hold, in whole years
FIRST_DAY = date(1678, 1, 1)
LAST_DAY = date(2261, 12, 31)


@dataclass(frozen=True, kw_only=True)
class Binned(Column):
    """A number or a day between two bounds, both included, cut into bins. Without
    bounds it may be any number: a protocol that buys levels finds where people are
    (`data.encoding.fine`), and every other one refuses the column.
    """

    low: Any = None
    high: Any = None
    bins: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        bins = self.bins
        if self.low is None or self.high is None:
            if (self.low, self.high, bins) != (None, None, None):
                raise self.error(
                    "low and high come together, and bins with them: declare both "
                    "bounds, or neither."
                )
            return
        if isinstance(bins, Sequence) and not isinstance(bins, str):
            bins = tuple(map(self._bound, bins))
        elif isinstance(bins, bool) or not isinstance(bins, int | None):
            raise self.error(
                f"bins must be a whole number or a list of edges, not {bins!r}."
            )
        self._set(low=self._bound(self.low), high=self._bound(self.high), bins=bins)
        if not self.low < self.high:
            raise self.error(f"low {self.low} is not below high {self.high}.")
        if isinstance(bins, int) and not 1 <= bins <= MOST_BINS:
            raise self.error(
                f"bins must lie between 1 and {MOST_BINS:,}, not {bins:,}."
            )
        if isinstance(bins, tuple) and any(a >= b for a, b in pairwise(bins)):
            raise self.error("the edges in bins must increase.")
        if isinstance(bins, tuple) and (
            len(bins) < 2 or (bins[0], bins[-1]) != (self.low, self.high)
        ):
            raise self.error(
                f"the edges in bins must run from low {self.low} to high {self.high}."
            )
        if not (np.diff(self.edges) > 0).all():
            raise self.error(
                f"{bins} bins between {self.low} and {self.high}: some could never be "
                "filled."
            )

    @property
    def unbounded(self) -> bool:
        return self.low is None

    @cached_property
    def edges(self) -> NDArray[Any]:
        """Where each level begins, and the last one ends (of whole numbers one past
        `high`), on the column's scale.
        """
        if self.unbounded:
            raise self.error(
                "has no bounds. Declare low and high, or use visits, or gram with "
                "`fine` above 0, which find them "
                "within their budget.",
                effect=Effect.NOTHING_CHARGED,
            )
        low = self._number(self.low)
        high = self._number(self.high)
        count = high - low + 1
        bins = self.bins
        if bins is None:
            bins = count if count <= OWN_LEVEL else DEFAULT_BINS
        if isinstance(bins, int):
            return np.array(
                [low + i * count // bins for i in range(bins + 1)], dtype=np.int64
            )
        return np.array((*map(self._number, bins[:-1]), high + 1), dtype=np.int64)

    @property
    def labels(self) -> tuple[str, ...]:
        first, last = (
            self._shown(numbers) for numbers in (self.edges[:-1], self.edges[1:] - 1)
        )
        return tuple(
            str(a) if a == b else f"{a}–{b}" for a, b in zip(first, last, strict=True)
        )

    @property
    def levels(self) -> int:
        return len(self.edges) - 1

    @property
    def domain(self) -> str:
        if self.unbounded:
            return f"any {self.kind}"
        return (
            f"{self._plain(self.low)} to {self._plain(self.high)}, {self.levels} levels"
        )

    def _plain(self, bound: Any) -> str:
        return str(bound)

    @property
    def form(self) -> str | None:
        """How a text in a file is one of its values (`written`), where that is not the
        plain way.
        """
        written: str | None = getattr(self, "written", None)
        return None if written == ISO_DAY else written

    def as_text(self, value: Any) -> str:
        return str(value) if self.form is None else forms.write_day(value, self.form)

    @abstractmethod
    def bound_at(self, number: Any) -> Any:
        """What a schema has for a number on the column's own scale."""

    @abstractmethod
    def _bound(self, value: Any) -> Any:
        """A bound or an edge in this kind's own type, or an error."""

    def _from_text(self, value: Any, read: Callable[[str], Any], expected: str) -> Any:
        """What a text stands for, as `read` has it; any other value as it is."""
        try:
            return read(value) if isinstance(value, str) else value
        except ValueError:
            raise self.error(f"{value!r} is not {expected}.") from None

    def _number(self, bound: Any) -> int:
        return int(bound)

    def _shown(self, numbers: NDArray[Any]) -> NDArray[Any]:
        return numbers


@dataclass(frozen=True, kw_only=True)
class Integer(Binned):
    """A whole number from `low` to `high`, both included. `written` says how a text in
    a file is one that counts minutes or seconds from midnight: "HH:MM", "HH:MM:SS".
    Bounds and edges may then be times, too: "08:30".
    """

    kind: ClassVar[str] = "integer"
    written: str | None = None

    def __post_init__(self) -> None:
        if self.written not in (None, *TIME_FORMS):
            time_forms = shorten(list(TIME_FORMS), " | ")
            raise self.error(
                f"written must be one of {time_forms}, not {self.written!r}."
            )
        if self.written and self.low is None and self.high is None:
            self._set(low=0, high=forms.A_DAY // TIME_FORMS[self.written] - 1)
        super().__post_init__()
        if self.written and not (
            self.low >= 0 and self.high < forms.A_DAY // TIME_FORMS[self.written]
        ):
            span = f"{self.low} to {self.high}"
            raise self.error(
                f"a time of day lies from 00:00 on and before 24:00, not {span}."
            )

    def as_text(self, value: int) -> str:
        return (
            str(value)
            if self.written is None
            else forms.write_time(value, self.written)
        )

    def to_dict(self) -> dict[str, Any]:
        declared = super().to_dict()
        if self.written is not None:
            declared |= {"low": self.as_text(self.low), "high": self.as_text(self.high)}
            if isinstance(self.bins, tuple):
                declared["bins"] = list(map(self.as_text, self.bins))
        return declared

    def _plain(self, bound: Any) -> str:
        return self.as_text(bound)

    def bound_at(self, number: Any) -> int:
        return int(number)

    def _shown(self, numbers: NDArray[Any]) -> NDArray[Any]:
        return (
            numbers
            if self.written is None
            else np.array([self.as_text(number) for number in numbers])
        )

    def _bound(self, value: Any) -> int:
        if isinstance(value, str | time) and self.written is not None:
            steps = read_time(value, self.written)
            if math.isnan(steps):
                raise self.error(f"{value!r} is not a time of day ({self.written}).")
            return int(steps)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > EXACT:
            raise self.error(
                "bounds and edges must be whole numbers within ±2^53, not "
                f"{value!r:.60}."
            )
        return value


@dataclass(frozen=True, kw_only=True)
class Real(Binned):
    """A number from `low` to `high`, both included. `decimals`: so many has a number
    that is drawn. `ends`: where levels are bought, how numbers end is bought with them
    (`data.encoding.fine`), so that prices end as prices do. `written` says how a text
    in a file is a number: "0,0" with a decimal comma, "0 %" or "$0,000.0" with signs.
    """

    kind: ClassVar[str] = "real"
    decimals: int | None = None
    ends: bool = False
    written: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decimals is not None:
            self._check_decimals(self.decimals)
        if not isinstance(self.ends, bool):
            raise self.error(f"ends must be true or false, not {self.ends!r}.")
        if self.ends and (self.decimals not in (1, 2) or self.bins is not None):
            raise self.error(
                "ends are of numbers with decimals = 1 or 2, and without bins."
            )
        if self.written not in (None, *NUMBER_FORMS):
            raise self.error(
                f"written must be one of {shorten(NUMBER_FORMS, ' | ')}, not "
                f"{self.written!r}."
            )

    def _check_decimals(self, decimals: int) -> None:
        if (
            isinstance(decimals, bool)
            or not isinstance(decimals, int)
            or not 0 <= decimals <= MOST_DECIMALS
        ):
            raise self.error(
                f"decimals must be a whole number from 0 to {MOST_DECIMALS}, not "
                f"{decimals!r}."
            )
        if self.unbounded:
            return
        if max(abs(self.low), abs(self.high)) * 10**decimals > EXACT:
            raise self.error(
                f"numbers up to {self.high:g} with {decimals} decimals have too many "
                "digits."
            )
        first, last = self.steps(self.edges)
        if (first > last).any():
            raise self.error(f"some bins hold no number of {decimals} decimals.")

    def steps(
        self, edges: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first and the last number between two edges each, in units of the last
        decimal.
        """
        unit = 10.0 ** (self.decimals or 0)

        def from_here(bound: NDArray[np.float64]) -> NDArray[np.float64]:
            step = np.ceil(bound * unit)
            step -= (step - 1) / unit >= bound
            return step + (step / unit < bound)

        first = from_here(edges[:-1])
        last = from_here(edges[1:]) - 1
        # the last bin holds its upper edge
        last[-1] += (last[-1] + 1) / unit == edges[-1]
        return first.astype(np.int64), last.astype(np.int64)

    @cached_property
    def edges(self) -> NDArray[np.float64]:
        if self.unbounded:
            return super().edges
        if isinstance(self.bins, tuple):
            return np.array(self.bins)
        return np.linspace(self.low, self.high, (self.bins or DEFAULT_BINS) + 1)

    @property
    def labels(self) -> tuple[str, ...]:
        *texts, last = (f"[{a:g}, {b:g}" for a, b in pairwise(self.edges))
        return (*(f"{text})" for text in texts), f"{last}]")

    def _plain(self, bound: Any) -> str:
        return f"{bound:g}"

    def as_text(self, value: Any) -> str:
        return (
            f"{value:g}"
            if self.written is None
            else forms.write_number(value, self.written, self.decimals)
        )

    def bound_at(self, number: Any) -> float:
        return float(number)

    def _bound(self, value: Any) -> float:
        if not is_number(value) or abs(value) > LARGEST:
            raise self.error(
                f"bounds and edges must be numbers within ±1e300, not {value!r:.60}."
            )
        return float(value)


@dataclass(frozen=True, kw_only=True)
class Date(Binned):
    """A day from `low` to `high`, both included; its scale is days since 1970-01-01. A
    time of day has no place here. `written` says how a text in a file is a day:
    "DD.MM.YYYY". Bounds and edges are ISO days all the same.
    """

    kind: ClassVar[str] = "date"
    written: str = ISO_DAY

    def __post_init__(self) -> None:
        super().__post_init__()
        if not forms.is_day_form(self.written):
            raise self.error(
                "written must order a day, a month and a year, as DD.MM.YYYY, "
                f"MM/DD/YYYY or D.M.YYYY do, not {self.written!r}."
            )

    def bound_at(self, number: Any) -> date:
        return date.fromordinal(int(number) + EPOCH)

    def _number(self, bound: Any) -> int:
        return day_number(bound)

    def _shown(self, numbers: NDArray[Any]) -> NDArray[Any]:
        return numbers.astype("datetime64[D]")

    def _bound(self, value: Any) -> date:
        value = self._from_text(value, date.fromisoformat, "a date (YYYY-MM-DD)")
        if isinstance(value, datetime) or not isinstance(value, date):
            raise self.error(
                f"bounds and edges must be dates without a time, not {value!r}."
            )
        if not FIRST_DAY <= value <= LAST_DAY:
            raise self.error(
                f"dates must lie between {FIRST_DAY} and {LAST_DAY}, not {value}."
            )
        return value


@dataclass(frozen=True, kw_only=True)
class Datetime(Binned):
    """A day and a time from `low` to `high`, both included, in steps of a second,
    minute or hour since 1970-01-01 00:00, by the clock on the wall: without a zone.
    What is finer is dropped. `written`: "DD.MM.YYYY HH:MM".
    """

    kind: ClassVar[str] = "datetime"
    resolution: str = "second"
    written: str | None = None

    def __post_init__(self) -> None:
        if self.resolution not in RESOLUTIONS:
            raise self.error(
                f"resolution must be one of {', '.join(RESOLUTIONS)}, not "
                f"{self.resolution!r}."
            )
        if self.written is not None and not forms.is_day_form(self.written, clock=True):
            raise self.error(
                "written must be a day and a time, as DD.MM.YYYY HH:MM is, not "
                f"{self.written!r}."
            )
        super().__post_init__()

    @property
    def step(self) -> int:
        return RESOLUTIONS[self.resolution]

    @property
    def domain(self) -> str:
        return super().domain.replace(", ", f" by the {self.resolution}, ")

    def bound_at(self, number: Any) -> datetime:
        return datetime(1970, 1, 1) + timedelta(seconds=int(number) * self.step)

    def _number(self, bound: Any) -> int:
        return second_number(bound) // self.step

    def _shown(self, numbers: NDArray[Any]) -> NDArray[Any]:
        return (numbers * self.step).astype("datetime64[s]")

    def _bound(self, value: Any) -> datetime:
        value = self._from_text(
            value, datetime.fromisoformat, "a time (YYYY-MM-DD HH:MM:SS)"
        )
        if not isinstance(value, datetime) or value.tzinfo is not None:
            raise self.error(
                "bounds and edges must be days with a time and without a zone, not "
                f"{value!r}."
            )
        if not FIRST_DAY <= value.date() <= LAST_DAY:
            raise self.error(
                f"times must lie between {FIRST_DAY} and {LAST_DAY}, not {value}."
            )
        if value.microsecond or second_number(value) % self.step:
            raise self.error(
                f"bounds and edges must be whole {self.resolution}s, not {value}."
            )
        return value


def second_number(moment: datetime) -> int:
    """Whole seconds since 1970-01-01 00:00."""
    return (
        day_number(moment) * 86400
        + moment.hour * 3600
        + moment.minute * 60
        + moment.second
    )


def day_number(day: date) -> int:
    """Days since 1970-01-01."""
    return day.toordinal() - EPOCH
