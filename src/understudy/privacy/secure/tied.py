"""Second moments of vectors that several holders have of the same people: what is counted, by how much one person moves
it, and how one price is split among its parts.

At holder h a person has a vector v_h of whole numbers with ‖v_h‖ ≤ R, whatever that person's row holds: the frequencies
of an image about a mean, pulled in (`moments.bounded`), or the one-hot levels of m columns, each `one` = ⌊R/√m⌋ in
place of 1. Of several images v_h is the average, and v_h v_hᵀ below the average of theirs, each entry cut towards zero:
an average of vectors is no longer than the longest of them. Released is the matrix of all of them side by side, Σ v vᵀ
over people, block by block:

    within h        the upper triangle of Σ v_h v_hᵀ, by h alone
    h with k        every cell of Σ v_h v_kᵀ, by both (`product`)
    h by class      of every class the upper triangle of Σ w_h w_hᵀ over its people, by h and the holder of the class:
                    the product of the vector that holds the triangle of w_h w_hᵀ with the class's one-hot row

*What a person moves.* With noise σ beside a diagonal and √2·σ on it, a triangle of v vᵀ counts as Σ_{i<j} (v_i v_j)² +
Σ_i v_i⁴/2 = ‖v‖⁴/2: R²/√2 at most (`moments`). The cells of v_h v_kᵀ count as Σ_ij v_hi² v_kj² = ‖v_h‖² ‖v_k‖²: R² at
most. By class a person moves the triangle of one class alone: R²/√2. With the same σ everywhere all blocks together
would be the triangle of v vᵀ for v = (v_1, …, v_H), which moves by ‖v‖²/√2: nothing is counted twice.

*One price.* Let block b move by Δ_b and have noise σ_b = Δ_b·z/√w_b, with weights w_b that add up to 1. Divided by its
σ_b each, all blocks are one vector that a person moves by √(Σ Δ_b²/σ_b²) = 1/z under noise of scale 1: one
Gaussian mechanism with multiplier z. That noise is discrete is dealt with block by block, as `moments` shows: a block
is post-processing of the Gaussian mechanism with √(σ_b² − 9), which `moments.noise_for` sees to.

*Two holders* of a block add that noise each, so that σ_b is left against either of them and the server; what is
released of it has the variance 2σ_b².

Guarantee: whatever rows hold and whatever a server chooses, one person moves block b by at most `sensitivity`.
"""

import math
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from understudy.ground.check import positive
from understudy.privacy.secure.moments import Places, Whole
from understudy.privacy.secure.ring import Bits

_CHUNK = 1 << 13  # people
_ROOM = 1 + 2.0**-40

B = TypeVar("B")


def one_for(scale: int, columns: int) -> int:
    """What a level counts in a row of so many columns whose norm is at most `scale`.

    Edges: more columns than scale² → 0, and the row is empty; a run with so many is refused (`Layout.noise`).
    """
    return math.isqrt(scale**2 // columns)


def levels_as_numbers(rows: Bits, one: int) -> Whole:
    """One-hot rows, `one` in place of 1."""
    return rows.astype(np.float64) * one


def sensitivity(scale: int, *, across: bool) -> float:
    """By how much a person with vectors of norm `scale` moves a block, in terms of its σ."""
    return scale**2 * (1.0 if across else math.sqrt(0.5)) * _ROOM


def triangle(rows: Whole) -> Tensor:
    """The upper triangle of Σ v vᵀ, exactly: int64, (d(d+1)/2,)."""
    total = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.int64)
    for start in range(0, len(rows), _CHUNK):  # a chunk's sums stay below 2⁵³, where doubles are exact
        part = rows[start : start + _CHUNK]
        total += torch.from_numpy((part.T @ part).astype(np.int64))
    at = torch.triu_indices(rows.shape[1], rows.shape[1])
    return total[at[0], at[1]]


def squares(rows: Whole) -> Whole:
    """Of each row the upper triangle of v vᵀ, flat: (n, d(d+1)/2)."""
    at = torch.triu_indices(rows.shape[1], rows.shape[1]).numpy()
    return np.asarray(rows[:, at[0]] * rows[:, at[1]])


def averages(rows: Whole, starts: Places) -> Whole:
    """Of each person the average of the rows starts[i] … starts[i + 1], of which there are some, each entry cut towards
    zero to a whole number: (people, d).
    """
    sizes = np.diff(starts)
    if (sizes == 1).all():
        return rows
    return np.asarray(np.trunc(np.add.reduceat(rows, starts[:-1]) / sizes[:, None]))


def block_multipliers(multiplier: float, weights: Mapping[B, float]) -> dict[B, float]:
    """The noise multiplier of each block of a release that costs as much as one Gaussian with this multiplier."""
    total = math.fsum(weights.values())
    positive(**{"the sum of weights": total})
    return {block: multiplier / math.sqrt(weight / total) * _ROOM for block, weight in weights.items()}
