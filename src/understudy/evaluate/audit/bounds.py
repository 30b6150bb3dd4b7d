"""Lower bounds on ε, with confidence, from how well somebody tells two worlds apart;
and how tight a claim is.

In one world a person took part, in the other not. Who decides between them, from a
release that is (ε, δ)-DP, raises false alarms at a rate α and misses the person at a
rate β with

    1 − δ − β ≤ e^ε α    and    1 − δ − α ≤ e^ε β

(Kairouz, Oh, Viswanath 2015, Thm 2.1),

so that rates too small prove an ε too large. Rates are bounded by Clopper and Pearson.

Sources: thresholds and intervals from Jagielski, Ullman, Oprea, "Auditing
differentially private machine learning" (NeurIPS 2020), and Nasr et al., "Adversary
instantiation" (S&P 2021); the step from the rates to the mechanism's own curve from
Nasr et al., "Tight auditing of differentially private machine learning" (USENIX
Security 2023).
Differs from the papers: the curve may be that of any spend in a ledger, not of a
Gaussian mechanism alone.

Guarantee: each bound lies above the true ε with probability at most 1 − confidence,
however scores were made.
Edges: scores that tell nothing apart → 0. n trials prove at most about log(n/4).

Tightness (`tightness`; docs/evidence.md): what one person moves a release by, over the
noise that is really there, as μ, how far apart the two worlds lie as normal laws do
(Dong, Roth, Su, "Gaussian differential privacy", JRSS B 2022). A person who moves less
than is paid for hides noise that is as much too small, so the noise alone is compared
as well with what was stated: the sum of all squares, each over its stated variance.

Guarantee: where noise is independent between cells and of one scale within a block, the
true μ lies between `least` and `most`, and the noise is not below `noise` where that is
true of what was stated, with the stated confidence together.
Edges: noise that differs with the rows counts as what the person moves. The server asks
the same in both worlds, as one that departs can. Whoever colludes knows its own noise:
of equal parts, those of the others are left.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import attrs
import numpy as np
import torch
from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, chi2, norm
from torch import Tensor

from understudy.ground.check import in_range
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import (
    DiscreteGaussian,
    Spend,
    epsilon,
    flatten,
)
from understudy.privacy.accounts.events import Reveals
from understudy.protocols.joint.measurements import Measurements

Numbers = NDArray[np.float64]
Aim = Callable[[Numbers, Numbers], Numbers]

# the share of the scores that chooses the threshold, and how cautiously
PILOT = 0.2
PILOT_CONFIDENCE = 0.8
_TEST_EPSILONS = (0.1, 1.0)  # ε at which a curve is held against the rates
_MAX_LOG_NOISE = 5.0  # noise is scaled by 2⁻⁵ to 2⁵
_LOG_NOISE_WIDTH = 0.04  # and this exactly, in powers of two


@dataclass(frozen=True)
class Errors:
    """Upper bounds of both error rates of one decision rule; they hold together with
    the stated confidence.
    """

    false_alarm: float
    miss: float

    def epsilon(self, delta: float) -> float:
        """No (ε, δ)-DP release with a smaller ε allows these rates."""
        return float(
            epsilon_from_rates(delta)(np.array(self.false_alarm), np.array(self.miss))
        )

    def delta(self, epsilon: float) -> float:
        """No (ε, δ)-DP release with a smaller δ allows these rates."""
        worse = max(self.false_alarm, self.miss)
        better = min(self.false_alarm, self.miss)
        return 1 - worse - float(np.exp(epsilon)) * better

    @property
    def mu(self) -> float:
        """How far two unit normals lie apart, at least, that can be told apart so well
        (Gaussian DP).
        """
        return float(mu_from_rates(np.array(self.false_alarm), np.array(self.miss)))

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def epsilon_from_rates(delta: float) -> Aim:
    """ε at this δ from two error rates."""

    def bound(alarm: Numbers, miss: Numbers) -> Numbers:
        with np.errstate(divide="ignore"):
            sides = [
                np.log(np.maximum(1 - delta - b, 0)) - np.log(a)
                for a, b in ((alarm, miss), (miss, alarm))
            ]
        return np.asarray(np.maximum(np.maximum(*sides), 0))

    return bound


def mu_from_rates(alarm: Numbers, miss: Numbers) -> Numbers:
    """μ from two error rates."""
    return np.asarray(np.maximum(norm.isf(alarm) - norm.ppf(miss), 0))


def bound_errors(
    present: ArrayLike,
    absent: ArrayLike,
    *,
    aim: Aim = mu_from_rates,
    confidence: float = 0.95,
) -> Errors:
    """Bound the errors of the rule "a score of at least t: the person was there".

    The first scores of each side choose the t that promises the most of `aim`, and of
    several the one with the fewest errors: a handful of scores promises nothing at any
    t. The others alone are counted. Scores are independent of one another, and in the
    order in which they were drawn.
    """
    in_range(0, 1, confidence=confidence)
    sides = [np.asarray(side, dtype=np.float64) for side in (present, absent)]
    if min(map(len, sides)) < 2 / PILOT or not all(
        np.isfinite(side).all() for side in sides
    ):
        raise ConfigError(
            f"a bound needs {2 / PILOT:g} finite scores or more of either world."
        )
    pilots = [side[: int(PILOT * len(side))] for side in sides]
    counted = [side[int(PILOT * len(side)) :] for side in sides]
    values = np.unique(np.concatenate(pilots))
    thresholds = (values[1:] + values[:-1]) / 2 if len(values) > 1 else values
    alarms, misses = _rates(pilots, thresholds, PILOT_CONFIDENCE)
    best = int(np.lexsort((alarms + misses, -aim(alarms, misses)))[0])
    alarm, miss = _rates(counted, thresholds[best : best + 1], confidence)
    return Errors(float(alarm[0]), float(miss[0]))


def _rates(
    sides: list[Numbers], thresholds: Numbers, confidence: float
) -> tuple[Numbers, Numbers]:
    """Clopper and Pearson's upper bounds at each threshold, half of the doubt for
    either rate.
    """
    present, absent = map(np.sort, sides)
    missed = np.searchsorted(present, thresholds)
    alarms = len(absent) - np.searchsorted(absent, thresholds)
    quantile = (1 + confidence) / 2
    high = [
        np.where(
            wrong < n, beta.ppf(quantile, wrong + 1, np.maximum(n - wrong, 1)), 1.0
        )
        for wrong, n in ((alarms, len(absent)), (missed, len(present)))
    ]
    return high[0], high[1]


def consistent_epsilon(errors: Errors, claimed: Spend, delta: float) -> float:
    """The least ε at `delta` that the claimed events have with any amount of noise,
    given these errors.

    A claim is a curve, an ε for every δ. The noise of all its events is scaled by one
    factor until the curve just forbids the errors, and ε is read off there. So the
    result is above the claim's own ε exactly when the errors refute the claim, at
    whichever δ.
    Edges: nothing is proved → 0; a 32nd of the noise does not explain the errors either
    → infinity.
    """
    flat: Counter[DpEvent] = Counter()
    for event, count in claimed.items():
        flat += flatten(event, count) if count else Counter()
    if flat and all(isinstance(event, GaussianDpEvent) for event in flat):
        return (
            epsilon({GaussianDpEvent(1 / errors.mu): 1}, delta)
            if errors.mu > 0
            else 0.0
        )
    test_points = [
        (errors.epsilon(delta), delta),
        *((epsilon_at, errors.delta(epsilon_at)) for epsilon_at in _TEST_EPSILONS),
    ]

    def allows(log_noise: float) -> bool:
        spend = scale_noise(flat, 2.0**log_noise)
        with np.errstate(over="ignore"):  # an ε beyond all numbers forbids nothing
            return all(
                epsilon_at <= epsilon(spend, delta_at)
                for epsilon_at, delta_at in test_points
                if epsilon_at > 0 and delta_at >= 0
            )

    low, high = (0.0, _MAX_LOG_NOISE) if allows(0.0) else (-1.0, 0.0)
    if high == _MAX_LOG_NOISE and allows(high):
        return 0.0
    while low < 0 and not allows(low):
        low, high = low - 1, low
        if low < -_MAX_LOG_NOISE:
            return math.inf
    return epsilon(
        scale_noise(flat, 2.0 ** _bisect(allows, low, high, _LOG_NOISE_WIDTH)[1]), delta
    )


def scale_noise(spend: Spend, factor: float) -> dict[DpEvent, int]:
    """The same uses with `factor` times the noise. What reveals a person with some
    probability does so whatever the noise.
    """
    return {_scale_event(event, factor): count for event, count in spend.items()}


def _scale_event(event: DpEvent, factor: float) -> DpEvent:
    if isinstance(event, Reveals):
        return event
    if isinstance(event, PoissonSampledDpEvent):
        return attrs.evolve(event, event=_scale_event(event.event, factor))
    powers = {
        "noise_multiplier": 1,
        "sigma": 1,
        "noise_parameter": -1,
        "epsilon": -1,
        "rho": -2,
    }
    noise = {name: p for name, p in powers.items() if hasattr(event, name)}
    if not noise:
        raise ConfigError(f"{event!r} claims nothing that could be refuted.")
    return attrs.evolve(
        event, **{name: getattr(event, name) * factor**p for name, p in noise.items()}
    )


def _bisect(
    holds: Callable[[float], bool], low: float, high: float, width: float
) -> tuple[float, float]:
    """Where something that holds at `low` stops: the last value found at which it does,
    the first it does not.
    """
    while high - low > width:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


# How tight a claim is

Key = tuple[str, str] | float  # a stage and one of its blocks, or the noise of a block
WIDTH = 1.05  # how far apart the ends of an interval may be
CONFIDENCE = 0.999
MAX_RUNS = 400
_ROUNDING = 1e-3  # a σ is rounded up to a part of 1/64


class NoGaussianError(ConfigError):
    """A release by another noise than Gaussian."""


class Block(NamedTuple):
    """Numbers with noise of one scale: what the person moves each by, its noise, and
    the noise's stated variance.
    """

    moved: NDArray[Any]
    noise: NDArray[Any]
    variance: float


@dataclass(frozen=True)
class Tightness:
    """μ as claimed, and the least and the most that it is, from so many draws of noise.
    `noise`: the most that the deviation of the noise can be, over what was stated.
    """

    claimed: float
    lower: float
    upper: float
    draws: int
    noise: float

    @property
    def broken(self) -> bool:
        """Whether more is told than was claimed, or noise is less than was stated."""
        return self.lower > self.claimed * (1 + _ROUNDING) or self.noise < 1 - _ROUNDING

    def observed(self, delta: float) -> float:
        """The least μ as an ε."""
        return (
            epsilon({GaussianDpEvent(1 / self.lower): 1}, delta) if self.lower else 0.0
        )

    def __str__(self) -> str:
        share = f"{self.lower / self.claimed:.0%} to {self.upper / self.claimed:.0%}"
        return (
            f"whoever knows everybody else: μ between {self.lower:.3f} and "
            f"{self.upper:.3f}, {share} of the {self.claimed:.3f} that is claimed; "
            f"{self.draws:,} draws of noise, which is at most {self.noise:.1%} of what "
            "was stated"
        )


def claimed_mu(spend: Spend) -> float:
    """μ of Gaussian uses together. NoGaussianError for any other."""
    total = 0.0
    for event, count in spend.items():
        for use, times in flatten(event, count).items():
            if isinstance(use, GaussianDpEvent):
                total += times / use.noise_multiplier**2
            elif isinstance(use, DiscreteGaussian):
                total += times * (use.sensitivity / use.sigma) ** 2
            else:
                raise NoGaussianError(f"{use!r} is no Gaussian noise, so it has no μ.")
    return math.sqrt(total)


def tightness(
    look: Callable[[int], tuple[Mapping[Key, Block], Spend]],
    *,
    seconds: float = 30.0,
    max_runs: int = MAX_RUNS,
) -> Tightness:
    """Measure what one person moves, of all runs the most, and the noise, until the two
    ends are near each other. `look(trial)`: the blocks of a run with and without the
    person, by the same noise, and what the ledger holds.
    """
    moves = list[dict[Key, float]]()
    noises = dict[Key, list[NDArray[Any]]]()
    start = time.monotonic()
    squares = 0.0  # of the noise, over its variance as stated
    while True:
        blocks, spend = look(len(moves))
        moves.append(
            {key: float(np.square(block.moved).sum()) for key, block in blocks.items()}
        )
        for key, block in blocks.items():
            noises.setdefault(key, []).append(block.noise)
            squares += float(np.square(block.noise).sum()) / block.variance
        n_draws = {key: sum(map(len, parts)) for key, parts in noises.items()}
        weights = {
            key: moves[-1][key] / block.variance for key, block in blocks.items()
        }
        doubt = (1 - CONFIDENCE) / (2 * len(n_draws) + 1)
        ends = [
            {key: float(quantile(doubt, n)) for key, n in n_draws.items()}
            for quantile in (chi2.ppf, chi2.isf)
        ]
        low, high = (
            sum(w * end[key] / n_draws[key] for key, w in weights.items())
            for end in ends
        )
        # of few small counts a run may draw no noise at all
        is_seen = all(any(map(np.any, parts)) for parts in noises.values())
        is_enough = high <= WIDTH**2 * low or time.monotonic() > start + seconds
        if len(moves) >= max_runs or (is_seen and is_enough):
            break
    noise = {
        key: float(np.square(np.concatenate(parts)).sum())
        for key, parts in noises.items()
    }
    lower, upper = (
        max(
            sum(
                _over(square * end[key], noise[key])
                for key, square in run_moves.items()
            )
            for run_moves in moves
        )
        for end in ends
    )
    draws = sum(n_draws.values())
    noise_bound = math.sqrt(squares / float(chi2.ppf(doubt, draws)))
    return Tightness(
        claimed_mu(spend), math.sqrt(lower), math.sqrt(upper), draws, noise_bound
    )


def _over(moved: float, noise: float) -> float:
    """What is moved where there is no noise is seen for certain."""
    if not noise:
        return math.inf if moved else 0.0
    return moved / noise


def blocks_of_release(
    without_person: Measurements,
    with_person: Measurements,
    others_sums: Mapping[str, Mapping[str, Tensor]],
) -> dict[Key, Block]:
    """Those of a joint release. `others`: what everybody else adds to every block."""
    blocks: dict[Key, Block] = {}
    for name in without_person:
        for key, spec in without_person.stage(name).blocks.items():
            unit = torch.ones(spec.shape, dtype=torch.float64)
            unit += 0 if spec.diagonal is None else (math.sqrt(2) - 1) * spec.diagonal
            holders = len(without_person.holders(spec))
            sums = without_person.record.sums[name][key].double()
            # the share of the noise's variance that those who collude do not know
            unknown_share = (
                holders - min(without_person.study.pricing.max_colluding, holders - 1)
            ) / holders
            moved = with_person.record.sums[name][key] - sums
            noise = sums - others_sums[name][key].double()
            blocks[name, key] = Block(
                (moved / unit).numpy().ravel(),
                math.sqrt(unknown_share) * (noise / unit).numpy().ravel(),
                without_person.deviations(name)[key] ** 2 * unknown_share,
            )
    return blocks
