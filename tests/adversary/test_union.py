"""What a server or a holder that departs from a union learns, and what it spoils: each
sentence of docs/secure_products.md on it, by real runs.
"""

import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from understudy.data.schema import Integer, Schema
from understudy.data.table import read_table
from understudy.ground.errors import AlignmentError, UnderstudyError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.secure.private_union import UnionMask
from understudy.privacy.secure.set_intersection import (
    TAG,
    hash_to_curve,
    raised,
)
from understudy.protocols.core.base import Ask, Reply
from understudy.protocols.core.union import (
    MaskPeer,
    MaskUnion,
    TakePlaces,
    TellOthers,
    UnitedParty,
    align_union,
    lengths_within,
)
from understudy.runtime.local import LocalParties

HELD = {"clinic": [*range(12)], "insurer": [*range(6, 20)]}
GROUPS = [(name,) for name in HELD]
BUDGET = Budget(epsilon=100, delta=1e-2)


class Holder(UnitedParty):
    budget = BUDGET

    def respond(self, ask: Ask) -> Reply:
        raise self.unexpected(ask)


def holder(name: str) -> Holder:
    column = Integer(name=f"{name}_row", low=0, high=99)
    ids = HELD[name]
    frame = pd.DataFrame({"id": ids, column.name: range(len(ids))})
    table = read_table(frame, Schema(columns=(column,), person="id"), name=name)
    return Holder(name, table, Ledger.rehearsal(holder=name, budget=BUDGET), run="r")


def pair() -> dict[str, Holder]:
    return {name: holder(name) for name in HELD}


class Server(LocalParties):
    """A server that follows the protocol, but for `change` of what it passes on, and
    keeps everything.
    """

    def __init__(
        self,
        parties: Any,
        change: Callable[[type[Ask], dict[str, Tensor]], dict[str, Tensor]],
    ) -> None:
        super().__init__(parties)
        self.change = change
        self.seen: list[Tensor] = []

    def ask(self, message: Any, *, min_holders: int | None = None) -> dict[str, Any]:
        if isinstance(message, dict):
            kind = type(next(iter(message.values())))
            sets = {name: ask.masked for name, ask in message.items()}
            self.seen += sets.values()
            message = {
                name: kind(masked=masked)
                for name, masked in self.change(kind, sets).items()
            }
        return super().ask(message, min_holders=min_holders)


def followed(kind: type[Ask], sets: dict[str, Tensor]) -> dict[str, Tensor]:
    return sets


# What is learned


def probed(parties: dict[str, Holder], guesses: list[int]) -> set[int]:
    """A server in the place of a holder with chosen ids: which of them the clinic has.
    Its answer is under a key of its own, so that nobody seems to be shared and the
    clinic tells of all its people as its own alone.
    """
    clinic = parties["clinic"]
    epsilon, delta = lengths_within(BUDGET)
    names = ["clinic", "insurer"]
    first = clinic.answer(
        MaskUnion(salt=bytes(32), parties=names, epsilon=epsilon, delta=delta)
    )
    assert clinic._union is not None
    prefix = TAG + clinic._union.salt + b"integer:"
    own, other = os.urandom(32), os.urandom(32)
    points = hash_to_curve(prefix, [str(guess).encode() for guess in guesses])
    own_set = points_of(raised(own, points))
    answer = clinic.answer(MaskPeer(masked=own_set))
    linked = answer.masked.value[:, 32:].contiguous()
    forged = points_of(raised(other, bytes_of(first.masked.value)))
    told = clinic.answer(
        TellOthers(masked=torch.hstack([forged, forged.flip(0)])),
    )
    everybody = {*raised(own, bytes_of(told.masked.value))}
    under_both = raised(other, bytes_of(linked))
    return {
        guess
        for guess, point in zip(guesses, under_both, strict=True)
        if point in everybody
    }


def bytes_of(points: Tensor) -> list[bytes]:
    return [point.tobytes() for point in points.numpy()]


def points_of(values: list[bytes]) -> Tensor:
    data = np.frombuffer(b"".join(values), dtype=np.uint8).reshape(-1, 32)
    return torch.from_numpy(data.copy())


def test_whoever_departs_tests_ids_of_its_choice_as_many_as_the_ledger_says() -> None:
    """What an intersection tells it by itself; the docs say so."""
    parties = pair()
    guesses = [3, 7, 11, 12, 400, 401]
    assert probed(parties, guesses) == {3, 7, 11}
    named = [
        re.search(r"union: ([\d,]+) people of", entry.description)
        for entry in parties["clinic"].ledger.entries()
    ]
    counts = [int(found[1].replace(",", "")) for found in named if found]
    assert counts == [len(guesses)]


def test_a_second_probe_takes_a_second_price_and_a_second_entry() -> None:
    parties = pair()
    ledger = parties["clinic"].ledger
    spends = []
    for guesses in ([3], [400]):
        probed(parties, guesses)
        spends.append(sum(ledger.spend(run="r").values()))
    assert spends[1] == 2 * spends[0]


def test_a_server_with_a_holder_that_both_follow_test_no_guess() -> None:
    """No value that went over the line is a hash of an id under keys of theirs."""
    parties = pair()
    server = Server(parties, followed)
    masks: list[UnionMask] = []
    ask = server.ask

    def remember(message: Any, **more: Any) -> dict[str, Any]:
        replies = ask(message, **more)
        mask = parties["insurer"]._union
        if mask is not None:
            masks.append(mask)
        return replies

    server.ask = remember  # type: ignore[method-assign]
    align_union(server, GROUPS)
    mask = masks[-1]
    seen = {point for one in server.seen for point in bytes_of(one.reshape(-1, 32))}
    prefix = TAG + mask.salt + b"integer:"
    keys = [mask._set_key, mask._id_key]
    # also raised twice, and by both
    points = hash_to_curve(prefix, [b"%d" % one for one in range(12)])
    frontier = {0: points}
    for depth in range(3):
        frontier[depth + 1] = [
            point for key in keys for point in raised(key, frontier[depth])
        ]
    told = {point for some in frontier.values() for point in some}
    own_points = hash_to_curve(prefix, [b"%d" % one for one in HELD["insurer"]])
    own = set(raised(mask._set_key, own_points))
    assert own <= seen  # its own set, which it made itself
    assert not (told & seen) - own


def test_a_set_that_comes_back_to_its_owner_tells_nothing_and_is_noticed() -> None:
    """A server that swaps the two holders' sets, or the answers to them."""
    for swapped in (MaskPeer, TellOthers, TakePlaces):
        parties = pair()

        def swap(
            kind: type[Ask], sets: dict[str, Tensor], swapped: type[Ask] = swapped
        ) -> dict[str, Tensor]:
            if kind is not swapped:
                return sets
            one, other = sets
            return {one: sets[other], other: sets[one]}

        assert noticed(parties, Server(parties, swap))


# What is spoiled


def noticed(parties: dict[str, Holder], server: Server) -> bool:
    """Whether a change ends the run: an error now, or other digests, by which no two
    holders open a line to each other.
    """
    try:
        align_union(server, GROUPS)
    except UnderstudyError:
        return True
    clinic, insurer = parties.values()
    return clinic.shared_with([])["insurer"] != insurer.shared_with([])["clinic"]


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "reordered": lambda one: one.flip(0),
    "cut": lambda one: one[:-1],
    "repeated": lambda one: torch.cat([one, one[:1]]),
    "one person for another": lambda one: torch.cat([one[:-1], one[:1].bitwise_xor(1)]),
}


@pytest.mark.long
@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("step", [MaskPeer, TellOthers, TakePlaces])
@pytest.mark.parametrize("name", HELD)
def test_whatever_a_server_changes_on_the_way_is_noticed_before_places_are_used(
    name: str, step: type[Ask], how: str
) -> None:
    parties = pair()

    def change(kind: type[Ask], sets: dict[str, Tensor]) -> dict[str, Tensor]:
        if kind is not step:
            return sets
        return sets | {name: CHANGES[how](sets[name])}

    assert noticed(parties, Server(parties, change))


def test_people_of_one_place_are_swapped_by_the_order_of_a_linked_set_alone() -> None:
    """Both halves are checked by themselves: nothing but the digest sees it."""
    parties = pair()

    def change(kind: type[Ask], sets: dict[str, Tensor]) -> dict[str, Tensor]:
        if kind is not TellOthers:
            return sets
        one = sets["clinic"].clone()
        one[:, 32:] = one[:, 32:].flip(0)
        return sets | {"clinic": one}

    align_union(Server(parties, change), GROUPS)
    places = [
        dict(zip(HELD[name], party.places.tolist(), strict=True))
        for name, party in parties.items()
    ]
    assert any(places[0][one] != places[1][one] for one in range(6, 12))
    digests = {party.union_digest for party in parties.values()}
    assert len(digests) == 2


def test_messages_of_an_earlier_union_do_not_pass_in_another() -> None:
    """Replayed: keys are fresh, so that the points are of other people."""
    kept: list[dict[str, Tensor]] = []

    def record(kind: type[Ask], sets: dict[str, Tensor]) -> dict[str, Tensor]:
        kept.append(sets)
        return sets

    align_union(Server(pair(), record), GROUPS)
    steps = [MaskPeer, TellOthers, TakePlaces]
    for number, step in enumerate(steps):
        parties = pair()

        def replay(
            kind: type[Ask],
            sets: dict[str, Tensor],
            number: int = number,
            step: type[Ask] = step,
        ) -> dict[str, Tensor]:
            return kept[number] if kind is step else sets

        assert noticed(parties, Server(parties, replay))


def test_a_refusal_tells_nothing_of_who_is_shared() -> None:
    """The same words, whether all or none are shared."""
    words = []
    for ids in ([*range(12)], [*range(50, 62)]):
        HELD["insurer"], kept = ids, HELD["insurer"]
        try:
            parties = pair()
        finally:
            HELD["insurer"] = kept
        cut = Server(
            parties,
            lambda kind, sets: (
                {name: one[:-1] for name, one in sets.items()}
                if kind is TellOthers
                else sets
            ),
        )
        with pytest.raises(AlignmentError) as error:
            align_union(cut, GROUPS)
        words.append(re.sub(r"[\d,]+ points", "points", str(error.value)))
    assert words[0] == words[1]
