"""ε is checked against divergences computed without any accountant: closed forms, sums
and quadrature.
"""

import math
from collections import Counter

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, norm

from refusals import raises
from understudy.ground.errors import ConfigError, Effect, PrivacyError
from understudy.privacy.accounts.accounting import (
    DiscreteGaussian,
    PureDp,
    calibrate,
    epsilon,
    flatten,
)
from understudy.privacy.accounts.events import event_from_json, event_to_json

DELTA = 1e-5
GAUSSIAN = dp.GaussianDpEvent
LAPLACE = dp.LaplaceDpEvent


def sampled(rate: float, noise: float) -> dp.PoissonSampledDpEvent:
    return dp.PoissonSampledDpEvent(rate, GAUSSIAN(noise))


# The oracle: δ(ε) of the Poisson-sampled Gaussian, P = (1 − q)·N(0, σ²) + q·N(1, σ²)
# against Q = N(0, σ²).


def loss(x: np.ndarray, q: float, sigma: float) -> np.ndarray:
    """log P/Q, which rises with x."""
    return np.logaddexp(math.log1p(-q), math.log(q) + (2 * x - 1) / (2 * sigma**2))


def one_use(eps: np.ndarray, q: float, sigma: float, *, remove: bool) -> np.ndarray:
    """Hockey-stick divergence at any real ε, in closed form: the loss exceeds ε on a
    half line.
    """
    level = np.exp(eps if remove else -eps)  # P/Q at the edge of the half line
    with np.errstate(divide="ignore", invalid="ignore"):
        edge = np.where(
            level > 1 - q, sigma**2 * np.log((level - 1 + q) / q) + 0.5, -np.inf
        )
    if remove:
        p = (1 - q) * norm.sf(edge / sigma) + q * norm.sf((edge - 1) / sigma)
        return p - np.exp(eps) * norm.sf(edge / sigma)
    p = (1 - q) * norm.cdf(edge / sigma) + q * norm.cdf((edge - 1) / sigma)
    return norm.cdf(edge / sigma) - np.exp(eps) * p


def true_delta(eps: float, q: float, sigma: float, uses: int) -> float:
    """δ(ε) of one or two uses, worse direction. Two: one's divergence, averaged over
    the other's loss.
    """
    if uses == 1:
        return max(
            float(one_use(np.array(eps), q, sigma, remove=way)) for way in (True, False)
        )
    x = np.linspace(-14 * sigma, 1 + 14 * sigma, 20_001)
    lost = loss(x, q, sigma)
    q_density = norm.pdf(x / sigma) / sigma
    p_density = q_density * np.exp(lost)
    removed = np.trapezoid(p_density * one_use(eps - lost, q, sigma, remove=True), x)
    added = np.trapezoid(q_density * one_use(eps + lost, q, sigma, remove=False), x)
    return float(max(removed, added))


def true_epsilon(delta: float, q: float, sigma: float, uses: int) -> float:
    return float(
        brentq(
            lambda eps: true_delta(eps, q, sigma, uses) - delta, 1e-6, 30, xtol=1e-10
        )
    )


@pytest.mark.parametrize("uses", [1, 2])
@pytest.mark.parametrize(("q", "sigma"), [(0.01, 0.7), (0.1, 1.0), (0.3, 2.0)])
def test_epsilon_of_a_sampled_gaussian_is_the_true_one_from_above(
    q: float, sigma: float, uses: int
) -> None:
    truth = true_epsilon(DELTA, q, sigma, uses)
    ours = epsilon({sampled(q, sigma): uses}, DELTA)
    assert truth - 1e-10 <= ours <= truth * 1.001 + 1e-4  # the root's own tolerance
    assert epsilon({sampled(q, sigma): uses}, DELTA, method="rdp") >= truth


@pytest.mark.parametrize("uses", [1, 2])
def test_the_calibrated_noise_keeps_its_promise_and_a_little_less_does_not(
    uses: int,
) -> None:
    q = 0.1
    target = 1.0
    sigma = calibrate(
        lambda noise: {sampled(q, noise): uses}, epsilon=target, delta=DELTA
    )
    assert true_delta(target, q, sigma, uses) <= DELTA
    # tight, and the oracle catches a false claim
    assert true_delta(target, q, 0.99 * sigma, uses) > DELTA


@pytest.mark.parametrize("uses", [1, 7, 60])
def test_epsilon_of_a_pure_mechanism_is_that_of_randomized_response(uses: int) -> None:
    each = 0.1234567
    k = np.arange(uses + 1)
    mass = binom.pmf(k, uses, 1 / (1 + math.exp(-each)))
    losses = (2 * k - uses) * each

    # Kairouz, Oh, Viswanath 2015: the optimal composition of equal ε
    def delta(eps: float) -> float:
        return float(np.sum(mass * np.maximum(0, -np.expm1(eps - losses))))

    ours = epsilon({PureDp(each): uses}, DELTA)
    truth = brentq(lambda eps: delta(eps) - DELTA, 0, uses * each)
    assert truth - 1e-12 <= ours <= truth + 1e-4
    assert ours <= uses * each
    assert epsilon({PureDp(each): uses}, 0.0) == pytest.approx(uses * each, rel=1e-12)
    assert epsilon({PureDp(each): uses}, DELTA, method="rdp") >= truth


def test_renyi_price_of_a_pure_mechanism_is_tight_at_every_order() -> None:
    from understudy.privacy.accounts import accounting

    each = 0.8
    orders = np.array([1.1, 1.5, 2.0, 7.0, 60.0])
    p = math.exp(each) / (1 + math.exp(each))
    q = 1 / (1 + math.exp(each))
    exact = np.log(p**orders * q ** (1 - orders) + q**orders * p ** (1 - orders)) / (
        orders - 1
    )
    assert np.allclose(
        accounting._rdp(PureDp(each), tuple(orders)), exact, rtol=1e-9, atol=1e-11
    )


def test_randomized_response_is_never_priced_without_its_count() -> None:
    """dp_accounting prices ten uses of its own event as one; composed in a list it
    prices them right.
    """
    # keeps the bit with odds 5 : 1
    response = dp.RandomizedResponseDpEvent(noise_parameter=1 / 3, num_buckets=2)
    relation = dp.NeighboringRelation.REPLACE_ONE
    with pytest.raises(PrivacyError, match="PureDp"):
        epsilon({response: 10}, DELTA)
    listed = (
        dp.pld.PLDAccountant(relation)
        .compose(dp.ComposedDpEvent([response] * 10))
        .get_epsilon(DELTA)
    )
    ours = epsilon({PureDp(math.log(5)): 10}, DELTA)
    assert ours == pytest.approx(listed, rel=1e-3)
    assert epsilon({PureDp(math.log(5)): 10}, 0.0) == pytest.approx(10 * math.log(5))
    assert epsilon({PureDp(math.log(5)): 1}, DELTA) < ours / 5


def test_epsilon_of_laplace_and_whole_number_noise_is_the_true_one() -> None:
    assert epsilon({LAPLACE(2.0): 1}, 0.01) == pytest.approx(
        0.5 + 2 * math.log1p(-0.01), abs=1e-4
    )
    assert epsilon({LAPLACE(2.0): 3}, 0.0) == pytest.approx(1.5)
    assert epsilon({DiscreteLaplaceDpEvent(0.25, 2): 3}, 0.0) == pytest.approx(1.5)

    sigma = 3.0
    shift = 2
    points = np.arange(-80, 81)
    log_mass = -(points**2) / (2 * sigma**2)
    log_mass = log_mass - np.logaddexp.reduce(log_mass)
    moved = -((points - shift) ** 2) / (2 * sigma**2) - np.logaddexp.reduce(
        -(points**2) / (2 * sigma**2)
    )
    truth = brentq(
        lambda eps: np.maximum(0, np.exp(log_mass) - np.exp(eps + moved)).sum() - DELTA,
        0.01,
        20,
    )
    ours = epsilon({DiscreteGaussian(sigma, shift): 1}, DELTA)
    assert truth <= ours + 1e-9
    assert ours <= truth + 1e-3
    assert epsilon({DiscreteGaussian(sigma, shift): 1}, DELTA, method="rdp") >= truth


def test_epsilon_of_gaussians_is_the_analytic_one_whatever_they_are_mixed_with():
    def delta(eps: float, sigma: float) -> float:  # Balle and Wang 2018, Eq. 6
        return float(
            norm.cdf(0.5 / sigma - eps * sigma)
            - math.exp(eps) * norm.cdf(-0.5 / sigma - eps * sigma)
        )

    spend = {GAUSSIAN(3.0): 5, GAUSSIAN(2.0): 1}
    sigma = (5 / 9 + 1 / 4) ** -0.5
    ours = epsilon(spend, DELTA)
    assert delta(ours, sigma) == pytest.approx(DELTA, rel=1e-6)
    assert delta(ours, sigma) <= DELTA
    with_crumb = epsilon({**spend, PureDp(1e-6): 1}, DELTA)
    assert ours <= with_crumb <= ours * 1.001
    assert epsilon({GAUSSIAN(1.0): 15_000}, DELTA) == pytest.approx(8021.4, abs=0.5)


def test_the_figures_of_a_long_run_are_the_known_ones() -> None:
    spend = {sampled(0.01, 1.0): 15_000}
    assert epsilon(spend, DELTA, method="rdp") == pytest.approx(8.455, abs=2e-3)
    assert epsilon(spend, DELTA) == pytest.approx(7.82, abs=2e-3)


def test_a_zcdp_event_is_priced_by_renyi_divergences_and_so_is_a_tiny_delta() -> None:
    spend = {dp.ZCDpEvent(0.02): 4, sampled(0.1, 1.0): 10}
    assert epsilon(spend, DELTA) == epsilon(spend, DELTA, method="rdp") < math.inf
    tiny = {sampled(0.1, 1.0): 10}
    assert epsilon(tiny, 1e-20) == epsilon(tiny, 1e-20, method="rdp") < math.inf


def test_what_has_no_price_raises_and_what_has_no_noise_costs_infinity() -> None:
    for event in (
        dp.UnsupportedDpEvent(),
        dp.SampledWithoutReplacementDpEvent(100, 10, GAUSSIAN(1.0)),
        dp.PoissonSampledDpEvent(0.1, dp.ZCDpEvent(1.0)),
        dp.ComposedDpEvent([GAUSSIAN(1.0), dp.UnsupportedDpEvent()]),
    ):
        for method in ("pld", "rdp"):
            with pytest.raises(PrivacyError):
                epsilon(
                    {event: 1}
                    if not isinstance(event, dp.ComposedDpEvent)
                    else flatten(event),
                    DELTA,
                    method=method,
                )
    noiseless = (
        GAUSSIAN(0.0),
        LAPLACE(0.0),
        sampled(0.1, 0.0),
        dp.NonPrivateDpEvent(),
        DiscreteGaussian(0.0),
    )
    for event in noiseless:
        assert (
            epsilon({event: 1}, DELTA)
            == epsilon({event: 1}, DELTA, method="rdp")
            == math.inf
        )
    assert epsilon({GAUSSIAN(5.0): 1}, 0.0) == math.inf
    assert epsilon({GAUSSIAN(1.0): 0}, DELTA) == 0
    assert (
        epsilon({}, DELTA)
        == epsilon({dp.NoOpDpEvent(): 3}, 0.0)
        == epsilon({PureDp(0): 9}, 0.0)
        == 0
    )


@pytest.mark.parametrize(
    "spend",
    [
        {GAUSSIAN(-1.0): 1},
        {GAUSSIAN(math.nan): 1},
        {sampled(1.5, 1.0): 1},
        {GAUSSIAN(1.0): -2},
        {GAUSSIAN(1.0): 0.5},
    ],
)
def test_values_that_make_no_sense_are_refused(spend: dict[dp.DpEvent, int]) -> None:
    with pytest.raises(ConfigError):
        epsilon(spend, DELTA)


def test_compositions_open_into_single_events() -> None:
    inner = dp.ComposedDpEvent(
        [GAUSSIAN(1.0), dp.SelfComposedDpEvent(PureDp(0.5), 3), dp.NoOpDpEvent()]
    )
    assert flatten(dp.SelfComposedDpEvent(inner, 2), 5) == Counter(
        {GAUSSIAN(1.0): 10, PureDp(0.5): 30}
    )
    twice = dp.PoissonSampledDpEvent(0.1, dp.SelfComposedDpEvent(GAUSSIAN(2.0), 4))
    assert flatten(twice) == Counter({sampled(0.1, 1.0): 1})
    assert flatten(dp.PoissonSampledDpEvent(1.0, GAUSSIAN(2.0))) == Counter(
        {GAUSSIAN(2.0): 1}
    )
    assert flatten(dp.PoissonSampledDpEvent(0.0, GAUSSIAN(2.0))) == Counter()
    (amplified,) = flatten(dp.PoissonSampledDpEvent(0.25, PureDp(1.0)))
    assert amplified.epsilon == pytest.approx(math.log1p(0.25 * math.expm1(1.0)))


EVENTS = st.one_of(
    st.floats(0.5, 20).map(GAUSSIAN),
    st.floats(0.5, 20).map(LAPLACE),
    st.floats(0, 3).map(PureDp),
    st.floats(0, 1).map(dp.ZCDpEvent),
    st.builds(sampled, st.floats(0.01, 0.9), st.floats(0.7, 10)),
    st.builds(DiscreteGaussian, st.floats(1, 10), st.integers(1, 3)),
    st.builds(DiscreteLaplaceDpEvent, st.floats(0.1, 2), st.integers(1, 3)),
)


@given(EVENTS, st.integers(1, 9))
def test_events_survive_json_as_the_same_text_and_the_same_event(
    event: dp.DpEvent, count: int
) -> None:
    for each in (
        event,
        dp.ComposedDpEvent([event, dp.SelfComposedDpEvent(event, count)]),
    ):
        text = event_to_json(each)
        assert event_from_json(text) == each
        assert event_to_json(event_from_json(text)) == text
    assert hash(event) == hash(event_from_json(event_to_json(event)))


def test_equal_events_write_the_same_text() -> None:
    assert event_to_json(GAUSSIAN(1)) == event_to_json(GAUSSIAN(np.float64(1.0)))
    assert event_to_json(PureDp(1)) == '{"type":"PureDp","epsilon":1.0}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"type":"Free"}',
        '{"type":"PureDp"}',
        '{"type":"PureDp","epsilon":-1}',
    ],
)
def test_text_that_is_no_event_is_refused(text: str) -> None:
    with pytest.raises(PrivacyError):
        event_from_json(text)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.tuples(EVENTS, st.integers(1, 30)), min_size=1, max_size=3), EVENTS)
def test_one_more_use_never_costs_less(
    uses: list[tuple[dp.DpEvent, int]], more: dp.DpEvent
) -> None:
    spend: Counter[dp.DpEvent] = Counter()
    for event, count in uses:
        spend[event] += count
    for method in ("pld", "rdp"):
        before = epsilon(spend, DELTA, method=method)
        after = epsilon(spend + Counter([more]), DELTA, method=method)
        assert after >= before * (1 - 1e-3) - 1e-3  # the grid's width


def test_calibration_reaches_its_target_from_below_within_its_tolerance() -> None:
    for method in ("pld", "rdp"):
        noise = calibrate(
            lambda s: {sampled(0.05, s): 500}, epsilon=2.0, delta=DELTA, method=method
        )
        reached = epsilon({sampled(0.05, noise): 500}, DELTA, method=method)
        assert 2.0 * (1 - 5e-3) <= reached <= 2.0
    assert calibrate(
        lambda s: {LAPLACE(s): 1}, epsilon=2.0, delta=0.0
    ) == pytest.approx(0.5, rel=2e-3)


def test_calibration_says_when_no_noise_is_enough_and_when_none_is_needed() -> None:
    with raises(PrivacyError, effect=Effect.NOTHING_SENT):
        calibrate(lambda s: {GAUSSIAN(s): 1, PureDp(3.0): 1}, epsilon=1.0, delta=DELTA)
    with pytest.raises(PrivacyError):
        calibrate(lambda s: {GAUSSIAN(s): 1}, epsilon=1.0, delta=0.0)
    assert calibrate(
        lambda s: {PureDp(0.1): 1}, epsilon=1.0, delta=DELTA
    ) == pytest.approx(1e-7)
