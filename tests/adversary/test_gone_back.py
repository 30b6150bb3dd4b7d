"""A server that goes back in its parties' journals, and then asks something else.

A party answers the same bytes from its journal. At the first other ask it is put back
to where it was before, with the keys that it had: what leaves it then would be a second
release under the pads of the first, and two of those differ by one party's own sums and
its own part of the noise alone (over columns by its share, which the dealer of the
masks can take apart). The contracts here have room for a second price, as where a
server asks for more noise than is due.
"""

import hashlib
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parent.parent / "contract"))
sys.path.append(str(Path(__file__).parent.parent / "runtime"))
from network_cases import Network, protocol_contract
from protocol_cases import CASES, MIXTURE, Case, undeclared, vertical

from refusals import raises
from understudy.ground.errors import Effect, PrivacyError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.secure.lwe import Encryptor
from understudy.privacy.secure.sums import Factor
from understudy.protocols.core import Ask, Party, Reply
from understudy.protocols.joint import messages as joint
from understudy.protocols.joint.messages import Swap
from understudy.protocols.joint.products import relayed
from understudy.runtime.contract import Contract
from understudy.runtime.journal import AskId
from understudy.runtime.local import LocalParties, addressed
from understudy.runtime.session import Session
from understudy.runtime.wire import decode, encode, refusal

WIDE = Budget(90.0, 1e-5)
Messages = list[NDArray[np.int64]]


class Server:
    """One life of a server: its parties are sessions with journals, and it remembers
    what it asked.
    """

    def __init__(self, sessions: Mapping[str, Session], kinds: Any) -> None:
        self.sessions = sessions
        self.kinds = kinds
        self.id = uuid.uuid4().hex
        self.asked = list[dict[str, Ask]]()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.sessions)

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        self.asked.append(asks := addressed(message, self.names))
        return {name: self.put(name, ask) for name, ask in asks.items()}

    def put(self, name: str, ask: Ask) -> Reply:
        answer = self.sessions[name].answer(
            AskId(self.id, len(self.asked)), encode(ask)
        )
        if answer.status == "refusal":
            raise refusal(name, answer.body)
        reply = decode(answer.body, self.kinds)
        assert isinstance(reply, Reply)
        return reply


@contextmanager
def carried_out(case: Case, folder: Path) -> Iterator[tuple[Server, dict[str, Ledger]]]:
    """The run to its end, and the ledgers of its parties."""
    federation = case.federation(seed=None)
    contract = protocol_contract(case, federation)
    contract = replace(contract, budgets=dict.fromkeys(contract.budgets, WIDE))
    network = Network(folder, *federation.schemas)

    def build(name: str) -> Callable[[Contract, Ledger, Path], Party]:
        def made(contract: Contract, ledger: Ledger, folder: Path) -> Party:
            more = {"run": contract.run, "budget": case.budget, "folder": folder}
            more |= case.record.agreed(case.config())
            party: Party = case.record.build(
                name, federation.holders[name].table, ledger, **more
            )
            return party

        return made

    participants = {
        name: network.participant(name, build=build(name), description=schema)
        for name, schema in federation.schemas.items()
    }
    sessions = {
        name: participant.open(contract) for name, participant in participants.items()
    }
    server = Server(sessions, case.record.messages)
    case.record.train(case.config(), server, federation.schemas)
    yield (
        server,
        {name: participant.ledger for name, participant in participants.items()},
    )
    for session in sessions.values():
        session.close()


def again(
    server: Server, until: type[Ask], stage: str = ""
) -> tuple[Server, dict[str, Any]]:
    """Another life that asks the same until it comes to this ask (of this stage), which
    it gives back unasked.
    """
    other = Server(server.sessions, server.kinds)
    for asks in server.asked:
        first = next(iter(asks.values()))
        if isinstance(first, until) and stage in ("", getattr(first, "stage", "")):
            return other, asks
        other.ask(asks)
    raise AssertionError(f"{until.kind()} was not asked")


def refuses(
    other: Server, asks: Mapping[str, Ask], ledgers: Mapping[str, Ledger]
) -> None:
    """Nobody answers, and nobody pays."""
    before = {name: ledger.spend() for name, ledger in ledgers.items()}
    other.asked.append(dict(asks))
    for name, ask in asks.items():
        with raises(PrivacyError, effect=Effect.NOTHING_SENT):
            other.put(name, ask)
    assert {name: ledger.spend() for name, ledger in ledgers.items()} == before


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@pytest.fixture
def masked(monkeypatch: pytest.MonkeyPatch) -> Messages:
    """All that holders mask for each other, as the other one reads it, in its order."""
    seen = Messages()
    mask = Factor.mask

    def watched(factor: Factor, rows: Any) -> Any:
        words = mask(factor, rows)
        seen.append(factor.ring.signed(words).numpy().ravel())
        return words

    monkeypatch.setattr(Factor, "mask", watched)
    return seen


@pytest.fixture
def encrypted(monkeypatch: pytest.MonkeyPatch) -> Messages:
    """All that holders encrypt for each other, in its order."""
    seen = Messages()
    encrypt = Encryptor.encrypt

    def watched(encryptor: Encryptor, place: bytes, rows: Any) -> Any:
        words = encrypt(encryptor, place, rows)
        seen.append(words.view(np.int64).ravel())
        return words

    monkeypatch.setattr(Encryptor, "encrypt", watched)
    return seen


def tell_rows(first: Messages, second: Messages) -> bool:
    """Whether any two messages, uniform each, differ by so little that it is by rows,
    and not by masks.
    """
    for one, other in product(first, second):
        size = min(len(one), len(other))
        apart = (one[:size] - other[:size] + (1 << 31)) % (1 << 32) - (1 << 31)
        if (np.abs(apart) < 1 << 16).mean() > 0.5:
            return True
    return False


def _inboxes(replies: Mapping[str, Any]) -> dict[str, Any]:
    """What the parties said to each other, if they did."""
    boxes = {name: reply for name, reply in replies.items() if hasattr(reply, "outbox")}
    return relayed(boxes)


@pytest.mark.parametrize(
    ("name", "seeded", "last"),
    [
        ("Gram, columns, three parties", joint.Agree, joint.Release),
        ("Tied, a table, images and series, two releases", joint.Agree, joint.Release),
    ],
)
def test_other_seeds_of_masks_under_the_same_pads_get_no_second_release(
    name: str, seeded: type[Ask], last: type[Ask], tmp_path: Path
) -> None:
    with carried_out(case_of(name), tmp_path) as (server, ledgers):
        other, asks = again(server, seeded)
        place = server.asked.index(asks) + 1
        replies = other.ask(
            {
                name: replace(
                    ask, seeds={peer: seed[::-1] for peer, seed in ask.seeds.items()}
                )
                for name, ask in asks.items()
            }
        )
        inboxes = _inboxes(replies)
        while True:
            asks = {
                name: replace(ask, inbox=inboxes.get(name, {}))
                for name, ask in server.asked[place].items()
            }
            if isinstance(next(iter(asks.values())), last):
                refuses(other, asks, ledgers)
                return
            replies = other.ask(asks)
            place = place + 1
            inboxes = _inboxes(replies)


def test_other_pairs_are_not_released_under_the_same_pads(tmp_path: Path) -> None:
    plain = case_of("Gram, rows, three parties")
    case = replace(plain, settings=plain.settings | {"remeasured_pairs": 1})
    with carried_out(case, tmp_path) as (server, ledgers):
        other, asks = again(server, joint.Propose)
        terms = next(iter(asks.values())).terms
        pairs = torch.tensor(
            [[0, 1] if terms["pairs"].tolist() != [[0, 1]] else [0, 2]]
        )
        told = {
            name: replace(ask, terms=terms | {"pairs": pairs})
            for name, ask in asks.items()
        }
        inboxes = _inboxes(other.ask(told))
        release = {
            name: joint.Release(stage="again", inbox=inbox, corrections={})
            for name, inbox in inboxes.items()
        }
        refuses(other, release, ledgers)


def test_another_tree_is_not_counted_under_the_same_pads(tmp_path: Path) -> None:
    with carried_out(case_of("DPLT+, three parties"), tmp_path) as (server, ledgers):
        other, asks = again(server, joint.Propose, "tree")
        edges = next(iter(asks.values())).terms["edges"]
        star = torch.tensor([[0, leaf] for leaf in range(1, len(edges) + 1)])
        chain = torch.tensor([[leaf - 1, leaf] for leaf in range(1, len(edges) + 1)])
        # noise has chosen the first
        another = chain if torch.equal(star, edges) else star
        told = {
            name: replace(ask, terms=ask.terms | {"edges": another})
            for name, ask in asks.items()
        }
        inboxes = _inboxes(other.ask(told))
        due = {
            name: joint.Release(stage="tree", inbox=box, corrections={})
            for name, box in inboxes.items()
        }
        refuses(other, due, ledgers)


@pytest.mark.parametrize("stage", ["pooled", "cells"])
def test_moments_about_other_means_are_not_summed_under_the_same_pads(
    stage: str, tmp_path: Path
) -> None:
    with carried_out(
        case_of("Moments, images of two classes, three parties"), tmp_path
    ) as (server, ledgers):
        other, asks = again(server, joint.Propose, stage)
        radius = next(iter(asks.values())).terms["radius"] + 1
        told = {
            name: replace(ask, terms=ask.terms | {"radius": radius})
            for name, ask in asks.items()
        }
        inboxes = _inboxes(other.ask(told))
        refuses(
            other,
            {
                name: joint.Release(stage=stage, inbox=box, corrections={})
                for name, box in inboxes.items()
            },
            ledgers,
        )


def test_events_are_not_drawn_and_counted_again_under_the_same_pads(
    tmp_path: Path,
) -> None:
    """The ask is the same; whoever was told of another key in between is put back, and
    the others are not.
    """
    with carried_out(case_of("Visits, rows, three parties"), tmp_path) as (
        server,
        ledgers,
    ):
        other, asks = again(server, joint.Agree)
        first = other.names[0]
        with raises(PrivacyError, effect=Effect.NOTHING_SENT):
            # refused, and the records after it are gone
            other.ask({first: replace(asks[first], noise=[0.0])})
        inboxes = _inboxes(other.ask(asks))
        due = joint.Release(stage="tables", inbox=inboxes[first], corrections={})
        refuses(other, {first: due}, ledgers)


def test_events_get_other_masks_under_other_noise_and_no_second_tables_under_other_seeds(
    tmp_path: Path, masked: Messages
) -> None:
    with carried_out(
        case_of("Visits, columns, two tables and events that are drawn"), tmp_path
    ) as (server, ledgers):
        first = masked.copy()
        masked.clear()
        other, asks = again(server, joint.Agree)
        more = {
            name: replace(ask, noise=[1.0001 * ask.noise[0]])
            for name, ask in asks.items()
        }
        inboxes = _inboxes(other.ask(more))
        other.ask({name: Swap(chunk=0, inbox=inbox) for name, inbox in inboxes.items()})
        assert masked
        assert not tell_rows(first, masked), "other noise, other masks"
        other, asks = again(server, joint.Agree)
        agreed = other.ask(
            {
                name: replace(
                    ask,
                    seeds={peer: bytes([n]) * 32 for n, peer in enumerate(ask.seeds)},
                )
                for name, ask in asks.items()
            }
        )
        place = next(
            n
            for n, asks in enumerate(server.asked)
            if isinstance(asks["bank"], joint.Agree)
        )
        inboxes = _inboxes(agreed)
        for asks in server.asked[place + 1 :]:
            told = {
                name: replace(ask, inbox=inboxes.get(name, {}))
                for name, ask in asks.items()
            }  # type: ignore[call-arg]
            if isinstance(asks["bank"], joint.Release):
                refuses(other, told, ledgers)
                return
            replies = other.ask(told)
            inboxes = relayed(replies)


def test_images_about_another_radius_are_not_tied_under_the_same_pads_or_masks(
    tmp_path: Path, masked: Messages
) -> None:
    with carried_out(
        case_of("Tied, a table, images and series, two releases"), tmp_path
    ) as (server, ledgers):
        first = masked.copy()
        masked.clear()
        other, asks = again(server, joint.Propose, "joint")
        place = server.asked.index(asks)
        radius = dict.fromkeys(asks["clinic"].terms["radius"], 1)
        told = {
            name: replace(ask, terms=ask.terms | {"radius": radius})
            for name, ask in asks.items()
        }
        inboxes = _inboxes(other.ask(told))
        for asks in server.asked[place + 1 :]:
            told = {
                name: replace(ask, inbox=inboxes.get(name, {}))
                for name, ask in asks.items()
            }  # type: ignore[call-arg]
            if isinstance(asks["clinic"], joint.Release):
                refuses(other, told, ledgers)
                assert masked
                assert not tell_rows(first, masked)
                return
            replies = other.ask(told)
            inboxes = relayed(replies)


def test_what_is_told_alike_is_repeated_and_not_paid_again(tmp_path: Path) -> None:
    with carried_out(case_of("DPLT, two parties"), tmp_path) as (server, ledgers):
        before = {name: ledger.spend() for name, ledger in ledgers.items()}
        other = Server(server.sessions, server.kinds)
        for asks in server.asked:
            other.ask(asks)
        assert {name: ledger.spend() for name, ledger in ledgers.items()} == before


# Masks: what holders tell each other of their rows before a release. Two messages under
# one mask differ by rows alone.


def _multiplied(asks: Mapping[str, Any]) -> bool:
    """Whether a release is due that products were made for."""
    return any(
        isinstance(ask, joint.Release) and ask.corrections for ask in asks.values()
    )


class SameSeeds(LocalParties):
    """A server that deals the same seeds in every session, and ends when a release is
    due.
    """

    def ask(self, message: Any, *, min_holders: int | None = None) -> dict[str, Any]:
        asks = addressed(message, self.names)
        if _multiplied(asks):
            raise KeyboardInterrupt
        for name, ask in asks.items():
            seeds = getattr(ask, "seeds", {})
            if seeds:
                own = {
                    peer: hashlib.sha256(f"{name} {peer}".encode()).digest()
                    for peer in seeds
                }
                asks[name] = replace(ask, seeds=own)  # type: ignore[call-arg]
        return super().ask(asks, min_holders=min_holders)


@pytest.mark.parametrize(
    "name",
    [
        "Gram, columns, a target",
        "DPLT, two parties",
        "Tied, a table, images and series, two releases",
        "Visits, columns, two tables and events that are drawn",
    ],
)
def test_seeds_that_are_dealt_again_in_another_session_make_other_masks(
    name: str, masked: Messages
) -> None:
    case = case_of(name)
    sent = list[Messages]()
    for _ in range(2):
        federation = case.federation(seed=None)
        parties = SameSeeds(
            federation.parties(case.protocol, run="r", config=case.config())
        )
        with pytest.raises(KeyboardInterrupt):
            case.record.train(case.config(), parties, federation.schemas)
        sent.append(masked.copy())
        masked.clear()
    assert sent[0]
    assert not tell_rows(*sent)


@pytest.mark.parametrize(
    ("name", "agree"),
    [
        ("Gram, columns, three parties", joint.Agree),
        ("Visits, columns, two tables and events that are drawn", joint.Agree),
    ],
)
def test_people_who_are_cut_into_other_messages_are_masked_anew(
    name: str, agree: type[Ask], tmp_path: Path, masked: Messages
) -> None:
    """What hid one person's row is not to hide another's, at the same place of another
    message.
    """
    case = case_of(name)
    if case.protocol == "gram":
        case = replace(case, settings=case.settings | {"fine": 0.0})
    with carried_out(case, tmp_path) as (server, _):
        first = masked.copy()
        masked.clear()
        other, asks = again(server, agree)
        inboxes = _inboxes(
            other.ask({name: replace(ask, chunk=7) for name, ask in asks.items()})
        )  # type: ignore[call-arg]
        for chunk in (0, 1):
            replies = other.ask(
                {
                    name: Swap(chunk=chunk, inbox=inbox)
                    for name, inbox in inboxes.items()
                }
            )
            inboxes = _inboxes(replies)
        assert masked
        assert not tell_rows(first, masked)


def test_what_is_asked_again_is_not_encrypted_again(
    tmp_path: Path, encrypted: Messages
) -> None:
    with carried_out(case_of("Gram, columns, encrypted products"), tmp_path) as (
        server,
        ledgers,
    ):
        made = len(encrypted)
        assert made == 2, "24 people in messages of 15"
        before = {name: len(ledger.entries()) for name, ledger in ledgers.items()}
        again(server, joint.Release, "again")
        assert len(encrypted) == made, "the journal has the answers"
        assert before == {name: len(each.entries()) for name, each in ledgers.items()}


@pytest.mark.long
@pytest.mark.parametrize("change", ["noise", "chunk", "bits"])
def test_whatever_else_is_asked_is_encrypted_under_other_keys(
    change: str, tmp_path: Path, encrypted: Messages
) -> None:
    """Else two ciphertexts would differ by rows and errors alone."""
    with carried_out(case_of("Gram, columns, encrypted products"), tmp_path) as (
        server,
        _,
    ):
        first = encrypted.copy()
        encrypted.clear()
        other, asks = again(server, joint.Agree)

        def told(ask: Any) -> Any:
            changes: dict[str, Any] = {
                "noise": [2 * each for each in ask.noise],
                "chunk": 12,
                "bits": ask.bits + 1,
            }
            return replace(ask, **{change: changes[change]})

        inboxes = _inboxes(other.ask({name: told(ask) for name, ask in asks.items()}))
        other.ask({name: Swap(chunk=0, inbox=inbox) for name, inbox in inboxes.items()})
        assert encrypted
        for one, another in product(first, encrypted):
            size = min(len(one), len(another))
            apart = np.abs(one[:size] - another[:size])
            assert (apart > 1 << 40).mean() > 0.9


def test_pairs_on_other_levels_are_multiplied_under_other_masks(
    tmp_path: Path, masked: Messages
) -> None:
    plain = case_of("Gram, columns, a target")
    settings = MIXTURE | {"products": "dealt"}
    case = replace(plain, data=lambda: undeclared(vertical(2)), settings=settings)
    with carried_out(case, tmp_path) as (server, _):
        first = masked.copy()
        masked.clear()
        other, asks = again(server, joint.Propose)
        groups = next(iter(asks.values())).terms["groups"]
        (age,) = (place for place, group in groups.items() if len(group) > 16)
        levels = (torch.arange(len(groups[age])) % 3).int()
        told = {
            name: replace(ask, terms={"groups": groups | {age: levels}})
            for name, ask in asks.items()
        }
        inboxes = _inboxes(other.ask(told))
        other.ask({name: Swap(chunk=0, inbox=inbox) for name, inbox in inboxes.items()})
        assert masked
        assert not tell_rows(first, masked)
