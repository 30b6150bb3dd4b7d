"""A new family of holders who agree on keys gets by its base what none may forget: here a family that forgets it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from dp_accounting import GaussianDpEvent

from understudy.ground.errors import MessageError, PrivacyError, SchemaError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import SecureRng
from understudy.protocols.core import Ask, Assembly, Keep, Paid, Public, Reply
from understudy.protocols.core.agreeing import greetings_of, keys_of
from understudy.protocols.core.base import public_values
from understudy.protocols.core.keyed import Agreement, Beginnings, Greeted, KeyedParty, Keys, Stated
from understudy.protocols.core.products import Delivery
from understudy.runtime.local import LocalParties

EVENT, NAMES = GaussianDpEvent(2.0), ("a", "b", "c")


@dataclass(frozen=True, kw_only=True)
class Begin(Assembly, kind="sixth.begin"):
    """Begin."""


@dataclass(frozen=True, kw_only=True)
class Begun(Stated, kind="sixth.begun"):
    """Begun."""


@dataclass(frozen=True, kw_only=True)
class Agree(Keys, kind="sixth.agree"):
    """Agree."""

    level: int = 1


@dataclass(frozen=True, kw_only=True)
class Agreed(Greeted, kind="sixth.agreed"):
    """Agreed."""


@dataclass(frozen=True, kw_only=True)
class Count(Delivery, kind="sixth.count"):
    """Release."""


@dataclass(frozen=True, kw_only=True)
class Counted(Reply, kind="sixth.counted"):
    """Released."""

    sums: Paid


class Sixth(KeyedParty[Agreement]):
    """Two releases of nothing. `hears`: whether it opens the others' greetings."""

    beginnings: ClassVar = Beginnings(Begin, Begun, Agree, Agreed)
    messages: ClassVar = (*KeyedParty.messages, *beginnings, Count, Counted)
    hears = True

    def take_up(self, ask: Begin) -> None:
        self.as_agreed(ask.config, ("private",))
        if self.name not in ask.schemas:
            raise self.other_schema()
        self.renew(ask)

    def needs(self) -> dict[str, Public]:
        self.needed = [1.0]
        return {}

    def open(self, ask: Agree) -> Agreement:
        self.enough_noise([float(ask.level)])
        return Agreement(ask, self.lines(ask))

    def go_on(self, ask: Ask, agreement: Agreement) -> Reply | None:
        if not isinstance(ask, Count):
            return None
        if self.hears:
            self.hear(ask, agreement)
        receipt = self.pay(EVENT, f"release {agreement.released + 1}", agreement, of=2)
        return Counted(sums=Paid(torch.zeros(1), receipt))


class Deaf(Sixth):
    hears = False


def parties(kind: type[Sixth] = Sixth, **more: Any) -> dict[str, Sixth]:
    budget = Budget(9.0, 1e-5)
    return {
        name: kind(
            name,
            Ledger.rehearsal(holder=name, budget=budget),
            run="r",
            budget=budget,
            rng=SecureRng.from_seed(place),
            **more,
        )
        for place, name in enumerate(NAMES)
    }


def agreed(inside: Mapping[str, Sixth], **to_b: Any) -> dict[str, Count]:
    """All are told the same, but for what b is told besides: the first release, with everybody's greetings."""
    local = LocalParties(inside)
    begun = local.ask(Begin(config={"private": True}, schemas={name: {} for name in NAMES}))
    agree = Agree(keys=keys_of(public_values(begun)))
    replies = local.ask(dict.fromkeys(NAMES, agree) | {"b": replace(agree, **to_b)})
    return {name: Count(inbox=inbox) for name, inbox in greetings_of(replies).items()}


def test_a_family_that_opens_no_greeting_can_charge_and_release_nothing() -> None:
    inside = parties(Deaf)
    for name, ask in agreed(inside).items():
        with pytest.raises(MessageError, match="have not shown what they were told"):
            inside[name].answer(ask)
    assert all(party.ledger.spend() == {} for party in inside.values())


def test_who_was_told_something_else_is_found_out_before_anything_is_charged() -> None:
    inside = parties()
    for name, ask in agreed(inside, level=2).items():
        with pytest.raises(MessageError, match="told different things"):
            inside[name].answer(ask)
    assert all(party.ledger.spend() == {} for party in inside.values())


def test_two_releases_are_charged_and_with_the_last_one_the_keys_are_gone() -> None:
    inside = parties()
    first = agreed(inside)
    for name, party in inside.items():
        party.answer(first[name])
        with pytest.raises(MessageError, match="not expected"):
            party.answer(Keep(round=1))
        party.load_state_dict(
            party.state_dict()
        )  # a party that was killed goes on, and hears no greeting twice
        party.answer(Count(inbox={}))
        with pytest.raises(MessageError, match="not expected"):
            party.answer(Count(inbox={}))
        assert party.ledger.spend() == {EVENT: 2}
        assert party.pair is None
        assert "begun" not in party.state_dict()


def test_a_party_put_back_to_before_a_release_is_not_paid_for_a_second_one_under_its_keys() -> None:
    inside = parties()
    asks = agreed(inside)
    state = inside["a"].state_dict()
    inside["a"].answer(asks["a"])
    inside["a"].load_state_dict(state)
    with pytest.raises(PrivacyError, match="once in a run"):
        inside["a"].answer(asks["a"])
    assert inside["a"].ledger.spend() == {EVENT: 1}


def test_what_the_holder_knows_by_itself_and_its_own_schema_are_held_against_a_begin() -> None:
    one = parties(agreed={"private": False})["a"]
    with pytest.raises(MessageError, match="private=True was asked for, and False was agreed to"):
        one.answer(Begin(config={"private": True}, schemas={"a": {}}))
    with pytest.raises(MessageError, match="the settings lack private"):
        one.answer(Begin(config={}, schemas={"a": {}}))
    with pytest.raises(SchemaError, match="another schema"):
        one.answer(Begin(config={"private": False}, schemas={"b": {}}))
