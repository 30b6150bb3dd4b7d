"""The accountant against a second one that shares nothing with it
(`second_accountant.py`).

What the ledger states must never lie below the second one's lower bound.
"""

import math
from itertools import product

import dp_accounting as dp
import mpmath
import numpy as np
import pytest
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from scipy.stats import binom
from second_accountant import least_epsilon, pairs

from understudy.ground.errors import ConfigError, PrivacyError
from understudy.privacy.accounts import events
from understudy.privacy.accounts.accounting import (
    DiscreteGaussian,
    PureDp,
    Reveals,
    epsilon,
    flatten,
)
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.events import amplified, event_from_json, merged_noise
from understudy.privacy.accounts.ledger import Ledger

G = dp.GaussianDpEvent
L = dp.LaplaceDpEvent
DL = DiscreteLaplaceDpEvent
DG = DiscreteGaussian
Z = dp.ZCDpEvent
SAMPLED = dp.PoissonSampledDpEvent
ALL = dp.ComposedDpEvent
TIMES = dp.SelfComposedDpEvent
CASES = [
    *map(G, (0.05, 0.4, 1.0, 3.0, 50.0)),
    *map(L, (0.02, 0.5, 1.0, 20.0)),
    *map(PureDp, (0.0, 1e-9, 0.1, 2.0, 30.0, 900.0)),
    *(DL(decay, moved) for decay, moved in ((0.02, 1), (0.5, 3), (4.0, 1), (900.0, 1))),
    *(DG(sigma, moved) for sigma, moved in ((0.05, 1), (0.6, 1), (3.0, 2), (40.0, 1))),
    *(
        Z(rho, xi)
        for rho, xi in ((1e-4, 0.0), (0.02, 0.0), (0.5, 0.3), (40.0, 0.0), (0.0, 1.0))
    ),
    *map(Reveals, (0.0, 1e-9, 1e-3)),
    *(
        SAMPLED(rate, G(noise))
        for rate, noise in product((0.0, 0.01, 0.5, 1.0), (0.2, 5.0))
    ),
    SAMPLED(1e-9, G(1.0)),
    *(
        SAMPLED(rate, L(noise))
        for rate, noise in product((1e-9, 0.05, 1.0), (0.001, 0.5, 5.0))
    ),
    *(
        SAMPLED(rate, PureDp(each))
        for rate, each in product((1e-17, 0.3), (1e-9, 1.0, 800.0))
    ),
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
]
every_case = pytest.mark.parametrize(
    "event", CASES, ids=lambda event: events.event_to_json(event)[:90]
)


def test_every_kind_of_event_that_a_ledger_can_hold_is_computed_a_second_time() -> None:
    """A new kind needs a law in `pairs` and a place among the cases."""

    def kinds(event) -> set[type]:
        parts = getattr(event, "events", None) or [
            p for p in [getattr(event, "event", None)] if p is not None
        ]
        return {type(event)}.union(*map(kinds, parts))

    assert set().union(*map(kinds, CASES)) == set(events._VOCABULARY.values())


def bounded_loosely(event: dp.DpEvent) -> bool:
    """Priced by a bound of all mechanisms of its kind, of which `pairs` shows one:
    zCDP, and samples of pure ones.
    """
    return isinstance(event, Z) or (
        isinstance(event, SAMPLED) and not isinstance(event.event, G)
    )


@pytest.mark.long
@every_case
def test_the_stated_epsilon_is_never_below_the_second_one_nor_absurdly_above(
    event: dp.DpEvent,
) -> None:
    seen = pairs(event)
    spend = flatten(event)
    loose = bounded_loosely(event) or any(map(bounded_loosely, spend))
    for delta in (0.0, 1e-5, 0.02):
        stated = epsilon(spend, delta)
        least = least_epsilon(seen, delta)
        assert stated >= least * (1 - 1e-9) - 1e-9
        assert epsilon(spend, delta, method="rdp") >= least * (1 - 1e-9) - 1e-9
        if delta and math.isfinite(least) and not loose:
            assert stated <= 1.03 * least + 2e-3


def gaussian_delta(eps: float, sigma: float) -> mpmath.mpf:
    """Balle and Wang 2018, Eq. 6, in sixty digits."""
    with mpmath.workdps(60):
        eps = mpmath.mpf(eps)
        sigma = mpmath.mpf(sigma)
        half = 1 / (2 * sigma)
        return mpmath.ncdf(half - eps * sigma) - mpmath.exp(eps) * mpmath.ncdf(
            -half - eps * sigma
        )


@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-5, 0.3])
def test_gaussian_noise_is_priced_right_however_small_or_large(delta: float) -> None:
    for sigma in (1e-9, 2e-6, 1e-4, 0.3, 1e4, 1e8, 1e12, 1e150):
        stated = epsilon({G(sigma): 1}, delta)
        assert math.isinf(stated) or gaussian_delta(stated, sigma) <= delta * (
            1 + 1e-9
        ), sigma
        assert math.isfinite(stated) or sigma < 1e-6, sigma


def sampled_delta(eps: float, rate: float, sigma: float) -> mpmath.mpf:
    """The δ of one Gaussian use on a sample, in sixty digits: the larger of who left
    and who joined.

    With the person p = (1 − q)·N(0, σ²) + q·N(1, σ²), without q₀ = N(0, σ²); what is
    likelier by more than e^ε lies beyond the place where the likelihoods are in that
    ratio.
    """
    with mpmath.workdps(60):
        eps, q, s = map(mpmath.mpf, (eps, rate, sigma))
        e = mpmath.exp(eps)

        def place(ratio: mpmath.mpf) -> mpmath.mpf:  # where N(1)/N(0) is this
            return s * s * mpmath.log(ratio) + mpmath.mpf(1) / 2

        t = place((e - 1 + q) / q)
        left = (1 - q - e) * mpmath.ncdf(-t / s) + q * mpmath.ncdf((1 - t) / s)
        joined = mpmath.mpf(0)
        rest = 1 / e - 1 + q
        if rest > 0:
            t = place(rest / q)
            joined = (1 - e * (1 - q)) * mpmath.ncdf(t / s) - e * q * mpmath.ncdf(
                (t - 1) / s
            )
        return max(left, joined)


@pytest.mark.parametrize("delta", [1e-300, 1e-40, 1e-15, 1e-12, 1e-8, 1e-4, 0.1])
def test_one_use_on_a_sample_is_priced_to_the_digit_however_small_delta_is(
    delta: float,
) -> None:
    for rate, sigma in product((1e-9, 1e-5, 0.01, 0.5, 0.999), (0.2, 1.0, 7.0, 300.0)):
        stated = epsilon({SAMPLED(rate, G(sigma)): 1}, delta)
        assert sampled_delta(stated, rate, sigma) <= delta, (rate, sigma)
        if stated > 1e-9:  # and no less would do
            assert sampled_delta(stated * (1 - 1e-6) - 1e-11, rate, sigma) > delta, (
                rate,
                sigma,
            )


@pytest.mark.long
def test_at_a_tiny_delta_few_uses_of_a_rare_sample_cost_little() -> None:
    """What the sample hides is most of it; Rényi divergences alone would say 1.04."""
    event = SAMPLED(1e-5, G(1.0))
    assert 0.001 < epsilon({event: 1}, 1e-12) < 0.0025
    assert epsilon({event: 1}, 1e-12, method="rdp") > 1
    before = epsilon({event: 1}, 1e-12)
    for uses in (2, 5, 20):
        stated = epsilon({event: uses}, 1e-12)
        assert least_epsilon(pairs(TIMES(event, uses)), 1e-12) <= stated
        assert before <= stated <= uses * epsilon({event: 1}, 1e-12 / uses) * (1 + 1e-9)
        before = stated


@pytest.mark.long
@pytest.mark.parametrize("delta", [1e-18, 1e-12, 9e-12])
def test_below_the_rounding_of_a_transform_no_price_is_below_the_second_one(
    delta: float,
) -> None:
    for spend in (
        {SAMPLED(1e-5, G(1.0)): 3, G(4.0): 2},
        {SAMPLED(0.01, G(1.0)): 2, SAMPLED(1e-4, G(0.5)): 2, PureDp(0.1): 3},
        {SAMPLED(0.3, G(2.0)): 4},
        {SAMPLED(1e-6, G(0.7)): 5, L(20.0): 1, DL(0.1, 1): 1},
        {SAMPLED(1e-5, G(1.0)): 2, DG(5.0): 1},
    ):
        together = ALL([TIMES(event, n) for event, n in spend.items()])
        stated = epsilon(spend, delta)
        least = least_epsilon(pairs(together), delta)
        assert least * (1 - 1e-9) <= stated <= epsilon(spend, delta, method="rdp")
        fewer = {
            event: n for event, n in spend.items() if not isinstance(event, SAMPLED)
        }
        assert epsilon(fewer, delta) <= stated * (1 + 1e-9)


@pytest.mark.parametrize(
    ("each", "uses", "delta"),
    [(0.1, 10_000, 1e-11), (0.02, 50_000, 1e-7), (0.01, 1_000_000, 1e-11)],
)
def test_many_uses_are_priced_right_where_the_rounding_of_a_transform_adds_up(
    each: float, uses: int, delta: float
) -> None:
    stated = epsilon({PureDp(each): uses}, delta)
    k = np.arange(int((stated / each + uses) / 2), uses + 1)
    losses = (2 * k - uses) * each
    mass = binom.pmf(k, uses, 1 / (1 + math.exp(-each)))
    assert (
        np.sum(mass * np.maximum(0, -np.expm1(np.minimum(stated - losses, 0)))) <= delta
    )
    assert stated <= uses * each


@pytest.mark.parametrize("rate", [1e-320, 1e-17, 1e-6, 0.5, 1 - 2**-53])
def test_a_sample_of_a_pure_mechanism_never_costs_less_than_it_does(
    rate: float,
) -> None:
    with mpmath.workdps(400):
        for each in (5e-324, 1e-18, 1e-6, 1.0, 50.0, 699.9, 800.0):
            truth = mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(mpmath.mpf(each)))
            assert (
                truth
                <= amplified(rate, each)
                <= truth * (1 + 1e-14) + mpmath.mpf("1e-323")
            ), each


EXTREMES = [5e-324, 1e-200, 1e-30, 1e-7, 1e7, 1e30, 1e200, 1.7e308]


@pytest.mark.parametrize("size", EXTREMES)
def test_extreme_numbers_have_a_price_and_less_noise_or_more_uses_never_a_lower_one(
    size: float,
) -> None:
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
        # Rényi divergences of those are long series
        many = 2 if isinstance(more, SAMPLED) else 2**53
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
)
def test_text_with_numbers_that_are_none_is_refused_as_an_event(text: str) -> None:
    with pytest.raises(PrivacyError):
        event_from_json(text)


def test_a_ledger_charges_extremes_their_price_or_refuses_and_never_forgets_what_stood_there():
    ledger = Ledger.rehearsal("clinic", Budget(1.0, 1e-6))
    ledger.charge(PureDp(0.4), run="one", description="a report")
    for event, count in (
        (G(1e-200), 1),
        (DG(1e-9), 1),
        (PureDp(1e-15), 2**53),
        (SAMPLED(1e-17, PureDp(40.0)), 2**40),
    ):
        with pytest.raises((PrivacyError, ConfigError)):
            ledger.charge(event, count=count, run="one", description="too much")
    ledger.charge(
        SAMPLED(1e-17, PureDp(1.0)), count=2**50, run="one", description="crumbs"
    )
    crumbs = 2**50 * 1.718281828e-17
    assert ledger.spent(delta=0.0) == pytest.approx(0.4 + crumbs, rel=1e-9)
    assert crumbs > 0.01
