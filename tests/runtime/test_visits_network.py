"""People with many rows, at holders on machines of their own: every command is a
process of its own.
"""

import pandas as pd
import tomli_w
from desk import POLICY, Desk

from understudy.generators.generator import Generator
from understudy.privacy.accounts.ledger import Ledger
from visit_cases import beside_visits, clinic, frames, split_rows


def two_clinics(desk: Desk) -> None:
    """The files of two holders, and a run file without any table."""
    who, events = frames(80)
    parties = {}
    for number, name in enumerate(("clinic", "insurer")):
        home = desk.folder / f"{name}-tables"
        home.mkdir()
        who[who["patient"] % 2 == number].to_csv(home / "people.csv", index=False)
        events[events["patient"] % 2 == number].to_parquet(
            home / "events.parquet", index=False
        )
        clinic().save(desk.folder / f"{name}-schema.toml")
        parties[name] = {"schema": f"{name}-schema.toml", "epsilon": 3.0, "delta": 1e-4}
    settings = {"kinds": 2, "states": 2, "steps": 5, "device": "cpu"}
    body = {
        "protocol": "visits",
        "out": "joint",
        "rows": 50,
        "settings": settings,
        "parties": parties,
    }
    (desk.folder / "run.toml").write_text(tomli_w.dumps(body))
    (desk.folder / "policy.toml").write_text(
        tomli_w.dumps(POLICY | {"protocols": ["visits"]})
    )


def test_two_clinics_make_two_tables_of_people_with_visits(desk: Desk) -> None:
    two_clinics(desk)
    assert "each of which a person weighs 1" in " ".join(
        desk.done("plan", "run.toml").split()
    )
    desk.found()
    holders = [
        desk.join(name, table=f"{name}-tables") for name in ("clinic", "insurer")
    ]
    server = desk.serve()
    assert server.end() == 0, server.err
    for holder, name in zip(holders, ("clinic", "insurer"), strict=True):
        assert holder.end() == 0, holder.err
        with Ledger(desk.folder / name / f"{name}.ledger") as ledger:
            assert 2.9 < ledger.spent() <= 3.0
    people, events = (
        pd.read_parquet(desk.folder / f"joint/synthetic/{part}.parquet")
        for part in ("people", "events")
    )
    assert len(people) == 50
    assert set(events["patient"]) <= set(people["patient"])
    assert len(Generator.load(desk.folder / "joint").visits(5, seed=1)[0]) == 5
    desk.done("sample", "joint", "-n", "7", "--out", "drawn")
    assert len(pd.read_csv(desk.folder / "drawn" / "people.csv")) == 7
    assert "fits" in desk.done("schema", "check", "drawn", "clinic-schema.toml")
    desk.done("report", "joint", "--publish")
    page = (desk.folder / "joint" / "report-public.html").read_text()
    assert "Synthetic events" in page


def test_a_holder_with_another_bound_on_events_is_told_and_nothing_is_charged(
    desk: Desk,
) -> None:
    two_clinics(desk)
    clinic(most_events=2).save(desk.folder / "other.toml")
    desk.found()
    holder = desk.join("insurer", table="insurer-tables", schema="other.toml")
    server = desk.serve("--linger", 0)  # the other never comes, and need not be told
    for terminal in (holder, server):
        assert terminal.end() == 1
        assert "Both sides need the same schema file" in " ".join(terminal.err.split())
    with Ledger(desk.folder / "insurer" / "insurer.ledger") as ledger:
        assert ledger.spent() == 0


def test_two_clinics_and_a_registry_of_both_ones_people_are_a_grid(desk: Desk) -> None:
    tables, schemas = (
        {name: part[name] for name in ("clinic", "registry")}
        for part in beside_visits(60)
    )
    held, described = split_rows(tables, schemas, clinic=2)
    parties = {}
    for name, rows in held.items():
        described[name].save(desk.folder / f"{name}-schema.toml")
        parties[name] = {"schema": f"{name}-schema.toml", "epsilon": 3.0, "delta": 1e-4}
        if not isinstance(rows, dict):
            rows.to_csv(desk.folder / f"{name}.csv", index=False)
            continue
        (desk.folder / f"{name}.csv").mkdir()
        for part, frame in rows.items():
            frame.to_csv(desk.folder / f"{name}.csv" / f"{part}.csv", index=False)
    settings = {"kinds": 2, "states": 2, "steps": 5, "device": "cpu"}
    body = {
        "protocol": "visits",
        "out": "joint",
        "settings": settings,
        "parties": parties,
    }
    (desk.folder / "run.toml").write_text(tomli_w.dumps(body))
    policy = POLICY | {"protocols": ["visits"], "partners": list(held)}
    (desk.folder / "policy.toml").write_text(tomli_w.dumps(policy))
    assert "some columns of some of the people each" in " ".join(
        desk.done("plan", "run.toml").split()
    )
    desk.found(*held)
    holders = {name: desk.join(name) for name in held}
    server = desk.serve()
    assert server.end() == 0, server.err
    for name, holder in holders.items():
        assert holder.end() == 0, holder.err
        with Ledger(desk.folder / name / f"{name}.ledger") as ledger:
            assert 2.9 < ledger.spent() <= 3.0
            others = ", ".join(other for other in held if other != name)
            (paid,) = [
                entry.description
                for entry in ledger.entries()
                if entry.description.startswith("tables of people")
            ]
            assert f"with {others}; keys" in paid
    generator = Generator.load(desk.folder / "joint")
    assert generator.card["partition"] == "grid"
    people, events = generator.visits(20, seed=1)
    assert list(people.columns) == ["patient", "smoker", "sex"]
    assert set(events["patient"]) <= set(people["patient"])
