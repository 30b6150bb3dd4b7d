"""Rates with 95 % confidence intervals, and the three measures of a membership score.

A membership attack gives every target a score; members of the training rows should score above outsiders.
- `top_half`: call the better half of all scores members; the share that is right (Zhang, master's thesis,
  TUM 2022, Eq. 5.4, after Hilprecht et al., PoPETs 2019).
- `auc`: how often a member scores above an outsider.
- `tpr`: the share of members caught where 1 % of the outsiders are accused (Carlini et al., S&P 2022): an
  average hides a few people who leak completely, this one does not.
Ties count as broken at random, in expectation: a constant score gives ½, ½ and 0.01.

Intervals, each checked by simulation: `exact` (Clopper–Pearson) never covers too seldom; `wilson` is Giomi
et al.'s (PoPETs 2023); `auc` uses Newcombe's method 5 (Statistics in Medicine 2006), which does not collapse
at 1. For `top_half` the delta method gives a variance between p(1−p)/2m and p(1−p)/m for m members,
depending on the densities at the cut, so the exact interval of m trials covers whatever they are. `tpr`
does not know its threshold: the outsiders' 99th percentile lies between two of their order statistics with
97.5 %, and exact intervals of 97.5 % are taken at both, so with up to 436 outsiders its lower end is 0.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import beta, binom, norm, rankdata

from understudy.ground.errors import ConfigError

Scores = NDArray[np.floating[Any]]

LEVEL = 0.95
Z = float(norm.ppf((1 + LEVEL) / 2))
ACCUSED = 0.01  # share of outsiders that `tpr` lets an attack accuse


@dataclass(frozen=True)
class Rate:
    """A share with its 95 % confidence interval; both ends equal the value where it is known exactly."""

    value: float
    low: float
    high: float

    @classmethod
    def known(cls, value: float) -> "Rate":
        """A share that was derived and not measured."""
        return cls(value, value, value)

    def __str__(self) -> str:
        return f"{self.value:.3f}" + (f" [{self.low:.3f}, {self.high:.3f}]" if self.low < self.high else "")

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def exact(successes: float, trials: float, level: float = LEVEL) -> Rate:
    """Clopper–Pearson. Fractions of successes (ties) or of trials (an effective number) are welcome."""
    successes, trials = _possible(successes, trials)
    tail = (1 - level) / 2
    low = float(beta.ppf(tail, successes, trials - successes + 1)) if successes > 0 else 0.0
    high = float(beta.ppf(1 - tail, successes + 1, trials - successes)) if successes < trials else 1.0
    return Rate(successes / trials, low, high)


def wilson(successes: float, trials: float) -> Rate:
    """Wilson's score interval around the share of successes."""
    successes, trials = _possible(successes, trials)
    centre = (successes + Z * Z / 2) / (trials + Z * Z)
    half = Z / (trials + Z * Z) * math.sqrt(successes * (trials - successes) / trials + Z * Z / 4)
    return Rate(successes / trials, max(0.0, centre - half), min(1.0, centre + half))


def difference(one: Rate, other: Rate) -> Rate:
    """one − other, of independent rates: Newcombe's hybrid of their two intervals."""
    value = one.value - other.value
    return Rate(
        value,
        value - math.hypot(one.value - one.low, other.high - other.value),
        value + math.hypot(one.high - one.value, other.value - other.low),
    )


def effective(trials: float, hits: NDArray[Any]) -> float:
    """How many independent trials these were, of which so many hit each person: trials·Σk/Σk² (Kish, 1965)."""
    squares = float((hits**2).sum())
    return trials * float(hits.sum()) / squares if squares else float(trials)


def top_half(members: Scores, outsiders: Scores) -> Rate:
    """The share of members among the better half of the scores of as many members as outsiders."""
    if len(members) != len(outsiders):
        raise ConfigError(
            f"the better half needs as many members as outsiders, not {len(members)} and {len(outsiders)}."
        )
    levels, place = np.unique(np.concatenate([members, outsiders]), return_inverse=True)
    # members at each score, best first
    among = np.bincount(place[: len(members)], minlength=len(levels))[::-1]
    tied = np.bincount(place, minlength=len(levels))[::-1]
    room = np.clip(len(members) - (np.cumsum(tied) - tied), 0, tied)  # how many of the tied are still called
    return exact(float((among * room / tied).sum()), len(members))


def marks(members: Scores, outsiders: Scores) -> Callable[[NDArray[np.bool_]], NDArray[np.float64]]:
    """`top_half`, `auc` and `tpr` of other members among the same people, as many: (draws, people) → (draws, 3)."""
    scores, m, n = np.concatenate([members, outsiders]), len(members), len(outsiders)
    place = np.unique(-scores, return_inverse=True)[1]
    tied = np.bincount(place)
    ends = np.cumsum(tied)
    room = np.clip(m - (ends - tied), 0, tied) / tied  # how likely each score's bearer is called
    linear = np.stack([room[place] / m, rankdata(scores) / (m * n)], axis=1)
    order, k = np.argsort(place, kind="stable"), ACCUSED * n

    def best(lots: NDArray[np.bool_], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Members and outsiders down to each score, beginning with none, as far as `most` people or to the end."""
        last = ends[: max(1, int(np.searchsorted(ends, most, side="right")))]
        caught = np.pad(
            np.cumsum(lots[:, order[: last[-1]]], axis=1, dtype=np.int64)[:, last - 1], ((0, 0), (1, 0))
        )
        accused = np.append(0, last) - caught
        return (caught, accused) if (accused[:, -1] > k).all() else best(lots, 4 * most)

    def of(lots: NDArray[np.bool_]) -> NDArray[np.float64]:
        caught, accused = best(lots, math.ceil(4 * k) + 40)
        last = ((accused <= k).sum(axis=1) - 1)[:, None]  # the last score at which no more than k are accused
        (low, high), (begin, end) = (
            (np.take_along_axis(t, last, axis=1)[:, 0], np.take_along_axis(t, last + 1, axis=1)[:, 0])
            for t in (caught, accused)
        )
        reached = low + (k - begin) / (end - begin) * (high - low)
        top, area = (lots.astype(float) @ linear).T
        return np.stack([top, area - (m + 1) / (2 * n), reached / m], axis=1)

    return of


def auc(members: Scores, outsiders: Scores) -> Rate:
    """P(member > outsider) + ½·P(equal): the area under the ROC curve."""
    m, n = len(members), len(outsiders)
    _possible(0, min(m, n))
    ranks = rankdata(np.concatenate([members, outsiders]))[:m]
    value = min(1.0, max(0.0, float(ranks.sum() - m * (m + 1) / 2) / (m * n)))
    return Rate(value, _auc_low(value, m, n), 1 - _auc_low(1 - value, m, n))


def above(scores: Scores, outsiders: Scores) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each score the share of the outsiders below it, and whether `tpr` catches it: their means are both rates."""
    ranked, n = np.sort(outsiders), len(outsiders)
    below, up_to = (np.searchsorted(ranked, scores, side=side) for side in ("left", "right"))
    better, tied = n - up_to, up_to - below
    caught = np.where(
        tied, np.clip((ACCUSED * n - better) / np.maximum(tied, 1), 0, 1), better <= ACCUSED * n
    )
    return (below + tied / 2) / n, caught


def tpr(members: Scores, outsiders: Scores) -> Rate:
    """The share of members caught where `ACCUSED` of the outsiders are accused."""
    m, n = len(members), len(outsiders)
    _possible(0, min(m, n))
    levels, place = np.unique(-np.concatenate([members, outsiders]), return_inverse=True)
    caught, accused = (
        np.concatenate([[0], np.cumsum(np.bincount(part, minlength=len(levels)))])
        for part in (place[:m], place[m:])
    )
    level = (1 + LEVEL) / 2  # two statements at 97.5 % hold together with 95 %
    fewest, most = (int(k) for k in binom.interval(level, n, ACCUSED))
    low, high = _reached(caught, accused, fewest, first=True), _reached(caught, accused, most)
    return Rate(
        _reached(caught, accused, ACCUSED * n) / m, exact(low, m, level).low, exact(high, m, level).high
    )


def _reached(
    caught: NDArray[np.int64], accused: NDArray[np.int64], k: float, *, first: bool = False
) -> float:
    """Members caught where k outsiders are accused: just as the last of them is (`first`), or at the most."""
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
        raise ConfigError(f"{successes} of {trials} is not a share: nothing was estimated.")
    return float(successes), float(trials)
