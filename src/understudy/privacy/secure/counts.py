"""The Gram matrix of one holder's one-hot rows, the noise for it, and what its release costs.

The matrix Σ x xᵀ counts, for every two levels, the people who have both: a level of a column with one of another
column (two-way tables), and each level with itself (one-way tables, on the diagonal). Two levels of one column never
meet: those cells are zero for every table, so they need no noise.

Guarantee: a person adds 1 to one cell for each of m columns and each of their m(m−1)/2 pairs, so that the release of
the upper triangle under discrete Gaussian noise costs m(m+1)/2 uses of `release_event` (add/remove one person).
"""

import math
from fractions import Fraction

import numpy as np
import torch
from dp_accounting import NonPrivateDpEvent
from torch import Tensor

from understudy.data.codec import Codec, Codes
from understudy.privacy.accounting import DiscreteGaussian, DpEvent, Spend, calibrate
from understudy.privacy.budget import Budget
from understudy.privacy.laplace import DiscreteGaussianNoise, rounded_up
from understudy.privacy.rng import Rng
from understudy.privacy.secure.ring import Bits, Ring

_CHUNK = 1 << 15  # people


def moved_cells(columns: int) -> int:
    """How many cells of the upper triangle a person moves, each by 1."""
    return columns * (columns + 1) // 2


def release_event(sigma: float) -> DpEvent:
    """What one moved cell costs."""
    return DiscreteGaussian(sigma) if sigma else NonPrivateDpEvent()


def needed_noise(cells: int, budget: Budget) -> float:
    """The least σ with which the release of so many moved cells is within the budget; a float that is a short fraction.

    Edges: δ=0, or a budget out of reach → PrivacyError.
    """

    def price(sigma: float) -> Spend:
        return {release_event(sigma): cells}

    return float(rounded_up(calibrate(price, epsilon=budget.epsilon, delta=budget.delta)))


def one_hot(codes: Codes, codec: Codec) -> Bits:
    """Codes as 0/1 rows: (n, width)."""
    rows = np.zeros((len(codes), codec.width), dtype=np.bool_)
    starts = np.array([block.start for block in codec.blocks])
    np.put_along_axis(rows, codes + starts, True, axis=1)
    return rows


def gram_matrix(codes: Codes, codec: Codec) -> Tensor:
    """Σ x xᵀ over one-hot rows, exactly: int64, (width, width). Memory does not grow with the rows."""
    ring, total = Ring(64), torch.zeros(codec.width, codec.width, dtype=torch.int64)
    for start in range(0, len(codes), _CHUNK):
        rows = one_hot(codes[start : start + _CHUNK], codec)
        total += ring.signed(ring.product(ring.words(rows), rows))
    return total


def noise(scale: Fraction, rng: Rng, *shape: int) -> Tensor:
    """Discrete Gaussian noise, int64; zeros for a scale of 0."""
    if not scale:
        return torch.zeros(shape, dtype=torch.int64)
    return DiscreteGaussianNoise(scale).draw(math.prod(shape), rng).view(shape)


def gram_noise(scale: Fraction, rng: Rng, codec: Codec) -> Tensor:
    """Independent noise for every cell of the upper triangle that a person can move, mirrored: (width, width)."""
    column = torch.repeat_interleave(torch.tensor(codec.sizes))
    movable = ((column[:, None] != column) | torch.eye(len(column), dtype=torch.bool)).triu()
    upper = torch.zeros(movable.shape, dtype=torch.int64)
    upper[movable] = noise(scale, rng, int(movable.sum()))
    return upper + upper.triu(1).T
