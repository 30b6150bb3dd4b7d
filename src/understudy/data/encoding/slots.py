"""Rows without a class, as an autoencoder reads them, by a public rule that no row has a say in.

    table               a number for each column of one or two levels: which; for any other, a slot for each level
    series and images   numbers in [0, 1] by the declared bounds, as they are read

Rows are kept compact, one number a cell, and become slots when they are needed.

Guarantee: the slots of a row depend on that row and the public schema alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from understudy.data.arrays import ArrayTable
from understudy.data.described import ArraySchema
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.features import Label
from understudy.data.schema import Schema
from understudy.data.table import Table


def slot_counts(sizes: Sequence[int]) -> tuple[int, ...]:
    """How many slots each column takes, from how many levels it has."""
    return tuple(1 if size <= 2 else size for size in sizes)


class _Unlabelled:
    """What the rules below share: there is one class, and each row is of it."""

    labels: tuple[Label, ...] = (0,)

    def codes(self, source: Table | ArrayTable[Any]) -> Tensor:
        return torch.zeros(source.rows, dtype=torch.int64)


@dataclass(frozen=True)
class Slots(_Unlabelled):
    """Every column of a table."""

    schema: Schema

    @cached_property
    def codec(self) -> Codec:
        return Codec(self.schema)

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(slot_counts(self.codec.sizes)),)

    def rows(self, source: Table) -> Tensor:
        """The level of every cell: int32 (rows, columns)."""
        return torch.from_numpy(self.codec.codes(source.frame))

    def expand(self, rows: Tensor) -> Tensor:
        sizes = self.codec.sizes
        starts = torch.tensor([*accumulate(slot_counts(sizes), initial=0)][:-1])
        few = torch.tensor(sizes) <= 2
        out = torch.zeros(len(rows), *self.shape)
        out[:, starts[few]] = rows[:, few].to(out.dtype)
        return out.scatter_(1, rows[:, ~few] + starts[~few], 1.0)

    def describe(self) -> dict[str, Any]:
        return {"kind": "slots"}


@dataclass(frozen=True)
class Values(_Unlabelled):
    """Series or images."""

    schema: ArraySchema

    @property
    def shape(self) -> tuple[int, ...]:
        return self.schema.shape

    def rows(self, source: ArrayTable[Any]) -> Tensor:
        """Numbers in [0, 1]: float32 (rows, *shape)."""
        return torch.from_numpy(source.values)

    def expand(self, rows: Tensor) -> Tensor:
        return rows

    def describe(self) -> dict[str, Any]:
        return {"kind": "values"}
