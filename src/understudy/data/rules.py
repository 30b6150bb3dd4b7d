"""Public rules that every row keeps: in a schema, or across holders in a run file (docs/schema.md).

A rule is known to everyone before any row is read, as bounds are: nothing is taken from rows. Conditions are those of
`data.conditions`. An order between two columns says nothing of a row in which one of them is missing.

Guarantee: rules are parsed, never run, and at most `MOST` of them.
Edges: a column or a value that is not declared, types that do not fit, or a rule of another form → SchemaError.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from understudy.data.column import Binned, Column, Date, Datetime, Ordinal
from understudy.data.conditions import And, Condition, Not, Or, Order, columns, parse, tests
from understudy.data.encoding.values import cut, numbers_of, places_of
from understudy.data.meaning import Mask, cuts, holds, ordered
from understudy.ground.check import known_keys, repeated
from understudy.ground.errors import ConfigError, SchemaError

MOST = 100
_KEYS = ("when", "then", "always", "unique")


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
            raise SchemaError(f'a rule has "when" and "then", or "always", or "unique", and not {self}.')
        if not all(isinstance(name, str) for name in self.unique) or repeated(self.unique):
            raise SchemaError(f"unique names different columns, not {list(self.unique)}.")

    @cached_property
    def condition(self) -> Condition | None:
        """What holds in every row by itself. None for `unique`, which is of rows together."""
        if self.unique:
            return None
        if self.always:
            return _read(self.always)
        return Or((Not(_read(self.when)), _read(self.then)))

    @property
    def columns(self) -> tuple[str, ...]:
        return self.unique if self.condition is None else columns(self.condition)

    def check(self, declared: Mapping[str, Column]) -> None:
        """SchemaError where it makes no sense for these columns."""
        for test in () if self.condition is None else tests(self.condition):
            if isinstance(test, Order):
                _check_order(test, declared)
            else:
                cuts(test, declared[test.column])

    def kept(self, frame: pd.DataFrame, declared: Mapping[str, Column]) -> Mask:
        """Which rows of a frame keep it; of rows that `unique` forbids to be alike, the first does."""
        if self.condition is None:
            return ~frame.duplicated(list(self.unique)).to_numpy()
        return met(self.condition, frame, declared)

    def to_dict(self) -> dict[str, Any]:
        said = {"when": self.when, "then": self.then, "always": self.always, "unique": list(self.unique)}
        return {key: value for key, value in said.items() if value}

    @classmethod
    def from_dict(cls, data: Any) -> "Rule":
        """The inverse of `to_dict`. SchemaError for anything else."""
        if not isinstance(data, Mapping):
            raise SchemaError(f"a rule is a table of keys, not {data!r:.60}.")
        known_keys(data, _KEYS, "a rule", raised=SchemaError)
        for key, value in data.items():
            if not isinstance(value, list | tuple if key == "unique" else str) or not value:
                raise SchemaError(f'a rule\'s "{key}" is {value!r:.60}.')
        return cls(**data)

    def __str__(self) -> str:
        if self.unique:
            return f"unique {', '.join(map(str, self.unique))}"
        return self.always or f"when {self.when} then {self.then}"


def read_rules(data: Any) -> tuple[Rule, ...]:
    if not isinstance(data, list | tuple) or len(data) > MOST:
        raise SchemaError(f"rules are a list of at most {MOST} tables.")
    return tuple(one if isinstance(one, Rule) else Rule.from_dict(one) for one in data)


def about(rules: Iterable[Rule], names: Iterable[str]) -> tuple[Rule, ...]:
    """The rules that speak of these columns alone."""
    known = set(names)
    return tuple(rule for rule in rules if known.issuperset(rule.columns))


def broken(rules: Sequence[Rule], frame: pd.DataFrame, declared: Iterable[Column]) -> list[int]:
    """How many rows break each rule. It is computed from rows: for their holder alone."""
    by_name = {column.name: column for column in declared}
    return [int((~rule.kept(frame, by_name)).sum()) for rule in rules]


def _read(text: str) -> Condition:
    try:
        return parse(text, orders=True)
    except ConfigError as error:
        raise SchemaError(f"rule {text!r:.60}: {error}") from None


def _check_order(test: Order, declared: Mapping[str, Column]) -> None:
    one, other = declared[test.column], declared[test.other]
    days = [isinstance(column, Date | Datetime) for column in (one, other)]
    ordinal = isinstance(one, Ordinal) and isinstance(other, Ordinal) and one.categories == other.categories
    same = type(one) is type(other) if any(days) else isinstance(one, Binned) and isinstance(other, Binned)
    if isinstance(one, Datetime) and isinstance(other, Datetime) and one.resolution != other.resolution:
        same = False
    if not (same or ordinal) or one.name == other.name:
        raise one.error(
            f'it is {one.kind} and cannot be compared with "{other.name}", which is {other.kind}. Two numbers can, two '
            "dates, two times of one resolution, or two ordinal columns with the same values."
        )


def met(condition: Condition, frame: pd.DataFrame, declared: Mapping[str, Column]) -> Mask:
    """Which rows meet a condition, by their values."""
    if isinstance(condition, Not):
        return ~met(condition.part, frame, declared)
    if isinstance(condition, And | Or):
        join = np.logical_and if isinstance(condition, And) else np.logical_or
        return np.asarray(join.reduce([met(part, frame, declared) for part in condition.parts]))
    column = declared[condition.column]
    if isinstance(condition, Order):
        other = declared[condition.other]
        a, b = numbers_of(column, frame[column.name]), numbers_of(other, frame[other.name])
        return np.asarray(ordered(a, condition.order, b) | np.isnan(a) | np.isnan(b))
    pieces = cut(column, cuts(condition, column))
    return np.asarray(holds(condition, pieces)[places_of(pieces, frame[column.name])])
