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

from understudy.ground.errors import ConfigError, Effect

Scores = NDArray[np.floating[Any]]
Floats = NDArray[np.float64]
Assignments = NDArray[np.bool_]
"""Who is taken for one who took part, in each of several draws: (draws, people)."""

CONFIDENCE = 0.95
Z = float(norm.ppf((1 + CONFIDENCE) / 2))
FALSE_POSITIVE_RATE = 0.01  # share of outsiders that `tpr` lets an attack accuse
# of any false success among all tests of a page: 5 % are promised, and pages are a
# sample, too
LEVEL = 0.025
DRAWS = 4_999  # so that p reaches 0.0002, enough for Holm over 250 tests
MAX_EXCEEDED = 50  # draws that did as well, after which no more are made
# sums in another order differ by rounding; such draws count as equal, which can only
# raise p
SLACK = 1e-9
MAX_BLOCK = 1 << 19  # lots that are drawn at once


@dataclass(frozen=True)
class Rate:
    """A share with its 95 % confidence interval; both ends equal the value where it is
    known exactly.
    """

    value: float
    low: float
    high: float

    @classmethod
    def from_exact(cls, value: float) -> "Rate":
        """A share that was derived and not measured."""
        return cls(value, value, value)

    def __str__(self) -> str:
        return f"{self.value:.3f}" + (
            f" [{self.low:.3f}, {self.high:.3f}]" if self.low < self.high else ""
        )


def clopper_pearson(
    successes: float,
    trials: float,
    level: float = CONFIDENCE,
) -> Rate:
    """Clopper–Pearson. Fractions of successes (ties) or of trials (an effective number)
    are welcome.
    """
    successes, trials = _check_counts(successes, trials)
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
    successes, trials = _check_counts(successes, trials)
    centre = (successes + Z * Z / 2) / (trials + Z * Z)
    half = (
        Z
        / (trials + Z * Z)
        * math.sqrt(successes * (trials - successes) / trials + Z * Z / 4)
    )
    return Rate(successes / trials, max(0.0, centre - half), min(1.0, centre + half))


def effective_trials(trials: float, hits: NDArray[Any]) -> float:
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
    m = len(members)
    levels, ranks = np.unique(np.concatenate([members, outsiders]), return_inverse=True)
    # members, and everybody, at each score, best first
    members_at = np.bincount(ranks[:m], minlength=len(levels))[::-1]
    tied = np.bincount(ranks, minlength=len(levels))[::-1]
    better = np.cumsum(tied) - tied
    called = np.clip(m - better, 0, tied)  # how many of the tied are still called
    hits = float((members_at * called / tied).sum())
    return clopper_pearson(hits, m)


def membership_statistics(
    members: Scores,
    outsiders: Scores,
) -> Callable[[Assignments], Floats]:
    """`top_half`, `auc` and `tpr` of other members among the same people, as many:
    (draws, people) → (draws, 3).
    """
    scores = np.concatenate([members, outsiders])
    m = len(members)
    n = len(outsiders)
    ranks = np.unique(-scores, return_inverse=True)[1]
    tied = np.bincount(ranks)
    ends = np.cumsum(tied)
    # how likely each score's bearer is called
    call_probability = np.clip(m - (ends - tied), 0, tied) / tied
    top_weights = call_probability[ranks] / m
    auc_weights = rankdata(scores) / (m * n)
    linear = np.stack([top_weights, auc_weights], axis=1)
    order = np.argsort(ranks, kind="stable")
    k = FALSE_POSITIVE_RATE * n

    def running_counts(
        assignments: Assignments,
        max_people: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Members and outsiders down to each score, beginning with none, as far as
        `max_people` or to the end.
        """
        levels = int(np.searchsorted(ends, max_people, side="right"))
        last = ends[: max(1, levels)]
        best_first = assignments[:, order[: last[-1]]]
        members_so_far = np.cumsum(best_first, axis=1, dtype=np.int64)
        caught = np.pad(members_so_far[:, last - 1], ((0, 0), (1, 0)))
        accused = np.append(0, last) - caught
        if (accused[:, -1] > k).all():
            return caught, accused
        return running_counts(assignments, 4 * max_people)

    def statistics(assignments: Assignments) -> Floats:
        caught, accused = running_counts(assignments, math.ceil(4 * k) + 40)
        # the last score at which no more than k are accused, and the next one
        last = ((accused <= k).sum(axis=1) - 1)[:, None]
        ends = np.concatenate([last, last + 1], axis=1)
        low, high = np.take_along_axis(caught, ends, axis=1).T
        begin, end = np.take_along_axis(accused, ends, axis=1).T
        reached = low + (k - begin) / (end - begin) * (high - low)
        top, area = (assignments.astype(float) @ linear).T
        return np.stack([top, area - (m + 1) / (2 * n), reached / m], axis=1)

    return statistics


def auc(members: Scores, outsiders: Scores) -> Rate:
    """P(member > outsider) + ½·P(equal): the area under the ROC curve."""
    m = len(members)
    n = len(outsiders)
    _check_counts(0, min(m, n))
    ranks = rankdata(np.concatenate([members, outsiders]))[:m]
    value = min(1.0, max(0.0, float(ranks.sum() - m * (m + 1) / 2) / (m * n)))
    return Rate(value, _auc_low(value, m, n), 1 - _auc_low(1 - value, m, n))


def tpr(members: Scores, outsiders: Scores) -> Rate:
    """The share of members caught at the false positive rate `FALSE_POSITIVE_RATE`."""
    m = len(members)
    n = len(outsiders)
    _check_counts(0, min(m, n))
    levels, ranks = np.unique(
        -np.concatenate([members, outsiders]),
        return_inverse=True,
    )
    caught, accused = (
        np.concatenate([[0], np.cumsum(np.bincount(part, minlength=len(levels)))])
        for part in (ranks[:m], ranks[m:])
    )
    level = (1 + CONFIDENCE) / 2  # two statements at 97.5 % hold together with 95 %
    fewest_accused, most_accused = (
        int(k) for k in binom.interval(level, n, FALSE_POSITIVE_RATE)
    )
    low = _caught_at(
        caught,
        accused,
        fewest_accused,
        first=True,
    )
    high = _caught_at(caught, accused, most_accused)
    return Rate(
        _caught_at(caught, accused, FALSE_POSITIVE_RATE * n) / m,
        clopper_pearson(low, m, level).low,
        clopper_pearson(high, m, level).high,
    )


def _caught_at(
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


def _auc_low(
    value: float,
    m: int,
    n: int,
) -> float:
    """The smallest area from which `value` is not further than Z standard errors."""

    def short_of(area: float) -> float:
        spread = 1 + ((m + n) / 2 - 1) * ((1 - area) / (2 - area) + area / (1 + area))
        return value - area - Z * math.sqrt(area * (1 - area) * spread / (m * n))

    return float(brentq(short_of, 0.0, min(value, 1 - 1e-12))) if value > 0 else 0.0


def _check_counts(successes: float, trials: float) -> tuple[float, float]:
    if not 0 <= successes <= trials or not trials > 0:
        raise ConfigError(
            f"{successes} of {trials} is not a share.",
            effect=Effect.NOTHING_COMPUTED,
        )
    return float(successes), float(trials)


def permutation_p_values(
    statistics: Callable[[Assignments], Floats],
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
    block_size = max(1, min(100, MAX_BLOCK // max(1, len(took_part))))
    as_good = np.empty((0, len(observed)), bool)
    sampled = _shared_assignments(
        took_part.tobytes(),
        kinds.astype(np.int64).tobytes(),
        seed,
        block_size,
    )
    while len(as_good) < DRAWS and (as_good.sum(axis=0) < MAX_EXCEEDED).any():
        assignments = sampled.block(len(as_good) // block_size)[: DRAWS - len(as_good)]
        as_good = np.concatenate([as_good, statistics(assignments) >= observed - SLACK])
    return tuple(_sequential_p_value(column) for column in as_good.T)


@lru_cache(maxsize=4)
def _shared_assignments(
    took_part: bytes,
    kinds: bytes,
    seed: int,
    block_size: int,
) -> "_SampledAssignments":
    """The attacks of one page ask for the same lots again."""
    return _SampledAssignments(
        np.frombuffer(took_part, bool),
        np.frombuffer(kinds, np.int64),
        seed,
        block_size,
    )


class _SampledAssignments:
    """Lots in blocks of `few` draws, as far as somebody asked for them, eight people a
    byte.
    """

    def __init__(
        self,
        took_part: NDArray[np.bool_],
        kinds: NDArray[np.int64],
        seed: int,
        block_size: int,
    ) -> None:
        self.took_part = took_part
        self.block_size = block_size
        self.rng = np.random.default_rng([seed, 5])
        self.strata = [np.flatnonzero(kinds == kind) for kind in np.unique(kinds)]
        self.blocks: list[NDArray[np.uint8]] = []
        self.lock = Lock()

    def block(self, number: int) -> Assignments:
        with self.lock:
            while len(self.blocks) <= number:
                assignments = np.repeat(self.took_part[None], self.block_size, axis=0)
                for stratum in self.strata:
                    assignments[:, stratum] = self.rng.permuted(
                        assignments[:, stratum],
                        axis=1,
                    )
                self.blocks.append(np.packbits(assignments, axis=1))
        return np.unpackbits(
            self.blocks[number],
            axis=1,
            count=len(self.took_part),
        ).view(bool)


def _sequential_p_value(as_good: NDArray[np.bool_]) -> float:
    """p by the draws up to the one that was enough, or by all of them and the choice
    that was made.
    """
    exceeded = np.flatnonzero(as_good)
    if len(exceeded) >= MAX_EXCEEDED:
        return MAX_EXCEEDED / float(exceeded[MAX_EXCEEDED - 1] + 1)
    return (len(exceeded) + 1) / (len(as_good) + 1)


def sum_statistics(*values: Floats) -> Callable[[Assignments], Floats]:
    """The statistics Σ v over those who took part: comparing it compares the means of
    the two groups.
    """
    table = np.stack(values, axis=1).astype(float)  # (people, statistics)
    return lambda assignments: np.asarray(assignments.astype(float) @ table)


def mean_p_value(
    inside: Floats,
    outside: Floats,
    *,
    seed: int = 0,
) -> float:
    """How easily a mean as large as that of `inside` comes by luck, one value a person,
    against `outside`.
    """
    values = np.concatenate([inside, outside])
    took_part = np.arange(len(inside) + len(outside)) < len(inside)
    if np.isin(values, (0, 1)).all():
        return fisher(
            int(inside.sum()),
            len(inside),
            int(outside.sum()),
            len(outside),
        )
    return permutation_p_values(sum_statistics(values), took_part, seed=seed)[0]


def fisher(
    hits: int,
    people: int,
    other_hits: int,
    others: int,
) -> float:
    """P(at least so many of the hits fall to `people`), with people and others drawn
    from one urn.
    """
    return min(
        1.0,
        float(
            hypergeom.sf(
                hits - 1,
                people + others,
                hits + other_hits,
                people,
            )
        ),
    )


def holm(values: Sequence[float]) -> tuple[float, ...]:
    """The adjusted p-values, in the order given: the k-th smallest of m times m − k +
    1, never below the last.
    """
    order = np.argsort(values, kind="stable")
    remaining = len(values) - np.arange(len(values))
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(
        1,
        np.maximum.accumulate(remaining * np.asarray(values, dtype=float)[order]),
    )
    return tuple(adjusted.tolist())
