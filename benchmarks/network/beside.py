"""The project's own machinery beside a library's: a party's journal beside SQLite, its
processes beside `concurrent.futures` and loky, typed messages beside msgspec.

    journal    one answer and the party's state, synced: two files that take turns
               (`runtime.journal`), and a table of SQLite with write-ahead log and full
               sync, as the ledger has it
    processes  bytes to bytes in two processes: from nothing to the first answers, and
               16 of 4 MB where the processes are there already
    wire       an ask with 40 numbers and 40 tensors from bytes: `unpack` reads and
               checks all of them in any case; then the fields by their annotations,
               ours and `msgspec.convert`

Milliseconds: medians, and of messages the shortest, as other work lengthens the rest. A library that is not installed is left out; none of them is a
dependency. `QUICK=1` takes few turns and writes nothing unless told to.
"""

import argparse
import importlib.util
import multiprocessing
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

sys.path.append(str(Path(__file__).parents[1]))

import torch
from torch import Tensor

from common.options import options, quick
from common.rows import said, write
from understudy.ground.errors import MessageError
from understudy.ground.pack import pack, unpack
from understudy.ground.processes import VARIABLE, in_processes
from understudy.protocols.core.base import Ask
from understudy.runtime.journal import Answer, AskId, Journal
from understudy.runtime.wire import decode, encode

QUICK = quick()
COLUMNS = ["what", "size", "ours_ms", "other", "other_ms"]
TURNS = 5 if QUICK else 40
BODIES = {"2 kB": 1_000, "200 kB": 100_000, "2 MB": 1_000_000, "20 MB": 10_000_000}
TASKS = 4 if QUICK else 16
RECORD = (
    "CREATE TABLE record (serial INTEGER PRIMARY KEY, segment, keep, session, number, "
    "ask, status, body, state)"
)


WORK = "understudy.ground.pack:pack"
Pool = Callable[[list[bytes]], Iterator[bytes]]


class Request(Ask, kind="bench.request"):
    """What a server asks for a stage."""

    stage: str
    people: int
    noise: dict[str, float]
    sums: dict[str, Tensor]


def milliseconds(
    turn: Callable[[], object],
    turns: int = TURNS,
    of: Callable[[list[float]], float] = statistics.median,
) -> float:
    taken = []
    for _ in range(turns):
        start = time.perf_counter()
        turn()
        taken.append(time.perf_counter() - start)
    return round(1e3 * of(taken), 3)


def journal() -> Iterator[dict[str, Any]]:
    for size, length in BODIES.items():
        body = os.urandom(length)
        number = 0

        def turn(write: Callable[..., Any], body: bytes = body) -> None:
            nonlocal number
            number += 1
            keep = number if number % 5 == 0 else None
            write(AskId("s", number), "digest", Answer("reply", body), body, keep)

        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            files = Journal(Path(folder))
            ours = milliseconds(lambda files=files, turn=turn: turn(files.write))
            files.close()
            number = 0
            with closing(sqlite3.connect(f"{folder}/answers.sqlite")) as sql:
                table = of_sqlite(sql)
                other = milliseconds(lambda table=table, turn=turn: turn(table))
        yield row("journal", size, ours, "SQLite", other)


def of_sqlite(sql: sqlite3.Connection) -> Callable[..., None]:
    """`Journal.write` on a table: what an older segment holds goes when the next one
    begins.
    """
    sql.isolation_level = None
    sql.execute("PRAGMA journal_mode=WAL")
    sql.execute("PRAGMA synchronous=FULL")
    sql.execute(RECORD)
    segments = [-1]

    def record(
        ask: AskId, digest: str, answer: Answer, state: bytes, keep: int | None
    ) -> None:
        sql.execute("BEGIN IMMEDIATE")
        sql.execute("DELETE FROM record WHERE serial > ?", (ask.number,))
        sql.execute("DELETE FROM record WHERE segment < ?", (segments[0],))
        values = (segments[-1], keep, *ask, digest, answer.status, answer.body, state)
        sql.execute("INSERT INTO record VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        sql.execute("COMMIT")
        if keep is not None:
            segments[:] = [segments[-1], keep]

    return record


def processes() -> Iterator[dict[str, Any]]:
    os.environ[VARIABLE] = "2"
    small = [b"1", b"2"]
    large = [bytes(4_000_000)] * TASKS
    pools: dict[str, Pool] = {"ours": lambda asks: in_processes(WORK, asks)}
    spawn = multiprocessing.get_context("spawn")
    futures = ProcessPoolExecutor(2, mp_context=spawn)
    pools["concurrent.futures"] = lambda asks: futures.map(pack, asks)
    if importlib.util.find_spec("loky"):
        import loky

        loky_pool = loky.get_reusable_executor(2)
        pools["loky"] = lambda asks: loky_pool.map(pack, asks)
    taken = {
        name: (
            milliseconds(lambda pool=pool: list(pool(small)), 1),
            milliseconds(lambda pool=pool: list(pool(large)), 3),
        )
        for name, pool in pools.items()
    }
    ours = taken.pop("ours")
    for name, (first, then) in taken.items():
        yield row("processes", "from nothing", ours[0], name, first)
        yield row("processes", f"{TASKS} of 4 MB", ours[1], name, then)


def wire() -> Iterator[dict[str, Any]]:
    names = [f"column {number}" for number in range(40)]
    noise = dict.fromkeys(names, 1.5)
    sums = {name: torch.rand(8) for name in names}
    data = encode(Request(stage="pairs", people=7, noise=noise, sums=sums))
    turns = 20 * TURNS
    ours = milliseconds(lambda: decode(data, (Request,)), turns, min)
    yield row(
        "wire",
        "40 tensors",
        ours,
        "unpack",
        milliseconds(lambda: unpack(data), turns, min),
    )
    if importlib.util.find_spec("msgspec"):
        import msgspec

        def tensor(hint: Any, value: Any) -> Any:
            if not isinstance(value, hint):
                raise MessageError("a field is not of the declared type.")
            return value

        annotations = [
            (one.name, get_type_hints(Request)[one.name]) for one in fields(Request)
        ]
        typed = msgspec.defstruct("Typed", annotations, forbid_unknown_fields=True)

        def converted() -> Any:
            message: Any = unpack(data)
            return msgspec.convert(message["fields"], typed, dec_hook=tensor)

        assert set(converted().sums) == set(sums)
        other = milliseconds(converted, turns, min)
        yield row("wire", "40 tensors", ours, "unpack and msgspec", other)


def row(
    what: str, size: str, ours: float, other: str, other_ms: float
) -> dict[str, Any]:
    return dict(zip(COLUMNS, (what, size, ours, other, other_ms), strict=True))


def parser() -> argparse.ArgumentParser:
    return options(__doc__, out=Path(__file__).with_name("beside.csv"))


def main() -> None:
    args = parser().parse_args()
    rows = []
    for part in (journal, processes, wire):
        for one in part():
            rows.append(one)
            print(said(one), flush=True)
    write(args.out, rows, COLUMNS)


if __name__ == "__main__":
    main()
