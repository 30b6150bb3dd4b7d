"""A whole `gram` run of Adult over two holders, with a wide-area line between each of
them and the hub.

    DATA=<folder with adult.csv.gz> python benchmarks/network/wide_area.py [--out wide_area.csv] [--lines 0 50]

Hub and holders are processes of their own; each holder reaches the hub by a relay
(`relay.py`): 25 ms each way, a round trip of 50 ms, and 100 Mbit/s each way. The income
and half of the columns are with one holder, the rest with the other; levels are bought,
and the income is the target, so that there are three releases. Seconds are by the
clock, at the hub: `alignment_s` of all asks of the alignment, `asks_s` of all others,
`fit_s` of what the hub computes alone (`hub_cpu_s` is the processor's time for all that
it does). `round_trips` are the other asks, one after the other. A line of 0 ms is the
loopback itself. QUICK=1 takes few made-up people and a fast fit, and writes nothing
unless told to.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import pandas as pd
import torch

from common.options import options, quick
from common.public_tables import load
from common.rows import read, said, write
from network.bench import asked
from network.relay import relay
from understudy.data.column import Binned
from understudy.data.samples import toy
from understudy.data.schema import Schema
from understudy.data.table import read_table
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core.base import Ask, Party
from understudy.protocols.gram import protocol as gram
from understudy.runtime.contract import Contract, Policy, digest_of
from understudy.runtime.grpc.party import join
from understudy.runtime.grpc.server import GrpcParties
from understudy.runtime.identity import Authority, Invitation, load_server
from understudy.runtime.session import Participant

QUICK = quick()
RATE = 100e6 / 8  # bytes a second, each way
LINES = (0.0, 50.0)  # round trips in ms
BUDGET = Budget(1.0, 1e-6)
FIELDS = [
    "line_ms",
    "mbit_s",
    "people",
    "columns",
    "alignment_s",
    "asks_s",
    "round_trips",
    "fit_s",
    "after_s",
    "hub_cpu_s",
    "up_mb",
    "down_mb",
]


def holdings(
    data: Path,
) -> tuple[dict[str, pd.DataFrame], dict[str, Schema], gram.Config]:
    """Both holders' tables and schemas, without declared bins, and the settings."""
    if QUICK:
        frame, schema = toy(rows=200, seed=1)
        config = gram.Config(
            target=schema.names[0], components=8, steps=10, device="cpu"
        )
    else:
        public = load("adult", data)
        frame = pd.concat([public.train, public.test], ignore_index=True)
        frame.insert(0, "id", range(len(frame)))
        schema = replace(public.schema, person="id")
        config = gram.Config(target="income", device="cpu")
    columns = tuple(
        replace(c, bins=None) if isinstance(c, Binned) else c for c in schema.columns
    )
    schema = replace(schema, columns=columns)
    parts = {"clinic": schema.names[::2], "insurer": schema.names[1::2]}
    tables = {name: frame[["id", *part]] for name, part in parts.items()}
    return tables, {name: schema.select(part) for name, part in parts.items()}, config


class Clocked:
    """Parties, and how long they were asked, by whether that was for the alignment."""

    def __init__(self, parties: Any) -> None:
        self.parties = parties
        self.names = parties.names
        self.seconds = {"alignment": 0.0, "other": 0.0}
        self.asks = {"alignment": 0, "other": 0}

    def ask(self, message: Ask | Mapping[str, Ask], **more: Any) -> dict[str, Any]:
        one = next(iter(message.values())) if isinstance(message, Mapping) else message
        kind = "alignment" if one.kind().startswith("alignment.") else "other"
        begun = time.perf_counter()
        replies: dict[str, Any] = self.parties.ask(message, **more)
        self.seconds[kind] += time.perf_counter() - begun
        self.asks[kind] += 1
        return replies


# Each of these runs in a process of its own.


def serve(
    folder: Path,
    contract: Contract,
    schemas: Mapping[str, Schema],
    config: gram.Config,
    tell: Callable[[Any], None],
) -> None:
    """The hub."""
    kinds = gram.PROTOCOL.messages
    with GrpcParties(
        contract, load_server(folder), kinds=kinds, listen="127.0.0.1:0"
    ) as parties:
        tell(parties.port)
        parties.wait(600)
        clocked = Clocked(parties)
        begun = time.perf_counter()
        worked = time.process_time()
        outcome = gram.train(config, clocked, schemas)
        whole = time.perf_counter() - begun
        lines = parties.transcript.lines.values()
        figures = {
            "people": outcome.people,
            "alignment_s": clocked.seconds["alignment"],
            "asks_s": clocked.seconds["other"],
            "round_trips": clocked.asks["other"],
            "fit_s": whole - sum(clocked.seconds.values()),
            "after_s": whole - clocked.seconds["alignment"],
            "hub_cpu_s": time.process_time() - worked,
            "up_mb": sum(line.up_bytes for line in lines) / 1e6,
            "down_mb": sum(line.down_bytes for line in lines) / 1e6,
        }
    tell({key: round(value, 1) for key, value in figures.items()})


def take_part(
    folder: Path, name: str, table: pd.DataFrame, schema: Schema, port: int, line: float
) -> None:
    """A holder, behind its line."""
    rows = read_table(table, schema, name)
    policy = Policy(
        protocols=("gram",),
        epsilon_run=9,
        epsilon_total=9,
        delta=1e-5,
        people=1,
        accept="always",
    )

    def build(contract: Contract, ledger: Ledger, place: Path) -> Party:
        return gram.PROTOCOL.build(
            name, rows, ledger, run=contract.run, budget=BUDGET, folder=place
        )

    participant = Participant(
        invitation=Invitation.load(folder / "invitations" / f"{name}.toml"),
        policy=policy,
        people=1000,
        build=build,
        ledger=Ledger.rehearsal(name, Budget(9.0, 1e-5)),
        description=schema,
        folder=folder / "journal" / name,
    )
    if not line:
        join(participant, address=f"127.0.0.1:{port}", pause=0.05)
        return

    async def behind() -> None:
        loop = asyncio.get_running_loop()
        where: asyncio.Future[int] = loop.create_future()
        over = asyncio.Event()
        carrying = asyncio.create_task(
            relay(
                port,
                delay=line / 2000,
                rate=RATE,
                ready=where.set_result,
                over=over.wait(),
            )
        )
        near = await where
        await asyncio.to_thread(
            join, participant, address=f"127.0.0.1:{near}", pause=0.05
        )
        over.set()
        await carrying

    asyncio.run(behind())


def measure(line: float, data: Path) -> dict[str, Any]:
    """One run over such a line."""
    tables, schemas, config = holdings(data)
    names = list(tables)
    home = Path(tempfile.mkdtemp())
    try:
        authority = Authority.create(
            home / "federation", name="bench", address="127.0.0.1:1"
        )
        for name in names:
            authority.issue(name).save(
                authority.folder / "invitations" / f"{name}.toml"
            )
        contract = Contract(
            federation="bench",
            run="bench",
            protocol="gram",
            settings=asdict(config),
            budgets=dict.fromkeys(names, BUDGET),
            schemas={name: digest_of(schema) for name, schema in schemas.items()},
        )
        figures = asked(
            lambda tell: serve(authority.folder, contract, schemas, config, tell),
            [
                lambda port, name=name: take_part(
                    authority.folder, name, tables[name], schemas[name], port, line
                )
                for name in names
            ],
        )
    finally:
        shutil.rmtree(home, ignore_errors=True)
    columns = sum(len(schema.columns) for schema in schemas.values())
    return {
        "line_ms": line,
        "mbit_s": 8e-6 * RATE if line else "",
        "columns": columns,
    } | figures


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "wide_area.csv", data=True)
    parser.add_argument(
        "--lines", type=float, nargs="*", default=list(LINES), help="round trips, in ms"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(1)
    rows = read(args.out)
    for line in args.lines:
        if line not in {float(row["line_ms"]) for row in rows}:
            rows.append(measure(line, args.data))
            print(said(rows[-1]), flush=True)
            write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()
