from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.evaluate.attacks import anonymity as module
from understudy.evaluate.attacks import rates as chance
from understudy.evaluate.attacks.anonymity import (
    count_matches,
    distinct_predicates,
    multivariate_predicates,
    random_predicates,
    singling_out_p_value,
    univariate_predicates,
)
from understudy.evaluate.attacks.anonymity import singling_out as singling_out_of
from understudy.evaluate.attacks.rates import wilson
from understudy.evaluate.utility.distance import Attacked, Space


def singling_out(train, holdout, synthetic, *more, space=None, **settings):
    return singling_out_of(
        Attacked.from_codes(train, holdout, synthetic, space=space), *more, **settings
    )


pytestmark = pytest.mark.usefixtures("few_draws")

NOMINAL = Space((6,) * 4, (False,) * 4, (False,) * 4)
MIXED = Space((6, 6, 4, 4), (True, True, False, False), (True, False, True, False))


def people(rows, seed, levels=6, columns=4):
    return (np.random.default_rng(seed).random((rows, columns)) ** 3 * levels).astype(
        int
    )


def fits(predicate, row):
    """A predicate by its definition: column, low, high, negated."""
    return all(
        (low <= row[column] <= high) != bool(negated)
        for column, low, high, negated in predicate
    )


@given(
    st.integers(1, 3),
    st.integers(1, 30),
    st.integers(0, 999),
    st.sampled_from([NOMINAL, MIXED]),
)
@settings(max_examples=20, deadline=None)
def test_matches_equal_the_definition(columns, rows, seed, space):
    rng = np.random.default_rng(seed)
    table = np.unique(rng.integers(0, space.sizes, (rows, 4)), axis=0)
    other = rng.integers(0, space.sizes, (20, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BATCH", 20)
        drawn = multivariate_predicates(table, space, columns, 20, rng)
    for predicates in (
        univariate_predicates(table, space),
        drawn,
        random_predicates(table, space, columns, 50, rng),
    ):
        truth = [[fits(p, row) for row in other.tolist()] for p in predicates.tolist()]
        count, first = count_matches(predicates, other)
        assert count.tolist() == [sum(row) for row in truth]
        assert first.tolist() == [row.index(True) if any(row) else 0 for row in truth]


def test_univariate_predicates_by_hand():
    space = Space((5, 3), (True, False), (True, False))
    # 4 is "missing" in the first column
    table = np.array([[1, 0], [2, 0], [2, 1], [4, 1], [2, 2]])
    tests = {tuple(p[0]) for p in univariate_predicates(table, space).tolist()}
    assert tests == {
        (0, 1, 1, 0),  # the only 1
        (0, 4, 4, 0),  # the only missing one
        # the lowest; the highest, 2, is not alone, and missing is not high
        (0, 0, 1, 0),
        (1, 2, 2, 0),  # the only bearer of the last level
    }


@pytest.mark.parametrize("space", [NOMINAL, MIXED])
def test_multivariate_predicates_are_distinct_fit_one_row_and_point_away_from_the_median(
    space,
):
    table = np.unique(people(300, 0), axis=0) % np.array(space.sizes)
    table = np.unique(table, axis=0)
    found = multivariate_predicates(table, space, 3, 60, np.random.default_rng(1))
    assert 0 < len(found) <= 60
    assert (count_matches(found, table)[0] == 1).all()
    assert len(distinct_predicates(found)) == len(found)
    assert (np.diff(found[:, :, 0], axis=1) > 0).all()
    for column, low, high, _ in found.reshape(-1, 4).tolist():
        present = table[:, column][table[:, column] < space.present(column)]
        if low == high:
            continue
        assert space.ordered[column]
        if low == 0:
            assert high <= np.median(present)
        else:
            assert high == space.present(column) - 1
            assert low > np.median(present)


def test_random_predicates_use_every_test_and_only_equality_without_an_order():
    table = np.unique(people(300, 2) % np.array(MIXED.sizes), axis=0)
    drawn = random_predicates(table, MIXED, 1, 4000, np.random.default_rng(0))[:, 0]
    unordered = drawn[drawn[:, 0] >= 2]
    assert (unordered[:, 1] == unordered[:, 2]).all()
    assert 0.4 < unordered[:, 3].mean() < 0.6
    ordered = drawn[drawn[:, 0] == 1]
    assert {"=", "≥", "≤", "none"} <= {
        "none" if lo > hi else "=" if lo == hi else "≥" if hi == 5 else "≤"
        for _, lo, hi, _ in ordered.tolist()
    }


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 999))
@settings(max_examples=15, deadline=None)
def test_the_test_by_lot_is_close_to_all_choices_of_the_people_who_took_part(
    inside, outside, seed
):
    rng = np.random.default_rng(seed)
    people_here = rng.integers(0, 4, (inside + outside, 3))
    guesses = random_predicates(
        rng.integers(0, 4, (9, 3)), Space.hamming([4] * 3), 2, 12, rng
    )
    fit = np.array(
        [[fits(p, row) for row in people_here.tolist()] for p in guesses.tolist()]
    )

    def gain(chosen):
        ours = fit[:, list(chosen)].sum(axis=1)
        return (ours == 1).sum() - (fit.sum(axis=1) - ours == 1).sum()

    gains = [gain(chosen) for chosen in combinations(range(inside + outside), inside)]
    exact = np.mean(np.array(gains) >= gain(range(inside)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chance, "MAX_EXCEEDED", 3_000)
        patch.setattr(chance, "DRAWS", 3_000)
        drawn = singling_out_p_value(
            guesses, people_here[:inside], people_here[inside:], seed=seed
        )
    assert drawn == pytest.approx(exact, abs=0.05)


def test_attack_and_control_run_on_equally_many_people():
    few = people(60, 0, columns=6)
    many = people(400, 1, columns=6)
    for train, holdout in ((few, many), (many, few)):
        attack = singling_out(train, holdout, people(300, 2, columns=6), predicates=50)
        assert attack.control == 60
        assert "on 60 of" in attack.note
        assert "and 60 of" in attack.note


@pytest.mark.long
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("holdout", [800, 300])
def test_copies_are_singled_out_and_independent_rows_are_not(ordered, holdout):
    wide = [
        people(rows, seed, columns=8)
        for rows, seed in ((800, 3), (holdout, 4), (800, 5))
    ]
    space = Space((6,) * 8, (ordered,) * 8, (False,) * 8)
    independent = singling_out(*wide, space=space, columns=4)
    copied = singling_out(wide[0], wide[1], wide[0], space=space, columns=4)
    assert not independent.leaks
    assert copied.leaks
    # repeats among the training rows are two people; of 800 copies, those of the sample
    # are found
    assert copied["success"].attack.value > 0.9 * holdout / 800
    assert copied["success"].attack.value > copied["success"].baseline.high
    assert copied["success"].risk.value > 0.3 * holdout / 800


def test_univariate_attacks_find_the_one_rare_value():
    holdout = np.array([[0, i % 2, i // 2 % 2] for i in range(50)])
    train = holdout.copy()
    train[7, 0] = 3
    attack = singling_out(train, holdout, train, columns=1)
    assert attack.name == "singling_out_univariate"
    assert attack["success"].attack.value == 1
    assert attack["success"].control.value == 0


def test_intervals_cover_over_draws_of_people_although_one_fits_many_predicates():
    space = Space((6,) * 8, (True,) * 8, (False,) * 8)
    rng = np.random.default_rng(0)
    guesses = multivariate_predicates(
        np.unique(people(200, 0, columns=8), axis=0), space, 3, 250, rng
    )
    found = [
        count_matches(guesses, people(200, seed, columns=8)) for seed in range(100, 180)
    ]
    rates = [module._singling_out_rate(*pair) for pair in found]
    truth = np.mean([rate.value for rate in rates])
    assert np.mean([rate.low <= truth <= rate.high for rate in rates]) >= 0.95
    # each a trial of its own
    trials = [wilson(int((count == 1).sum()), len(guesses)) for count, _ in found]
    assert np.mean([rate.low <= truth <= rate.high for rate in trials]) < 0.94


def test_two_equal_people_are_not_singled_out():
    train = np.zeros((50, 2), int)
    train[[7, 8]] = 3
    attack = singling_out(train, np.zeros((50, 2), int), train, columns=2)
    assert attack["success"].attack.value == 0


def test_the_draws_follow_the_seed():
    tables = [people(200, seed) for seed in (6, 7, 8)]
    runs = [singling_out(*tables, predicates=40, seed=seed) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_what_hinders_the_attack_is_said():
    rows = np.zeros((4, 2), int)
    none = np.zeros((0, 2), int)
    assert (
        "3 columns are needed and the table has 2"
        in singling_out(rows, rows, rows).reason
    )
    assert "the holdout table has 0 rows" in singling_out(rows, none, rows).reason
    # one distinct synthetic row
    assert singling_out(rows, rows, rows, columns=2)["success"].attack.value == 0
    mixed = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    assert (
        "fits exactly one synthetic row"
        in singling_out(rows, rows, mixed, columns=1).reason
    )
    one = singling_out(rows[:1], rows[:1], rows[:1], columns=1)
    assert one["success"].attack.value == 1
    assert one["success"].control.value == 1
