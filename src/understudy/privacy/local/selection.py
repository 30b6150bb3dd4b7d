"""Choose the dimensions that matter, privately: a random sign, the top-k set by signed
value, a few indices.

Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022), Algorithm 1, lines 18–25, Theorem
1; EM-MDS, which chooses h at once, Algorithm 3, Eq. 3.8–3.14. "FedSTDG" (Jiang,
dissertation, TUM 2024, chapter 5), Eq. 5.4–5.6 for the size h*, Algorithm 6 for SubMDS
(more of a random part), Algorithm 7 and Eq. 5.8–5.10 for MagRR (when to slow down).
Paper → code: d → dims, k → top, h → chosen, S_topk → TopSets, s → Report.values, J →
Report.indices, p_sin → share; ν → hits, ν_th → threshold, ω_τ / Σω → chance, ς_h →
share; ρ → rate, d̃ → inputs, ς* → wanted, ν_th* → inner.threshold; γ → rate, r → decay,
b̂ → flags, T_pat → patience, t_pat → waited.
Differs from the papers: the weights ω_τ come from their ratios, in log space, so that d
= 10⁷ neither overflows nor loses digits; h* is the largest size whose share is at least
ς* (Eq. 5.6 prints an argmin), and is searched below a bound instead of up to infinity.
Where the text of MagRR ("more than half", "more than T_pat rounds") and Algorithm 7 (≥)
differ, this is Algorithm 7. Its share of flags needs no correction: randomized response
keeps its expectation on the same side of one half.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.ground.check import in_range, positive, whole
from understudy.ground.errors import ConfigError
from understudy.privacy.local import reporter
from understudy.privacy.noise import Rng


@dataclass(frozen=True, kw_only=True)
class Selection(reporter.LocalMechanism, ABC):
    """Tell the server a few dimensions in which the update is large, and the sign of
    "large".

    Guarantee: ε-LDP for a client's whole update: sign and indices together are at most
    e^ε times as likely under one update as under any other. The sign is a fair coin and
    does not depend on the update.
    Edges: a non-finite update counts as zero (`reporter.cohort`); ties fall to either
    side of the top set.
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

    def report(self, updates: Tensor, rng: Rng) -> reporter.Report:
        updates = reporter.cohort(updates, self.dims)
        sign = 1 - 2 * rng.integers(
            2,
            len(updates),
            1,
            device=updates.device,
        )  # (n, 1)
        # The k smallest values are the k largest of the negated update.
        parts = [
            self.choose(updates[rows] * sign[rows], rng)
            for rows in reporter.chunks(updates)
        ]
        indices = torch.cat(parts).to(torch.int32)
        return reporter.Report(
            dims=self.dims,
            values=sign.to(torch.int8),
            indices=indices,
        )


@dataclass(frozen=True, kw_only=True)
class EmMds(Selection):
    """`chosen` different indices: a set with `threshold` hits or more is e^ε times
    likelier than any other. Edges: the indices leave in ascending order; the order of
    drawing would tell which are in the top set.
    """

    chosen: int

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(chosen=self.chosen)
        if self.chosen > self.top:
            raise ConfigError(
                f"chosen must be at most top={self.top}, not {self.chosen}."
            )

    @property
    def plan(self) -> "SelectionParameters":
        return _plan(
            self.dims,
            self.top,
            self.chosen,
            self.epsilon,
        )

    @property
    def threshold(self) -> int:
        return self.plan.threshold

    @property
    def share(self) -> float:
        return self.plan.expected_hits / self.chosen

    @property
    def law(self) -> Tensor:
        """The probabilities of 0, …, h hits (Eq. 3.11), by what Eq. 3.10 lifts sets
        with ν_th or more: (h + 1,).
        """
        plan = self.plan
        low = math.exp(-self.epsilon)
        lift = np.where(np.arange(self.chosen + 1) >= plan.threshold, 1.0, low)
        return torch.from_numpy(plan.chance * lift / (low + (1 - low) * plan.high))

    def choose(self, scores: Tensor, rng: Rng) -> Tensor:
        hits = reporter.categorical(
            self.law,
            len(scores),
            rng,
            scores.device,
        )
        inside = torch.arange(self.chosen, device=scores.device) < hits[:, None]
        return (
            reporter.TopSets.from_scores(scores, self.top)
            .pick(inside, rng)
            .sort(1)
            .values
        )


class SelectionParameters(NamedTuple):
    """What follows from the public settings (d, k, h, ε)."""

    threshold: int  # the one with the most expected hits (Eq. 3.13)
    expected_hits: float
    chance: NDArray[np.float64]  # of 0, …, h hits, were all sets equally likely
    high: float  # the chance of `threshold` hits or more


@cache
def _plan(
    dims: int,
    top: int,
    chosen: int,
    epsilon: float,
) -> SelectionParameters:
    return _best(_chance(dims, top, chosen), epsilon)


def _best(chance: NDArray[np.float64], epsilon: float) -> SelectionParameters:
    """Compare the thresholds 1, …, h by E[ν | ν_th] (Eq. 3.12), whose sums have been
    divided by e^ε · Σω.
    """
    hits = chance * np.arange(len(chance))
    tail = np.cumsum(chance[::-1])[::-1]
    hits_tail = np.cumsum(hits[::-1])[::-1]
    low = math.exp(-epsilon)
    weighted_hits = low * hits_tail[0] + (1 - low) * hits_tail[1:]
    total = low + (1 - low) * tail[1:]
    expected = weighted_hits / total
    best = int(expected.argmax())
    return SelectionParameters(
        best + 1,
        float(expected[best]),
        chance,
        float(tail[best + 1]),
    )


def _chance(
    dims: int,
    top: int,
    chosen: int,
) -> NDArray[np.float64]:
    """ω_τ / Σω for τ = 0, …, h, from ω_{τ+1} / ω_τ = (k − τ)(h − τ) / ((τ + 1)(d − k −
    h + τ + 1)).
    """
    min_hits = max(0, chosen - (dims - top))
    hits = np.arange(min_hits, chosen, dtype=np.float64)
    up = (top - hits) * (chosen - hits)
    down = (hits + 1) * (dims - top - chosen + hits + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(up) - np.log(down))])
    weights = np.exp(logs - logs.max())
    return np.concatenate([np.zeros(min_hits), weights / weights.sum()])


@dataclass(frozen=True, kw_only=True)
class Ps(EmMds):
    """PS, perturbed sampling: one index, e^ε times likelier to be a given dimension of
    the top set than a given other. Liu, Cao, Yoshikawa, Chen, "FedSel" (DASFAA 2020);
    SignDS-FL, Algorithm 2, Eq. 3.6–3.7.
    """

    chosen: int = field(default=1, init=False)


@dataclass(frozen=True, kw_only=True)
class Naive(Selection):
    """h times PS, each under ε/h, so that one may come twice: SignDS-FL, Eq. 3.15
    ("SignDS-E" in FedSTDG).
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

    def choose(self, scores: Tensor, rng: Rng) -> Tensor:
        inside = reporter.fine(
            rng,
            len(scores),
            self.chosen,
            device=scores.device,
        ) >= float(self.single.law[0])
        return reporter.TopSets.from_scores(scores, self.top).pick(
            inside,
            rng,
            repeat=True,
        )


class Proportional(Selection):
    """One coordinate and its sign, with odds in proportion to what the update holds
    there.

    PS on 2d signed coordinates, and on a top set that is drawn: k coordinates without
    replacement, each draw with odds |Δ_j|, by an exponential race (Efraimidis,
    Spirakis, "Weighted random sampling with a reservoir", IPL 2006).
    Differs from SignDS: there the sign is a coin, so that half of all reports say "up"
    although most of an update may point down, and the top set is that of the k largest
    values, so that a value below the k-th is never told. Both bend the mean: a column
    that 5 % of people have gets about as many reports up as down long before its share
    is reached. Here the mean report of a client is near share · Δ/‖Δ‖₁ while no
    coordinate holds more than a k-th of ‖Δ‖₁, so that reports add up to the mean
    direction.

    Guarantee: ε-LDP for a client's whole update, sign and index together. For each set
    that the race may draw the choice is PS's, whose odds are within e^ε for any two
    sets; so they are for any two mixtures of sets.
    Edges: a zero update → the set is any one, and the report noise alone; a coordinate
    of 0 may fill a set that finds fewer than k others, and then has the sign +.
    """

    @property
    def choice(self) -> Ps:
        return Ps(dims=2 * self.dims, top=self.top, epsilon=self.epsilon)

    @property
    def share(self) -> float:
        return self.choice.share

    def choose(self, scores: Tensor, rng: Rng) -> Tensor:
        """Signed coordinates: j stands for +j, and d + j for −j."""
        uniform = rng.uniform(*scores.shape, device=scores.device).to(scores.dtype)
        # An exponential of 0 would put a coordinate first whatever it holds, and 0/0 is
        # no rank.
        ranks = scores.abs().div_(
            torch.log1p(-uniform).neg_().clamp_(min=torch.finfo(scores.dtype).tiny)
        )
        top_set = ranks.topk(self.top, dim=1, sorted=False).indices
        top_set += self.dims * (scores.gather(1, top_set) < 0)
        members = torch.zeros(
            len(scores),
            2 * self.dims,
            dtype=torch.bool,
            device=scores.device,
        )
        inside = (
            reporter.categorical(
                self.choice.law,
                len(scores),
                rng,
                scores.device,
            )
            == 1
        )
        return reporter.TopSets(
            top_set,
            members.scatter_(1, top_set, True),
            smaller_is_top=True,
        ).pick(inside[:, None], rng)

    def report(self, updates: Tensor, rng: Rng) -> reporter.Report:
        updates = reporter.cohort(updates, self.dims)
        # (n, 1)
        signed = torch.cat(
            [self.choose(updates[rows], rng) for rows in reporter.chunks(updates)]
        )
        sign = 1 - 2 * (signed >= self.dims).to(torch.int8)
        return reporter.Report(
            dims=self.dims,
            values=sign,
            indices=(signed % self.dims).to(torch.int32),
        )


def largest_size(
    *,
    dims: int,
    top: int,
    epsilon: float,
    share: float,
) -> int:
    """h*: the most indices of which an expected `share` still lies in the top set (Eq.
    5.6).

    Why the search ends: a law within e^ε of the uniform one has at most h·k/d + √(hε/2)
    expected hits (Donsker and Varadhan, with Hoeffding's bound). Why h = 1 has the
    largest share of all: one index of a chosen set, drawn at random, is ε-LDP too, and
    PS is the best mechanism for one index.
    Edges: ConfigError where h = 1 falls short; `top` where indices at random are good
    enough.
    """
    single = Ps(dims=dims, top=top, epsilon=epsilon).share
    in_range(0, 1, share=share)
    excess = share - top / dims
    if excess <= 0:
        return top
    for chosen in range(min(top, int(epsilon / (2 * excess**2))), 0, -1):
        if _best(_chance(dims, top, chosen), epsilon).expected_hits >= share * chosen:
            return chosen
    raise ConfigError(
        f"share={share:g} is out of reach: at epsilon={epsilon:g} an index out of "
        f"{dims} is in the top {top} with a probability of {single:.4g} at most. It "
        f"takes epsilon={_single_epsilon(dims, top, share):.4g}, or a smaller share."
    )


def largest_naive_size(
    *,
    dims: int,
    top: int,
    epsilon: float,
    share: float,
) -> int:
    """The most indices of which an expected `share` still lies in the top set where
    each is drawn by itself under ε/h.

    Edges: as `largest_size`.
    """
    if share <= top / dims:
        return largest_size(
            dims=dims,
            top=top,
            epsilon=epsilon,
            share=share,
        )
    most = min(top, int(epsilon / _single_epsilon(dims, top, share)) + 1)
    for chosen in range(most, 1, -1):
        if Ps(dims=dims, top=top, epsilon=epsilon / chosen).share >= share:
            return chosen
    # one index of EM-MDS is one of PS; that it is out of reach is said there
    largest_size(
        dims=dims,
        top=top,
        epsilon=epsilon,
        share=share,
    )
    return 1


def _single_epsilon(
    dims: int,
    top: int,
    share: float,
) -> float:
    """The ε at which one index lies in the top set with this probability."""
    if share >= 1:
        return math.inf
    return math.log(share / (1 - share) * (dims - top) / top)


@dataclass(frozen=True, kw_only=True)
class SubMds(Selection):
    """EM-MDS on ρ·d dimensions that each client draws anew, with the most indices that
    keep the wanted share.
    Guarantee: as every choosing mechanism's; the drawn dimensions do not depend on the
    update and need not be secret.
    Edges: a wanted share that no size reaches → ConfigError.
    """

    rate: float = 0.1
    wanted: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(0, 1, rate=self.rate, wanted=self.wanted)
        if self.top >= self.inputs:
            raise ConfigError(
                f"top must be below rate · dims = {self.inputs}, not {self.top}."
            )
        _ = self.inner  # a share out of reach is found here, not in the first round

    @property
    def inputs(self) -> int:
        return round(self.rate * self.dims)

    @cached_property
    def inner(self) -> EmMds:
        size = largest_size(
            dims=self.inputs,
            top=self.top,
            epsilon=self.epsilon,
            share=self.wanted,
        )
        return EmMds(
            dims=self.inputs,
            top=self.top,
            chosen=size,
            epsilon=self.epsilon,
        )

    @property
    def chosen(self) -> int:
        return self.inner.chosen

    @property
    def share(self) -> float:
        """Of the sent indices, in the top set of the client's drawn dimensions."""
        return self.inner.share

    def choose(self, scores: Tensor, rng: Rng) -> Tensor:
        # (n, d̃), ascending
        inputs = reporter.subset(
            rng,
            self.dims,
            len(scores),
            self.inputs,
            scores.device,
        )
        return inputs.gather(1, self.inner.choose(scores.gather(1, inputs), rng))


@dataclass(frozen=True, kw_only=True)
class MagRr(reporter.LocalMechanism):
    """One bit a client: is the largest value of the update below r·γ? By randomized
    response. Guarantee: ε-LDP for a client's whole update. γ and r are public. Edges: a
    non-finite update counts as zero (`reporter.cohort`).
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

    def flags(
        self,
        updates: Tensor,
        rate: float,
        rng: Rng,
    ) -> Tensor:
        """The bits that are sent: (n,), bool."""
        positive(rate=rate)
        small = reporter.cohort(updates).abs().amax(1) < self.decay * rate
        return small ^ (
            reporter.fine(rng, len(updates), device=updates.device) < self.flip
        )


@dataclass(kw_only=True)
class RateDecay:
    """Multiplies the rate by r after `patience` rounds in a row with half of the flags
    "small"; no flags, no round.
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
            self.rate = self.rate * self.decay
            self.waited = 0
        return self.rate
