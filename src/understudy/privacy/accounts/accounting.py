"""What a list of uses costs: ε at a δ, for add/remove one person.

A mechanism says what it did (`events`), a `Spend` says how often, and this file alone
turns that into ε. The order of the uses does not matter, and each may depend on what
came before it.

Sources: privacy loss distributions by "connect the dots" (Doroshenko et al., PoPETs
2022, Alg. 1) and Rényi divergences (Mironov 2017; converted by Canonne, Kamath, Steinke
2020, Prop. 12), both from dp_accounting.
Differs from the library's own accountants:
- the worst ε-DP mechanism is randomized response (Kairouz, Oh, Viswanath 2015): its
  loss is ±ε with odds e^ε : 1, its Rényi divergence that of Bun and Steinke 2016, Prop.
  3.3. The library has no such event;
- Gaussian uses are merged into one, exactly; a spend of nothing else needs no grid
  (Balle and Wang 2018), nor does one use on a Poisson sample (Balle, Barthe, Gaboardi
  2018); at a tiny δ few such uses are priced one by one;
- every count goes through `folded`; the library drops it for randomized response;
- the grid of losses is as wide as an ε right to 1 in 1000 allows.

Guarantee: every figure is an upper bound of the true ε. It is within about a thousandth
of it at a δ from 10⁻¹¹ on, and at any δ for Gaussian uses alone or one use on a sample.
Below 10⁻¹¹ it is loose for more uses on samples of a rate far above δ: of 20 at a rate
of 10⁻⁵, σ = 1 and δ = 10⁻¹² it says .07, and the true figure is .0036.
Edges: an event outside the vocabulary → PrivacyError, never zero; no noise, or δ=0 for
what is not pure → infinity; nothing spent → 0. Where numbers are too small or too large
to compute with, a coarser bound: noise below 10⁻⁶ is none, noise above 10¹² is that
much, a rate below 10⁻¹² is that; an ε above 500, a million uses, and whole-number noise
above 10⁴ are priced by Rényi divergences.
"""

import math
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
from dp_accounting import (
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    ZCDpEvent,
)
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as plds
from dp_accounting.rdp import RdpAccountant
from scipy.special import expit

from understudy.ground.check import one_of, positive
from understudy.ground.errors import ConfigError, Effect, PrivacyError
from understudy.privacy.accounts import events
from understudy.privacy.accounts import losses as quick
from understudy.privacy.accounts.events import (
    DiscreteGaussian,
    PureDp,
    Reveals,
    Spend,
    flatten,
)

__all__ = [
    "DiscreteGaussian",
    "DpEvent",
    "PureDp",
    "Reveals",
    "Spend",
    "calibrate",
    "epsilon",
    "flatten",
]

ACCOUNTANTS = {"pld": "privacy loss distributions", "rdp": "Rényi divergences"}

_FINEST_GRID = 2.0**-13
_LEAST_DELTA = 1e-11  # below it the rounding of the FFT is no longer small against δ
# dp_accounting cuts its series at e⁻³⁰, and an order may divide that by α − 1 = 0.1
_SERIES = 1e-12
_ROUNDING = 2.0**-51  # of a use: what an FFT may take away from δ
_MOST_USES = 10**6  # of which a distribution is composed
_LARGE = 500.0  # an ε of which nobody needs the digits, and e^ε is still a float
_LEAST_NOISE = 1e-6
_LARGEST_NOISE = 1e12
_LARGEST_WHOLE_NOISE = 1e4  # a distribution lists every whole number that it reaches
_LEAST_RATE = 1e-12
# of the pure ε of sampled Laplace noise: dp_accounting takes e to its power
_LARGEST_SAMPLED = 500.0
_MOST_NOISE = 1e7
_ORDERS = tuple(RdpAccountant().orders)
_USUAL_DELTA = 1e-6  # at which ε says how fine a grid of losses has to be
# any row of them is sound; neighbours differ by 7 %
_DELTAS = np.geomspace(1e-6, 0.999, 200)
# their sums are short: a quick bound
_WHOLE_ORDERS = tuple(order for order in _ORDERS if order == int(order))


def epsilon(spend: Spend, delta: float, *, method: str = "pld") -> float:
    """ε of all uses at `delta`: the accountant's, or pure ε's sum if smaller; "pld" is
    Rényi where it must be.
    """
    one_of(ACCOUNTANTS, method=method)
    return _total(spend, delta, method)


def _total(spend: Spend, delta: float, method: str) -> float:
    if not 0 <= delta < 1:
        raise ConfigError(f"delta must be 0 or above and below 1, not {delta!r}.")
    uses, failure = _without_failures(spend)
    remaining_delta = delta - failure
    if remaining_delta < 0:
        return math.inf
    return _epsilon(uses, float(remaining_delta), method)


def _without_failures(spend: Spend) -> tuple[frozenset[tuple[DpEvent, int]], float]:
    """All uses of single events but for revelations, and the chance of these."""
    flat: Counter[DpEvent] = Counter()
    for event, times in spend.items():
        if times:
            flat += flatten(event, times)
    failures = {
        event: flat.pop(event) for event in list(flat) if isinstance(event, Reveals)
    }
    chance = math.fsum(event.delta * times for event, times in failures.items())
    return frozenset(flat.items()), chance


def distance(spend: Spend) -> float:
    """The total variation distance of two worlds that differ in a person: δ at ε = 0,
    which is all that a best guess follows from.

    Guarantee: never below it. Exact for Gaussian uses alone and for one pure use; by
    privacy loss distributions within about a thousandth; where losses cannot be listed,
    the least bound that ε has at any δ.
    Edges: no noise → 1; nothing spent → 0.
    """
    uses, failure = _without_failures(spend)
    return min(1.0, failure + _distance(uses))


@lru_cache(maxsize=1024)
def _distance(uses: frozenset[tuple[DpEvent, int]]) -> float:
    spend = dict(uses)
    plain = events.pure_sum(spend)
    if not plain:
        return 0.0
    if any(_noiseless(event) for event in spend):
        return 1.0
    if all(isinstance(event, GaussianDpEvent) for event in spend):
        return min(1.0, quick.gaussian_distance(events.merged_noise(spend)))
    bounds = [1.0, _sampling_chance(spend), math.tanh(plain / 2) * (1 + 1e-12)]
    size = min(plain, _renyi(uses, _USUAL_DELTA, _WHOLE_ORDERS))
    if _has_losses(uses) and size <= _LARGE:
        times = _folds(uses)
        losses = _losses(uses, _grid(size, times))
        bounds.append(quick.largest_delta(losses) + times * _ROUNDING)
    else:
        bounds += (
            math.tanh(price / 2) * (1 - delta) + delta for delta, price in _curve(uses)
        )
    return min(bounds)


def _curve(uses: frozenset[tuple[DpEvent, int]]) -> list[tuple[float, float]]:
    """ε by Rényi divergences at a row of δ: (ε, δ) bounds the distance by (e^ε − 1 +
    2δ) / (e^ε + 1).
    """
    return [(float(delta), _renyi(uses, float(delta), _ORDERS)) for delta in _DELTAS]


def _folds(uses: frozenset[tuple[DpEvent, int]]) -> int:
    """How many distributions are folded: Gaussian uses are one."""
    return 1 + sum(n for event, n in uses if not isinstance(event, GaussianDpEvent))


def _has_losses(uses: frozenset[tuple[DpEvent, int]]) -> bool:
    """Whether losses can be listed: there is a worst pair of distributions, and the
    lists are not too long.
    """
    if _folds(uses) > _MOST_USES:
        return False
    return not any(
        isinstance(event, ZCDpEvent)
        or getattr(event, "sigma", 0.0) > _LARGEST_WHOLE_NOISE
        for event, _ in uses
    )


@lru_cache(maxsize=4096)
def _epsilon(uses: frozenset[tuple[DpEvent, int]], delta: float, method: str) -> float:
    spend = dict(uses)
    plain = events.pure_sum(spend)
    if delta == 0 or plain == 0 or any(_noiseless(event) for event in spend):
        return plain
    if _sampling_chance(spend) <= delta:
        return 0.0
    if method == "pld" and all(isinstance(event, GaussianDpEvent) for event in spend):
        return quick.gaussian_bound(events.merged_noise(spend), delta)
    if method == "quick":
        return min(plain, _renyi(uses, delta, _WHOLE_ORDERS))
    if method == "pld":
        use_by_use = _use_by_use(spend, delta)
        plain = min(plain, use_by_use)
        if sum(spend.values()) == 1 and math.isfinite(use_by_use):
            return use_by_use
    times = _folds(uses)
    remaining_delta = delta - times * _ROUNDING
    coarse = delta < _LEAST_DELTA or remaining_delta < delta / 2
    if method == "rdp" or coarse or not _has_losses(uses):
        return min(plain, _renyi(uses, delta, _ORDERS))
    bound = min(plain, _renyi(uses, delta, _WHOLE_ORDERS))
    if bound > _LARGE:
        return bound
    losses = _losses(uses, _grid(bound, times))
    return min(plain, quick.least_epsilon(losses, remaining_delta))


def _sampling_chance(spend: Spend) -> float:
    """The chance that a person is in any of the samples: who is in none is not seen,
    whatever the noise.
    """
    if not all(isinstance(event, PoissonSampledDpEvent) for event in spend):
        return 1.0
    log_chances = []
    for event, times in spend.items():
        rate = min(event.sampling_probability, 1 - 1e-16)
        log_chances.append(times * math.log1p(-rate))
    return -math.expm1(math.fsum(log_chances)) * (1 + 1e-12)


def _use_by_use(spend: Spend, delta: float) -> float:
    """ε of sampled Gaussian uses at a share of δ each, and of all else at one: added
    up, an upper bound.

    One use is (log(1 + q(e^ε − 1)), qδ)-DP where its noise alone is (ε, δ)-DP, which is
    all of one use (Balle, Barthe, Gaboardi 2018, Thm 8). Rényi divergences miss what
    the sample hides at a δ far below q.
    Edges: no such use, or a δ too small to share → infinity.
    """
    sampled = {event: n for event, n in spend.items() if _sampled(event)}
    rest = frozenset((event, n) for event, n in spend.items() if event not in sampled)
    shares = sum(sampled.values()) + (1 if rest else 0)
    share = delta / max(1, shares) * (1 - 1e-15)
    if not sampled or not share:
        return math.inf
    total = _epsilon(rest, share, "pld") if rest else 0.0
    for event, times in sampled.items():
        rate = event.sampling_probability
        noise = event.event.noise_multiplier
        if share < rate:
            full_batch = quick.gaussian_bound(noise, share / rate * (1 - 1e-15))
            total += times * events.amplified(rate, full_batch)
    return total


def _grid(size: float, uses: int) -> float:
    """The spacing of privacy losses for an ε of about `size`: rounding adds about uses
    · grid² / 4 to it.
    """
    spacing = min(size / 1000, math.sqrt(size / 1000 / uses))
    return 2.0 ** math.floor(math.log2(max(_FINEST_GRID, spacing)))


@lru_cache(maxsize=32)  # who asks at one δ asks at others
def _losses(uses: frozenset[tuple[DpEvent, int]], grid: float) -> Any:
    """The privacy loss distribution of all uses; its Gaussian ones enter as one."""
    gaussians = {event: n for event, n in uses if isinstance(event, GaussianDpEvent)}
    parts = [(_pld(event, grid), n) for event, n in uses if event not in gaussians]
    if gaussians:
        parts.append((_pld(GaussianDpEvent(events.merged_noise(gaussians)), grid), 1))
    return quick.folded(parts)


@lru_cache(maxsize=64)
def _pld(event: DpEvent, grid: float) -> Any:
    """The privacy loss distribution of one use, rounded up onto the grid."""
    event = _computable(event)
    rate = 1.0
    inner = event
    if isinstance(event, PoissonSampledDpEvent):
        rate = event.sampling_probability
        inner = event.event
        if isinstance(inner, LaplaceDpEvent) and events.pure(inner) > _LARGEST_SAMPLED:
            return _randomized_response(events.pure(event), grid)
    match inner:
        case GaussianDpEvent(noise_multiplier=noise):
            if rate == 1:
                return quick.gaussian(noise, grid)
            return quick.sampled_gaussian(rate, noise, grid)
        case LaplaceDpEvent(noise_multiplier=noise):
            return plds.from_laplace_mechanism(
                noise,
                sampling_prob=rate,
                value_discretization_interval=grid,
            )
        case DiscreteGaussian():
            return quick.discrete_gaussian(inner.sigma, inner.sensitivity, grid)
        case DiscreteLaplaceDpEvent():
            return plds.from_discrete_laplace_mechanism(
                inner.noise_parameter,
                inner.sensitivity,
                value_discretization_interval=grid,
                use_connect_dots=True,
            )
        case PureDp():
            return _randomized_response(inner.epsilon, grid)
    raise PrivacyError(
        f"{event!r} has no privacy loss distribution.",
        effect=Effect.NOTHING_SENT,
    )


def _randomized_response(epsilon: float, grid: float) -> Any:
    """The privacy loss distribution of randomized response: loss ±ε with odds e^ε : 1;
    its curve δ(x) is joined at the grid points around ±ε.
    """
    around = np.array([math.floor(epsilon / grid), math.ceil(epsilon / grid)])
    points = np.unique(np.concatenate([-around, around]))
    x = points * grid
    log_sum = np.logaddexp(0, epsilon)
    log_lower = np.minimum(x + epsilon - log_sum, 0)
    deltas = np.maximum(0, expit(epsilon) - np.exp(x - log_sum))
    deltas += np.maximum(0, expit(-epsilon) - np.exp(log_lower))
    masses = pld_pmf.create_pmf_pessimistic_connect_dots(grid, points, deltas)
    return plds.PrivacyLossDistribution(masses)


def _renyi(
    uses: frozenset[tuple[DpEvent, int]],
    delta: float,
    orders: tuple[float, ...],
) -> float:
    with np.errstate(all="ignore"):
        total = np.asarray(sum(n * _rdp(event, orders) for event, n in uses))
        return quick.converted(total, np.array(orders), delta)


@lru_cache(maxsize=1024)
def _rdp(event: DpEvent, orders: tuple[float, ...]) -> npt.NDArray[np.float64]:
    """The Rényi divergence of one use at every order α, never less than it is."""
    alpha = np.array(orders)
    event = _computable(event)
    match event:
        case DiscreteGaussian():  # Canonne, Kamath, Steinke 2020, Thm 4
            event = ZCDpEvent((event.sensitivity / event.sigma) ** 2 / 2)
        case DiscreteLaplaceDpEvent() | PoissonSampledDpEvent(event=LaplaceDpEvent()):
            event = PureDp(events.pure(event))
    with np.errstate(all="ignore"):
        if isinstance(event, PureDp):  # log Σ p^α q^(1−α) for randomized response
            powers = np.logaddexp(alpha * event.epsilon, (1 - alpha) * event.epsilon)
            divergence = (powers - np.logaddexp(0, event.epsilon)) / (alpha - 1)
        elif _sampled(event):
            divergence = quick.sampled_divergence(
                event.sampling_probability,
                event.event.noise_multiplier,
                orders,
            )
        else:
            divergence = RdpAccountant(orders).compose(event).rdp
    # compute_epsilon would read a divergence that is negative, or not a number, as ε=0
    finite = np.nan_to_num(divergence, nan=np.inf, posinf=np.inf)
    return np.asarray(np.maximum(finite, 0) + _SERIES)


def _sampled(event: DpEvent) -> bool:
    return events.is_sampled_gaussian(event) and 0 < event.sampling_probability < 1


def _noiseless(event: DpEvent) -> bool:
    inner = event.event if isinstance(event, PoissonSampledDpEvent) else event
    noise = min(getattr(inner, name, 1.0) for name in ("noise_multiplier", "sigma"))
    # no such distribution
    endless = isinstance(inner, DiscreteLaplaceDpEvent) and not inner.noise_parameter
    return isinstance(inner, NonPrivateDpEvent) or noise < _LEAST_NOISE or endless


def _computable(event: DpEvent) -> DpEvent:
    """An event that costs at least as much, of numbers that products and powers do not
    take out of all bounds.
    """
    match event:
        case PoissonSampledDpEvent():
            return PoissonSampledDpEvent(
                max(event.sampling_probability, _LEAST_RATE),
                _computable(event.event),
            )
        case GaussianDpEvent() | LaplaceDpEvent() if (
            event.noise_multiplier > _LARGEST_NOISE
        ):
            return type(event)(_LARGEST_NOISE)
        case DiscreteGaussian() if event.sigma > _LARGEST_NOISE:
            return DiscreteGaussian(_LARGEST_NOISE, event.sensitivity)
        case DiscreteLaplaceDpEvent() if event.noise_parameter < 1 / _LARGEST_NOISE:
            return DiscreteLaplaceDpEvent(1 / _LARGEST_NOISE, event.sensitivity)
    return event


def calibrate(
    price: Callable[[float], Spend],
    *,
    epsilon: float,
    delta: float,
    method: str = "pld",
    tolerance: float = 1e-3,
) -> float:
    """The smallest noise multiplier σ whose spend `price(σ)` stays within (ε, δ).

    Guarantee: the ε of the returned σ was computed and is at most `epsilon`; it, or σ,
    is within a relative `tolerance` of the best. `price` must not cost more with more
    noise.
    Edges: out of reach for every σ up to 10⁷ → PrivacyError; within reach of every σ
    down to 10⁻⁷ → 10⁻⁷.
    """
    positive(epsilon=epsilon, tolerance=tolerance)
    one_of(ACCOUNTANTS, method=method)

    # log(ε/target): close to linear in log σ
    def excess(noise: float, accountant: str) -> float:
        ratio = _total(price(noise), delta, accountant) / epsilon
        return math.log(min(max(ratio, 1e-9), 1e9))

    start = _calibrated_noise(
        lambda noise: excess(noise, "quick"),
        start=1.0,
        tolerance=0.05,
    )
    noise = _calibrated_noise(
        lambda noise: excess(noise, method),
        start=start or _MOST_NOISE,
        tolerance=tolerance,
    )
    if noise is None:
        raise PrivacyError(
            f"no noise up to {_MOST_NOISE:g} keeps ε={epsilon} at δ={delta}.",
            effect=Effect.NOTHING_SENT,
        )
    return noise


@lru_cache(maxsize=64)
def gaussian_of(epsilon: float, delta: float) -> DpEvent:
    """The Gaussian mechanism that costs this much; at δ = 0, where it has no price, a
    pure one.
    """
    if not delta:
        return PureDp(epsilon)
    noise = calibrate(
        lambda noise: {GaussianDpEvent(noise): 1},
        epsilon=epsilon,
        delta=delta,
    )
    return GaussianDpEvent(noise)


@lru_cache(maxsize=64)
def planned_gaussians(epsilon: float, delta: float) -> Spend | None:
    """What releases under Gaussian noise spend together that use up a budget: one
    Gaussian, a little dearer than it.

    Guarantee: no composition of Gaussian uses within the budget is guessed at more
    often than this.
    Edges: δ = 0, where Gaussian noise has no price → a pure use; noise below 1, where
    whole-number noise is no longer Gaussian → None: the budget is all that is known.
    """
    event = gaussian_of(epsilon, delta)
    if isinstance(event, PureDp):
        return {event: 1}
    noise = event.noise_multiplier
    while quick.gaussian_bound(noise, delta) <= epsilon * (1 + 1e-6):
        noise *= 1 - 1e-3
    return {GaussianDpEvent(noise): 1} if noise >= 1 else None


def _calibrated_noise(
    excess_at: Callable[[float], float],
    *,
    start: float,
    tolerance: float,
) -> float | None:
    """A σ with −tolerance ≤ excess_at(σ) ≤ 0, or within `tolerance` above the root;
    `excess_at` falls with σ.
    """
    limit = math.log(_MOST_NOISE)
    x = math.log(start)
    stride = 0.02
    # the closest points on either side of the root, with their excess
    below: tuple[float, float] | None = None
    above: tuple[float, float] | None = None
    for iteration in count():
        excess = excess_at(math.exp(x))
        if excess <= 0:
            above = (x, excess)
        else:
            below = (x, excess)
        if -tolerance <= excess <= 0 or (excess <= 0 and x <= -limit):
            return math.exp(x)
        if below and above:
            if above[0] - below[0] <= tolerance:
                return math.exp(above[0])
            # aim a little below the target
            share = (below[1] + tolerance / 2) / (below[1] - above[1])
            share = min(max(share, 0.02), 0.98) if iteration % 4 < 3 else 0.5
            x = below[0] + (above[0] - below[0]) * share
        elif x >= limit:
            return None
        else:
            stride *= 2
            # ε falls about as σ^−1.5
            step = min(max(abs(excess) / 1.5, stride), 3.0)
            x += math.copysign(step, excess)
            x = min(max(x, -limit), limit)
    return None
