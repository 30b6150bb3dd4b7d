"""Duchi et al.: every coordinate as ±B. Here called DM, as in the papers that compare against it.

Duchi, Jordan, Wainwright, "Minimax optimal procedures for locally private estimation" (JASA 2018), as
Algorithms 1 and 3 of Wang et al., "Collecting and analyzing multidimensional data with local differential
privacy" (ICDE 2019); for even d the correction of Nguyên et al., "Collecting and analyzing data from smart
device users with local differential privacy" (2016).
Paper → code: t → values, B → bound, v → rounded, T⁺ → sign vectors that agree with v in more than d/2 places.
Why a correction: for even d some sign vectors agree in exactly d/2 places. Duchi et al. drew those from T⁺
and from T⁻, so that they came up to e^ε + 1 times as often as others; here they belong to T⁻ alone.
Differs from the paper: binomials in log space, so d = 10⁷ does not overflow.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.privacy.local.reporter import MeanMechanism, Report, check_epsilon, chunks, cohort, fine, subset
from understudy.privacy.noise import Rng

_PIECE = 2**20  # values in work at a time: their buffers stay in a core's cache


@dataclass(frozen=True)
class DuchiValue:
    """One value in [−1, 1] as ±B. Guarantee: ε-LDP, unbiased."""

    epsilon: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    @property
    def bound(self) -> float:
        return 1 / math.tanh(self.epsilon / 2)

    def __call__(self, values: Tensor, rng: Rng) -> Tensor:
        against = fine(rng, *values.shape, device=values.device) < self.against(values)
        answer = torch.full_like(values, self.bound, dtype=torch.float64).copysign_(values)
        return torch.where(against, -answer, answer)

    def against(self, values: Tensor) -> Tensor:
        """The probability of the sign that the value does not have."""
        size = values.to(torch.float64).abs()
        return (1 - size) / 2 + size / (math.exp(self.epsilon) + 1)


@dataclass(frozen=True, kw_only=True)
class Duchi(MeanMechanism):
    """A vector as one vector of {−B, B}^d. Guarantee: ε-LDP for the whole vector; unbiased for the clipped one."""

    @property
    def agreeing(self) -> float:
        """|T⁺| / 2^d."""
        tied = math.exp(_log_share(self.dims, self.dims // 2)) if self.dims % 2 == 0 else 0.0
        return (1 - tied) / 2

    @property
    def against(self) -> float:
        """The probability of T⁻."""
        return (1 - self.agreeing) * math.exp(self.log_lift(agree=False))

    def log_lift(self, *, agree: bool) -> float:
        """How much likelier than 2⁻ᵈ a given vector of T⁺ (agree), or of T⁻, is."""
        return self.epsilon * agree - math.log1p(math.expm1(self.epsilon) * self.agreeing)

    @property
    def bound(self) -> float:
        """B: the average of T⁺ is C(d−1, ⌊d/2⌋) / |T⁺| · v, that of all sign vectors 0."""
        lift = math.expm1(self.epsilon)
        return (lift * self.agreeing + 1) / (lift * math.exp(_log_share(self.dims - 1, self.dims // 2)) / 2)

    def report(self, updates: Tensor, rng: Rng) -> Report:
        updates = cohort(updates, self.dims)
        parts = [self._signs(updates[rows], rng) for rows in chunks(updates, _PIECE)]
        return Report(dims=self.dims, values=torch.cat(parts), scale=self.bound * self.clip)

    def _signs(self, updates: Tensor, rng: Rng) -> Tensor:
        """Half a random word a coordinate: 24 bits round it, as fine as v is itself, and one more is `same`."""
        words = rng.integers(2**63, -(-updates.numel() // 2), device=updates.device)
        halves = words.view(torch.int32)[: updates.numel()].view(updates.shape)
        level = updates.to(torch.float32).mul(2**23 / self.clip).add_(2**23)  # beyond the clip: always, never
        rounded = (halves & (2**24 - 1)).to(torch.float32) < level  # with probability (1 + t) / 2
        agree = fine(rng, len(updates), device=updates.device) >= self.against
        same = self._agreement(agree, (halves & 2**24).to(torch.bool), rng)
        return (rounded == same).view(torch.int8).mul_(2).sub_(1)

    def _agreement(self, agree: Tensor, same: Tensor, rng: Rng) -> Tensor:
        """Where the answer agrees with v: uniform over T⁺ where `agree`, else over T⁻. `same`: random bits.

        Flipping all bits carries T⁺ onto the part of T⁻ without ties, so only ties are drawn again; T⁻'s own
        share of ties is drawn for itself.
        """
        bits = same.view(torch.uint8)
        surplus = 2 * bits.sum(1, dtype=torch.int32) - self.dims
        while (tied := surplus == 0).any():
            bits[tied] = rng.integers(2, int(tied.sum()), self.dims, device=same.device).to(torch.uint8)
            surplus[tied] = 2 * bits[tied].sum(1, dtype=torch.int32) - self.dims
        bits ^= ((surplus > 0) != agree).view(torch.uint8)[:, None]
        if self.dims % 2 == 0:
            share = 1 - self.agreeing / (1 - self.agreeing)  # of T⁻, what is tied
            half = (~agree & (fine(rng, len(agree), device=same.device) < share)).nonzero()[:, 0]
            places = subset(rng, self.dims, len(half), self.dims // 2, same.device)
            same[half] = torch.zeros_like(same[half]).scatter_(1, places, True)
        return same


def _log_share(n: int, m: int) -> float:
    """ln of C(n, m) / 2ⁿ."""
    return math.lgamma(n + 1) - math.lgamma(m + 1) - math.lgamma(n - m + 1) - n * math.log(2)
