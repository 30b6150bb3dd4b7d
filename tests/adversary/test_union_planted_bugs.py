"""Would anybody notice? Each test breaks one thing that a union rests on, and an attack
by a party that follows the protocol must succeed that fails on the code as it is.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from understudy.data.schema import Integer, Schema
from understudy.data.table import read_table
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.rng import SecureRng
from understudy.privacy.secure import private_union
from understudy.privacy.secure.private_union import Padding, UnionMask
from understudy.privacy.secure.set_intersection import tags_of
from understudy.protocols.core.base import Ask, Reply
from understudy.protocols.core.union import UnitedParty, align_union
from understudy.runtime.local import LocalParties

Patch = pytest.MonkeyPatch
GROUPS = [("clinic",), ("insurer",)]
BUDGET = Budget(epsilon=100, delta=1e-2)  # so that few people are made up
OWN = range(24)
SHARED = range(12)


class Holder(UnitedParty):
    """Keeps what it saw, as a curious holder may."""

    budget = BUDGET
    mask: UnionMask

    def respond(self, ask: Ask) -> Reply:
        raise self.unexpected(ask)

    def answer(self, ask: Ask) -> Reply:
        reply = super().answer(ask)
        if self._union is not None:
            self.mask = self._union
        return reply


def met(shared: range, seed: int) -> dict[str, Holder]:
    """Two holders of 24 people each, after their union."""
    parties = {}
    ids = {"clinic": [*OWN], "insurer": [*shared, *range(50, 74 - len(shared))]}
    for number, name in enumerate(ids):
        column = Integer(name=f"{name}_row", low=0, high=99)
        frame = pd.DataFrame({"id": ids[name], column.name: range(24)})
        table = read_table(frame, Schema(columns=(column,), person="id"), name=name)
        ledger = Ledger.rehearsal(holder=name, budget=BUDGET)
        rng = SecureRng.from_seed(2 * seed + number)
        parties[name] = Holder(name, table, ledger, run="r", rng=rng)
    align_union(LocalParties(parties), GROUPS)
    return parties


# Attacks: each says how much it knows, beyond chance


def by_the_order_of_its_set() -> bool:
    """A holder takes the points of its set that come back for its people, in the order
    in which it sent them: does it name those who are shared?
    """
    hits = []
    for seed in range(4):
        clinic = met(SHARED, seed)["clinic"]
        sets = clinic.mask._sets
        shared = np.isin(tags_of(sets["E1"]), tags_of(sets["E2"]))
        order = clinic.mask._masked_and_order[1]
        people = order < len(OWN)
        guessed = shared[people]
        truth = np.isin(order[people], [*SHARED])
        hits += (guessed == truth).tolist()
    return float(np.mean(hits)) > 0.9


def by_lengths() -> bool:
    """A holder subtracts what it knows of its own from the length of the union: does
    the rest say how many are shared?
    """

    def rest(shared: range, seed: int) -> int:
        clinic = met(shared, seed)["clinic"]
        alone, more = clinic.mask.drawn
        known = len(OWN) + clinic.mask.padding.pool + alone + more
        return clinic.people_in_union - known

    seen = [{rest(range(n), seed) for seed in range(6)} for n in (12, 11)]
    # Lengths that one number of people always has, and another one never.
    return not seen[0] & seen[1]


# Bugs


def sets_in_the_order_they_came(patch: Patch) -> None:
    patch.setattr(private_union, "_sorted", lambda points: points)


def nobody_is_made_up(patch: Patch) -> None:
    patch.setattr(Padding, "draw", lambda self, rng: (0, 0))


BUGS = {
    sets_in_the_order_they_came: by_the_order_of_its_set,
    nobody_is_made_up: by_lengths,
}


@pytest.mark.parametrize("attack", BUGS.values())
def test_the_attack_fails_on_the_code_as_it_is(attack: Callable[[], bool]) -> None:
    assert not attack()


@pytest.mark.parametrize("bug", BUGS)
def test_the_attack_succeeds_on_a_planted_bug(
    bug: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    bug(monkeypatch)
    assert BUGS[bug]()
