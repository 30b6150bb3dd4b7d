"""The pictures of docs/design.md are those that their script draws, and a run goes as
they show it.
"""

import runpy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import understudy as us
from understudy.data.column import Boolean, Integer
from understudy.data.schema import Schema

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def drawn() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "diagrams.py"))


@pytest.mark.parametrize("name", ["architecture", "gram_run"])
def test_the_pictures_are_what_the_script_draws(
    drawn: dict[str, Any], name: str
) -> None:
    assert (DOCS / f"{name}.svg").read_text() == drawn[name](), "make diagrams"


def test_a_run_asks_and_charges_as_the_picture_shows(
    drawn: dict[str, Any], tmp_path: Path
) -> None:
    people = [f"p{n}" for n in range(60)]
    tables = {
        "clinic": pd.DataFrame({"id": people, "age": [n + 20 for n in range(60)]}),
        "insurer": pd.DataFrame(
            {"id": people, "smoker": [n % 3 == 0 for n in range(60)]}
        ),
    }
    schemas = {
        "clinic": Schema(columns=(Integer(name="age", low=0, high=99),), person="id"),
        "insurer": Schema(columns=(Boolean(name="smoker"),), person="id"),
    }
    federation = us.Federation(
        tables, schemas, budget=us.Budget(epsilon=2, delta=1e-5), ledgers=tmp_path
    )
    result = us.train("gram", federation, components=8, steps=5, device="cpu")
    asked = [
        row
        for row in result.transcript.rows(result.privacy)
        if row["party"] == "clinic"
    ]
    steps = drawn["STEPS"]
    # a transcript has a row for each kind of ask
    shown = {ask: "charged" in entry for ask, *_, entry in steps}
    assert {row["ask"]: bool(row["paid"]) for row in asked} == shown
    assert [row["ask"] for row in asked] == [*shown]
    with us.Ledger(tmp_path / "clinic.ledger") as ledger:
        entries = [entry for entry in ledger.entries() if entry.run]
    assert len(entries) == sum(bool(entry) for *_, entry in steps)
