"""The step in which a column is written: how many decimals numbers have, how fine times
are.

A step belongs to a column's kind and is taken without a price, so no single person may
decide it.

Guarantee: a step is that of at least 99 % of a column's values, and a column with fewer
than `MIN_VALUES` values has none. One person changes a step only where the share is 99
% to the person, or the number of values is `MIN_VALUES` to the person.
Edges: what is finer than the step is rounded, or dropped, when it is read.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.column import RESOLUTIONS, Column, Datetime, Real
from understudy.data.encoding.values import Cells
from understudy.data.infer import MANY_DECIMALS, PLAIN_TIMES
from understudy.data.reading.cells import distinct, missing_words, seconds, texts
from understudy.data.reading.forms import A_DAY, count_decimals, read_day

MIN_VALUES = 300  # three of them are 1 %: the step does not hang on one
_NEARLY_ALL = 0.99


def step_of_frame(kind: str, cells: Cells) -> str:
    """The kind of a DataFrame's column with its step: "real .1", "datetime minute",
    "date".
    """
    values = cells.dropna()
    if kind == "real":
        decimals = _decimals_of_numbers(values.to_numpy(dtype=float))
        return kind if decimals is None else f"{kind} .{decimals}"
    if kind != "datetime":
        return kind
    moments = (
        values.dt.tz_localize(None).astype("datetime64[s]").astype("int64").to_numpy()
    )
    if _nearly_all(moments % A_DAY == 0):
        return "date"
    resolution = _resolution(moments)
    return kind if resolution == "second" else f"{kind} {resolution}"


def with_step(column: Column, cells: Cells) -> Column:
    """A column that was drafted from these cells, without bounds and with the step of
    nearly all.
    """
    if isinstance(column, Real):
        return Real(
            name=column.name,
            nullable=column.nullable,
            written=column.written,
            decimals=_written_decimals(column, cells),
        )
    if isinstance(column, Datetime):
        return _with_resolution(column, cells)
    return column


def _with_resolution(column: Datetime, cells: Cells) -> Datetime:
    """By the step of nearly all, with the form of the texts where that is not the plain
    one of this step.
    """
    index, values = distinct(cells, missing_words(column))
    resolution = _resolution(seconds(values, column.form)[index[index >= 0]])
    form = column.written
    if form is None and resolution != column.resolution:
        drafted = PLAIN_TIMES[column.resolution]
        is_text = all(
            isinstance(text, str) and read_day(text, drafted) for text in values
        )
        form = drafted if is_text else None
    if form == PLAIN_TIMES[resolution]:
        form = None
    return Datetime(
        name=column.name,
        nullable=column.nullable,
        resolution=resolution,
        written=form,
    )


def drop_times(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The same frame with midnight in these columns; the frame itself where there are
    none.
    """
    days = {name: frame[name].dt.normalize() for name in columns}
    return frame.assign(**days) if days else frame


def _written_decimals(column: Real, cells: Cells) -> int | None:
    """Of numbers by their values, of texts by the digits that are written."""
    if cells.dtype.kind in "iuf":
        return _decimals_of_numbers(cells.dropna().to_numpy(dtype=float))
    index, values = distinct(cells, missing_words(column))
    counts = [count_decimals(str(text), column.written) for text in texts(values)]
    # NaN: in another form, as 1e-7
    digits = np.array(counts, dtype=float)[index[index >= 0]]
    fits = (d for d in range(MANY_DECIMALS + 1) if _nearly_all(digits <= d))
    return next(fits, None)


def _decimals_of_numbers(numbers: NDArray[Any]) -> int | None:
    for decimals in range(MANY_DECIMALS):
        if _nearly_all(
            np.isclose(numbers, np.round(numbers, decimals), rtol=1e-12, atol=0)
        ):
            return decimals
    return None


def _resolution(moments: NDArray[Any]) -> str:
    """The coarsest that nearly all of these seconds are whole steps of."""
    fits = [
        name for name, step in RESOLUTIONS.items() if _nearly_all(moments % step == 0)
    ]
    return fits[-1] if fits else "second"


def _nearly_all(fitting: NDArray[np.bool_]) -> bool:
    return len(fitting) >= MIN_VALUES and float(fitting.mean()) >= _NEARLY_ALL
