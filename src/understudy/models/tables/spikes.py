"""Numbers that many people share, in fine cells that hold more than one number
(`data.encoding.fine`).

Where a number lies in its cell is written in digits, by which two numbers with the
column's decimals differ, or two floats. Of cells that stand out in fine tables each
digit is counted by itself, all of them at one price: columns are taken while their
largest cell stands out of the noise that this leaves. Who has that number is in a count
of every digit, so all of them are read together: of a colour, the number whose counts
have the largest sum, if its people stand out among all numbers that there could be and
no other number is nearly as likely. Who has another is drawn evenly in the cell.

Guarantee: a person moves one count by 1 for each digit of a column, or none, whatever a
server chose; digits follow from the public schema, bounds that were found, and the
person's number. Edges: the shortest decimal with such digits.
"""

import math
from collections import Counter
from collections.abc import Sequence
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
from understudy.models.tables.trees import Trees, TreesRead

# values of a digit, and remainders of places: all digits of one number have the same
BASE = 256
_COLOURS = 7
# cells of a column, and those to each side of which one stands out
_MOST = MOST_SPIKES // _COLOURS
_AROUND = 4
# deviations by which a column's largest cell stands out, and others do
_LARGEST = 4.5
_SAME = 4.0  # deviations by which the same people's counts differ
_CANDIDATES = 3  # values of each digit, those with the largest counts
_LIKELIER = 3.0  # in log-likelihood: of a number over none, and over the second
# deviations by which the least of so many normal numbers is below their mean
_LOWEST = (0.0, 0.0, 0.56, 0.85, 1.03, 1.16, 1.27)


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
    def shape(self) -> tuple[int, int, int]:
        return digits_of(self.column), len(self.cells), _COLOURS * BASE

    def codes(self, frame: Any) -> Places:
        """Of each person the cell, the colour and all digits as one number, −1 for who
        is in no such cell.
        """
        cells = codes_of(
            self.column,
            values := clipped(self.column, frame[self.column.name]),
        )
        at = np.searchsorted(self.cells[1:], cells, side="right")
        there = self.cells[at] == cells
        found = np.full(len(cells), -1)
        places = _places(
            self.column,
            cells[there],
            numbers_of(self.column, values)[there],
        )
        found[there] = (at[there] * _COLOURS + places % _COLOURS) * BASE ** self.shape[
            0
        ] + places
        return found

    def count(self, codes: Places) -> Tensor:
        """How many people each cell has by each digit: int64, (digits, cells, colours
        and values).
        """
        at, *digits = np.unravel_index(
            codes[codes >= 0],
            (len(self.cells) * _COLOURS, *(BASE,) * self.shape[0]),
        )
        counts = [
            np.bincount(at * BASE + digit, minlength=math.prod(self.shape[1:]))
            for digit in digits
        ]
        return torch.from_numpy(np.stack(counts).reshape(self.shape))

    def numbers(
        self,
        counts: Tensor,
        noise: float,
        read: TreesRead,
    ) -> Floats:
        """A cell, a number in it that many share, and the share of its people up to
        that number: (numbers, 3).
        """
        tables = counts.double().numpy().reshape(len(counts), -1, _COLOURS, BASE)
        places, people, clear = self._likeliest(tables, max(noise, 1e-9))
        found = np.vectorize(self._number)(self.cells[:, None], places)
        kept = np.where(clear & np.isfinite(found), people, 0.0)
        held = read.tables[self.number].numpy()[self.cells]
        most = np.maximum(
            kept.sum(1),
            held - _SAME * math.hypot(noise, read.noise[self.number]),
        )
        at, colour = np.nonzero(kept)
        return np.stack(
            [self.cells[at], found[at, colour], kept.cumsum(1)[at, colour] / most[at]],
            axis=1,
        )

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
        values = np.argsort(-tables, axis=3, kind="stable")[..., :_CANDIDATES]
        counts = np.take_along_axis(tables, values, axis=3)
        # which of its candidates each digit has: (combinations, digits)
        picks = np.indices((_CANDIDATES,) * digits).reshape(digits, -1).T
        places = np.zeros((*values.shape[1:3], len(picks)), dtype=np.int64)
        for digit, pick in enumerate(picks.T):
            places = places * BASE + values[digit][..., pick]
        each = np.stack(
            [counts[digit][..., pick] for digit, pick in enumerate(picks.T)]
        )
        sums = np.where(self._may_be(places), each.sum(0), -np.inf)

        order = np.argsort(-sums, axis=2, kind="stable")
        best = order[..., :1]
        first, second = np.moveaxis(np.take_along_axis(sums, order[..., :2], 2), 2, 0)
        own = np.take_along_axis(each, best[None], axis=3)[..., 0]
        # which is not raised by others with some of the same digits, as a mean is
        people = own.min(0) + _LOWEST[digits] * noise
        numbers = math.log(len(self.cells)) + digits * math.log(BASE)
        least = math.sqrt(2 * (numbers + _LIKELIER) / digits) * noise
        clear = np.isfinite(first) & (people > least)
        gap = np.where(np.isfinite(second), first, np.inf) - np.where(
            np.isfinite(second),
            second,
            0.0,
        )
        clear &= people * gap > _LIKELIER * noise**2
        return np.take_along_axis(places, best, axis=2)[..., 0], people, clear

    def _may_be(self, places: Places) -> NDArray[np.bool_]:
        """Whether there is a number of that colour in these places: (cells, colours,
        n).
        """
        colours = np.arange(_COLOURS)[:, None]
        found = places % _COLOURS == colours
        decimals = _decimals(self.column)
        if decimals is None:
            return np.asarray(found)
        low = self.column.edges[self.cells][:, None, None]
        high = self.column.edges[self.cells + 1][:, None, None]
        middle = low + (places + 0.5) / BASE ** self.shape[0] * (high - low)
        numbers = np.round(middle, decimals).ravel()
        cells = np.broadcast_to(self.cells[:, None, None], places.shape).ravel()
        same = _places(self.column, cells, numbers).reshape(places.shape) == places
        return np.asarray(found & same)

    def _number(self, cell: int, place: int) -> float:
        """The shortest decimal in this place of a cell, NaN where the column has no
        such numbers.
        """
        (low, high), decimals = (
            self.column.edges[cell : cell + 2].tolist(),
            _decimals(self.column),
        )
        middle = low + (place + 0.5) / BASE ** self.shape[0] * (high - low)
        forms = (
            [f".{digits}g" for digits in range(1, 18)]
            if decimals is None
            else [f".{decimals}f"]
        )
        # which is closed
        last = cell == self.column.levels - 1 and isinstance(self.column, Real)
        numbers = [float(format(middle, form)) for form in forms]
        found = np.array(
            [
                number
                for number in numbers
                if low <= number < high or (last and number == high)
            ]
        )
        same = found[_places(self.column, np.full(len(found), cell), found) == place]
        return float(same[0]) if len(same) else math.nan


def _decimals(fine: Integer | Real) -> int | None:
    return 0 if isinstance(fine, Integer) else fine.decimals


def digits_of(fine: Integer | Real) -> int:
    """How many digits tell the numbers of a fine cell apart."""
    decimals = _decimals(fine)
    places = (
        2.0**47
        if decimals is None
        else 1.5 * float(np.diff(fine.edges).max()) * 10.0**decimals
    )
    # more would not fit into a code
    return min(6, max(1, math.ceil(math.log(places, BASE))))


def _places(
    fine: Integer | Real,
    cells: Codes,
    numbers: Floats,
) -> Places:
    (low, high), most = (
        (fine.edges[cells], fine.edges[cells + 1]),
        BASE ** digits_of(fine),
    )
    return np.asarray(
        np.clip((numbers - low) / (high - low) * most, 0, most - 1),
        dtype=np.int64,
    )


def _spiky(trees: Sequence[Trees]) -> dict[int, tuple[int, Integer | Real]]:
    columns = enumerate(
        (g, *pair) for g, group in enumerate(trees) for pair in group.columns
    )
    return {
        j: (g, fine)
        for j, (g, own, fine) in columns
        if may_spike(own) and isinstance(fine, Integer | Real)
    }


def chosen_spikes(
    trees: Sequence[Trees],
    read: TreesRead,
    noise: float,
) -> Tensor:
    """Columns and fine cells whose digits are counted, (cells, 2); `noise`: of a count,
    with one digit in all.
    """
    columns = _spiky(trees)
    more = dict[int, Floats]()
    cells = list[tuple[int, int]]()
    digits = 0
    for j, (_, fine) in columns.items():
        held = read.tables[j][: fine.levels].double().numpy()
        around = np.lib.stride_tricks.sliding_window_view(
            np.pad(held, _AROUND),
            2 * _AROUND + 1,
        )
        decimals = _decimals(fine)
        step = (
            np.spacing(np.abs(fine.edges[:-1])) if decimals is None else 10.0**-decimals
        )
        # not where one number is
        more[j] = (np.diff(fine.edges) > 1.5 * step) * (
            held - np.median(around, axis=1)
        )
    for j in sorted(more, key=lambda j: -float(more[j].max())):
        digits += digits_of(columns[j][1])
        if more[j].max() <= _LARGEST * noise * math.sqrt(digits):
            break
        largest = np.argsort(-more[j], kind="stable")[:_MOST].tolist()
        cells += [
            (j, cell)
            for cell in largest
            if more[j][cell] > CLEAR * noise * math.sqrt(digits)
        ]
    return torch.tensor(sorted(cells), dtype=torch.int64).reshape(-1, 2)


def named_spikes(trees: Sequence[Trees], told: Any) -> tuple[Spikes, ...]:
    """Those that a server chose. Edges: other columns or cells, one twice or too many →
    MessageError.
    """
    columns = _spiky(trees)
    shape = tuple(getattr(told, "shape", ()))
    good = (
        isinstance(told, Tensor)
        and told.dtype == torch.int64
        and len(shape) == 2
        and shape[1] == 2
    )
    rows = (
        [(j, cell) for j, cell in told.tolist()]
        if good and shape[0] <= _MOST * len(columns)
        else [(-1, 0)]
    )
    there = all(j in columns and 0 <= cell < columns[j][1].levels for j, cell in rows)
    if (
        not there
        or rows != sorted({*rows})
        or max(Counter(j for j, _ in rows).values(), default=0) > _MOST
    ):
        raise MessageError(
            f"up to {_MOST} fine cells of a number were due, rising.",
            effect=Effect.NOTHING_CHARGED_OR_SENT,
        )
    cells = {
        j: np.array([cell for own, cell in rows if own == j], dtype=np.int32)
        for j in dict(rows)
    }
    return tuple(Spikes(j, *columns[j], own) for j, own in cells.items())
