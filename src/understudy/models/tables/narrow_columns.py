"""The law of a narrow column: one whose people are nearly all in a few fine cells, as
ids from 4·10⁹ on are, or days that were counted from long ago.

Such cells stand out, so the digits of their numbers are counted (`spikes`). The counts
of the first digit say where within a cell its people are. Where all are within one
value of that digit, or two, the next digit is read: the counts of its values go round,
so those of two values side by side are told apart as long as people span less than
one. It costs nothing beside atoms.

Guarantee: reads released counts alone.
Edges: people in more cells, half of them at atoms, or on most of the numbers in these
cells → no law, and numbers are drawn evenly within a cell.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.values import Floats
from understudy.models.tables.fine_tables import Tree, fine_tables
from understudy.models.tables.spikes import BASE, COLOURS, Spikes, decimals_of
from understudy.models.tables.trees import TreesRead

_MOST_CELLS = 4  # `MOST_INNER` has room for so many
# of all people, how many are in these at least: of a column that is wider they are a
# peak, in which even numbers are right enough
_NEARLY_ALL = 0.9
# of a cell's numbers, on how many its people are at most, in the mean: where they are
# on more, noise does more harm to KS than even numbers do
_PART = 0.6
# of a cell's people, how many are in leaves that stand out, where nobody is beside them
_STANDING = 0.8
_ALONE = 4.5  # σ by which a leaf stands out: of 1,024 noise alone does once in 300
_TOGETHER = 3.0  # σ by which those between two ends do, as `evidence.CLEAR`
_RESOLVED = (
    64  # floats in a leaf, at least, where the scale of a law tells leaves apart
)
_BESIDE = 2.0  # σ by which one beside the outermost of these is one of them
# of a digit's values: people who span more do not let one value be told from the next
_SPAN = 0.75


class _Leaves(NamedTuple):
    """People by the values of one digit, in order: `first` is the place in the cell of
    the first of these, in such values.
    """

    digit: int
    first: int
    people: Floats


def narrow_law(
    spikes: Spikes,
    counts: Tensor,
    noise: float,
    read: TreesRead,
    shared: Floats,
) -> Floats | None:
    """Numbers of a narrow column that rise, and the share of people below each of them:
    (numbers, 2). `counts` (digits, cells, colours and values) have this noise. None
    where half of the people have one of the numbers that many share (`Spikes.numbers`).
    """
    held = read.tables[spikes.number][: spikes.column.levels].double().numpy()
    in_cells = held[spikes.cells]
    if len(in_cells) > _MOST_CELLS or in_cells.sum() < _NEARLY_ALL * held.sum():
        return None
    up_to = dict(zip(shared[:, 0].astype(int), shared[:, 2], strict=True))
    at_atoms = sum(held[cell] * share for cell, share in up_to.items())
    if at_atoms > in_cells.sum() / 2:
        return None
    shape = (spikes.digits, len(spikes.cells), COLOURS, BASE)
    tables = counts.double().numpy().reshape(shape).sum(2)
    sigma = math.sqrt(COLOURS) * max(noise, 1e-9)
    numbers = []
    below = []
    before = 0.0
    span = 0.0
    for cell, table, total in zip(
        spikes.cells, tables.swapaxes(0, 1), in_cells, strict=True
    ):
        if not total:
            continue
        edges, people = _law_of_cell(spikes, cell, table, sigma, total)
        cumulative = np.append(0.0, np.cumsum(people))
        shares = cumulative / cumulative[-1]
        numbers.append(edges)
        below.append(before + shares * total)
        before += total
        size = float(np.diff(spikes.column.edges[cell : cell + 2])[0])
        span += total * float(edges[-1] - edges[0]) / size
    if span >= _PART * before:
        return None
    # where two cells meet the edges are one
    rising, places = np.unique(np.concatenate(numbers)[::-1], return_index=True)
    if len(rising) < 2:
        return None
    shares = np.concatenate(below)[::-1][places] / before
    shares[0] = 0.0
    return np.stack([rising, shares], axis=1)


def _law_of_cell(
    spikes: Spikes,
    cell: int,
    tables: Floats,
    noise: float,
    total: float,
) -> tuple[Floats, Floats]:
    """Edges within one cell, and its people between them; `tables` (digits, values)."""
    leaves = _Leaves(0, 0, tables[0])
    edges = _edges(spikes, cell, leaves)
    leaves = leaves._replace(people=_without_noise(leaves.people, edges, noise, total))
    for digit in range(1, spikes.digits):
        there = np.flatnonzero(leaves.people)
        if there[-1] - there[0] > 1:
            break
        finer = _next_digit(leaves, there, tables[digit])
        finer_edges = _edges(spikes, cell, finer)
        if finer_edges[0] == finer_edges[-1]:
            break
        people = _without_noise(finer.people, finer_edges, noise, total)
        if np.ptp(np.flatnonzero(people)) > _SPAN * BASE:
            break
        leaves = finer._replace(people=people)
        edges = finer_edges
    has_numbers = np.diff(edges) > 0
    edges = edges[np.append(has_numbers, True)]
    return _filled(edges, leaves.people[has_numbers], decimals_of(spikes.column))


def _edges(spikes: Spikes, cell: int, leaves: _Leaves) -> Floats:
    """Between which numbers of a cell the leaves lie: (leaves + 1,)."""
    column = spikes.column
    low, high = column.edges[cell : cell + 2].astype(np.float64)
    places = leaves.first + np.arange(len(leaves.people) + 1)
    edges = low + places / BASE ** (leaves.digit + 1) * (high - low)
    decimals = decimals_of(column)
    if decimals is not None:
        # the first number with these decimals that is not below
        unit = 10.0**decimals
        edges = np.ceil(np.round(edges * unit, 4)) / unit
    return np.asarray(edges)


def _without_noise(
    counts: Floats,
    edges: Floats,
    noise: float,
    total: float,
) -> Floats:
    """The people of each leaf, who are so many in all. Where leaves that stand out have
    nearly all, these and what is between them have what was counted; else a smooth law
    is read, where noise alone would not put so many between its ends.
    """
    has_numbers = np.diff(edges) > 0
    counts = np.where(has_numbers, counts, 0.0)
    stands_out = np.flatnonzero(counts > _ALONE * noise)
    if counts[stands_out].sum() >= _STANDING * total:
        first, last = stands_out[[0, -1]].tolist()
        first -= int(first > 0 and counts[first - 1] > _BESIDE * noise)
        last += int(last + 1 < len(counts) and counts[last + 1] > _BESIDE * noise)
        place = np.arange(len(counts))
        is_inside = (first <= place) & (place <= last)
        return np.where(is_inside, counts.clip(min=0), 0.0)
    even = total * has_numbers / has_numbers.sum()
    inner = edges[np.append(has_numbers, True)]
    if np.diff(inner).min() < _RESOLVED * np.spacing(np.abs(inner).max()):
        return np.asarray(even)
    tree = Tree(
        [torch.from_numpy(counts[has_numbers])],
        len(counts),
        noise,
        total=total,
        edges=torch.from_numpy(inner),
    )
    people = np.zeros(len(counts))
    people[has_numbers] = fine_tables([tree])[0].numpy()
    is_inside = people > 0
    n_inside = is_inside.sum()
    excess = (counts - even)[is_inside].sum()
    stand_out = excess > _TOGETHER * noise * math.sqrt(n_inside)
    return np.where(stand_out, people, even)


def _next_digit(leaves: _Leaves, there: NDArray[np.int64], table: Floats) -> _Leaves:
    """The people of one leaf or of two side by side by the next digit, of which each
    value was counted for all leaves together: the highest ones are of the first of two
    leaves, as many as it has.
    """
    first = (leaves.first + int(there[0])) * BASE
    if len(there) == 1:
        return _Leaves(leaves.digit + 1, first, table)
    share = leaves.people[there[0]] / leaves.people.sum()
    from_value = np.append(np.cumsum(table[::-1])[::-1], 0.0)
    start = int(np.argmin(np.abs(from_value - share * table.sum())))
    return _Leaves(leaves.digit + 1, first + start, np.roll(table, -start))


def _filled(
    edges: Floats,
    people: Floats,
    decimals: int | None,
) -> tuple[Floats, Floats]:
    """The leaves between which anybody is; the outermost ones are filled from within,
    as densely as those beside them, to a number with these decimals.
    """
    first, last = np.flatnonzero(people)[[0, -1]]
    edges = edges[first : last + 2].copy()
    people = people[first : last + 1]
    if len(people) == 1:
        return edges, people
    size = np.diff(edges)
    density = people / size
    beside = np.maximum(density[[1, -2]], 1e-300)
    low, high = np.minimum(density[[0, -1]] / beside, 1) * size[[0, -1]]
    edges[0] = edges[1] - low
    edges[-1] = edges[-2] + high
    if decimals is not None:
        unit = 10.0**decimals
        edges[0] = np.floor(np.round(edges[0] * unit, 4)) / unit
        edges[-1] = np.ceil(np.round(edges[-1] * unit, 4)) / unit
    return edges, people
