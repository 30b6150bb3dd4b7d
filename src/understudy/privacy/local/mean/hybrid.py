"""HM, the hybrid mechanism: a coin decides between PM and Duchi et al., for the smallest worst variance.

Wang et al., "Collecting and analyzing multidimensional data with local differential privacy" (ICDE 2019),
§III-C.
Paper → code: ε* → THRESHOLD, α → piecewise_share.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.privacy.local.mean.duchi import DuchiValue
from understudy.privacy.local.mean.piecewise import CELLS, PiecewiseValue, SampledMean
from understudy.privacy.noise import Rng

# ε* ≈ 0.61
THRESHOLD = math.log(
    (-5 + 2 * (6353 - 405 * math.sqrt(241)) ** (1 / 3) + 2 * (6353 + 405 * math.sqrt(241)) ** (1 / 3)) / 27
)


@dataclass(frozen=True)
class HybridValue:
    """One value in [−1, 1].

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

    def variance(self, values: Tensor) -> Tensor:
        """Both are unbiased, so the variances mix; above ε* the sum does not depend on the value."""
        share = self.piecewise_share
        return share * self.piecewise.variance(values) + (1 - share) * self.duchi.variance(values)


class Hybrid(SampledMean):
    """HM for vectors."""

    @property
    def each(self) -> HybridValue:
        return HybridValue(self.epsilon / self.count, self.cells)
