"""A holder's side of a joint Gram matrix: it checks, masks, multiplies, pays, adds noise, and releases.

The arithmetic stands in `understudy.privacy.secure`, what a run fixes in `terms`, what is counted in `parts`, the
blocks in `layout`, who learns what in docs/secure_products.md.

Guarantee: before a release a party charges its ledger for what one person moves in all of it: a cell by 1 for
every pair of columns, every column, every layer of a fine table and every three-way table that is released, under
discrete Gaussian noise of the scale that this party computes for the block (`Layout.spreads`) from the schemas,
`colluding` and the release's σ, which is never below what its own budget needs. Over rows a person who may be with k
holders (`most_holders`) moves a cell by k at most, and the price is that. To every block that its columns are in it
adds its share of noise, so that ε holds against the server, and against other parties that pool what they know: all of
them over columns, `colluding` of them where a block has more than two holders (`secure.sums`). What leaves earlier,
masked and sealed, is uniform to whoever can read it and enters the ledger at no price. The joint price rests on what
each holder was told of all others' columns: before anything is charged they have greeted each other. Where levels are
bought, pairs are counted on levels that fit the schema, are not too many, and that all holders were told alike.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
from dp_accounting.dp_event import NoOpDpEvent
from torch import Tensor

from understudy.data.encoding.levels import Levels
from understudy.data.reading.streamed import StreamedTable
from understudy.data.table import Table
from understudy.ground.check import whole
from understudy.ground.errors import MessageError
from understudy.privacy.accounts.accounting import DpEvent, Spend, event_from_json, event_to_json
from understudy.privacy.accounts.ledger import Ledger, Receipt
from understudy.privacy.secure.channel import fingerprint
from understudy.privacy.secure.ring import Bits, Ring, Words
from understudy.protocols.core import Ask, Message, Paid, Public, Reply
from understudy.protocols.core.alignment import AlignedParty
from understudy.protocols.core.keyed import Beginnings, KeyedParty, masked_rows
from understudy.protocols.core.products import Chunk, Products, Swap, Swapped, chunks_of, heard, said
from understudy.protocols.gram.across import Across
from understudy.protocols.gram.agreement import (
    Agreement,
    check_levels,
    check_shares,
    factors_of,
    levels_word,
    pairs_word,
)
from understudy.protocols.gram.layout import Layout
from understudy.protocols.gram.messages import (
    Agree,
    Agreed,
    Begin,
    Begun,
    Fine,
    Propose,
    Proposed,
    ProposeLevels,
    Refine,
    Share,
    Shared,
    TakeLevels,
    Taken,
    Widen,
)
from understudy.protocols.gram.parts import Blinding, nodes_of, parts_of, triples_of
from understudy.protocols.gram.terms import Rows, StreamedRows, Terms

DEALT = (
    "rows against the server together with a holder: the server deals the masks, so together they could remove them",
)


class GramParty(KeyedParty[Agreement], AlignedParty):
    """One holder of columns of shared people, of rows of its own people, or of both: columns of some of the people.

    Guarantee: see the module, and `KeyedParty`.
    Edges: another schema, less noise than the budget needs, a message of a wrong shape → an error, and nothing is
    charged or sent.
    """

    beginnings: ClassVar = Beginnings(Begin, Begun, Agree, Agreed)
    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages, *beginnings, Fine, ProposeLevels, TakeLevels, Taken, Swap, Swapped, Share, Propose,
        Proposed, Widen, Refine, Shared,
    )  # fmt: skip

    def __init__(self, name: str, table: Table, ledger: Ledger, **more: Any) -> None:
        super().__init__(name, table, ledger, **more)
        table.schema.require_public(f"the schema of {name}")
        self.paid: Spend = {}  # what this side was charged, over all sessions

    def may_agree_again(self, agreement: Agreement) -> bool:
        return self.terms.rows_only and not agreement.released

    def go_on(self, ask: Ask, agreement: Agreement) -> Reply | None:
        terms, released, products = self.terms, agreement.released, agreement.products
        buys = terms.layout.buys
        match ask:
            case Fine() if buys and not released:
                self.hear(ask, agreement)
                return self._fine(terms, agreement)
            case ProposeLevels() if buys and released and agreement.levels is None:
                return self._propose_levels(ask, agreement)
            case TakeLevels() if agreement.levels and products is None:
                return self._take_levels(ask, agreement, agreement.levels)
            case Swap() if products is not None and not products.done and ask.chunk == products.swapped:
                return products.swap(self.hear(ask, agreement))
            case Share() if products is not None and products.done and not agreement.parts:
                return self._share(self.hear(ask, agreement), terms, agreement, products)
            case Propose() if released == 1 + buys and not agreement.proposed:
                return self._propose(ask, terms, agreement)
            case Widen() if released == 1 + buys and agreement.proposed and agreement.chosen is None:
                return self._widen(ask, terms, agreement)
            case Refine() if released == 1 + buys and products is not None and products.done:
                return self._refine(ask, terms, agreement, products)
        return None

    # Before anything leaves

    @property
    def private(self) -> bool:
        return self.terms.ask.private

    def take_up(self, ask: Begin) -> None:
        terms = Terms.of(self.name, self.table.schema, ask, self.agreed)
        self.renew(ask)
        self.terms = terms
        layout, group = terms.layout, terms.layout.grid.group_of(self.name)
        self.rows: Rows
        if terms.rows_only and isinstance(self.table, StreamedTable):
            self.rows = StreamedRows(self.table, layout, group)
        else:
            frame = self.table.frame if terms.rows_only else self.aligned
            self.rows = Rows(frame, self.table.schema, layout, group)

    def needs(self) -> dict[str, Public]:
        terms, people = self.terms, self.rows.encoded()
        if not terms.rows_only:  # over rows their number is within ε: a refusal would tell it
            self.enough(people)
        self.budget.warn_of_delta(self.name, people)
        # Over columns all holders have the same people, and know them.
        shared = people if terms.layout.grid.partition == "columns" else None
        self.needed = terms.sigmas(self.budget, shared)
        self.ledger.afford(composed(sum(map(terms.price, range(len(self.needed)), self.needed), Counter())))
        return {
            "people": Public(
                None if terms.rows_only else people,
                "the size of the intersection, outside ε; over rows the number stays here",
            ),
            "sigmas": Public(
                self.needed, "computed from the budget, public settings, and how many people all share"
            ),
        }

    def open(self, ask: Agree) -> Agreement:
        self.enough_noise(ask.sigmas, "noise")
        check_shares(self.terms.layout, ask, self.terms.spreads)
        whole(chunk=ask.chunk)
        shared = self.shared_with(self._chunks(ask, self.rows))
        agreement = Agreement(ask, self.lines(ask, own=("seeds", "cells"), shared=shared), rows=self.rows)
        products = self._products(agreement)
        agreement.products = None if self.terms.layout.buys else products
        return agreement

    def ready(self, agreement: Agreement) -> str:
        ask: Agree = agreement.agree
        where = "; which of them hold a person is disclosed" if len(ask.cells) > 1 else ""
        return (
            masked_rows(", ".join(peer for peer in ask.keys if peer in ask.seeds)) + where
            if ask.seeds
            else ""
        )

    def _products(
        self,
        agreement: Agreement,
        bits: Callable[[int, int], Bits] | None = None,
        widths: Sequence[int] = (),
        about: bytes = b"",
    ) -> Products:
        """This side of the products with others: none over rows.

        `about`: what the rows are, where that was told after the keys. Of a further product: the `bits` of people, from
        and to, and each group's `widths`.
        """
        ask, rows, layout = agreement.agree, agreement.rows, agreement.layout
        chunks = self._chunks(ask, rows, widths)
        factors = factors_of(self.name, layout, ask, chunks, widths, about)
        return Products(agreement.ring, agreement.channels, factors, bits or rows.bits, chunks)

    def _chunks(self, ask: Agree, rows: Rows, widths: Sequence[int] = ()) -> list[Chunk]:
        """The chunks in which people are swapped, with whom: none over rows."""
        layout = rows.layout
        people = 0 if layout.grid.partition == "rows" else len(rows)
        chunk = layout.chunk(ask.chunk, Ring(ask.bits), widths)
        return chunks_of(self.name, layout.grid.groups, ask.cells, chunk, people)

    # Levels, where they are bought

    def _fine(self, terms: Terms, agreement: Agreement) -> Shared:
        nodes = nodes_of(agreement.layout, self.name, agreement.rows)
        receipt, out = self._pay(terms, agreement, "the fine tables of all columns")
        return Shared(blocks=Paid(out.fine(nodes), receipt), triples=Paid({}, receipt))

    def _propose_levels(self, ask: ProposeLevels, agreement: Agreement) -> Proposed:
        """Tell the others on which levels it will be: a server that tells each other ones gets nothing on them."""
        agreement.levels = levels = check_levels(self.name, agreement.layout.joint, ask.groups)
        told = said(agreement.channels, levels_word(levels))
        return Proposed(outbox=Public(told, "what the server chose, sealed; no row is in it"))

    def _take_levels(self, ask: TakeLevels, agreement: Agreement, levels: Levels) -> Taken:
        heard(agreement.channels, levels_word(levels), ask.inbox, what="levels")
        self._count_on(agreement, levels)
        return Taken(width=Public(sum(agreement.layout.sizes), "what the server chose"))

    def _count_on(self, agreement: Agreement, levels: Levels) -> Products:
        agreement.rows = agreement.rows.on(levels)
        agreement.products = self._products(agreement, about=levels_word(levels))
        return agreement.products

    # The releases

    def _share(self, ask: Share, terms: Terms, agreement: Agreement, products: Products) -> Shared:
        shares = products.shares(ask.inbox, ask.corrections)
        agreement.parts = parts_of(agreement.layout, self.name, agreement.rows, shares, agreement.ring)
        return self._release(terms, agreement, terms.first())

    def _propose(self, ask: Propose, terms: Terms, agreement: Agreement) -> Proposed:
        """Tell the others what it will be of: a server that asks each for something else gets nothing."""
        layout = terms.also(agreement.layout, ask.triples)
        agreement.proposed = word = pairs_word(terms.twice(ask.pairs), layout)
        return Proposed(
            outbox=Public(said(agreement.channels, word), "what the server chose, sealed; no row is in it")
        )

    def _widen(self, ask: Widen, terms: Terms, agreement: Agreement) -> Taken:
        """Make ready to multiply pairs of levels, for the three-way tables that all were told alike."""
        layout = self._as_proposed(ask, terms, agreement)[1]
        if not Across(layout):
            raise MessageError(f"{self.name}: no table lies across holders. Nothing was charged or sent.")
        heard(agreement.channels, agreement.proposed, ask.inbox, what="pairs")
        peers = ", ".join(peer for peer in agreement.agree.keys if peer in agreement.agree.seeds)
        what = f"{masked_rows(peers)}; for three-way tables; keys {fingerprint(agreement.agree.keys)}"
        self.ledger.charge(NoOpDpEvent(), run=self.run, what=what)
        agreement.chosen, agreement.products = ask.triples, self._products_across(agreement, layout)
        return Taken(width=Public(sum(Across(layout).widths), "what the server chose"))

    def _products_across(self, agreement: Agreement, layout: Layout) -> Products:
        """This side of the products for three-way tables, under masks that are for these tables alone."""
        across, rows = Across(layout), agreement.rows
        own, widths = layout.grid.group_of(self.name), across.widths
        return self._products(
            agreement,
            lambda start, stop: across.bits(rows.codes[start:stop], own),
            widths,
            agreement.proposed,
        )

    def _as_proposed(self, ask: Widen | Refine, terms: Terms, agreement: Agreement) -> tuple[Tensor, Layout]:
        """The pairs that are wanted, and the layout with the three-way tables, if they are as they were proposed."""
        wanted, layout = terms.twice(ask.pairs), terms.also(agreement.layout, ask.triples)
        if terms.names_pairs and agreement.proposed != pairs_word(wanted, layout):
            raise MessageError(f"{self.name}: other pairs were proposed. Nothing was charged or sent.")
        return wanted, layout

    def _refine(self, ask: Refine, terms: Terms, agreement: Agreement, products: Products) -> Shared:
        wanted, layout = self._as_proposed(ask, terms, agreement)
        shares: dict[str, Words] = {}
        if Across(layout):
            if agreement.chosen is None:
                raise MessageError(
                    f"{self.name}: tables across holders were not multiplied. Nothing was sent."
                )
            shares = products.shares(ask.inbox, ask.corrections)
        elif terms.names_pairs:
            heard(agreement.channels, agreement.proposed, ask.inbox, what="pairs")
        agreement.rows.layout = layout
        return self._release(terms, agreement, wanted, ", some pairs once more", shares)

    def _release(
        self,
        terms: Terms,
        agreement: Agreement,
        wanted: Tensor,
        more: str = "",
        shares: Mapping[str, Words] | None = None,
    ) -> Shared:
        last = agreement.released + 1 == len(self.needed)
        layout, rows, ring = agreement.layout, agreement.rows, agreement.ring
        tables = triples_of(layout, self.name, rows, shares or {}, ring) if last else {}
        receipt, out = self._pay(terms, agreement, "one joint Gram matrix", more)
        blocks, triples = out.blocks(wanted), out.triples(tables)
        return Shared(blocks=Paid(blocks, receipt), triples=Paid(triples, receipt))

    def _pay(self, terms: Terms, agreement: Agreement, what: str, more: str = "") -> tuple[Receipt, Blinding]:
        """Charge the next release, end the agreement with the last one, and say how it is made."""
        agree, number = agreement.agree, agreement.released
        price = terms.price(number, agree.sigmas[number])
        what = f"{what} with {agreement.peers or 'nobody'}{more}"
        receipt = self.pay(composed(price), what, agreement, of=len(self.needed))
        self.paid = Counter(self.paid) + price
        return receipt, Blinding(
            self.name, agreement.layout, terms.spreads[number], agreement, number, self.rng
        )

    # The state, as it is saved

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["paid"] = {event_to_json(event): count for event, count in self.paid.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.paid = {event_from_json(event): count for event, count in state.get("paid", {}).items()}

    def kept(self, agreement: Agreement) -> dict[str, Any]:
        return {
            "proposed": agreement.proposed,
            "parts": {str(place): part for place, part in agreement.parts.items()},
            "products": None if agreement.products is None else agreement.products.state_dict(),
            "levels": None if agreement.levels is None else agreement.levels.tensors(),
            "chosen": agreement.chosen,
        }

    def restore(self, agreement: Agreement, held: Mapping[str, Any]) -> None:
        agreement.proposed = held["proposed"]
        agreement.parts = {int(place): part for place, part in held["parts"].items()}
        products = agreement.products
        if held["levels"] is not None:
            agreement.levels = Levels.from_tensors(agreement.layout.joint, held["levels"])
            if held["products"] is not None:
                products = self._count_on(agreement, agreement.levels)
        if (chosen := held.get("chosen")) is not None:
            layout = self.terms.also(agreement.layout, chosen)
            agreement.chosen, products = chosen, self._products_across(agreement, layout)
            agreement.products = products
        if held["products"] is not None:
            assert products is not None
            products.load_state_dict(held["products"])


def composed(spend: Spend) -> DpEvent:
    """All uses as one event."""
    return ComposedDpEvent([SelfComposedDpEvent(event, count) for event, count in spend.items()])
