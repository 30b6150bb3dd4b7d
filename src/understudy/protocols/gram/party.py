"""A holder's side of a joint Gram matrix: it checks, masks, multiplies, pays, adds noise, and releases.

The arithmetic stands in `understudy.privacy.secure`, what is counted in `parts`, the blocks in `layout`, who learns
what in docs/secure_products.md.

Guarantee: before a release a party charges its ledger for what one person moves in all of it: a cell by 1 for
every pair of columns, every column, every layer of a fine table and every three-way table that is released, under
discrete Gaussian noise of the scale that this party computes for the block (`Layout.spreads`) from the schemas,
`colluding` and the release's σ, which is never below what its own budget needs. Over rows a person who may be with k
holders (`most_holders`) moves a cell by k at most, and the price is that. To every block that its columns are in it
adds its share of noise, so that ε holds against the server, and against other parties that pool what they know: all of
them over columns, `colluding` of them where a block has more than two holders (`secure.sums`). What leaves earlier,
masked and sealed, is uniform to whoever can read it and enters the ledger at no price. Where levels are bought, pairs
are counted on levels that fit the schema, are not too many, and that all holders were told alike.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
from torch import Tensor

from understudy.check import in_range, whole
from understudy.data.codec import Codec, Codes
from understudy.data.levels import Levels, merged
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.errors import ConfigError, MessageError, PartyError, SchemaError
from understudy.privacy.accounts.accounting import DpEvent, Spend, event_from_json, event_to_json
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger, Receipt
from understudy.privacy.noise import Rng
from understudy.privacy.secure import (
    Bits,
    Channel,
    KeyPair,
    Ring,
    connect,
    fingerprint,
    one_hot,
    shared_noise,
    spend_of,
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
    heard,
    said,
)
from understudy.protocols.gram.agreement import (
    Agreement,
    check_levels,
    check_noise,
    chunks_of,
    factors_of,
    levels_word,
)
from understudy.protocols.gram.layout import LEAST_FINE, MOST_FINE, Layout, Spread
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
from understudy.protocols.gram.parts import Blinding, parts_of

DEALT = (
    "rows against the server together with a holder: the server deals the masks, so together they could remove them",
)
# Told as they stand in a run's settings
_SETTLED = ("private", "fine", "target", "refined", "triples", "colluding", "most_holders")


class GramParty(AlignedParty):
    """One holder of columns of shared people, of rows of its own people, or of both: columns of some of the people.

    Guarantee: see the module. Each ask is answered once and in turn. From `Begin` to the last release the state is not
    saved on the server's word (`Keep`): a server that could return to it would have two releases under the same pads.
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
        table.schema.require_public()
        self.budget, self.terms = budget, dict(agreed or {})  # what was agreed to, whatever a server says
        self.codec = Codec(table.schema)
        self.begun: Begin | None = None
        self.layout = Layout({name: table.schema})
        self.pair: KeyPair | None = None
        self.sigmas: list[float] = []
        self.spreads: tuple[Spread, ...] = ()
        self.moves = 1  # by how much a person moves a cell
        self.agreement: Agreement | None = None
        self.paid: Spend = {}  # what this side was charged, over all sessions

    def forget(self) -> None:
        self.begun = self.pair = self.session = None
        self.__dict__.pop("codes", None)

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self.pair is not None:
            raise self.unexpected(ask)
        return super().answer(ask)

    def respond(self, ask: Ask) -> Reply:
        agreement = self.agreement
        match ask:
            case Begin():
                return self._begin(ask)
            case Agree() if agreement is None or (self._rows_only and not agreement.released):
                return self._agree(ask)
            case Fine() if agreement is not None and self.layout.buys and not agreement.released:
                return self._fine(agreement)
            case ProposeLevels() if agreement is not None and agreement.released and self._open_levels:
                return self._propose_levels(ask, agreement)
            case TakeLevels() if agreement is not None and agreement.levels and not agreement.products:
                return self._take_levels(ask, agreement, agreement.levels)
            case Swap() if agreement is not None and (products := agreement.products) is not None:
                if not products.done and ask.chunk == products.swapped:
                    return products.swap(ask)
            case Share() if agreement is not None and (products := agreement.products) is not None:
                if products.done and not agreement.parts:
                    return self._share(ask, agreement, products)
            case Propose() if agreement is not None and self._pairs_released and not agreement.proposed:
                return self._propose(ask, agreement)
            case Refine() if agreement is not None and self._pairs_released:
                return self._refine(ask, agreement)
        raise self.unexpected(ask)

    # Before anything leaves

    def _begin(self, ask: Begin) -> Begun:
        self._take_up(ask)
        people, budget = len(self.cells if self.layout.buys else self.codes), self.budget
        if people < 2 and not self._rows_only:  # over rows their number is within ε: a refusal would tell it
            raise PartyError(f"{self.name}: {people} people are too few to count. Nothing was charged.")
        budget.warn_of_delta(self.name, people)
        again = self.layout.again(ask.target, ask.refined) > 0
        shares = self.layout.shares(ask.fine, ask.scouting, again=again)
        plan = tuple(zip((spread.moved for spread in self.spreads), shares, strict=True))
        self.sigmas = list(shared_noise(plan, budget, self.moves)) if ask.private else [0.0] * len(plan)
        self.ledger.afford(composed(sum(map(self._price, range(len(plan)), self.sigmas), Counter())))
        self.pair, self.agreement = KeyPair(self._fresh()), None
        return Begun(
            people=Public(
                None if self._rows_only else people,
                "the size of the intersection, outside ε; over rows the number stays here",
            ),
            sigmas=Public(self.sigmas, "computed from the budget and public settings"),
            budget=Public(asdict(budget) if ask.private else None, "the holder's own choice"),
            noise=self.stated_noise(),
            key=Public(self.pair.public, "a fresh public key"),
        )

    def _agree(self, ask: Agree) -> Agreed:
        agreement, mark = self._open(ask), fingerprint(ask.keys)
        if ask.seeds:
            where = " which of them hold a person is disclosed;" if len(ask.cells) > 1 else ""
            self._charge(
                f"masked rows for {', '.join(peer for peer in ask.keys if peer in ask.seeds)}, sealed: they tell "
                f"nothing, outside ε;{where} keys {mark}"
            )
        self.agreement = agreement
        return Agreed(fingerprint=Public(mark, "a hash of public keys"))

    # Levels, where they are bought

    def _fine(self, agreement: Agreement) -> Shared:
        receipt, out = self._pay(agreement, "the fine tables of all columns")
        return Shared(blocks=Paid(out.fine(self.cells), receipt), triples=Paid({}, receipt))

    def _propose_levels(self, ask: ProposeLevels, agreement: Agreement) -> Proposed:
        """Tell the others on which levels it will be: a server that tells each other ones gets nothing on them."""
        agreement.levels = levels = check_levels(self.name, self.layout.joint, ask.groups)
        told = said(agreement.channels, levels_word(levels))
        return Proposed(outbox=Public(told, "what the server chose, sealed; no row is in it"))

    def _take_levels(self, ask: TakeLevels, agreement: Agreement, levels: Levels) -> Taken:
        heard(agreement.channels, levels_word(levels), ask.inbox, what="levels")
        self._count_on(agreement, levels)
        return Taken(width=Public(sum(self.layout.sizes), "what the server chose"))

    def _count_on(self, agreement: Agreement, levels: Levels) -> None:
        self.layout = self.layout.on(levels)
        agreement.products = self._products(agreement.agree, agreement.channels)
        self.__dict__.pop("codes", None)

    @property
    def _open_levels(self) -> bool:
        return self.layout.buys and self.agreement is not None and self.agreement.levels is None

    @property
    def _pairs_released(self) -> bool:
        return self.agreement is not None and self.agreement.released == 1 + self.layout.buys

    # The releases

    def _share(self, ask: Share, agreement: Agreement, products: Products) -> Shared:
        shares = products.shares(ask.inbox, ask.corrections)
        agreement.parts = parts_of(self.layout, self.name, self.codes, shares, agreement.ring)
        return self._release(agreement, self._first)

    def _propose(self, ask: Propose, agreement: Agreement) -> Proposed:
        """Tell the others which pairs it will be: a server that asks each for other ones gets none."""
        agreement.proposed = word = _word(self._twice(ask.pairs))
        return Proposed(
            outbox=Public(said(agreement.channels, word), "what the server chose, sealed; no row is in it")
        )

    def _refine(self, ask: Refine, agreement: Agreement) -> Shared:
        wanted = self._twice(ask.pairs)
        word = _word(wanted)
        if self.begun is not None and self.begun.refined:  # else the pairs follow from what was agreed
            if agreement.proposed != word:
                raise MessageError(f"{self.name}: other pairs were proposed. Nothing was charged or sent.")
            heard(agreement.channels, word, ask.inbox, what="pairs")
        return self._release(agreement, wanted, ", some pairs once more")

    def _twice(self, pairs: Tensor) -> Tensor:
        """Those pairs, if they are what was agreed on."""
        target, refined = (None, 0) if self.begun is None else (self.begun.target, self.begun.refined)
        return self.layout.only(pairs, self.layout.again(target, refined), target)

    def _release(self, agreement: Agreement, wanted: Tensor, more: str = "") -> Shared:
        codes = self.codes
        receipt, out = self._pay(agreement, "one joint Gram matrix", more)
        last = agreement.released == len(self.sigmas)
        blocks, triples = out.blocks(wanted), out.triples(codes) if last else {}
        return Shared(blocks=Paid(blocks, receipt), triples=Paid(triples, receipt))

    def _pay(self, agreement: Agreement, what: str, more: str = "") -> tuple[Receipt, Blinding]:
        """Charge the next release, end the agreement with the last one, and say how it is made."""
        agree, number = agreement.agree, agreement.released
        price = self._price(number, agree.sigmas[number])
        receipt = self.ledger.charge(
            composed(price),
            run=self.run,
            what=f"{what} with {', '.join(agreement.channels) or 'nobody'}{more}; keys {fingerprint(agree.keys)}",
        )
        self.paid = Counter(self.paid) + price
        agreement.released += 1
        if agreement.released == len(self.sigmas):
            self.agreement = self.pair = None  # a further release takes new keys, and is charged again
        return receipt, Blinding(self.name, self.layout, self.spreads[number], agreement, number, self.rng)

    # What is counted

    def _price(self, release: int, sigma: float) -> Counter[DpEvent]:
        """What a release of noise σ costs: one use for every cell that a person moves."""
        return spend_of(self.spreads[release].classes(sigma), self.moves)

    @property
    def _first(self) -> Tensor:
        return self.layout.everything(across=self.begun is not None and self.begun.across)

    @property
    def _rows_only(self) -> bool:
        return self.layout.grid.partition == "rows"

    @cached_property
    def codes(self) -> Codes:
        """The level of every cell, (people, columns), in the common order."""
        if (agreement := self.agreement) is None or agreement.levels is None:
            return self.codec.codes(self._frame)
        names = self.layout.joint.names
        return merged(self.cells, [agreement.levels.groups[names.index(n)] for n in self.table.schema.names])

    @cached_property
    def cells(self) -> Codes:
        """The fine cell of every value, (people, columns), in the common order."""
        return self.layout.trees[self._group].codec.codes(self._frame)

    @property
    def _frame(self) -> pd.DataFrame:
        return self.table.frame if self._rows_only else self.aligned

    @property
    def _group(self) -> int:
        return self.layout.grid.group_of(self.name)

    # Beginnings, which a saved state repeats

    def _take_up(self, ask: Begin) -> None:
        self._as_agreed(ask.config, vars(ask) | {"triples": tuple(map(tuple, ask.triples))})
        schemas = {name: Schema.from_dict(schema) for name, schema in ask.schemas.items()}
        if self.name not in schemas or schemas[self.name].columns != self.table.schema.columns:
            raise SchemaError(f"{self.name}: the run is about another schema. Nothing was charged or sent.")
        layout = Layout(schemas, tuple((a, b, c) for a, b, c in ask.triples), ask.fine != 0)
        if layout.fine:
            in_range(LEAST_FINE, MOST_FINE, fine=ask.fine)
            if ask.across:
                raise ConfigError("levels are bought for all pairs, or for none. Nothing was charged.")
        for names in layout.triples:
            layout.triple(names)
        whole(colluding=ask.colluding)
        self.moves = layout.together(ask.most_holders)
        if ask.refined:
            whole(refined=ask.refined)
        again = layout.again(ask.target, ask.refined)
        if again:
            in_range(0.05, 0.95, scouting=ask.scouting)  # towards 0 and 1 noise grows without end
        self.spreads = layout.spreads(ask.colluding, across=ask.across, refined=again)
        self.begun, self.layout, self.pair, self.agreement = ask, layout, None, None
        self.__dict__.pop("codes", None)
        self.__dict__.pop("cells", None)

    def _as_agreed(self, config: Mapping[str, Any], told: Mapping[str, Any]) -> None:
        """What is to be released, held to the settings it came with, and to what the holder knows by itself."""
        settings = {key: config[key] for key in _SETTLED if key in config}
        if "triples" in settings:
            settings["triples"] = tuple(map(tuple, settings["triples"]))
        for key, value in (settings | self.terms).items():
            if key in told and told[key] != value:
                raise MessageError(
                    f"{self.name}: {key}={told[key]} was asked for, and {value} was agreed to. "
                    "Nothing was charged or sent."
                )

    def _open(self, ask: Agree) -> Agreement:
        """Check what was agreed, and derive lines and masks from it."""
        if self.begun is None or self.pair is None:
            raise self.unexpected(ask)
        check_noise(self.name, self.layout, ask, self.sigmas, self.spreads)
        whole(chunk=ask.chunk)
        terms = {key: value for key, value in asdict(ask).items() if key not in ("keys", "seeds", "cells")}
        told = [self.run, asdict(self.begun), list(self.begun.schemas), fingerprint(ask.keys), terms]
        context = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).digest()
        channels = connect(self.name, self.pair, ask.keys, context=context)
        products = self._products(ask, channels)
        return Agreement(ask, channels, None if self.layout.buys else products)

    def _products(self, ask: Agree, channels: dict[str, Channel]) -> Products:
        """This side of the products with others, on the levels that the layout has now: none over rows."""
        people = 0 if self._rows_only else len(self._frame)
        chunks = chunks_of(self.name, self.layout, ask, people)
        factors = factors_of(self.name, self.layout, ask, chunks)

        def rows(start: int, stop: int) -> Bits:
            return one_hot(self.codes[start:stop], self.layout.group_sizes[self._group])

        return Products(Ring(ask.bits), channels, factors, rows, chunks)

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["paid"] = {event_to_json(event): count for event, count in self.paid.items()}
        if self.begun is not None and self.pair is not None:
            state["begun"] = {"ask": asdict(self.begun), "secret": self.pair.secret, "sigmas": self.sigmas}
        if (agreement := self.agreement) is not None:
            state["agreement"] = {
                "ask": asdict(agreement.agree),
                "released": agreement.released,
                "proposed": agreement.proposed,
                "parts": {str(place): part for place, part in agreement.parts.items()},
                "channels": {peer: line.state_dict() for peer, line in agreement.channels.items()},
                "products": None if agreement.products is None else agreement.products.state_dict(),
                "levels": None if agreement.levels is None else agreement.levels.tensors(),
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.begun = self.pair = self.agreement = None
        self.paid = {event_from_json(event): count for event, count in state.get("paid", {}).items()}
        if (begun := state.get("begun")) is not None:
            self._take_up(Begin(**begun["ask"]))
            self.pair, self.sigmas = KeyPair(begun["secret"]), list(begun["sigmas"])
        if (held := state.get("agreement")) is not None:
            self.agreement = agreement = self._open(Agree(**held["ask"]))
            agreement.released, agreement.proposed = held["released"], held["proposed"]
            agreement.parts = {int(place): part for place, part in held["parts"].items()}
            for peer, line in agreement.channels.items():
                line.load_state_dict(held["channels"][peer])
            if held["levels"] is not None:
                agreement.levels = Levels.from_tensors(self.layout.joint, held["levels"])
            if held["products"] is not None:
                if agreement.levels is not None:
                    self._count_on(agreement, agreement.levels)
                assert agreement.products is not None
                agreement.products.load_state_dict(held["products"])


def composed(spend: Spend) -> DpEvent:
    """All uses as one event."""
    return ComposedDpEvent([SelfComposedDpEvent(event, count) for event, count in spend.items()])


def _word(wanted: Tensor) -> bytes:
    """What holders say to each other about the pairs that they are asked for."""
    return hashlib.sha256(b"understudy pairs " + wanted.numpy().tobytes()).digest()
