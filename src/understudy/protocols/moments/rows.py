"""A holder's rows in the public frame, what their releases have in common, and how long rows are, which buys a bound on
their norm.

Guarantee: `Lengths.sums` are whole numbers that one person, with all rows, moves by at most `sensitivity`.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.arrays import ArrayTable
from understudy.data.encoding.frame import Frame
from understudy.models.moments.released import CELLS, COUNT, ENERGY, SCALE, SHADES, Released, bins_of, read_lengths
from understudy.privacy.secure.moments import Crowd, Places, Whole, bounded, cell_sums
from understudy.protocols.joint.pricing import BlockSpec
from understudy.protocols.joint.stage import Stage

_PIECE = 1 << 11  # rows at a time


@dataclass(frozen=True)
class Rows:
    coefficients: Whole  # (rows, features)
    histograms: Whole  # (rows, channels · bins)
    classes: Places  # (rows,)
    crowd: Crowd

    @classmethod
    def framed(cls, table: ArrayTable[Any], frame: Frame) -> "Rows":
        """Images or series, person after person; without classes all are of one."""
        none = np.zeros(table.rows, dtype=np.int64)
        return cls(
            frame.coefficients(table.values),
            frame.histograms(table.values, bins_of(frame)),
            none if table.classes is None else table.classes,
            Crowd.from_starts(table.starts),
        )


class Sums(Stage[Callable[[], Iterable[Rows]]]):
    """A release of one block, by all holders alike: sums over rows, in parts which are made when they are counted.
    Guarantee: one person, with all rows, moves `sums` by at most `sensitivity`, in terms of the noise's σ, where the
    entries that `diagonal` marks have √2·σ.
    """

    @property
    @abstractmethod
    def sensitivity(self) -> float: ...

    @property
    @abstractmethod
    def size(self) -> int: ...

    @property
    def diagonal(self) -> Tensor:
        return torch.zeros(self.size, dtype=torch.bool)

    @property
    def blocks(self) -> Mapping[str, BlockSpec]:
        return {"sums": BlockSpec((0, 0), (self.size,), self.sensitivity, diagonal=self.diagonal)}

    def count(self, rows: Callable[[], Iterable[Rows]]) -> dict[str, Tensor]:
        return {"sums": reduce(torch.add, map(self.sums, rows()))}

    def sums(self, rows: Rows) -> Tensor:
        """For some rows at a time where everybody has one: so memory does not grow with people."""
        if not rows.crowd.single or len(rows.classes) <= _PIECE:
            return self._sums_of(rows)
        total = torch.zeros(self.size, dtype=torch.int64)
        for start in range(0, len(rows.classes), _PIECE):
            some = slice(start, start + _PIECE)
            coefficients = rows.coefficients[some]
            alone = Crowd.from_starts(np.arange(len(coefficients) + 1))
            total += self._sums_of(Rows(coefficients, rows.histograms[some], rows.classes[some], alone))
        return total

    @abstractmethod
    def _sums_of(self, rows: Rows) -> Tensor: ...

    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> Released:
        return self.read_sums(sums["sums"], noise["sums"])

    @abstractmethod
    def read_sums(self, total: Tensor, noise: float) -> Released: ...


@dataclass(frozen=True)
class Lengths(Sums):
    """How many people's rows have a norm in each even cell; what is longer, or no number, is in the last one."""

    frame: Frame

    sensitivity, size = float(COUNT), CELLS

    def _sums_of(self, rows: Rows) -> Tensor:
        with np.errstate(all="ignore"):
            norms = np.sqrt(np.square(rows.coefficients).sum(1)) * (CELLS / self.frame.reach)
        cells = np.where(norms < CELLS, norms, CELLS - 1).astype(np.int64)
        ones = np.full((len(cells), 1), float(COUNT))
        return cell_sums(ones, cells, CELLS, rows.crowd).flatten()

    def read_sums(self, total: Tensor, noise: float) -> Released:
        return read_lengths(total, even(noise, total))


def even(noise: float, total: Tensor) -> Tensor:
    return torch.full(total.shape, noise, dtype=torch.float64)


def of_all(frame: Frame, q: Whole, rows: Rows) -> Tensor:
    """The energy of rows q within `SCALE`, and histograms of their values: int64, at most `ENERGY` and `SHADES`."""
    # the norm of the histograms of a row whose every channel is constant
    most = math.prod(frame.shape) / math.sqrt(frame.channels)
    energy = bounded(np.square(q).sum(1, keepdims=True), float(SCALE**2), ENERGY)
    shades = bounded(rows.histograms, most, SHADES)
    nowhere = np.zeros(len(q), dtype=np.int64)
    return cell_sums(np.concatenate([energy, shades], 1), nowhere, 1, rows.crowd).flatten()
