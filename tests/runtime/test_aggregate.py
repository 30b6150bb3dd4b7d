"""Two aggregators on machines of their own: a server, a host of people, and a party
without rows.
"""

import json
import re

import pytest
import tomli_w
from desk import Desk

from forker import Terminal
from understudy.data.samples import toy
from understudy.generators.generator import Generator
from understudy.privacy.accounts.ledger import Ledger

PRICE = {"epsilon": 3.0, "delta": 1e-4}


@pytest.fixture
def hub(desk: Desk) -> Desk:
    """The same desk with a host of people, and a second aggregator who has their
    schema.
    """
    frame, schema = toy(rows=60, seed=1)
    frame.to_csv(desk.folder / "host.csv", index=False)
    for name in ("host", "second"):
        schema.save(desk.folder / f"{name}-schema.toml")
    settings = PRICE | {
        "aggregator": "second",
        "min_people": 20,
        "batch": 12,
        "components": 8,
        "steps": 20,
        "device": "cpu",
    }
    parties = {
        name: PRICE | {"schema": f"{name}-schema.toml"} for name in ("host", "second")
    }
    body = {
        "protocol": "two-aggregators",
        "out": "joint",
        "rows": 20,
        "settings": settings,
        "parties": parties,
    }
    (desk.folder / "run.toml").write_text(tomli_w.dumps(body))
    desk.change(
        "policy.toml", protocols=["two-aggregators"], partners=["host", "second"]
    )
    desk.found("host", "second")
    return desk


def aggregate(hub: Desk) -> Terminal:
    invitation = "federation/invitations/second.toml"
    return hub.run(
        "aggregate",
        invitation,
        "--schema",
        "second-schema.toml",
        "--policy",
        "policy.toml",
    )


def test_people_upload_and_neither_aggregator_needs_a_row(hub: Desk) -> None:
    second = aggregate(hub)
    # before there is a run: people can know it by then
    second.says("Key of this aggregator")
    (key,) = re.findall("[0-9a-f]{64}", second.err)
    hub.change("run.toml", settings__key=key)
    host = hub.join("host")
    server = hub.serve()
    for terminal in (server, host, second):
        assert terminal.end() == 0, terminal.err
    for name in ("host", "second"):
        with Ledger(hub.folder / name / f"{name}.ledger") as ledger:
            assert 2.9 < ledger.spent() <= 3.0
    made = Generator.load(hub.folder / "joint")
    assert len(made.sample(5, seed=1)) == 5
    assert (made.card["people"], made.card["refused"]) == (60, 0)
    privacy = json.loads((hub.folder / "joint" / "privacy.json").read_text())
    assert privacy["rehearsal"] is None
    assert ["both aggregators together" in text for text in privacy["unguarded"]] == [
        True
    ]


def test_a_server_and_an_aggregator_that_were_killed_go_on_and_nobody_pays_twice(
    hub: Desk,
) -> None:
    hub.change("run.toml", settings__batch=2)
    second = aggregate(hub)
    host = hub.join("host")
    server = hub.serve()
    second.says("Signed the contract")
    second.kill()
    server.kill()
    second = aggregate(hub)
    server = hub.serve()
    for terminal in (server, host, second):
        assert terminal.end() == 0, terminal.err
    for name in ("host", "second"):
        with Ledger(hub.folder / name / f"{name}.ledger") as ledger:
            assert 2.9 < ledger.spent() <= 3.0
            assert sum(entry.people or 0 for entry in ledger.entries()) == (
                60 if name == "host" else 0
            )
    assert Generator.load(hub.folder / "joint").card["people"] == 60
