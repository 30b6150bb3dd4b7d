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
masked and sealed, is uniform to whoever can read it and enters the ledger at no price. Before anything is charged all
holders have greeted each other: each was told the same settings, columns, noise and keys of everybody, on which the
joint price rests. Where levels are bought, pairs are counted on levels that fit the schema, are not too many, and that
all holders were told alike.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
from torch import Tensor

from understudy.check import whole
from understudy.data.levels import Levels
from understudy.data.streamed import StreamedTable
from understudy.data.table import Table
from understudy.errors import MessageError, PartyError
from understudy.privacy.accounts.accounting import DpEvent, Spend, event_from_json, event_to_json
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger, Receipt
from understudy.privacy.noise import Rng
from understudy.privacy.secure import (
    Channel,
    KeyPair,
    Ring,
    connect,
    fingerprint,
)
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
    confirm,
    greetings,
    heard,
    said,
    told_alike,
)
from understudy.protocols.gram.agreement import (
    Agreement,
    check_levels,
    check_noise,
    chunks_of,
    factors_of,
    levels_word,
)
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
)
from understudy.protocols.gram.parts import Blinding, nodes_of, parts_of, triples_of
from understudy.protocols.gram.terms import Rows, StreamedRows, Terms

A = TypeVar("A", Fine, Swap, Share)
DEALT = (
    "rows against the server together with a holder: the server deals the masks, so together they could remove them",
)


class GramParty(AlignedParty):
    """One holder of columns of shared people, of rows of its own people, or of both: columns of some of the people.

    Guarantee: see the module. Each ask is answered once and in turn. From `Begin` to the last release the state is not
    saved on the server's word (`Keep`): a server that could return to it would have two releases under the same pads.
    Whatever state it is put back to, a release is charged once under its keys.
    Edges: another schema, less noise than the budget needs, a message of a wrong shape, repeated or out of turn → an
    error, and nothing is charged or sent; a session that is lost begins again with `Begin` and new keys.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages, Begin, Begun, Agree, Agreed, Fine, ProposeLevels, TakeLevels, Taken, Swap, Swapped,
        Share, Propose, Proposed, Refine, Shared,
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        table: Table,
        ledger: Ledger,
        *,
        run: str,
        budget: Budget,
        rng: Rng | None = None,
        folder: Path | None = None,
        agreed: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name, table, ledger, run=run, rng=rng, folder=folder)
        table.schema.require_public(f"the schema of {name}")
        self.budget = budget
        self.agreed = dict(agreed or {})  # what was agreed to, whatever a server says
        self.begun: Terms | None = None
        self.rows: Rows | None = None
        self.pair: KeyPair | None = None
        self.sigmas: list[float] = []
        self.agreement: Agreement | None = None
        self.paid: Spend = {}  # what this side was charged, over all sessions

    def forget(self) -> None:
        self.begun = self.rows = self.pair = self.agreement = None

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self.pair is not None:
            raise self.unexpected(ask)
        return super().answer(ask)

    def respond(self, ask: Ask) -> Reply:
        match ask:
            case Begin():
                return self._begin(ask)
            case Agree() if self.begun is not None and self._unused:
                return self._agree(ask, self.begun)
        if self.begun is not None and self.agreement is not None:
            reply = self._go_on(ask, self.begun, self.agreement)
            if reply is not None:
                return reply
        raise self.unexpected(ask)

    def _go_on(self, ask: Ask, terms: Terms, agreement: Agreement) -> Reply | None:
        """The answer to what is due after `Agree`, and None to all else."""
        buys, released, products = terms.layout.buys, agreement.released, agreement.products
        match ask:
            case Fine() if buys and not released:
                self._hear(ask, agreement)
                return self._fine(terms, agreement)
            case ProposeLevels() if buys and released and agreement.levels is None:
                return self._propose_levels(ask, agreement)
            case TakeLevels() if agreement.levels and products is None:
                return self._take_levels(ask, agreement, agreement.levels)
            case Swap() if products is not None and not products.done and ask.chunk == products.swapped:
                return products.swap(self._hear(ask, agreement))
            case Share() if products is not None and products.done and not agreement.parts:
                return self._share(self._hear(ask, agreement), terms, agreement, products)
            case Propose() if released == 1 + buys and not agreement.proposed:
                return self._propose(ask, terms, agreement)
            case Refine() if released == 1 + buys:
                return self._refine(ask, terms, agreement)
        return None

    @property
    def _unused(self) -> bool:
        """Whether nothing was agreed yet, or over rows nothing released: there who takes part may change till then."""
        if self.begun is None or self.agreement is None:
            return True
        return self.begun.rows_only and not self.agreement.released

    # Before anything leaves

    def _begin(self, ask: Begin) -> Begun:
        terms, rows = self._take_up(ask)
        people, budget = rows.encoded(), self.budget
        if people < 2 and not terms.rows_only:  # over rows their number is within ε: a refusal would tell it
            raise PartyError(f"{self.name}: {people} people are too few to count. Nothing was charged.")
        budget.warn_of_delta(self.name, people)
        apart = (
            terms.layout.grid.partition == "columns"
        )  # all holders have the same people then, and know them
        self.sigmas = terms.sigmas(budget, people if apart else None)
        self.ledger.afford(composed(sum(map(terms.price, range(len(self.sigmas)), self.sigmas), Counter())))
        self.pair = KeyPair(self._fresh())
        return Begun(
            people=Public(
                None if terms.rows_only else people,
                "the size of the intersection, outside ε; over rows the number stays here",
            ),
            sigmas=Public(
                self.sigmas, "computed from the budget, public settings, and how many people all share"
            ),
            budget=Public(asdict(budget) if ask.private else None, "the holder's own choice"),
            noise=self.stated_noise(),
            key=Public(self.pair.public, "a fresh public key"),
        )

    def _take_up(self, ask: Begin) -> tuple[Terms, Rows]:
        terms = Terms.of(self.name, self.table.schema, ask, self.agreed)
        self.begun, self.rows, self.pair, self.agreement = terms, None, None, None
        layout, group = terms.layout, terms.layout.grid.group_of(self.name)
        if terms.rows_only and isinstance(self.table, StreamedTable):
            self.rows = StreamedRows(self.table, layout, group)
        else:
            frame = self.table.frame if terms.rows_only else self.aligned
            self.rows = Rows(frame, self.table.schema, layout, group)
        return terms, self.rows

    def _agree(self, ask: Agree, terms: Terms) -> Agreed:
        agreement, mark = self._open(ask, terms), fingerprint(ask.keys)
        if ask.seeds:
            where = " which of them hold a person is disclosed;" if len(ask.cells) > 1 else ""
            self._charge(
                f"masked rows for {', '.join(peer for peer in ask.keys if peer in ask.seeds)}, sealed: they tell "
                f"nothing, outside ε;{where} keys {mark}"
            )
        self.agreement = agreement
        return Agreed(
            fingerprint=Public(mark, "a hash of public keys"),
            outbox=Public(greetings(agreement.channels, ask.keys), "a word about public keys, sealed"),
        )

    def _hear(self, ask: A, agreement: Agreement) -> A:
        """Open the others' greetings, which come with the first ask: had one been told anything else, nothing is
        charged or sent. The ask without them.
        """
        if agreement.greeted:
            return ask
        confirm(agreement.channels, agreement.agree.keys, ask.inbox)
        agreement.greeted = True
        return replace(ask, inbox={})

    def _open(self, ask: Agree, terms: Terms) -> Agreement:
        """Check what was agreed, and derive lines and masks from it."""
        if self.pair is None or self.rows is None:
            raise self.unexpected(ask)
        check_noise(self.name, terms.layout, ask, self.sigmas, terms.spreads)
        whole(chunk=ask.chunk)
        context = told_alike(self.run, terms.ask, ask, own=("seeds", "cells"))
        channels = connect(self.name, self.pair, ask.keys, context=context)
        products = self._products(ask, channels, self.rows)
        return Agreement(ask, channels, self.rows, None if terms.layout.buys else products)

    def _products(self, ask: Agree, channels: dict[str, Channel], rows: Rows) -> Products:
        """This side of the products with others: none over rows."""
        layout = rows.layout
        people = 0 if layout.grid.partition == "rows" else len(rows)
        chunks = chunks_of(self.name, layout, ask, people)
        return Products(
            Ring(ask.bits), channels, factors_of(self.name, layout, ask, chunks), rows.bits, chunks
        )

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
        agreement.products = self._products(agreement.agree, agreement.channels, agreement.rows)
        return agreement.products

    # The releases

    def _share(self, ask: Share, terms: Terms, agreement: Agreement, products: Products) -> Shared:
        shares = products.shares(ask.inbox, ask.corrections)
        agreement.parts = parts_of(agreement.layout, self.name, agreement.rows, shares, agreement.ring)
        return self._release(terms, agreement, terms.first())

    def _propose(self, ask: Propose, terms: Terms, agreement: Agreement) -> Proposed:
        """Tell the others which pairs it will be: a server that asks each for other ones gets none."""
        agreement.proposed = word = _word(terms.twice(ask.pairs))
        return Proposed(
            outbox=Public(said(agreement.channels, word), "what the server chose, sealed; no row is in it")
        )

    def _refine(self, ask: Refine, terms: Terms, agreement: Agreement) -> Shared:
        wanted = terms.twice(ask.pairs)
        word = _word(wanted)
        if terms.ask.refined:  # else the pairs follow from what was agreed
            if agreement.proposed != word:
                raise MessageError(f"{self.name}: other pairs were proposed. Nothing was charged or sent.")
            heard(agreement.channels, word, ask.inbox, what="pairs")
        return self._release(terms, agreement, wanted, ", some pairs once more")

    def _release(self, terms: Terms, agreement: Agreement, wanted: Tensor, more: str = "") -> Shared:
        last = agreement.released + 1 == len(self.sigmas)
        tables = triples_of(agreement.layout, self.name, agreement.rows) if last else {}
        receipt, out = self._pay(terms, agreement, "one joint Gram matrix", more)
        blocks, triples = out.blocks(wanted), out.triples(tables)
        return Shared(blocks=Paid(blocks, receipt), triples=Paid(triples, receipt))

    def _pay(self, terms: Terms, agreement: Agreement, what: str, more: str = "") -> tuple[Receipt, Blinding]:
        """Charge the next release, end the agreement with the last one, and say how it is made."""
        agree, number = agreement.agree, agreement.released
        price = terms.price(number, agree.sigmas[number])
        receipt = self.ledger.charge(
            composed(price),
            run=self.run,
            what=f"{what} with {', '.join(agreement.channels) or 'nobody'}{more}; keys {fingerprint(agree.keys)}",
            once=True,  # also for a server that puts this party back to before it: pads are for one release
        )
        self.paid = Counter(self.paid) + price
        agreement.released += 1
        if agreement.released == len(self.sigmas):
            self.agreement = self.pair = None  # a further release takes new keys, and is charged again
        return receipt, Blinding(
            self.name, agreement.layout, terms.spreads[number], agreement, number, self.rng
        )

    # The state, as it is saved

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["paid"] = {event_to_json(event): count for event, count in self.paid.items()}
        if self.begun is not None and self.pair is not None:
            state["begun"] = {
                "ask": asdict(self.begun.ask),
                "secret": self.pair.secret,
                "sigmas": self.sigmas,
            }
        if (agreement := self.agreement) is not None:
            state["agreement"] = {
                "ask": asdict(agreement.agree),
                "released": agreement.released,
                "greeted": agreement.greeted,
                "proposed": agreement.proposed,
                "parts": {str(place): part for place, part in agreement.parts.items()},
                "channels": {peer: line.state_dict() for peer, line in agreement.channels.items()},
                "products": None if agreement.products is None else agreement.products.state_dict(),
                "levels": None if agreement.levels is None else agreement.levels.tensors(),
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.forget()
        self.paid = {event_from_json(event): count for event, count in state.get("paid", {}).items()}
        if (begun := state.get("begun")) is not None:
            terms, _ = self._take_up(Begin(**begun["ask"]))
            self.pair, self.sigmas = KeyPair(begun["secret"]), list(begun["sigmas"])
            if (held := state.get("agreement")) is not None:
                self.agreement = self._restored(self._open(Agree(**held["ask"]), terms), held)

    def _restored(self, agreement: Agreement, held: Mapping[str, Any]) -> Agreement:
        agreement.released, agreement.greeted = held["released"], held["greeted"]
        agreement.proposed = held["proposed"]
        agreement.parts = {int(place): part for place, part in held["parts"].items()}
        for peer, line in agreement.channels.items():
            line.load_state_dict(held["channels"][peer])
        products = agreement.products
        if held["levels"] is not None:
            agreement.levels = Levels.from_tensors(agreement.layout.joint, held["levels"])
            if held["products"] is not None:
                products = self._count_on(agreement, agreement.levels)
        if held["products"] is not None:
            assert products is not None
            products.load_state_dict(held["products"])
        return agreement


def composed(spend: Spend) -> DpEvent:
    """All uses as one event."""
    return ComposedDpEvent([SelfComposedDpEvent(event, count) for event, count in spend.items()])


def _word(wanted: Tensor) -> bytes:
    """What holders say to each other about the pairs that they are asked for."""
    return hashlib.sha256(b"understudy pairs " + wanted.numpy().tobytes()).digest()
