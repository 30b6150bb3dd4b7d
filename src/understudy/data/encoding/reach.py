"""Where the numbers of a column without bounds may be: public cells of all numbers, and the bounds that some give.

    whole numbers, decimals    zero, and ±[4^k, 4^(k+1)) steps of the last decimal, up to 2^53 of them
    reals                      zero, less than 4^-20, ±[4^k, 4^(k+1)), and 4^40 or more
    days, times                decades

These cells are the top of one tree over all numbers; below them are the fine cells (`data.encoding.fine`) of those that
have people in them, between the first and the last. Bounds that are declared are where the tree begins.

Guarantee: cells follow from the kind of a column, and in which steps it is written; that is as public as the kind is.
Edges: infinite is not a value, and is refused where a table is read. A number outside of the bounds that were found
counts in the first or the last fine cell (`clipped`). Between two bounds there are more than `DEFAULT_BINS` steps, so
that levels are chosen of them.

Which cells have people in them is told by noisy counts, held against how many people there are: a cell has none or
more, and all are somewhere (`likely_run`).
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from functools import lru_cache
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from understudy.data import column as kinds
from understudy.data.column import DEFAULT_BINS, EXACT, Binned, Date, Datetime, Integer, Real, is_unbounded, widest
from understudy.data.schema import Schema

Run = tuple[int, int]  # the first and the last cell that have people in them
_SMALLEST, _LARGEST = -20, 40  # powers of four of reals
_FEWEST = DEFAULT_BINS + 4  # steps between two bounds, so that levels are chosen of them
_POWERS = 27  # of whole numbers: 4^26 is 2^52
_STEPS = tuple(step / 2 for step in range(-6, 7))  # deviations by which a total may be off
_EMPTY = 1.0  # more against a cell with fewer people than a deviation of its noise


@lru_cache(maxsize=1024)
def reach(column: Binned) -> Binned:
    wide = widest(column)
    if isinstance(column, Date | Datetime):
        first = kinds.day_number(kinds.FIRST_DAY)
        days = [first, *(kinds.day_number(date(year, 1, 1)) for year in range(1680, kinds.LAST_DAY.year, 10))]
        steps = 86400 // column.step if isinstance(column, Datetime) else 1
        return replace(wide, bins=(*(column.bound_at(day * steps) for day in days), wide.high))
    if isinstance(column, Integer) or (isinstance(column, Real) and column.decimals is not None):
        unit = 10**column.decimals if isinstance(column, Real) and column.decimals else 1
        sizes = [4**power for power in range(_POWERS)] + [EXACT]
        steps_of = [*(-size for size in reversed(sizes)), 0, *sizes]
        if isinstance(column, Integer):
            return replace(wide, bins=tuple(steps_of))
        edges = [step / unit for step in steps_of]
        return replace(wide, low=edges[0], high=edges[-1], bins=tuple(edges))
    reals = [4.0**power for power in range(_SMALLEST, _LARGEST + 1)] + [kinds.LARGEST]
    return replace(wide, bins=(*(-size for size in reversed(reals)), 0.0, math.ulp(0.0), *reals))


def bounded(column: Binned, run: Run | None = None) -> Binned:
    """The column between the bounds of a run of its public cells, of all of them where none is given."""
    wide = reach(column)
    first, last = (0, wide.levels - 1) if run is None else run
    if first == last and isinstance(column, Real) and wide.edges[first] == 0:
        last += 1  # zero alone is no range
    low, past = wide.edges[first].item(), wide.edges[last + 1].item()
    if isinstance(column, Real) and column.decimals is None:
        return replace(column, low=low, high=past)
    unit = 10.0 ** (column.decimals or 0) if isinstance(column, Real) else 1
    low, past = round(low * unit), min(round(past * unit), EXACT + 1)
    high = past - 1 if isinstance(column, Date | Datetime) else min(max(past - 1, low + _FEWEST), EXACT)
    return replace(column, low=column.bound_at(low / unit), high=column.bound_at(high / unit))


def within(schema: Schema, runs: Mapping[str, Run] | None = None) -> Schema:
    """The schema in which every column has bounds: those of its run, or the widest."""
    if not any(map(is_unbounded, schema.columns)):
        return schema
    found = {c.name: None if runs is None else runs[c.name] for c in schema.columns if is_unbounded(c)}
    columns = (bounded(c, found[c.name]) if is_unbounded(c) else c for c in schema.columns)
    return replace(schema, columns=tuple(columns))


def clipped(column: Binned, values: "pd.Series[Any]") -> "pd.Series[Any]":
    """Values that lie outside the bounds, on them."""
    low, high = column.low, column.high
    if isinstance(column, Date | Datetime):
        low, high = pd.Timestamp(low), pd.Timestamp(high)
    return values.clip(low, high)


def to_simplex(rows: Tensor, totals: Tensor) -> Tensor:
    """For each row the nearest non-negative one with this sum (Wang, Carreira-Perpiñán 2013); −∞: no such place."""
    falling = rows.sort(dim=1, descending=True).values
    real = falling.isfinite()
    above = torch.where(real, falling, 0).cumsum(1) - totals[:, None]
    count = torch.arange(1, rows.shape[1] + 1, device=rows.device)
    kept = (real & (falling * count > above)).sum(1).clamp(min=1)  # the largest ones come first
    shift = above.gather(1, kept[:, None] - 1) / kept[:, None]
    return (rows - shift).clamp(min=0)


def likely_run(counts: Tensor, missing: Tensor | None, noise: float, total: float, sure: float = 0.0) -> Run:
    """The first and the last of the cells in which `total` people are, those without a value beside them. By
    likelihood, with one for each cell against it, and more for one with hardly anybody: all are inside, in whatever
    numbers, and nobody is outside. `sure`: the deviation of the total.
    """
    ends = torch.nonzero(counts > 0)[:, 0]
    if not len(ends):
        return 0, len(counts) - 1
    if not noise:
        return int(ends[0]), int(ends[-1])
    first, last = torch.combinations(ends, with_replacement=True).T  # noise alone lets a run end elsewhere
    places = torch.arange(len(counts))
    inside = (places >= first[:, None]) & (places <= last[:, None])
    rows = torch.where(inside, counts.double(), -torch.inf)
    if missing is not None:
        rows = torch.cat([rows, missing.double().expand(len(rows), 1)], 1)
    counted = torch.where(rows.isfinite(), rows, 0)
    outside = torch.where(inside, 0, counts.double()).square().sum(1)

    def unlikely(steps: float) -> Tensor:
        people = to_simplex(rows, rows.new_full((len(rows),), max(total + steps * sure, 1.0)))
        empty = inside & (people[:, : len(counts)] < noise)
        off: Tensor = (people - counted).square().sum(1) / (2 * noise**2) + steps**2 / 2 + _EMPTY * empty.sum(1)
        return off

    off = torch.stack([unlikely(steps) for steps in (_STEPS if sure else (0.0,))]).min(0).values
    best = int((off + outside / (2 * noise**2) + inside.sum(1)).argmin())
    return int(first[best]), int(last[best])
