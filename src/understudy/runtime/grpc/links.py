"""What the server keeps of each party, and of the asks that it has put."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from understudy.ground.errors import PartyAway, PartyError
from understudy.runtime.grpc.loop import loop
from understudy.runtime.journal import Answer


class Turn:
    """Asks that were put at once, and what has come of them. `hasty`: one that cannot take part ends the waiting."""

    def __init__(self, asked: Mapping[str, bytes], expires: float) -> None:
        self.asked, self.expires = asked, expires
        self.outcomes: dict[str, Answer | PartyError] = {}
        self.over = loop().create_future()
        if not asked:
            self.over.set_result(None)

    def settle(self, name: str, outcome: Answer | PartyError) -> None:
        """What has come of one ask. A contract that is refused ends the turn: nobody goes on without its party."""
        self.outcomes[name] = outcome
        refused = isinstance(outcome, PartyError) and not isinstance(outcome, PartyAway)
        done = len(self.outcomes) == len(self.asked) or refused
        if done and not self.over.done():
            self.over.set_result(None)

    def give_up(self, name: str, why: str) -> None:
        """Wait for this one no longer; the others may still answer."""
        self.settle(name, PartyAway(f"{name} {why}. The ask was given up."))


@dataclass
class Open:
    """An ask that waits for its answer."""

    number: int
    kind: str
    body: bytes
    turn: Turn


@dataclass
class Link:
    """One party, as the server has it: with or without a stream at the moment."""

    name: str
    stream: "asyncio.Task[Any] | None" = None
    signed: str = ""
    refusal: str = ""
    reading: "asyncio.Task[Any] | None" = None  # a stream on which the contract is being looked at
    told: bool = False  # that the run is over, or off
    left_out: bool = False  # the run has gone on without it
    missed: bool = False  # it was given up when it was last asked: it had no connection
    open: Open | None = None
    number: int = 0
    since: float = 0.0
    roused: "asyncio.Future[None] | None" = None
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("joins", "asks", "answers", "refusals", "down", "up"), 0)
    )

    def rouse(self) -> None:
        """There is something to do."""
        if self.roused is not None and not self.roused.done():
            self.roused.set_result(None)
