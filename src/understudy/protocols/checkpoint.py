"""A run that can be taken up again: the server's state beside that of the parties, under one round number.

The parties save first (`Keep`), the server last: a server state on disk therefore always has its
counterpart at every party that is still there. What is in it is post-processing of paid replies, and who went away.
"""

from pathlib import Path
from typing import Any

from understudy.durable import own_folder, replace
from understudy.errors import ArtefactError
from understudy.pack import pack, unpack
from understudy.protocols.base import Keep, Parties, Return
from understudy.protocols.present import Present


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
        own_folder(self.folder)
        self.parties.ask(Keep(round=round))
        if isinstance(self.parties, Present):
            state = state | {"gone": self.parties.gone}
        file = self._file(round)
        replace(file, pack(state))
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

    def _file(self, round: int) -> Path:
        return self.folder / f"server-{round}.safetensors"
