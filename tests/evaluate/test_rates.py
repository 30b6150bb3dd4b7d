import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm
from sklearn.metrics import roc_auc_score, roc_curve

from understudy.evaluate.attacks.rates import (
    Rate,
    auc,
    clopper_pearson,
    effective_trials,
    top_half,
    tpr,
    wilson,
)
from understudy.ground.errors import ConfigError

SCORES = st.lists(st.integers(0, 3), min_size=1, max_size=5)


def coverage(truth, rates):
    return np.mean([rate.low <= truth <= rate.high for rate in rates])


def test_known_intervals():
    # Clopper–Pearson: 0 of n ends at 1 − (α/2)^(1/n); Wilson: 10 of 100 (Brown, Cai,
    # DasGupta's formula).
    assert clopper_pearson(0, 10).low == 0
    assert clopper_pearson(0, 10).high == pytest.approx(1 - 0.025 ** (1 / 10))
    assert clopper_pearson(10, 10).low == pytest.approx(0.025 ** (1 / 10))
    assert clopper_pearson(10, 10).high == 1
    ten = wilson(10, 100)
    assert (ten.value, ten.low, ten.high) == pytest.approx(
        (0.1, 0.05523, 0.17437), abs=1e-5
    )
    assert wilson(0, 50).low == 0
    assert wilson(50, 50).high == 1


@pytest.mark.parametrize("trials", [1, 5, 40])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 1.0])
def test_exact_intervals_cover_with_at_least_95_percent_for_every_share(trials, share):
    chances = binom.pmf(np.arange(trials + 1), trials, share)
    held = [
        clopper_pearson(k, trials).low <= share <= clopper_pearson(k, trials).high
        for k in range(trials + 1)
    ]
    assert chances[held].sum() >= 0.95


def test_wilson_intervals_cover_with_95_percent_on_average():
    chances = np.linspace(0.02, 0.98, 49)
    rates = [wilson(k, 60) for k in range(61)]
    held = [
        sum(
            binom.pmf(k, 60, p)
            for k, rate in enumerate(rates)
            if rate.low <= p <= rate.high
        )
        for p in chances
    ]
    assert np.mean(held) == pytest.approx(0.95, abs=0.01)


@given(SCORES, st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_the_better_half_is_the_mean_over_all_orders_of_ties(members, seed):
    outsiders = np.random.default_rng(seed).integers(0, 4, len(members))
    scores = [*members, *outsiders.tolist()]
    size = len(members)
    # Every set of `size` targets that no unchosen target beats is an equally likely
    # better half.
    halves = [
        half
        for half in itertools.combinations(range(2 * size), size)
        if min(scores[i] for i in half)
        >= max(scores[i] for i in range(2 * size) if i not in half)
    ]
    share = np.mean([sum(i < size for i in half) / size for half in halves])
    assert top_half(
        np.array(members, float), outsiders.astype(float)
    ).value == pytest.approx(share)


@given(SCORES, SCORES)
@settings(max_examples=40, deadline=None)
def test_auc_equals_scikit_learns(members, outsiders):
    labels = [1] * len(members) + [0] * len(outsiders)
    rate = auc(np.array(members, float), np.array(outsiders, float))
    assert rate.value == pytest.approx(roc_auc_score(labels, members + outsiders))
    assert 0 <= rate.low <= rate.value <= rate.high <= 1


@given(SCORES, st.lists(st.integers(0, 3), min_size=90, max_size=220))
@settings(max_examples=40, deadline=None)
def test_tpr_is_the_highest_point_of_the_roc_curve_at_one_percent(members, outsiders):
    labels = [1] * len(members) + [0] * len(outsiders)
    false, true, _ = roc_curve(labels, members + outsiders, drop_intermediate=False)
    heights = []
    for x0, x1, y0, y1 in zip(false, false[1:], true, true[1:], strict=False):
        if x0 <= 0.01 <= x1:
            heights.append(y1 if x0 == x1 else y0 + (y1 - y0) * (0.01 - x0) / (x1 - x0))
    assert tpr(
        np.array(members, float), np.array(outsiders, float)
    ).value == pytest.approx(max(heights))


def test_hand_values_of_tpr():
    outsiders = np.arange(100.0)
    # 98.5 beats all outsiders but one
    assert tpr(np.array([200.0, 98.5, 97.5, 0.5]), outsiders).value == 0.5
    # all tied: as good as the lot
    assert tpr(np.ones(50), np.ones(100)).value == pytest.approx(0.01)
    assert tpr(np.full(10, -1.0), outsiders).value == 0


def test_tpr_is_bounded_from_below_only_by_enough_outsiders():
    sure = tpr(np.ones(1000), np.zeros(436))
    assert (sure.value, sure.low) == (1, 0)
    assert tpr(np.ones(1000), np.zeros(437)).low > 0.99
    assert tpr(np.zeros(1000), np.zeros(1000)).high < 0.05


@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0])
def test_intervals_of_scores_cover_the_truth(shift):
    rng = np.random.default_rng(0)
    draws = [(rng.normal(shift, 1, 120), rng.normal(0, 1, 120)) for _ in range(150)]
    assert coverage(norm.cdf(shift / np.sqrt(2)), [auc(*d) for d in draws]) >= 0.92
    assert coverage(norm.cdf(shift / 2), [top_half(*d) for d in draws]) >= 0.95
    few = [(m, np.concatenate([o, rng.normal(0, 1, 380)])) for m, o in draws]
    assert coverage(norm.sf(norm.ppf(0.99) - shift), [tpr(*d) for d in few]) >= 0.95


def test_the_interval_of_the_better_half_covers_where_the_densities_differ_at_the_cut():
    rng = np.random.default_rng(1)
    # Members spread evenly over [0, 1], outsiders sit in [0.4, 0.6]: cut c with 1 − c +
    # (0.6 − c)/0.2 = 1.
    cut = 3 / 6
    draws = [(rng.random(100), rng.uniform(0.4, 0.6, 100)) for _ in range(200)]
    assert coverage(1 - cut, [top_half(*d) for d in draws]) >= 0.95


def test_the_interval_of_tpr_covers_where_scores_are_tied():
    rng = np.random.default_rng(2)
    truth = 0.1 + 0.05 * 0.3  # all of the best level, and a twentieth of the next
    draws = [
        (
            rng.choice([2.0, 1, 0], 300, p=[0.1, 0.3, 0.6]),
            rng.choice([2.0, 1, 0], 600, p=[0.005, 0.1, 0.895]),
        )
        for _ in range(150)
    ]
    assert coverage(truth, [tpr(*d) for d in draws]) >= 0.95
    assert np.mean([tpr(*d).value for d in draws]) == pytest.approx(truth, abs=0.01)


def test_trials_that_hit_the_same_people_count_less():
    assert effective_trials(10, np.array([1, 1, 1])) == 10
    assert effective_trials(10, np.array([5, 5])) == 2
    assert effective_trials(10, np.array([0])) == 10


def test_impossible_shares_are_refused():
    for successes, trials in ((1, 0), (3, 2), (-1, 2)):
        with pytest.raises(ConfigError, match="is not a share"):
            clopper_pearson(successes, trials)
    with pytest.raises(ConfigError, match="as many members as outsiders"):
        top_half(np.ones(2), np.ones(3))


def test_a_rate_is_shown_with_its_interval_unless_it_is_known():
    assert str(Rate(0.5, 0.25, 0.75)) == "0.500 [0.250, 0.750]"
    assert str(Rate.from_exact(0.5)) == "0.500"
