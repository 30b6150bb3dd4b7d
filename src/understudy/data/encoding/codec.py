"""Rows to levels and back, by the public schema alone: nothing is fitted.

A row becomes one code per column (which level), or a one-hot vector: a block per column, side by side, in which the
last slot of a nullable column stands for "missing". Decoding draws a number or a day evenly inside its bin, so that
encode ∘ decode ∘ encode = encode.

Guarantee: the encoding of a row depends on that row and the schema alone, so encoding costs no privacy and one person
moves only the person's own rows.
Edges: a value outside the declared domain, or missing where none may be, is an error and nothing is encoded; the
person, and a column that the schema does not know, are left out; what is finer than a day, or a time's resolution, is
dropped.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.column import Binned
from understudy.data.encoding.values import Codes as Codes
from understudy.data.encoding.values import Pieces, codes_of, cut, labels_of, values_of
from understudy.data.schema import Schema
from understudy.ground.errors import SchemaError

if TYPE_CHECKING:
    from understudy.data.reading.judged import Batch


class Uniform(Protocol):
    """A source of numbers in [0, 1): all that decoding needs of a random generator."""

    def uniform(self, *shape: int) -> Tensor: ...


@dataclass(frozen=True)
class Codec:
    schema: Schema

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Levels per column, the missing one included."""
        return tuple(column.size for column in self.schema.columns)

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """Where each column lies in a one-hot row."""
        return tuple(slice(a, b) for a, b in pairwise(accumulate(self.sizes, initial=0)))

    @cached_property
    def width(self) -> int:
        return sum(self.sizes)

    def codes(self, frame: "pd.DataFrame | Batch") -> Codes:
        """The level of every cell, (rows, columns); of many rows, one column lies after the other."""
        codes = self._by_column(frame).T
        return np.ascontiguousarray(codes) if isinstance(frame, pd.DataFrame) else codes

    def _by_column(self, frame: "pd.DataFrame | Batch") -> Codes:
        """The same, (columns, rows): one column after the other is quick to write."""
        if absent := [name for name in self.schema.names if name not in frame.columns]:
            raise SchemaError(f'the table has no column "{absent[0]}". Nothing was encoded.')
        codes = np.empty((len(self.sizes), len(frame)), dtype=np.int32)
        for j, column in enumerate(self.schema.columns):
            if isinstance(frame, pd.DataFrame):
                codes[j] = codes_of(column, frame[column.name])
            else:
                codes[j] = frame.codes(column)
        return codes

    def known_levels(self, j: int, values: "pd.Series[Any]") -> Codes:
        """The level of every value of column `j`, −1 where it is missing, whether or not it may be."""
        column = replace(self.schema.columns[j], nullable=True)
        codes = codes_of(column, values)
        return np.where(codes == column.levels, np.int32(-1), codes)

    def pieces(self, j: int, cuts: Iterable[float] = ()) -> Pieces:
        """The levels of column `j`, cut at these places besides."""
        return cut(self.schema.columns[j], cuts)

    def labels(self, j: int) -> list[Any]:
        return labels_of(self.schema.columns[j])

    def encode(self, frame: pd.DataFrame, device: torch.device | str = "cpu") -> Tensor:
        if torch.device(device).type == "cpu":
            return self.one_hot(self.codes(frame))
        return self.one_hot(self._by_column(frame).T, device)  # a view, which a GPU turns faster

    def one_hot(self, codes: Codes | Tensor, device: torch.device | str = "cpu") -> Tensor:
        """Codes as one-hot vectors, float32, (rows, width)."""
        codes = self._checked(_array(codes))
        starts = torch.tensor([block.start for block in self.blocks], device=device)
        slots = torch.from_numpy(codes).to(device) + starts  # (n, m), int64
        return torch.zeros(len(codes), self.width, device=device).scatter_(1, slots, 1.0)

    def decode(self, values: Codes | Tensor, rng: Uniform | None = None) -> pd.DataFrame:
        """A table from codes (integers) or from one-hot or probability rows (floats, by the largest slot). With `rng` a
        binned value is drawn evenly inside its bin; without, it is the middle of the bin."""
        array = _array(values)
        codes = self._checked(array) if array.dtype.kind in "iu" else self._largest(array)
        binned = [isinstance(column, Binned) for column in self.schema.columns]
        inside = np.full(codes.shape, 0.5)
        if rng is not None and any(binned):
            inside[:, binned] = rng.uniform(len(codes), sum(binned)).cpu().numpy()
        every = enumerate(self.schema.columns)
        return pd.DataFrame({column.name: values_of(column, codes[:, j], inside[:, j]) for j, column in every})

    def sample_codes(self, probabilities: NDArray[np.floating] | Tensor, rng: Uniform) -> Codes:
        """Draw one level per column from the weights in its block, by inversion. A slot of weight 0 is never drawn.
        Weights need not sum to 1."""
        rows = self._rows(_array(probabilities))
        if (rows < 0).any():
            raise SchemaError("a probability is below 0. Nothing was drawn.")
        draws = rng.uniform(len(rows), len(self.blocks)).cpu().numpy()
        codes = np.empty((len(rows), len(self.blocks)), dtype=np.int32)
        for j, block in enumerate(self.blocks):
            heap = np.cumsum(rows[:, block], axis=1, dtype=np.float64)  # (n, size)
            total = heap[:, -1:]
            if not (total > 0).all():
                raise self.schema.columns[j].error("all probabilities of a row are 0. Nothing was drawn.")
            # Rounding could lift draw · total up to total, and so past the last slot.
            target = np.minimum(draws[:, j : j + 1] * total, np.nextafter(total, 0))
            codes[:, j] = (heap <= target).sum(axis=1)
        return codes

    def _largest(self, rows: NDArray[np.floating]) -> Codes:
        rows = self._rows(rows)
        return np.stack([rows[:, block].argmax(axis=1) for block in self.blocks], axis=1).astype(np.int32)

    def _rows(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise SchemaError(f"encoded rows have the shape (rows, {self.width}), not {rows.shape}.")
        if not np.isfinite(rows).all():
            raise SchemaError("an encoded row holds a value that is not finite. Nothing was decoded.")
        return rows

    def _checked(self, codes: NDArray[np.integer]) -> Codes:
        if codes.dtype.kind not in "iu" or codes.ndim != 2 or codes.shape[1] != len(self.sizes):
            shape = f"(rows, {len(self.sizes)})"
            raise SchemaError(f"codes are integers of the shape {shape}, not {codes.dtype} {codes.shape}.")
        low, high = codes.min(axis=0, initial=0), codes.max(axis=0, initial=0)
        if (wrong := (low < 0) | (high >= self.sizes)).any():
            column = self.schema.columns[int(wrong.argmax())]
            raise column.error(f"a code lies outside its {column.size} levels.")
        return codes.astype(np.int32, copy=False)


def _array(values: NDArray[Any] | Tensor) -> NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values
        return values.numpy()
    return np.asarray(values)
