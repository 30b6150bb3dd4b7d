"""People who lie: a simulated share of clients that send something else than what they learned.

Jiang, dissertation, TUM 2024, §5.6.4: "random updates" replace the real update, "sign flip" turns it round; 20 %
of the clients are malicious there.
Differs from the paper: it does not say how long a random update is; here it has the length of the real one.
`scale` makes either attack louder, which a mechanism that sends signs and indices does not hear.

A lie is told before the mechanism, so a liar's report is as private as any other. For rehearsals alone: a
party whose ledger is real refuses it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.ground.check import in_range, known_keys, one_of, positive
from understudy.ground.errors import ConfigError
from understudy.ground.settings import Takes
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

    @classmethod
    def of(cls, told: "Poison | Mapping[str, Any]") -> "Poison":
        """From plain settings, if it is not one already."""
        return told if isinstance(told, Poison) else cls(**told)

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


def _check(poison: Any) -> None:
    if isinstance(poison, Mapping):
        known_keys(poison, (field.name for field in fields(Poison)), "poison")
    elif not isinstance(poison, Poison):
        raise ConfigError(f"poison says who lies by kind, share and scale; it is not {poison!r}.")


POISON = Takes("none, or a table of keys", _check, Poison.of)
