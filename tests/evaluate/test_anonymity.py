import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.evaluate.attacks.anonymity import inference as inference_of
from understudy.evaluate.attacks.anonymity import linkability as linkability_of
from understudy.evaluate.utility.distance import Attacked
from understudy.ground.errors import ConfigError


def linkability(train, holdout, synthetic, *more, space=None, **settings):
    return linkability_of(
        Attacked.from_codes(train, holdout, synthetic, space=space), *more, **settings
    )


def inference(train, holdout, synthetic, *more, space=None, **settings):
    return inference_of(
        Attacked.from_codes(train, holdout, synthetic, space=space), *more, **settings
    )


pytestmark = pytest.mark.usefixtures("few_draws")

LEFT = [0, 1, 2, 3]
RIGHT = [4, 5, 6, 7]


def people(rows, seed, columns=8, levels=10):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, (rows, 1))
    return ((rng.random((rows, columns)) ** 2 * levels).astype(int) + kind) % levels


def unlike(a, b):
    return sum(x != y for x, y in zip(a, b, strict=True))


def nearest(row, table, columns):
    distances = [unlike(row[columns], other[columns]) for other in table]
    return {i for i, d in enumerate(distances) if d == min(distances)}


@given(st.integers(1, 6), st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_linkability_succeeds_with_the_chance_of_taking_the_same_row_among_equals(
    rows, seed
):
    rng = np.random.default_rng(seed)
    person = rng.integers(0, 3, (1, 4))
    table = rng.integers(0, 3, (rows, 4))
    one, other = (nearest(person[0], table, side) for side in ([0, 1], [2, 3]))
    chance = len(one & other) / (len(one) * len(other))
    many = np.repeat(person, 2000, axis=0)
    attack = linkability(many, person, table, [0, 1], [2, 3], targets=2000)
    assert attack["success"].attack.value == pytest.approx(chance, abs=0.06)


@given(st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_the_baseline_is_the_chance_that_two_draws_meet(rows):
    table = np.arange(rows * 2).reshape(rows, 2)
    attack = linkability(table, table, table, [0], [1])
    assert attack["success"].baseline.value == pytest.approx(1 / rows)
    # every row is its own neighbour on both sides
    assert attack["success"].attack.value == 1


def test_copies_link_people_and_independent_rows_do_not():
    train = people(600, 0)
    holdout = people(600, 1)
    copied, independent = (
        linkability(train, holdout, t, LEFT, RIGHT) for t in (train, people(600, 2))
    )
    assert copied["success"].attack.value > 0.5
    assert copied.leaks
    assert not independent.leaks
    assert independent["success"].risk.low == 0


def test_constant_columns_link_no_better_than_the_lot():
    same = np.zeros((200, 8), int)
    success = linkability(same, same, same, LEFT, RIGHT)["success"]
    assert success.attack.low <= success.baseline.value <= success.attack.high


@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 999))
@settings(max_examples=40, deadline=None)
def test_inference_succeeds_with_the_share_of_right_answers_among_the_nearest(
    count, rows, seed
):
    rng = np.random.default_rng(seed)
    train = rng.integers(0, 3, (count, 4))
    table = rng.integers(0, 3, (rows, 4))
    attack = inference(train, train[:1], table, 1)["success"]
    known = [0, 2, 3]
    chances = []
    for person in train:
        near = nearest(person, table, known)
        chances.append(np.mean([table[i, 1] == person[1] for i in near]))
    assert attack.attack.value == pytest.approx(np.mean(chances))
    assert attack.control.value == pytest.approx(chances[0])
    assert attack.baseline.value == pytest.approx(
        np.mean([np.mean(table[:, 1] == p[1]) for p in train])
    )


def test_copies_give_secrets_away_and_independent_rows_do_not():
    train = people(600, 3)
    holdout = people(600, 4)
    copied, independent = (
        inference(train, holdout, t, 2) for t in (train, people(600, 5))
    )
    assert copied["success"].attack.value > 0.95
    assert copied.leaks
    assert not independent.leaks


def test_what_the_distribution_gives_away_is_in_the_control_and_no_risk():
    rng = np.random.default_rng(6)
    tables = [np.repeat(rng.integers(0, 5, (500, 1)), 3, axis=1) for _ in range(3)]
    sure = inference(*tables, 0)["success"]
    assert sure.attack.value == sure.control.value == 1
    assert sure.baseline.value < 0.3
    assert sure.risk is None
    for table in tables[:2]:
        table[:50, 0] = rng.integers(0, 5, 50)
    likely = inference(*tables, 0)["success"]
    assert likely.attack.value > 0.85
    assert likely.risk.low == 0


def test_the_draws_follow_the_seed():
    tables = [people(300, seed, levels=3) for seed in (7, 8, 9)]
    for attack in (
        lambda seed: linkability(*tables, LEFT, RIGHT, targets=100, seed=seed),
        lambda seed: inference(*tables, 0, targets=100, seed=seed),
    ):
        assert attack(0) == attack(0) != attack(1)


def test_what_hinders_the_attacks_is_said():
    rows = np.zeros((4, 2), int)
    none = np.zeros((0, 2), int)
    assert (
        "one of the two sides has no columns"
        in linkability(rows, rows, rows, [0], []).reason
    )
    assert (
        "the train table has 0 rows" in linkability(none, rows, rows, [0], [1]).reason
    )
    assert (
        "nothing is known" in inference(rows[:, :1], rows[:, :1], rows[:, :1], 0).reason
    )
    assert "the synthetic table has 0 rows" in inference(rows, rows, none, 0).reason
    one = inference(rows[:1], rows[:1], rows[:1], 0)["success"]
    assert one.attack.value == one.control.value == one.baseline.value == 1
    with pytest.raises(ConfigError, match="there is no column 5"):
        inference(rows, rows, rows, 5)
