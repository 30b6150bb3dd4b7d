"""Symmetric matrices as their upper triangles, row by row, diagonals included."""

import torch
from torch import Tensor


def packed(moments: Tensor) -> Tensor:
    """The upper triangles of (…, d, d): (…, d(d+1)/2)."""
    at = torch.triu_indices(moments.shape[-1], moments.shape[-1])
    return moments[..., at[0], at[1]]


def unpacked(triangles: Tensor, d: int) -> Tensor:
    """The inverse of `packed`."""
    at = torch.triu_indices(d, d)
    full = triangles.new_zeros(*triangles.shape[:-1], d, d)
    full[..., at[0], at[1]] = triangles
    full[..., at[1], at[0]] = triangles
    return full


def on_diagonal(d: int) -> Tensor:
    """Which entries of a packed triangle stand on the diagonal: (d(d+1)/2,)."""
    at = torch.triu_indices(d, d)
    return at[0] == at[1]
