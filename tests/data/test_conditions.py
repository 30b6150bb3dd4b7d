"""Conditions are read by hand: what they say, what they refuse, and that no text can do
more than that.
"""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.conditions import (
    DEEPEST,
    LONGEST,
    And,
    Compare,
    Missing,
    Not,
    OneOf,
    Or,
    columns,
    parse,
)
from understudy.ground.errors import ConfigError

A = OneOf("a", (1,))
B = OneOf("b", ("x",))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a == 1", A),
        ("a = 1", A),
        ("1 == a", A),
        ("a != 1", Not(A)),
        ("a <> 1", Not(A)),
        ("a>=-1.5e1", Compare("a", ">=", -15.0)),
        ("70 <= a", Compare("a", ">=", 70)),
        ("70 <= a < 80", And((Compare("a", ">=", 70), Compare("a", "<", 80)))),
        ("a between 1 and 2", And((Compare("a", ">=", 1), Compare("a", "<=", 2)))),
        (
            "a not between 1 and 2",
            Not(And((Compare("a", ">=", 1), Compare("a", "<=", 2)))),
        ),
        ("a in ('x', 'it''s')", OneOf("a", ("x", "it's"))),
        ("a not in (1)", Not(A)),
        ("a IS MISSING", Missing("a")),
        ("a is not missing", Not(Missing("a"))),
        (
            "a == True or b != false",
            Or((OneOf("a", (True,)), Not(OneOf("b", (False,))))),
        ),
        ("`body mass` > 1", Compare("body mass", ">", 1)),
        ('"say ""in""" > 1', Compare('say "in"', ">", 1)),
        ("größe_2 > 1", Compare("größe_2", ">", 1)),
        ("a == 1 or b == 'x' and a == 1", Or((A, And((B, A))))),
        ("(a == 1 or b == 'x') and not a == 1", And((Or((A, B)), Not(A)))),
    ],
)
def test_a_text_means_one_thing(text: str, meaning: object) -> None:
    assert parse(text) == meaning


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "ends too soon"),
        ("a ==", "ends too soon"),
        ("a == b", "a column stands where a value is needed"),
        ('sex == "F"', "'single quotes'"),
        ("1 == 1", "not with another value"),
        ("a == 1 b == 2", '"and", "or" or the end'),
        ("(a == 1", r'"\)" is needed'),
        ("a in ()", "a value is needed"),
        ("a not == 1", '"in" or "between"'),
        ("a == 'x", "has no meaning"),
        ("a == 1e999", "too large"),
        ("a == " + "9" * 5000, "too long"),
        ("__import__('os')", "a comparison"),
        ("a == 1; b == 1", "has no meaning"),
        ("(" * (DEEPEST + 2) + "a == 1", "deep"),
        ("not " * (DEEPEST + 2) + "a == 1", "deep"),
        ("a == 1 or " * LONGEST, "longer than"),
    ],
)
def test_what_says_nothing_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(text)


def test_a_condition_is_a_text() -> None:
    with pytest.raises(ConfigError, match="is a text"):
        parse({"a": 1})  # type: ignore[arg-type]


pieces = st.sampled_from(
    [
        "a",
        "b",
        "`c d`",
        "'x'",
        "1",
        "-2.5",
        "and",
        "or",
        "not",
        "in",
        "is",
        "missing",
        "between",
        "(",
        ")",
        ",",
        "==",
        "<",
        ">=",
        "true",
        "'",
        '"',
        "`",
        "\x00",
        "∞",
        "1e5",
        "\n",
    ]
)


@given(st.one_of(st.text(), st.lists(pieces, max_size=40).map(" ".join)))
def test_any_text_is_a_condition_or_refused_in_words(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert columns(parse(text))


def written(condition: object) -> str:
    match condition:
        case Missing(name):
            return f"`{name.replace('`', '``')}` is missing"
        case OneOf(name, values):
            return f"`{name.replace('`', '``')}` in ({', '.join(map(quoted, values))})"
        case Compare(name, order, value):
            return f"`{name.replace('`', '``')}` {order} {quoted(value)}"
        case Not(part):
            return f"not ({written(part)})"
        case And(parts) | Or(parts):
            word = " and " if isinstance(condition, And) else " or "
            return word.join(f"({written(part)})" for part in parts)
    raise AssertionError(condition)


def quoted(value: object) -> str:
    return (
        "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
    )


names = st.text(min_size=1, max_size=5)
values = st.one_of(
    st.text(max_size=5),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
)
conditions = st.recursive(
    st.one_of(
        st.builds(Missing, names),
        st.builds(OneOf, names, st.lists(values, min_size=1, max_size=3).map(tuple)),
        st.builds(Compare, names, st.sampled_from(["<", "<=", ">", ">="]), values),
    ),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)


@given(conditions)
def test_a_condition_that_is_written_down_is_read_back(condition: object) -> None:
    assert parse(written(condition)) == condition
