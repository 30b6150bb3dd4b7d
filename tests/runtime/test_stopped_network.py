"""Ctrl-C at a holder and at the server, in the middle of a release: processes of their
own, stopped by real signals, that go on with the same command and release what an
undisturbed run releases.
"""

import os
import signal
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w
import torch
from desk import COLUMNS, Desk

from understudy.api.train import train
from understudy.data.schema import Schema
from understudy.generators.generator import Generator
from understudy.ground.pack import unpack
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.runs.federation import Federation

# where a holder multiplies a chunk of its people
SWAP = "understudy.protocols.joint.party:JointParty._swap"
# at this price σ is 0.05: whole noise is 0 but once in e^200, so what is released is
# what was counted
BUDGET = Budget(1e4, 1e-4)
SETTINGS: Mapping[str, Any] = {
    "chunk": 16,
    "fine": 0,
    "components": 2,
    "steps": 2,
    "device": "cpu",
}


def prepare(desk: Desk) -> None:
    """A run of two holders of different columns of 64 people, in four chunks."""
    body = tomllib.loads((desk.folder / "run.toml").read_text())
    body |= {"protocol": "gram", "settings": dict(SETTINGS)}
    for party in body["parties"].values():
        party |= {"epsilon": BUDGET.epsilon, "delta": BUDGET.delta}
    (desk.folder / "run.toml").write_text(tomli_w.dumps(body))
    limits = {"epsilon_run": BUDGET.epsilon, "epsilon_total": BUDGET.epsilon}
    desk.change("policy.toml", protocols=["gram"], **limits)
    desk.found()


def undisturbed(desk: Desk, folder: Path) -> tuple[Federation, Generator]:
    """The same run, by plain calls."""
    tables = {name: pd.read_csv(desk.folder / f"{name}.csv") for name in COLUMNS}
    schemas = {
        name: Schema.load(desk.folder / f"{name}-schema.toml") for name in COLUMNS
    }
    federation = Federation.rehearsal(tables, schemas, budget=BUDGET, seed=3)
    result = train("gram", federation, folder=folder, run="r", **SETTINGS)
    return federation, result.generator


def sums_in(checkpoint: Path) -> dict[str, torch.Tensor]:
    record: Any = unpack((checkpoint / "released.safetensors").read_bytes())
    assert (record["ended"], record["gone"]) == ("", [])
    return dict(record["sums"]["pairs"])


def charges(ledger: Ledger) -> list[tuple[str, int]]:
    return [(one.event, one.count) for one in ledger.entries() if one.count]


def test_a_holder_and_a_server_that_are_stopped_in_a_release_end_it_as_if_nobody_was(
    desk: Desk,
) -> None:
    prepare(desk)
    checkpoint = desk.folder / "joint" / "checkpoint"
    stopped = checkpoint / "stopped.safetensors"
    clinic = desk.join("clinic", hold=SWAP)
    insurer = desk.join("insurer")
    server = desk.serve()

    clinic.holds()  # in the first chunk
    os.kill(clinic.process, signal.SIGINT)
    clinic.go_on()
    assert clinic.end() == 130, clinic.err
    assert "Stopped. The same command resumes the run" in clinic.err
    assert not stopped.exists(), "the server waits"
    clinic = desk.join("clinic", hold=SWAP)
    clinic.says("whose contract was signed before")

    clinic.holds()  # in a chunk, once more
    os.kill(server.process, signal.SIGINT)
    server.says("Stopping after this step, so that the run can be resumed.")
    assert not stopped.exists(), "it stopped before all had answered"
    clinic.go_on()
    assert server.end() == 130, server.err
    assert "What was finished is saved; the parties wait." in server.err
    position: Any = unpack(stopped.read_bytes())
    assert 1 <= position["stage"]["chunks"] < 4, "it did not stop after the chunk"
    assert not (checkpoint / "released.safetensors").exists()
    for name in COLUMNS:
        with Ledger(desk.folder / name / f"{name}.ledger") as ledger:
            assert not charges(ledger), "nothing was released yet"

    server = desk.serve()
    server.says("Resuming the run")
    for terminal in (server, clinic, insurer):
        assert terminal.end() == 0, terminal.err
    assert not stopped.exists()
    federation, generator = undisturbed(desk, desk.folder / "plain")
    expected = sums_in(desk.folder / "plain" / "checkpoint")
    sums = sums_in(checkpoint)
    assert sums.keys() == expected.keys()
    for name, counts in expected.items():
        torch.testing.assert_close(sums[name], counts, rtol=0, atol=0)
    for name in COLUMNS:
        with Ledger(desk.folder / name / f"{name}.ledger") as ledger:
            assert charges(ledger) == charges(federation.holders[name].ledger)
    made = Generator.load(desk.folder / "joint").sample(40, seed=1)
    pd.testing.assert_frame_equal(made, generator.sample(40, seed=1))
