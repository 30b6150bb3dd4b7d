"""Alignment as asks and answers: every vertical protocol begins with it.

The arithmetic, and who learns what, stand in `privacy/secure/set_intersection.py`. Here
the server relays: it asks every party for its masked ids, has each set masked by every
other party in turn, compares the complete sets, and tells each party which of its rows
the shared people are, in one order for all.

Tables whose schema names no person are taken to be aligned already, row by row; nothing
is masked then.
Guarantee: an id leaves a party only under that party's key, after a ledger entry that
names the disclosure as outside ε, with whom, and how many ids of theirs this party will
mask. It masks each set once, and every set that it masks is an entry of its own: a
server that departs from the protocol, or that has a party go back to an earlier state,
can test no more guessed ids against it than the entries say. Before it says anything, a
party holds what the run may cost against its ledger (`foreseen`): who has too little
left refuses, and nobody learns who its people are.
"""

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from dp_accounting.dp_event import NoOpDpEvent
from torch import Tensor

from understudy.data.id_form import IdForm
from understudy.ground.errors import (
    AlignmentError,
    ArtefactError,
    Effect,
    OwnIdsError,
    PartyError,
    SchemaError,
)
from understudy.privacy.accounts.accounting import DpEvent, gaussian_of
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.secure import set_intersection as psi
from understudy.protocols.core import (
    Ask,
    Keep,
    Message,
    Parties,
    Party,
    Progress,
    Public,
    Reply,
    Watcher,
)

if TYPE_CHECKING:
    from understudy.data.table import Table

ROW_NUMBER = "row-number"
MASKED = "masked id under this party's secret key (alignment; outside ε)"


class Introduce(Ask, kind="alignment.introduce"):
    """What kind of ids do you have, and how many?"""


class Introduced(Reply, kind="alignment.introduced"):
    """Integer, text or row-number ids; how many; and 32 random bytes towards the common
    salt.
    """

    ids: Public
    people: Public
    nonce: Public


class MaskOwn(Ask, kind="alignment.mask-own"):
    """Mask your ids under a fresh key. `people` names all parties with the size of
    their sets.
    """

    salt: bytes
    people: dict[str, int]


class MaskOther(Ask, kind="alignment.mask-other"):
    """Mask the set of this party as well."""

    owner: str
    masked: Tensor


class MaskedIds(Reply, kind="alignment.masked-ids"):
    """A set under one more key, (n, 32) bytes."""

    masked: Public


class SharedPositions(Ask, kind="alignment.found"):
    """The positions of the shared people in your masked set, in the common order. None:
    row by row.
    """

    positions: Tensor | None


class Aligned(Reply, kind="alignment.aligned"):
    """This party holds its rows in the common order."""

    people: Public


class AlignedParty(Party):
    """A holder of a table whose people other parties hold, too. Once aligned, `aligned`
    are its rows. Of the key nothing is kept once the rows are known, and while there is
    one the state is not saved on the server's word (`Keep`). Who the people are, and in
    which order, does not change while something that was learned of them is at work:
    where `settled`, a party is aligned no more, and other protocols begin anew.
    `watch`, where the holder sets it, hears how many ids of all parties' sets were
    masked here: sizes that all know.
    Edges: a saved state of other rows → ArtefactError: places, and what hides rows, are
    of those. Ids that cannot be matched → OwnIdsError from the constructor, which names
    one; of a long table when they are asked for, and answers name none. Too little left
    for the run → BudgetExceeded, or once the run begins.
    """

    # Of that ε, what is held against the ledger as Gaussian noise: prices of few or
    # rare samples compose to less.
    sure: ClassVar[float] = 0.7
    messages: ClassVar[tuple[type[Message], ...]] = (
        *Party.messages,
        Introduce,
        Introduced,
        MaskOwn,
        MaskOther,
        MaskedIds,
        SharedPositions,
        Aligned,
    )

    def __init__(self, name: str, table: "Table", ledger: Ledger, **more: Any) -> None:
        super().__init__(name, ledger, **more)
        self.table = table
        if not table.long and table.schema.person is not None:
            self._named  # noqa: B018 (judged now, at the holder)
        elif table.repeated:
            raise OwnIdsError(
                f"{table.source}: {table.repeated:,} of {table.rows:,} rows repeat the "
                "id of another row: a person takes one row.",
                effect=Effect.NOTHING_SENT,
            )
        self.watch: Watcher | None = None
        self._masked = self._to_mask = 0
        self._mask: psi.IdMask | None = None
        # whose sets are still to be masked, and their sizes
        self._waiting: dict[str, int] = {}
        self._rows: psi.Rows | None = None
        self._aligned: Table | None = None

    @cached_property
    def ids(self) -> str:
        """The form of the ids: integer, text or row-number."""
        return ROW_NUMBER if self.table.schema.person is None else self._named.kind

    @cached_property
    def _named(self) -> psi.Ids:
        """Who the rows are of. Of a long table that is looked at when it is asked
        for.
        """
        try:
            form = IdForm.from_names(self.table.schema.person_written)
            return psi.canonical_ids(self.table.people, form)
        except (AlignmentError, SchemaError) as error:
            if self.table.long:  # a server waits for the answer, and hears this
                raise PartyError(
                    "an id of the long table cannot be matched: it begins or ends with "
                    "a space, holds an invisible character, or is of another kind than "
                    "the others.",
                    effect=Effect.NOTHING_SENT,
                ) from error
            raise OwnIdsError(
                f"{self.table.source}: {error.message}", effect=error.effect
            ) from error

    @property
    def aligned(self) -> "Table":
        """The rows of the shared people, in the order that all parties have them."""
        if self._aligned is None:
            raise PartyError(
                f"{self.name}: its people are not aligned yet.",
                effect=Effect.NOTHING_COMPUTED_OR_SENT,
            )
        return self._aligned

    @property
    def settled(self) -> bool:
        """Whether the people of this run stand, since what is remembered of each goes
        by their places.
        """
        return False

    def composition(self) -> dict[str, Any]:
        return {"same_people": True}

    def foreseen(self) -> DpEvent | None:
        """What the run will cost here, or a little less; None where the budget does not
        tell, or some was paid.
        """
        budget = self.budget
        ledger = self.ledger
        told = budget.epsilon < math.inf and budget.against == ledger.budget.against
        if not told or ledger.spend(run=self.run):
            return None
        return gaussian_of(self.sure * budget.epsilon, budget.delta)

    def shared_with(
        self, people: Sequence[tuple[int, int, Iterable[str]]]
    ) -> dict[str, bytes]:
        """Of each other holder a digest of the ids of the people that both share, in
        their common order: 32 bytes. `people`: those from one place to another, and who
        else holds them; nobody in a horizontal partition, or row by row.
        Guarantee: two holders find the same only if each place is one and the same
        person at both. A server that matched a person with somebody else would have
        both in a joint release twice, at the price of once.
        """
        if (
            not people
            or self.table.schema.person is None
            or not self.aligned.rows
            or self._rows is None
        ):
            return {}
        ids = self._named
        digests = dict[str, Any]()
        for start, stop, peers in people:
            told = b"".join(
                len(one).to_bytes(4, "big") + one for one in ids[self._rows[start:stop]]
            )
            for peer in peers:
                digests.setdefault(
                    peer, hashlib.sha256(f"understudy people {ids.kind} ".encode())
                ).update(told)
        return {peer: digest.digest() for peer, digest in digests.items()}

    def forget(self) -> None:
        """Drop what was begun about the people as they were; they are aligned anew."""

    def answer(self, ask: Ask) -> Reply:
        moved = isinstance(ask, MaskOwn | SharedPositions) and self.settled
        if moved or (isinstance(ask, Keep) and self._mask is not None):
            raise self.unexpected(ask)
        if (
            isinstance(ask, Introduce | MaskOwn | SharedPositions)
            and (least := self.foreseen()) is not None
        ):
            self.ledger.afford(least)
        try:
            match ask:
                case Introduce():
                    self._charge(
                        "alignment: how many people are held is disclosed, outside ε"
                    )
                    return Introduced(
                        ids=Public(
                            self.ids, "the form of the ids (alignment; outside ε)"
                        ),
                        people=Public(
                            self.table.rows,
                            "the number of people (alignment; outside ε)",
                        ),
                        nonce=Public(self._fresh(), "fresh random bytes"),
                    )
                case MaskOwn():
                    return self._mask_own(ask)
                case MaskOther():
                    return self._mask_other(ask)
                case SharedPositions():
                    return self._answer_positions(ask)
        except AlignmentError as error:
            raise error.restated(f"{self.name}: {error.message}") from error
        return super().answer(ask)

    def _mask_own(self, ask: MaskOwn) -> MaskedIds:
        others = {name: size for name, size in ask.people.items() if name != self.name}
        if (
            self.ids == ROW_NUMBER
            or not others
            or ask.people.get(self.name) != self.table.rows
        ):
            raise self.unexpected(ask)
        mask = psi.IdMask(
            self._named, salt=ask.salt, key=self._fresh(), watch=self._tell
        )
        peers = ", ".join(f"{name} ({size:,} people)" for name, size in others.items())
        self._charge(
            f"alignment with {peers}: which people all parties hold is disclosed, "
            "outside ε"
        )
        self.forget()
        self._mask = mask
        self._waiting = others
        self._rows = None
        self._aligned = None
        self._masked, self._to_mask = 0, self._in_all()
        return MaskedIds(masked=Public(torch.from_numpy(mask.mask_ids()), MASKED))

    def _mask_other(self, ask: MaskOther) -> MaskedIds:
        if self._mask is None or ask.masked.shape[:1] != (
            self._waiting.get(ask.owner),
        ):
            raise self.unexpected(ask)
        masked = self._mask.remask(ask.masked.numpy(), owner=ask.owner)
        # The ledger goes back to no earlier state, as this party may: there each set
        # counts, whichever came before.
        self._charge(f"alignment: {len(masked):,} ids of {ask.owner} masked, outside ε")
        del self._waiting[ask.owner]
        return MaskedIds(masked=Public(torch.from_numpy(masked), MASKED))

    def _answer_positions(self, ask: SharedPositions) -> Aligned:
        if ask.positions is None and self.ids == ROW_NUMBER:
            self._charge(
                "alignment row by row: the number of people is disclosed, outside ε"
            )
            self.forget()
            self._take(np.arange(self.table.rows))
        elif ask.positions is not None and self._mask is not None and not self._waiting:
            self._take(self._mask.positions_to_rows(ask.positions.numpy()))
        else:
            raise self.unexpected(ask)
        return Aligned(
            people=Public(
                self.aligned.rows, "the size of the intersection (alignment; outside ε)"
            )
        )

    def _in_all(self) -> int:
        # The sizes are the server's word: one that no set may have makes no number that
        # a bar cannot draw.
        return self.table.rows + sum(
            min(max(size, 0), psi.MOST_PEOPLE) for size in self._waiting.values()
        )

    def _tell(self, ids: int) -> None:
        self._masked += ids
        if self.watch is not None:
            self.watch(Progress(self._masked, self._to_mask, dict, "aligning"))

    def _take(self, rows: psi.Rows) -> None:
        self._mask, self._rows, self._aligned = None, rows, self.table.take(rows)

    def _fresh(self) -> bytes:
        # A seeded rehearsal repeats; otherwise the system's randomness, whatever
        # generator makes the noise.
        return self.rng.bytes(32) if self.rng.seeded else os.urandom(32)

    def _charge(self, description: str) -> None:
        self.ledger.charge(NoOpDpEvent(), run=self.run, description=description)

    def state_dict(self) -> dict[str, Any]:
        mask = self._mask
        rows = None if self._rows is None else torch.from_numpy(self._rows)
        key = (
            None
            if mask is None
            else {"salt": mask.salt, "key": mask.key, "waiting": self._waiting}
        )
        held = {
            "people": self.table.rows,
            "table": self.table.digest,
            "mask": key,
            "rows": rows,
        }
        return super().state_dict() | {"alignment": held}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        held = state["alignment"]
        if held["people"] != self.table.rows:
            raise ArtefactError(
                f"{self.name}: the saved state is about {held['people']:,} people, the "
                f"table has {self.table.rows:,}.",
                effect=Effect.NOTHING_COMPUTED_OR_SENT,
            )
        if held.get("table", self.table.digest) != self.table.digest:
            raise ArtefactError(
                f"{self.name}: the table has changed since the state was saved: go on "
                "with the rows of then, or begin a new run.",
                effect=Effect.NOTHING_COMPUTED_OR_SENT,
            )
        self._mask = self._rows = self._aligned = None
        mask = held["mask"]
        if mask is not None:
            self._mask = psi.IdMask(
                self._named, salt=mask["salt"], key=mask["key"], watch=self._tell
            )
            self._waiting = dict(mask["waiting"])
            self._masked, self._to_mask = 0, self._in_all()
        if held["rows"] is not None:
            self._take(held["rows"].numpy())


def watch_alignment(parties: Iterable[Party], watch: Watcher) -> None:
    """Have the parties of one alignment tell one watcher how far they are together:
    each masks everybody's ids.
    """
    aligning = [party for party in parties if isinstance(party, AlignedParty)]
    masked = dict.fromkeys((party.name for party in aligning), 0)

    def hear(name: str, one: Progress) -> None:
        masked[name] = one.done
        watch(replace(one, done=sum(masked.values()), rounds=len(masked) * one.rounds))

    for party in aligning:
        party.watch = partial(hear, party.name)


def align_people(parties: Parties) -> int:
    return sum(align_grid(parties, [(name,) for name in parties.names]).values())


def align_grid(
    parties: Parties, groups: Sequence[Sequence[str]]
) -> dict[tuple[str, ...], int]:
    """Align groups that hold the people together, rows cell by cell (`match_grid`); how
    many each cell has.
    """
    if len(groups) < 2:
        raise AlignmentError(
            f"Alignment needs two parties or more, not {len(groups)}.",
            effect=Effect.NOTHING_SENT,
        )
    met = parties.ask(Introduce())
    people = {name: int(reply.people.value) for name, reply in met.items()}
    psi.agree_on_kind({name: str(reply.ids.value) for name, reply in met.items()})
    if met[parties.names[0]].ids.value == ROW_NUMBER:
        if max(map(len, groups)) > 1:
            raise AlignmentError(
                "Where several parties hold other people of the same columns, their "
                "schemas must name a person "
                "column: row by row nobody can be matched.",
                effect=Effect.NOTHING_SENT,
            )
        if len(set(people.values())) > 1:
            stated = ", ".join(
                f"{name} has {size:,} rows" for name, size in people.items()
            )
            raise AlignmentError(
                f"{stated}: without a person column they must match row by row.",
                effect=Effect.NOTHING_SENT,
            )
        parties.ask(SharedPositions(positions=None))
        return {tuple(group[0] for group in groups): people[parties.names[0]]}
    # Every party's nonce goes in, so that the salt is fresh if one of them is.
    salt = hashlib.sha256(
        b"".join(bytes(met[name].nonce.value) for name in parties.names)
    ).digest()
    replies = parties.ask(MaskOwn(salt=salt, people=people))
    sets = {name: reply.masked.value for name, reply in replies.items()}
    for hop in psi.ring(parties.names):
        replies = parties.ask(
            {
                peer: MaskOther(owner=name, masked=sets[name])
                for name, peer in hop.items()
            }
        )
        sets = {name: replies[peer].masked.value for name, peer in hop.items()}
    matched_positions, cells = psi.match_grid(
        {name: masked.numpy() for name, masked in sets.items()}, groups
    )
    parties.ask(
        {
            name: SharedPositions(positions=torch.from_numpy(positions))
            for name, positions in matched_positions.items()
        }
    )
    return cells
