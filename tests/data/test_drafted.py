"""A schema that was drafted from rows says so after it is declared public, and how much
of it was edited.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import understudy as us
from understudy.cli import app
from understudy.data.drafted import DRAFTED, provenance
from understudy.data.infer import infer_schema
from understudy.data.schema import Integer, Schema
from understudy.data.visits import VisitSchema
from understudy.evidence.claims import EvidenceError
from understudy.evidence.folder import write_evidence
from understudy.evidence.signing import statement_to_sign

FRAME = pd.DataFrame(
    {
        "age": [int(age) for age in np.random.default_rng(0).integers(19, 87, 400)],
        "ill": [bool(ill) for ill in np.random.default_rng(1).integers(0, 2, 400)],
        "ward": [
            str(ward)
            for ward in np.random.default_rng(2).choice(["north", "south", "west"], 400)
        ],
    }
)


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    _command("schema", "infer", tmp_path / "rows.csv", "--out", tmp_path / "draft.toml")
    return tmp_path / "draft.toml"


def _command(*words: str | Path) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def test_an_unedited_draft_that_is_declared_public_says_that_nothing_was_edited(
    draft: Path,
) -> None:
    _command(
        "schema", "declare", draft, "--because", "admission form", "--by", "A. Officer"
    )
    note = Schema.load(draft).note
    assert note.startswith(DRAFTED)
    assert note.endswith(
        "0 of 3 columns edited, declared public by A. Officer because admission form."
    )


def test_only_domains_that_were_edited_count_as_edited(draft: Path) -> None:
    body = draft.read_text()
    assert "high = 90" in body
    draft.write_text(
        body.replace("high = 90", "high = 120").replace(
            'name = "ill"', 'name = "ill"\nnullable = true'
        )
    )
    _command("schema", "declare", draft, "--because", "the form")
    assert (
        "1 of 3 columns edited, declared public by the holder because the form"
        in Schema.load(draft).note
    )


def test_a_draft_whose_origin_is_changed_by_hand_says_so_and_not_how_many_rows_there_were(
    draft: Path,
) -> None:
    draft.write_text(draft.read_text().replace('origin = "rows"', 'origin = "public"'))
    schema = Schema.load(draft)
    assert schema.note.endswith("0 of 3 columns edited, marked public by hand.")
    assert "400" not in json.dumps(schema.to_dict())


def test_a_draft_made_public_in_python_says_so() -> None:
    public = replace(infer_schema(FRAME), origin="public", note="")
    assert provenance(public) == (public.note.rstrip("."),)
    assert "0 of 3 columns edited, marked public by hand" in public.note


def test_no_mark_of_a_drafted_domain_is_in_a_schema_that_is_public(draft: Path) -> None:
    marks = dict(Schema.load(draft).drafted.marks)  # type: ignore[union-attr]
    assert len(marks) == 3
    _command("schema", "declare", draft, "--because", "the form")
    assert "drafted" not in Schema.load(draft).to_dict()
    assert not any(mark in draft.read_text() for mark in marks.values())


def test_a_draft_of_people_with_events_counts_the_most_events_among_its_bounds(
    tmp_path: Path,
) -> None:
    pd.DataFrame({"id": [1, 2, 3], "ill": [True, False, True]}).to_csv(
        tmp_path / "people.csv", index=False
    )
    events = pd.DataFrame(
        {
            "id": [1, 1, 2],
            "day": ["2024-01-01", "2024-02-01", "2024-03-01"],
            "cost": [1.5, 2.5, 9.5],
        }
    )
    events.to_csv(tmp_path / "events.csv", index=False)
    file = tmp_path / "draft.toml"
    _command(
        "schema",
        "infer",
        tmp_path / "people.csv",
        tmp_path / "events.csv",
        "--person",
        "id",
        "--out",
        file,
    )
    file.write_text(file.read_text().replace("most_events = 2", "most_events = 20"))
    _command("schema", "declare", file, "--because", "the form")
    schema = VisitSchema.load(file)
    assert "1 of 4 columns and bounds edited" in schema.note
    assert provenance(schema) == (schema.note.rstrip("."),)


@pytest.fixture
def run(draft: Path) -> Path:
    home = draft.parent
    _command("schema", "declare", draft, "--because", "admission form")
    us.train(
        "gram",
        us.Federation(
            {"clinic": home / "rows.csv"}, {"clinic": draft}, budget=1.0, ledgers=home
        ),
        steps=20,
    ).save(home / "out")
    with us.Ledger(home / "clinic.ledger") as book:
        (name,) = book.runs()
    (home / "out" / "run.json").write_text(
        json.dumps({"run": name, "rehearsal": False})
    )
    return home


def test_statement_card_checklist_and_registry_say_that_a_schema_was_drafted_from_rows(
    run: Path,
) -> None:
    said = "0 of 3 columns edited, declared public by the holder because admission form"
    folder = write_evidence(run / "out", run / "evidence")
    for name in (
        "privacy.json",
        "generator/card.json",
        "checklist.json",
        "checklist.html",
        "report.html",
    ):
        assert said in (folder / name).read_text(), name
    assert said in " ".join((folder / "deployment.yaml").read_text().split())
    assert "The schema is public" not in (folder / "checklist.json").read_text()


def test_a_statement_without_the_draft_is_not_signed_by_the_holder_whose_schema_it_was(
    run: Path,
) -> None:
    out = run / "out"
    for name in ("privacy.json", "generator/card.json"):
        body = json.loads((out / name).read_text())
        stated = body.get("privacy", body)
        stated["outside"] = [
            text for text in stated["outside"] if "Drafted" not in text
        ]
        (out / name).write_text(json.dumps(body))
    folder = write_evidence(out, run / "evidence")
    with pytest.raises(EvidenceError, match="where its schema comes from"):
        statement_to_sign(folder, ledger=run / "clinic.ledger")


def test_a_schema_that_was_written_by_hand_says_nothing_of_a_draft() -> None:
    assert (
        provenance(
            Schema(columns=(Integer(name="age", low=0, high=9),), note="From the form.")
        )
        == ()
    )
