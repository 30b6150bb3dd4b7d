"""How numbers end, as prices do: 4.99 and 20.00 are frequent, 4.37 and 20.13 are not.

A fine cell of a column of numbers (`data.encoding.fine`) may hold many numbers, and a tree of cells is too noisy to
tell how each of them ends. A column with `ends = true` therefore has one table more, of the last decimals alone, 10
cells or 100: how many people's number ends like this, whatever it begins with. A drawn number is then moved by less
than a unit, and within its level, to one that ends as the table says.

Zero, and a round number whose cell lies among longer ones, was counted by itself. What is drawn there stays as it is,
and its people are taken off the table.

Guarantee: the end of a number depends on that number and the public schema alone, and numbers are moved by what was
released.
Edges: a table of no weight, or no number in reach that ends as some people's do → the number stays as it was drawn.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import Column, Real
from understudy.data.encoding.values import Codes, numbers_of

Steps = NDArray[np.int64]  # numbers, in units of the last decimal


def end_cells(column: Column) -> int:
    """How many ends of the column's numbers are counted; 0 for none."""
    return 10**column.decimals if isinstance(column, Real) and column.ends and column.decimals else 0


def ends_of(column: Real, values: "pd.Series[Any]") -> Codes:
    """The end of each number, and `end_cells` for a missing one."""
    cells, numbers = end_cells(column), numbers_of(column, values)
    there = np.isfinite(numbers)
    found = np.rint(np.abs(np.where(there, numbers, 0)) * cells) % cells
    return np.where(there, found, cells).astype(np.int32)


def counted_apart(fine: Real, groups: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which fine cells' numbers stay as they are: those of one number that is zero, a level, or among longer cells."""
    first, last = fine.steps(fine.edges)
    single = first == last
    beside = np.concatenate([[True], single, [True]])
    level = groups[: fine.levels]
    alone = (np.bincount(level)[level] == 1) | (first == 0) | ~(beside[:-2] | beside[2:])
    return np.asarray(single & alone)


def left_to_ends(
    fine: Real, table: NDArray[np.float64], weights: NDArray[np.float64], apart: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """The table of ends without the people of cells that were counted apart."""
    steps = np.abs(fine.steps(fine.edges)[0][apart]) % len(table)
    taken = np.bincount(steps, weights=weights[: fine.levels][apart], minlength=len(table))
    return np.clip(table - taken, 0, None)


def moved_to_ends(
    steps: Steps, first: Steps, last: Steps, table: NDArray[np.float64], draws: NDArray[np.float64]
) -> Steps:
    """Each number moved to one that ends as `table` says, between `first` and `last` and on the same side of zero."""
    cells = len(table)
    below = steps < 0  # these end as their opposites do
    at, low, high = np.abs(steps), np.where(below, -last, first), np.where(below, -first, last)
    low = np.maximum(low, below)
    low = np.clip(at - (cells // 2 - 1), low, np.maximum(low, high - (cells - 1)))
    high = np.clip(low + cells - 1, low, np.maximum(low, high))
    heap = np.concatenate([[0.0], np.cumsum(np.tile(table, 2))])
    start = low % cells
    before, after = heap[start], heap[start + (high - low) + 1]
    target = np.minimum(before + draws * (after - before), np.nextafter(after, 0))
    found = np.searchsorted(heap, target, side="right") - 1
    moved = np.where(after > before, low + found - start, at)
    return np.where(below, -moved, moved)
