"""The class of an image or a series: a column of categories beside them.

    label = "digit"             # the column, or the array of the file, that holds the class
    classes = [0, 1, 2]         # public

Guarantee: classes are declared; none is learned from rows.
Edges: a class that was not declared, or one that is missing → SchemaError that names the file and the row.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from understudy.data.column import Categorical, Category
from understudy.errors import SchemaError

Codes = NDArray[np.int64]


def class_column(label: object, classes: object) -> Categorical | None:
    """The declared column of classes, checked; None where there is none."""
    if label is None and not classes:
        return None
    if not isinstance(label, str) or not label or not classes or not isinstance(classes, tuple | list):
        raise SchemaError("label names the column of classes, and classes lists them: say both, or neither.")
    return Categorical(name=label, categories=tuple(classes))


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
