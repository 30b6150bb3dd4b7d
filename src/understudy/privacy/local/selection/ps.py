"""PS, perturbed sampling: choose one important dimension under ε-LDP.

Liu, Cao, Yoshikawa, Chen, "FedSel" (DASFAA 2020); as Algorithm 2, Eq. 3.6–3.7 of Jiang, Zhou, Grossklags,
"SignDS-FL" (ACM TIST 2022).
Paper → code: d → dims, k → top, p_sin → share.
"""

import math

import torch
from torch import Tensor

from understudy.privacy.local.selection.base import Selection
from understudy.privacy.local.selection.draw import TopSets, categorical
from understudy.privacy.noise import Rng


class Ps(Selection):
    """One index: e^ε times likelier to be a given dimension of the top set than a given other one."""

    @property
    def share(self) -> float:
        return float(self.law[1])

    @property
    def law(self) -> Tensor:
        """The probabilities that the index lies outside and inside of the top set: (2,)."""
        outside = (self.dims - self.top) * math.exp(self.log_probability(0))
        inside = self.top * math.exp(self.log_probability(1))
        return torch.tensor([outside, inside], dtype=torch.float64)

    def log_probability(self, hits: int) -> float:
        """Of one given dimension outside (hits = 0) or inside (1) of the top set."""
        return self.epsilon * (hits - 1) - math.log(
            self.top + (self.dims - self.top) * math.exp(-self.epsilon)
        )

    def choose(self, scores: Tensor, rng: Rng) -> Tensor:
        inside = categorical(self.law, len(scores), rng, scores.device) == 1
        return TopSets.of(scores, self.top).pick(inside[:, None], rng)
