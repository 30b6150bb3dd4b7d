"""A holder's side of visits: it checks, over columns masks and multiplies, pays, counts, adds noise, and pads.

Guarantee: before the release a party charges its ledger for what one person, with all rows (over columns: at all
parties), moves in it, under noise of the scale that this party computes from the schemas and the agreed multiplier,
which is never below what its own budget needs. In every table a person weighs 1 at most, whatever the rows hold
(`data/visits/counts.py`). The server chooses nothing but who takes part, and more noise.
Over rows, a person who may be with k holders (`most_holders`) is priced as k times as much, and ε holds against the
server, an outsider, and up to `colluding` other holders, who may pool what they know with it (`secure.sums`). Over
columns each holder of a table adds all of its noise, so that ε holds against the server and against all other parties;
what leaves earlier, masked and sealed, is uniform to whoever can read it and enters the ledger at no price. The server
deals the masks, so there it must not pool what it knows with a holder (docs/secure_products.md).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.check import in_range, not_negative, whole
from understudy.data.codec import Codec
from understudy.data.described import schema_from
from understudy.data.table import Table
from understudy.data.visits import VisitCodes, Visits, count_visits
from understudy.data.visits.counts import person_vectors
from understudy.errors import MessageError, PartyError, PrivacyError, SchemaError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import Rng
from understudy.privacy.secure import (
    Channel,
    Factor,
    KeyPair,
    Ring,
    Words,
    blind,
    connect,
    fingerprint,
    noise_on,
)
from understudy.privacy.secure.moments import moments_event, needed_multipliers
from understudy.protocols.core import (
    AlignedParty,
    Ask,
    Keep,
    Message,
    Paid,
    Products,
    Public,
    Reply,
    Swap,
    Swapped,
    told_alike,
)
from understudy.protocols.core.roster import places, roster
from understudy.protocols.visits.columns import Split
from understudy.protocols.visits.messages import Agree, Agreed, Begin, Begun, Count, Counted
from understudy.protocols.visits.terms import SETTLED, Holders, Terms, public_of

RING = Ring(64)


@dataclass
class Agreement:
    """What a party holds between `Agree` and its release. It is dropped with that, keys and all."""

    agree: Agree
    channels: dict[str, Channel]
    terms: Terms
    products: Products | None = None  # over columns
    codes: VisitCodes | None = None  # over columns: what the products are of
    kept: Tensor | None = None  # of these, the events that count, where they are drawn


class VisitsParty(AlignedParty):
    """One holder of people and their events, or over columns of a table of the same people.

    Guarantee: see the module. Each ask is answered once and in turn. From `Begin` to the release the state is not saved
    on the server's word (`Keep`): a server that could return to it would have two releases under one pad.
    Edges: another schema, less noise than the budget needs, a message of a wrong shape, repeated or out of turn → an
    error, and nothing is charged or sent; a session that is lost begins again with `Begin` and new keys, at a new
    price.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages, Begin, Begun, Agree, Agreed, Swap, Swapped, Count, Counted,
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        held: Visits | Table,
        ledger: Ledger,
        *,
        run: str,
        budget: Budget,
        rng: Rng | None = None,
        folder: Path | None = None,
        agreed: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name, roster(held), ledger, run=run, rng=rng, folder=folder)
        held.schema.require_public(f"the schema of {name}")
        self.held, self.budget, self.agreed = held, budget, dict(agreed or {})
        self.multiplier = 0.0
        self.forget()

    def forget(self) -> None:
        self.begun: Begin | None = None
        self.holders: Holders | None = None
        self.pair: KeyPair | None = None
        self.agreement: Agreement | None = None

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self.pair is not None:
            raise self.unexpected(ask)
        return super().answer(ask)

    def respond(self, ask: Ask) -> Reply:
        if isinstance(ask, Begin):
            return self._begin(ask)
        holders, agreement = self.holders, self.agreement
        if holders is None or self.pair is None:
            raise self.unexpected(ask)
        if isinstance(ask, Agree) and (agreement is None or holders.split is None):
            return self._agree(ask, holders)
        if agreement is None:
            raise self.unexpected(ask)
        products = agreement.products
        match ask:
            case Swap() if products is not None and not products.done and ask.chunk == products.swapped:
                return products.swap(ask)
            case Count() if products is None or products.done:
                return self._count(ask, holders, agreement)
        raise self.unexpected(ask)

    # Before anything leaves

    def _begin(self, ask: Begin) -> Begun:
        holders = self._take_up(ask)
        private, budget = bool(ask.config["private"]), self.budget
        people = None if holders.split is None else len(self.aligned)
        if people is not None and people < 2:
            raise PartyError(f"{self.name}: {people} people are too few to count. Nothing was charged.")
        budget.warn_of_delta(self.name, self.held.rows if people is None else people)
        self.multiplier = needed_multipliers(budget, (1.0,))[0] if private else 0.0
        holders.terms(self.multiplier, self._setting("most_holders"))  # noise that can be drawn
        self.ledger.afford(moments_event(self.multiplier))
        self.pair = KeyPair(self._fresh())
        return Begun(
            multiplier=Public(self.multiplier, "computed from the budget and public settings"),
            budget=Public(asdict(budget) if private else None, "the holder's own choice"),
            noise=self.stated_noise(),
            key=Public(self.pair.public, "a fresh public key"),
            people=Public(people, "the size of the intersection, outside ε; over rows the number stays here"),
        )

    def _take_up(self, ask: Begin) -> Holders:
        self._check_agreed(ask.config)
        schemas = {name: schema_from(schema) for name, schema in ask.schemas.items()}
        own = schemas.get(self.name)
        if type(own) is not type(self.held.schema) or public_of(own) != public_of(self.held.schema):
            raise SchemaError(f"{self.name}: the run is about another schema. Nothing was charged or sent.")
        holders = Holders.of(schemas)
        holders.check(ask.config)
        self.forget()
        self.begun, self.holders = ask, holders
        return holders

    def _check_agreed(self, config: Mapping[str, Any]) -> None:
        """The settings, held to what the holder knows by itself."""
        for key in SETTLED:
            if key not in config:
                raise MessageError(f"{self.name}: the settings lack {key}. Nothing was charged or sent.")
            if key in self.agreed and config[key] != self.agreed[key]:
                raise MessageError(
                    f"{self.name}: {key}={config[key]} was asked for, and {self.agreed[key]} was agreed to. "
                    "Nothing was charged or sent."
                )

    def _agree(self, ask: Agree, holders: Holders) -> Agreed:
        agreement, mark = self._open(ask, holders), fingerprint(ask.keys)
        if holders.split is not None:
            self._multiply(agreement, holders.split)
            self._charge(
                f"masked rows for {', '.join(agreement.channels)}, sealed: they tell nothing, outside ε; keys {mark}"
            )
        self.agreement = agreement
        return Agreed(fingerprint=Public(mark, "a hash of public keys"))

    def _open(self, ask: Agree, holders: Holders) -> Agreement:
        """Check what was agreed, and derive lines from it."""
        if self.begun is None or self.pair is None:
            raise self.unexpected(ask)
        not_negative(multiplier=ask.multiplier)
        if ask.multiplier < self.multiplier:
            raise PrivacyError(
                f"{self.name}: a noise multiplier of {ask.multiplier:g} was asked for, but its budget needs "
                f"{self.multiplier:g}. Nothing was charged or sent."
            )
        everybody = ask.keys.keys() == set(holders.names)
        if not (everybody or (holders.split is None and ask.keys.keys() <= set(holders.names))):
            raise MessageError(
                f"{self.name}: a key is of a party that was not named, or one is missing. Nothing was sent."
            )
        peers = set() if holders.split is None else ask.keys.keys() - {self.name}
        if ask.seeds.keys() != peers or len(set(ask.seeds.values())) < len(peers):
            raise MessageError(f"{self.name}: a seed is missing or new. Nothing was sent.")
        if len(ask.keys) > 1 and holders.split is None:
            in_range(1, len(ask.keys) - 1, colluding=self._setting("colluding"))
        whole(chunk=ask.chunk)
        terms = holders.terms(ask.multiplier, self._setting("most_holders"))
        context = told_alike(self.run, self.begun, ask)
        return Agreement(ask, connect(self.name, self.pair, ask.keys, context=context), terms)

    def _multiply(self, agreement: Agreement, split: Split, kept: Tensor | None = None) -> None:
        """Over columns: this side of the products with each other holder."""
        agreement.codes, agreement.kept = self._codes(kept)
        codes, own, root = agreement.codes, split.own(self.name), agreement.terms.root
        factors = {
            peer: Factor(
                RING,
                seed,
                first=split.holders.index(self.name) < split.holders.index(peer),
                width=split.width(self.name),
                peer_width=split.width(peer),
            )
            for peer, seed in agreement.agree.seeds.items()
        }
        step, people = split.chunk(agreement.agree.chunk), len(codes.people)
        chunks = [(a, min(a + step, people), tuple(factors)) for a in range(0, people, step)]

        def rows(start: int, stop: int) -> Words:
            return RING.words(person_vectors(codes, own, root, start, stop))

        agreement.products = Products(RING, agreement.channels, factors, rows, chunks)

    def _codes(self, kept: Tensor | None = None) -> tuple[VisitCodes, Tensor | None]:
        """The shared people's levels in the common order, and which events count, where they are drawn."""
        if isinstance(self.held, Table):
            codes = Codec(self.held.schema).codes(self.aligned)
            nobody = np.zeros(len(codes) + 1, dtype=np.int64)
            return VisitCodes(codes, np.zeros((0, 0), dtype=np.int32), nobody), None
        shared = self.held.take(places(self.aligned))
        if kept is None:
            kept = torch.from_numpy(shared.kept(self.rng))
        drawn = kept if self.held.schema.cut == "draw" else None
        return shared.codes(kept=kept.numpy()), drawn

    # The release

    def _count(self, ask: Count, holders: Holders, agreement: Agreement) -> Counted:
        """Charge, and only then count."""
        agree, terms, split = agreement.agree, agreement.terms, holders.split
        products = {} if agreement.products is None else agreement.products.shares(ask.inbox, ask.corrections)
        alone = 1 if split is not None else len(agree.keys)
        scale = terms.share(alone, self._setting("colluding"))
        receipt = self.ledger.charge(
            moments_event(agree.multiplier),
            run=self.run,
            what=f"tables of people and their events with {', '.join(agreement.channels) or 'nobody'}; "
            f"keys {fingerprint(agree.keys)}",
            once=True,  # also for a server that puts this party back to before it: pads are for one release
        )
        self.agreement = self.pair = None  # a further release takes new keys, and is charged again
        if split is None and isinstance(self.held, Visits):
            cells = count_visits(self.held.codes(self.rng), holders.layout, terms.unit)
            lines = list(agreement.channels.values())
        elif split is not None and agreement.codes is not None:
            cells, lines = count_visits(agreement.codes, split.own(self.name), terms.unit), []
        else:
            raise self.unexpected(ask)
        own = blind(RING.words(self._noisy(torch.from_numpy(cells), scale)), lines, RING, stream=0)
        shared = {}
        for peer, share in products.items():
            noisy = self._noisy(RING.signed(share), terms.share(2, 1))
            shared[peer] = RING.signed(blind(RING.words(noisy), [agreement.channels[peer]], RING, stream=0))
        return Counted(cells=Paid(RING.signed(own), receipt), shared=Paid(shared, receipt))

    def _noisy(self, cells: Tensor, scale: Any) -> Tensor:
        return cells + noise_on(torch.ones_like(cells, dtype=torch.bool), scale, self.rng)

    def _setting(self, key: str) -> int:
        return 1 if self.begun is None else int(self.begun.config[key])

    # The state, as it is saved

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self.begun is not None and self.pair is not None:
            state["begun"] = {
                "ask": asdict(self.begun),
                "secret": self.pair.secret,
                "multiplier": self.multiplier,
            }
        if (agreement := self.agreement) is not None:
            products = agreement.products
            state["agreement"] = {
                "ask": asdict(agreement.agree),
                "kept": agreement.kept,
                "products": None if products is None else products.state_dict(),
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.forget()
        if (begun := state.get("begun")) is None:
            return
        holders = self._take_up(Begin(**begun["ask"]))
        self.pair, self.multiplier = KeyPair(begun["secret"]), float(begun["multiplier"])
        if (held := state.get("agreement")) is None:
            return
        self.agreement = self._open(Agree(**held["ask"]), holders)
        if holders.split is not None:
            self._multiply(self.agreement, holders.split, held["kept"])
            if self.agreement.products is not None:
                self.agreement.products.load_state_dict(held["products"])
