"""Runs by their output folders, as the console shows them: at a hub, or where a holder keeps what a run made.

Guarantee: of an output folder only the status, the contract and the finished pages are read.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from understudy.ground.errors import ArtefactError
from understudy.network.status import FILE, GONE, party_word, read_status

PAGES = {"report.html": "for the holder alone", "report-public.html": "may be published"}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One party of a run, as its server has it."""

    name: str
    word: str
    mood: str
    why: str
    asks: int
    answers: int
    down: int
    up: int
    epsilon: float | None


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """A run's output folder."""

    key: str
    folder: Path
    run: str
    state: str
    protocol: str = ""
    round: int | None = None
    rounds: int | None = None
    error: str = ""
    parties: tuple[Shown, ...] = ()
    pages: tuple[str, ...] = field(default=())
    served: bool = False

    @property
    def unfinished(self) -> bool:
        """Whether the same command would resume it."""
        return self.served and self.state in GONE

    @property
    def missing(self) -> list[str]:
        """Who has not signed, or is not there."""
        return [party.name for party in self.parties if party.word in ("away", "reading the contract")]


def run_folder(key: str, folder: Path) -> RunFolder:
    """What the folder says of its run. ArtefactError if no run has begun there."""
    pages = tuple(page for page in PAGES if (folder / page).is_file())
    if (folder / FILE).exists():
        status = read_status(folder)
        if status.get("role") != "server":
            raise ArtefactError(f"{folder} is the home of a party, not the output folder of a run.")
        return RunFolder(
            key=key, folder=folder, run=str(status.get("run", "")), state=str(status["state"]),
            protocol=str(status.get("protocol", "")), round=status.get("round"), rounds=status.get("rounds"),
            error=str(status.get("error", "")), parties=_parties(status), pages=pages, served=True,
        )  # fmt: skip
    try:
        told = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        name = str(told["run"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ArtefactError(f"{folder} is not the output folder of a run.") from None
    done = (folder / "card.json").exists()
    return RunFolder(key=key, folder=folder, run=name, state="done" if done else "not finished", pages=pages)


def _parties(status: Mapping[str, Any]) -> tuple[Shown, ...]:
    state, spent = str(status["state"]), status.get("epsilon", {})
    found = []
    for name, party in status.get("parties", {}).items():
        word, mood = ("told", "good") if state == "done" and party["signed"] else party_word(party, state)
        found.append(
            Shown(
                name=name, word=word, mood=mood, why=party["refusal"], asks=party["asks"],
                answers=party["answers"], down=party["down"], up=party["up"], epsilon=spent.get(name),
            )
        )  # fmt: skip
    return tuple(found)
