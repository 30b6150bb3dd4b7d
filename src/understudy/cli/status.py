"""How a server or a party shows itself in a terminal."""

import time
from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table as Grid
from rich.text import Text

from understudy.network.status import GONE, party_word
from understudy.privacy.accounts.budget import shown
from understudy.report.words import size

_COLOURS = {"failed": "red", "silent": "red", "done": "green", "training": "cyan"}
_MOODS = {"good": "", "partly": "yellow", "poor": "red"}


def status_view(status: Mapping[str, Any]) -> Group:
    """The status of a server (parties, round, ε, bytes, last error) or of a party."""
    state = str(status["state"])
    colour = _COLOURS.get(state, "yellow")
    view = [Text.assemble((state, colour), f"  {_title(status)}")]
    if status["role"] == "server":
        view.append(_parties(status))  # type: ignore[arg-type]
    else:
        view.append(Text(_party(status)))
    if status.get("error"):
        view.append(Text(f"last error: {status['error']}", style="red"))
    return Group(*view)


def _title(status: Mapping[str, Any]) -> str:
    if status["role"] != "server":
        return f"{status['party']} in {status['federation']}, server at {status['address']}"
    parts = [status["federation"], f"run {status['run']}", f"port {status['port']}"]
    if "round" in status:
        parts.append(f"round {status['round']} of {status['rounds']}")
    return ", ".join(parts)


def _parties(status: Mapping[str, Any]) -> Grid:
    grid = Grid(box=SIMPLE_HEAD, padding=(0, 1))
    for name in ("party", "is", "since", "asks", "answers", "down", "up", "ε"):
        grid.add_column(name, justify="left" if name in ("party", "is") else "right", no_wrap=True)
    for name, party in status["parties"].items():
        spent = status.get("epsilon", {}).get(name)
        grid.add_row(
            Text(name), _word(party, status["state"]), _ago(status["at"], party["since"]), f"{party['asks']:,}",
            f"{party['answers']:,}", size(party["down"]), size(party["up"]), "" if spent is None else shown(spent, 3),
        )  # fmt: skip
    return grid


def _word(party: Mapping[str, Any], state: str) -> Text:
    word, mood = party_word(party, state)
    return Text(word, style=_MOODS[mood])


def _party(status: Mapping[str, Any]) -> str:
    connected = status["connected"] and status["state"] not in GONE
    line = "over" if status["state"] == "done" else "connected" if connected else "not connected"
    run = f"run {status['run']}" if status["run"] else "no run yet"
    traffic = f"{status['asks']:,} asks, {size(status['down'])} in, {size(status['up'])} out"
    spent = f"; {status['ledger']}" if status.get("ledger") else ""
    taken = f"; {status['uploads']:,} uploads, {status['refused']:,} refused" if "uploads" in status else ""
    return f"{line}; {run}; {traffic}{taken}{spent}"


def _ago(now: float, then: float) -> str:
    if not then:
        return ""
    seconds = max(0, int(now - then))
    return time.strftime("%H:%M:%S", time.gmtime(seconds)) if seconds < 86_400 else f"{seconds // 86_400} d"
