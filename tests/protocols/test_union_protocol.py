from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting.dp_event import GaussianDpEvent, NoOpDpEvent

from bytes_parties import BytesParties
from refusals import raises
from understudy.data.schema import Integer, Schema
from understudy.data.table import read_table
from understudy.ground.errors import (
    AlignmentError,
    BudgetExceeded,
    ConfigError,
    Effect,
    MessageError,
    PartyError,
    PrivacyError,
)
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.core.alignment import (
    Introduce,
    MaskOwn,
    SharedPositions,
    align_grid,
    watch_alignment,
)
from understudy.protocols.core.base import Keep, Paid, Public, Return
from understudy.protocols.core.union import (
    LENGTHS,
    IntroduceUnion,
    MaskPeer,
    MaskUnion,
    TakePlaces,
    TellOthers,
    UnitedParty,
    align_union,
    lengths_within,
    padding_of,
)
from understudy.runtime.local import LocalParties
from understudy.runtime.wire import encode

HELD = {"clinic": [5, 1, 4, 2, 3], "insurer": [9, 3, 2, 5, 7, 8]}
# so large that few people are made up: a hundred times a usual one
BUDGET = Budget(epsilon=100, delta=1e-2)
PADDING = padding_of([BUDGET, BUDGET])
GROUPS = [("clinic",), ("insurer",)]


class Holder(UnitedParty):
    """The least that a protocol over a union can be: alignment alone."""

    budget = BUDGET
    alignment = None

    def respond(self, ask):
        raise self.unexpected(ask)


def holder(
    name,
    ids=None,
    *,
    seed=None,
    folder=None,
    person="id",
    budget=BUDGET,
    written=(),
):
    column = Integer(name=f"{name}_row", low=0, high=99)
    ids = HELD[name] if ids is None else ids
    frame = pd.DataFrame({"id": ids, column.name: range(len(ids))})
    schema = Schema(columns=(column,), person=person, person_written=written)
    table = read_table(frame, schema, name=name)
    ledger = Ledger.rehearsal(holder=name, budget=budget)
    rng = SecureRng() if seed is None else SecureRng.from_seed(seed)
    party = Holder(name, table, ledger, run="r1", rng=rng, folder=folder)
    party.budget = budget
    return party


def entries(party):
    return [entry for entry in party.ledger.entries() if entry.run]


def pair(**held):
    return {name: holder(name, held.get(name)) for name in HELD}


def by_place(party):
    ids = party.table.frame["id"].tolist()
    return dict(zip(party.places.tolist(), ids, strict=True))


def alone_and_shared(parties):
    """Whom the parties have by places."""
    clinic, insurer = (by_place(party) for party in parties.values())
    shared = clinic.keys() & insurer.keys()
    assert all(clinic[place] == insurer[place] for place in shared)
    return {clinic[place] for place in shared}, {*clinic.values()} | {*insurer.values()}


CASES = {
    "some": ({}, {2, 3, 5}),
    "none": ({"insurer": [6, 7]}, set()),
    "all": ({"insurer": [1, 2, 3, 4, 5]}, {1, 2, 3, 4, 5}),
    "one, whom both have": ({"clinic": [7], "insurer": [7]}, {7}),
    "one each": ({"clinic": [7], "insurer": [8]}, set()),
}


@pytest.mark.parametrize("case", CASES)
def test_a_person_has_one_place_at_both_and_places_are_as_many_as_people(case):
    held, shared = CASES[case]
    parties = pair(**held)
    cells = align_union(LocalParties(parties), GROUPS)
    found, union = alone_and_shared(parties)
    assert found == shared
    places = {place for party in parties.values() for place in by_place(party)}
    assert len(places) == len(union)
    (people,) = cells.values()
    for party in parties.values():
        assert party.united
        assert party.people_in_union == people
        assert party.aligned.rows == party.table.rows
        assert max(party.places) < people
    assert len(union) <= people - 2 * PADDING.pool <= len(union) + 2 * PADDING.pool
    clinic, insurer = parties.values()
    assert clinic.shared_with([]) == {"insurer": clinic.union_digest}
    assert clinic.union_digest == insurer.union_digest


def test_a_union_that_nobody_shares_is_asked_and_charged_like_any_other():
    runs = []
    for held in ({}, {"insurer": [11, 12, 13, 14, 15, 16]}):
        parties = pair(**held)
        local = LocalParties(parties)
        align_union(local, GROUPS)
        runs.append(
            {
                name: (
                    party.ledger.spend(run="r1"),
                    [entry.description.split(": ")[0] for entry in entries(party)],
                )
                for name, party in parties.items()
            }
        )
    assert runs[0] == runs[1]


def test_parties_rebuilt_from_their_state_between_all_messages_align_alike():
    build = {name: partial(holder, name, seed=seed) for seed, name in enumerate(HELD)}
    apart = BytesParties(build)
    together = {name: make() for name, make in build.items()}
    assert align_union(apart, GROUPS) == align_union(LocalParties(together), GROUPS)
    for name, party in together.items():
        back = build[name]()
        back.load_state_dict(party.state_dict())
        assert np.array_equal(back.places, party.places)
        assert back.people_in_union == party.people_in_union
        assert back.people_at_both == party.people_at_both > 0
        assert back.union_digest == party.union_digest


def test_the_ledger_has_the_price_of_lengths_before_a_set_leaves(monkeypatch):
    party = holder("clinic")
    asked = MaskUnion(salt=bytes(32), parties=[*HELD], **share(BUDGET))
    spent = []
    monkeypatch.setattr(
        "understudy.privacy.secure.private_union.UnionMask.mask_ids",
        lambda self: spent.append(party.ledger.spend(run="r1")) or np.zeros((1, 32)),
    )
    party.answer(asked)
    assert epsilon(spent[0], BUDGET.delta * LENGTHS[1]) <= BUDGET.epsilon * LENGTHS[0]
    assert epsilon(spent[0], BUDGET.delta * LENGTHS[1]) > 0
    (entry,) = entries(party)
    assert entry.description.startswith("union with insurer: how many people are held")


def share(budget):
    eps, delta = lengths_within(budget)
    return {"epsilon": eps, "delta": delta}


def test_no_less_padding_than_the_own_budget_needs():
    party = holder("clinic")
    own = share(BUDGET)
    for more in ({"epsilon": own["epsilon"] * 1.01}, {"delta": own["delta"] * 1.01}):
        ask = MaskUnion(salt=bytes(32), parties=[*HELD], **own | more)
        with pytest.raises(PrivacyError, match="clinic: lengths were to cost"):
            party.answer(ask)
    with pytest.raises(PrivacyError, match="ε=inf"):
        party.answer(
            MaskUnion(salt=bytes(32), parties=[*HELD], epsilon=None, delta=0.5)
        )
    assert not entries(party)


def test_the_strictest_budget_decides_for_both():
    strict = Budget(epsilon=50, delta=1e-3)
    parties = {
        "clinic": holder("clinic"),
        "insurer": holder("insurer", budget=strict),
    }
    align_union(LocalParties(parties), GROUPS)
    spends = [party.ledger.spend(run="r1") for party in parties.values()]
    assert spends[0] == spends[1]
    assert padding_of([BUDGET, strict]) == padding_of([strict, strict]) != PADDING


def test_a_rehearsal_without_limits_makes_nobody_up_and_charges_nothing():
    free = Budget(float("inf"), 0.0)
    parties = {name: holder(name, budget=free) for name in HELD}
    cells = align_union(LocalParties(parties), GROUPS)
    assert cells == {("clinic", "insurer"): 8}
    assert all(not party.ledger.spend(run="r1") for party in parties.values())


def test_every_value_of_every_reply_says_why_it_may_leave():
    parties = LocalParties(pair())
    seen = []
    ask = parties.ask

    def watched(message, **more):
        replies = ask(message, **more)
        seen.extend(replies.values())
        return replies

    parties.ask = watched
    align_union(parties, GROUPS)
    assert len(seen) == 10
    values = [value for reply in seen for value in vars(reply).values()]
    # of each party its own set, whose length follows from rows
    paid = [value for value in values if isinstance(value, Paid)]
    assert len(paid) == 2
    assert all("how many people" in value.receipt.description for value in paid)
    for value in values:
        assert isinstance(value, Paid) or (isinstance(value, Public) and value.reason)


def asks_of(name, parties):
    """The asks of a whole union, as this party gets them."""
    recorded = []
    local = LocalParties(parties)
    ask = local.ask

    def watched(message, **more):
        recorded.append(message[name] if isinstance(message, dict) else message)
        return ask(message, **more)

    local.ask = watched
    align_union(local, GROUPS)
    return recorded


def test_no_step_is_answered_twice_or_out_of_turn():
    recorded = asks_of("clinic", pair())
    steps = [MaskUnion, MaskPeer, TellOthers, TakePlaces]
    assert [type(ask) for ask in recorded] == [IntroduceUnion, *steps]
    party = holder("clinic")
    for ask in recorded[2:]:
        with pytest.raises(MessageError, match="was not expected here"):
            party.answer(ask)
    party.answer(recorded[1])
    for ask in recorded[3:]:
        with pytest.raises(AlignmentError, match=r"clinic: .*out of turn"):
            party.answer(ask)
    party.answer(recorded[2])
    with pytest.raises(AlignmentError, match="out of turn"):
        party.answer(recorded[2])
    masked = [
        entry for entry in party.ledger.entries() if "masked" in entry.description
    ]
    assert len(masked) == 1


def test_another_alignment_than_was_agreed_to_is_refused():
    united = holder("clinic")
    united.alignment = "union"
    for ask in (Introduce(), MaskOwn(salt=bytes(32), people={"clinic": 5, "b": 3})):
        with pytest.raises(MessageError, match=r'"union" was agreed to'):
            united.answer(ask)
    other = holder("clinic")
    other.alignment = "intersection"
    ask = MaskUnion(salt=bytes(32), parties=[*HELD], **share(BUDGET))
    for one in (IntroduceUnion(), ask):
        with pytest.raises(MessageError, match=r'"intersection" was agreed to'):
            other.answer(one)
    assert not entries(united)
    assert not entries(other)


@pytest.mark.parametrize("align", [align_union, align_grid])
def test_ids_are_written_by_the_declared_rule_before_they_are_compared(align):
    days = {
        "clinic": holder("clinic", ["31.12.1980", "1.2.1990"], written=["date:dmy"]),
        "insurer": holder(
            "insurer", ["1990-02-01", "2001-01-01"], written=["date:ymd"]
        ),
    }
    align(LocalParties(days), GROUPS)
    one, other = (
        [*party.places] if party.united else [*party.aligned.people]
        for party in days.values()
    )
    if align is align_union:
        assert one[1] == other[0]
        assert len({*one, *other}) == 3
    else:
        assert (one, other) == (["1.2.1990"], ["1990-02-01"])
    words = pair(clinic=["a7", "b"], insurer=["A7", "c"])
    words["clinic"] = holder("clinic", ["a7", "b"], written=["case"])
    with pytest.raises(AlignmentError, match=r"clinic has text \(case\) ids"):
        align(LocalParties(words), GROUPS)
    assert all(not party.ledger.spend(run="r1") for party in words.values())


def test_who_leaves_a_union_has_no_rows_left_that_another_alignment_could_use():
    """Else a server that asks for row numbers next is told the exact number of people,
    as that of an intersection which never took place.
    """
    parties = pair()
    align_union(LocalParties(parties), GROUPS)
    party = parties["clinic"]
    with pytest.raises(MessageError, match="was not expected here"):
        party.answer(SharedPositions(positions=None))
    assert not party.united
    with pytest.raises(PartyError, match="not aligned yet"):
        _ = party.aligned


def test_only_two_holders_with_ids_of_one_kind_make_a_union():
    parties = LocalParties(pair())
    for groups in ([("clinic",)], [("clinic", "insurer")], [*GROUPS, ("lab",)]):
        with raises(
            ConfigError,
            effect=Effect.NOTHING_CHARGED_OR_SENT,
            match="is for two holders",
        ):
            align_union(parties, groups)
    rows = {name: holder(name, [1, 2], person=None) for name in HELD}
    with pytest.raises(AlignmentError, match="must name a person column"):
        align_union(LocalParties(rows), GROUPS)
    texts = pair(insurer=["a", "b"])
    with pytest.raises(AlignmentError, match="these never match"):
        align_union(LocalParties(texts), GROUPS)
    for party in (*rows.values(), *texts.values()):
        assert not entries(party)


@pytest.mark.parametrize("ids", [[1, 1], [], ["", "a"], [1, None]])
def test_ids_that_cannot_be_matched_are_named_at_the_holder(ids):
    with raises(Exception, effect=Effect.NOTHING_READ_FURTHER):
        holder("clinic", ids)


def test_a_party_with_too_little_left_for_the_run_says_nothing():
    party = holder("clinic")
    party.ledger.charge(GaussianDpEvent(0.1), run="r0", description="an earlier run")
    before = party.ledger.entries()
    ask = MaskUnion(salt=bytes(32), parties=[*HELD], **share(BUDGET))
    for one in (IntroduceUnion(), ask):
        with pytest.raises(BudgetExceeded, match="clinic: this step costs"):
            party.answer(one)
    assert party.ledger.entries() == before


def test_no_state_is_saved_on_the_servers_word_while_there_is_a_key(tmp_path):
    party = holder("clinic", folder=tmp_path)
    party.answer(MaskUnion(salt=bytes(32), parties=[*HELD], **share(BUDGET)))
    with pytest.raises(MessageError, match="keep was not expected here"):
        party.answer(Keep(round=1))


def test_a_kept_state_brings_places_back(tmp_path):
    parties = {name: holder(name, folder=tmp_path / name) for name in HELD}
    align_union(LocalParties(parties), GROUPS)
    before = {name: party.places.copy() for name, party in parties.items()}
    for party in parties.values():
        party.answer(Keep(round=1))
    align_union(LocalParties(parties), GROUPS)
    for name, party in parties.items():
        assert not np.array_equal(party.places, before[name])
        party.answer(Return(round=1))
        assert np.array_equal(party.places, before[name])


def test_a_watcher_hears_of_a_union_to_its_end():
    parties = pair()
    heard = []
    watch_alignment(parties.values(), heard.append)
    align_union(LocalParties(parties), GROUPS)
    assert all(one.stage == "aligning" and one.done <= one.rounds for one in heard)
    assert heard[-1].done > sum(len(ids) for ids in HELD.values())


CUT = {"cut": lambda one: one[:-1], "outside the field": lambda one: one | 0xFF}


@pytest.mark.parametrize(
    ("step", "how"),
    # a set of any length may be announced
    [
        (MaskPeer, "outside the field"),
        *((step, how) for step in (TellOthers, TakePlaces) for how in CUT),
    ],
)
def test_a_set_that_was_cut_or_changed_is_refused_by_name(step, how):
    recorded = asks_of("clinic", {name: holder(name, seed=1) for name in HELD})
    party = holder("clinic", seed=1)
    for ask in recorded:
        if isinstance(ask, step):
            break
        party.answer(ask)
    with pytest.raises(AlignmentError, match=r"^clinic: .*whole set was refused"):
        party.answer(step(masked=CUT[how](ask.masked)))
    assert not party.united


def test_entries_of_no_price_name_what_a_departing_server_could_test():
    parties = pair()
    align_union(LocalParties(parties), GROUPS)
    (entry,) = [
        entry
        for entry in parties["clinic"].ledger.entries()
        if "masked" in entry.description
    ]
    assert "can test as many ids of its choice" in entry.description
    assert NoOpDpEvent() not in parties["clinic"].ledger.spend()
    assert torch.is_tensor(parties["clinic"].state_dict()["union"]["places"])


SAME_LENGTHS = {
    # of the insurer ids, and how many it makes up beyond three: (alone, shared)
    "all shared": ([1, 2, 3, 4, 5, 9], (4, -1)),
    "none shared": ([6, 7, 8, 9, 10, 11], (-1, 4)),
}


@pytest.mark.parametrize("case", SAME_LENGTHS)
def test_messages_and_words_of_equal_padded_lengths_are_alike_whoever_is_shared(
    monkeypatch, case
):
    """The padded numbers are all that sizes of messages, replies and entries follow."""

    def heard(ids, insurers_draw):
        # `draw` is asked once at each, the clinic first
        draws = iter([(3, 3), tuple(3 + one for one in insurers_draw)])
        monkeypatch.setattr(type(PADDING), "draw", lambda *_: next(draws))
        parties = pair(insurer=ids)
        local = LocalParties(parties)
        ask = local.ask
        sizes = []

        def watched(message, **more):
            asked = (
                message if isinstance(message, dict) else dict.fromkeys(HELD, message)
            )
            replies = ask(message, **more)
            for name, reply in replies.items():
                sizes.append((name, len(encode(asked[name])), len(encode(reply))))
            return replies

        local.ask = watched
        cells = align_union(local, GROUPS)
        words = [[one.description for one in entries(p)] for p in parties.values()]
        return sizes, cells, words

    usual = heard(HELD["insurer"], (2, 1))
    ids, drawn = SAME_LENGTHS[case]
    assert heard(ids, drawn) == usual
    one_more = heard(ids, (drawn[0] + 1, drawn[1]))
    assert one_more[0] != usual[0], "sizes are seen"
