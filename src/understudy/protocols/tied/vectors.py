"""A holder's people, in the common order, as vectors of whole numbers for each release.

Guarantee: in the joint release and by class every vector has a norm of at most `scale`, whatever the rows hold and
whatever centre, radius or basis a server asks for; a vector depends on that person's row and these alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from understudy.data.arrays import Values
from understudy.data.codec import Codes
from understudy.data.frame import UNIT, Frame
from understudy.models.moments.released import bins_of
from understudy.privacy.secure import Bits, Ring, Words, one_hot
from understudy.privacy.secure.moments import Crowd, Whole, bounded
from understudy.privacy.secure.tied import levels_as_numbers, one_for, squares, triangle
from understudy.protocols.moments.stages import First, Rows

_FAR = 1 << 19  # no coefficient of a row about a mean is larger


@dataclass(frozen=True)
class Numbers:
    """Vectors (people, width) of whole numbers, none longer than `scale`; `squared`: of each the triangle of v vᵀ."""

    rows: Whole
    scale: int
    squared: bool = False

    @property
    def width(self) -> int:
        d = int(self.rows.shape[1])
        return d * (d + 1) // 2 if self.squared else d

    def words(self, start: int, stop: int, ring: Ring) -> Words | Bits:
        """Those of some people, as numbers of a ring."""
        rows = self.rows[start:stop]
        return ring.words((squares(rows) if self.squared else rows).astype(np.int64))

    def triangle(self) -> Tensor:
        """The upper triangle of the sum of v vᵀ over all people."""
        return triangle(self.rows)


@dataclass(frozen=True)
class Classes:
    """One-hot classes."""

    rows: Bits

    @property
    def width(self) -> int:
        return int(self.rows.shape[1])

    def words(self, start: int, stop: int, ring: Ring) -> Words | Bits:
        return self.rows[start:stop]


@dataclass(frozen=True)
class ArrayPeople:
    """Images or series, one of each person."""

    frame: Frame
    values: Values
    coefficients: Whole

    @classmethod
    def of(cls, frame: Frame, values: Values) -> "ArrayPeople":
        return cls(frame, values, frame.coefficients(values))

    def first(self) -> Tensor:
        """The sums of the first release (`moments.stages.First`)."""
        people = len(self.values)
        shades = self.frame.histograms(self.values, bins_of(self.frame))
        nowhere = np.zeros(people, dtype=np.int64)
        return First(self.frame, 1).count(
            Rows(self.coefficients, shades, nowhere, Crowd.of(np.arange(people + 1)))
        )

    def joint(self, centre: Tensor, radius: int, scale: int) -> Numbers:
        """About the centre, pulled in."""
        return Numbers(bounded(self._about(centre), float(radius), scale), scale)

    def turned(self, centre: Tensor, basis: Tensor, radius: int, scale: int) -> Numbers:
        """In a subspace, pulled in there: the triangles of their squares."""
        turned = self._about(centre) @ basis.numpy().astype(np.float64) / UNIT
        short = bounded(np.clip(np.rint(turned), -_FAR, _FAR), float(radius), scale)
        return Numbers(short, scale, squared=True)

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
        return Numbers(levels_as_numbers(one_hot(self.codes, self.sizes), one), scale)

    def classes(self, column: int) -> Classes:
        """One-hot classes by this column."""
        return Classes(one_hot(self.codes[:, [column]], (self.sizes[column],)))
