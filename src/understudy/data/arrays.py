"""Rows that are arrays, of series or of images, each with its person: what `Table` is for tables.

Values lie in [0, 1] by the public bounds of the schema.

Guarantee: the values of a row depend on that row and the schema alone, and every row is somebody's.
Edges: a person may have no rows; a value outside the bounds, or not finite → SchemaError, nothing is read further.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from understudy.data.classes import Codes, Given
from understudy.ground.errors import ConfigError, SchemaError

Values = NDArray[np.float32]
_AT_ONCE = 1 << 20  # values in double precision


class Described(Protocol):
    """What is public about such rows."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""

    def class_places(self, given: Given, rows: int, source: str) -> Codes | None:
        """The places of classes among all combinations of declared ones; None where none are declared."""

    def codes_of(self, places: Codes, label: str) -> Codes:
        """The places among the classes of one column."""

    def scaled(self, values: ArrayLike, source: str) -> Values:
        """Values (rows, *shape) in declared units, checked, as numbers in [0, 1]."""


S = TypeVar("S", bound=Described)


@dataclass(frozen=True, eq=False)
class ArrayTable(Generic[S]):
    """People in the order in which they first come, and the rows of each. Its repr shows no rows."""

    values: Values = field(repr=False)  # (rows, *schema.shape), person after person
    ids: NDArray[Any] = field(repr=False)  # one for each person
    # (people + 1,): person i has the rows starts[i] … starts[i + 1]
    starts: NDArray[np.int64] = field(repr=False)
    schema: S = field(repr=False)
    source: str
    # (rows,), as places among the declared ones; of several columns among all combinations
    classes: Codes | None = field(repr=False, default=None)

    def __post_init__(self) -> None:
        if not len(self.values):
            raise SchemaError(f"{self.source}: nobody has a row. Nothing was charged.")
        if not (self.values.min() >= 0 and self.values.max() <= 1):
            raise SchemaError(f"{self.source}: rows have values outside [0, 1]. Nothing was charged.")

    @property
    def rows(self) -> int:
        return len(self.values)

    @property
    def people(self) -> NDArray[Any]:
        """Who each row is."""
        return np.repeat(self.ids, np.diff(self.starts))

    def codes(self, label: str) -> Codes:
        """The classes of the rows in one column, as places among those declared for it."""
        assert self.classes is not None, "the schema has classes"
        return self.schema.codes_of(self.classes, label)

    def take(self, people: ArrayLike) -> Self:
        """These people alone, with all their rows, in this order."""
        who = np.asarray(people)
        starts, at = taken(self.starts, who)
        classes = None if self.classes is None else self.classes[at]
        return replace(self, values=self.values[at], ids=self.ids[who], starts=starts, classes=classes)

    @classmethod
    def grouped(
        cls,
        values: Values,
        owner: NDArray[np.integer[Any]],
        ids: NDArray[Any],
        schema: S,
        source: str,
        classes: Codes | None = None,
    ) -> Self:
        """Bring each person's rows together; `owner` says for each row whose it is, as a place in `ids`."""
        if (np.diff(owner) < 0).any():
            order = np.argsort(owner, kind="stable")
            values, classes = values[order], None if classes is None else classes[order]
        starts = starts_of(np.bincount(owner, minlength=len(ids)))
        return cls(values, ids, starts, schema, source, classes)

    @classmethod
    def from_array(
        cls,
        values: ArrayLike,
        schema: S,
        people: ArrayLike | None = None,
        source: str = "the array",
        labels: Given = None,
    ) -> Self:
        """Rows (rows, *shape) in declared units; `people` names the person of each, or each is a person.

        `labels` are the classes of the rows, where the schema declares some; of several columns by their names.
        """
        scaled = schema.scaled(values, source)
        classes = schema.class_places(labels, len(scaled), source)
        if people is None:
            people = np.arange(len(scaled))
        if np.shape(people) != (len(scaled),):
            raise ConfigError(
                f"people must name the person of each of {len(scaled):,} rows, not of {np.shape(people)}. "
                "Nothing was read."
            )
        owner, ids = pd.factorize(np.asarray(people))
        if (missing := owner < 0).any():
            row = int(missing.argmax()) + 1
            raise SchemaError(f"{source}: row {row:,} belongs to no person. Nothing was read further.")
        return cls.grouped(scaled, owner, np.asarray(ids), schema, source, classes)


def check_norm(norm: Any) -> None:
    """SchemaError unless it is None, or a part of the largest norm that a row can have about the middle of its bounds.

    The Euclidean norm of all values together counts; where a release has such a bound, longer rows are pulled in to it.
    """
    if norm is not None and (type(norm) not in (int, float) or not 0 < norm <= 1):
        raise SchemaError(f"norm is a part of the largest norm possible, above 0 and up to 1, not {norm!r}.")


def checked(values: ArrayLike, shape: tuple[int, ...], source: str) -> NDArray[Any]:
    """The values as numbers of the shape (rows, *shape)."""
    array = np.asarray(values)
    if array.shape[1:] != shape:
        by, here = (" × ".join(map(str, size)) or "one value" for size in (shape, array.shape[1:]))
        raise SchemaError(
            f"{source}: rows are of the shape {by} by the schema, and here {here}. Nothing was read."
        )
    if array.dtype.kind not in "biuf":
        said = {"U": "text", "S": "text", "O": "objects", "c": "complex"}.get(
            array.dtype.kind, str(array.dtype)
        )
        raise SchemaError(f"{source}: values are {said}, and not real numbers. Nothing was read.")
    return array


def to_unit(
    values: NDArray[Any], low: Any, high: Any, refusal: Callable[[tuple[int, ...], float], SchemaError]
) -> Values:
    """Values between their bounds as numbers in [0, 1]; `refusal` words the first that is not, by place and value.

    Guarantee: whatever type and bounds they have, what comes out lies in [0, 1] and is never NaN.
    """
    out = np.empty(values.shape, dtype=np.float32)
    rows = max(1, _AT_ONCE // max(1, math.prod(values.shape[1:])))
    for start in range(0, len(values), rows):
        with np.errstate(over="ignore"):  # of types beyond double precision
            part = values[start : start + rows].astype(np.float64)
        if not (inside := (part >= low) & (part <= high)).all():
            place = tuple(map(int, np.unravel_index(int((~inside).argmax()), part.shape)))
            raise refusal((start + place[0], *place[1:]), float(part[place]))
        out[start : start + rows] = np.clip((part - low) / (high - low), 0, 1)
    return out


def fault(value: float, low: float, high: float) -> str:
    """What is wrong with a value that is not between its bounds."""
    if math.isnan(value):
        return "is not a number: fill gaps in, or leave the row out"
    return f"is outside the declared {low:g} to {high:g}"


Places = NDArray[np.int64]


def starts_of(numbers: NDArray[np.integer[Any]]) -> Places:
    """Where each person's rows begin, and where all end: (people + 1,)."""
    return np.concatenate([[0], np.cumsum(numbers)]).astype(np.int64)


def taken(starts: Places, people: NDArray[Any]) -> tuple[Places, Places]:
    """Of these people alone, in this order: where the rows of each begin, and the places of all rows now."""
    numbers = np.diff(starts)[people]
    begin = starts_of(numbers)
    return begin, np.arange(begin[-1]) + np.repeat(starts[people] - begin[:-1], numbers)
