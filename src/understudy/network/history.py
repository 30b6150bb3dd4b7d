"""What a holder's audit log tells of each run: messages, bytes, beginning and end.

Guarantee: reads the log and writes nothing. What is counted are messages and bytes, no figure of any row.
Edges: of a log above `MOST` bytes the end alone is read; runs from before are not in it, or not whole.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

MOST = 1 << 26  # bytes of a log that are read


@dataclass(kw_only=True)
class Traffic:
    """One run at one holder: asks that came and answers that went, with their bytes; times are texts (UTC)."""

    asks: int = 0
    answers: int = 0
    refusals: int = 0
    down: int = 0
    up: int = 0
    began: str = ""
    last: str = ""
    ended: bool = False


def traffic(log: Path) -> dict[str, Traffic]:
    """Run → what crossed for it, in the order in which runs were signed."""
    try:
        return _traffic(log, log.stat().st_size)
    except FileNotFoundError:
        return {}


@lru_cache(maxsize=4)
def _traffic(log: Path, size: int) -> dict[str, Traffic]:
    found: dict[str, Traffic] = {}
    run: Traffic | None = None
    with log.open("rb") as file:
        if size > MOST:
            file.seek(size - MOST)
            file.readline()
        for text in file:
            if not text.endswith(b"\n"):
                break  # it is being written
            line = json.loads(text)
            event = line["event"]
            if event in ("contract accepted", "contract resumed"):
                run = found.setdefault(line["run"], Traffic(began=line["at"]))
            elif event == "contract refused":
                run = None
            if run is not None:
                _count(run, event, line)
    return found


def _count(run: Traffic, event: str, line: dict[str, object]) -> None:
    run.last = str(line["at"])
    match event, line.get("bytes"):
        case "ask", int(size):
            run.asks, run.down = run.asks + 1, run.down + size
        case (("reply" | "refusal"), int(size)):
            run.answers, run.up = run.answers + 1, run.up + size
            run.refusals += event == "refusal"
        case "ended", _:
            run.ended = True
