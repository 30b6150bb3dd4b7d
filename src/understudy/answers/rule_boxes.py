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
_FEW = 128  # pieces that an order tells apart


def rule_boxes(
    levels: Levels, most: int, first: Sequence[str] = (), also: Condition | None = None
) -> Boxed:
    """Rules that speak of single rows as at most so many boxes, the pieces of these,
    and how many rules are left out. Rules on the columns in `first` come first. What
    takes too many boxes is left out, and to drawing. `also` has to be met besides; by
    itself it does not take more boxes. Where that cannot be, there are none.
    """
    groups = tied(([] if also is None else [also]) + conditions(levels.schema))
    groups.sort(
        key=lambda some: (
            also not in some,
            not set(first) & set(columns(And(tuple(some)))),
        )
    )
    found: list[Box] = [{}]
    pieces: dict[int, Pieces] = {}
    left_out = 0
    for some in groups:
        if not found:
            return [], {}, 0
        own, its_pieces, left = _boxes(some, levels, most // len(found))
        found = [{**box, **other} for box in found for other in own]
        left_out = left_out + left
        pieces |= its_pieces
    return found, pieces, left_out


def rule_ties(levels: Levels) -> list[Tie]:
    """The same as ties between columns, for a fit: as far as each group of rules alone
    is not too much.
    """
    found = []
    for some in tied(conditions(levels.schema)):
        boxes, pieces, _ = _boxes(some, levels, _FITTED)
        places = sorted({j for box in boxes for j in box})
        if places:
            allowed = (_by_level(j, boxes, pieces[j], levels.sizes[j]) for j in places)
            found.append(Tie(tuple(places), tuple(allowed)))
    return found


def _by_level(j: int, boxes: Sequence[Box], pieces: Pieces, size: int) -> Tensor:
    """How far each box allows each level of a column: (boxes, levels)."""
    allowed = (
        np.stack([box.get(j, np.ones(len(pieces.level))) for box in boxes])
        * pieces.share
    )
    sums = torch.zeros(len(boxes), size, dtype=torch.float64)
    return sums.index_add_(
        1, torch.from_numpy(pieces.level.astype(np.int64)), torch.from_numpy(allowed)
    )


def _boxes(some: Sequence[Condition], levels: Levels, most: int) -> Boxed:
    """Rules that have columns in common as at most so many boxes, their pieces, and how
    many rules are left out.
    """
    found = _at_most_boxes(some, levels, most)
    kept = list(some)
    if found is None:
        found = [{}]
        kept = []
        for condition in some:
            more = _at_most_boxes([*kept, condition], levels, most)
            if more is not None:
                found = more
                kept = [*kept, condition]
    question = Question.from_condition(And(tuple(kept)) if kept else None, levels)
    return found, pieces_of(question, levels), len(some) - len(kept)


def _at_most_boxes(
    some: Sequence[Condition], levels: Levels, most: int
) -> list[Box] | None:
    question = Question.from_condition(And(tuple(some)), levels)
    pieces = pieces_of(question, levels)

    def in_order(box: Box, orders: Orders) -> list[Box]:
        own = [box]
        for order, is_so in orders.items():
            others = _order_boxes(order, is_so, pieces, levels.schema)
            own = [
                one for a in own for b in others if (one := _times(a, b)) is not None
            ]
        return own

    return question.boxes(most, in_order)


def pieces_of(question: Question, levels: Levels) -> dict[int, Pieces]:
    """Of all columns that a condition speaks of, those that it compares with others
    too.
    """
    orders = [] if question.condition is None else tests(question.condition)
    both = {
        j
        for order in orders
        if isinstance(order, Order)
        for j in pair_of(order, levels.schema)
    }
    return {j: levels.pieces(j) for j in both} | dict(question.pieces)


def pair_of(order: Order, schema: Schema) -> tuple[int, int]:
    return schema.names.index(order.column), schema.names.index(order.other)


# Orders between two columns


def _allowed(order: Order, one: Pieces, other: Pieces) -> NDArray[np.float64]:
    """How far each part of the other column stands in the order to each of the one,
    values even in them: 0 to 1.
    """
    same = [
        column.decimals
        for column in (one.column, other.column)
        if isinstance(column, Real)
    ]
    a, b = (
        _spans(pieces, steps=len(same) == 2 and same[0] == same[1])
        for pieces in (one, other)
    )
    if order.order in (">", ">="):
        found = _at_most(b, a, strict=order.order == ">").T
    else:
        found = _at_most(a, b, strict=order.order == "<")
    cells = np.ones(
        (len(a[0]) + one.column.nullable, len(b[0]) + other.column.nullable)
    )
    cells[: len(a[0]), : len(b[0])] = found
    return cells


def _parts(pieces: Pieces) -> NDArray[np.integer]:
    return np.arange(len(pieces.level)) if len(pieces.level) <= _FEW else pieces.level


# where parts begin and end; whether they are whole
_Spans = tuple[NDArray[np.float64], NDArray[np.float64], bool]


def _spans(pieces: Pieces, *, steps: bool = False) -> _Spans:
    """Where each part with values begins and ends; `steps`: numbers of so many decimals
    are whole, in the last.
    """
    there = pieces.there
    parts = _parts(pieces)[: pieces.there]
    column = pieces.column
    whole = pieces.edges is None or pieces.edges.dtype.kind == "i"
    begins = np.arange(there) if pieces.edges is None else pieces.edges[:-1]
    ends = (
        np.arange(there)
        if pieces.edges is None
        else pieces.edges[1:] - (1 if whole else 0)
    )
    if (
        steps
        and isinstance(column, Real)
        and column.decimals is not None
        and pieces.edges is not None
    ):
        (begins, ends), whole = column.steps(pieces.edges), True
        ends = np.maximum(begins, ends)
    low = np.full(int(parts.max()) + 1, np.inf)
    high = np.full(int(parts.max()) + 1, -np.inf)
    np.minimum.at(low, parts, begins)
    np.maximum.at(high, parts, ends)
    return low, high, whole


def _at_most(one: _Spans, other: _Spans, *, strict: bool) -> NDArray[np.float64]:
    """The chance that a value of a level of the one is at most (below, if strict) one
    of the other: (one, other).
    """
    (a, z, whole), (low, high, also) = one, other
    a = a[:, None]
    z = z[:, None]
    if whole and also:
        if strict:
            low = low - 1
            high = high - 1
        width = high - low + 1
        # pairs: all of the other are above
        below = (np.minimum(z, low - 1) - a + 1).clip(min=0) * width
        first = np.maximum(a, low)
        last = np.minimum(z, high)
        inside = (last - first + 1).clip(min=0)
        pairs = below + inside * ((high - first + 1) + (high - last + 1)) / 2
        return np.asarray(pairs / ((z - a + 1) * width))
    (a, z), (low, high) = (
        (x - 0.5 * w, y + 0.5 * w) for x, y, w in ((a, z, whole), (low, high, also))
    )
    width = np.maximum(high - low, 1e-300)

    # ∫ of the share of the other above it, up to x
    def heap(x: NDArray[np.float64]) -> NDArray[np.float64]:
        inner = np.clip(x, low, high)
        return np.asarray(
            np.minimum(x, low) + width / 2 - (high - inner) ** 2 / (2 * width)
        )

    part = (heap(z) - heap(a)) / np.maximum(z - a, 1e-300)
    return np.where(a >= high, 0.0, np.where(z <= low, 1.0, part.clip(0, 1)))


def _order_boxes(
    order: Order, is_so: bool, pieces: Pieced, schema: Schema
) -> list[Box]:
    """A box for each part of the one column in which the other can stand in the order,
    or against it.
    """
    a, b = pair_of(order, schema)
    allowed = _allowed(order, pieces[a], pieces[b])
    allowed = allowed if is_so else 1 - allowed
    one = _parts(pieces[a])
    other = _parts(pieces[b])
    return [
        {a: one == part, b: own[other]} for part, own in enumerate(allowed) if own.any()
    ]


def _times(one: Box, other: Box) -> Box | None:
    box = dict(one)
    for j, mask in other.items():
        box[j] = box[j] * mask if j in box else mask
        if not box[j].any():
            return None
    return box


# Rules by their form


def conditions(schema: Schema) -> list[Condition]:
    return [rule.condition for rule in schema.rules if rule.condition is not None]


def tied(conditions: Sequence[Condition]) -> list[list[Condition]]:
    """Those that speak of common columns, also by others, together: what contradicts
    each other does.
    """
    groups: list[tuple[set[str], list[Condition]]] = []
    for condition in conditions:
        own = set(columns(condition))
        some = [condition]
        apart = []
        for names, others in groups:
            if names & own:
                own = own | names
                some = others + some
            else:
                apart.append((names, others))
        groups = [*apart, (own, some)]
    return [some for _, some in groups]
