"""Values come back as they came: decimals, labels, times, orders and gaps, in tables
and in files.
"""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from schema_strategies import Torch, tables

from understudy.data.encoding.codec import Codec
from understudy.data.encoding.features import TableFeatures
from understudy.data.infer import infer_schema
from understudy.data.reading.storage import storages_of, store
from understudy.data.reading.writing import csv_text, write_table
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
from understudy.ground.errors import SchemaError

SOURCE = """\
amount,paid,smoker,score,seen,visits
12.50,Yes,0,1.5,2024-03-01 08:15,3
0.05,No,1,,2024-03-01 23:00,
99.99,Yes,1,2.5,2024-12-31 00:00,12
7.00,No,0,3.0,2024-06-30 12:30,4
"""


def drawn(column: Column, rows: int = 2000) -> "pd.Series":
    schema = Schema(columns=(column,))
    codes = np.random.default_rng(0).integers(0, column.size, (rows, 1))
    return Codec(schema).decode(codes, Torch(1))[column.name]


def test_a_drafted_schema_gives_a_file_written_like_the_source(tmp_path: Path) -> None:
    (tmp_path / "source.csv").write_text(SOURCE)
    schema = infer_schema(tmp_path / "source.csv")
    table = read_table(tmp_path / "source.csv", schema)
    assert csv_text(table.frame, schema) == SOURCE
    codec = Codec(schema)
    made = codec.decode(np.repeat(codec.codes(table.frame), 50, axis=0), Torch())
    shapes = (
        r"\d+\.\d\d",
        "Yes|No",
        "0|1",
        r"|\d\.\d",
        r"2024-\d\d-\d\d \d\d:\d\d",
        r"|\d+",
    )
    lines = [line.split(",") for line in csv_text(made, schema).splitlines()[1:]]
    for cells, shape in zip(zip(*lines, strict=True), shapes, strict=True):
        assert pd.Series(cells).str.fullmatch(shape).all(), shape


@settings(max_examples=12)
@given(table=tables())
def test_a_table_written_and_read_again_is_the_same(
    table: tuple[Schema, np.ndarray, pd.DataFrame],
) -> None:
    schema, codes, frame = table
    written = io.StringIO(csv_text(frame, schema))
    text = pd.read_csv(
        written, dtype=str, keep_default_na=False, skip_blank_lines=False
    )
    text.columns = frame.columns
    for cells in (frame, text):
        assert (Codec(schema).codes(read_table(cells, schema).frame) == codes).all()


def test_numbers_have_the_declared_decimals_and_stay_in_their_bins() -> None:
    column = Real(
        name="x", low=-0.35, high=1.2, bins=(-0.35, 0.0, 0.07, 0.29, 1.2), decimals=2
    )
    values = drawn(column)
    assert set(values) <= {float(f"{k / 100:.2f}") for k in range(-35, 121)}
    assert {-0.35, 0.0, 0.06, 0.07, 0.28, 0.29, 1.2} <= set(values)
    codec = Codec(Schema(columns=(column,)))
    assert codec.codes(
        pd.DataFrame({"x": [-0.01, 0.0, 0.06, 0.07, 1.2]})
    ).ravel().tolist() == [0, 1, 1, 2, 3]


@pytest.mark.parametrize(
    ("column", "values", "dtype"),
    [
        (Boolean(name="x", labels=("No", "Yes")), {"No", "Yes"}, "object"),
        (Boolean(name="x", labels=(0, 1)), {0, 1}, "int64"),
        (Boolean(name="x", labels=(0, 1), nullable=True), {0, 1, pd.NA}, "Int64"),
        (Boolean(name="x", labels=("FALSE", "TRUE")), {False, True}, "bool"),
        (Boolean(name="x"), {False, True}, "bool"),
    ],
)
def test_booleans_come_back_by_their_labels(
    column: Boolean, values: set, dtype: str
) -> None:
    made = drawn(column)
    assert (set(made), made.dtype) == (values, dtype)
    schema = Schema(columns=(column,))
    again = read_table(csv_frame(made, schema), schema).frame["x"]
    assert again.equals(made)
    assert set(csv_text(made.dropna().to_frame(), schema).splitlines()[1:]) == set(
        column.labels
    )


def test_rows_take_the_types_that_they_came_in_whatever_a_column_is_called() -> None:
    schema = Schema(
        columns=(
            Integer(name="self", low=0, high=9),
            Boolean(name="index", labels=("N", "Y")),
        )
    )
    came = pd.DataFrame({"self": [1.0, 2.0], "index": ["N", "Y"]})
    drawn = pd.DataFrame({"self": [1, 2], "index": ["N", "Y"]})
    pd.testing.assert_frame_equal(store(drawn, schema, storages_of(came)), came)


def csv_frame(cells: "pd.Series", schema: Schema) -> pd.DataFrame:
    """The cells as text, as a CSV file has them."""
    lines = csv_text(cells.to_frame(), schema).splitlines()[1:]
    return pd.DataFrame({cells.name: [line.strip('"') for line in lines]})


def test_declared_labels_are_the_only_words_unless_they_are_common_ones() -> None:
    answers = Schema(columns=(Boolean(name="x", labels=("N", "Y")),))
    assert read_table(pd.DataFrame({"x": ["Y", " N"]}), answers).frame[
        "x"
    ].tolist() == ["Y", "N"]
    (wrong,) = check_table(pd.DataFrame({"x": ["yes"]}), answers)
    assert "is neither N nor Y" in str(wrong)
    common = Schema(columns=(Boolean(name="x", labels=("No", "Yes")),))
    assert read_table(pd.DataFrame({"x": ["yes", 0, True]}), common).frame[
        "x"
    ].tolist() == ["Yes", "No", "Yes"]


def test_the_classes_of_a_boolean_target_are_its_labels() -> None:
    schema = Schema(
        columns=(
            Boolean(name="x", labels=("No", "Yes")),
            Integer(name="y", low=0, high=3),
        )
    )
    features = TableFeatures(schema, "x")
    assert features.labels == ("No", "Yes")
    assert features.codes(pd.DataFrame({"x": ["Yes", "No"], "y": [0, 1]})).tolist() == [
        1,
        0,
    ]


@pytest.mark.parametrize("nullable", [False, True])
def test_text_of_an_ordinal_column_comes_back_as_an_ordered_categorical(
    nullable: bool, tmp_path: Path
) -> None:
    column = Ordinal(name="x", categories=("low", "middle", "high"), nullable=nullable)
    schema = Schema(columns=(column,))
    made = drawn(column)
    assert made.dtype == pd.CategoricalDtype(["low", "middle", "high"], ordered=True)
    assert (made.min(), made.max()) == ("low", "high")
    assert made.isna().any() == nullable
    for name in ("t.csv", "t.parquet"):
        write_table(made.to_frame(), tmp_path / name, schema)
        assert read_table(tmp_path / name, schema).frame["x"].equals(made)
    assert pd.read_parquet(tmp_path / "t.parquet")["x"].equals(made)
    assert drawn(Ordinal(name="x", categories=(1, 2, 3))).dtype == "int64"
    assert drawn(Categorical(name="x", categories=("b", "a"))).dtype == object


def test_times_are_whole_steps_within_their_bounds_and_finer_ones_are_dropped(
    tmp_path: Path,
) -> None:
    column = Datetime(
        name="x",
        low="2024-02-28 22:00",
        high="2024-03-01 01:00",
        resolution="hour",
        nullable=True,
    )
    schema = Schema(columns=(column,))
    made = drawn(column)
    assert column.levels == 28
    assert (made.min(), made.max()) == (
        pd.Timestamp(column.low),
        pd.Timestamp(column.high),
    )
    assert (made.dropna().dt.floor("h") == made.dropna()).all()
    for name in ("t.csv", "t.parquet"):
        write_table(made.to_frame(), tmp_path / name, schema)
        assert read_table(tmp_path / name, schema).frame["x"].equals(made)
    cells = pd.DataFrame(
        {
            "x": [
                "2024-02-29 23:59:59.999",
                "2024-02-29",
                "2024-02-29T05:30:00+05:00",
                "",
            ]
        }
    )
    read = [str(moment) for moment in read_table(cells, schema).frame["x"]]
    assert read == [
        "2024-02-29 23:00:00",
        "2024-02-29 00:00:00",
        "2024-02-29 05:00:00",
        "NaT",
    ]
    assert [
        str(found).partition("at row")[2]
        for found in check_table(pd.DataFrame({"x": ["noon", "2025-01-01"]}), schema)
    ] == [
        " 1 is not a time (YYYY-MM-DD HH:MM:SS).",
        " 2 is above the declared high 2024-03-01 01:00:00.",
    ]


def test_what_a_time_is_written_as_depends_on_no_other_row() -> None:
    schema = Schema(
        columns=(
            Datetime(name="x", low="2024-01-01 00:00", high="2024-12-31 23:59:59"),
        )
    )
    midnight, noon = (
        pd.DataFrame({"x": pd.to_datetime(cells)})
        for cells in (["2024-05-01"], ["2024-05-01 12:00"])
    )
    both = csv_text(pd.concat([midnight, noon]), schema).splitlines()
    assert both == ["x", "2024-05-01 00:00:00", "2024-05-01 12:00:00"]
    assert csv_text(midnight, schema).splitlines() == both[:2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Real(name="x", low=0, high=1, decimals=-1), "decimals must be"),
        (lambda: Real(name="x", low=0, high=1, decimals=True), "decimals must be"),
        (lambda: Real(name="x", low=0, high=1, decimals=0.5), "decimals must be"),
        (
            lambda: Real(name="x", low=0, high=1, bins=16, decimals=1),
            "hold no number of 1 decimals",
        ),
        (lambda: Real(name="x", low=0, high=1e9, decimals=9), "too many digits"),
        (lambda: Real(name="x", low=0, high=1, written="%"), "written must be one of"),
        (lambda: Boolean(name="x", labels="NY"), "labels must be two"),
        (lambda: Boolean(name="x", labels=("Yes",)), "labels must be two"),
        (lambda: Boolean(name="x", labels=("Yes", "No")), "false first"),
        (lambda: Boolean(name="x", labels=("a", "a")), "must differ"),
        (lambda: Boolean(name="x", labels=("", "a")), "blanks"),
        (lambda: Boolean(name="x", labels=(0.5, 1)), "text or whole numbers"),
        (
            lambda: Datetime(
                name="x",
                low="2024-01-01 00:00",
                high="2024-01-02 00:00",
                resolution="day",
            ),
            "resolution",
        ),
        (
            lambda: Date(
                name="x", low="2024-01-01", high="2024-12-31", written="DD.MM.YY"
            ),
            "written must order",
        ),
        (
            lambda: Date(
                name="x", low="2024-01-01", high="2024-12-31", written="DD.MM/YYYY"
            ),
            "written must order",
        ),
        (
            lambda: Date(name="x", low="2024-01-01", high="2024-12-31", written=None),
            "written must order",
        ),
        (
            lambda: Datetime(name="x", low="noon", high="2024-01-02 00:00"),
            "is not a time",
        ),
        (
            lambda: Datetime(
                name="x", low="2024-01-01 00:00+02:00", high="2024-01-02 00:00"
            ),
            "without a zone",
        ),
        (
            lambda: Datetime(
                name="x",
                low="2024-01-01 00:30",
                high="2024-01-02 00:00",
                resolution="hour",
            ),
            "whole hours",
        ),
        (
            lambda: Datetime(name="x", low="1600-01-01 00:00", high="2024-01-02 00:00"),
            "must lie between",
        ),
    ],
)
def test_formats_that_make_no_sense_are_refused(make: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        make()
