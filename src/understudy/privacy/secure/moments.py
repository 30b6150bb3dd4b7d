"""Moments of bounded whole-number vectors, summed over people: what is counted, by how much one person moves it, and
what its release under noise costs.

A row is a vector q of whole numbers with ‖q‖² ≤ R², in one of several cells (classes, or parts of them). Summed, cell
by cell, are

    a count       w for each row
    a mean        q
    moments       the upper triangle of q qᵀ

A person counts once: the average over the person's rows, each entry cut towards zero to a whole number. An average of
vectors is no longer than the longest of them, and neither is one whose entries were cut.

*Moments.* With noise of scale σ beside the diagonal and √2·σ on it, what counts is Σ_{i<j} (q_i q_j)² + Σ_i q_i⁴/2 =
‖q‖⁴/2 ≤ R⁴/2: a person moves such a triangle by at most R²/√2 in terms of σ.

*Price.* Discrete Gaussian noise of scale σ on whole numbers that one person moves by Δ in L2 costs no more than
continuous noise of scale a = √(σ² − 9) would. For let Y = μ + N(0, a²) for a whole μ, and draw Z from the discrete
Gaussian of scale 3 about Y. The normaliser θ(y) of the latter is 3√(2π)(1 ± η) for every y, with η < 2.1·e^(−18π²) <
10⁻⁷⁶ (Poisson's formula), so that P(Z = z) is the density at z of N(μ, σ²) up to a factor of (1 ± η)^±1, and so
is the probability of z under the discrete Gaussian of scale σ about μ. Over c cells the release is thus, but for
e^±τ in every probability with τ < 10⁻⁷⁵ c, made of the output of the Gaussian mechanism with noise a, which is
post-processing. The sum of shares of it that holders add is as near to one discrete Gaussian (`sums`).
So Gaussian accounting is exact to more digits than any ε has, where zCDP would lose a twelfth of it.

Guarantee: every function here returns whole numbers that one person, with all rows, moves by at most what `reach`
says, whatever the rows hold: who would move them by more, or is not a number, counts as zeros.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import torch
from dp_accounting import DpEvent, GaussianDpEvent, NonPrivateDpEvent
from numpy.typing import NDArray
from torch import Tensor

from understudy.ground.check import positive
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import calibrate
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import rounded_up

Whole = NDArray[np.float64]  # whole numbers below 2⁵³
Places = NDArray[np.int64]

LARGEST = float(2**20)  # noise that can be drawn
_SMOOTH = 3.0  # the scale whose square the proof above takes off
_LEAST = 16.0  # of a scale: below it that would be felt


def bounded(rows: Whole, radius: float, scale: int) -> Whole:
    """Rows (n, d) in which `radius` becomes `scale`, as whole numbers; longer ones are pulled in to it.

    Guarantee: every row that comes out has a norm of at most `scale`, and depends on that row alone.
    Edges: a row that is not finite → zeros.
    """
    norms = np.sqrt(np.square(rows).sum(1))
    with np.errstate(all="ignore"):
        scaled = rows * (scale / np.maximum(norms, radius))[:, None]
    near = np.rint(scaled)
    near = np.where(_within(near, scale), near, np.trunc(scaled))
    return np.where(_within(near, scale), near, 0.0)


def _within(rows: Whole, scale: int) -> NDArray[np.bool_]:
    with np.errstate(all="ignore"):
        return np.asarray(np.square(rows).sum(1, keepdims=True) <= scale**2)


@dataclass(frozen=True)
class Crowd:
    """Whose rows they are, person after person: of each row the person's place, and how many rows that person has."""

    owner: Places  # (rows,), rising
    sizes: Places  # (people,)

    @classmethod
    def of(cls, starts: Places) -> "Crowd":
        """Person i has the rows starts[i] … starts[i + 1]."""
        sizes = np.diff(starts)
        return cls(np.repeat(np.arange(len(sizes)), sizes), sizes)

    @property
    def single(self) -> bool:
        """Nobody has more than one row."""
        return bool((self.sizes <= 1).all())

    def groups(self, cells: Places) -> tuple[Places, Places, Places]:
        """Rows of one person in one cell are a group: the order that brings them together, where each begins, and how
        many rows its person has.
        """
        order = np.lexsort((cells, self.owner))
        owner, cell = self.owner[order], cells[order]
        fresh = np.concatenate([[True], (owner[1:] != owner[:-1]) | (cell[1:] != cell[:-1])])[: len(order)]
        firsts = np.flatnonzero(fresh)
        return order, firsts, self.sizes[owner[firsts]]


def cell_sums(rows: Whole, cells: Places, count: int, crowd: Crowd) -> Tensor:
    """Σ over people of their rows' average, cell by cell: int64 (count, d)."""
    if not crowd.single:
        order, firsts, sizes = crowd.groups(cells)
        rows, cells = np.trunc(np.add.reduceat(rows[order], firsts) / sizes[:, None]), cells[order][firsts]
    total = np.zeros((count, rows.shape[1]))
    for cell, here in _by_cell(rows, cells, count):
        total[cell] = here.sum(0)
    return torch.from_numpy(total.astype(np.int64))


def cell_moments(rows: Whole, cells: Places, count: int, crowd: Crowd) -> Tensor:
    """Σ over people of the average of their rows' q qᵀ, cell by cell: int64 (count, d, d)."""
    total = np.zeros((count, rows.shape[1], rows.shape[1]))
    if crowd.single:
        for cell, here in _by_cell(rows, cells, count):
            total[cell] = here.T @ here
        return torch.from_numpy(total.astype(np.int64))
    order, firsts, sizes = crowd.groups(cells)
    rows, cells = rows[order], cells[order]
    for first, last, size in zip(firsts, [*firsts[1:], len(rows)], sizes, strict=True):
        here = rows[first:last]
        total[cells[first]] += np.trunc(here.T @ here / size)
    return torch.from_numpy(total.astype(np.int64))


def _by_cell(rows: Whole, cells: Places, count: int) -> Iterator[tuple[int, Whole]]:
    """The rows of each cell that has any."""
    if count == 1:
        yield 0, rows
        return
    order = np.argsort(cells, kind="stable")
    ends = np.searchsorted(cells[order], np.arange(count + 1))
    for cell in np.flatnonzero(np.diff(ends)).tolist():
        yield cell, rows[order[ends[cell] : ends[cell + 1]]]


def moments_event(multiplier: float) -> DpEvent:
    """What one release costs whose noise is that of `noise_for` this multiplier."""
    return GaussianDpEvent(multiplier) if multiplier else NonPrivateDpEvent()


def noise_for(multiplier: float, reach: float) -> float:
    """The σ at which a release that a person moves by `reach` costs no more than a Gaussian with this multiplier.

    Edges: more noise than can be drawn, on the diagonal of second moments, too → ConfigError.
    """
    if not multiplier:
        return 0.0
    sigma = float(rounded_up(max(math.hypot(multiplier * reach * (1 + 2.0**-30), _SMOOTH), _LEAST)))
    if sigma > LARGEST / 1.5:
        raise ConfigError(f"noise of {sigma:g} is more than can be drawn. Nothing was charged.")
    return sigma


def doubled(sigma: float) -> Fraction:
    """The noise of a diagonal: √2·σ, never less."""
    return rounded_up(sigma * 2**0.5 * (1 + 2.0**-40)) if sigma else Fraction(0)


@lru_cache(maxsize=64)
def needed_multipliers(budget: Budget, shares: tuple[float, ...]) -> tuple[float, ...]:
    """The noise multiplier of each of several Gaussian releases that are within the budget together.

    A share is that of Σ 1/multiplier², which is what Gaussian releases spend; a share of 0 is no release.
    """
    positive(**{"the sum of shares": math.fsum(shares)})
    found = calibrate(lambda z: {GaussianDpEvent(z): 1}, epsilon=budget.epsilon, delta=budget.delta)
    total = math.fsum(shares)
    return tuple(found / math.sqrt(share / total) if share else 0.0 for share in shares)
