from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_strategies import tables

from understudy.data.infer import draft, infer_schema, write_draft
from understudy.data.samples import toy
from understudy.data.schema import (
    Boolean,
    Categorical,
    Column,
    Date,
    Datetime,
    Integer,
    Ordinal,
    Real,
    Schema,
)
from understudy.data.table import check_table, read_table
from understudy.ground.errors import ConfigError, DraftSchemaError, SchemaError


@settings(deadline=None, max_examples=15)
@given(table=tables())
def test_a_draft_accepts_the_rows_it_was_read_from(
    table: tuple[Schema, np.ndarray, pd.DataFrame],
) -> None:
    schema, _, frame = table
    if frame[list(schema.names)].isna().all().all():
        return
    draft = infer_schema(frame, person=schema.person, header=True)
    assert [v for v in check_table(frame, draft) if v.error] == []
    assert set(draft.names) | {schema.person} >= set(frame.columns[frame.notna().any()])


@settings(deadline=None)
@given(values=st.lists(st.floats(-1e290, 1e290), min_size=1, max_size=20))
def test_bounds_are_rounded_outwards(values: list[float]) -> None:
    frame = pd.DataFrame({"x": [*values, 0.5, 1e-300]})
    column = infer_schema(frame).column("x")
    assert isinstance(column, Real)
    assert column.low <= min(frame["x"])
    assert max(frame["x"]) <= column.high


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, False], Boolean(name="x")),
        ([0, 1, None], Boolean(name="x", nullable=True, labels=("0", "1"))),
        (["No", "Yes", "Yes"], Boolean(name="x", labels=("No", "Yes"))),
        (["true", "false"], Boolean(name="x", labels=("false", "true"))),
        (["Yes", "no"], Boolean(name="x", labels=("no", "Yes"))),
        (["Yes", "no", "No"], Boolean(name="x")),
        (["Yes", "Yes"], Boolean(name="x", labels=("No", "Yes"))),
        ([0, 0], Boolean(name="x", labels=("0", "1"))),
        (["Y", "N"], Boolean(name="x", labels=("N", "Y"))),
        (["Y", "Y"], Categorical(name="x", categories=("Y",))),
        ([3, 1, 2, 2], Ordinal(name="x", categories=(1, 2, 3))),
        (["3", "1"], Ordinal(name="x", categories=(1, 3))),
        ([7, 7], Ordinal(name="x", categories=(7,))),
        (list(range(3, 88)), Integer(name="x", low=0, high=90)),
        ([0.37, 87.2], Real(name="x", low=0, high=90, decimals=2)),
        ([0.1, 0.35], Real(name="x", low=0.1, high=0.4, bins=15, decimals=2)),
        ([3.5, 3.5], Real(name="x", low=3, high=4, bins=5, decimals=1)),
        ([0.1 + 0.2, 70.5], Real(name="x", low=0, high=80)),
        ([1.5e-7, 70.5], Real(name="x", low=0, high=80)),
        (
            ["2020-02-03", ""],
            Date(
                name="x", low=date(2020, 1, 1), high=date(2020, 12, 31), nullable=True
            ),
        ),
        (
            ["2020-02-03 12:30:00", "2021-01-01 00:00:00"],
            Datetime(
                name="x",
                low="2020-01-01 00:00",
                high="2021-12-31 23:59",
                resolution="minute",
                written="YYYY-MM-DD HH:MM:SS",
            ),
        ),
        (
            ["2020-02-03T12:30:09", "2020-02-03T12:00:00"],
            Datetime(
                name="x",
                low="2020-01-01 00:00",
                high="2020-12-31 23:59:59",
                written="YYYY-MM-DDTHH:MM:SS",
            ),
        ),
        (["007", "12"], Categorical(name="x", categories=("007", "12"))),
        (
            ["0001-01-01", "2020-01-01"],
            Categorical(name="x", categories=("0001-01-01", "2020-01-01")),
        ),
        (["b", "a", "b"], Categorical(name="x", categories=("a", "b"))),
    ],
)
def test_kinds_are_guessed(values: list, expected: Column, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": values, "id": range(len(values))})
    assert infer_schema(frame, person="id").columns == (expected,)
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert infer_schema(tmp_path / "t.csv", person="id").columns == (expected,)


def test_a_draft_is_marked_as_read_from_rows_and_refused() -> None:
    draft = infer_schema(toy()[0], person="id", name="toy")
    assert draft.origin == "rows"
    assert (
        "read from 200 rows of toy; private until marked public or bought" in draft.note
    )
    with pytest.raises(DraftSchemaError):
        draft.require_public()


def test_an_ordered_categorical_is_drafted_with_its_own_order() -> None:
    cells = pd.Categorical(
        ["low", "high"], categories=["low", "middle", "high"], ordered=True
    )
    (column,) = infer_schema(pd.DataFrame({"x": cells})).columns
    assert column == Ordinal(name="x", categories=("low", "middle", "high"))


def test_what_cannot_be_described_is_left_out_and_named() -> None:
    frame = pd.DataFrame(
        {
            "x": [1.5, 2.5, 3.5],
            "empty": [None] * 3,
            "names": ["a", "b", "c"],
            "mixed": [1, "a", 2.5],
            "lists": [[1], [2], [3]],
            "huge": [1e300, -1e300, 0.5],
            "": [1, 2, 3],  # as R writes the numbers of rows
        }
    )
    draft = infer_schema(frame, most_categories=2, header=True)
    assert draft.names == ("x",)
    for said in (
        "empty (it has no value)",
        "names (3 different",
        "mixed (",
        "lists (",
        "huge (",
        " (it has no name)",
    ):
        assert said in draft.note
    with pytest.raises(SchemaError, match="no column can be described"):
        infer_schema(frame[["empty"]])


def test_a_file_that_is_not_utf_8_is_drafted_but_for_the_columns_that_are_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.csv").write_bytes("town,x\nÅs,1.5\nOslo,2.5\n".encode("latin-1"))
    assert "town (its values are no UTF-8" in infer_schema(tmp_path / "t.csv").note


def test_a_column_that_differs_in_every_row_is_pointed_out() -> None:
    frame = pd.DataFrame({"zper": range(100, 150), "x": [True, False] * 25})
    assert "perhaps the person: zper." in infer_schema(frame).note
    assert "perhaps" not in infer_schema(frame, person="zper").note


def test_a_written_draft_warns_and_reads_back(tmp_path: Path) -> None:
    frame, _ = toy()
    draft = infer_schema(frame, person="id")
    write_draft(draft, tmp_path / "draft.toml")
    assert Schema.load(tmp_path / "draft.toml") == draft
    text = (tmp_path / "draft.toml").read_text()
    assert text.startswith("# A draft, read from rows.")
    assert 'set  origin = "public"' in text
    assert "with the ledger" in text
    # The way on that the header names.
    (tmp_path / "public.toml").write_text(
        text.replace('\norigin = "rows"', '\norigin = "public"')
    )
    public = Schema.load(tmp_path / "public.toml")
    public.require_public()
    assert read_table(frame, public).rows == 200


def test_wrong_drafts_are_refused(tmp_path: Path) -> None:
    frame, schema = toy()
    with pytest.raises(SchemaError, match="public and not a draft"):
        write_draft(schema, tmp_path / "s.toml")
    with pytest.raises(SchemaError, match=r"written as \.toml"):
        write_draft(infer_schema(frame), tmp_path / "s.json")
    with pytest.raises(SchemaError, match=r'no id column "idd"\. Did you mean "id"'):
        infer_schema(frame, person="idd")
    with pytest.raises(SchemaError, match="no rows"):
        infer_schema(frame[:0])
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(SchemaError, match=r"t\.csv: 1 rows do not have as many cells"):
        infer_schema(tmp_path / "t.csv")
    with pytest.raises(ConfigError, match="most_categories"):
        infer_schema(frame, most_categories=0)


def test_people_with_several_rows_are_told_before_anything_else_is_done(
    tmp_path: Path,
) -> None:
    pd.DataFrame({"id": [1, 2, 1, 1], "a": ["x", "y", "x", "y"]}).to_csv(
        tmp_path / "t.csv", index=False
    )
    found = draft(tmp_path / "t.csv", "id")
    assert found.remarks["id"].startswith("2 rows of people who have an earlier one")
    assert "earlier" not in found.schema.note  # which is written down
