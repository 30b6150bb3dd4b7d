"""Noisy counts of cells held against how many people there are: a cell has none or more, and all are somewhere."""

import torch
from torch import Tensor

_STEPS = tuple(step / 2 for step in range(-6, 7))  # deviations by which a total may be off
_EMPTY = 1.0  # more against a cell with fewer people than a deviation of its noise


def to_simplex(rows: Tensor, totals: Tensor) -> Tensor:
    """For each row the nearest non-negative one with this sum (Wang, Carreira-Perpiñán 2013); −∞: no such place."""
    falling = rows.sort(dim=1, descending=True).values
    real = falling.isfinite()
    above = torch.where(real, falling, 0).cumsum(1) - totals[:, None]
    count = torch.arange(1, rows.shape[1] + 1, device=rows.device)
    kept = (real & (falling * count > above)).sum(1).clamp(min=1)  # the largest ones come first
    shift = above.gather(1, kept[:, None] - 1) / kept[:, None]
    return (rows - shift).clamp(min=0)


def likely_run(
    counts: Tensor, missing: Tensor | None, noise: float, total: float, sure: float = 0.0
) -> tuple[int, int]:
    """The first and the last of the cells in which `total` people are, those without a value beside them.

    By likelihood, with one for each cell against it, and more for one with hardly anybody: all are inside, in whatever
    numbers, and nobody is outside.
    `sure`: the deviation of the total, which may be another one by as much as that makes likely.
    """
    if not noise:
        there = torch.nonzero(counts > 0)[:, 0].tolist()
        return (there[0], there[-1]) if there else (0, len(counts) - 1)
    ends = torch.nonzero(counts > 0)[:, 0]
    if not len(ends):
        return 0, len(counts) - 1
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
