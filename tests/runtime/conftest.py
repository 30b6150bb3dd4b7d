"""A desk with the files of a server and two holders."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli_w
from desk import COLUMNS, POLICY, Desk

from forker import Forker
from understudy.data.samples import overlap_people, toy


@pytest.fixture
def desk(tmp_path: Path, forker: Forker) -> Iterator[Desk]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    frame, schema = toy(rows=80, seed=1)
    rows = overlap_people(frame, "id", {"clinic": 0.9, "insurer": 0.9}, seed=2)
    parties = {}
    for name, columns in COLUMNS.items():
        frame.loc[rows[name], ["id", *columns]].to_csv(
            tmp_path / f"{name}.csv", index=False
        )
        schema.select(columns).save(tmp_path / f"{name}-schema.toml")
        parties[name] = {"schema": f"{name}-schema.toml", "epsilon": 3.0, "delta": 1e-4}
    settings = {
        "rounds": 3,
        "critic_steps": 2,
        "batch": 16,
        "checkpoint_every": 1,
        "device": "cpu",
    }
    body = {
        "protocol": "verti-gan",
        "out": "joint",
        "rows": 50,
        "settings": settings,
        "parties": parties,
    }
    (tmp_path / "run.toml").write_text(tomli_w.dumps(body))
    (tmp_path / "policy.toml").write_text(tomli_w.dumps(POLICY))
    desk = Desk(tmp_path, forker, port)
    yield desk
    for file in tmp_path.glob("*/status.json"):  # what a failed test left running
        state = json.loads(file.read_text())
        if state["state"] not in (
            "done",
            "stopped",
            "failed",
        ):
            try:
                os.kill(state["process"], signal.SIGKILL)
            except ProcessLookupError:
                continue
