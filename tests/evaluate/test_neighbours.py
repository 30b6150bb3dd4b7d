import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.evaluate.attacks.neighbours import FIGURES
from understudy.evaluate.attacks.neighbours import neighbours as neighbours_of
from understudy.evaluate.utility.distance import Attacked


def neighbours(train, holdout, synthetic, *more, space=None, **settings):
    return neighbours_of(
        Attacked.from_codes(train, holdout, synthetic, space=space), *more, **settings
    )


pytestmark = pytest.mark.usefixtures("few_draws")


def people(rows, seed, columns=8, levels=8):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, (rows, 1))
    return ((rng.random((rows, columns)) ** 2 * levels).astype(int) + kind) % levels


def by_hand(rows, train, holdout, skip=False):
    """Each row's two nearest training rows, its nearest held-out row, and its part that
    falls to train.
    """
    found = []
    falls = np.zeros(len(train) + len(holdout))
    for i, row in enumerate(rows):
        to_train = [sum(x != y for x, y in zip(row, t, strict=True)) for t in train]
        to_holdout = [
            sum(x != y for x, y in zip(row, h, strict=True))
            if not (skip and i == j)
            else 99
            for j, h in enumerate(holdout)
        ]
        both = np.array(to_train + to_holdout)
        falls[both == both.min()] += 1 / (both == both.min()).sum()
        found.append((*sorted(to_train)[:2], min(to_holdout)))
    share = falls[: len(train)].sum() / len(rows)
    return np.array(found) / len(rows[0]), share, falls.sum() ** 2 / (falls**2).sum()


def balanced(share, train, holdout):
    return (share / train) / (share / train + (1 - share) / holdout)


@given(st.integers(2, 6), st.integers(2, 6), st.integers(1, 6), st.integers(0, 999))
@settings(max_examples=30, deadline=None)
def test_shares_and_distances_equal_their_definitions(n, m, rows, seed):
    rng = np.random.default_rng(seed)
    train, holdout, synthetic = (
        rng.integers(0, 3, (count, 4)) for count in (n, m, rows)
    )
    closer, figures = neighbours(train, holdout, synthetic)
    found, share, _ = by_hand(synthetic, train, holdout)
    unseen, control, _ = by_hand(holdout, train, holdout, skip=True)
    measure = closer["share"]
    assert measure.attack.value == pytest.approx(balanced(share, n, m))
    assert measure.control.value == pytest.approx(balanced(control, n, m - 1))
    dcr = figures[0]
    nndr = figures[2]
    assert dcr.ceiling == pytest.approx(np.median(unseen[:, 0]))
    ratios = [1.0 if second == 0 else first / second for first, second, _ in found]
    assert dcr.value == pytest.approx(np.median(found[:, 0]))
    assert nndr.value == pytest.approx(np.median(ratios))
    copies = closer["copies"]
    made = {tuple(row) for row in synthetic.tolist()}
    assert copies.attack.value == pytest.approx(
        np.mean([tuple(row) in made for row in train.tolist()])
    )
    assert copies.control.value == pytest.approx(
        np.mean([tuple(row) in made for row in holdout.tolist()])
    )
    alone = [
        np.prod([np.mean(synthetic[:, j] == v) for j, v in enumerate(row)])
        for row in train
    ]
    assert copies.baseline.value == pytest.approx(
        np.mean([1 - (1 - q) ** rows for q in alone])
    )


def test_synthetic_rows_that_keep_to_what_is_common_copy_nobody():
    rng = np.random.default_rng(9)
    common = (
        (rng.random((600, 4)) ** 4 * 8).astype(int) + rng.integers(0, 3, (600, 1))
    ) % 8
    train = people(600, 7, columns=4)
    holdout = people(600, 8, columns=4)
    copies = neighbours(train, holdout, common)[0]["copies"]
    known = {tuple(row) for row in train.tolist()}
    hits = [
        np.mean([tuple(row) in known for row in rows.tolist()])
        for rows in (common, holdout)
    ]
    # held-out rows in the place of synthetic ones would cry wolf
    assert hits[0] > hits[1] + 0.1
    assert copies.p > 0.05


def test_hand_values():
    train = np.array([[0, 0, 0, 0], [1, 1, 1, 1]])
    holdout = np.array([[2, 2, 2, 2], [3, 3, 3, 3]])
    # one stands near a training row, one near a held-out row
    synthetic = np.array([[0, 0, 0, 1], [2, 2, 2, 0]])
    closer, figures = neighbours(train, holdout, synthetic)
    assert closer["share"].attack.value == 0.5
    assert figures[0].value == 0.5  # of 0.25 and 0.75
    assert figures[2].value == pytest.approx((1 / 3 + 0.75) / 2)  # ratios 1/3 and 3/4


@pytest.mark.parametrize(("train", "holdout"), [(600, 600), (900, 300)])
def test_independent_rows_stand_in_the_middle_whatever_the_sizes_of_the_tables(
    train, holdout
):
    values = [
        neighbours(people(train, s), people(holdout, s + 50), people(400, s + 100))[0][
            "share"
        ]
        for s in range(12)
    ]
    assert np.mean([v.attack.value for v in values]) == pytest.approx(0.5, abs=0.03)
    assert np.mean([v.control.value for v in values]) == pytest.approx(0.5, abs=0.03)


def test_the_interval_covers_one_half_where_many_synthetic_rows_share_few_real_neighbours():
    covered = []
    for seed in range(60):
        train = people(40, seed)
        holdout = people(40, seed + 100)
        rate = neighbours(train, holdout, people(2000, seed + 200))[0]["share"].attack
        covered.append(rate.low <= 0.5 <= rate.high)
    assert np.mean(covered) >= 0.9  # with one trial a row it would be 0.5


def test_copies_are_closer_to_their_originals():
    train = people(900, 0)
    holdout = people(300, 1)
    closer, figures = neighbours(train, holdout, train[:400])
    assert closer["share"].attack.value > 0.95
    assert closer.leaks
    dcr, _, nndr, _ = figures
    assert dcr.value == nndr.value == 0
    assert dcr.ceiling > 0
    assert nndr.ceiling > 0.5
    assert closer["copies"].attack.value > 0.44  # 400 of 900 people
    assert closer["copies"].control.high < 0.1
    assert closer["copies"].p < 1e-9


def test_a_few_copies_among_honest_rows_are_seen():
    train = people(900, 0)
    holdout = people(900, 1)
    mixed = np.concatenate([people(800, 2), train[:80]])
    copies = neighbours(train, holdout, mixed)[0]["copies"]
    assert copies.attack.value > 0.08
    assert copies.leaks


def test_every_row_alike_gives_one_half_and_a_wide_interval():
    same = np.zeros((30, 3), int)
    rate = neighbours(same, same, same)[0]["share"].attack
    assert rate.value == pytest.approx(0.5)
    assert (
        neighbours(people(30, 2), people(30, 3), same[:, :1].repeat(8, axis=1))[0][
            "share"
        ].attack.low
        < 0.5
    )


def test_more_rows_than_wished_for_are_drawn_by_the_seed_and_stated():
    tables = people(100, 4), people(90, 5), people(500, 6)
    runs = [neighbours(*tables, max_rows=50, seed=seed)[0] for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
    assert runs[0].note.startswith(
        "50 of 500 synthetic rows against 100 training and 90 held-out rows"
    )


def test_what_hinders_the_comparison_is_said():
    rows = np.zeros((4, 2), int)
    for tables in (
        (rows[:1], rows, rows),
        (rows, rows[:1], rows),
        (rows, rows, rows[:0]),
    ):
        closer, figures = neighbours(*tables)
        assert "are needed" in closer.reason
        assert [figure.name for figure in figures] == list(FIGURES)
        assert all(figure.value is None for figure in figures)
    assert neighbours(rows, rows, rows[:1])[0]["share"].attack.value == pytest.approx(
        0.5
    )
