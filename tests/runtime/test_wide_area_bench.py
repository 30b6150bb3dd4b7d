"""The benchmark of a wide-area line: what passes a relay, and a whole run on few
people.
"""

import asyncio
import csv
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from forker import Forker

FOLDER = Path(__file__).parents[2] / "benchmarks" / "network"


def test_bytes_wait_for_those_before_them_and_then_for_the_length_of_the_line(
    load_bench: Callable[..., ModuleType],
) -> None:
    line = load_bench("network", "relay").Line(0.025, 1000.0)
    assert line.due(10.0, 500) == pytest.approx(10.525)
    assert line.due(10.1, 500) == pytest.approx(11.025)  # behind the first
    assert line.due(20.0, 1000) == pytest.approx(21.025)  # a line that was free
    assert line.carried == 2000


def test_what_comes_out_of_the_relay_is_what_went_in_both_ways(
    load_bench: Callable[..., ModuleType],
) -> None:
    relay = load_bench("network", "relay").relay
    sent = os.urandom(300_000)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(byte ^ 1 for byte in await reader.read(-1)))
        writer.close()
        await writer.wait_closed()

    async def through() -> tuple[bytes, dict[str, int]]:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        where: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        over = asyncio.Event()
        far = server.sockets[0].getsockname()[1]
        work = asyncio.create_task(
            relay(far, delay=0.001, rate=1e9, ready=where.set_result, over=over.wait())
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", await where)
        writer.write(sent)
        writer.write_eof()
        came = await reader.read(-1)
        writer.close()
        await writer.wait_closed()
        over.set()
        carried = await work
        server.close()
        await server.wait_closed()
        return came, carried

    came, carried = asyncio.run(through())
    assert came == bytes(byte ^ 1 for byte in sent)
    assert carried == {"there": len(sent), "back": len(sent)}


def test_a_run_of_few_people_goes_through_the_line(
    tmp_path: Path, forker: Forker
) -> None:
    out = tmp_path / "w.csv"
    to = tmp_path / "bench"
    words = ("--lines", 2, "--out", out)
    bench = forker.run(
        *words, folder=tmp_path, to=to, program=FOLDER / "wide_area.py", QUICK="1"
    )
    assert bench.end() == 0, bench.err
    (row,) = csv.DictReader(out.read_text().splitlines())
    assert row["people"] == "200"
    assert int(row["round_trips"]) == 9
    assert float(row["up_mb"]) > 0
