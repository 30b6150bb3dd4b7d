"""From a row to features and a class, by a public rule that no row has a say in.

    kind of column                  becomes
    categorical, ordinal, boolean   one-hot, a slot for each level, the missing one
                                    included
    integer, real, date             one number, (value − low) / (high − low) by the
                                    declared bounds
    … of these, a nullable one      a second number: 1 where the value is missing, and
                                    the first is then 0

Arrays (images, say) are taken as they are; unsigned numbers of 8 bits are divided by
255, their bound. Where a schema declares images or series, they are brought to [0, 1]
by its bounds.

Rows are kept compact, one number a cell, and become features when they are needed: the
one-hot vectors of a million people would not fit into memory.

Guarantee: the features of a row depend on that row and the public rule alone.
Edges: a value outside its declared domain, or not finite → SchemaError, and nothing is
read further.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from understudy.data.arrays import ArraySchema, ArrayTable, class_codes
from understudy.data.column import (
    Binned,
    Boolean,
    Categorical,
    Category,
    Column,
    Date,
    Datetime,
)
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.values import codes_of, numbers_of
from understudy.data.kinds import TABLE, AnySchema
from understudy.data.reading.files import Source
from understudy.data.schema import Schema
from understudy.data.table import Table, read_table
from understudy.ground.check import nearest, whole
from understudy.ground.errors import ConfigError, Effect, SchemaError

Label = Category | bool


class Features(Protocol):
    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row's features."""

    @property
    def labels(self) -> tuple[Label, ...]:
        """The classes, in the order in which they are numbered."""

    def rows(self, source: Any) -> Tensor:
        """Rows in their compact form, (rows, …), checked."""

    def codes(self, source: Any) -> Tensor:
        """The class of each row, as its place in `labels`: int64 (rows,)."""

    def expand(self, rows: Tensor) -> Tensor:
        """Compact rows as features: float32 (rows, *shape)."""

    def describe(self) -> dict[str, Any]:
        """Plain values that say the rule, beside the schema where there is one."""


@dataclass(frozen=True)
class TableFeatures:
    """Every column of the schema but the target is a feature; the target is the
    class.
    """

    schema: Schema
    target: str

    def __post_init__(self) -> None:
        if self.target not in self.schema.names:
            raise ConfigError(
                f"target must be a column of the schema, not {self.target!r}."
                f"{nearest(self.target, self.schema.names)}",
                effect=Effect.NOTHING_CHARGED,
            )
        column = self.schema.column(self.target)
        if not isinstance(column, Categorical | Boolean):
            raise ConfigError(
                f'target "{self.target}" is {column.kind}: a class is categorical, '
                "ordinal or boolean.",
                effect=Effect.NOTHING_CHARGED,
            )
        if column.nullable or column.levels < 2 or len(self.schema.columns) < 2:
            raise ConfigError(
                f'target "{self.target}" must have two levels or more, must not be '
                "nullable, and "
                "needs another column beside it.",
                effect=Effect.NOTHING_CHARGED,
            )

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        column = self.schema.column(self.target)
        if isinstance(column, Boolean):
            return column.values
        return column.categories if isinstance(column, Categorical) else ()

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._starts[-1],)

    def rows(self, source: Source | Table) -> Tensor:
        """Levels by their number, numbers scaled, NaN where a number is missing:
        float32 (rows, columns).
        """
        return torch.from_numpy(
            self._read(source, self._columns).encoded(self._numbers)
        )

    def _numbers(self, frame: Any) -> NDArray[np.float32]:
        out = np.empty((len(frame), len(self._columns)), dtype=np.float32)
        for index, column in enumerate(self._columns):
            cells = frame[column.name]
            out[:, index] = (
                _scaled(column, cells)
                if isinstance(column, Binned)
                else codes_of(column, cells)
            )
        return out

    def codes(self, source: Source | Table) -> Tensor:
        column = self.schema.column(self.target)
        codes = self._read(source, (column,)).encoded(
            lambda frame: codes_of(column, frame[column.name])
        )
        return torch.from_numpy(codes.astype(np.int64))

    def expand(self, rows: Tensor) -> Tensor:
        starts = torch.tensor(self._starts[:-1])
        number = torch.tensor([isinstance(column, Binned) for column in self._columns])
        gaps = number & torch.tensor([column.nullable for column in self._columns])
        out = rows.new_zeros(len(rows), *self.shape)
        out.scatter_(1, rows[:, ~number].long() + starts[~number], 1.0)
        out[:, starts[number]] = rows[:, number].nan_to_num()
        out[:, starts[gaps] + 1] = rows[:, gaps].isnan().to(rows.dtype)
        return out

    def describe(self) -> dict[str, Any]:
        return {"kind": "table", "target": self.target}

    @cached_property
    def _columns(self) -> tuple[Column, ...]:
        return self.schema.drop([self.target]).columns

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """Where each column's features begin, and the number of all."""
        slots = (
            1 + c.nullable if isinstance(c, Binned) else c.size for c in self._columns
        )
        return tuple(accumulate(slots, initial=0))

    def _read(self, source: Source | Table, columns: tuple[Column, ...]) -> Table:
        if not isinstance(source, Source):
            return source
        return read_table(source, replace(self.schema, columns=columns, person=None))


@dataclass(frozen=True)
class ArrayFeatures:
    """Rows on axis 0 of an array, and labels beside them in an array of their own."""

    shape: tuple[int, ...]
    labels: tuple[Label, ...]

    def __post_init__(self) -> None:
        whole(**{"each side of a row": min(self.shape, default=0)})
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise ConfigError(
                f"classes must be two labels or more that differ, not {self.labels!r}."
            )

    def rows(self, source: ArrayLike | Tensor) -> Tensor:
        rows = tensor(source)
        if rows.shape[1:] != self.shape:
            raise SchemaError(
                f"a row has the shape {self.shape}, not {tuple(rows.shape[1:])}.",
                effect=Effect.NOTHING_READ,
            )
        if rows.is_floating_point() and not bool(
            (finite := rows.to(torch.float32).isfinite()).all()
        ):
            row = int((~finite.flatten(1).all(1)).nonzero()[0])
            raise SchemaError(
                f"row {row + 1:,} holds a value that is not finite.",
                effect=Effect.NOTHING_READ_FURTHER,
            )
        return rows

    def codes(self, source: ArrayLike | Tensor) -> Tensor:
        values = (
            source.detach().cpu().numpy()
            if isinstance(source, Tensor)
            else np.asarray(source)
        )
        if values.ndim != 1:
            raise SchemaError(
                "there must be one label for each row, not labels of the shape "
                f"{values.shape}.",
                effect=Effect.NOTHING_READ,
            )
        return torch.from_numpy(class_codes(values, self.labels, "label "))

    def expand(self, rows: Tensor) -> Tensor:
        return (
            rows.to(torch.float32) / 255
            if rows.dtype == torch.uint8
            else rows.to(torch.float32)
        )

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "array",
            "shape": list(self.shape),
            "classes": list(self.labels),
        }


@dataclass(frozen=True)
class DeclaredFeatures:
    """Images or series with a class, brought to [0, 1] by the bounds that their schema
    declares. Rows are an array in declared units, or a file that the schema's holders
    could bring; classes stand in a file, or in an array of their own. `target`: which
    of several columns of classes; None: the first.
    """

    schema: ArraySchema
    target: str | None = None

    def __post_init__(self) -> None:
        if len(self.labels) < 2:
            raise ConfigError(
                "these images or series have no two classes: there is nothing to "
                "predict."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.schema.shape

    @property
    def labels(self) -> tuple[Label, ...]:
        target = self.target or self.schema.label
        categories = [
            column.categories for column in self.schema.targets if column.name == target
        ]
        return categories[0] if categories else ()

    def rows(self, source: Any) -> Tensor:
        if isinstance(source, np.ndarray | Tensor):
            return torch.from_numpy(
                self.schema.scaled(tensor(source).numpy(), "the array")
            )
        return torch.from_numpy(self.schema.read(source).values)

    def codes(self, source: Any) -> Tensor:
        if isinstance(source, np.ndarray | Tensor):
            return ArrayFeatures(self.shape, self.labels).codes(source)
        return torch.from_numpy(
            self.schema.read(source).codes(str(self.target or self.schema.label))
        )

    def expand(self, rows: Tensor) -> Tensor:
        return rows.to(torch.float32)

    def describe(self) -> dict[str, Any]:
        return {"kind": self.schema.kind} | (
            {} if self.target is None else {"target": self.target}
        )


def tensor(values: ArrayLike | Tensor) -> Tensor:
    """An array as a tensor on the host, in its own dtype."""
    return (
        values.detach().cpu()
        if isinstance(values, Tensor)
        else torch.as_tensor(np.asarray(values))
    )


def _scaled(column: Binned, cells: "pd.Series[Any]") -> NDArray[np.float64]:
    numbers = numbers_of(column, cells)
    low = column.low
    high = column.high
    if isinstance(column, Date | Datetime):
        low = column.edges[0]
        high = column.edges[-1] - 1
    return np.asarray((numbers - low) / (high - low))


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
    schema: Schema

    @cached_property
    def codec(self) -> Codec:
        return Codec(self.schema)

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(slot_counts(self.codec.sizes)),)

    def rows(self, source: Table) -> Tensor:
        """The level of every cell: int32 (rows, columns)."""
        return torch.from_numpy(source.encoded(self.codec.codes))

    def expand(self, rows: Tensor) -> Tensor:
        sizes = self.codec.sizes
        starts = torch.tensor([*accumulate(slot_counts(sizes), initial=0)][:-1])
        single = torch.tensor(sizes) <= 2
        out = torch.zeros(len(rows), *self.shape)
        out[:, starts[single]] = rows[:, single].to(out.dtype)
        return out.scatter_(1, rows[:, ~single] + starts[~single], 1.0)

    def describe(self) -> dict[str, Any]:
        return {"kind": "slots"}


@dataclass(frozen=True)
class Values(_Unlabelled):
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


def rule_of(schema: AnySchema) -> Slots | Values:
    """How an autoencoder reads such rows."""
    return Slots(schema) if TABLE.describes(schema) else Values(schema)


def features_of(
    schema: AnySchema,
    target: str | None,
) -> TableFeatures | DeclaredFeatures:
    """How a classifier of `target` reads such rows."""
    return (
        TableFeatures(schema, str(target))
        if TABLE.describes(schema)
        else DeclaredFeatures(schema, target)
    )
