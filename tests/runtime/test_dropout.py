"""A holder that goes away for good, and holders of different kinds. Every command is a
process of its own.
"""

import json
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import tomli_w
from desk import COLUMNS, POLICY, SAVE, Desk

from forker import until
from understudy.data.images import ImageSchema
from understudy.data.samples import toy
from understudy.generators.generator import Generator
from understudy.privacy.accounts.ledger import Ledger

SILOS = ("north", "south", "west")


def rows_of_silos(desk: Desk, *, min_holders: int | None) -> None:
    """Three holders of different people, who are asked for twenty reports each."""
    frame, schema = toy(rows=60, seed=1)
    parties = {}
    for number, name in enumerate(SILOS):
        frame.iloc[number::3].to_csv(desk.folder / f"{name}.csv", index=False)
        schema.save(desk.folder / f"{name}-schema.toml")
        parties[name] = {
            "schema": f"{name}-schema.toml",
            "epsilon": 40.0,
            "delta": 1e-4,
        }
    settings = {"epsilon_total": 40.0, "max_reports": 20, "batch": 10}
    settings |= {} if min_holders is None else {"min_holders": min_holders}
    body = {
        "protocol": "lopub",
        "out": "joint",
        "rows": 50,
        "settings": settings,
        "parties": parties,
    }
    (desk.folder / "run.toml").write_text(tomli_w.dumps(body))
    policy = POLICY | {
        "protocols": ["lopub"],
        "epsilon_run": 50.0,
        "epsilon_total": 50.0,
        "people": 2,
    }
    (desk.folder / "policy.toml").write_text(
        tomli_w.dumps({**policy, "partners": list(SILOS)})
    )
    desk.found(*SILOS)


def answered(home: Path) -> int:
    log = home / "audit.jsonl"
    return log.read_text().count('"event": "reply"') if log.exists() else 0


def charges(desk: Desk, name: str) -> list[str]:
    with Ledger(desk.folder / name / f"{name}.ledger") as ledger:
        return [
            entry.description
            for entry in ledger.entries()
            if entry.description.startswith("round ")
        ]


def test_a_run_over_a_horizontal_partition_goes_on_without_a_holder_that_stays_away(
    desk: Desk,
) -> None:
    rows_of_silos(desk, min_holders=2)
    holders = {name: desk.join(name) for name in SILOS}
    server = desk.serve("--away", 0.5)
    until(lambda: answered(desk.folder / "west") >= 6, 240)
    holders["west"].kill()
    assert server.end() == 0, server.err
    for name in ("north", "south"):
        assert holders[name].end() == 0, holders[name].err
        assert len(charges(desk, name)) == 40  # twenty reports of two batches of ten
    gone = Generator.load(desk.folder / "joint").card["gone"]
    assert gone.keys() == {"west"}
    assert 1 <= gone["west"]["rounds"] <= len(charges(desk, "west")) < 40
    assert (
        f"west stayed away: it took part in {gone['west']['rounds']} rounds"
        in server.err
    )
    assert "left out" in desk.done("status", "joint")
    privacy = json.loads((desk.folder / "joint" / "privacy.json").read_text())
    assert [party["name"] for party in privacy["parties"]] == list(SILOS)
    assert any("west" in text for text in privacy["outside"])
    # Its price is not below what its own ledger holds, though nobody could ask it.
    with Ledger(desk.folder / "west" / "west.ledger") as ledger:
        assert privacy["parties"][2]["epsilon"]["server"] >= ledger.spent() - 1e-9
    events = [
        json.loads(line)
        for line in (desk.folder / "joint" / "audit.jsonl").read_text().splitlines()
    ]
    assert [event["party"] for event in events if event["event"] == "left out"] == [
        "west"
    ]


def test_a_holder_that_never_comes_is_not_waited_for_forever(desk: Desk) -> None:
    rows_of_silos(desk, min_holders=2)
    holders = {name: desk.join(name) for name in ("north", "south")}
    for wait in (3, 12, 48, 192):  # on a busy machine the others take their time, too
        server = desk.serve("--away", 0.5, "--wait", wait)
        if server.end() == 0:
            break
        assert "did not join within" in server.err
    assert server.end() == 0, server.err
    for holder in holders.values():
        assert holder.end() == 0, holder.err
    assert Generator.load(desk.folder / "joint").card["gone"]["west"]["rounds"] == 0
    privacy = json.loads((desk.folder / "joint" / "privacy.json").read_text())
    assert [party["name"] for party in privacy["parties"]] == ["north", "south"]


def test_a_run_over_a_vertical_partition_waits_and_stops_and_goes_on_when_the_holder_is_back(
    desk: Desk,
) -> None:
    desk.change("run.toml", settings__rounds=8, settings__checkpoint_every=3)
    desk.found()
    holders = {name: desk.join(name) for name in COLUMNS}
    server = desk.serve("--away", 0.5, hold=SAVE)
    server.holds()
    holders["insurer"].kill()
    server.go_on()  # it saves, and asks for the next round, which the other answers
    assert server.end() == 1
    said = " ".join(server.err.split())
    assert "insurer is not connected for 0.5 s" in said
    assert (
        "What was finished is saved; the parties wait. When it is back, the same "
        "command resumes it"
    ) in said
    shown = desk.done("status", "joint")
    assert "failed" in shown
    assert "insurer is not connected" in shown
    holders["insurer"] = desk.join("insurer")
    server = desk.serve()
    assert server.end() == 0, server.err
    for name, holder in holders.items():
        assert holder.end() == 0, holder.err
        with Ledger(desk.folder / name / f"{name}.ledger") as ledger:
            assert 2.9 < ledger.spent() <= 3.0  # nothing was paid twice
    assert Generator.load(desk.folder / "joint").card["rounds"] == 8


def test_a_holder_that_goes_away_between_two_releases_leaves_the_first(
    desk: Desk,
) -> None:
    body = tomllib.loads((desk.folder / "run.toml").read_text())
    settings = {"remeasured_pairs": 4, "components": 64, "steps": 200, "device": "cpu"}
    (desk.folder / "run.toml").write_text(
        tomli_w.dumps(body | {"protocol": "gram", "settings": settings})
    )
    desk.change("policy.toml", protocols=["gram"])
    desk.found()
    holders = {name: desk.join(name) for name in COLUMNS}
    server = desk.serve(
        "--away", 0.5, hold="understudy.protocols.gram.fit:strongest_pairs"
    )
    server.holds()  # where it looks for the pairs that it will ask for again
    assert (desk.folder / "joint" / "checkpoint" / "released.safetensors").exists()
    holders["insurer"].kill()
    server.go_on()
    assert server.end() == 0, server.err
    assert holders["clinic"].end() == 0, holders["clinic"].err
    generator = Generator.load(desk.folder / "joint")
    assert generator.card["ended"] == "after 1 of 2 releases: insurer went away"
    assert len(generator.sample(5, seed=1)) == 5
    assert "release 2 of 2" in (desk.folder / "joint" / "privacy.json").read_text()
    for name in COLUMNS:
        with Ledger(desk.folder / name / f"{name}.ledger") as ledger:
            assert 0 < ledger.spent() < 3.0, (
                "the first release, and the run's price is not used up"
            )


def test_a_holder_of_a_table_and_one_of_images_train_one_generator(desk: Desk) -> None:
    people = pd.read_csv(desk.folder / "insurer.csv")["id"].to_numpy()
    pixels = np.random.default_rng(1).integers(
        0, 256, (len(people), 8, 8), dtype=np.uint8
    )
    np.savez(desk.folder / "scans.npz", images=pixels, id=people)
    ImageSchema(height=8, width=8, person="id").save(
        desk.folder / "insurer-schema.toml"
    )
    desk.found()
    holders = {
        "clinic": desk.join("clinic"),
        "insurer": desk.join("insurer", table="scans.npz"),
    }
    server = desk.serve()
    assert server.end() == 0, server.err
    for holder in holders.values():
        assert holder.end() == 0, holder.err
    generator = Generator.load(desk.folder / "joint")
    parts = generator.parts(5, seed=1)
    assert np.asarray(parts["insurer"]).shape == (5, 8, 8)
    assert list(parts["clinic"].columns) == COLUMNS["clinic"]
