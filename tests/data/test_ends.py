"""Ends of numbers: prices end as prices do, each within its own level."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from understudy.data.encoding.codec import Levels
from understudy.data.encoding.fine import end_cells, ends_of, fine_schema, moved
from understudy.data.schema import Real, Schema
from understudy.ground.errors import SchemaError
from understudy.privacy.noise import FastRng

PRICE = Real(
    name="price", low=-5_000.0, high=50_000.0, decimals=2, ends=True, nullable=True
)
SCHEMA = Schema(columns=(PRICE,))


def levels(**ends: float) -> Levels:
    """Five levels: below −1, up to zero, zero, up to 100, and above; and the missing
    one.
    """
    edges = np.asarray(fine_schema(SCHEMA).columns[0].edges)  # type: ignore[attr-defined]
    group = np.searchsorted([-1.0, 0.0, 0.01, 100.0], edges[:-1], side="right")
    weight = np.where((edges[:-1] > 5) & (edges[1:] < 400), np.diff(edges), 0.0)
    table = np.zeros(100)
    table[[int(end[1:]) for end in ends]] = list(ends.values())
    return Levels(SCHEMA, [np.int32([*group, 5])], [np.append(weight, 1.0)], {0: table})


def test_numbers_are_drawn_with_the_ends_of_the_table_and_within_their_level() -> None:
    found = levels(_99=60.0, _95=30.0, _00=10.0)
    codes = np.repeat(np.int32([[0], [1], [2], [3], [4], [5]]), 2_000, axis=0)
    drawn = found.decode(codes, FastRng(0))
    assert np.array_equal(found.codes(drawn), codes)
    price = drawn["price"].to_numpy(float, na_value=np.nan)
    for level in (3, 4):
        cents = np.rint(np.abs(price[codes[:, 0] == level]) * 100) % 100
        shares = [(cents == end).mean() for end in (99, 95, 0)]
        assert sum(shares) > 0.99
        assert shares == pytest.approx([0.6, 0.3, 0.1], abs=0.04)
    assert (price[codes[:, 0] == 2] == 0).all(), "zero stays"
    assert np.isnan(price[codes[:, 0] == 5]).all(), "missing stays missing"


def test_a_number_is_moved_by_less_than_a_unit_on_its_side_of_zero_and_stays_where_nothing_is_in_reach():
    table = np.zeros(100)
    table[[0, 99]] = 1
    steps = np.array([1234, -1234, 5, -5, 1999, 40, 7])
    first = np.array([0, -99_999, 0, -99_999, 1990, 30, 7])
    last = np.array([99_999, 0, 99_999, -1, 1999, 60, 7])
    for draw in (0.0, 0.3, 0.7, 1 - 2.0**-53):
        found = moved(steps, first, last, table, np.full(7, draw))
        assert (np.abs(found - steps) < 100).all()
        assert ((first <= found) & (found <= last)).all()
        assert (np.sign(found) * np.sign(steps) >= 0).all()
        assert (np.abs(found[:5]) % 100 % 99 == 0).all()
        assert found[5:].tolist() == [40, 7]
        assert found[3] < 0


def test_the_end_of_a_number_is_its_own_and_a_missing_one_has_none() -> None:
    values = pd.Series([4.99, -4.99, 20.0, 0.0, None, 0.29, 1.15], dtype="Float64")
    assert ends_of(PRICE, values).tolist() == [99, 99, 0, 0, 100, 29, 15]
    assert end_cells(Real(name="x", low=0.0, high=1.0, decimals=2)) == 0


@pytest.mark.parametrize(
    "wrong", [{"decimals": None}, {"decimals": 3}, {"bins": 10}, {"ends": "yes"}]
)
def test_ends_that_cannot_be_bought_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="ends"):
        Real(
            **{
                "name": "x",
                "low": 0.0,
                "high": 9.0,
                "decimals": 2,
                "ends": True,
                **wrong,
            }
        )


def test_ends_go_through_a_schemas_text_and_through_tensors_and_strangers_are_checked():
    assert Schema.from_dict(SCHEMA.to_dict()) == SCHEMA
    found = levels(_99=2.0)
    again = Levels.from_tensors(SCHEMA, levels(_99=2.0).tensors())
    assert np.array_equal(found.ends[0], again.ends[0])
    for table in (
        np.full(100, -1.0),
        np.full(100, np.nan),
        np.full(100, np.inf),
        np.ones(10),
    ):
        with pytest.raises(SchemaError, match="price"):
            Levels(SCHEMA, found.groups, found.weights, {0: table})
    with pytest.raises(SchemaError, match="not those of the schema"):
        Levels.from_tensors(
            SCHEMA, {k: v for k, v in found.tensors().items() if k != "end.0"}
        )
