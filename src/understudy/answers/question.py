"""A condition held against a table's levels: which rows meet it, as boxes that do not
overlap.

A box allows some pieces of some columns and anything in the others. Where boxes do not
overlap, their probability under a product is a sum of products, and a row that meets
the condition is drawn by choosing a box and then each column by itself. They are found
by going through the columns, the one that is spoken of most first: pieces that leave
the same of the condition are taken together, and what is left is a condition on the
other columns.

Guarantee: all is checked against the public schema, before anything is drawn.
Edges: a condition that needs too many boxes has none (`boxes` is None), and can still
be tested row by row.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import OneOf as OneOfColumn
from understudy.data.conditions import (
    And,
    Condition,
    Not,
    OneOf,
    Or,
    Order,
    Test,
    parse,
    tests,
)
from understudy.data.encoding.codec import Codec, Codes, Uniform
from understudy.data.encoding.codec import Levels as BoughtLevels
from understudy.data.encoding.values import Pieced
from understudy.data.rules import Mask, cuts, holds
from understudy.data.schema import Schema

Levels = Codec | BoughtLevels  # how a table is written: as declared, or as bought
# column → how far each of its pieces is allowed: no, yes, or a weight in [0, 1]
Box = Mapping[int, NDArray[Any]]
Orders = Mapping[Order, bool]  # between two columns: whether it is so
Leaf = tuple[Box, Orders]
_LOOKED = 64  # steps for each box that there may be
Cuts = Mapping[int, Sequence[float]]  # columns, and where they are cut
_NOTHING_ELSE: Cuts = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Question:
    """A condition (or none), and the pieces of the columns that it speaks of."""

    condition: Condition | None
    pieces: Pieced
    place: Mapping[str, int]

    @classmethod
    def read(
        cls,
        text: str | None,
        levels: Levels,
        extra_cuts: Cuts = _NOTHING_ELSE,
    ) -> "Question":
        """The condition that a text says about a table, or an error; `extra_cuts`:
        columns wanted in pieces, and cuts.
        """
        return cls.from_condition(
            None if text is None else parse(text),
            levels,
            extra_cuts,
        )

    @classmethod
    def from_condition(
        cls,
        condition: Condition | None,
        levels: Levels,
        extra_cuts: Cuts = _NOTHING_ELSE,
    ) -> "Question":
        """The same of a condition that was read."""
        schema = levels.schema
        if condition is not None:
            condition = _of_groups(condition, schema)
        every = () if condition is None else tests(condition)
        condition_tests = [test for test in every if not isinstance(test, Order)]
        position = {
            test.column: schema.columns.index(schema.column(test.column))
            for test in condition_tests
        }
        cut_at = {
            j: list(extra_cuts.get(j, ())) for j in (*position.values(), *extra_cuts)
        }
        for test in condition_tests:
            cut_at[position[test.column]] += cuts(test, schema.column(test.column))
        return cls(
            condition,
            {j: levels.pieces(j, cut_points) for j, cut_points in cut_at.items()},
            position,
        )

    def met(self, codes: Mapping[int, NDArray[np.integer]]) -> Mask:
        """Which rows meet the condition, from the piece of each in every column that it
        speaks of.
        """
        if self.condition is None:
            return np.ones(len(next(iter(codes.values()))), dtype=np.bool_)
        return self._rows_that_meet(self.condition, codes)

    def boxes(
        self,
        limit: int,
        parts: Callable[[Box, Orders], list[Box]] = lambda box, _: [box],
    ) -> list[Box] | None:
        """At most so many boxes that do not overlap, or None; `parts`: what orders
        between columns make of one.
        """
        boxes: list[Box] = []
        try:
            for box, orders in self.leaves(_LOOKED * limit):
                boxes += parts(box, orders)
                if len(boxes) > limit:
                    return None
        except TooManyError:
            return None
        return boxes

    def leaves(self, max_steps: int) -> Iterator[Leaf]:
        """Boxes that do not overlap, each with the orders its rows keep or break.
        TooManyError after so many steps.
        """
        condition = True if self.condition is None else self.condition
        pending: list[tuple[Condition | bool, Box, Orders]] = [(condition, {}, {})]
        for _ in range(max_steps):
            if not pending:
                return
            condition, box, orders = pending.pop()
            if isinstance(condition, bool):
                if condition:
                    yield box, orders
                continue
            test_counts = Counter(
                test.column for test in tests(condition) if not isinstance(test, Order)
            )
            if test_counts:
                j = self.place[test_counts.most_common(1)[0][0]]
                pending += [
                    (rest, {**box, j: mask}, orders)
                    for rest, mask in self._split(condition, j).items()
                ]
            else:
                order = tests(condition)[0]
                assert isinstance(order, Order)
                for is_so in (False, True):
                    pending.append(
                        (
                            left_of(condition, {order: is_so}),
                            box,
                            {**orders, order: is_so},
                        )
                    )
        raise TooManyError

    def _split(self, condition: Condition, j: int) -> dict[Condition | bool, Mask]:
        """What each piece of a column leaves of a condition, and the pieces that leave
        it.
        """
        column_tests = [
            test
            for test in dict.fromkeys(tests(condition))
            if not isinstance(test, Order)
        ]
        column_tests = [test for test in column_tests if self.place[test.column] == j]
        met = np.stack(
            [holds(test, self.pieces[j]) for test in column_tests]
        )  # (tests, pieces)
        kinds, kind = np.unique(met, axis=1, return_inverse=True)
        parts: dict[Condition | bool, Mask] = {}
        for kind_number, outcomes in enumerate(kinds.T.tolist()):
            rest = left_of(condition, dict(zip(column_tests, outcomes, strict=True)))
            mask = kind.ravel() == kind_number
            parts[rest] = parts[rest] | mask if rest in parts else mask
        return parts

    def _rows_that_meet(
        self,
        condition: Condition,
        codes: Mapping[int, NDArray[np.integer]],
    ) -> Mask:
        if isinstance(condition, Not):
            return ~self._rows_that_meet(condition.part, codes)
        if isinstance(condition, And | Or):
            join = np.logical_and if isinstance(condition, And) else np.logical_or
            return np.asarray(
                join.reduce(
                    [self._rows_that_meet(part, codes) for part in condition.parts]
                )
            )
        assert not isinstance(condition, Order)
        j = self.place[condition.column]
        return np.asarray(holds(condition, self.pieces[j])[codes[j]])


def rows_of(
    piece_codes: Codes,
    pieces: Pieced,
    levels: Levels,
    rng: Uniform,
) -> pd.DataFrame:
    """A table from the pieces of some columns and the levels of the others."""
    codes = np.array(piece_codes, dtype=np.int32)
    for j, column_pieces in pieces.items():
        codes[:, j] = column_pieces.level[piece_codes[:, j]]
    frame = levels.decode(codes, rng)
    for j, column_pieces in pieces.items():
        frame[column_pieces.column.name] = column_pieces.values(
            piece_codes[:, j],
            rng.uniform(len(piece_codes)).numpy(),
        )
    return frame


def _of_groups(condition: Condition, schema: Schema) -> Condition:
    """The same condition, where what is said of a column of a group is said of the
    group.
    """
    groups = {
        part.name: group
        for group in schema.columns
        if isinstance(group, OneOfColumn)
        for part in group.parts
    }
    if not groups:
        return condition
    if isinstance(condition, Not):
        return Not(_of_groups(condition.part, schema))
    if isinstance(condition, And | Or):
        return type(condition)(
            tuple(_of_groups(part, schema) for part in condition.parts)
        )
    if isinstance(condition, Order) or condition.column not in groups:
        return condition
    group = groups[condition.column]
    (part,) = [part for part in group.parts if part.name == condition.column]
    no, yes = holds(condition, Codec(Schema(columns=(part,))).pieces(0))[:2]
    is_this = OneOf(group.name, (part.name,))
    if no == yes:
        return Or((is_this, Not(is_this))) if yes else And((is_this, Not(is_this)))
    return is_this if yes else Not(is_this)


class TooManyError(Exception):
    """A condition takes too many boxes."""


def left_of(
    condition: Condition | bool,
    outcomes: Mapping[Test | Order, bool],
) -> Condition | bool:
    """What is left of a condition, some of its tests being known to be met or not."""
    if isinstance(condition, Not):
        rest = left_of(condition.part, outcomes)
        return not rest if isinstance(rest, bool) else Not(rest)
    if not isinstance(condition, And | Or):
        return (
            condition
            if isinstance(condition, bool)
            else outcomes.get(condition, condition)
        )
    decides = isinstance(condition, Or)  # one part that is so decides
    parts: dict[Condition, None] = {}
    for part in condition.parts:
        rest = left_of(part, outcomes)
        if rest is decides:
            return decides
        if not isinstance(rest, bool):
            parts[rest] = None
    if len(parts) > 1:
        return type(condition)(tuple(parts))
    return next(iter(parts), not decides)
