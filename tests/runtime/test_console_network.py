"""A steward while a run is under way: a contract that waits is accepted in the browser,
and the ledger moves.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tomli_w
from browser import Browser
from desk import POLICY, Desk

from forker import until
from understudy.privacy.accounts.ledger import Ledger


@contextmanager
def console(desk: Desk, home: str) -> Iterator[str]:
    """A console as a process of its own, and the link that it prints."""
    terminal = desk.run("console", home, "--port", 0)
    try:
        terminal.says("This link is for you alone")
        found = re.search(r"http://\S+", terminal.out)
        assert found
        yield found[0]
    finally:
        terminal.kill()


def test_a_steward_accepts_in_the_browser_and_the_ledger_moves(
    desk: Desk, browser: Browser
) -> None:
    desk.found()
    asking = desk.folder / "asking.toml"
    asking.write_text(tomli_w.dumps(POLICY | {"accept": "ask"}))
    holders = {
        "insurer": desk.join("insurer"),
        "clinic": desk.join("clinic", policy=asking),
    }
    server = desk.serve()

    def status() -> dict[str, Any]:
        return json.loads((desk.folder / "joint" / "status.json").read_text())  # type: ignore[no-any-return]

    holders["clinic"].says("Decide with `understudy approve HOME`")
    with console(desk, "clinic") as mine, console(desk, "federation") as theirs:
        browser.go(mine)
        assert "1 contract waits for your decision" in browser.text()
        assert "understudy join runs here now" in browser.text()
        assert "ε 8 of 8" in browser.text(), "before it, nothing is spent"
        until(lambda: status()["parties"]["clinic"]["reading"], 60)
        browser.go(theirs)
        assert "clinic reading the contract" in browser.text()
        browser.go(mine)
        browser.click("button[value=accept]")
        assert "The contract is accepted." in browser.text()
        assert server.end() == 0, server.err
        for holder in holders.values():
            assert holder.end() == 0, holder.err
        with Ledger(desk.folder / "clinic" / "clinic.ledger") as book:
            left = book.remaining()
        assert left < 5.1
        browser.go(mine)
        assert "No contract waits" in browser.text()
        assert f"ε {int(1000 * left) / 1000:g} of 8" in browser.text()
        browser.go(f"{mine.partition('?')[0]}ledger")
        assert (
            json.loads((desk.folder / "joint" / "contract.json").read_text())["run"]
            in browser.text()
        )
        browser.go(theirs)
        assert "round 3 of 3" in browser.text()
        browser.click("form[action*='/runs/'] button")
        assert "The report is written" in browser.text()
        browser.click("a[href$='report-public.html']")
        assert "understudy" in browser.text()
    assert browser.complaints() == []
