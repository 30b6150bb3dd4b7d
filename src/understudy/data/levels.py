"""A row as the number of each cell's level: the plainest rule by which a table becomes numbers, with no class.

Guarantee: as of `codec`: the numbers of a row depend on that row and the public schema alone.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from understudy.data.codec import Codec
from understudy.data.features import Label
from understudy.data.schema import Schema
from understudy.data.table import Table


@dataclass(frozen=True)
class Levels:
    """Every column of the schema by its level's number. There are no classes: each row is of the only one."""

    schema: Schema

    @cached_property
    def codec(self) -> Codec:
        return Codec(self.schema)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.codec.width,)

    @property
    def labels(self) -> tuple[Label, ...]:
        return (0,)

    def rows(self, source: Table) -> Tensor:
        """The level of every cell: int64, (rows, columns)."""
        return torch.from_numpy(self.codec.codes(source.frame)).long()

    def codes(self, source: Table) -> Tensor:
        return torch.zeros(source.rows, dtype=torch.int64)

    def expand(self, rows: Tensor) -> Tensor:
        """One-hot."""
        return self.codec.one_hot(rows)

    def describe(self) -> dict[str, Any]:
        return {"kind": "levels"}
