"""The accountant against a second one that shares nothing with it: two distributions, written out and multiplied.

For every kind of event that a ledger can hold, `pairs` gives what is seen with a person and without them as two lists
of log-probabilities, in both directions. Continuous noise is cut into bins, and where lists grow long, outcomes of
about the same loss are counted as one. Both only throw away what could have been seen, so that the ε of these lists is
a lower bound of the true one, whatever their length. What the ledger states must never lie below it.
"""

import math
from functools import reduce
from itertools import product

import dp_accounting as dp
import mpmath
import numpy as np
import pytest
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from scipy.special import log_ndtr, logsumexp
from scipy.stats import binom

from understudy.errors import ConfigError, PrivacyError
from understudy.privacy.accounts import events
from understudy.privacy.accounts.accounting import (
    DiscreteGaussian,
    PureDp,
    Reveals,
    epsilon,
    event_from_json,
    flatten,
)
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.events import amplified, merged_noise
from understudy.privacy.accounts.ledger import Ledger

Pair = tuple[np.ndarray, np.ndarray]  # log-probabilities of the same outcomes, with the person and without
BINS = 250


def log_mass(edges, log_cdf):
    """log of the mass between neighbouring edges, for a symmetric law about 0, without cancellation in its tails."""
    low, high = edges[:-1], edges[1:]
    low, high = np.where(low > 0, -high, low), np.where(low > 0, -low, high)
    with np.errstate(divide="ignore", invalid="ignore"):
        below, above = log_cdf(low), log_cdf(high)
        return np.where(np.isneginf(below), above, above + np.log1p(-np.exp(below - above)))


def shifted(scale, log_cdf, reach) -> list[Pair]:
    """A number that is moved by 1, under continuous noise."""
    edges = np.concatenate([[-np.inf], np.linspace(-reach * scale, 1 + reach * scale, BINS), [np.inf]])
    pair = log_mass((edges - 1) / scale, log_cdf), log_mass(edges / scale, log_cdf)
    return [pair, pair[::-1]]


def log_laplace_cdf(x):
    return np.where(x < 0, x - math.log(2), np.log1p(-np.exp(-np.abs(x)) / 2))


def counted(log_weight, shift, reach) -> list[Pair]:
    """A whole number that is moved by `shift`, under whole-number noise of these weights."""
    z = np.arange(-reach - shift, reach + 1)  # what lies beyond is left out: that has a weight below e⁻⁶⁰
    weights = log_weight(z)
    pair = log_weight(z - shift) - logsumexp(weights), weights - logsumexp(weights)
    return [pair, pair[::-1]]


def mixed(rate, inner: list[Pair]) -> list[Pair]:
    """With the person: drawn or not. The first of the inner pairs is that of adding."""
    with_person, without = inner[0]
    if rate == 0:
        return [(without, without)]
    pair = (
        np.logaddexp(math.log1p(-rate) + without, math.log(rate) + with_person) if rate < 1 else with_person,
        without,
    )
    return [pair, pair[::-1]]


def joint(one: Pair, other: Pair) -> Pair:
    p, q = ((a[:, None] + b).ravel() for a, b in zip(one, other, strict=True))
    if len(p) <= 2 * BINS:
        return p, q
    with np.errstate(invalid="ignore"):
        loss = np.nan_to_num(p - q, nan=0.0)  # of what cannot be: anywhere
    order = np.argsort(loss)
    matter = loss[(np.maximum(p, q) > -40) & (np.abs(loss) < 1e3)]
    cuts = np.unique(np.searchsorted(loss[order], np.linspace(matter.min(), matter.max(), 4 * BINS)))
    cuts = np.concatenate([[0], cuts[(cuts > 0) & (cuts < len(p))]])
    return tuple(np.logaddexp.reduceat(side[order], cuts) for side in (p, q))


def composed(parts: list[list[Pair]]) -> list[Pair]:
    """Each part with its directions; a person is added to all of them, or taken from all."""
    ways = max(map(len, parts), default=1)
    one = (np.zeros(1), np.zeros(1))
    return [reduce(joint, (part[way % len(part)] for part in parts), one) for way in range(ways)]


def response(each) -> Pair:
    odds = np.array([each, 0.0]) - np.logaddexp(0, each)
    return odds, odds[::-1]


def pairs(event) -> list[Pair]:
    match event:
        case dp.NoOpDpEvent():
            return [(np.zeros(1), np.zeros(1))]
        case dp.NonPrivateDpEvent():
            return [(np.array([0, -np.inf]), np.array([-np.inf, 0]))]
        case dp.GaussianDpEvent():
            return shifted(event.noise_multiplier, log_ndtr, 12)
        case dp.LaplaceDpEvent():
            return shifted(event.noise_multiplier, log_laplace_cdf, 3)
        case DiscreteLaplaceDpEvent():
            reach = math.ceil(60 / event.noise_parameter)
            return counted(lambda z: -np.abs(z) * event.noise_parameter, event.sensitivity, reach)
        case DiscreteGaussian():
            reach = math.ceil(11 * event.sigma) + event.sensitivity
            return counted(lambda z: -((z / event.sigma) ** 2) / 2, event.sensitivity, reach)
        case PureDp():
            return [response(event.epsilon)]
        case dp.ZCDpEvent():  # what such a mechanism may be: Gaussian noise, and randomized response of ε = ξ
            parts = [[response(event.xi)]]
            if event.rho:
                parts.append(shifted((2 * event.rho) ** -0.5, log_ndtr, 12))
            return composed(parts)
        case Reveals():
            with np.errstate(divide="ignore"):
                shown = np.log([event.delta, 0.0, 1 - event.delta])
            return [(shown, shown[[1, 0, 2]])]
        case dp.PoissonSampledDpEvent():
            return mixed(event.sampling_probability, pairs(event.event))
        case dp.ComposedDpEvent():
            return composed([pairs(part) for part in event.events])
        case dp.SelfComposedDpEvent():
            return composed([pairs(event.event)] * event.count)
    raise NotImplementedError(f"{type(event).__name__} needs a second computation of its price.")


def delta_of(pair: Pair, eps: float) -> float:
    p, q = pair
    with np.errstate(invalid="ignore", over="ignore"):
        gain = np.where(np.isneginf(q), 1.0, -np.expm1(np.minimum(eps + q - p, 0)))
    return float(np.sum(np.exp(p) * np.where(np.isneginf(p), 0, gain)))


def least_epsilon(seen: list[Pair], delta: float) -> float:
    """By bisection, from below: ε at which the worse direction still shows more than δ."""
    worst = 0.0
    for pair in seen:
        if delta_of(pair, math.inf) > delta:
            return math.inf
        with np.errstate(invalid="ignore"):
            max_loss = float(np.nanmax(np.where(np.isneginf(pair[1]), 0, pair[0] - pair[1])))
        low, high = 0.0, max(max_loss, 0.0)
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if delta_of(pair, middle) > delta else (low, middle)
        worst = max(worst, low)
    return worst


G, L, DL, DG, Z = (
    dp.GaussianDpEvent,
    dp.LaplaceDpEvent,
    DiscreteLaplaceDpEvent,
    DiscreteGaussian,
    dp.ZCDpEvent,
)
SAMPLED, ALL, TIMES = dp.PoissonSampledDpEvent, dp.ComposedDpEvent, dp.SelfComposedDpEvent
CASES = [
    *map(G, (0.05, 0.4, 1.0, 3.0, 50.0)),
    *map(L, (0.02, 0.5, 1.0, 20.0)),
    *map(PureDp, (0.0, 1e-9, 0.1, 2.0, 30.0, 900.0)),
    *(DL(decay, moved) for decay, moved in ((0.02, 1), (0.5, 3), (4.0, 1), (900.0, 1))),
    *(DG(sigma, moved) for sigma, moved in ((0.05, 1), (0.6, 1), (3.0, 2), (40.0, 1))),
    *(Z(rho, xi) for rho, xi in ((1e-4, 0.0), (0.02, 0.0), (0.5, 0.3), (40.0, 0.0), (0.0, 1.0))),
    *map(Reveals, (0.0, 1e-9, 1e-3)),
    *(SAMPLED(rate, G(noise)) for rate, noise in product((0.0, 0.01, 0.5, 1.0), (0.2, 5.0))),
    SAMPLED(1e-9, G(1.0)),
    *(SAMPLED(rate, L(noise)) for rate, noise in product((1e-9, 0.05, 1.0), (0.001, 0.5, 5.0))),
    *(SAMPLED(rate, PureDp(each)) for rate, each in product((1e-17, 0.3), (1e-9, 1.0, 800.0))),
    SAMPLED(0.1, TIMES(G(2.0), 4)),
    SAMPLED(0.2, ALL([PureDp(0.5), DL(0.5, 1)])),
    dp.NonPrivateDpEvent(),
    dp.NoOpDpEvent(),
    TIMES(G(2.0), 5),
    TIMES(SAMPLED(0.1, G(0.8)), 5),
    TIMES(PureDp(0.3), 12),
    TIMES(DG(6.0), 6),
    TIMES(DL(0.3, 1), 9),
    TIMES(L(4.0), 6),
    TIMES(SAMPLED(0.1, L(0.5)), 6),
    ALL([G(1.5), TIMES(PureDp(0.2), 3), SAMPLED(0.05, G(0.7)), dp.NoOpDpEvent()]),
    ALL([DG(5.0, 2), L(3.0), Reveals(1e-6), TIMES(DL(0.2, 2), 2)]),
    ALL([Z(0.05, 0.0), PureDp(0.4)]),
]  # fmt: skip
every_case = pytest.mark.parametrize("event", CASES, ids=lambda event: events.event_to_json(event)[:90])


def test_every_kind_of_event_that_a_ledger_can_hold_is_computed_a_second_time() -> None:
    """A new kind needs a law in `pairs` and a place among the cases."""

    def kinds(event) -> set[type]:
        parts = getattr(event, "events", None) or [
            p for p in [getattr(event, "event", None)] if p is not None
        ]
        return {type(event)}.union(*map(kinds, parts))

    assert set().union(*map(kinds, CASES)) == set(events._VOCABULARY.values())


def bounded_loosely(event: dp.DpEvent) -> bool:
    """Priced by a bound of all mechanisms of its kind, of which `pairs` shows one: zCDP, and samples of pure ones."""
    return isinstance(event, Z) or (isinstance(event, SAMPLED) and not isinstance(event.event, G))


@every_case
def test_the_stated_epsilon_is_never_below_the_second_one_nor_absurdly_above(event: dp.DpEvent) -> None:
    seen, spend = pairs(event), flatten(event)
    slow = any(isinstance(part, SAMPLED) for part in spend)  # Rényi divergences of these are series
    loose = bounded_loosely(event) or any(map(bounded_loosely, spend))
    for delta in (0.0, 1e-5, 0.02):
        stated, least = epsilon(spend, delta), least_epsilon(seen, delta)
        assert stated >= least * (1 - 1e-9) - 1e-9
        assert slow or epsilon(spend, delta, method="rdp") >= least * (1 - 1e-9) - 1e-9
        if delta and math.isfinite(least) and not loose:
            assert stated <= 1.03 * least + 2e-3


def gaussian_delta(eps: float, sigma: float) -> mpmath.mpf:
    """Balle and Wang 2018, Eq. 6, in sixty digits."""
    with mpmath.workdps(60):
        eps, sigma = mpmath.mpf(eps), mpmath.mpf(sigma)
        half = 1 / (2 * sigma)
        return mpmath.ncdf(half - eps * sigma) - mpmath.exp(eps) * mpmath.ncdf(-half - eps * sigma)


@pytest.mark.parametrize("sigma", [1e-9, 2e-6, 1e-4, 0.3, 1e4, 1e8, 1e12, 1e150])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-5, 0.3])
def test_gaussian_noise_is_priced_right_however_small_or_large(sigma: float, delta: float) -> None:
    stated = epsilon({G(sigma): 1}, delta)
    assert math.isinf(stated) or gaussian_delta(stated, sigma) <= delta * (1 + 1e-9)
    assert math.isfinite(stated) or sigma < 1e-6


@pytest.mark.parametrize(
    ("each", "uses", "delta"), [(0.1, 10_000, 1e-11), (0.02, 50_000, 1e-7), (0.01, 1_000_000, 1e-11)]
)
def test_many_uses_are_priced_right_where_the_rounding_of_a_transform_adds_up(
    each: float, uses: int, delta: float
) -> None:
    stated = epsilon({PureDp(each): uses}, delta)
    k = np.arange(int((stated / each + uses) / 2), uses + 1)
    losses = (2 * k - uses) * each
    mass = binom.pmf(k, uses, 1 / (1 + math.exp(-each)))
    assert np.sum(mass * np.maximum(0, -np.expm1(np.minimum(stated - losses, 0)))) <= delta
    assert stated <= uses * each


@pytest.mark.parametrize("rate", [1e-320, 1e-17, 1e-6, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("each", [5e-324, 1e-18, 1e-6, 1.0, 50.0, 699.9, 800.0])
def test_a_sample_of_a_pure_mechanism_never_costs_less_than_it_does(rate: float, each: float) -> None:
    with mpmath.workdps(400):
        truth = mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(mpmath.mpf(each)))
        assert truth <= amplified(rate, each) <= truth * (1 + 1e-14) + mpmath.mpf("1e-323")


EXTREMES = [5e-324, 1e-200, 1e-30, 1e-7, 1e7, 1e30, 1e200, 1.7e308]


@pytest.mark.parametrize("size", EXTREMES)
def test_extreme_numbers_have_a_price_and_less_noise_or_more_uses_never_a_lower_one(size: float) -> None:
    kinds = (
        [G(size), G(size * 0.5)],
        [L(size), L(size * 0.5)],
        [DG(size), DG(size * 0.5)],
        [SAMPLED(0.3, G(size)), SAMPLED(0.3, G(size * 0.5))],
        [SAMPLED(0.3, L(size)), SAMPLED(0.3, L(size * 0.5))],
        [PureDp(size * 0.5), PureDp(size)],
        [Z(size * 0.5), Z(size)],
        [DL(max(size * 0.5, 5e-324), 1), DL(size, 1)],
    )
    for more, less in kinds:
        many = 2 if isinstance(more, SAMPLED) else 2**53  # Rényi divergences of those are long series
        for method in ("pld",) if isinstance(more, SAMPLED) else ("pld", "rdp"):
            uses = ((more, 1), (less, 1), (less, many))
            prices = [epsilon({event: n}, 1e-6, method=method) for event, n in uses]
            assert all(price >= 0 for price in prices)
            assert prices[1] >= prices[0] * (1 - 1e-3) - 1e-4
            assert prices[2] >= prices[1] * (1 - 1e-3) - 1e-4
            assert epsilon({less: 2**53}, 0.0) >= epsilon({less: 1}, 0.0)


def test_merged_gaussian_noise_neither_vanishes_nor_overflows() -> None:
    assert merged_noise({G(1e-200): 4}) == pytest.approx(5e-201, rel=1e-12)
    assert merged_noise({G(1e200): 4, G(1e-3): 1}) == pytest.approx(1e-3, rel=1e-12)
    assert merged_noise({G(1e300): 4}) == pytest.approx(5e299, rel=1e-12)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: epsilon({PureDp(1e-300): 2**53 + 1}, 1e-5),
        lambda: epsilon({TIMES(PureDp(1.0), 10**400): 1}, 1e-5),
        lambda: epsilon({G(math.inf): 1}, 1e-5),
        lambda: epsilon({SAMPLED(math.nan, G(1.0)): 1}, 1e-5),
        lambda: epsilon({SAMPLED(1.0000001, G(1.0)): 1}, 1e-5),
        lambda: epsilon({SAMPLED(-1e-300, G(1.0)): 1}, 1e-5),
        lambda: epsilon({PureDp(1.0): 1}, math.nan),
        lambda: DG(1.0, 10**400),
        lambda: flatten(DL(1.0, 0)),
        lambda: PureDp(math.nan),
        lambda: Reveals(math.inf),
    ],
)
def test_numbers_that_would_make_a_price_meaningless_are_refused(bad) -> None:
    with pytest.raises(ConfigError):
        bad()


NO_NUMBERS = ("NaN", "Infinity", "1e999", '"5"', "true", "null", "1" + "0" * 400)
DEEP = '{"type":"SelfComposedDpEvent","count":1,"event":'


@pytest.mark.parametrize(
    "text",
    [
        *(f'{{"type":"GaussianDpEvent","noise_multiplier":{x}}}' for x in NO_NUMBERS),
        '{"type":"PoissonSampledDpEvent","sampling_probability":NaN,"event":{"type":"NoOpDpEvent"}}',
        '{"type":"SelfComposedDpEvent","event":{"type":"PureDp","epsilon":1},"count":true}',
        '{"type":"SelfComposedDpEvent","event":{"type":"PureDp","epsilon":1},"count":-1}',
        '{"type":"DiscreteLaplaceDpEvent","noise_parameter":1,"sensitivity":0.5}',
        DEEP * 5000 + '{"type":"NoOpDpEvent"}' + "}" * 5000,
        '["PureDp"]',
    ],
    ids=lambda text: text[:60],
)  # fmt: skip
def test_text_with_numbers_that_are_none_is_refused_as_an_event(text: str) -> None:
    with pytest.raises(PrivacyError):
        event_from_json(text)


def test_a_ledger_charges_extremes_their_price_or_refuses_and_never_forgets_what_stood_there() -> None:
    ledger = Ledger.rehearsal("clinic", Budget(1.0, 1e-6))
    ledger.charge(PureDp(0.4), run="one", what="a report")
    for event, count in (
        (G(1e-200), 1),
        (DG(1e-9), 1),
        (PureDp(1e-15), 2**53),
        (SAMPLED(1e-17, PureDp(40.0)), 2**40),
    ):
        with pytest.raises((PrivacyError, ConfigError)):
            ledger.charge(event, count=count, run="one", what="too much")
    ledger.charge(SAMPLED(1e-17, PureDp(1.0)), count=2**50, run="one", what="crumbs")
    crumbs = 2**50 * 1.718281828e-17
    assert ledger.spent(delta=0.0) == pytest.approx(0.4 + crumbs, rel=1e-9)
    assert crumbs > 0.01
