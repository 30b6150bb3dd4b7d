"""Distances between rows of codes, in blocks: every attack that looks for neighbours
stands on this.

Hamming counts the columns in which two rows differ (Jiang et al., "VertiGAN", PoPETs
2023, §6.5); the Euclidean distance of their one-hot vectors is √(2·Hamming), so it
ranks alike and is not offered apart. Gower also looks how far apart the levels of an
ordered column lie: |i − j| / (levels − 1) there, 0 or 1 elsewhere, and 1 between a
missing and a present value (the distance of Giomi et al., PoPETs 2023).

Distances are whole numbers, so that ties are ties: a Hamming step is 1; a Gower step is
`UNIT` = lcm(1 … 16), of which the steps of up to 17 levels are exact parts.
`Space.width` is the largest distance possible. Columns are compared as bytes, one after
the other, for a few targets against all rows; threads share the targets.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.data.column import Binned, Ordinal
from understudy.data.schema import Schema
from understudy.evaluate.utility.marginals import Codes, check_tables
from understudy.ground.errors import ConfigError, Effect

Distances = NDArray[np.integer[Any]]
T = TypeVar("T")

UNIT = 720_720
BLOCK = 1 << 21  # pairs that are worked on at once: they stay in the cache


@dataclass(frozen=True)
class Space:
    """What the level numbers of the columns mean: how many, and of which columns the
    order counts.
    """

    sizes: tuple[int, ...]
    ordered: tuple[bool, ...]
    nullable: tuple[bool, ...]

    @classmethod
    def hamming(cls, sizes: Sequence[int]) -> Self:
        return cls(tuple(sizes), (False,) * len(sizes), (False,) * len(sizes))

    @classmethod
    def gower(cls, schema: Schema) -> Self:
        """Numbers, dates and ordinal columns keep their order."""
        columns = schema.columns
        return cls(
            tuple(column.size for column in columns),
            tuple(isinstance(column, Binned | Ordinal) for column in columns),
            tuple(column.nullable for column in columns),
        )

    def take(self, columns: Sequence[int]) -> "Space":
        return Space(
            tuple(self.sizes[j] for j in columns),
            tuple(self.ordered[j] for j in columns),
            tuple(self.nullable[j] for j in columns),
        )

    @cached_property
    def width(self) -> int:
        return len(self.sizes) * (UNIT if any(self.ordered) else 1)

    def present(self, column: int) -> int:
        return self.sizes[column] - self.nullable[column]

    def level_positions(self, column: int) -> NDArray[np.int32]:
        """Where each level lies between 0 and `UNIT`; missing lies beyond, one whole
        step from everything.
        """
        steps = max(1, self.present(column) - 1)
        positions = (np.arange(self.present(column)) * UNIT + steps // 2) // steps
        return np.append(positions, [2 * UNIT] * self.nullable[column]).astype(np.int32)

    def distance_sums(
        self, column: int, counts: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The sum of distances of each level of a column to rows of which `counts` have
        each level.
        """
        if not self.ordered[column]:
            return np.asarray(
                (counts.sum() - counts) * (UNIT if any(self.ordered) else 1)
            )
        present = self.present(column)
        counts_present = counts[:present]
        positions = self.level_positions(column)[:present].astype(np.int64)
        below = np.cumsum(counts_present)
        sums = np.cumsum(counts_present * positions)
        # Σ|p − p_b| = p·(rows up to p − rows above) − (their places' sums), so no pair
        # is formed.
        sums_present = (
            positions * (2 * below - counts_present.sum())
            - 2 * sums
            + (counts_present * positions).sum()
        )
        missing = counts[present:]
        return np.append(
            sums_present + UNIT * missing.sum(),
            np.full(len(missing), UNIT * counts_present.sum()),
        )

    def distances(self, targets: Codes, rows: "EncodedRows") -> Distances:
        """Of every target to every row: (targets, rows)."""
        unlike = self._unlike(targets, rows)
        if not any(self.ordered):
            return unlike
        total = np.zeros(unlike.shape, np.int32 if self.width < 1 << 31 else np.int64)
        step = np.empty_like(total)
        for j in np.flatnonzero(self.ordered).tolist():
            np.subtract(
                rows.columns[j],
                self.level_positions(j)[targets[:, j]][:, None],
                out=step,
            )
            np.abs(step, out=step)
            np.minimum(step, UNIT, out=step)
            total += step
        np.multiply(unlike, total.dtype.type(UNIT), out=step)
        total += step
        return total

    def _unlike(self, targets: Codes, rows: "EncodedRows") -> Distances:
        """In how many columns without an order targets and rows differ."""
        shape = (len(targets), rows.count)
        differ = np.empty(shape, bool)
        total = np.zeros(shape, np.uint8 if len(self.sizes) < 255 else np.uint16)
        for j in np.flatnonzero(~np.array(self.ordered, bool)).tolist():
            column = rows.columns[j]
            np.not_equal(
                column, targets[:, j].astype(column.dtype)[:, None], out=differ
            )
            np.add(total, differ.view(np.uint8), out=total)
        return total


class EncodedRows:
    def __init__(self, codes: Codes, space: Space) -> None:
        self.count = len(codes)
        self.space = space
        small = np.uint8 if max(space.sizes, default=0) <= 256 else np.int32
        self.columns = [
            space.level_positions(j)[codes[:, j]]
            if order
            else np.ascontiguousarray(codes[:, j], dtype=small)
            for j, order in enumerate(space.ordered)
        ]

    def map_distances(
        self, targets: Codes, work: Callable[[Distances, slice], T]
    ) -> Iterator[T]:
        """`work` on the distances of a few targets at a time, with their places, in
        threads; it may overwrite them.
        """
        batch = max(1, BLOCK // max(1, self.count))
        parts = [slice(begin, begin + batch) for begin in range(0, len(targets), batch)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            yield from pool.map(
                lambda part: work(self.space.distances(targets[part], self), part),
                parts,
            )

    def nearest(self, targets: Codes) -> Distances:
        return np.concatenate(
            [*self.map_distances(targets, lambda distances, _: distances.min(axis=1))]
        )


@dataclass(frozen=True, eq=False)
class Attacked:
    """What an attack is about: rows that were trained on, rows that were not, and
    synthetic ones, in one space.
    """

    train: Codes
    holdout: Codes
    synthetic: Codes
    space: Space

    @classmethod
    def from_codes(
        cls,
        train: Codes,
        holdout: Codes,
        synthetic: Codes,
        *,
        space: Space | None = None,
    ) -> "Attacked":
        """The tables, checked against each other and against the space; without one,
        Hamming's.
        """
        tables = check_tables(
            effect=Effect.NOTHING_COMPUTED,
            train=train,
            holdout=holdout,
            synthetic=synthetic,
        )
        needed = np.max(
            [codes.max(axis=0, initial=0) + 1 for codes in tables.values()], axis=0
        ).astype(int)
        space = Space.hamming(needed.tolist()) if space is None else space
        if len(space.sizes) != len(needed) or (needed > space.sizes).any():
            sizes = (
                f"the columns are said to have {list(space.sizes)} levels and need "
                f"{needed.tolist()}"
            )
            raise ConfigError(f"{sizes}.", effect=Effect.NOTHING_COMPUTED)
        return cls(**tables, space=space)

    def missing_reason(self, **min_rows: int) -> str:
        """Why the tables cannot be compared: no columns, or fewer rows in one than
        `least` says (1); or nothing.
        """
        if not self.train.shape[1]:
            return "there are no columns."
        for name in ("train", "holdout", "synthetic"):
            rows = len(getattr(self, name))
            if rows < (needed := min_rows.get(name, 1)):
                return f"the {name} table has {rows} rows and {needed} are needed."
        return ""
