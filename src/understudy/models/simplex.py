"""Projection onto non-negative tables with a given sum.

Source: Wang, Carreira-Perpiñán, "Projection onto the probability simplex" (2013).
"""

import torch
from torch import Tensor


def to_simplex(rows: Tensor, totals: Tensor) -> Tensor:
    """For each row the nearest non-negative one with this sum; −∞: no such cell."""
    falling = rows.sort(dim=1, descending=True).values
    is_finite = falling.isfinite()
    sums = torch.where(is_finite, falling, 0).cumsum(1)
    excess = sums - totals[:, None]
    count = torch.arange(1, rows.shape[1] + 1, device=rows.device)
    # the largest ones come first
    is_positive = is_finite & (falling * count > excess)
    n_positive = is_positive.sum(1, keepdim=True).clamp(min=1)
    shift = excess.gather(1, n_positive - 1) / n_positive
    return (rows - shift).clamp(min=0)
