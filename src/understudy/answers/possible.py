"""Whether there is a row that meets some conditions at once: found out from the public schema, before anything is paid.

Of every box that meets them (`Question.leaves`) the orders between columns are looked at: each column has the least of
its values that the orders allow, given those of the others. Where a column runs out of values, or would be below
itself, the box holds no row; where none does, those values are one. Orders that could be kept only by leaving out what
may be there are taken for a contradiction.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from understudy.answers.question import Box, Levels, Orders, Question
from understudy.answers.rule_boxes import pair_of, pieces_of
from understudy.data.conditions import And, Condition
from understudy.data.encoding.values import Pieces
from understudy.data.meaning import Mask

_STEPS = 1 << 12  # to find a row, or that there is none

_Below = dict[tuple[int, int], bool]  # the first is at most the second; whether it is below it


def possible(conditions: Sequence[Condition], levels: Levels) -> bool:
    """Whether some row meets all of them. TooManyError where that takes too long to find out."""
    question = Question.of(And(tuple(conditions)), levels)
    pieces = pieces_of(question, levels)
    return any(_has_row(box, orders, pieces, levels) for box, orders in question.leaves(_STEPS))


def _has_row(box: Box, orders: Orders, pieces: Mapping[int, Pieces], levels: Levels) -> bool:
    """Whether a row of the box keeps the orders that are so, and breaks those that are not."""
    allowed = {j: box.get(j, np.ones(len(own.level))) > 0 for j, own in pieces.items()}
    both = {order: pair_of(order, levels.schema) for order in orders}
    needed = {j for order, is_so in orders.items() if not is_so for j in both[order]}
    missing = {j for j, own in pieces.items() if not allowed[j][: own.there].any()} - needed
    below: _Below = {}
    for order, is_so in orders.items():
        small, large = both[order] if (order.order in ("<", "<=")) == is_so else both[order][::-1]
        if not {small, large} & missing:  # of what is missing an order says nothing
            strict = (order.order in ("<", ">")) == is_so
            below[small, large] = below.get((small, large), False) or strict
    if _circle(below):
        return False
    values = {j: _least(-math.inf, allowed[j], pieces[j]) for j in {j for pair in below for j in pair}}
    return _settled(values, below, {j: (allowed[j], pieces[j]) for j in values})


def _settled(values: dict[int, float | None], below: _Below, each: Mapping[int, tuple[Mask, Pieces]]) -> bool:
    """Whether values that rise as the orders need come to rest before a column has none left."""
    moved = True
    while moved:
        moved = False
        for (small, large), strict in below.items():
            first, second = values[small], values[large]
            if first is None or second is None:
                return False
            least = math.floor(first) + 1 if strict and _whole(each[large][1]) else first
            if second < least:
                values[large], moved = _least(least, *each[large]), True
    return None not in values.values()


def _least(bound: float, allowed: Mask, pieces: Pieces) -> float | None:
    """The least value of the pieces that are allowed, from a bound on."""
    begins = np.arange(pieces.there) if pieces.edges is None else pieces.edges[:-1]
    ends = begins + 1 if pieces.edges is None else pieces.edges[1:]
    if _whole(pieces) and bound > -math.inf:
        bound = math.ceil(bound)
    found = np.flatnonzero(allowed[: pieces.there] & (ends > bound))
    return max(float(begins[found[0]]), bound) if len(found) else None


def _whole(pieces: Pieces) -> bool:
    return pieces.edges is None or pieces.edges.dtype.kind == "i"


def _circle(below: _Below) -> bool:
    """Whether some column would be below itself."""
    reach = dict(below)
    names = {j for pair in below for j in pair}
    for middle, first, last in _triples(names):
        if (first, middle) in reach and (middle, last) in reach:
            strict = reach[first, middle] or reach[middle, last]
            reach[first, last] = reach.get((first, last), False) or strict
    return any(reach.get((j, j), False) for j in names)


def _triples(names: Iterable[int]) -> Iterable[tuple[int, int, int]]:
    some = sorted(names)
    return ((middle, first, last) for middle in some for first in some for last in some)
