"""EM-MDS: choose h important dimensions under ε-LDP.

Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022), Algorithm 3, Eq. 3.8–3.14; for the size h* "FedSTDG"
(Jiang, dissertation, TUM 2024, chapter 5), Eq. 5.4–5.6.
Paper → code: d → dims, k → top, h → chosen, ν → hits, ν_th → threshold, ω_τ / Σω → chance, ς_h → share.
Differs from the paper: the weights ω_τ come from their ratios, in log space, so that d = 10⁷ neither
overflows nor loses digits; h* is the largest size whose share is at least ς* (Eq. 5.6 prints an argmin), and
is searched below a bound instead of up to infinity.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.ground.check import in_range, whole
from understudy.ground.errors import ConfigError
from understudy.privacy.local.selection.base import Selection
from understudy.privacy.local.selection.draw import TopSets, categorical
from understudy.privacy.local.selection.ps import Ps
from understudy.privacy.noise import Rng


@dataclass(frozen=True, kw_only=True)
class EmMds(Selection):
    """`chosen` different indices: a set with `threshold` hits or more is e^ε times likelier than any other.

    Edges: the indices leave in ascending order; the order of drawing would tell which are in the top set.
    """

    chosen: int

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(chosen=self.chosen)
        if self.chosen > self.top:
            raise ConfigError(f"chosen must be at most top={self.top}, not {self.chosen}.")

    @property
    def plan(self) -> "Plan":
        return _plan(self.dims, self.top, self.chosen, self.epsilon)

    @property
    def threshold(self) -> int:
        return self.plan.threshold

    @property
    def share(self) -> float:
        return self.plan.expected_hits / self.chosen

    @property
    def law(self) -> Tensor:
        """The probabilities of 0, …, h hits (Eq. 3.11): (h + 1,)."""
        plan, hits = self.plan, np.arange(self.chosen + 1)
        return torch.from_numpy(
            plan.chance * np.exp(_log_lift(hits, plan.threshold, plan.high, self.epsilon))
        )

    def log_probability(self, hits: int) -> float:
        """Of one given set with `hits` of the top set (Eq. 3.10)."""
        sets = (
            math.lgamma(self.dims + 1)
            - math.lgamma(self.chosen + 1)
            - math.lgamma(self.dims - self.chosen + 1)
        )
        return float(_log_lift(np.array(hits), self.plan.threshold, self.plan.high, self.epsilon)) - sets

    def choose(self, scores: Tensor, rng: Rng) -> Tensor:
        hits = categorical(self.law, len(scores), rng, scores.device)
        inside = torch.arange(self.chosen, device=scores.device) < hits[:, None]
        return TopSets.of(scores, self.top).pick(inside, rng).sort(1).values


class Plan(NamedTuple):
    """What follows from the public settings (d, k, h, ε)."""

    threshold: int  # the one with the most expected hits (Eq. 3.13)
    expected_hits: float
    chance: NDArray[np.float64]  # of 0, …, h hits, were all sets equally likely
    high: float  # the chance of `threshold` hits or more


def largest_size(*, dims: int, top: int, epsilon: float, share: float) -> int:
    """h*: the most indices of which an expected `share` still lies in the top set (Eq. 5.6).

    Why the search ends: a law within e^ε of the uniform one has at most h·k/d + √(hε/2) expected hits
    (Donsker and Varadhan, with Hoeffding's bound). Why h = 1 has the largest share of all: one index of a
    chosen set, drawn at random, is ε-LDP too, and PS is the best mechanism for one index.
    Edges: ConfigError where h = 1 falls short; `top` where indices at random are good enough.
    """
    single = Ps(dims=dims, top=top, epsilon=epsilon).share
    in_range(0, 1, share=share)
    excess = share - top / dims
    if excess <= 0:
        return top
    for chosen in range(min(top, int(epsilon / (2 * excess**2))), 0, -1):
        if _best(_chance(dims, top, chosen), epsilon).expected_hits >= share * chosen:
            return chosen
    needed = math.log(share / (1 - share) * (dims - top) / top) if share < 1 else math.inf
    raise ConfigError(
        f"share={share:g} is out of reach: at epsilon={epsilon:g} an index out of {dims} is in the top {top} "
        f"with a probability of {single:.4g} at most. It takes epsilon={needed:.4g}, or a smaller share."
    )


@cache
def _plan(dims: int, top: int, chosen: int, epsilon: float) -> Plan:
    return _best(_chance(dims, top, chosen), epsilon)


def _best(chance: NDArray[np.float64], epsilon: float) -> Plan:
    """Compare the thresholds 1, …, h by E[ν | ν_th] (Eq. 3.12), whose sums have been divided by e^ε · Σω."""
    tail, hits_tail = (np.cumsum(part[::-1])[::-1] for part in (chance, chance * np.arange(len(chance))))
    low = math.exp(-epsilon)
    expected = (low * hits_tail[0] + (1 - low) * hits_tail[1:]) / (low + (1 - low) * tail[1:])
    best = int(expected.argmax())
    return Plan(best + 1, float(expected[best]), chance, float(tail[best + 1]))


def _log_lift(hits: NDArray[np.int64], threshold: int, high: float, epsilon: float) -> NDArray[np.float64]:
    """Eq. 3.10 against a uniform choice: e^ε·𝟙(ν ≥ ν_th) / Ω, times the number of sets."""
    low = math.exp(-epsilon)
    return np.where(hits >= threshold, 0.0, -epsilon) - math.log(low + (1 - low) * high)


def _chance(dims: int, top: int, chosen: int) -> NDArray[np.float64]:
    """ω_τ / Σω for τ = 0, …, h, from ω_{τ+1} / ω_τ = (k − τ)(h − τ) / ((τ + 1)(d − k − h + τ + 1))."""
    least = max(0, chosen - (dims - top))
    hits = np.arange(least, chosen, dtype=np.float64)
    up, down = (top - hits) * (chosen - hits), (hits + 1) * (dims - top - chosen + hits + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(up) - np.log(down))])
    weights = np.exp(logs - logs.max())
    return np.concatenate([np.zeros(least), weights / weights.sum()])
