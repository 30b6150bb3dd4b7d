"""Real rows side by side: joined by the person as the run had them, and a reason where
they cannot be.
"""

import pandas as pd
import pytest

from understudy.data.schema import Boolean, Integer, Schema
from understudy.evaluate.holdings import Holdings, open_holdings, read_rows

CLINIC = Schema(columns=(Integer(name="age", low=0, high=99),), person="id")
INSURER = Schema(columns=(Boolean(name="ill"),), person="number")
SCHEMAS = {"clinic": CLINIC, "insurer": INSURER}
TABLES = {
    "clinic": pd.DataFrame({"id": [3, 1, 2, 9], "age": [30, 10, 20, 90]}),
    "insurer": pd.DataFrame({"number": [1, 3, 4, 2], "ill": [True, False, True, True]}),
}


def opened(
    tables: dict[str, pd.DataFrame], schemas: dict[str, Schema] = SCHEMAS
) -> Holdings:
    found = open_holdings(tables, schemas, same_people=True)
    assert isinstance(found, Holdings), found
    return found


def test_people_are_joined_by_their_ids_whatever_the_column_is_called() -> None:
    found = opened(TABLES)
    rows = dict(zip(found.real["age"], found.real["ill"], strict=True))
    assert rows == {30: False, 10: True, 20: True}
    assert found.owners == {"age": "clinic", "ill": "insurer"}
    assert found.schema.names == ("age", "ill")


def test_people_whom_one_party_holds_alone_stand_for_those_who_took_no_part() -> None:
    outside = {group.label: group.outside for group in opened(TABLES).outsiders}
    assert outside["clinic"]["age"].tolist() == [90]
    assert outside["insurer"]["ill"].tolist() == [True]
    inside = {group.label: len(group.inside) for group in opened(TABLES).outsiders}
    assert inside == {"clinic": 3, "insurer": 3}


def test_a_table_that_cannot_be_read_is_left_out_with_the_reason() -> None:
    found = opened(
        TABLES | {"insurer": pd.DataFrame({"number": [1], "ill": ["perhaps"]})}
    )
    assert found.real.columns.tolist() == ["age"]
    assert any("insurer is left out" in note for note in found.notes)
    assert any("All 4 rows of clinic" in note for note in found.notes)


def bare(**lengths: int) -> tuple[dict[str, pd.DataFrame], dict[str, Schema]]:
    tables = {
        name: pd.DataFrame({name: [True] * length}) for name, length in lengths.items()
    }
    return tables, {name: Schema(columns=(Boolean(name=name),)) for name in lengths}


def test_without_a_person_rows_are_joined_as_they_stand() -> None:
    found = opened(*bare(a=3, b=3))
    assert found.real.shape == (3, 2)
    assert not found.outsiders


@pytest.mark.parametrize(
    ("tables", "schemas", "reason"),
    [
        ({}, {}, "no party's table was named"),
        ({"clinic": TABLES["clinic"][:0]}, SCHEMAS, "no rows"),
        (
            TABLES | {"insurer": TABLES["insurer"].assign(number=[5, 6, 7, 8])},
            SCHEMAS,
            "share no person",
        ),
        (*bare(a=3, b=4), "differ in length"),
        (
            {"clinic": TABLES["clinic"]} | bare(b=4)[0],
            {"clinic": CLINIC} | bare(b=4)[1],
            "some parties name a person",
        ),
    ],
    ids=["none", "empty", "strangers", "lengths", "half"],
)
def test_what_cannot_be_joined_gives_a_reason(
    tables: dict[str, pd.DataFrame], schemas: dict[str, Schema], reason: str
) -> None:
    found = open_holdings(tables, schemas, same_people=True)
    assert isinstance(found, str)
    assert reason in found


def test_parties_that_hold_rows_are_put_one_under_the_other() -> None:
    twice = pd.DataFrame({"id": [1, 1], "age": [7, 8]})
    tables = {"north": TABLES["clinic"], "south": twice}
    found = open_holdings(tables, dict.fromkeys(tables, CLINIC), same_people=False)
    assert isinstance(found, Holdings)
    assert found.real["age"].tolist() == [30, 10, 20, 90, 7, 8]
    assert found.owners is None


GRID_SCHEMAS = {"north": CLINIC, "south": CLINIC, "insurer": INSURER}
GRID = {
    "north": pd.DataFrame({"id": [1, 2, 9], "age": [10, 20, 90]}),
    "south": pd.DataFrame({"id": [3, 8], "age": [30, 80]}),
    "insurer": pd.DataFrame({"number": [1, 3, 4, 2], "ill": [True, False, True, True]}),
}


def test_over_a_grid_holders_of_the_same_columns_are_put_together_before_they_are_joined():
    found = opened(GRID, GRID_SCHEMAS)
    assert dict(zip(found.real["age"], found.real["ill"], strict=True)) == {
        10: True,
        20: True,
        30: False,
    }
    assert found.owners == {"age": "north", "ill": "insurer"}
    outside = {group.label: len(group.outside) for group in found.outsiders}
    assert outside == {"north, south": 2, "insurer": 1}


def test_some_holders_of_a_grid_are_read_without_the_others() -> None:
    for names, rows in (
        (["north", "south"], 5),
        (["south"], 2),
        (["south", "insurer"], 1),
    ):
        assert (
            len(opened({name: GRID[name] for name in names}, GRID_SCHEMAS).real) == rows
        )


def test_a_person_with_two_holders_of_the_same_columns_is_a_reason_to_join_nothing():
    twice = GRID | {"south": pd.DataFrame({"id": [1], "age": [10]})}
    found = open_holdings(twice, GRID_SCHEMAS, same_people=True)
    assert isinstance(found, str)
    assert "two of north, south hold the same person" in found


def test_rows_say_whose_they_are_where_the_file_does() -> None:
    schema = Schema(person="id", columns=(Integer(name="age", low=0, high=9),))
    several = pd.DataFrame({"id": [7, 7, 8], "age": [1, 2, 3]})
    rows, people, _ = read_rows(several, schema)
    assert list(rows.columns) == ["age"]
    assert people is not None
    assert people.tolist() == [7, 7, 8]
    rows, people, _ = read_rows(several[["age"]], schema)
    assert len(rows) == 3
    assert people is None
