"""Levels of a long table without a value for each cell: those of the values, to the
last one, or a closer look.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from understudy.data.column import Binned, Column
from understudy.data.encoding.fine import fine_schema
from understudy.data.encoding.values import _Places, codes_of
from understudy.data.reading import written
from understudy.data.reading.cells import read_cells
from understudy.data.reading.judged import _codes, _fits
from understudy.data.reading.written import Marks
from understudy.data.schema import Boolean, Categorical, Date, Integer, Real, Schema

WORDS = [
    "",
    "NA",
    "a",
    "b",
    "7",
    "7.0",
    "07",
    "yes",
    "no",
    "2020-02-03",
    "1e3",
    "nan",
    "x",
]
COLUMNS: list[Column] = [
    Categorical(name="c", categories=("a", "b", "7")),
    Categorical(name="c", categories=("NA", "x"), nullable=True),
    Categorical(name="c", categories=(7, 8), nullable=True),
    Boolean(name="c", nullable=True),
    Date(name="c", low="2020-01-01", high="2021-01-01"),
    Integer(name="c", low=0, high=10, nullable=True),
    Integer(name="c", low=-5, high=10**9),
    Real(name="c", low=-1.0, high=1e3, nullable=True),
]


def text(*cells: str | None) -> "pd.Series[Any]":
    """As a Parquet file's words come, with one that no cell holds."""
    words = pd.Index(
        ["unheard of", *dict.fromkeys(cell for cell in cells if cell is not None)],
        dtype=object,
    )
    return pd.Series(pd.Categorical(cells, categories=words))


CELLS = [
    *(text(word) for word in WORDS),
    text("a", None, "b"),
    text("7", "07"),
    *(
        pd.Series([value, 7], dtype=kind)
        for value in (0, 7, 11, -6)
        for kind in ("int64", "float64", "Int64", "int8")
    ),
    *(
        pd.Series([value, 7.0])
        for value in (np.nan, np.inf, 0.5, -0.0, 1e3, 1000.5, -1.0)
    ),
    pd.Series([pd.NA, 7], dtype="Int64"),
    pd.Series([True, False]),
    pd.Series([b"\xff", 7], dtype=object),
]


@pytest.mark.long
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.kind)
@pytest.mark.parametrize("cells", CELLS)
def test_levels_are_those_of_the_values_and_what_is_refused_is_never_coded(
    column: Column, cells: "pd.Series[Any]"
) -> None:
    values, faults = read_cells(column, cells, np.arange(1, len(cells) + 1))
    quick = _codes(column, cells)
    if faults:
        assert quick is None
        assert not _fits(column, cells)
    elif quick is not None:
        assert np.array_equal(quick, codes_of(column, values))
        assert _fits(column, cells)


@pytest.mark.parametrize(
    "column",
    [
        Real(name="c", low=-100.0, high=100.0),
        Real(name="c", low=0.0, high=1e-300),
        Real(name="c", low=-1e300, high=1e300),
        Real(name="c", low=-3.0, high=100.0, decimals=2),
        Integer(name="c", low=-(10**6), high=10**9),
        Integer(name="c", low=-5, high=10_000),
    ],
)
def test_a_table_of_places_says_what_a_search_says_at_every_edge_and_beside_it(
    column: Binned,
) -> None:
    (fine,) = fine_schema(Schema(person=None, columns=(column,))).columns
    assert isinstance(fine, Binned)
    edges = fine.edges.astype(np.float64)
    evenly = np.random.default_rng(0).uniform(edges[0] / 2, edges[-1] / 2, 50_000) * 2
    numbers = np.concatenate(
        [
            edges,
            -edges,
            np.nextafter(edges, -np.inf),
            np.nextafter(edges, np.inf),
            [0.0, -0.0],
            evenly,
        ]
    )
    whole = fine.edges.dtype.kind == "i"
    numbers = np.floor(numbers) if whole else numbers
    numbers = numbers[(numbers >= edges[0]) & (numbers <= edges[-1] - whole)]
    assert np.array_equal(
        _Places(fine.edges)(numbers),
        np.searchsorted(fine.edges[1:-1], numbers, side="right"),
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([7, 8], ["x", "7"], 1),
        (["7", "07"], ["7"], 1),
        ([10**18], ["1000000000000000000", "a"], 1),
        (["é"], ["e\u0301"], 1),  # in two forms
        ([7], ["07", "7.0", " 7"], 0),
        ([-1], ["18446744073709551615"], 0),
    ],
)
def test_ids_have_one_mark_where_they_are_equal_as_text(
    one: list[Any], other: list[Any], same: int
) -> None:
    marks = Marks()
    for ids in (one, other):
        marks.note(
            pd.Series(ids, dtype=np.int64 if isinstance(ids[0], int) else object),
            len(ids),
        )
    assert marks.repeated == same


@pytest.mark.parametrize("held", [1, 7, 1 << 22])
def test_marks_that_a_file_keeps_are_those_that_memory_keeps(
    held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written, "_HELD", held)
    ids = np.random.default_rng(0).integers(0, 60, 100)
    marks = Marks()
    for start in range(0, 100, 9):
        marks.note(pd.Series(ids[start : start + 9]), len(ids[start : start + 9]))
        assert marks.repeated == start + len(ids[start : start + 9]) - len(
            set(ids[: start + 9])
        )
    whole = Marks()
    whole.note(pd.Series(ids), 100)
    assert sorted(marks.in_order.tolist()) == sorted(whole.in_order.tolist())
    assert marks.rows == 100
