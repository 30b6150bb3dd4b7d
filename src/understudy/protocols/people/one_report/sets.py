"""What a report is about: some columns of a row, and the cells that their levels fall into.

Levels of a column are put into groups, the same for all sets of a round. The cells of a set are all combinations of
its columns' groups, or some listed ones; then every other combination falls into one more cell.

Guarantee: the cell of a row is a function of that row and of what the server sent, and every row has one, so that a
report on it costs ε whatever sets a server makes up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from understudy.ground.errors import MessageError
from understudy.privacy.local.subset_selection import MOST_CELLS

MOST_SETS = 1 << 12
MOST_COLUMNS = 60  # of a set: combinations of bits still have numbers
_MOST_COMBINATIONS = 1 << 62  # so that a combination has a number


@dataclass(frozen=True, eq=False)
class ColumnSet:
    """`groups` has for each of the columns every level's group, (levels,); `listed` (cells − 1, columns) the groups of
    each cell, or None where all combinations are cells.
    """

    columns: tuple[int, ...]
    groups: tuple[Tensor, ...]
    listed: Tensor | None = None

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Groups of each column."""
        return tuple(int(group.max()) + 1 for group in self.groups)

    @property
    def cells(self) -> int:
        return math.prod(self.sizes) if self.listed is None else len(self.listed) + 1

    @cached_property
    def _steps(self) -> Tensor:
        return torch.tensor([*accumulate(self.sizes[:0:-1], lambda a, b: a * b, initial=1)][::-1])

    def cell_of(self, rows: Tensor) -> Tensor:
        """The cell of each row of levels (n, all columns): int64, (n,)."""
        grouped = [
            group[rows[:, column].long()] for column, group in zip(self.columns, self.groups, strict=True)
        ]
        number = (torch.stack(grouped, 1) * self._steps).sum(1)
        if self.listed is None:
            return number
        numbers, order = (self.listed * self._steps).sum(1).sort()
        place = torch.searchsorted(numbers, number).clamp(max=len(numbers) - 1)
        return torch.where(numbers[place] == number, order[place], len(numbers))


@dataclass(frozen=True, eq=False)
class Sets:
    """The sets of a round as they are sent: every level's group, (width,), and of each set its columns and what is
    listed of it; nothing (0, columns) where all combinations are cells.
    """

    groups: Tensor
    columns: list[list[int]]
    listed: list[Tensor]

    @classmethod
    def of(cls, groups: Sequence[Tensor], chosen: Sequence[ColumnSet]) -> "Sets":
        return cls(
            torch.cat(list(groups)),
            [list(one.columns) for one in chosen],
            [
                torch.zeros(0, len(one.columns), dtype=torch.int64) if one.listed is None else one.listed
                for one in chosen
            ],
        )

    def read(self, levels: Sequence[int]) -> list[ColumnSet]:
        """The sets, checked against the levels of each column. MessageError for what is none."""
        groups = self._groups(levels)
        if not isinstance(self.columns, list) or not isinstance(self.listed, list):
            raise _refused("are not lists")
        if not 1 <= len(self.columns) <= MOST_SETS or len(self.listed) != len(self.columns):
            raise _refused(f"are not 1 to {MOST_SETS:,}")
        return [
            self._read(columns, listed, groups)
            for columns, listed in zip(self.columns, self.listed, strict=True)
        ]

    def _groups(self, levels: Sequence[int]) -> list[Tensor]:
        groups = self.groups
        if not isinstance(groups, Tensor) or groups.dtype != torch.int64 or groups.shape != (sum(levels),):
            raise _refused(f"have no group for each of {sum(levels):,} levels")
        parts = [groups[a:b] for a, b in pairwise(accumulate(levels, initial=0))]
        for part in parts:
            found = np.unique(part.numpy())
            if found[0] != 0 or found[-1] != len(found) - 1:
                raise _refused("have groups that are not 0, 1, 2, …")
        return parts

    @staticmethod
    def _read(columns: object, listed: object, groups: Sequence[Tensor]) -> ColumnSet:
        if not isinstance(columns, list) or not all(type(column) is int for column in columns):
            raise _refused("have columns that are no numbers")
        if not 1 <= len(columns) <= MOST_COLUMNS or len(set(columns)) != len(columns):
            raise _refused(f"do not have 1 to {MOST_COLUMNS} different columns each")
        if not all(0 <= column < len(groups) for column in columns):
            raise _refused("have a column that is not there")
        own = tuple(groups[column] for column in columns)
        one = ColumnSet(tuple(columns), own)
        if math.prod(one.sizes) > _MOST_COMBINATIONS:
            raise _refused("have more combinations than can be numbered")
        if not isinstance(listed, Tensor) or listed.dtype != torch.int64 or listed.ndim != 2:
            raise _refused("list cells that are no numbers")
        if listed.shape[1] != len(columns) or bool(
            ((listed < 0) | (listed >= torch.tensor(one.sizes))).any()
        ):
            raise _refused("list cells outside their columns")
        if len(listed):
            one = ColumnSet(one.columns, own, listed)
        if not 2 <= one.cells <= MOST_CELLS:
            raise _refused(f"do not have 2 to {MOST_CELLS:,} cells each")
        return one


def _refused(why: str) -> MessageError:
    return MessageError(f"the sets of columns that were asked for {why}. Nothing was charged or sent.")
