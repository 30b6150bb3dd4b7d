"""EM-MDS: choose h important dimensions under ε-LDP. SubMDS: choose more, of a random part. MagRR: when to slow down.

Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022), Algorithm 3, Eq. 3.8–3.14; "FedSTDG" (Jiang, dissertation, TUM
2024, chapter 5), Eq. 5.4–5.6 for the size h*, Algorithm 6 for SubMDS, Algorithm 7 and Eq. 5.8–5.10 for MagRR.
Paper → code: d → dims, k → top, h → chosen, ν → hits, ν_th → threshold, ω_τ / Σω → chance, ς_h → share; ρ → rate,
d̃ → inputs, ς* → wanted, ν_th* → inner.threshold; γ → rate, r → decay, b̂ → flags, T_pat → patience, t_pat → waited.
Differs from the papers: the weights ω_τ come from their ratios, in log space, so that d = 10⁷ neither overflows nor
loses digits; h* is the largest size whose share is at least ς* (Eq. 5.6 prints an argmin), and is searched below a
bound instead of up to infinity. Where the text of MagRR ("more than half", "more than T_pat rounds") and Algorithm 7
(≥) differ, this is Algorithm 7. Its share of flags needs no correction: randomized response keeps its expectation on
the same side of one half.
"""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.ground.check import in_range, positive, whole
from understudy.ground.errors import ConfigError
from understudy.privacy.local.reporter import LocalMechanism, TopSets, categorical, cohort, fine, subset
from understudy.privacy.local.selection import Ps, Selection
from understudy.privacy.noise import Rng


@dataclass(frozen=True, kw_only=True)
class EmMds(Selection):
    """`chosen` different indices: a set with `threshold` hits or more is e^ε times likelier than any other. Edges: the
    indices leave in ascending order; the order of drawing would tell which are in the top set.
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
        return torch.from_numpy(self.plan.chance * np.exp(self._log_lift(np.arange(self.chosen + 1))))

    def log_probability(self, hits: int) -> float:
        """Of one given set with `hits` of the top set (Eq. 3.10)."""
        n, k = self.dims, self.chosen
        sets = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        return float(self._log_lift(np.array(hits))) - sets

    def _log_lift(self, hits: NDArray[np.int64]) -> NDArray[np.float64]:
        """Eq. 3.10 against a uniform choice: e^ε·𝟙(ν ≥ ν_th) / Ω, times the number of sets."""
        low = math.exp(-self.epsilon)
        lift = np.where(hits >= self.plan.threshold, 0.0, -self.epsilon)
        return lift - math.log(low + (1 - low) * self.plan.high)

    def choose(self, scores: Tensor, rng: Rng) -> Tensor:
        hits = categorical(self.law, len(scores), rng, scores.device)
        inside = torch.arange(self.chosen, device=scores.device) < hits[:, None]
        return TopSets.from_scores(scores, self.top).pick(inside, rng).sort(1).values


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


def _chance(dims: int, top: int, chosen: int) -> NDArray[np.float64]:
    """ω_τ / Σω for τ = 0, …, h, from ω_{τ+1} / ω_τ = (k − τ)(h − τ) / ((τ + 1)(d − k − h + τ + 1))."""
    least = max(0, chosen - (dims - top))
    hits = np.arange(least, chosen, dtype=np.float64)
    up, down = (top - hits) * (chosen - hits), (hits + 1) * (dims - top - chosen + hits + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(up) - np.log(down))])
    weights = np.exp(logs - logs.max())
    return np.concatenate([np.zeros(least), weights / weights.sum()])


@dataclass(frozen=True, kw_only=True)
class SubMds(Selection):
    """EM-MDS on ρ·d dimensions that each client draws anew, with the most indices that keep the wanted share.
    Guarantee: as every choosing mechanism's; the drawn dimensions do not depend on the update and need not be secret.
    Edges: a wanted share that no size reaches → ConfigError.
    """

    rate: float = 0.1
    wanted: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(0, 1, rate=self.rate, wanted=self.wanted)
        if self.top >= self.inputs:
            raise ConfigError(f"top must be below rate · dims = {self.inputs}, not {self.top}.")
        _ = self.inner  # a share out of reach is found here, not in the first round

    @property
    def inputs(self) -> int:
        return round(self.rate * self.dims)

    @cached_property
    def inner(self) -> EmMds:
        size = largest_size(dims=self.inputs, top=self.top, epsilon=self.epsilon, share=self.wanted)
        return EmMds(dims=self.inputs, top=self.top, chosen=size, epsilon=self.epsilon)

    @property
    def chosen(self) -> int:
        return self.inner.chosen

    @property
    def share(self) -> float:
        """Of the sent indices, in the top set of the client's drawn dimensions."""
        return self.inner.share

    def choose(self, scores: Tensor, rng: Rng) -> Tensor:
        inputs = subset(rng, self.dims, len(scores), self.inputs, scores.device)  # (n, d̃), ascending
        return inputs.gather(1, self.inner.choose(scores.gather(1, inputs), rng))


@dataclass(frozen=True, kw_only=True)
class MagRr(LocalMechanism):
    """One bit a client: is the largest value of the update below r·γ? By randomized response. Guarantee: ε-LDP for a
    client's whole update. γ and r are public. Edges: a non-finite update counts as zero (`reporter.cohort`).
    """

    decay: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(decay=self.decay)
        in_range(0, 1, decay=self.decay)

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
    """The server's side: multiply the rate by r after `patience` rounds in a row in which half say "small". Edges: a
    round without flags changes nothing.
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
