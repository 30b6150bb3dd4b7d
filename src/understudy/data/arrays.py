"""Rows that are arrays, of series or of images, each with its person: what `Table` is
for tables, and `Schema` (docs/moments.md has the keys of a file).

Values lie in [0, 1] by the public bounds of the schema. Beside them there may be public
classes, in one column (`label` and `classes`) or in several (`labels`); of several, a
row's place is that among all combinations of classes, in which the last column's change
fastest.

Guarantee: the values of a row depend on that row and the schema alone, and every row is
somebody's.
Edges: a person may have no rows; a value outside the bounds or not finite, a class not
declared or missing → SchemaError that names the file and the row.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from understudy.data.column import Categorical, Category
from understudy.data.encoding.values import Places, starts_of, take_people
from understudy.data.schema import Document, require_one_unit
from understudy.ground.check import known_keys, repeated
from understudy.ground.errors import ConfigError, Effect, SchemaError

Values = NDArray[np.float32]
Codes = Places  # among classes
# several columns; kept in the second form
Declared = Mapping[str, Sequence[Category]] | tuple[Categorical, ...]
Ids = ArrayLike | None
# classes of rows; of several columns by name
Given = ArrayLike | Mapping[str, ArrayLike] | pd.DataFrame | None

MOST_COMBINATIONS = 1 << 10
NO_CLASS = (
    "has no class: fill it in, leave the row out, or declare a class for what is not "
    "known."
)
_AT_ONCE = 1 << 20  # values in double precision


@dataclass(frozen=True, kw_only=True)
class ArraySchema(Document):
    """What is public about images or series. `person` says whose each is,
    `rows_are_people` that each is another person's; without either a run protects each
    image or series by itself. Where there are several columns of classes, `label` and
    `classes` are the first one's. `norm`: a part of the largest Euclidean norm that a
    row can have about the middle of its bounds. Where a release has such a bound,
    longer rows are pulled in to it.
    """

    kind: ClassVar[str]
    array: ClassVar[str]  # what that of the rows is called in a file of several
    sides: ClassVar[int]  # along which values swing
    needs: ClassVar[tuple[str, ...]]  # keys of a file
    person: str | None = None
    rows_are_people: bool = False
    label: str | None = None
    classes: tuple[Category, ...] = ()
    labels: Declared = ()
    norm: float | None = None
    note: str = ""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The pixels, or the channels."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[Any, Any]:
        """The least and the largest value, for all of a row or along its last axis."""

    @abstractmethod
    def read(self, source: Any, name: str | None = None) -> "ArrayTable[Self]":
        """Rows from wherever they lie."""

    @abstractmethod
    def frame(
        self, values: NDArray[np.floating[Any]], classes: Codes | None = None
    ) -> pd.DataFrame:
        """Numbers in [0, 1] as a table; with classes where they are given, as places
        among all combinations.
        """

    @abstractmethod
    def where(self, position: tuple[int, ...], value: str) -> str:
        """A value that is no good, and its place (row, *place), in words."""

    @property
    def unit(self) -> str:
        """What a run over such rows protects: a person, or an image or a series."""
        return "person" if self.person or self.rows_are_people else self.kind

    @property
    def flat_names(self) -> list[str]:
        return list(self.names)

    def as_drawn(self) -> Self:
        """The schema of what a generator writes, where every row stands for itself."""
        return replace(self, person=None, rows_are_people=True)

    def require_public(self, which: str = "this schema") -> None:
        """Bounds of arrays are always declared: nothing drafts them from rows."""

    def require_unit(self, which: str = "this schema") -> None:
        """Pixels and channels are no ids."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        keys = {key: value for key, value in data.items() if key != "kind"}
        known_keys(
            keys,
            (field.name for field in fields(cls)),
            f"a schema of the kind {cls.kind}",
            raised=SchemaError,
        )
        lacking = [key for key in cls.needs if key not in keys]
        if lacking:
            raise SchemaError(
                f"a schema of the kind {cls.kind} needs {' and '.join(lacking)}."
            )
        return cls(**keys)

    def scaled(self, values: ArrayLike, source: str = "the array") -> Values:
        """Rows (rows, *shape) in declared units as numbers in [0, 1], never NaN,
        whatever type and bounds they have.
        """
        array, (low, high) = np.asarray(values), self.bounds
        if array.shape[1:] != self.shape:
            declared_shape, found_place = (
                " × ".join(map(str, size)) or "one value"
                for size in (self.shape, array.shape[1:])
            )
            raise SchemaError(
                f"{source}: rows are of the shape {declared_shape} by the schema, and "
                f"here {found_place}.",
                effect=Effect.NOTHING_READ,
            )
        if array.dtype.kind not in "biuf":
            described = {"U": "text", "O": "objects", "c": "complex"}.get(
                array.dtype.kind, str(array.dtype)
            )
            raise SchemaError(
                f"{source}: values are {described}, and not real numbers.",
                effect=Effect.NOTHING_READ,
            )
        out = np.empty(array.shape, dtype=np.float32)
        rows = max(1, _AT_ONCE // max(1, math.prod(self.shape)))
        for start in range(0, len(array), rows):
            with np.errstate(over="ignore"):  # of types beyond double precision
                part = array[start : start + rows].astype(np.float64)
            inside = (part >= low) & (part <= high)
            if not inside.all():
                row, *position = map(
                    int, np.unravel_index(int((~inside).argmax()), part.shape)
                )
                value = float(part[row, *position])
                lowest, highest = (
                    float(np.broadcast_to(bound, self.shape)[*position])
                    for bound in (low, high)
                )
                problem = f"is outside the declared {lowest:g} to {highest:g}"
                if math.isnan(value):
                    problem = "is not a number: fill gaps in, or leave the row out"
                found_place = self.where((start + row, *position), f"value {value:g}")
                raise SchemaError(
                    f"{source}, {found_place} {problem}.",
                    effect=Effect.NOTHING_READ_FURTHER,
                )
            out[start : start + rows] = np.clip((part - low) / (high - low), 0, 1)
        return out

    def unscaled(self, values: NDArray[np.floating[Any]]) -> NDArray[Any]:
        low, high = self.bounds
        return np.asarray(
            np.clip(low + values.astype(np.float64) * (high - low), low, high)
        )

    def settle(self) -> None:
        """Check the unit, the norm and the classes, and bring what is declared of these
        to one form.
        """
        require_one_unit(self.person, self.rows_are_people)
        if self.norm is not None and (
            type(self.norm) not in (int, float) or not 0 < self.norm <= 1
        ):
            raise SchemaError(
                "norm is a part of the largest norm possible, above 0 and up to 1, "
                f"not {self.norm!r}."
            )
        several = _columns(self.labels)
        target = _class_column(self.label, self.classes)
        if several and target not in (None, several[0]):
            raise SchemaError(
                "labels lists all columns of classes: say label and classes, or labels."
            )
        columns = several or (() if target is None else (target,))
        twice = repeated([column.name for column in columns])
        if twice:
            raise SchemaError(f'"{twice[0]}" has two meanings: every column has one.')
        count = math.prod(column.levels for column in columns)
        if count > MOST_COMBINATIONS and several:
            raise SchemaError(
                f"labels have at most {MOST_COMBINATIONS:,} combinations of classes, "
                f"not {count:,}: declare fewer of them, or wider classes."
            )
        first = (columns[0].name, columns[0].categories) if columns else (None, ())
        several = columns if len(columns) > 1 else ()
        for key, value in zip(
            ("label", "classes", "labels"), (*first, several), strict=True
        ):
            object.__setattr__(self, key, value)

    @property
    def targets(self) -> tuple[Categorical, ...]:
        target = _class_column(self.label, self.classes)
        return _columns(self.labels) or (() if target is None else (target,))

    def stated(self) -> dict[str, Any]:
        """All keys, those of every array last; classes in plain types, as they were
        declared: None or empty if not.
        """
        names = [field.name for field in fields(self)]
        common = len(fields(ArraySchema))
        labels: dict[str, Any] = {
            "label": self.label,
            "classes": list(self.classes),
            "labels": [],
        }
        if len(self.targets) > 1:
            several = {column.name: list(column.categories) for column in self.targets}
            labels = {"label": None, "classes": [], "labels": several}
        return {
            name: getattr(self, name) for name in names[common:] + names[:common]
        } | labels

    @property
    def label_sizes(self) -> tuple[int, ...]:
        return tuple(column.levels for column in self.targets)

    def codes_of(self, combinations: Codes, label: str) -> Codes:
        """The places among the classes of this column, of places among all
        combinations. SchemaError of no column.
        """
        names = [column.name for column in self.targets]
        if label not in names:
            column_names = " and ".join(names) or "no column"
            raise SchemaError(
                f'the classes are of {column_names}: there is no "{label}".'
            )
        return np.asarray(
            np.unravel_index(combinations, self.label_sizes)[names.index(label)],
            dtype=np.int64,
        )

    def combined(self, codes: Sequence[Codes]) -> Codes:
        """The places among all combinations, of those among the classes of each
        column.
        """
        return np.asarray(
            np.ravel_multi_index(tuple(codes), self.label_sizes), dtype=np.int64
        )

    def class_table(self, combinations: Codes) -> dict[str, NDArray[Any]]:
        """The classes themselves, by column, of places among all combinations."""
        classes = {}
        for column in self.targets:
            kind = object if isinstance(column.categories[0], str) else None
            classes[column.name] = np.asarray(column.categories, dtype=kind)[
                self.codes_of(combinations, column.name)
            ]
        return classes

    def class_places(self, values_given: Given, rows: int, source: str) -> Codes | None:
        """The places among all combinations of the classes of so many rows, (rows,);
        None where none are declared.
        """
        if not self.targets:
            return None
        by_name: Any = (
            values_given if isinstance(values_given, Mapping | pd.DataFrame) else None
        )
        if len(self.targets) > 1 and by_name is None:
            names = '", "'.join(column.name for column in self.targets)
            raise SchemaError(
                f'{source}: rows need classes by name, "{names}".',
                effect=Effect.NOTHING_READ,
            )
        codes = []
        for column in self.targets:
            column_values: Any = [] if values_given is None else values_given
            if by_name is not None:
                column_values = by_name.get(column.name, [])
            values: NDArray[Any] = np.asarray(column_values)
            if values.shape != (rows,):
                raise SchemaError(
                    f'{source}: {rows:,} rows need as many values of "{column.name}", '
                    f"not {values.shape}.",
                    effect=Effect.NOTHING_READ,
                )
            codes.append(
                class_codes(values, column.categories, f'{source}, "{column.name}": ')
            )
        return self.combined(codes)


def _class_column(label: object, classes: object) -> Categorical | None:
    if label is None and not classes:
        return None
    if (
        not isinstance(label, str)
        or not label
        or not classes
        or not isinstance(classes, tuple | list)
    ):
        raise SchemaError(
            "label names the column of classes, and classes lists them: say both, or "
            "neither."
        )
    return Categorical(name=label, categories=tuple(classes))


def _columns(labels: Declared) -> tuple[Categorical, ...]:
    """Columns as they are, or as names with a list of classes each."""
    if isinstance(labels, Mapping):
        class_columns = [
            _class_column(name, classes) for name, classes in labels.items()
        ]
        return tuple(column for column in class_columns if column is not None)
    if not isinstance(labels, tuple | list) or not all(
        isinstance(column, Categorical) for column in labels
    ):
        raise SchemaError(
            "labels are names of columns, each with a list of its classes, not "
            f"{labels!r}."
        )
    return tuple(labels)


def class_codes(values: NDArray[Any], classes: Sequence[Any], where: str = "") -> Codes:
    """The place of each value among the classes, (rows,)."""
    codes = pd.Index(classes).get_indexer(pd.Index(values))
    wrong = codes < 0
    if wrong.any():
        row = int(wrong.argmax())
        raise SchemaError(
            f"{where}{values[row]} at row {row + 1:,} is not one of the {len(classes)} "
            "declared classes.",
            effect=Effect.NOTHING_READ_FURTHER,
        )
    return np.asarray(codes, dtype=np.int64)


S = TypeVar("S", bound=ArraySchema)


@dataclass(frozen=True, eq=False)
class ArrayTable(Generic[S]):
    """People in the order in which they first come, and the rows of each. Its repr
    shows no rows.
    """

    values: Values = field(repr=False)  # (rows, *schema.shape), person after person
    ids: NDArray[Any] = field(repr=False)  # one for each person
    # (people + 1,): person i has the rows starts[i] … starts[i + 1]
    starts: Places = field(repr=False)
    schema: S = field(repr=False)
    source: str
    # (rows,), as places among the declared ones; of several columns among all
    # combinations
    classes: Codes | None = field(repr=False, default=None)
    # read part by part whenever rows are needed (`array_folder`)
    long: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not len(self.values):
            raise SchemaError(
                f"{self.source}: nobody has a row.", effect=Effect.NOTHING_CHARGED
            )
        if not (self.values.min() >= 0 and self.values.max() <= 1):
            raise SchemaError(
                f"{self.source}: rows have values outside [0, 1].",
                effect=Effect.NOTHING_CHARGED,
            )

    @property
    def rows(self) -> int:
        return len(self.values)

    @property
    def people(self) -> NDArray[Any]:
        return np.repeat(self.ids, np.diff(self.starts))

    def parts(self) -> Iterator["ArrayTable[S]"]:
        """All rows, in order, in parts of whole people, of which one is held at a time;
        here all at once.
        """
        yield self

    def codes(self, label: str) -> Codes:
        assert self.classes is not None, "the schema has classes"
        return self.schema.codes_of(self.classes, label)

    def take(self, people: ArrayLike) -> Self:
        indices = np.asarray(people)
        starts, row_indices = take_people(self.starts, indices)
        classes = None if self.classes is None else self.classes[row_indices]
        return replace(
            self,
            values=self.values[row_indices],
            ids=self.ids[indices],
            starts=starts,
            classes=classes,
        )

    @classmethod
    def grouped(
        cls,
        values: Values,
        owner: NDArray[Any],
        ids: NDArray[Any],
        schema: S,
        source: str,
        classes: Codes | None,
    ) -> Self:
        """Bring each person's rows together; `owner` says for each row whose it is, as
        a place in `ids`.
        """
        if (np.diff(owner) < 0).any():
            order = np.argsort(owner, kind="stable")
            values = values[order]
            classes = None if classes is None else classes[order]
        return cls(
            values,
            ids,
            starts_of(np.bincount(owner, minlength=len(ids))),
            schema,
            source,
            classes,
        )

    @classmethod
    def alone(cls, values: NDArray[Any], schema: S, source: str | None) -> Self:
        """A holder's array with nothing beside it. SchemaError where the schema names
        whose rows they are.
        """
        if schema.person is not None:
            raise SchemaError(
                f'the schema says that "{schema.person}" names whose each row is, and '
                "an array alone does not: bring "
                "it with `from_array(array, schema, people=ids)`.",
                effect=Effect.NOTHING_READ,
            )
        return cls.from_array(values, schema, source=source or "the array")

    @classmethod
    def from_array(
        cls,
        values: ArrayLike,
        schema: S,
        people: Ids = None,
        source: str = "the array",
        labels: Given = None,
    ) -> Self:
        """Rows (rows, *shape) in declared units; `people` names the person of each, or
        each is a person. `labels` are their classes, where the schema declares some; of
        several columns by their names.
        """
        scaled = schema.scaled(values, source)
        classes = schema.class_places(labels, len(scaled), source)
        if people is None:
            people = np.arange(len(scaled))
        if np.shape(people) != (len(scaled),):
            raise ConfigError(
                f"people must name the person of each of {len(scaled):,} rows, not of "
                f"{np.shape(people)}.",
                effect=Effect.NOTHING_READ,
            )
        owner, ids = pd.factorize(np.asarray(people))
        missing = owner < 0
        if missing.any():
            row = f"row {int(missing.argmax()) + 1:,}"
            raise SchemaError(
                f"{source}: {row} belongs to no person.",
                effect=Effect.NOTHING_READ_FURTHER,
            )
        return cls.grouped(scaled, owner, np.asarray(ids), schema, source, classes)
