import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.evaluate.utility import series
from understudy.evaluate.utility.series import (
    FIGURES,
    autocorrelation,
    autocorrelation_difference,
    coverage,
    evaluate_series,
    expected_coverage,
    median_distance,
    mmd,
    next_step_mae,
)
from understudy.ground.errors import ConfigError


def sines(count, seed, steps=8, channels=2):
    rng = np.random.default_rng(seed)
    speed, start = rng.uniform(0.4, 0.8, (2, count, 1, channels))
    return 0.5 + 0.5 * np.sin(6 * start + speed * np.arange(steps)[:, None])


def kernel_by_hand(x, y, h):
    d2 = sum((a - b) ** 2 for a, b in zip(x.ravel(), y.ravel(), strict=True))
    return math.exp(-d2 / (2 * h * h))


def mmd_by_hand(real, synthetic, h):
    """Eq. 2.14 with three double loops, for samples of two sizes."""

    def mean(a, b, same):
        pairs = [
            (x, y)
            for i, x in enumerate(a)
            for j, y in enumerate(b)
            if not (same and i == j)
        ]
        return sum(kernel_by_hand(x, y, h) for x, y in pairs) / len(pairs)

    return (
        mean(real, real, True)
        + mean(synthetic, synthetic, True)
        - 2 * mean(real, synthetic, False)
    )


@given(st.integers(2, 6), st.integers(2, 6), st.floats(0.1, 5))
@settings(max_examples=40, deadline=None)
def test_mmd_equals_the_double_loops_of_the_formula(n, m, h):
    rng = np.random.default_rng(n * 10 + m)
    real = rng.random((n, 3, 2))
    synthetic = rng.random((m, 3, 2))
    got = mmd(real, synthetic, bandwidth=h)
    assert got == pytest.approx(mmd_by_hand(real, synthetic, h), abs=1e-12)


def test_mmd_is_unbiased_and_grows_with_the_distance():
    rng = np.random.default_rng(0)
    nulls = [mmd(*rng.normal(size=(2, 20, 2, 1)), bandwidth=1) for _ in range(300)]
    assert abs(np.mean(nulls)) < 4 * np.std(nulls) / math.sqrt(300)
    assert min(nulls) < 0
    real = rng.normal(size=(100, 2, 1))
    near, far = (
        mmd(real, rng.normal(size=(100, 2, 1)) + shift, bandwidth=1)
        for shift in (0.5, 2)
    )
    assert 0 < near < far


def test_the_bandwidth_is_the_median_distance_of_real_series():
    assert median_distance(np.array([0.0, 3.0, 10.0])[:, None, None]) == 7


def test_coverage_equals_the_definition_and_counts_a_tie():
    real = np.array([0.0, 1.0, 3.0, 10.0])[:, None, None]
    # distances to the first and second real neighbour: 0 → 1, 3; 1 → 1, 2; 3 → 2, 3; 10
    # → 7, 9
    # only 0, by a tie
    assert coverage(real, np.array([-1.0])[:, None, None], neighbours=1) == 1 / 4
    # 0, and 1 by a tie
    assert coverage(real, np.array([-1.0])[:, None, None], neighbours=2) == 2 / 4
    assert (
        coverage(real, np.array([2.5, 90.0])[:, None, None], neighbours=1)
        == 1 / 4 + 0 / 4 + 0 + 0
    )


def test_coverage_of_the_same_series_is_1_and_of_far_ones_0():
    real = sines(30, 1)
    assert coverage(real, real) == 1
    assert coverage(real, real + 100) == 0
    # repeated series, all distances 0
    assert coverage(np.zeros((9, 2, 1)), np.zeros((9, 2, 1))) == 1


def test_the_expected_coverage_is_what_samples_of_one_distribution_reach():
    rng = np.random.default_rng(2)
    reached = [
        coverage(rng.random((20, 2, 1)), rng.random((10, 2, 1)), neighbours=3)
        for _ in range(400)
    ]
    assert np.mean(reached) == pytest.approx(
        expected_coverage(20, 10, 3), abs=4 * np.std(reached) / 20
    )
    # one neighbour; either may be the nearer
    assert expected_coverage(2, 1, 5) == pytest.approx(1 / 2)


def test_autocorrelation_equals_numpys_on_hand_made_series():
    x = np.array([1.0, 2.0, 4.0, 3.0])
    c = x - 2.5
    got = autocorrelation(x[None, :, None], 2)[:, 0]
    power = (c**2).mean()
    assert got == pytest.approx(
        [(c[1:] * c[:-1]).mean() / power, (c[2:] * c[:-2]).mean() / power]
    )
    alternating = np.tile([1.0, -1.0], (3, 4))[:, :, None]
    assert autocorrelation(alternating, 3)[:, 0].tolist() == [-1, 1, -1]
    assert autocorrelation(np.ones((3, 5, 1)), 2).tolist() == [[0], [0]]


def test_autocorrelation_difference_is_0_for_itself_and_for_other_units():
    real = sines(40, 3)
    assert autocorrelation_difference(real, real[::-1]) == pytest.approx(0, abs=1e-12)
    assert autocorrelation_difference(real, 3 * real + 1) == pytest.approx(0, abs=1e-12)
    assert (
        autocorrelation_difference(real, np.random.default_rng(0).random(real.shape))
        > 0.2
    )


def test_a_next_step_is_learned_from_faithful_series_and_not_from_noise():
    train = sines(200, 4)
    test = sines(100, 5)
    good = next_step_mae(train, test, steps=60, batch=32)
    bad = next_step_mae(
        np.random.default_rng(0).random(train.shape), test, steps=60, batch=32
    )
    assert good < 0.2 < 0.28 < bad


def test_the_next_step_error_is_the_same_for_a_seed_and_leaves_torchs_seed_alone():
    train = sines(20, 6)
    torch.manual_seed(1)
    before = torch.rand(1)
    torch.manual_seed(1)
    first, again, other = (
        next_step_mae(train, train, steps=3, seed=seed) for seed in (0, 0, 1)
    )
    assert first == again != other
    assert torch.rand(1) == before


def test_faithful_series_lie_near_the_good_end_and_noise_at_or_beyond_the_bad_one():
    real, good, test = (sines(300, seed) for seed in (7, 8, 9))
    noise = np.random.default_rng(0).random(real.shape)
    faithful = {f.name: f for f in evaluate_series(real, good, holdout=test, steps=40)}
    noisy = {f.name: f for f in evaluate_series(real, noise, holdout=test, steps=1)}
    assert {name: f.better for name, f in faithful.items()} == FIGURES
    for name, figure in faithful.items():
        assert figure.floor < figure.ceiling
        middle = (figure.floor + figure.ceiling) / 2
        lower = figure.better == "lower"
        assert (figure.value < middle) == lower
        if name != "dcr":  # noise is far from everybody
            assert (noisy[name].value > middle) == lower
    assert "bandwidth" in faithful["mmd"].note
    assert "300 of 300 real" in faithful["mmd"].note


def test_without_held_out_series_a_fifth_is_held_out_and_rows_are_capped(monkeypatch):
    monkeypatch.setattr(series, "MAX_ROWS", 20)
    real = sines(50, 10)
    figures = {f.name: f for f in evaluate_series(real, real, steps=2)}
    assert "40 real series, tested on 10 real" in figures["next_step_mae"].note
    assert "20 of 50 real and 20 of 50 synthetic" in figures["coverage"].note


@pytest.mark.parametrize(
    ("real", "synthetic", "reason"),
    [
        (sines(3, 0), sines(5, 0), "too few"),
        (sines(9, 0), sines(1, 0), "too few"),
        (sines(9, 0, steps=1), sines(9, 0, steps=1), "no next step"),
        (sines(9, 0), np.full((9, 8, 2), np.nan), "not finite"),
    ],
)
def test_what_cannot_be_computed_has_a_reason(real, synthetic, reason):
    figures = evaluate_series(real, synthetic)
    assert [f.name for f in figures] == list(FIGURES)
    assert all(reason in f.reason for f in figures)


def test_ten_equal_series_give_figures_and_a_reason_for_the_missing_bandwidth():
    figures = {
        f.name: f
        for f in evaluate_series(np.ones((10, 4, 1)), np.ones((10, 4, 1)), steps=2)
    }
    assert "bandwidth" in figures.pop("mmd").reason
    assert all(f.value is not None for f in figures.values())


def test_series_of_other_shapes_are_refused():
    with pytest.raises(ConfigError, match="steps"):
        evaluate_series(sines(9, 0), sines(9, 0, steps=5))
    with pytest.raises(ConfigError):
        mmd(sines(9, 0), sines(9, 0), bandwidth=0)


def test_the_memory_of_one_step_stands_real_beside_synthetic():
    rng = np.random.default_rng(0)
    real = np.cumsum(rng.normal(size=(40, 12, 2)), axis=1)
    made = real.copy()
    made[:, :, 1] = rng.normal(size=(40, 12))
    figure = next(
        f
        for f in evaluate_series(real, made, steps=2)
        if f.key.measure == "autocorrelation"
    )
    assert figure.compared == (
        autocorrelation(real, 1)[0, 1],
        autocorrelation(made, 1)[0, 1],
    )
    assert (
        f"channel 2 and itself one step later: real {figure.compared[0]:.3f}"
        in figure.note
    )
