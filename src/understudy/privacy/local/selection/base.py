"""What the choosing mechanisms share: a random sign, the top-k set by signed value, a few indices.

Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022), Algorithm 1, lines 18–25, Theorem 1.
Paper → code: d → dims, k → top, h → chosen, S_topk → TopSets, s → Report.values, J → Report.indices.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.local.reporter import Report, check_epsilon, chunks, cohort
from understudy.privacy.noise import Rng


@dataclass(frozen=True, kw_only=True)
class Selection(ABC):
    """Tell the server a few dimensions in which the update is large, and the sign of "large".

    Guarantee: ε-LDP for a client's whole update: sign and indices together are at most e^ε times as likely
    under one update as under any other. The sign is a fair coin and does not depend on the update.
    Edges: a non-finite update counts as zero (`reporter.cohort`); ties fall to either side of the top set.
    """

    dims: int
    top: int
    epsilon: float

    def __post_init__(self) -> None:
        whole(dims=self.dims, top=self.top)
        check_epsilon(self.epsilon)
        if self.top >= self.dims:
            raise ConfigError(f"top must be below dims={self.dims}, not {self.top}.")

    @property
    def event(self) -> PureDp:
        return PureDp(self.epsilon)

    @property
    @abstractmethod
    def share(self) -> float:
        """The expected share of the sent indices that lie in the top set."""

    @abstractmethod
    def choose(self, scores: Tensor, rng: Rng) -> Tensor:
        """The indices of every row: (n, h)."""

    def report(self, updates: Tensor, rng: Rng) -> Report:
        updates = cohort(updates, self.dims)
        sign = 1 - 2 * rng.integers(2, len(updates), 1, device=updates.device)  # (n, 1)
        # The k smallest values are the k largest of the negated update.
        parts = [self.choose(updates[rows] * sign[rows], rng) for rows in chunks(updates)]
        indices = torch.cat(parts).to(torch.int32)
        return Report(dims=self.dims, values=sign.to(torch.int8), indices=indices)
