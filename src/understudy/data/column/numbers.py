"""Columns of numbers between two bounds, which are cut into bins."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import time
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from understudy.data.column.base import EXACT, Column, shorten
from understudy.data.reading.forms import A_DAY, NUMBER_FORMS, TIME_FORMS, read_time, write_time
from understudy.ground.check import is_number

OWN_LEVEL = 64  # up to so many whole numbers or days have a level each
DEFAULT_BINS = 16
MOST_BINS = 2**16
MOST_DECIMALS = 12


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
        return whole_edges(self.low, self.high, self.bins)

    @property
    def labels(self) -> tuple[str, ...]:
        first, last = self.edges[:-1], self.edges[1:] - 1
        if self.written is None:
            return spans(first, last)
        return spans(*(np.array([self.said(value) for value in ends]) for ends in (first, last)))

    def _bound(self, value: Any) -> int:
        if isinstance(value, str | time) and self.written is not None:
            return self._time(value, self.written)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > EXACT:
            raise self.error(f"bounds and edges must be whole numbers within ±2^53, not {value!r:.60}.")
        return value

    def _time(self, value: object, form: str) -> int:
        if math.isnan(steps := read_time(value, form)):
            raise self.error(f"{value!r} is not a time of day ({form}).")
        return int(steps)


@dataclass(frozen=True, kw_only=True)
class Real(Binned):
    """A number from `low` to `high`, both included. `decimals`: so many has a number that is drawn.

    `ends`: where levels are bought, how numbers end is bought with them (`data.encoding.ends`), so that prices end as
    prices do. `written` says how a text in a file is a number: "0,0" with a decimal comma, "0 %" with a sign (then 5 is
    5 %).
    """

    kind: ClassVar[str] = "real"
    decimals: int | None = None
    ends: bool = False
    low: float
    high: float
    bins: int | tuple[float, ...] | None = None
    written: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_decimals()
        if not isinstance(self.ends, bool):
            raise self.error(f"ends must be true or false, not {self.ends!r}.")
        if self.ends and (self.decimals not in (1, 2) or self.bins is not None):
            raise self.error("ends are of numbers with decimals = 1 or 2, and without bins.")
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
        if not is_number(value) or abs(value) > 1e300:  # so that high - low is finite
            raise self.error(f"bounds and edges must be numbers within ±1e300, not {value!r:.60}.")
        return float(value)


def whole_edges(low: int, high: int, bins: int | tuple[int, ...] | None) -> NDArray[np.int64]:
    """Bins of whole numbers: where each begins, and one past `high`, in exact arithmetic."""
    count = high - low + 1
    if bins is None:
        bins = count if count <= OWN_LEVEL else DEFAULT_BINS
    if isinstance(bins, int):
        return np.array([low + i * count // bins for i in range(bins + 1)], dtype=np.int64)
    return np.array((*bins[:-1], high + 1), dtype=np.int64)


def spans(first: NDArray[Any], last: NDArray[Any]) -> tuple[str, ...]:
    """A label for each bin: its first value and its last one."""
    return tuple(str(a) if a == b else f"{a}–{b}" for a, b in zip(first, last, strict=True))
