"""What people see at three terminals: a server's and two holders'. Every command is a
process of its own.
"""

import json
import os
import re
import signal
import socket
import stat
import tomllib

import numpy as np
import pandas as pd
import pytest
import tomli_w
from desk import COLUMNS, SAVE, Desk

from forker import until
from understudy.data.column import Categorical, Integer
from understudy.data.schema import Schema
from understudy.generators.generator import Generator
from understudy.privacy.accounts.ledger import Ledger
from understudy.runs.registry import PROTOCOLS
from understudy.runtime import certificates
from understudy.runtime.identity import Authority, Invitation
from understudy.runtime.journal import verify_log


def test_two_institutions_make_one_table_in_eight_commands(desk: Desk) -> None:
    desk.found()
    # before the server is there: they wait
    holders = {name: desk.join(name) for name in COLUMNS}
    holders["clinic"].says("nothing listens there")
    server = desk.serve()
    assert server.end() == 0, server.err
    for name, holder in holders.items():
        assert holder.end() == 0, holder.err
        assert "The key was made here" in holder.err
        assert "The run is over" in holder.out
        with Ledger(desk.folder / name / f"{name}.ledger") as ledger:
            assert 2.9 < ledger.spent() <= 3.0
        assert verify_log(desk.folder / name / "audit.jsonl") > 5
    assert verify_log(desk.folder / "joint" / "audit.jsonl") > 5
    assert len(Generator.load(desk.folder / "joint").sample(5, seed=1)) == 5
    shown = desk.done("status", "joint")
    assert "done" in shown
    assert "round 3 of 3" in shown
    assert shown.count("3") > 2
    page = desk.done("report", "joint", "--publish")
    assert (desk.folder / "joint" / "report-public.html").exists(), page
    assert "enrolled" in desk.done("federation", "show")
    assert "in all" in desk.done("ledger", "show", "clinic/clinic.ledger")
    assert "is finished" in desk.done("serve", "federation", "run.toml", "--resume")
    assert "another `out`" in desk.fails("serve", "federation", "run.toml")
    for place in ("federation", *COLUMNS, "joint/checkpoint"):
        for path in (desk.folder / place, *(desk.folder / place).rglob("*")):
            kept = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == kept, path


def test_the_party_s_key_is_in_its_home_and_nowhere_else(desk: Desk) -> None:
    desk.found()
    holder = desk.join("clinic")
    server = desk.serve()
    holder.says("Signed the contract")
    mine = Invitation.load(desk.folder / "clinic" / "identity.toml")
    secret = "".join(mine.key.splitlines()[1:-1])
    for file in desk.folder.rglob("*"):
        if file.is_file() and file.name != "identity.toml":
            assert secret not in file.read_bytes().decode(errors="replace").replace(
                "\n", ""
            ), file
    assert (
        mine.invitation
        == Invitation.load(
            desk.folder / "federation/invitations/clinic.toml"
        ).fingerprint
    )
    for terminal in (holder, server):
        terminal.kill()


def test_server_and_holder_that_were_killed_go_on_with_the_same_commands(
    desk: Desk,
) -> None:
    desk.change("run.toml", settings__rounds=8)
    desk.found()
    holders = {name: desk.join(name) for name in COLUMNS}
    server = desk.serve(hold=SAVE)
    server.holds()  # or a fast machine is done before it is looked at
    # a status is written each second
    until(lambda: "training" in desk.done("status", "joint"), 60)
    server.kill()
    holders["clinic"].kill()
    for place in ("joint", "clinic"):
        shown = desk.done("status", place)
        assert "silent" in shown
        assert "its process is gone" in shown
        for word in ("training", "computing", "connected"):
            assert word not in shown.replace("not connected", "")
    holders["clinic"] = desk.join("clinic")
    server = desk.serve()
    server.says("Resuming the run")
    assert server.end() == 0, server.err
    for name, holder in holders.items():
        assert holder.end() == 0, holder.err
        with Ledger(desk.folder / name / f"{name}.ledger") as ledger:
            assert 2.9 < ledger.spent() <= 3.0
    # nothing was paid twice
    assert Generator.load(desk.folder / "joint").card["rounds"] == 8


def test_a_contract_waits_for_the_holder_where_the_policy_says_ask(desk: Desk) -> None:
    desk.found()
    desk.change("policy.toml", accept="ask")
    holders = {name: desk.join(name) for name in COLUMNS}
    server = desk.serve()
    holders["clinic"].says("Decide with `understudy approve HOME`")
    assert "at most ε=3 at δ=0.0001" in holders["clinic"].err
    assert "Accepted." in desk.done("approve", "clinic", "--yes")
    holders["clinic"].says("Signed")
    holders["insurer"].says("Decide with")
    (waits,) = (file.stem for file in (desk.folder / "insurer" / "waiting").iterdir())
    assert "does not wait" in desk.fails(
        "approve", "insurer", "--refuse", "--contract", "0" * 64
    )
    assert "Refused." in desk.done(
        "approve", "insurer", "--refuse", "--contract", waits
    )
    assert holders["insurer"].end() == 1
    assert server.end() == 1
    assert "insurer: its holder has not accepted" in server.err
    assert "No contract waits" in desk.done("approve", "clinic")
    assert holders["clinic"].end() == 1
    assert "is off: insurer: its holder has not accepted" in " ".join(
        holders["clinic"].err.split()
    )


def test_a_stopped_server_says_how_to_go_on_and_its_parties_wait(desk: Desk) -> None:
    desk.found()
    holder = desk.join("clinic")
    server = desk.serve()
    holder.says("Signed the contract")
    os.kill(server.process, signal.SIGTERM)
    assert server.end() == 130
    assert "The same command resumes it." in server.err
    holder.says("No connection")
    assert (
        json.loads((desk.folder / "joint" / "status.json").read_text())["state"]
        == "stopped"
    )
    holder.kill()


def test_a_status_has_words_and_no_markup(desk: Desk) -> None:
    desk.found()
    server = desk.serve()
    server.says("to sign")
    shown = desk.done("status", "joint")
    assert re.search(r"clinic +away ", shown), shown
    assert "[" not in shown
    server.kill()


def test_a_second_server_on_a_run_that_is_served_is_refused(desk: Desk) -> None:
    desk.found()
    server = desk.serve()
    server.says("to sign")
    assert "another `understudy serve` is at work" in desk.fails(
        "serve", "federation", "run.toml"
    )
    server.kill()


# Errors that a person will meet, each with what to do next


def test_a_taken_port_is_named(desk: Desk) -> None:
    desk.found()
    with socket.create_server(("127.0.0.1", desk.port)):
        words = desk.fails("serve", "federation", "run.toml")
    assert "the port is taken. Is another `understudy serve` running?" in words
    # the folder stays free
    assert not (desk.folder / "joint" / "contract.json").exists()


def test_an_expired_certificate_and_a_wrong_clock_are_told_before_anything_is_dialled(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.found()
    authority = Authority(desk.folder / "federation")
    monkeypatch.setattr(certificates, "SKEW", certificates.timedelta(days=-2))
    authority.issue("clinic").save(desk.folder / "federation/invitations/clinic.toml")
    holder = desk.join("clinic")
    assert holder.end() == 1
    assert "begins on" in holder.err
    assert "If the clock is wrong, set it" in holder.err
    monkeypatch.setattr(certificates, "SKEW", certificates.timedelta(days=9))
    authority.renew_server(days=-1)  # ended yesterday
    assert "federation renew --server" in desk.fails("serve", "federation", "run.toml")
    desk.done("federation", "renew", "--server")
    desk.done("federation", "renew", "clinic")
    server = desk.serve()
    holder = desk.join("clinic")
    holder.says("Signed the contract")
    for terminal in (server, holder):
        terminal.kill()


def test_a_price_above_the_policy_is_told_at_both_ends(desk: Desk) -> None:
    desk.found()
    desk.change("policy.toml", epsilon_run=1.0)
    holder = desk.join("clinic")
    server = desk.serve("--linger", 86_400)
    server.says("failed at port")
    os.kill(server.process, signal.SIGINT)  # it would wait for the insurer, to tell it
    for terminal in (holder, server):
        assert terminal.end() == 1
        words = " ".join(terminal.err.split())
        assert (
            "clinic refuses the contract: ε=3 is above the ε=1 that one run may cost"
            in words
        )
        assert (
            "Lower `epsilon` of clinic in the run file, or have its holder raise "
            "`epsilon_run`"
        ) in words
    with Ledger(desk.folder / "clinic" / "clinic.ledger") as ledger:
        assert not ledger.runs()


def test_a_schema_that_differs_by_one_column_is_told_by_its_name(desk: Desk) -> None:
    desk.found()
    body = tomllib.loads((desk.folder / "clinic-schema.toml").read_text())
    (desk.folder / "other.toml").write_text(
        (desk.folder / "clinic-schema.toml").read_text()
    )
    body["columns"]["age"]["high"] += 1
    (desk.folder / "clinic-schema.toml").write_text(tomli_w.dumps(body))
    holder = desk.join("clinic", schema="other.toml")
    server = desk.serve("--linger", 0)
    for terminal in (holder, server):
        assert terminal.end() == 1
        words = " ".join(terminal.err.split())
        assert (
            "its copy of this party's schema is another: column 'age' differs" in words
        )
        assert "the same schema file" in words


def test_a_revoked_party_is_told_to_ask_for_a_new_invitation(desk: Desk) -> None:
    desk.found()
    holder = desk.join("clinic")
    server = desk.serve()
    holder.says("Signed")
    desk.done("federation", "revoke", "clinic")
    holder.kill()
    holder = desk.join("clinic")
    assert holder.end() == 1
    assert (
        "the certificate was revoked). Ask its operator for a new invitation"
        in " ".join(holder.err.split())
    )
    server.kill()


def test_a_stolen_invitation_shows(desk: Desk) -> None:
    """Somebody else was first; the party is refused, and knows it."""
    desk.found()
    server = desk.serve()
    thief = desk.join("clinic", home="elsewhere")
    thief.says("The key was made here")
    holder = desk.join("clinic")
    assert holder.end() == 1
    assert "exchanged already" in holder.err
    for terminal in (thief, server):
        terminal.kill()


def test_files_that_cannot_be_used_are_named(desk: Desk) -> None:
    assert "federation init" in desk.fails("serve", "federation", "run.toml")
    desk.found()
    assert "renew clinic" in desk.fails("federation", "invite", "clinic")
    desk.change("run.toml", parties__clinic__table="clinic.csv")
    assert "is for its holder to say when it joins" in desk.fails(
        "serve", "federation", "run.toml"
    )
    first = desk.join("clinic")
    until(lambda: (desk.folder / "clinic" / ".lock").exists(), 120)
    second = desk.join("clinic")
    assert second.end() == 1
    assert "another `understudy join`" in second.err
    first.kill()
    assert "has no status" in desk.fails("status", "federation")


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_server_knows_the_messages_of_every_protocol(name: str) -> None:
    assert {"run.keep", "run.settled"} < {
        kind.kind() for kind in PROTOCOLS[name].messages
    }


def test_where_no_schema_names_a_person_every_sentence_says_each_row(
    desk: Desk,
) -> None:
    names = ("north", "south")
    columns = (
        Integer(name="age", low=0, high=99, bins=5),
        Categorical(name="ward", categories=("a", "b")),
    )
    rng = np.random.default_rng(5)
    for name in names:
        frame = pd.DataFrame(
            {"age": rng.integers(0, 100, 400), "ward": rng.choice(["a", "b"], 400)}
        )
        frame.to_csv(desk.folder / f"{name}.csv", index=False)
        Schema(columns=columns).save(desk.folder / f"{name}-schema.toml")
    run = {
        "protocol": "gram",
        "out": "joint",
        "rows": 20,
        "settings": {"components": 2, "steps": 2, "device": "cpu"},
        "parties": {
            name: {"schema": f"{name}-schema.toml", "epsilon": 2.0, "delta": 1e-4}
            for name in names
        },
    }
    (desk.folder / "run.toml").write_text(tomli_w.dumps(run))
    desk.change(
        "policy.toml", protocols=["gram"], partners=[*names], accept="ask", people=2
    )
    desk.found(*names)
    holders = {name: desk.join(name) for name in names}
    server = desk.serve()
    for name, holder in holders.items():
        holder.says("Decide with `understudy approve")
        contract = " ".join(holder.err.split())
        assert "each row" in contract
        assert "each person" not in contract
        desk.done("approve", name, "--yes")
    assert server.end() == 0, server.err
    for name, holder in holders.items():
        assert holder.end() == 0, holder.err
        shown = desk.done("ledger", "show", f"{name}/{name}.ledger")
        assert "row" in shown
        assert "a person" not in shown
    privacy = json.loads((desk.folder / "joint" / "privacy.json").read_text())
    assert privacy["adjacency"] == "add or remove one row; a person may have several"
    desk.done("report", "joint", "--publish")
    page = (desk.folder / "joint" / "report-public.html").read_text()
    assert "each row and not each person" in page
