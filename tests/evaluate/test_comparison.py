"""Shares, ends and attacks of two tables: exact on tiny tables, narrowed to what can be
compared.
"""

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from understudy.data.samples import toy
from understudy.data.schema import Categorical, Schema
from understudy.evaluate.comparison import column_shares, compare, sample_one_row_each
from understudy.evaluate.holdings import Outsiders

pytestmark = pytest.mark.usefixtures("few_draws")

SCHEMA = Schema(
    columns=(Categorical(name="c", categories=("x", "y", "z"), nullable=True),)
)


def column(**counts: int) -> pd.DataFrame:
    cells = [
        None if level == "missing" else level
        for level, n in counts.items()
        for _ in range(n)
    ]
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


@pytest.mark.long
def test_each_column_bears_its_figure_and_their_mean_is_the_figure_of_single_columns():
    real, schema = toy(rows=500, seed=1)
    made, _ = toy(rows=500, seed=2)
    found = compare(real, made, schema)
    columns = [shares.figure for shares in found.shares if shares.figure is not None]
    assert [figure.name for figure in columns] == list(schema.names)
    single = next(figure for figure in found.figures if figure.name == "avd1")
    for end in ("value", "floor", "ceiling"):
        assert getattr(single, end) == pytest.approx(
            np.mean([getattr(figure, end) for figure in columns])
        )


def test_attacks_look_only_at_columns_that_can_be_compared() -> None:
    real, schema = toy(rows=60, seed=1, person=None)
    made = real.drop(columns="income").assign(age=-5)
    group = Outsiders(
        inside=real,
        outside=real[:20].copy(),
        schema=schema.select(["age", "grade"]),
        label="clinic",
    )
    alone = Outsiders(
        inside=real,
        outside=real[:20].copy(),
        schema=schema.select(["income"]),
        label="insurer",
    )
    found = compare(real, made, schema, outsiders=[group, alone])
    assert set(found.evaluation.left_out) == {"income", "age"}
    assert found.attacks
    assert all(attack.name.endswith("(clinic)") for attack in found.attacks)
    assert list(found.closeness) == ["clinic"]


@pytest.mark.long
def test_people_are_linked_between_parties_and_the_target_is_inferred() -> None:
    real, schema = toy(rows=60, seed=1, person=None)
    unseen, _ = toy(rows=60, seed=2, person=None)
    owners = {
        name: "clinic" if i < 4 else "insurer" for i, name in enumerate(schema.names)
    }
    found = compare(
        real,
        real,
        schema,
        holdout=unseen,
        owners=owners,
        target="smoker",
        models=("linear",),
    )
    names = [attack.name for attack in found.attacks]
    assert "linkability" in names
    assert "inference_smoker" in names
    without = compare(real, real, schema, holdout=unseen)
    assert not any(
        attack.name.startswith(("linkability", "inference"))
        for attack in without.attacks
    )


def test_without_unseen_rows_the_reason_says_what_is_needed() -> None:
    real, schema = toy(rows=30, seed=1)
    (attack,) = compare(real, real, schema).attacks
    assert "secret coin" in attack.reason
    assert "--holdout FILE" in attack.reason


def test_attacks_look_at_one_row_of_each_person_and_at_no_training_person_among_the_others():
    rows = pd.DataFrame({"x": range(6)})
    others = pd.DataFrame({"x": range(10, 14)})
    ids = np.array(["a", "b", "a", "c", "a", "b"])
    other_ids = np.array(["d", "c", "d", "e"])
    drawn = [
        sample_one_row_each(rows, others, (ids, other_ids), seed) for seed in range(40)
    ]
    for inside, outside in drawn:
        assert sorted(ids[inside["x"]]) == ["a", "b", "c"]
        assert sorted(other_ids[outside["x"] - 10]) == ["d", "e"]
    assert {x for inside, _ in drawn for x in inside["x"]} == set(range(6))
    inside, outside = sample_one_row_each(rows, others, (None, other_ids))
    assert len(inside) == 6
    assert len(outside) == 3
    # ids of another kind are nobody's here
    mixed, _ = sample_one_row_each(rows, others, (ids, np.arange(4)))
    assert len(mixed) == 3


@pytest.mark.long
def test_people_with_many_rows_raise_no_alarm_where_nothing_leaked() -> None:
    schema = Schema(
        columns=tuple(
            Categorical(name=f"c{j}", categories=tuple(range(9))) for j in range(4)
        )
    )

    def people(count: int, seed: int) -> tuple[pd.DataFrame, NDArray[np.int64]]:
        codes = np.random.default_rng(seed).integers(0, 9, (count, 4))
        return pd.DataFrame(codes.repeat(12, axis=0), columns=schema.names), np.arange(
            count
        ).repeat(12) + 1000 * seed

    (real, mine), (unseen, theirs), (made, _) = (
        people(60, 1),
        people(60, 2),
        people(60, 3),
    )
    by_person = compare(
        real, made, schema, holdout=unseen, people=(mine, theirs), models=()
    )
    assert {
        attack.control
        for attack in by_person.attacks
        if attack.name.startswith("inference")
    } <= {60}
    assert (
        next(a for a in by_person.attacks if a.name == "closer_to_train").control == 60
    )
    assert not any(attack.leaks for attack in by_person.attacks)
