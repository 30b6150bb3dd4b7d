"""kill -9 during pushes: whatever was acknowledged is there and whole, and nothing else
is left behind.

Run as a program, this file is the parent that forks servers and pushers, and kills. It
has no thread of its own, so that a new server costs a fork.
"""

import http.client
import json
import os
import random
import signal
import sys
import time
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from forker import Forker
from forks import fork

PUSHES = 36
PUSHERS = 3


@pytest.fixture(scope="module")
def results(
    tmp_path_factory: pytest.TempPathFactory, forker: Forker
) -> dict[str, dict[str, int]]:
    """Of all scenes, played by one process."""
    folder = tmp_path_factory.mktemp("kill")
    done = forker.run(
        folder, folder=folder, to=folder / "scenes", program=Path(__file__)
    )
    assert done.end() == 0, done.err
    played: dict[str, dict[str, int]] = json.loads(done.out)
    return played


def test_every_acknowledged_generator_survives_kill_9(
    results: dict[str, dict[str, int]],
) -> None:
    result = results["file first"]
    assert result["lost"] == result["torn"] == result["left over"] == 0
    assert result["acknowledged"] >= PUSHES // 3
    assert result["cut off"] > 0  # kills fell into pushes
    assert result["kills"] >= 5


def test_what_was_acknowledged_a_moment_before_kill_9_is_there_whole_over_the_network(
    results: dict[str, dict[str, int]],
) -> None:
    """A push, a pull and a withdrawal are each followed by a kill at once, and looked
    at after the next start.
    """
    assert all(results["after"].values()), results["after"]
    assert len(results["after"]) == 6


def test_the_same_kills_catch_a_store_that_names_a_file_before_it_is_there(
    results: dict[str, dict[str, int]],
) -> None:
    assert results["row first"]["torn"] > 0


if sys.platform == "win32":
    pytest.skip("needs fork and kill -9", allow_module_level=True)


# The parent of the killed


def play(scene: str, folder: Path, pushes: int) -> dict[str, int]:
    files = [seal(generator(seed=seed, components=32)) for seed in range(pushes)]
    port_file = folder / "port"
    told = folder / "told"
    gap = folder / "gap"
    told.touch()
    rng = random.Random(5)
    kills = 0
    first = 0
    while first < pushes:
        server = fork(partial(serve, scene, folder / "data", port_file))
        port = int(wait_for(port_file))
        token = member(folder / "data", port)
        count = min(rng.randint(3, 8), pushes - first)
        batch = files[first : first + count]
        pushers = [
            fork(partial(push, batch[k::PUSHERS], port, token, told))
            for k in range(PUSHERS)
        ]
        goal = len(told.read_text().splitlines()) + rng.randrange(count // 3, count)
        deadline = time.monotonic() + 60
        while (
            len(told.read_text().splitlines()) < goal
            and time.monotonic() < deadline
            and not gap.exists()
        ):
            time.sleep(0.002)
        time.sleep(0.0 if gap.exists() else rng.uniform(0, 0.03))
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        for child in pushers:
            os.waitpid(child, 0)
        port_file.unlink()
        gap.unlink(missing_ok=True)
        first = first + count
        kills = kills + 1
    return judge(folder / "data", told.read_text().split(), kills)


def play_after(folder: Path) -> dict[str, int]:
    """Whether each thing that was acknowledged just before a kill was there after
    it.
    """
    data = seal(generator())
    port_file = folder / "port"
    found = {}
    digest = sha256(data).hexdigest()
    place = f"/v1/pools/ward/offers/{digest}"
    running: list[int] = []

    def started_again() -> int:
        """Kill the server, and start another one: its port."""
        while running:
            os.kill(running[0], signal.SIGKILL)
            os.waitpid(running.pop(), 0)
        port_file.unlink(missing_ok=True)
        running.append(fork(partial(serve, "after", folder / "data", port_file)))
        return int(wait_for(port_file))

    port = started_again()
    token = member(folder / "data", port)
    assert call(port, "PUT", place, token, data) == 201
    port = started_again()
    found["the file, byte by byte"] = answer(port, "GET", f"{place}/file", token) == (
        200,
        data,
    )
    port = started_again()
    listed = json.loads(answer(port, "GET", "/v1/pools/ward/offers", token)[1])
    found["listed"] = [one["digest"] for one in listed] == [digest]
    whole = json.loads(answer(port, "GET", place, token)[1])
    found["card and rows"] = (
        whole["card"]["silo"] == "north" and len(whole["preview"]["rows"]) > 0
    )
    found["not twice"] = call(port, "PUT", place, token, data) == 409
    admin = (folder / "data" / "admin.token").read_text().strip()
    lines = json.loads(answer(port, "GET", "/v1/events", admin)[1])
    done = [
        (line["action"], line["status"]) for line in lines if line["digest"] == digest
    ]
    found["in the log"] = done[:2] == [("push", 201), ("pull", 200)]
    assert call(port, "DELETE", place, token) == 204
    port = started_again()
    gone = (
        answer(port, "GET", f"{place}/file", token)[0],
        call(port, "PUT", place, token, data),
    )
    found["withdrawn"] = gone == (410, 410) and not list(
        (folder / "data" / "offers").glob("*/*")
    )
    os.kill(running[0], signal.SIGKILL)
    os.waitpid(running[0], 0)
    return {name: int(there) for name, there in found.items()}


def judge(data: Path, told: list[str], kills: int) -> dict[str, int]:
    """What is there after the last start, beside what the pushers were told."""
    acknowledged = {line[1:] for line in told if line[0] == "+"}
    exchange = open_exchange(data)
    with exchange.database.read() as session:
        listed = set(session.scalars(select(Offer.digest)))
    paths = {digest: exchange.store.path(digest) for digest in listed}
    whole = {
        d
        for d, p in paths.items()
        if p.exists() and sha256(p.read_bytes()).hexdigest() == d
    }
    readable = {
        d
        for d in whole
        if OfferFile.read(paths[d], POOL).generator().sample(1) is not None
    }
    on_disk = set((data / "offers").glob("*/*"))
    return {
        "kills": kills,
        "acknowledged": len(acknowledged),
        "cut off": sum(line[0] == "-" for line in told),
        "lost": len(acknowledged - readable),
        "torn": len(listed - readable),
        "left over": len(on_disk - set(paths.values()))
        + len(list((data / "incoming").iterdir())),
    }


# The children


def serve(scene: str, data: Path, port_file: Path) -> None:
    exchange = open_exchange(data, pools={"ward": POOL}, limits=FAST)
    exchange.checkers = Here()  # type: ignore[assignment]
    if scene == "row first":
        exchange._keep = lambda *args: row_first(exchange, data.parent / "gap", *args)  # type: ignore[method-assign]
    server = server_for(exchange, port=0)
    startup = server.startup

    async def tell(**options: Any) -> None:
        await startup(**options)
        aside = port_file.with_suffix(".aside")
        aside.write_text(str(server.servers[0].sockets[0].getsockname()[1]))
        aside.rename(port_file)

    server.startup = tell  # type: ignore[method-assign]
    server.run()


class Here:
    """The same checks in the server's own process: one of theirs would import torch
    anew at every start.
    """

    def check(self, path: Path, requirements: Any, *, seed: int, seconds: float) -> Any:
        return Checked(**look(path, requirements, seed), peak=0)


def row_first(exchange: Any, gap: Path, caller: Any, offer: Any, upload: Any) -> Any:
    """The planted bug, and a word to the parent that a kill would fall into it now."""
    with exchange.database.write() as session:
        session.add(offer)
    gap.touch()
    time.sleep(60)  # it is killed here
    upload.keep(offer.digest)
    return offer


def push(files: list[bytes], port: int, token: str, told: Path) -> None:
    handle = os.open(told, os.O_WRONLY | os.O_APPEND)
    for data in files:
        digest = sha256(data).hexdigest()
        sign = "-"
        try:
            if call(port, "PUT", f"/v1/pools/ward/offers/{digest}", token, data) == 201:
                sign = "+"
        except (OSError, http.client.HTTPException):
            pass
        os.write(handle, f"{sign}{digest}\n".encode())


def call(
    port: int, method: str, place: str, token: str, data: bytes | None = None
) -> int:
    return answer(port, method, place, token, data)[0]


def answer(
    port: int, method: str, place: str, token: str, data: bytes | None = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(
            method, place, body=data, headers={"Authorization": f"Bearer {token}"}
        )
        came = connection.getresponse()
        return came.status, came.read()
    finally:
        connection.close()


def member(data: Path, port: int) -> str:
    """The token of a silo, from a file after the first time."""
    path = data.parent / "token"
    if not path.exists():
        database = Database.in_folder(data)
        path.write_text(issue(database, "north", pool="ward"))
        database.close()
        assert call(port, "PUT", "/v1/pools/ward/subscription", path.read_text()) == 200
    return path.read_text()


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.005)
    return path.read_text()


if __name__ == "__main__":
    from exchange_cases import FAST, POOL, generator
    from sqlalchemy import select

    from understudy.services.exchange.check_worker import look
    from understudy.services.exchange.checker import Checked
    from understudy.services.exchange.database import Database, Offer, issue
    from understudy.services.exchange.offer_file import OfferFile, seal
    from understudy.services.exchange.serve import open_exchange, server_for

    place = Path(sys.argv[1])
    (place / "warm").write_bytes(seal(generator()))
    # what torch loads on first use is loaded before the forks
    look(place / "warm", POOL, 1)
    played = {}
    for scene, pushes in (("file first", PUSHES), ("row first", 12)):
        (place / scene).mkdir()
        played[scene] = play(scene, place / scene, pushes)
    (place / "after").mkdir()
    played["after"] = play_after(place / "after")
    sys.stdout.write(json.dumps(played))
