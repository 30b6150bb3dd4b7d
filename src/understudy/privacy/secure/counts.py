"""The Gram matrix of one holder's one-hot rows, the noise for it, and what its release
costs.

The matrix Σ x xᵀ counts, for every two levels, the people who have both: a level of a
column with one of another column (two-way tables), and each level with itself (one-way
tables, on the diagonal). Two levels of one column never meet: those cells are zero for
every table, so they need no noise.

Guarantee: a person adds 1 to one cell for each of m columns and each of their m(m−1)/2
pairs, so that the release of the upper triangle under discrete Gaussian noise costs
m(m+1)/2 uses of `release_event` (add/remove one person). A part of it costs one use for
each of its columns and pairs, and a three-way table one use. Cells need not have the
same noise: n_c of them with σ_c are n_c uses of `release_event(σ_c)`, and of Gaussian
noise Σ n_c/σ_c² is all that counts.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, combinations

import numpy as np
import torch
from dp_accounting import ComposedDpEvent, NonPrivateDpEvent, SelfComposedDpEvent
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.codec import Codes
from understudy.privacy.accounts.accounting import (
    DiscreteGaussian,
    DpEvent,
    Spend,
    calibrate,
)
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import DiscreteGaussianNoise, Rng, rounded_up
from understudy.privacy.secure.ring import Bits

# of all tables that are counted at a time, as far as columns are not counted alone
_CELLS = 1 << 24
_ROWS = 1 << 16  # that are looked at together
_MOST = 256  # tuples of a pack: a cache holds the table of two

# σ of cells that a person moves over the release's, and how many they are
Moved = tuple[tuple[float, int], ...]


def release_event(sigma: float, by: int = 1) -> DpEvent:
    """What one cell costs that a person moves `by` so much."""
    return DiscreteGaussian(sigma, by) if sigma else NonPrivateDpEvent()


def needed_noise(cells: int, budget: Budget) -> float:
    """The least σ, a short fraction, for so many moved cells within the budget; out of
    reach → PrivacyError.
    """
    return shared_noise(((((1.0, cells),), 1.0),), budget)[0]


@lru_cache(maxsize=64)
def shared_noise(
    releases: tuple[tuple[Moved, float], ...],
    budget: Budget,
    by: int = 1,
    beside: tuple[tuple[float, int], ...] = (),
) -> tuple[float, ...]:
    """The σ of several releases that are within the budget together: of each, its moved
    cells and its share.

    A share is that of Σ cells/σ², which is what Gaussian releases spend; shares add up
    to 1. A person moves each of the cells `by` so much. `beside`: (σ, moved cells) of
    what is released from the same budget and has its noise already.
    Guarantee: with the noise that `scaled` gives each kind of cells, all of them
    together are within the budget.
    Edges: δ=0, or a budget out of reach → PrivacyError.
    """
    sizes = [
        math.fsum(cells / factor**2 for factor, cells in moved) for moved, _ in releases
    ]

    def scales(noise: float) -> list[float]:
        return [
            noise * math.sqrt(size / share)
            for size, (_, share) in zip(sizes, releases, strict=True)
        ]

    def price(noise: float) -> Spend:
        each = zip(scales(noise), releases, strict=True)
        cells = (
            (sigma * factor, cells)
            for sigma, (moved, _) in each
            for factor, cells in moved
        )
        return spend_of(cells, by) + spend_of(beside)

    found = calibrate(price, epsilon=budget.epsilon, delta=budget.delta)
    return tuple(float(rounded_up(sigma)) for sigma in scales(found))


def scaled(sigma: float, factor: float) -> float:
    """The noise of cells that have `factor` times the release's: never less, and a
    float that is a short fraction.
    """
    return float(rounded_up(sigma * factor)) if sigma else 0.0


def spend_of(releases: Iterable[tuple[float, int]], by: int = 1) -> Counter[DpEvent]:
    """What releases of (σ, moved cells) cost together, where a person moves each of the
    cells `by` so much.
    """
    spend: Counter[DpEvent] = Counter()
    for sigma, cells in releases:
        spend[release_event(sigma, by)] += cells
    return spend


def composed(spend: Spend) -> DpEvent:
    if list(spend.values()) == [1]:
        return next(iter(spend))
    return ComposedDpEvent(
        [SelfComposedDpEvent(event, count) for event, count in spend.items()]
    )


def one_hot(codes: Codes, sizes: Sequence[int]) -> Bits:
    """Codes of columns with so many levels, as 0/1 rows: (n, width)."""
    rows = np.zeros((len(codes), sum(sizes)), dtype=np.bool_)
    starts = np.array([0, *accumulate(sizes)][:-1])
    np.put_along_axis(rows, codes + starts, True, axis=1)
    return rows


def gram_matrix(codes: Codes | Bits, sizes: Sequence[int]) -> Tensor:
    """Σ x xᵀ over one-hot rows, exactly: int64, (width, width). Memory does not grow
    with the rows.

    Columns of few levels are packed into one, of all tuples of their levels: one count
    of where two packs meet has all pairs of their columns in it.
    """
    packs = _packs(sizes, len(codes))
    widths = [math.prod(sizes[column] for column in pack) for pack in packs]
    alone = [np.zeros(width, dtype=np.int64) for width in widths]
    met = {
        (i, j): np.zeros(widths[i] * widths[j], dtype=np.int64)
        for i, j in combinations(range(len(packs)), 2)
    }
    for first in range(0, len(codes), _ROWS):
        slots = [_tuples(codes[first : first + _ROWS], sizes, pack) for pack in packs]
        for table, slot in zip(alone, slots, strict=True):
            table += np.bincount(slot, minlength=len(table))
        for (i, j), table in met.items():
            table += np.bincount(
                slots[i] * np.int32(widths[j]) + slots[j], minlength=len(table)
            )
    starts = [0, *accumulate(sizes)]
    at = [
        slice(start, start + size) for start, size in zip(starts, sizes, strict=False)
    ]
    matrix = np.zeros((starts[-1], starts[-1]), dtype=np.int64)
    tables: dict[tuple[int, int], NDArray[np.int64]] = {
        (i, i): np.diag(table) for i, table in enumerate(alone)
    }
    for (i, j), counted in (tables | met).items():
        for one, levels in _by_column(
            counted.reshape(widths[i], widths[j]), sizes, packs[i]
        ):
            for other, counts in _by_column(levels.T, sizes, packs[j]):
                matrix[at[other], at[one]], matrix[at[one], at[other]] = (
                    counts,
                    counts.T,
                )
    return torch.from_numpy(matrix)


def _packs(sizes: Sequence[int], rows: int) -> list[list[int]]:
    """All columns by number, some together: tables of two packs are no longer than the
    rows, and all are bounded.
    """
    most = min(math.isqrt(rows), _MOST)
    while True:
        packs = list[list[int]]()
        room = list[int]()
        for column in sorted(range(len(sizes)), key=lambda column: -sizes[column]):
            place = next(
                (n for n, left in enumerate(room) if left >= sizes[column]), len(packs)
            )
            if place == len(packs):
                packs.append([])
                room.append(most)
            packs[place].append(column)
            room[place] //= sizes[column]
        if (
            most <= 1
            or sum(math.prod(sizes[column] for column in pack) for pack in packs) ** 2
            <= _CELLS
        ):
            return packs
        most //= 2


def _tuples(codes: Codes | Bits, sizes: Sequence[int], pack: Sequence[int]) -> Codes:
    """Which tuple of a pack's levels each row has."""
    slots = codes[:, pack[0]].astype(np.int32)
    for column in pack[1:]:
        slots *= np.int32(sizes[column])
        slots += codes[:, column]
    return slots


def _by_column(
    table: NDArray[np.int64], sizes: Sequence[int], pack: Sequence[int]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Of counts by a pack's tuples, (tuples, others), the counts by the levels of each
    of its columns.
    """
    before = 1
    for column in pack:
        counts = table.reshape(before, sizes[column], -1, table.shape[1])
        yield column, counts.sum(axis=(0, 2))
        before *= sizes[column]


def noise(scale: Fraction, rng: Rng, *shape: int) -> Tensor:
    """Discrete Gaussian noise, int64; zeros for a scale of 0."""
    return noise_on(torch.ones(shape, dtype=torch.bool), scale, rng)


def noise_on(cells: Tensor, scale: Fraction, rng: Rng) -> Tensor:
    """Independent noise on the marked cells, zero elsewhere: int64, of the same
    shape.
    """
    drawn = torch.zeros(cells.shape, dtype=torch.int64)
    if scale:
        drawn[cells] = DiscreteGaussianNoise(scale).draw(int(cells.sum()), rng)
    return drawn


def movable(sizes: Sequence[int]) -> Tensor:
    """Which cells of the matrix a person can move: two levels of one column never meet.
    (width, width).
    """
    column = torch.repeat_interleave(torch.tensor(sizes))
    return (column[:, None] != column) | torch.eye(len(column), dtype=torch.bool)


def sums_of_threes(signs: Tensor) -> Tensor:
    """Σ s·s·s over rows of signs (n, columns), for every three columns, in the order of
    `torch.combinations`: int64.
    """
    found = []
    for one in range(signs.shape[1] - 2):
        others = signs[:, one + 1 :]
        products = (others * signs[:, one, None]).T @ others
        found.append(
            products[tuple(torch.combinations(torch.arange(others.shape[1])).T)]
        )
    return torch.cat(found).long()


def mirrored(upper: Tensor) -> Tensor:
    return upper.triu() + upper.triu(1).T


def triple_table(codes: Codes, sizes: Sequence[int], columns: Sequence[int]) -> Tensor:
    """The counts of a three-way table, exactly: int64, by the three columns' levels."""
    shape = tuple(sizes[column] for column in columns)
    flat = np.ravel_multi_index(tuple(codes[:, column] for column in columns), shape)
    return torch.from_numpy(np.bincount(flat, minlength=math.prod(shape))).view(shape)
