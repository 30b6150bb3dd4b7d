"""Different values of a column are found in one pass where they are texts or numbers,
as they are one by one.
"""

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from understudy.data.column import Boolean
from understudy.data.reading import cells as reading
from understudy.data.reading.cells import distinct, read_cells, texts

WORDS = {"", "NA"}
ODD: list[list[Any]] = [
    ["a", "NA", None, "b", "a", np.nan, float("nan"), pd.NA, pd.NaT, "", "c"],
    ["a", "a\0b", "a\0c", "\0", "\ud800", "\ud801", "\ud800"],
    [None, np.nan],
    [],
]


@pytest.mark.parametrize("values", ODD)
def test_texts_are_told_apart_as_they_are_one_by_one(
    values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = pd.Series(values, dtype=object)
    expected = reading._one_by_one(cells, WORDS)
    monkeypatch.delattr(reading, "_one_by_one")
    where, seen = distinct(cells, WORDS)
    assert where.tolist() == expected[0].tolist()
    assert seen.tolist() == expected[1].tolist()


@pytest.mark.parametrize("other", [1, 1.5, True, b"a", Decimal("sNaN"), np.str_("a")])
def test_what_is_no_text_among_texts_is_looked_at_one_by_one(other: Any) -> None:
    cells = pd.Series(["a", other, None, "a", other], dtype=object)
    where, seen = distinct(cells, WORDS)
    expected = reading._one_by_one(cells, WORDS)
    assert where.tolist() == expected[0].tolist()
    assert seen.tolist()[0] == "a"
    assert len(seen) == len(expected[1])


@pytest.mark.parametrize(
    "dtype", ["int8", "uint16", "int64", "float32", "float64", "Int64"]
)
def test_numbers_of_a_boolean_are_read_as_their_texts_are_each_number_once(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = np.random.default_rng(0).integers(0, 2, 5_000)
    column = Boolean(name="ill")
    plain = pd.Series(numbers).astype(dtype)
    looked_at: list[int] = []
    texts = reading.texts
    monkeypatch.setattr(
        reading, "texts", lambda seen: looked_at.append(len(seen)) or texts(seen)
    )
    values, faults = read_cells(column, plain, np.arange(5_000))
    assert not faults
    assert values.astype(bool).tolist() == numbers.astype(bool).tolist()
    assert looked_at == [2]
    wrong = plain.copy()
    wrong[7] = 3
    _, faults = read_cells(column, wrong, np.arange(5_000))
    assert [fault.rows.tolist() for fault in faults if fault.rows is not None] == [[7]]


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint64", "float32", "float64"])
def test_numbers_of_an_array_are_written_as_each_is_alone(dtype: str) -> None:
    kind = np.dtype(dtype)
    limits = np.iinfo(kind) if kind.kind in "iu" else np.finfo(kind)
    numbers = [0.0, -0.0, 1.5, 100.0, 1e-7, 2.0**53, 2.0**53 - 1, math.nan, math.inf]
    if kind.kind in "iu":
        numbers = [0, 1, 100]
    values = np.array([*numbers, limits.min, limits.max], dtype=kind)
    together = texts(pd.Series(values))
    alone = texts(pd.Series([*values], dtype=object))
    assert together.tolist() == alone.tolist()
