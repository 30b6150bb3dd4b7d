"""Who is protected where nobody says who a person is: rows, and every sentence
says so.
"""

import itertools
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import understudy as us
from refusals import raises
from test_cli import Run
from understudy.data.id_names import is_id_name
from understudy.data.images import ImageSchema
from understudy.data.schema import Boolean, Categorical, Integer, Schema, join
from understudy.data.series import Real, SeriesSchema
from understudy.evidence.checklists import checklists
from understudy.evidence.facts import ReleaseDescription, read_facts
from understudy.ground.errors import (
    ConfigError,
    Effect,
    PrivacyWarning,
    SchemaError,
    UtilityWarning,
)
from understudy.privacy.accounts.budget import (
    ADJACENCIES,
    ADJACENCY,
    best_guess,
    in_units,
    promises_no_more,
    unit_of,
)
from understudy.report.page import write_report

pytestmark = [pytest.mark.usefixtures("short_fits", "short_training")]
SMALL: dict[str, Any] = {"components": 8, "steps": 10, "device": "cpu"}
IDS = (
    "id",
    "ID",
    "Id",
    "patient_id",
    "PatientID",
    "patientId",
    "PATIENT_ID",
    "subjid",
    "SUBJID",
    "person id",
    "person-id",
    "uuid",
    "UUID",
    "mrn",
    "ssn",
    "SEQN",
    "patient_id_2",
    "visit_occurrence_id",
    "hadm_id",
    "caseid",
    "patient_no",
    "Kundennummer",
    "record key",
    "social_security_number",
    "person",
    "Patient",
    "participant hash",
)
NO_IDS = (
    "paid",
    "prepaid",
    "covid",
    "has_covid",
    "COVID19",
    "covid_19",
    "medicaid",
    "steroid",
    "corticosteroids",
    "corticosteroid",
    "uric_acid",
    "URIC ACID",
    "fluid",
    "valid",
    "is_valid",
    "invalid",
    "opioid",
    "lipid",
    "bid",
    "kid",
    "grid",
    "width",
    "idle",
    "video",
    "individual",
    "residence",
    "postal_code",
    "phone_number",
    "icd_code",
    "number",
    "code",
    "no",
    "",
    "age",
    "patient_age",
    "persons",
    3,
)
ROW = ADJACENCIES["row"]


def events(people: int = 300, rows: int = 2_000) -> pd.DataFrame:
    """Several rows of most people."""
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "patient_id": rng.integers(100_000, 100_000 + people, rows),
            "ward": rng.choice(["north", "south"], rows),
            "days": rng.integers(0, 30, rows),
        }
    )


SCHEMA = Schema(
    columns=(
        Categorical(name="ward", categories=("north", "south")),
        Integer(name="days", low=0, high=30),
    )
)


@pytest.mark.parametrize("name", IDS)
def test_a_name_of_an_id_is_told_by_the_name_alone(name: str) -> None:
    assert is_id_name(name)


@pytest.mark.parametrize("name", NO_IDS)
def test_a_name_that_only_ends_like_one_is_no_id(name: object) -> None:
    assert not is_id_name(name)


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame", "source"])
def test_a_table_with_ids_stops_until_somebody_says_whose_rows_they_are(
    kind: str, tmp_path: Path
) -> None:
    # no id comes twice: the name decides
    rows = events(people=2_000).drop_duplicates("patient_id")
    source: Any = rows
    if kind == "csv":
        source = tmp_path / "stays.csv"
        rows.to_csv(source, index=False)
    elif kind == "parquet":
        source = tmp_path / "stays.parquet"
        rows.to_parquet(source)
    elif kind == "source":
        rows.to_csv(tmp_path / "rows.csv", index=False)
        source = tmp_path / "stays.source.toml"
        source.write_text('table = "rows.csv"\n')
    ledgers = tmp_path / "ledgers"
    with raises(ConfigError, effect=Effect.NOTHING_CHARGED) as refused:
        us.synthesize(
            source, epsilon=1, ledgers=ledgers, names_and_kinds_are_public=True, **SMALL
        )
    said = str(refused.value)
    assert 'person="patient_id" (--person patient_id)' in said
    assert "rows_are_people=True (--rows-are-people)" in said
    assert not list(ledgers.glob("*.ledger"))


def test_the_command_stops_likewise_and_names_both_ways_on(
    understudy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    events().to_csv("condition_occurrence.csv", index=False)
    begun = (
        "synthesize",
        "condition_occurrence.csv",
        "--epsilon",
        1,
        "--names-and-kinds-are-public",
    )
    code, out, err = understudy(*begun)
    assert (code, out) == (1, "")
    assert "--person patient_id" in err
    assert "--rows-are-people" in err
    assert not list(tmp_path.rglob("*.ledger"))
    code, _, err = understudy(*begun, "--person", "patient_id", "--rows-are-people")
    assert code == 1
    assert "say one of them" in err
    code, _, err = understudy(*begun, "--person", "patient_id")
    assert code == 1
    assert "docs/visits.md" in err
    assert not list(tmp_path.rglob("*.ledger"))


@pytest.mark.long
def test_ids_are_not_synthesised_unless_they_are_declared(tmp_path: Path) -> None:
    rows = events(people=1_000_000)
    with pytest.warns(UtilityWarning, match='left out: "patient_id" .named like an id'):
        made = us.synthesize(
            rows,
            epsilon=1,
            rows_are_people=True,
            names_and_kinds_are_public=True,
            ledgers=tmp_path,
            name="a",
            **SMALL,
        )
    assert made.generator.schema.names == ("ward", "days")
    with (
        pytest.warns(PrivacyWarning, match="ward .categorical., days .integer."),
        pytest.warns(UtilityWarning, match='left out: "patient_id" .named like an id'),
    ):
        made = us.synthesize(
            rows, epsilon=1, rows_are_people=True, ledgers=tmp_path, name="b", **SMALL
        )
    assert made.generator.schema.names == ("ward", "days")
    assert made.privacy.adjacency == ADJACENCY
    made = us.synthesize(
        rows,
        epsilon=1,
        rows_are_people=True,
        ledgers=tmp_path,
        name="c",
        kinds={"patient_id": "integer", "ward": "categorical", "days": "integer"},
        **SMALL,
    )
    assert "patient_id" in made.generator.schema.names


@pytest.fixture(scope="module")
def of_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over rows whose schema says of nobody who a person is."""
    home = tmp_path_factory.mktemp("rows")
    us.synthesize(
        events(),
        schema=SCHEMA,
        epsilon=1,
        ledgers=home / "ledgers",
        folder=home / "run",
        **SMALL,
    )
    return home / "run"


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from itertools.chain.from_iterable(map(texts_of, value.values()))
    elif isinstance(value, list | tuple):
        yield from itertools.chain.from_iterable(map(texts_of, value))
    elif isinstance(value, str):
        yield value


PROMISE = re.compile(
    r"one person|each person|a person over|took part|\d people", re.IGNORECASE
)


def test_without_a_person_every_sentence_speaks_of_rows(of_rows: Path) -> None:
    stated = json.loads((of_rows / "privacy.json").read_text())
    assert stated["adjacency"] == ROW
    assert any("a person with several rows" in text for text in stated["outside"])
    assert not [text for text in texts_of(stated) if PROMISE.search(text)]
    card = json.loads((of_rows / "generator" / "card.json").read_text())
    assert card["privacy"] == stated
    assert card["release"]["adjacency"] == ROW
    page = re.sub(
        r"<(style|script).*?</\1>|<[^>]*>",
        " ",
        write_report(of_rows, publish=True).read_text(),
        flags=re.S,
    )
    promises = page.partition("Utility")[0]
    assert "costs each row at most" in promises
    assert "not each person: who has several rows is protected less" in promises
    assert (
        "Whoever guesses whether one row was among the data is right at most"
        in promises
    )
    assert "strong for one row" in promises
    facts = read_facts(of_rows, ReleaseDescription())
    answers = {one.question: one.answer for one in checklists(facts)}
    assert ROW in answers["What is one unit of privacy?"]
    assert (
        "whether one row was among the data" in answers["Can a person be singled out?"]
    )
    assert "a person with several rows" in answers["Can a person be singled out?"]


def test_where_rows_are_declared_to_be_people_the_statement_is_about_people(
    tmp_path: Path,
) -> None:
    declared = replace(SCHEMA, rows_are_people=True)
    made = us.synthesize(
        events(), schema=declared, epsilon=1, ledgers=tmp_path, name="rows", **SMALL
    )
    assert made.privacy.adjacency == ADJACENCY
    assert made.privacy.unit == "person"
    assert "A person over all parties" in str(made.privacy)


def test_a_statement_in_words_says_row_where_it_protects_rows(tmp_path: Path) -> None:
    made = us.synthesize(
        events(), schema=SCHEMA, epsilon=1, ledgers=tmp_path, name="rows", **SMALL
    )
    said = str(made.privacy)
    assert f"protected    {ROW}" in said
    assert "A row over all parties" in said
    assert "whether one row was among the data" in said
    assert "a person with several rows" in said
    assert not PROMISE.search(said.replace("whether one row", ""))


@pytest.mark.parametrize("unit", ADJACENCIES)
def test_what_is_protected_can_be_read_from_the_adjacency_alone(unit: str) -> None:
    assert unit_of(ADJACENCIES[unit]) == unit
    assert f"one {unit}" in best_guess(distance=0.2).in_words(ADJACENCIES[unit])
    assert (
        in_units("a person whom people know", "person") == "a person whom people know"
    )
    assert (
        not re.search("person|people", in_units("a person whom people know", unit))
        or unit == "person"
    )


def test_a_schema_travels_with_what_it_says_of_rows(tmp_path: Path) -> None:
    declared = replace(SCHEMA, rows_are_people=True)
    for name in ("schema.toml", "schema.json"):
        declared.save(tmp_path / name)
        assert Schema.load(tmp_path / name) == declared
    assert (
        tomllib.loads((tmp_path / "schema.toml").read_text())["rows_are_people"] is True
    )
    assert "rows_are_people" not in SCHEMA.to_dict()
    assert str(declared).splitlines()[0] == "2 columns, each row a person, public"
    assert "each row by itself" in str(SCHEMA)
    with pytest.raises(SchemaError, match="declare one"):
        replace(declared, person="who")
    with pytest.raises(SchemaError, match="must be true or false"):
        replace(SCHEMA, rows_are_people="yes")
    image = ImageSchema(height=2, width=2, rows_are_people=True)
    assert ImageSchema.from_dict(image.to_dict()) == image
    series = SeriesSchema(
        channels=(Real(name="x", low=0, high=1),), length=3, rows_are_people=True
    )
    assert SeriesSchema.from_dict(series.to_dict()) == series
    assert (image.unit, series.unit) == ("person", "person")
    assert (
        replace(image, rows_are_people=False).unit,
        replace(series, rows_are_people=False).unit,
    ) == (
        "image",
        "series",
    )
    assert (
        replace(series, rows_are_people=False, windows_are_people=True).unit == "window"
    )


def test_joint_columns_are_of_people_where_every_holder_s_are() -> None:
    other = Schema(columns=(Boolean(name="ill"),), person="who")
    people = replace(SCHEMA, person="patient")
    assert join({"a": people, "b": other}).unit == "person"
    assert (
        join({"a": people, "b": replace(other, person="patient")}).person == "patient"
    )
    assert join({"a": SCHEMA, "b": other}).unit == "row"


@pytest.fixture
def file_with_ids(tmp_path: Path) -> Path:
    """A run file whose schema lists ids among the columns."""
    ids = Integer(name="patient_id", low=100_000, high=101_000)
    replace(SCHEMA, columns=(ids, *SCHEMA.columns)).save(tmp_path / "stays.toml")
    events().to_csv(tmp_path / "stays.csv", index=False)
    text = (
        'protocol = "gram"\nout = "out"\n[settings]\nsteps = 10\ncomponents = '
        '8\n[parties.ward]\ntable = "stays.csv"\n'
    )
    (tmp_path / "run.toml").write_text(
        f'{text}schema = "stays.toml"\nepsilon = 1.0\ndelta = 1e-6\n'
    )
    return tmp_path / "run.toml"


def test_a_declared_schema_with_ids_stops_a_run_and_its_plan_says_so(
    understudy: Run, file_with_ids: Path
) -> None:
    code, out, _ = understudy("plan", file_with_ids)
    assert code == 0
    assert 'declare person = "patient_id"' in out
    assert "who has several rows pays for each" in out
    code, _, err = understudy("run", file_with_ids, "--quiet")
    assert code == 1
    assert "rows_are_people = true" in err
    assert not list(file_with_ids.parent.rglob("*.ledger"))
    schema = Schema.load(file_with_ids.with_name("stays.toml"))
    replace(schema, rows_are_people=True).save(file_with_ids.with_name("stays.toml"))
    code, out, _ = understudy("run", file_with_ids, "--quiet")
    assert code == 0
    assert ADJACENCY in out


def test_holders_in_one_process_are_asked_likewise(tmp_path: Path) -> None:
    schema = replace(
        SCHEMA,
        columns=(Integer(name="patient_id", low=0, high=200_000), *SCHEMA.columns),
    )
    federation = us.Federation(
        {"a": events()}, {"a": schema}, budget=1.0, ledgers=tmp_path
    )
    with pytest.raises(SchemaError, match="is a row a person"):
        us.train("gram", federation, **SMALL)
    with us.Ledger(tmp_path / "a.ledger") as ledger:
        assert not ledger.spent()


def test_rows_at_one_holder_and_people_at_another_are_rows(tmp_path: Path) -> None:
    frames = {"a": events(), "b": events().drop_duplicates("patient_id")}
    schemas = {"a": SCHEMA, "b": replace(SCHEMA, person="patient_id")}
    made = us.train(
        "gram", us.Federation(frames, schemas, budget=1.0, ledgers=tmp_path), **SMALL
    )
    assert made.privacy.adjacency == ROW
    assert any(
        "a row that several of them hold" in text for text in made.privacy.assumed
    )


def test_a_holder_signs_a_statement_that_promises_less_and_none_that_promises_more():
    reports = (
        "replace the content of all reports of one person; that the person reported, "
        "and when, is public"
    )
    for known in (ADJACENCY, reports):
        assert promises_no_more(known, known)
    assert promises_no_more(ROW, ADJACENCY)
    assert promises_no_more(in_units(reports, "row"), reports)
    assert not promises_no_more(ADJACENCY, ROW)
    assert not promises_no_more(reports, in_units(reports, "row"))
    assert not promises_no_more(ROW, reports)
    assert not promises_no_more("add or remove one row of nobody", ADJACENCY)


@pytest.mark.parametrize(
    ("rows_are_people", "unit"), [(False, "row"), (True, "person")]
)
def test_a_ledger_says_whom_its_runs_protect(
    rows_are_people: bool, unit: str, understudy: Run, tmp_path: Path
) -> None:
    declared = replace(SCHEMA, rows_are_people=rows_are_people)
    us.synthesize(
        events(), schema=declared, epsilon=1, ledgers=tmp_path, name="people", **SMALL
    )
    with us.Ledger(tmp_path / "people.ledger") as book:
        assert book.summary().startswith(
            f"people allows {book.budget}. Spent by the {unit} with the highest spend"
        )
    _, out, _ = understudy("ledger", "show", tmp_path / "people.ledger")
    said = " ".join(out.split())
    assert f"Spent by the {unit} with the highest spend" in said
    assert ("whether one row was among the data" in said) is (unit == "row")
    assert ("whether one person took part" in said) is (unit == "person")


@pytest.mark.filterwarnings("ignore::understudy.ground.errors.UtilityWarning")
def test_the_command_takes_declared_kinds_as_python_does(
    understudy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    events(people=1_000_000).rename(columns={"days": "days=at most"}).to_csv(
        "stays.csv", index=False
    )
    begun = (
        "synthesize",
        "stays.csv",
        "--epsilon",
        1,
        "--rows-are-people",
        "--out",
        "run",
    )
    for bad in ("ward", "=integer", "ward="):
        code, _, err = understudy(*begun, "--kind", bad)
        assert code == 1
        assert "NAME=KIND" in err
    code, _, err = understudy(*begun, "--kind", "ward=colour")
    assert code == 1
    assert "kind of ward" in err
    assert not list(tmp_path.rglob("*.ledger"))
    code, _, err = understudy(
        *begun, "--kind", "ward=categorical", "--kind", "days=at most=integer"
    )
    assert code == 0, err
    assert pd.read_parquet("run/synthetic.parquet").columns.tolist() == [
        "ward",
        "days=at most",
    ]
