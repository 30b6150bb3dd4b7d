"""How easily an attack does as well by luck: exact tests by lot, and one verdict over many of them.

The null hypothesis is the same for every attack: nothing of a person is in the synthetic table, so that given all
people and the table, every choice of those who took part was equally likely. Then any count of successes may be
held against the counts that other choices would have given (Fisher, 1935; Pitman, 1937), whatever is counted, also
where rows repeat, scores tie, or one synthetic row decides about many people. Nothing is assumed about how scores
are distributed, and the control's people are drawn by the same lots: their own error is in the test.

`luck` draws the choices and stops once it has seen enough that did as well (Besag and Clifford, Biometrika 1991):
p is then exact as it would be over all choices. `fisher` counts the choices, where a success is yes or no.
`holm` corrects many p-values (Holm, Scandinavian Journal of Statistics 1979): with it, the chance that any test
of a true null is called a success is at most the level, however the tests depend on one another.

Guarantee: none for people; P(p ≤ α) ≤ α under the null. Edges: everybody or nobody took part → p is 1. People who
took no part must be of the same kind as the others, and one row must be one person: else lots are not equally likely.
On a page of more than 250 measures only `fisher` can go below what Holm asks for; one of ten holders has some 200.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

Floats = NDArray[np.float64]
Lots = NDArray[np.bool_]
"""Who is taken for one who took part, in each of several draws: (draws, people)."""

LEVEL = (
    0.025  # of any false success among all tests of one page: 5 % are promised, and pages are a sample, too
)
DRAWS = 4_999  # so that p reaches 0.0002, enough for Holm over 250 tests
ENOUGH = 50  # draws that did as well, after which no more are made
SLACK = 1e-9  # sums in another order differ by rounding; such draws count as equal, which can only raise p
BLOCK = 1 << 19  # lots that are drawn at once


def luck(
    statistics: Callable[[Lots], Floats],
    took_part: NDArray[np.bool_],
    *,
    strata: NDArray[Any] | None = None,
    seed: int = 0,
) -> tuple[float, ...]:
    """The p-value of each statistic, large where the attack does well; lots are drawn within `strata`.

    `statistics` maps lots to (draws, statistics).
    """
    observed = statistics(took_part[None])[0]
    kinds = np.zeros(len(took_part), int) if strata is None else np.unique(strata, return_inverse=True)[1]
    few, as_good = max(1, min(100, BLOCK // max(1, len(took_part)))), np.empty((0, len(observed)), bool)
    drawn = _drawn(took_part.tobytes(), kinds.astype(np.int64).tobytes(), seed, few)
    while len(as_good) < DRAWS and (as_good.sum(axis=0) < ENOUGH).any():
        lots = drawn.block(len(as_good) // few)[: DRAWS - len(as_good)]
        as_good = np.concatenate([as_good, statistics(lots) >= observed - SLACK])
    return tuple(_stopped(column) for column in as_good.T)


@lru_cache(maxsize=4)
def _drawn(took_part: bytes, kinds: bytes, seed: int, few: int) -> "_Drawn":
    """The attacks of one page ask for the same lots again."""
    return _Drawn(np.frombuffer(took_part, bool), np.frombuffer(kinds, np.int64), seed, few)


class _Drawn:
    """Lots in blocks of `few` draws, as far as somebody asked for them, eight people a byte."""

    def __init__(self, took_part: NDArray[np.bool_], kinds: NDArray[np.int64], seed: int, few: int) -> None:
        self.took_part, self.few, self.rng = took_part, few, np.random.default_rng([seed, 5])
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
        return np.unpackbits(self.blocks[number], axis=1, count=len(self.took_part)).view(bool)


def _stopped(as_good: NDArray[np.bool_]) -> float:
    """p by the draws up to the one that was enough, or by all of them and the choice that was made."""
    places = np.flatnonzero(as_good)
    if len(places) >= ENOUGH:
        return ENOUGH / float(places[ENOUGH - 1] + 1)
    return (len(places) + 1) / (len(as_good) + 1)


def sums(*values: Floats) -> Callable[[Lots], Floats]:
    """The statistics Σ v over those who took part: comparing it compares the means of the two groups."""
    table = np.stack(values, axis=1).astype(float)  # (people, statistics)
    return lambda lots: np.asarray(lots.astype(float) @ table)


def more(inside: Floats, outside: Floats, *, seed: int = 0) -> float:
    """How easily a mean as large as that of `inside` comes by luck, one value a person, against `outside`."""
    values, took_part = np.concatenate([inside, outside]), np.arange(len(inside) + len(outside)) < len(inside)
    if np.isin(values, (0, 1)).all():
        return fisher(int(inside.sum()), len(inside), int(outside.sum()), len(outside))
    return luck(sums(values), took_part, seed=seed)[0]


def fisher(hits: int, people: int, other_hits: int, others: int) -> float:
    """P(at least so many of the hits fall to `people`), with people and others drawn from one urn."""
    total = hits + other_hits
    return min(1.0, float(hypergeom.sf(hits - 1, people + others, total, people)))


def holm(values: Sequence[float]) -> tuple[float, ...]:
    """The adjusted p-values, in the order given: the k-th smallest of m times m − k + 1, never below the last."""
    order = np.argsort(values, kind="stable")
    left = len(values) - np.arange(len(values))
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(left * np.asarray(values, dtype=float)[order]))
    return tuple(adjusted.tolist())
