"""A holder's side of a joint Gram matrix: it checks, masks, multiplies, pays, adds noise, and releases.

The arithmetic stands in `understudy.privacy.secure`, what is counted in `parts`, the blocks in `layout`, who learns
what in docs/secure_products.md.

Guarantee: before a release a party charges its ledger for what one person moves in all of it: a cell by 1 for
every pair of columns, every column and every three-way table that is released, under discrete Gaussian noise of the
scale that this party computes for the block (`Layout.spreads`) from the schemas, `colluding` and the release's σ, which
is never below what its own budget needs. Over rows a person who may be with k holders (`most_holders`) moves a cell by
k at most, and the price is that. To every block that its columns are in it adds its share of noise, so that ε
holds against the server, and against other parties that pool what they know: all of them over columns, `colluding` of
them where a block has more than two holders (`secure.sums`). What leaves earlier, masked and sealed, is uniform to
whoever can read it and enters the ledger at no price.
"""

import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
from torch import Tensor

from understudy.check import in_range, whole
from understudy.data.codec import Codec, Codes
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.errors import MessageError, PartyError, PrivacyWarning, SchemaError
from understudy.privacy.accounts.accounting import DpEvent, Spend, event_from_json, event_to_json
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import Rng
from understudy.privacy.secure import (
    Bits,
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
from understudy.protocols.gram.agreement import Agreement, check_noise, chunks_of, factors_of
from understudy.protocols.gram.layout import Layout, Spread
from understudy.protocols.gram.messages import (
    Agree,
    Agreed,
    Begin,
    Begun,
    Propose,
    Proposed,
    Refine,
    Share,
    Shared,
)
from understudy.protocols.gram.parts import Blinding, parts_of

DEALT = (
    "rows against the server together with a holder: the server deals the masks, so together they could remove them",
)
_SETTLED = (
    "private",
    "target",
    "refined",
    "triples",
    "colluding",
    "most_holders",
)  # told as they stand in a run's settings


class GramParty(AlignedParty):
    """One holder of columns of shared people, of rows of its own people, or of both: columns of some of the people.

    Guarantee: see the module. Each ask is answered once and in turn. From `Begin` to the last release the state is not
    saved on the server's word (`Keep`): a server that could return to it would have two releases under the same pads.
    Edges: another schema, less noise than the budget needs, a message of a wrong shape, repeated or out of turn → an
    error, and nothing is charged or sent; a session that is lost begins again with `Begin` and new keys.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages, Begin, Begun, Agree, Agreed, Swap, Swapped, Share, Propose, Proposed, Refine, Shared,
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
        self.budget, self.terms = (
            budget,
            dict(agreed or {}),
        )  # what the holder agreed to, whatever a server says
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
            case Swap() if agreement is not None and not agreement.products.done:
                if ask.chunk == agreement.products.swapped:
                    return agreement.products.swap(ask)
            case Share() if agreement is not None and agreement.products.done and not agreement.parts:
                return self._share(ask, agreement)
            case Propose() if agreement is not None and agreement.released == 1 and not agreement.proposed:
                return self._propose(ask, agreement)
            case Refine() if agreement is not None and agreement.released == 1:
                return self._refine(ask, agreement)
        raise self.unexpected(ask)

    # Before anything leaves

    def _begin(self, ask: Begin) -> Begun:
        self._take_up(ask)
        people, budget = len(self.codes), self.budget
        if people < 2 and not self._rows_only:  # over rows their number is within ε: a refusal would tell it
            raise PartyError(f"{self.name}: {people} people are too few to count. Nothing was charged.")
        if budget.delta * people >= 1:
            warnings.warn(
                f"{self.name}: δ = {budget.delta:g} is not below 1/{people:,}: it would allow publishing "
                "one person's row outright. Choose a smaller δ.",
                PrivacyWarning,
                stacklevel=2,
            )
        shares = [ask.scouting, 1 - ask.scouting] if len(self.spreads) > 1 else [1.0]
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
        if agreement.products.factors:
            peers = ", ".join(agreement.products.factors)
            where = " which of them hold a person is disclosed;" if len(ask.cells) > 1 else ""
            self._charge(f"masked rows for {peers}, sealed: they tell nothing, outside ε;{where} keys {mark}")
        self.agreement = agreement
        return Agreed(fingerprint=Public(mark, "a hash of public keys"))

    # The releases

    def _share(self, ask: Share, agreement: Agreement) -> Shared:
        shares = agreement.products.shares(ask.inbox, ask.corrections)
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
        return self._release(agreement, wanted)

    def _twice(self, pairs: Tensor) -> Tensor:
        """Those pairs, if they are what was agreed on."""
        target, refined = (None, 0) if self.begun is None else (self.begun.target, self.begun.refined)
        return self.layout.only(pairs, self.layout.again(target, refined), target)

    def _release(self, agreement: Agreement, wanted: Tensor) -> Shared:
        """Charge the next release, and end the agreement with the last one."""
        agree, number = agreement.agree, agreement.released
        last = number == len(self.sigmas) - 1
        price = self._price(number, agree.sigmas[number])
        receipt = self.ledger.charge(
            composed(price),
            run=self.run,
            what=f"one joint Gram matrix with {', '.join(agreement.channels) or 'nobody'}"
            f"{', some pairs once more' if number else ''}; keys {fingerprint(agree.keys)}",
        )
        self.paid = Counter(self.paid) + price
        agreement.released += 1
        if last:
            self.agreement = self.pair = None  # a further release takes new keys, and is charged again
        out = Blinding(self.name, self.layout, self.spreads[number], agreement, number, self.rng)
        blocks, triples = out.blocks(wanted), out.triples(self.codes) if last else {}
        return Shared(blocks=Paid(blocks, receipt), triples=Paid(triples, receipt))

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
        return self.codec.codes(self.table.frame if self._rows_only else self.aligned)

    # Beginnings, which a saved state repeats

    def _take_up(self, ask: Begin) -> None:
        self._as_agreed(ask.config, vars(ask) | {"triples": tuple(map(tuple, ask.triples))})
        schemas = {name: Schema.from_dict(schema) for name, schema in ask.schemas.items()}
        if self.name not in schemas or schemas[self.name].columns != self.table.schema.columns:
            raise SchemaError(f"{self.name}: the run is about another schema. Nothing was charged or sent.")
        layout = Layout(schemas, tuple((a, b, c) for a, b, c in ask.triples))
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
        people = 0 if self._rows_only else len(self.codes)
        chunks = chunks_of(self.name, self.layout, ask, people)
        factors = factors_of(self.name, self.layout, ask, chunks)

        def rows(start: int, stop: int) -> Bits:
            return one_hot(self.codes[start:stop], self.codec.sizes)

        return Agreement(ask, channels, Products(Ring(ask.bits), channels, factors, rows, chunks))

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
                "products": agreement.products.state_dict(),
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
            agreement.products.load_state_dict(held["products"])


def composed(spend: Spend) -> DpEvent:
    """All uses as one event."""
    return ComposedDpEvent([SelfComposedDpEvent(event, count) for event, count in spend.items()])


def _word(wanted: Tensor) -> bytes:
    """What holders say to each other about the pairs that they are asked for."""
    return hashlib.sha256(b"understudy pairs " + wanted.numpy().tobytes()).digest()
