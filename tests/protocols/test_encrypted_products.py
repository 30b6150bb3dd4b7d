"""Products of encrypted rows: the same counts as under dealt masks, a price that is
charged first, and no dealer.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from dp_accounting import GaussianDpEvent
from gram_cases import (
    BUDGET,
    OPEN,
    SCHEMA,
    Parts,
    Plan,
    Released,
    Schemas,
    all_parties,
    by_columns,
    by_grid,
    by_rows,
    measured,
    party,
    release,
    triple_counts,
)

from refusals import raises
from understudy.ground.errors import ConfigError, Effect, MessageError
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure import lwe
from understudy.protocols.core import Ask, Reply
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.protocol import Gram
from understudy.protocols.joint import pricing
from understudy.protocols.joint.messages import Agree, Release, Swap, Swapped
from understudy.protocols.joint.run import statement
from understudy.protocols.joint.server import measure
from understudy.runtime.local import LocalParties, addressed

Asks = dict[str, Ask]
Replies = dict[str, Reply]
CUTS = {"two": by_columns(2), "three": by_columns(3), "grid": by_grid()}


def encrypted(plan: Plan) -> Plan:
    return replace(plan, products="encrypted")


class Relay(LocalParties):
    """Parties with a server that sees, or changes, what passes."""

    def __init__(
        self,
        parties: Mapping[str, Any],
        *,
        before: Callable[[Asks], Asks] = lambda asks: asks,
        after: Callable[[Asks, Replies], Replies] = lambda asks, replies: replies,
    ) -> None:
        super().__init__(parties)
        self.before = before
        self.after = after

    def ask(self, message: Any, **more: Any) -> dict[str, Any]:
        asks = self.before(addressed(message, self.names))
        return self.after(asks, super().ask(asks, **more))


def run(
    cut: tuple[Parts, Schemas],
    plan: Plan,
    *,
    parties: dict[str, Any] | None = None,
    chunk: int = 1 << 15,
    **hooks: Any,
) -> tuple[dict[str, Any], Released]:
    held = all_parties(*cut) if parties is None else parties
    return held, release(Relay(held, **hooks), cut[1], plan, chunk=chunk)


def same_sums(one: Released, other: Released) -> bool:
    return all(
        torch.equal(part, other.record.sums[stage][key])
        for stage, parts in one.record.sums.items()
        for key, part in parts.items()
    )


@pytest.mark.long
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("chunk", [7, 1 << 15])
def test_encrypted_and_dealt_products_are_the_same_counts(cut: str, chunk: int) -> None:
    dealt = measured(*CUTS[cut], OPEN, chunk=chunk)
    made = measured(*CUTS[cut], encrypted(OPEN), chunk=chunk)
    assert same_sums(made, dealt)


@pytest.mark.long
@pytest.mark.parametrize("cut", CUTS)
def test_with_equal_noise_the_releases_are_equal(
    cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pricing, "_FOR_ANSWERS", 0.0)
    wide = Budget(2.0, 1e-5)
    dealt = measured(*CUTS[cut], Plan(), budget=wide)
    noise = dealt.record.noise
    made = measured(*CUTS[cut], encrypted(Plan()), budget=replace(wide, epsilon=2.0001))
    assert made.record.noise == noise
    assert same_sums(made, dealt)


def test_tables_across_holders_are_the_same_counts() -> None:
    tables, schemas = by_columns(2)
    columns = [SCHEMA.names[0], SCHEMA.names[1], SCHEMA.names[2]]
    plan = replace(OPEN, target=columns[0], target_triples=2)
    chosen: dict[str, Any] = {
        "choose_triples": lambda found, among, most, noise: among[:most]
    }
    dealt, made = (
        release(
            LocalParties(all_parties(tables, schemas, budget=Budget(math.inf, 0.0))),
            schemas,
            one,
            **chosen,
        )
        for one in (plan, encrypted(plan))
    )
    assert dealt.record.sums["again"].keys() == made.record.sums["again"].keys()
    assert any("table" in key for key in made.record.sums["again"])
    assert same_sums(made, dealt)
    assert triple_counts().sum() == 30


def test_levels_that_are_bought_are_multiplied_under_encryption() -> None:
    tables, schemas = by_columns(2)
    bought = {
        name: replace(
            schema,
            columns=tuple(
                replace(column, bins=None) if hasattr(column, "bins") else column
                for column in schema.columns
            ),
        )
        for name, schema in schemas.items()
    }
    plan = replace(OPEN, fine=0.3)
    dealt = measured(tables, bought, plan)
    made = measured(tables, bought, encrypted(plan))
    assert "groups" in made.record.terms["pairs"]
    off = [
        (part - dealt.record.sums[stage][key]).abs()
        for stage, parts in made.record.sums.items()
        for key, part in parts.items()
    ]
    # of thousands of cells a few carry
    assert max(int(one.max()) for one in off) <= 1
    assert sum(int(one.sum()) for one in off) < 20


# What it costs, and when


def test_the_price_of_answers_stands_in_every_ledger_before_they_leave() -> None:
    cut = by_columns(3)
    answered = dict[str, list[bool]]()
    parties = all_parties(*cut)

    def after(asks: Asks, replies: Replies) -> Replies:
        for name, reply in replies.items():
            if isinstance(reply, Swapped):
                booked = any(
                    "sums of encrypted" in e.description for e in entries(name)
                )
                answered.setdefault(name, []).append(booked)
        return replies

    def entries(name: str) -> Any:
        return parties[name].ledger.entries()

    run(cut, encrypted(Plan()), parties=parties, chunk=10, after=after)
    # three chunks of rows, and then the answers
    assert answered == {name: [False, False, False, True] for name in parties}
    for one in parties.values():
        (event,) = [
            event
            for event in one.ledger.spend(run="r")
            if isinstance(event, GaussianDpEvent)
        ]
        # of three pairs of groups
        assert 1 / (2 * event.noise_multiplier**2) <= 3 * lwe.MOST
        assert one.ledger.spend(run="r")[event] == 1


@pytest.mark.long
@pytest.mark.parametrize("budget", [0.05, 0.5, 2.0, 30.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-9])
def test_releases_and_answers_fit_the_budget_together(
    budget: float, delta: float
) -> None:
    cut = by_columns(2)
    allowed = Budget(budget, delta)
    schemas = cut[1]
    ahead = gram.PROTOCOL.forecast(  # type: ignore[misc]
        encrypted(Plan()), schemas, dict.fromkeys(schemas, allowed), 30
    )
    assert 0.99 * budget < max(ahead.price.values()) <= budget
    if budget != 2.0:
        return
    parties = all_parties(*cut, budget=allowed)
    run(cut, encrypted(Plan()), parties=parties)
    for one in parties.values():
        assert epsilon(one.ledger.spend(run="r"), delta) <= budget


def test_the_statement_says_whom_each_kind_of_products_does_not_guard_against() -> None:
    cut = by_columns(2)
    dealer = "the server together with a holder"
    departing = "a party that departs from the protocol"
    for products, enemies in (
        ("dealt", [dealer, departing]),
        ("encrypted", [departing]),
    ):
        plan = replace(Plan(), products=products)
        parties = LocalParties(all_parties(*cut))
        study = Gram(plan, cut[1])
        privacy = statement(measure(study, parties), parties)
        for text, enemy in zip(privacy.unguarded, enemies, strict=True):
            assert f" against {enemy}" in text
        assert privacy.epsilon() <= BUDGET.epsilon


def test_what_does_not_fit_is_refused_before_anything_is_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lwe, "MOST", 2.0**-90)
    cut = by_columns(2)
    parties = all_parties(*cut)
    with raises(
        ConfigError,
        effect=Effect.NOTHING_CHARGED_OR_SENT,
        match="do not fit into 64 bits",
    ):
        run(cut, encrypted(Plan()), parties=parties)
    assert not any(one.ledger.spend(run="r") for one in parties.values())


def test_a_plan_refuses_what_will_not_fit_and_says_how_long_encryption_takes() -> None:
    schemas = by_columns(2)[1]
    budgets = dict.fromkeys(schemas, BUDGET)

    def ahead(people: int, plan: Plan) -> Any:
        return gram.PROTOCOL.forecast(plan, schemas, budgets, people)  # type: ignore[misc]

    assert "encryption" not in ahead(100_000, Plan()).takes
    assert 1 < ahead(100_000, encrypted(Plan())).takes["encryption"] < 60
    with pytest.raises(ConfigError, match="do not fit into 64 bits"):
        ahead(10**9, encrypted(Plan()))
    with pytest.raises(ConfigError, match="do not fit into 64 bits"):
        ahead(10**9, encrypted(replace(Plan(), fine=0.3)))


def test_in_a_horizontal_partition_there_are_no_products_and_nothing_changes() -> None:
    dealt, made = (measured(*by_rows(2), one) for one in (OPEN, encrypted(OPEN)))
    assert same_sums(made, dealt)


# Messages that are not those that are due


def changed(
    change: Callable[[str, Any], Any], *, kind: type[Ask] = Swap, number: int = 1
) -> Callable[[Asks], Asks]:
    """A server that changes what it relays with the n-th ask of this kind."""
    seen = Counter[str]()

    def before(asks: Asks) -> Asks:
        if not isinstance(next(iter(asks.values())), kind):
            return asks
        seen["asks"] += 1
        if seen["asks"] != number:
            return asks
        return {name: change(name, ask) for name, ask in asks.items()}

    return before


def with_inbox(change: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, ask: replace(
        ask, inbox={peer: change(message) for peer, message in ask.inbox.items()}
    )


CHANGES: dict[str, Callable[[Any], Any]] = {
    "truncated": lambda message: message[:-8],
    "empty": lambda message: message[:0],
    "longer": lambda message: torch.cat([message, message[:8]]),
    "changed": lambda message: torch.cat([message[:-1], message[-1:] ^ 1]),
}


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("kind", "number"), [(Swap, 2), (Swap, 4), (Release, 1)])
def test_a_message_that_was_changed_is_refused_and_no_release_charged(
    change: str, kind: type[Ask], number: int
) -> None:
    cut = by_columns(2)
    parties = all_parties(*cut)
    before = changed(with_inbox(CHANGES[change]), kind=kind, number=number)
    with pytest.raises(MessageError):
        run(cut, encrypted(Plan()), parties=parties, chunk=10, before=before)
    for one in parties.values():
        answers = 1 if kind is Release else 0
        assert len(one.ledger.spend(run="r")) == answers


def test_messages_of_another_chunk_or_session_are_refused() -> None:
    cut = by_columns(2)
    sent = list[Any]()

    def keep(asks: Asks, replies: Replies) -> Replies:
        reply = replies.get("holder 0")
        if isinstance(reply, Swapped):
            sent.append(reply.outbox.value)
        return replies

    run(cut, encrypted(Plan()), chunk=10, after=keep)
    for first in (sent[0], sent[1]):  # of another session
        replay = changed(
            lambda name, ask, first=first: (
                replace(ask, inbox={"holder 0": first["holder 1"]})
                if name == "holder 1"
                else ask
            ),
            number=2,
        )
        parties = {
            name: party(name, *cut, seed=5 + place) for place, name in enumerate(cut[0])
        }
        with pytest.raises(MessageError, match="this is not message"):
            run(cut, encrypted(Plan()), parties=parties, chunk=10, before=replay)
        assert not any(one.ledger.spend(run="r") for one in parties.values())
    # of the same one, out of order
    earlier = dict[str, Any]()

    def again(asks: Asks) -> Asks:
        for name, ask in asks.items():
            if name == "holder 1" and isinstance(ask, Swap) and ask.chunk == 2:
                return asks | {name: replace(ask, inbox=earlier["inbox"])}
            if name == "holder 1" and isinstance(ask, Swap) and ask.chunk == 1:
                earlier["inbox"] = ask.inbox
        return asks

    with pytest.raises(MessageError, match="this is not message"):
        run(cut, encrypted(Plan()), chunk=10, before=again)


@pytest.mark.long
def test_answers_that_are_missing_or_too_many_are_refused() -> None:
    cut = by_columns(2)
    for change in (
        lambda name, ask: replace(ask, inbox={}),
        lambda name, ask: replace(
            ask, inbox={peer: torch.zeros(8) for peer in cut[0] if peer != name}
        ),
        lambda name, ask: replace(
            ask, corrections={peer: torch.zeros(2, 2) for peer in cut[0]}
        ),
    ):
        with pytest.raises(MessageError):
            run(cut, encrypted(Plan()), before=changed(change, kind=Release))


def test_a_server_deals_nothing() -> None:
    cut = by_columns(2)
    seen = list[Agree]()

    def keep(asks: Asks) -> Asks:
        seen.extend(ask for ask in asks.values() if isinstance(ask, Agree))
        return asks

    run(cut, encrypted(OPEN), parties=all_parties(*cut, budget=FREE), before=keep)
    assert [ask.seeds for ask in seen] == [{}, {}]
    seeds = changed(
        lambda name, ask: replace(
            ask, seeds={peer: b"s" * 32 for peer in cut[0] if peer != name}
        ),
        kind=Agree,
    )
    with pytest.raises(MessageError, match="seed is missing or new"):
        run(cut, encrypted(Plan()), before=seeds)


FREE = Budget(math.inf, 0.0)


def test_holders_who_are_told_other_cells_of_the_people_they_share_do_not_agree() -> (
    None
):
    """Rows that are added up under others' names would not cancel, and tell who they
    are.
    """
    cut = by_columns(2)
    parties = all_parties(*cut)
    split = changed(
        lambda name, ask: (
            replace(ask, cells=[[10, ask.cells[0][1]], [20, ask.cells[0][1]]])
            if name == "holder 1"
            else ask
        ),
        kind=Agree,
    )
    with pytest.raises(MessageError, match="this is not message"):
        run(cut, encrypted(Plan()), parties=parties, before=split)
    assert not any(one.ledger.spend(run="r") for one in parties.values())


def test_numbers_of_other_bits_are_refused_where_masks_are_dealt() -> None:
    cut = by_columns(2)
    fewer = changed(lambda name, ask: replace(ask, bits=20), kind=Agree)
    with pytest.raises(MessageError, match="32 or 64 bits"):
        run(cut, Plan(), before=fewer)


def test_counts_that_the_people_do_not_fit_into_are_refused() -> None:
    cut = by_columns(2)
    parties = all_parties(*cut)
    fewer = changed(lambda name, ask: replace(ask, bits=5), kind=Agree)
    with pytest.raises(MessageError, match="do not fit into 5 bits"):
        run(cut, encrypted(Plan()), parties=parties, before=fewer)
    assert not any(one.ledger.spend(run="r") for one in parties.values())


# A party that goes on from a state


class Reborn(Relay):
    """Every party is built anew from its state after each answer."""

    def __init__(self, cut: tuple[Parts, Schemas], parties: Mapping[str, Any]) -> None:
        super().__init__(parties)
        self.cut = cut
        self.ledgers = {name: one.ledger for name, one in parties.items()}
        self.held = dict(parties)

    def ask(self, message: Any, **more: Any) -> dict[str, Any]:
        replies = LocalParties(self.held).ask(message, **more)
        for name, one in self.held.items():
            other = party(name, *self.cut, ledger=self.ledgers[name])
            other.load_state_dict(one.state_dict())
            self.held[name] = other
        return replies


@pytest.mark.long
@pytest.mark.parametrize("cut", ["two", "grid"])
def test_a_party_goes_on_from_its_state_at_any_ask(cut: str) -> None:
    parts = CUTS[cut]
    _, straight = run(parts, encrypted(Plan()), chunk=10)
    parties = Reborn(parts, all_parties(*parts))
    again = release(parties, parts[1], encrypted(Plan()), chunk=10)
    assert same_sums(again, straight)


def test_a_party_that_is_put_back_answers_the_same_and_pays_again() -> None:
    cut = by_columns(2)
    parties = all_parties(*cut)
    answers = list[Any]()

    def before(asks: Asks) -> Asks:
        ask = asks.get("holder 1")
        if isinstance(ask, Swap) and ask.chunk == 3:
            state = parties["holder 1"].state_dict()
            for _ in range(2):
                one = party("holder 1", *cut, ledger=parties["holder 1"].ledger)
                one.load_state_dict(state)
                reply = one.answer(ask)
                assert isinstance(reply, Swapped)
                session = one.agreement
                assert session is not None
                assert session.products is not None
                answers.append(session.products.state_dict()["masks"])
        return asks

    run(cut, encrypted(Plan()), parties=parties, chunk=10, before=before)
    assert torch.equal(answers[0]["holder 0"], answers[1]["holder 0"])
    booked = [
        entry
        for entry in parties["holder 1"].ledger.entries()
        if "sums of encrypted" in entry.description
    ]
    assert len(booked) == 3


def test_a_session_that_is_dropped_leaves_no_key_of_its_rows() -> None:
    keys = []
    parties = all_parties(*CUTS["two"])

    def stop(asks: Asks, replies: Replies) -> Replies:
        if all(isinstance(ask, Swap) and ask.chunk == 1 for ask in asks.values()):
            raise KeyboardInterrupt
        return replies

    with pytest.raises(KeyboardInterrupt):
        run(CUTS["two"], encrypted(Plan()), parties=parties, chunk=7, after=stop)
    for held in parties.values():
        encryptor = held.agreement.products.encryptor
        if encryptor is not None:
            keys.append((encryptor, encryptor.key))
    assert [key.any() for _, key in keys] == [True]
    for held in parties.values():
        held.forget()
    for encryptor, key in keys:
        assert not key.any()
        with raises(MessageError, effect=Effect.NOTHING_COMPUTED):
            _ = encryptor.key
