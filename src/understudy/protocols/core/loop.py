"""A run at the server: its rounds, who is still there, what is saved on the way, and
what comes out.

    parties, store = Present(parties, config.min_holders), Checkpoint(folder, parties)
    ended = run_rounds(
        config.rounds,
        step,
        done=self.done,
        save=self.save,
        every=100,
        watch=watch,
        spent=prices,
    )
    return Outcome(trained, privacy, people)

A protocol says what a round is (`step`) and what is kept of it (`save`); nothing else
differs between their loops. One without rounds is watched in two steps (`two_steps`):
what is released, and what is fitted to it.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.ground.check import whole
from understudy.ground.durable import own_folder, replace
from understudy.ground.errors import ArtefactError, BudgetExceeded, ConfigError, Effect
from understudy.ground.pack import pack, unpack
from understudy.protocols.core.base import Ask, Keep, Parties, Progress, Return, Watcher

if TYPE_CHECKING:
    from understudy.generators.parts import ClassifierParts, GeneratorParts
    from understudy.privacy.accounts.statement import PrivacyStatement

ALL = "after all rounds"


@dataclass(frozen=True)
class Outcome:
    """What `train` gives: what a generator or a classifier is made of, its price, and
    how many people took part.
    """

    trained: "GeneratorParts | ClassifierParts"
    privacy: "PrivacyStatement"
    people: int


def card_of(
    protocol: str, config: Any, rounds: int, ended: str, privacy: Any, **more: Any
) -> dict[str, Any]:
    """What every card says of a run, and what else is to be said."""
    common = {
        "protocol": protocol,
        "config": asdict(config),
        "rounds": rounds,
        "ended": ended,
    }
    return {**common, **more, "privacy": privacy.to_dict()}


def run_rounds(
    total: int,
    step: Callable[[int], None],
    *,
    done: int,
    save: Callable[[], None],
    every: int,
    watch: Watcher | None,
    spent: Callable[[], Mapping[str, float]],
) -> str:
    """Take the rounds that are left; how it ended, in the words of a card. `step` asks
    and learns, and notes its round as done when it is: its numbers go from `done` + 1
    to `total`. `save` is called `every` so many rounds, at the end, and when the run is
    interrupted, which is raised again.
    Edges: a budget that is spent ends the run with what it has, none at all if it was
    in the first round.
    """
    ended = ALL
    try:
        while done < total:
            step(done + 1)
            done += 1
            if watch is not None:
                watch(Progress(done, total, spent))
            if done % every == 0:
                save()
    except BudgetExceeded as refusal:
        ended = f"ended after {done} of {total} rounds: {refusal}"
    except KeyboardInterrupt:
        save()
        raise
    save()
    return ended


def two_steps(
    watch: Watcher | None, spent: Callable[[], Mapping[str, float]]
) -> Callable[[int], None]:
    """What such a protocol calls with 1 when all is released, as often as it fits on,
    and with 2 at the end.
    """

    def look(done: int) -> None:
        if watch is not None:
            watch(Progress(done, 2, spent))

    return look


class Present:
    """`Parties` without those who went away: a protocol of a horizontal partition
    continues without one that stays away. Where every person is with one party, an
    absence touches neither what the others' people report nor what it costs them. Who
    has missed an ask is asked nothing more in this run, also after a restart: it has
    not kept the rounds since.
    Guarantee: a party is left out only when it is away (the runtime's word), never for
    what it says: a refusal is raised.
    Edges: without `min_holders` all have to stay, until all has been said. Fewer left
    than `min_holders` → PartyAway; what was saved stays, and the run can be resumed.
    What a party that is gone has charged stands in its own ledger; who states a price
    for it counts all that it was asked.
    """

    def __init__(
        self, parties: Parties, min_holders: int | None, *, besides: str = ""
    ) -> None:
        """`besides`: a party that is asked by itself."""
        self.all = tuple(name for name in parties.names if name != besides)
        if min_holders is not None:
            whole(min_holders=min_holders)
            if min_holders > len(self.all):
                raise ConfigError(
                    f"min_holders={min_holders}, and there are {len(self.all)} "
                    "parties.",
                    effect=Effect.NOTHING_CHARGED,
                )
        self.parties = parties
        self.min_holders = min_holders
        self.round = 0
        self.gone: dict[str, dict[str, Any]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self.all if name not in self.gone)

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        """Ask those still there; who is silent is gone. `min_holders`: so many suffice
        this once, 0 at the end.
        """
        asks = (
            dict.fromkeys(self.names, message)
            if isinstance(message, Ask)
            else dict(message)
        )
        asks = {name: ask for name, ask in asks.items() if name not in self.gone}
        if min_holders is None:
            if self.min_holders is None:
                return self.parties.ask(asks)
            min_holders = max(0, len(asks) - (len(self.names) - self.min_holders))
        replies = self.parties.ask(asks, min_holders=min_holders)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self.gone |= {
            name: {"rounds": self.round, "at": at}
            for name in asks
            if name not in replies
        }
        return replies


def remarks(notes: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """What a privacy statement says of those who went away."""
    return tuple(
        f"what {name} has charged in its own ledger: it went away after "
        f"{note['rounds']} rounds, and its price here counts all that it was asked"
        for name, note in notes.items()
    )


class Checkpoint:
    """A run that can be taken up again: the server's folder of saved rounds. Only the
    newest is kept. The parties save first (`Keep`), the server last: a server state on
    disk therefore always has its counterpart at every party that is still there. What a
    protocol cannot ask its parties to save halfway, such as the first of two releases,
    the server notes by itself.
    Guarantee: what is saved or noted is on the disk, whole, before the next ask.
    """

    def __init__(self, folder: str | Path, parties: Parties) -> None:
        self.folder = Path(folder)
        self.parties = parties

    @property
    def round(self) -> int | None:
        rounds = [
            int(file.stem.removeprefix("server-"))
            for file in self.folder.glob("server-*.safetensors")
        ]
        return max(rounds, default=None)

    def save(self, round: int, state: dict[str, Any]) -> None:
        """Parties first, then the server, each atomically; older rounds go away
        last.
        """
        self.parties.ask(Keep(round=round))
        if isinstance(self.parties, Present):
            state = state | {"gone": self.parties.gone}
        file = self._file(f"server-{round}")
        self._write(file, pack(state))
        for old in self.folder.glob("server-*.safetensors"):
            if old != file:
                old.unlink()

    def load(self) -> tuple[int, dict[str, Any]] | None:
        """The newest saved round, with every party returned to it; None if there is
        none.
        """
        round = self.round
        if round is None or (state := self.noted(f"server-{round}")) is None:
            return None
        if isinstance(self.parties, Present):
            self.parties.gone, self.parties.round = state.pop("gone", {}), round
        self.parties.ask(Return(round=round))
        return round, state

    def note(self, name: str, state: dict[str, Any]) -> None:
        """Save what was paid for and received, before anything else is asked. The
        parties are asked nothing.
        """
        self._write(self._file(name), pack(state))

    def has(self, name: str) -> bool:
        return self._file(name).exists()

    def noted(self, name: str) -> dict[str, Any] | None:
        file = self._file(name)
        if not file.exists():
            return None
        state = unpack(file.read_bytes())
        if not isinstance(state, dict):
            raise ArtefactError(f"{file} does not hold what a server saved.")
        return state

    def measured(self, name: str, plan: Mapping[str, Any]) -> dict[str, Any] | None:
        """What was noted under that name with its `plan`, if anything was. Edges:
        another plan → ConfigError.
        """
        saved = self.noted(name)
        if saved is not None and saved.pop("plan", None) != plan:
            raise ConfigError(
                "what was measured is not what these settings ask for: resume with "
                "those of the run.",
                effect=Effect.NOTHING_CHARGED,
            )
        return saved

    def secret(self, *, resume: bool) -> bytes:
        """What this server draws its secrets from, the same when resumed, so that
        parties can repeat their answers.
        """
        file = self.folder / "server.key"
        if not (resume and file.exists()):
            self._write(file, os.urandom(32))
        return file.read_bytes()

    def forget(self, *notes: str) -> None:
        for file in map(self._file, notes):
            file.unlink(missing_ok=True)

    def over(self, *notes: str) -> None:
        """Nothing will be asked again: these notes and the secret are not needed any
        more.
        """
        self.forget(*notes)
        (self.folder / "server.key").unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"

    def _write(self, file: Path, data: bytes) -> None:
        own_folder(self.folder)
        replace(file, data, sync=True)
