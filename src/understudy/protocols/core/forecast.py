"""What a run will release, how uncertain that will be, and what it will take: said
before anything is spent.

Guarantee: made of settings, public schemas, budgets and a stated number of people. No
row is read for it, and nothing is charged.
Edges: without a number of people, errors are in people alone.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from understudy.ground.check import pluralize
from understudy.ground.html import pre
from understudy.privacy.accounts.budget import Budget, shown
from understudy.privacy.accounts.statement import aligned

_HALF = 0.4  # half of the mean size of noise with a deviation of 1
# deviations of a count by which shares of a column, and of a pair, are off
_OF_COLUMNS = 4.0
_OF_PAIRS = 7.0
MORE = "More people, fewer columns or a larger ε would help."
# columns that are further off are poor, and pairs mostly noise
_POOR = 0.1
_NOISE = 0.15

# Seconds for one number's noise, a column's fine cells, and a value that is read and
# drawn; bytes of the libraries
DRAW = 4e-6
TREE = 0.2
READ = 8e-7
BASE = 4e8
_MASK = 1e-4  # seconds to mask an id once

PARTITIONS = {
    "horizontal": "rows of different people",
    "vertical": "other columns of the same people",
    "grid": "some columns of some of the people each",
}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One release: its share of the budget, cells that a person moves, and each count's
    deviation, by who holds it.
    """

    what: str
    share: float
    moved: int
    noise: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Error:
    """The noise on a kind of count, as standard deviations in people: the least and the
    largest of such counts.
    """

    what: str
    least: float
    largest: float

    def in_words(self, people: int | None) -> str:
        """In people, and in percentage points where their number is known."""
        counts = _between(self.least, self.largest, "")
        if people is None:
            return f"±{counts} people"
        return (
            f"±{_between(100 * self.least / people, 100 * self.largest / people, '')} "
            f"points (±{counts} people)"
        )


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What people, columns and noise let one expect; `single`, `pair`: deviations of
    counts, `levels` of columns.
    """

    people: int
    epsilon: float
    single: float
    pair: float
    levels: tuple[float, ...]

    @property
    def of_columns(self) -> float:
        """How far the shares of a single column will be off, about: half the summed
        difference.
        """
        each = [min(_OF_COLUMNS, _HALF * levels) for levels in self.levels]
        return math.fsum(each) / len(each) * self.single / max(1, self.people)

    @property
    def of_pairs(self) -> float:
        mean = math.fsum(min(levels, _OF_PAIRS) for levels in self.levels) / len(
            self.levels
        )
        return min(_OF_PAIRS, _HALF * mean**2) * self.pair / max(1, self.people)

    @property
    def columns(self) -> int:
        return len(self.levels)

    @property
    def pairs_are_noise(self) -> bool:
        return self.columns > 1 and self.of_pairs > _NOISE

    @property
    def poor(self) -> bool:
        """Whether somebody has to be told before they rely on it."""
        return self.of_columns > _POOR or self.pairs_are_noise

    @property
    def hopeless(self) -> bool:
        """Whether nothing can come of it: in single columns the noise is as large as
        all people together.
        """
        return self.of_columns >= 1

    def __str__(self) -> str:
        columns = pluralize(self.columns, "column")
        single = "single columns are mostly noise"
        if self.of_columns <= 2 * _NOISE:
            single = (
                "single columns to within about "
                f"{max(1, math.ceil(100 * self.of_columns))} %"
            )
        pairs = "pairs are mostly noise"
        if self.of_pairs <= _NOISE:
            pairs = f"pairs to within about {max(1, math.ceil(100 * self.of_pairs))} %"
        words = f"{single}; {pairs}" if self.columns > 1 else single
        return (
            f"{self.people:,} people and {columns} at ε = {shown(self.epsilon)}: "
            f"{words}."
        )


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a run will do. `str` for people. `price` is each holder's ε at its own δ,
    and `person` says what a person pays over all holders. `levels` are columns with
    what will become of them, and `too_fine` those whose levels cannot be told from
    noise. `disclosed` says what leaves besides what is released, to whom, and what
    another choice would cost. `takes` are seconds, by what they go into, and `memory`
    is in bytes.
    """

    protocol: str
    partition: str
    budgets: Mapping[str, Budget]
    price: Mapping[str, float]
    person: str
    people: int | None = None
    disclosed: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()
    errors: tuple[Error, ...] = ()
    levels: Mapping[str, str] = field(default_factory=dict)
    too_fine: Mapping[str, str] = field(default_factory=dict)
    takes: Mapping[str, float] = field(default_factory=dict)
    memory: float | None = None
    warnings: tuple[str, ...] = ()
    expected: Expectation | None = None

    @property
    def seconds(self) -> float | None:
        return sum(self.takes.values()) if self.takes else None

    def _repr_html_(self) -> str:
        return pre(self)

    def __str__(self) -> str:
        holders = (
            "1 holder"
            if len(self.budgets) == 1
            else f"{len(self.budgets)} holders with {PARTITIONS[self.partition]}"
        )
        lines = [
            f"Plan of {self.protocol}: {holders}. No row was read, and nothing was "
            "charged."
        ]
        if self.disclosed:
            lines += ["", "Disclosed besides", *(f"  {one}" for one in self.disclosed)]
        prices = [
            (
                name,
                f"ε = {shown(self.price[name])} at δ = {one.delta:g}",
                f"of {one.epsilon:g} that the run may cost",
            )
            for name, one in self.budgets.items()
        ]
        lines += ["", "Price", *aligned(prices), f"  {self.person}"]
        if self.facts or self.stages:
            lines += ["", "What is released", *(f"  {fact}" for fact in self.facts)]
            lines += aligned([_row(stage) for stage in self.stages])
        if self.errors:
            population = "" if self.people is None else f" with {self.people:,} people"
            lines += [
                "",
                f"Expected error{population}, one standard deviation of the noise",
            ]
            lines += aligned(
                [[error.what, error.in_words(self.people)] for error in self.errors]
            )
            if self.expected is not None:
                lines.append(f"  {self.expected}")
            if self.people is None:
                lines.append(
                    "  As a share it is that over the number of people: state it "
                    "(people = …)."
                )
        if self.levels:
            lines += [
                "",
                "Columns",
                *aligned([[name, words] for name, words in self.levels.items()]),
            ]
        if self.too_fine:
            lines += [
                "",
                "Too fine",
                *aligned([[name, words] for name, words in self.too_fine.items()]),
            ]
        if self.seconds is not None and self.memory is not None:
            parts = ", ".join(
                f"{what} {_seconds(seconds)}" for what, seconds in self.takes.items()
            )
            less = "; less with few people" if self.people is None else ""
            lines += [
                "",
                f"Takes about {_seconds(self.seconds)} ({parts}{less}) and "
                f"{self.memory / 1e9:.1f} GB.",
            ]
        if self.warnings:
            lines += ["", *(f"! {warning}" for warning in self.warnings)]
        return "\n".join(lines)


def alignment_seconds(people: int | None, holders: int) -> float:
    """About how long holders of the same people take to find them: each masks
    everybody's ids.
    """
    return (people or 0) * holders**2 * _MASK


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _row(stage: Stage) -> list[str]:
    noise = _between(min(stage.noise.values()), max(stage.noise.values()), "no noise")
    return [
        stage.what,
        f"{100 * stage.share:.3g} % of the budget",
        f"noise of ±{noise} on every count",
    ]


def _between(smallest: float, largest: float, nothing: str) -> str:
    if not largest and nothing:
        return nothing
    low = figure(smallest)
    high = figure(largest)
    return low if low == high else f"{low} to {high}"


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return "under 1 s"
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
