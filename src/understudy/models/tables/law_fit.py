"""Densities of ordered columns, fitted to noisy counts of ranges by penalised
likelihood.

The logarithm f of the people is a number for each of some even bins, and what is least
is

    Σ over all counts of (count − people by f)² / 2σ²
    + κ Σ log(1 + (f″/τ)²)
    + ε Σ (1 − exp(−people of a bin / σ))

The first is the Gaussian likelihood of the counts. The second is a roughness penalty
(Good and Gaskins, Biometrika 1971; Silverman, Ann. Statist. 1982, takes the logarithm
of a density likewise), by which f is a line nearly everywhere, as of a Pareto tail, and
bends where that pays: −log of Student's law of what bends, in place of a normal law's
square. By the third a bin with hardly anybody in it has nobody.

Newton's method with a damped diagonal (Levenberg, 1944; Marquardt, 1963), of many
columns at once.

Guarantee: reads released counts alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]

_LEAST_LOG = -60.0  # of bins that are none: nobody's, which no step changes


@dataclass(frozen=True)
class PenaltySettings:
    """What laws cost besides their likelihood. Values were chosen on further draws of
    the columns in `benchmarks/numbers/tails.py`.

    bends, bend: κ and τ, Student's law of what bends. nobody: ε, what people in a bin
    cost, as far as there are σ of them.
    """

    bends: float = 1.5
    bend: float = 0.3
    nobody: float = 0.5


_PENALTY = PenaltySettings()


class LogDensity(Protocol):
    """What is fitted: `logs` of the people in each bin. Of so many people p the counts
    cost p·square·p/2 − linear·p; `loss` is what is left of all three terms.
    """

    logs: Floats
    loss: float

    @property
    def square(self) -> Floats: ...
    @property
    def linear(self) -> Floats: ...
    @property
    def noise(self) -> float: ...


def fit(laws: Sequence[LogDensity], *, at_once: int = 24) -> None:
    """Newton's method for all of them, so many of about the same size `at_once`."""
    order = sorted(laws, key=lambda law: len(law.logs))
    for first in range(0, len(order), at_once):
        _fit_some(order[first : first + at_once])


def _fit_some(laws: Sequence[LogDensity]) -> None:
    most = max(len(law.logs) for law in laws)
    square = np.zeros((len(laws), most, most))
    linear = np.zeros((len(laws), most))
    logs = np.full((len(laws), most), _LEAST_LOG)
    bends = np.zeros((len(laws), most - 2))
    for place, law in enumerate(laws):
        size = len(law.logs)
        square[place, :size, :size] = law.square
        linear[place, :size] = law.linear
        logs[place, :size] = law.logs
        bends[place, : size - 2] = 1
    noise = torch.tensor([law.noise for law in laws], dtype=torch.float64)
    systems = Systems(
        torch.from_numpy(square),
        torch.from_numpy(linear),
        torch.from_numpy(bends),
        noise[:, None],
    )
    fitted, losses = systems.least(torch.from_numpy(logs))
    for law, fitted_logs, rest in zip(
        laws, fitted.numpy(), losses.tolist(), strict=True
    ):
        law.logs = fitted_logs[: len(law.logs)].copy()
        law.loss = rest


@dataclass(frozen=True, eq=False)
class Systems:
    """Laws of as many bins, at least: those that are none have a constant logarithm,
    and nobody in them. `there`: which second differences are of bins that are some.
    """

    square: Tensor
    linear: Tensor
    there: Tensor
    noise: Tensor

    def some(self, which: Tensor) -> "Systems":
        return Systems(
            self.square[which],
            self.linear[which],
            self.there[which],
            self.noise[which],
        )

    def off(self, logs: Tensor) -> Tensor:
        """What is left of all three terms."""
        people = logs.exp()
        product = (self.square @ people[..., None])[..., 0]
        by_counts = (product / 2 - self.linear).mul(people).sum(1)
        bends = self.there * logs.diff(n=2, dim=1)
        squares = (bends / _PENALTY.bend) ** 2
        by_bends = torch.log1p(squares).sum(1)
        has_somebody = 1 - torch.exp(-people / self.noise)
        left = by_counts + _PENALTY.bends * by_bends
        return left + _PENALTY.nobody * has_somebody.sum(1)

    def step(self, logs: Tensor, damp: Tensor) -> Tensor:
        """The logarithms after one step, no longer than 2 each."""
        people = logs.exp()
        bends = self.there * logs.diff(n=2, dim=1)
        weight = self.there * 2 * _PENALTY.bends / (_PENALTY.bend**2 + bends**2)
        slope = self._slope(people, weight * bends)
        hessian = self._hessian(people, weight)
        diagonal = hessian.diagonal(dim1=1, dim2=2)
        diagonal *= 1 + damp[:, None]
        diagonal += damp[:, None] * 1e-3 + 1e-12
        factor, failed = torch.linalg.cholesky_ex(hessian)
        solved = torch.cholesky_solve(slope[..., None], factor)[..., 0]
        is_solved = (failed == 0)[:, None]
        return logs - torch.where(is_solved, solved, 0.0).clamp(-2, 2)

    def _slope(self, people: Tensor, bent: Tensor) -> Tensor:
        product = (self.square @ people[..., None])[..., 0]
        by_counts = people * (product - self.linear)
        scaled_people = people / self.noise
        by_nobody = _PENALTY.nobody * scaled_people * torch.exp(-scaled_people)
        return by_counts + _transposed_bends(bent) + by_nobody

    def _hessian(self, people: Tensor, weight: Tensor) -> Tensor:
        """Gauss and Newton's, of which no direction is negative."""
        hessian = people[:, :, None] * self.square * people[:, None, :]
        diagonal = hessian.diagonal(dim1=1, dim2=2)
        diagonal += _convolved(weight, (1.0, 4.0, 1.0))
        for offset, parts in ((1, (-2.0, -2.0)), (2, (1.0,))):
            beside = _convolved(weight, parts)
            for side in (offset, -offset):
                other = hessian.diagonal(side, 1, 2)
                other += beside
        return hessian

    def least(
        self,
        logs: Tensor,
        *,
        steps: int = 60,
        tolerance: float = 0.01,
        tries: int = 8,
    ) -> tuple[Tensor, Tensor]:
        """The logarithms with the least left, and what is left, after Newton's `steps`
        at most, or once one gains less than the tolerance, or so many `tries` in a row
        gain nothing, each shorter than the one before.
        """
        losses = self.off(logs)
        damp = torch.full_like(losses, 1e-3)
        failures = torch.zeros_like(losses)
        going = torch.arange(len(logs))
        for _ in range(steps):
            unfinished = self.some(going) if len(going) < len(logs) else self
            tried = unfinished.step(logs[going], damp[going])
            off = unfinished.off(tried)
            gain = losses[going] - off
            is_better = off < losses[going]
            good = going[is_better]
            logs[good] = tried[is_better]
            losses[good] = off[is_better]
            weaker = (damp[going] / 3).clamp(min=1e-9)
            damp[going] = torch.where(is_better, weaker, damp[going] * 4)
            failures[going] = torch.where(is_better, 0.0, failures[going] + 1)
            has_failed = failures[going] >= tries
            is_done = torch.where(is_better, gain < tolerance, has_failed)
            going = going[~is_done]
            if not len(going):
                break
        return logs, losses


def _convolved(weight: Tensor, parts: Sequence[float]) -> Tensor:
    """Σ over parts of each part times the weights, moved on by one each time: so much
    longer than these.
    """
    length = weight.shape[1]
    sums = weight.new_zeros(len(weight), length + len(parts) - 1)
    for place, part in enumerate(parts):
        sums[:, place : place + length] += part * weight
    return sums


def _transposed_bends(parts: Tensor) -> Tensor:
    """The transposed second difference."""
    return _convolved(parts, (1.0, -2.0, 1.0))
