"""Whether rules leave a row at all, and whether each speaks of something: against every
row listed.
"""

import itertools
import random
from typing import Any

import numpy as np
import pytest

from refusals import raises
from understudy.answers import rules as ruled
from understudy.answers.rules import all_keep, check_rules
from understudy.data.column import Column
from understudy.data.conditions import parse
from understudy.data.encoding.codec import Codec
from understudy.data.rules import Rule
from understudy.data.schema import Boolean, Categorical, Integer, Ordinal, Real, Schema
from understudy.ground.errors import ConfigError, Effect

COLUMNS: tuple[Column, ...] = (
    Integer(name="a", low=0, high=4, bins=2),
    Integer(name="b", low=2, high=5, bins=2),
    Ordinal(name="c", categories=("low", "mid", "high")),
    Ordinal(name="d", categories=("low", "mid", "high")),
    Boolean(name="e"),
)
TESTS = (
    "a < 2",
    "a == 3",
    "b in (2, 5)",
    "a > b",
    "b >= a",
    "c < d",
    "d <= c",
    "c == 'mid'",
    "e == true",
    "d != 'low'",
)


def every_row() -> Any:
    values = [
        range(5),
        range(2, 6),
        COLUMNS[2].categories,
        COLUMNS[3].categories,
        (False, True),
    ]  # type: ignore[attr-defined]
    schema = Schema(columns=COLUMNS)
    frame = Codec(schema).decode(np.zeros((0, 5), dtype=np.int32))
    rows = list(itertools.product(*values))
    return frame.reindex(range(len(rows))).assign(
        **{name: [row[j] for row in rows] for j, name in enumerate(schema.names)}
    )


def a_condition(rng: random.Random, depth: int = 2) -> str:
    kind = rng.choice(("test", "not", "and", "or")) if depth else "test"
    if kind == "test":
        return rng.choice(TESTS)
    if kind == "not":
        return f"not ({a_condition(rng, depth - 1)})"
    return f"({a_condition(rng, depth - 1)}) {kind} ({a_condition(rng, depth - 1)})"


def test_rules_pass_where_some_row_keeps_them_and_meets_each_when() -> None:
    rng = random.Random(0)
    rows = every_row()
    found = [0, 0]
    for _ in range(60):
        rules = [
            {"when": a_condition(rng, 1), "then": a_condition(rng, 1)}
            if rng.random() < 0.6
            else {"always": a_condition(rng)}
            for _ in range(rng.randint(1, 4))
        ]
        schema = Schema(
            columns=COLUMNS, rules=tuple(Rule.from_dict(rule) for rule in rules)
        )
        kept = all_keep(schema, rows, across_rows=False)
        whens = [Rule(always=rule["when"]) for rule in rules if "when" in rule]
        declared = {column.name: column for column in COLUMNS}
        right = kept.any() and all(
            (kept & when.rows_that_keep(rows, declared)).any() for when in whens
        )
        found[bool(right)] += 1
        if right:
            check_rules(schema)
        else:
            with raises(
                ConfigError,
                effect=Effect.NOTHING_CHARGED,
                match="(contradict|leave nothing)",
            ):
                check_rules(schema)
    assert min(found) > 10, "there are both"


REALS = (
    Real(name="x", low=0, high=1, bins=1),
    Real(name="y", low=0, high=1, bins=1, nullable=True),
    Real(name="z", low=0, high=1, bins=1),
)


@pytest.mark.parametrize(
    ("rules", "can_be"),
    [
        (("x >= 0.7", "y < 0.3", "x <= y"), False),  # all within one level
        (("x >= 0.2", "y < 0.3", "x <= y"), True),
        (("x < y", "y < z", "z <= 0.5", "x >= 0.4"), True),
        (("x < y", "y < z", "z < x"), False),
        (("x <= y", "y <= z", "z <= x"), True),
        (("x > y", "y is missing"), True),  # of what is missing an order says nothing
        (("not x > y", "y is missing"), False),  # but it is then kept, and not broken
        (("x >= 0.5 or z >= 0.9", "z < 0.4", "x < z"), False),
    ],
)
def test_orders_are_held_against_what_other_rules_leave(
    rules: tuple[str, ...], can_be: bool
) -> None:
    schema = Schema(columns=REALS, rules=tuple(Rule(always=rule) for rule in rules))
    assert (
        ruled.possible([parse(rule, orders=True) for rule in rules], Codec(schema))
        is can_be
    )


def test_many_rules_that_share_a_column_are_few_boxes() -> None:
    """Each of thirty columns implies one of the same three values: as boxes, rule by
    rule, a billion.
    """
    ward = Categorical(name="ward", categories=("one", "two", "three"))
    columns = (ward, *(Boolean(name=f"x{n}") for n in range(30)))
    implied = [
        {"when": f"x{n} == true", "then": f"ward == '{ward.categories[n % 3]}'"}
        for n in range(30)
    ]
    check_rules(Schema(columns=columns, rules=implied))
    with pytest.raises(ConfigError, match='no row can meet "x0 == true"'):
        check_rules(
            Schema(columns=columns, rules=[*implied, {"always": "ward != 'one'"}])
        )


def test_rules_of_which_nobody_can_tell_whether_they_contradict_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Six in five places, each in another: no row, but that takes long to find out."""
    places = tuple(range(5))
    columns = tuple(Categorical(name=f"p{n}", categories=places) for n in range(6))
    rules = [
        {
            "always": (
                f"not ({' or '.join(f'p{i} == {k} and p{j} == {k}' for k in places)})"
            )
        }
        for i, j in itertools.combinations(range(6), 2)
    ]
    monkeypatch.setattr(ruled, "_STEPS", 100)
    with raises(ConfigError, effect=Effect.NOTHING_CHARGED, match="nobody can tell"):
        check_rules(Schema(columns=columns, rules=rules))
