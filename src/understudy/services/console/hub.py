"""A hub's folder, as the console shows it: who is on the roster, which invitations lie here, which runs were served.

Guarantee: no key is shown. An invitation is written to a file here, as the command does it, and never into a page.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from understudy.ground.errors import ArtefactError
from understudy.network.served import served
from understudy.runtime.authority import Authority
from understudy.services.console.runs import RunFolder, run_folder

SOON = 30  # days before the end of a certificate in which it is said


@dataclass(frozen=True, kw_only=True)
class Member:
    """A party on the roster."""

    name: str
    enrolled: bool
    until: str
    certificate: str
    days: int
    file: Path | None  # the invitation, while it lies here

    @property
    def ends_soon(self) -> bool:
        """Whether its certificate has ended, or ends within a month."""
        return self.enrolled and self.days < SOON


class HubHome:
    """A federation's folder."""

    kind = "hub"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)

    @property
    def name(self) -> str:
        """What the federation is called."""
        return str(self.authority.roster.name)

    @property
    def address(self) -> str:
        """Where parties connect to."""
        return str(self.authority.roster.address)

    def can_sign(self) -> bool:
        """Whether the authority's key is here: without it nobody can be invited."""
        return (self.folder / "ca.key").exists()

    def members(self) -> list[Member]:
        """The roster."""
        today, found = datetime.now(UTC).date(), []
        for name, entry in self.authority.roster.read()["parties"].items():
            file = self.folder / "invitations" / f"{name}.toml"
            found.append(
                Member(
                    name=name, enrolled=not entry.get("once"), until=entry["expires"],
                    certificate=entry["fingerprint"].removeprefix("sha256:")[:16],
                    days=(date.fromisoformat(entry["expires"]) - today).days, file=file if file.exists() else None,
                )
            )  # fmt: skip
        return found

    def runs(self) -> list[RunFolder]:
        """The runs that were served for this federation, the newest first; those whose folder is gone are not shown."""
        found = []
        for key, folder in served(self.folder):
            try:
                found.append(run_folder(key, folder))
            except ArtefactError:
                continue
        return found
