"""The Gram matrix of one holder's one-hot rows, the noise for it, and what its release costs.

The matrix Σ x xᵀ counts, for every two levels, the people who have both: a level of a column with one of another
column (two-way tables), and each level with itself (one-way tables, on the diagonal). Two levels of one column never
meet: those cells are zero for every table, so they need no noise.

Guarantee: a person adds 1 to one cell for each of m columns and each of their m(m−1)/2 pairs, so that the release of
the upper triangle under discrete Gaussian noise costs m(m+1)/2 uses of `release_event` (add/remove one person). A
part of it costs one use for each of its columns and pairs, and a three-way table one use. Cells need not have the same
noise: n_c of them with σ_c are n_c uses of `release_event(σ_c)`, and of Gaussian noise Σ n_c/σ_c² is all that counts.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
import torch
from dp_accounting import ComposedDpEvent, NonPrivateDpEvent, SelfComposedDpEvent
from torch import Tensor

from understudy.data.encoding.codec import Codes
from understudy.privacy.accounts.accounting import DiscreteGaussian, DpEvent, Spend, calibrate
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import DiscreteGaussianNoise, Rng, rounded_up
from understudy.privacy.secure.ring import Bits

_CELLS = 1 << 20  # counted at a time

# σ of cells that a person moves over the release's, and how many they are
Moved = tuple[tuple[float, int], ...]


def release_event(sigma: float, by: int = 1) -> DpEvent:
    """What one cell costs that a person moves `by` so much."""
    return DiscreteGaussian(sigma, by) if sigma else NonPrivateDpEvent()


def needed_noise(cells: int, budget: Budget) -> float:
    """The least σ with which the release of so many moved cells is within the budget; a float that is a short fraction.

    Edges: δ=0, or a budget out of reach → PrivacyError.
    """
    return shared_noise(((((1.0, cells),), 1.0),), budget)[0]


@lru_cache(maxsize=64)
def shared_noise(
    releases: tuple[tuple[Moved, float], ...], budget: Budget, by: int = 1, beside: tuple[tuple[float, int], ...] = ()
) -> tuple[float, ...]:
    """The σ of several releases that are within the budget together: of each, its moved cells and its share.

    A share is that of Σ cells/σ², which is what Gaussian releases spend; shares add up to 1. A person moves each of the
    cells `by` so much. `beside`: (σ, moved cells) of what is released from the same budget and has its noise already.
    Guarantee: with the noise that `scaled` gives each kind of cells, all of them together are within the budget.
    Edges: δ=0, or a budget out of reach → PrivacyError.
    """
    sizes = [math.fsum(cells / factor**2 for factor, cells in moved) for moved, _ in releases]

    def scales(noise: float) -> list[float]:
        return [noise * math.sqrt(size / share) for size, (_, share) in zip(sizes, releases, strict=True)]

    def price(noise: float) -> Spend:
        each = zip(scales(noise), releases, strict=True)
        cells = ((sigma * factor, cells) for sigma, (moved, _) in each for factor, cells in moved)
        return spend_of(cells, by) + spend_of(beside)

    found = calibrate(price, epsilon=budget.epsilon, delta=budget.delta)
    return tuple(float(rounded_up(sigma)) for sigma in scales(found))


def scaled(sigma: float, factor: float) -> float:
    """The noise of cells that have `factor` times the release's: never less, and a float that is a short fraction."""
    return float(rounded_up(sigma * factor)) if sigma else 0.0


def spend_of(releases: Iterable[tuple[float, int]], by: int = 1) -> Counter[DpEvent]:
    """What releases of (σ, moved cells) cost together, where a person moves each of the cells `by` so much."""
    spend: Counter[DpEvent] = Counter()
    for sigma, cells in releases:
        spend[release_event(sigma, by)] += cells
    return spend


def composed(spend: Spend) -> DpEvent:
    if list(spend.values()) == [1]:
        return next(iter(spend))
    return ComposedDpEvent([SelfComposedDpEvent(event, count) for event, count in spend.items()])


def one_hot(codes: Codes, sizes: Sequence[int]) -> Bits:
    """Codes of columns with so many levels, as 0/1 rows: (n, width)."""
    rows = np.zeros((len(codes), sum(sizes)), dtype=np.bool_)
    starts = np.array([0, *accumulate(sizes)][:-1])
    np.put_along_axis(rows, codes + starts, True, axis=1)
    return rows


def gram_matrix(codes: Codes, sizes: Sequence[int]) -> Tensor:
    """Σ x xᵀ over one-hot rows, exactly: int64, (width, width). Memory does not grow with the rows."""
    width, starts = sum(sizes), np.array([0, *accumulate(sizes)][:-1])
    upper = np.zeros((width, width), dtype=np.int64)
    chunk = max(1, _CELLS // max(1, len(sizes)))
    for first in range(0, len(codes), chunk):
        slots = np.ascontiguousarray((codes[first : first + chunk] + starts).T)  # (columns, n), int64
        for column, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            met = slots[column:] + (slots[column] - start) * width
            counted = np.bincount(met.ravel(), minlength=size * width)
            upper[start : start + size] += counted.reshape(size, width)
    return mirrored(torch.from_numpy(upper))


def noise(scale: Fraction, rng: Rng, *shape: int) -> Tensor:
    """Discrete Gaussian noise, int64; zeros for a scale of 0."""
    return noise_on(torch.ones(shape, dtype=torch.bool), scale, rng)


def noise_on(cells: Tensor, scale: Fraction, rng: Rng) -> Tensor:
    """Independent noise on the marked cells, zero elsewhere: int64, of the same shape."""
    drawn = torch.zeros(cells.shape, dtype=torch.int64)
    if scale:
        drawn[cells] = DiscreteGaussianNoise(scale).draw(int(cells.sum()), rng)
    return drawn


def movable(sizes: Sequence[int]) -> Tensor:
    """Which cells of the matrix a person can move: two levels of one column never meet. (width, width)."""
    column = torch.repeat_interleave(torch.tensor(sizes))
    return (column[:, None] != column) | torch.eye(len(column), dtype=torch.bool)


def mirrored(upper: Tensor) -> Tensor:
    return upper.triu() + upper.triu(1).T


def triple_table(codes: Codes, sizes: Sequence[int], columns: Sequence[int]) -> Tensor:
    """The counts of a three-way table, exactly: int64, by the three columns' levels."""
    shape = tuple(sizes[column] for column in columns)
    flat = np.ravel_multi_index(tuple(codes[:, column] for column in columns), shape)
    return torch.from_numpy(np.bincount(flat, minlength=math.prod(shape))).view(shape)
