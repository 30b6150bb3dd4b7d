"""Cells as a source says they are written: words that stand for no value, decimals after a comma.

Guarantee: what becomes of a cell depends on that cell and on what is declared.
"""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.reading.cells import MISSING_WORDS, Fault
from understudy.data.reading.sources import TableSource

# 1234,5 and 1.234,5: a point only where it parts thousands
_WITH_COMMA = re.compile(r"\s*([-+]?)(\d{1,3}(?:\.\d{3})+|\d*)(?:,(\d+))?\s*")


def as_declared(
    cells: "pd.Series[Any]",
    source: TableSource,
    numeric: bool | None,
    numbers: NDArray[np.int64],
    column: str,
) -> tuple["pd.Series[Any]", list[Fault]]:
    """The cells with no value where a declared word stands, and with points in numbers that have commas.

    `numeric` says whether the column holds numbers; None: not known, and then it does where every cell is one.
    """
    if source.missing:
        cells = _without(cells, source.missing)
    if source.decimal == "." or numeric is False or not isinstance(cells.dtype, pd.CategoricalDtype):
        return cells, []
    words = [str(word) for word in cells.cat.categories]
    read = [_pointed(word) for word in words]
    wrong = [word for word, number in zip(words, read, strict=True) if number is None]
    if wrong and numeric is None:
        return cells, []
    texts = pd.Index(words, dtype=object).where([number is None for number in read], pd.Index(read))
    codes = np.append(pd.factorize(texts)[0], -1)[cells.cat.codes.to_numpy()]
    pointed = pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(texts.unique(), dtype=object)))
    if not wrong:
        return pointed, []
    hit = cells.isin(wrong).to_numpy()
    reason = 'is no number with a decimal comma, as decimal = "," declares.'
    return pointed, [Fault(column=column, rows=numbers[hit], values=cells[hit].to_numpy(), reason=reason)]


def _pointed(word: str) -> str | None:
    """A number with a comma as one with a point; what is missing as it is; None for anything else."""
    if word in MISSING_WORDS:
        return word
    found = _WITH_COMMA.fullmatch(word)
    if found is None or not (found[2] or found[3]):
        return None
    return f"{found[1]}{found[2].replace('.', '')}" + (f".{found[3]}" if found[3] else "")


def _without(cells: "pd.Series[Any]", missing: Iterable[str | float]) -> "pd.Series[Any]":
    """No value where a cell is one of these words or numbers, written as a number or as text."""
    wanted = set(missing)
    numbers = {float(word) for word in wanted if not isinstance(word, str) or _is_number(word)}
    if isinstance(cells.dtype, pd.CategoricalDtype):
        gone = [value for value in cells.cat.categories if _is_one(value, wanted, numbers)]
        return cells.cat.remove_categories(gone)
    if cells.dtype == object:
        return cells.mask(cells.map(lambda value: _is_one(value, wanted, numbers)).astype(bool), None)
    return (
        cells.mask(cells.isin(numbers)) if numbers and pd.api.types.is_numeric_dtype(cells.dtype) else cells
    )


def _is_one(value: object, wanted: set[str | float], numbers: set[float]) -> bool:
    if isinstance(value, str):
        return value in wanted or (_is_number(value) and float(value) in numbers)
    return isinstance(value, int | float) and not isinstance(value, bool) and float(value) in numbers


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?\d+(\.\d*)?", text) is not None
