"""Bring a table into the domains of a public schema."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from understudy.data.column import Binned
from understudy.data.encoding.values import dtype
from understudy.data.reading.cells import distinct, floats, missing_words, numbers_in, texts
from understudy.data.reading.files import Raw, Source, as_they_came, batches_of, open_source
from understudy.data.schema import Categorical, Column, Integer, Ordinal, Real, Schema
from understudy.data.table import read_table
from understudy.ground.durable import own_file
from understudy.ground.errors import SchemaError

OTHER = "(other)"  # the category of every text that is none of the others


def coarsen(source: Source, schema: Schema, name: str | None = None) -> pd.DataFrame:
    """The table with what lies outside a domain brought into it: numbers and days clipped to the bounds, the
    numbers of an ordinal to the nearest, texts to "(other)" where that is a category. The rest stays as it came.

    Guarantee: each row by itself and the public schema, so it costs no privacy.
    Edges: what is not of the column's kind stays, for `check_table` to name; a line of the file with too few or
    too many cells → SchemaError.
    """
    return _coarse(open_source(source, _wanted(source, schema), name), schema)


def coarsen_long(source: Source, schema: Schema, path: Path) -> Path:
    """The same of a long table, a batch at a time, into a Parquet file that its owner alone can read.

    Edges: what is not of the column's kind → SchemaError; ids are written as text.
    """
    types = pa.schema([(name, _TYPES.get(kind, pa.string())) for name, kind in _dtypes(schema).items()])
    handle = own_file(path, os.O_WRONLY | os.O_TRUNC)
    with os.fdopen(handle, "wb") as file, pyarrow.parquet.ParquetWriter(file, types) as writer:
        for raw in batches_of(source, _wanted(source, schema), long=True):
            if raw.columns and len(raw.numbers):
                rows = read_table(_coarse(raw, schema), schema, raw.name, one_row_each=False).frame
                if schema.person is not None:
                    rows[schema.person] = rows[schema.person].astype(str)
                writer.write_table(pa.Table.from_pandas(rows, types, preserve_index=False))
    return path


def _wanted(source: Source, schema: Schema) -> dict[str, bool]:
    numbers = [
        column.name for column in schema.columns if isinstance(column, Integer | Real) and column.form is None
    ]
    return as_they_came(source, schema.names, schema.person, numbers)


def _dtypes(schema: Schema) -> dict[str, str]:
    person = {} if schema.person is None else {schema.person: "object"}
    return person | {column.name: str(dtype(column)) for column in schema.columns}


_TYPES = {
    "int64": pa.int64(), "Int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_(), "boolean": pa.bool_(),
    "datetime64[ns]": pa.timestamp("ns"),
}  # fmt: skip


def _coarse(raw: Raw, schema: Schema) -> pd.DataFrame:
    if broken := [fault for fault in raw.faults if fault.column is None]:
        raise SchemaError(f"{raw.name}: a row {broken[0].reason} Nothing was read further.")
    known = {column.name: column for column in schema.columns}
    return pd.DataFrame(
        {c: _fit(known[c], cells) if c in known else cells for c, cells in raw.columns.items()}
    )


def _fit(column: Column, cells: "pd.Series[Any]") -> "pd.Series[Any]":
    where, seen = distinct(cells, missing_words(column))
    return pd.Series(np.append(_fit_values(column, seen), np.nan)[where])


def _fit_values(column: Column, seen: "pd.Series[Any]") -> NDArray[Any]:
    came = seen.to_numpy(None if seen.dtype.kind in "iuf" else object)
    if isinstance(column, Binned):
        numbers = numbers_in(column, seen)
        low, high = column.edges[0], column.edges[-1] - (column.edges.dtype.kind == "i")
        least, most = column.low, column.high
        if column.form is not None:
            least, most = (np.array(column.said(bound), dtype=object) for bound in (least, most))
        return np.where(numbers < low, least, np.where(numbers > high, most, came))
    if isinstance(column, Categorical) and OTHER in column.categories:
        words = texts(seen)
        return np.where(pd.Series(words).isin(column.categories), words, OTHER)
    if isinstance(column, Ordinal) and not isinstance(column.categories[0], str):
        steps, numbers = np.sort(np.array(column.categories)), floats(seen)
        closest = steps[np.searchsorted((steps[1:] + steps[:-1]) / 2, numbers)]
        return np.where(np.isnan(numbers), came, closest)
    return came
