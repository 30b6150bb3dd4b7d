"""Alignment to a union as asks and answers: two holders learn the places of their own
people among all whom either of them has, and nothing of who is shared.

The arithmetic, and who learns what, stand in `privacy/secure/private_union.py`. The
server relays each step from one holder to the other; it compares nothing.
Guarantee: the number of people leaves a party only in the length of a set with made-up
people, and that of the overlap only with theirs, after a ledger entry of what both cost
(`LENGTHS` of the run's budget), and the other party's set is masked once, after an
entry that says how large it is. Where the holder agreed to an alignment, it takes part
in no other. Two parties have one `union_digest` only if each received what the other
sent; whatever uses the places has to compare it first (`shared_with`).
Edges: more or fewer than two holders, rows without ids → an error, and nothing is
charged or sent. A union that nobody shares is one like any other.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from dp_accounting import DpEvent
from torch import Tensor

from understudy.ground.errors import (
    AlignmentError,
    ConfigError,
    Effect,
    MessageError,
    PrivacyError,
)
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure import set_intersection as psi
from understudy.privacy.secure.private_union import Padding, UnionMask
from understudy.protocols.core.alignment import (
    ROW_NUMBER,
    AlignedParty,
    Introduce,
    MaskOther,
    MaskOwn,
    SharedPositions,
)
from understudy.protocols.core.base import (
    Ask,
    Keep,
    Message,
    Paid,
    Parties,
    Public,
    Reply,
)
from understudy.protocols.core.settings import INTERSECTION, UNION

# of ε and of δ, for lengths: at ε = 1 some 6,000 people are made up in all, which costs
# seconds, and all other noise grows by a fiftieth
LENGTHS = (0.02, 0.1)
WITHIN = "within ε: people are made up, and paid for"


class IntroduceUnion(Ask, kind="union.introduce"):
    """What kind of ids do you have, and what may the lengths of a union cost?"""


class IntroducedUnion(Reply, kind="union.introduced"):
    """The form of the ids; the ε and δ that lengths may cost, None without a limit; and
    32 random bytes towards the common salt.
    """

    ids: Public
    epsilon: Public
    delta: Public
    nonce: Public


class MaskUnion(Ask, kind="union.mask"):
    """Mask your ids, and people that you make up, under fresh keys.

    `parties`: the two holders in their order. `epsilon`, `delta`: what lengths cost;
    without an `epsilon` nobody is made up.
    """

    salt: bytes
    parties: list[str]
    epsilon: float | None
    delta: float


class MaskPeer(Ask, kind="union.mask-peer"):
    """Mask the other holder's set as well, twice."""

    masked: Tensor


class TellOthers(Ask, kind="union.tell-others"):
    """Your set as the other holder masked it: which of these people, as they are named
    under all keys, are yours alone?
    """

    masked: Tensor


class TakePlaces(Ask, kind="union.take-places"):
    """The other holder's people, whom you do not have: take your places in the
    union.
    """

    masked: Tensor


class MaskedPeople(Reply, kind="union.masked-people"):
    """A set of people under one more key, (n, 32) bytes, or under two, (n, 64). A
    holder's own is paid for: how long it is follows from rows.
    """

    masked: Paid | Public


class Placed(Reply, kind="union.placed"):
    """This party knows the places of its people; how many there are in the union."""

    people: Public


ASKS = (IntroduceUnion, MaskUnion, MaskPeer, TellOthers, TakePlaces)


def lengths_within(budget: Budget) -> tuple[float, float]:
    """The (ε, δ) of a run's budget that lengths may cost."""
    epsilon, delta = LENGTHS
    return budget.epsilon * epsilon, budget.delta * delta


def without_lengths(budget: Budget) -> Budget:
    """What is left of it for all else."""
    epsilon, delta = LENGTHS
    return replace(
        budget,
        epsilon=budget.epsilon * (1 - epsilon),
        delta=budget.delta * (1 - delta),
    )


def padding_of(budgets: Sequence[Budget]) -> Padding:
    """The padding of a run by holders with these budgets: the strictest decides."""
    limited = [budget for budget in budgets if budget.epsilon < math.inf]
    return _padding([lengths_within(budget) for budget in limited])


def _padding(shares: Sequence[tuple[float, float]]) -> Padding:
    """The padding within the strictest of these (ε, δ); of none, nobody."""
    if not shares:
        return Padding.within(math.inf, 0.0)
    epsilons, deltas = zip(*shares, strict=True)
    return Padding.within(min(epsilons), min(deltas))


def expected_made_up(budgets: Sequence[Budget]) -> int:
    """How many places of a union by such holders are made-up people's: both lists,
    and about `reach` that each has alone.
    """
    padding = padding_of(budgets)
    return 2 * padding.pool + 2 * padding.reach


def lengths_event(budgets: Sequence[Budget]) -> DpEvent:
    """What lengths cost in such a run."""
    return padding_of(budgets).event


def is_for_two(groups: Sequence[Sequence[str]]) -> bool:
    """Whether there are two holders, each with columns of its own."""
    return len(groups) == 2 and all(len(group) == 1 for group in groups)


def check_two(groups: Sequence[Sequence[str]]) -> None:
    """Refuse holders among whom there is no union yet."""
    if not is_for_two(groups):
        holders = ", ".join(name for group in groups for name in group)
        raise ConfigError(
            'alignment = "union" is for two holders with different columns, not for '
            f'{holders}: choose "intersection".',
            effect=Effect.NOTHING_CHARGED_OR_SENT,
        )


class UnitedParty(AlignedParty):
    """An aligned party that also takes part in a union. Then `aligned` are all of its
    rows, as they are in its table, `places` where each is in the union,
    `people_in_union` how many places there are, made-up people's included, and
    `people_at_both` about how many people both holders have.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages,
        *ASKS,
        IntroducedUnion,
        MaskedPeople,
        Placed,
    )

    def __init__(self, *told: Any, **more: Any) -> None:
        super().__init__(*told, **more)
        self._union: UnionMask | None = None
        self._peer = ""
        self._places: psi.Rows | None = None
        self._people_in_union = self.people_at_both = 0
        self.union_digest = b""

    @property
    def alignment(self) -> str | None:
        """What the holder agreed to; None: whatever the server asks for."""
        return None

    @property
    def united(self) -> bool:
        """Whether its people are aligned to a union."""
        return self._places is not None

    @property
    def places(self) -> psi.Rows:
        """The place of each row of `aligned` among all people of the run."""
        return np.arange(self.aligned.rows) if self._places is None else self._places

    @property
    def people_in_union(self) -> int:
        """How many people the run is about: of a union those whom any holder has, and
        made-up ones.
        """
        return self._people_in_union if self.united else self.aligned.rows

    def shared_with(self, people: Any) -> dict[str, bytes]:
        if not self.united:
            return super().shared_with(people)
        return {self._peer: self.union_digest}

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self._union is not None:
            raise self.unexpected(ask)
        other = (MaskOwn, MaskOther, SharedPositions, Introduce)
        if (isinstance(ask, ASKS) and self.alignment == INTERSECTION) or (
            isinstance(ask, other) and self.alignment == UNION
        ):
            raise MessageError(
                f'{self.name}: alignment = "{self.alignment}" was agreed to, and '
                "another one was asked for.",
                effect=Effect.NOTHING_COMPUTED_OR_SENT,
            )
        if isinstance(ask, MaskOwn) or (
            isinstance(ask, SharedPositions) and ask.positions is None
        ):
            self._leave_union()
        if not isinstance(ask, ASKS):
            return super().answer(ask)
        if self.settled and isinstance(ask, MaskUnion):
            raise self.unexpected(ask)
        if (
            isinstance(ask, IntroduceUnion | MaskUnion)
            and (least := self.foreseen()) is not None
        ):
            self.ledger.afford(least)
        try:
            return self._answer_union(ask)
        except AlignmentError as error:
            raise error.restated(f"{self.name}: {error.message}") from error

    def _answer_union(self, ask: Ask) -> Reply:
        mask = self._union
        match ask:
            case IntroduceUnion():
                return self._introduce_union()
            case MaskUnion():
                return self._mask_union(ask)
            case MaskPeer() if mask is not None:
                return self._mask_peer(ask, mask)
            case TellOthers() if mask is not None:
                others = mask.others(ask.masked.numpy(), self._peer)
                return _masked(others, f"{WITHIN} (union)")
            case TakePlaces() if mask is not None:
                return self._take_places(ask, mask)
        raise self.unexpected(ask)

    def _introduce_union(self) -> IntroducedUnion:
        epsilon, delta = lengths_within(self.budget)
        Padding.within(epsilon, delta)
        limit = None if epsilon == math.inf else epsilon
        return IntroducedUnion(
            ids=Public(self.ids, "the form of the ids (alignment; outside ε)"),
            epsilon=Public(limit, "the holder's own choice"),
            delta=Public(delta, "the holder's own choice"),
            nonce=Public(self._fresh(), "fresh random bytes"),
        )

    def _mask_union(self, ask: MaskUnion) -> MaskedPeople:
        names = ask.parties
        if self.ids == ROW_NUMBER or len({*names}) != 2 or self.name not in names:
            raise self.unexpected(ask)
        asked = math.inf if ask.epsilon is None else ask.epsilon
        epsilon, delta = lengths_within(self.budget)
        limited = epsilon < math.inf
        if limited and not (asked <= epsilon and ask.delta <= delta):
            raise PrivacyError(
                f"{self.name}: lengths were to cost ε={asked:g} at δ={ask.delta:g}, "
                f"but its budget has {epsilon:g} at δ={delta:g} for them.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        padding = Padding.within(asked, ask.delta)
        ids = self._named
        told = [self.run, names, padding.scale, padding.reach]
        salt = hashlib.sha256(ask.salt + json.dumps(told).encode()).digest()
        (peer,) = (name for name in names if name != self.name)
        receipt = self.ledger.charge(
            padding.event,
            run=self.run,
            description=f"union with {peer}: how many people are held, and how many "
            "of them are shared, with made-up people",
        )
        self.forget()
        self._leave_union()
        self._mask = self._rows = self._aligned = None
        self._peer = peer
        mask = UnionMask(
            ids,
            number=1 + names.index(self.name),
            salt=salt,
            padding=padding,
            drawn=padding.draw(self.rng),
            secret=self._fresh(),
            watch=self._tell,
        )
        self._masked = 0
        self._begin_watch(mask.length, mask.length)
        self._union = mask
        masked = torch.from_numpy(np.array(mask.mask_ids()))
        return MaskedPeople(masked=Paid(masked, receipt))

    def _mask_peer(self, ask: MaskPeer, mask: UnionMask) -> MaskedPeople:
        points = ask.masked.numpy()
        self._begin_watch(mask.length, min(len(points), psi.MOST_PEOPLE))
        masked = mask.remask(points, self._peer)
        self._charge(
            f"union: {len(points):,} people of {self._peer} masked; if it departs from "
            "the protocol it can test as many ids of its choice, outside ε"
        )
        return _masked(masked, f"under this party's secret keys, {WITHIN}")

    def _take_places(self, ask: TakePlaces, mask: UnionMask) -> Placed:
        places, people = mask.places(ask.masked.numpy(), self._peer)
        digest = mask.digest
        self.people_at_both = mask.people_at_both
        self._take(np.arange(self.table.rows))
        self._union = None
        self._places, self._people_in_union = places, people
        self.union_digest = digest
        return Placed(people=Public(people, f"the length of the union, {WITHIN}"))

    def _begin_watch(self, own: int, other: int) -> None:
        # Each point of both sets is masked three times at most: alike at both parties.
        self._to_mask = 3 * (own + other)

    def _leave_union(self) -> None:
        if self._places is not None:
            # all rows, and not those of an intersection
            self._rows = self._aligned = None
        self._union = self._places = None
        self._people_in_union = self.people_at_both = 0
        self.union_digest = b""

    def state_dict(self) -> dict[str, Any]:
        held: dict[str, Any] = {"peer": self._peer}
        if self._union is not None:
            held["mask"] = self._union.state_dict()
        if self._places is not None:
            held["places"] = torch.from_numpy(self._places)
            held["people"] = self._people_in_union
            held["both"] = self.people_at_both
            held["digest"] = self.union_digest
        return super().state_dict() | {"union": held}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._leave_union()
        held = state.get("union", {})
        self._peer = held.get("peer", "")
        if "places" in held:
            self._places = held["places"].numpy()
            self._people_in_union = int(held["people"])
            self.people_at_both = int(held["both"])
            self.union_digest = bytes(held["digest"])
        super().load_state_dict(state)
        if "mask" in held:
            self._union = UnionMask.from_state(self._named, held["mask"], self._tell)
            self._masked = 0
            self._begin_watch(self._union.length, self._union.length)


def _masked(points: psi.Masked, why: str) -> MaskedPeople:
    tensor = torch.from_numpy(np.array(points))
    return MaskedPeople(masked=Public(tensor, f"masked people (union), {why}"))


def align_union(
    parties: Parties, groups: Sequence[Sequence[str]]
) -> dict[tuple[str, ...], int]:
    """Align two holders to the union of their people; how many places it has."""
    check_two(groups)
    names = [name for group in groups for name in group]
    met = parties.ask(IntroduceUnion())
    psi.agree_on_kind({name: str(reply.ids.value) for name, reply in met.items()})
    if met[names[0]].ids.value == ROW_NUMBER:
        raise AlignmentError(
            "A union takes ids: the schemas must name a person column. Row by row all "
            "people are shared.",
            effect=Effect.NOTHING_CHARGED_OR_SENT,
        )
    salt = hashlib.sha256(
        b"".join(bytes(met[name].nonce.value) for name in names)
    ).digest()
    limits = [
        (float(reply.epsilon.value), float(reply.delta.value))
        for reply in met.values()
        if reply.epsilon.value is not None
    ]
    ask = MaskUnion(
        salt=salt,
        parties=names,
        epsilon=min(epsilon for epsilon, _ in limits) if limits else None,
        delta=min((delta for _, delta in limits), default=0.0),
    )
    sets = _exchanged(names, parties.ask(ask))
    for step in (MaskPeer, TellOthers):
        replies = parties.ask({name: step(masked=sets[name]) for name in names})
        sets = _exchanged(names, replies)
    placed = parties.ask({name: TakePlaces(masked=sets[name]) for name in names})
    people = {int(reply.people.value) for reply in placed.values()}
    if len(people) != 1:
        raise AlignmentError(
            "The parties do not agree on how many people the union has. No row was "
            "used."
        )
    return {(names[0], names[1]): people.pop()}


def _exchanged(names: Sequence[str], replies: Mapping[str, Any]) -> dict[str, Tensor]:
    """What each said, for the other one."""
    one, other = names
    return {one: replies[other].masked.value, other: replies[one].masked.value}
