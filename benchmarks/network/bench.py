"""What an ask over the network costs, beside a bare echo over gRPC with mutual TLS.

    raw     the server writes the payload into each party's stream and reads it back: no
            format, no record
    ask     ours: `GrpcParties.ask` with a tensor of that size each way, checked,
            decoded and recorded

Every party is a process of its own; all are asked at once. The two take turns, and
medians are printed. The journal of the parties lies on disk, where each answer is
synced before it is sent, and then in memory (`--memory`, a tmpfs), which leaves the
sync out. Then many empty asks and what they leave behind, and a whole VertiGAN in one
process and over the loopback. `QUICK=1` takes two parties, small payloads and few
rounds, and writes nothing unless told to. What is finished stands in the CSV and is not
measured again; `--only many` or `--only 2x10` picks.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import grpc
import torch
from grpc import aio
from torch import Tensor

from common.options import options, quick
from common.rows import read, write
from understudy.data.samples import rand_health, toy
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core.base import Ask, Party, Public, Reply
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.runs.federation import Federation
from understudy.runtime.certificates import SERVER
from understudy.runtime.contract import Contract, Policy, digest_of
from understudy.runtime.grpc.frames import loop, run
from understudy.runtime.grpc.party import join
from understudy.runtime.grpc.server import GrpcParties
from understudy.runtime.identity import Authority, Invitation, load_server
from understudy.runtime.local import LocalParties
from understudy.runtime.session import Participant

QUICK = quick()
CASES = (
    [(2, 0.0), (2, 1.0)]
    if QUICK
    else [(2, 0.0), (2, 1.0), (2, 10.0), (8, 0.0), (8, 1.0), (32, 0.0)]
)
COLUMNS = ["parties", "payload_mb", "journal", "raw_grpc_ms", "ask_ms", "flower_ms"]
TURNS = {0.0: 60, 1.0: 20, 10.0: 7}
MANY = 300 if QUICK else 15_000
ROUNDS = 5 if QUICK else 1500
ECHO = "/bench.Echo/Echo"
FREE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
SCHEMA = toy(rows=4, seed=1)[1]


class Echo(Ask, kind="bench.echo"):
    """Send this back."""

    payload: Tensor | None


class Echoed(Reply, kind="bench.echoed"):
    """What came."""

    payload: Public


class Echoing(Party):
    """Gives back what it is given."""

    messages = (*Party.messages, Echo, Echoed)

    def composition(self) -> dict[str, Any]:
        return {}  # nothing is charged

    def respond(self, ask: Ask) -> Reply:
        assert isinstance(ask, Echo)
        return Echoed(payload=Public(ask.payload, "the server's own"))


# Each of these runs in a process of its own.


def serve_raw(
    folder: Path, names: list[str], payload: float, tell: Callable[[Any], None]
) -> None:
    """Echo through bare streams."""
    data = bytes(int(payload * 1e6))
    identity = load_server(folder)

    async def measure() -> list[float]:
        streams: list[Any] = []
        here = asyncio.Event()
        over = asyncio.Event()

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
        credentials = grpc.ssl_server_credentials(
            pair, identity.authority, require_client_auth=True
        )
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
        async with aio.secure_channel(
            f"127.0.0.1:{port}", credentials, options=options
        ) as channel:
            call = channel.stream_stream(ECHO)()
            await call.write(b"hello")
            while isinstance(data := await call.read(), bytes):
                await call.write(data)

    run(echo())


def serve_asks(
    folder: Path, names: list[str], payload: float, tell: Callable[[Any], None]
) -> None:
    """Ours; for many asks of nothing (payload below zero) what grows instead of how
    long it takes.
    """
    budgets = dict.fromkeys(names, Budget(1.0, 1e-6))
    contract = Contract(
        federation="bench",
        run="bench",
        protocol="echo",
        settings={},
        budgets=budgets,
        schemas=dict.fromkeys(names, digest_of(SCHEMA)),
    )
    tensor = torch.zeros(int(payload * 1e6 / 4)) if payload > 0 else None
    ask = Echo(payload=tensor)
    with GrpcParties(
        contract, load_server(folder), kinds=Echoing.messages, listen="127.0.0.1:0"
    ) as parties:
        tell(parties.port)
        parties.wait(60)
        times: list[float] = []
        seen = []
        for turn in range(MANY if payload < 0 else TURNS[payload] + 2):
            start = time.perf_counter()
            parties.ask(ask)
            times.append(time.perf_counter() - start)
            if turn in (MANY // 3 - 1, MANY - 1):
                seen.append(
                    {
                        "rss_mb": resident(),
                        "threads": threading.active_count(),
                        "tasks": tasks(),
                    }
                )
    tell(seen if payload < 0 else times[2:])


def join_asks(folder: Path, name: str, port: int, journal: Path) -> None:
    """A party of ours."""
    policy = Policy(
        protocols=("echo",),
        epsilon_run=1,
        epsilon_total=1,
        delta=1e-6,
        people=1,
        accept="always",
    )
    participant = Participant(
        invitation=Invitation.load(folder / "invitations" / f"{name}.toml"),
        policy=policy,
        people=4,
        ledger=Ledger.rehearsal(name, Budget(1.0, 1e-6)),
        description=SCHEMA,
        folder=journal / name,
        build=lambda contract, ledger, place: Echoing(
            name, ledger, run=contract.run, folder=place
        ),
    )
    join(participant, address=f"127.0.0.1:{port}", pause=0.05)


def resident() -> float:
    """MB in memory now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def tasks() -> int:
    return len(asyncio.all_tasks(loop()))


# The parent: it forks and never opens a stream itself, since gRPC does not survive a
# fork.


def measure(
    folder: Path, names: list[str], payload: float, journal: Path | None
) -> Any:
    """The server's figures: of bare streams, or of asks with the journals in that
    folder.
    """
    serve = serve_raw if journal is None else serve_asks

    def party(name: str) -> Callable[[int], None]:
        if journal is None:
            return lambda port: join_raw(folder, name, port)
        return lambda port: join_asks(folder, name, port, journal)

    return asked(
        lambda tell: serve(folder, names, payload, tell),
        [party(name) for name in names],
    )


def asked(
    serve: Callable[[Callable[[Any], None]], None], parties: list[Callable[[int], None]]
) -> Any:
    """What a server in a process of its own tells last; first it tells its port, at
    which the parties join.
    """
    read, write = os.pipe()

    def tell(value: Any) -> None:
        os.write(write, json.dumps(value).encode() + b"\n")

    children = [fork(lambda: serve(tell))]
    os.close(write)
    with os.fdopen(read) as told:
        port = int(told.readline())
        children += [fork(lambda party=party: party(port)) for party in parties]
        figures = json.loads(told.readline())
    for child in children:
        os.waitpid(child, 0)
    return figures


def fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
    return child


def milliseconds(times: list[float]) -> float:
    return round(1000 * statistics.median(times), 2)


# A whole run


def vertigan_federation() -> Federation:
    """The demo's holders: 5,220 shared people, ten columns each; a toy where its data
    is not installed.
    """
    try:
        tables, schemas = rand_health()
    except ImportError:
        frame, schema = toy(rows=5000, seed=1)
        names = schema.names
        columns = {"a": list(names[::2]), "b": list(names[1::2])}
        tables = {name: frame[["id", *part]] for name, part in columns.items()}
        schemas = {name: schema.select(part) for name, part in columns.items()}
    return Federation.rehearsal(tables, schemas, budget=Budget(2.0, 1e-6), seed=3)


def serve_vertigan(
    folder: Path, contract: Contract, rounds: int, tell: Callable[[Any], None]
) -> None:
    federation = vertigan_federation()
    kinds = verti_gan.VertiGanParty.messages
    with GrpcParties(
        contract, load_server(folder), kinds=kinds, listen="127.0.0.1:0"
    ) as parties:
        tell(parties.port)
        parties.wait(600)
        tell(train_seconds(parties, federation, rounds))


def join_vertigan(folder: Path, name: str, port: int, journal: Path) -> None:
    federation = vertigan_federation()
    holder = federation.holders[name]
    policy = Policy(
        protocols=("verti-gan",),
        epsilon_run=9,
        epsilon_total=9,
        delta=1e-5,
        people=1,
        accept="always",
    )

    def build(contract: Contract, ledger: Ledger, place: Path) -> Party:
        more = {
            "run": contract.run,
            "budget": holder.budget,
            "rng": holder.rng(),
            "folder": place,
        }
        return verti_gan.PROTOCOL.build(name, holder.table, ledger, **more)

    participant = Participant(
        invitation=Invitation.load(folder / "invitations" / f"{name}.toml"),
        policy=policy,
        people=5000,
        build=build,
        ledger=holder.ledger,
        description=federation.schemas[name],
        folder=journal / name,
    )
    join(participant, address=f"127.0.0.1:{port}", pause=0.05)


def train_seconds(parties: Any, federation: Federation, rounds: int) -> float:
    start = time.perf_counter()
    verti_gan.train(
        verti_gan.Config(rounds=rounds, device="cpu"), parties, federation.schemas
    )
    return round(time.perf_counter() - start, 1)


def vertigan(authority: Authority, home: Path, rounds: int) -> dict[str, float]:
    """Seconds of a whole run, in one process and over the loopback."""
    federation = vertigan_federation()
    names = list(federation.holders)
    for name in names:
        authority.issue(name).save(authority.folder / "invitations" / f"{name}.toml")
    contract = Contract(
        federation="bench",
        run="bench",
        protocol="verti-gan",
        settings=asdict(verti_gan.Config(rounds=rounds, device="cpu")),
        budgets=dict.fromkeys(names, Budget(2.0, 1e-6)),
        schemas={
            name: digest_of(schema) for name, schema in federation.schemas.items()
        },
    )
    plain = train_seconds(
        LocalParties(federation.parties("verti-gan", run="bench")), federation, rounds
    )
    over = asked(
        lambda tell: serve_vertigan(authority.folder, contract, rounds, tell),
        [
            lambda port, name=name: join_vertigan(
                authority.folder, name, port, home / "gan"
            )
            for name in names
        ],
    )
    return {
        "rounds": rounds,
        "in_process_s": plain,
        "loopback_s": over,
        "times": round(over / plain, 2),
    }


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "ours.csv")
    parser.add_argument(
        "--memory",
        type=Path,
        default=Path("/dev/shm"),
        help="a tmpfs; left out if there is none",
    )
    parser.add_argument(
        "--only", default="", help="2x0, 2x1, 2x10, 8x0, 8x1, 32x0, many or vertigan"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the VertiGAN")
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(1)
    rows = read(args.out)
    measured = {(int(row["parties"]), float(row["payload_mb"])) for row in rows}
    home = Path(tempfile.mkdtemp())
    shelf = Path(tempfile.mkdtemp(dir=args.memory)) if args.memory.is_dir() else None
    try:
        authority = Authority.create(
            home / "federation", name="bench", address="127.0.0.1:1"
        )
        names = [
            f"party {number}" for number in range(max(parties for parties, _ in CASES))
        ]
        for name in names:
            authority.issue(name).save(
                authority.folder / "invitations" / f"{name}.toml"
            )
        places = {"disk": home} | ({"memory": shelf} if shelf is not None else {})
        for parties, payload in CASES:
            if (args.only or f"{parties}x{payload:g}") == f"{parties}x{payload:g}" and (
                parties,
                payload,
            ) not in measured:
                rows += compare(authority.folder, names[:parties], payload, places)
                write(args.out, rows, COLUMNS)
        if args.only in ("", "many"):
            seen = measure(authority.folder, names[:2], -1.0, (shelf or home) / "many")
            print(f"after {MANY // 3:,} and {MANY:,} asks:", *seen, flush=True)
        if args.only in ("", "vertigan"):
            print(
                "VertiGAN:", vertigan(authority, shelf or home, args.rounds), flush=True
            )
    finally:
        for place in filter(None, (home, shelf)):
            shutil.rmtree(place, ignore_errors=True)


def compare(
    folder: Path, names: list[str], payload: float, places: dict[str, Path]
) -> list[dict[str, Any]]:
    """One case: bare streams and asks in turns, a row for each place of the
    journals.
    """
    raw: list[float] = []
    ours: dict[str, list[float]] = {kind: [] for kind in places}
    for turn in range(1 if QUICK else 2):
        raw += measure(folder, names, payload, None)
        for kind, place in places.items():
            journal = place / f"{len(names)}-{payload}-{turn}"
            ours[kind] += measure(folder, names, payload, journal)
            shutil.rmtree(journal)
    rows = []
    for kind, times in ours.items():
        bare = milliseconds(raw)
        full = milliseconds(times)
        rows.append(
            {
                "parties": len(names),
                "payload_mb": payload,
                "journal": kind,
                "raw_grpc_ms": bare,
                "ask_ms": full,
            }
        )
        print(rows[-1], f"  {full / bare:.2f} times", flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
