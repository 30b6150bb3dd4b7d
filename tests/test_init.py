"""`understudy init`: schemas and a run file by questions, and nothing read from rows is
called public by itself.
"""

import io
import sqlite3
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from test_cli import Run
from understudy.data.reading.sources import TableSource
from understudy.data.schema import Schema
from understudy.runs.runfile import RunFile

pytestmark = pytest.mark.usefixtures("short_fits", "light_masks")


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clinic and an insurer, in the folder where the command runs."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    ids = np.arange(200)
    pd.DataFrame(
        {"id": ids, "age": rng.integers(18, 90, 200), "ill": rng.random(200) < 0.3}
    ).to_csv("clinic.csv", index=False)
    pd.DataFrame({"id": ids, "plan": rng.choice(["free", "paid"], 200)}).to_csv(
        "insurer.csv", index=False
    )
    return tmp_path


def answers(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(
        "sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines))
    )


def test_for_scripts_everything_is_drafted_and_nothing_is_called_public(
    understudy: Run, tables: Path
) -> None:
    code, out, err = understudy(
        "init", "clinic.csv", "insurer.csv", "--person", "id", "--yes", "--people", 200
    )
    assert (code, err) == (0, "")
    assert "clinic.toml is a draft" in out
    file = RunFile.load("run.toml")
    assert (file.people, list(file.parties), file.parties["clinic"].epsilon) == (
        200,
        ["clinic", "insurer"],
        1.0,
    )
    for name in ("clinic", "insurer"):
        schema = Schema.load(f"{name}.toml")
        assert (schema.origin, schema.person) == ("rows", "id")
    assert understudy("plan", "run.toml")[0] == 0
    code, _, err = understudy("run", "run.toml", "--quiet")
    assert code == 1
    assert "DraftSchemaError: the schema of clinic (clinic.toml)" in err
    assert not list(tables.rglob("*.ledger"))


def test_by_questions_a_run_can_follow_at_once(
    understudy: Run, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(
        monkeypatch, "clinic.csv", "insurer.csv", "", "", "y", "id", "yes", "ill", "3"
    )
    code, out, err = understudy("init")
    assert (code, err) == (0, "")
    assert "anybody can learn" in out
    assert "may be called public only if" in out
    body = tomllib.loads(Path("run.toml").read_text())
    assert body["settings"] == {"target": "ill"}
    assert {party["epsilon"] for party in body["parties"].values()} == {3.0}
    assert Schema.load("clinic.toml").origin == "public"
    Path("run.toml").write_text(
        Path("run.toml")
        .read_text()
        .replace("[settings]", "[settings]\nsteps = 5\ncomponents = 4")
    )
    code, out, err = understudy("run", "run.toml")
    assert (code, err) == (0, "")
    assert out.startswith(
        "Plan of gram: 2 holders with other columns of the same people"
    )
    assert Path("runs/clinic-insurer/synthetic.parquet").exists()


def test_nothing_is_overwritten_and_a_wrong_word_is_told(
    understudy: Run, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tables / "run.toml").write_text("mine")
    code, _, err = understudy("init", "clinic.csv", "--yes")
    assert code == 1
    assert "run.toml is there already" in err
    assert (tables / "run.toml").read_text() == "mine"
    assert not (tables / "clinic.toml").exists()
    code, _, err = understudy(
        "init", "clinic.csv", "--yes", "--target", "il", "--folder", "new"
    )
    assert code == 1
    assert 'no column "il"' in err
    assert understudy("init", "--yes")[0] == 1
    assert (
        understudy("init", "clinic.csv", "./clinic.csv", "--yes", "--folder", "two")[0]
        == 1
    )


def test_a_table_elsewhere_and_a_name_with_a_blank_are_written_so_that_they_are_found(
    understudy: Run, tables: Path
) -> None:
    (tables / "clinic.csv").rename(tables / "our clinic.csv")
    assert (
        understudy(
            "init", "our clinic.csv", "--yes", "--person", "id", "--folder", "runfiles"
        )[0]
        == 0
    )
    file = RunFile.load("runfiles/run.toml")
    assert file.path(file.parties["our clinic"].table) == tables / "our clinic.csv"


def test_a_draft_is_public_only_when_somebody_says_where_it_is_known_from(
    understudy: Run, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        understudy("init", "clinic.csv", "insurer.csv", "--person", "id", "--yes")[0]
        == 0
    )
    answers(monkeypatch, "  ")
    code, out, err = understudy("schema", "declare", "clinic.toml")
    assert code == 1
    assert "may be called public only if" in out
    assert "clinic.toml stays a draft" in err
    assert Schema.load("clinic.toml").origin == "rows"
    code, out, _ = understudy(
        "schema",
        "declare",
        "clinic.toml",
        "insurer.toml",
        "--because",
        "the form of 2021",
    )
    assert code == 0
    for name in ("clinic", "insurer"):
        schema = Schema.load(f"{name}.toml")
        assert schema.origin == "public"
        assert schema.note.endswith(
            "columns edited, declared public by the holder because the form of 2021."
        )
    code, out, _ = understudy(
        "schema", "declare", "clinic.toml", "--because", "another"
    )
    assert "public already" in out
    assert "the form of 2021" in Schema.load("clinic.toml").note


def test_what_means_missing_is_said_once_and_stands_in_the_run_file(
    understudy: Run, tables: Path
) -> None:
    pd.DataFrame(
        {
            "id": range(40),
            "grade": ["a", "b", "?", "c"] * 10,
            "beds": [1, 2, 3, -99] * 10,
        }
    ).to_csv("ward.csv", index=False)
    assert "--missing '?'" in " ".join(
        understudy("init", "ward.csv", "--yes", "--folder", "first")[1].split()
    )
    code, *_ = understudy(
        "init",
        "ward.csv",
        "--person",
        "id",
        "--missing",
        "?",
        "--missing",
        "-99",
        "--yes",
    )
    assert code == 0
    schema = Schema.load("ward.toml")
    assert schema.column("grade").labels == ("a", "b", "c")
    assert all(schema.column(name).nullable for name in ("grade", "beds"))
    assert RunFile.load("run.toml").parties["ward"].missing == ("?", -99)


def in_a_database(folder: Path) -> None:
    with sqlite3.connect(folder / "ward.db") as base:
        pd.read_csv("clinic.csv").to_sql("patients", base, index=False)
    base.close()


def test_a_database_is_asked_for_its_rows_and_drafted_as_a_file_is(
    understudy: Run, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_database(tables)
    answers(monkeypatch, "select id, age from patients", "id", "yes", "", "1")
    code, out, err = understudy("init", "sqlite:///ward.db", "--folder", "here")
    assert (code, err) == (0, "")
    source = TableSource.load(tables / "here" / "ward.source.toml")
    assert (source.table, source.query) == (
        f"sqlite:///{tables / 'ward.db'}",
        "select id, age from patients",
    )
    assert Schema.load("here/ward.toml").names == ("age",)
    assert RunFile.load("here/run.toml").parties["ward"].table == "ward.source.toml"
    assert "ward.toml" in out
    assert understudy("run", "here/run.toml", "--seed", 1, "--quiet")[0] == 0


def test_for_scripts_a_database_needs_its_query_and_a_table_is_one(
    understudy: Run, tables: Path
) -> None:
    in_a_database(tables)
    code, _, err = understudy("init", "sqlite:///ward.db", "insurer.csv", "--yes")
    assert code == 1
    assert "1 databases and 0 queries were named" in err
    assert not (tables / "run.toml").exists()
    code, _, err = understudy(
        "init", "sqlite:///ward.db", "insurer.csv", "--query", "patients", "--yes"
    )
    assert (code, err) == (0, "")
    assert (
        TableSource.load(tables / "ward.source.toml").query == "select * from patients"
    )
    assert list(RunFile.load("run.toml").parties) == ["insurer", "ward"]


def test_what_means_missing_goes_with_a_source_that_a_run_file_names(
    understudy: Run, tables: Path
) -> None:
    in_a_database(tables)
    code, *_ = understudy(
        "init", "sqlite:///ward.db", "--query", "patients", "--missing", "-99", "--yes"
    )
    assert code == 0
    source = RunFile.load("run.toml").source("ward")
    assert isinstance(source, TableSource)
    assert (source.query, source.missing) == ("select * from patients", (-99,))


def test_a_password_in_a_url_is_refused_before_anything_is_written(
    understudy: Run, tables: Path
) -> None:
    code, _, err = understudy(
        "init", "postgresql://me:secret@db/ward", "--query", "patients", "--yes"
    )
    assert code == 1
    assert "has a password in it" in err
    assert "secret" not in err
    code, out, err = understudy("init", "postgresql://me@db/ward?password=secret")
    assert code == 1
    assert "secret" not in out + err
    assert not list(tables.glob("*.toml"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["clinic.csv", "insurers.csv"], "insurers.csv: the file cannot be read"),
        (
            ["clinic.csv", "insurer.csv", "--person", "idd"],
            'no id column "idd". Did you mean "id"?',
        ),
        (
            ["clinic.csv", "insurer.csv", "--target", "plann"],
            'no column "plann". Did you mean "plan"?',
        ),
    ],
)
def test_a_word_that_is_wrong_is_told_and_leaves_nothing_that_is_in_the_way(
    tables: Path, understudy: Run, words: list[str], said: str
) -> None:
    before = sorted(tables.iterdir())
    person = [] if "--person" in words else ["--person", "id"]
    code, _, err = understudy("init", *words, *person, "--yes")
    assert code == 1
    assert said in " ".join(err.split())
    assert sorted(tables.iterdir()) == before
