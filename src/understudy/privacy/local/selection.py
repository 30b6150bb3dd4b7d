"""Choose the dimensions that matter, privately: a random sign, the top-k set by signed value, a few indices.

Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022), Algorithm 1, lines 18–25, Theorem 1. Here are those that choose
one index (`Ps`, `Proportional`) or several that are independent (`Naive`); `em_mds` chooses several at once.
Paper → code: d → dims, k → top, h → chosen, S_topk → TopSets, s → Report.values, J → Report.indices, p_sin → share.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError
from understudy.privacy.local.reporter import LocalMechanism, Report, TopSets, categorical, chunks, cohort, fine
from understudy.privacy.noise import Rng


@dataclass(frozen=True, kw_only=True)
class Selection(LocalMechanism, ABC):
    """Tell the server a few dimensions in which the update is large, and the sign of "large".

    Guarantee: ε-LDP for a client's whole update: sign and indices together are at most e^ε times as likely
    under one update as under any other. The sign is a fair coin and does not depend on the update.
    Edges: a non-finite update counts as zero (`reporter.cohort`); ties fall to either side of the top set.
    """

    dims: int
    top: int

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(dims=self.dims, top=self.top)
        if self.top >= self.dims:
            raise ConfigError(f"top must be below dims={self.dims}, not {self.top}.")

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


class Ps(Selection):
    """PS, perturbed sampling: one index, e^ε times likelier to be a given dimension of the top set than a given other.
    Liu, Cao, Yoshikawa, Chen, "FedSel" (DASFAA 2020); SignDS-FL, Algorithm 2, Eq. 3.6–3.7.
    """

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
        return self.epsilon * (hits - 1) - math.log(self.top + (self.dims - self.top) * math.exp(-self.epsilon))

    def choose(self, scores: Tensor, rng: Rng) -> Tensor:
        inside = categorical(self.law, len(scores), rng, scores.device) == 1
        return TopSets.from_scores(scores, self.top).pick(inside[:, None], rng)


@dataclass(frozen=True, kw_only=True)
class Naive(Selection):
    """h times PS, each under ε/h: independent of one another, so that one may come twice. The baseline of SignDS-FL,
    Eq. 3.15 ("SignDS-E" in FedSTDG).
    """

    chosen: int

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(chosen=self.chosen)
        _ = self.single  # a part of epsilon that is too small is found here

    @cached_property
    def single(self) -> Ps:
        return Ps(dims=self.dims, top=self.top, epsilon=self.epsilon / self.chosen)

    @property
    def share(self) -> float:
        return self.single.share

    def log_probability(self, hits: int) -> float:
        """Of one given sequence with `hits` of its places in the top set."""
        return hits * self.single.log_probability(1) + (self.chosen - hits) * self.single.log_probability(0)

    def choose(self, scores: Tensor, rng: Rng) -> Tensor:
        outside = float(self.single.law[0])
        inside = fine(rng, len(scores), self.chosen, device=scores.device) >= outside
        return TopSets.from_scores(scores, self.top).pick(inside, rng, repeat=True)


class Proportional(Selection):
    """One coordinate and its sign, with odds in proportion to what the update holds there.

    PS on 2d signed coordinates, and on a top set that is drawn: k coordinates without replacement, each draw with odds
    |Δ_j|, by an exponential race (Efraimidis, Spirakis, "Weighted random sampling with a reservoir", IPL 2006).
    Differs from SignDS: there the sign is a coin, so that half of all reports say "up" although most of an update may
    point down, and the top set is that of the k largest values, so that a value below the k-th is never told. Both
    bend the mean: a column that 5 % of people have gets about as many reports up as down long before its share is
    reached. Here the mean report of a client is near share · Δ/‖Δ‖₁ while no coordinate holds more than a k-th of
    ‖Δ‖₁, so that reports add up to the mean direction.

    Guarantee: ε-LDP for a client's whole update, sign and index together. For each set that the race may draw the
    choice is PS's, whose odds are within e^ε for any two sets; so they are for any two mixtures of sets.
    Edges: a zero update → the set is any one, and the report noise alone; a coordinate of 0 may fill a set that
    finds fewer than k others, and then has the sign +.
    """

    @property
    def choice(self) -> Ps:
        return Ps(dims=2 * self.dims, top=self.top, epsilon=self.epsilon)

    @property
    def share(self) -> float:
        return self.choice.share

    def log_probability(self, hits: int) -> float:
        """Of one given signed coordinate outside (hits = 0) or inside (1) of the drawn set."""
        return self.choice.log_probability(hits)

    def choose(self, scores: Tensor, rng: Rng) -> Tensor:
        """Signed coordinates: j stands for +j, and d + j for −j."""
        uniform = rng.uniform(*scores.shape, device=scores.device).to(scores.dtype)
        # An exponential of 0 would put a coordinate first whatever it holds, and 0/0 is no rank.
        ranks = scores.abs().div_(torch.log1p(-uniform).neg_().clamp_(min=torch.finfo(scores.dtype).tiny))
        few = ranks.topk(self.top, dim=1, sorted=False).indices
        few += self.dims * (scores.gather(1, few) < 0)
        held = torch.zeros(len(scores), 2 * self.dims, dtype=torch.bool, device=scores.device)
        inside = categorical(self.choice.law, len(scores), rng, scores.device) == 1
        return TopSets(few, held.scatter_(1, few, True), few_is_top=True).pick(inside[:, None], rng)

    def report(self, updates: Tensor, rng: Rng) -> Report:
        updates = cohort(updates, self.dims)
        signed = torch.cat([self.choose(updates[rows], rng) for rows in chunks(updates)])  # (n, 1)
        sign = 1 - 2 * (signed >= self.dims).to(torch.int8)
        return Report(dims=self.dims, values=sign, indices=(signed % self.dims).to(torch.int32))
