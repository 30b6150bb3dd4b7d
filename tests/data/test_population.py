"""People and their rows: the public rule from a row to features, and each person's rows
together.
"""

from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.arrays import ArrayTable
from understudy.data.encoding.features import TableFeatures, features_of
from understudy.data.encoding.population import Population, population_of
from understudy.data.images import ImageSchema
from understudy.data.samples import toy
from understudy.data.schema import Boolean, Categorical, Date, Integer, Real, Schema
from understudy.data.table import check_table, read_table
from understudy.ground.errors import ConfigError, SchemaError
from understudy.privacy.noise.rng import FastRng

SCHEMA = Schema(
    person="id",
    columns=(
        Categorical(name="plan", categories=("free", "paid"), nullable=True),
        Boolean(name="churned"),
        Integer(name="age", low=20, high=70),
        Real(name="rate", low=-1, high=1, nullable=True),
        Date(name="day", low=date(2020, 1, 1), high=date(2020, 1, 11)),
    ),
)
FRAME = pd.DataFrame(
    {
        "id": ["b", "a", "b"],
        "plan": ["paid", None, "free"],
        "churned": [True, False, False],
        "age": [20, 70, 45],
        "rate": [0.5, np.nan, -1.0],
        "day": pd.to_datetime(["2020-01-01", "2020-01-11", "2020-01-06"]),
    }
)


def people_of(
    frame: pd.DataFrame = FRAME, schema: Schema = SCHEMA, target: str = "churned"
) -> Population:
    return Population.from_table(read_table(frame, schema, one_row_each=False), target)


def test_features_follow_the_public_rule() -> None:
    population = people_of()
    x = population.features.expand(population.rows)
    # plan=free, plan=paid, plan missing, age, rate, rate missing, day
    assert x.tolist() == [
        [0, 1, 0, 0.0, 0.75, 0, 0.0],
        [1, 0, 0, 0.5, 0.0, 0, 0.5],
        [0, 0, 1, 1.0, 0.0, 1, 1.0],
    ]  # b's two rows, then a's
    assert population.codes.tolist() == [1, 0, 0]
    assert population.features.labels == (False, True)


def test_rows_are_kept_compact_and_every_feature_lies_between_0_and_1() -> None:
    frame, schema = toy(rows=100, seed=2)
    population = people_of(frame, schema, "grade")
    assert population.rows.shape == (100, len(schema.columns) - 1)
    x = population.features.expand(population.rows)
    assert x.shape == (100, *population.features.shape)
    assert float(x.min()) >= 0
    assert float(x.max()) <= 1
    assert population.features.labels == (1, 2, 3, 4)


def test_a_rows_features_do_not_depend_on_other_rows() -> None:
    frame, schema = toy(rows=12, seed=4)
    rule = TableFeatures(schema, "smoker")
    together = rule.expand(rule.rows(frame))
    alone = torch.cat([rule.expand(rule.rows(frame.iloc[[row]])) for row in range(12)])
    assert torch.equal(together, alone)


@settings(deadline=None, max_examples=40)
@given(owners=st.lists(st.integers(0, 6), min_size=1, max_size=20), data=st.data())
def test_people_get_their_own_rows_in_their_own_order(
    owners: list[int], data: st.DataObject
) -> None:
    x = np.arange(len(owners) * 2, dtype=np.float32).reshape(-1, 2)
    y = np.arange(len(owners)) % 3
    population = Population.from_arrays(x, y, classes=3, people=np.array(owners))
    assert population.ids.tolist() == list(dict.fromkeys(owners))
    asked = data.draw(st.permutations(range(population.people)))
    rows, codes, mask = population.gather(torch.tensor(asked))
    for place, who in enumerate(asked):
        own = [row for row, owner in enumerate(owners) if owner == population.ids[who]]
        assert rows[place][mask[place]].tolist() == x[own].tolist()
        assert codes[place][mask[place]].tolist() == y[own].tolist()
    assert mask.shape[1] == max(owners.count(owner) for owner in owners)


def test_rows_can_be_dealt_out_in_order() -> None:
    x = np.zeros((7, 1))
    y = np.arange(7) % 2
    assert Population.from_arrays(x, y, classes=2).people == 7
    by_three = Population.from_arrays(x, y, classes=2, rows_per_person=3)
    assert by_three.starts.tolist() == [0, 3, 6, 7]
    listed = Population.from_arrays(x, y, classes=2, rows_per_person=[0, 5, 2, 0])
    assert listed.starts.tolist() == [0, 0, 5, 7, 7]
    _, _, mask = listed.gather(torch.tensor([3, 2, 0]))
    assert mask.sum(1).tolist() == [0, 2, 0]
    x, _, mask = listed.gather(torch.tensor([0, 3]))
    assert x.shape == (2, 1, 1)
    assert not mask.any()
    assert listed.gather(torch.tensor([], dtype=torch.int64))[0].shape == (0, 1, 1)


def test_images_keep_their_dtype_until_they_are_asked_for() -> None:
    images = np.full((4, 28, 28), 51, dtype=np.uint8)
    population = Population.from_arrays(
        images, ["cat", "dog", "cat", "dog"], classes=("cat", "dog")
    )
    assert population.rows.dtype == torch.uint8
    x, y, _ = population.gather(torch.tensor([1, 0]))
    assert x.shape == (2, 1, 28, 28)
    assert x.unique().tolist() == pytest.approx([0.2])  # type: ignore[no-untyped-call]
    assert y.tolist() == [[1], [0]]


def test_several_rows_of_a_person_are_read_only_where_they_are_allowed(
    tmp_path: Path,
) -> None:
    file = tmp_path / "people.csv"
    FRAME.to_csv(file, index=False)
    with pytest.raises(SchemaError, match="id of an earlier row"):
        read_table(file, SCHEMA)
    assert check_table(file, SCHEMA, one_row_each=False) == []
    assert read_table(file, SCHEMA, one_row_each=False).people.tolist() == [
        "b",
        "a",
        "b",
    ]
    pd.testing.assert_frame_equal(
        read_table(file, SCHEMA, one_row_each=False).frame,
        read_table(FRAME, SCHEMA, one_row_each=False).frame,
    )


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, None, 1], "row 2 has no id"),
        ([1.5, 2, 2], "value 1.5 at row 1 is neither a whole number"),
        ([1, "x", 1], '"x" at row 2 is text'),
        ([[1], [1], [2]], r"value \[1\] at row 1 is neither a whole number"),
    ],
)
def test_wrong_ids_are_named_where_they_first_stand(
    ids: list[object], message: str
) -> None:
    with pytest.raises(SchemaError, match=message):
        read_table(
            FRAME.assign(id=pd.Series(ids, dtype=object)), SCHEMA, one_row_each=False
        )


def test_without_a_person_column_each_row_is_a_person() -> None:
    assert people_of(FRAME, replace(SCHEMA, person=None)).people == 3


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("churn", "column of the schema, not 'churn'. Did you mean \"churned\"?"),
        ("age", 'target "age" is integer: a class is categorical'),
        ("plan", "must not be nullable"),
        ("id", "column of the schema"),
    ],
)
def test_a_target_that_is_no_class_is_refused(target: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        TableFeatures(SCHEMA, target)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"y": [0, 1, 2]}, "label 2 at row 3 is not one of the 2 declared classes"),
        ({"y": [0, 1]}, "3 rows have 2 labels"),
        ({"y": [[0], [1], [0]]}, "one label for each row"),
        (
            {"x": np.array([[0.0], [np.nan], [0.0]])},
            "row 2 holds a value that is not finite",
        ),
        ({"x": np.zeros((0, 1)), "y": []}, "nobody in this population has a row"),
        ({"classes": 1}, "two labels or more"),
        ({"classes": ("a", "a")}, "two labels or more"),
        ({"rows_per_person": [1, 1]}, "sum up to 3 rows"),
        ({"rows_per_person": 0}, "at least 1"),
        ({"people": [1, 2]}, "each of 3 rows"),
        ({"people": [1, 2, 3], "rows_per_person": 1}, "needs no rows_per_person"),
        ({"people": ["a", None, "b"]}, "row 2 belongs to no person"),
    ],
)
def test_arrays_that_make_no_population_are_refused(
    more: dict[str, object], message: str
) -> None:
    with pytest.raises((SchemaError, ConfigError), match=message):
        Population.from_arrays(
            **({"x": np.zeros((3, 1)), "y": [0, 1, 1], "classes": 2} | more)
        )  # type: ignore[arg-type]


def test_a_rule_is_rebuilt_from_its_description() -> None:
    table = TableFeatures(SCHEMA, "churned")
    assert features_of(SCHEMA, table.describe()["target"]) == table


def test_a_population_shows_no_rows() -> None:
    assert repr(people_of()) == "Population()"


def test_rows_without_a_class_become_a_number_or_a_slot_for_each_level() -> None:
    population = population_of(read_table(FRAME, SCHEMA, one_row_each=False))
    x = population.features.expand(population.rows)
    levels = [column.size for column in SCHEMA.columns]
    assert population.features.shape == (3 + 1 + sum(levels[2:]),) == x.shape[1:]
    # plan one-hot, churned as it is
    assert x[:, :4].tolist() == [[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 1, 0]]
    assert x[:, 4:].sum(1).tolist() == [3, 3, 3]
    assert population.features.labels == (0,)
    assert population.codes.tolist() == [0, 0, 0]


def test_arrays_without_a_class_keep_people_without_rows() -> None:
    schema = ImageSchema(height=2, width=2)
    values = np.arange(12).reshape(3, 2, 2)
    rows = ArrayTable(
        schema.scaled(values),
        np.array(["a", "b", "c"]),
        np.array([0, 2, 2, 3]),
        schema,
        "images",
    )
    population = population_of(rows)
    x, _, mask = population.gather(torch.tensor([2, 1, 0]))
    assert mask.tolist() == [[True, False], [False, False], [True, True]]
    np.testing.assert_allclose(x[mask] * 255, values[[2, 0, 1]], rtol=1e-6)


def test_of_many_rows_some_are_drawn_and_of_few_all_are_taken() -> None:
    schema = ImageSchema(height=1, width=1)
    people = np.repeat([0, 1], [50, 3])
    population = population_of(
        ArrayTable.from_array(np.arange(53).reshape(-1, 1, 1), schema, people)
    )
    drawn = set()
    for seed in range(40):
        x, _, mask = population.gather(
            torch.tensor([0, 1]), max_rows=5, rng=FastRng(seed)
        )
        values = (x.flatten(1) * 255).round().int()
        assert mask.sum(1).tolist() == [5, 3]
        assert values[1][mask[1]].tolist() == [50, 51, 52]
        drawn.update(values[0].tolist())
    assert min(drawn) >= 0
    assert max(drawn) < 50
    assert len(drawn) > 40
