"""The fine cells of a table: as finely as its numbers are told apart, by the public
schema alone.

A number whose bins are not declared has few *levels*, on which pairs are measured,
chosen from what was released (`data.encoding.codec`), and many *fine cells*, on which
it is measured by itself, between bounds that may be too wide.

Whole numbers and days have a cell each, up to `MOST` of them. Where there are more, and
for reals, cells are even on the scale of asinh(x/unit): even near zero, far from it a
fixed share of the value. Zero, and every number of two digits followed or led by zeros
(12, 0.5, 40,000), is a cell of its own: people and forms like round numbers.

*Ends.* A tree is too noisy to tell how each number ends, as prices do. A column with
`ends = true` has one table more, of the last decimals alone. A drawn number is moved by
less than a unit, within its level, to one that ends as the table says; but for zero,
and a round number whose cell lies among longer ones, whose people are taken off the
table.

*Without bounds.* Where numbers may be is told by public cells of all numbers, and which
of these have people by noisy counts, held against how many people there are: a cell has
none or more, and all are somewhere (`encoding.support`).

    whole numbers, decimals    zero, and ±[4^k, 4^(k+1)) steps of the last decimal, up
                               to 2^53 of them
    reals                      zero, less than 4^-20, ±[4^k, 4^(k+1)), and 4^40 or more
    days, times                decades

Guarantee: cells, and the end of a number, depend on the public schema and that number
alone; public cells on the kind of a column, and in which steps it is written, which is
as public as the kind.
Edges: declared bins, categories, booleans and up to `DEFAULT_BINS` whole numbers or
days are fine cells as they are; of more than `_DOZEN` declared bins levels are chosen
all the same. What is outside of bounds that were found counts in the first or the last
fine cell (`clipped`). No number in reach that ends as it should → it stays as it was
drawn.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data import column as kinds
from understudy.data.column import (
    DEFAULT_BINS,
    EXACT,
    Binned,
    Column,
    Date,
    Datetime,
    Integer,
    Ordinal,
    Real,
)
from understudy.data.encoding.values import Cells, Codes, Floats, numbers_of
from understudy.data.schema import Schema

Steps = NDArray[np.int64]  # numbers, in units of the last decimal
FAN = 16  # children of a node, where fine cells are measured as a tree
LAYERS = 4  # of such a tree, at most
MOST = FAN**LAYERS  # whole numbers or days that have a cell each
_SPREAD = 2 * FAN**3  # cells of a column that has more of them, and of reals
_DIGITS = (2, 1)  # of a round number; fewer where so many would take half of the cells
# so many declared categories are as good as levels; of more, rare ones may share one
_LONG = 64
_DOZEN = 12  # likewise of declared bins; of more, neighbours may share one
_UNIT = 1e-6  # of the larger bound of a real: nearer to zero than this, cells are even
_LEAST = math.ulp(0.0)
_NODES = 1 << 20  # of all columns' trees together
Run = tuple[int, int]  # the first and the last cell that have people in them
# powers of four of reals
_SMALLEST = -20
_LARGEST = 40
# steps between two bounds, so that levels are chosen of them
_FEWEST = DEFAULT_BINS + 4
_POWERS = 27  # of whole numbers: 4^26 is 2^52


@lru_cache(maxsize=64)
def fine_schema(schema: Schema) -> Schema:
    """The schema with fine bins in every column whose bins are not declared."""
    numbers = [
        column
        for column in schema.columns
        if isinstance(column, Binned) and _undeclared(column)
    ]
    most = MOST
    while most > FAN and sum(_cells(column, most) for column in numbers) > _NODES:
        most //= FAN
    return replace(
        schema,
        columns=tuple(_fine(column, most) for column in schema.columns),
    )


def cell_edges(column: Column) -> Floats:
    """Between which values each fine cell of a column of `fine_schema` lies; of
    categories, their places.
    """
    if isinstance(column, Binned):
        return column.edges.astype(np.float64)
    return np.arange(column.levels + 1, dtype=np.float64)


def is_bought(column: Column) -> bool:
    """Whether the column's levels are chosen: a number without declared bins or with
    many, or a long list.
    """
    if isinstance(column, Binned):
        return _undeclared(column) or has_many_bins(column)
    return column.levels > _LONG


def has_many_bins(column: Column) -> bool:
    return (
        isinstance(column, Binned)
        and column.bins is not None
        and column.levels > _DOZEN
    )


def is_tree(column: Column) -> bool:
    """Whether its fine cells are counted as a tree: they are many, and have an
    order.
    """
    return is_bought(column) and isinstance(column, Binned | Ordinal)


def cut_evenly(*schemas: object) -> tuple[str, ...]:
    """What to say of a method that buys no levels: a sentence that names numbers
    without bins, if there are any.
    """
    columns = [
        column for schema in schemas for column in getattr(schema, "columns", ())
    ]
    undeclared = dict.fromkeys(column.name for column in columns if _undeclared(column))
    if not undeclared:
        return ()
    return (
        f"{', '.join(undeclared)}: without `bins`, and cut evenly between the bounds, "
        "since this method buys no levels. Of skewed numbers nearly all are in one bin "
        "then. "
        "Declare bins, or take those that a run of gram bought: understudy schema "
        "levels.",
    )


def may_spike(column: Column) -> bool:
    """Whether its fine cells may hold several numbers, whole ones or not
    (`models.tables.spikes`).
    """
    if not isinstance(column, Integer | Real) or not _undeclared(column):
        return False
    if isinstance(column, Integer):
        return bool(_values(column) > MOST)
    steps = 10.0 ** (column.decimals or 0) * float(column.high - column.low)
    return column.decimals is None or bool(steps >= MOST)


def _undeclared(column: Column) -> bool:
    if not isinstance(column, Binned) or column.bins is not None:
        return False
    return isinstance(column, Real) or _values(column) > DEFAULT_BINS


def _values(column: Binned) -> int:
    """How many whole numbers, days or times lie within the bounds."""
    return int(column.edges[-1] - column.edges[0])


def _cells(column: Binned, most: int) -> int:
    """How many fine cells the column has, at most."""
    if isinstance(column, Date | Datetime):
        return min(most, _values(column))
    if isinstance(column, Real):
        first, last = _steps(column) if column.decimals is not None else (0, most)
        return last - first + 1 if last - first < most else min(most, _SPREAD)
    return _values(column) if _values(column) <= most else min(most, _SPREAD)


def _fine(column: Column, most: int) -> Column:
    if not _undeclared(column):
        return column
    if isinstance(column, Date | Datetime):
        return replace(column, bins=min(most, _values(column)))
    if isinstance(column, Integer):
        if _values(column) <= most:
            return replace(column, bins=_values(column))
        return replace(
            column,
            bins=_between(
                _whole(column.low, column.high, most),
                column.low,
                column.high,
            ),
        )
    assert isinstance(column, Real)
    # as of whole numbers, in units of the last one: every cell holds such a number
    if column.decimals is not None:
        (first, last), scale = _steps(column), 10.0**column.decimals
        steps = (
            range(first, last + 1) if last - first < most else _whole(first, last, most)
        )
        decimals = {step / scale for step in steps}
        if last > first and last / scale == column.high:
            # the last cell is closed: it would hold the number before it as well
            decimals.add((last - 0.5) / scale)
        return replace(
            column,
            bins=_between(decimals, first / scale, column.high, column.low),
            ends=False,
        )
    low = column.low
    high = column.high
    unit = max(_UNIT * float(max(abs(low), abs(high))), _LEAST)
    # bounds that were found are round, too
    round_numbers = [low, *_round_numbers(low, high, unit, most)]
    points = {point: math.nextafter(point, math.inf) for point in round_numbers} | {
        0.0: _LEAST
    }
    reals = set(_spread(low, high, most, unit, len(points)).tolist()) | {
        *points,
        *points.values(),
    }
    return replace(column, bins=_between(reals, low, high))


def _steps(column: Real) -> tuple[int, int]:
    """The least and the greatest number with so many decimals, in units of the last
    one.
    """
    scale = 10.0 ** (column.decimals or 0)
    return math.ceil(column.low * scale), math.floor(column.high * scale)


def _whole(low: int, high: int, most: int) -> set[int]:
    """Where cells of whole numbers begin that are too many for one each."""
    points = {0, *map(int, _round_numbers(low, high, 1.0, most))}
    spread = np.rint(_spread(low, high, most, 1.0, len(points))).astype(np.int64)
    return {int(edge) for edge in spread} | points | {point + 1 for point in points}


def _round_numbers(low: float, high: float, least: float, most: int) -> list[float]:
    """Numbers of two digits, or one, between the bounds, and no nearer to zero than
    `least`.
    """
    largest = max(abs(low), abs(high))
    for digits in _DIGITS:
        powers = range(
            math.floor(math.log10(least)) - 1,
            math.floor(math.log10(largest)) + 1,
        )
        sizes = (
            float(f"{lead}e{power}")
            for power in powers
            for lead in range(10 ** (digits - 1), 10**digits)
        )
        round_numbers = [
            sign * size
            for size in sizes
            for sign in (1, -1)
            if size >= least and low < sign * size < high
        ]
        if 4 * len(round_numbers) <= min(most, _SPREAD):
            return round_numbers
    return []


def _spread(low: float, high: float, most: int, unit: float, points: int) -> Floats:
    """Edges that are even on the scale of asinh(x/unit); so many points among them have
    two edges more.
    """
    cells = max(1, min(most, _SPREAD) - 2 * points)
    return np.asarray(
        unit
        * np.sinh(
            np.linspace(math.asinh(low / unit), math.asinh(high / unit), cells + 1)
        )
    )


def _between(
    edges: set[int] | set[float],
    low: float,
    high: float,
    begin: float | None = None,
) -> tuple[Any, ...]:
    """All edges above `low` and below `high`, which is the last; the first is `begin`,
    or else `low`.
    """
    return (
        low if begin is None else begin,
        *sorted(edge for edge in edges if low < edge < high),
        high,
    )


def end_cells(column: Column) -> int:
    """How many ends of the column's numbers are counted; 0 for none."""
    return (
        10**column.decimals
        if isinstance(column, Real) and column.ends and column.decimals
        else 0
    )


def ends_of(column: Real, values: Cells) -> Codes:
    """The end of each number, and `end_cells` for a missing one."""
    cells = end_cells(column)
    numbers = numbers_of(column, values)
    there = np.isfinite(numbers)
    remainders = np.rint(np.abs(np.where(there, numbers, 0)) * cells) % cells
    return np.where(there, remainders, cells).astype(np.int32)


def moved_to_ends(
    fine: Column,
    group: Codes,
    weights: Floats,
    table: Floats,
    values: Cells,
    cells: Codes,
    draws: Floats,
) -> Cells:
    """Numbers drawn in these fine cells, moved within their levels to end as the table
    says.
    """
    assert isinstance(fine, Real)
    (first, last), level, every = (
        fine.steps(fine.edges),
        group[: fine.levels],
        np.arange(fine.levels),
    )
    # What was counted apart stays as it is: one number that is zero, a level, or among
    # longer cells.
    single = first == last
    beside = np.concatenate([[True], single, [True]])
    apart = single & (
        (np.bincount(level)[level] == 1) | (first == 0) | ~(beside[:-2] | beside[2:])
    )
    taken = np.bincount(
        np.abs(first[apart]) % len(table),
        weights[: fine.levels][apart],
        len(table),
    )
    moves = np.flatnonzero(cells < fine.levels)  # those that have a value
    moves = moves[~apart[cells[moves]]]
    begin = np.full(group.max() + 1, fine.levels - 1)
    end = np.zeros(group.max() + 1, dtype=int)
    np.minimum.at(begin, level, every)  # a level's first cell, and its last
    np.maximum.at(end, level, every)
    unit = float(len(table))
    at = level[cells[moves]]
    steps = np.rint(values.to_numpy(np.float64, na_value=0.0)[moves] * unit).astype(
        np.int64
    )
    remaining = np.clip(table - taken, 0, None)
    moved_values = values.copy()
    moved_values.iloc[moves] = (
        moved(steps, first[begin[at]], last[end[at]], remaining, draws[moves]) / unit
    )
    return moved_values


def moved(
    steps: Steps,
    first: Steps,
    last: Steps,
    table: Floats,
    draws: Floats,
) -> Steps:
    """Each number moved to one that ends as `table` says, between `first` and `last`
    and on the same side of zero.
    """
    cells = len(table)
    below = steps < 0  # these end as their opposites do
    at = np.abs(steps)
    low = np.where(below, -last, first)
    high = np.where(below, -first, last)
    low = np.maximum(low, below)
    low = np.clip(at - (cells // 2 - 1), low, np.maximum(low, high - (cells - 1)))
    high = np.clip(low + cells - 1, low, np.maximum(low, high))
    heap = np.concatenate([[0.0], np.cumsum(np.tile(table, 2))])
    start = low % cells
    before = heap[start]
    after = heap[start + (high - low) + 1]
    target = np.minimum(before + draws * (after - before), np.nextafter(after, 0))
    nodes = np.searchsorted(heap, target, side="right") - 1
    there = np.where(after > before, low + nodes - start, at)
    return np.where(below, -there, there)


# Without bounds


@lru_cache(maxsize=1024)
def reach(column: Binned) -> Binned:
    wide = kinds.widest(column)
    if isinstance(column, Date | Datetime):
        first = kinds.day_number(kinds.FIRST_DAY)
        days = [
            first,
            *(
                kinds.day_number(date(year, 1, 1))
                for year in range(1680, kinds.LAST_DAY.year, 10)
            ),
        ]
        steps = 86400 // column.step if isinstance(column, Datetime) else 1
        return replace(
            wide,
            bins=(*(column.bound_at(day * steps) for day in days), wide.high),
        )
    if isinstance(column, Integer) or (
        isinstance(column, Real) and column.decimals is not None
    ):
        unit = (
            10**column.decimals if isinstance(column, Real) and column.decimals else 1
        )
        sizes = [4**power for power in range(_POWERS)] + [EXACT]
        steps_of = [*(-size for size in reversed(sizes)), 0, *sizes]
        if isinstance(column, Integer):
            return replace(wide, bins=tuple(steps_of))
        edges = [step / unit for step in steps_of]
        return replace(wide, low=edges[0], high=edges[-1], bins=tuple(edges))
    reals = [4.0**power for power in range(_SMALLEST, _LARGEST + 1)] + [kinds.LARGEST]
    return replace(
        wide,
        bins=(*(-size for size in reversed(reals)), 0.0, math.ulp(0.0), *reals),
    )


def bounded(column: Binned, run: Run | None = None) -> Binned:
    """The column between the bounds of a run of its public cells, of all of them where
    none is given.
    """
    wide = reach(column)
    first, last = (0, wide.levels - 1) if run is None else run
    if first == last and isinstance(column, Real) and wide.edges[first] == 0:
        last += 1  # zero alone is no range
    low = wide.edges[first].item()
    past = wide.edges[last + 1].item()
    if isinstance(column, Real) and column.decimals is None:
        return replace(column, low=low, high=past)
    unit = 10.0 ** (column.decimals or 0) if isinstance(column, Real) else 1
    low = round(low * unit)
    past = min(round(past * unit), EXACT + 1)
    high = (
        past - 1
        if isinstance(column, Date | Datetime)
        else min(max(past - 1, low + _FEWEST), EXACT)
    )
    return replace(
        column,
        low=column.bound_at(low / unit),
        high=column.bound_at(high / unit),
    )


def within(schema: Schema, runs: Mapping[str, Run] | None = None) -> Schema:
    """The schema in which every column has bounds: those of its run, or the widest."""
    if not any(map(kinds.is_unbounded, schema.columns)):
        return schema
    bounds = {
        c.name: None if runs is None else runs[c.name]
        for c in schema.columns
        if kinds.is_unbounded(c)
    }
    columns = (
        bounded(c, bounds[c.name]) if kinds.is_unbounded(c) else c
        for c in schema.columns
    )
    return replace(schema, columns=tuple(columns))


def public_cells(schema: Schema) -> Schema:
    """The schema with the public cells of columns without bounds."""
    return replace(
        schema,
        columns=tuple(reach(c) if kinds.is_unbounded(c) else c for c in schema.columns),
    )


def clipped(column: Binned, values: Cells) -> Cells:
    """Values that lie outside the bounds, on them."""
    low = column.low
    high = column.high
    if isinstance(column, Date | Datetime):
        low = pd.Timestamp(low)
        high = pd.Timestamp(high)
    return values.clip(low, high)
