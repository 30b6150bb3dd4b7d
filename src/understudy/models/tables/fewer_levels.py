"""Pairs that hide in their noise, read on fewer levels: where a column is to be predicted, and people are few.

The pairs with the target have most of the budget then (`again_share`), and what a cell of any other pair holds is far
below its noise. A fit that follows these as declared is farther from the people than independent columns are. So where
L = √(n/σ), which is how many levels are bought (`merged_levels`), is below 3, all other pairs are merged to two levels
of about equal weight, read there, and drawn to what they say of these: within a level, and between columns that tell
nothing of each other, to independence. One-way tables keep what all pairs say of such levels, and the target's pairs
all of their levels. With more people this gains nothing, or loses (benchmarks/joint/TRIED.md).

Guarantee: reads the released matrix alone, so that all here is post-processing.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from understudy.models.tables.merged_levels import Coarse, level_count
from understudy.models.tables.noisy_tables import Tables, read_tables
from understudy.models.tables.priors import with_margins

_FEW = 3  # levels: from so many on pairs are read as declared


def read_on_fewer(
    counts: Tensor, variance: Tensor, sizes: Sequence[int], target: int, people: int | None
) -> Tables | None:
    """The tables of which none but the target's are believed beyond L levels; None where noise allows more levels."""
    column = torch.repeat_interleave(torch.tensor(sizes, device=counts.device))
    other = (column[:, None] != column) & (column[:, None] != target) & (column != target) & variance.isfinite()
    counted = people or float(counts.diagonal().sum()) / len(sizes)
    if not bool(other.any()) or not (people or bool(variance.diagonal().isfinite().all())):
        return None
    levels = level_count(counted, float(variance[other].mean().sqrt()))
    if levels >= _FEW:
        return None
    told = read_tables(counts, sizes, noise=torch.where(other, torch.inf, variance).sqrt(), people=people)
    coarse = Coarse.of(told.ways * told.people, sizes, {target}, levels)
    if coarse is None:
        return None
    fewer, spread = coarse.merged(counts, variance)
    read = read_tables(fewer, coarse.sizes, noise=spread.sqrt(), people=people)
    member = one_hot(coarse.group).double()
    shares = member * coarse.share[:, None]
    near = shares @ with_margins(read.plain(read.target).clamp(min=0), read.ways, read.columns) @ shares.T
    pairs = read.columns.T @ read.precision @ read.columns / torch.outer(*2 * (read.columns.sum(0),))
    many = member @ member.sum(0)
    precision = told.columns @ pairs @ told.columns.T * torch.outer(many, many)
    return replace(
        told, ways=shares @ read.ways, target=torch.where(other, told.basis.T @ near @ told.basis, told.target),
        precision=torch.where(other, precision, told.precision), least=0.0,
    )  # fmt: skip
