"""The exponential mechanism: choose one of several candidates, likelier the higher it scores, drawn exactly.

McSherry, Talwar, "Mechanism design via differential privacy" (FOCS 2007): candidate i with probability ∝ exp(ε sᵢ/2Δ),
where a person moves no score by more than Δ. Scores are whole numbers and ε is a fraction, so that a candidate can be
proposed evenly and kept with probability exp(−ε(max s − sᵢ)/2Δ) by comparisons of random whole numbers alone
(`laplace.bernoulli_exp`): no floating point has a say in what is drawn.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from understudy.ground.check import positive, whole
from understudy.ground.errors import ConfigError
from understudy.privacy.noise.discrete import bernoulli_exp
from understudy.privacy.noise.rng import Rng

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_MOST = 2**20  # of a scale's denominator
_FAR = 2**40  # times 2²⁰ is still a whole number of 64 bits


@dataclass(frozen=True)
class Exponential:
    """A choice at ε = 1/`scale`, where a person moves each score by at most `sensitivity`; see `rounded_up` for scales.

    Guarantee: ε-DP, given that `rng` is a secure source.
    Edges: no candidates, or scores that are not whole numbers → ValueError before anything is drawn. A score that lies
    2⁴⁰ below the highest counts as if it lay just there: max(sᵢ, max s − 2⁴⁰) moves by no more than s does.
    """

    scale: Fraction
    sensitivity: int = 1

    def __post_init__(self) -> None:
        positive(scale=float(self.scale))
        whole(sensitivity=self.sensitivity)
        if (denominator := 2 * self.sensitivity * self.scale.numerator) > 2**40:
            raise ConfigError(f"a choice this even cannot be drawn exactly: 1/{denominator} of a score.")
        if self.scale.denominator > _MOST:
            raise ConfigError(f"a choice this sure cannot be drawn exactly: scale = {float(self.scale):g}.")

    @property
    def event(self) -> "DpEvent":
        from understudy.privacy.accounts.accounting import PureDp

        return PureDp(float(1 / self.scale))

    def __call__(self, scores: Tensor, rng: Rng) -> int:
        """The place of the chosen candidate among the scores (candidates,)."""
        return int(self.draw(scores, 1, rng))

    def draw(self, scores: Tensor, n: int, rng: Rng) -> Tensor:
        """n independent choices, each at the whole price: int64, (n,)."""
        if scores.ndim != 1 or not len(scores) or scores.is_floating_point():
            raise ValueError(
                f"scores must be whole numbers, one or more, not {scores.dtype} {tuple(scores.shape)}."
            )
        scores = scores.long()
        gap = (scores.max() - scores).clamp_(max=_FAR) * self.scale.denominator
        chosen = torch.empty(0, dtype=torch.int64)
        while len(chosen) < n:
            proposed = rng.integers(len(scores), 2 * n * len(scores))
            kept = bernoulli_exp(gap[proposed], 2 * self.sensitivity * self.scale.numerator, rng)
            chosen = torch.cat([chosen, proposed[kept]])
        return chosen[:n]


def best(scores: Tensor) -> int:
    """The highest score's place, without any privacy: what the mechanism does as ε grows."""
    return int(torch.argmax(scores))
