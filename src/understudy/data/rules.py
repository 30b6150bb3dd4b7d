"""Public rules that every row keeps: in a schema, or across holders in a run file
(docs/schema.md).

A rule is known to everyone before any row is read, as bounds are: nothing is taken from
rows. Conditions are those of `data.conditions`. An order between two columns says
nothing of a row in which one of them is missing.

Guarantee: rules are parsed, never run, and at most `MOST` of them; all is checked
against the public schema, before anything is drawn.
Edges: a column or a value that is not declared, types that do not fit, or a rule of
another form → SchemaError, with the nearest name. A bound of a range may lie outside
the declared ones: nothing lies there.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data import column as kinds
from understudy.data.column import (
    Binned,
    Boolean,
    Categorical,
    Column,
    Date,
    Datetime,
    Integer,
    Real,
)
from understudy.data.conditions import (
    And,
    Compare,
    Condition,
    Missing,
    Not,
    OneOf,
    Or,
    Order,
    Test,
    Value,
    parse,
)
from understudy.data.conditions import columns as columns_in
from understudy.data.conditions import tests as tests_in
from understudy.data.encoding.values import Pieces, cut, numbers_of, places_of
from understudy.data.reading.forms import read_time
from understudy.ground.check import known_keys, nearest, repeated
from understudy.ground.errors import ConfigError, Effect, SchemaError

MOST = 100
_KEYS = ("when", "then", "always", "unique")
_NOTHING = Effect.NOTHING_SAMPLED
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule: `when` and `then`, or `always`, or `unique`."""

    when: str = ""
    then: str = ""
    always: str = ""
    unique: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "unique", tuple(self.unique))
        forms = (bool(self.when and self.then), bool(self.always), bool(self.unique))
        if sum(forms) != 1 or bool(self.when) != bool(self.then):
            raise SchemaError(
                'a rule has "when" and "then", or "always", or "unique", and not '
                f"{self}."
            )
        if not all(isinstance(name, str) for name in self.unique) or repeated(
            self.unique
        ):
            raise SchemaError(
                f"unique names different columns, not {list(self.unique)}."
            )

    @cached_property
    def condition(self) -> Condition | None:
        """What holds in every row by itself. None for `unique`, which is of rows
        together.
        """
        if self.unique:
            return None
        if self.always:
            return _read(self.always)
        return Or((Not(_read(self.when)), _read(self.then)))

    @property
    def columns(self) -> tuple[str, ...]:
        return self.unique if self.condition is None else columns_in(self.condition)

    def check(self, declared: Mapping[str, Column]) -> None:
        """SchemaError where it makes no sense for these columns."""
        for test in () if self.condition is None else tests_in(self.condition):
            if isinstance(test, Order):
                _check_order(test, declared)
            else:
                cuts(test, declared[test.column])

    def rows_that_keep(
        self, frame: pd.DataFrame, declared: Mapping[str, Column]
    ) -> Mask:
        """Which rows of a frame do; of rows that `unique` forbids to be alike, the
        first does.
        """
        if self.condition is None:
            return ~frame.duplicated(list(self.unique)).to_numpy()
        return met(self.condition, frame, declared)

    def to_dict(self) -> dict[str, Any]:
        stated = {
            "when": self.when,
            "then": self.then,
            "always": self.always,
            "unique": list(self.unique),
        }
        return {key: value for key, value in stated.items() if value}

    @classmethod
    def from_dict(cls, data: Any) -> "Rule":
        """The inverse of `to_dict`. SchemaError for anything else."""
        if not isinstance(data, Mapping):
            raise SchemaError(f"a rule is a table of keys, not {data!r:.60}.")
        known_keys(data, _KEYS, "a rule", raised=SchemaError)
        for key, value in data.items():
            if (
                not isinstance(value, list | tuple if key == "unique" else str)
                or not value
            ):
                raise SchemaError(f'a rule\'s "{key}" is {value!r:.60}.')
        return cls(**data)

    def __str__(self) -> str:
        if self.unique:
            return f"unique {', '.join(map(str, self.unique))}"
        return self.always or f"when {self.when} then {self.then}"


def read_rules(data: Any) -> tuple[Rule, ...]:
    if not isinstance(data, list | tuple) or len(data) > MOST:
        raise SchemaError(f"rules are a list of at most {MOST} tables.")
    return tuple(
        rule if isinstance(rule, Rule) else Rule.from_dict(rule) for rule in data
    )


def about(rules: Iterable[Rule], names: Iterable[str]) -> tuple[Rule, ...]:
    known_names = set(names)
    return tuple(rule for rule in rules if known_names.issuperset(rule.columns))


def broken(
    rules: Sequence[Rule], frame: pd.DataFrame, declared: Iterable[Column]
) -> list[int]:
    """How many rows break each rule. It is computed from rows: for their holder
    alone.
    """
    by_name = {column.name: column for column in declared}
    return [int((~rule.rows_that_keep(frame, by_name)).sum()) for rule in rules]


def _read(text: str) -> Condition:
    try:
        return parse(text, orders=True)
    except ConfigError as error:
        raise SchemaError(
            f"rule {text!r:.60}: {error.message}", effect=error.effect
        ) from None


def _check_order(test: Order, declared: Mapping[str, Column]) -> None:
    left = declared[test.column]
    right = declared[test.other]
    days = [isinstance(column, Date | Datetime) for column in (left, right)]
    ordinal = (
        isinstance(left, kinds.Ordinal)
        and isinstance(right, kinds.Ordinal)
        and left.categories == right.categories
    )
    comparable = (
        type(left) is type(right)
        if any(days)
        else isinstance(left, Binned) and isinstance(right, Binned)
    )
    if (
        isinstance(left, Datetime)
        and isinstance(right, Datetime)
        and left.resolution != right.resolution
    ):
        comparable = False
    if not (comparable or ordinal) or left.name == right.name:
        raise left.error(
            f'it is {left.kind} and cannot be compared with "{right.name}", which is '
            f"{right.kind}. Two numbers can, two "
            "dates, two times of one resolution, or two ordinal columns with the same "
            "values."
        )


def met(
    condition: Condition, frame: pd.DataFrame, declared: Mapping[str, Column]
) -> Mask:
    """Which rows meet a condition, by their values."""
    if isinstance(condition, Not):
        return ~met(condition.part, frame, declared)
    if isinstance(condition, And | Or):
        join = np.logical_and if isinstance(condition, And) else np.logical_or
        return np.asarray(
            join.reduce([met(part, frame, declared) for part in condition.parts])
        )
    column = declared[condition.column]
    if isinstance(condition, Order):
        other = declared[condition.other]
        a = numbers_of(column, frame[column.name])
        b = numbers_of(other, frame[other.name])
        return np.asarray(ordered(a, condition.order, b) | np.isnan(a) | np.isnan(b))
    pieces = cut(column, cuts(condition, column))
    return np.asarray(holds(condition, pieces)[places_of(pieces, frame[column.name])])


# What a test means for a column: where it cuts its levels, and which pieces meet it


def cuts(test: Test, column: Column) -> list[float]:
    """Where the test tells values of one level apart. SchemaError where the test makes
    no sense for the column.
    """
    if isinstance(test, Missing):
        return []
    if isinstance(column, Binned):
        if isinstance(test, Compare):
            return [_edge(test, column)]
        return [bound for value in test.values for bound in _range_of(column, value)]
    if isinstance(test, OneOf):
        for value in test.values:
            _category(column, value)
    else:
        _in_order(test, column)
    return []


def holds(test: Test, pieces: Pieces) -> Mask:
    """Which pieces meet the test. They were cut where it says."""
    column = pieces.column
    met = np.zeros(len(pieces.level), dtype=np.bool_)
    if isinstance(test, Missing):
        met[pieces.there :] = True
    elif isinstance(column, Binned) and pieces.edges is not None:
        begins = pieces.edges[:-1]
        if isinstance(test, OneOf):
            met[: pieces.there] = np.isin(
                begins, [_range_of(column, value)[0] for value in test.values]
            )
        else:
            met[: pieces.there] = (begins >= _edge(test, column)) == (
                test.order in (">", ">=")
            )
    elif isinstance(test, OneOf):
        met[[_category(column, value) for value in test.values]] = True
    else:
        met[: pieces.there] = _in_order(test, column)
    return met


def _edge(test: Compare, column: Binned) -> float:
    """Where the values that meet a range begin or end, within the column's bounds."""
    bound: float = _number_of(column, test.value)
    from_value = test.order in (">=", "<")  # the value itself lies above
    low, high = column.edges[[0, -1]].tolist()
    if column.edges.dtype.kind == "i":
        bound = math.ceil(bound) if from_value else math.floor(bound) + 1
    elif isinstance(column, Real) and column.decimals is not None:
        bound = _from(column, bound) if from_value else math.nextafter(bound, math.inf)
    return float(min(max(bound, low), high))


def _from(column: Real, value: float) -> float:
    """Where a number begins to be above what lies below it. The last bin holds its
    upper edge.
    """
    return math.nextafter(value, -math.inf) if value == column.high else value


def _range_of(column: Binned, value: Value) -> tuple[float, float]:
    """Where one number or day begins and ends."""
    number = _number_of(column, value)
    if isinstance(column, Real):
        if column.decimals is None:
            raise column.error(
                f"a real number is exactly {value!r} with probability 0. Ask for a "
                f"range, with `between`.",
                effect=_NOTHING,
            )
        if (
            round(number, column.decimals) != number
            or not column.low <= number <= column.high
        ):
            raise column.error(
                f"{value!r} is no value of {column.domain}.", effect=_NOTHING
            )
        return _from(column, number), min(math.nextafter(number, math.inf), column.high)
    if number != math.floor(number) or not column.edges[0] <= number < column.edges[-1]:
        raise column.error(
            f"{value!r} is no value of {column.domain}.", effect=_NOTHING
        )
    return int(number), int(number) + 1


def _number_of(column: Binned, value: Value) -> float:
    if isinstance(column, Date):
        try:
            return kinds.day_number(
                date.fromisoformat(value if isinstance(value, str) else "")
            )
        except ValueError:
            raise column.error(
                f"{value!r} is not a date ('YYYY-MM-DD').", effect=_NOTHING
            ) from None
    if isinstance(column, Datetime):
        try:
            moment = datetime.fromisoformat(value if isinstance(value, str) else "")
        except ValueError:
            raise column.error(
                f"{value!r} is not a time ('YYYY-MM-DD HH:MM:SS').", effect=_NOTHING
            ) from None
        return kinds.second_number(moment) / column.step
    if (
        isinstance(column, Integer)
        and column.written is not None
        and isinstance(value, str)
    ):
        steps = read_time(value, column.written)
        if math.isnan(steps):
            raise column.error(
                f"{value!r} is not a time of day ({column.written!r}).", effect=_NOTHING
            )
        return steps
    if isinstance(value, bool | str):
        raise column.error(f"{value!r} is not a number.", effect=_NOTHING)
    return value


def _category(column: Column, value: Value) -> int:
    categories: Sequence[Any] = (
        column.categories if isinstance(column, Categorical) else (False, True)
    )
    kind = str if isinstance(categories[0], str) else int | float
    exact = isinstance(column, Boolean) or not isinstance(value, bool)
    if not isinstance(value, kind) or not exact or value not in categories:
        quoted = [
            repr(category) if isinstance(category, str) else str(category)
            for category in categories
        ]
        hint = nearest(value, map(str, categories))
        raise column.error(
            f"{value!r} is none of its values ({kinds.shorten(quoted)}).{hint}",
            effect=_NOTHING,
        )
    return categories.index(value)


def _in_order(test: Compare, column: Column) -> Mask:
    if not isinstance(column, Categorical):
        raise column.error(
            f"false and true have no order {test.order}. Use ==.", effect=_NOTHING
        )
    categories = column.categories
    numeric = not isinstance(categories[0], str)
    rising = numeric and all(a < b for a, b in pairwise(categories))  # type: ignore[operator]
    if rising or (numeric and not isinstance(column, kinds.Ordinal)):
        if isinstance(test.value, bool | str):
            raise column.error(f"{test.value!r} is not a number.", effect=_NOTHING)
        return ordered(np.array(categories), test.order, test.value)
    if not isinstance(column, kinds.Ordinal):
        raise column.error(
            f"its values have no order {test.order}: it is categorical, not ordinal. "
            f"Use == or in.",
            effect=_NOTHING,
        )
    return ordered(
        np.arange(len(categories)), test.order, _category(column, test.value)
    )


def ordered(values: NDArray[Any], order: str, other: Any) -> Mask:
    compared = {
        "<": np.less,
        "<=": np.less_equal,
        ">": np.greater,
        ">=": np.greater_equal,
    }[order]
    return np.asarray(compared(values.astype(np.float64), other))
