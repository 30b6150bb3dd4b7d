"""Tables as people have them: other separators, encodings, decimals and words for
"missing", workbooks, databases.
"""

import datetime as dt
import sqlite3
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

import understudy as us
from refusals import raises
from understudy.data.infer import infer_schema
from understudy.data.reading.files import open_source
from understudy.data.reading.sources import TableSource
from understudy.data.reading.stores import count_rows
from understudy.data.reading.written import _pointed
from understudy.data.schema import Categorical, Date, Integer, Real, Schema
from understudy.data.table import check_table, read_table
from understudy.ground.errors import ConfigError, Effect, SchemaError
from understudy.runs.runfile import RunFile

SCHEMA = Schema(
    person="id",
    columns=(
        Categorical(name="Straße", categories=("Öl", "Weg"), nullable=True),
        Real(name="größe", low=0, high=3, nullable=True),
        Integer(name="visits", low=0, high=2000, nullable=True),
    ),
)
PLAIN = "id,Straße,größe,visits\n1,Öl,1.75,1234\n2,,1.6,\n3,Weg,,12\n"
EXPORT = "id;Straße;größe;visits\n1;Öl;1,75;1.234\n2;?;1,6;-99\n3;Weg;;12\n"


def as_export(folder: Path, **more: object) -> TableSource:
    (folder / "export.csv").write_bytes(EXPORT.encode("cp1252"))
    declared = {"encoding": "cp1252", "decimal": ",", "missing": ["?", -99]}
    return TableSource.from_dict(
        {"table": "export.csv", **declared, **more}, "here"
    ).within(folder)


def test_an_export_of_windows_reads_as_the_plain_file_does(tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text(PLAIN, encoding="utf-8")
    wanted = read_table(tmp_path / "plain.csv", SCHEMA).frame
    pd.testing.assert_frame_equal(read_table(as_export(tmp_path), SCHEMA).frame, wanted)
    (tmp_path / "clinic.source.toml").write_text(
        'table = "export.csv"\nencoding = "cp1252"\ndecimal = ","\nmissing = ["?", '
        "-99]\n"
    )
    pd.testing.assert_frame_equal(
        read_table(tmp_path / "clinic.source.toml", SCHEMA).frame, wanted
    )


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_what_separates_cells_is_seen_from_the_header(
    tmp_path: Path, separator: str
) -> None:
    (tmp_path / "t.csv").write_text(PLAIN.replace(",", separator), encoding="utf-8")
    assert read_table(tmp_path / "t.csv", SCHEMA).rows == 3
    assert infer_schema(tmp_path / "t.csv", person="id").names == SCHEMA.names


def test_of_two_separators_the_one_that_gives_the_wanted_names_is_taken(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.csv").write_text('"a,b,c,d";x\nw;1\nw;2\n')
    schema = Schema(columns=(Integer(name="x", low=0, high=9),))
    assert list(read_table(tmp_path / "t.csv", schema).frame["x"]) == [1, 2]


def test_a_tsv_file_is_split_at_tabs_though_its_names_hold_commas(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.tsv").write_text("a,b\tc,d\n1\t2\n3\t4\n")
    assert infer_schema(tmp_path / "t.tsv").names == ("a,b", "c,d")


def test_a_point_where_commas_are_decimals_is_a_fault_and_no_other_number(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.csv").write_text("x\n2,5\n2.5\n1.234\n1.234,5\n-,5\nx\n")
    schema = Schema(columns=(Real(name="x", low=-10, high=5000),))
    source = TableSource(table=str(tmp_path / "t.csv"), separator=";", decimal=",")
    wrong = check_table(source, schema)
    assert [
        (fault.row, fault.value) for fault in wrong if "decimal comma" in fault.reason
    ] == [(2, "2.5"), (6, "x")]
    (tmp_path / "t.csv").write_text("x\n2,5\n1.234\n1.234,5\n-,5\n")
    assert list(read_table(source, schema).frame["x"]) == [2.5, 1234.0, 1234.5, -0.5]


@given(number=st.decimals(-(10**9), 10**9, places=3), grouped=st.booleans())
def test_a_number_with_a_comma_is_that_number(number: Decimal, grouped: bool) -> None:
    text = f"{number:,}" if grouped else str(number)
    swapped = text.translate(str.maketrans(",.", ".,"))
    pointed = _pointed(swapped)
    assert pointed is not None
    assert Decimal(pointed) == number


@pytest.mark.parametrize("missing", [["?"], ["?", "-99"], [-99.0], []])
def test_only_the_declared_words_are_missing(
    tmp_path: Path, missing: list[object]
) -> None:
    (tmp_path / "t.csv").write_text("word,number\n?,-99\na,1\n")
    schema = Schema(
        columns=(
            Categorical(name="word", categories=("a", "?"), nullable=True),
            Integer(name="number", low=-99, high=9, nullable=True),
        )
    )
    source = TableSource.from_dict(
        {"table": str(tmp_path / "t.csv"), "missing": missing}, "here"
    )
    frame = read_table(source, schema).frame
    assert bool(frame["word"].isna()[0]) is ("?" in missing)
    assert bool(frame["number"].isna()[0]) is any(
        str(word).startswith("-99") for word in missing
    )


def test_a_workbook_and_frames_that_speak_arrow_read_as_the_file_does(
    tmp_path: Path,
) -> None:
    (tmp_path / "plain.csv").write_text(PLAIN, encoding="utf-8")
    wanted = read_table(tmp_path / "plain.csv", SCHEMA).frame
    frame = wanted.convert_dtypes()
    frame.to_excel(tmp_path / "t.xlsx", index=False, sheet_name="one")
    polars = pl.from_pandas(frame)
    for source in (
        tmp_path / "t.xlsx",
        TableSource(table=str(tmp_path / "t.xlsx"), sheet="one"),
        polars,
        polars.with_columns(pl.col("Straße").cast(pl.Categorical)),
        polars.to_arrow(),
    ):
        pd.testing.assert_frame_equal(read_table(source, SCHEMA).frame, wanted)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r'no sheet "ones"\. Did you mean "one"'):
        read_table(TableSource(table=str(tmp_path / "t.xlsx"), sheet="ones"), SCHEMA)


ROWS = [
    (1, "F", 30, 1.25, dt.date(2020, 1, 1)),
    (2, "M", None, 2.5, dt.date(2020, 5, 1)),
    (3, "F", 41, 0.0, None),
]
COLUMNS = Schema(
    person="id",
    columns=(
        Categorical(name="sex", categories=("F", "M")),
        Integer(name="age", low=0, high=99, nullable=True),
        Real(name="dose", low=0, high=9),
        Date(
            name="seen",
            low=dt.date(2019, 1, 1),
            high=dt.date(2021, 1, 1),
            nullable=True,
        ),
    ),
)
FRAME = pd.DataFrame(ROWS, columns=["id", *COLUMNS.names]).astype(object)


def filled(kind: str, folder: Path) -> str:
    made = (
        "create table people (id int, sex text, age int, dose double precision, seen "
        "date)"
    )
    if kind == "duckdb":
        with duckdb.connect(folder / "d.db") as base:
            base.execute(made)
            base.executemany("insert into people values (?, ?, ?, ?, ?)", ROWS)
        return f"duckdb:///{folder / 'd.db'}"
    with sqlite3.connect(folder / "s.db") as lite:
        lite.execute(made)
        rows = [(*row[:4], row[4] and row[4].isoformat()) for row in ROWS]
        lite.executemany("insert into people values (?, ?, ?, ?, ?)", rows)
    return f"sqlite:///{folder / 's.db'}"


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_query_reads_as_the_frame_does(tmp_path: Path, kind: str) -> None:
    url = filled(kind, tmp_path)
    source = TableSource(table=url, query="select * from people order by id")
    pd.testing.assert_frame_equal(
        read_table(source, COLUMNS).frame, read_table(FRAME, COLUMNS).frame
    )
    assert set(infer_schema(source, person="id").names) == set(COLUMNS.names)
    for query in (
        "select * from nobody",
        "delete from people returning *",
        "drop table people",
    ):
        with raises(
            SchemaError,
            effect=Effect.NOTHING_READ,
            match=r"the query was not answered \(.*\)",
        ):
            read_table(TableSource(table=url, query=query), COLUMNS)
    assert read_table(source, COLUMNS).rows == 3


def test_a_query_to_postgresql_reads_as_the_frame_does_and_writes_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make_url(postgres_url)
    monkeypatch.setenv("CLINIC", url.password or "")
    bare = f"postgresql://{url.username}@{url.host}:{url.port}/{url.database}"
    values = ", ".join(
        f"({i}, '{sex}', {'null' if age is None else age}::int, {dose}::numeric(5, 2), "
        f"{'null' if seen is None else repr(seen.isoformat())}::date)"
        for i, sex, age, dose, seen in ROWS
    )
    query = f"select * from (values {values}) t (id, sex, age, dose, seen)"
    source = TableSource(table=bare, query=query, password="env:CLINIC")
    pd.testing.assert_frame_equal(
        read_table(source, COLUMNS).frame, read_table(FRAME, COLUMNS).frame
    )
    query = "select current_setting('transaction_read_only') as mode"
    (mode,) = infer_schema(
        TableSource(table=bare, query=query, password="env:CLINIC")
    ).columns
    assert mode == Categorical(name="mode", categories=("on",))


def test_no_password_stands_in_a_file_or_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    party = {"schema": "s.toml", "epsilon": 1.0, "delta": 1e-6, "query": "select 1"}
    run = {"protocol": "gram", "out": "runs"}
    hidden = {"a": party | {"table": "postgresql://me:hunter2@db/x"}}
    with pytest.raises(ConfigError, match="has a password in it") as refused:
        RunFile.from_dict(run | {"parties": hidden}, folder=tmp_path)
    assert "hunter2" not in str(refused.value)
    named = {
        "a": party
        | {"table": "postgresql://me@127.0.0.1:1/x", "password": "env:CLINIC"}
    }
    file = RunFile.from_dict(run | {"parties": named}, folder=tmp_path)
    monkeypatch.setenv("CLINIC", "hunter2")
    with pytest.raises(SchemaError, match="was not answered") as refused_too:
        read_table(file.source("a"), COLUMNS)
    assert "hunter2" not in str(refused_too.value) + file.to_toml()
    monkeypatch.delenv("CLINIC")
    with pytest.raises(ConfigError, match="env:CLINIC holds no password"):
        read_table(file.source("a"), COLUMNS)


def test_a_run_file_keeps_how_a_table_is_read(tmp_path: Path) -> None:
    party = {
        "table": "x.csv",
        "schema": "s.toml",
        "epsilon": 1.0,
        "delta": 1e-6,
        "decimal": ",",
        "missing": ["?", -9],
    }
    body = {"protocol": "gram", "out": "runs", "parties": {"a": party}}
    file = RunFile.from_dict(body, folder=tmp_path)
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "run.toml").write_text(file.to_toml())
    assert RunFile.load(tmp_path / "again" / "run.toml").source("a") == file.source("a")


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"separator": "ab"}, "separator must be one character"),
        ({"decimal": ";"}, "decimal must be"),
        ({"separator": ",", "decimal": ","}, "and not the separator"),
        ({"encoding": "klingon"}, "there is no encoding 'klingon'"),
        ({"missing": [True]}, "a list of texts and numbers"),
        ({"missing": [float("nan")]}, "finite"),
        ({"query": "select 1"}, "is a file"),
        ({"seperator": ";"}, "separator"),
        ({"table": "sqlite:///x.db"}, "which rows"),
        ({"table": "sqlite:///x.db", "query": "select 1"}, "there is no such file"),
        ({"table": "mystery://x", "query": "select 1"}, "not answered|is needed"),
        ({"table": "x.docx"}, "a table is a"),
        ({"table": "x.csv"}, "cannot be read"),
    ],
)
def test_what_is_declared_wrongly_is_refused_in_words(
    keys: dict[str, object], says: str
) -> None:
    with pytest.raises((ConfigError, SchemaError), match=says):
        read_table(TableSource.from_dict({"table": "x.csv", **keys}, "here"), COLUMNS)


def test_the_header_of_a_query_is_there_before_its_last_row(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "t.db").close()
    (tmp_path / "t.db").touch()
    endless = (
        "with recursive n(i) as (select 1 union all select i + 1 from n) select i, i "
        "% 7 as day from n"
    )
    source = TableSource(table=f"sqlite:///{tmp_path / 't.db'}", query=endless)
    assert open_source(source, {}).header == ["i", "day"]


def test_a_query_with_a_word_after_it_is_counted_and_one_that_cannot_be_is_not(
    tmp_path: Path,
) -> None:
    with sqlite3.connect(tmp_path / "t.db") as base:
        base.execute("create table t (x integer)")
        base.executemany("insert into t values (?)", [(1,), (2,), (3,)])
    base.close()
    source = TableSource(
        table=f"sqlite:///{tmp_path / 't.db'}", query="select x from t -- all of them"
    )
    assert count_rows(source) == 3
    assert count_rows(replace(source, query="select x from t order by x;")) == 3
    assert count_rows(replace(source, query="no query")) is None


def test_an_array_in_the_place_of_a_table_is_refused_without_its_values() -> None:
    for read in (
        lambda rows: read_table(rows, SCHEMA),
        lambda rows: us.synthesize(rows, epsilon=1),
    ):
        with pytest.raises(
            SchemaError, match=r"an array of shape \(3, 2\) and type float64"
        ) as error:
            read(np.full((3, 2), 0.123456))
        assert "0.1234" not in str(error.value)
    with pytest.raises(SchemaError, match="not list"):
        read_table([[1, 2]], SCHEMA)  # type: ignore[arg-type]
