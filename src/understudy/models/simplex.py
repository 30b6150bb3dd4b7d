"""Projection onto non-negative tables with a given sum.

Source: Wang, Carreira-Perpiñán, "Projection onto the probability simplex" (2013).
"""

import torch
from torch import Tensor


def to_simplex(rows: Tensor, totals: Tensor) -> Tensor:
    """For each row the nearest non-negative one with this sum; −∞: no such cell."""
    falling = rows.sort(dim=1, descending=True).values
    real = falling.isfinite()
    above = torch.where(real, falling, 0).cumsum(1) - totals[:, None]
    count = torch.arange(1, rows.shape[1] + 1, device=rows.device)
    # the largest ones come first
    n_positive = (real & (falling * count > above)).sum(1).clamp(min=1)
    shift = above.gather(1, n_positive[:, None] - 1) / n_positive[:, None]
    return (rows - shift).clamp(min=0)
