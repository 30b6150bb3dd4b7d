"""All parties in this process, what is the same wherever they are, and the transcript
of what was said.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from understudy.ground.errors import MessageError, PartyError, UnderstudyError
from understudy.privacy.accounts.accounting import DpEvent, epsilon, flatten
from understudy.privacy.accounts.events import event_from_json
from understudy.privacy.accounts.ledger import Receipt
from understudy.privacy.accounts.statement import PartyPrivacy, PrivacyStatement
from understudy.protocols.core import Ask, Message, Paid, Party, Reply
from understudy.runtime.contract import Contract
from understudy.runtime.journal import Answer
from understudy.runtime.wire import decode, refusal, size


@dataclass
class MessageTotals:
    meaning: str = ""
    count: int = 0
    down_bytes: int = 0
    up_bytes: int = 0
    paid: int = 0
    uses: Counter[str] = field(default_factory=Counter)
    entry: int = -1

    def add(self, receipts: Iterable[Receipt]) -> None:
        """Count each payment once: a ledger's entries are numbered upwards, and one may
        pay for several replies.
        """
        for receipt in sorted(receipts, key=lambda receipt: receipt.entry):
            if receipt.entry > self.entry:
                self.uses[receipt.event] += receipt.uses
                self.entry = receipt.entry

    def price(self, party: PartyPrivacy) -> float | None:
        """ε of these payments for the person with the highest spend, at most; None:
        nothing, or no guarantee.
        """
        try:
            spend: Counter[DpEvent] = Counter()
            for event, count in self.uses.items():
                spend += flatten(event_from_json(event), count)
            total = epsilon(
                {e: min(n, party.insider[e]) for e, n in spend.items()},
                party.budget.delta,
            )
        except (UnderstudyError, KeyError, TypeError, ValueError):
            # a price that the party did not settle for
            return None
        return total if spend and math.isfinite(total) else None


class Transcript:
    """Messages exchanged, by party and kind of ask: counts, bytes each way, paid values
    and their price.
    """

    def __init__(self) -> None:
        self.lines: dict[tuple[str, str], MessageTotals] = defaultdict(MessageTotals)

    def record(
        self,
        party: str,
        ask: Ask,
        reply: Reply,
        *,
        down: int | None = None,
        up: int | None = None,
    ) -> None:
        line = self.lines[party, ask.kind()]
        line.meaning = ask.meaning()
        line.count += 1
        line.down_bytes += size(ask) if down is None else down
        line.up_bytes += size(reply) if up is None else up
        receipts = {
            value.receipt for value in vars(reply).values() if isinstance(value, Paid)
        }
        line.paid += bool(receipts)
        line.add(receipts)

    def rows(self, privacy: PrivacyStatement | None = None) -> list[dict[str, Any]]:
        """The transcript as plain rows, in order, with prices where privacy is given; a
        rehearsal's say so.
        """
        first = (
            {}
            if privacy is None or not privacy.rehearsal
            else {"rehearsal": privacy.rehearsal}
        )
        parties = (
            {} if privacy is None else {party.name: party for party in privacy.parties}
        )
        shown_fields = ("meaning", "count", "down_bytes", "up_bytes", "paid")
        rows = []
        for (party, kind), line in self.lines.items():
            price = {"epsilon": line.price(parties[party])} if party in parties else {}
            rows.append(
                {
                    **first,
                    "party": party,
                    "ask": kind,
                    **{name: getattr(line, name) for name in shown_fields},
                    **price,
                }
            )
        return rows


class LocalParties:
    def __init__(self, parties: Mapping[str, Party]) -> None:
        self.parties = dict(parties)
        self.transcript = Transcript()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.parties)

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks = addressed(message, self.names)
        replies: dict[str, Any] = {}
        for name, ask in asks.items():
            replies[name] = reply = self.parties[name].answer(ask)
            self.transcript.record(name, ask, reply)
        return replies


class RemoteParties:
    """What is the same wherever parties are elsewhere: who they are, and what is made
    of their answers.
    """

    def __init__(self, contract: Contract, kinds: tuple[type[Message], ...]) -> None:
        self.contract = contract
        self._kinds = kinds
        self.transcript = Transcript()

    @property
    def names(self) -> tuple[str, ...]:
        return self.contract.parties

    def _replies(
        self,
        asks: Mapping[str, Ask],
        ask_bodies: Mapping[str, bytes],
        answers: Mapping[str, Answer],
    ) -> dict[str, Any]:
        """The answers as messages of the protocol, each written down. If one is a
        refusal, that is raised.
        """
        for name, answer in answers.items():
            if answer.status == "refusal":
                raise refusal(name, answer.body)
        replies: dict[str, Any] = {}
        for name, answer in answers.items():
            try:
                reply = decode(answer.body, self._kinds, limit=self.contract.message)
            except MessageError as error:
                raise error.restated(f"{name}: {error.message}") from None
            if not isinstance(reply, Reply):
                raise MessageError(f"{name}: {reply.kind()} is not a reply.")
            replies[name] = reply
            self.transcript.record(
                name, asks[name], reply, down=len(ask_bodies[name]), up=len(answer.body)
            )
        return replies


def addressed(
    message: Ask | Mapping[str, Ask], names: tuple[str, ...]
) -> dict[str, Ask]:
    asks = dict.fromkeys(names, message) if isinstance(message, Ask) else dict(message)
    unknown = sorted(asks.keys() - set(names))
    if unknown:
        raise PartyError(
            f"No party is called {', '.join(unknown)}; there are {', '.join(names)}."
        )
    return asks
