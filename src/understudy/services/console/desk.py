"""What one console looks after: a holder's home, or a hub's folder, and output folders
of runs beside it.

Guarantee: of an output folder only what is for everyone is read: status, contract,
privacy statement, finished pages, and who has signed the evidence. Of a hub no key is
shown; an invitation is written to a file there, never into a page.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from understudy.evidence.signing import envelopes_in
from understudy.ground.durable import read_json
from understudy.ground.errors import ArtefactError
from understudy.network.status import (
    FILE,
    STATES_WITHOUT_NEWS,
    list_served,
    party_state,
    read_status,
)
from understudy.privacy.accounts.budget import Guess, stated_guess
from understudy.runtime.identity import Authority
from understudy.services.console.holder import HolderHome

PAGES = {
    "report.html": "for the holder alone",
    "report-public.html": "may be published",
}
SOON = 30  # days before the end of a certificate in which it is said


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    key: str
    folder: Path
    run: str
    state: str
    protocol: str = ""
    round: int | None = None
    rounds: int | None = None
    error: str = ""
    parties: tuple[Mapping[str, Any], ...] = ()  # as their server has them, with a word
    pages: tuple[str, ...] = ()
    served: bool = False
    # of a finished run that was no rehearsal, as its statement has them
    holders: tuple[str, ...] = ()
    # of such a run: the best one, and between which worlds
    guess: tuple[Guess, str] | None = None
    # who is said to have signed its evidence; None: there is no evidence
    signers: tuple[str, ...] | None = None

    @property
    def evidence(self) -> Path:
        return self.folder / "evidence"

    @property
    def unfinished(self) -> bool:
        return self.served and self.state in STATES_WITHOUT_NEWS

    @property
    def missing(self) -> list[str]:
        return [
            one["name"]
            for one in self.parties
            if one["word"] in ("away", "reading the contract")
        ]


def run_folder(key: str, folder: Path) -> RunFolder:
    """What the folder says of its run. ArtefactError if no run has begun there."""
    pages = tuple(page for page in PAGES if (folder / page).is_file())
    if (folder / FILE).exists():
        status = read_status(folder)
        if status.get("role") != "server":
            raise ArtefactError(
                f"{folder} is the home of a party, not the output folder of a run."
            )
        return RunFolder(
            key=key,
            folder=folder,
            run=str(status.get("run", "")),
            state=str(status["state"]),
            protocol=str(status.get("protocol", "")),
            round=status.get("round"),
            rounds=status.get("rounds"),
            error=str(status.get("error", "")),
            parties=_parties(status),
            pages=pages,
            served=True,
            **(_stated(folder) if status["state"] == "done" else {}),
        )
    try:
        run_record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        name = str(run_record["run"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ArtefactError(f"{folder} is not the output folder of a run.") from None
    state = "done" if (folder / "privacy.json").exists() else "not finished"
    return RunFolder(
        key=key, folder=folder, run=name, state=state, pages=pages, **_stated(folder)
    )


def _stated(folder: Path) -> dict[str, Any]:
    """What a finished run states for everyone; nothing of a rehearsal, or where the
    statement cannot be read.
    """
    try:
        stated = read_json(folder / "privacy.json")
        if stated["rehearsal"] is not None:
            return {}
        facts = {
            "holders": tuple(str(party["name"]) for party in stated["parties"]),
            "guess": (stated_guess(stated), str(stated["adjacency"])),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    if (folder / "evidence").is_dir():
        facts["signers"] = tuple(envelopes_in(folder / "evidence"))
    return facts


def _parties(status: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    state = str(status["state"])
    spent = status.get("epsilon", {})
    parties = []
    for name, party in status.get("parties", {}).items():
        word, mood = (
            ("told", "good")
            if state == "done" and party["signed"]
            else party_state(party, state)
        )
        parties.append(
            party
            | {"name": name, "word": word, "mood": mood, "epsilon": spent.get(name)}
        )
    return tuple(parties)


@dataclass(frozen=True)
class Member:
    name: str
    enrolled: bool
    until: str
    certificate: str
    days: int
    file: bool  # whether the invitation lies here

    @property
    def ends_soon(self) -> bool:
        return self.enrolled and self.days < SOON


class HubHome:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)

    def can_sign(self) -> bool:
        """Whether the authority's key is here: without it nobody can be invited."""
        return (self.folder / "ca.key").exists()

    def members(self) -> list[Member]:
        today = datetime.now(UTC).date()
        members = list[Member]()
        for name, entry in self.authority.roster.read()["parties"].items():
            enrolled = not entry.get("once")
            certificate = entry["fingerprint"].removeprefix("sha256:")[:16]
            until = entry["expires"]
            invitation = self.folder / "invitations" / f"{name}.toml"
            days = (date.fromisoformat(until) - today).days
            members.append(
                Member(name, enrolled, until, certificate, days, invitation.exists())
            )
        return members

    def runs(self) -> list[RunFolder]:
        """The runs that were served for this federation, the newest first; those whose
        folder is gone are not shown.
        """
        runs = []
        for key, folder in list_served(self.folder):
            try:
                runs.append(run_folder(key, folder))
            except ArtefactError:
                continue
        return runs


@dataclass(frozen=True, kw_only=True)
class Desk:
    """One folder, and the runs that were named with it. `desk_of` makes one."""

    holder: HolderHome | None = None
    hub: HubHome | None = None
    more: tuple[Path, ...] = ()

    @property
    def title(self) -> str:
        if self.holder is not None:
            return self.holder.party
        return self.hub.authority.roster.name if self.hub is not None else "Runs"

    def runs(self) -> list[RunFolder]:
        """Runs by their output folders: those of the hub, and those that were named."""
        named = [
            run_folder(f"folder-{number}", folder)
            for number, folder in enumerate(self.more, 1)
        ]
        return [*named, *(self.hub.runs() if self.hub is not None else ())]

    def run(self, key: str) -> RunFolder:
        """One of them. ArtefactError if there is none of that name."""
        for run in self.runs():
            if run.key == key:
                return run
        raise ArtefactError("There is no such run here.")


def desk_of(folder: Path, runs: tuple[Path, ...] = ()) -> Desk:
    """What is in this folder. ArtefactError if it is neither a home, nor a
    federation's, nor a run's.
    """
    folder = folder.resolve()
    more = tuple(run.resolve() for run in runs)
    for run in more:
        run_folder("", run)
    if (folder / "federation.toml").exists():
        return Desk(hub=HubHome(folder), more=more)
    try:
        return Desk(holder=HolderHome(folder), more=more)
    except ArtefactError:
        try:
            run_folder("", folder)
        except ArtefactError:
            raise ArtefactError(
                f"{folder} is not the home of a party (`join --home`), not the folder "
                "of a federation, and not the output folder of a run."
            ) from None
    return Desk(more=(folder, *more))
