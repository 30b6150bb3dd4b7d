"""Columns without bounds: public cells of all numbers, and the bounds that a run of
them gives.
"""

import math
from datetime import date, datetime
from itertools import combinations_with_replacement

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.column import (
    Binned,
    Boolean,
    Date,
    Datetime,
    Integer,
    Real,
    is_unbounded,
)
from understudy.data.encoding.fine import (
    FAN,
    LAYERS,
    bounded,
    clipped,
    fine_schema,
    is_tree,
    reach,
    within,
)
from understudy.data.encoding.support import likely_run
from understudy.data.encoding.values import codes_of
from understudy.data.schema import Schema
from understudy.data.table import read_table
from understudy.ground.errors import SchemaError
from understudy.models.simplex import to_simplex
from understudy.models.tables.ordered_counts import layer_sizes
from understudy.models.tables.trees import Trees, runs_of

KINDS: list[Binned] = [
    Integer(name="x"),
    Real(name="x"),
    *(Real(name="x", decimals=decimals) for decimals in (0, 1, 2, 6, 12)),
    Date(name="x"),
    *(Datetime(name="x", resolution=one) for one in ("second", "minute", "hour")),
]


def runs(column: Binned) -> st.SearchStrategy[tuple[int, int]]:
    places = st.integers(0, reach(column).levels - 1)
    return st.tuples(places, places).map(lambda two: (min(two), max(two)))


@pytest.mark.long
@pytest.mark.parametrize("column", KINDS, ids=str)
@given(data=st.data())
@settings(max_examples=12, deadline=None)  # of each of eleven kinds
def test_bounds_of_any_run_make_a_sound_column_whose_tree_is_paid_for(
    column: Binned, data: st.DataObject
) -> None:
    found = bounded(column, data.draw(runs(column)))
    assert not found.unbounded
    assert is_tree(found)
    (fine,) = fine_schema(Schema(columns=(found,))).columns
    assert 1 <= len(layer_sizes(fine.levels, FAN)) <= LAYERS
    assert (fine.edges[0], fine.edges[-1]) == (found.edges[0], found.edges[-1])  # type: ignore[attr-defined]


@pytest.mark.long
@pytest.mark.parametrize("column", [KINDS[0], KINDS[1], KINDS[4]], ids=str)
@given(st.floats(allow_nan=False, allow_infinity=False), st.data())
@settings(max_examples=60, deadline=None)
def test_every_number_is_in_one_cell_and_within_its_bounds_or_on_them(
    column: Binned, value: float, data: st.DataObject
) -> None:
    value = float(
        np.clip(
            np.floor(value) if isinstance(column, Integer) else value,
            -(2.0**53),
            2.0**53,
        )
    )
    top = reach(column)
    run = data.draw(runs(column))
    cells = codes_of(top, clipped(top, pd.Series([value])))
    found = bounded(column, run)
    inside = clipped(found, pd.Series([value])).iloc[0]
    assert 0 <= cells[0] < top.levels
    assert found.low <= inside <= found.high
    if run[0] <= cells[0] <= run[1] and not (
        isinstance(column, Real) and column.decimals
    ):
        assert inside == value


def test_zero_and_powers_of_four_are_where_cells_begin() -> None:
    for column in (Integer(name="x"), Real(name="x"), Real(name="x", decimals=2)):
        unit = 100 if isinstance(column, Real) and column.decimals else 1
        assert {0, 1, 4, 64, -4, -64} <= {
            edge * unit for edge in reach(column).edges.tolist()
        }
    cells = codes_of(
        reach(Real(name="x")), pd.Series([0.0, -0.0, 5e-324, 1e-20, 1e-300])
    )
    assert cells[0] == cells[1] != cells[2] == cells[3] == cells[4]


def test_a_column_without_bounds_says_so_and_has_no_levels() -> None:
    schema = Schema(
        columns=(
            Integer(name="n"),
            Real(name="x", decimals=1),
            Date(name="d"),
            Datetime(name="t"),
        )
    )
    assert Schema.from_dict(schema.to_dict()) == schema
    assert all(map(is_unbounded, schema.columns))
    assert "any integer" in str(schema)
    for column in schema.columns:
        with pytest.raises(
            SchemaError,
            match=r"has no bounds. Declare low and high, or use visits, or gram",
        ):
            _ = column.levels
    for wrong in ({"low": 0}, {"high": 3}, {"bins": 4}, {"low": 0, "bins": 3}):
        with pytest.raises(SchemaError, match="low and high come together"):
            Integer(name="n", **wrong)
    assert Integer(name="t", written="HH:MM").high == 24 * 60 - 1
    assert within(schema).columns[0].low == -(2**53)


def test_a_table_of_columns_without_bounds_is_read_and_what_is_no_number_refused():
    schema = Schema(
        columns=(Real(name="x", nullable=True), Date(name="d"), Boolean(name="b"))
    )
    rows = pd.DataFrame(
        {
            "x": [1e200, -5.0, None],
            "d": ["1700-01-01", "2200-12-31", "2020-02-02"],
            "b": [0, 1, 1],
        }
    )
    assert len(read_table(rows, schema, "t").frame) == 3
    for wrong in ({"x": math.inf}, {"d": "1500-01-01"}, {"x": "many"}):
        with pytest.raises(SchemaError):
            read_table(rows.astype(object).assign(**wrong), schema, "t")


def likelihood(
    counts: list[float], run: tuple[int, int], noise: float, total: float
) -> float:
    inside = torch.tensor(counts[run[0] : run[1] + 1], dtype=torch.float64)
    fitted = to_simplex(inside[None], torch.tensor([total], dtype=torch.float64))[0]
    outside = [*counts[: run[0]], *counts[run[1] + 1 :]]
    off = float((fitted - inside).square().sum()) + math.fsum(c * c for c in outside)
    # hardly anybody: once more
    return off / (2 * noise**2) + len(inside) + int((fitted < noise).sum())


@given(
    st.lists(st.integers(-60, 300), min_size=1, max_size=9),
    st.integers(1, 40),
    st.integers(1, 900),
)
@settings(max_examples=60, deadline=None)
def test_the_run_is_the_likeliest_of_all_that_end_where_something_was_counted(
    counts: list[int], noise: int, total: int
) -> None:
    found = likely_run(torch.tensor(counts), None, float(noise), float(total))
    ends = [place for place, count in enumerate(counts) if count > 0]
    if not ends:
        assert found == (0, len(counts) - 1)
        return
    each = [
        likelihood([*map(float, counts)], run, noise, total)
        for run in combinations_with_replacement(ends, 2)
    ]
    assert likelihood([*map(float, counts)], found, noise, total) == pytest.approx(
        min(each)
    )


def test_without_noise_the_run_is_where_people_are() -> None:
    assert likely_run(torch.tensor([0, 0, 3, 0, 1, 0]), None, 0.0, 4.0) == (2, 4)
    assert bounded(Date(name="d"), (31, 32)).low == date(1980, 1, 1)
    assert bounded(Datetime(name="d"), (31, 32)).high == datetime(
        1999, 12, 31, 23, 59, 59
    )


def test_noise_far_out_is_no_number_where_nearly_nobody_has_one_or_people_hardly_show():
    """Three deviations of noise at 4^12, beside nobody at all, and beside people who
    show less in each of two cells.
    """
    column = reach(Real(name="x", nullable=True))
    least = column.edges[:-1]
    sigma = 100.0
    tops = Trees(
        Schema(columns=(column,)), Schema(columns=(column,)), frozenset("x"), paid=1
    )

    def run(missing: float, **people: float) -> list[float]:
        nodes = torch.zeros(column.levels + 1, dtype=torch.float64)
        nodes[int(np.searchsorted(least, 4.0**12))] = 3 * sigma
        nodes[[int(np.searchsorted(least, float(at[1:]))) for at in people]] = (
            torch.tensor([*people.values()]).double()
        )
        nodes[-1] = missing
        first, last = runs_of([tops], [nodes], [sigma], 700)[0].tolist()
        return [float(least[first]), float(column.edges[last + 1])]

    assert run(700.0) == [0.0, math.ulp(0.0)]
    assert run(0.0, _1=290.0, _4=280.0) == [1.0, 64.0]  # the next cell may have some
    assert run(0.0, _4=700.0) == [4.0, 16.0]
