"""Values of a column as numbers, and back: its levels, days or steps since 1970-01-01,
its own numbers.

*Pieces* are levels, cut further where a question tells values of one level apart. A
model knows levels, and a question asks for "70 or older" where a level is 65 to 79.
Within a level values are even, so the level is cut at 70, and each piece has a share of
it: 5/15 and 10/15. A piece that holds no number has none.

Edges: a value outside the declared domain, or of another type → SchemaError.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import (
    Binned,
    Boolean,
    Categorical,
    Column,
    Date,
    Datetime,
    Ordinal,
    Real,
)
from understudy.ground.errors import Effect

Cells: TypeAlias = "pd.Series[Any]"  # of one column
Floats = NDArray[np.float64]
Codes = NDArray[np.int32]
Numbers = NDArray[np.integer]
Places = NDArray[np.int64]
_MANY = 1 << 14  # numbers for which a table of places is worth the while
_FINER = 64  # such a table has so many entries for an edge
_STEPS = 3  # edges that it may leave to be compared with


def codes_of(column: Column, values: Cells) -> Codes:
    """The level of each value. SchemaError where one lies outside the declared
    domain.
    """
    if isinstance(column, Boolean) and values.dtype == np.bool_:
        return values.to_numpy(np.int32)
    codes = found_levels(column, values)
    if len(codes) and codes.min() < 0:
        row = int((codes < 0).argmax())
        problem = (
            "is missing"
            if pd.isna(values.array[row])
            else f"is {values.iloc[row]}, outside {column.domain}"
        )
        raise column.error(
            f"the value at row {row + 1:,} {problem}.",
            effect=Effect.NOTHING_COMPUTED,
        )
    return codes.astype(np.int32, copy=False)


def found_levels(column: Column, values: Cells) -> NDArray[np.integer]:
    """The level of each value, −1 where there is none."""
    missing = pd.isna(values.array)
    levels = _levels(column, values)
    return (
        np.where(missing, column.levels if column.nullable else -1, levels)
        if missing.any()
        else levels
    )


def is_within(column: Binned, values: Cells) -> bool:
    """Whether all are there, within the bounds, and whole where they have to be."""
    numbers = _numbers(column, values)
    whole = column.edges.dtype.kind == "i"
    if (
        not len(numbers)
        or not column.edges[0]
        <= numbers.min()
        <= numbers.max()
        <= column.edges[-1] - whole
    ):
        return False
    return (
        not whole
        or values.dtype.kind in "iu"
        or bool((numbers == np.floor(numbers)).all())
    )


def _levels(column: Column, values: Cells) -> NDArray[np.integer]:
    if isinstance(column, Categorical) and isinstance(column.categories[0], str):
        return _texts(column.categories).get_indexer(pd.Index(values, dtype=object))
    if isinstance(column, Boolean) and values.dtype.kind not in "biuf":
        levels_by_label: dict[Any, int] = {False: 0, True: 1} | {
            label: i for i, label in enumerate(column.values)
        }
        return np.array(
            [levels_by_label.get(value, -1) for value in values.astype(object)],
            dtype=np.int32,
        )
    numbers = (
        _moments(column, values)
        if isinstance(column, Date | Datetime)
        else _numbers(column, values)
    )
    if isinstance(column, Categorical):
        return _place_among(column.categories, numbers)
    if isinstance(column, Binned):
        whole = column.edges.dtype.kind == "i"  # then the last edge lies one past high
        low = column.edges[0]
        high = column.edges[-1] - whole
        inside = (low <= numbers) & (numbers <= high)
        if whole and values.dtype.kind not in "iu":
            inside &= numbers == np.floor(numbers)
        if len(numbers) < _MANY:
            return np.where(
                inside,
                np.searchsorted(column.edges[1:-1], numbers, side="right"),
                -1,
            )
        if inside.all():
            return _places(column)(numbers)
        return np.where(inside, _places(column)(np.where(inside, numbers, low)), -1)
    numbered = (
        isinstance(column, Boolean)
        and isinstance(column.values[0], int)
        and values.dtype.kind != "b"
    )
    labels = column.values if isinstance(column, Boolean) and numbered else (0, 1)
    return _place_among(labels, numbers)


@lru_cache(maxsize=256)
def _texts(categories: tuple[Any, ...]) -> "pd.Index[Any]":
    """Looked up once, so that what it builds for that is there before other threads
    look.
    """
    index: pd.Index[Any] = pd.Index(categories, dtype=object)
    index.get_indexer(index[:1])
    return index


@lru_cache(maxsize=256)
def _in_order(values: tuple[Any, ...]) -> tuple[Floats, NDArray[np.integer]]:
    numbers = np.array(values, dtype=np.float64)
    order = numbers.argsort()
    return numbers[order], order


class _Places:
    """Where numbers lie between the edges of a column, which are many: by a table of
    the first bits of a number.
    Guarantee: as `searchsorted` has it, to the last bit. Edges: numbers within the
    column's bounds alone.
    """

    def __init__(self, edges: NDArray[Any]) -> None:
        self.low = edges[0]
        self.plain = edges.dtype.kind == "i" and bool((np.diff(edges) == 1).all())
        if self.plain:
            return
        inner = edges[1:-1].astype(np.float64)
        ends = np.array([edges[0], edges[-1]], dtype=np.float64)
        low, high = map(int, _rank(ends))
        self.shift = max(
            0,
            (high - low).bit_length() - (_FINER * len(edges)).bit_length(),
        )
        self.first_bits = low >> self.shift
        starts = (
            np.arange(self.first_bits, (high >> self.shift) + 1, dtype=np.int64)
            << self.shift
        )
        last = starts + ((1 << self.shift) - 1)
        self.first = np.searchsorted(
            inner,
            _ranked(np.maximum(starts, low)),
            side="right",
        ).astype(np.int32)
        more = (
            np.searchsorted(inner, _ranked(np.minimum(last, high)), side="right")
            - self.first
        )
        self.steps = min(_STEPS, int(more.max()))
        self.crowded = more > self.steps
        self.inner = np.append(inner, np.inf)

    def __call__(self, numbers: Floats) -> Codes:
        if self.plain:
            return np.asarray(numbers - self.low, dtype=np.int32)
        bits = (_rank(numbers + 0.0) >> self.shift) - self.first_bits  # −0 is 0
        positions: Codes = self.first[bits]
        for _ in range(self.steps):
            positions += numbers >= self.inner[positions]
        crowded = self.crowded[bits]
        if crowded.any():
            positions[crowded] = np.searchsorted(
                self.inner[:-1],
                numbers[crowded],
                side="right",
            )
        return positions


def _rank(numbers: Floats) -> Places:
    """The bits of numbers as whole numbers in the same order."""
    bits = numbers.view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


def _ranked(ranks: Places) -> Floats:
    return (ranks ^ ((ranks >> 63) & np.int64(2**63 - 1))).view(np.float64)


@lru_cache(maxsize=64)
def _places(column: Binned) -> _Places:
    return _Places(column.edges)


def _place_among(values: tuple[Any, ...], numbers: Floats) -> NDArray[np.integer]:
    """Where each number stands among these, −1 where it does not."""
    ordered, order = _in_order(values)
    near = np.minimum(np.searchsorted(ordered, numbers), len(ordered) - 1)
    return np.where(ordered[near] == numbers, order[near], -1)


def _numbers(column: Column, values: Cells) -> Floats:
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "biuf":
        return values.to_numpy().astype(np.float64)
    try:
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise column.error(
            f"holds values that are not numbers ({values.dtype}).",
            effect=Effect.NOTHING_COMPUTED,
        ) from None


def _moments(column: Date | Datetime, values: Cells) -> Floats:
    """Days, or the column's steps, since 1970-01-01."""
    try:
        dates = isinstance(values.dtype, np.dtype) and values.dtype.kind == "M"
        stamps = (values if dates else pd.to_datetime(values)).to_numpy("datetime64[s]")
    except (TypeError, ValueError):
        raise column.error(
            f"holds values that are not dates ({values.dtype}).",
            effect=Effect.NOTHING_COMPUTED,
        ) from None
    step = column.step if isinstance(column, Datetime) else 86400
    return np.where(np.isnat(stamps), np.nan, np.floor(stamps.astype(np.int64) / step))


def numbers_of(column: Column, values: Cells) -> Floats:
    """Values that have an order, as numbers that have the same; NaN where one is
    missing.
    """
    if isinstance(column, Date | Datetime):
        return _moments(column, values)
    if isinstance(column, Binned):
        return _numbers(column, values)
    return np.where(pd.isna(values.array), np.nan, _levels(column, values))


@dataclass(frozen=True, eq=False)
class Pieces:
    """The pieces of one column, in order, the missing one last where the column is
    nullable. `level` is the model's level of each, `share` its part of that level. Of a
    number or a day, `edges` says where each piece begins, and where the last ends; of
    the rest a piece is a declared value.
    """

    column: Column
    level: NDArray[np.int32]
    share: Floats
    edges: NDArray[Any] | None = None

    @property
    def there(self) -> int:
        """How many pieces hold values, without the missing one."""
        return len(self.level) - self.column.nullable

    def values(self, pieces: Numbers, inside: Floats) -> Cells:
        """A value of each piece; `inside` ∈ [0, 1) says where in it a number lies."""
        return values_of(self.column, pieces, inside, self.edges)


Pieced = Mapping[int, Pieces]  # the columns that are in pieces, by number


def cut(column: Column, cuts: Iterable[float] = ()) -> Pieces:
    """The column's own levels, cut at these places within its bounds; those of whole
    numbers and days are whole.
    """
    if not isinstance(column, Binned):
        return Pieces(
            column,
            np.arange(column.size, dtype=np.int32),
            np.ones(column.size),
        )
    column_edges = column.edges
    inner = np.array(
        [value for value in cuts if column_edges[0] < value < column_edges[-1]],
        dtype=column_edges.dtype,
    )
    edges = np.union1d(column_edges, inner)
    level = np.searchsorted(column_edges, edges[:-1], side="right") - 1
    share = _sizes(column, edges) / _sizes(column, column_edges)[level]
    if column.nullable:
        level = np.append(level, column.levels)
        share = np.append(share, 1.0)
    return Pieces(column, level.astype(np.int32), share, edges)


def _sizes(column: Binned, edges: NDArray[Any]) -> NDArray[Any]:
    """How much lies between two edges each: of numbers with so many decimals, how
    many.
    """
    if not isinstance(column, Real) or column.decimals is None:
        return np.diff(edges)
    first, last = column.steps(edges)
    return last - first + 1


def values_of(
    column: Column,
    codes: Numbers,
    inside: Floats,
    edges: NDArray[Any] | None = None,
) -> Cells:
    """The values of the levels, or of the pieces between `edges`; `inside` ∈ [0, 1)
    says where in one a value lies.
    """
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
        values = (
            np.minimum(first + np.floor(inside * (last - first + 1)), last)
            / 10.0**column.decimals
        )
    elif edges is not None:
        low = edges[levels]
        high = edges[levels + 1]
        values = low + inside * (high - low)
        if edges.dtype.kind == "i":
            values = np.minimum(np.floor(values).astype(np.int64), high - 1)
        else:
            # rounding must not leave the bin
            values = np.minimum(values, np.nextafter(high, low))
    return typed(column, values, missing)


def labels_of(column: Column) -> list[Any]:
    """What stands for each level in a table of answers: its declared value, its bin's
    label, None for missing.
    """
    if isinstance(column, Categorical):
        labels: list[Any] = list(column.categories)
    else:
        labels = (
            list(column.values) if isinstance(column, Boolean) else list(column.labels)
        )
    return [*labels, None] if column.nullable else labels


def typed(column: Column, values: NDArray[Any], missing: NDArray[np.bool_]) -> Cells:
    """Values in the column's own dtype: text as it is, booleans from 0 and 1, all else
    from numbers. Dates come from days since 1970, times from the column's steps since
    then.
    """
    gap: Any = None if values.dtype == object else 0
    values = np.where(missing, gap, values)
    if isinstance(column, Boolean):
        values = np.array(column.values, dtype=object)[(values == 1).astype(np.int64)]
    if isinstance(column, Date):
        values = (
            values.astype(np.int64).astype("datetime64[D]").astype("datetime64[ns]")
        )
    if isinstance(column, Datetime):
        values = (
            (values.astype(np.int64) * column.step)
            .astype("datetime64[s]")
            .astype("datetime64[ns]")
        )
    series = pd.Series(values, dtype=dtype(column))
    return series.mask(missing) if missing.any() else series


def dtype(column: Column) -> "str | pd.CategoricalDtype":
    """The dtype of a column in a table: the plain one, or pandas' nullable one where it
    must hold gaps.
    """
    if isinstance(column, Categorical | Boolean):
        first = (column.values if isinstance(column, Boolean) else column.categories)[0]
        if isinstance(column, Ordinal) and isinstance(first, str):
            return pd.CategoricalDtype(list(column.categories), ordered=True)
        plain = {bool: "bool", str: "object", float: "float64"}.get(
            type(first),
            "int64",
        )
    else:
        plain = {"integer": "int64", "real": "float64"}.get(
            column.kind,
            "datetime64[ns]",
        )
    return (
        {"bool": "boolean", "int64": "Int64"}.get(plain, plain)
        if column.nullable
        else plain
    )


def places_of(pieces: Pieces, values: Cells) -> NDArray[np.integer]:
    """The piece in which each value lies; the last of them for one that is missing,
    whether or not it may be.
    """
    column = pieces.column
    if pieces.edges is None:
        pieces_found = _levels(column, values)
    else:
        numbers = numbers_of(column, values)
        pieces_found = np.searchsorted(
            pieces.edges[1:-1],
            np.where(np.isnan(numbers), 0, numbers),
            side="right",
        )
    return np.where(pd.isna(values.array), len(pieces.level) - 1, pieces_found)


# Rows that stand person after person


def starts_of(numbers: NDArray[np.integer[Any]]) -> Places:
    """Where each person's rows begin, and where all end: (people + 1,)."""
    return np.concatenate([[0], np.cumsum(numbers)]).astype(np.int64)


def take_people(starts: Places, people: NDArray[Any]) -> tuple[Places, Places]:
    """Of these people alone, in this order: where the rows of each begin, and the
    places of all rows now.
    """
    numbers = np.diff(starts)[people]
    begin = starts_of(numbers)
    return begin, np.arange(begin[-1]) + np.repeat(starts[people] - begin[:-1], numbers)
