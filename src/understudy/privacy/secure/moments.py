"""Moments of bounded whole-number vectors, summed over people: what is counted, by how
much one person moves it, and what its release under noise costs.

A row is a vector q of whole numbers with ‖q‖² ≤ R², in one of several cells (classes,
or parts of them). Summed, cell by cell, are

    a count       w for each row
    a mean        q
    moments       the upper triangle of q qᵀ

A person counts once: the average over the person's rows, each entry cut towards zero to
a whole number. An average of vectors is no longer than the longest of them, and neither
is one whose entries were cut.

*Moments.* With noise of scale σ beside the diagonal and √2·σ on it, what counts is
Σ_{i<j} (q_i q_j)² + Σ_i q_i⁴/2 = ‖q‖⁴/2 ≤ R⁴/2: a person moves such a triangle by at
most R²/√2 in terms of σ.

*Price.* Discrete Gaussian noise of scale σ on whole numbers that one person moves by Δ
in L2 costs no more than continuous noise of scale a = √(σ² − 9) would. For let Y = μ +
N(0, a²) for a whole μ, and draw Z from the discrete Gaussian of scale 3 about Y. The
normaliser θ(y) of the latter is 3√(2π)(1 ± η) for every y, with η < 2.1·e^(−18π²) <
10⁻⁷⁶ (Poisson's formula), so that P(Z = z) is the density at z of N(μ, σ²) up to a
factor of (1 ± η)^±1, and so is the probability of z under the discrete Gaussian of
scale σ about μ. Over c cells the release is thus, but for e^±τ in every probability
with τ < 10⁻⁷⁵ c, made of the output of the Gaussian mechanism with noise a, which is
post-processing. The sum of shares of it that holders add is as near to one discrete
Gaussian (`sums`). So Gaussian accounting is exact to more digits than any ε has, where
zCDP would lose a twelfth of it.

*Several holders of the same people.* At holder h a person has a vector v_h of whole
numbers with ‖v_h‖ ≤ R, whatever that person's row holds: the frequencies of an image
about a mean, pulled in (`bounded`), or the one-hot levels of m columns, each `one` =
⌊R/√m⌋ in place of 1. Of several images v_h is the average, and v_h v_hᵀ below the
average of theirs, each entry cut towards zero. The triangle of Σ v_h v_hᵀ, by h alone,
moves by R²/√2 at most, as above; all cells of Σ v_h v_kᵀ, by both (`sums`), count as
Σ_ij v_hi² v_kj² = ‖v_h‖² ‖v_k‖²: R² at most. By class (the product of what holds the
triangle of w_h w_hᵀ with the class's one-hot row) a person moves the triangle of one
class alone: R²/√2. With the same σ everywhere all blocks together would be the triangle
of v vᵀ for v = (v_1, …, v_H), which moves by ‖v‖²/√2: nothing is counted twice.

*One price.* Let block b move by Δ_b and have noise σ_b = Δ_b·z/√w_b, with weights w_b
that add up to 1. Divided by its σ_b each, all blocks are one vector that a person moves
by √(Σ Δ_b²/σ_b²) = 1/z under noise of scale 1: one Gaussian mechanism with multiplier
z. That noise is discrete is dealt with block by block (`noise_for`). *Two holders* of a
block add that noise each, so that σ_b is left against either of them and the server;
what is released of it has the variance 2σ_b².

Guarantee: every function here returns whole numbers that one person, with all rows,
moves by at most its stated sensitivity, whatever the rows hold: who would move them by
more, or is not a number, counts as zeros. Whatever a server chooses, one person moves a
block by at most `sensitivity`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from dp_accounting import DpEvent, GaussianDpEvent, NonPrivateDpEvent
from numpy.typing import NDArray
from torch import Tensor

from understudy.ground.check import positive
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.accounting import calibrate
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.gaussian import SMOOTHING_SCALE
from understudy.privacy.noise import rounded_up

Whole = NDArray[np.float64]  # whole numbers below 2⁵³
Positions = NDArray[np.int64]
B = TypeVar("B")

LARGEST = float(2**20)  # noise that can be drawn
_MIN_SIGMA = 16.0  # below it what the proof above takes off would be felt
_CHUNK = 1 << 13  # people
_ROUNDING = 1 + 2.0**-40  # more than doubles lose in the products it multiplies


def bounded(
    rows: Whole,
    radius: float,
    scale: int,
) -> Whole:
    """Rows (n, d) in which `radius` becomes `scale`, as whole numbers; longer ones are
    pulled in to it. Guarantee: every row that comes out has a norm of at most `scale`,
    and depends on that row alone. Edges: a row that is not finite → zeros.
    """
    norms = np.sqrt(np.square(rows).sum(1))
    with np.errstate(all="ignore"):
        factors = scale / np.maximum(norms, radius)
        scaled = rows * factors[:, None]
    rounded = np.rint(scaled)
    rounded = np.where(_within(rounded, scale), rounded, np.trunc(scaled))
    return np.where(_within(rounded, scale), rounded, 0.0)


def _within(rows: Whole, scale: int) -> NDArray[np.bool_]:
    """Which rows have a norm of at most `scale`: (n, 1)."""
    with np.errstate(all="ignore"):
        squared_norms = np.square(rows).sum(1, keepdims=True)
        return np.asarray(squared_norms <= scale**2)


@dataclass(frozen=True)
class Crowd:
    """Whose rows they are, person after person: of each row its person's index, and of
    each person how many rows there are.
    """

    owner: Positions  # (rows,), rising
    sizes: Positions  # (people,)

    @classmethod
    def from_starts(cls, starts: Positions) -> "Crowd":
        """Person i has the rows starts[i] … starts[i + 1]."""
        sizes = np.diff(starts)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        return cls(owner, sizes)

    @property
    def single(self) -> bool:
        return bool((self.sizes <= 1).all())

    def groups(self, cells: Positions) -> tuple[Positions, Positions, Positions]:
        """Rows of one person in one cell: the order that groups them, where each
        begins, its person's rows.
        """
        order = np.lexsort((cells, self.owner))
        owner = self.owner[order]
        cell = cells[order]
        begins = np.ones(len(order), dtype=np.bool_)
        other_owner = owner[1:] != owner[:-1]
        other_cell = cell[1:] != cell[:-1]
        begins[1:] = other_owner | other_cell
        starts = np.flatnonzero(begins)
        sizes = self.sizes[owner[starts]]
        return order, starts, sizes


def cell_sums(
    rows: Whole,
    cells: Positions,
    count: int,
    crowd: Crowd,
) -> Tensor:
    """Σ over people of their rows' average, cell by cell: int64 (count, d)."""
    if not crowd.single:
        order, starts, sizes = crowd.groups(cells)
        sums = np.add.reduceat(rows[order], starts)
        rows = np.trunc(sums / sizes[:, None])
        cells = cells[order][starts]
    total = np.zeros((count, rows.shape[1]))
    for cell, members in _by_cell(rows, cells, count):
        total[cell] = members.sum(0)
    return torch.from_numpy(total.astype(np.int64))


def cell_moments(
    rows: Whole,
    cells: Positions,
    count: int,
    crowd: Crowd,
) -> Tensor:
    """Σ over people of the average of their rows' q qᵀ, cell by cell: int64 (count, d,
    d).
    """
    d = rows.shape[1]
    total = np.zeros((count, d, d))
    if crowd.single:
        for cell, members in _by_cell(rows, cells, count):
            total[cell] = members.T @ members
        return torch.from_numpy(total.astype(np.int64))
    order, starts, sizes = crowd.groups(cells)
    rows = rows[order]
    cells = cells[order]
    stops = [*starts[1:], len(rows)]
    for start, stop, size in zip(starts, stops, sizes, strict=True):
        members = rows[start:stop]
        average = members.T @ members / size
        total[cells[start]] += np.trunc(average)
    return torch.from_numpy(total.astype(np.int64))


def _by_cell(
    rows: Whole,
    cells: Positions,
    count: int,
) -> Iterator[tuple[int, Whole]]:
    """The rows of each cell that has any."""
    if count == 1:
        yield 0, rows
        return
    order = np.argsort(cells, kind="stable")
    bounds = np.searchsorted(cells[order], np.arange(count + 1))
    populated = np.flatnonzero(np.diff(bounds))
    for cell in populated.tolist():
        members = order[bounds[cell] : bounds[cell + 1]]
        yield cell, rows[members]


def moments_event(multiplier: float) -> DpEvent:
    """What one release costs whose noise is that of `noise_for` this multiplier."""
    return GaussianDpEvent(multiplier) if multiplier else NonPrivateDpEvent()


def noise_for(multiplier: float, sensitivity: float) -> float:
    """The σ of discrete Gaussian noise at which a release of this sensitivity costs no
    more than a Gaussian mechanism with this multiplier.
    Edges: more noise than can be drawn, on the diagonal of second moments, too →
    ConfigError.
    """
    if not multiplier:
        return 0.0
    continuous = multiplier * sensitivity * (1 + 2.0**-30)
    discrete = math.hypot(continuous, SMOOTHING_SCALE)
    sigma = float(rounded_up(max(discrete, _MIN_SIGMA)))
    if sigma > LARGEST / 1.5:
        raise ConfigError(
            f"noise of {sigma:g} is more than can be drawn.",
            effect=Effect.NOTHING_CHARGED,
        )
    return sigma


def doubled(sigma: float) -> Fraction:
    """The noise of a diagonal: √2·σ, never less."""
    if not sigma:
        return Fraction(0)
    return rounded_up(sigma * 2**0.5 * _ROUNDING)


@lru_cache(maxsize=64)
def needed_multipliers(budget: Budget, shares: tuple[float, ...]) -> tuple[float, ...]:
    """Noise multipliers of several Gaussian releases within the budget; shares are of Σ
    1/multiplier², 0: none.
    """
    total = math.fsum(shares)
    positive(**{"the sum of shares": total})
    multiplier = calibrate(
        lambda z: {GaussianDpEvent(z): 1},
        epsilon=budget.epsilon,
        delta=budget.delta,
    )

    def multiplier_of(share: float) -> float:
        return multiplier / math.sqrt(share / total) if share else 0.0

    return tuple(multiplier_of(share) for share in shares)


def one_for(scale: int, columns: int) -> int:
    """What a level counts in a row of so many columns of norm `scale`; 0 above scale²
    columns, which are refused.
    """
    return math.isqrt(scale**2 // columns)


def sensitivity(scale: int, *, across: bool) -> float:
    """The L2 sensitivity of a block to a person with vectors of norm `scale`, in terms
    of its σ; `across`: whether the block multiplies the vectors of two groups.
    """
    factor = 1.0 if across else math.sqrt(0.5)
    return scale**2 * factor * _ROUNDING


def triangle(rows: Whole) -> Tensor:
    """The upper triangle of Σ v vᵀ, exactly: int64, (d(d+1)/2,)."""
    d = rows.shape[1]
    total = np.zeros((d, d), dtype=np.int64)
    # a chunk's sums stay below 2⁵³, where doubles are exact
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        total += (chunk.T @ chunk).astype(np.int64)
    return torch.from_numpy(total[np.triu_indices(d)])


def squares(rows: Whole) -> Whole:
    """Of each row the upper triangle of v vᵀ, flat: (n, d(d+1)/2)."""
    i, j = np.triu_indices(rows.shape[1])
    return np.asarray(rows[:, i] * rows[:, j])


def averages(rows: Whole, starts: Positions) -> Whole:
    """Each person's average over rows starts[i] … starts[i + 1], cut towards zero to
    whole numbers: (people, d).
    """
    sizes = np.diff(starts)
    if (sizes == 1).all():
        return rows
    sums = np.add.reduceat(rows, starts[:-1])
    means = sums / sizes[:, None]
    return np.asarray(np.trunc(means))


def block_multipliers(multiplier: float, weights: Mapping[B, float]) -> dict[B, float]:
    """The noise multiplier of each block of a release that costs as much as one
    Gaussian with this multiplier.
    """
    total = math.fsum(weights.values())
    positive(**{"the sum of weights": total})
    return {
        block: multiplier / math.sqrt(weight / total) * _ROUNDING
        for block, weight in weights.items()
    }
