"""h times PS: the plain way to choose several dimensions, each under ε/h.

The baseline of Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022), Eq. 3.15 ("SignDS-E" in FedSTDG).
Paper → code: d → dims, k → top, h → chosen, p_sin → share.
"""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from understudy.ground.check import whole
from understudy.privacy.local.reporter import fine
from understudy.privacy.local.selection.base import Selection
from understudy.privacy.local.selection.draw import TopSets
from understudy.privacy.local.selection.ps import Ps
from understudy.privacy.noise import Rng


@dataclass(frozen=True, kw_only=True)
class Naive(Selection):
    """`chosen` indices, independent of one another, so that one may come twice."""

    chosen: int

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(chosen=self.chosen)
        _ = self.each  # a part of epsilon that is too small is found here

    @cached_property
    def each(self) -> Ps:
        """The mechanism behind every one of the indices."""
        return Ps(dims=self.dims, top=self.top, epsilon=self.epsilon / self.chosen)

    @property
    def share(self) -> float:
        return self.each.share

    def log_probability(self, hits: int) -> float:
        """Of one given sequence with `hits` of its places in the top set."""
        return hits * self.each.log_probability(1) + (self.chosen - hits) * self.each.log_probability(0)

    def choose(self, scores: Tensor, rng: Rng) -> Tensor:
        outside = float(self.each.law[0])
        inside = fine(rng, len(scores), self.chosen, device=scores.device) >= outside
        return TopSets.of(scores, self.top).pick(inside, rng, repeat=True)
