"""PM, the piecewise mechanism: a value that is likely near the true one, for a few random coordinates.

Wang et al., "Collecting and analyzing multidimensional data with local differential privacy" (ICDE 2019),
Algorithms 2 and 4; the width of the likely piece is free, as in Zhao et al., "Local differential privacy
based federated learning for internet of things" (IEEE IoT-J 2020).
Paper → code: ℓ(t) and r(t) → the first and last cell of the window, C → the value of the outermost cell,
k → sampled, the t of Zhao et al. → outer / inner.
Differs from the paper: the answer is one of finitely many cells and is drawn with integers. A float computed
as ℓ(t) + u·(r(t) − ℓ(t)) carries the last digits of t; a cell does not. Whatever the number of cells, this is
exactly ε-LDP and unbiased; with 4096 in the window the variance is the paper's to 0.01 %.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from understudy.ground.check import in_range, whole
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.local.reporter import Report, check_clip, check_epsilon, cohort, fine, within
from understudy.privacy.local.selection.draw import distinct
from understudy.privacy.noise import Rng

CELLS = 4096
_MOST_INNER = 2**40
_MOST_CELLS = 2**50  # up to here every cell number is an exact float


class ValueMechanism(Protocol):
    """An ε-LDP, unbiased answer for each single value in [−1, 1]."""

    def __call__(self, values: Tensor, rng: Rng) -> Tensor: ...

    def variance(self, values: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class PiecewiseValue:
    """One value in [−1, 1] as a cell: each of the `inner` cells around it is e^ε times likelier than another.

    Guarantee: ε-LDP, unbiased.
    """

    epsilon: float
    window: float = 1 / 2  # all others together are e^(window · ε) times as many
    inner: int = CELLS

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        whole(cells=self.inner)
        in_range(1, _MOST_INNER, cells=self.inner)

    @property
    def outer(self) -> int:
        return min(round(self.inner * math.exp(self.window * self.epsilon)), _MOST_CELLS)

    @property
    def outside(self) -> float:
        """The probability of all cells outside of the window."""
        return self.outer * math.exp(self.log_probability(inside=False))

    def log_probability(self, *, inside: bool) -> float:
        """Of one given cell inside or outside of the window."""
        return self.epsilon * inside - math.log(self.outer + math.exp(self.epsilon) * self.inner)

    @property
    def step(self) -> float:
        """The distance of two cells that makes the answer unbiased."""
        return 2 / ((1 - math.exp(-self.epsilon)) * (1 - self.outside) * self.outer)

    def __call__(self, values: Tensor, rng: Rng) -> Tensor:
        shape, device = values.shape, values.device
        first = self.first(values, rng.uniform(*shape, device=device))
        inside = first + rng.integers(self.inner, *shape, device=device)
        other = rng.integers(self.outer, *shape, device=device)
        other += self.inner * (other >= first)  # leave the window out
        cell = torch.where(fine(rng, *shape, device=device) < self.outside, other, inside)
        return self.value(cell)

    def first(self, values: Tensor, uniform: Tensor) -> Tensor:
        """The window's first cell, 0 to `outer`, rounded up or down at random so that its mean is exact."""
        exact = (values.to(torch.float64) + 1) * (self.outer / 2)
        return (exact + uniform).floor().clamp_(0, self.outer).to(torch.int64)

    def value(self, cell: Tensor) -> Tensor:
        return (cell.to(torch.float64) - (self.inner + self.outer - 1) / 2) * self.step

    def variance(self, values: Tensor) -> Tensor:
        """As in Zhao et al.; with window = 1/2 that of Wang et al. For infinitely many cells."""
        e, t = math.exp(self.epsilon), math.exp(self.window * self.epsilon)
        least = (e + t) * ((t + 1) ** 3 + e - 1) / (3 * t**2 * (e - 1) ** 2)
        return values**2 * (t + 1) / (e - 1) + least


@dataclass(frozen=True, kw_only=True)
class SampledMean(ABC):
    """Answers for `sampled` random coordinates of a vector in [−clip, clip]^d, each under its part of ε.

    Guarantee: ε-LDP for the whole vector; unbiased for the clipped one.
    Edges: values outside are clipped; a non-finite update counts as zero (`reporter.cohort`).
    """

    dims: int
    epsilon: float
    clip: float = 1.0
    sampled: int | None = None  # None: max(1, min(d, ⌊ε/2.5⌋)), which Wang et al. found best
    cells: int = CELLS  # in the window of PM

    def __post_init__(self) -> None:
        whole(dims=self.dims)
        check_clip(self.clip)
        check_epsilon(self.epsilon)
        whole(sampled=self.count)
        if self.count > self.dims:
            raise ConfigError(f"sampled must be at most dims={self.dims}, not {self.sampled}.")
        _ = self.each  # a part of epsilon that is too small is found here

    @property
    def event(self) -> PureDp:
        return PureDp(self.epsilon)

    @property
    def count(self) -> int:
        return max(1, min(self.dims, int(self.epsilon / 2.5))) if self.sampled is None else self.sampled

    @property
    @abstractmethod
    def each(self) -> ValueMechanism:
        """The mechanism for every one of the coordinates, under ε / count."""

    def report(self, updates: Tensor, rng: Rng) -> Report:
        updates = cohort(updates, self.dims)
        indices = distinct(rng, self.dims, len(updates), self.count, updates.device)
        answers = self.each(within(updates.gather(1, indices), self.clip), rng)
        scale = self.dims / self.count * self.clip
        return Report(
            dims=self.dims, values=answers.to(torch.float32), indices=indices.to(torch.int32), scale=scale
        )

    def variance(self, values: Tensor) -> Tensor:
        """Of one client's claim about each coordinate of its clipped update."""
        square = self.each.variance(values / self.clip) * self.clip**2 + values**2
        return self.dims / self.count * square - values**2


class Piecewise(SampledMean):
    """PM for vectors."""

    @property
    def each(self) -> PiecewiseValue:
        return PiecewiseValue(self.epsilon / self.count, inner=self.cells)
