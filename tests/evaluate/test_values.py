"""Numbers as they are: exact on tiny tables, blind to the bins, and as the textbooks'
libraries have them.
"""

from datetime import date

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Boolean, Categorical, Date, Integer, Real, Schema
from understudy.evaluate.utility.association import (
    associations,
    correlation_ratio,
    cramers_v,
    pairwise_correlation,
)
from understudy.evaluate.utility.values import (
    Numbers,
    column_means,
    ks_and_wasserstein,
    measure_numbers,
    split_repeatedly,
    table_values,
)

INCOME = Real(name="income", low=-10, high=90, bins=2)


def found(column, real, made):
    schema = Schema(columns=(column,))
    values = [
        table_values(schema, frame, Codec(schema).codes(frame))
        for frame in (pd.DataFrame({column.name: cells}) for cells in (real, made))
    ]
    return measure_numbers(schema, *values, [(values[0], values[0])])[column.name]


def values_of(numbers: Numbers):
    return {figure.name: figure.value for figure in numbers.figures}


def test_every_figure_of_a_column_is_exact():
    numbers = found(INCOME, [0.0, 0.0, 0.0, 20.0, 20.0], [-5.0, 0.0, 20.0, 20.0, 60.0])
    figures = values_of(numbers)
    assert figures["ks"] == pytest.approx(0.2)
    assert figures["wasserstein"] == pytest.approx((5 + 20 + 40) / 5 / 100)
    quantiles = [0.05, 0.25, 0.5, 0.75, 0.95]
    real, made = (
        np.quantile(cells, quantiles)
        for cells in ([0, 0, 0, 20, 20], [-5, 0, 20, 20, 60])
    )
    assert figures["quantile_error"] == pytest.approx(
        np.abs(real - made).mean() / (real[-1] - real[0])
    )
    assert numbers.shares == {
        "zero_share": (0.6, 0.2),
        "negative_share": (0.0, 0.2),
        "spike_share": (0.4, 0.4),
    }
    for name, (before, after) in numbers.shares.items():
        assert figures[name] == abs(before - after)
    assert (numbers.spike, numbers.median) == (20.0, (0.0, 20.0))


def test_distances_are_those_of_scipy_ties_included():
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = (np.round(rng.normal(size=rng.integers(1, 40)), 1) for _ in range(2))
        assert ks_and_wasserstein(a, b) == pytest.approx(
            (stats.ks_2samp(a, b).statistic, stats.wasserstein_distance(a, b))
        )


def test_the_figures_do_not_look_at_bins():
    rng = np.random.default_rng(1)
    real = rng.exponential(5, 300)
    made = rng.exponential(7, 200)
    few, many = (
        found(Real(name="x", low=0, high=1e3, bins=bins), real, made)
        for bins in (1, 500)
    )
    assert values_of(few) == values_of(many)


def test_missing_numbers_are_left_aside_and_a_column_without_any_has_a_reason():
    column = Integer(name="visits", low=1, high=9, nullable=True)
    gaps = pd.array([1, None, 9, None], dtype="Int64")
    assert values_of(found(column, gaps, pd.array([1, 9], dtype="Int64")))["ks"] == 0
    nothing = found(column, gaps, pd.array([None, None], dtype="Int64"))
    assert nothing.median is None
    assert all("too few" in figure.reason for figure in nothing.figures)
    assert all(mean.reason for mean in column_means({"visits": nothing}))


def test_days_are_numbers_without_zeros():
    column = Date(name="since", low=date(2020, 1, 1), high=date(2020, 1, 10))
    numbers = found(
        column, pd.to_datetime(["2020-01-01"] * 2), pd.to_datetime(["2020-01-06"] * 2)
    )
    assert values_of(numbers)["wasserstein"] == pytest.approx(5 / 10)
    assert numbers.shares == {"spike_share": (1.0, 0.0)}
    assert tuple(map(numbers.format_value, numbers.median)) == (
        "2020-01-01",
        "2020-01-06",
    )


def test_splits_are_the_same_rows_parted_anew():
    real = np.arange(6.0)[:, None]
    fresh = np.arange(6.0, 10)[:, None]
    for a, b in split_repeatedly(real, fresh, np.random.default_rng(0)):
        assert (len(a), len(b)) == (6, 4)
        assert (
            np.sort(np.concatenate([a, b]), axis=0).tolist()
            == np.arange(10.0)[:, None].tolist()
        )


def test_linear_coefficients_are_those_of_pandas_gaps_and_constants_included():
    rng = np.random.default_rng(2)
    table = rng.normal(size=(200, 4)) @ rng.normal(size=(4, 4)) * [1e-9, 1, 1e9, 0] + [
        0,
        5,
        0,
        7,
    ]
    table[rng.random(table.shape) < 0.1] = np.nan
    pairs = np.triu_indices(3, 1)
    pandas = pd.DataFrame(table).corr().to_numpy()
    assert pairwise_correlation(table)[pairs] == pytest.approx(pandas[pairs])
    assert np.isnan(pairwise_correlation(table)[:3, 3]).all()
    whole = np.nan_to_num(table)
    assert pairwise_correlation(whole, ranks=True)[pairs] == pytest.approx(
        stats.spearmanr(whole[:, :3]).statistic[pairs]
    )


def test_levels_that_tell_each_other_have_1_and_independent_ones_0():
    a = np.repeat(np.arange(4.0), 50)
    b = np.tile(np.arange(5.0), 40)
    assert cramers_v(a, 3 - a, 4, 4) == pytest.approx(1)
    assert cramers_v(a, b, 4, 5) == 0
    assert correlation_ratio(a, 10 * a + 3, 4) == pytest.approx(1)
    assert correlation_ratio(a, b, 4) == 0
    assert np.isnan(cramers_v(a, np.zeros(200), 4, 1))
    assert np.isnan(correlation_ratio(a, np.zeros(200), 4))


def test_one_strong_pair_that_is_lost_shows_among_many_weak_ones():
    rng = np.random.default_rng(3)
    names = [f"c{i}" for i in range(12)]
    schema = Schema(
        columns=tuple(Real(name=name, low=-9, high=9, bins=4) for name in names)
    )
    real, fresh, made, naive = (rng.normal(size=(2000, 12)) for _ in range(4))
    for table in (real, fresh):
        table[:, 1] = table[:, 0]
    strengths = associations(schema, real, (made, fresh, naive))
    pearson = strengths.figures[0]
    assert pearson.value == pytest.approx(np.sqrt(1 / 66), rel=0.1)
    assert pearson.floor < 0.04
    furthest = max(strengths.pairs, key=lambda pair: abs(pair.real - pair.synthetic))
    assert (furthest.first, furthest.second, furthest.real) == (
        "c0",
        "c1",
        pytest.approx(1),
    )


def test_pairs_across_parties_are_told_apart():
    rng = np.random.default_rng(4)
    schema = Schema(
        columns=(
            Boolean(name="a"),
            Boolean(name="b"),
            Categorical(name="c", categories=("x", "y")),
        )
    )
    rank = rng.integers(0, 2, 500).astype(float)
    real = np.stack([rank, rank, rank], axis=1)
    lost = np.stack([rank, rank, rng.permutation(rank)], axis=1)
    figures = {
        figure.name: figure
        for figure in associations(
            schema, real, (lost, real, lost), owners=["p", "p", "q"]
        ).figures
    }
    assert figures["cramers_v_within"].value == 0
    assert figures["cramers_v_cross"].value > 0.8
    assert figures["pearson"].reason
