"""Docs/exchange.md: who has no token cannot keep the exchange from those who have one,
nor make it read on.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from exchange_cases import Served, served
from test_exchange_load import certificate

from understudy.services.web import connections, skeleton
from understudy.services.web.limits import Limits

FLOOD = 1_100


def place(exchange: Served) -> tuple[str, int]:
    host, port = exchange.address.rpartition("//")[2].split(":")
    return host, int(port)


def connect(exchange: Served, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(
        place(exchange), timeout=60, source_address=(source, 0)
    )


@contextlib.contextmanager
def flood(exchange: Served, addresses: int) -> Iterator[list[socket.socket]]:
    """Many connections that say nothing, from so many addresses."""
    made: list[socket.socket] = []
    try:
        for number in range(FLOOD):
            with contextlib.suppress(OSError):  # sent away at the door
                made.append(connect(exchange, f"127.0.1.{1 + number % addresses}"))
        yield made
    finally:
        for one in made:
            one.close()


def ended(connection: socket.socket) -> bool:
    """Whether the server hangs up; waits for it."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def few(monkeypatch: pytest.MonkeyPatch, **changes: float) -> None:
    """Other limits, for a test that cannot wait."""
    made = connections.ConnectionLimits.__init__
    monkeypatch.setattr(
        connections.ConnectionLimits,
        "__init__",
        lambda self, **more: made(self, **{**more, **changes}),
    )


@pytest.mark.long
@pytest.mark.parametrize("addresses", [1, 20])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "before TLS"])
def test_a_thousand_silent_connections_keep_nobody_out(
    tmp_path: Path, addresses: int, tls: bool
) -> None:
    """From one address most are sent away; from many, who has said nothing makes
    room.
    """
    options = {}
    ca = None
    if tls:
        options = dict(zip(("certificate", "key"), certificate(tmp_path), strict=True))
        ca = options["certificate"]
    with (
        served(tmp_path / "data", **options) as exchange,
        flood(exchange, addresses),
        # a place is free when the server has seen to it
        exchange.admin(ca=ca, tries=4) as admin,
    ):
        assert len(admin.pools()) == 2


def test_an_address_has_so_many_connections_and_not_one_more(tmp_path: Path) -> None:
    with served(tmp_path, limits=Limits(connections=3)) as exchange:
        three = [connect(exchange) for _ in range(3)]
        with connect(exchange) as fourth:
            assert ended(fourth)
        three.pop().close()
        deadline = time.monotonic() + 60
        status = 0
        # its place is free when the server has seen it go
        while status != 200 and time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                status = httpx.get(f"{exchange.address}/v1/health").status_code
        assert status == 200
        for one in three:
            one.close()


SAID: dict[str, bytes] = {
    "nothing": b"",
    "half a line": b"GET /v1/hea",
    "half a head": b"GET /v1/health HTTP/1.1\r\nHost: x\r\n",
    "no body": b"POST /v1/pools HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
    "half a head after an answer": b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/hea",
}


@pytest.mark.parametrize("said", SAID)
def test_a_connection_that_does_not_go_on_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    few(monkeypatch, hello=0.3, idle=0.3)
    monkeypatch.setattr(skeleton, "SLOWEST_JSON", 0.3)
    with served(tmp_path) as exchange, connect(exchange) as connection:
        connection.sendall(SAID[said])
        # an answer, or the end; a connection that stays open times out
        while chunk := connection.recv(1 << 16):
            assert b"HTTP/1.1 200" in chunk or b"HTTP/1.1 4" in chunk or b"{" in chunk


def test_a_drip_does_not_keep_a_head_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(monkeypatch, hello=0.5)
    with served(tmp_path) as exchange, connect(exchange) as connection:
        deadline = time.monotonic() + 60
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline:
                connection.sendall(b"G")
                time.sleep(0.05)
        assert time.monotonic() < deadline


def test_before_tls_silence_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(monkeypatch, hello=0.3)
    cert, key = certificate(tmp_path)
    with (
        served(tmp_path / "data", certificate=cert, key=key) as exchange,
        connect(exchange) as connection,
    ):
        assert ended(connection)


# Bodies after a refusal


HUGE = 200 << 20


def sent_after(exchange: Served, head: bytes, chunk: bytes) -> tuple[bytes, int]:
    """The answer to this head, and how much of an endless body could be sent before the
    connection was cut.
    """
    body = b"%x\r\n%b\r\n" % (len(chunk), chunk)
    sent = 0
    with connect(exchange) as connection:
        connection.sendall(head)
        with contextlib.suppress(OSError):
            while sent < HUGE:
                connection.sendall(body)
                sent += len(chunk)
        with contextlib.suppress(OSError):
            return connection.recv(1 << 16), sent
    return b"", sent


def push_head(token: str) -> bytes:
    return (
        f"PUT /v1/pools/ward/offers/{'0' * 64} HTTP/1.1\r\nHost: x\r\nAuthorization: "
        f"Bearer {token}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    ).encode()


REFUSED: dict[str, Callable[[Served], tuple[bytes, int]]] = {
    "no token": lambda _: (push_head("usx_x"), 401),
    "too large": lambda exchange: (push_head(_member(exchange)), 413),
    "no length": lambda _: (
        b"POST /v1/pools HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        411,
    ),
    "no such place": lambda _: (
        b"PUT /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n",
        404,
    ),
}


def _member(exchange: Served) -> str:
    token = exchange.token("north")
    answer = httpx.put(
        f"{exchange.address}/v1/pools/ward/subscription",
        headers={"Authorization": f"Bearer {token}"},
    )
    assert answer.status_code == 200
    return token


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("sockets")) as exchange:
        yield exchange


@pytest.mark.parametrize("why", REFUSED)
def test_after_a_refusal_a_body_is_not_read_on(exchange: Served, why: str) -> None:
    head, status = REFUSED[why](exchange)
    answer, sent = sent_after(exchange, head, bytes(1 << 16))
    assert f"HTTP/1.1 {status}".encode() in answer
    assert b"connection: close" in answer.lower()
    assert sent < 32 << 20  # what the pool takes, and the buffers of two machines


def test_who_still_sends_reads_the_refusal(exchange: Served) -> None:
    answer = httpx.put(
        f"{exchange.address}/v1/pools/ward/offers/{'0' * 64}",
        content=bytes(1 << 23),
        timeout=60,
        headers={"Authorization": "Bearer usx_x"},
    )
    assert answer.status_code == 401


def test_a_request_that_tells_its_length_twice_is_refused(exchange: Served) -> None:
    smuggled = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n"
    for method, where in (
        (b"PUT", b"/v1/pools/ward/offers/" + b"0" * 64),
        (b"POST", b"/v1/pools"),
        (b"GET", b"/"),
    ):
        head = (
            method
            + b" "
            + where
            + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        with connect(exchange) as connection:
            connection.sendall(head + b"0\r\n\r\n" + smuggled)
            answer = b""
            while chunk := connection.recv(1 << 16):
                answer += chunk
        assert answer.startswith(b"HTTP/1.1 400")
        # nothing behind it is taken for a request
        assert answer.count(b"HTTP/1.1") == 1
