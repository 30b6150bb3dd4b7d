"""What the same ask costs inside a Flower federation: SuperLink, two SuperNodes, a
process for each message.

    FLOWER/bin/python benchmarks/network/flower_bench.py        # in an environment with understudy[flower]

Starts a SuperLink and two SuperNodes on the loopback, asks both parties for an echo of
0, 1 and 10 MB (`bench.Echo`), and writes the medians into the column `flower_ms` of
ours.csv, at every row with two parties and that payload. `QUICK=1` asks once, for
nothing, and writes only where `--out` says.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import bench
import torch
from bench import COLUMNS, QUICK, SCHEMA, Echo, Echoing

from common.options import options
from common.rows import read, write
from understudy.network.flower import FlowerParties, client_app, server_app
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.runtime.contract import Contract, Policy, digest_of
from understudy.runtime.identity import Authority, Invitation, Roster
from understudy.runtime.session import Participant

NAMES = ["party 0", "party 1"]
PAYLOADS = [0.0] if QUICK else [0.0, 1.0, 10.0]
TURNS = 1 if QUICK else 3
BUNDLE = """
[project]
name = "echo"
version = "1.0.0"
description = "An echo"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "bench"

[tool.flwr.app.components]
serverapp = "flower_bench:server"
clientapp = "flower_bench:client"

[tool.flwr.app.config]
home = "{home}"
"""
LINK = """
[superlink]
default = "here"

[superlink.here]
address = "127.0.0.1:{port}"
insecure = true
"""


@contextmanager
def seat_of(config: Mapping[str, Any]) -> Iterator[Participant]:
    """A party of the echo, as `bench.join_asks` has it."""
    home = Path(str(config["home"]))
    name = str(config["party"])
    budget = Budget(1.0, 1e-6)
    yield Participant(
        invitation=Invitation.load(home / f"{name}.toml"),
        people=4,
        description=SCHEMA,
        folder=home / name,
        policy=Policy(
            protocols=("echo",),
            epsilon_run=1,
            epsilon_total=1,
            delta=1e-6,
            people=1,
            accept="always",
        ),
        ledger=Ledger.rehearsal(name, budget),
        build=lambda contract, ledger, place: Echoing(
            name, ledger, run=contract.run, folder=place
        ),
    )


def serve(grid: Any, config: Mapping[str, Any]) -> None:
    """Ask for each payload, and note how long it took."""
    home = Path(str(config["home"]))
    contract = Contract(
        federation="bench",
        run="bench",
        protocol="echo",
        settings={},
        budgets=dict.fromkeys(NAMES, Budget(1.0, 1e-6)),
        schemas=dict.fromkeys(NAMES, digest_of(SCHEMA)),
    )
    parties = FlowerParties(
        grid,
        contract,
        Roster(home / "federation/federation.toml"),
        kinds=Echoing.messages,
    )
    parties.wait(600)
    times: dict[str, list[float]] = {}
    for payload in PAYLOADS:
        ask = Echo(payload=torch.zeros(int(payload * 1e6 / 4)) if payload else None)
        for _ in range(TURNS):
            start = time.perf_counter()
            parties.ask(ask)
            times.setdefault(str(payload), []).append(time.perf_counter() - start)
    (home / "times.part").write_text(json.dumps(times))
    (home / "times.part").replace(home / "times.json")


client = client_app(seat_of)
server = server_app(serve)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def measure(home: Path, seconds: float) -> dict[str, list[float]]:
    """Seconds of each ask, by payload."""
    authority = Authority.create(
        home / "federation", name="bench", address="127.0.0.1:1"
    )
    for name in NAMES:
        authority.issue(name).save(home / f"{name}.toml")
    port = free_port()
    bundle = home / "bundle"
    bundle.mkdir()
    (bundle / "pyproject.toml").write_text(BUNDLE.format(home=home))
    tools = Path(sys.executable).parent
    here = os.pathsep.join(
        filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH")))
    )
    environment = os.environ | {
        "PYTHONPATH": here,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{tools}:{os.environ['PATH']}",
    }
    running: list[subprocess.Popen[bytes]] = []

    def start(folder: str, *argv: str) -> subprocess.Popen[bytes]:
        place = home / folder
        place.mkdir(exist_ok=True)
        (place / "config.toml").write_text(LINK.format(port=port))
        with (place / "log").open("ab") as log:
            process = subprocess.Popen(
                [tools / argv[0], *argv[1:]],
                env=environment | {"FLWR_HOME": str(place)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        running.append(process)
        return process

    try:
        start(
            "link",
            "flower-superlink",
            "--insecure",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        )
        time.sleep(10)
        for name in NAMES:
            config = f'home="{home}" party="{name}"'
            dial = ("--superlink", f"127.0.0.1:{port}", "--port", str(free_port()))
            start(
                name, "flower-supernode", "--insecure", *dial, "--node-config", config
            )
        time.sleep(5)
        start("link", "flwr", "run", str(bundle), "here").wait(120)
        until = time.monotonic() + seconds
        while not (home / "times.json").exists():
            if time.monotonic() > until:
                logs = "".join(file.read_text()[-2000:] for file in home.glob("*/log"))
                raise SystemExit(f"no figures after {seconds:g} s\n{logs}")
            time.sleep(0.5)
        found: dict[str, list[float]] = json.loads((home / "times.json").read_text())
        return found
    finally:
        for process in running:
            process.terminate()


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "ours.csv")
    parser.add_argument(
        "--seconds", type=float, default=3600.0, help="after which it is given up"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    home = Path(tempfile.mkdtemp())
    try:
        found = {
            float(payload): bench.milliseconds(times)
            for payload, times in measure(home, args.seconds).items()
        }
    finally:
        shutil.rmtree(home, ignore_errors=True)
    for payload, figure in found.items():
        sys.stdout.write(
            f"2 parties, {payload:g} MB: {figure:.0f} ms (median of {TURNS})\n"
        )
    if args.out is not None:
        rows = read(args.out)
        for row in rows:
            if int(row["parties"]) == 2 and float(row["payload_mb"]) in found:
                row["flower_ms"] = found[float(row["payload_mb"])]
        write(args.out, rows, COLUMNS)


if __name__ == "__main__":
    main()
