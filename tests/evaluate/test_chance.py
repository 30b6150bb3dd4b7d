"""Tests by lot: p is uniform or larger where nothing leaks, on domains small enough to
count every choice.
"""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.evaluate.attacks import rates as chance
from understudy.evaluate.attacks.rates import (
    auc,
    fisher,
    holm,
    mean_p_value,
    membership_statistics,
    permutation_p_values,
    sum_statistics,
    top_half,
    tpr,
)


def choices(people, inside):
    return np.array(
        [[i in c for i in range(people)] for c in combinations(range(people), inside)]
    )


@pytest.mark.parametrize("hits", range(8))
@pytest.mark.parametrize("inside", [1, 3, 5])
def test_fisher_is_never_too_small_over_all_choices_of_those_who_took_part(
    hits, inside
):
    hit = np.arange(7) < hits
    counts = choices(7, inside) @ hit.astype(int)
    found = np.array([fisher(k, inside, hits - k, 7 - inside) for k in counts])
    for p in np.unique(found):
        # exact: P(p ≤ α) = α at each value it can take
        assert np.mean(found <= p) == pytest.approx(p)


@pytest.mark.parametrize(
    "values",
    [(0, 1, 2, 3, 4, 5), (0, 0, 1, 1, 1, 0.5), (1, 1, 1, 1, 1, 1), (9, 0, 0, 0, 0, 0)],
)
def test_lots_give_the_share_of_choices_that_do_as_well_and_ties_count_against_the_attack(
    values, monkeypatch
):
    monkeypatch.setattr(chance, "DRAWS", 4_000)
    monkeypatch.setattr(chance, "MAX_EXCEEDED", 4_000)
    every = choices(6, 3)
    totals = every @ np.array(values, dtype=float)
    for chosen in every[::4]:
        exact = np.mean(totals >= chosen @ np.array(values) - 1e-9)
        assert permutation_p_values(sum_statistics(np.array(values)), chosen)[
            0
        ] == pytest.approx(exact, abs=0.04)


def test_a_p_by_lot_is_uniform_or_larger_although_drawing_stops_early(monkeypatch):
    monkeypatch.setattr(chance, "DRAWS", 199)
    monkeypatch.setattr(chance, "MAX_EXCEEDED", 5)
    rng = np.random.default_rng(0)
    # ties and a long tail
    values = np.concatenate([np.zeros(20), rng.exponential(size=10), np.full(10, 3.0)])
    took_part = np.arange(40) < 15
    found = [
        permutation_p_values(
            sum_statistics(values), rng.permutation(took_part), seed=seed
        )[0]
        for seed in range(1500)
    ]
    for level in (0.005, 0.01, 0.05, 0.1, 0.3):
        assert np.mean(found <= np.array(level)) <= level + 4 * np.sqrt(level / 1500)
    assert np.mean(np.array(found) <= 0.1) > 0.05  # and not idle


@pytest.mark.parametrize("strata", [None, np.arange(30) % 3])
def test_lots_are_the_same_whoever_asked_for_them_before(strata):
    took_part = np.arange(30) < 12
    values = np.random.default_rng(0).normal(size=30)
    hard = values + took_part
    alone = permutation_p_values(sum_statistics(hard), took_part, strata=strata)
    chance._shared_assignments.cache_clear()
    first = permutation_p_values(
        sum_statistics(values), took_part, strata=strata
    )  # ends after fewer draws
    assert permutation_p_values(sum_statistics(hard), took_part, strata=strata) == alone
    assert (
        permutation_p_values(sum_statistics(values), took_part, strata=strata) == first
    )
    assert (
        permutation_p_values(sum_statistics(hard), took_part, strata=strata, seed=1)
        != alone
    )


def test_drawing_stops_by_the_draw_that_was_enough():
    assert chance._sequential_p_value(np.ones(500, bool)) == 1
    assert chance._sequential_p_value(np.arange(500) % 2 == 1) == pytest.approx(0.5)
    assert chance._sequential_p_value(np.zeros(4_999, bool)) == 1 / 5_000
    assert chance._sequential_p_value(np.arange(4_999) < 49) == 50 / 5_000


def test_lots_stay_within_their_stratum():
    strata = np.array([0, 0, 0, 1, 1, 1])
    took_part = np.array([1, 1, 0, 0, 0, 1], bool)
    seen = []

    def statistics(lots):
        seen.append(lots.copy())
        return np.zeros((len(lots), 1))

    permutation_p_values(statistics, took_part, strata=strata)
    lots = np.concatenate(seen)
    assert (lots[:, :3].sum(axis=1) == 2).all()
    assert (lots[:, 3:].sum(axis=1) == 1).all()
    assert len(np.unique(lots, axis=0)) == 9


def test_means_are_compared_whatever_the_sizes_of_the_groups():
    assert mean_p_value(np.ones(5), np.zeros(200)) == fisher(5, 5, 0, 200) < 1e-6
    assert mean_p_value(np.zeros(5), np.ones(200)) == 1
    assert mean_p_value(np.full(5, 0.9), np.full(200, 0.1)) == pytest.approx(2e-4)
    assert mean_p_value(np.full(5, 0.5), np.full(200, 0.5)) == 1


def test_holm_by_hand():
    # Holm's own steps
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([0.5, 0.9]) == (1.0, 1.0)
    assert holm([0.02]) == (0.02,)
    assert holm([]) == ()


def test_holm_errs_with_the_level_and_no_more_under_the_worst_dependence():
    # Four p-values, each uniform, that are never small at the same time: u, u + ¼, u +
    # ½, u + ¾ (mod 1).
    worlds = [[(u / 4000 + i / 4) % 1 for i in range(4)] for u in np.arange(4000) + 0.5]
    assert np.mean([min(world) <= 0.05 for world in worlds]) == pytest.approx(0.2)
    assert np.mean([min(holm(world)) <= 0.05 for world in worlds]) == pytest.approx(
        0.05
    )


@given(st.integers(1, 60), st.sampled_from([1, 2, 4, 1000]), st.integers(0, 999))
@settings(max_examples=30, deadline=None)
def test_marks_equal_the_measures_for_every_choice_of_members(people, levels, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, 2 * people).astype(float)
    lots = np.stack([rng.permutation(np.arange(2 * people) < people) for _ in range(4)])
    # every member above every outsider, but for ties
    lots[0] = np.argsort(np.argsort(scores)) >= people
    got = membership_statistics(scores[:people], scores[people:])(lots)
    for row, lot in zip(got, lots, strict=True):
        pair = scores[lot], scores[~lot]
        assert row.tolist() == pytest.approx(
            [measure(*pair).value for measure in (top_half, auc, tpr)]
        )
