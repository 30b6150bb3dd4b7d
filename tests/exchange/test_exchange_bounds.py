"""What one member, and all together, can make an exchange keep: lines of refusals and
pulls, and uploads under way.
"""

import http.client
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from unittest.mock import Mock

import pytest
from exchange_cases import FAST, POOL, Served, generator, served
from sqlalchemy import func, select

from understudy.ground.errors import Effect, ExchangeError
from understudy.services.exchange import service
from understudy.services.exchange.database import Caller, Event, Offer, as_stored
from understudy.services.exchange.offer_file import seal
from understudy.services.exchange.serve import OPERATOR, open_exchange
from understudy.services.exchange.service import Exchange
from understudy.services.web.limits import Limits

FEW = replace(FAST, refusals=5, uploads=2)


@contextmanager
def opened(folder: Path, limits: Limits) -> Iterator[Exchange]:
    exchange = open_exchange(folder, pools={"ward": POOL}, limits=limits)
    try:
        yield exchange
    finally:
        exchange.close()


def member(exchange: Exchange, silo: str) -> Caller:
    caller = Caller(token=f"token of {silo}", silo=silo, role="member", pool="ward")
    exchange.subscribe(caller, "ward")
    return caller


def refused_lines(exchange: Exchange) -> int:
    with exchange.database.read() as session:
        return session.scalar(select(func.count()).where(Event.status >= 400)) or 0


def refused(exchange: Exchange, caller: Caller, number: int) -> ExchangeError:
    with pytest.raises(ExchangeError) as refusal:
        exchange.pull(caller, "ward", sha256(str(number).encode()).hexdigest())
    return refusal.value


def test_refusals_of_a_member_are_logged_up_to_a_number_a_day_also_after_a_restart(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, FEW) as exchange:
        north = member(exchange, "north")
        for number in range(FEW.refusals):
            assert refused(exchange, north, number).status == 404
        last = refused(exchange, north, 99)
        assert (last.status, bool(last.retry_after)) == (429, True)
        assert "refused 5 times in a day" in str(last)
        assert last.effect is Effect.NOTHING_STORED
        with pytest.raises(ExchangeError, match="refused 5 times in a day"):
            exchange.may_push(north, "ward", "0" * 64, None)
        with pytest.raises(ExchangeError, match="refused 5 times in a day"):
            exchange.withdraw(north, "ward", "0" * 64)
        assert refused_lines(exchange) == FEW.refusals
        # nobody else is kept out
        assert refused(exchange, member(exchange, "south"), 0).status == 404
    with opened(tmp_path, FEW) as exchange:
        assert refused(exchange, north, 99).status == 429
        assert refused(exchange, member(exchange, "south"), 0).status == 404
        assert refused_lines(exchange) == FEW.refusals + 2
        # what changes nothing and is not logged goes on
        assert exchange.offers(north, "ward") == []


@pytest.mark.long
def test_of_all_refusals_the_log_keeps_the_last_and_all_that_was_done(
    tmp_path: Path,
) -> None:
    few = replace(FEW, refusals=1)
    with opened(tmp_path, few) as exchange:
        for silo in range(few.refusals_in_all // few.refusals + 9):
            caller = member(exchange, f"silo-{silo}")
            for number in range(few.refusals):
                refused(exchange, caller, number)
            assert refused_lines(exchange) <= few.refusals_in_all
        lines = exchange.events(OPERATOR, most=10**6)
        assert [line.silo for line in lines if line.action == "subscribe"] == [
            f"silo-{n}" for n in range(silo + 1)
        ]
        assert (lines[-1].silo, lines[-1].status) == (f"silo-{silo}", 404)
        kept = refused_lines(exchange)
        assert kept > few.refusals_in_all // 2
    with opened(tmp_path, few) as exchange:
        assert exchange.refusals.lines == kept
        for silo in range(15):
            refused(exchange, member(exchange, f"other-{silo}"), 0)
            assert refused_lines(exchange) <= few.refusals_in_all


def pulls_in(exchange: Exchange) -> list[tuple[str, str | None]]:
    with exchange.database.read() as session:
        done = select(Event.token, Event.digest).where(
            Event.action == "pull", Event.status == 200
        )
        return [(token, digest) for token, digest in session.execute(done)]


def offered(exchange: Exchange, digest: str) -> str:
    with exchange.database.write() as session:
        session.add(
            Offer(
                pool="ward",
                digest=digest,
                silo="east",
                label="null",
                epsilon=1.0,
                delta=1e-6,
                network="mixture",
                bytes=10,
                created="2026-01-01T00:00:00Z",
                withdrawn=None,
                card="{}",
                preview="{}",
            )
        )
    return digest


def test_pulls_of_one_offer_by_one_token_have_one_line_a_day_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often: pulling again tells a silo nothing that it does not have, and must
    not fill the disk.
    """
    with opened(tmp_path, FEW) as exchange:
        north = member(exchange, "north")
        south = member(exchange, "south")
        first = offered(exchange, "1" * 64)
        second = offered(exchange, "2" * 64)
        for caller in (north, south):
            for digest in (first, second, first):
                for _ in range(20):
                    assert exchange.pull(caller, "ward", digest).digest == digest
        due = [
            (caller.token, digest)
            for caller in (north, south)
            for digest in (first, second)
        ]
        assert pulls_in(exchange) == due
    with opened(tmp_path, FEW) as exchange:
        exchange.pull(north, "ward", first)
        assert pulls_in(exchange) == due
        tomorrow = as_stored(datetime.now(UTC) + timedelta(days=1))
        monkeypatch.setattr(service, "now", lambda: tomorrow)
        for _ in range(5):
            exchange.pull(north, "ward", first)
        assert pulls_in(exchange) == [*due, (north.token, first)]


def test_pulls_that_come_at_once_have_one_line(tmp_path: Path) -> None:
    many = 8
    with opened(tmp_path, FEW) as exchange:
        north = member(exchange, "north")
        digest = offered(exchange, "1" * 64)
        together = threading.Barrier(many)

        def pull(_: int) -> str:
            together.wait()
            return exchange.pull(north, "ward", digest).digest

        with ThreadPoolExecutor(many) as threads:
            assert [*threads.map(pull, range(many))] == many * [digest]
        assert pulls_in(exchange) == [(north.token, digest)]


def test_a_pull_whose_line_could_not_be_written_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, FEW) as exchange:
        north = member(exchange, "north")
        digest = offered(exchange, "1" * 64)
        with monkeypatch.context() as disk:
            disk.setattr(exchange, "_log", Mock(side_effect=OSError("full")))
            with pytest.raises(OSError, match="full"):
                exchange.pull(north, "ward", digest)
        assert pulls_in(exchange) == []
        exchange.pull(north, "ward", digest)
        assert pulls_in(exchange) == [(north.token, digest)]


def sent(
    exchange: Served, token: str, data: bytes, *, part: float = 1.0
) -> http.client.HTTPConnection:
    """A push of which so much has been sent."""
    connection = http.client.HTTPConnection(
        exchange.address.removeprefix("http://"), timeout=60
    )
    connection.putrequest("PUT", f"/v1/pools/ward/offers/{sha256(data).hexdigest()}")
    for name, value in (
        ("Authorization", f"Bearer {token}"),
        ("Content-Length", str(len(data))),
    ):
        connection.putheader(name, value)
    connection.endheaders(data[: int(part * len(data))])
    return connection


@contextmanager
def answer(
    exchange: Served, token: str, data: bytes
) -> Iterator[http.client.HTTPResponse]:
    with closing(sent(exchange, token, data)) as connection:
        yield connection.getresponse()


def until(true: threading.Event, exchange: Served, number: int) -> None:
    """Wait until so many uploads are under way."""
    for _ in range(2000):
        if len(list((exchange.folder / "incoming").iterdir())) == number:
            return
        true.wait(0.005)
    raise AssertionError(list((exchange.folder / "incoming").iterdir()))


def test_a_member_and_all_members_have_so_many_uploads_under_way_and_no_more(
    tmp_path: Path,
) -> None:
    tick = threading.Event()
    with served(tmp_path, limits=FEW) as exchange, ExitStack() as under_way:
        tokens = []
        for silo in range(FEW.uploads_in_all // FEW.uploads + 1):
            with exchange.member(f"silo-{silo}"):
                tokens.append(exchange.token(f"silo-{silo}"))
        for number in range(FEW.uploads_in_all):
            data = seal(generator(seed=number))
            under_way.enter_context(
                closing(sent(exchange, tokens[number // FEW.uploads], data, part=0.5))
            )
        until(tick, exchange, FEW.uploads_in_all)
        with answer(exchange, tokens[0], seal(generator("silo-0", seed=90))) as mine:
            assert mine.status == 429
            assert int(mine.headers["retry-after"])
            assert b'\\"silo-0\\" has 2 uploads under way' in (said := mine.read())
            assert b"NOTHING_STORED" in said
        name = f"silo-{len(tokens) - 1}"
        with answer(exchange, tokens[-1], seal(generator(name, seed=91))) as full:
            assert full.status == 503
            assert int(full.headers["retry-after"])
            assert b"8 uploads are under way in all" in (said := full.read())
            assert b"NOTHING_STORED" in said
        assert len(list((exchange.folder / "incoming").iterdir())) == FEW.uploads_in_all
        under_way.close()  # they are cut off, and their places are free again
        until(tick, exchange, 0)
        with answer(exchange, tokens[-1], seal(generator(name, seed=91))) as free:
            assert free.status == 201
    assert not list((tmp_path / "incoming").iterdir())


def test_a_start_clears_what_a_kill_left_of_uploads(tmp_path: Path) -> None:
    with served(tmp_path):
        pass
    for number in range(9):
        (tmp_path / "incoming" / str(number)).write_bytes(bytes(9))
    with (
        served(tmp_path, limits=FEW) as exchange,
        exchange.member("north", tries=1) as north,
    ):
        assert exchange.exchange.swept == 9
        assert north.push("ward", generator())


def test_an_offer_that_was_withdrawn_leaves_a_short_line(tmp_path: Path) -> None:
    with served(tmp_path) as exchange, exchange.member("north", tries=1) as north:
        digest = north.push("ward", generator(note="x" * 999))["digest"]
        north.withdraw("ward", digest)
        with exchange.exchange.database.read() as session:
            row = session.get_one(Offer, ("ward", digest))
        assert len(row.card) + len(row.preview) < 10
        with pytest.raises(ExchangeError, match="does not come back"):
            north.push("ward", generator(note="x" * 999))
