"""Shares, ends and attacks of two tables: exact on tiny tables, narrowed to what can be compared."""

import numpy as np
import pandas as pd
import pytest

from understudy.data.samples import toy
from understudy.data.schema import Categorical, Schema
from understudy.evaluate.comparison import Outsiders, column_shares, compare

SCHEMA = Schema(columns=(Categorical(name="c", categories=("x", "y", "z"), nullable=True),))


def column(**counts: int) -> pd.DataFrame:
    cells = [None if level == "missing" else level for level, n in counts.items() for _ in range(n)]
    return pd.DataFrame({"c": pd.Series(cells, dtype=object)})


def test_shares_are_exact() -> None:
    (shares,) = column_shares(SCHEMA, column(x=1, y=3), column(x=2, z=1, missing=1))
    assert shares.labels == ("x", "y", "z", "missing")
    assert shares.synthetic.tolist() == [0.25, 0.75, 0, 0]
    assert shares.real is not None
    assert shares.real.tolist() == [0.5, 0, 0.25, 0.25]


def test_without_real_rows_there_are_synthetic_shares_alone() -> None:
    (shares,) = column_shares(SCHEMA, column(x=1, y=3))
    assert shares.real is None
    assert shares.figure is None


def test_each_column_bears_its_figure_and_their_mean_is_the_figure_of_single_columns() -> None:
    real, schema = toy(rows=500, seed=1)
    made, _ = toy(rows=500, seed=2)
    found = compare(real, made, schema)
    columns = [shares.figure for shares in found.shares if shares.figure is not None]
    assert [figure.name for figure in columns] == list(schema.names)
    single = next(figure for figure in found.figures if figure.name == "avd1")
    for end in ("value", "floor", "ceiling"):
        assert getattr(single, end) == pytest.approx(np.mean([getattr(figure, end) for figure in columns]))


def test_attacks_look_only_at_columns_that_can_be_compared() -> None:
    real, schema = toy(rows=60, seed=1, person=None)
    made = real.drop(columns="income").assign(age=-5)
    group = Outsiders(
        inside=real, outside=real[:20].copy(), schema=schema.select(["age", "grade"]), label="clinic"
    )
    alone = Outsiders(
        inside=real, outside=real[:20].copy(), schema=schema.select(["income"]), label="insurer"
    )
    found = compare(real, made, schema, outsiders=[group, alone])
    assert set(found.evaluation.left_out) == {"income", "age"}
    assert found.attacks
    assert all(attack.name.endswith("(clinic)") for attack in found.attacks)
    assert list(found.closeness) == ["clinic"]


def test_people_are_linked_between_parties_and_the_target_is_inferred() -> None:
    real, schema = toy(rows=60, seed=1, person=None)
    unseen, _ = toy(rows=60, seed=2, person=None)
    owners = {name: "clinic" if i < 4 else "insurer" for i, name in enumerate(schema.names)}
    found = compare(real, real, schema, holdout=unseen, owners=owners, target="smoker", models=("linear",))
    names = [attack.name for attack in found.attacks]
    assert "linkability" in names
    assert "inference_smoker" in names
    without = compare(real, real, schema, holdout=unseen)
    assert not any(attack.name.startswith(("linkability", "inference")) for attack in without.attacks)


def test_without_unseen_rows_the_reason_says_what_is_needed() -> None:
    real, schema = toy(rows=30, seed=1)
    (attack,) = compare(real, real, schema).attacks
    assert "took no part" in attack.reason
