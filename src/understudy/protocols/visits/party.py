"""A holder's side of visits: it checks, masks and multiplies where columns are split, pays, counts, adds noise, pads.

Guarantee: before the release a party charges its ledger for what one person, with all rows (where columns are split: at
all parties), moves in it, under noise of the scale that this party computes from the schemas and the agreed multiplier,
which is never below what its own budget needs. In every table a person weighs 1 at most, whatever the rows hold
(`data/visits/counts.py`). The server chooses nothing but who takes part, and more noise.
Over rows, a person who may be with k holders (`most_holders`) is priced as k times as much, and ε holds against the
server, an outsider, and up to `colluding` other holders, who may pool what they know with it (`secure.sums`). Where
columns are split, every holder of a table's columns adds its share of noise, so that ε holds against the server and
against other parties that pool what they know: all of them over columns, where each adds all of the noise, `colluding`
of them where more than two have a part in a table. What leaves earlier, masked and sealed, is uniform to whoever can
read it and enters the ledger at no price. The server deals the masks, so there it must not pool what it knows with a
holder (docs/secure_products.md).
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.kinds import TABLE, VISITS, kind_of, places, schema_from
from understudy.data.table import Table
from understudy.data.visits import VisitCodes, VisitLayout, Visits, count_visits
from understudy.data.visits.counts import person_vectors
from understudy.ground.check import in_range, whole
from understudy.ground.errors import MessageError
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure.counts import noise_on
from understudy.privacy.secure.moments import moments_event, needed_multipliers
from understudy.privacy.secure.product import Factor
from understudy.privacy.secure.ring import Ring, Words
from understudy.privacy.secure.sums import blind
from understudy.protocols.core import Ask, Message, Paid, Public, Reply
from understudy.protocols.core.alignment import AlignedParty
from understudy.protocols.core.keyed import Agreement as KeyedAgreement
from understudy.protocols.core.keyed import Beginnings, KeyedParty, masked_rows
from understudy.protocols.core.products import Chunk, Products, Swap, Swapped, chunks_of, cut_as, mask_seed
from understudy.protocols.visits.columns import Split, public_of
from understudy.protocols.visits.messages import Agree, Agreed, Begin, Begun, Count, Counted
from understudy.protocols.visits.terms import SETTLED, Holders, Terms

RING = Ring(64)


@dataclass
class Agreement(KeyedAgreement):
    """What a party holds between `Agree` and its release."""

    terms: Terms = field(kw_only=True)
    chunks: Sequence[Chunk] = ()  # where columns are split: with whom which people are multiplied
    products: Products | None = None
    codes: VisitCodes | None = None  # what the products are of


class VisitsParty(KeyedParty[Agreement], AlignedParty):
    """One holder of people and their events, or where columns are split of a table of the same people.

    Guarantee: see the module, and `KeyedParty`.
    Edges: another schema, less noise than the budget needs, a message of a wrong shape → an error, and nothing is
    charged or sent.
    """

    beginnings: ClassVar = Beginnings(Begin, Begun, Agree, Agreed)
    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages, *beginnings, Swap, Swapped, Count, Counted,
    )  # fmt: skip

    def __init__(self, name: str, held: Visits | Table, ledger: Ledger, **more: Any) -> None:
        super().__init__(name, kind_of(held.schema).roster(held), ledger, **more)
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
        if len(ask.keys) > 1 and holders.split is None:
            in_range(1, len(ask.keys) - 1, colluding=self._setting("colluding"))
        whole(chunk=ask.chunk)
        chunks = self._chunks(ask, holders.split)
        peers = {peer for _, _, held in chunks for peer in held}
        if ask.seeds.keys() != peers or len(set(ask.seeds.values())) < len(peers):
            raise MessageError(f"{self.name}: a seed is missing or new. Nothing was sent.")
        terms = holders.terms(ask.multiplier, self._setting("most_holders"))
        lines = self.lines(ask, own=("seeds", "cells"), shared=self.shared_with(chunks))
        return Agreement(ask, lines, terms=terms, chunks=chunks)

    def _chunks(self, ask: Agree, split: Split | None) -> list[Chunk]:
        """The chunks in which people are swapped, with whom: none over rows."""
        if split is None:
            return chunks_of(self.name, (), ask.cells, 1, 0)
        return chunks_of(self.name, split.grid.groups, ask.cells, split.chunk(ask.chunk), len(self.aligned))

    def ready(self, agreement: Agreement) -> str:
        if self.holders.split is None:
            return ""
        self._multiply(agreement, self.holders.split)
        where = "; which of them hold a person is disclosed" if len(agreement.agree.cells) > 1 else ""
        return (
            masked_rows(", ".join(peer for peer in agreement.channels if peer in agreement.agree.seeds))
            + where
        )

    def _multiply(self, agreement: Agreement, split: Split) -> Products:
        """Where columns are split: this side of the products with others."""
        agreement.codes = codes = self._codes()
        group = split.grid.group_of(self.name)
        own, root, agree = split.own(group), agreement.terms.root, agreement.agree
        factors = {
            peer: Factor(
                RING,
                mask_seed(seed, agree.keys, cut_as(root, agree.chunk, agree.cells)),
                first=group < split.grid.group_of(peer),
                width=split.width(group),
                peer_width=split.width_of(peer),
            )
            for peer, seed in agree.seeds.items()
        }

        def rows(start: int, stop: int) -> Words:
            return RING.words(person_vectors(codes, own, root, start, stop))

        agreement.products = products = Products(RING, agreement.channels, factors, rows, agreement.chunks)
        return products

    def _codes(self) -> VisitCodes:
        """The shared people's levels in the common order.

        Guarantee: where events are drawn, the same ones under the same keys, whatever state this party was put back to:
        others under the same masks would tell rows to another holder.
        """
        if TABLE.holds(self.held):
            codes = Codec(self.held.schema).codes(self.aligned)
            nobody = np.zeros(len(codes) + 1, dtype=np.int64)
            return VisitCodes(codes, np.zeros((0, 0), dtype=np.int32), nobody)
        assert self.pair is not None
        drawing = SecureRng(hmac.digest(self.pair.secret, b"understudy events that count", "sha256"))
        return self.held.take(places(self.aligned)).codes(drawing)

    # The release

    def _count(self, ask: Count, agreement: Agreement) -> Counted:
        """Charge, and only then count."""
        agree, split, layout = agreement.agree, self.holders.split, self.holders.layout
        shares = {} if agreement.products is None else agreement.products.shares(ask.inbox, ask.corrections)
        what = f"tables of people and their events with {agreement.peers or 'nobody'}"
        receipt = self.pay(moments_event(agree.multiplier), what, agreement, of=1)
        shared: dict[str, Tensor] = {}
        if split is not None and agreement.codes is not None:
            own, shared = self._parts(split, agreement.codes, shares, agreement)
        elif VISITS.holds(self.held) and isinstance(layout, VisitLayout):
            cells = torch.from_numpy(count_visits(self.held.codes(self.rng), layout, agreement.terms.unit))
            own = self._blinded(cells, agreement, list(agree.keys), self._setting("colluding"), 0)
        else:
            raise self.unexpected(ask)
        return Counted(cells=Paid(own, receipt), shared=Paid(shared, receipt))

    def _parts(
        self, split: Split, codes: VisitCodes, shares: Mapping[str, Words], agreement: Agreement
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Its own columns' tables, and its parts of those with each other group, by the place of both groups."""
        grid, found = split.grid, dict[str, Tensor]()
        group = grid.group_of(self.name)
        for place, groups in enumerate(grid.blocks):
            if groups == (group, group):
                part = torch.from_numpy(count_visits(codes, split.own(group), agreement.terms.unit))
            elif group in groups:
                part = torch.zeros(tuple(map(split.width, groups)), dtype=torch.int64)
                for peer in [peer for peer in shares if grid.group_of(peer) in groups]:
                    part += RING.signed(shares[peer])
            else:
                continue
            colluding = split.colluding(groups, self._setting("colluding"))
            found[str(place)] = self._blinded(part, agreement, grid.holders(groups), colluding, place)
        return found.pop(str(grid.blocks.index((group, group)))), found

    def _blinded(
        self, part: Tensor, agreement: Agreement, holders: Sequence[str], colluding: int, stream: int
    ) -> Tensor:
        """A part with this holder's share of noise, under pads with all who have one in the same tables."""
        scale = agreement.terms.share(len(holders), colluding)
        noisy = part + noise_on(torch.ones_like(part, dtype=torch.bool), scale, self.rng)
        lines = [agreement.channels[name] for name in holders if name != self.name]
        return RING.signed(blind(RING.words(noisy), lines, RING, stream=stream))

    def _setting(self, key: str) -> int:
        return int(self.begun.config[key])

    # The state, as it is saved

    def kept(self, agreement: Agreement) -> dict[str, Any]:
        products = agreement.products
        return {
            "products": None if products is None else products.state_dict(),
        }

    def restore(self, agreement: Agreement, held: Mapping[str, Any]) -> None:
        if self.holders.split is not None:
            self._multiply(agreement, self.holders.split).load_state_dict(held["products"])
