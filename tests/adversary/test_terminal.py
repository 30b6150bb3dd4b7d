"""What others worded cannot steer the terminal of whoever reads it, nor turn its lines
around.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from dp_accounting.dp_event import GaussianDpEvent
from typer.testing import CliRunner

from understudy.cli import app
from understudy.cli import terminal as consoles
from understudy.network.decisions import DecisionQueue
from understudy.network.status import Status
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.runtime.contract import Contract
from understudy.runtime.identity import Authority

STEERING = (
    "a\x1b[2K\x1b[1A\x1b[8m\x9b31m\x07\x08\r\u202eb\u2066\u200b\x1b]0;title\x1b\\c"
)
NEVER = set(STEERING) - set("abc[]0;1232K18mAtile\\")


def said(*words: str) -> str:
    """All that a command prints."""
    done = CliRunner().invoke(app, list(words))
    text = done.output + done.stderr + str(done.exception or "")
    assert not NEVER & set(done.output + done.stderr), ascii(done.output + done.stderr)
    return text


@pytest.mark.parametrize("name", ["out", "err", "plain", "plain_err", "wide"])
def test_no_console_passes_on_what_steers_a_terminal(name: str) -> None:
    console = getattr(consoles, name)
    with console.capture() as caught:
        console.print(consoles.escape(STEERING))
        console.print("two\nlines\tand ε = 1.5 –")
    assert not NEVER & set(caught.get())
    assert "two\nlines" in caught.get()
    assert "ε = 1.5 –" in caught.get()


def test_a_contract_cannot_rewrite_what_its_steward_reads(tmp_path: Path) -> None:
    Authority.create(tmp_path / "f", name="study", address="127.0.0.1:1").issue(
        "clinic"
    ).save(tmp_path / "home" / "identity.toml")
    one = Contract(
        federation="study",
        run="r",
        protocol=f"gram{STEERING}",
        settings={STEERING: [STEERING]},
        schemas={"clinic": "0"},
        budgets={"clinic": Budget(7.5, 1e-6)},
        columns={"clinic": {STEERING: "0"}},
    )
    DecisionQueue(home=tmp_path / "home").later(one)
    assert "ε=7.5" in said("approve", str(tmp_path / "home"), "--refuse")


def test_ledgers_and_states_are_shown_without_what_steers(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l", holder="clinic", budget=Budget(8.0, 1e-6)) as book:
        book.charge(GaussianDpEvent(6.0), run="r", description=STEERING)
    said("ledger", "show", str(tmp_path / "l"))
    party = dict.fromkeys(("asks", "answers", "refusals", "down", "up", "joins"), 1)
    flags = dict.fromkeys(("connected", "signed", "waiting", "left_out"), False)
    parties = {STEERING: party | flags | {"since": 0.0, "refusal": STEERING}}
    with Status(
        tmp_path / "out",
        role="server",
        run=STEERING,
        protocol=STEERING,
        federation=STEERING,
        port=1,
        parties=parties,
    ) as status:
        status.update(state="failed", error=STEERING)
    said("status", str(tmp_path / "out"))


@contextmanager
def hostile_exchange(answer: object, status: int) -> Iterator[str]:
    """Somebody who answers everything with this."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_exchange_cannot_steer_the_terminal_of_its_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERSTUDY_TOKEN", "usx_x")
    token = dict.fromkeys(
        ("id", "silo", "role", "pool", "created", "revoked"), STEERING
    )
    with hostile_exchange([token], 200) as address:
        assert "title" in said("exchange", "token", "list", "--at", address)
    with hostile_exchange({"detail": STEERING}, 403) as address:
        said("exchange", "token", "list", "--at", address)
