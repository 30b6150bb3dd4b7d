"""Public rules (`data.rules`) held against a model: rows that keep them all.

A model may have weight on rows that no rule allows, so every answer is given the rules; a mixture is fitted given them.
Rows are drawn and kept where they keep them, so that a row has the model's law given the rules; tables and predictions
have their closed form, on boxes as of any condition (`rule_boxes`).

Edges: rules that contradict each other, that leave nothing, or that are too many to tell → ConfigError, before anything
is drawn or paid for.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.answers.possible import possible
from understudy.answers.question import TooManyError
from understudy.answers.rule_boxes import conditions, tied
from understudy.data.column import Binned, Column
from understudy.data.conditions import parse
from understudy.data.encoding.codec import Codec
from understudy.data.rules import read_rules
from understudy.data.schema import Schema
from understudy.data.visits import SeveralVisits, VisitSchema
from understudy.ground.check import not_negative
from understudy.ground.errors import ConfigError

AnySchema = TypeVar("AnySchema", bound=Schema | VisitSchema | SeveralVisits)

MOST_DRAWS = 1 << 22
_FIRST = 1 << 14  # draws after which it is seen whether some keep the rules
_AT_ONCE = 1 << 17
_TRIES = 100  # to fill a row so that it keeps the rules


def check_rules(declared: Schema | VisitSchema | SeveralVisits) -> None:
    """ConfigError where no row can keep all rules, where what one speaks of cannot be, or where nobody can tell.

    A row of people with events is a person with an event of each kind.
    """
    schema = declared.row_schema
    every = conditions(schema)
    try:
        if not all(possible(some, Codec(schema)) for some in tied(every)):
            raise ConfigError(
                f"no row keeps all rules: {_listed(schema)} leave nothing. Nothing was drawn or charged."
            )
        for rule in schema.rules:
            when = parse(rule.when, orders=True) if rule.when else None
            if when is None:
                continue
            together = next(some for some in tied([when, *every]) if when in some)
            if not possible(together, Codec(schema)):
                raise ConfigError(
                    f'rules contradict each other: with {_listed(schema)} no row can meet "{rule.when}". '
                    "Nothing was drawn or charged."
                )
    except TooManyError:
        raise ConfigError(
            f"the rules {_listed(schema)} tie so much together that nobody can tell whether one contradicts another. "
            "State fewer of them, or simpler ones. Nothing was drawn or charged."
        ) from None


def with_rules(schema: AnySchema, more: Iterable[Any] = ()) -> AnySchema:
    """The schema with further rules. SchemaError where one makes no sense, ConfigError where they leave nothing."""
    ruled = replace(schema, rules=(*schema.rules, *read_rules(tuple(more))))
    check_rules(ruled)
    return ruled


def each_keeps(schema: Schema, frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Which rows, each by itself, keep all rules."""
    declared = {column.name: column for column in schema.columns}
    kept = np.ones(len(frame), dtype=np.bool_)
    for rule in schema.rules:
        if rule.condition is not None:
            kept &= rule.kept(frame, declared)
    return kept


def all_keep(schema: Schema, frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Which rows keep all rules; of rows that may not be alike the first."""
    declared, kept = {column.name: column for column in schema.columns}, each_keeps(schema, frame)
    for rule in schema.rules:
        if rule.unique:
            kept[kept] = rule.kept(frame[kept], declared)
    return kept


def keeping(n: int, draw: Callable[[int], pd.DataFrame], schema: Schema) -> pd.DataFrame:
    """`n` rows that keep the rules, out of what `draw` draws. `attrs["kept"]` is the share of draws that do.

    Edges: too few do, or there cannot be so many that differ → ConfigError that says how rare they are.
    """
    not_negative(n=n)
    _check_room(n, schema)
    found, tried, asked = draw(n), n, n
    said = found.attrs
    found = found[all_keep(schema, found)]
    while len(found) < n:
        share = len(found) / tried
        if tried >= MOST_DRAWS or (tried >= _FIRST and share * MOST_DRAWS < n / 2):
            raise ConfigError(
                f"{len(found):,} of {tried:,} draws keep the rules {_listed(schema)}: {n:,} rows would take too long. "
                "Nothing was drawn."
            )
        asked = min(_AT_ONCE, max(64, _FIRST if not share else math.ceil(1.1 * (n - len(found)) / share)))
        both = pd.concat([found, draw(asked)], ignore_index=True)
        found, tried = both[all_keep(schema, both)], tried + asked
    found = found.iloc[:n].reset_index(drop=True)
    found.attrs |= said | {"kept": 1.0 if tried == n else len(found) / tried}
    return found


def refilled(
    schema: Schema, filled: pd.DataFrame, again: Callable[[NDArray[np.int64]], pd.DataFrame]
) -> pd.DataFrame:
    """Rows that were filled, those that break a rule filled `again`. What is unique is not looked at."""
    for _ in range(_TRIES):
        wrong = np.flatnonzero(~each_keeps(schema, filled))
        if not len(wrong):
            return filled
        other = again(wrong)
        filled = filled.assign(
            **{name: replaced(filled[name], wrong, other[name]) for name in map(str, filled.columns)}
        )
    raise ConfigError(
        f"row {wrong[0] + 1:,}: nothing was found that goes with what is known of it and keeps the rules "
        f"{_listed(schema)}. Nothing was drawn."
    )


def replaced(
    values: "pd.Series[Any]", places: NDArray[np.int64], others: "pd.Series[Any]"
) -> "pd.Series[Any]":
    """A column with others' values in some places."""
    changed = values.copy()
    changed.iloc[places] = others.to_numpy()
    return changed


def _check_room(n: int, schema: Schema) -> None:
    """ConfigError where columns that are unique together have fewer values than rows are asked for."""
    for rule in schema.rules:
        room = 1.0
        for name in rule.unique:
            room *= _values(schema.column(name))
        if rule.unique and room < n:
            raise ConfigError(
                f"{n:,} rows cannot differ in {', '.join(rule.unique)}, which have {room:,.0f} values together. "
                "Nothing was drawn."
            )


def _values(column: Column) -> float:
    """How many values a column can have, the missing one included."""
    if not isinstance(column, Binned):
        return column.size
    if column.edges.dtype.kind != "i":
        return math.inf
    return float(column.edges[-1] - column.edges[0]) + column.nullable


def _listed(schema: Schema) -> str:
    said: Sequence[str] = [f'"{rule}"' for rule in schema.rules]
    return ", ".join(said[:4]) + (", …" if len(said) > 4 else "")
