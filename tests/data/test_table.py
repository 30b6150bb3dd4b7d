import gzip
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from schema_strategies import tables

from refusals import raises
from understudy.data.reading.writing import write_table
from understudy.data.schema import (
    Boolean,
    Categorical,
    Date,
    Integer,
    Ordinal,
    Real,
    Schema,
)
from understudy.data.table import Table, check_table, read_table
from understudy.ground.errors import Effect, SchemaError

SCHEMA = Schema(
    person="id",
    columns=(
        Categorical(name="code", categories=("007", "b", "NA"), nullable=True),
        Ordinal(name="grade", categories=(1, 2, 3)),
        Boolean(name="smoker"),
        Integer(name="coins", low=0, high=100, nullable=True),
        Real(name="rate", low=0, high=1),
        Date(name="day", low=date(2020, 1, 1), high=date(2020, 12, 31), nullable=True),
    ),
)
GOOD = """\
id,code,grade,smoker,coins,rate,day
1,007,1,yes,5,0.5,2020-01-01
2,NA,2,False,,1,
3,,3,0,100,0,2020-12-31
"""


def written(tmp_path: Path, text: str, name: str = "insurer.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def one(tmp_path: Path, **cells: str) -> list[str]:
    """What is said about a table of one good row in which these cells are changed."""
    row = {
        "id": "1",
        "code": "b",
        "grade": "1",
        "smoker": "1",
        "coins": "5",
        "rate": "0.5",
        "day": "2020-01-01",
    }
    row |= cells
    path = written(tmp_path, f"{','.join(row)}\n{','.join(row.values())}\n")
    return [str(violation) for violation in check_table(path, SCHEMA)]


def test_cells_are_read_by_their_declared_kind(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, GOOD), SCHEMA)
    assert table.source == "insurer.csv"
    assert table.rows == 3
    expected = pd.DataFrame(
        {
            "id": [1, 2, 3],
            # NA is a declared category here, so it is not a gap
            "code": pd.Series(["007", "NA", np.nan], dtype=object),
            "grade": [1, 2, 3],
            "smoker": [True, False, False],
            "coins": pd.array([5, None, 100], dtype="Int64"),
            "rate": [0.5, 1.0, 0.0],
            "day": pd.to_datetime(["2020-01-01", None, "2020-12-31"]).as_unit("ns"),
        }
    )
    pd.testing.assert_frame_equal(table.frame, expected)
    assert check_table(tmp_path / "insurer.csv", SCHEMA) == []


@settings(deadline=None, max_examples=12)
@given(table=tables())
def test_csv_parquet_and_frame_read_the_same(
    table: tuple[Schema, np.ndarray, pd.DataFrame],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    schema, _, frame = table
    folder = tmp_path_factory.mktemp("table")
    write_table(frame, folder / "t.csv", schema)
    (folder / "t.csv.gz").write_bytes(gzip.compress((folder / "t.csv").read_bytes()))
    frame.to_parquet(folder / "t.parquet", index=False)
    for source in (
        frame,
        folder / "t.csv",
        folder / "t.csv.gz",
        str(folder / "t.parquet"),
    ):
        pd.testing.assert_frame_equal(read_table(source, schema).frame, frame)


def test_only_declared_columns_are_read_and_others_are_noticed(tmp_path: Path) -> None:
    text = "secret,rate,rate2\nx,0.5,1\ny,1,1\n"
    schema = Schema(columns=(SCHEMA.column("rate"),))
    table = read_table(written(tmp_path, text), schema)
    assert list(table.frame) == ["rate"]
    notices = check_table(tmp_path / "insurer.csv", schema)
    assert [(v.column, v.error) for v in notices] == [
        ("secret", False),
        ("rate2", False),
    ]
    assert (
        str(notices[0])
        == 'insurer.csv, column "secret": is not in the schema, and is not read.'
    )


def test_people_are_whole_numbers_or_text(tmp_path: Path) -> None:
    schema = Schema(columns=(Boolean(name="x"),), person="id")
    for ids, expected in (
        (["12", "7"], [12, 7]),
        (["007", "12"], ["007", "12"]),
        (["a", "b"], ["a", "b"]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
    ):
        path = written(tmp_path, "id,x\n" + "".join(f"{i},1\n" for i in ids))
        assert read_table(path, schema).people.tolist() == expected
    frame = pd.DataFrame({"id": [2.0, 1.0], "x": [0, 1]})
    assert read_table(frame, schema).people.tolist() == [2, 1]
    assert read_table(frame, Schema(columns=schema.columns)).people.tolist() == [0, 1]


def test_rows_are_taken_in_the_given_order_and_never_printed() -> None:
    frame = pd.DataFrame({"id": [5, 6, 7], "x": [True, False, True]})
    table = read_table(
        frame, Schema(columns=(Boolean(name="x"),), person="id"), name="clinic"
    )
    assert isinstance(table, Table)
    assert table.take([2, 0]).people.tolist() == [7, 5]
    assert table.take([2, 0]).frame.index.tolist() == [0, 1]
    assert repr(table) == "Table(source='clinic')"


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            {"code": "x"},
            'column "code": value "x" at row 1 is not one of the declared 007, b, NA.',
        ),
        (
            {"code": "7"},
            'column "code": value 7 at row 1 is not one of the declared 007, b, NA.',
        ),
        (
            {"grade": "4"},
            'column "grade": value 4 at row 1 is not one of the declared 1, 2, 3.',
        ),
        (
            {"grade": "one"},
            'column "grade": value "one" at row 1 is not one of the declared 1, 2, 3.',
        ),
        (
            {"grade": ""},
            'column "grade": row 1 has no value, and the column is not nullable.',
        ),
        (
            {"smoker": "maybe"},
            'column "smoker": value "maybe" at row 1 is neither true nor false.',
        ),
        (
            {"smoker": "NA"},
            'column "smoker": row 1 has no value, and the column is not nullable.',
        ),
        (
            {"coins": "120"},
            'column "coins": value 120 at row 1 is above the declared high 100.',
        ),
        (
            {"coins": "-1"},
            'column "coins": value -1 at row 1 is below the declared low 0.',
        ),
        ({"coins": "1.5"}, 'column "coins": value 1.5 at row 1 is not a whole number.'),
        ({"coins": "1_0"}, 'column "coins": value "1_0" at row 1 is not a number.'),
        ({"coins": "many"}, 'column "coins": value "many" at row 1 is not a number.'),
        ({"coins": "inf"}, 'column "coins": value inf at row 1 is not finite.'),
        (
            {"rate": "1.0001"},
            'column "rate": value 1.0001 at row 1 is above the declared high 1.',
        ),
        ({"rate": "-inf"}, 'column "rate": value -inf at row 1 is not finite.'),
        (
            {"rate": "nan"},
            'column "rate": row 1 has no value, and the column is not nullable.',
        ),
        (
            {"day": "2020-02-30"},
            'column "day": value 2020-02-30 at row 1 is not a date (YYYY-MM-DD).',
        ),
        (
            {"day": "01/02/2020"},
            'column "day": value "01/02/2020" at row 1 is not a date (YYYY-MM-DD).',
        ),
        (
            {"day": "2020-01-01T12:00"},
            'column "day": value "2020-01-01T12:00" at row 1 has a time of day.',
        ),
        (
            {"day": "2019-12-31"},
            'column "day": value 2019-12-31 at row 1 is below the declared low '
            "2020-01-01.",
        ),
        (
            {"day": "0001-01-01"},
            'column "day": value 0001-01-01 at row 1 is below the declared low '
            "2020-01-01.",
        ),
        (
            {"day": "2021-01-01"},
            'column "day": value 2021-01-01 at row 1 is above the declared high '
            "2020-12-31.",
        ),
        ({"id": ""}, 'column "id": row 1 has no id.'),
    ],
)
def test_every_kind_of_wrong_cell_is_named(
    cells: dict[str, str], message: str, tmp_path: Path
) -> None:
    assert one(tmp_path, **cells) == [f"insurer.csv, {message}"]
    assert one(tmp_path) == []


def test_every_violation_is_reported_with_its_row(tmp_path: Path) -> None:
    text = GOOD + "3,b,9,1,120,0.5,\n4,b,1\n,b,9,1,120,0.5,\n"
    found = check_table(written(tmp_path, text), SCHEMA)
    assert [(v.column, v.row, v.value) for v in found] == [
        (None, 5, None),
        ("id", 6, None),
        ("id", 4, "3"),
        ("grade", 4, "9"),
        ("grade", 6, "9"),
        ("coins", 4, 120.0),
        ("coins", 6, 120.0),
    ]
    assert str(found[0]) == "insurer.csv: row 5 has 3 cells, where the header has 7."


def test_reading_stops_with_the_first_violation_and_the_number_of_others(
    tmp_path: Path,
) -> None:
    rows = [f"{i},b,1,1,{120 if i in (8311, 8400) else 5},0.5," for i in range(1, 8501)]
    path = written(tmp_path, "\n".join(["id,code,grade,smoker,coins,rate,day", *rows]))
    with pytest.raises(SchemaError) as caught:
        read_table(path, SCHEMA)
    assert str(caught.value) == (
        'insurer.csv, column "coins": value 120 at row 8,311 is above the declared '
        "high 100 "
        '(and 1 more; "understudy schema check" lists all). Nothing was read further.'
    )


def test_a_wrong_header_is_named_with_the_nearest(tmp_path: Path) -> None:
    schema = Schema(
        columns=(SCHEMA.column("coins"), SCHEMA.column("rate")), person="id"
    )
    path = written(tmp_path, "id,coin,rate,rate\n1,5,1,1\n")
    assert [str(v) for v in check_table(path, schema)] == [
        'insurer.csv, column "coins": the header has no such column. Did you mean '
        '"coin"?',
        'insurer.csv, column "rate": appears 2 times in the header.',
        'insurer.csv, column "coin": is not in the schema, and is not read.',
    ]
    with pytest.raises(SchemaError, match=r'Did you mean "coin"\? \(and 1 more'):
        read_table(path, schema)
    assert (
        len(
            check_table(
                pd.DataFrame([[1, 5, 1, 1]], columns=["id", "coin", "rate", "rate"]),
                schema,
            )
        )
        == 3
    )


def test_ids_that_repeat_or_mix_types_are_named() -> None:
    schema = Schema(columns=(Boolean(name="x"),), person="id")

    def said(ids: list[object]) -> list[str]:
        frame = pd.DataFrame({"id": pd.Series(ids, dtype=object), "x": True})
        return [
            str(v).removeprefix('the table, column "id": ')
            for v in check_table(frame, schema)
        ]

    assert said([1, 2, 1]) == [
        "value 1 at row 3 is the id of an earlier row: a person has one row, and many "
        "rows each are for `visits`."
    ]
    assert said([1, "a", 2]) == [
        'value "a" at row 2 is text, where most ids are whole numbers.'
    ]
    assert said(["a", "b", 2]) == ["value 2 at row 3 is a number, where most are text."]
    assert said([1, "", "NA", None]) == [f"row {row} has no id." for row in (2, 3, 4)]
    assert said([1, 2.5, None]) == [
        "row 3 has no id.",
        "value 2.5 at row 2 is neither a whole number of 64 bits nor text.",
    ]
    assert said([1, 2**63]) == [
        f"value {2**63} at row 2 is neither a whole number of 64 bits nor text."
    ]
    assert said([True, 5])[0].startswith("value True at row 1 is neither")
    assert said([[1], 2]) == [
        "value [1] at row 1 is neither a whole number of 64 bits nor text."
    ]


def test_a_frame_may_hold_other_types_than_its_own() -> None:
    frame = pd.DataFrame(
        {
            "id": ["a", "b"],
            "code": pd.Categorical(["b", None]),
            "grade": np.array([1.0, 3.0], dtype=np.float32),
            "smoker": ["Yes", False],
            "coins": pd.array([True, None], dtype="boolean"),
            "rate": ["0.5", 1],
            "day": [date(2020, 1, 1), pd.Timestamp("2020-02-01", tz="Europe/Berlin")],
        },
        index=[7, 7],
    )
    table = read_table(frame, SCHEMA).frame
    assert table["grade"].tolist() == [1, 3]
    assert table["smoker"].tolist() == [True, False]
    assert table["rate"].tolist() == [0.5, 1.0]
    assert table["day"].tolist() == [
        pd.Timestamp("2020-01-01"),
        pd.Timestamp("2020-02-01"),
    ]
    numbers = frame.assign(code=[1, 2], day=[20200101, 20200102], coins=[[1], [2]])
    assert [v.column for v in check_table(numbers, SCHEMA)] == [
        "code",
        "code",
        "coins",
        "coins",
        "day",
        "day",
    ]


def test_an_id_saved_as_the_index_of_a_parquet_file_is_found(tmp_path: Path) -> None:
    frame = read_table(written(tmp_path, GOOD), SCHEMA).frame
    # consecutive ids are a range, which pandas 3 writes when told to
    frame.set_index("id").to_parquet(tmp_path / "t.parquet", index=True)
    pd.testing.assert_frame_equal(
        read_table(tmp_path / "t.parquet", SCHEMA).frame, frame
    )


def test_quotes_line_breaks_and_a_byte_order_mark_are_understood(
    tmp_path: Path,
) -> None:
    schema = Schema(
        columns=(Categorical(name="a,b", categories=("x\ny", 'say "z"')),), person="id"
    )
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbfid,"a,b"\r\n1,"x\ny"\r\n\r\n2,"say ""z"""\r\n')
    assert read_table(path, schema).frame["a,b"].tolist() == ["x\ny", 'say "z"']


def test_an_empty_line_is_a_gap_where_there_is_one_column(tmp_path: Path) -> None:
    schema = Schema(columns=(Integer(name="x", low=0, high=9, nullable=True),))
    assert read_table(written(tmp_path, "x\n1\n\n3\n"), schema).frame[
        "x"
    ].isna().tolist() == [False, True, False]


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    header = GOOD.split("\n")[0]
    for source in (
        written(tmp_path, header + "\n"),
        pd.DataFrame(columns=header.split(",")),
    ):
        with pytest.raises(SchemaError, match="the table has no rows"):
            read_table(source, SCHEMA)
    with pytest.raises(SchemaError, match="the header has no such column"):
        read_table(written(tmp_path, ""), SCHEMA)


def test_a_single_row_is_read(tmp_path: Path) -> None:
    assert (
        read_table(written(tmp_path, "\n".join(GOOD.split("\n")[:2])), SCHEMA).rows == 1
    )


def test_a_file_that_cannot_be_read_is_said_without_quoting_it(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="No such file"):
        read_table(tmp_path / "no.csv", SCHEMA)
    with pytest.raises(SchemaError, match=r"\.csv, \.tsv .* or \.parquet file"):
        read_table(written(tmp_path, GOOD, "t.docx"), SCHEMA)
    for name in ("t.parquet", "t.csv.gz", "t.xlsx"):
        with raises(SchemaError, effect=Effect.NOTHING_READ) as caught:
            read_table(written(tmp_path, GOOD, name), SCHEMA)
        assert "007" not in str(caught.value)
    path = tmp_path / "latin.csv"
    path.write_bytes(GOOD.replace("007", "0é7").encode("latin-1"))
    with pytest.raises(
        SchemaError, match=r"column \"code\": value .* at row 1 is not UTF-8"
    ):
        read_table(path, SCHEMA)
