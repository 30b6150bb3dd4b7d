"""Bring a table into the domains of a public schema."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.cells import distinct, floats, missing_words, numbers_in, texts
from understudy.data.column import Binned
from understudy.data.files import PLAIN_NUMBERS, Source, as_they_came, open_source
from understudy.data.forms import ISO_DAY, write_day, write_number
from understudy.data.schema import Categorical, Column, Date, Integer, Ordinal, Real, Schema
from understudy.errors import SchemaError

OTHER = "(other)"  # the category of every text that is none of the others


def coarsen(source: Source, schema: Schema, name: str | None = None) -> pd.DataFrame:
    """The table with what lies outside a domain brought into it: numbers and days clipped to the bounds, the
    numbers of an ordinal to the nearest, texts to "(other)" where that is a category. The rest stays as it came.

    Guarantee: each row by itself and the public schema, so it costs no privacy.
    Edges: what is not of the column's kind stays, for `check_table` to name; a line of the file with too few or
    too many cells → SchemaError.
    """
    numbers = [column.name for column in schema.columns if column.kind in PLAIN_NUMBERS and not _form(column)]
    raw = open_source(source, as_they_came(source, schema.names, schema.person, numbers), name)
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
        least, most = (_as_written(column, bound) for bound in (column.low, column.high))
        return np.where(numbers < low, least, np.where(numbers > high, most, came))
    if isinstance(column, Categorical) and OTHER in column.categories:
        words = texts(seen)
        return np.where(pd.Series(words).isin(column.categories), words, OTHER)
    if isinstance(column, Ordinal) and not isinstance(column.categories[0], str):
        steps, numbers = np.sort(np.array(column.categories)), floats(seen)
        closest = steps[np.searchsorted((steps[1:] + steps[:-1]) / 2, numbers)]
        return np.where(np.isnan(numbers), came, closest)
    return came


def _form(column: Column) -> str | None:
    return column.written if isinstance(column, Integer | Real) else None


def _as_written(column: Binned, bound: Any) -> Any:
    """A bound as a cell of this column: text where the column has a form of its own."""
    if isinstance(column, Date) and column.written != ISO_DAY:
        return np.array(write_day(bound, column.written), dtype=object)
    if isinstance(column, Real) and column.written is not None:
        return np.array(write_number(bound, column.written, column.decimals), dtype=object)
    if isinstance(column, Integer) and column.written is not None:
        return np.array(column.said(bound), dtype=object)
    return bound
