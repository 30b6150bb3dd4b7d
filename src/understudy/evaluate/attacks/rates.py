"""Rates with 95 % confidence intervals, the three measures of a membership score, and
how easily one comes by luck.

A membership attack gives every target a score; members of the training rows should
score above outsiders. `top_half`: call the better half of all scores members; the share
that is right (Zhang, master's thesis, TUM 2022, Eq. 5.4, after Hilprecht et al., PoPETs
2019). `auc`: how often a member scores above an outsider. `tpr`: the share of members
caught where 1 % of the outsiders are accused (Carlini et al., S&P 2022): an average
hides a few people who leak completely, this one does not. Ties count as broken at
random, in expectation: a constant score gives ½, ½ and 0.01.

Intervals, each checked by simulation: `exact` (Clopper–Pearson) never covers too
seldom; `wilson` is Giomi et al.'s (PoPETs 2023); `auc` uses Newcombe's method 5
(Statistics in Medicine 2006), which does not collapse at 1. For `top_half` the delta
method gives a variance between p(1−p)/2m and p(1−p)/m for m members, depending on the
densities at the cut, so the exact interval of m trials covers whatever they are. `tpr`
does not know its threshold: the outsiders' 99th percentile lies between two of their
order statistics with 97.5 %, and exact intervals of 97.5 % are taken at both, so with
up to 436 outsiders its lower end is 0.

Luck: the null hypothesis is that nothing of a person is in the synthetic table, so that
given all people and the table, every choice of those who took part was equally likely.
Then any count of successes may be held against the counts that other choices would have
given (Fisher, 1935; Pitman, 1937), whatever is counted, also where rows repeat, scores
tie, or one synthetic row decides about many people. The control's people are drawn by
the same lots: their own error is in the test. `luck` draws the choices and stops once
it has seen enough that did as well (Besag and Clifford, Biometrika 1991): p is then
exact as it would be over all choices. `fisher` counts them, where a success is yes or
no. `holm` corrects many p-values (Scandinavian Journal of Statistics 1979): with it,
the chance that any test of a true null is called a success is at most the level,
however the tests depend on one another.
Edges: everybody or nobody took part → p is 1. People who took no part must be of the
same kind as the others, and one row must be one person: else lots are not equally
likely.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import beta, binom, hypergeom, norm, rankdata

from understudy.ground.errors import ConfigError

Scores = NDArray[np.floating[Any]]
Floats = NDArray[np.float64]
Lots = NDArray[np.bool_]
"""Who is taken for one who took part, in each of several draws: (draws, people)."""

CONFIDENCE = 0.95
Z = float(norm.ppf((1 + CONFIDENCE) / 2))
ACCUSED = 0.01  # share of outsiders that `tpr` lets an attack accuse
# of any false success among all tests of a page: 5 % are promised, and pages are a
# sample, too
LEVEL = 0.025
DRAWS = 4_999  # so that p reaches 0.0002, enough for Holm over 250 tests
ENOUGH = 50  # draws that did as well, after which no more are made
# sums in another order differ by rounding; such draws count as equal, which can only
# raise p
SLACK = 1e-9
BLOCK = 1 << 19  # lots that are drawn at once


@dataclass(frozen=True)
class Rate:
    """A share with its 95 % confidence interval; both ends equal the value where it is
    known exactly.
    """

    value: float
    low: float
    high: float

    @classmethod
    def known(cls, value: float) -> "Rate":
        """A share that was derived and not measured."""
        return cls(value, value, value)

    def __str__(self) -> str:
        return f"{self.value:.3f}" + (
            f" [{self.low:.3f}, {self.high:.3f}]" if self.low < self.high else ""
        )


def exact(successes: float, trials: float, level: float = CONFIDENCE) -> Rate:
    """Clopper–Pearson. Fractions of successes (ties) or of trials (an effective number)
    are welcome.
    """
    successes, trials = _possible(successes, trials)
    tail = (1 - level) / 2
    low = (
        float(beta.ppf(tail, successes, trials - successes + 1))
        if successes > 0
        else 0.0
    )
    high = (
        float(beta.ppf(1 - tail, successes + 1, trials - successes))
        if successes < trials
        else 1.0
    )
    return Rate(successes / trials, low, high)


def wilson(successes: float, trials: float) -> Rate:
    successes, trials = _possible(successes, trials)
    centre = (successes + Z * Z / 2) / (trials + Z * Z)
    half = (
        Z
        / (trials + Z * Z)
        * math.sqrt(successes * (trials - successes) / trials + Z * Z / 4)
    )
    return Rate(successes / trials, max(0.0, centre - half), min(1.0, centre + half))


def effective(trials: float, hits: NDArray[Any]) -> float:
    """How many independent trials these were, of which so many hit each person:
    trials·Σk/Σk² (Kish, 1965).
    """
    squares = float((hits**2).sum())
    return trials * float(hits.sum()) / squares if squares else float(trials)


def top_half(members: Scores, outsiders: Scores) -> Rate:
    """The share of members among the better half of the scores of as many members as
    outsiders.
    """
    if len(members) != len(outsiders):
        raise ConfigError(
            f"the better half needs as many members as outsiders, not {len(members)} "
            f"and {len(outsiders)}."
        )
    levels, place = np.unique(np.concatenate([members, outsiders]), return_inverse=True)
    # members at each score, best first
    among = np.bincount(place[: len(members)], minlength=len(levels))[::-1]
    tied = np.bincount(place, minlength=len(levels))[::-1]
    # how many of the tied are still called
    room = np.clip(len(members) - (np.cumsum(tied) - tied), 0, tied)
    return exact(float((among * room / tied).sum()), len(members))


def marks(members: Scores, outsiders: Scores) -> Callable[[Lots], Floats]:
    """`top_half`, `auc` and `tpr` of other members among the same people, as many:
    (draws, people) → (draws, 3).
    """
    scores = np.concatenate([members, outsiders])
    m = len(members)
    n = len(outsiders)
    place = np.unique(-scores, return_inverse=True)[1]
    tied = np.bincount(place)
    ends = np.cumsum(tied)
    # how likely each score's bearer is called
    room = np.clip(m - (ends - tied), 0, tied) / tied
    linear = np.stack([room[place] / m, rankdata(scores) / (m * n)], axis=1)
    order = np.argsort(place, kind="stable")
    k = ACCUSED * n

    def best(lots: Lots, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Members and outsiders down to each score, beginning with none, as far as
        `most` people or to the end.
        """
        last = ends[: max(1, int(np.searchsorted(ends, most, side="right")))]
        caught = np.pad(
            np.cumsum(lots[:, order[: last[-1]]], axis=1, dtype=np.int64)[:, last - 1],
            ((0, 0), (1, 0)),
        )
        accused = np.append(0, last) - caught
        return (caught, accused) if (accused[:, -1] > k).all() else best(lots, 4 * most)

    def of(lots: Lots) -> Floats:
        caught, accused = best(lots, math.ceil(4 * k) + 40)
        # the last score at which no more than k are accused
        last = ((accused <= k).sum(axis=1) - 1)[:, None]
        (low, high), (begin, end) = (
            (
                np.take_along_axis(t, last, axis=1)[:, 0],
                np.take_along_axis(t, last + 1, axis=1)[:, 0],
            )
            for t in (caught, accused)
        )
        reached = low + (k - begin) / (end - begin) * (high - low)
        top, area = (lots.astype(float) @ linear).T
        return np.stack([top, area - (m + 1) / (2 * n), reached / m], axis=1)

    return of


def auc(members: Scores, outsiders: Scores) -> Rate:
    """P(member > outsider) + ½·P(equal): the area under the ROC curve."""
    m = len(members)
    n = len(outsiders)
    _possible(0, min(m, n))
    ranks = rankdata(np.concatenate([members, outsiders]))[:m]
    value = min(1.0, max(0.0, float(ranks.sum() - m * (m + 1) / 2) / (m * n)))
    return Rate(value, _auc_low(value, m, n), 1 - _auc_low(1 - value, m, n))


def tpr(members: Scores, outsiders: Scores) -> Rate:
    """The share of members caught where `ACCUSED` of the outsiders are accused."""
    m = len(members)
    n = len(outsiders)
    _possible(0, min(m, n))
    levels, place = np.unique(
        -np.concatenate([members, outsiders]), return_inverse=True
    )
    caught, accused = (
        np.concatenate([[0], np.cumsum(np.bincount(part, minlength=len(levels)))])
        for part in (place[:m], place[m:])
    )
    level = (1 + CONFIDENCE) / 2  # two statements at 97.5 % hold together with 95 %
    fewest, most = (int(k) for k in binom.interval(level, n, ACCUSED))
    low = _reached(caught, accused, fewest, first=True)
    high = _reached(caught, accused, most)
    return Rate(
        _reached(caught, accused, ACCUSED * n) / m,
        exact(low, m, level).low,
        exact(high, m, level).high,
    )


def _reached(
    caught: NDArray[np.int64],
    accused: NDArray[np.int64],
    k: float,
    *,
    first: bool = False,
) -> float:
    """Members caught where k outsiders are accused: just as the last of them is
    (`first`), or at the most.
    """
    i = int(np.searchsorted(accused, k, side="left" if first else "right")) - 1
    if i < 0 or i + 1 == len(accused):
        return float(caught[i]) if i >= 0 else 0.0
    share = (k - accused[i]) / (accused[i + 1] - accused[i])
    return float(caught[i] + share * (caught[i + 1] - caught[i]))


def _auc_low(value: float, m: int, n: int) -> float:
    """The smallest area from which `value` is not further than Z standard errors."""

    def short_of(area: float) -> float:
        spread = 1 + ((m + n) / 2 - 1) * ((1 - area) / (2 - area) + area / (1 + area))
        return value - area - Z * math.sqrt(area * (1 - area) * spread / (m * n))

    return float(brentq(short_of, 0.0, min(value, 1 - 1e-12))) if value > 0 else 0.0


def _possible(successes: float, trials: float) -> tuple[float, float]:
    if not 0 <= successes <= trials or not trials > 0:
        raise ConfigError(
            f"{successes} of {trials} is not a share: nothing was estimated."
        )
    return float(successes), float(trials)


def luck(
    statistics: Callable[[Lots], Floats],
    took_part: NDArray[np.bool_],
    *,
    strata: NDArray[Any] | None = None,
    seed: int = 0,
) -> tuple[float, ...]:
    """The p-value of each statistic, large where the attack does well; lots are drawn
    within `strata`.
    """
    observed = statistics(took_part[None])[0]
    kinds = (
        np.zeros(len(took_part), int)
        if strata is None
        else np.unique(strata, return_inverse=True)[1]
    )
    few = max(1, min(100, BLOCK // max(1, len(took_part))))
    as_good = np.empty((0, len(observed)), bool)
    drawn = _drawn(took_part.tobytes(), kinds.astype(np.int64).tobytes(), seed, few)
    while len(as_good) < DRAWS and (as_good.sum(axis=0) < ENOUGH).any():
        lots = drawn.block(len(as_good) // few)[: DRAWS - len(as_good)]
        as_good = np.concatenate([as_good, statistics(lots) >= observed - SLACK])
    return tuple(_stopped(column) for column in as_good.T)


@lru_cache(maxsize=4)
def _drawn(took_part: bytes, kinds: bytes, seed: int, few: int) -> "_Drawn":
    """The attacks of one page ask for the same lots again."""
    return _Drawn(
        np.frombuffer(took_part, bool), np.frombuffer(kinds, np.int64), seed, few
    )


class _Drawn:
    """Lots in blocks of `few` draws, as far as somebody asked for them, eight people a
    byte.
    """

    def __init__(
        self,
        took_part: NDArray[np.bool_],
        kinds: NDArray[np.int64],
        seed: int,
        few: int,
    ) -> None:
        self.took_part = took_part
        self.few = few
        self.rng = np.random.default_rng([seed, 5])
        self.places = [np.flatnonzero(kinds == kind) for kind in np.unique(kinds)]
        self.blocks: list[NDArray[np.uint8]] = []
        self.lock = Lock()

    def block(self, number: int) -> Lots:
        with self.lock:
            while len(self.blocks) <= number:
                lots = np.repeat(self.took_part[None], self.few, axis=0)
                for place in self.places:
                    lots[:, place] = self.rng.permuted(lots[:, place], axis=1)
                self.blocks.append(np.packbits(lots, axis=1))
        return np.unpackbits(
            self.blocks[number], axis=1, count=len(self.took_part)
        ).view(bool)


def _stopped(as_good: NDArray[np.bool_]) -> float:
    """p by the draws up to the one that was enough, or by all of them and the choice
    that was made.
    """
    places = np.flatnonzero(as_good)
    if len(places) >= ENOUGH:
        return ENOUGH / float(places[ENOUGH - 1] + 1)
    return (len(places) + 1) / (len(as_good) + 1)


def sums(*values: Floats) -> Callable[[Lots], Floats]:
    """The statistics Σ v over those who took part: comparing it compares the means of
    the two groups.
    """
    table = np.stack(values, axis=1).astype(float)  # (people, statistics)
    return lambda lots: np.asarray(lots.astype(float) @ table)


def more(inside: Floats, outside: Floats, *, seed: int = 0) -> float:
    """How easily a mean as large as that of `inside` comes by luck, one value a person,
    against `outside`.
    """
    values = np.concatenate([inside, outside])
    took_part = np.arange(len(inside) + len(outside)) < len(inside)
    if np.isin(values, (0, 1)).all():
        return fisher(int(inside.sum()), len(inside), int(outside.sum()), len(outside))
    return luck(sums(values), took_part, seed=seed)[0]


def fisher(hits: int, people: int, other_hits: int, others: int) -> float:
    """P(at least so many of the hits fall to `people`), with people and others drawn
    from one urn.
    """
    return min(
        1.0, float(hypergeom.sf(hits - 1, people + others, hits + other_hits, people))
    )


def holm(values: Sequence[float]) -> tuple[float, ...]:
    """The adjusted p-values, in the order given: the k-th smallest of m times m − k +
    1, never below the last.
    """
    order = np.argsort(values, kind="stable")
    left = len(values) - np.arange(len(values))
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(
        1, np.maximum.accumulate(left * np.asarray(values, dtype=float)[order])
    )
    return tuple(adjusted.tolist())
