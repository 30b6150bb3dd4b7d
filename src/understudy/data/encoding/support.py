"""The support of a column, from noisy counts of its public cells: the run of cells in
which people are (`encoding.fine`).

Guarantee: reads released counts alone.
"""

import torch
from torch import Tensor

from understudy.data.encoding.fine import Run

# deviations by which a total may be off
_STEPS = tuple(step / 2 for step in range(-6, 7))
_EMPTY = 1.0  # more against a cell with fewer people than a deviation of its noise


def likely_run(
    counts: Tensor,
    missing: Tensor | None,
    noise: float,
    total: float,
    sure: float = 0.0,
) -> Run:
    """The first and the last of the cells in which `total` people are, those without a
    value beside them. By likelihood, with one for each cell against it, and more for
    one with hardly anybody: all are inside, in whatever numbers, and nobody is outside.
    `sure`: the deviation of the total.
    """
    ends = torch.nonzero(counts > 0)[:, 0]
    if not len(ends):
        return 0, len(counts) - 1
    if not noise:
        return int(ends[0]), int(ends[-1])
    # noise alone lets a run end elsewhere
    first, last = torch.combinations(ends, with_replacement=True).T
    places = torch.arange(len(counts))
    inside = (places >= first[:, None]) & (places <= last[:, None])
    outside = torch.where(inside, 0, counts.double()).square().sum(1)
    beside = counts[:0] if missing is None else missing
    falling, order = torch.cat([counts, beside]).double().sort(descending=True)
    there = torch.cat([inside, inside.new_ones(len(inside), len(beside))], 1)[:, order]
    # People, up to whom the cell is empty.
    most = torch.where(
        there,
        (there * falling).cumsum(1) - falling * there.cumsum(1),
        torch.inf,
    )
    own = torch.where(there & (order < len(counts)), falling, torch.inf)

    steps = torch.tensor(_STEPS if sure else (0.0,), dtype=torch.float64)[:, None]
    people = (total + steps * sure).clamp(min=1)
    # as a projection onto the simplex: those that are left lose as much each
    kept = most < people[:, :, None]
    held = kept.sum(2)
    loss = (kept.double() @ falling - people) / held
    off = held * loss.square() + (there & ~kept).double() @ falling.square()
    empty = (own < noise + loss[:, :, None]).sum(2)
    cost = off / (2 * noise**2) + steps.square() / 2 + _EMPTY * empty
    best = int((cost.min(0).values + outside / (2 * noise**2) + inside.sum(1)).argmin())
    return int(first[best]), int(last[best])
