"""Whether the text of a file is of the encoding that it is read by, seen before
anything is made of it.

Guarantee: none. What is said follows from the rows, and is said to their holder alone.
Edges: a cell that is not UTF-8 → SchemaError, which names columns and no cell. A
DataFrame's texts are decoded already.
"""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from understudy.data.reading.files import Source, batches_of, is_long, open_source
from understudy.data.reading.written import Raw
from understudy.ground.errors import Effect, SchemaError


def require_decoded(source: Source) -> int:
    """The number of rows, or SchemaError."""
    if isinstance(source, pd.DataFrame):
        return len(source)
    header = open_source(source, {}).header
    rows = 0
    undecoded = set[str]()
    for raw in batches_of(
        source, dict.fromkeys(header, False), long=is_long(source, max(1, len(header)))
    ):
        rows += len(raw.numbers)
        undecoded |= undecoded_in(raw)
    refuse_undecoded(column for column in header if column in undecoded)
    return rows


def undecoded_in(raw: Raw) -> set[str]:
    """The columns with a cell that is not of the file's encoding."""
    return {column for column, cells in raw.columns.items() if _has_bytes(cells)}


def refuse_undecoded(columns: Iterable[str]) -> None:
    named = ", ".join(f'"{column}"' for column in columns)
    if named:
        raise SchemaError(
            f"cells of {named} are not UTF-8. Say the file's encoding: "
            'encoding="cp1252" (--encoding cp1252) is that '
            "of Windows. This follows from the rows: keep it to yourself.",
            effect=Effect.NOTHING_CHARGED,
        )


def _has_bytes(cells: "pd.Series[Any]") -> bool:
    values: Any = (
        cells.cat.categories if isinstance(cells.dtype, pd.CategoricalDtype) else cells
    )
    if (
        values.dtype != object
        or pd.api.types.infer_dtype(values, skipna=True) == "string"
    ):
        return False
    return any(isinstance(value, bytes) for value in values)
