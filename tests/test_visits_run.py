"""People with many rows by a run file, in one process: what is written, resumed,
refused and said.
"""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomli_w

import understudy as us
from understudy.api.demo import run_demo
from understudy.api.train import run_file
from understudy.data.kinds import read_rows
from understudy.data.samples import rand_years
from understudy.data.visits import Visits
from understudy.ground.errors import SchemaError
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.visits import fit as visit_fit
from understudy.runs.runfile import RunFile
from visit_cases import beside_visits, clinic, frames, run_file_of

pytestmark = pytest.mark.usefixtures("short_training", "light_masks")
SETTINGS = {"kinds": 2, "states": 2, "steps": 5, "device": "cpu"}


def written(home: Path, events: pd.DataFrame | None = None, **more: Any) -> RunFile:
    """One holder's folder of two tables, and a run file."""
    who, those = frames()
    (home / "tables").mkdir()
    who.to_csv(home / "tables" / "people.csv", index=False)
    (those if events is None else events).to_csv(
        home / "tables" / "events.csv", index=False
    )
    clinic().save(home / "schema.toml")
    party = {
        "table": "tables",
        "schema": "schema.toml",
        "epsilon": 2.0,
        "delta": 1e-5,
        "ledger": "a.ledger",
    } | more
    body = {
        "protocol": "visits",
        "out": "out",
        "rows": 30,
        "settings": SETTINGS,
        "parties": {"a": party},
    }
    (home / "run.toml").write_text(tomli_w.dumps(body))
    return RunFile.load(home / "run.toml")


def test_a_run_file_gives_two_tables_whose_keys_fit(tmp_path: Path) -> None:
    result, out = run_file(written(tmp_path))
    drawn = read_rows(out / "synthetic", clinic())
    assert isinstance(drawn, Visits)
    assert drawn.rows == 30
    assert drawn.numbers.max() <= 3
    with Ledger(tmp_path / "a.ledger") as ledger:
        (entry,) = [entry for entry in ledger.entries() if entry.count]
        assert "tables of people and their events" in entry.description
        assert ledger.spent() <= 2.0
    assert "all their rows" in str(result.privacy)
    page = result.report(tmp_path / "page.html")
    assert "people and their events" in page.read_text()
    assert list(us.load(out).sample(3, seed=1).columns)[:3] == [
        "patient",
        "sex",
        "smoker",
    ]


def test_what_was_paid_for_is_not_paid_again_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = visit_fit.fit_tables
    monkeypatch.setattr(
        visit_fit,
        "fit_tables",
        lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt),
    )
    file = written(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_file(file)
    monkeypatch.setattr(visit_fit, "fit_tables", fit)
    with Ledger(tmp_path / "a.ledger") as ledger:
        spent = ledger.spent()
    run_file(file, resume=True)
    with Ledger(tmp_path / "a.ledger") as ledger:
        assert ledger.spent() == spent > 1.9


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda events: pd.concat([events, events.tail(1).assign(patient=999)]),
            "is nobody",
        ),
        (lambda events: events.head(0), "no rows"),
        (lambda events: events.assign(day="sometime"), "is not a date"),
    ],
)
def test_what_is_refused_costs_nothing_and_leaves_no_ledger(
    tmp_path: Path, spoil: Any, said: str
) -> None:
    file = written(tmp_path, spoil(frames()[1]))
    with pytest.raises(SchemaError, match=said):
        run_file(file)
    assert not (tmp_path / "a.ledger").exists()


def test_a_run_file_over_a_vertical_partition_gives_people_with_the_columns_of_all_holders(
    tmp_path: Path,
) -> None:
    tables, schemas = beside_visits()
    file = run_file_of(tmp_path, tables, schemas, SETTINGS)
    result, out = run_file(RunFile.load(file))
    people = pd.read_parquet(out / "synthetic" / "people.parquet")
    assert list(people.columns) == ["patient", "sex", "smoker", "income"]
    assert len(people) == result.people == 53
    assert "server together with a holder" in str(result.privacy)
    for name in tables:
        with Ledger(tmp_path / "ledgers" / f"{name}.ledger") as ledger:
            assert 1.9 < ledger.spent() <= 2.0


@pytest.mark.long
@pytest.mark.usefixtures("short_training_here")
def test_the_demo_uses_all_years_of_each_person(tmp_path: Path) -> None:
    said: list[str] = []
    folder = run_demo(
        tmp_path / "demo",
        protocol="visits",
        say=said.append,
        kinds=2,
        states=2,
        steps=2,
    )
    text = "\n".join(said)
    assert "2,685 people, 9,493 years" in text
    assert "a year and the next" in text
    assert (folder / "report.html").exists()
    tables, schemas = rand_years(1)
    (held,), (schema,) = tables.values(), schemas.values()
    read = read_rows(held, schema)
    assert isinstance(read, Visits)
    assert (read.rows, len(read.events)) == (5912, 20190)
