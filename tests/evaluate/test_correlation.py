import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from understudy.evaluate.utility import association
from understudy.evaluate.utility.association import cmd, correlations, pearson
from understudy.ground.errors import ConfigError


def numpys(table):
    """numpy's matrix, with 0 for what is undefined and 1 on the diagonal."""
    with np.errstate(invalid="ignore", divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matrix = np.nan_to_num(
            np.corrcoef(table, rowvar=False).reshape(table.shape[1], -1)
        )
    np.fill_diagonal(matrix, 1)
    return matrix


def correlated(rows, seed, columns=6):
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 5, (rows, 1)) + (rng.random((rows, columns)) < 0.3)).astype(
        np.int32
    )


tables = arrays(
    np.int32,
    st.tuples(st.integers(2, 9), st.integers(1, 4)),
    elements=st.integers(0, 3),
)


@given(tables)
@settings(max_examples=60, deadline=None)
def test_matrix_equals_numpys_and_constants_are_found(table):
    matrix, varies = pearson(table)
    np.testing.assert_allclose(matrix, numpys(table.astype(float)), atol=1e-12)
    assert (varies == (np.ptp(table, axis=0) > 0)).all()


def test_blocks_of_rows_change_nothing(monkeypatch):
    table = correlated(500, 0)
    whole = pearson(table)[0]
    monkeypatch.setattr(association, "CHUNK", 7)
    np.testing.assert_allclose(pearson(table)[0], whole, atol=1e-12)


def test_distance_equals_the_formula_with_a_trace():
    R, S = (numpys(correlated(60, seed)) for seed in (1, 2))
    byhand = 1 - np.trace(R @ S) / (np.linalg.norm(R) * np.linalg.norm(S))
    assert cmd(R, S) == pytest.approx(byhand, abs=1e-12)


def test_hand_computed_distances():
    ones = np.ones((2, 2))
    eye = np.eye(2)
    assert cmd(ones, eye) == pytest.approx(1 - 2 / (2 * np.sqrt(2)))
    off = ~np.eye(2, dtype=bool)
    assert cmd(ones, np.array([[1.0, -1.0], [-1.0, 1.0]]), off) == pytest.approx(2)
    assert cmd(ones, eye, off) == 1  # nothing reproduced
    assert cmd(eye, ones, off) is None  # nothing to reproduce


def test_a_table_stands_at_0_from_itself_in_any_order_and_any_unit():
    table = correlated(300, 3)
    for other in (table, table[::-1], np.repeat(table, 2, axis=0), 3 * table + 1):
        (figure,) = correlations(table, other).figures
        assert figure.value == pytest.approx(0, abs=1e-12)


def test_permuting_the_columns_of_both_tables_changes_nothing():
    real = correlated(300, 4)
    synthetic = correlated(300, 5)
    order = np.random.default_rng(0).permutation(6)
    (a,), (b,) = (
        correlations(x, y).figures
        for x, y in ((real, synthetic), (real[:, order], synthetic[:, order]))
    )
    assert a.value == pytest.approx(b.value, abs=1e-12)


def test_floor_lies_below_ceiling_and_a_shuffled_table_at_the_ceiling():
    real = correlated(3000, 8)
    shuffled = np.random.default_rng(0).permuted(real, axis=0)
    for figure in correlations(real, shuffled, owners="aaabbb").figures:
        assert figure.floor < 0.01 < 0.1 < figure.ceiling
        # without a diagonal what is left of a shuffled table is noise
        if figure.name != "cmd_cross":
            assert figure.value == pytest.approx(figure.ceiling, abs=0.02)


def test_a_joint_broken_across_parties_shows_in_the_cross_figure_alone():
    real = correlated(3000, 9)
    broken = np.concatenate(
        [real[:, :3], real[np.random.default_rng(0).permutation(3000), 3:]], axis=1
    )
    every, within, cross = correlations(real, broken, owners="aaabbb").figures
    assert within.value == pytest.approx(0, abs=1e-12)
    assert cross.value > 0.5
    assert within.value < every.value < cross.value
    assert [f.name for f in (every, within, cross)] == [
        "cmd",
        "cmd_within",
        "cmd_cross",
    ]


def test_constant_columns_are_left_out_or_counted_as_uncorrelated_and_named():
    real = correlated(300, 10)
    synthetic = correlated(300, 10)
    real[:, 0], synthetic[:, 0] = 2, 2
    (alike,) = correlations(real, synthetic, names=list("uvwxyz")).figures
    assert alike.value == pytest.approx(0, abs=1e-12)
    assert alike.note == "constant in the real rows, left out: u"
    synthetic[:, 1] = 0
    result = correlations(real, synthetic, names=list("uvwxyz"))
    assert result.figures[0].value > 0.05
    assert (
        "only in the synthetic rows, counted as uncorrelated: v"
        in result.figures[0].note
    )
    assert result.synthetic[1].tolist() == [0, 1, 0, 0, 0, 0]


def test_what_cannot_be_computed_has_a_reason():
    constant = np.zeros((10, 2), int)
    varied = correlated(10, 11, columns=2)
    assert "constant" in correlations(constant, varied).figures[0].reason
    assert "too few" in correlations(varied[:1], varied).figures[0].reason
    every, within, cross = correlations(varied, varied, owners="aa").figures
    assert every.value is not None
    assert within.value is not None
    assert "different parties" in cross.reason


def test_unfit_arguments_are_refused():
    with pytest.raises(ConfigError):
        correlations(np.zeros((3, 2), int), np.zeros((3, 3), int))
