"""Fine cells follow from the declared bounds alone, at every scale."""

from dataclasses import replace
from datetime import date, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from understudy.data.column import Column
from understudy.data.encoding import fine as fine_cells
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.fine import FAN, MOST, fine_schema, is_bought, is_tree
from understudy.data.schema import (
    Boolean,
    Categorical,
    Date,
    Datetime,
    Integer,
    Ordinal,
    Real,
    Schema,
)
from understudy.privacy.noise import FastRng


def fine(*columns: Column) -> Schema:
    return fine_schema(Schema(columns=columns))


DECLARED = (
    Boolean(name="b"),
    Categorical(name="c", categories=("x", "y")),
    Integer(name="i", low=0, high=10**6, bins=12),
    Real(name="r", low=0, high=1, bins=(0, 0.5, 1)),
    Date(name="d", low=date(2020, 1, 1), high=date(2023, 1, 1), bins=8),
    Integer(name="few", low=0, high=15),
)


def test_what_is_declared_or_has_few_values_stays_as_it_is() -> None:
    assert fine(*DECLARED).columns == DECLARED
    assert not any(map(is_bought, DECLARED))


def test_of_many_declared_bins_levels_are_chosen_and_they_are_the_fine_cells() -> None:
    many = Integer(name="i", low=0, high=10**6, bins=13)
    assert is_bought(many)
    assert is_tree(many)
    assert fine(many).columns == (many,)


def test_levels_are_bought_of_undeclared_numbers_and_of_long_lists() -> None:
    names = tuple(f"code {n}" for n in range(65))
    assert is_bought(Categorical(name="c", categories=names))
    assert not is_bought(Categorical(name="c", categories=names[:64]))
    assert not is_tree(Categorical(name="c", categories=names)), (
        "codes have no neighbours"
    )
    assert is_tree(Ordinal(name="c", categories=names))
    assert is_tree(Integer(name="i", low=0, high=16))
    assert is_tree(Real(name="r", low=0, high=1))


def test_whole_numbers_and_days_have_a_cell_each_while_they_are_few_enough() -> None:
    schema = fine(
        Integer(name="i", low=-5, high=MOST - 6),
        Date(name="d", low=date(2000, 1, 1), high=date(2020, 1, 1)),
    )
    assert [column.levels for column in schema.columns] == [MOST, 7306]
    hours = Datetime(
        name="t",
        low=datetime(2020, 1, 1),
        high=datetime(2020, 12, 31, 23),
        resolution="hour",
    )
    seconds = replace(hours, resolution="second")
    assert [
        column.levels for column in fine(hours, replace(seconds, name="s")).columns
    ] == [8784, MOST]
    values = np.arange(-5, MOST - 5)
    assert np.array_equal(
        Codec(schema.select(["i"])).codes(pd.DataFrame({"i": values}))[:, 0],
        np.arange(MOST),
    )


@pytest.mark.parametrize(
    "column",
    [
        Integer(name="x", low=0, high=10**12),
        Integer(name="x", low=-(2**53), high=2**53),
        Real(name="x", low=0, high=1e9),
        Real(name="x", low=-1e300, high=1e300),
        Real(name="x", low=-1, high=1e-300),
    ],
)
def test_zero_is_a_cell_of_its_own_and_cells_are_a_small_share_of_the_value(
    column: Any,
) -> None:
    (cut,) = fine(column).columns
    codec = Codec(Schema(columns=(cut,)))
    zeros = pd.DataFrame({"x": np.zeros(50)})
    assert cut.levels <= 2 * FAN**4, "a tree of four layers"
    drawn = codec.decode(codec.codes(zeros), FastRng(0))
    assert (drawn["x"] == 0).all()
    edges = cut.edges.astype(np.float64)  # type: ignore[attr-defined]
    far = np.abs(edges[:-1]) > 1e-4 * np.abs(edges).max()
    assert (np.diff(edges)[far] <= np.maximum(0.02 * np.abs(edges[:-1][far]), 1)).all()


@pytest.mark.parametrize(
    "column",
    [
        Integer(name="x", low=-(10**6), high=10**8),
        Real(name="x", low=0, high=250_000),
        Real(name="x", low=-20_000, high=250_000, decimals=2),
    ],
)
def test_round_numbers_are_cells_of_their_own_and_drawn_as_they_are(
    column: Any,
) -> None:
    (cut,) = fine(column).columns
    codec = Codec(Schema(columns=(cut,)))
    values = [1.0, 12, 40, 75, 500, 12_000, 250_000 * 0.4]
    frame = pd.DataFrame({"x": np.repeat(values, 20)})
    codes = codec.codes(frame)
    assert np.array_equal(codec.decode(codes, FastRng(0))["x"], frame["x"])
    beside = pd.DataFrame({"x": [12_001.0, 11_999.0]})
    assert set(codec.codes(beside)[:, 0]).isdisjoint(codes[:, 0])


def test_people_of_whom_nothing_more_is_known_are_even_and_not_on_round_numbers():
    (cut,) = fine(Real(name="x", low=0, high=100)).columns
    edges = cut.edges.astype(np.float64)  # type: ignore[attr-defined]
    long = np.diff(edges)
    point = np.searchsorted(edges, 12.0)
    assert edges[point] == 12
    assert long[point] < 1e-9 * long[point - 1 : point + 2].max()
    assert set(
        np.diff(fine(Integer(name="x", low=0, high=5_000)).columns[0].edges)
    ) == {1}, "one value each"


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0.0, 5e-324),
        (0.0, 1e-320),
        (1.0, 1.0 + 1e-14),
        (1e300 - 1e290, 1e300),
        (-1e-310, 0),
    ],
)
def test_bounds_at_the_edge_of_what_numbers_can_say_have_cells_that_hold_them(
    low: float, high: float
) -> None:
    column = Real(name="x", low=low, high=high, bins=1)
    # sixteen even bins may not fit between such bounds
    object.__setattr__(column, "bins", None)
    (cut,) = fine(column).columns
    codes = Codec(Schema(columns=(cut,))).codes(pd.DataFrame({"x": [low, high]}))
    assert codes.tolist() == [[0], [cut.levels - 1]]


def test_many_columns_have_fewer_cells_each_so_that_all_together_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert fine_cells._NODES == 1 << 20
    monkeypatch.setattr(fine_cells, "_NODES", most := 1 << 14)
    columns = [Integer(name=f"c{n}", low=0, high=10**6) for n in range(30)]
    sizes = [column.levels for column in fine(*columns).columns]
    assert sum(sizes) <= most
    assert min(sizes) > 80
    few = [Real(name=f"r{n}", low=0, high=0.99, decimals=5) for n in range(30)]
    assert sum(column.levels for column in fine(*few).columns) <= most


@pytest.mark.parametrize(
    ("low", "high", "decimals"),
    [(0, 10, 2), (-0.005, 10.005, 2), (-3e6, 1e9, 2), (0.1, 99.9, 0), (-1, 1e12, 3)],
)
def test_numbers_with_so_many_decimals_have_cells_that_hold_one_each(
    low: float, high: float, decimals: int
) -> None:
    (cut,) = fine(Real(name="x", low=low, high=high, decimals=decimals)).columns
    codec = Codec(Schema(columns=(cut,)))
    codes = np.arange(cut.levels)[:, None]
    drawn = codec.decode(codes, FastRng(0))
    assert np.array_equal(codec.codes(drawn), codes)
    assert np.array_equal(drawn["x"].round(decimals), drawn["x"])


def test_a_bound_is_a_point_of_its_own_as_every_round_number_is() -> None:
    for low in (1.0, 0.25, -4.0):
        (column,) = fine(Real(name="x", low=low, high=16.0)).columns
        assert column.edges[0] == low
        assert column.edges[1] == np.nextafter(low, np.inf)


@pytest.mark.parametrize(
    ("low", "high", "decimals"),
    [(-6.4, 1.5, 1), (0, 100, 2), (0, 12_345.67, 2), (-1, 12_345, 0)],
)
def test_the_last_number_shares_its_cell_with_no_other(
    low: float, high: float, decimals: int
) -> None:
    codec = Codec(fine(Real(name="x", low=low, high=high, decimals=decimals)))
    before = round(high - 10.0**-decimals, decimals)
    codes = codec.codes(pd.DataFrame({"x": np.repeat([before, high], 20)}))
    assert codes[0, 0] == codes[-1, 0] - 1
    assert (codec.decode(codes, FastRng(0))["x"][20:] == high).all()
