"""Public rules (`data.rules`) as boxes: what they leave of a model, in closed form.

Rules that have no column in common leave boxes that have none in common either. So
rules are taken in groups that share columns, also by others (`tied`): a fit has each
group by itself (`rule_ties`), an answer all together (`rule_boxes`).

An order between two columns is a box for each piece of the one (of a column with very
many pieces, for each level): of the other it allows each piece as far as its values
stand in that order, values being even in it. Two orders that share a column are taken
as independent where the same piece leaves both open.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.answers.question import Box, Levels, Orders, Question
from understudy.data.column import Real
from understudy.data.conditions import And, Condition, Order, columns, tests
from understudy.data.encoding.values import Pieced, Pieces
from understudy.data.schema import Schema
from understudy.models.tables.given_rules import Tie

# boxes, their pieces, and how many rules are left out
Boxed = tuple[list[Box], Pieced, int]
_FITTED = 256  # boxes of a group of rules that a fit takes at most
_MAX_PARTS = 128  # pieces that an order tells apart


def rule_boxes(
    levels: Levels,
    limit: int,
    first: Sequence[str] = (),
    condition: Condition | None = None,
) -> Boxed:
    """Rules that speak of single rows as at most so many boxes, the pieces of these,
    and how many rules are left out. Rules on the columns in `first` come first. What
    takes too many boxes is left out, and to drawing. `condition` has to be met besides;
    by itself it does not take more boxes. Where that cannot be, there are none.
    """
    demands = conditions(levels.schema)
    if condition is not None:
        demands = [condition, *demands]

    def rank(group: list[Condition]) -> tuple[bool, bool]:
        on_first = set(first) & set(columns(And(tuple(group))))
        return condition not in group, not on_first

    boxes: list[Box] = [{}]
    pieces: dict[int, Pieces] = {}
    left_out = 0
    for group in sorted(tied(demands), key=rank):
        if not boxes:
            return [], {}, 0
        group_boxes, its_pieces, more = _boxes(group, levels, limit // len(boxes))
        boxes = [{**box, **other} for box in boxes for other in group_boxes]
        left_out = left_out + more
        pieces |= its_pieces
    return boxes, pieces, left_out


def rule_ties(levels: Levels) -> list[Tie]:
    """The same as ties between columns, for a fit: as far as each group of rules alone
    is not too much.
    """
    ties = []
    for group in tied(conditions(levels.schema)):
        boxes, pieces, _ = _boxes(group, levels, _FITTED)
        columns_tied = sorted(set().union(*boxes))
        if columns_tied:
            allowed = [
                _by_level(
                    j,
                    boxes,
                    pieces[j],
                    levels.sizes[j],
                )
                for j in columns_tied
            ]
            ties.append(Tie(tuple(columns_tied), tuple(allowed)))
    return ties


def _by_level(
    j: int,
    boxes: Sequence[Box],
    pieces: Pieces,
    size: int,
) -> Tensor:
    """How far each box allows each level of a column: (boxes, levels)."""
    everything = np.ones(len(pieces.level))
    masks = [box.get(j, everything) for box in boxes]
    allowed_pieces = torch.from_numpy(np.stack(masks) * pieces.share)
    level = torch.from_numpy(pieces.level.astype(np.int64))
    allowed = torch.zeros(len(boxes), size, dtype=torch.float64)
    return allowed.index_add_(1, level, allowed_pieces)


def _boxes(
    rules: Sequence[Condition],
    levels: Levels,
    limit: int,
) -> Boxed:
    """Rules that have columns in common as at most so many boxes, their pieces, and how
    many rules are left out.
    """
    boxes = _at_most_boxes(rules, levels, limit)
    included = list(rules)
    if boxes is None:
        boxes, included = _add_while_few(rules, levels, limit)
    condition_of_all = And(tuple(included)) if included else None
    question = Question.from_condition(condition_of_all, levels)
    left_out = len(rules) - len(included)
    return boxes, pieces_of(question, levels), left_out


def _add_while_few(
    rules: Sequence[Condition],
    levels: Levels,
    limit: int,
) -> tuple[list[Box], list[Condition]]:
    """Rule after rule, each that leaves at most so many boxes."""
    boxes: list[Box] = [{}]
    included: list[Condition] = []
    for condition in rules:
        more = [*included, condition]
        more_boxes = _at_most_boxes(more, levels, limit)
        if more_boxes is not None:
            boxes = more_boxes
            included = more
    return boxes, included


def _at_most_boxes(
    rules: Sequence[Condition],
    levels: Levels,
    limit: int,
) -> list[Box] | None:
    """The boxes that rules leave together; None where they are more."""
    question = Question.from_condition(And(tuple(rules)), levels)
    pieces = pieces_of(question, levels)

    def in_order(box: Box, orders: Orders) -> list[Box]:
        boxes = [box]
        for order, is_so in orders.items():
            order_boxes = _order_boxes(
                order,
                is_so,
                pieces,
                levels.schema,
            )
            both = [_intersect(a, b) for a in boxes for b in order_boxes]
            boxes = [box for box in both if box is not None]
        return boxes

    return question.boxes(limit, in_order)


def pieces_of(question: Question, levels: Levels) -> dict[int, Pieces]:
    """Of all columns that a condition speaks of, those that it compares with others
    too.
    """
    if question.condition is None:
        return dict(question.pieces)
    compared = set[int]()
    for test in tests(question.condition):
        if isinstance(test, Order):
            compared.update(pair_of(test, levels.schema))
    pieces = {j: levels.pieces(j) for j in compared}
    return pieces | dict(question.pieces)


def pair_of(order: Order, schema: Schema) -> tuple[int, int]:
    left = schema.names.index(order.column)
    right = schema.names.index(order.other)
    return left, right


# Orders between two columns


def _allowed(
    order: Order,
    left: Pieces,
    right: Pieces,
) -> NDArray[np.float64]:
    """How far each part of the right column stands in the order to each of the left,
    values even in them: 0 to 1.
    """
    steps = (
        isinstance(left.column, Real)
        and isinstance(right.column, Real)
        and left.column.decimals == right.column.decimals
    )
    left_spans = _spans(left, steps=steps)
    right_spans = _spans(right, steps=steps)
    strict = order.order in (">", "<")
    if order.order in (">", ">="):
        share = _at_most(right_spans, left_spans, strict=strict).T
    else:
        share = _at_most(left_spans, right_spans, strict=strict)
    # whatever is missing is allowed
    n_missing = [int(pieces.column.nullable) for pieces in (left, right)]
    padding = [(0, n) for n in n_missing]
    return np.pad(share, padding, constant_values=1.0)


def _parts(pieces: Pieces) -> NDArray[np.integer]:
    """The part that each piece is in: itself, or its level where they are many."""
    if len(pieces.level) > _MAX_PARTS:
        return pieces.level
    return np.arange(len(pieces.level))


# where parts begin and end; whether they are whole
_Spans = tuple[NDArray[np.float64], NDArray[np.float64], bool]


def _spans(pieces: Pieces, *, steps: bool = False) -> _Spans:
    """Where each part with values begins and ends; `steps`: numbers of so many decimals
    are whole, in the last.
    """
    parts = _parts(pieces)[: pieces.there]
    n_parts = int(parts.max()) + 1
    begins, ends, whole = _piece_spans(pieces, steps=steps)
    low = np.full(n_parts, np.inf)
    high = np.full(n_parts, -np.inf)
    np.minimum.at(low, parts, begins)
    np.maximum.at(high, parts, ends)
    return low, high, whole


def _piece_spans(
    pieces: Pieces,
    *,
    steps: bool,
) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """Where each piece with values begins and ends, and whether its values are
    whole.
    """
    column = pieces.column
    if pieces.edges is None:
        positions = np.arange(pieces.there)
        return positions, positions, True
    if steps and isinstance(column, Real) and column.decimals is not None:
        begins, ends = column.steps(pieces.edges)
        return begins, np.maximum(begins, ends), True
    begins = pieces.edges[:-1]
    ends = pieces.edges[1:]
    if pieces.edges.dtype.kind == "i":
        return begins, ends - 1, True
    return begins, ends, False


def _at_most(
    left: _Spans,
    right: _Spans,
    *,
    strict: bool,
) -> NDArray[np.float64]:
    """The chance that a value of a level of the left is at most (below, if strict) one
    of the right: (left, right).
    """
    low, high, whole = left
    right_low, right_high, right_whole = right
    low = low[:, None]
    high = high[:, None]
    if whole and right_whole:
        step = 1 if strict else 0
        return _whole_at_most(
            low,
            high,
            right_low - step,
            right_high - step,
        )
    margin = 0.5 if whole else 0.0
    right_margin = 0.5 if right_whole else 0.0
    return _even_at_most(
        low - margin,
        high + margin,
        right_low - right_margin,
        right_high + right_margin,
    )


def _even_at_most(
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    right_low: NDArray[np.float64],
    right_high: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The chance that the first of two numbers, even in these spans, is at most the
    second.
    """
    right_width = np.maximum(right_high - right_low, 1e-300)

    # ∫ of the share of the right above it, up to x
    def integral(x: NDArray[np.float64]) -> NDArray[np.float64]:
        inner = np.clip(x, right_low, right_high)
        triangle = (right_high - inner) ** 2 / (2 * right_width)
        below = np.minimum(x, right_low)
        return np.asarray(below + right_width / 2 - triangle)

    width = np.maximum(high - low, 1e-300)
    share = (integral(high) - integral(low)) / width
    chance = np.where(high <= right_low, 1.0, share.clip(0, 1))
    return np.where(low >= right_high, 0.0, chance)


def _whole_at_most(
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    right_low: NDArray[np.float64],
    right_high: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The share of pairs of whole numbers of which the first is at most the second."""
    width = high - low + 1
    right_width = right_high - right_low + 1
    # all of the right are above
    last_below = np.minimum(high, right_low - 1)
    n_below = (last_below - low + 1).clip(min=0)
    first = np.maximum(low, right_low)
    last = np.minimum(high, right_high)
    n_inside = (last - first + 1).clip(min=0)
    above_first = right_high - first + 1
    above_last = right_high - last + 1
    pairs_inside = n_inside * (above_first + above_last) / 2
    pairs = n_below * right_width + pairs_inside
    return np.asarray(pairs / (width * right_width))


def _order_boxes(
    order: Order,
    is_so: bool,
    pieces: Pieced,
    schema: Schema,
) -> list[Box]:
    """A box for each part of the one column in which the other can stand in the order,
    or against it.
    """
    left, right = pair_of(order, schema)
    allowed = _allowed(order, pieces[left], pieces[right])
    if not is_so:
        allowed = 1 - allowed
    left_parts = _parts(pieces[left])
    right_parts = _parts(pieces[right])
    boxes: list[Box] = []
    for part, right_share in enumerate(allowed):
        if right_share.any():
            box = {left: left_parts == part, right: right_share[right_parts]}
            boxes.append(box)
    return boxes


def _intersect(left: Box, right: Box) -> Box | None:
    """What lies in both boxes; None where nothing does."""
    box = dict(left)
    for j, mask in right.items():
        if j in box:
            mask = box[j] * mask
        if not mask.any():
            return None
        box[j] = mask
    return box


# Rules by their form


def conditions(schema: Schema) -> list[Condition]:
    """Of rules that speak of single rows."""
    of_rules = [rule.condition for rule in schema.rules]
    return [condition for condition in of_rules if condition is not None]


def tied(conditions: Sequence[Condition]) -> list[list[Condition]]:
    """Those that speak of common columns, also by others, together: what contradicts
    each other does.
    """
    groups: list[tuple[set[str], list[Condition]]] = []
    for condition in conditions:
        names = set(columns(condition))
        group = [condition]
        others = []
        for other_names, other_group in groups:
            if names & other_names:
                names = names | other_names
                group = other_group + group
            else:
                others.append((other_names, other_group))
        groups = [*others, (names, group)]
    return [group for _, group in groups]
