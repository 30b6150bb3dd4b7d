"""The three releases of moments: what a holder counts in each, by how much a person
moves it, and how it is read.

Before them, where a bound on norms is bought: `Lengths`. `First`: of every class, or
combination of several labels' levels, a count and the mean of its rows; of all rows the
energy, which is their squared norm, and a histogram of their values, channel by
channel. `Levels` in its place where combinations are many. `Pooled`: second moments of
all rows about the means that the first release gave. `Within`: second moments of every
class, or of every cell of a class, in a subspace that the second gave; a cell is a
class with the signs of the first directions of that subspace, and then has a count and
a mean, too. Of several labels a class is here a level of the first.

What the server chooses between two releases (means, radii, directions) cannot change by
how much a person moves them: rows are pulled in to a norm in whole numbers after all of
that (`secure.moments.bounded`).

Everything but rows and their sums is public.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.arrays import ArrayTable
from understudy.data.encoding.frame import UNIT, Frame, on_diagonal, packed
from understudy.ground.check import in_range, whole
from understudy.ground.errors import Effect, MessageError
from understudy.models.moments import released
from understudy.models.moments.released import Labels
from understudy.privacy.secure.moments import (
    Crowd,
    Positions,
    Whole,
    bounded,
    cell_moments,
    cell_sums,
)
from understudy.protocols.joint.pricing import BlockSpec, finest_scale
from understudy.protocols.joint.stage import Stage

# of second moments: the finest whose noise can be drawn
SCALES = (181, 128, 90, 64, 45, 32, 16, 8)
# of the moments' scale squared: a cell's mean, and its count
MEAN = 0.7
CELL = 0.25
MOST_BITS = 6  # directions whose signs cut a class into cells
MOST_DIRECTIONS = 256
_MOST_RADIUS = 1 << 20
_FAR = 1 << 19  # no coefficient of a row about a mean is larger
_PIECE = 1 << 11  # rows at a time


@dataclass(frozen=True)
class ArrayRows:
    coefficients: Whole  # (rows, features)
    histograms: Whole  # (rows, channels · bins)
    classes: Positions  # (rows,)
    crowd: Crowd

    @classmethod
    def framed(cls, table: ArrayTable[Any], frame: Frame) -> "ArrayRows":
        """Images or series, person after person; without classes all are of one."""
        none = np.zeros(table.rows, dtype=np.int64)
        classes = none if table.classes is None else table.classes
        shades = frame.histograms(table.values, released.bins_of(frame))
        return cls(
            frame.coefficients(table.values),
            shades,
            classes,
            Crowd.from_starts(table.starts),
        )


class Sums(Stage[Callable[[], Iterable[ArrayRows]]]):
    """A release of one block, by all holders alike: sums over rows, in parts which are
    made when they are counted.
    Guarantee: one person, with all rows, moves `sums` by at most `sensitivity`
    (`BlockSpec`).
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
        return {
            "sums": BlockSpec(
                (0, 0), (self.size,), self.sensitivity, diagonal=self.diagonal
            )
        }

    def count(self, rows: Callable[[], Iterable[ArrayRows]]) -> dict[str, Tensor]:
        return {"sums": reduce(torch.add, map(self.sums, rows()))}

    def sums(self, rows: ArrayRows) -> Tensor:
        """For some rows at a time where everybody has one: so memory does not grow with
        people.
        """
        if not rows.crowd.single or len(rows.classes) <= _PIECE:
            return self._sums_of(rows)
        total = torch.zeros(self.size, dtype=torch.int64)
        for start in range(0, len(rows.classes), _PIECE):
            some = slice(start, start + _PIECE)
            coefficients = rows.coefficients[some]
            alone = Crowd.from_starts(np.arange(len(coefficients) + 1))
            total += self._sums_of(
                ArrayRows(
                    coefficients, rows.histograms[some], rows.classes[some], alone
                )
            )
        return total

    @abstractmethod
    def _sums_of(self, rows: ArrayRows) -> Tensor: ...

    def read(
        self, sums: Mapping[str, Tensor], noise: Mapping[str, float]
    ) -> released.Released:
        return self.read_sums(sums["sums"], noise["sums"])

    @abstractmethod
    def read_sums(self, total: Tensor, noise: float) -> released.Released: ...


@dataclass(frozen=True)
class Lengths(Sums):
    """How many people's rows have a norm in each even cell; what is longer, or no
    number, is in the last one.
    """

    frame: Frame

    sensitivity = float(released.COUNT)
    size = released.CELLS

    def _sums_of(self, rows: ArrayRows) -> Tensor:
        with np.errstate(all="ignore"):
            norms = np.sqrt(np.square(rows.coefficients).sum(1)) * (
                released.CELLS / self.frame.reach
            )
        cells = np.where(norms < released.CELLS, norms, released.CELLS - 1).astype(
            np.int64
        )
        counts = np.full((len(cells), 1), float(released.COUNT))
        return cell_sums(counts, cells, released.CELLS, rows.crowd).flatten()

    def read_sums(self, total: Tensor, noise: float) -> released.Released:
        """`people` of each cell of norms, and the deviation of their noise."""
        loud = torch.tensor(noise / released.COUNT, dtype=torch.float64)
        return {"people": total.double() / released.COUNT, "people_noise": loud}


def _of_all(frame: Frame, q: Whole, rows: ArrayRows) -> Tensor:
    """The energy of rows q within `SCALE`, and histograms of their values: int64, at
    most `ENERGY` and `SHADES`.
    """
    # the norm of the histograms of a row whose every channel is constant
    max_norm = math.prod(frame.shape) / math.sqrt(frame.channels)
    energy = bounded(
        np.square(q).sum(1, keepdims=True), float(released.SCALE**2), released.ENERGY
    )
    shades = bounded(rows.histograms, max_norm, released.SHADES)
    nowhere = np.zeros(len(q), dtype=np.int64)
    return cell_sums(
        np.concatenate([energy, shades], 1), nowhere, 1, rows.crowd
    ).flatten()


@dataclass(frozen=True)
class First(Sums):
    """Counts and means of the classes, and the energy and the values of all rows."""

    frame: Frame
    classes: int

    sensitivity = released.FIRST

    @property
    def size(self) -> int:
        return released.first_size(self.frame, self.classes)

    def _sums_of(self, rows: ArrayRows) -> Tensor:
        q = bounded(rows.coefficients, self.frame.reach, released.SCALE)
        counts = np.full((len(q), 1), float(released.COUNT))
        sums = cell_sums(
            np.concatenate([counts, q], 1), rows.classes, self.classes, rows.crowd
        )
        return torch.cat([sums.flatten(), _of_all(self.frame, q, rows)])

    def read_sums(self, total: Tensor, noise: float) -> released.Released:
        return released.read_first(self.frame, self.classes, total, noise)


@dataclass(frozen=True)
class Levels(Sums):
    """The same where several labels have more combinations than can be counted one by
    one: of every label the sums of its levels' rows, of every two the table of their
    people. A row q with ‖q‖ ≤ `SCALE` stands once under its level of every label,
    `COUNT` in one cell of the table of every two labels, and energy and histograms
    beside: the squares of these lengths add up.
    """

    frame: Frame
    labels: Labels

    @property
    def sensitivity(self) -> float:
        """With the coefficients once for every label, and once in every table."""
        coefficients = len(self.labels.sizes) * released.SCALE**2
        counts = len(self.labels.pairs) * released.COUNT**2
        return math.sqrt(
            coefficients + counts + released.ENERGY**2 + released.SHADES**2
        ) * (1 + 2.0**-40)

    @property
    def size(self) -> int:
        frame = self.frame
        sizes = self.labels.sizes
        tables = sum(sizes[a] * sizes[b] for a, b in self.labels.pairs)
        return (
            self.labels.levels * frame.features
            + tables
            + 1
            + frame.channels * released.bins_of(frame)
        )

    def _sums_of(self, rows: ArrayRows) -> Tensor:
        q = bounded(rows.coefficients, self.frame.reach, released.SCALE)
        counts = np.full((len(q), 1), float(released.COUNT))
        sizes = self.labels.sizes
        label_codes = [
            np.asarray(one, dtype=np.int64)
            for one in np.unravel_index(rows.classes, sizes)
        ]
        sums = [
            cell_sums(q, codes, size, rows.crowd).flatten()
            for codes, size in zip(label_codes, sizes, strict=True)
        ]
        tables = [
            cell_sums(
                counts,
                label_codes[a] * sizes[b] + label_codes[b],
                sizes[a] * sizes[b],
                rows.crowd,
            ).flatten()
            for a, b in self.labels.pairs
        ]
        return torch.cat([*sums, *tables, _of_all(self.frame, q, rows)])

    def read_sums(self, total: Tensor, noise: float) -> released.Released:
        return released.read_levels(self.frame, self.labels, total, noise)


def first_of(frame: Frame, labels: Labels) -> First | Levels:
    """The first release of rows with these labels: of combinations, or, where these are
    many, of levels.
    """
    return First(frame, labels.combinations) if labels.joint else Levels(frame, labels)


@dataclass(frozen=True)
class Pooled(Sums):
    """Second moments of all rows about the means of their classes, in the first so many
    features.
    """

    means: Tensor  # int64 (classes, features), in steps
    radius: int  # in steps: who is farther from the mean is pulled in
    features: int
    scale: int

    @property
    def sensitivity(self) -> float:
        return released.moments_sensitivity(self.scale)

    @property
    def size(self) -> int:
        return self.features * (self.features + 1) // 2

    @property
    def diagonal(self) -> Tensor:
        return on_diagonal(self.features)

    def _sums_of(self, rows: ArrayRows) -> Tensor:
        q = bounded(
            _about(self.means, rows)[:, : self.features], float(self.radius), self.scale
        )
        return packed(
            cell_moments(q, np.zeros(len(q), dtype=np.int64), 1, rows.crowd)[0]
        )

    def read_sums(self, total: Tensor, noise: float) -> released.Released:
        """`moments`, the sum over people in squared steps, (features, features); the
        deviation of its noise.
        """
        return released.read_moments(
            total, self.features, self.radius, self.scale, noise
        )


@dataclass(frozen=True)
class Within(Sums):
    """Second moments of each cell in the subspace of `basis`, and with `bits` its count
    and mean.
    """

    means: Tensor  # int64 (classes, features), in steps
    basis: Tensor  # int64 (features, directions), in steps of 1/4096
    radius: int
    bits: int
    scale: int
    # classes that share second moments, one after the other: those with one level of
    # the first label
    classes_per_group: int = 1

    @property
    def cells(self) -> int:
        return len(self.means) // self.classes_per_group << self.bits

    @property
    def directions(self) -> int:
        return int(self.basis.shape[1])

    @property
    def sensitivity(self) -> float:
        extra = self._count**2 + self._mean**2 if self.bits else 0
        return math.sqrt(self.scale**4 / 2 + extra) * (1 + 2.0**-40)

    @property
    def size(self) -> int:
        k = self.directions
        return self.cells * (k * (k + 1) // 2 + (1 + k if self.bits else 0))

    @property
    def diagonal(self) -> Tensor:
        first = torch.zeros(self._head, dtype=torch.bool)
        return torch.cat([first, on_diagonal(self.directions).repeat(self.cells)])

    def _sums_of(self, rows: ArrayRows) -> Tensor:
        y = _about(self.means, rows)[:, : len(self.basis)]
        u = turned(y, self.basis)
        signs = (u[:, : self.bits] > 0) @ (1 << np.arange(self.bits))
        cells = (rows.classes // self.classes_per_group << self.bits) + signs.astype(
            np.int64
        )
        moments = packed(
            cell_moments(
                bounded(u, float(self.radius), self.scale),
                cells,
                self.cells,
                rows.crowd,
            )
        )
        if not self.bits:
            return moments.flatten()
        counts = np.full((len(u), 1), float(self._count))
        means = np.concatenate([counts, bounded(u, float(self.radius), self._mean)], 1)
        return torch.cat(
            [
                cell_sums(means, cells, self.cells, rows.crowd).flatten(),
                moments.flatten(),
            ]
        )

    def read_sums(self, total: Tensor, noise: float) -> released.Released:
        """`moments` (cells, directions, directions) in squared steps; with `bits`, the
        `people` and `sums` of cells.
        """
        k = self.directions
        head = self._head
        moments = released.read_moments(
            total[head:].view(self.cells, -1), k, self.radius, self.scale, noise
        )
        if not self.bits:
            return moments
        units = torch.tensor(
            [1 / self._count] + [self.radius / self._mean] * k, dtype=torch.float64
        )
        table = total[:head].double().view(self.cells, 1 + k) * units
        deviations = noise * units
        return moments | {
            "people": table[:, 0].clone(),
            "sums": table[:, 1:].clone(),
            "people_noise": deviations[0].clone(),
            "sums_noise": deviations[1].clone(),
        }

    @property
    def _head(self) -> int:
        return self.cells * (1 + self.directions) if self.bits else 0

    @property
    def _mean(self) -> int:
        return round(MEAN * self.scale**2)

    @property
    def _count(self) -> int:
        return round(CELL * self.scale**2)


def finest(multiplier: float, max_holders_per_person: int) -> int:
    """The scale of second moments under noise of this multiplier: the finest whose
    noise can be drawn.
    """
    return finest_scale(
        SCALES,
        multiplier,
        lambda scale: scale**2,
        max_holders_per_person=max_holders_per_person,
    )


def pulled(frame: Frame, norm: Any) -> Frame:
    """The frame with a norm that was bought: refused, before anything is charged, where
    it cannot be one.
    """
    in_range(0.0, frame.norm, norm=norm)
    return replace(frame, norm=float(norm))


def check_radius(radius: Any) -> None:
    """How far from a mean rows are left as they are, in steps: refused before anything
    is charged.
    """
    in_range(1, _MOST_RADIUS, radius=radius)
    whole(radius=radius)


def check_means(means: Any, classes: int, features: int) -> None:
    """Means that rows can have, as whole numbers: refused before anything is
    charged.
    """
    _whole("means", means, (classes, features), _FAR // 2)


def check_basis(basis: Any, features: int) -> None:
    shape = tuple(getattr(basis, "shape", ()))
    if (
        len(shape) != 2
        or not 1 <= shape[1] <= min(shape[0], MOST_DIRECTIONS)
        or shape[0] > features
    ):
        raise MessageError(
            f"these are not directions in {features} features.",
            effect=Effect.NOTHING_CHARGED,
        )
    _whole("directions", basis, shape, 2 * UNIT)


def _whole(what: str, value: Any, shape: tuple[int, ...], max_value: int) -> None:
    good = (
        isinstance(value, Tensor)
        and value.dtype == torch.int64
        and tuple(value.shape) == shape
    )
    if (
        not good
        or bool((value.abs() > max_value).any())
        or bool((value < -max_value).any())
    ):
        raise MessageError(
            f"{what} are whole numbers of the shape {shape}, up to {max_value:,}.",
            effect=Effect.NOTHING_CHARGED,
        )


def turned(rows: Whole, basis: Tensor) -> Whole:
    """In directions in steps of 1/4096, as whole numbers."""
    return np.asarray(
        np.clip(np.rint(rows @ basis.numpy().astype(np.float64) / UNIT), -_FAR, _FAR)
    )


def _about(means: Tensor, rows: ArrayRows) -> Whole:
    return np.asarray(
        rows.coefficients - means.numpy().astype(np.float64)[rows.classes]
    )
