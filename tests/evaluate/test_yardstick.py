"""The scale of what a perfect table reaches: exact where it can be counted, unbent by
the number of rows.
"""

import numpy as np
import pytest

from understudy.data.schema import Categorical, Schema
from understudy.evaluate.figure import Figure
from understudy.evaluate.utility.fidelity import Yardstick
from understudy.evaluate.utility.marginals import Codes

WIDE = Schema(
    columns=tuple(
        Categorical(name=n, categories=tuple(map(str, range(20)))) for n in "abcd"
    )
)
OWNERS = {"a": "clinic", "b": "clinic", "c": "insurer", "d": "insurer"}


def chain(rows: int, rng: np.random.Generator) -> Codes:
    """Four columns of 20 levels, each near the one before."""
    steps = rng.integers(-2, 3, size=(rows, 4))
    steps[:, 0] = rng.integers(0, 20, size=rows)
    return np.asarray(np.cumsum(steps, axis=1) % 20)


def measured(
    real: Codes, synthetic: Codes, holdout: Codes | None = None
) -> dict[str, Figure]:
    scale = Yardstick.from_codes(WIDE, real, synthetic, holdout, owners=OWNERS)
    return {figure.name: figure for figure in scale.figures()}


def place(figure: Figure) -> float:
    assert figure.value is not None
    assert figure.floor is not None
    assert figure.ceiling is not None
    return (figure.value - figure.floor) / (figure.ceiling - figure.floor)


@pytest.mark.parametrize(("rows", "slack"), [(200, 0.3), (4000, 0.1)])
@pytest.mark.parametrize("held_out", [False, True])
def test_a_fresh_sample_stands_at_0_and_independent_columns_at_1_however_few_the_rows(
    rows: int, slack: float, held_out: bool
) -> None:
    rng = np.random.default_rng(1)
    real, fresh, other = (chain(rows, rng) for _ in range(3))
    unseen = other if held_out else None
    for name in ("avd2", "avd2_within", "avd2_cross", "cmd"):
        assert place(measured(real, fresh, unseen)[name]) == pytest.approx(
            0, abs=slack
        ), name
        apart = rng.permuted(fresh, axis=0)
        assert place(measured(real, apart, unseen)[name]) == pytest.approx(
            1, abs=slack
        ), name


def test_the_three_tables_are_of_one_size_and_the_halves_are_all_real_rows_once():
    real = np.arange(101)[:, None] % 20 + np.zeros((1, 4), dtype=int)
    scale = Yardstick.from_codes(WIDE, real, real[:70])
    assert {len(table) for table in scale.tables} == {50}
    both = np.sort(np.concatenate([scale.truth[:, 0], scale.tables[1][:, 0]]))
    assert both.tolist() == np.sort(real[:, 0]).tolist()


def test_held_out_rows_leave_all_real_rows_as_the_truth() -> None:
    rng = np.random.default_rng(2)
    real = chain(60, rng)
    unseen = chain(30, rng)
    scale = Yardstick.from_codes(WIDE, real, real, unseen)
    assert scale.truth.tolist() == real.tolist()
    assert np.sort(scale.tables[1], axis=0).tolist() == np.sort(unseen, axis=0).tolist()


def test_a_column_s_distance_is_exact() -> None:
    schema = Schema(columns=(Categorical(name="c", categories=("x", "y", "z", "w")),))
    real, unseen, made = (
        np.array(levels)[:, None]
        for levels in ([0, 0, 2, 3], [0, 0, 0, 0], [0, 1, 1, 1])
    )
    figure = Yardstick.from_codes(schema, real, made, unseen).columns()["c"]
    assert (figure.value, figure.floor, figure.ceiling) == (0.75, 0.5, 0.25)


@pytest.mark.parametrize(("real", "made"), [(0, 10), (10, 0), (1, 10)])
def test_without_rows_every_figure_has_a_reason(real: int, made: int) -> None:
    rng = np.random.default_rng(3)
    scale = Yardstick.from_codes(WIDE, chain(real, rng), chain(made, rng))
    assert all(
        figure.reason for figure in scale.figures() if figure.name.startswith("avd")
    )
    assert scale.columns() == {}
