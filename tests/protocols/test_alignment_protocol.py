from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting.dp_event import GaussianDpEvent

from bytes_parties import BytesParties
from refusals import raises
from understudy.data.schema import Integer, Schema
from understudy.data.table import read_table
from understudy.ground.errors import (
    AlignmentError,
    ArtefactError,
    BudgetExceeded,
    Effect,
    MessageError,
    PartyError,
)
from understudy.privacy.accounts.accounting import PureDp, calibrate, epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import FastRng, SecureRng
from understudy.privacy.secure.set_intersection import MOST_PEOPLE, IdMask
from understudy.protocols.core.alignment import (
    Aligned,
    AlignedParty,
    Introduce,
    MaskOther,
    MaskOwn,
    SharedPositions,
    align_people,
    watch_alignment,
)
from understudy.protocols.core.base import Keep, Public, Return
from understudy.runtime.local import LocalParties

HELD = {"clinic": [5, 1, 4, 2, 3], "insurer": [9, 3, 2, 5, 7, 8], "lab": [2, 5, 6, 3]}
BUDGET = Budget(epsilon=1, delta=1e-5)


class Holder(AlignedParty):
    """The least that a vertical protocol can be: alignment alone."""

    budget = Budget(epsilon=1, delta=1e-5)

    def respond(self, ask):
        raise self.unexpected(ask)


def table_of(name, ids, person="id"):
    column = Integer(name=f"{name}_row", low=0, high=99)
    frame = pd.DataFrame({"id": ids, column.name: range(len(ids))})
    return read_table(frame, Schema(columns=(column,), person=person), name=name)


def holder(name, ids=None, *, person="id", seed=None, folder=None, rng=None):
    ledger = Ledger.rehearsal(holder=name, budget=BUDGET)
    rng = rng or (SecureRng() if seed is None else SecureRng.from_seed(seed))
    table = table_of(name, HELD[name] if ids is None else ids, person)
    return Holder(name, table, ledger, run="r1", rng=rng, folder=folder)


def orders(parties):
    return {name: party.aligned.frame["id"].tolist() for name, party in parties.items()}


@pytest.mark.parametrize("names", [("clinic", "insurer"), ("clinic", "insurer", "lab")])
def test_every_party_ends_with_its_rows_in_one_order(names):
    parties = {name: holder(name) for name in names}
    shared = set.intersection(*(set(HELD[name]) for name in names))
    assert align_people(LocalParties(parties)) == len(shared)
    found = orders(parties)
    assert all(order == found["clinic"] for order in found.values())
    assert set(found["clinic"]) == shared
    for name, party in parties.items():
        assert [HELD[name][row] for row in party.aligned.frame[f"{name}_row"]] == found[
            name
        ]


def rebuilt(seed=None):
    """Parties that are rebuilt from their state before every ask, and the latest of
    each.
    """
    latest = {}

    def build(number, name):
        latest[name] = holder(name, seed=None if seed is None else seed + number)
        return latest[name]

    return BytesParties(
        {name: partial(build, number, name) for number, name in enumerate(HELD)}
    ), latest


def test_parties_rebuilt_from_their_state_between_all_messages_align_alike():
    local = {name: holder(name, seed=number) for number, name in enumerate(HELD)}
    align_people(LocalParties(local))
    parties, latest = rebuilt(seed=0)
    assert align_people(parties) == 3
    # builds each party once more, from the state that it ended with
    parties.ask(Introduce())
    assert orders(latest) == orders(local)


def test_a_party_without_a_seed_keeps_its_key_through_a_restart():
    parties, latest = rebuilt()
    align_people(parties)
    parties.ask(Introduce())
    found = orders(latest)
    assert found["clinic"] == found["insurer"] == found["lab"]


def test_without_a_seed_no_two_alignments_give_the_same_masked_ids():
    for rng in (None, FastRng()):
        asked = MaskOwn(salt=bytes(32), people={"clinic": 5, "lab": 4})
        sets = [holder("clinic", rng=rng).answer(asked).masked.value for _ in range(2)]
        assert not set(map(bytes, sets[0].numpy())) & set(map(bytes, sets[1].numpy()))


def test_the_ledger_names_the_disclosure_before_a_masked_id_leaves():
    parties = {name: holder(name) for name in HELD}
    align_people(LocalParties(parties))
    entries = [
        entry.description
        for entry in parties["clinic"].ledger.entries()
        if entry.run == "r1"
    ]
    assert entries == [
        "alignment: how many people are held is disclosed, outside ε",
        "alignment with insurer (6 people), lab (4 people): which people all "
        "parties hold is disclosed, outside ε",
        "alignment: 4 ids of lab masked, outside ε",
        "alignment: 6 ids of insurer masked, outside ε",
    ]
    assert parties["clinic"].ledger.spent() == 0

    class Refusing(Ledger):
        def charge(self, *args, **kwargs):
            raise RuntimeError("no ink")

    party = holder("clinic")
    party.ledger.__class__ = Refusing
    with pytest.raises(RuntimeError, match="no ink"):
        party.answer(MaskOwn(salt=bytes(32), people={"clinic": 5, "lab": 4}))
    with pytest.raises(MessageError):
        party.answer(
            MaskOther(owner="lab", masked=torch.zeros(4, 32, dtype=torch.uint8))
        )


def test_every_value_of_every_reply_is_public_outside_epsilon_with_its_reason():
    replies = []

    class Listening(LocalParties):
        def ask(self, message):
            answers = super().ask(message)
            replies.extend(answers.values())
            return answers

    align_people(Listening({name: holder(name) for name in HELD}))
    values = [value for reply in replies for value in vars(reply).values()]
    assert all(isinstance(value, Public) for value in values)
    assert {
        value.reason for value in values if isinstance(value.value, torch.Tensor)
    } == {"masked id under this party's secret key (alignment; outside ε)"}
    ids = {str(number).encode() for held in HELD.values() for number in held}
    tensors = [value.value for value in values if isinstance(value.value, torch.Tensor)]
    assert all(
        tensor.dtype == torch.uint8 and tensor.shape[1] == 32 for tensor in tensors
    )
    assert not any(
        bytes(row).rstrip(b"\0") in ids for tensor in tensors for row in tensor.numpy()
    )


# ------------------------------------------------------------------------------- a
# server out of order


def begun(name="clinic"):
    party = holder(name)
    party.answer(MaskOwn(salt=bytes(32), people={"clinic": 5, "insurer": 6, "lab": 4}))
    return party


def masked(people):
    return torch.from_numpy(IdMask(range(people), salt=bytes(32)).mask_ids())


def test_a_party_masks_each_other_set_once_and_only_in_the_stated_size():
    party = begun()
    party.answer(MaskOther(owner="lab", masked=masked(4)))
    for ask in (
        MaskOther(owner="lab", masked=masked(4)),
        MaskOther(owner="insurer", masked=masked(7)),
        MaskOther(owner="insurer", masked=torch.tensor(0, dtype=torch.uint8)),
        MaskOther(owner="clinic", masked=masked(5)),
        MaskOther(owner="stranger", masked=masked(4)),
        SharedPositions(positions=torch.tensor([0])),
        SharedPositions(positions=None),
    ):
        with pytest.raises(
            MessageError, match=r"clinic: alignment.* was not expected here"
        ):
            party.answer(ask)
    party.answer(MaskOther(owner="insurer", masked=masked(6)))
    assert party.answer(SharedPositions(positions=torch.tensor([2, 0]))) == Aligned(
        people=Public(2, "the size of the intersection (alignment; outside ε)")
    )


def test_the_key_is_forgotten_once_the_rows_are_known():
    party = begun()
    assert party.state_dict()["alignment"]["mask"] is not None
    party.answer(MaskOther(owner="lab", masked=masked(4)))
    party.answer(MaskOther(owner="insurer", masked=masked(6)))
    party.answer(SharedPositions(positions=torch.tensor([2, 0])))
    assert party.state_dict()["alignment"]["mask"] is None
    with pytest.raises(MessageError):
        party.answer(MaskOther(owner="lab", masked=masked(4)))
    with pytest.raises(MessageError):
        party.answer(SharedPositions(positions=torch.tensor([1])))


def test_a_damaged_set_or_a_false_position_is_refused_by_name():
    party = begun()
    damaged = masked(4)
    damaged[1] = damaged[0]
    with pytest.raises(AlignmentError, match=r"clinic: .* lab"):
        party.answer(MaskOther(owner="lab", masked=damaged))
    party.answer(MaskOther(owner="lab", masked=masked(4)))
    party.answer(MaskOther(owner="insurer", masked=masked(6)))
    with pytest.raises(
        AlignmentError, match=r"clinic: The positions .* within this party's 5 people"
    ):
        party.answer(SharedPositions(positions=torch.tensor([5])))


def test_rows_are_not_to_be_had_before_alignment():
    with pytest.raises(PartyError, match=r"^clinic: "):
        _ = begun().aligned


# -----------------------------------------------------------------------------------
# what the user sees


def test_different_kinds_of_ids_are_named_before_anything_is_masked():
    parties = {"clinic": holder("clinic"), "insurer": holder("insurer", ["a", "b"])}
    with pytest.raises(AlignmentError, match=r"clinic .* integer .*insurer .* text"):
        align_people(LocalParties(parties))
    entries = [
        entry.description
        for party in parties.values()
        for entry in party.ledger.entries()
        if entry.run == "r1"
    ]
    assert (
        entries == ["alignment: how many people are held is disclosed, outside ε"] * 2
    )


def test_row_numbers_never_match_ids_in_silence():
    parties = {"clinic": holder("clinic"), "insurer": holder("insurer", person=None)}
    with pytest.raises(
        AlignmentError, match=r"clinic .* integer .*insurer .* row-number"
    ):
        align_people(LocalParties(parties))


def test_tables_without_people_match_row_by_row_if_they_are_equally_long():
    parties = {name: holder(name, range(4), person=None) for name in HELD}
    line = LocalParties(parties)
    assert align_people(line) == 4
    assert all(
        party.aligned.frame.iloc[:, -1].tolist() == [0, 1, 2, 3]
        for party in parties.values()
    )
    assert {row["ask"] for row in line.transcript.rows()} == {
        "alignment.introduce",
        "alignment.found",
    }
    parties["lab"] = holder("lab", range(3), person=None)
    with pytest.raises(
        AlignmentError, match=r"clinic has 4 .*insurer has 4 .*lab has 3"
    ):
        align_people(LocalParties(parties))
    with pytest.raises(MessageError):
        parties["lab"].answer(MaskOwn(salt=bytes(32), people={"lab": 3, "clinic": 4}))


def test_nobody_in_common_or_nobody_else():
    with pytest.raises(AlignmentError, match="clinic, lab"):
        align_people(
            LocalParties({"clinic": holder("clinic"), "lab": holder("lab", [70, 71])})
        )
    with raises(
        AlignmentError, effect=Effect.NOTHING_SENT, match="two parties or more, not 1"
    ):
        align_people(LocalParties({"clinic": holder("clinic")}))


def test_ids_that_cannot_be_matched_are_named_at_the_holder_when_its_party_is_built():
    with pytest.raises(AlignmentError, match=r"clinic: ids\[1\] = 'b\\u200b'"):
        holder("clinic", ["a", "b\u200b"])


def test_a_kept_state_brings_the_rows_back_but_not_to_another_table(tmp_path):
    parties = {name: holder(name, folder=tmp_path / name) for name in HELD}
    align_people(LocalParties(parties))
    LocalParties(parties).ask(Keep(round=3))
    again = {name: holder(name, folder=tmp_path / name) for name in HELD}
    LocalParties(again).ask(Return(round=3))
    assert orders(again) == orders(parties)
    assert np.array_equal(
        again["lab"].aligned.frame.columns, parties["lab"].aligned.frame.columns
    )
    shorter = holder("lab", [2, 5, 6], folder=tmp_path / "lab")
    with pytest.raises(ArtefactError, match=r"lab: .* 4 people.* 3"):
        shorter.answer(Return(round=3))
    for change in ({"id": HELD["lab"][::-1]}, {"lab_row": [0, 1, 2, 2]}):
        other = holder("lab", folder=tmp_path / "lab")
        frame = other.table.frame.assign(**change)
        other.table = read_table(frame, other.table.schema, name="lab")
        with pytest.raises(ArtefactError, match="lab: the table has changed"):
            other.answer(Return(round=3))


# --------------------------------------------------------------------------------------
# how far it is


def test_a_watcher_hears_of_every_id_that_each_party_masks():
    parties = {name: holder(name) for name in HELD}
    told = []
    watch_alignment(parties.values(), told.append)
    align_people(LocalParties(parties))
    everybody = sum(map(len, HELD.values()))
    assert {(one.stage, one.rounds) for one in told} == {("aligning", 3 * everybody)}
    done = [one.done for one in told]
    assert len(done) == 9
    assert done == sorted(set(done))
    assert done[-1] == 3 * everybody
    assert not told[-1].epsilon()


def test_a_party_that_came_back_with_its_key_counts_what_it_still_has_to_mask():
    parties = {name: holder(name) for name in ("clinic", "insurer")}
    asked = MaskOwn(salt=bytes(32), people={name: len(HELD[name]) for name in parties})
    masked = {name: party.answer(asked).masked.value for name, party in parties.items()}
    again = holder("clinic")
    told = []
    watch_alignment([again], told.append)
    again.load_state_dict(parties["clinic"].state_dict())
    again.answer(MaskOther(owner="insurer", masked=masked["insurer"]))
    again.answer(SharedPositions(positions=torch.arange(2)))
    assert [(one.done, one.rounds) for one in told] == [(6, 11), (11, 11)]


@pytest.mark.parametrize("size", [10**400, -(10**400)])
def test_a_size_that_no_set_may_have_makes_no_number_that_a_bar_cannot_draw(size):
    party = holder("clinic")
    told = []
    watch_alignment([party], told.append)
    party.answer(MaskOwn(salt=bytes(32), people={"clinic": 5, "insurer": size}))
    assert [one.done for one in told] == [5]
    assert 5 <= told[0].rounds <= 5 + MOST_PEOPLE


@pytest.mark.parametrize(
    "first",
    [Introduce(), MaskOwn(salt=bytes(32), people={"clinic": 5, "lab": 4})],
    ids=["introduce", "mask"],
)
def test_a_party_with_too_little_left_for_the_run_says_nothing_of_its_people(first):
    party = holder("clinic")
    # ε = 0.9
    party.ledger.charge(GaussianDpEvent(5.0), run="r0", description="an earlier run")
    before = party.ledger.entries()
    with raises(
        BudgetExceeded, effect=Effect.NOTHING_SENT, match="clinic: this step costs"
    ):
        party.answer(first)
    assert party.ledger.entries() == before
    party.budget = Budget(epsilon=0.3, delta=1e-5)
    party.answer(first)


@pytest.mark.parametrize("delta", [1e-5, 0.0])
def test_a_run_that_the_ledger_just_affords_is_aligned(delta):
    party = holder("clinic")
    party.budget = run = Budget(epsilon=1.0, delta=delta)
    noise = calibrate(lambda z: {GaussianDpEvent(z): 1}, epsilon=1.0, delta=1e-5)
    price = GaussianDpEvent(noise) if delta else PureDp(1.0)
    party.ledger = Ledger.rehearsal("clinic", Budget(1.0, delta))
    party.answer(Introduce())
    earlier = GaussianDpEvent(9.0)
    whole = epsilon({earlier: 1, price: 1}, 1e-5)
    party.ledger = Ledger.rehearsal("clinic", Budget(whole, 1e-5))
    party.ledger.charge(earlier, run="r0", description="an earlier run")
    party.answer(Introduce())
    party.ledger.charge(price, run="r1", description=f"the run, {run}")
