"""Noisy values for a few coordinates: PM, PM-SUB and HM at random ones, FedSel at a large one.

- PM, the piecewise mechanism, a value that is likely near the true one, and HM: Wang et al., "Collecting and analyzing
  multidimensional data with local differential privacy" (ICDE 2019), Algorithms 2 and 4, §III-C.
- PM-SUB, with the narrower window that suits a larger ε: Zhao et al., "Local differential privacy based federated
  learning for internet of things" (IEEE IoT-J 2020): t = e^(ε/3) where Wang et al. have e^(ε/2).
- FedSel: Liu, Cao, Yoshikawa, Chen, "FedSel" (DASFAA 2020), without its gradient accumulation on the client.

Paper → code: ℓ(t) and r(t) → the first and last cell of the window, C → the value of the outermost cell, k → sampled,
the t of Zhao et al. → outer / inner; ε* → THRESHOLD, α → piecewise_share; ε₁ → split · ε, ε₂ → (1 − split) · ε.
Differs from the papers: the answer is one of finitely many cells and is drawn with integers. A float computed
as ℓ(t) + u·(r(t) − ℓ(t)) carries the last digits of t; a cell does not. Whatever the number of cells, this is
exactly ε-LDP and unbiased; with 4096 in the window the variance is the paper's to 0.01 %.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from understudy.ground.check import in_range, positive, whole
from understudy.ground.errors import ConfigError
from understudy.privacy.local.duchi import DuchiValue
from understudy.privacy.local.reporter import (
    MeanMechanism,
    Report,
    check_epsilon,
    chunks,
    cohort,
    distinct,
    fine,
    within,
)
from understudy.privacy.local.selection import Ps
from understudy.privacy.noise import Rng

CELLS = 4096
_MOST_INNER = 2**40
_MOST_CELLS = 2**50  # up to here every cell number is an exact float
# ε* ≈ 0.61
THRESHOLD = math.log(
    (-5 + 2 * (6353 - 405 * math.sqrt(241)) ** (1 / 3) + 2 * (6353 + 405 * math.sqrt(241)) ** (1 / 3)) / 27
)


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


@dataclass(frozen=True)
class HybridValue:
    """HM: a coin decides between PM and Duchi et al., for the smallest worst variance.

    Guarantee: ε-LDP, unbiased. Which of the two mechanisms answered may be seen, and says nothing.
    """

    epsilon: float
    inner: int = CELLS

    def __post_init__(self) -> None:
        _ = self.piecewise, self.duchi  # these check epsilon and cells

    @property
    def piecewise(self) -> PiecewiseValue:
        return PiecewiseValue(self.epsilon, inner=self.inner)

    @property
    def duchi(self) -> DuchiValue:
        return DuchiValue(self.epsilon)

    @property
    def piecewise_share(self) -> float:
        return 1 - math.exp(-self.epsilon / 2) if self.epsilon > THRESHOLD else 0.0

    def __call__(self, values: Tensor, rng: Rng) -> Tensor:
        piecewise = rng.uniform(*values.shape, device=values.device) < self.piecewise_share
        return torch.where(piecewise, self.piecewise(values, rng), self.duchi(values, rng))


@dataclass(frozen=True, kw_only=True)
class SampledMean(MeanMechanism, ABC):
    """Answers for `sampled` random coordinates of a vector, each under its part of ε.

    Guarantee: ε-LDP for the whole vector; unbiased for the clipped one.
    """

    sampled: int | None = None  # None: max(1, min(d, ⌊ε/2.5⌋)), which Wang et al. found best
    cells: int = CELLS  # in the window of PM

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(sampled=self.count)
        if self.count > self.dims:
            raise ConfigError(f"sampled must be at most dims={self.dims}, not {self.sampled}.")
        _ = self.single  # a part of epsilon that is too small is found here

    @property
    def count(self) -> int:
        return max(1, min(self.dims, int(self.epsilon / 2.5))) if self.sampled is None else self.sampled

    @property
    @abstractmethod
    def single(self) -> Callable[[Tensor, Rng], Tensor]:
        """The mechanism for every one of the coordinates, under ε / count."""

    def report(self, updates: Tensor, rng: Rng) -> Report:
        updates = cohort(updates, self.dims)
        indices = distinct(rng, self.dims, len(updates), self.count, updates.device)
        answers = self.single(within(updates.gather(1, indices), self.clip), rng)
        return self.claims(answers, indices, self.dims / self.count * self.clip)


class Piecewise(SampledMean):
    @property
    def single(self) -> PiecewiseValue:
        return PiecewiseValue(self.epsilon / self.count, inner=self.cells)


class PmSub(SampledMean):
    @property
    def single(self) -> PiecewiseValue:
        return PiecewiseValue(self.epsilon / self.count, window=1 / 3, inner=self.cells)


class Hybrid(SampledMean):
    @property
    def single(self) -> HybridValue:
        return HybridValue(self.epsilon / self.count, self.cells)


@dataclass(frozen=True, kw_only=True)
class FedSel(MeanMechanism):
    """One index, from the k largest by absolute value rather than not (PS), and a noisy value for it (PM).

    Guarantee: ε-LDP for a client's whole update, by composition of the two stages.
    Edges: not an unbiased mean: a coordinate that is often chosen weighs more.
    """

    top: int
    split: float = 0.5  # the share of ε for the choice; 0.1 and 0.5 in SignDS-FL's comparison
    cells: int = CELLS  # in the window of PM

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(split=self.split)
        if self.split >= 1:
            raise ConfigError(f"split must be below 1, not {self.split!r}: the value needs a part of epsilon.")
        _ = self.choice, self.value  # these check dims, top, cells, and their parts of epsilon

    @cached_property
    def choice(self) -> Ps:
        return Ps(dims=self.dims, top=self.top, epsilon=self.split * self.epsilon)

    @cached_property
    def value(self) -> PiecewiseValue:
        return PiecewiseValue((1 - self.split) * self.epsilon, inner=self.cells)

    def report(self, updates: Tensor, rng: Rng) -> Report:
        updates = cohort(updates, self.dims)
        indices = torch.cat([self.choice.choose(updates[rows].abs(), rng) for rows in chunks(updates)])
        answers = self.value(within(updates.gather(1, indices), self.clip), rng)
        return self.claims(answers, indices, self.clip)
