"""A table whose first line is no header: refused before its cells become names;
`--no-header` names the columns.
"""

import gzip
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import understudy as us
from test_cli import Run
from understudy.data.header import require_names
from understudy.data.infer import infer_schema
from understudy.data.reading import files
from understudy.data.reading.files import batches_of, open_source, separator_of
from understudy.data.reading.sources import TableSource
from understudy.data.schema import Schema
from understudy.data.table import read_table
from understudy.ground.errors import ConfigError, SchemaError
from understudy.privacy.kinds import kinds_of
from understudy.report.measure import _source
from understudy.runs.runfile import RunFile

pytestmark = [
    pytest.mark.usefixtures("short_fits", "short_training"),
    pytest.mark.filterwarnings("ignore::understudy.ground.errors.UtilityWarning"),
]
FIRST = ["100554", "weiblich", "4915.8", "23.7"]  # the first patient
NAMES = ["column_1", "column_2", "column_3", "column_4"]
QUICK: dict[str, Any] = {"components": 8, "steps": 10, "device": "cpu"}


def cells(people: int = 1_200) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "number": rng.integers(100_000, 200_000, people),
            "sex": rng.choice(["weiblich", "männlich"], people),
            "cost": rng.normal(4_000, 500, people).round(1),
            "bmi": rng.normal(25, 3, people).round(1),
        }
    )
    return frame.astype(object)


def headerless(path: Path, people: int = 1_200, separator: str = ",") -> Path:
    rows = cells(people)
    rows.iloc[0] = FIRST
    rows.to_csv(path, index=False, header=False, sep=separator)
    return path


def no_cell_in(text: str) -> bool:
    return not any(cell in text for cell in FIRST)


def test_the_command_refuses_a_first_patient_as_names_and_charges_and_writes_nothing(
    understudy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = headerless(tmp_path / "clinic.csv")
    for command in (
        ("synthesize", path, "--epsilon", 1, "--names-and-kinds-are-public"),
        ("schema", "infer", path, "--out", "clinic.toml"),
        ("init", path, "--yes", "--folder", "study"),
    ):
        code, out, err = understudy(*command)
        assert code == 1
        said = " ".join(err.split())
        assert "has the file a header?" in said
        assert "--no-header" in said
        assert no_cell_in(out + err)
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


@pytest.mark.long
@pytest.mark.parametrize("holdout", [0, 0.05])
def test_no_header_publishes_no_cell_of_the_first_patient(
    understudy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holdout: float
) -> None:
    monkeypatch.chdir(tmp_path)
    path = headerless(tmp_path / "clinic.csv", separator=";")
    told = (
        "--no-header",
        "--names-and-kinds-are-public",
        "--rows-are-people",
        "--rows",
        50,
        "--holdout",
        holdout,
    )
    assert (
        understudy("synthesize", path, "--epsilon", 2, *told, "--out", "made")[0] == 0
    )
    made = tmp_path / "made"
    assert (made / "synthetic.csv").read_text().splitlines()[0] == ";".join(NAMES)
    assert Schema.load(made / "schema.toml").names == tuple(NAMES)
    party = tomllib.loads((made / "run.toml").read_text())["parties"]["clinic"]
    # the rows that take part are written with a header
    assert party.get("header") is (None if holdout else False)
    pages = "".join(file.read_text() for file in made.glob("*.html"))
    assert "column_3" in pages
    assert "100554" not in pages
    # reads the table again, as the run file says
    assert understudy("report", made)[0] == 0


@pytest.mark.parametrize("command", ["infer", "init"])
def test_a_draft_of_a_file_without_a_header_has_all_its_rows(
    understudy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = headerless(tmp_path / "clinic.csv", people=40)
    if command == "infer":
        assert (
            understudy("schema", "infer", path, "--no-header", "--out", "clinic.toml")[
                0
            ]
            == 0
        )
    else:
        assert (
            understudy("init", path, "--no-header", "--yes", "--folder", tmp_path)[0]
            == 0
        )
        assert RunFile.load(tmp_path / "run.toml").parties["clinic"].header is False
    found = Schema.load(tmp_path / "clinic.toml")
    assert found.names == tuple(NAMES)
    assert "40 rows" in found.note


@pytest.mark.parametrize(
    "name",
    [
        "1",
        "-4.5",
        "4.915,8",
        "1e6",
        ".5",
        "12 %",
        "€ 1,500",
        "2024-01-31",
        "31.12.1990",
        "1/2/24",
        "14:30",
        "14:30:15",
        "2024-01-31 14:30:15",
        "2024-01-31T00:00:00Z",
        "",
        "  ",
        "Unnamed: 3",
        "23.7.1",
        "2024-01-31.1",
    ],
)
def test_a_name_that_is_a_number_a_date_or_empty_is_refused_and_not_repeated(
    name: str,
) -> None:
    with pytest.raises(
        SchemaError, match=r"column 2 .* has the file a header\?"
    ) as refused:
        require_names(["age", name], "t.csv", None)
    if len(name.strip()) > 3:
        assert name not in str(refused.value)
    require_names(["age", name], "t.csv", True)


@pytest.mark.parametrize(
    "names",
    [
        [
            "age",
            "bmi_2024",
            "q1",
            "1st_visit",
            "24h urine",
            "HbA1c (%)",
            "% fat",
            "Na",
            "-",
            "T-score",
            "2024-01 to 06",
        ]
    ],
)
def test_names_with_digits_in_them_are_names(names: list[str]) -> None:
    require_names(names, "t.csv", None)


@pytest.mark.parametrize("header", [None, True])
def test_repeated_names_are_refused_whatever_is_said_of_the_header(
    header: bool | None,
) -> None:
    with pytest.raises(
        SchemaError, match="columns 1 and 3 have the same name"
    ) as refused:
        require_names(["secret", "bmi", "secret"], "t.csv", header)
    assert "secret" not in str(refused.value)


def test_a_file_and_a_frame_with_a_repeated_name_are_refused_and_lose_no_column(
    tmp_path: Path,
) -> None:
    twice = cells(30).set_axis(["a", "b", "c", "b"], axis=1)
    path = tmp_path / "t.csv"
    twice.to_csv(path, index=False)
    for source in (twice, path):
        for header in (None, True):
            with pytest.raises(SchemaError, match="columns 2 and 4 have the same name"):
                us.synthesize(
                    source,
                    epsilon=1,
                    name="t",
                    header=header,
                    ledgers=tmp_path / "ledgers",
                )
        with pytest.raises(SchemaError, match="columns 2 and 4 have the same name"):
            infer_schema(source)
        with pytest.raises(SchemaError, match="columns 2 and 4 have the same name"):
            kinds_of(source, {"a": "integer"})
    assert not list(tmp_path.rglob("*.ledger"))


def test_the_refusal_comes_before_a_row_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = headerless(tmp_path / "t.csv", people=20)
    monkeypatch.setattr(files.pyarrow.csv, "read_csv", None)
    monkeypatch.setattr(files.pyarrow.csv, "open_csv", None)
    with pytest.raises(SchemaError, match="has the file a header"):
        us.synthesize(
            path, epsilon=1, names_and_kinds_are_public=True, ledgers=tmp_path
        )
    with pytest.raises(SchemaError, match="has the file a header"):
        infer_schema(path)


def test_a_long_file_is_refused_as_a_short_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LONG", 10)
    path = headerless(tmp_path / "t.csv", people=60)
    with pytest.raises(SchemaError, match="has the file a header"):
        kinds_of(path, confirmed=True)
    assert [
        *kinds_of(TableSource(table=str(path), header=False), confirmed=True)
    ] == NAMES
    assert [
        *kinds_of(TableSource(table=str(path), header=True), confirmed=True)
    ] == FIRST


def test_a_frame_read_with_its_first_row_as_names_is_refused(tmp_path: Path) -> None:
    frame = pd.read_csv(headerless(tmp_path / "t.csv"))
    with pytest.raises(SchemaError, match="has the file a header") as refused:
        us.synthesize(frame, epsilon=1, name="t", ledgers=tmp_path)
    assert no_cell_in(str(refused.value))
    with pytest.raises(ConfigError, match="has names"):
        us.synthesize(frame, epsilon=1, name="t", header=False, ledgers=tmp_path)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::understudy.ground.errors.PrivacyWarning")
@pytest.mark.parametrize("header", [None, False])
def test_a_frame_whose_columns_are_numbered_has_none(
    tmp_path: Path, header: bool | None
) -> None:
    frame = pd.read_csv(headerless(tmp_path / "t.csv"), header=None)
    made = us.synthesize(
        frame, epsilon=2, name="t", header=header, ledgers=tmp_path, **QUICK
    )
    assert [*made.sample(5)] == NAMES


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv"])
@pytest.mark.parametrize("long", [False, True])
def test_without_a_header_every_row_is_read_and_rows_are_counted_from_the_first(
    tmp_path: Path, suffix: str, long: bool
) -> None:
    path = tmp_path / f"t{suffix}"
    text = "1,a\n2,b\n3,c,d\n4,e\n".replace(",", "\t" if "tsv" in suffix else ",")
    path.write_bytes(
        gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode()
    )
    source = TableSource(table=str(path), header=False)
    want = {"column_1": False, "column_2": False}
    parts = list(batches_of(source, want, long=long))
    assert [value for raw in parts for value in raw.columns.get("column_2", ())] == [
        "a",
        "b",
        "e",
    ]
    assert [int(number) for raw in parts for number in raw.numbers] == [1, 2, 4]
    assert [
        int(fault.rows[0]) for fault in parts[-1].faults if fault.rows is not None
    ] == [3]


def test_the_separator_of_a_file_without_a_header_is_seen_although_its_names_are_not_there(
    tmp_path: Path,
) -> None:
    path = headerless(tmp_path / "t.csv", separator=";")
    source = TableSource(table=str(path), header=False)
    assert separator_of(source) == ";"
    assert len(open_source(source, {"column_4": True}).columns["column_4"]) == 1_200


def test_a_workbook_without_a_header_is_read_whole_and_refused_where_that_is_not_said(
    tmp_path: Path,
) -> None:
    pytest.importorskip("openpyxl")
    path = tmp_path / "t.xlsx"
    cells(30).to_excel(path, index=False, header=False)
    with pytest.raises(SchemaError, match="has the file a header"):
        infer_schema(path)
    found = infer_schema(path, header=False)
    assert found.names == tuple(NAMES)
    assert "30 rows" in found.note


def test_a_format_that_always_has_names_is_refused_without(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    cells(5).drop(columns="sex").astype(float).to_parquet(path)
    with pytest.raises(SchemaError, match="always has names"):
        open_source(TableSource(table=str(path), header=False), None)


def test_a_run_file_says_that_a_party_has_no_header_and_what_it_writes_says_it_again(
    tmp_path: Path,
) -> None:
    path = headerless(tmp_path / "t.csv", people=25)
    schema = replace(
        infer_schema(TableSource(table=str(path), header=False)), origin="public"
    )
    schema.save(tmp_path / "s.toml")
    body = {
        "protocol": "gram",
        "out": "made",
        "parties": {
            "one": {
                "table": "t.csv",
                "schema": "s.toml",
                "epsilon": 1.0,
                "delta": 1e-6,
                "header": False,
            }
        },
    }
    file = RunFile.from_dict(body, folder=tmp_path)
    again = RunFile.from_dict(tomllib.loads(file.to_toml()), folder=tmp_path)
    for said in (file, again):
        assert len(read_table(said.source("one"), schema).frame) == 25
    written = tomllib.loads(file.to_toml())["parties"]["one"]
    assert _source(written).header is False
    body["parties"]["one"]["header"] = "no"  # type: ignore[index]
    with pytest.raises(ConfigError, match='"header" must be true or false'):
        RunFile.from_dict(body, folder=tmp_path)
    with pytest.raises(ConfigError, match='"header" must be true or false'):
        TableSource.from_dict({"table": "t.csv", "header": "no"}, "t.source.toml")


def test_a_header_of_years_is_taken_where_somebody_says_that_it_is_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.csv"
    cells(30).set_axis(["2019", "2020", "2021", "2022"], axis=1).to_csv(
        path, index=False
    )
    found = infer_schema(TableSource(table=str(path), header=True))
    assert found.names == ("2019", "2020", "2021", "2022")
    assert re.search("30 rows", found.note)
