"""Proportional choice: one coordinate and its sign, with odds in proportion to what the update holds there.

PS (`ps.py`; Liu et al., DASFAA 2020) on 2d signed coordinates, and on a top set that is drawn: k coordinates without
replacement, each draw with odds |Δ_j|, by an exponential race (Efraimidis, Spirakis, "Weighted random sampling with a
reservoir", IPL 2006).
Paper → code: d → dims, k → top, Δ → updates, p → share.
Differs from SignDS (Jiang, Zhou, Grossklags, ACM TIST 2022): there the sign is a coin, so that half of all reports
say "up" although most of an update may point down, and the top set is that of the k largest values, so that a value
below the k-th is never told. Both bend the mean: a column that 5 % of people have gets about as many reports up as
down long before its share is reached. Here the mean report of a client is near share · Δ/‖Δ‖₁ while no coordinate
holds more than a k-th of ‖Δ‖₁, so that reports add up to the mean direction.
"""

import torch
from torch import Tensor

from understudy.privacy.local.reporter import Report, chunks, cohort
from understudy.privacy.local.selection.base import Selection
from understudy.privacy.local.selection.draw import TopSets, categorical
from understudy.privacy.local.selection.ps import Ps
from understudy.privacy.noise import Rng


class Proportional(Selection):
    """One signed coordinate out of 2d: e^ε times likelier to be a given one of the drawn set than a given other one.

    Guarantee: ε-LDP for a client's whole update, sign and index together. For each set that the race may draw the
    choice is PS's, whose odds are within e^ε for any two sets; so they are for any two mixtures of sets.
    Edges: a zero update → the set is any one, and the report noise alone; a coordinate of 0 may fill a set that
    finds fewer than k others, and then has the sign +.
    """

    @property
    def choice(self) -> Ps:
        """PS over the signed coordinates."""
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
