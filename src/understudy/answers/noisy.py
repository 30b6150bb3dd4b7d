"""Counts under noise of a known size: their standard deviation and 95 % intervals.

An interval is for the noise alone: it covers the holders' own count in 95 of 100 releases. How far the holders' people
stand for others is not in it. It may reach below 0, since noise does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

Z = 1.959964  # of the normal law: 95 % lie within ± so many deviations

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Noisy:
    """Counts and the variance of the noise in each, which is independent. `whole`: sums of whole numbers."""

    counts: Numbers
    variance: Numbers
    whole: bool

    @property
    def deviation(self) -> Numbers:
        """The standard deviation of the noise in each count."""
        return np.sqrt(self.variance)

    @property
    def half(self) -> Numbers:
        """Half the width of each 95 % interval. Whole noise is at most k with the normal law's chance of k + ½."""
        width = Z * self.deviation
        return np.ceil(width - 0.5).clip(min=0) if self.whole else width

    def sum(self, axis: int | tuple[int, ...]) -> "Noisy":
        """Summed over an axis, or some: variances add up."""
        return Noisy(self.counts.sum(axis), self.variance.sum(axis), self.whole)

    def of(self, mask: NDArray[np.bool_]) -> "Noisy":
        """The marked cells; the others count for nothing."""
        return Noisy(self.counts * mask, self.variance * mask, self.whole)

    def moved(self, axes: Sequence[int]) -> "Noisy":
        """With its axes in another order."""
        return Noisy(self.counts.transpose(axes), self.variance.transpose(axes), self.whole)


def mean_of(measured: Sequence[Noisy]) -> Noisy:
    """Several measurements of the same counts as one: their mean, weighted by 1/variance."""
    return reduce(_both, measured)


def _both(a: Noisy, b: Noisy) -> Noisy:
    total = a.variance + b.variance
    weight = np.where(total > 0, a.variance / np.where(total > 0, total, 1.0), 1.0)  # of b
    counts = (1 - weight) * a.counts + weight * b.counts
    return Noisy(counts, (1 - weight) ** 2 * a.variance + weight**2 * b.variance, whole=not total.any())


def bias_of(fitted: Numbers, measured: Noisy) -> float:
    """What a fit is off a cell by, beyond the noise: by its residuals, as a root mean square.

    Edges: a fit that follows the noise has residuals smaller than noise, and 0 then says nothing of it.
    """
    excess = np.mean((fitted - measured.counts) ** 2 - measured.variance)
    return math.sqrt(max(0.0, float(excess)))
