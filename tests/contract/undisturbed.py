"""One undisturbed run of every case, which the tests of the contract read and none of them changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from protocol_cases import Case

from understudy.federation import Federation
from understudy.protocols.core.base import Ask, Paid, Party, Reply
from understudy.runtime.local import LocalParties


class Recorded(LocalParties):
    """Local parties that remember every ask and reply."""

    def __init__(self, parties: Mapping[str, Party]) -> None:
        super().__init__(parties)
        self.log: list[tuple[str, Ask, Reply]] = []

    def ask(self, message: Ask | Mapping[str, Ask], *, at_least: int | None = None) -> dict[str, Any]:
        asks = dict.fromkeys(self.names, message) if isinstance(message, Ask) else message
        replies = super().ask(message)
        self.log += [(name, asks[name], reply) for name, reply in replies.items()]
        return replies


@dataclass(frozen=True)
class Run:
    """What is left of a run: the holders with their ledgers, what was said, and what came of it."""

    federation: Federation
    parties: Recorded
    outcome: Any


def recorded(case: Case, federation: Federation) -> Recorded:
    return Recorded(federation.parties(case.protocol, config=case.config(), run="contract"))


def paid_values(log: list[tuple[str, Ask, Reply]]) -> list[Paid]:
    return [value for _, _, reply in log for value in vars(reply).values() if isinstance(value, Paid)]


@cache
def undisturbed(case: Case) -> Run:
    """Trained once in a process, however many tests read it."""
    federation = case.federation()
    parties = recorded(case, federation)
    return Run(federation, parties, case.module.train(case.config(), parties, federation.schemas))
