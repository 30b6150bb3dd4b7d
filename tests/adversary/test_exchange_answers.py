"""An exchange that answers whatever it likes costs its member a bounded amount of
memory, and a sentence.
"""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from understudy.ground.errors import UnderstudyError
from understudy.services.exchange import client as transport
from understudy.services.exchange.client import Client


@contextmanager
def exchange_that_says(
    body: bytes, status: int = 200, **headers: str
) -> Iterator[tuple[Client, list[int]]]:
    """A client of somebody who answers everything with this, a thousand times over
    where `headers` say no length.
    """
    sent = [0]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            for _ in range(1 if "Content_Length" in headers else 1000):
                try:
                    self.wfile.write(body)
                except OSError:
                    return
                sent[0] += len(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        with Client(
            f"http://127.0.0.1:{server.server_port}", "usx_x", tries=1
        ) as client:
            yield client, sent
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [200, 403, 503])
def test_an_answer_without_end_is_cut(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(transport, "MOST_ANSWER", 1 << 16)
    with exchange_that_says(b"[" + b" " * (1 << 20), status) as (client, sent):
        with pytest.raises(UnderstudyError, match="more than 65,536 bytes"):
            client.pools()
        assert sent[0] < 100 << 20


def test_an_answer_that_unpacks_to_much_more_is_not_unpacked() -> None:
    packed = gzip.compress(b" " * (1 << 24) + b"[]")
    about = {"Content_Length": str(len(packed)), "Content_Encoding": "gzip"}
    with (
        exchange_that_says(packed, **about) as (client, _),
        pytest.raises(UnderstudyError, match="what it answers is no JSON"),
    ):
        client.pools()


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"a":' * 100_000, b"no", b"\xff\xfe", b"[1,"]
)
@pytest.mark.parametrize("status", [200, 403])
def test_what_is_no_json_or_nested_too_deep_is_refused_in_words(
    body: bytes, status: int
) -> None:
    with (
        exchange_that_says(body, status, Content_Length=str(len(body))) as (client, _),
        pytest.raises(
            UnderstudyError, match=r"what it answers is no JSON|it answers 403"
        ),
    ):
        client.pools()


@pytest.mark.parametrize("wait", ["-5", "nan", "inf", "soon", "1e400"])
def test_a_time_to_wait_that_makes_no_sense_is_not_waited_for(
    wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(transport.time, "sleep", waited.append)
    with exchange_that_says(b"{}", 503, Content_Length="2", Retry_After=wait) as (
        client,
        _,
    ):
        client._tries = 2
        with pytest.raises(UnderstudyError, match="was tried 2 times"):
            client.pools()
    assert 0 <= waited[0] <= 30
