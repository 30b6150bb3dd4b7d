"""Levels that were bought: which fine cells of a column are one level, and how likely each of them is within it.

Like a `Codec`, but with two resolutions (`data.fine`): rows are encoded by level, and a drawn level becomes a value by
the released fine table within it. So a column by itself is right to the resolution of its fine cells, however few levels
its pairs are measured on.

Guarantee: levels and weights come from what was released; with them the encoding of a row depends on that row alone.
Edges: levels of no weight are drawn evenly over their cells; anything that does not fit the schema → SchemaError.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.codec import Codec, Codes, Uniform
from understudy.data.fine import fine_schema
from understudy.data.schema import Schema
from understudy.errors import SchemaError


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of a table's columns: for each column the level of every fine cell, and the cell's weight.

    Cells are those of `fine_schema`, in order, the missing one last where a column is nullable.
    """

    schema: Schema
    groups: Sequence[NDArray[np.int32]]
    weights: Sequence[NDArray[np.float64]]

    def __post_init__(self) -> None:
        sizes = self.fine.sizes
        if len(self.groups) != len(sizes) or len(self.weights) != len(sizes):
            raise SchemaError(f"levels of {len(self.groups)} columns do not fit a table of {len(sizes)}.")
        for column, cells, group, weight in zip(
            self.schema.columns, sizes, self.groups, self.weights, strict=True
        ):
            if group.shape != (cells,) or weight.shape != (cells,):
                raise column.error(f"its levels are for {len(group):,} fine cells, and it has {cells:,}.")
            if not np.array_equal(np.unique(group), np.arange(group.max() + 1)):
                raise column.error("its levels are not numbered from 0, each with a cell.")
            if not (np.isfinite(weight).all() and (weight >= 0).all()):
                raise column.error("a weight of a fine cell is below 0 or not finite.")

    @cached_property
    def fine(self) -> Codec:
        """The encoding by fine cells."""
        return Codec(fine_schema(self.schema))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Levels per column, the missing one included."""
        return tuple(int(group.max()) + 1 for group in self.groups)

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """Where each column lies in a one-hot row."""
        return tuple(slice(a, b) for a, b in pairwise(accumulate(self.sizes, initial=0)))

    @cached_property
    def width(self) -> int:
        """Length of a one-hot row."""
        return sum(self.sizes)

    def codes(self, frame: pd.DataFrame) -> Codes:
        """The level of every cell, (rows, columns)."""
        cells = self.fine.codes(frame)
        return np.stack([group[cells[:, j]] for j, group in enumerate(self.groups)], axis=1)

    def decode(self, codes: Codes, rng: Uniform) -> pd.DataFrame:
        """A table from levels: in each a fine cell is drawn by weight, and a value inside that."""
        draws = rng.uniform(len(codes), len(self.groups)).cpu().numpy()
        cells = np.empty_like(codes)
        for j in range(len(self.groups)):
            cells[:, j] = self._cells(j, codes[:, j], draws[:, j])
        return self.fine.decode(cells, rng)

    def _cells(self, column: int, levels: NDArray[np.int32], draws: NDArray[np.float64]) -> NDArray[np.int64]:
        """A fine cell of each level, by inversion: the draws pick a place in the level's own heap of weights."""
        group, weight = self.groups[column], self.weights[column]
        order = np.argsort(group, kind="stable")  # cells, level by level
        held = np.bincount(group, weights=weight)
        size = np.bincount(group)
        share = np.where(held[group] > 0, weight / np.maximum(held[group], 1e-300), 1 / size[group])
        ends = np.cumsum(share[order])
        first = np.cumsum(size) - size
        before = np.concatenate([[0.0], ends])[first]
        after = ends[first + size - 1]
        target = before[levels] + draws * (after - before)[levels]
        place = np.searchsorted(ends, target, side="right")
        place = np.clip(place, first[levels], (first + size - 1)[levels])
        return np.asarray(order[place])

    def tensors(self) -> dict[str, Tensor]:
        """All of it as tensors, by column number; `from_tensors` reads them."""
        levels = {f"level.{j}": torch.from_numpy(group) for j, group in enumerate(self.groups)}
        return levels | {f"weight.{j}": torch.from_numpy(weight) for j, weight in enumerate(self.weights)}

    @classmethod
    def from_tensors(cls, schema: Schema, tensors: Mapping[str, Any]) -> "Levels":
        """The inverse of `tensors`."""
        try:
            columns = range(len(schema.columns))
            groups = [tensors[f"level.{j}"].numpy().astype(np.int32) for j in columns]
            weights = [tensors[f"weight.{j}"].numpy().astype(np.float64) for j in columns]
        except (KeyError, AttributeError, TypeError) as error:
            raise SchemaError(f"these are no levels of a table: {error!r}.") from None
        return cls(schema, groups, weights)
