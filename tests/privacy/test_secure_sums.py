"""Blinded terms add up to the sum and are uniform alone; shares of noise leave σ
against those who pool theirs.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare

from understudy.ground.errors import ConfigError
from understudy.privacy.secure.ring import Ring, Words
from understudy.privacy.secure.sums import KeyPair, blind, connect, noise_share


def closeness(scale: float, shares: int) -> float:
    """Cor. 10: log-probabilities of a sum of shares are this near to those of one
    discrete Gaussian.

    Edges: proven for scales from 1/2 on; smaller → infinity.
    """
    if scale < 0.5:
        return math.inf
    return 10 * math.fsum(
        math.exp(-2 * math.pi**2 * scale**2 * k / (k + 1)) for k in range(1, shares)
    )


def blinded(
    terms: list[Words], ring: Ring, *, run: bytes = b"run", seed: int = 0
) -> list[Words]:
    names = [f"holder {number}" for number in range(len(terms))]
    pairs = {
        name: KeyPair((seed * 100 + n + 1).to_bytes(32, "big"))
        for n, name in enumerate(names)
    }
    public = {name: pair.public for name, pair in pairs.items()}
    return [
        blind(
            term,
            connect(name, pairs[name], public, context=run).values(),
            ring,
            stream=0,
        )
        for name, term in zip(names, terms, strict=True)
    ]


@given(
    st.sampled_from((32, 64)), st.integers(1, 5), st.integers(0, 6), st.integers(0, 99)
)
@settings(max_examples=40, deadline=None)
def test_blinded_terms_add_up_to_the_sum(
    bits: int, parties: int, size: int, seed: int
) -> None:
    ring = Ring(bits)
    numbers = np.random.default_rng(seed).integers(-(2**20), 2**20, (parties, size))
    total = sum(
        blinded([ring.words(row) for row in numbers], ring),
        start=ring.words(np.zeros(size)),
    )
    assert ring.signed(total).tolist() == numbers.sum(0).tolist()


def test_a_blinded_term_is_uniform_and_so_are_the_terms_of_all_but_one() -> None:
    ring = Ring(32)
    ones = [ring.words(np.ones(1))] * 3
    seen = np.array(
        [
            [term.item() for term in blinded(ones, ring, seed=seed)]
            for seed in range(240)
        ]
    )
    for view in (*seen.T, seen[:, 0] + seen[:, 1]):
        assert chisquare(np.bincount((view % 2**32) >> 29, minlength=8)).pvalue > 1e-4


def test_without_one_of_them_the_sum_is_not_the_sum_of_the_rest() -> None:
    ring = Ring(64)
    terms = blinded([ring.words(np.arange(4))] * 3, ring)
    assert (terms[0] + terms[1] != 2 * ring.words(np.arange(4))).all()


def test_shares_leave_at_least_sigma_against_those_who_pool_theirs_and_little_more():
    for parties in range(1, 12):
        for max_colluding in range(1, max(2, parties)):
            share = noise_share(Fraction(80), parties, max_colluding=max_colluding)
            left = share * share * max(1, parties - max_colluding)
            assert 80**2 <= left <= 80**2 * 1.003
    assert noise_share(Fraction(1, 2), 6) == 4, (
        "shares too small to look like one Gaussian are raised"
    )
    assert noise_share(Fraction(1, 2), 6, max_colluding=5) == Fraction(1, 2)
    assert noise_share(Fraction(0), 6) == 0


def test_more_colluders_than_others_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_colluding"):
        noise_share(Fraction(3), 3, max_colluding=3)
    with pytest.raises(ConfigError, match="max_colluding"):
        noise_share(Fraction(3), 3, max_colluding=0)


def gaussian(scale: float, reach: int) -> NDArray[np.float64]:
    z = np.arange(-reach, reach + 1)
    weight = np.exp(-(z**2) / (2 * scale**2))
    return np.asarray(weight / weight.sum())


@pytest.mark.parametrize(("scale", "shares"), [(0.6, 2), (0.6, 4), (0.8, 3), (1.0, 2)])
def test_a_sum_of_shares_is_as_near_to_one_discrete_gaussian_as_stated(
    scale: float, shares: int
) -> None:
    one = gaussian(scale, 60)
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    middle = len(total) // 2
    reach = 8
    near = total[middle - reach : middle + reach + 1]
    true = gaussian(scale * math.sqrt(shares), middle)[
        middle - reach : middle + reach + 1
    ]
    apart = np.abs(np.log(near / true)).max()
    assert 0 < apart <= closeness(scale, shares)


@pytest.mark.parametrize(("scale", "shares"), [(0.5, 2), (0.5, 3), (0.7, 4)])
def test_a_count_under_a_sum_of_shares_costs_what_one_discrete_gaussian_does_and_the_stated_excess(
    scale: float, shares: int
) -> None:
    """The exact δ of a count with and without one person, by summing over all
    outputs.
    """

    def delta(noise: NDArray[np.float64], epsilon: float) -> float:
        return float(np.maximum(noise[1:] - math.exp(epsilon) * noise[:-1], 0).sum())

    one = total = gaussian(scale, 60)
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    ideal = gaussian(scale * math.sqrt(shares), len(total) // 2)
    tau = closeness(scale, shares)
    for epsilon in (0.0, 0.5, 1.0, 2.0, 3.0):
        assert delta(total, epsilon + 2 * tau) <= math.exp(tau) * delta(ideal, epsilon)
    assert any(delta(total, x) > delta(ideal, x) for x in (0.0, 1.0, 2.0, 3.0)), (
        "the excess is not idle"
    )


def test_the_stated_distance_is_below_any_printed_figure_for_the_shares_in_use():
    assert 2e6 * closeness(4.0, 10**5) < 1e-55
    assert closeness(0.4, 3) == math.inf
    assert closeness(3.0, 1) == 0
