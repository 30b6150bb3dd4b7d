"""Privacy losses: what dp_accounting computes, all at once."""

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import (
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    PoissonSampledDpEvent,
    get_epsilon_gaussian,
)
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as plds
from dp_accounting.pld.common import compute_self_convolve_bounds
from dp_accounting.rdp import RdpAccountant, compute_epsilon

from understudy.privacy.accounts.accounting import (
    _ORDERS,
    DiscreteGaussian,
    PureDp,
    _pld,
)
from understudy.privacy.accounts.losses import (
    _folded,
    _retained_range,
    converted,
    discrete_gaussian,
    folded,
    gaussian,
    gaussian_epsilon,
    least_epsilon,
    sampled_divergence,
    sampled_gaussian,
)

EVENTS = [
    PoissonSampledDpEvent(0.01, GaussianDpEvent(0.8)),
    PoissonSampledDpEvent(0.3, GaussianDpEvent(3.0)),
    DiscreteGaussian(3.3, 2),
    PureDp(0.2),
    LaplaceDpEvent(4.0),
]


@pytest.mark.parametrize("times", [1, 2, 7, 300])
@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_a_repeated_use_costs_what_the_library_says(event: DpEvent, times: int) -> None:
    once = _pld(event, 2.0**-9)
    ours = folded([(once, times)])
    theirs = once.self_compose(times)
    for delta in (1e-2, 1e-6, 1e-9):
        assert ours.get_epsilon_for_delta(delta) == pytest.approx(
            theirs.get_epsilon_for_delta(delta), 1e-5, 1e-9
        )


@pytest.mark.parametrize("times", [2, 5])
def test_masses_are_those_of_a_sum_of_losses(times: int) -> None:
    """Against every sum, listed; nothing is lost but what is counted as endless."""
    masses = np.random.default_rng(0).dirichlet(np.ones(1500)) * (1 - 1e-3)
    ours = _folded([(pld_pmf.DensePLDPmf(0.5, -3, masses, 1e-3, True), times)])
    listed = masses
    for _ in range(times - 1):
        listed = np.convolve(listed, masses)
    first = ours._lower_loss + 3 * times
    np.testing.assert_allclose(
        ours._probs, listed[first : first + ours.size], atol=1e-16
    )
    assert math.fsum(listed) - math.fsum(ours._probs) <= 1e-15 * len(listed)
    assert ours._infinity_mass == pytest.approx(1 - (1 - 1e-3) ** times, rel=1e-12)


@pytest.mark.parametrize("times", [2, 40, 5_000])
def test_no_more_is_cut_off_than_the_library_cuts(times: int) -> None:
    masses = np.exp(-(np.linspace(-8, 9, 700) ** 2) / 2)
    masses /= masses.sum()
    low, high = _retained_range([(masses, times)])
    lowest, highest = compute_self_convolve_bounds(masses, times, 1e-15)
    assert lowest - 2 <= low <= lowest
    assert highest <= high <= highest + 2


def test_where_all_losses_are_endless_none_is_kept_by_mistake() -> None:
    assert _retained_range([(np.zeros(5), 3)]) == (0, 12)
    endless = plds.PrivacyLossDistribution(
        pld_pmf.DensePLDPmf(0.25, 0, np.zeros(5), 1.0, True)
    )
    assert (
        least_epsilon(folded([(endless, 1), (gaussian(1.0, 0.25), 2)]), 0.9) == math.inf
    )


@pytest.mark.parametrize("rate", [1e-12, 0.01, 0.3, 1 - 1e-12])
@pytest.mark.parametrize("noise", [1e-4, 0.7, 3.0, 1e6])
def test_the_divergence_of_sampled_noise_is_the_library_s(
    rate: float, noise: float
) -> None:
    orders = (*_ORDERS[::3], 256)
    with np.errstate(all="ignore"):
        theirs = (
            RdpAccountant(orders)
            .compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)))
            .rdp
        )
        ours = sampled_divergence(rate, noise, orders)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


def assert_same(ours: Any, theirs: Any) -> None:
    """Mass by mass."""
    assert ours._symmetric == theirs._symmetric
    for side in ("_pmf_remove", "_pmf_add"):
        mine, other = (getattr(one, side).to_dense_pmf() for one in (ours, theirs))
        assert (mine._lower_loss, mine.size) == (other._lower_loss, other.size)
        np.testing.assert_allclose(mine._probs, other._probs, rtol=0, atol=1e-11)
        assert mine._infinity_mass == pytest.approx(
            other._infinity_mass, rel=1e-9, abs=1e-25
        )


@pytest.mark.parametrize("grid", [2.0**-5, 2.0**-11])
@pytest.mark.parametrize(
    ("sigma", "sensitivity"), [(0.3, 1), (1.0, 1), (3.3, 2), (60.0, 1), (41.0, 30)]
)
def test_discrete_gaussian_noise_has_the_library_s_losses(
    sigma: float, sensitivity: int, grid: float
) -> None:
    theirs = plds.from_discrete_gaussian_mechanism(
        sigma, sensitivity, value_discretization_interval=grid, use_connect_dots=True
    )
    assert_same(discrete_gaussian(sigma, sensitivity, grid), theirs)


@pytest.mark.parametrize("grid", [2.0**-4, 2.0**-8])
@pytest.mark.parametrize("rate", [1e-12, 1e-3, 0.3, 0.999, 1 - 1e-12])
@pytest.mark.parametrize("noise", [0.4, 1.0, 20.0, 1e6])
def test_sampled_gaussian_noise_has_the_library_s_losses(
    rate: float, noise: float, grid: float
) -> None:
    theirs = plds.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=grid
    )
    assert_same(sampled_gaussian(rate, noise, grid), theirs)


@pytest.mark.parametrize("grid", [2.0**-4, 2.0**-9])
@pytest.mark.parametrize("noise", [0.4, 1.0, 20.0, 1e6])
def test_gaussian_noise_has_the_library_s_losses(noise: float, grid: float) -> None:
    assert_same(
        gaussian(noise, grid),
        plds.from_gaussian_mechanism(noise, value_discretization_interval=grid),
    )


@pytest.mark.parametrize("other", EVENTS, ids=repr)
@pytest.mark.parametrize("one", EVENTS, ids=repr)
def test_uses_of_two_kinds_cost_what_the_library_says(
    one: DpEvent, other: DpEvent
) -> None:
    """Losses of who left and of who joined that differ, or do not, and lists that are
    short, long or both.
    """
    parts = _pld(one, 2.0**-7), _pld(other, 2.0**-7)
    ours = folded([(parts[0], 3), (parts[1], 1)])
    theirs = parts[0].self_compose(3).compose(parts[1])
    for delta in (1e-2, 1e-6, 1e-9):
        assert least_epsilon(ours, delta) == pytest.approx(
            theirs.get_epsilon_for_delta(delta), 1e-5, 1e-9
        )


def test_masses_of_several_lists_are_those_of_all_sums() -> None:
    """Lists that are short and long, of which some are folded often: nothing is lost
    but what is counted as endless.
    """
    rng = np.random.default_rng(0)
    lists = [
        (rng.dirichlet(np.ones(size)) * (1 - 1e-4), times)
        for size, times in ((40, 1), (7, 30), (300, 2))
    ]
    ours = _folded(
        [
            (pld_pmf.DensePLDPmf(0.5, -3, masses, 1e-4, True), times)
            for masses, times in lists
        ]
    )
    listed = np.ones(1)
    for masses, times in lists:
        for _ in range(times):
            listed = np.convolve(listed, masses)
    first = ours._lower_loss + 3 * 33
    np.testing.assert_allclose(
        ours._probs, listed[first : first + ours.size], atol=1e-16
    )
    assert math.fsum(listed) - math.fsum(ours._probs) <= 1e-14
    assert ours._infinity_mass == pytest.approx(1 - (1 - 1e-4) ** 33, rel=1e-12)


def test_lists_on_different_grids_are_not_put_together() -> None:
    with pytest.raises(ValueError, match="different grids"):
        folded([(gaussian(1.0, 0.25), 1), (gaussian(1.0, 0.5), 1)])


def test_the_least_epsilon_is_the_library_s() -> None:
    """Short lists, all above 0 or below it, endless losses, losses whose e^−loss is no
    float, none that counts.
    """
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(60):
        size = int(rng.integers(1, 9))
        first = int(rng.integers(-8, 8))
        endless = float(rng.choice([0.0, 1e-7, 1e-3, 0.3]))
        grid = float(rng.choice([0.125, 0.5, 400.0]))
        masses = (
            rng.dirichlet(np.full(size, 0.3)) * (1 - endless) * (rng.random(size) < 0.8)
        )
        dense = pld_pmf.DensePLDPmf(grid, first, masses, endless, True)
        sparse = pld_pmf.SparsePLDPmf(
            {
                first + 2 * int(place): float(masses[place])
                for place in rng.permutation(size)
            },
            grid,
            endless,
            True,
        )
        for sides in ([dense], [sparse], [dense, sparse]):
            distribution = plds.PrivacyLossDistribution(*sides)
            for delta in (1e-9, 1e-7, 1e-3, 0.2, 0.9):
                theirs = (
                    distribution.get_epsilon_for_delta(delta)
                    if grid < 400 or first > 0
                    else None
                )
                ours = least_epsilon(distribution, delta)
                # its e^−loss ends in an error where a loss is far below 0
                if theirs is not None:
                    assert ours == pytest.approx(theirs, rel=1e-12, abs=1e-15)
                seen.add((grid, ours == 0, math.isinf(ours)))
    assert len(seen) == 9


@pytest.mark.parametrize("delta", [1e-15, 1e-5, 0.4])
def test_divergences_cost_what_the_library_says(delta: float) -> None:
    orders = np.array(_ORDERS)
    for scale in (0.0, 1e-12, 1e-7, 1e-3, 1.0, 1e3):
        divergence = scale * orders
        divergence[5] = math.inf
        theirs, _ = compute_epsilon(_ORDERS, divergence, delta)
        assert converted(divergence, orders, delta) == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize("delta", [1e-30, 1e-5, 0.4])
@pytest.mark.parametrize("noise", [1e-4, 0.3, 5.0, 1e4, 1e8])
def test_gaussian_noise_costs_what_the_library_says(noise: float, delta: float) -> None:
    with np.errstate(all="ignore"):
        theirs = get_epsilon_gaussian(noise, delta)
        assert gaussian_epsilon(noise, delta) == pytest.approx(
            theirs, rel=1e-12, abs=1e-12
        )
