"""A condition held against a table's levels: which rows meet it, as boxes that do not overlap.

A box allows some pieces of some columns and anything in the others. Any condition is a union of boxes. Where they do
not overlap, its probability under a product is a sum of products, and a row that meets it is drawn by choosing a box
and then each column by itself.

Guarantee: all is checked against the public schema, before anything is drawn.
Edges: a condition that needs too many boxes has none (`boxes` is None), and can still be tested row by row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.codec import Codes, Uniform
from understudy.data.conditions import And, Condition, Not, Or, Order, columns, parse, tests
from understudy.data.meaning import Mask, cuts, holds
from understudy.data.pieces import Pieces
from understudy.data.schema import Schema

Box = Mapping[
    int, NDArray[Any]
]  # column → how far each of its pieces is allowed: no, yes, or a weight in [0, 1]
_NOTHING_ELSE: Mapping[int, Sequence[float]] = MappingProxyType({})


class Levels(Protocol):
    """How a table is written in levels: all that questions need of it."""

    @property
    def schema(self) -> Schema: ...

    @property
    def sizes(self) -> tuple[int, ...]: ...

    def known(self, j: int, values: "pd.Series[Any]") -> Codes: ...

    def pieces(self, j: int, cuts: Sequence[float] = ()) -> Pieces: ...

    def labels(self, j: int) -> list[Any]: ...

    def decode(self, values: Codes, rng: Uniform) -> pd.DataFrame: ...


@dataclass(frozen=True, eq=False)
class Question:
    """A condition (or none), and the pieces of the columns that it speaks of."""

    condition: Condition | None
    pieces: Mapping[int, Pieces]
    place: Mapping[str, int]

    @classmethod
    def read(
        cls, text: str | None, levels: Levels, also: Mapping[int, Sequence[float]] = _NOTHING_ELSE
    ) -> "Question":
        """The condition that a text says about a table. ConfigError or SchemaError where it makes no sense.

        `also` names columns that are wanted in pieces besides, and where to cut them.
        """
        return cls.of(None if text is None else parse(text), levels, also)

    @classmethod
    def of(
        cls, condition: Condition | None, levels: Levels, also: Mapping[int, Sequence[float]] = _NOTHING_ELSE
    ) -> "Question":
        """The same of a condition that was read. It compares columns with values alone."""
        schema = levels.schema
        every = () if condition is None else tests(condition)
        said = [test for test in every if not isinstance(test, Order)]
        place = {test.column: schema.columns.index(schema.column(test.column)) for test in said}
        cut_at = {j: list(also.get(j, ())) for j in (*place.values(), *also)}
        for test in said:
            cut_at[place[test.column]] += cuts(test, schema.column(test.column))
        return cls(condition, {j: levels.pieces(j, at) for j, at in cut_at.items()}, place)

    def met(self, drawn: Mapping[int, NDArray[np.integer]]) -> Mask:
        """Which rows meet the condition, from the piece of each in every column that it speaks of."""
        if self.condition is None:
            return np.ones(len(next(iter(drawn.values()))), dtype=np.bool_)
        return self._each(self.condition, drawn)

    def boxes(self, most: int) -> list[Box] | None:
        """The condition as at most so many boxes that do not overlap, or None."""
        if self.condition is None:
            return [{}]
        try:
            return self._boxes(self.condition, most)
        except _TooManyError:
            return None

    def _each(self, condition: Condition, drawn: Mapping[int, NDArray[np.integer]] | None = None) -> Mask:
        """Whether each row, or without rows each piece of the condition's only column, meets it."""
        if isinstance(condition, Not):
            return ~self._each(condition.part, drawn)
        if isinstance(condition, And | Or):
            join = np.logical_and if isinstance(condition, And) else np.logical_or
            return np.asarray(join.reduce([self._each(part, drawn) for part in condition.parts]))
        assert not isinstance(condition, Order)
        j = self.place[condition.column]
        mask = holds(condition, self.pieces[j])
        return mask if drawn is None else mask[drawn[j]]

    def _boxes(self, condition: Condition, most: int) -> list[Box]:
        if len(own := columns(condition)) == 1:
            mask = self._each(condition)
            return [{self.place[own[0]]: mask}] if mask.any() else []
        if isinstance(condition, Not):
            return _without([{}], self._boxes(condition.part, most), most)
        assert isinstance(condition, And | Or)
        parts = [self._boxes(part, most) for part in _by_column(condition)]
        if isinstance(condition, Or):
            found: list[Box] = []
            for boxes in parts:
                found += _without(boxes, found, most)
                _bounded(found, most)
            return found
        met: list[Box] = [{}]
        for boxes in parts:
            met = _bounded([box for a in met for b in boxes if (box := _both(a, b)) is not None], most)
        return met


class _TooManyError(Exception):
    pass


def _by_column(condition: And | Or) -> list[Condition]:
    """The parts, those about one and the same column alone taken together."""
    alone: dict[tuple[str, ...], list[Condition]] = {}
    rest: list[Condition] = []
    for part in condition.parts:
        own = columns(part)
        (alone.setdefault(own, []) if len(own) == 1 else rest).append(part)
    return [type(condition)(tuple(parts)) for parts in alone.values()] + rest


def _both(a: Box, b: Box) -> Box | None:
    """Where two boxes overlap."""
    box = dict(a)
    for j, mask in b.items():
        box[j] = box[j] & mask if j in box else mask
        if not box[j].any():
            return None
    return box


def _without(boxes: list[Box], others: Sequence[Box], most: int) -> list[Box]:
    """What is left of the boxes outside the others, again in boxes that do not overlap."""
    for other in others:
        boxes = _bounded([part for box in boxes for part in _outside(box, other)], most)
    return boxes


def _outside(box: Box, other: Box) -> list[Box]:
    """A box without another: outside in the first column; inside there and outside in the second; …"""
    if _both(box, other) is None:
        return [box]
    parts: list[Box] = []
    inside = dict(box)
    for j, mask in other.items():
        own = inside.get(j, np.ones_like(mask))
        if (left := own & ~mask).any():
            parts.append({**inside, j: left})
        inside[j] = own & mask
    return parts


def _bounded(boxes: list[Box], most: int) -> list[Box]:
    if len(boxes) > most:
        raise _TooManyError
    return boxes
