"""Ids that holders write differently, by one declared rule."""

from collections.abc import Sequence

import pytest

from refusals import raises
from understudy.data.id_form import IdForm
from understudy.data.schema import Integer, Schema
from understudy.ground.errors import AlignmentError, Effect, SchemaError
from understudy.privacy.secure.set_intersection import canonical_ids

SAME: list[tuple[Sequence[str], list[object]]] = [
    (["case"], ["AB-12", "ab-12", "Ab-12"]),
    (["spaces"], ["12 34 56", "123456", " 12\u00a034 56 ", "1\t23456"]),
    (["umlauts"], ["Müller Ø", "Mueller Ø", "Mu\u0308ller Ø"]),
    (["zeros"], ["007", "7", 7, "00007"]),
    (["zeros"], ["000", "0", 0]),
    (["zeros", "case", "spaces", "umlauts"], ["00 Jürgen Groß", "JUERGENGROSS"]),
    (["date:dmy"], ["31.12.1980", "31/12/1980", "31-12-1980", "31 12 1980", 31121980]),
    (["date:ymd"], ["1980-12-31", "19801231", 19801231, "1980/12/31"]),
    (["phone:49"], ["+49 30 123-456", "030/123456", "0049 (0)30 123456", "30123456"]),
]


def compared(names: Sequence[str], value: object) -> tuple[str, bytes]:
    ids = canonical_ids([value], IdForm.from_names(names))
    return ids.kind, ids[:][0]


@pytest.mark.parametrize(("names", "values"), SAME)
def test_what_the_rule_makes_the_same_is_the_same(
    names: Sequence[str], values: list[object]
) -> None:
    assert len({compared(names, value) for value in values}) == 1


def test_without_a_rule_ids_are_as_they_stand() -> None:
    written = ["AB-12", "ab-12", "007", "7", "31.12.1980", "31/12/1980", "M\u00fcller"]
    assert canonical_ids(written)[:] == [one.encode() for one in written]


def test_holders_who_write_days_and_numbers_in_ways_of_their_own_agree() -> None:
    days = [
        ("date:dmy", "31.12.1980"),
        ("date:mdy", "12/31/1980"),
        ("date:ymd", 19801231),
    ]
    assert len({compared([form], value) for form, value in days}) == 1
    numbers = [("phone:49", "030 123456"), ("phone:43", "+49 30 123456")]
    assert len({compared([form], value) for form, value in numbers}) == 1


def test_other_rules_are_other_kinds() -> None:
    declared = [[], ["case"], ["zeros"], ["case", "zeros"], ["date:dmy"], ["phone:49"]]
    kinds = {IdForm.from_names(names).kind for names in declared}
    assert len(kinds) == len(declared)
    one, other = (["case", "zeros"], ["zeros", "case"])
    assert IdForm.from_names(one).kind == IdForm.from_names(other).kind


@pytest.mark.parametrize(
    ("names", "value", "why"),
    [
        (["date:dmy"], "31.12.80", "no year of four digits"),
        (["date:dmy"], "12.31.1980", "no day written as dmy"),
        (["date:ymd"], "yesterday", "no day written as ymd"),
        (["phone:49"], "extension 7", "no telephone number"),
        (["phone:49"], "12", "no telephone number"),
        (["spaces"], "   ", "is empty"),
        (["case"], " a", "begins or ends with a space"),
    ],
)
def test_an_id_that_the_rule_cannot_read_is_refused(
    names: Sequence[str], value: str, why: str
) -> None:
    with raises(AlignmentError, effect=Effect.NOTHING_SENT, match=why):
        compared(names, value)


def test_two_ids_of_a_holder_that_become_one_are_refused() -> None:
    with pytest.raises(AlignmentError, match="1 of 3 rows repeat the id"):
        canonical_ids(["7", "007", "8"], IdForm.from_names(["zeros"]))


@pytest.mark.parametrize(
    "names",
    [
        ["cases"],
        ["date:ydm"],
        ["date"],
        ["phone:0"],
        ["case", "case"],
        [7],
        ["date:dmy", "case"],
        ["date:dmy", "phone:49"],
    ],
)
def test_a_rule_that_there_is_not_is_refused(names: list[str]) -> None:
    with pytest.raises(SchemaError, match="person_written"):
        IdForm.from_names(names)


def test_a_schema_keeps_the_rule_and_wants_a_person() -> None:
    column = Integer(name="a", low=0, high=9)
    schema = Schema(columns=(column,), person="id", person_written=("case", "zeros"))
    assert Schema.from_dict(schema.to_dict()) == schema
    assert "person_written" not in Schema(columns=(column,), person="id").to_dict()
    told = {"columns": [column.to_dict()], "person_written": ["case"]}
    with pytest.raises(SchemaError, match="beside a person"):
        Schema.from_dict(told)
    with pytest.raises(SchemaError, match="a list"):
        Schema.from_dict(told | {"person": "id", "person_written": "case"})
