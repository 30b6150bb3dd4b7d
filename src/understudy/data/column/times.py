"""Columns of days, and of days with a time, which are cut into bins as numbers are."""

from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from understudy.data.column.numbers import Binned, spans, whole_edges
from understudy.data.reading.forms import ISO_DAY, is_day_form

RESOLUTIONS = {"second": 1, "minute": 60, "hour": 3600}
EPOCH = date(1970, 1, 1).toordinal()
FIRST_DAY, LAST_DAY = date(1678, 1, 1), date(2261, 12, 31)  # what datetime64[ns] can hold, in whole years


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
        return whole_edges(day_number(self.low), day_number(self.high), bins)

    @property
    def labels(self) -> tuple[str, ...]:
        days = self.edges.astype("datetime64[D]")
        return spans(days[:-1], days[1:] - 1)

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
        return whole_edges(self._number(self.low), self._number(self.high), bins)

    @property
    def labels(self) -> tuple[str, ...]:
        moments = (self.edges * self.step).astype("datetime64[s]")
        return spans(moments[:-1], moments[1:] - self.step)

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
