"""The classes of an image or a series: a column of categories beside them, or several.

    label = "digit"             # the column, or the array of the file, that holds the class
    classes = [0, 1, 2]         # public

    [labels]                    # or, in place of both, several columns and the classes of each
    digit = [0, 1, 2]
    hand = ["left", "right"]

Of several, a row's place is that among all combinations of classes, in which the last column's change fastest.

Guarantee: classes are declared; none is learned from rows.
Edges: a class that was not declared, or one that is missing → SchemaError that names the file and the row.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from understudy.data.column import Categorical, Category
from understudy.ground.check import repeated
from understudy.ground.errors import SchemaError

Codes = NDArray[np.int64]
# several columns; kept in the second form
Declared = Mapping[str, Sequence[Category]] | tuple[Categorical, ...]
# classes of rows; of several columns by name
Given = ArrayLike | Mapping[str, ArrayLike] | pd.DataFrame | None

MOST_COMBINATIONS = 1 << 10
NO_CLASS = "has no class: fill it in, leave the row out, or declare a class for what is not known."


class Labelled:
    """What is public about rows with classes: no column of them, one (`label`, `classes`) or several (`labels`).

    Where there are several, `label` and `classes` are the first one's.
    """

    label: str | None
    classes: tuple[Category, ...]
    labels: Declared

    def settle_labels(self) -> None:
        """Check what is declared, and bring it to one form."""
        several, target = _columns(self.labels), class_column(self.label, self.classes)
        if several and target not in (None, several[0]):
            raise SchemaError("labels lists all columns of classes: say label and classes, or labels.")
        columns = several or (() if target is None else (target,))
        if twice := repeated([column.name for column in columns]):
            raise SchemaError(f'"{twice[0]}" has two meanings: every column has one.')
        if (count := math.prod(column.levels for column in columns)) > MOST_COMBINATIONS and several:
            raise SchemaError(
                f"labels have at most {MOST_COMBINATIONS:,} combinations of classes, not {count:,}: declare fewer of "
                "them, or wider classes."
            )
        object.__setattr__(self, "label", columns[0].name if columns else None)
        object.__setattr__(self, "classes", columns[0].categories if columns else ())
        object.__setattr__(self, "labels", columns if len(columns) > 1 else ())

    @property
    def target(self) -> Categorical | None:
        """The column of classes, if there is one; of several the first."""
        return class_column(self.label, self.classes)

    @property
    def targets(self) -> tuple[Categorical, ...]:
        """All columns of classes."""
        return _columns(self.labels) or (() if self.target is None else (self.target,))

    def stated_labels(self) -> dict[str, Any]:
        """In plain types, as they were declared: what is None or empty was not."""
        if len(self.targets) > 1:
            several = {column.name: list(column.categories) for column in self.targets}
            return {"label": None, "classes": [], "labels": several}
        return {"label": self.label, "classes": list(self.classes), "labels": []}

    @property
    def label_sizes(self) -> tuple[int, ...]:
        """How many classes each column has."""
        return tuple(column.levels for column in self.targets)

    def codes_of(self, places: Codes, label: str) -> Codes:
        """The places among the classes of this column, of places among all combinations. SchemaError of no column."""
        names = [column.name for column in self.targets]
        if label not in names:
            raise SchemaError(
                f'the classes are of {" and ".join(names) or "no column"}: there is no "{label}".'
            )
        return np.asarray(np.unravel_index(places, self.label_sizes)[names.index(label)], dtype=np.int64)

    def combined(self, codes: Sequence[Codes]) -> Codes:
        """The places among all combinations, of those among the classes of each column."""
        return np.asarray(np.ravel_multi_index(tuple(codes), self.label_sizes), dtype=np.int64)

    def class_table(self, places: Codes) -> dict[str, NDArray[Any]]:
        """The classes themselves, by column, of places among all combinations."""
        return {
            column.name: class_values(self.codes_of(places, column.name), column.categories)
            for column in self.targets
        }

    def class_places(self, given: Given, rows: int, source: str) -> Codes | None:
        """The places among all combinations of the classes of so many rows, (rows,); None where none are declared."""
        if not self.targets:
            return None
        by_name = isinstance(given, Mapping | pd.DataFrame)
        if len(self.targets) > 1 and not by_name:
            names = '", "'.join(column.name for column in self.targets)
            raise SchemaError(f'{source}: rows need classes by name, "{names}". Nothing was read.')
        codes = []
        for column in self.targets:
            values = np.asarray(_listed(given, column.name) if by_name else [] if given is None else given)
            if values.shape != (rows,):
                raise SchemaError(
                    f'{source}: {rows:,} rows need as many values of "{column.name}", not {values.shape}. '
                    "Nothing was read."
                )
            codes.append(class_codes(values, column, source))
        return self.combined(codes)


def one_label(schema: Any, what: str) -> None:
    """SchemaError where rows have several columns of classes, and `what` learns one."""
    if len(names := [column.name for column in getattr(schema, "targets", ())]) > 1:
        raise SchemaError(
            f"{what} learns one column of classes, and the schema declares {' and '.join(names)}: leave one of them "
            "with label and classes, or use moments. Nothing was charged."
        )


def class_column(label: object, classes: object) -> Categorical | None:
    """The declared column of classes, checked; None where there is none."""
    if label is None and not classes:
        return None
    if not isinstance(label, str) or not label or not classes or not isinstance(classes, tuple | list):
        raise SchemaError("label names the column of classes, and classes lists them: say both, or neither.")
    return Categorical(name=label, categories=tuple(classes))


def _columns(labels: Declared) -> tuple[Categorical, ...]:
    """Columns as they are, or as names with a list of classes each."""
    if isinstance(labels, Mapping):
        found = [class_column(name, classes) for name, classes in labels.items()]
        return tuple(column for column in found if column is not None)
    if not isinstance(labels, tuple | list) or not all(isinstance(one, Categorical) for one in labels):
        raise SchemaError(f"labels are names of columns, each with a list of its classes, not {labels!r}.")
    return tuple(labels)


def _listed(given: Any, name: str) -> Any:
    return given.get(name, [])


def class_codes(values: ArrayLike, column: Categorical, source: str) -> Codes:
    """The place of each value among the classes, (rows,)."""
    found: NDArray[Any] = np.asarray(values)
    if found.ndim != 1:
        raise SchemaError(
            f'{source}: there is one "{column.name}" for each row, not an array of {found.shape}. Nothing was read.'
        )
    codes = pd.Index(column.categories).get_indexer(pd.Index(found))
    if (wrong := codes < 0).any():
        row = int(wrong.argmax())
        raise SchemaError(
            f'{source}, "{column.name}": {found[row]} at row {row + 1:,} is not one of the {column.levels} declared '
            "classes. Nothing was read further."
        )
    return np.asarray(codes, dtype=np.int64)


def class_values(codes: Codes, classes: tuple[Category, ...]) -> NDArray[Any]:
    """The classes with these places."""
    kind = object if isinstance(classes[0], str) else None
    return np.asarray(classes, dtype=kind)[codes]
