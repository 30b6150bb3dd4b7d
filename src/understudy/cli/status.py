"""`understudy status` and `understudy console`: how a server or a party shows itself in
a terminal, or in a browser.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table as Grid
from rich.text import Text

from understudy.cli.terminal import argument, need, option
from understudy.cli.terminal import plain as out
from understudy.network.status import (
    FINAL_STATES,
    STATES_WITHOUT_NEWS,
    party_state,
    read_status,
)
from understudy.privacy.accounts.budget import shown
from understudy.report.words import format_bytes

_COLOURS = {"failed": "red", "silent": "red", "done": "green", "training": "cyan"}
_MOODS = {"good": "", "partly": "yellow", "poor": "red"}


def status(
    folder: Annotated[
        Path, argument("A run's output folder at its server, or a party's home.")
    ],
    once: Annotated[bool, option("Print it once, and exit.", "--once")] = False,
) -> None:
    """Parties, round, ε spent, bytes and the last error; live in a terminal until the
    run ends.
    """

    def read_now() -> dict[str, Any]:
        status = read_status(folder)
        if status["role"] == "party" and Path(status["book"]).exists():
            from understudy.privacy.accounts.ledger import Ledger

            with Ledger(status["book"]) as book:
                status["ledger"] = book.summary()
        return status

    if once or not out.is_terminal:
        out.print(status_view(read_now()))
        return
    from rich.live import Live

    with Live(
        status_view(shown := read_now()), console=out, auto_refresh=False
    ) as live:
        while shown["state"] not in (*FINAL_STATES, "silent"):
            time.sleep(1)
            shown = read_now()
            live.update(status_view(shown), refresh=True)


def console(
    home: Annotated[
        Path,
        argument(
            "A home (`join --home`), or a federation's folder.",
            exists=True,
            file_okay=False,
        ),
    ],
    run: Annotated[
        list[Path] | None,
        option("Also show the run in this folder, with its report; repeatable."),
    ] = None,
    port: Annotated[
        int, option("On this machine; 0: any that is free.", min=0, max=65535)
    ] = 8610,
) -> None:
    """Show a home in the browser: contracts that wait, runs, the ledger and its budget;
    at a hub parties and runs.

    It listens on this machine alone. Anyone who has the link can decide in your name:
    it is printed once, and ends with this command.
    """
    need("fastapi", "uvicorn")
    from understudy.services.console.app import server_for
    from understudy.services.console.desk import desk_of

    desk = desk_of(home, tuple(run or ()))

    def ready(link: str) -> None:
        out.print(
            f"{desk.title}: open {link}\nThis link is for you alone. Ctrl-C ends the "
            "console."
        )

    server_for(desk, port=port, ready=ready).run()


def status_view(status: Mapping[str, Any]) -> Group:
    state = str(status["state"])
    view: list[Grid | Text] = [
        Text.assemble((state, _COLOURS.get(state, "yellow")), f"  {_title(status)}"),
        _parties(status) if status["role"] == "server" else Text(_party(status)),
    ]
    if status.get("error"):
        view.append(Text(f"last error: {status['error']}", style="red"))
    return Group(*view)


def _title(status: Mapping[str, Any]) -> str:
    if status["role"] != "server":
        return (
            f"{status['party']} in {status['federation']}, server at "
            f"{status['address']}"
        )
    parts = [status["federation"], f"run {status['run']}", f"port {status['port']}"]
    if "round" in status:
        parts.append(f"round {status['round']} of {status['rounds']}")
    return ", ".join(parts)


def _parties(status: Mapping[str, Any]) -> Grid:
    grid = Grid(box=SIMPLE_HEAD, padding=(0, 1))
    for name in ("party", "is", "since", "asks", "answers", "down", "up", "ε"):
        grid.add_column(
            name, justify="left" if name in ("party", "is") else "right", no_wrap=True
        )
    for name, party in status["parties"].items():
        spent = status.get("epsilon", {}).get(name)
        word, mood = party_state(party, status["state"])
        grid.add_row(
            Text(name),
            Text(word, style=_MOODS[mood]),
            _ago(status["at"], party["since"]),
            f"{party['asks']:,}",
            f"{party['answers']:,}",
            format_bytes(party["down"]),
            format_bytes(party["up"]),
            "" if spent is None else shown(spent, 3),
        )
    return grid


def _party(status: Mapping[str, Any]) -> str:
    connected = status["connected"] and status["state"] not in STATES_WITHOUT_NEWS
    line = "connected" if connected else "not connected"
    if status["state"] == "done":
        line = "over"
    run = f"run {status['run']}" if status["run"] else "no run yet"
    down = format_bytes(status["down"])
    up = format_bytes(status["up"])
    traffic = f"{status['asks']:,} asks, {down} in, {up} out"
    spent = f"; {status['ledger']}" if status.get("ledger") else ""
    uploads = (
        f"; {status['uploads']:,} uploads, {status['refused']:,} refused"
        if "uploads" in status
        else ""
    )
    return f"{line}; {run}; {traffic}{uploads}{spent}"


def _ago(now: float, earlier: float) -> str:
    if not earlier:
        return ""
    seconds = max(0, int(now - earlier))
    return (
        time.strftime("%H:%M:%S", time.gmtime(seconds))
        if seconds < 86_400
        else f"{seconds // 86_400} d"
    )
