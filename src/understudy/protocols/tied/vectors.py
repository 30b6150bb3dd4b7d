"""A holder's people, in the common order, as vectors of whole numbers for each release.

A person with several images or series counts once: with the average of their vectors where another holder's are
multiplied with it, and with the average of their squares within a holder.

Guarantee: in the joint release and by class every vector has a norm of at most `scale`, whatever the rows hold and
whatever centre, radius or basis a server asks for; a vector depends on that person's rows and these alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.arrays import ArrayTable, Values, taken
from understudy.data.encoding.codec import Codes
from understudy.data.encoding.frame import UNIT, Frame, packed
from understudy.models.moments.released import bins_of
from understudy.privacy.secure.counts import one_hot
from understudy.privacy.secure.moments import (
    Crowd,
    Places,
    Whole,
    averages,
    bounded,
    cell_moments,
    one_for,
    squares,
    triangle,
)
from understudy.privacy.secure.ring import Bits
from understudy.protocols.moments.rows import Rows

_FAR = 1 << 19  # no coefficient of a row about a mean is larger


@dataclass(frozen=True)
class Numbers:
    """Vectors (rows, width) of whole numbers, none longer than `scale`; `squared`: of each the triangle of v vᵀ.

    Person i has the rows starts[i] … starts[i + 1], at least one.
    """

    rows: Whole
    scale: int
    starts: Places
    squared: bool = False

    def words(self, start: int, stop: int) -> NDArray[np.int64]:
        """Those of some people: of several rows the average."""
        own = self.starts[start : stop + 1]
        rows = self.rows[own[0] : own[-1]]
        each = averages(squares(rows) if self.squared else rows, own - own[0])
        return each.astype(np.int64)

    def triangle(self) -> Tensor:
        """The upper triangle of the sum of v vᵀ over all people; of several rows the average of theirs."""
        crowd = Crowd.of(self.starts)
        if crowd.single:
            return triangle(self.rows)
        return packed(cell_moments(self.rows, np.zeros(len(self.rows), dtype=np.int64), 1, crowd)[0])


@dataclass(frozen=True)
class ArrayPeople:
    """Images or series: person i has the rows starts[i] … starts[i + 1]."""

    frame: Frame
    values: Values
    coefficients: Whole
    starts: Places

    @classmethod
    def of(cls, frame: Frame, table: ArrayTable[Any], places: Places) -> "ArrayPeople":
        """The people at these places among those who have rows, in this order."""
        have = np.flatnonzero(np.diff(table.starts))[places]
        starts, at = taken(table.starts, have)
        values = table.values[at]
        return cls(frame, values, frame.coefficients(values), starts)

    def rows(self, *, shaded: bool) -> Rows:
        """As the stages of moments count them, all of one class; `shaded`: with histograms of their values."""
        nowhere = np.zeros(len(self.values), dtype=np.int64)
        shades = (
            self.frame.histograms(self.values, bins_of(self.frame)) if shaded else np.zeros((len(nowhere), 0))
        )
        return Rows(self.coefficients, shades, nowhere, Crowd.of(self.starts))

    def joint(self, centre: Tensor, radius: int, scale: int) -> Numbers:
        """About the centre, pulled in."""
        return Numbers(bounded(self._about(centre), float(radius), scale), scale, self.starts)

    def turned(self, centre: Tensor, basis: Tensor, radius: int, scale: int) -> Numbers:
        """In a subspace, pulled in there: the triangles of their squares."""
        turned = self._about(centre) @ basis.numpy().astype(np.float64) / UNIT
        short = bounded(np.clip(np.rint(turned), -_FAR, _FAR), float(radius), scale)
        return Numbers(short, scale, self.starts, squared=True)

    def _about(self, centre: Tensor) -> Whole:
        return np.asarray(self.coefficients - centre.numpy().astype(np.float64))


@dataclass(frozen=True)
class TablePeople:
    """Levels of columns, (people, columns)."""

    codes: Codes
    sizes: Sequence[int]

    def joint(self, scale: int) -> Numbers:
        """One-hot levels, each as much as keeps a row no longer than `scale`."""
        one = one_for(scale, len(self.sizes))
        rows = one_hot(self.codes, self.sizes).astype(np.float64) * one
        return Numbers(rows, scale, np.arange(len(rows) + 1))

    def classes(self, column: int) -> Bits:
        """One-hot classes by this column."""
        return one_hot(self.codes[:, [column]], (self.sizes[column],))
