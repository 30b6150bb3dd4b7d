"""Noisy values: Duchi et al. (DM) of all coordinates, PM, PM-SUB and HM of random ones,
FedSel of a large one.

- DM, every coordinate as ±B: Duchi, Jordan, Wainwright, "Minimax optimal procedures for
  locally private estimation" (JASA 2018), as Algorithms 1 and 3 of Wang et al.; for
  even d the correction of Nguyên et al., "Collecting and analyzing data from smart
  device users with local differential privacy" (2016): sign vectors that agree in
  exactly d/2 places belong to T⁻ alone, or they would come up to e^ε + 1 times as often
  as others. Binomials are in log space.
- PM, the piecewise mechanism, a value that is likely near the true one, and HM: Wang et
  al., "Collecting and analyzing multidimensional data with local differential privacy"
  (ICDE 2019), Algorithms 2 and 4, §III-C.
- PM-SUB, with the narrower window that suits a larger ε: Zhao et al., "Local
  differential privacy based federated learning for internet of things" (IEEE IoT-J
  2020): t = e^(ε/3) where Wang et al. have e^(ε/2).
- FedSel: Liu, Cao, Yoshikawa, Chen, "FedSel" (DASFAA 2020), without its gradient
  accumulation on the client.

Paper → code: t → values, B → bound, v → rounded, T⁺ → sign vectors that agree with v in
more than d/2 places; ℓ(t) and r(t) → the first and last cell of the window, C → the
value of the outermost cell, k → sampled, the t of Zhao et al. → outer / inner; ε* →
THRESHOLD, α → piecewise_share; ε₁ → split · ε, ε₂ → (1 − split) · ε.
Differs from the papers: the answer is one of finitely many cells and is drawn with
integers. A float computed as ℓ(t) + u·(r(t) − ℓ(t)) carries the last digits of t; a
cell does not. Whatever the number of cells, this is exactly ε-LDP and unbiased; with
4096 in the window the variance is the paper's to 0.01 %.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from understudy.ground.check import in_range, positive, whole
from understudy.ground.errors import ConfigError
from understudy.privacy.local import reporter
from understudy.privacy.local.selection import Ps
from understudy.privacy.noise import Rng

_PIECE = 2**20  # values in work at a time: their buffers stay in a core's cache


@dataclass(frozen=True)
class DuchiValue:
    """One value in [−1, 1] as ±B. Guarantee: ε-LDP, unbiased."""

    epsilon: float

    def __post_init__(self) -> None:
        reporter.check_epsilon(self.epsilon)

    @property
    def bound(self) -> float:
        return 1 / math.tanh(self.epsilon / 2)

    def __call__(self, values: Tensor, rng: Rng) -> Tensor:
        against = reporter.fine(
            rng,
            *values.shape,
            device=values.device,
        ) < self.against(values)
        answer = torch.full_like(values, self.bound, dtype=torch.float64).copysign_(
            values
        )
        return torch.where(against, -answer, answer)

    def against(self, values: Tensor) -> Tensor:
        """The probability of the sign that the value does not have."""
        size = values.to(torch.float64).abs()
        return (1 - size) / 2 + size / (math.exp(self.epsilon) + 1)


@dataclass(frozen=True, kw_only=True)
class Duchi(reporter.MeanMechanism):
    """A vector as one vector of {−B, B}^d. Guarantee: ε-LDP for the whole vector;
    unbiased for the clipped one.
    """

    @property
    def agreeing(self) -> float:
        """|T⁺| / 2^d."""
        tied = (
            math.exp(_log_share(self.dims, self.dims // 2))
            if self.dims % 2 == 0
            else 0.0
        )
        return (1 - tied) / 2

    @property
    def against(self) -> float:
        """The probability of T⁻."""
        return (1 - self.agreeing) * math.exp(self.log_lift(agree=False))

    def log_lift(self, *, agree: bool) -> float:
        """How much likelier than 2⁻ᵈ a given vector of T⁺ (agree), or of T⁻, is."""
        return self.epsilon * agree - math.log1p(
            math.expm1(self.epsilon) * self.agreeing
        )

    @property
    def bound(self) -> float:
        """B: the average of T⁺ is C(d−1, ⌊d/2⌋) / |T⁺| · v, that of all sign
        vectors 0.
        """
        lift = math.expm1(self.epsilon)
        return (lift * self.agreeing + 1) / (
            lift * math.exp(_log_share(self.dims - 1, self.dims // 2)) / 2
        )

    def report(self, updates: Tensor, rng: Rng) -> reporter.Report:
        updates = reporter.cohort(updates, self.dims)
        parts = [
            self._signs(updates[rows], rng) for rows in reporter.chunks(updates, _PIECE)
        ]
        return reporter.Report(
            dims=self.dims,
            values=torch.cat(parts),
            scale=self.bound * self.clip,
        )

    def _signs(self, updates: Tensor, rng: Rng) -> Tensor:
        """Half a random word a coordinate: 24 bits round it, as fine as v is itself,
        and one more is `same`.
        """
        device = updates.device
        n = updates.numel()
        words = rng.integers(2**63, -(-n // 2), device=device)
        halves = words.view(torch.int32)[:n].view(updates.shape)
        # beyond the clip: always, never
        level = updates.to(torch.float32).mul(2**23 / self.clip).add_(2**23)
        uniforms = (halves & (2**24 - 1)).to(torch.float32)
        rounded = uniforms < level  # with probability (1 + t) / 2
        agree = reporter.fine(rng, len(updates), device=device) >= self.against
        fair = (halves & 2**24).to(torch.bool)
        same = self._agreement(agree, fair, rng)
        is_positive = rounded == same
        return is_positive.view(torch.int8).mul_(2).sub_(1)

    def _agreement(
        self,
        agree: Tensor,
        same: Tensor,
        rng: Rng,
    ) -> Tensor:
        """Where the answer agrees with v: uniform over T⁺ where `agree`, else over T⁻;
        `same`: random bits. Flipping all carries T⁺ onto T⁻ without ties, so only ties
        are drawn again; T⁻'s share of ties for itself.
        """
        dims = self.dims
        device = same.device
        bits = same.view(torch.uint8)
        surplus = 2 * bits.sum(1, dtype=torch.int32) - dims
        while (tied := surplus == 0).any():
            n_tied = int(tied.sum())
            redrawn = rng.integers(2, n_tied, dims, device=device).to(torch.uint8)
            bits[tied] = redrawn
            surplus[tied] = 2 * redrawn.sum(1, dtype=torch.int32) - dims
        is_wrong_side = (surplus > 0) != agree
        bits ^= is_wrong_side.view(torch.uint8)[:, None]
        if dims % 2 == 0:
            share = 1 - self.agreeing / (1 - self.agreeing)  # of T⁻, what is tied
            is_chosen = reporter.fine(rng, len(agree), device=device) < share
            half = (~agree & is_chosen).nonzero()[:, 0]
            flipped = reporter.subset(
                rng,
                dims,
                len(half),
                dims // 2,
                device,
            )
            ties = torch.zeros_like(same[half])
            same[half] = ties.scatter_(1, flipped, True)
        return same


def _log_share(n: int, m: int) -> float:
    """ln of C(n, m) / 2ⁿ."""
    return (
        math.lgamma(n + 1)
        - math.lgamma(m + 1)
        - math.lgamma(n - m + 1)
        - n * math.log(2)
    )


CELLS = 4096
_MOST_INNER = 2**40
_MOST_CELLS = 2**50  # up to here every cell number is an exact float
_ROOT = 405 * math.sqrt(241)
# ε* ≈ 0.61
THRESHOLD = math.log(
    (-5 + 2 * (6353 - _ROOT) ** (1 / 3) + 2 * (6353 + _ROOT) ** (1 / 3)) / 27
)


@dataclass(frozen=True)
class PiecewiseValue:
    """One value in [−1, 1] as a cell: the `inner` cells around it are e^ε times
    likelier. ε-LDP, unbiased.
    """

    epsilon: float
    window: float = 1 / 2  # all others together are e^(window · ε) times as many
    inner: int = CELLS

    def __post_init__(self) -> None:
        reporter.check_epsilon(self.epsilon)
        whole(cells=self.inner)
        in_range(1, _MOST_INNER, cells=self.inner)

    @property
    def outer(self) -> int:
        return min(
            round(self.inner * math.exp(self.window * self.epsilon)),
            _MOST_CELLS,
        )

    @property
    def outside(self) -> float:
        return self.outer * math.exp(self.log_probability(inside=False))

    def log_probability(self, *, inside: bool) -> float:
        """Of one given cell inside or outside of the window."""
        return self.epsilon * inside - math.log(
            self.outer + math.exp(self.epsilon) * self.inner
        )

    @property
    def step(self) -> float:
        """The distance of two cells that makes the answer unbiased."""
        return 2 / ((1 - math.exp(-self.epsilon)) * (1 - self.outside) * self.outer)

    def __call__(self, values: Tensor, rng: Rng) -> Tensor:
        shape = values.shape
        device = values.device
        first = self.first(values, rng.uniform(*shape, device=device))
        inside = first + rng.integers(self.inner, *shape, device=device)
        other = rng.integers(self.outer, *shape, device=device)
        other += self.inner * (other >= first)  # leave the window out
        return self.value(
            torch.where(
                reporter.fine(rng, *shape, device=device) < self.outside,
                other,
                inside,
            )
        )

    def first(self, values: Tensor, uniform: Tensor) -> Tensor:
        """The window's first cell, 0 to `outer`, rounded up or down at random so that
        its mean is exact.
        """
        exact = (values.to(torch.float64) + 1) * (self.outer / 2)
        return (exact + uniform).floor().clamp_(0, self.outer).to(torch.int64)

    def value(self, cell: Tensor) -> Tensor:
        return (cell.to(torch.float64) - (self.inner + self.outer - 1) / 2) * self.step


@dataclass(frozen=True)
class HybridValue:
    """HM: a coin decides between PM and Duchi et al., for the smallest worst variance.
    Guarantee: ε-LDP, unbiased. Which of the two mechanisms answered may be seen, and
    says nothing.
    """

    epsilon: float
    inner: int = CELLS

    def __post_init__(self) -> None:
        _ = self.piecewise, self.duchi  # these check epsilon and cells

    @property
    def piecewise(self) -> PiecewiseValue:
        return PiecewiseValue(self.epsilon, inner=self.inner)

    @property
    def duchi(self) -> DuchiValue:
        return DuchiValue(self.epsilon)

    @property
    def piecewise_share(self) -> float:
        return 1 - math.exp(-self.epsilon / 2) if self.epsilon > THRESHOLD else 0.0

    def __call__(self, values: Tensor, rng: Rng) -> Tensor:
        piecewise = (
            rng.uniform(*values.shape, device=values.device) < self.piecewise_share
        )
        return torch.where(
            piecewise,
            self.piecewise(values, rng),
            self.duchi(values, rng),
        )


@dataclass(frozen=True, kw_only=True)
class Piecewise(reporter.MeanMechanism):
    """Answers for `sampled` random coordinates of a vector, each under its part of ε.
    Guarantee: ε-LDP for the whole vector; unbiased for the clipped one.
    """

    window: ClassVar[float] = 1 / 2
    # None: max(1, min(d, ⌊ε/2.5⌋)), which Wang et al. found best
    sampled: int | None = None
    cells: int = CELLS  # in the window of PM

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(sampled=self.count)
        if self.count > self.dims:
            raise ConfigError(
                f"sampled must be at most dims={self.dims}, not {self.sampled}."
            )
        _ = self.single  # a part of epsilon that is too small is found here

    @property
    def count(self) -> int:
        return (
            max(1, min(self.dims, int(self.epsilon / 2.5)))
            if self.sampled is None
            else self.sampled
        )

    @property
    def single(self) -> PiecewiseValue | HybridValue:
        """The mechanism for every one of the coordinates, under ε / count."""
        return PiecewiseValue(self.epsilon / self.count, self.window, self.cells)

    def report(self, updates: Tensor, rng: Rng) -> reporter.Report:
        updates = reporter.cohort(updates, self.dims)
        indices = reporter.distinct(
            rng,
            self.dims,
            len(updates),
            self.count,
            updates.device,
        )
        answers = self.single(
            reporter.within(updates.gather(1, indices), self.clip),
            rng,
        )
        return self.claims(answers, indices, self.dims / self.count * self.clip)


class PmSub(Piecewise):
    window = 1 / 3


class Hybrid(Piecewise):
    @property
    def single(self) -> HybridValue:
        return HybridValue(self.epsilon / self.count, self.cells)


@dataclass(frozen=True, kw_only=True)
class FedSel(reporter.MeanMechanism):
    """One index, from the k largest by absolute value rather than not (PS), and a noisy
    value for it (PM). Guarantee: ε-LDP for a client's whole update, by composition of
    the two stages. Edges: not an unbiased mean: a coordinate that is often chosen
    weighs more.
    """

    top: int
    # the share of ε for the choice; 0.1 and 0.5 in SignDS-FL's comparison
    split: float = 0.5
    cells: int = CELLS  # in the window of PM

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(split=self.split)
        if self.split >= 1:
            raise ConfigError(
                f"split must be below 1, not {self.split!r}: the value needs a part "
                "of epsilon."
            )
        # these check dims, top, cells, and their parts of epsilon
        _ = self.choice, self.value

    @cached_property
    def choice(self) -> Ps:
        return Ps(dims=self.dims, top=self.top, epsilon=self.split * self.epsilon)

    @cached_property
    def value(self) -> PiecewiseValue:
        return PiecewiseValue((1 - self.split) * self.epsilon, inner=self.cells)

    def report(self, updates: Tensor, rng: Rng) -> reporter.Report:
        updates = reporter.cohort(updates, self.dims)
        indices = torch.cat(
            [
                self.choice.choose(updates[rows].abs(), rng)
                for rows in reporter.chunks(updates)
            ]
        )
        answers = self.value(
            reporter.within(updates.gather(1, indices), self.clip),
            rng,
        )
        return self.claims(answers, indices, self.clip)
