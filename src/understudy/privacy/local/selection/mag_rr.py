"""MagRR: lower the server's learning rate once most clients' updates have become small.

"FedSTDG", Algorithm 7, Eq. 5.8–5.10 (Jiang, dissertation, TUM 2024, chapter 5).
Paper → code: γ → rate, r → decay, b̂ → flags, T_pat → patience, t_pat → waited.
Where the paper's text ("more than half", "more than T_pat rounds") and its Algorithm 7 (≥) differ, this is
Algorithm 7. The share of flags needs no correction: randomized response keeps its expectation on the same
side of one half.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from understudy.ground.check import in_range, positive, whole
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.local.reporter import check_epsilon, cohort, fine
from understudy.privacy.noise import Rng


@dataclass(frozen=True, kw_only=True)
class MagRr:
    """One bit a client: is the largest value of the update below r·γ? By randomized response.

    Guarantee: ε-LDP for a client's whole update. γ and r are public.
    Edges: a non-finite update counts as zero (`reporter.cohort`).
    """

    epsilon: float
    decay: float = 0.5

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        positive(decay=self.decay)
        in_range(0, 1, decay=self.decay)

    @property
    def event(self) -> PureDp:
        return PureDp(self.epsilon)

    @property
    def flip(self) -> float:
        """The probability of the wrong answer (Eq. 5.8)."""
        return 1 / (math.exp(self.epsilon) + 1)

    def flags(self, updates: Tensor, rate: float, rng: Rng) -> Tensor:
        """The bits that are sent: (n,), bool."""
        positive(rate=rate)
        small = cohort(updates).abs().amax(1) < self.decay * rate
        return small ^ (fine(rng, len(updates), device=updates.device) < self.flip)


@dataclass(kw_only=True)
class RateDecay:
    """The server's side: multiply the rate by r after `patience` rounds in a row in which half say "small".

    Edges: a round without flags changes nothing.
    """

    rate: float
    decay: float = 0.5
    patience: int = 50
    waited: int = 0

    def __post_init__(self) -> None:
        positive(rate=self.rate, decay=self.decay)
        in_range(0, 1, decay=self.decay)
        whole(patience=self.patience)

    def step(self, flags: Tensor) -> float:
        """Count a round's flags; the rate for the next round."""
        if not len(flags):
            return self.rate
        self.waited = self.waited + 1 if 2 * int(flags.sum()) >= len(flags) else 0
        if self.waited == self.patience:
            self.rate, self.waited = self.rate * self.decay, 0
        return self.rate
