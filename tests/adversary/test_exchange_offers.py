"""Docs/exchange.md: no member can make the server or a puller take more than a stated
multiple of the file's size.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import torch
from exchange_cases import LABELS, POOL, SCHEMA, Served, forked, generator, served

from forker import until
from understudy.data.encoding.codec import Codec
from understudy.generators.generator import Generator
from understudy.ground.errors import ArtefactError
from understudy.models.plan import MOST_UNITS
from understudy.protocols.papers.sgde.pool import assess_offers, pool
from understudy.services.exchange import check_worker, checker
from understudy.services.exchange.checker import Checkers, allowed
from understudy.services.exchange.client import Client
from understudy.services.exchange.offer_file import OfferFile, digest_of, seal

# bytes that a look may take: for any file, half of the limit, and for each byte of it
FIXED = 96 << 20
EACH = 8


@pytest.fixture(scope="module")
def offers(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("exchange", "offers")


@pytest.fixture
def checkers() -> Checkers:
    """Those of this process: starting one takes seconds."""
    return checker.checkers()


def looked(
    checkers: Checkers, tmp_path: Path, data: bytes, pool: Any, **options: Any
) -> dict[str, Any]:
    (tmp_path / "offer").write_bytes(data)
    return checkers.look(tmp_path / "offer", pool, seed=1, **options)


# The process that looks


def test_a_check_that_does_not_end_is_ended_and_the_next_one_is_served(
    offers: ModuleType, checkers: Checkers, tmp_path: Path
) -> None:
    data = offers.accepted["small"](0)
    (tmp_path / "offer").write_bytes(data)
    with pytest.raises(ArtefactError, match="takes more than 0 s"):
        checkers.check(tmp_path / "offer", offers.POOL, seconds=0.0)
    assert "card" in looked(checkers, tmp_path, data, offers.POOL)


def test_one_that_is_ended_is_gone_and_another_is_forked_whatever_happens_to_their_origin(
    offers: ModuleType, checkers: Checkers, tmp_path: Path
) -> None:
    data = offers.accepted["small"](0)
    while checkers._idle:  # of earlier tests
        checkers._idle.pop().close()

    def ended() -> tuple[int, int]:
        """Whom a look that took too long has ended, and whom it was forked from."""
        assert "card" in looked(checkers, tmp_path, data, offers.POOL)
        worker = forked(checkers)[-1]
        nursery = checkers._nursery
        assert nursery is not None
        assert looked(checkers, tmp_path, data, offers.POOL, seconds=0.0) == {
            "spent": "time"
        }
        until(lambda: not Path(f"/proc/{worker}").exists(), 60)
        return worker, nursery.process.pid

    (one, origin), (other, same) = ended(), ended()
    assert one != other
    assert origin == same
    os.kill(origin, signal.SIGKILL)
    assert ended()[1] != origin


def test_a_file_is_not_refused_for_the_end_of_a_process_that_looked_at_others_before(
    offers: ModuleType, checkers: Checkers, tmp_path: Path
) -> None:
    """A process ends after so many files, or of a limit that counts them all, just as
    the next one is handed to it.
    """
    data = offers.accepted["small"](0)
    while checkers._idle:  # of earlier tests
        checkers._idle.pop().close()
    assert "card" in looked(checkers, tmp_path, data, offers.POOL)
    worker = forked(checkers)[-1]
    os.kill(worker, signal.SIGSTOP)  # it takes the next file, and does not read it
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(looked, checkers, tmp_path, data, offers.POOL)
        until(lambda: not checkers._idle, 60)
        os.kill(worker, signal.SIGKILL)
        assert "card" in answer.result()
    assert forked(checkers)[-1] != worker


def test_a_file_that_ends_two_processes_is_refused(
    offers: ModuleType, checkers: Checkers, tmp_path: Path
) -> None:
    """One that may have looked at other files, and one that has looked at this file
    alone.
    """
    assert "card" in looked(
        checkers, tmp_path, offers.accepted["small"](0), offers.POOL
    )
    while len(checkers._idle) > 1:  # of earlier tests
        checkers._idle.pop(0).close()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def is_read() -> bool:
        try:
            writers.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody reads it yet
            return False
        return True

    ended: list[int] = []
    writers: list[int] = []
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(checkers.look, pipe, offers.POOL)
        while len(ended) < 2:
            until(is_read, 60)
            ended.append(forked(checkers)[-1])
            os.kill(ended[-1], signal.SIGKILL)
            os.close(writers.pop())
            until(lambda: not Path(f"/proc/{ended[-1]}").exists(), 60)
        assert answer.result() == {"spent": "process"}
    assert len(set(ended)) == 2
    assert not checkers._idle
    assert "card" in looked(
        checkers, tmp_path, offers.accepted["small"](0), offers.POOL
    )


def test_the_kernel_ends_a_look_whose_caller_has_gone(
    offers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "offer").write_bytes(offers.accepted["small"](0))
    monkeypatch.setattr(check_worker, "look", lambda *_: time.sleep(60))
    job = {
        "path": str(tmp_path / "offer"),
        "requirements": offers.POOL.to_dict(),
        "memory": 1 << 40,
        "seconds": 0.01,
    }
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which pytest uses
        check_worker._answer(job | {"seed": None})
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGALRM


def test_a_check_that_asks_for_more_memory_than_it_may_have_is_refused(
    offers: ModuleType,
    checkers: Checkers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = offers.accepted["a mixture"](4096)
    monkeypatch.setattr(checker, "MEMORY", 1 << 20)
    monkeypatch.setattr(checker, "FACTOR", 0)
    (tmp_path / "offer").write_bytes(large)
    with pytest.raises(ArtefactError, match="more than 1,048,576 bytes of memory"):
        checkers.check(tmp_path / "offer", offers.POOL)
    monkeypatch.undo()
    assert "card" in looked(checkers, tmp_path, large, offers.POOL)


def test_the_process_that_looks_holds_no_accountant(
    offers: ModuleType, checkers: Checkers, tmp_path: Path
) -> None:
    looked(checkers, tmp_path, offers.accepted["small"](0), offers.POOL)
    maps = Path(f"/proc/{forked(checkers)[-1]}/maps").read_text()
    assert "/torch/" in maps
    # which dp_accounting loads: a second more at every start
    assert "/scipy/" not in maps


def test_a_look_takes_memory_in_proportion_to_the_file_whatever_it_asks_for(
    offers: ModuleType, checkers: Checkers, tmp_path: Path
) -> None:
    # what torch loads on first use
    looked(checkers, tmp_path, offers.accepted["small"](0), offers.POOL)
    looked(
        checkers,
        tmp_path,
        next(iter(offers.accepted_images.values()))(0),
        offers.IMAGES,
    )
    files = [
        (name, make(MOST_UNITS // 4), offers.POOL, True)
        for name, make in offers.accepted.items()
    ]
    files += [
        (name, make(0), offers.IMAGES, True)
        for name, make in offers.accepted_images.items()
    ]
    files += [
        (name, make(), offers.POOL, False) for name, make in offers.refused.items()
    ]
    for name, data, required, good in files:
        answer = looked(checkers, tmp_path, data, required)
        assert ("card" in answer) == good, (name, answer)
        # refused for what it is, not for the time or memory it took
        assert good or answer["refused"]["text"], (name, answer)
        assert answer["peak"] <= FIXED + EACH * len(data), (name, answer["peak"])
    # what the process may take is no tighter than what is stated
    assert allowed(1000) >= FIXED + EACH * 1000


def test_a_refusal_does_not_quote_a_megabyte(
    offers: ModuleType, checkers: Checkers, tmp_path: Path
) -> None:
    for name in (
        "a description nested deep",
        "a name of a megabyte",
        "a card nested deep",
    ):
        answer = looked(checkers, tmp_path, offers.refused[name](), offers.POOL)
        assert 0 < len(answer["refused"]["text"]) <= 1000


# The server, and who pulls


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("offers")) as exchange:
        yield exchange


def test_no_offer_reaches_the_servers_own_process(
    exchange: Served, offers: ModuleType
) -> None:
    token = exchange.token("north")
    with Client(exchange.address, token) as client:
        client.subscribe("ward")
    names = (
        "300,000 layers",
        "many nested keys",
        "levels without end",
        "a tensor that stands twice",
        "10,000 branches",
    )
    for name in names:
        data = offers.refused[name]()
        answer = httpx.put(
            f"{exchange.address}/v1/pools/ward/offers/{digest_of(data)}",
            content=data,
            timeout=60,
            headers={"Authorization": f"Bearer {token}"},
        )
        assert answer.status_code == 422, name
        assert len(answer.content) < 2000
    assert not list((exchange.folder / "incoming").iterdir())


def test_one_silo_cannot_keep_all_checkers_busy(
    exchange: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = threading.Semaphore(0)
    go_on = threading.Event()
    check = Checkers.check

    def slowly(self: Checkers, path: Path, *args: Any, **more: Any) -> Any:
        # at the server
        if b'silo\\": \\"busy' in path.read_bytes() and more.get("seed") is not None:
            slow.release()
            assert go_on.wait(60)
        return check(self, path, *args, **more)

    monkeypatch.setattr(Checkers, "check", slowly)
    with (
        exchange.member("busy") as busy,
        exchange.member("quick") as quick,
        ThreadPoolExecutor(3) as threads,
    ):
        try:
            waiting = [
                threads.submit(busy.push, "ward", generator("busy", seed=seed))
                for seed in range(3)
            ]
            assert slow.acquire(timeout=60)
            assert quick.push("ward", generator("quick"))["silo"] == "quick"
            # its second is not looked at before its first is done
            assert not slow.acquire(blocking=False)
        finally:
            go_on.set()
        assert len({pushed.result()["digest"] for pushed in waiting}) == 3


@pytest.mark.parametrize(
    "more",
    [
        {"more": 1},
        {"note": ["nested"]},
        {"note": "x" * 1001},
        {"note": ""},
        {"silo": "north" * 300},
        {"accountant": 7},
    ],
    ids=lambda more: next(iter(more)),
)
def test_a_card_has_known_keys_and_short_texts_alone(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    (tmp_path / "good").write_bytes(seal(generator(note="a word")))
    OfferFile.read(tmp_path / "good", POOL)
    (tmp_path / "bad").write_bytes(seal(generator(**more)))
    with pytest.raises(
        Exception, match=f"the offer's (card has a key )?.?{next(iter(more))}"
    ):
        OfferFile.read(tmp_path / "bad", POOL)


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    data = seal(generator())
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    text = header["__metadata__"]["understudy"]
    header["__metadata__"]["understudy"] = text.replace(
        '"epsilon":', '"epsilon": 0.1, "epsilon":'
    )
    head = json.dumps(header).encode()
    (tmp_path / "bad").write_bytes(
        len(head).to_bytes(8, "little") + head + data[8 + length :]
    )
    with pytest.raises(ArtefactError, match="appears twice"):
        OfferFile.read(tmp_path / "bad", POOL)


def test_drawing_from_the_widest_offers_holds_few_numbers_at_a_time(
    offers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A latent of 16,384 at 16,384 rows would be a gibibyte."""
    pulled = []
    for place, silo in enumerate(("north", "south", "west")):
        (tmp_path / silo).write_bytes(
            offers.offer(offers.decoder(MOST_UNITS, (1,)), silo=silo, note=f"{place}")
        )
        pulled.append(OfferFile.read(tmp_path / silo, offers.POOL).generator())
    sizes: list[int] = []
    randn = torch.randn
    monkeypatch.setattr(
        torch,
        "randn",
        lambda shape, **more: sizes.append(shape[0] * shape[1]) or randn(shape, **more),
    )
    assert len(assess_offers(offers.POOL, pulled)) == 3
    Generator.from_parts(pool(pulled, offers.POOL, {})).sample(2000, seed=1)
    assert sizes
    assert max(sizes) <= 1 << 24


def test_judging_many_silos_in_groups_is_judging_them_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = [
        generator(f"silo-{n}", label, seed=n) for n in range(5) for label in LABELS
    ]
    at_once = assess_offers(POOL, given)
    monkeypatch.setattr("understudy.protocols.papers.sgde.pool._AT_ONCE", 1)
    assert assess_offers(POOL, given) == at_once
    assert Codec(SCHEMA).width > 1
