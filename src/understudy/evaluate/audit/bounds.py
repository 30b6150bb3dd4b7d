"""Lower bounds on ε, with confidence, from how well somebody tells two worlds apart.

In one world a person took part, in the other not. Who decides between them, from a release that is (ε, δ)-DP, raises
false alarms at a rate α and misses the person at a rate β with

    1 − δ − β ≤ e^ε α    and    1 − δ − α ≤ e^ε β        (Kairouz, Oh, Viswanath 2015, Thm 2.1),

so that rates too small prove an ε too large. Rates are bounded by Clopper and Pearson.

Sources: thresholds and intervals from Jagielski, Ullman, Oprea, "Auditing differentially private machine learning"
(NeurIPS 2020), and Nasr et al., "Adversary instantiation" (S&P 2021); the step from the rates to the mechanism's own
curve from Nasr et al., "Tight auditing of differentially private machine learning" (USENIX Security 2023).
Differs from the papers: the curve may be that of any spend in a ledger, not of a Gaussian mechanism alone.

Guarantee: each bound lies above the true ε with probability at most 1 − confidence, however scores were made.
Edges: scores that tell nothing apart → 0. n trials prove at most about log(n/4).
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass

import attrs
import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, norm

from understudy.ground.check import in_range
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import Spend, epsilon, flatten

Numbers = NDArray[np.float64]
Aim = Callable[[Numbers, Numbers], Numbers]

PILOT, PILOT_CONFIDENCE = 0.2, 0.8  # the share of the scores that chooses the threshold, and how cautiously
_TOUCH = (0.1, 1.0)  # ε at which a curve is held against the rates
_FAR = 5.0  # noise is scaled by 2⁻⁵ to 2⁵
_NEAR = 0.04  # and this exactly, in powers of two


@dataclass(frozen=True)
class Errors:
    """Upper bounds of both error rates of one decision rule; they hold together with the stated confidence."""

    false_alarm: float
    miss: float

    def epsilon(self, delta: float) -> float:
        """No (ε, δ)-DP release with a smaller ε allows these rates."""
        return float(plain(delta)(np.array(self.false_alarm), np.array(self.miss)))

    def delta(self, epsilon: float) -> float:
        """No (ε, δ)-DP release with a smaller δ allows these rates."""
        worse, better = max(self.false_alarm, self.miss), min(self.false_alarm, self.miss)
        return 1 - worse - float(np.exp(epsilon)) * better

    @property
    def mu(self) -> float:
        """How far two unit normals lie apart, at least, that can be told apart so well (Gaussian DP)."""
        return float(gaussian(np.array(self.false_alarm), np.array(self.miss)))

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def plain(delta: float) -> Aim:
    """ε at this δ from two error rates."""

    def bound(alarm: Numbers, miss: Numbers) -> Numbers:
        with np.errstate(divide="ignore"):
            sides = [np.log(np.maximum(1 - delta - b, 0)) - np.log(a) for a, b in ((alarm, miss), (miss, alarm))]
        return np.asarray(np.maximum(np.maximum(*sides), 0))

    return bound


def gaussian(alarm: Numbers, miss: Numbers) -> Numbers:
    """μ from two error rates."""
    return np.asarray(np.maximum(norm.isf(alarm) - norm.ppf(miss), 0))


def separate(present: ArrayLike, absent: ArrayLike, *, aim: Aim = gaussian, confidence: float = 0.95) -> Errors:
    """Bound the errors of the rule "a score of at least t: the person was there".

    The first scores of each side choose the t that promises the most of `aim`, and of several the one with the fewest
    errors: a handful of scores promises nothing at any t. The others alone are counted.
    Scores are independent of one another, and in the order in which they were drawn.
    """
    in_range(0, 1, confidence=confidence)
    sides = [np.asarray(side, dtype=np.float64) for side in (present, absent)]
    if min(map(len, sides)) < 2 / PILOT or not all(np.isfinite(side).all() for side in sides):
        raise ConfigError(f"a bound needs {2 / PILOT:g} finite scores or more of either world.")
    pilots = [side[: int(PILOT * len(side))] for side in sides]
    counted = [side[int(PILOT * len(side)) :] for side in sides]
    values = np.unique(np.concatenate(pilots))
    thresholds = (values[1:] + values[:-1]) / 2 if len(values) > 1 else values
    alarms, misses = _rates(pilots, thresholds, PILOT_CONFIDENCE)
    best = int(np.lexsort((alarms + misses, -aim(alarms, misses)))[0])
    alarm, miss = _rates(counted, thresholds[best : best + 1], confidence)
    return Errors(float(alarm[0]), float(miss[0]))


def _rates(sides: list[Numbers], thresholds: Numbers, confidence: float) -> tuple[Numbers, Numbers]:
    """Clopper and Pearson's upper bounds at each threshold, half of the doubt for either rate."""
    present, absent = map(np.sort, sides)
    missed = np.searchsorted(present, thresholds)
    alarms = len(absent) - np.searchsorted(absent, thresholds)
    quantile = (1 + confidence) / 2
    high = [
        np.where(wrong < n, beta.ppf(quantile, wrong + 1, np.maximum(n - wrong, 1)), 1.0)
        for wrong, n in ((alarms, len(absent)), (missed, len(present)))
    ]
    return high[0], high[1]


def explained(errors: Errors, claimed: Spend, delta: float) -> float:
    """The least ε at `delta` that the claimed events have with any amount of noise, given these errors.

    A claim is a curve, an ε for every δ. The noise of all its events is scaled by one factor until the curve just
    forbids the errors, and ε is read off there. So the result is above the claim's own ε exactly when the errors refute
    the claim, at whichever δ.
    Edges: nothing is proved → 0; a 32nd of the noise does not explain the errors either → infinity.
    """
    flat: Counter[DpEvent] = Counter()
    for event, count in claimed.items():
        flat += flatten(event, count) if count else Counter()
    if flat and all(isinstance(event, GaussianDpEvent) for event in flat):
        return epsilon({GaussianDpEvent(1 / errors.mu): 1}, delta) if errors.mu > 0 else 0.0
    touches = [(errors.epsilon(delta), delta), *((at, errors.delta(at)) for at in _TOUCH)]

    def allows(log_noise: float) -> bool:
        spend = scaled(flat, 2.0**log_noise)
        with np.errstate(over="ignore"):  # an ε beyond all numbers forbids nothing
            return all(at <= epsilon(spend, least) for at, least in touches if at > 0 and least >= 0)

    low, high = (0.0, _FAR) if allows(0.0) else (-1.0, 0.0)
    if high == _FAR and allows(high):
        return 0.0
    while low < 0 and not allows(low):
        low, high = low - 1, low
        if low < -_FAR:
            return math.inf
    return epsilon(scaled(flat, 2.0 ** _border(allows, low, high, _NEAR)[1]), delta)


def scaled(spend: Spend, factor: float) -> dict[DpEvent, int]:
    """The same uses with `factor` times the noise."""
    return {_scaled(event, factor): count for event, count in spend.items()}


def _scaled(event: DpEvent, factor: float) -> DpEvent:
    if isinstance(event, PoissonSampledDpEvent):
        return attrs.evolve(event, event=_scaled(event.event, factor))
    powers = {"noise_multiplier": 1, "sigma": 1, "noise_parameter": -1, "epsilon": -1, "rho": -2}
    noise = {name: p for name, p in powers.items() if hasattr(event, name)}
    if not noise:
        raise ConfigError(f"{event!r} claims nothing that could be refuted.")
    return attrs.evolve(event, **{name: getattr(event, name) * factor**p for name, p in noise.items()})


def _border(holds: Callable[[float], bool], low: float, high: float, width: float) -> tuple[float, float]:
    """Where something that holds at `low` stops: the last value found at which it does, the first it does not."""
    while high - low > width:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high
