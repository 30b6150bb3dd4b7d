"""Homes of a holder and of a hub, made by what makes them in earnest, and a console
that is served on loopback.
"""

import html
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
from dp_accounting.dp_event import GaussianDpEvent

from understudy.data.samples import toy
from understudy.network.decisions import DecisionQueue
from understudy.network.status import Status, WatchedLog, note_served
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.runs.registry import protocol_named
from understudy.runtime.contract import Contract, columns_of, digest_of
from understudy.runtime.identity import Authority
from understudy.services.console.app import server_for
from understudy.services.console.desk import desk_of
from understudy.services.console.guard import Keys

SCHEMA = toy(rows=4, seed=1)[1]
MINE, THEIRS = (
    SCHEMA.select(names)
    for names in (["colour", "smoker", "age"], ["grade", "treated", "income"])
)


def contract(
    run: str = "gram-1",
    *,
    epsilon: float = 1.5,
    protocol: str = "gram",
    **settings: Any,
) -> Contract:
    return Contract(
        federation="joint study",
        run=run,
        protocol=protocol,
        settings=asdict(protocol_named(protocol).configured(settings)),
        schemas={"clinic": digest_of(MINE), "insurer": digest_of(THEIRS)},
        columns={"clinic": columns_of(MINE), "insurer": columns_of(THEIRS)},
        budgets=dict.fromkeys(("clinic", "insurer"), Budget(epsilon, 1e-6)),
    )


def holder(folder: Path, *waiting: Contract, spent: bool = True) -> Path:
    """The home of the clinic: a run behind it, and contracts that wait."""
    home = folder / "clinic"
    authority = Authority.create(
        folder / "federation", name="joint study", address="127.0.0.1:7400"
    )
    authority.issue("clinic").save(home / "identity.toml")
    with Ledger(
        home / "clinic.ledger", holder="clinic", budget=Budget(8.0, 1e-6)
    ) as book:
        log = WatchedLog(home / "audit.jsonl")
        with Status(
            home,
            more=lambda: log.counts,
            role="party",
            party="clinic",
            federation="joint study",
            address="127.0.0.1:7400",
            book=str(home / "clinic.ledger"),
        ) as status:
            status.update(state="joined")
            if spent:
                _run(home, log, book)
            status.update(state="done")
        log.close()
    for one in waiting:
        DecisionQueue(home=home).later(one)
    return home


def _run(home: Path, log: WatchedLog, book: Ledger) -> None:
    done = contract("gram-0", epsilon=2.0)
    (home / "runs" / done.digest).mkdir(parents=True)
    (home / "runs" / done.digest / "contract.json").write_text(done.text)
    log.write("contract accepted", contract=done.digest, run=done.run)
    for number in range(3):
        log.write("ask", number=number, bytes=2_000, sha256="")
        book.charge(GaussianDpEvent(6.0), run=done.run, description=f"release {number}")
        log.write("reply", number=number, bytes=40_000, sha256="")
    log.write("ended", run=done.run)


def hub(folder: Path, *, state: str = "failed") -> Path:
    """A federation with a run that was served for it."""
    authority = Authority.create(
        folder / "federation", name="joint study", address="127.0.0.1:7400"
    )
    authority.issue("clinic")
    authority.invite("insurer")
    out = folder / "joint"
    parties = {
        name: {
            "connected": False,
            "signed": name == "clinic",
            "refusal": why,
            "since": 0.0,
            "waiting": False,
            "left_out": False,
            "joins": 1,
            "asks": 7,
            "answers": 7,
            "refusals": 0,
            "down": 9_000,
            "up": 70_000,
        }
        for name, why in (
            ("clinic", ""),
            ("insurer", "insurer refuses the contract: ε=3 is above the ε=2."),
        )
    }
    facts = {
        "run": "gram-2",
        "protocol": "gram",
        "federation": "joint study",
        "port": 7400,
        "parties": parties,
    }
    with Status(
        out, role="server", round=2, rounds=5, epsilon={"clinic": 0.7}, **facts
    ) as status:
        status.update(
            state=state,
            error="insurer refuses the contract." if state == "failed" else "",
        )
    note_served(folder / "federation", "gram-2", out)
    return folder / "federation"


@contextmanager
def console(folder: Path, *runs: Path) -> Iterator[tuple[str, Keys]]:
    """A console of this folder on a free port: its link, and its secrets."""
    links: list[str] = []
    keys = Keys()
    server = server_for(desk_of(folder, runs), port=0, ready=links.append, keys=keys)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not links:
            assert thread.is_alive()
            time.sleep(0.01)
        yield links[0], keys
    finally:
        server.should_exit = True
        thread.join()


@dataclass
class Visitor:
    """Somebody with the link, in a browser without a picture."""

    client: httpx.Client
    keys: Keys

    def get(self, path: str = "") -> httpx.Response:
        return self.client.get(path)

    def see(self, path: str = "") -> str:
        """The words on a page, spaces made one."""
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return words_of(answer)

    def post(self, path: str, **fields: str) -> httpx.Response:
        return self.client.post(path, data={"form": self.keys.form} | fields)


def words_of(answer: httpx.Response) -> str:
    """What a reader reads: no style, no marks, spaces made one."""
    text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", answer.text, flags=re.DOTALL)
    return " ".join(html.unescape(text).split())


@contextmanager
def visitor(folder: Path, *runs: Path) -> Iterator[Visitor]:
    """A console of this folder, and somebody who has opened its link."""
    with (
        console(folder, *runs) as (link, keys),
        httpx.Client(follow_redirects=True, trust_env=False, timeout=60) as client,
    ):
        client.base_url = link.partition("?")[0]  # type: ignore[assignment]
        client.get(link).raise_for_status()
        yield Visitor(client, keys)
