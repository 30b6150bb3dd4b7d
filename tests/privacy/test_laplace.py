"""Whole-number noise against its probabilities, summed without the sampler or the
accountant.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.noise import discrete
from understudy.privacy.noise.discrete import (
    DiscreteGaussianNoise,
    DiscreteLaplaceNoise,
    bernoulli_exp,
    rounded_up,
)
from understudy.privacy.noise.rng import FastRng, SecureRng

SCALES = [
    Fraction(1, 4),
    Fraction(2, 3),
    Fraction(1),
    Fraction(7, 2),
    Fraction(429, 32),
]
NOISES = [
    kind(scale)
    for kind in (DiscreteLaplaceNoise, DiscreteGaussianNoise)
    for scale in SCALES
]


def law(noise, reach=60):
    """z, and P(z), normalised over all that a float can tell from 0."""
    b = float(noise.scale)
    far = math.ceil(reach * b) + 60
    z = np.arange(-far, far + 1)
    weight = np.exp(
        -np.abs(z) / b
        if isinstance(noise, DiscreteLaplaceNoise)
        else -(z**2) / (2 * b**2)
    )
    return z, weight / weight.sum()


def divergence(p, q, eps):
    """Hockey-stick: the δ that goes with ε."""
    return float(np.maximum(p - math.exp(eps) * q, 0).sum())


class Scripted:
    """Hands out the choices it was given, then asks for one among `high`."""

    def __init__(self, choices):
        self.choices = list(choices)
        self.weight = Fraction(1)

    def below(self, high, n, device):
        taken = []
        for _ in range(n):
            if not self.choices:
                raise LookupError(high)
            self.weight /= high
            taken.append(self.choices.pop(0))
        return np.array(taken)


def chance(numerator, denominator, depth):
    """P(true) and P(undecided) over every sequence of random whole numbers up to a
    depth, in fractions.
    """
    true = undecided = Fraction(0)
    paths = [()]
    while paths:
        path = paths.pop()
        rng = Scripted(path)
        try:
            if bernoulli_exp(np.array([numerator]), denominator, rng, "cpu")[0]:
                true += rng.weight
        except LookupError as ask:
            if len(path) == depth:
                undecided += rng.weight
            else:
                paths += [(*path, choice) for choice in range(ask.args[0])]
    return true, undecided


@pytest.mark.parametrize(
    ("numerator", "denominator", "depth", "at_once"),
    [
        (0, 1, 1, 1),
        (1, 3, 9, 1),
        (2, 3, 6, 1),
        (1, 1, 7, 1),
        (3, 2, 8, 1),
        (1, 1, 8, 2),
        (2, 1, 8, 2),
        (3, 2, 8, 2),
    ],
)
def test_bernoulli_of_an_exponential_is_exact_over_all_its_random_choices(
    numerator, denominator, depth, at_once, monkeypatch
):
    monkeypatch.setattr(discrete, "_BATCH_TRIES", at_once)
    true, undecided = chance(numerator, denominator, depth)
    assert undecided < Fraction(1, 50)
    exact = math.exp(-numerator / denominator)
    assert float(true) - 1e-15 <= exact <= float(true + undecided) + 1e-15


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_draws_follow_the_law(noise):
    n = 40_000
    draws = noise.draw(n, SecureRng.from_seed(5)).numpy()
    z, p = law(noise)
    common = p * n >= 8
    seen = np.array([(draws == value).sum() for value in z[common]])
    observed = [*seen, n - seen.sum()]
    expected = [*(p[common] * n), n * (1 - p[common].sum())]
    if expected[-1] < 8:  # too little is left over to be a class of its own
        observed[-2:], expected[-2:] = [sum(observed[-2:])], [sum(expected[-2:])]
    assert chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_variance_and_tail_are_those_of_the_law(noise):
    z, p = law(noise)
    assert noise.variance == pytest.approx((p * z**2).sum(), rel=1e-9)
    for least in (1, 2, 5, 40):
        assert noise.tail(least) == pytest.approx(
            p[z >= least].sum(), rel=1e-9, abs=1e-300
        )


@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize("probability", [0.3, 1e-3, 1e-7, 1e-12])
def test_the_threshold_is_the_least_that_noise_seldom_reaches(noise, probability):
    z, p = law(noise)
    k = noise.threshold(probability)
    assert p[z >= k].sum() <= probability * (1 + 1e-9)
    assert k == 1 or p[z >= k - 1].sum() > probability * (1 - 1e-9)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("sensitivity", [1, 3])
def test_the_laplace_event_costs_the_largest_ratio_of_probabilities(scale, sensitivity):
    noise = DiscreteLaplaceNoise(scale, sensitivity)
    _, p = law(noise, reach=5)
    p = p[p > 1e-300]
    ratio = np.log(p[sensitivity:] / p[:-sensitivity]).max()
    assert epsilon({noise.event: 1}, 0) == pytest.approx(ratio, rel=1e-9)
    # never cheaper, not by a last bit
    assert Fraction(noise.event.noise_parameter) * scale >= 1


@pytest.mark.parametrize("scale", [Fraction(2, 3), Fraction(1), Fraction(429, 32)])
@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_the_gaussian_event_costs_the_divergence_of_the_law(scale, delta):
    noise = DiscreteGaussianNoise(scale)
    _, p = law(noise)
    eps = epsilon({noise.event: 1}, delta)
    true = [
        max(divergence(p[1:], p[:-1], e), divergence(p[:-1], p[1:], e))
        for e in (eps, eps * 0.97 - 0.005)
    ]
    assert true[0] <= delta * (1 + 1e-6)
    assert true[1] > delta
    assert Fraction(noise.event.sigma) <= scale


@pytest.mark.parametrize("kind", [DiscreteLaplaceNoise, DiscreteGaussianNoise])
def test_every_count_gets_noise_of_its_own_and_keeps_its_place(kind):
    counts = torch.arange(3000, dtype=torch.int32).view(2, 1500) * 1000
    noisy = kind(Fraction(2))(counts, FastRng(3))
    noise = noisy - counts
    assert noisy.dtype == torch.int64
    assert noisy.shape == counts.shape
    assert noise.abs().max() < 500
    assert abs(np.corrcoef(noise[0].numpy(), noise[1].numpy())[0, 1]) < 0.1
    assert kind(Fraction(2))(torch.zeros(0, dtype=torch.int64), FastRng(3)).shape == (
        0,
    )


def test_counts_that_are_not_whole_numbers_are_refused():
    with pytest.raises(ValueError, match="whole numbers"):
        DiscreteLaplaceNoise(Fraction(1))(torch.zeros(3), FastRng(0))


@pytest.mark.parametrize("scale", [0, -1, 0.1, Fraction(2**20 + 1)])
def test_a_scale_that_cannot_be_drawn_by_is_refused(scale):
    with pytest.raises(ConfigError, match="scale"):
        DiscreteGaussianNoise(scale)
    with pytest.raises(ConfigError, match="sensitivity"):
        DiscreteLaplaceNoise(Fraction(1), 0)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 13.37, 1000.1, 123_456.7])
def test_a_float_scale_is_rounded_up_a_little(scale):
    short = rounded_up(scale)
    assert Fraction(scale) <= short <= Fraction(scale) * (1 + Fraction(1, 1024))
    assert DiscreteGaussianNoise(short).scale == short


@pytest.mark.parametrize("kind", [DiscreteLaplaceNoise, DiscreteGaussianNoise])
def test_large_scales_are_drawn_without_overflow(kind):
    noise = kind(Fraction(2**20 - 1))
    draws = noise.draw(4000, SecureRng.from_seed(1)).double()
    assert float(draws.std()) == pytest.approx(math.sqrt(noise.variance), rel=0.08)
    assert abs(float(draws.mean())) < 0.08 * math.sqrt(noise.variance)
