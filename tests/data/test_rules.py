"""Rules of a schema: what they may say, and which rows keep them."""

from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from refusals import raises
from understudy.answers.rules import check_rules
from understudy.cli import app
from understudy.data.rules import Rule, broken
from understudy.data.schema import (
    Boolean,
    Categorical,
    Date,
    Datetime,
    Grid,
    Integer,
    Ordinal,
    Real,
    Schema,
    join,
)
from understudy.ground.errors import ConfigError, Effect, SchemaError, UnderstudyError

COLUMNS = (
    Categorical(name="sex", categories=("F", "M")),
    Boolean(name="pregnant", nullable=True),
    Integer(name="age", low=0, high=99, bins=10),
    Date(name="came", low=date(2020, 1, 1), high=date(2020, 12, 31), bins=12),
    Date(
        name="left",
        low=date(2020, 1, 1),
        high=date(2021, 3, 31),
        bins=15,
        nullable=True,
    ),
    Ordinal(name="before", categories=("none", "some", "much")),
    Ordinal(name="after", categories=("none", "some", "much")),
    Real(name="cost", low=0, high=10, bins=4),
    Datetime(
        name="at",
        low=datetime(2020, 1, 1),
        high=datetime(2020, 1, 2),
        resolution="hour",
    ),
)
PREGNANT: dict[str, Any] = {"when": "sex == 'M'", "then": "pregnant == false"}


def schema(*rules: Any) -> Schema:
    return Schema(columns=COLUMNS, rules=rules)


ROWS = pd.DataFrame(
    {
        "sex": ["M", "M", "F", "M"],
        "pregnant": pd.array([True, False, True, None], dtype="boolean"),
        "age": [5, 15, 20, 30],
        "came": pd.to_datetime(
            ["2020-01-01", "2020-02-01", "2020-03-01", "2020-03-01"]
        ),
        "left": pd.to_datetime(["2020-01-01", "2020-01-31", None, "2020-03-02"]),
        "before": ["none", "some", "much", "none"],
        "after": ["none", "none", "much", "some"],
        "cost": [0.0, 1.0, 2.0, 3.0],
        "at": pd.to_datetime(
            [
                "2020-01-01 01:00",
                "2020-01-01 02:00",
                "2020-01-01 03:00",
                "2020-01-02 00:00",
            ]
        ),
    }
)


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (PREGNANT, [False, True, True, False]),  # a missing cell meets no comparison
        (
            {"when": "sex == 'M'", "then": "not pregnant == true"},
            [False, True, True, True],
        ),
        # nothing is said where one is missing
        ({"always": "left >= came"}, [True, False, True, True]),
        ({"always": "left > came"}, [False, False, True, True]),
        ({"always": "came <= left"}, [True, False, True, True]),
        ({"always": "after >= before"}, [True, False, True, True]),
        ({"always": "age > cost"}, [True, True, True, True]),
        ({"when": "age >= 15", "then": "left < came"}, [True, True, True, False]),
        (
            {"always": "age >= 17 or sex == 'M' and cost < 0.5"},
            [True, False, True, True],
        ),
        ({"always": "at >= '2020-01-01 02:30:00'"}, [False, False, True, True]),
        (
            {"always": "came between '2020-02-01' and '2020-02-29'"},
            [False, True, False, False],
        ),
        ({"unique": ["sex"]}, [True, False, True, False]),
        ({"unique": ["sex", "pregnant"]}, [True, True, True, True]),
    ],
)
def test_a_row_keeps_a_rule_or_breaks_it(rule: Any, kept: list[bool]) -> None:
    own = schema(rule)
    declared = {column.name: column for column in COLUMNS}
    assert own.rules[0].rows_that_keep(ROWS, declared).tolist() == kept
    assert broken(own.rules, ROWS, COLUMNS) == [kept.count(False)]


def test_rules_are_written_read_selected_and_joined() -> None:
    own = schema(PREGNANT, {"always": "left >= came"}, {"unique": ["sex", "age"]})
    assert Schema.from_dict(own.to_dict()) == own
    assert [str(rule) for rule in own.rules] == [
        "when sex == 'M' then pregnant == false",
        "left >= came",
        "unique sex, age",
    ]
    assert "rule: left >= came" in str(own)
    assert own.select(["sex", "came", "left"]).rules == own.rules[1:2]
    assert own.drop(["sex"]).rules == own.rules[1:2]
    one = own.select(["sex", "pregnant"])
    two = own.select(["came", "left"])
    assert join({"one": one, "two": two}).rules == own.rules[:2]
    other = replace(two, rules=({"always": "left > came"},))
    assert (
        len(
            Grid.from_schemas({"a": two, "b": other}).join({"a": two, "b": other}).rules
        )
        == 2
    )


def test_a_file_says_rules_as_tables(tmp_path: Path) -> None:
    schema(PREGNANT, {"unique": ["sex"]}).save(tmp_path / "s.toml")
    assert Schema.load(tmp_path / "s.toml").rules == (
        Rule(**PREGNANT),
        Rule(unique=("sex",)),
    )


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"when": "sx == 'M'", "then": "age > 3"}, 'Did you mean "sex"'),
        ({"when": "sex == 'X'", "then": "age > 3"}, "none of its values"),
        ({"always": "age > 'old'"}, "not a number"),
        ({"always": "came > age"}, "cannot be compared"),
        ({"always": "age > age"}, "cannot be compared"),
        ({"always": "at > came"}, "cannot be compared"),
        ({"always": "sex > before"}, "cannot be compared"),
        ({"always": "age >"}, "ends too soon"),
        ({"always": "age == cost"}, "a column stands where a value is needed"),
        ({"when": "age > 3"}, '"when" and "then"'),
        ({"then": "age > 3"}, '"when" and "then"'),
        ({"always": "age > 3", "unique": ["age"]}, '"when" and "then"'),
        ({}, '"when" and "then"'),
        ({"if": "age > 3"}, "unknown key"),
        ({"unique": ["age", "age"]}, "different columns"),
        ({"unique": ["agee"]}, 'Did you mean "age"'),
        ({"unique": "age"}, "unique"),
        ({"always": 3}, "always"),
        ("age > 3", "table of keys"),
        ({"always": "(" * 60 + "age > 3" + ")" * 60}, "nested"),
        ({"always": "age > 3" + " " * 20_000}, "longer than"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_in_words(rule: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        schema(rule)


def test_there_are_not_more_rules_than_a_hundred() -> None:
    with pytest.raises(SchemaError, match="at most 100"):
        schema(*[PREGNANT] * 101)
    with pytest.raises(SchemaError, match="list"):
        Schema.from_dict(
            {
                "columns": [column.to_dict() for column in COLUMNS],
                "rules": {"always": "age > 3"},
            }
        )


@pytest.mark.parametrize(
    "rules",
    [
        [{"always": "age > 50"}, {"always": "age < 40"}],
        [PREGNANT, {"when": "sex == 'M'", "then": "pregnant == true"}],
        [{"always": "sex == 'F'"}, {"when": "sex == 'M'", "then": "age > 3"}],
        [{"always": "left > came"}, {"always": "came >= left"}],
        [{"always": "age < cost"}, {"always": "cost < age"}],
        [
            {"always": "age >= 90"},
            {"when": "age > 80", "then": "sex == 'M' and sex == 'F'"},
        ],
    ],
)
def test_rules_that_contradict_each_other_or_leave_nothing_are_found(
    rules: list[Any],
) -> None:
    with raises(
        ConfigError, effect=Effect.NOTHING_CHARGED, match="(contradict|leave nothing)"
    ):
        check_rules(schema(*rules))


def test_bounds_that_leave_no_order_are_found() -> None:
    own = Schema(
        columns=(Integer(name="a", low=0, high=5), Integer(name="b", low=5, high=9)),
        rules=({"always": "a > b"},),
    )
    with pytest.raises(ConfigError, match="leave nothing"):
        check_rules(own)
    check_rules(replace(own, rules=({"always": "a >= b"},)))


def test_rules_that_leave_something_pass() -> None:
    check_rules(
        schema(
            PREGNANT,
            {"always": "left >= came"},
            {"always": "came <= left"},
            {"unique": ["age"]},
        )
    )
    check_rules(
        schema(
            {"when": "age < 15", "then": "pregnant is missing"}, {"always": "age != 7"}
        )
    )


@given(st.text(alphabet="abce <>=!()'\"`0159.,-ndortagx", max_size=40))
@settings(max_examples=60)
def test_any_text_as_a_rule_is_read_or_refused_in_words(text: str) -> None:
    for key in ("always", "unique"):
        try:
            own = schema({key: text if key == "always" else [text]})
            check_rules(own)
            own.rules[0].rows_that_keep(
                ROWS, {column.name: column for column in COLUMNS}
            )
        except UnderstudyError:
            continue


def test_schema_check_tells_the_holder_how_many_rows_break_each_rule(
    tmp_path: Path,
) -> None:
    own = Schema(
        columns=COLUMNS[:3],
        rules=(PREGNANT, {"always": "age < 99"}, {"unique": ["sex", "age"]}),
    )
    own.save(tmp_path / "s.toml")
    ROWS[["sex", "pregnant", "age"]].to_csv(tmp_path / "t.csv", index=False)
    said = CliRunner().invoke(
        app, ["schema", "check", str(tmp_path / "t.csv"), str(tmp_path / "s.toml")]
    )
    assert said.exit_code == 0, said.exception
    text = " ".join(said.stdout.split())
    assert "Rule when sex == 'M' then pregnant == false: 2 of 4 rows break it" in text
    assert "Rule age < 99: all rows keep it" in text
    assert np.all([word not in text for word in ("True", "row 1")]), (
        "counts, and no values"
    )
