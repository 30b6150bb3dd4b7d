"""One undisturbed run of every case, which the tests of the contract read and none of
them changes.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from protocol_cases import Case

from understudy.ground.pack import pack
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core.base import Ask, Paid, Party, Reply
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties


class Enough(Exception):  # noqa: N818 - nothing is wrong
    """All that a test looks at has been said: what the server would make of it is not
    waited for.
    """


class Recorded(LocalParties):
    """Local parties that remember every ask and reply, and that end the run after so
    many times of asking.
    """

    def __init__(self, parties: Mapping[str, Party], times: int | None = None) -> None:
        super().__init__(parties)
        self.log: list[tuple[str, Ask, Reply]] = []
        self.asked = 0
        self.times = times
        # or end it with the first value, more than a number of people, that was paid
        # for
        self.until_paid = False

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks = (
            dict.fromkeys(self.names, message) if isinstance(message, Ask) else message
        )
        replies = self.answers(asks)
        self.log += [(name, asks[name], reply) for name, reply in replies.items()]
        self.asked += 1
        paid = self.until_paid and any(
            not isinstance(one.value, int) for one in paid_values(self.log)
        )
        if paid or self.asked == self.times:
            raise Enough
        return replies

    def answers(self, asks: Mapping[str, Ask]) -> dict[str, Any]:
        return super().ask(asks)


@dataclass(frozen=True)
class Run:
    """What is left of a run: the holders with their ledgers, what was said, and what
    came of it.
    """

    federation: Federation
    parties: Recorded
    outcome: Any


def recorded(case: Case, federation: Federation) -> Recorded:
    return Recorded(
        federation.parties(case.protocol, config=case.config(), run="contract")
    )


def paid_values(log: list[tuple[str, Ask, Reply]]) -> list[Paid]:
    return [
        value
        for _, _, reply in log
        for value in vars(reply).values()
        if isinstance(value, Paid)
    ]


def entries_in(ledger: Ledger) -> int:
    """How many there are, which are numbered from 1 on; nothing of them is read."""
    with ledger._store.transaction(write=False) as sql:
        number: int = sql.execute("SELECT count(*) FROM entry").fetchone()[0]
    return number


@cache
def undisturbed(case: Case) -> Run:
    """Trained once in a process, however many tests read it."""
    federation = case.federation()
    parties = recorded(case, federation)
    return Run(
        federation,
        parties,
        case.record.train(case.config(), parties, federation.schemas),
    )


def first_paid(
    case: Case, config: Any, parties: Recorded, federation: Federation
) -> list[bytes]:
    """Train until something is paid for: what was sent for it."""
    parties.until_paid = True
    with suppress(Enough):
        case.record.train(config, parties, federation.schemas)
    return [pack(paid.value) for paid in paid_values(parties.log)]


def until_the_last_answer(
    case: Case, config: Any, parties: Recorded, federation: Federation
) -> None:
    """Train as far as the parties take part, who are asked as often as in the
    undisturbed run.
    """
    parties.times = undisturbed(case).parties.asked
    with suppress(Enough):
        case.record.train(config, parties, federation.schemas)
