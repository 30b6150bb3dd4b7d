"""A column's values in pieces: its levels, cut further where a question tells values of one level apart.

A model knows levels, and a question asks for "70 or older" where a level is 65 to 79. Within a level values are even,
so the level is cut at 70, and each piece has a share of it: 5/15 and 10/15. A piece that holds no number has none.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import Binned, Boolean, Categorical, Column, Real
from understudy.data.reading.dtypes import typed

Numbers = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Pieces:
    """The pieces of one column, in order, the missing one last where the column is nullable.

    `level` is the model's level of each, `share` its part of that level. Of a number or a day, `edges` says where each
    piece begins, and where the last ends; of the rest a piece is a declared value.
    """

    column: Column
    level: NDArray[np.int32]
    share: NDArray[np.float64]
    edges: NDArray[Any] | None = None

    @property
    def there(self) -> int:
        """How many pieces hold values, without the missing one."""
        return len(self.level) - self.column.nullable

    def values(self, pieces: Numbers, inside: NDArray[np.float64]) -> "pd.Series[Any]":
        """A value of each piece; `inside` ∈ [0, 1) says where in it a number lies."""
        return values_of(self.column, pieces, inside, self.edges)


def cut(column: Column, cuts: Iterable[float] = ()) -> Pieces:
    """The column's own levels, cut at these places where they lie between its bounds.

    Edges: places of whole numbers and days (since 1970-01-01) are whole.
    """
    if not isinstance(column, Binned):
        return Pieces(column, np.arange(column.size, dtype=np.int32), np.ones(column.size))
    own = column.edges
    inner = np.array([place for place in cuts if own[0] < place < own[-1]], dtype=own.dtype)
    edges = np.union1d(own, inner)
    level = np.searchsorted(own, edges[:-1], side="right") - 1
    share = _sizes(column, edges) / _sizes(column, own)[level]
    if column.nullable:
        level, share = np.append(level, column.levels), np.append(share, 1.0)
    return Pieces(column, level.astype(np.int32), share, edges)


def _sizes(column: Binned, edges: NDArray[Any]) -> NDArray[Any]:
    """How much lies between two edges each: of numbers with so many decimals, how many."""
    if not isinstance(column, Real) or column.decimals is None:
        return np.diff(edges)
    first, last = column.steps(edges)
    return last - first + 1


def values_of(
    column: Column, codes: Numbers, inside: NDArray[np.float64], edges: NDArray[Any] | None = None
) -> "pd.Series[Any]":
    """The values of the levels, or of the pieces between `edges`; `inside` ∈ [0, 1) says where in one a value lies."""
    if isinstance(column, Binned) and edges is None:
        edges = column.edges
    missing = codes == (column.levels if edges is None else len(edges) - 1)
    levels = np.where(missing, 0, codes)
    values: NDArray[Any] = levels
    if isinstance(column, Categorical):
        text = isinstance(column.categories[0], str)
        values = np.array(column.categories, dtype=object if text else None)[levels]
    elif isinstance(column, Real) and column.decimals is not None and edges is not None:
        first, last = (steps[levels] for steps in column.steps(edges))
        values = np.minimum(first + np.floor(inside * (last - first + 1)), last) / 10.0**column.decimals
    elif edges is not None:
        low, high = edges[levels], edges[levels + 1]
        values = low + inside * (high - low)
        if edges.dtype.kind == "i":
            values = np.minimum(np.floor(values).astype(np.int64), high - 1)
        else:
            values = np.minimum(values, np.nextafter(high, low))  # rounding must not leave the bin
    return typed(column, values, missing)


def labels_of(column: Column) -> list[Any]:
    """What stands for each level of a column in a table of answers: its declared value, or its bin's label.

    Edges: the missing level is None.
    """
    if isinstance(column, Categorical):
        own: list[Any] = list(column.categories)
    else:
        own = list(column.values) if isinstance(column, Boolean) else list(column.labels)
    return [*own, None] if column.nullable else own
