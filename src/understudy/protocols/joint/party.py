"""A holder's side of a joint release, of whatever family: it checks, masks, multiplies, pays, counts, adds noise, pads.

Guarantee: before a release a party charges its ledger for what one person, with all rows at all holders, moves in it
(`Stage.blocks`), under noise of the scale that this party computes (`pricing`) from the noise that was agreed on, which
is never below what its own budget needs. To every block that its rows are in it adds its share of that noise, so that ε
holds against the server, an outsider, and up to `colluding` other holders who pool what they know. What a server
chooses between two releases is checked by the stage, told by the holders to each other, sealed, and heard by each,
before rows are masked for it or anything is charged. Pads and masks are for one stage of these terms and this noise
alone (`stage.digest`). What leaves before a release, masked and sealed, is uniform to whoever can read it and enters
the ledger at no price. See `KeyedParty` for keys, greetings and `once`.
Edges: where columns are split the server deals the masks, so it must not pool what it knows with a holder
(docs/secure_products.md).
"""

import hmac
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pandas as pd
from dp_accounting import ComposedDpEvent
from dp_accounting.dp_event import NoOpDpEvent
from torch import Tensor

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError, MessageError, PrivacyError, SchemaError
from understudy.privacy.accounts.accounting import Spend, event_from_json, event_to_json
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import Rng, SecureRng
from understudy.privacy.secure.channel import fingerprint
from understudy.privacy.secure.ring import Ring
from understudy.privacy.secure.sums import blind
from understudy.protocols.core import Ask, Message, Paid, Public, Reply
from understudy.protocols.core.alignment import AlignedParty
from understudy.protocols.core.keyed import Beginnings, D, KeyedParty, masked_rows
from understudy.protocols.core.products import Chunk, Products, Swap, Swapped, chunks_of, heard, said
from understudy.protocols.joint.messages import (
    Agree,
    Agreed,
    Begin,
    Begun,
    Propose,
    Proposed,
    Release,
    Released,
)
from understudy.protocols.joint.multiply import products_of, shares_of
from understudy.protocols.joint.pricing import BlockSpec
from understudy.protocols.joint.session import Session
from understudy.protocols.joint.stage import Choice, Holding, Stage, Study, Terms, digest, settings_of


class JointParty(KeyedParty[Session]):
    """One holder of rows of its own people. `study`: the family.

    Guarantee: see the module.
    Edges: another schema, other settings than agreed, less noise than the budget needs, terms that the stage refuses, a
    message of a wrong shape → an error, and nothing is charged or sent.
    """

    beginnings: ClassVar = Beginnings(Begin, Begun, Agree, Agreed)
    messages: ClassVar[tuple[type[Message], ...]] = (
        *KeyedParty.messages, *beginnings, Propose, Proposed, Release, Released,
    )  # fmt: skip

    def __init__(self, study: type[Study[Any]], name: str, rows: Any, ledger: Ledger, **more: Any) -> None:
        super().__init__(name, *self._roster(study, rows), ledger, **more)
        rows.schema.require_public(f"the schema of {name}")
        self.kind_of_study, self.held = study, rows
        self.paid: Spend = {}  # over all sessions

    def forget(self) -> None:
        super().forget()
        self._drawn_by = b""  # what rows are drawn by, once there are keys
        self._counted_rows: Any = None

    def may_agree_again(self, agreement: Session) -> bool:
        return not self.split and not agreement.released

    def go_on(self, ask: Ask, agreement: Session) -> Reply | None:
        due = self._due(agreement)
        match ask:
            case Propose() if ask.stage == due and due not in agreement.terms:
                return self._propose(ask, agreement)
            case Swap() if (products := self._products(agreement)) is not None:
                if not products.done and ask.chunk == products.swapped:
                    return self._swap(ask, agreement, products)
            case Release() if ask.stage == due:
                if (products := self._products(agreement)) is None or products.done:
                    return self._release(ask, agreement, products)
        return None

    # Before anything leaves

    @property
    def split(self) -> bool:
        """Whether columns are split: then holders have the same people, who are aligned."""
        return len(self.study.grid.groups) > 1

    @property
    def private(self) -> bool:
        return bool(self.study.config.private)

    def take_up(self, ask: Begin) -> None:
        kind = self.kind_of_study
        if ask.family != kind.family:
            raise MessageError(
                f"{self.name}: this is a party of {kind.family}, not of {ask.family!r}. Nothing was charged or sent."
            )
        with self._refusing():
            config = settings_of(kind.settings, ask.config, kind.settled)
        self.as_agreed(vars(config), kind.settled)
        with self._refusing():
            schemas = {name: kind.schema_of(schema) for name, schema in ask.schemas.items()}
            if self.name not in schemas:
                raise self.other_schema()
            study = kind(config, schemas)
            if not study.same_rows(schemas[self.name], self.held.schema):
                raise self.other_schema()
        self.renew(ask)
        self.study = study

    def needs(self) -> dict[str, Public]:
        study, shared = self.study, self._shared_people()
        people = None if shared is None else len(shared)
        if people is not None:  # over rows their number is within ε: a refusal would tell it
            self.enough(people)
        _ = self.rows
        self.budget.warn_of_delta(self.name, study.people_at(self.held) if people is None else people)
        # Over columns all holders have the same people, and know them.
        known = people if study.grid.partition == "columns" else None
        nothing = [0.0] * len(study.releases)
        self.needed = study.pricing.needed(self.budget, known) if self.private else nothing
        study.check_noise(self.needed, len(study.schemas))
        self.ledger.afford(
            ComposedDpEvent([study.pricing.event(number, one) for number, one in enumerate(self.needed)])
        )
        return {
            "people": Public(
                people, "the size of the intersection, outside ε; over rows the number stays here"
            ),
            "needed": Public(
                self.needed, "computed from the budget, public settings, and how many people all share"
            ),
        }

    def open(self, ask: Agree) -> Session:
        known, told = self.study.schemas.keys(), ask.keys.keys()
        if self.name not in told or (told != known if self.split else not told <= known):
            raise MessageError(
                f"{self.name}: a key is of a party that was not named, or one is missing. Nothing was sent."
            )
        self.enough_noise(ask.noise)
        with self._refusing():
            self.study.check_noise(ask.noise, len(ask.keys))
            self.study.pricing.check_parties(len(ask.keys))
            whole(chunk=ask.chunk)
            Ring(ask.bits)
        if self.pair is not None:
            self._drawn_by = hmac.digest(self.pair.secret, b"understudy rows that count", "sha256")
        chunks = self._chunks(ask)
        peers = {peer for _, _, held in chunks for peer in held}
        if ask.seeds.keys() != peers or len(set(ask.seeds.values())) < len(peers):
            raise MessageError(f"{self.name}: a party's seed is missing or new. Nothing was sent.")
        return Session(ask, self.lines(ask, own=("seeds", "cells"), shared=self._shared_with(chunks)))

    def _chunks(self, ask: Agree) -> list[Chunk]:
        """This holder's people, with whom it shares them: none over rows."""
        shared = self._shared_people()
        groups = self.study.grid.groups if self.split else ()
        return chunks_of(self.name, groups, ask.cells, ask.chunk, 0 if shared is None else len(shared))

    # A stage: what it is of, and the rows that are multiplied for it

    def _due(self, session: Session) -> str:
        return [*self.study.releases][session.released]

    def _stage(self, session: Session, terms: Terms | None = None) -> Stage[Any]:
        """The stage that is due, of these terms, or as it was proposed; where nothing was, without terms."""
        name = self._due(session)
        if name not in session.stages:
            before = dict(session.stages)
            with self._refusing():
                session.stages[name] = self.study.stage(name, terms or {}, session.noise, before)
            session.terms[name] = terms or {}
        return session.stages[name]

    def _propose(self, ask: Propose, session: Session) -> Proposed:
        """Tell the others what it will be of: a server that tells each something else gets nothing."""
        self._hear(ask, session)
        self._stage(session, ask.terms)
        session.word = self._about(session)
        told = said(session.channels, session.word)
        return Proposed(outbox=Public(told, "what the server chose, sealed; no row is in it"))

    def _about(self, session: Session) -> bytes:
        name = self._due(session)
        return digest(session.released, name, session.noise, session.terms[name])

    def _hear(self, ask: D, session: Session) -> D:
        """Open what the others said they were told, if that is due. The ask without it."""
        ask = self.hear(ask, session)
        if session.word:
            heard(session.channels, session.word, ask.inbox, what="terms")
            session.word = b""
            ask = replace(ask, inbox={})
        return ask

    def _products(self, session: Session) -> Products | None:
        """This side of the products for the stage that is due, if there are any."""
        if session.products is None and (product := self._stage(session).product) is not None:
            stage, rows, shared = self._stage(session), self.rows, self._shared_people()
            session.products = products_of(
                self.name, self.study.grid, session.agree, session.channels, product,
                lambda start, stop: stage.vectors(rows, start, stop),
                0 if shared is None else len(shared), self._about(session),
            )  # fmt: skip
        return session.products

    def _swap(self, ask: Swap, session: Session, products: Products) -> Swapped:
        ask = self._hear(ask, session)
        if not products.swapped:
            peers = ", ".join(peer for peer in session.agree.keys if peer in products.factors)
            where = "; which of them hold a person is disclosed" if len(session.agree.cells) > 1 else ""
            self.ledger.charge(
                NoOpDpEvent(),
                run=self.run,
                what=f"{masked_rows(peers)}{where}; for {self.study.releases[self._due(session)]}; "
                f"keys {fingerprint(session.agree.keys)}",
            )
        return products.swap(ask)

    # The release

    def _release(self, ask: Release, session: Session, products: Products | None) -> Released:
        """Charge, and only then count, add noise, and let it leave."""
        name, stage, about = self._due(session), self._stage(session), self._about(session)
        number, noise, pricing = session.released, session.noise, self.study.pricing
        ask = self._hear(ask, session)
        if products is not None:
            session.shares[name] = shares_of(self.name, self.study.grid, products, ask.inbox, ask.corrections)
        elif ask.inbox or ask.corrections:
            raise MessageError(f"{self.name}: a message came that was not due. Nothing was charged or sent.")
        sigmas = pricing.sigmas(number, stage.blocks, noise)
        what = f"{self.study.releases[name]} with {session.peers or 'nobody'}"
        receipt = self.pay(pricing.event(number, noise), what, session, of=len(self.study.releases))
        self.paid = Counter(self.paid) + pricing.spend(number, noise)
        session.products = None
        if isinstance(stage, Choice):
            return Released(parts=Paid({"chosen": stage.choose(self.rows, noise, self.rng)}, receipt))
        due, parts = self._counted(stage, session)
        ring, released, places = session.ring, dict[str, Tensor](), list(stage.blocks)
        for key, block in due.items():
            holders = [one for one in self.study.grid.holders(block.groups) if one in session.agree.keys]
            noisy = parts[key] + pricing.noise(block, sigmas[key], len(holders), self.rng)
            lines = [session.channels[one] for one in holders if one != self.name]
            padded = blind(ring.words(noisy), lines, ring, stream=places.index(key), about=about)
            released[key] = ring.signed(padded)
        return Released(parts=Paid(released, receipt))

    def _counted(self, stage: Stage[Any], session: Session) -> tuple[dict[str, BlockSpec], dict[str, Tensor]]:
        """The blocks that this holder has a part in, and these parts, without noise."""
        own = self.study.grid.group_of(self.name)
        due = {key: block for key, block in stage.blocks.items() if own in block.groups}
        parts = stage.count(self.rows) | stage.across(session.shares)
        if {key: part.shape for key, part in parts.items()} != {key: one.shape for key, one in due.items()}:
            raise PrivacyError(f"{self.name}: what was counted is not what the stage says. Nothing was sent.")
        return due, parts

    @property
    def rows(self) -> Any:
        """This holder's rows as its family sees them, for this session."""
        if self._counted_rows is None:
            self._counted_rows = self.study.rows(
                Holding(self.name, self.held, self._shared_people(), self._drawing)
            )
        return self._counted_rows

    def _drawing(self) -> Rng:
        """A generator that is the same in one session: who draws among its rows draws the same under the same masks."""
        return SecureRng(self._drawn_by)

    # Over rows nobody is aligned

    @staticmethod
    def _roster(study: type[Study[Any]], rows: Any) -> tuple[Any, ...]:
        """What a party is built with, besides its name and its ledger."""
        return ()

    def _shared_people(self) -> pd.DataFrame | None:
        """The shared people, where columns are split."""
        return None

    def _shared_with(self, chunks: list[Chunk]) -> dict[str, bytes]:
        """What two holders have in common (`AlignedParty.shared_with`)."""
        return {}

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """A refusal by the study names this party, and says what happened to the data."""
        try:
            yield
        except (ConfigError, MessageError, SchemaError) as error:
            words = str(error) if self.name in str(error) else f"{self.name}: {error}"
            more = "" if "Nothing was" in words else " Nothing was charged or sent."
            raise type(error)(words + more) from None

    # The state, as it is saved

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["paid"] = {event_to_json(event): count for event, count in self.paid.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.paid = {event_from_json(event): count for event, count in state.get("paid", {}).items()}

    def kept(self, agreement: Session) -> dict[str, Any]:
        return agreement.state_dict()

    def restore(self, agreement: Session, held: Mapping[str, Any]) -> None:
        agreement.load_state_dict(held, self.study)
        if held["products"] is not None and (products := self._products(agreement)) is not None:
            products.load_state_dict(held["products"])


class AlignedJointParty(JointParty, AlignedParty):
    """The same where holders may have other columns of the same people: the schemas show it."""

    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages, *JointParty.beginnings, Propose, Proposed, Swap, Swapped, Release, Released,
    )  # fmt: skip

    @staticmethod
    def _roster(study: type[Study[Any]], rows: Any) -> tuple[Any, ...]:
        return (study.roster(rows),)

    def _shared_people(self) -> pd.DataFrame | None:
        return self.aligned if self.split else None

    def _shared_with(self, chunks: list[Chunk]) -> dict[str, bytes]:
        return self.shared_with(chunks)
