"""Who the people of a run are is settled when it begins, and a server tests no more
guessed ids than the ledger names.

Against a server that goes back: by `Return`, or by repeating what it asked and then
asking something else.
"""

import math
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dp_accounting.dp_event import NoOpDpEvent
from torch import Tensor

sys.path.append(str(Path(__file__).parent.parent / "runtime"))
sys.path.append(str(Path(__file__).parent.parent / "contract"))
from network_cases import Network, contract_for
from protocol_cases import CASES

from refusals import raises
from understudy.data.samples import toy
from understudy.ground.errors import (
    BudgetExceeded,
    Effect,
    MessageError,
    UnderstudyError,
)
from understudy.models.nets.gan import BranchedGenerator
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import SecureRng, poisson_samples
from understudy.privacy.secure.set_intersection import IdMask
from understudy.protocols.core.alignment import (
    AlignedParty,
    Introduce,
    MaskOther,
    MaskOwn,
    SharedPositions,
)
from understudy.protocols.core.base import Ask, Keep, Party, Reply, Return
from understudy.protocols.papers.vd_gan import pate as vd_gan_pate
from understudy.protocols.papers.vd_gan import protocol as vd_gan
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.protocols.papers.vertical_gans import party as gan_party
from understudy.protocols.papers.vertical_gans.party import output_of
from understudy.runs.federation import Federation
from understudy.runtime.contract import Contract
from understudy.runtime.journal import AskId
from understudy.runtime.local import LocalParties
from understudy.runtime.wire import encode

PEOPLE = 24
GUESSED = 3
FRAME, SCHEMA = toy(rows=PEOPLE, seed=3)


def holder(tmp_path: Path, protocol: str, budget: Budget, **more: Any) -> Any:
    """One holder's party, with a real ledger and a folder; the server plays all
    others.
    """
    tables = {"clinic": FRAME}
    schemas = {"clinic": SCHEMA}
    federation = Federation(
        tables, schemas, budget=budget, ledgers=tmp_path / "ledgers"
    )
    (party,) = federation.parties(
        protocol, run="r", folder=tmp_path / "states", **more
    ).values()
    return party


def aligned(party: Any, order: Tensor) -> list[int]:
    """The server says who the people are, in which order; their ids."""
    party.answer(MaskOwn(salt=bytes(32), people={"clinic": PEOPLE, "made up": GUESSED}))
    party.answer(MaskOther(owner="made up", masked=guesses(0)))
    party.answer(SharedPositions(positions=order))
    return [int(one) for one in party.aligned.frame["id"]]


def guesses(first: int) -> Tensor:
    return torch.from_numpy(
        IdMask(range(first, first + GUESSED), salt=bytes(32)).mask_ids()
    )


# Who the people are


def test_a_person_stays_with_one_teacher_whatever_order_a_server_asks_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two teachers of one person would turn twice the votes that are paid for."""
    taught: dict[int, set[int]] = defaultdict(set)
    settings = {
        "rounds": 4,
        "critic_steps": 1,
        "batch": 2,
        "rows": 2,
        "teachers": 6,
        "top": 2,
        "device": "cpu",
    }
    party = holder(tmp_path, "vd-gan-pate", Budget(20.0, 1e-3))
    train = vd_gan_pate.Teachers.train

    def watched(teachers: Any, *drawn: Any) -> None:
        for person, teacher in zip(
            party.aligned.frame["id"], party.assigned.tolist(), strict=True
        ):
            taught[int(person)].add(teacher)
        train(teachers, *drawn)

    monkeypatch.setattr(vd_gan_pate.Teachers, "train", watched)
    order = torch.arange(PEOPLE)
    aligned(party, order.flip(0))
    party.answer(Keep(round=1))  # before the run: with the people in another order
    aligned(party, order)
    party.answer(gan_party.GanBegin(config=settings))
    ask = vd_gan.VdGanRound(round=1, rows=torch.full((2, party.width), 0.5))
    party.answer(ask)
    with raises(
        MessageError,
        effect=Effect.NOTHING_COMPUTED_OR_SENT,
        match="mask-own was not expected here",
    ):
        aligned(party, order.flip(0))
    party.answer(Keep(round=2))
    for back in (1, 2, 2):
        try:
            party.answer(Return(round=back))
            party.answer(ask)
        except UnderstudyError:
            continue
    assert len(taught) == PEOPLE
    assert all(len(teachers) == 1 for teachers in taught.values())


class Shared:
    """VertiGAN with common batches at one holder: the server chooses the secrets that
    batches follow from.
    """

    def __init__(self, tmp_path: Path, epsilon: float) -> None:
        self.party = holder(tmp_path, "verti-gan", Budget(epsilon, 1e-3))
        settings = {
            "rounds": 6,
            "critic_steps": 6,
            "batch": 4,
            "sampling": "shared",
            "device": "cpu",
        }
        self.order = torch.arange(PEOPLE)
        self.ids = aligned(self.party, self.order)
        self.taken = dict.fromkeys(self.ids, 0)
        network = BranchedGenerator.for_parties({"clinic": output_of(SCHEMA)})
        self.party.answer(
            verti_gan.VertiGanBegin(
                config=settings, network=network.describe(only="clinic")
            )
        )
        self.weights = torch.zeros(sum(part.numel() for part in network.parameters()))

    def counts(self, secret: bytes) -> Tensor:
        batches = poisson_samples(SecureRng(secret), PEOPLE, 4 / PEOPLE, 6)
        return torch.cat(batches).bincount(minlength=PEOPLE)

    def round(self, secret: bytes) -> None:
        """One round; whoever took part in what was answered is counted."""
        ask = verti_gan.VertiGanRound(
            round=1, seed=0, weights=self.weights, batches=secret
        )
        self.party.answer(ask)
        for person, times in zip(self.ids, self.counts(secret).tolist(), strict=True):
            self.taken[person] += times

    @property
    def paid(self) -> int:
        return sum(self.party.ledger.spend(against="anyone", run="r").values())


def test_another_order_of_the_people_hides_no_participation(tmp_path: Path) -> None:
    """Counted by place, the busiest person of one order could be busiest again at an
    idle place of another.
    """
    run = Shared(tmp_path, 200.0)
    one = bytes(32)
    for number in range(1, 200):
        other = bytes([number] * 32)
        a = run.counts(one)
        b = run.counts(other)
        if int((a + b).max()) < int(a.max() + b.max()):
            break
    run.round(one)
    order = run.order.clone()
    here = int(a.argmax())
    there = int(b.argmax())
    order[here], order[there] = there, here
    try:
        run.ids = aligned(run.party, order)
        run.party.answer(Keep(round=1))
        run.party.answer(Return(round=1))
    except MessageError:
        run.ids = [int(one) for one in run.party.aligned.frame["id"]]
    run.round(other)
    assert run.paid >= max(run.taken.values())


def test_a_round_that_was_refused_pays_for_no_later_one(tmp_path: Path) -> None:
    """Who took part in it counts as little as the answer that was not given."""
    run = Shared(tmp_path, 4.0)
    refused = 0
    for number in range(60):
        try:
            run.round(number.to_bytes(32, "big"))
        except UnderstudyError:
            refused += 1
    assert refused
    assert run.paid >= max(run.taken.values())
    assert run.party.ledger.spent(against="anyone") <= 4.0


# Guessed ids


class Holder(AlignedParty):
    """Alignment alone."""

    budget = Budget(math.inf, 0.0)

    def respond(self, ask: Ask) -> Reply:
        raise self.unexpected(ask)


def named(ledger: Ledger) -> int:
    """How many sets of others the ledger says this holder may have masked."""
    return sum(
        f"{GUESSED} ids of made up" in entry.description for entry in ledger.entries()
    )


def test_a_server_that_repeats_itself_and_then_asks_otherwise_tests_no_unnamed_guess(
    tmp_path: Path,
) -> None:
    """Over the network a party goes back to where it was before an ask that differs:
    with the key of that time.
    """
    network = Network(tmp_path, "a")
    ledger = Ledger(tmp_path / "a.ledger", holder="a", budget=Budget(1.0, 1e-5))
    table = (
        Federation.rehearsal({"a": FRAME}, {"a": SCHEMA}, budget=Budget(1.0, 1e-5))
        .holders["a"]
        .table
    )

    def build(contract: Contract, mine: Ledger, folder: Path) -> Party:
        return Holder("a", table, mine, run=contract.run, folder=folder)  # type: ignore[arg-type]

    session = network.participant(
        "a", folder=tmp_path / "participant", ledger=ledger, build=build
    ).open(contract_for("a"))
    first = encode(MaskOwn(salt=bytes(32), people={"a": PEOPLE, "made up": GUESSED}))
    answered = 0
    for number in range(3):
        session.answer(AskId(f"s{number}", 1), first)
        guess = encode(MaskOther(owner="made up", masked=guesses(100 * number)))
        answered += session.answer(AskId(f"s{number}", 2), guess).status == "reply"
    session.close()
    assert answered <= named(ledger)


def test_a_party_goes_back_to_no_key_of_an_alignment(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "a.ledger", holder="a", budget=Budget(1.0, 1e-5))
    table = (
        Federation.rehearsal({"a": FRAME}, {"a": SCHEMA}, budget=Budget(1.0, 1e-5))
        .holders["a"]
        .table
    )
    party = Holder("a", table, ledger, run="r", folder=tmp_path / "states")  # type: ignore[arg-type]
    party.answer(MaskOwn(salt=bytes(32), people={"a": PEOPLE, "made up": GUESSED}))
    with pytest.raises(MessageError, match=r"keep was not expected here"):
        party.answer(Keep(round=1))
    assert not ledger.spend(run="r")
    assert NoOpDpEvent() not in ledger.spend()


ALIGNED = {
    case.protocol: case
    for case in CASES
    if case.same_people and "rows" not in case.name and "one party" not in case.name
}


@pytest.mark.parametrize(
    "protocol",
    ["verti-gan", "vd-gan-dpsgd", "vd-gan-pate", "gram", "dplt", "tied", "visits"],
)
def test_who_cannot_pay_for_a_run_any_more_is_aligned_with_nobody(
    protocol: str,
) -> None:
    case = ALIGNED[protocol]
    federation = case.federation(seed=None)
    *others, last = federation.holders.values()
    last.ledger.charge(
        PureDp(0.8 * case.budget.epsilon), run="earlier", description="an earlier run"
    )
    before = last.ledger.entries()
    parties = LocalParties(federation.parties(protocol, run="r", config=case.config()))
    with pytest.raises(BudgetExceeded, match=f"{last.name}: this step costs"):
        case.record.train(case.config(), parties, federation.schemas)
    assert last.ledger.entries() == before
    told = {
        entry.description
        for holder in others
        for entry in holder.ledger.entries()
        if entry.run == "r"
    }
    assert told <= {"alignment: how many people are held is disclosed, outside ε"}


def test_who_cannot_pay_says_nothing_of_its_rows_where_they_are_matched_one_by_one():
    """Whatever is asked first: how many rows there are is told by any of these."""
    nobody = replace(SCHEMA, person=None)
    rows = FRAME.drop(columns="id")
    federation = Federation.rehearsal(
        {"a": rows, "b": rows}, {"a": nobody, "b": nobody}, budget=Budget(1.0, 1e-5)
    )
    holder = federation.holders["a"]
    holder.ledger.charge(PureDp(0.9), run="earlier", description="an earlier run")
    party = federation.parties("vd-gan-dpsgd", run="r")["a"]
    for ask in (Introduce(), SharedPositions(positions=None)):
        with pytest.raises(BudgetExceeded, match="a: this step costs"):
            party.answer(ask)
    assert "r" not in holder.ledger.runs()


class Mismatching(LocalParties):
    """A server that says of two people of the last holder that each is the other."""

    def ask(self, message: Any, *, min_holders: int | None = None) -> dict[str, Any]:
        last = self.names[-1]
        if isinstance(message, dict) and isinstance(
            found := message.get(last), SharedPositions
        ):
            assert found.positions is not None
            positions = found.positions.clone()
            positions[:2] = positions[:2].flip(0)
            message = message | {last: SharedPositions(positions=positions)}
        return super().ask(message, min_holders=min_holders)


@pytest.mark.parametrize(
    "name",
    [
        "Gram, columns, three parties",
        "Gram, a grid",
        "DPLT, two parties",
        "Tied, a table, images and series, two releases",
        "Visits, a grid, events that are drawn",
        "VertiGAN, coupled",
    ],
)
def test_people_who_are_matched_with_others_are_in_no_joint_release(name: str) -> None:
    """Such a person would move it in two places, and pay for one."""
    case = next(case for case in CASES if case.name.startswith(name))
    federation = case.federation(seed=None)
    parties = Mismatching(
        federation.parties(case.protocol, run="r", config=case.config())
    )
    with pytest.raises(MessageError, match=r"were told different things|told other"):
        case.record.train(case.config(), parties, federation.schemas)
    assert not any(
        holder.ledger.spend(run="r") for holder in federation.holders.values()
    )
