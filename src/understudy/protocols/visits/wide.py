"""Columns of events whose bounds are so wide that noise alone makes their mean
uncertain: a word before a run.

Every table that a column is in tells how many people have each of its levels: its own
with the noise σ of a cell, one with a column of k levels besides with σ√k. Together
they have the precision Σ 1/(k σ²). The mean over N people of an average event is then
uncertain by √(Σ (m − m₀)²) / (N √precision), with m the middles of the levels: the
farther a bin reaches, the more noise on it is worth. m₀ is the middle level's, which
stands for a mean that nobody knows yet. What the uncertainty is held against is the
column's scale: bins that are declared are finer where values are, so that half of their
middles lie below it; bins that are cut evenly say nothing of it, and half of the first
one stands for it.

Guarantee: made of public schemas, noise, and the number of people that the caller
states; no row is read.
Edges: of columns that may be negative a mean says little about its error, and nothing
is said of them.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from understudy.data.column import Binned, Integer, Real
from understudy.data.encoding.fine import has_many_bins, is_bought
from understudy.data.visits import (
    SeveralLayout,
    SeveralVisits,
    VisitLayout,
    VisitSchema,
)
from understudy.data.visits.counts import Block

_MOST = 0.1  # of the mean


def wide_columns(
    schema: VisitSchema | SeveralVisits,
    layout: VisitLayout | SeveralLayout,
    noise: Mapping[Block, float],
    people: int,
) -> Iterator[str]:
    """A word on each column of events whose mean would be uncertain by more than a
    tenth. `noise` is the deviation of a cell's in each table, in people.
    """
    for part in schema.parts:
        for number, column in enumerate(part.event_schema.columns):
            if (
                column.name == f"{part.time}_gap"
                or not isinstance(column, Integer | Real)
                or column.low < 0
            ):
                continue
            # its levels lie where people are
            if is_bought(column) and not has_many_bins(column):
                continue
            off = (
                uncertain(
                    column,
                    number,
                    part.title,
                    layout,
                    noise,
                )
                / people
            )
            level_middles = middles(column)
            even = type(column.bins) is int
            scale = float(level_middles[0] if even else np.median(level_middles))
            if off > _MOST * scale:
                low, high, sd, threshold, half = map(
                    _three_digits,
                    (column.low, column.high, off, off / _MOST, scale),
                )
                why_uncertain = f"half its levels lie below {half}"
                what = "Cut"
                if even:
                    why_uncertain = (
                        f"it is cut evenly, {half} the middle of its first level"
                    )
                    what = "Declare bins, or cut"
                yield (
                    f'"{column.name}" reaches from {low} to {high}: noise alone makes '
                    f"the mean of {people:,} people "
                    f"uncertain by {sd}, more than 10 % of any mean below {threshold}; "
                    f"{why_uncertain}. {what} amounts at a lower "
                    "bound before the run."
                )


def uncertain(
    column: Binned,
    number: int,
    title: str,
    layout: VisitLayout | SeveralLayout,
    noise: Mapping[Block, float],
) -> float:
    """The deviation of a column's sum over people's average events, from all tables
    that it is in.
    """
    precision = 0.0
    for block in layout.blocks:
        kind, a, b = block
        first, *titles = kind.split()
        has_column = first in ("event", "across") and titles in ([], [title])
        if has_column and (b == number or (a == number and first == "event")):
            shape = layout.shape(block)
            n_cells = 1
            if len(shape) > 1:
                n_cells = shape[0] if b == number else shape[1]
            precision += 1 / (n_cells * noise[block] ** 2) if noise[block] else np.inf
    level_middles = middles(column)
    return float(
        np.sqrt(np.square(level_middles - np.median(level_middles)).sum() / precision)
    )


def middles(column: Binned) -> NDArray[np.float64]:
    """The middle of each level: of whole numbers between the first and the last."""
    edges = np.asarray(column.edges, dtype=np.float64)
    last = edges[1:] - (1 if np.asarray(column.edges).dtype.kind == "i" else 0)
    return (edges[:-1] + last) / 2


def _three_digits(number: float) -> str:
    return f"{float(f'{number:.3g}'):,.15g}"
