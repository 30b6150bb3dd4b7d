"""How many requests of a member a service answers while a stranger holds connections
that say nothing: under the limits of `services.web.connections`, and under uvicorn's
`limit_concurrency` with as many connections.

Counts, no times. `QUICK=1` takes few connections and writes nothing unless told to.
"""

import argparse
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import httpx
import uvicorn

from common.options import options, quick
from common.rows import said, write
from understudy.services.web.skeleton import limited_server

QUICK = quick()
COLUMNS = ["limit", "connections", "silent", "addresses", "answered", "requests"]
CONNECTIONS = 20 if QUICK else 1_000
SILENT = CONNECTIONS + CONNECTIONS // 10
PER_ADDRESS = CONNECTIONS // 10
REQUESTS = 3 if QUICK else 20
OURS = "ConnectionLimits"
CONCURRENCY = "limit_concurrency"


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers "here" to everything."""
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"here"})


def server(limit: str) -> uvicorn.Server:
    if limit == OURS:
        return limited_server(
            application,  # type: ignore[arg-type]
            host="127.0.0.1",
            port=0,
            max_per_address=PER_ADDRESS,
            max_connections=CONNECTIONS,
            whole=60.0,
        )
    config = uvicorn.Config(
        application,
        port=0,
        http="h11",
        lifespan="off",
        log_level="critical",
        limit_concurrency=CONNECTIONS,
    )
    return uvicorn.Server(config)


@contextmanager
def served(limit: str) -> Iterator[int]:
    running = server(limit)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        thread.join(0.01)
    try:
        yield int(running.servers[0].sockets[0].getsockname()[1])
    finally:
        running.force_exit = True
        running.should_exit = True
        thread.join()


def answered(limit: str, addresses: int) -> int:
    """How many requests were answered with "here"."""
    with ExitStack() as stack:
        port = stack.enter_context(served(limit))
        for number in range(SILENT):
            source = f"127.0.1.{1 + number % addresses}"
            with suppress(OSError):  # sent away
                stack.enter_context(
                    socket.create_connection(
                        ("127.0.0.1", port), timeout=60, source_address=(source, 0)
                    )
                )
        right = 0
        for _ in range(REQUESTS):
            with suppress(httpx.TransportError):
                reply = httpx.get(f"http://127.0.0.1:{port}/", timeout=60)
                right += reply.status_code == 200
        return right


def parser() -> argparse.ArgumentParser:
    return options(__doc__, out=Path(__file__).with_name("silent.csv"))


def main() -> None:
    args = parser().parse_args()
    rows = []
    for limit in (OURS, CONCURRENCY):
        for addresses in (1, 20):
            right = answered(limit, addresses)
            values = (limit, CONNECTIONS, SILENT, addresses, right, REQUESTS)
            rows.append(dict(zip(COLUMNS, values, strict=True)))
            print(said(rows[-1]), flush=True)
    write(args.out, rows, COLUMNS)


if __name__ == "__main__":
    main()
