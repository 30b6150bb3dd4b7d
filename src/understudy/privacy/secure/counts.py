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
from itertools import accumulate, combinations, pairwise

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
_MAX_CELLS = 1 << 24
_CHUNK_ROWS = 1 << 16
_MAX_PACK_WIDTH = 256  # tuples of a pack: a cache holds the table of two

# (factor, cells): how many cells a person moves that have `factor` times a release's σ
Moved = tuple[tuple[float, int], ...]


def release_event(sigma: float, sensitivity: int = 1) -> DpEvent:
    """The privacy event of one noisy cell of this sensitivity."""
    return DiscreteGaussian(sigma, sensitivity) if sigma else NonPrivateDpEvent()


def needed_noise(cells: int, budget: Budget) -> float:
    """The least σ, a short fraction, for so many moved cells within the budget; out of
    reach → PrivacyError.
    """
    moved = ((1.0, cells),)
    (sigma,) = shared_noise(((moved, 1.0),), budget)
    return sigma


@lru_cache(maxsize=64)
def shared_noise(
    releases: tuple[tuple[Moved, float], ...],
    budget: Budget,
    sensitivity: int = 1,
    fixed: tuple[tuple[float, int], ...] = (),
) -> tuple[float, ...]:
    """The σ of several releases that are within the budget together: of each, its moved
    cells and its share.

    A share is that of Σ cells/σ², which is what Gaussian releases spend; shares add up
    to 1. A person moves each of these cells by at most `sensitivity`. `fixed`: (σ,
    moved cells) of what is released from the same budget and has its noise already.
    Guarantee: with the noise that `scaled` gives each kind of cells, all of them
    together are within the budget.
    Edges: δ=0, or a budget out of reach → PrivacyError.
    """
    ratios = []
    for moved, share in releases:
        size = math.fsum(cells / factor**2 for factor, cells in moved)
        ratios.append(math.sqrt(size / share))

    def scales(noise: float) -> list[float]:
        return [noise * ratio for ratio in ratios]

    def price(noise: float) -> Spend:
        noisy_cells = []
        for sigma, (moved, _) in zip(scales(noise), releases, strict=True):
            noisy_cells += [(sigma * factor, cells) for factor, cells in moved]
        return spend_of(noisy_cells, sensitivity) + spend_of(fixed)

    base_noise = calibrate(price, epsilon=budget.epsilon, delta=budget.delta)
    return tuple(float(rounded_up(sigma)) for sigma in scales(base_noise))


def scaled(sigma: float, factor: float) -> float:
    """The noise of cells that have `factor` times the release's: never less, and a
    float that is a short fraction.
    """
    return float(rounded_up(sigma * factor)) if sigma else 0.0


def spend_of(
    releases: Iterable[tuple[float, int]],
    sensitivity: int = 1,
) -> Counter[DpEvent]:
    """The events of releases of (σ, moved cells) together, each cell of this
    sensitivity.
    """
    spend: Counter[DpEvent] = Counter()
    for sigma, cells in releases:
        spend[release_event(sigma, sensitivity)] += cells
    return spend


def composed(spend: Spend) -> DpEvent:
    if list(spend.values()) == [1]:
        return next(iter(spend))
    events = [SelfComposedDpEvent(event, count) for event, count in spend.items()]
    return ComposedDpEvent(events)


def one_hot(codes: Codes, sizes: Sequence[int]) -> Bits:
    """Codes of columns with so many levels, as 0/1 rows: (n, width)."""
    *starts, width = accumulate(sizes, initial=0)
    rows = np.zeros((len(codes), width), dtype=np.bool_)
    positions = codes + np.array(starts)
    np.put_along_axis(rows, positions, True, axis=1)
    return rows


def gram_matrix(codes: Codes | Bits, sizes: Sequence[int]) -> Tensor:
    """Σ x xᵀ over one-hot rows, exactly: int64, (width, width). Memory does not grow
    with the rows.

    Columns of few levels are packed into one, of all tuples of their levels: one count
    of where two packs meet has all pairs of their columns in it.
    """
    packs = _packs(sizes, len(codes))
    bounds = list(accumulate(sizes, initial=0))
    width = bounds[-1]
    levels = [slice(start, stop) for start, stop in pairwise(bounds)]
    matrix = np.zeros((width, width), dtype=np.int64)
    for (i, j), table in _pack_tables(codes, sizes, packs).items():
        for left, counts_by_level in _by_column(table, sizes, packs[i]):
            left_levels = levels[left]
            for right, counts in _by_column(counts_by_level.T, sizes, packs[j]):
                right_levels = levels[right]
                matrix[right_levels, left_levels] = counts
                matrix[left_levels, right_levels] = counts.T
    return torch.from_numpy(matrix)


def _pack_tables(
    codes: Codes | Bits,
    sizes: Sequence[int],
    packs: Sequence[Sequence[int]],
) -> dict[tuple[int, int], NDArray[np.int64]]:
    """The counts of each pack's tuples, on a diagonal, and of every two packs'."""
    widths = [_width(sizes, pack) for pack in packs]
    pack_counts = [np.zeros(width, dtype=np.int64) for width in widths]
    pair_counts: dict[tuple[int, int], NDArray[np.int64]] = {}
    for i, j in combinations(range(len(packs)), 2):
        pair_counts[i, j] = np.zeros((widths[i], widths[j]), dtype=np.int64)
    for start in range(0, len(codes), _CHUNK_ROWS):
        chunk = codes[start : start + _CHUNK_ROWS]
        tuples = [_tuples(chunk, sizes, pack) for pack in packs]
        for counts, indices in zip(pack_counts, tuples, strict=True):
            counts += np.bincount(indices, minlength=len(counts))
        for (i, j), table in pair_counts.items():
            cells = tuples[i] * np.int32(widths[j]) + tuples[j]
            counts = np.bincount(cells, minlength=table.size)
            table += counts.reshape(table.shape)
    diagonals = {(i, i): np.diag(counts) for i, counts in enumerate(pack_counts)}
    return diagonals | pair_counts


def _width(sizes: Sequence[int], pack: Sequence[int]) -> int:
    """How many tuples of their levels these columns have."""
    return math.prod(sizes[column] for column in pack)


def _packs(sizes: Sequence[int], rows: int) -> list[list[int]]:
    """All columns by number, some together: tables of two packs are no longer than the
    rows, and all are bounded.
    """
    max_width = min(math.isqrt(rows), _MAX_PACK_WIDTH)
    while True:
        packs = _packs_within(sizes, max_width)
        width = sum(_width(sizes, pack) for pack in packs)
        if max_width <= 1 or width**2 <= _MAX_CELLS:
            return packs
        max_width //= 2


def _packs_within(sizes: Sequence[int], max_width: int) -> list[list[int]]:
    """Columns of most levels first, each in the first pack that has room for it."""
    packs = list[list[int]]()
    capacities = list[int]()
    for column in sorted(range(len(sizes)), key=lambda column: -sizes[column]):
        size = sizes[column]
        with_room = (i for i, capacity in enumerate(capacities) if capacity >= size)
        index = next(with_room, len(packs))
        if index == len(packs):
            packs.append([])
            capacities.append(max_width)
        packs[index].append(column)
        capacities[index] //= size
    return packs


def _tuples(
    codes: Codes | Bits,
    sizes: Sequence[int],
    pack: Sequence[int],
) -> Codes:
    """Which tuple of a pack's levels each row has."""
    slots = codes[:, pack[0]].astype(np.int32)
    for column in pack[1:]:
        slots *= np.int32(sizes[column])
        slots += codes[:, column]
    return slots


def _by_column(
    table: NDArray[np.int64],
    sizes: Sequence[int],
    pack: Sequence[int],
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Of counts by a pack's tuples, (tuples, others), the counts by the levels of each
    of its columns.
    """
    outer = 1
    for column in pack:
        counts = table.reshape(outer, sizes[column], -1, table.shape[1])
        yield column, counts.sum(axis=(0, 2))
        outer *= sizes[column]


def noise(
    scale: Fraction,
    rng: Rng,
    *shape: int,
) -> Tensor:
    """Discrete Gaussian noise, int64; zeros for a scale of 0."""
    return noise_on(torch.ones(shape, dtype=torch.bool), scale, rng)


def noise_on(
    cells: Tensor,
    scale: Fraction,
    rng: Rng,
) -> Tensor:
    """Independent noise on the marked cells, zero elsewhere: int64, of the same
    shape.
    """
    noise_values = torch.zeros(cells.shape, dtype=torch.int64)
    if scale:
        n_cells = int(cells.sum())
        noise_values[cells] = DiscreteGaussianNoise(scale).draw(n_cells, rng)
    return noise_values


def movable(sizes: Sequence[int]) -> Tensor:
    """Which cells of the matrix a person can move: two levels of one column never meet.
    (width, width).
    """
    column = torch.repeat_interleave(torch.tensor(sizes))
    same_level = torch.eye(len(column), dtype=torch.bool)
    other_column = column[:, None] != column
    return other_column | same_level


def sums_of_threes(signs: Tensor) -> Tensor:
    """Σ s·s·s over rows of signs (n, columns), for every three columns, in the order of
    `torch.combinations`: int64.
    """
    sums = []
    for column in range(signs.shape[1] - 2):
        others = signs[:, column + 1 :]
        products = (others * signs[:, column, None]).T @ others
        first, second = torch.combinations(torch.arange(others.shape[1])).T
        sums.append(products[first, second])
    return torch.cat(sums).long()


def mirrored(upper: Tensor) -> Tensor:
    return upper.triu() + upper.triu(1).T


def triple_table(
    codes: Codes,
    sizes: Sequence[int],
    columns: Sequence[int],
) -> Tensor:
    """The counts of a three-way table, exactly: int64, by the three columns' levels."""
    shape = tuple(sizes[column] for column in columns)
    levels = tuple(codes[:, column] for column in columns)
    cells = np.ravel_multi_index(levels, shape)
    counts = np.bincount(cells, minlength=math.prod(shape))
    return torch.from_numpy(counts).view(shape)
