"""Public rules (`data.rules`) held against a model: rows that keep them all.

Every answer is given the rules. Rows are drawn and kept where they keep them, so that a
row has the model's law given the rules; tables and predictions have their closed form,
on boxes as of any condition (`rule_boxes`).

Whether there is a row at all that meets some conditions at once (`possible`) is found
out from the public schema. Of every box that meets them (`Question.leaves`) the orders
between columns are looked at: each column has the least of its values that the orders
allow, given those of the others. Where a column runs out of values, or would be below
itself, the box holds no row. Orders that could be kept only by leaving out what may be
there are taken for a contradiction.

Edges: rules that contradict each other, that leave nothing, or that are too many to
tell → ConfigError, before anything is drawn or paid for.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.answers.question import Box, Levels, Orders, Question, TooManyError
from understudy.answers.rule_boxes import conditions, pair_of, pieces_of, tied
from understudy.data.column import Binned, Column
from understudy.data.conditions import And, Condition, parse
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.values import Pieced, Pieces
from understudy.data.rules import Mask, read_rules
from understudy.data.schema import Schema
from understudy.data.visits import SeveralVisits, VisitSchema
from understudy.ground.check import not_negative
from understudy.ground.errors import ConfigError, Effect

AnySchema = TypeVar("AnySchema", bound=Schema | VisitSchema | SeveralVisits)

MOST_DRAWS = 1 << 22
_FIRST = 1 << 14  # draws after which it is seen whether some keep the rules
_AT_ONCE = 1 << 17
_STEPS = 1 << 12  # to find a row, or that there is none
_TRIES = 100  # to fill a row so that it keeps the rules

# the first is at most the second; whether it is below it
_Below = dict[tuple[int, int], bool]


def check_rules(declared: Schema | VisitSchema | SeveralVisits) -> None:
    """ConfigError where no row (a person with an event of each kind) can keep all
    rules, or nobody can tell.
    """
    schema = declared.row_schema
    every = conditions(schema)
    try:
        if not all(possible(rules, Codec(schema)) for rules in tied(every)):
            raise ConfigError(
                f"no row keeps all rules: {_listed(schema)} leave nothing.",
                effect=Effect.NOTHING_CHARGED,
            )
        for rule in schema.rules:
            when = parse(rule.when, orders=True) if rule.when else None
            if when is None:
                continue
            group = next(rules for rules in tied([when, *every]) if when in rules)
            if not possible(group, Codec(schema)):
                raise ConfigError(
                    f"rules contradict each other: with {_listed(schema)} no row can "
                    f'meet "{rule.when}".',
                    effect=Effect.NOTHING_CHARGED,
                )
    except TooManyError:
        raise ConfigError(
            f"the rules {_listed(schema)} tie so much together that nobody can tell "
            "whether one contradicts another. "
            "State fewer of them, or simpler ones.",
            effect=Effect.NOTHING_CHARGED,
        ) from None


def with_rules(schema: AnySchema, more: Iterable[Any] = ()) -> AnySchema:
    """The schema with further rules. SchemaError where one makes no sense, ConfigError
    where they leave nothing.
    """
    ruled = replace(schema, rules=(*schema.rules, *read_rules(tuple(more))))
    check_rules(ruled)
    return ruled


def all_keep(
    schema: Schema,
    frame: pd.DataFrame,
    *,
    across_rows: bool = True,
) -> NDArray[np.bool_]:
    """Which rows keep all rules; of rows that may not be alike the first, if they are
    looked at `across_rows`.
    """
    declared = {column.name: column for column in schema.columns}
    keeps = np.ones(len(frame), dtype=np.bool_)
    for rule in sorted(schema.rules, key=lambda rule: bool(rule.unique)):
        if not rule.unique:
            keeps &= rule.rows_that_keep(frame, declared)
        elif across_rows:
            keeps[keeps] = rule.rows_that_keep(frame[keeps], declared)
    return keeps


def keeping(
    n: int,
    draw: Callable[[int], pd.DataFrame],
    schema: Schema,
) -> pd.DataFrame:
    """`n` rows that keep the rules, of what `draw` draws; `attrs["kept"]`: their share.
    Too few → ConfigError.
    """
    not_negative(n=n)
    _check_room(n, schema)
    rows = draw(n)
    n_tried = n
    attributes = rows.attrs
    rows = rows[all_keep(schema, rows)]
    while len(rows) < n:
        share = len(rows) / n_tried
        if n_tried >= MOST_DRAWS or (n_tried >= _FIRST and share * MOST_DRAWS < n / 2):
            raise ConfigError(
                f"{len(rows):,} of {n_tried:,} draws keep the rules {_listed(schema)}: "
                f"{n:,} rows would take too long.",
                effect=Effect.NOTHING_SAMPLED,
            )
        n_draws = math.ceil(1.1 * (n - len(rows)) / share) if share else _FIRST
        n_draws = min(_AT_ONCE, max(64, n_draws))
        rows = pd.concat([rows, draw(n_draws)], ignore_index=True)
        rows = rows[all_keep(schema, rows)]
        n_tried = n_tried + n_draws
    rows = rows.iloc[:n].reset_index(drop=True)
    kept_share = 1.0 if n_tried == n else len(rows) / n_tried
    rows.attrs |= attributes | {"kept": kept_share}
    return rows


def refilled(
    schema: Schema,
    filled: pd.DataFrame,
    refill: Callable[[NDArray[np.int64]], pd.DataFrame],
    *,
    must: bool = True,
) -> pd.DataFrame:
    """Rows that were filled, those that break a rule filled by `refill`; in vain →
    ConfigError, unless it `must` not be.
    """
    for _ in range(_TRIES):
        wrong = np.flatnonzero(~all_keep(schema, filled, across_rows=False))
        if not len(wrong):
            return filled
        other = refill(wrong)
        changed = filled.copy()
        for name in changed.columns:
            column = changed[name].copy()
            column.iloc[wrong] = other[name].to_numpy()
            changed[name] = column
        filled = changed
    if not must:
        return filled
    raise ConfigError(
        f"row {wrong[0] + 1:,}: nothing was found that goes with what is known of it "
        f"and keeps the rules {_listed(schema)}.",
        effect=Effect.NOTHING_SAMPLED,
    )


def _check_room(n: int, schema: Schema) -> None:
    """ConfigError where columns that are unique together have fewer values than rows
    are asked for.
    """
    for rule in schema.rules:
        room = 1.0
        for name in rule.unique:
            room *= _values(schema.column(name))
        if rule.unique and room < n:
            raise ConfigError(
                f"{n:,} rows cannot differ in {', '.join(rule.unique)}, which have "
                f"{room:,.0f} values together.",
                effect=Effect.NOTHING_SAMPLED,
            )


def _values(column: Column) -> float:
    if not isinstance(column, Binned):
        return column.size
    if column.edges.dtype.kind != "i":
        return math.inf
    return float(column.edges[-1] - column.edges[0]) + column.nullable


def _listed(schema: Schema) -> str:
    quoted: Sequence[str] = [f'"{rule}"' for rule in schema.rules]
    return ", ".join(quoted[:4]) + (", …" if len(quoted) > 4 else "")


# Whether there is such a row


def possible(conditions: Sequence[Condition], levels: Levels) -> bool:
    """Whether some row meets all of them. TooManyError where that takes too long to
    find out.
    """
    question = Question.from_condition(And(tuple(conditions)), levels)
    pieces = pieces_of(question, levels)
    return any(
        _has_row(box, orders, pieces, levels) for box, orders in question.leaves(_STEPS)
    )


def _has_row(
    box: Box,
    orders: Orders,
    pieces: Pieced,
    levels: Levels,
) -> bool:
    """Whether a row of the box keeps the orders that are so, and breaks those that are
    not.
    """
    allowed = {
        j: box.get(j, np.ones(len(column_pieces.level))) > 0
        for j, column_pieces in pieces.items()
    }
    pairs = {order: pair_of(order, levels.schema) for order in orders}
    needed = {j for order, is_so in orders.items() if not is_so for j in pairs[order]}
    missing = {
        j
        for j, column_pieces in pieces.items()
        if not allowed[j][: column_pieces.there].any()
    } - needed
    below: _Below = {}
    for order, is_so in orders.items():
        small, large = (
            pairs[order]
            if (order.order in ("<", "<=")) == is_so
            else pairs[order][::-1]
        )
        if not {small, large} & missing:  # of what is missing an order says nothing
            strict = (order.order in ("<", ">")) == is_so
            below[small, large] = below.get((small, large), False) or strict
    if _circle(below):
        return False
    values = {
        j: _lowest_value(-math.inf, allowed[j], pieces[j])
        for j in {j for pair in below for j in pair}
    }
    return _come_to_rest(values, below, {j: (allowed[j], pieces[j]) for j in values})


def _come_to_rest(
    values: dict[int, float | None],
    below: _Below,
    allowed_pieces: Mapping[int, tuple[Mask, Pieces]],
) -> bool:
    """Whether values that rise as the orders need come to rest before a column has none
    left.
    """
    changed = True
    while changed:
        changed = False
        for (small, large), strict in below.items():
            first = values[small]
            second = values[large]
            if first is None or second is None:
                return False
            minimum = (
                math.floor(first) + 1
                if strict and _whole(allowed_pieces[large][1])
                else first
            )
            if second < minimum:
                values[large], changed = (
                    _lowest_value(minimum, *allowed_pieces[large]),
                    True,
                )
    return None not in values.values()


def _lowest_value(
    bound: float,
    allowed: Mask,
    pieces: Pieces,
) -> float | None:
    """The least value of the pieces that are allowed, from a bound on."""
    begins = np.arange(pieces.there) if pieces.edges is None else pieces.edges[:-1]
    ends = begins + 1 if pieces.edges is None else pieces.edges[1:]
    if _whole(pieces) and bound > -math.inf:
        bound = math.ceil(bound)
    indices = np.flatnonzero(allowed[: pieces.there] & (ends > bound))
    return max(float(begins[indices[0]]), bound) if len(indices) else None


def _whole(pieces: Pieces) -> bool:
    return pieces.edges is None or pieces.edges.dtype.kind == "i"


def _circle(below: _Below) -> bool:
    """Whether some column would be below itself."""
    reach = dict(below)
    names = {j for pair in below for j in pair}
    for middle, first, last in product(names, repeat=3):
        if (first, middle) in reach and (middle, last) in reach:
            strict = reach[first, middle] or reach[middle, last]
            reach[first, last] = reach.get((first, last), False) or strict
    return any(reach.get((j, j), False) for j in names)
