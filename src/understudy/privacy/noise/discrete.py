"""Whole-number noise for counts (the discrete Laplace and the discrete Gaussian) and
the exponential mechanism, drawn exactly.

Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (NeurIPS
2020), Algorithms 1–3. Floating-point noise leaks through its lowest bits (Mironov
2012); here every draw is made of comparisons of random whole numbers, so each outcome
has exactly its probability and there are no lowest bits.

    discrete Laplace, scale b    P(z) ∝ e^(−|z|/b)     two-sided geometric distribution
    discrete Gaussian, scale σ   P(z) ∝ e^(−z²/2σ²)    about the normal's tail, made of
                                                       whole numbers

Paper → code: Alg. 2's scale t/s → `scale`, a fraction; Alg. 3's σ → `scale`.
Differs from the paper: proposals are drawn in batches, of which the first that are kept
count; Alg. 3 draws its proposals from the Laplace of scale σ itself instead of ⌊σ⌋ + 1,
so that a proposal y is kept with probability exp(−(|y| − σ)²/2σ²) and 64 bits hold
every number on the way.

The exponential mechanism: McSherry, Talwar, "Mechanism design via differential privacy"
(FOCS 2007): candidate i with probability ∝ exp(ε sᵢ/2Δ), where a person moves no score
by more than Δ. Scores are whole numbers and ε is a fraction, so that a candidate can be
proposed evenly and kept with probability exp(−ε(max s − sᵢ)/2Δ).
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.ground.check import positive, whole
from understudy.ground.errors import ConfigError
from understudy.privacy.noise.rng import Device, Rng, plainly

if TYPE_CHECKING:  # the accountant is loaded with the first event: to draw needs none
    from dp_accounting import DpEvent

_BITS = 10  # of a scale that was a float
_BATCH_TRIES = 2048  # that cost about as much as the call that makes them
_MAX_NUMERATOR = 2**20  # of a scale: 2⁶³ holds the square of 2048 scales
_MAX_GAP = 2**40  # of scores: times 2²⁰ is still a whole number of 64 bits


@dataclass(frozen=True)
class CountNoise(ABC):
    """Noise for counts, of which a person moves one by at most `sensitivity`; `scale`:
    exact, see `rounded_up`.
    """

    scale: Fraction
    sensitivity: int = 1

    def __post_init__(self) -> None:
        positive(scale=float(self.scale))
        whole(sensitivity=self.sensitivity)
        scale = Fraction(self.scale)
        if max(scale.numerator, scale.denominator) > _MAX_NUMERATOR:
            raise ConfigError(
                f"scale must be a fraction of numbers up to 2^20, not {scale}; see "
                "`rounded_up`."
            )
        object.__setattr__(self, "scale", scale)

    @property
    @abstractmethod
    def event(self) -> "DpEvent":
        """What one use costs, where a person moves one of the counts."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """Of the noise on one count."""

    @abstractmethod
    def plain(
        self,
        n: int,
        rng: Rng,
        device: Device,
    ) -> Any:
        """`draw`, plainly: for a few counts torch would take longer to be called than
        to compute.
        """

    def draw(
        self,
        n: int,
        rng: Rng,
        *,
        device: Device = "cpu",
    ) -> Tensor:
        """n independent draws, int64: (n,)."""
        noise = self.plain(n, rng, device)
        return torch.as_tensor(noise)

    @abstractmethod
    def tail(self, lowest: int) -> float:
        """P(noise ≥ lowest), for `lowest` of 1 and above: to a relative 10⁻⁹."""

    def __call__(self, counts: Tensor, rng: Rng) -> Tensor:
        """The counts, each with noise of its own. Guarantee: for counts that differ in
        one person, `event`, given that `rng` is a secure source. Edges: no counts →
        none, and nothing is drawn; counts that are not whole numbers → ValueError.
        """
        if counts.is_floating_point() or counts.is_complex():
            raise ValueError(f"counts must be whole numbers, not {counts.dtype}.")
        noise = self.draw(counts.numel(), rng, device=counts.device)
        return counts.to(torch.int64) + noise.view(counts.shape)

    def threshold(self, probability: float) -> int:
        """The least k ≥ 1 with P(noise ≥ k) ≤ `probability`: what noise alone seldom
        reaches.
        """
        if not 0 < probability < 1:
            raise ConfigError(
                f"probability must lie between 0 and 1, not {probability!r}."
            )
        # Both tails fall below e^(1 − k/scale): the Gaussian's a few scales out, long
        # before the bracket ends.
        last = math.ceil(self.scale * (5 - math.log(probability))) + 2

        def is_rare(k: int) -> bool:
            return self.tail(k) <= probability

        return 1 + bisect_left(range(1, last), True, key=is_rare)


@dataclass(frozen=True)
class DiscreteLaplaceNoise(CountNoise):
    """P(z) ∝ e^(−|z|/scale). Guarantee: ε-DP with ε = sensitivity/scale, at δ=0, and no
    less: a ratio of e^ε is reached. Edges: a Laplace draw beyond 2⁶³, once in e^(2⁴³),
    would wrap around.
    """

    @property
    def event(self) -> "DpEvent":
        from dp_accounting.dp_event import DiscreteLaplaceDpEvent

        return DiscreteLaplaceDpEvent(_float_above(1 / self.scale), self.sensitivity)

    @property
    def variance(self) -> float:
        """2q/(1 − q)² with q = e^(−1/scale)."""
        if self.scale <= Fraction(1, 1000):  # below what a float holds
            return 0.0
        return 0.5 / math.sinh(0.5 / self.scale) ** 2

    def tail(self, lowest: int) -> float:
        q = math.exp(-1 / self.scale)
        power = math.exp(-lowest / self.scale)
        return power / (1 + q)

    def plain(
        self,
        n: int,
        rng: Rng,
        device: Device,
    ) -> Any:
        """Algorithm 2: |z| = ⌊x/s⌋ for x with P(x) ∝ e^(−x/t), a fair sign, and −0
        refused.
        """
        t = self.scale.numerator
        s = self.scale.denominator

        def propose(size: int) -> tuple[Any, Any]:
            remainder = rng.below(t, size, device)  # x mod t
            quotient = _successes(size, rng, device)  # x div t
            magnitude = (remainder + t * quotient) // s
            minus = rng.below(2, size, device)
            accepted = _bernoulli_exp_below_one(
                size,
                remainder,
                t,
                rng,
                device,
            )
            accepted &= (minus == 0) | (magnitude != 0)
            sign = 1 - 2 * minus
            return sign * magnitude, accepted

        return _first_accepted(n, propose)


@dataclass(frozen=True)
class DiscreteGaussianNoise(CountNoise):
    """P(z) ∝ e^(−z²/2σ²) with σ = scale. Guarantee: sensitivity²/2σ²-zCDP, as Gaussian
    noise (Thm 4), and so (ε, δ)-DP for every δ above 0. Edges: exact unless a proposal
    lies 2048 σ out, once in e²⁰⁴⁸. δ=0 has no finite ε.
    """

    @property
    def event(self) -> "DpEvent":
        from understudy.privacy.accounts.accounting import DiscreteGaussian

        scale = -_float_above(-self.scale)  # never above it
        return DiscreteGaussian(scale, self.sensitivity)

    @property
    def variance(self) -> float:
        """A little below σ² (Cor. 9): from σ = 2 on by less than a float can tell
        (Poisson's summation).
        """
        if self.scale >= 2:
            return float(self.scale**2)
        z, weights = self._weights(1)
        second_moment = 2 * (z**2 * weights).sum()
        return float(second_moment / self._normalizer())

    def tail(self, lowest: int) -> float:
        _, weights = self._weights(lowest)
        return float(weights.sum() / self._normalizer())

    def plain(
        self,
        n: int,
        rng: Rng,
        device: Device,
    ) -> Any:
        """Algorithm 3, with the proposal of the module's docstring."""
        p = self.scale.numerator
        q = self.scale.denominator
        proposals = DiscreteLaplaceNoise(self.scale)

        def propose(size: int) -> tuple[Any, Any]:
            z = proposals.plain(size, rng, device)
            numerators = (abs(z) * q - p) ** 2
            accepted = bernoulli_exp(
                numerators,
                2 * p * p,
                rng,
                device,
            )
            return z, accepted

        return _first_accepted(n, propose)

    def _normalizer(self) -> Any:
        """The sum of e^(−z²/2σ²) over all whole numbers."""
        _, weights = self._weights(1)
        return 1 + 2 * weights.sum()

    def _weights(self, lowest: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """z from `lowest` on, as far as it matters, and e^(−z²/2σ²)."""
        sigma = float(self.scale)
        variance = sigma**2
        # beyond z + 40σ²/z the weight is below e⁻⁴⁰ of the first
        width = min(10 * sigma, 40 * variance / lowest) + 10
        z = np.arange(lowest, lowest + width, dtype=np.float64)
        exponents = -(z**2) / (2 * variance)
        return z, np.exp(exponents)


@dataclass(frozen=True)
class Exponential:
    """A choice at ε = 1/`scale`, where a person moves each score by at most
    `sensitivity`; see `rounded_up` for scales.

    Guarantee: ε-DP, given that `rng` is a secure source.
    Edges: no candidates, or scores that are not whole numbers → ValueError before
    anything is drawn. A score that lies 2⁴⁰ below the highest counts as if it lay just
    there: max(sᵢ, max s − 2⁴⁰) moves by no more than s does.
    """

    scale: Fraction
    sensitivity: int = 1

    def __post_init__(self) -> None:
        positive(scale=float(self.scale))
        whole(sensitivity=self.sensitivity)
        denominator = 2 * self.sensitivity * self.scale.numerator
        if denominator > 2**40:
            raise ConfigError(
                f"a choice this even cannot be drawn exactly: 1/{denominator} of a "
                "score."
            )
        if self.scale.denominator > _MAX_NUMERATOR:
            raise ConfigError(
                "a choice this sure cannot be drawn exactly: scale = "
                f"{float(self.scale):g}."
            )

    @property
    def event(self) -> "DpEvent":
        from understudy.privacy.accounts.accounting import PureDp

        return PureDp(float(1 / self.scale))

    def __call__(self, scores: Tensor, rng: Rng) -> int:
        """The index of the chosen candidate among the scores (candidates,)."""
        chosen = self.draw(scores, 1, rng)
        return int(chosen)

    def draw(
        self,
        scores: Tensor,
        n: int,
        rng: Rng,
    ) -> Tensor:
        """n independent choices, each at the whole price: int64, (n,)."""
        if scores.ndim != 1 or not len(scores) or scores.is_floating_point():
            raise ValueError(
                f"scores must be whole numbers, one or more, not {scores.dtype} "
                f"{scores.shape}."
            )
        scores = scores.long()
        gaps = (scores.max() - scores).clamp_(max=_MAX_GAP)
        numerators = gaps * self.scale.denominator
        denominator = 2 * self.sensitivity * self.scale.numerator
        candidates = len(scores)
        chosen = torch.empty(0, dtype=torch.int64)
        while len(chosen) < n:
            proposed = rng.integers(candidates, 2 * n * candidates)
            proposed_numerators = plainly(numerators[proposed])
            marks = bernoulli_exp(
                proposed_numerators,
                denominator,
                rng,
                proposed.device,
            )
            accepted = proposed[torch.as_tensor(marks)]
            chosen = torch.cat([chosen, accepted])
        return chosen[:n]


def bernoulli_exp(
    numerator: Any,
    denominator: int,
    rng: Rng,
    device: Device,
) -> Any:
    """True with probability exp(−numerator/denominator), each, exactly (Algorithm 1):
    by nothing but comparisons of random whole numbers. For numerators of 0 or above and
    a denominator up to 2⁵⁷.
    """
    n = len(numerator)
    remainder = numerator % denominator
    succeeded = _bernoulli_exp_below_one(
        n,
        remainder,
        denominator,
        rng,
        device,
    )
    factors = numerator // denominator  # one factor e⁻¹ each
    indices = _indices(n, device)
    while len(pending := indices[succeeded & (factors > 0)]):
        successes = _tries(len(pending), rng, device)
        tries = successes.shape[1]
        enough = _indices(tries, device) >= factors[pending, None]
        succeeded[pending] = (successes | enough).all(1)
        factors[pending] -= tries
    return succeeded


def _bernoulli_exp_below_one(
    n: int,
    numerator: Any,
    denominator: int,
    rng: Rng,
    device: Device,
    k: int = 1,
) -> Any:
    """Algorithm 1 for each γ = numerator/denominator ≤ 1: the first failure among
    Bernoulli(γ/k) is at an odd k.
    """
    pending = _indices(n, device)
    odd = pending >= 0 if k % 2 == 1 else pending < 0
    while len(pending):
        draws = rng.below(denominator * k, len(pending), device)
        succeeded = _true_indices(draws < numerator)
        if not isinstance(numerator, int):
            numerator = numerator[succeeded]
        pending = pending[succeeded]
        k += 1
        odd[pending] = k % 2 == 1
    return odd


def _first_accepted(n: int, propose: Callable[[int], tuple[Any, Any]]) -> Any:
    """The first n proposals that are accepted: each is accepted or refused by itself,
    so those are independent.
    """
    size = 2 * n + 32 if n else 0
    proposed, accepted = propose(size)
    values = proposed[accepted]
    while len(values) < n:
        missing = n - len(values)
        proposed, accepted = propose(2 * missing + 32)
        following = torch.as_tensor(proposed[accepted])
        joined = torch.cat([torch.as_tensor(values), following])
        values = plainly(joined)
    return values[:n]


def _successes(
    n: int,
    rng: Rng,
    device: Device,
) -> Any:
    """How many Bernoulli(e⁻¹) succeed before the first failure, n times."""
    pending = _indices(n, device)
    count = 0 * pending
    while len(pending):
        successes = _tries(len(pending), rng, device)
        tries = successes.shape[1]
        wins = (successes * 1).cumprod(1).sum(1)
        count[pending] += wins
        pending = pending[wins == tries]
    return count


def _tries(
    n: int,
    rng: Rng,
    device: Device,
) -> Any:
    """Bernoulli(e⁻¹) for each of n, several times where n is small: (n, tries)."""
    tries = max(1, _BATCH_TRIES // n)
    # k = 1 never fails
    successes = _bernoulli_exp_below_one(
        n * tries,
        1,
        1,
        rng,
        device,
        k=2,
    )
    return successes.reshape(n, tries)


def _indices(n: int, device: Device) -> Any:
    """0, …, n − 1, plainly."""
    if torch.device(device).type == "cpu":
        return np.arange(n)
    return torch.arange(n, device=device)


def _true_indices(marks: Any) -> Any:
    """The indices of marks: indexing by these is quicker than by the marks
    themselves.
    """
    if isinstance(marks, np.ndarray):
        return marks.nonzero()[0]
    return marks.nonzero()[:, 0]


def rounded_up(scale: float) -> Fraction:
    """A short fraction from `scale` up by at most 2⁻¹⁰ of it; between 2⁻¹⁰ and 2²⁰ one
    that noise can be drawn by.
    """
    positive(scale=scale)
    _, exponent = math.frexp(scale)
    unit = Fraction(2) ** (exponent - 1 - _BITS)
    units = math.ceil(Fraction(scale) / unit)
    return units * unit


def _float_above(value: Fraction) -> float:
    """The least float that is not below a fraction."""
    nearest = float(value)
    if Fraction(nearest) >= value:
        return nearest
    return math.nextafter(nearest, math.inf)
