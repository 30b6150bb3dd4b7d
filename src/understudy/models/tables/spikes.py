"""Atoms: single numbers that many people share, within fine cells that hold more than
one number (`data.encoding.fine`).

The position of a number in its cell is written in digits, as many as tell apart two
numbers with the column's decimals, or two floats. In cells that stand out in the fine
tables every digit is counted by itself, in one release. Columns are chosen while their
largest cell stands out of the noise that is left for this.

A number that many people share is in one count of every digit. So the digits are read
together: among the numbers of one `colour` (a remainder of the position, so that a cell
can have several atoms) the one whose counts have the largest sum, if its people stand
out among all numbers that are possible, and no other number is nearly as likely. All
other people are sampled evenly within the cell.

Source: group testing for frequent items, Cormode, Muthukrishnan, "What's hot and what's
not" (ACM TODS 2005): counts by digit identify an item.
Differs from the paper: counts have Gaussian noise, so an item is accepted by
likelihood.
Guarantee: a person moves one count by 1 for each digit of a column, or none, whatever a
server chose; digits follow from the public schema, bounds that were found, and the
person's number.
Edges: of all numbers with these digits the shortest decimal is taken.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.column import Integer, Real
from understudy.data.encoding.codec import MOST_SPIKES
from understudy.data.encoding.fine import clipped, may_spike
from understudy.data.encoding.values import Codes, Floats, Places, codes_of, numbers_of
from understudy.ground.errors import Effect, MessageError
from understudy.models.tables.evidence import CLEAR
from understudy.models.tables.ordered_counts import neighbours
from understudy.models.tables.trees import Trees, TreesRead

# values of a digit: six of them, 48 bits, tell all floats of a cell apart, and a colour
# and a cell still fit into one code of 63
BASE = 256
# remainders of places, by which several numbers of one cell are told apart: prime to
# `BASE`, so that it says something of all digits. One number has one in all its digits
COLOURS = 7
_MOST = MOST_SPIKES // COLOURS  # cells of a column
# deviations by which the least of so many normal numbers is below their mean
_LOWEST = (0.0, 0.0, 0.56, 0.85, 1.03, 1.16, 1.27)


@dataclass(frozen=True)
class SpikeSettings:
    """Which cells and which numbers in them are believed; σ is the noise of a count."""

    # cells to each side of which one stands out: with fewer the median is a neighbour's
    around: int = 4
    # σ by which a column's largest cell stands out: of a column of 2,000 cells noise
    # alone does once in 150
    largest: float = 4.5
    # σ by which the same people's counts differ at most, in a tree and by their digits
    same: float = 4.0
    # values of each digit, those with the largest counts: 3⁶ combinations at most. The
    # right one is among them unless two other numbers have that digit more often
    candidates: int = 3
    # in log-likelihood: of a number over none, among all that there could be, and over
    # the second: e³ = 20
    likelier: float = 3.0


_SPIKES = SpikeSettings()


@dataclass(frozen=True, eq=False)
class Spikes:
    """Those of one column: its number, which names its block, its group, its fine
    cells, and which are counted.
    """

    number: int
    group: int
    column: Integer | Real
    cells: Codes

    @property
    def digits(self) -> int:
        return digits_of(self.column)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.digits, len(self.cells), COLOURS * BASE

    def codes(self, frame: Any) -> Places:
        """Of each person the cell, the colour and all digits as one number, −1 for who
        is in no such cell.
        """
        values = clipped(self.column, frame[self.column.name])
        cells = codes_of(self.column, values)
        at = np.searchsorted(self.cells[1:], cells, side="right")
        is_there = self.cells[at] == cells
        numbers = numbers_of(self.column, values)[is_there]
        places = _places(self.column, cells[is_there], numbers)
        coloured = at[is_there] * COLOURS + places % COLOURS
        codes = np.full(len(cells), -1)
        codes[is_there] = coloured * BASE**self.digits + places
        return codes

    def count(self, codes: Places) -> Tensor:
        """How many people each cell has by each digit: int64, (digits, cells, colours
        and values).
        """
        coloured_cells = len(self.cells) * COLOURS
        shape = (coloured_cells, *(BASE,) * self.digits)
        at, *digits = np.unravel_index(codes[codes >= 0], shape)
        counts = [
            np.bincount(at * BASE + digit, minlength=coloured_cells * BASE)
            for digit in digits
        ]
        return torch.from_numpy(np.stack(counts).reshape(self.shape))

    def numbers(self, counts: Tensor, noise: float, read: TreesRead) -> Floats:
        """A cell, a number in it that many share, and the share of its people up to
        that number: (numbers, 3).
        """
        tables = counts.double().numpy().reshape(len(counts), -1, COLOURS, BASE)
        places, people, is_clear = self._likeliest(tables, max(noise, 1e-9))
        numbers = np.vectorize(self._number)(self.cells[:, None], places)
        clear_people = np.where(is_clear & np.isfinite(numbers), people, 0.0)
        in_cells = read.tables[self.number].numpy()[self.cells]
        deviation = math.hypot(noise, read.noise[self.number])
        min_people = in_cells - _SPIKES.same * deviation
        in_numbers = np.maximum(clear_people.sum(1), min_people)
        at, colour = np.nonzero(clear_people)
        shares = clear_people.cumsum(1)[at, colour] / in_numbers[at]
        return np.stack([self.cells[at], numbers[at, colour], shares], axis=1)

    def _likeliest(
        self,
        tables: Floats,
        noise: float,
    ) -> tuple[Places, Floats, NDArray[np.bool_]]:
        """Of each cell and colour the place whose digits have the largest sum of
        counts, its people, and whether these stand out: (cells, colours) each.

        Only places of that colour that a number with the column's decimals has are
        tried.
        """
        digits = len(tables)
        places, each = _candidates(tables)
        sums = np.where(self._may_be(places), each.sum(0), -np.inf)
        order = np.argsort(-sums, axis=2, kind="stable")
        best = order[..., :1]
        two = np.take_along_axis(sums, order[..., :2], 2)
        first, second = np.moveaxis(two, 2, 0)
        digit_counts = np.take_along_axis(each, best[None], axis=3)[..., 0]
        # which is not raised by others with some of the same digits, as a mean is
        people = digit_counts.min(0) + _LOWEST[digits] * noise
        # of all numbers that there could be
        log_numbers = math.log(len(self.cells)) + digits * math.log(BASE)
        evidence = log_numbers + _SPIKES.likelier
        min_people = math.sqrt(2 * evidence / digits) * noise
        has_second = np.isfinite(second)
        gap = np.where(has_second, first, np.inf) - np.where(has_second, second, 0.0)
        is_clear = np.isfinite(first) & (people > min_people)
        is_clear &= people * gap > _SPIKES.likelier * noise**2
        return np.take_along_axis(places, best, axis=2)[..., 0], people, is_clear

    def _may_be(self, places: Places) -> NDArray[np.bool_]:
        """Whether there is a number of that colour in these places: (cells, colours,
        n).
        """
        colours = np.arange(COLOURS)[:, None]
        is_of_colour = places % COLOURS == colours
        decimals = decimals_of(self.column)
        if decimals is None:
            return np.asarray(is_of_colour)
        low = self.column.edges[self.cells][:, None, None]
        high = self.column.edges[self.cells + 1][:, None, None]
        middle = low + (places + 0.5) / BASE**self.digits * (high - low)
        numbers = np.round(middle, decimals).ravel()
        cells = np.broadcast_to(self.cells[:, None, None], places.shape).ravel()
        nearest = _places(self.column, cells, numbers).reshape(places.shape)
        return np.asarray(is_of_colour & (nearest == places))

    def _number(self, cell: int, place: int) -> float:
        """The shortest decimal in this place of a cell, NaN where the column has no
        such numbers.
        """
        low, high = self.column.edges[cell : cell + 2].tolist()
        middle = low + (place + 0.5) / BASE**self.digits * (high - low)
        decimals = decimals_of(self.column)
        if decimals is None:
            forms = [f".{digits}g" for digits in range(1, 18)]
        else:
            forms = [f".{decimals}f"]
        numbers = np.array([float(format(middle, form)) for form in forms])
        is_inside = (low <= numbers) & (numbers < high)
        if cell == self.column.levels - 1 and isinstance(self.column, Real):
            is_inside |= numbers == high  # which is closed
        inside = numbers[is_inside]
        cells = np.full(len(inside), cell)
        same = inside[_places(self.column, cells, inside) == place]
        return float(same[0]) if len(same) else math.nan


def _candidates(tables: Floats) -> tuple[Places, Floats]:
    """All combinations of the digits' values with the largest counts: the place of
    each, (cells, colours, combinations), and the counts of its digits, (digits, …).
    """
    values = np.argsort(-tables, axis=3, kind="stable")
    values = values[..., : _SPIKES.candidates]
    counts = np.take_along_axis(tables, values, axis=3)
    digits = len(tables)
    # which of its candidates each digit has: (combinations, digits)
    picks = np.indices((_SPIKES.candidates,) * digits).reshape(digits, -1).T
    places = np.zeros((*values.shape[1:3], len(picks)), dtype=np.int64)
    for digit, pick in enumerate(picks.T):
        places = places * BASE + values[digit][..., pick]
    each = [counts[digit][..., pick] for digit, pick in enumerate(picks.T)]
    return places, np.stack(each)


def decimals_of(fine: Integer | Real) -> int | None:
    return 0 if isinstance(fine, Integer) else fine.decimals


def digits_of(fine: Integer | Real) -> int:
    """How many digits tell the numbers of a fine cell apart."""
    decimals = decimals_of(fine)
    if decimals is None:
        places = 2.0**47
    else:
        longest = float(np.diff(fine.edges).max())
        places = 1.5 * longest * 10.0**decimals
    wanted = math.ceil(math.log(places, BASE))
    # more would not fit into a code
    return min(6, max(1, wanted))


def _places(fine: Integer | Real, cells: Codes, numbers: Floats) -> Places:
    """In which of the places of its cell each number lies."""
    low = fine.edges[cells]
    high = fine.edges[cells + 1]
    most = BASE ** digits_of(fine)
    places = np.clip((numbers - low) / (high - low) * most, 0, most - 1)
    return np.asarray(places, dtype=np.int64)


def _spiky(trees: Sequence[Trees]) -> dict[int, tuple[int, Integer | Real]]:
    """The columns that may have spikes: of each its group, and its fine cells."""
    spiky: dict[int, tuple[int, Integer | Real]] = {}
    number = 0
    for group, tree in enumerate(trees):
        for declared, fine in tree.columns:
            if may_spike(declared) and isinstance(fine, Integer | Real):
                spiky[number] = (group, fine)
            number += 1
    return spiky


def chosen_spikes(trees: Sequence[Trees], read: TreesRead, noise: float) -> Tensor:
    """Columns and fine cells whose digits are counted, (cells, 2); `noise`: of a count,
    with one digit in all.
    """
    columns = _spiky(trees)
    excess = {
        number: _excess(read.tables[number], fine)
        for number, (_, fine) in columns.items()
    }
    cells = list[tuple[int, int]]()
    digits = 0
    for number in sorted(excess, key=lambda number: -float(excess[number].max())):
        column_excess = excess[number]
        digits += digits_of(columns[number][1])
        sigma = noise * math.sqrt(digits)
        if column_excess.max() <= _SPIKES.largest * sigma:
            break
        largest = np.argsort(-column_excess, kind="stable")[:_MOST].tolist()
        cells += [
            (number, cell) for cell in largest if column_excess[cell] > CLEAR * sigma
        ]
    return torch.tensor(sorted(cells), dtype=torch.int64).reshape(-1, 2)


def _excess(table: Tensor, fine: Integer | Real) -> Floats:
    """By how many people each cell exceeds the median of those around; 0 where a cell
    is one number.
    """
    counts = table[: fine.levels].double().numpy()
    around = neighbours(counts, _SPIKES.around)
    decimals = decimals_of(fine)
    if decimals is None:
        step = np.spacing(np.abs(fine.edges[:-1]))
    else:
        step = 10.0**-decimals
    has_several = np.diff(fine.edges) > 1.5 * step
    excess = counts - np.median(around, axis=1)
    return np.where(has_several, excess, 0.0)


def named_spikes(trees: Sequence[Trees], told: Any) -> tuple[Spikes, ...]:
    """Those that a server chose. Edges: other columns or cells, one twice or too many →
    MessageError.
    """
    columns = _spiky(trees)
    rows = _rows_of(told, most=_MOST * len(columns))
    if rows is None or not _are_cells(rows, columns):
        raise MessageError(
            f"up to {_MOST} fine cells of a number were due, rising.",
            effect=Effect.NOTHING_CHARGED_OR_SENT,
        )
    cells: dict[int, list[int]] = {}
    for number, cell in rows:
        cells.setdefault(number, []).append(cell)
    return tuple(
        Spikes(number, *columns[number], np.array(column_cells, dtype=np.int32))
        for number, column_cells in cells.items()
    )


def _rows_of(told: Any, most: int) -> list[tuple[int, int]] | None:
    """Pairs of whole numbers, if the message is at most so many of these."""
    if not isinstance(told, Tensor) or told.dtype != torch.int64:
        return None
    if told.ndim != 2 or told.shape[1] != 2 or len(told) > most:
        return None
    return [(number, cell) for number, cell in told.tolist()]


def _are_cells(
    rows: Sequence[tuple[int, int]],
    columns: Mapping[int, tuple[int, Integer | Real]],
) -> bool:
    """Whether these are cells of such columns, rising, and not too many of one."""
    for number, cell in rows:
        if number not in columns or not 0 <= cell < columns[number][1].levels:
            return False
    of_column = Counter(number for number, _ in rows)
    is_rising = list(rows) == sorted({*rows})
    return is_rising and max(of_column.values(), default=0) <= _MOST
