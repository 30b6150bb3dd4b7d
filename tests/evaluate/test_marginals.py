import math
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.evaluate.figure import SCOPES, Figure, FigureKey
from understudy.evaluate.utility import marginals
from understudy.evaluate.utility.marginals import Marginals, attribute_sets
from understudy.ground.errors import ConfigError


def avd(real, synthetic, k, *, sizes=None, owners=None, seed=0, **more):
    return Marginals(real, synthetic, sizes, owners=owners, seed=seed).avd(k, **more)


def by_hand(real, other, columns):
    """½·Σ|P_real − P_other| over every value of the columns, with Counters."""
    a = Counter(map(tuple, real[:, columns].tolist()))
    b = Counter(map(tuple, other[:, columns].tolist()))
    return (
        sum(abs(a[v] / len(real) - b[v] / len(other)) for v in a.keys() | b.keys()) / 2
    )


@st.composite
def pairs(draw):
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    rows = draw(st.integers(1, 12))
    drawn = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    return (
        rng.integers(0, sizes, (rows, len(sizes))),
        rng.integers(0, sizes, (drawn, len(sizes))),
        sizes,
    )


@given(pairs(), st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_distance_equals_the_definition_on_every_set(pair, k):
    real, synthetic, sizes = pair
    sets = np.array(list(combinations(range(len(sizes)), k))).reshape(-1, k)
    if not len(sets):
        assert avd(real, synthetic, k).value is None
        return
    got = Marginals(real, synthetic, sizes, ends=()).distances(sets)[:, 0]
    np.testing.assert_allclose(
        got, [by_hand(real, synthetic, list(s)) for s in sets], atol=1e-12
    )


@given(pairs())
@settings(max_examples=40, deadline=None)
def test_sorted_counting_equals_dense_counting(pair):
    real, synthetic, sizes = pair
    sets = np.arange(len(sizes))[None]
    dense = Marginals(real, synthetic, sizes).distances(sets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marginals, "DENSE_CELLS", 0)
        assert (Marginals(real, synthetic, sizes).distances(sets) == dense).all()


def test_more_cells_than_int64_can_number_are_still_counted_exactly():
    rng = np.random.default_rng(0)
    sizes = [3_000_000] * 6  # 7e38 cells
    values = rng.integers(0, 3_000_000, (5, 6))
    real = values[rng.integers(0, 5, 40)]
    synthetic = values[rng.integers(0, 5, 30)]
    got = Marginals(real, synthetic, sizes, ends=()).distances(np.arange(6)[None])
    assert got[0, 0] == pytest.approx(
        by_hand(real, synthetic, list(range(6))), abs=1e-12
    )


def test_a_hand_computed_two_way_distance():
    real = np.array([[0, 0], [0, 0], [0, 1], [1, 1]])  # ½, ¼, ¼
    # ½, and ½ on a cell that the real rows do not have
    synthetic = np.array([[0, 0], [1, 0]])
    assert avd(real, synthetic, 2).value == 0.5


@pytest.mark.parametrize("k", range(1, 7))
def test_a_table_stands_at_0_from_itself_and_at_1_from_a_disjoint_one(k):
    table = np.random.default_rng(1).integers(0, 3, (50, 7))
    assert avd(table, table[::-1], k).value == 0
    assert avd(table, np.concatenate([table, table]), k).value == 0
    assert avd(table, table + 3, k).value == 1


def test_floor_lies_below_ceiling_on_correlated_columns_and_a_shuffled_table_lies_at_the_ceiling():
    rng = np.random.default_rng(2)
    real = (rng.integers(0, 4, (4000, 1)) + (rng.random((4000, 6)) < 0.1)) % 4
    figure = avd(real, rng.permuted(real, axis=0), 3)
    assert figure.floor < 0.1 < 0.5 < figure.ceiling
    assert figure.value == pytest.approx(figure.ceiling, abs=0.03)


def test_references_are_made_from_the_real_rows_at_the_size_of_the_synthetic_table():
    rng = np.random.default_rng(3)
    real = rng.integers(0, 5, (2000, 4))
    small, large = (
        avd(real, rng.integers(0, 5, (size, 4)), 2) for size in (50, 20_000)
    )
    assert small.floor > 3 * large.floor
    # independent columns: the ceiling is sampling noise as well
    assert small.ceiling > 3 * large.ceiling


def test_one_column_alone_has_a_floor_and_no_ceiling():
    figure = avd(*np.random.default_rng(3).integers(0, 5, (2, 50, 4)), 1)
    assert figure.floor > 0
    assert figure.ceiling is None


def test_owners_separate_a_broken_joint_across_parties_from_an_intact_one_within():
    rng = np.random.default_rng(4)
    half = np.repeat(rng.integers(0, 3, (3000, 1)), 3, axis=1)
    broken = np.concatenate([half, half[rng.permutation(3000)]], axis=1)
    pair = Marginals(np.concatenate([half, half], axis=1), broken, owners="aaabbb")
    within = pair.avd(2, scope="within")
    cross = pair.avd(2, scope="cross")
    assert within.value == 0
    assert cross.value > 0.5
    assert (within.name, cross.name) == ("avd2_within", "avd2_cross")


@pytest.mark.parametrize("listed", [0, marginals.LISTED_SETS])
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_sets_are_distinct_in_scope_and_all_of_them_when_few(
    listed, scope, k, monkeypatch
):
    monkeypatch.setattr(marginals, "LISTED_SETS", listed)
    owners = "aaabbcccc"
    wanted = {
        s
        for s in combinations(range(9), k)
        if scope == "all" or (len({owners[i] for i in s}) == 1) == (scope == "within")
    }
    sets = attribute_sets(
        owners, k, count=100, scope=scope, rng=np.random.default_rng(0)
    )
    assert set(map(tuple, sets.tolist())) == wanted
    assert len(sets) == len(wanted)


@pytest.mark.parametrize("listed", [0, marginals.LISTED_SETS])
@pytest.mark.parametrize("scope", SCOPES)
def test_sets_are_drawn_uniformly(listed, scope, monkeypatch):
    monkeypatch.setattr(marginals, "LISTED_SETS", listed)
    rng = np.random.default_rng(5)
    owners = "aaaabbbbbb"
    every = attribute_sets(owners, 2, count=45, scope=scope, rng=rng)
    seen = Counter(
        tuple(s)
        for _ in range(300)
        for s in attribute_sets(owners, 2, count=5, scope=scope, rng=rng).tolist()
    )
    expected = 1500 / len(every)
    chi2 = sum((seen[tuple(s)] - expected) ** 2 / expected for s in every.tolist())
    assert chi2 < len(every) + 4 * math.sqrt(2 * len(every))


def test_the_same_seed_draws_the_same_sets_and_another_seed_others():
    real, synthetic = (
        np.random.default_rng(s).integers(0, 3, (200, 30)) for s in (6, 7)
    )
    figures = [avd(real, synthetic, 4, count=10, seed=seed) for seed in (0, 0, 1)]
    assert figures[0] == figures[1] != figures[2]


def test_chosen_sets_are_used_as_given():
    real, synthetic = (
        np.random.default_rng(s).integers(0, 3, (200, 5)) for s in (8, 9)
    )
    sets = np.array([[0, 1], [3, 4]])
    figure = avd(real, synthetic, 2, sets=sets)
    assert figure.value == pytest.approx(
        np.mean([by_hand(real, synthetic, list(s)) for s in sets])
    )


@pytest.mark.parametrize(
    ("k", "scope", "reason"),
    [
        (4, "all", "4 columns are needed and the table has 3."),
        (3, "within", "no party holds 3 columns."),
    ],
)
def test_too_few_columns_give_a_reason(k, scope, reason):
    pair = Marginals(np.zeros((5, 3), int), np.zeros((5, 3), int), owners="aab")
    assert pair.avd(k, scope=scope).reason == reason


def test_one_party_has_no_cross_figure():
    pair = Marginals(np.zeros((5, 3), int), np.zeros((5, 3), int))
    assert "more than one party" in pair.avd(2, scope="cross").reason


@pytest.mark.parametrize(
    ("rows", "drawn", "which"), [(0, 3, "real"), (3, 0, "synthetic")]
)
def test_a_table_without_rows_gives_a_reason(rows, drawn, which):
    figure = avd(np.zeros((rows, 2), int), np.zeros((drawn, 2), int), 1)
    assert figure.value is None
    assert which in str(figure)


def test_constant_columns_and_a_single_row_are_counted():
    assert avd(np.zeros((1, 3), int), np.zeros((10, 3), int), 3).value == 0


@pytest.mark.parametrize(
    ("real", "synthetic", "options"),
    [
        (np.zeros((3, 2), int), np.zeros((3, 3), int), {}),
        (np.zeros((3, 2)), np.zeros((3, 2)), {}),
        (np.full((3, 2), -1), np.zeros((3, 2), int), {}),
        (np.full((3, 2), 4), np.zeros((3, 2), int), {"sizes": [4, 5]}),
        (np.zeros((3, 2), int), np.zeros((3, 2), int), {"owners": "a"}),
        (np.zeros((3, 2), int), np.zeros((3, 2), int), {"scope": "witin"}),
        (np.zeros((3, 2), int), np.zeros((3, 2), int), {"count": 0}),
    ],
)
def test_tables_that_cannot_be_compared_are_refused(real, synthetic, options):
    with pytest.raises(ConfigError):
        avd(real, synthetic, 1, **options)


def test_a_figure_has_a_value_or_a_reason():
    with pytest.raises(ConfigError):
        Figure(FigureKey("x"))
    with pytest.raises(ConfigError):
        Figure(FigureKey("x"), value=1.0, reason="none")
    assert [
        Figure(FigureKey("x"), value=1.0, floor=0.0, ceiling=2.0, better=b).best
        for b in ("lower", "higher")
    ] == [0, 2]
    assert (
        str(Figure(FigureKey("x"), value=1.0, floor=0.0)) == "x: 1.0000 (floor 0.0000)"
    )
    assert [FigureKey.for_scope(*p).name for p in product(["a"], SCOPES)] == [
        "a",
        "a_within",
        "a_cross",
    ]
