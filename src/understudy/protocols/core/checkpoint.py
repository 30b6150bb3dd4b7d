"""A run that can be taken up again: the server's state beside that of the parties, under one round number.

The parties save first (`Keep`), the server last: a server state on disk therefore always has its
counterpart at every party that is still there. What is in it is post-processing of paid replies, and who went away.
What a protocol cannot ask its parties to save halfway, such as the first of two releases, the server notes by itself.

Guarantee: what is saved or noted is on the disk, whole, before the next ask.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy.ground.durable import own_folder, replace
from understudy.ground.errors import ArtefactError, ConfigError
from understudy.ground.pack import pack, unpack
from understudy.protocols.core.base import Keep, Parties, Return
from understudy.protocols.core.present import Present


class Checkpoint:
    """The server's folder of saved rounds. Only the newest is kept."""

    def __init__(self, folder: str | Path, parties: Parties) -> None:
        self.folder, self.parties = Path(folder), parties

    @property
    def round(self) -> int | None:
        """The newest saved round, or None."""
        rounds = [int(file.stem.removeprefix("server-")) for file in self.folder.glob("server-*.safetensors")]
        return max(rounds, default=None)

    def save(self, round: int, state: dict[str, Any]) -> None:
        """Parties first, then the server, each atomically; older rounds go away last."""
        self.parties.ask(Keep(round=round))
        if isinstance(self.parties, Present):
            state = state | {"gone": self.parties.gone}
        file = self._file(round)
        self._write(file, pack(state))
        for old in self.folder.glob("server-*.safetensors"):
            if old != file:
                old.unlink()

    def load(self) -> tuple[int, dict[str, Any]] | None:
        """The newest saved round, with every party returned to it; None if there is none."""
        if (round := self.round) is None:
            return None
        state = unpack(self._file(round).read_bytes())
        if not isinstance(state, dict):
            raise ArtefactError(f"{self._file(round)} does not hold a server's state.")
        if isinstance(self.parties, Present):
            self.parties.gone, self.parties.round = state.pop("gone", {}), round
        self.parties.ask(Return(round=round))
        return round, state

    def note(self, name: str, state: dict[str, Any]) -> None:
        """Save what was paid for and received, before anything else is asked. The parties are asked nothing."""
        self._write(self._note(name), pack(state))

    def noted(self, name: str) -> dict[str, Any] | None:
        """What was saved under that name, if anything was."""
        if not (file := self._note(name)).exists():
            return None
        state = unpack(file.read_bytes())
        if not isinstance(state, dict):
            raise ArtefactError(f"{file} does not hold what a server saved.")
        return state

    def measured(self, name: str, plan: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was noted under that name with its `plan`, if anything was. Edges: another plan → ConfigError."""
        if (saved := self.noted(name)) is not None and saved.pop("plan", None) != plan:
            raise ConfigError(
                "what was measured is not what these settings ask for: resume with those of the run. "
                "Nothing was charged."
            )
        return saved

    def secret(self, *, resume: bool) -> bytes:
        """What this server draws its own secrets from: the same ones in a run that is resumed, so that it asks the
        same, and parties can repeat what they have answered (`runtime.journal`).
        """
        file = self.folder / "server.key"
        if not (resume and file.exists()):
            self._write(file, os.urandom(32))
        return file.read_bytes()

    def over(self, *notes: str) -> None:
        """Nothing will be asked again: these notes and the secret are not needed any more."""
        for file in (*map(self._note, notes), self.folder / "server.key"):
            file.unlink(missing_ok=True)

    def _file(self, round: int) -> Path:
        return self.folder / f"server-{round}.safetensors"

    def _note(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"

    def _write(self, file: Path, data: bytes) -> None:
        own_folder(self.folder)
        replace(file, data, sync=True)
