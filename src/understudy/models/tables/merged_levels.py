"""The levels on which pairs are measured: fine cells merged until noise lets pairs of
levels be told apart.

A cell of a 2-way marginal has noise of a known size σ. With L levels of about equal
weight in both columns it has n/L² people, and fewer than σ of them tell nothing: so
there are L = √(n/σ) levels. Neighbouring fine cells of ordered columns are merged until
they hold n/L people; a cell that holds as many by itself (zero, 40 h) stays a level.
All categories with few deviations of noise each become one level together
(`merged_rare`). Missing values are the last level.

Source: equi-depth histograms. Zhang et al., "Towards accurate histogram publication
under differential privacy" (SDM 2014), balance the same two errors of a bin, its noise
and the people that it lumps together.
Guarantee: reads released tables and the public schema alone, so that all who know them
choose the same.
Edges: two levels at least where there are two cells; noise 0 → as many as there may be.
All columns together have up to `MOST_WIDTH` levels, or two and the missing one each.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.column import Column, Integer, Real
from understudy.data.encoding.fine import has_many_bins, is_bought, is_tree

Groups = NDArray[np.int32]  # the level of each fine cell

# of one column: a pair of two such has 16,384 cells, so that more can be told only of
# more people than 16,384 deviations of noise
_MOST_LEVELS = 128
# of all columns whose levels are bought: a Gram matrix of 2,048² sums is a message of
# 32 MiB, and a fit merges them to 768 (`fitted_levels.FITTED`)
MOST_WIDTH = 2048
# of a three-way table: a fit computes each at every step, by as many products as all
# pairs of 64 levels
MOST_CELLS = 4096


def most_width(columns: int) -> int:
    """How many levels all columns may have together: two and the missing one each."""
    return max(MOST_WIDTH, 3 * columns)


def most_levels(columns: Sequence[Column]) -> int:
    """How many levels each of those that are bought may have, without the missing
    one.
    """
    n_bought = sum(map(is_bought, columns))
    return max(2, min(_MOST_LEVELS, MOST_WIDTH // max(n_bought, 1) - 1))


def bought_levels(
    columns: Sequence[Column],
    tables: Sequence[Tensor],
    *,
    people: float,
    noise: float,
    thin: float = 2.5,
) -> list[Groups]:
    """The level of each fine cell of each column, by its fine table (the missing one
    last) and a pair's `noise`.

    `thin`: a level far out holds at least so many deviations of its people by all its
    pairs. So p99 is as wanted in 84 of 100 skewed columns of 3,500 people, and in 80
    without thin levels (benchmarks/numbers/NOTES.md).
    """
    max_levels = most_levels(columns)
    levels = level_count(people, noise, max_levels)
    # what a level's pairs say together
    pairs = max(len(columns) - 1, 1)
    min_people = thin * noise * math.sqrt(levels / pairs)
    groups = []
    for column, table in zip(columns, tables, strict=True):
        fits = has_many_bins(column) and column.levels <= levels
        if fits or not is_bought(column):
            groups.append(np.arange(len(table), dtype=np.int32))
            continue
        counts = table[: len(table) - column.nullable]
        if is_tree(column):
            column_groups = merged_neighbours(counts, levels)
            # far below zero may be a tail
            below = isinstance(column, Integer | Real) and column.low < 0
            weights = counts.double().numpy()
            column_groups = _with_thin_ends(
                column_groups,
                weights,
                min_people,
                max_levels,
                below,
            )
        else:
            column_groups = merged_rare(counts, noise, max_levels)
        if column.nullable:
            column_groups = np.append(column_groups, column_groups.max() + 1).astype(
                np.int32
            )
        groups.append(column_groups)
    return groups


def is_worth_buying(
    columns: Sequence[Column],
    share: float,
    *,
    likely_levels: int = 8,
) -> bool:
    """Whether fine tables are, at this share of the budget: always where levels have to
    be chosen, and else where pairs have fewer cells by more than that share, if columns
    with many bins are cut to few levels.

    `likely_levels`: so few, before it is known how many there will be: `level_count` of
    64 people for each deviation of a pair's noise. With more people it pays less
    (benchmarks/joint/NOTES.md: many declared bins).
    """
    is_chosen = [is_bought(column) for column in columns]
    has_bins = [has_many_bins(column) for column in columns]
    if not share or is_chosen != has_bins:
        return share > 0
    sizes = np.array([column.size for column in columns])
    fewer = np.where(has_bins, likely_levels, sizes)
    before = _pair_cells(sizes)
    after = _pair_cells(fewer)
    return bool(after < (1 - share) * before)


def _pair_cells(sizes: NDArray[np.int64]) -> np.int64:
    """How many cells all two-way tables have, each twice."""
    cells: np.int64 = sizes.sum() ** 2 - (sizes**2).sum()
    return cells


def most_bins(columns: Sequence[Column]) -> int:
    """The most declared bins of a column, where levels are chosen of these alone; else
    0.
    """
    chosen = [column for column in columns if is_bought(column)]
    if not all(map(has_many_bins, chosen)):
        return 0
    return max((column.levels for column in chosen), default=0)


def level_count(people: float, noise: float, most: int = _MOST_LEVELS) -> int:
    """L: how many levels an ordered column is cut into."""
    if not noise > 0:
        return most
    levels = math.sqrt(max(people, 1.0) / noise)
    return int(min(max(2.0, levels), most))


def merged_neighbours(table: Tensor, levels: int, *, small: float = 0.25) -> Groups:
    """At most so many levels of the cells of an ordered column: neighbours together,
    spikes alone.

    `small`: with less than this part of an even level's people a level joins its
    neighbour, as what is left over at the end of a run may.
    """
    weights = table.double().numpy()
    share = max(float(weights.sum()), 1.0) / levels
    is_spike = weights >= share
    run = _runs_between(is_spike)
    starts = np.flatnonzero(np.diff(run, prepend=run[0] - 1))
    cumulated = np.cumsum(weights)
    before = np.concatenate([[0.0], cumulated])[starts]
    cells = np.arange(len(weights))
    number = np.searchsorted(starts, cells, side="right") - 1
    inside = cumulated - before[number]
    # within a run a level ends when it is full
    middles = inside - weights / 2
    level = np.where(is_spike, 0, np.floor(middles / share))
    both = np.stack([run, level.clip(min=0)])
    steps = np.diff(both, axis=1, prepend=both[:, :1])
    begins = (steps != 0).any(axis=0)
    return _without_small(np.cumsum(begins), weights, share * small, levels)


def _runs_between(is_spike: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Which run each cell is in: a spike ends what is before it, and begins what is
    after it.
    """
    if len(is_spike) == 1:
        return np.zeros(1, dtype=np.int64)
    return np.cumsum(is_spike | np.roll(is_spike, 1))


def _with_thin_ends(
    groups: Groups,
    weights: NDArray[np.float64],
    least: float,
    most: int,
    below: bool,
) -> Groups:
    """The last level, and the first where a tail is `below`, halved, the outer half
    again, while each holds so many.
    """
    starts = np.diff(groups, prepend=0) > 0
    if not least > 0:
        return np.cumsum(starts, dtype=np.int32)
    for side in (1, -1) if below else (1,):
        outer = groups[-1] if side > 0 else 0
        cells = np.flatnonzero(groups == outer)[::side]
        # outwards
        while starts.sum() + 2 <= most:
            outer_counts = weights[cells]
            people = outer_counts.sum()
            if people < 2 * least:
                break
            half = int(np.searchsorted(np.cumsum(outer_counts), people / 2))
            cut = half + 1
            if not weights[cells[cut:]].sum() >= least:
                break
            first = cells[cut] if side > 0 else cells[cut] + 1
            starts[first] = True
            cells = cells[cut:]
    return np.cumsum(starts, dtype=np.int32)


def _without_small(
    groups: NDArray[np.int64],
    weights: NDArray[np.float64],
    least: float,
    most: int,
) -> Groups:
    """Levels with fewer people, or too many of them, join a neighbour; two are left
    where there are two cells.
    """
    held: list[float] = np.bincount(groups, weights=weights).tolist()
    first: list[int] = np.flatnonzero(np.diff(groups, prepend=-1)).tolist()
    while len(held) > 2 and (min(held) < least or len(held) > most):
        small = int(np.argmin(held))
        is_first = small == 0
        is_last = small == len(held) - 1
        joins_left = is_last or (not is_first and held[small - 1] <= held[small + 1])
        into = small - 1 if joins_left else small
        held[into : into + 2] = [held[into] + held[into + 1]]
        del first[into + 1]
    if len(held) == 1 and len(weights) > 1:  # all in one cell, by what was released
        fullest = int(weights.argmax())
        first.append(max(1, fullest))
    starts = np.zeros(len(weights), dtype=np.int32)
    starts[first[1:]] = 1
    return np.cumsum(starts, dtype=np.int32)


def merged_rare(
    table: Tensor,
    noise: float,
    most: int,
    *,
    rare: float = 2.0,
) -> Groups:
    """A level for each category with enough people, in the order of the list, and one
    for all others together.

    `rare`: so many deviations of a pair's `noise` a category has at least: one for each
    level of a column of two.
    """
    weights = table.double().numpy()
    if len(weights) <= 2:
        return np.arange(len(weights), dtype=np.int32)
    order = np.argsort(-weights, kind="stable")
    is_frequent = np.zeros(len(weights), dtype=bool)
    is_frequent[order[: most - 1]] = True
    is_frequent &= weights >= rare * noise
    is_frequent[order[0]] = True  # two levels at least
    if len(weights) - is_frequent.sum() < 2:
        return np.arange(len(weights), dtype=np.int32)
    groups = np.cumsum(is_frequent).astype(np.int32) - 1
    groups[~is_frequent] = is_frequent.sum()
    return groups
