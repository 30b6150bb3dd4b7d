"""What is asked twice is refused, or harmless, or paid for twice: in every protocol, in
the run and after it.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from protocol_cases import CASES, Case
from undisturbed import Recorded, entries_in, undisturbed, until_the_last_answer

from understudy.ground.errors import Effect, UnderstudyError
from understudy.protocols.core.base import Ask, Paid, Party, Reply
from understudy.protocols.core.union import UnitedParty
from understudy.runs.federation import Federation

pytestmark = pytest.mark.usefixtures("short_fits", "light_masks")
every_protocol = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def paid_in(reply: Reply) -> list[Paid]:
    return [value for value in vars(reply).values() if isinstance(value, Paid)]


class Insistent(Recorded):
    """A server that puts every ask that costs nothing a second time, at once, and goes
    by the second answer.
    """

    def __init__(self, parties: Mapping[str, Party], federation: Federation) -> None:
        super().__init__(parties)
        self.inside = parties
        self.holders = federation.holders
        self.refused: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.effects = set[Effect | None]()

    def answers(self, asks: Mapping[str, Ask]) -> dict[str, Any]:
        replies = super().answers(asks)
        again = {} if any(paid_in(reply) for reply in replies.values()) else asks
        return replies | {
            name: self.repeat(name, ask, replies[name]) for name, ask in again.items()
        }

    def repeat(self, name: str, ask: Ask, first: Reply) -> Reply:
        spent = self.holders[name].ledger.spend()
        try:
            reply = self.inside[name].answer(ask)
        except UnderstudyError as refusal:
            self.refused[ask.kind()] += 1
            self.effects.add(refusal.effect)
            reply = first
        else:
            assert not paid_in(reply)
            self.answered[ask.kind()] += 1
        assert self.holders[name].ledger.spend() == spent
        return reply


ALIGNMENT = {kind.kind() for kind in UnitedParty.messages}


@pytest.mark.long
@every_protocol
def test_an_ask_put_twice_changes_neither_the_price_nor_the_end_of_a_run(
    case: Case,
) -> None:
    insistent = case.federation()
    config = case.config()
    parties = Insistent(
        insistent.parties(case.protocol, config=config, run="contract"), insistent
    )
    until_the_last_answer(case, config, parties, insistent)
    asked = set(parties.refused) | set(parties.answered)
    assert asked - ALIGNMENT, "the opening ask of the protocol was put twice"
    assert None not in parties.effects
    # joint releases begin anew, with new keys and at a new price
    if case.record.study is None:
        assert any(kind.endswith((".begin", ".subscribe")) for kind in parties.refused)
    for name, holder in insistent.holders.items():
        assert (
            holder.ledger.spend()
            == undisturbed(case).federation.holders[name].ledger.spend()
        )
    assert_replay_is_paid_for(parties)


def assert_replay_is_paid_for(parties: Insistent) -> None:
    """After the run: whoever puts all of its asks again gets nothing that is not paid
    for anew, within the budget.
    """
    for name, ask, _ in parties.log:
        ledger = parties.holders[name].ledger
        spent = ledger.spend()
        entries = entries_in(ledger)
        try:
            reply = parties.inside[name].answer(ask)
        except UnderstudyError:
            assert ledger.spend() == spent
            continue
        for value in paid_in(reply):
            assert value.receipt.entry > entries, "an answer on an old receipt"
        if not paid_in(reply):
            assert ledger.spend() == spent
        assert ledger.spent(against=ledger.budget.against) <= ledger.budget.epsilon
