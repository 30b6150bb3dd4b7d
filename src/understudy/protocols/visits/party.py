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
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.check import in_range, whole
from understudy.data.codec import Codec
from understudy.data.described import schema_from
from understudy.data.table import Table
from understudy.data.visits import VisitCodes, VisitLayout, Visits, count_visits
from understudy.data.visits.counts import person_vectors
from understudy.errors import MessageError
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.secure import Factor, Ring, Words, blind, noise_on
from understudy.privacy.secure.moments import moments_event, needed_multipliers
from understudy.protocols.core import (
    AlignedParty,
    Ask,
    Beginnings,
    KeyedParty,
    Message,
    Paid,
    Products,
    Public,
    Reply,
    Swap,
    Swapped,
)
from understudy.protocols.core.keyed import Agreement as KeyedAgreement
from understudy.protocols.core.keyed import masked_rows
from understudy.protocols.core.roster import places, roster
from understudy.protocols.visits.columns import Split
from understudy.protocols.visits.messages import Agree, Agreed, Begin, Begun, Count, Counted
from understudy.protocols.visits.terms import SETTLED, Holders, Terms, public_of

RING = Ring(64)


@dataclass
class Agreement(KeyedAgreement):
    """What a party holds between `Agree` and its release."""

    terms: Terms = field(kw_only=True)
    products: Products | None = None  # over columns
    codes: VisitCodes | None = None  # over columns: what the products are of
    drawn: Tensor | None = None  # of these, the events that count, where they are drawn


class VisitsParty(KeyedParty[Agreement], AlignedParty):
    """One holder of people and their events, or over columns of a table of the same people.

    Guarantee: see the module, and `KeyedParty`.
    Edges: another schema, less noise than the budget needs, a message of a wrong shape → an error, and nothing is
    charged or sent.
    """

    beginnings: ClassVar = Beginnings(Begin, Begun, Agree, Agreed)
    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages, *beginnings, Swap, Swapped, Count, Counted,
    )  # fmt: skip

    def __init__(self, name: str, held: Visits | Table, ledger: Ledger, **more: Any) -> None:
        super().__init__(name, roster(held), ledger, **more)
        held.schema.require_public(f"the schema of {name}")
        self.held = held

    def may_agree_again(self, agreement: Agreement) -> bool:
        return self.holders.split is None

    def go_on(self, ask: Ask, agreement: Agreement) -> Reply | None:
        products = agreement.products
        match ask:
            case Swap() if products is not None and not products.done and ask.chunk == products.swapped:
                return products.swap(self.hear(ask, agreement))
            case Count() if products is None or products.done:
                return self._count(self.hear(ask, agreement), agreement)
        return None

    # Before anything leaves

    def take_up(self, ask: Begin) -> None:
        self.as_agreed(ask.config, SETTLED)
        schemas = {name: schema_from(schema) for name, schema in ask.schemas.items()}
        own = schemas.get(self.name)
        if type(own) is not type(self.held.schema) or public_of(own) != public_of(self.held.schema):
            raise self.other_schema()
        holders = Holders.of(schemas)
        holders.check(ask.config)
        self.renew(ask)
        self.holders = holders

    def needs(self) -> dict[str, Public]:
        people = None if self.holders.split is None else len(self.aligned)
        if people is not None:
            self.enough(people)
        self.budget.warn_of_delta(self.name, self.held.rows if people is None else people)
        self.needed = [needed_multipliers(self.budget, (1.0,))[0] if self.private else 0.0]
        self.holders.terms(self.needed[0], self._setting("most_holders"))  # noise that can be drawn
        self.ledger.afford(moments_event(self.needed[0]))
        return {
            "multiplier": Public(self.needed[0], "computed from the budget and public settings"),
            "people": Public(
                people, "the size of the intersection, outside ε; over rows the number stays here"
            ),
        }

    def open(self, ask: Agree) -> Agreement:
        holders = self.holders
        self.enough_noise([ask.multiplier])
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
        return Agreement(ask, self.lines(ask), terms=terms)

    def ready(self, agreement: Agreement) -> str:
        if self.holders.split is None:
            return ""
        self._multiply(agreement, self.holders.split)
        return masked_rows(agreement.peers)

    def _multiply(self, agreement: Agreement, split: Split, drawn: Tensor | None = None) -> Products:
        """Over columns: this side of the products with each other holder."""
        agreement.codes, agreement.drawn = self._codes(drawn)
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

        agreement.products = products = Products(RING, agreement.channels, factors, rows, chunks)
        return products

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

    def _count(self, ask: Count, agreement: Agreement) -> Counted:
        """Charge, and only then count."""
        agree, terms, split = agreement.agree, agreement.terms, self.holders.split
        products = {} if agreement.products is None else agreement.products.shares(ask.inbox, ask.corrections)
        alone = 1 if split is not None else len(agree.keys)
        scale = terms.share(alone, self._setting("colluding"))
        what = f"tables of people and their events with {agreement.peers or 'nobody'}"
        receipt = self.pay(moments_event(agree.multiplier), what, agreement, of=1)
        layout = self.holders.layout
        if split is None and isinstance(self.held, Visits) and isinstance(layout, VisitLayout):
            cells = count_visits(self.held.codes(self.rng), layout, terms.unit)
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
        return int(self.begun.config[key])

    # The state, as it is saved

    def kept(self, agreement: Agreement) -> dict[str, Any]:
        products = agreement.products
        return {
            "drawn": agreement.drawn,
            "products": None if products is None else products.state_dict(),
        }

    def restore(self, agreement: Agreement, held: Mapping[str, Any]) -> None:
        if self.holders.split is not None:
            self._multiply(agreement, self.holders.split, held["drawn"]).load_state_dict(held["products"])
