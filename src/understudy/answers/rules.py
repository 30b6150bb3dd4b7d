"""Public rules (`data.rules`) held against a model: which cells no row can have, and rows that keep them all.

A model that was fitted to noisy tables gives a little weight to rows that no rule allows. So every answer is given the
rules. Rows are drawn and kept where they keep them, so that a row has the model's law given the rules; tables and
predictions have their closed form, on boxes as of any condition. An order between two columns is a box for each level
of the one: of the other it allows each level as far as its values stand in that order, if values are even in a level.

Edges: rules that contradict each other, or that leave nothing → ConfigError, before anything is drawn or paid for.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.answers.question import Box, Levels, Question
from understudy.check import not_negative
from understudy.data.codec import Codec
from understudy.data.column import Binned, Categorical, Column
from understudy.data.conditions import And, Condition, Not, Order, columns, parse, tests
from understudy.data.pieces import Pieces
from understudy.data.rules import read_rules
from understudy.data.schema import Schema
from understudy.errors import ConfigError

MOST_DRAWS = 1 << 22
_FIRST = 1 << 14  # draws after which it is seen whether some keep the rules
_AT_ONCE = 1 << 17
_TRIES = 100  # to fill a row so that it keeps the rules
_BOXES = 1 << 10  # looked at to find a contradiction


def check_rules(schema: Schema) -> None:
    """ConfigError where no row can keep all rules, or where what one of them speaks of cannot be."""
    levels, plain = Codec(schema), _plain(schema)
    _check_orders(schema)
    for together in _tied(plain):
        if Question.of(And(tuple(together)), levels).boxes(_BOXES) == []:
            raise ConfigError(
                f"no row keeps all rules: {_listed(schema)} leave nothing. Nothing was drawn or charged."
            )
    for rule in schema.rules:
        if not rule.when or _has_order(when := parse(rule.when, orders=True)):
            continue
        together = next(some for some in _tied([when, *plain]) if when in some)
        if Question.of(And(tuple(together)), levels).boxes(_BOXES) == []:
            raise ConfigError(
                f'rules contradict each other: with {_listed(schema)} no row can meet "{rule.when}". '
                "Nothing was drawn or charged."
            )


def _tied(conditions: Sequence[Condition]) -> list[list[Condition]]:
    """Those that speak of common columns, also by others, together: what contradicts each other does."""
    groups: list[tuple[set[str], list[Condition]]] = []
    for condition in conditions:
        own, some = set(columns(condition)), [condition]
        apart = []
        for names, others in groups:
            if names & own:
                own, some = own | names, others + some
            else:
                apart.append((names, others))
        groups = [*apart, (own, some)]
    return [some for _, some in groups]


def with_rules(schema: Schema, more: Iterable[Any] = ()) -> Schema:
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
            **{name: _replaced(filled[name], wrong, other[name]) for name in map(str, filled.columns)}
        )
    raise ConfigError(
        f"row {wrong[0] + 1:,}: nothing was found that goes with what is known of it and keeps the rules "
        f"{_listed(schema)}. Nothing was drawn."
    )


def _replaced(
    values: "pd.Series[Any]", places: NDArray[np.int64], others: "pd.Series[Any]"
) -> "pd.Series[Any]":
    changed = values.copy()
    changed.iloc[places] = others.to_numpy()
    return changed


def rule_boxes(
    levels: Levels, most: int, first: Sequence[str] = ()
) -> tuple[list[Box], Mapping[int, Pieces], int]:
    """Rules that speak of single rows as at most so many boxes, the pieces of these, and how many rules are left out.

    Rules on the columns in `first` come first. What takes too many boxes, or ties an order between columns to something
    else, is left out, and to drawing.
    """
    schema = levels.schema
    question = Question.of(And(tuple(_plain(schema))) if _plain(schema) else None, levels)
    pieces = dict(question.pieces)
    for order in _orders(schema):
        pieces |= {j: pieces.get(j) or levels.pieces(j) for j in _pair(order, schema)}
    wanted: list[Condition] = [*_plain(schema), *_orders(schema)]
    wanted.sort(key=lambda condition: not set(first) & set(columns(condition)))
    found: list[Box] = [{}]
    left_out = sum(rule.condition is not None for rule in schema.rules) - len(wanted)
    for condition in wanted:
        if isinstance(condition, Order):
            own: list[Box] | None = _order_boxes(condition, *_pair(condition, schema), pieces, levels)
        else:
            own = replace(question, condition=condition).boxes(most)
        if own is None or len(found) * len(own) > most:
            left_out += 1
            continue
        found = [box for one in found for other in own if (box := _times(one, other)) is not None]
    return found, pieces, left_out


def _pair(order: Order, schema: Schema) -> tuple[int, int]:
    """The two columns by number."""
    return schema.names.index(order.column), schema.names.index(order.other)


def structural_zeros(levels: Levels) -> Tensor | None:
    """Which cells of the Gram matrix no row that keeps the rules adds to, (width, width); None without rules."""
    schema, ends = levels.schema, np.cumsum(levels.sizes)
    if not schema.rules:
        return None
    starts = ends - np.array(levels.sizes)
    zero = np.zeros((ends[-1], ends[-1]), dtype=np.bool_)
    for condition in _plain(schema):
        if len(columns(condition)) > 2:
            continue
        question = Question.of(Not(condition), levels)
        for box in question.boxes(_BOXES) or ():
            each = {j: _full(mask, question.pieces[j]) for j, mask in box.items()}
            one, *other = [starts[j] + np.flatnonzero(mask) for j, mask in each.items()]
            zero[np.ix_(one, *other or [np.arange(ends[-1])])] = True
    for order in _orders(schema):
        a, b = _pair(order, schema)
        zero[starts[a] : ends[a], starts[b] : ends[b]] |= _allowed(order, a, b, levels) == 0
    return torch.from_numpy(_with_impossible_levels(zero | zero.T, levels.sizes))


def _with_impossible_levels(zero: NDArray[np.bool_], sizes: Sequence[int]) -> NDArray[np.bool_]:
    """Also all cells of a level that goes with no level of some other column."""
    column = np.repeat(np.arange(len(sizes)), sizes)
    own = column[:, None] == np.arange(len(sizes))  # (width, columns)
    while True:
        full = (zero.astype(np.int64) @ own == np.array(sizes)) & ~own
        dead = full.any(1) & ~zero.all(1)
        if not dead.any():
            return zero
        zero = zero | dead[:, None] | dead


# Orders between two columns


def _allowed(order: Order, a: int, b: int, levels: Levels) -> NDArray[np.float64]:
    """How far each level of `b` stands in the order to each level of `a`: (levels a, levels b), 0 to 1.

    Of values that are even within their levels. Of what is missing an order says nothing.
    """
    one, other = _spans(levels, a), _spans(levels, b)
    if order.order in (">", ">="):
        part = _at_most(other, one, strict=order.order == ">").T
    else:
        part = _at_most(one, other, strict=order.order == "<")
    cells = np.ones((levels.sizes[a], levels.sizes[b]))
    cells[: part.shape[0], : part.shape[1]] = part
    return cells


_Spans = tuple[
    NDArray[np.float64], NDArray[np.float64], bool
]  # where levels begin and end; whether they are whole


def _spans(levels: Levels, j: int) -> _Spans:
    """Where each level with values begins and ends; of whole numbers and categories the first and the last."""
    pieces = levels.pieces(j)
    there, size = pieces.there, levels.sizes[j] - pieces.column.nullable
    whole = pieces.edges is None or pieces.edges.dtype.kind == "i"
    begins = np.arange(there) if pieces.edges is None else pieces.edges[:-1]
    ends = np.arange(there) if pieces.edges is None else pieces.edges[1:] - (1 if whole else 0)
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, pieces.level[:there], begins)
    np.maximum.at(high, pieces.level[:there], ends)
    return low, high, whole


def _at_most(one: _Spans, other: _Spans, *, strict: bool) -> NDArray[np.float64]:
    """The chance that a value of a level of the one is at most (below, if strict) one of the other: (one, other)."""
    (a, z, whole), (low, high, also) = one, other
    a, z = a[:, None], z[:, None]
    if whole and also:
        if strict:
            low, high = low - 1, high - 1
        width = high - low + 1
        below = (np.minimum(z, low - 1) - a + 1).clip(min=0) * width  # pairs: all of the other are above
        first, last = np.maximum(a, low), np.minimum(z, high)
        inside = (last - first + 1).clip(min=0)
        pairs = below + inside * ((high - first + 1) + (high - last + 1)) / 2
        return np.asarray(pairs / ((z - a + 1) * width))
    (a, z), (low, high) = ((x - 0.5 * w, y + 0.5 * w) for x, y, w in ((a, z, whole), (low, high, also)))
    width = np.maximum(high - low, 1e-300)

    def heap(x: NDArray[np.float64]) -> NDArray[np.float64]:  # ∫ of the share of the other above it, up to x
        inner = np.clip(x, low, high)
        return np.asarray(np.minimum(x, low) + width / 2 - (high - inner) ** 2 / (2 * width))

    part = (heap(z) - heap(a)) / np.maximum(z - a, 1e-300)
    return np.where(a >= high, 0.0, np.where(z <= low, 1.0, part.clip(0, 1)))


def _order_boxes(order: Order, a: int, b: int, pieces: Mapping[int, Pieces], levels: Levels) -> list[Box]:
    allowed = _allowed(order, a, b, levels)
    return [
        {a: pieces[a].level == level, b: allowed[level][pieces[b].level]}
        for level in range(levels.sizes[a])
        if allowed[level].any()
    ]


def _times(one: Box, other: Box) -> Box | None:
    """What both allow."""
    box = dict(one)
    for j, mask in other.items():
        box[j] = box[j] * mask if j in box else mask
        if not box[j].any():
            return None
    return box


def _check_orders(schema: Schema) -> None:
    """ConfigError where orders run in a circle, or the declared bounds leave none of their values."""
    reach: dict[tuple[str, str], bool] = {}  # the first is at most the second; whether it is below it
    for order in _orders(schema):
        small, large = order.column, order.other
        if order.order in (">", ">="):
            small, large = large, small
        strict = order.order in ("<", ">")
        least, most = _bounds(schema.column(small))[0], _bounds(schema.column(large))[1]
        if least > most or (strict and least == most):
            raise ConfigError(
                f'the declared bounds leave no row in which "{order.column} {order.order} {order.other}". '
                "Nothing was drawn or charged."
            )
        reach[small, large] = reach.get((small, large), False) or strict
    names = {name for both in reach for name in both}
    for middle in names:
        for first in names:
            for last in names:
                if (first, middle) in reach and (middle, last) in reach:
                    strict = reach[first, middle] or reach[middle, last]
                    reach[first, last] = reach.get((first, last), False) or strict
    if circle := sorted(name for name in names if reach.get((name, name), False)):
        raise ConfigError(
            f"rules contradict each other: by {_listed(schema)} a value of {circle[0]} would be below itself. "
            "Nothing was drawn or charged."
        )


def _bounds(column: Column) -> tuple[float, float]:
    if isinstance(column, Binned):
        return float(column.edges[0]), float(column.edges[-1] - (column.edges.dtype.kind == "i"))
    assert isinstance(column, Categorical)
    return 0.0, float(len(column.categories) - 1)


# Rules by their form


def _plain(schema: Schema) -> list[Condition]:
    """What holds in every row, as far as it compares columns with values alone."""
    found = [rule.condition for rule in schema.rules if rule.condition is not None]
    return [condition for condition in found if not _has_order(condition)]


def _orders(schema: Schema) -> list[Order]:
    """Orders between two columns that hold in every row."""
    return [rule.condition for rule in schema.rules if isinstance(rule.condition, Order)]


def _has_order(condition: Condition) -> bool:
    return any(isinstance(test, Order) for test in tests(condition))


def _full(mask: NDArray[np.bool_], pieces: Pieces) -> NDArray[np.bool_]:
    """The levels that a mask of pieces holds as a whole."""
    return np.asarray(np.bincount(pieces.level, weights=mask) == np.bincount(pieces.level))


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
