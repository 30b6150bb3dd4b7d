"""What an ask over the network costs, beside a bare echo over gRPC with mutual TLS.

    raw     the server writes the payload into each party's stream and reads it back: no format, no record
    ask     ours: `GrpcParties.ask` with a tensor of that size each way, checked, decoded and recorded

Every party is a process of its own; all are asked at once. The two take turns, and medians are printed. The
journal of the parties lies on disk, where each answer is synced before it is sent, and then in memory
(`--memory`, a tmpfs), which leaves the sync out. At the end, many empty asks and what they leave behind.
`QUICK=1` takes two parties and small payloads and writes nothing unless told to.
"""

import argparse
import asyncio
import csv
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import torch
from grpc import aio
from torch import Tensor

from understudy.data.samples import toy
from understudy.privacy.budget import Budget
from understudy.privacy.ledger import Ledger
from understudy.protocols.base import Ask, Party, Public, Reply
from understudy.runtime.authority import Authority
from understudy.runtime.contract import Contract, digest_of
from understudy.runtime.grpc.loop import loop, run
from understudy.runtime.grpc.party import join
from understudy.runtime.grpc.server import GrpcParties
from understudy.runtime.identity import SERVER, Invitation, load_server
from understudy.runtime.policy import Policy
from understudy.runtime.session import Seat

QUICK = bool(os.environ.get("QUICK"))
CASES = [(2, 0.0), (2, 1.0)] if QUICK else [(2, 0.0), (2, 1.0), (2, 10.0), (8, 0.0), (8, 1.0), (32, 0.0)]
TURNS = {0.0: 60, 1.0: 20, 10.0: 7}
MANY = 300 if QUICK else 3000
ECHO = "/bench.Echo/Echo"
FREE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
SCHEMA = toy(rows=4, seed=1)[1]


@dataclass(frozen=True, kw_only=True)
class Echo(Ask):
    """Send this back."""

    payload: Tensor | None


@dataclass(frozen=True, kw_only=True)
class Echoed(Reply):
    """What came."""

    payload: Public


class Echoing(Party):
    """Gives back what it is given."""

    messages = (*Party.messages, Echo, Echoed)

    def respond(self, ask: Ask) -> Reply:
        assert isinstance(ask, Echo)
        return Echoed(payload=Public(ask.payload, "the server's own"))


# Each of these runs in a process of its own.


def serve_raw(folder: Path, names: list[str], payload: float, tell: Callable[[Any], None]) -> None:
    """Echo through bare streams."""
    data, identity = bytes(int(payload * 1e6)), load_server(folder)

    async def measure() -> list[float]:
        streams: list[Any] = []
        here, over = asyncio.Event(), asyncio.Event()

        async def handle(_: Any, context: Any) -> None:
            await context.read()
            streams.append(context)
            if len(streams) == len(names):
                here.set()
            await over.wait()

        async def echo(stream: Any) -> None:
            await stream.write(data)
            assert len(await stream.read()) == len(data)

        server = aio.server(options=FREE)
        handler = grpc.stream_stream_rpc_method_handler(handle)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("bench.Echo", {"Echo": handler}),)
        )
        pair = [(identity.key, identity.certificate)]
        credentials = grpc.ssl_server_credentials(pair, identity.authority, require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        tell(port)
        await here.wait()
        times = []
        for _ in range(TURNS[payload] + 2):
            start = time.perf_counter()
            await asyncio.gather(*map(echo, streams))
            times.append(time.perf_counter() - start)
        over.set()
        await server.stop(1)
        return times[2:]

    tell(run(measure()))


def join_raw(folder: Path, name: str, port: int) -> None:
    """The other end of a bare stream."""
    card = Invitation.load(folder / "invitations" / f"{name}.toml")
    credentials = grpc.ssl_channel_credentials(
        card.authority.encode(), card.key.encode(), card.certificate.encode()
    )

    async def echo() -> None:
        options = [*FREE, ("grpc.ssl_target_name_override", SERVER)]
        async with aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options) as channel:
            call = channel.stream_stream(ECHO)()
            await call.write(b"hello")
            while isinstance(data := await call.read(), bytes):
                await call.write(data)

    run(echo())


def serve_asks(folder: Path, names: list[str], payload: float, tell: Callable[[Any], None]) -> None:
    """Ours; for many asks of nothing (payload below zero) what grows instead of how long it takes."""
    budgets = dict.fromkeys(names, Budget(1.0, 1e-6))
    contract = Contract(
        federation="bench", run="bench", protocol="echo", settings={}, budgets=budgets,
        schemas=dict.fromkeys(names, digest_of(SCHEMA)),
    )  # fmt: skip
    tensor = torch.zeros(int(payload * 1e6 / 4)) if payload > 0 else None
    ask = Echo(payload=tensor)
    with GrpcParties(contract, load_server(folder), kinds=Echoing.messages, listen="127.0.0.1:0") as parties:
        tell(parties.port)
        parties.wait(60)
        times: list[float] = []
        seen = []
        for turn in range(MANY if payload < 0 else TURNS[payload] + 2):
            start = time.perf_counter()
            parties.ask(ask)
            times.append(time.perf_counter() - start)
            if turn in (MANY // 3 - 1, MANY - 1):
                seen.append({"rss_mb": resident(), "threads": threading.active_count(), "tasks": tasks()})
    tell(seen if payload < 0 else times[2:])


def join_asks(folder: Path, name: str, port: int, journal: Path) -> None:
    """A party of ours."""
    policy = Policy(
        protocols=("echo",), epsilon_run=1, epsilon_total=1, delta=1e-6, people=1, accept="always"
    )
    seat = Seat(
        invitation=Invitation.load(folder / "invitations" / f"{name}.toml"), policy=policy, people=4,
        ledger=Ledger.rehearsal(name, Budget(1.0, 1e-6)), description=SCHEMA, folder=journal / name,
        build=lambda contract, ledger, place: Echoing(name, ledger, run=contract.run, folder=place),
    )  # fmt: skip
    join(seat, address=f"127.0.0.1:{port}", pause=0.05)


def resident() -> float:
    """MB in memory now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def tasks() -> int:
    return len(asyncio.all_tasks(loop()))


# The parent: it forks and never opens a stream itself, since gRPC does not survive a fork.


def measure(folder: Path, names: list[str], payload: float, journal: Path | None) -> Any:
    """The server's figures: of bare streams, or of asks with the journals in that folder."""
    read, write = os.pipe()

    def tell(value: Any) -> None:
        os.write(write, json.dumps(value).encode() + b"\n")

    serve = serve_raw if journal is None else serve_asks
    children = [fork(lambda: serve(folder, names, payload, tell))]
    os.close(write)
    with os.fdopen(read) as told:
        port = int(told.readline())
        for name in names:
            children.append(
                fork(lambda name=name: join_raw(folder, name, port))
                if journal is None
                else fork(lambda name=name: join_asks(folder, name, port, journal))
            )
        figures = json.loads(told.readline())
    for child in children:
        os.waitpid(child, 0)
    return figures


def fork(work: Callable[[], None]) -> int:
    if (child := os.fork()) == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
    return child


def milliseconds(times: list[float]) -> float:
    return round(1000 * statistics.median(times), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=None if QUICK else Path(__file__).parent / "ours.csv")
    parser.add_argument(
        "--memory", type=Path, default=Path("/dev/shm"), help="a tmpfs; left out if there is none"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    home = Path(tempfile.mkdtemp())
    shelf = Path(tempfile.mkdtemp(dir=args.memory)) if args.memory.is_dir() else None
    try:
        authority = Authority.found(home / "federation", name="bench", address="127.0.0.1:1")
        names = [f"party {number}" for number in range(max(parties for parties, _ in CASES))]
        for name in names:
            authority.issue(name).save(authority.folder / "invitations" / f"{name}.toml")
        places = {"disk": home} | ({"memory": shelf} if shelf is not None else {})
        for parties, payload in CASES:
            raw: list[float] = []
            ours: dict[str, list[float]] = {kind: [] for kind in places}
            for turn in range(1 if QUICK else 2):
                raw += measure(authority.folder, names[:parties], payload, None)
                for kind, place in places.items():
                    journal = place / f"{parties}-{payload}-{turn}"
                    ours[kind] += measure(authority.folder, names[:parties], payload, journal)
                    shutil.rmtree(journal)
            for kind, times in ours.items():
                bare, full = milliseconds(raw), milliseconds(times)
                rows.append(
                    {
                        "parties": parties,
                        "payload_mb": payload,
                        "journal": kind,
                        "raw_grpc_ms": bare,
                        "ask_ms": full,
                    }
                )
                print(rows[-1], f"  {full / bare:.2f} times", flush=True)
        seen = measure(authority.folder, names[:2], -1.0, (shelf or home) / "many")
        print(f"after {MANY // 3:,} and {MANY:,} asks:", *seen)
    finally:
        for place in filter(None, (home, shelf)):
            shutil.rmtree(place, ignore_errors=True)
    if args.out:
        with args.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["parties", "payload_mb", "journal", "raw_grpc_ms", "ask_ms"])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
