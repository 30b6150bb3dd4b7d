"""People who lie: a simulated share of clients that send something else than what they learned.

Jiang, dissertation, TUM 2024, §5.6.4: "random updates" replace the real update, "sign flip" turns it round; 20 %
of the clients are malicious there.
Differs from the paper: it does not say how long a random update is; here it has the length of the real one.
`scale` makes either attack louder, which a mechanism that sends signs and indices does not hear.

A lie is told before the mechanism, so a liar's report is as private as any other. For rehearsals alone: a
party whose ledger is real refuses it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from understudy.ground.check import in_range, one_of, positive
from understudy.privacy.noise import Rng

KINDS = ("random", "flip")


@dataclass(frozen=True, kw_only=True)
class Poison:
    """Which share of the people lies, and how."""

    kind: str = "random"
    share: float = 0.2
    scale: float = 1.0

    def __post_init__(self) -> None:
        one_of(KINDS, kind=self.kind)
        in_range(0, 1, share=self.share)
        positive(scale=self.scale)

    def liars(self, people: int, seed: int) -> Tensor:
        """True for each of the people who lies: the same ones for the same seed, (people,)."""
        liars = np.zeros(people, dtype=bool)
        liars[np.random.default_rng((seed, people)).permutation(people)[: round(self.share * people)]] = True
        return torch.from_numpy(liars)

    def spoil(self, updates: Tensor, liars: Tensor, rng: Rng) -> None:
        """Put lies into the updates (clients, d) where `liars` (clients,) is true."""
        true = updates[liars]
        if self.kind == "flip":
            updates[liars] = -self.scale * true
            return
        noise = rng.normal(*true.shape, device=updates.device)
        length = true.norm(dim=1, keepdim=True) / noise.norm(dim=1, keepdim=True)
        updates[liars] = self.scale * length * noise
