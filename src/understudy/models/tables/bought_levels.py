"""On which levels pairs of columns are measured: chosen from the released one-way tables and public numbers alone.

A cell of a two-way table has noise of a known size σ, whatever the levels are. With L levels of about equal weight in
both columns it has n/L² people, and fewer than some σ of them tell nothing. So there are about L = √(n/cσ) levels: more
where people are many or noise is small.

- *Ordered columns*: neighbouring fine cells are merged until they hold n/L people. A cell that holds as many by itself
  (a spike: zero, 40 hours) is a level of its own.
- *Categories*: those with fewer than `_RARE` σ people share one level, where there are two of them or more.
- *Missing* is always a level of its own, the last.

Guarantee: reads released tables alone, so that all who know them choose the same.
Edges: never fewer than two levels where there are two cells; noise 0 → as many levels as there may be. Of all columns
together no more than `MOST_WIDTH` levels are bought, or two for each.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.column import Column
from understudy.data.encoding.fine import is_bought, is_tree

Groups = NDArray[np.int32]  # the level of each fine cell

_SIGNAL = 1.0  # c: what a cell of two average levels holds, in deviations of its noise
_SMALL = 0.25  # of n/L: with fewer people than this, neighbours are one level
_RARE = 2.0  # σ: what a category must hold to be a level of its own
_MOST_LEVELS = 128  # of one column
MOST_WIDTH = 2048  # of all columns whose levels are bought


def most_width(columns: int) -> int:
    """How many levels so many columns may have together."""
    return max(MOST_WIDTH, 3 * columns)


def most_levels(columns: Sequence[Column]) -> int:
    """How many levels each of those that are bought may have, without the missing one."""
    many = sum(map(is_bought, columns))
    return max(2, min(_MOST_LEVELS, MOST_WIDTH // max(many, 1) - 1))


def bought_levels(
    columns: Sequence[Column], tables: Sequence[Tensor], *, people: float, noise: float
) -> list[Groups]:
    """The level of each fine cell of each column, from its fine table (cells, the missing one last).

    `noise` is the standard deviation of a cell of a pair. Declared levels stay as they are.
    """
    most = most_levels(columns)
    levels, groups = level_count(people, noise, most), []
    for column, table in zip(columns, tables, strict=True):
        if not is_bought(column):
            groups.append(np.arange(len(table), dtype=np.int32))
            continue
        held = table[: len(table) - column.nullable]
        own = merged_neighbours(held, levels) if is_tree(column) else merged_rare(held, noise, most)
        groups.append(np.append(own, own.max() + 1).astype(np.int32) if column.nullable else own)
    return groups


def level_count(people: float, noise: float, most: int = _MOST_LEVELS) -> int:
    """L: how many levels an ordered column is cut into."""
    if not noise > 0:
        return most
    return int(min(max(2.0, math.sqrt(max(people, 1.0) / (_SIGNAL * noise))), most))


def merged_neighbours(table: Tensor, levels: int) -> Groups:
    """At most so many levels of the cells of an ordered column: neighbours together, spikes alone."""
    weights = table.double().numpy()
    share = max(float(weights.sum()), 1.0) / levels
    spike = weights >= share
    # A spike ends what is before it and begins what is after it; between spikes a level ends when it is full.
    run = np.cumsum(spike | np.roll(spike, 1)) if len(weights) > 1 else np.zeros(1, dtype=np.int64)
    starts = np.flatnonzero(np.diff(run, prepend=run[0] - 1))
    before = np.concatenate([[0.0], np.cumsum(weights)])[starts]
    inside = np.cumsum(weights) - before[np.searchsorted(starts, np.arange(len(weights)), side="right") - 1]
    turn = np.where(spike, 0, np.floor((inside - weights / 2) / share))
    both = np.stack([run, turn.clip(min=0)])
    change = (np.diff(both, axis=1, prepend=both[:, :1]) != 0).any(axis=0)
    return _without_small(np.cumsum(change), weights, share * _SMALL, levels)


def _without_small(
    groups: NDArray[np.int64], weights: NDArray[np.float64], least: float, most: int
) -> Groups:
    """Levels with fewer people, or too many of them, join a neighbour; two are left where there are two cells."""
    held: list[float] = np.bincount(groups, weights=weights).tolist()
    first: list[int] = np.flatnonzero(np.diff(groups, prepend=-1)).tolist()
    while len(held) > 2 and (min(held) < least or len(held) > most):
        small = int(np.argmin(held))
        left = small > 0 and (small == len(held) - 1 or held[small - 1] <= held[small + 1])
        into = small - 1 if left else small
        held[into : into + 2] = [held[into] + held[into + 1]]
        del first[into + 1]
    if len(held) == 1 and len(weights) > 1:  # all in one cell, by what was released
        first.append(max(1, int(weights.argmax())))
    starts = np.zeros(len(weights), dtype=np.int32)
    starts[first[1:]] = 1
    return np.cumsum(starts, dtype=np.int32)


def merged_rare(table: Tensor, noise: float, most: int) -> Groups:
    """A level for each category with enough people, in the order of the list, and one for all others together."""
    weights = table.double().numpy()
    if len(weights) <= 2:
        return np.arange(len(weights), dtype=np.int32)
    order = np.argsort(-weights, kind="stable")
    kept = np.zeros(len(weights), dtype=bool)
    kept[order[: most - 1]] = True
    kept &= weights >= _RARE * noise
    kept[order[0]] = True  # two levels at least
    if len(weights) - kept.sum() < 2:
        return np.arange(len(weights), dtype=np.int32)
    groups = np.cumsum(kept).astype(np.int32) - 1
    groups[~kept] = kept.sum()
    return groups
