"""What conditions mean for a table: against plain Python, value by value, on a domain
small enough to list.
"""

import itertools
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest

from understudy.answers.question import Question
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.values import labels_of
from understudy.data.schema import (
    Boolean,
    Categorical,
    Date,
    Integer,
    Ordinal,
    Real,
    Schema,
)
from understudy.ground.errors import ConfigError, SchemaError

DAY = date(2020, 1, 1)
SCHEMA = Schema(
    columns=(
        Integer(name="age", low=0, high=9, bins=2, nullable=True),
        Real(name="body mass", low=10, high=50, bins=(10, 20, 50)),
        Categorical(name="sex", categories=("F", "M"), nullable=True),
        Ordinal(name="grade", categories=("low", "mid", "high")),
        Boolean(name="ill"),
        Date(name="seen", low=DAY, high=DAY + timedelta(9), bins=2),
        Categorical(name="share", categories=(0, 25, 95)),
    )
)
VALUES: dict[str, list[Any]] = {
    "age": [*range(10), None],
    "body mass": [10.0, 15.5, 20.0, 33.25, 49.0],
    "sex": ["F", "M", None],
    "grade": [0, 1, 2],
    "ill": [False, True],
    "seen": [(DAY + timedelta(i)).isoformat() for i in range(10)],
    "share": [0, 25, 95],
}


def there(test: Any) -> Any:
    """A comparison that no missing cell meets."""
    return lambda x: x is not None and test(x)


CASES = [
    ("age == 3", {"age": there(lambda x: x == 3)}),
    ("age != 3", {"age": lambda x: x != 3}),
    ("not age >= 3", {"age": lambda x: x is None or x < 3}),
    ("age < 2.5", {"age": there(lambda x: x < 2.5)}),
    ("age > 2.5", {"age": there(lambda x: x > 2.5)}),
    ("age <= 4 and age >= 4", {"age": there(lambda x: x == 4)}),
    ("9 <= age", {"age": there(lambda x: x == 9)}),
    ("age >= -1e30 and age <= 1e30", {"age": there(lambda x: True)}),
    ("age is missing", {"age": lambda x: x is None}),
    ("age in (0, 9)", {"age": there(lambda x: x in (0, 9))}),
    ("`body mass` between 15.5 and 33.25", {"body mass": lambda x: 15.5 <= x < 33.25}),
    ("sex is not missing", {"sex": lambda x: x is not None}),
    ("sex != 'F'", {"sex": lambda x: x != "F"}),
    ("grade >= 'mid'", {"grade": lambda x: x >= 1}),
    ("grade < 'mid'", {"grade": lambda x: x < 1}),
    ("ill == true", {"ill": lambda x: x}),
    ("ill == 0", {"ill": lambda x: not x}),
    ("seen > '2020-01-03'", {"seen": lambda x: x > "2020-01-03"}),
    ("seen <= '2020-01-03'", {"seen": lambda x: x <= "2020-01-03"}),
    ("seen == '2020-01-10'", {"seen": lambda x: x == "2020-01-10"}),
    ("share > 24.5", {"share": lambda x: x > 24.5}),
    ("share in (0, 95.0)", {"share": lambda x: x in (0, 95)}),
]


def piece(question: Question, name: str, value: Any) -> int:
    """Which piece of its column a value lies in."""
    pieces = question.pieces[question.place[name]]
    if value is None:
        return pieces.there
    if pieces.edges is None:
        return VALUES[name].index(value)
    place = (
        (date.fromisoformat(value) - date(1970, 1, 1)).days if name == "seen" else value
    )
    return int(np.searchsorted(pieces.edges, place, side="right")) - 1


@pytest.mark.parametrize(
    ("text", "meaning"), CASES, ids=lambda case: case if isinstance(case, str) else ""
)
def test_a_test_is_met_by_the_values_that_python_says(
    text: str, meaning: dict[str, Any]
) -> None:
    question = Question.read(text, Codec(SCHEMA))
    ((name, expected),) = meaning.items()
    j = question.place[name]
    drawn = {j: np.array([piece(question, name, value) for value in VALUES[name]])}
    assert question.met(drawn).tolist() == [
        bool(expected(value)) for value in VALUES[name]
    ]


COMBINED = [
    "age >= 3 or sex == 'F'",
    "not (age >= 3 or sex == 'F')",
    "age >= 3 and sex == 'F' or grade == 'low' and ill == true",
    "not (age >= 3 and sex == 'F' or grade == 'low' and ill == true)",
    "(age < 3 or ill == true) and (grade == 'high' or sex is missing) and not "
    "(age == 1 and ill == false)",
    "age == 1 or age == 4 or sex == 'F' or (age == 2 and sex == 'M')",
]


@pytest.mark.parametrize("text", COMBINED)
def test_boxes_do_not_overlap_and_hold_what_meets_the_condition(text: str) -> None:
    question = Question.read(text, Codec(SCHEMA))
    boxes = question.boxes(limit=64)
    assert boxes is not None
    ranges = [range(len(pieces.level)) for pieces in question.pieces.values()]
    cells = np.array(list(itertools.product(*ranges)))
    drawn = dict(zip(question.pieces, cells.T, strict=True))
    inside = sum(
        np.logical_and.reduce(
            [np.ones(len(cells), bool), *(mask[drawn[j]] for j, mask in box.items())]
        ).astype(int)
        for box in boxes
    )
    assert (inside == question.met(drawn)).all()


def test_a_condition_that_needs_too_many_boxes_has_none() -> None:
    text = " or ".join(
        f"(age == {i} and sex == 'F' and seen == '2020-01-0{i + 1}')" for i in range(9)
    )
    assert Question.read(text, Codec(SCHEMA)).boxes(limit=8) is None


def test_pieces_are_shares_of_their_levels_and_hold_the_values_drawn_from_them():
    pieces = Question.read(
        "age between 3 and 6 and `body mass` > 12.5", Codec(SCHEMA)
    ).pieces
    age = pieces[0]
    mass = pieces[1]
    assert age.edges is not None
    assert age.edges.tolist() == [0, 3, 5, 7, 10]
    assert age.level.tolist() == [0, 0, 1, 1, 2]
    np.testing.assert_allclose(age.share, [3 / 5, 2 / 5, 2 / 5, 3 / 5, 1])
    np.testing.assert_allclose(mass.share, [0.25, 0.75, 1])
    drawn = np.repeat(np.arange(5), 3)
    values = age.values(drawn, np.tile([0, 0.5, 1 - 2**-53], 5))
    assert values.dtype == "Int64"
    assert values.fillna(-1).tolist() == [
        0,
        1,
        2,
        3,
        4,
        4,
        5,
        6,
        6,
        7,
        8,
        9,
        -1,
        -1,
        -1,
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("agee > 3", 'no column "agee". Did you mean "age"?'),
        ("grade == 'lo'", 'Did you mean "low"?'),
        ("sex == 1", "none of its values"),
        ("sex > 'F'", "categorical, not ordinal"),
        ("ill > 0", "no order"),
        ("ill == 2", "none of its values"),
        ("age == 'old'", "not a number"),
        ("age == true", "not a number"),
        ("age == 3.5", "no value of"),
        ("age == 10", "no value of"),
        ("`body mass` == 20", "probability 0"),
        ("seen > 3", "not a date"),
        ("seen > '2020-02-31'", "not a date"),
        ("share == 26", "none of its values"),
        ("share == true", "none of its values"),
        ("share > '3'", "not a number"),
    ],
)
def test_what_does_not_fit_the_schema_is_refused_with_the_nearest_name(
    text: str, said: str
) -> None:
    with pytest.raises((SchemaError, ConfigError)) as error:
        Question.read(text, Codec(SCHEMA))
    assert said in str(error.value)


def test_each_level_has_an_answer_to_stand_for_it() -> None:
    assert labels_of(SCHEMA.columns[0]) == ["0–4", "5–9", None]
    assert labels_of(SCHEMA.columns[4]) == [False, True]


FINER = Schema(
    columns=(Real(name="x", low=0, high=2, bins=2, decimals=1, nullable=True),)
)
NUMBERS = [step / 10 for step in range(21)]
FINE_CASES: list[tuple[str, Any]] = [
    ("x > 0.5", lambda x: x > 0.5),
    ("x >= 0.5", lambda x: x >= 0.5),
    ("x <= 0.5", lambda x: x <= 0.5),
    ("x < 0.5", lambda x: x < 0.5),
    ("x between 0.45 and 0.61", lambda x: 0.45 <= x <= 0.61),
    ("x > 0.55 and x < 0.65", lambda x: x == 0.6),
    ("x == 0.7", lambda x: x == 0.7),
    ("x in (0, 1.3, 2)", lambda x: x in (0, 1.3, 2)),
    ("x >= 2", lambda x: x == 2),
    ("x < 2", lambda x: x < 2),
    ("x != 2", lambda x: x != 2),
    ("x > 1 and x <= 1.1", lambda x: x == 1.1),
    ("x > 2 or x < 0", lambda x: False),
    ("x > 0.51 and x < 0.59", lambda x: False),
]


@pytest.mark.parametrize(("text", "meaning"), FINE_CASES)
def test_a_condition_on_numbers_of_few_decimals_holds_and_counts_the_numbers_that_meet_it(
    text: str, meaning: Any
) -> None:
    question = Question.read(text, Codec(FINER))
    (own,), (box,) = question.pieces.values(), question.boxes(8) or [{0: np.zeros(0)}]
    some = [x for x in NUMBERS if meaning(x)]
    if not box or not len(box[0]) or not (own.share[box[0]] > 0).any():
        assert some == []
        return
    chosen = np.flatnonzero(box[0][: own.there] & (own.share[: own.there] > 0))
    inside = np.linspace(0, 1 - 2**-53, 50)
    drawn = {
        x for piece in chosen for x in own.values(np.full(50, piece), inside).tolist()
    }
    assert sorted(drawn) == some
    by_level = np.bincount(own.level[chosen], own.share[chosen], minlength=2)
    counts = [sum(x < 1 for x in some) / 10, sum(x >= 1 for x in some) / 11]
    np.testing.assert_allclose(by_level[:2], counts)


def test_a_number_between_two_that_there_are_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"0\.55 is no value of"):
        Question.read("x == 0.55", Codec(FINER))
