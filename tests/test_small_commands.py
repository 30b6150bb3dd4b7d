"""Commands around a run: what a draft leaves out and why, predictions, shares, ledgers,
runs that did not end.
"""

import csv
import io
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from dp_accounting.dp_event import NoOpDpEvent

import understudy as us
from test_cli import Run
from understudy.cli.terminal import err, out, plain, plain_err, wide
from understudy.data.infer import draft
from understudy.data.samples import toy
from understudy.data.schema import Boolean, Categorical, Integer, Schema
from understudy.data.visits import VisitSchema
from understudy.ground.errors import SchemaError
from understudy.privacy.accounts.budget import Budget, shown
from understudy.privacy.accounts.ledger import Ledger

SCHEMA = Schema(
    person="id",
    columns=(
        Boolean(name="ill", labels=("no", "yes")),
        Categorical(name="ward", categories=("a", "b")),
        Integer(name="age", low=0, high=99, bins=10),
    ),
)


def rows(people: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    ward = rng.choice(["a", "b"], people)
    ill = np.where(rng.random(people) < np.where(ward == "a", 0.95, 0.05), "yes", "no")
    return pd.DataFrame(
        {
            "id": range(people),
            "ill": ill,
            "ward": ward,
            "age": rng.integers(0, 100, people),
        }
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over one table, with a target."""
    home = tmp_path_factory.mktemp("small")
    us.synthesize(
        rows(),
        epsilon=8,
        schema=SCHEMA,
        target="ill",
        ledgers=home / "ledgers",
        folder=home / "run",
        components=16,
        steps=100,
        device="cpu",
    )
    return home / "run"


ODD = {
    "code": ([f"x{n}" for n in range(100)], "100 different texts; declare"),
    "pay": ([f"{n + 1},500" for n in range(100)], "decimals (then say decimal"),
    "rise": ([f"{n}.000,5%" if n else "1.5%" for n in range(100)], "percentages"),
    "born": (
        [f"{1 + n % 28:02}.02.{n % 99:02}" for n in range(100)],
        "a year of two digits: write the year with four",
    ),
    "empty": ([""] * 100, "it has no value"),
}


def test_a_draft_says_of_every_column_what_it_is_or_why_it_is_left_out(
    understudy: Run, tmp_path: Path
) -> None:
    odd = {name: cells for name, (cells, _) in ODD.items()}
    frame = pd.DataFrame(odd | {"sex": ["F", "M", "?", "F"] * 25, "n": range(100)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    code, out, err = understudy(
        "schema", "infer", tmp_path / "t.csv", "--out", tmp_path / "t.toml"
    )
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines() if line.split()}
    for name, (_, why) in ODD.items():
        assert "left out" in lines[name]
        assert why in lines[name]
    assert "--missing '?'" in lines["sex"]
    assert "is this the person?" in lines["n"]
    found = draft(tmp_path / "t.csv", "n")
    assert found.schema.names == ("sex",)
    assert found.left_out.keys() == ODD.keys()
    assert all(f"{name} (" in found.schema.note for name in ODD)


def test_the_module_is_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["understudy", "version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("understudy", run_name="__main__")
    assert (ended.value.code, us.__version__ in capsys.readouterr().out) == (0, True)


def test_a_draft_that_is_refused_is_named(understudy: Run, tmp_path: Path) -> None:
    rows().to_csv(tmp_path / "ward.csv", index=False)
    understudy(
        "schema",
        "infer",
        tmp_path / "ward.csv",
        "--out",
        tmp_path / "ward.toml",
        "--person",
        "id",
    )
    (tmp_path / "run.toml").write_text(
        'protocol = "gram"\nout = "o"\n[parties.north]\ntable = "ward.csv"\nschema = '
        '"ward.toml"\n'
        "epsilon = 1.0\ndelta = 1e-6\n"
    )
    code, _, err = understudy("run", tmp_path / "run.toml")
    assert code == 1
    assert "DraftSchemaError: the schema of north (ward.toml) was read from rows" in err


def test_a_generator_predicts_its_target_and_any_other_column(
    understudy: Run, run: Path, tmp_path: Path
) -> None:
    new = pd.DataFrame({"ward": ["a", "b"], "age": [40, 40]})
    new.to_csv(tmp_path / "new.csv", index=False)
    code, out, err = understudy("predict", run, tmp_path / "new.csv")
    assert (code, err) == (0, "")
    assert list(pd.read_csv(io.StringIO(out))["ill"]) == ["yes", "no"]
    understudy(
        "predict",
        run,
        tmp_path / "new.csv",
        "--probabilities",
        "--out",
        tmp_path / "p.csv",
    )
    chances = pd.read_csv(tmp_path / "p.csv")
    assert list(chances.columns) == ["no", "yes"]
    assert chances.sum(axis=1).to_numpy() == pytest.approx(1)
    ages = pd.read_csv(
        io.StringIO(
            understudy("predict", run, tmp_path / "new.csv", "--target", "age")[1]
        )
    )["age"]
    assert ages.between(20, 80).all()
    code, _, err = understudy("predict", run, tmp_path / "new.csv", "--target", "agee")
    assert code == 1
    assert 'Did you mean "age"?' in err


def test_rows_are_read_as_the_schema_says_before_they_are_predicted(
    understudy: Run, tmp_path: Path
) -> None:
    """Cells are text in a file: true or false, a day, a decimal comma are not."""
    frame, schema = toy(rows=300, seed=1)
    home = tmp_path / "run"
    us.synthesize(
        frame,
        epsilon=8,
        schema=schema,
        folder=home,
        ledgers=tmp_path / "l",
        components=8,
        steps=20,
    )
    understudy("sample", home, "-n", 20, "--out", tmp_path / "drawn.csv")
    code, out, err = understudy(
        "predict", home, tmp_path / "drawn.csv", "--target", "smoker"
    )
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 21
    (tmp_path / "wrong.csv").write_text("smoker,treated\nTrue,perhaps\n")
    code, _, err = understudy(
        "predict", home, tmp_path / "wrong.csv", "--target", "smoker"
    )
    assert code == 1
    assert 'wrong.csv, column "treated", row 1: the cell' in " ".join(err.split())


def test_shares_of_values_can_be_asked_for(understudy: Run, run: Path) -> None:
    code, out, _ = understudy(
        "sample", run, "-n", 500, "--share", "ill=yes:0.1", "--seed", 1
    )
    assert code == 0
    assert (pd.read_csv(io.StringIO(out))["ill"] == "yes").mean() == pytest.approx(
        0.1, abs=0.02
    )
    for wrong in ("ill", "ill=yes", "ill=yess:0.1", "ill=yes:much"):
        code, out, err = understudy("sample", run, "--share", wrong)
        assert (code, out) == (1, "")
        assert "Nothing was sampled" in err


def test_runs_of_a_ledger_have_a_line_each_and_entries_can_be_taken_along(
    understudy: Run, run: Path, tmp_path: Path
) -> None:
    book = run.parent / "ledgers" / "table.ledger"
    with Ledger(book) as held:
        entries, (name,) = held.entries(), held.runs()
    code, out, _ = understudy("ledger", "show", book, "--runs")
    assert code == 0
    (line,) = (line for line in out.splitlines() if line.strip().startswith(name))
    assert line.split()[-1] == shown(entries[-1].total)
    for kind in ("csv", "json"):
        assert (
            understudy("ledger", "export", book, "--out", tmp_path / f"book.{kind}")[0]
            == 0
        )
    with (tmp_path / "book.csv").open(newline="") as file:
        told = [float(row["epsilon_in_all"]) for row in csv.DictReader(file)]
    assert told == [entry.total for entry in entries]
    assert [
        row["description"]
        for row in json.loads((tmp_path / "book.json").read_text())["entries"]
    ] == [entry.description for entry in entries]
    for wrong, why in (("book.csv", "there already"), ("book.txt", ".csv or .json")):
        code, _, err = understudy("ledger", "export", book, "--out", tmp_path / wrong)
        assert code == 1
        assert why in err


def test_a_run_that_was_refused_before_its_first_charge_has_a_line_too(
    understudy: Run, tmp_path: Path
) -> None:
    with Ledger(tmp_path / "a.ledger", holder="a", budget=Budget(1.0, 1e-6)) as book:
        book.charge(
            NoOpDpEvent(), run="refused", description="alignment with b, outside ε"
        )
    code, out, err = understudy("ledger", "show", tmp_path / "a.ledger", "--runs")
    assert (code, err) == (0, "")
    (line,) = (line for line in out.splitlines() if line.strip().startswith("refused"))
    assert line.split()[-2:] == ["0", "0"]


def test_a_ledger_s_table_leaves_fingerprints_out_unless_they_are_asked_for(
    understudy: Run, run: Path
) -> None:
    book = run.parent / "ledgers" / "table.ledger"
    assert "keys" not in understudy("ledger", "show", book)[1]
    assert "keys" in understudy("ledger", "show", book, "--keys")[1]


def test_a_run_that_did_not_end_has_no_page(understudy: Run, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"run": "r", "rehearsal": False}))
    code, _, err = understudy("report", tmp_path)
    assert code == 1
    assert "has not ended" in err
    assert not list(tmp_path.glob("*.html"))


def test_names_between_colons_are_printed_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for console in (out, err, plain, plain_err, wide):
        console.print("column :dog: of :ward:")
    said = capsys.readouterr()
    assert (said.out + said.err).splitlines() == ["column :dog: of :ward:"] * 5


def test_people_and_events_are_drafted_from_a_folder_or_two_files_and_refused_until_declared(
    understudy: Run, tmp_path: Path
) -> None:
    people = pd.DataFrame({"patient": range(30), "sex": ["f", "m"] * 15})
    rows = [
        (who, f"2020-{1 + k:02d}-10", "ab"[k % 2])
        for who in range(1, 30)
        for k in range(1 + who % 4)
    ]
    events = pd.DataFrame(rows, columns=["patient", "day", "ward"])
    people.to_csv(tmp_path / "people.csv", index=False)
    events.to_csv(tmp_path / "events.csv", index=False)
    to = tmp_path / "clinic.toml"
    for tables in ((tmp_path,), (tmp_path / "people.csv", tmp_path / "events.csv")):
        code, out, err = understudy("schema", "infer", *tables, "--out", to)
        assert code == 0, err
        assert "ordered by day. most_events = 4" in out
        drafted = VisitSchema.load(to)
        assert (drafted.person, drafted.time, drafted.most_events) == (
            "patient",
            "day",
            4,
        )
        assert drafted.names == ("sex", "day", "ward")
        with pytest.raises(SchemaError, match="read from rows"):
            drafted.require_public()
    assert understudy("schema", "check", tmp_path, to)[0] == 0
    assert understudy("schema", "declare", to, "--because", "the form of 2020")[0] == 0
    VisitSchema.load(to).require_public()
    people[["patient"]].to_csv(tmp_path / "people.csv", index=False)
    assert understudy("schema", "infer", tmp_path, "--out", to)[0] == 0
    assert VisitSchema.load(to).people is None
    (tmp_path / "events.csv").unlink()
    code, _, err = understudy("schema", "infer", tmp_path, "--out", to)
    assert (code, "no file of events" in err) == (1, True)


@pytest.mark.parametrize(
    ("name", "first", "time", "said"),
    [
        ("visit_day", 0, "visit_day", "ordered by visit_day."),
        ("admitted", 20240101, "admitted", "days as 20240131?"),
        ("stay_days", 0, None, 'say which (time = "…")'),
    ],
)
def test_whole_numbers_order_drafted_events_where_they_are_called_or_written_like_days(
    understudy: Run, tmp_path: Path, name: str, first: int, time: str | None, said: str
) -> None:
    events = pd.DataFrame(
        {
            "patient": np.arange(60) // 2,
            name: first + np.arange(60) % 25,
            "ward": ["a", "b"] * 30,
        }
    )
    events.to_csv(tmp_path / "events.csv", index=False)
    code, out, err = understudy(
        "schema", "infer", tmp_path, "--out", tmp_path / "c.toml", "--person", "patient"
    )
    assert (code, said in out) == (0, True), out + err
    drafted = VisitSchema.load(tmp_path / "c.toml")
    assert (drafted.time, "no order" in drafted.note) == (time, time is None)
