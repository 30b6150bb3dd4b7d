import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.schema import Boolean, Categorical, Integer, Ordinal, Real, Schema
from understudy.evaluate.utility import distance
from understudy.evaluate.utility.distance import UNIT, Attacked, EncodedRows, Space
from understudy.ground.errors import ConfigError

SCHEMA = Schema(
    columns=(
        Categorical(name="plan", categories=("free", "paid", "old")),
        Ordinal(name="grade", categories=(1, 2, 3, 4), nullable=True),
        Integer(name="age", low=0, high=99, bins=10),
        Real(name="cost", low=0, high=1, bins=40),
        Boolean(name="ill", nullable=True),
    )
)


def gap(column, i, j):
    """Gower's distance of two levels, from its definition."""
    if i == j:
        return 0.0
    if isinstance(column, Categorical | Boolean) and not isinstance(column, Ordinal):
        return 1.0
    return 1.0 if column.levels in (i, j) else abs(i - j) / (column.levels - 1)


@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(0, 999),
    st.sampled_from([1, 7, 1 << 21]),
)
@settings(max_examples=40, deadline=None)
def test_distances_equal_their_definitions_in_blocks_of_any_size(
    people, rows, seed, block
):
    rng = np.random.default_rng(seed)
    sizes = [column.size for column in SCHEMA.columns]
    a = rng.integers(0, sizes, (people, 5))
    b = rng.integers(0, sizes, (rows, 5))
    gower = [
        [sum(map(gap, SCHEMA.columns, x, y)) for y in b.tolist()] for x in a.tolist()
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distance, "BLOCK", block)
        for space, truth, unit in (
            (Space.gower(SCHEMA), gower, UNIT),
            (Space.hamming(sizes), (a[:, None] != b).sum(axis=2), 1),
        ):
            rows_of_space = EncodedRows(b, space)
            got = np.concatenate(
                [*rows_of_space.map_distances(a, lambda d, _: d.copy())]
            )
            np.testing.assert_allclose(got / unit, truth, atol=1e-5)
            assert (rows_of_space.nearest(a) == got.min(axis=1)).all()
            assert got.max() <= space.width


def test_few_levels_have_exact_gower_steps_so_that_ties_are_ties():
    space = Space((4, 4, 4, 17), (True,) * 4, (False,) * 4)
    a = np.array([[0, 0, 0, 0]])
    thirds = [1, 1, 1, 0]
    whole = [3, 0, 0, 0]
    sixteenths = [0, 0, 0, 16]
    (found,) = EncodedRows(np.array([thirds, whole, sixteenths]), space).map_distances(
        a, lambda d, _: d
    )
    assert found.tolist() == [[UNIT] * 3]


@given(st.integers(1, 12), st.integers(0, 999))
@settings(max_examples=30, deadline=None)
def test_the_distance_to_all_rows_is_the_sum_of_the_distances(rows, seed):
    sizes = [column.size for column in SCHEMA.columns]
    codes = np.random.default_rng(seed).integers(0, sizes, (rows, 5))
    for space in (Space.gower(SCHEMA), Space.hamming(sizes)):
        far = sum(
            space.distance_sums(j, np.bincount(codes[:, j], minlength=size))[
                codes[:, j]
            ]
            for j, size in enumerate(sizes)
        )
        whole = np.concatenate(
            [
                *EncodedRows(codes, space).map_distances(
                    codes, lambda d, _: d.astype(np.int64)
                )
            ]
        )
        assert (far == whole.sum(axis=1)).all()


def test_many_columns_and_many_levels_do_not_overflow():
    a = np.zeros((1, 300), int)
    b = np.full((1, 300), 70_000)
    assert EncodedRows(b, Space.hamming([70_001] * 300)).nearest(a).tolist() == [300]
    wide = Space((2,) * 4000, (True,) * 4000, (False,) * 4000)
    assert EncodedRows(np.ones((1, 4000), int), wide).nearest(
        np.zeros((1, 4000), int)
    ).tolist() == [4000 * UNIT]


def test_a_part_of_a_space_keeps_its_columns():
    part = Space.gower(SCHEMA).take([1, 0])
    assert part == Space((5, 3), (True, False), (True, False))
    assert part.present(0) == 4


def test_tables_that_do_not_fit_are_refused():
    good = np.zeros((2, 3), int)
    with pytest.raises(ConfigError, match="different numbers of columns"):
        Attacked.from_codes(good, good, good[:, :2])
    with pytest.raises(ConfigError, match="synthetic: codes must be"):
        Attacked.from_codes(good, good, good - 1)
    with pytest.raises(ConfigError, match="codes must be"):
        Attacked.from_codes(good.astype(float), good, good)
    with pytest.raises(ConfigError, match=r"need \[6, 6, 6\]"):
        Attacked.from_codes(good + 5, good, good, space=Space.hamming([2, 2, 2]))


def test_what_is_lacking_is_said():
    empty = np.zeros((0, 2), int)
    bare = np.zeros((3, 0), int)
    three = np.zeros((3, 2), int)
    assert (
        Attacked.from_codes(empty, three, three).missing_reason()
        == "the train table has 0 rows and 1 are needed."
    )
    assert (
        Attacked.from_codes(bare, bare, bare).missing_reason()
        == "there are no columns."
    )
    assert (
        Attacked.from_codes(three, three, three)
        .missing_reason(train=4)
        .startswith("the train table has 3 rows")
    )
    assert Attacked.from_codes(three, three, three).missing_reason() == ""
