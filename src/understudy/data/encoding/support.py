"""The support of a column, from noisy counts of its public cells: the run of cells in
which people are (`encoding.fine`).

Guarantee: reads released counts alone.
"""

import torch
from torch import Tensor

from understudy.data.encoding.fine import Run

# deviations by which a total may be off
_STEPS = tuple(step / 2 for step in range(-6, 7))


def likely_run(
    counts: Tensor,
    missing: Tensor | None,
    noise: float,
    total: float,
    sure: float = 0.0,
    *,
    empty_cost: float = 1.0,
) -> Run:
    """The first and the last of the cells in which `total` people are, those without a
    value beside them. By likelihood, with one for each cell against it, and more for
    one with hardly anybody: all are inside, in whatever numbers, and nobody is outside.
    `sure`: the deviation of the total. `empty_cost`: against a cell with fewer people
    than a deviation of its noise.
    """
    ends = torch.nonzero(counts > 0)[:, 0]
    if not len(ends):
        return 0, len(counts) - 1
    if not noise:
        return int(ends[0]), int(ends[-1])
    # noise alone lets a run end elsewhere
    first, last = torch.combinations(ends, with_replacement=True).T
    places = torch.arange(len(counts))
    is_inside = (places >= first[:, None]) & (places <= last[:, None])
    outside = torch.where(is_inside, 0, counts.double())
    squares_outside = outside.square().sum(1)
    beside = counts[:0] if missing is None else missing
    falling, order = torch.cat([counts, beside]).double().sort(descending=True)
    is_beside = is_inside.new_ones(len(is_inside), len(beside))
    is_there = torch.cat([is_inside, is_beside], 1)[:, order]
    # so many people, up to whom the cell is empty
    held_before = (is_there * falling).cumsum(1)
    needed = held_before - falling * is_there.cumsum(1)
    most = torch.where(is_there, needed, torch.inf)
    is_own = is_there & (order < len(counts))
    known_counts = torch.where(is_own, falling, torch.inf)

    # the total may be off
    steps = torch.tensor(_STEPS if sure else (0.0,), dtype=torch.float64)[:, None]
    people = (total + steps * sure).clamp(min=1)
    # as a projection onto the simplex: those that are left lose as much each
    is_kept = most < people[:, :, None]
    held = is_kept.sum(2)
    loss = (is_kept.double() @ falling - people) / held
    emptied = (is_there & ~is_kept).double() @ falling.square()
    squares = held * loss.square() + emptied
    n_empty = (known_counts < noise + loss[:, :, None]).sum(2)
    variance = 2 * noise**2
    cost = squares / variance + steps.square() / 2 + empty_cost * n_empty
    cells = is_inside.sum(1)
    costs = cost.min(0).values + squares_outside / variance + cells
    best = int(costs.argmin())
    return int(first[best]), int(last[best])
