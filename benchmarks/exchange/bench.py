"""How many pulls a second an exchange serves, and how long one takes, with many members
at once.

    serve     the exchange as `understudy exchange serve` runs it, a process of its own
              on the loopback interface
    members   each a client of its own with its own token, in a few processes, all
              pulling at once for some seconds
    bare      the same clients against the same server process, asking for /v1/health:
              no token, no database, no file
    worst     pushes of the worst offers that we know (`offers.py`): their seconds, and
              the memory that they cost

A pull is authenticated, checked for membership, written into the audit log (synced to
disk before the first byte), and sent. The members compare the SHA-256 of what comes;
they do not rebuild the network, which is their own time. `QUICK=1` takes few members
and a second, and writes nothing unless told to.
"""

import argparse
import functools
import hashlib
import json
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import httpx
import offers
import torch

from common.options import options, quick
from common.rows import write
from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.generators.generator import Generator
from understudy.models.plan import MOST_UNITS
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.protocols.papers.sgde.offer import Requirements, label_index, offer_card
from understudy.services.exchange.client import Client
from understudy.services.exchange.serve import open_exchange, server_for
from understudy.services.web.limits import Limits

QUICK = quick()
SCHEMA = toy(rows=4, seed=0)[1]
POOL = Requirements(schema=SCHEMA, target="smoker", largest=1 << 24)


def offer(kilobytes: int, silo: str, seed: int) -> Generator:
    """A generator of about this size."""
    codec = Codec(SCHEMA)
    network = MixtureOfProducts(
        codec.sizes, max(1, kilobytes * 1000 // (4 * codec.width))
    )
    block = codec.blocks[SCHEMA.names.index(POOL.target)]
    with torch.no_grad():
        network.logits.normal_(generator=torch.Generator().manual_seed(seed))
        network.logits[:, block] = -20.0
        network.logits[:, block.start + label_index(POOL, POOL.labels[0])] = 20.0
    card = offer_card(
        POOL,
        silo=silo,
        label=POOL.labels[0],
        epsilon=1.0,
        delta=1e-6,
        accountant="PLD",
        network=network.describe(),
    )
    return Generator(network.eval(), SCHEMA, card)


def serve(folder: Path, port: Any) -> None:
    """The server's process."""
    exchange = open_exchange(
        folder, pools={"ward": POOL}, limits=Limits(rate=1e6, burst=10**6)
    )
    server = server_for(exchange, port=0)

    def tell() -> None:
        while not server.started:
            time.sleep(0.01)
        port.send(server.servers[0].sockets[0].getsockname()[1])

    threading.Thread(target=tell).start()
    server.run()


def members(
    address: str,
    tokens: list[str],
    what: str,
    digest: str,
    seconds: float,
    start: Any,
    told: Any,
) -> None:
    """Some members, a thread each: they begin together and pull until the time is
    over.
    """
    times: list[float] = []
    errors: list[str] = []

    def work(token: str) -> None:
        place = (
            "/v1/health" if what == "bare" else f"/v1/pools/ward/offers/{digest}/file"
        )
        with httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {token}"},
            verify=False,
            timeout=60,
        ) as http:
            http.get("/v1/health")  # connected before the clock runs
            start.wait()
            end = time.perf_counter() + seconds
            while (begun := time.perf_counter()) < end:
                try:
                    answer = http.get(place)
                    good = answer.status_code == 200
                    good &= (
                        what == "bare"
                        or hashlib.sha256(answer.content).hexdigest() == digest
                    )
                    if not good:
                        errors.append(f"status {answer.status_code}")
                except httpx.HTTPError as error:
                    errors.append(repr(error))
                times.append(time.perf_counter() - begun)

    threads = [threading.Thread(target=work, args=(token,)) for token in tokens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told.put((times, errors))


def measure(
    address: str,
    tokens: list[str],
    what: str,
    digest: str,
    seconds: float,
    processes: int,
) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    start = context.Barrier(len(tokens))
    told = context.Queue()
    parts = [tokens[k::processes] for k in range(min(processes, len(tokens)))]
    workers = [
        context.Process(
            target=members, args=(address, part, what, digest, seconds, start, told)
        )
        for part in parts
    ]
    for worker in workers:
        worker.start()
    answers = [told.get() for _ in workers]
    for worker in workers:
        worker.join()
    times = sorted(t for some, _ in answers for t in some)
    errors = [e for _, some in answers for e in some]

    def at(share: float) -> float:
        return round(1000 * times[min(len(times) - 1, int(share * len(times)))], 2)

    return {
        "what": what,
        "members": len(tokens),
        "seconds": seconds,
        "requests": len(times),
        "errors": len(errors),
        "per_second": round(len(times) / seconds, 1),
        "p50_ms": round(1000 * statistics.median(times), 2),
        "p95_ms": at(0.95),
        "p99_ms": at(0.99),
    }


def bench(
    *,
    sizes: list[int],
    counts: list[int],
    seconds: float,
    processes: int,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """A row for each size and number of members, and the bare ones."""
    rows = []
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        here, there = context.Pipe()
        server = context.Process(target=serve, args=(folder, there))
        server.start()
        try:
            if not here.poll(120):
                raise SystemExit("the server did not start")
            address = f"http://127.0.0.1:{here.recv()}"
            with Client(address, (folder / "admin.token").read_text()) as admin:
                tokens = [
                    admin.issue(f"silo-{number}", pool="ward")
                    for number in range(max(counts))
                ]
            for token in tokens:
                with Client(address, token) as client:
                    client.subscribe("ward")
            with Client(address, tokens[0]) as first:
                digests = {
                    size: first.push("ward", offer(size, "silo-0", size))["digest"]
                    for size in sizes
                }
            for count in counts:
                for size in (0, *sizes):
                    what = "pull" if size else "bare"
                    found = measure(
                        address,
                        tokens[:count],
                        what,
                        digests.get(size, ""),
                        seconds,
                        processes,
                    )
                    rows.append({"kilobytes": size} | found)
                    say(json.dumps(rows[-1]))
        finally:
            server.terminate()
            server.join()
    return rows


def worst(
    *, units: int, say: Callable[[str], None], some: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """A push of each of the worst offers: seconds, and by how much the server and who
    looks for it grew at most.
    """
    rows = []
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as place:
        here, there = context.Pipe()
        server = context.Process(target=serve, args=(Path(place), there))
        server.start()
        try:
            if not here.poll(120):
                raise SystemExit("the server did not start")
            address = f"http://127.0.0.1:{here.recv()}"
            with Client(address, (Path(place) / "admin.token").read_text()) as admin:
                admin.create_pool("images", offers.IMAGES)
                tokens = {
                    pool: admin.issue("north", pool=pool) for pool in ("ward", "images")
                }
            for pool, token in tokens.items():
                with Client(address, token) as client:
                    client.subscribe(pool)
            files = {
                name: ("ward", functools.partial(make, units))
                for name, make in offers.accepted.items()
            }
            files |= {
                name: ("images", functools.partial(make, units))
                for name, make in offers.accepted_images.items()
            }
            files |= {name: ("ward", make) for name, make in offers.refused.items()}
            pushed(
                address,
                tokens["ward"],
                "ward",
                offers.offer(offers.decoder(4, (64, 128)), note="first"),
                server.pid,
            )
            for name, (pool, make) in files.items():
                if some is None or name in some:
                    rows.append(
                        {"offer": name}
                        | pushed(address, tokens[pool], pool, make(), server.pid)
                    )
                    say(json.dumps(rows[-1], ensure_ascii=False))
        finally:
            server.terminate()
            server.join()
    return rows


def family(process: int | None) -> Iterator[int | None]:
    """A process and all that it has started, and those have."""
    yield process
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        for child in path.read_text().split():
            yield from family(int(child))


def pushed(
    address: str, token: str, pool: str, data: bytes, server: int | None
) -> dict[str, Any]:
    """One push, and the peaks of the processes of the server while it lasted."""
    before = {}
    for process in family(server):
        # the peak is counted from now on
        Path(f"/proc/{process}/clear_refs").write_text("5")
        before[process] = held(process)
    begun = time.perf_counter()
    answer = httpx.put(
        f"{address}/v1/pools/{pool}/offers/{hashlib.sha256(data).hexdigest()}",
        content=data,
        timeout=120,
        headers={"Authorization": f"Bearer {token}"},
    )
    seconds = time.perf_counter() - begun
    grown = {
        process: (held(process) - level) / 1e6 for process, level in before.items()
    }
    return {
        "status": answer.status_code,
        "file_mb": round(len(data) / 1e6, 3),
        "seconds": round(seconds, 2),
        "server_mb": round(grown.pop(server), 1),
        "checker_mb": round(max(grown.values(), default=0.0), 1),
    }


def held(process: int | None) -> int:
    """The most bytes that a process held since its peak was reset."""
    return 1024 * int(
        Path(f"/proc/{process}/status").read_text().partition("VmHWM:")[2].split()[0]
    )


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "ours.csv")
    parser.add_argument(
        "--jobs", type=int, default=2, help="processes that the members are spread over"
    )
    parser.add_argument("--seconds", type=float, default=1.0 if QUICK else 10.0)
    parser.add_argument("--only", type=int, help="only this number of members")
    parser.add_argument(
        "--worst",
        action="store_true",
        help="only the worst offers, into worst.csv beside --out",
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(1)
    counts = [args.only] if args.only else [4] if QUICK else [1, 10, 50]
    sizes = [50] if QUICK else [50, 1000]
    say = functools.partial(print, flush=True)
    looks = worst(units=MOST_UNITS // (16 if QUICK else 1), say=say)
    rows = (
        []
        if args.worst
        else bench(
            sizes=sizes,
            counts=counts,
            seconds=args.seconds,
            processes=args.jobs,
            say=say,
        )
    )
    if args.out:
        write(args.out.with_name("worst.csv"), looks, list(looks[0]))
        if rows:
            write(args.out, rows, list(rows[0]))
    if any(row["errors"] for row in rows):
        sys.exit("there were errors")


if __name__ == "__main__":
    main()
