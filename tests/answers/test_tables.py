"""Tables by the fit are sums over the listed joint distribution."""

import numpy as np
import pandas as pd
import pytest
from small_models import SCHEMA, SIZES, asked, behind, joint

from understudy.answers import products
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Integer, Schema
from understudy.generators.generator import Generator
from understudy.ground.errors import ConfigError, SchemaError
from understudy.models.tables.mixture import MixtureOfProducts


def test_a_table_of_any_columns_in_any_order_is_the_joint_tables_sum() -> None:
    frame = asked().table("smoker", "age", rows=200)
    assert list(frame.columns) == ["smoker", "age", "share", "count"]
    assert frame["smoker"].tolist() == [False] * 4 + [True] * 4 + [None] * 4
    assert frame["age"].tolist() == ["0–29", "30–59", "60–89", None] * 3
    np.testing.assert_allclose(
        frame["share"].to_numpy().reshape(3, 4), joint().sum((1, 3)).T, atol=1e-7
    )
    np.testing.assert_allclose(frame["count"], 200 * frame["share"])
    assert frame.attrs == {"answer": "exact"}
    every = asked().table(*SCHEMA.names)["share"].to_numpy()
    np.testing.assert_allclose(every.reshape(SIZES), joint(), atol=1e-7)


def test_a_condition_cuts_a_tables_own_columns_too() -> None:
    frame = asked().table("age", "sex", where="age >= 45 or sex == 'F'")
    whole = joint().sum((2, 3))
    # of sex M: none below 30, half of 30–59, nobody missing
    half = whole * [[0, 1], [0, 0.5], [0, 0], [0, 1]]
    left = whole - half
    assert frame.attrs["probability"] == pytest.approx(left.sum())
    np.testing.assert_allclose(
        frame["share"].to_numpy().reshape(4, 2), left / left.sum(), atol=1e-7
    )


def test_a_table_of_another_network_is_a_mean_over_draws_and_says_so() -> None:
    frame = behind().table("age", where="sex == 'F'", seed=0)
    truth = joint()[:, 0].sum((1, 2))
    assert frame.attrs["answer"] == "by 8,192 draws"
    np.testing.assert_allclose(frame["share"], truth / truth.sum(), atol=0.03)


def test_a_table_in_parts_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = asked().table("sex", "age", "income")
    monkeypatch.setattr(products, "_AT_ONCE", 16)
    pd.testing.assert_frame_equal(asked().table("sex", "age", "income"), whole)


def test_what_makes_no_table_is_refused() -> None:
    with pytest.raises(SchemaError, match='Did you mean "age"'):
        asked().table("agee")
    for names in ((), ("age", "age")):
        with pytest.raises(ConfigError, match="different columns"):
            asked().table(*names)
    with pytest.raises(ConfigError, match="probability 0"):
        asked().table("age", where="age > 1000")
    with pytest.raises(ConfigError, match="rows must"):
        asked().table("age", rows=-1)
    clash = Schema(columns=(Integer(name="share", low=1, high=2),))
    with pytest.raises(ConfigError, match='"share" of its own'):
        Generator(MixtureOfProducts((2,), 1), clash, {}).table("share")
    wide = Schema(
        columns=tuple(Integer(name=name, low=1, high=2000, bins=2000) for name in "abc")
    )
    with pytest.raises(ConfigError, match="8,000,000,000 cells"):
        Generator(MixtureOfProducts(Codec(wide).sizes, 1), wide, {}).table(
            "a", "b", "c"
        )
