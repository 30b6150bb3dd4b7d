"""A holder's side of a joint release, of whatever family: it checks, masks, multiplies,
pays, counts, adds noise, masks the sums.

    Begin     the settings and everybody's schema: it checks them, states what its
              budget needs, and draws a key
    Agree     everybody's keys and the noise: it checks them, and confirms them to
              every other party (the handshake)
    …         for each stage what the server chose (`Propose`), masked rows for the
              others (`Swap`), and the `Release`

Guarantee: before a release a party charges its ledger for what one person, with all
rows at all holders, moves in it (`Stage.blocks`), under noise of the scale that this
party computes (`pricing`) from the noise that was agreed on, which is never below what
its own budget needs. To every block that its rows are in it adds its share of that
noise, so that ε holds against the server, an outsider, and up to `max_colluding` other
holders who pool what they know. Nothing is charged before every other holder has shown
that it was told the same (`session`); what a server chooses between two releases is
checked by the stage and told likewise, before rows are masked for it or anything is
charged. One-time masks are for one stage of these terms and this noise alone
(`stage.digest`). A release is charged once under its keys, whatever state the party is
put back to: two under the same masks would differ by one party's own sums. With the
last one the keys are dropped; from `Begin` until then the state is not saved on the
server's word (`Keep`). What leaves before a release, masked or encrypted and sealed, is
uniform to whoever can read it and enters the ledger at no price; what noise on sums of
encrypted rows has to hide is charged before they leave.
Edges: an ask that is repeated or out of turn, another schema, other settings than
agreed, terms that the stage refuses, a message of a wrong shape → an error, and nothing
is charged or sent; a session that is lost begins again with `Begin`, new keys, and a
new price. Where columns are split and rows masked the server deals the masks, so it
must not pool what it knows with a holder (docs/secure_products.md).
"""

import hmac
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from dp_accounting import ComposedDpEvent
from dp_accounting.dp_event import NoOpDpEvent
from numpy.typing import NDArray
from torch import Tensor

from understudy.ground.check import whole
from understudy.ground.errors import Effect, MessageError, PartyError, PrivacyError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.events import Spend, event_from_json, event_to_json
from understudy.privacy.accounts.ledger import Ledger, Receipt
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure.sums import KeyPair, blind, connect, fingerprint
from understudy.protocols.core import Ask, Keep, Message, Paid, Party, Public, Reply
from understudy.protocols.core.settings import INTERSECTION
from understudy.protocols.core.union import UnitedParty
from understudy.protocols.joint import messages as said
from understudy.protocols.joint.parts import counted_in_parts
from understudy.protocols.joint.products import Chunk, Products, chunks_of, products_of
from understudy.protocols.joint.session import (
    Session,
    channel_context,
    check_noise,
    refusing,
    study_from,
)
from understudy.protocols.joint.stage import (
    Choice,
    Holding,
    Multiplied,
    Product,
    Stage,
    Study,
    Terms,
)

if TYPE_CHECKING:
    from understudy.data.table import Table
    from understudy.protocols.joint.encrypted import EncryptedProducts


class JointParty(Party):
    """One holder of rows of its own people. `agreed`: settings that it knows by itself,
    whatever a server says.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (*Party.messages, *said.MESSAGES)
    # of what the run may cost: all of it is Gaussian noise, or pure
    sure: ClassVar[float] = 0.99

    def __init__(
        self,
        study: type[Study[Any]],
        name: str,
        rows: Any,
        ledger: Ledger,
        *,
        budget: Budget,
        agreed: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*(name, *self._roster(study, rows), ledger), **more)
        rows.schema.require_public(f"the schema of {name}")
        rows.schema.require_unit(f"the schema of {name}")
        self.budget = budget
        self.agreed = dict(agreed or {})
        self.kind_of_study = study
        self.held = rows
        self.paid: Spend = {}  # over all sessions
        self.forget()

    def forget(self) -> None:
        """Drop the session, if there is one, and overwrite a key of encrypted rows."""
        dropped = getattr(self, "agreement", None)
        if dropped is not None and dropped.products is not None:
            dropped.products.forget()
        self.begun: said.Begin | None = None
        self.pair: KeyPair | None = None
        self.agreement: Session | None = None
        self.needed: list[float] = []  # the noise that the budget needs in each release
        self._drawn_by = b""  # what rows are drawn by, once there are keys
        self._counted_rows: Any = None

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self.pair is not None:
            raise self.unexpected(ask)
        return super().answer(ask)

    def respond(self, ask: Ask) -> Reply:
        session = self.agreement
        match ask:
            case said.Begin():
                return self._begin(ask)
            case said.Agree() if self.pair is not None:
                # holders of a horizontal partition may leave before the first release
                if session is None or not (self.split or session.released):
                    return self._agree(ask)
            case said.Propose() if (
                session is not None and ask.stage == session.next_stage
            ):
                if session.next_stage not in session.terms:
                    return self._propose(ask, session)
            case said.Swap() if (
                session is not None
                and (products := self._products(session)) is not None
            ):
                if not products.done and ask.chunk == products.swapped:
                    return self._swap(ask, session, products)
            case said.Release() if (
                session is not None and ask.stage == session.next_stage
            ):
                products = self._products(session)
                if products is None or products.done:
                    return self._release(ask, session, products)
        raise self.unexpected(ask)

    def composition(self) -> dict[str, Any]:
        return self.study.composition()

    @property
    def stated_people(self) -> int | None:
        """None in a union, whose places are also those of people who were made up."""
        return None if self.study.union else self._people

    # Before anything leaves

    @property
    def split(self) -> bool:
        """Whether columns are split: then holders have the same people, who are
        aligned.
        """
        return len(self.study.grid.groups) > 1

    def _begin(self, ask: said.Begin) -> said.Begun:
        self._take_up(ask)
        study = self.study
        people = self._people
        # in a horizontal partition their number is within ε: a refusal would tell it
        if people is not None and people < 2:
            raise PartyError(
                f"{self.name}: {people} people are too few to count.",
                effect=Effect.NOTHING_CHARGED,
            )
        _ = self.rows
        self.budget.warn_of_delta(
            self.name, study.people_at(self.held) if people is None else people
        )
        # In a vertical partition all holders have the same people, and know them.
        known = people if study.grid.partition == "vertical" else None
        if study.union and known is not None:
            known = max(1, self._people_at_both)
        private = bool(study.config.private)
        self.needed = (
            study.needed(self.budget, known) if private else [0.0] * len(study.releases)
        )
        study.check_noise(self.needed, len(study.schemas))
        releases = map(study.pricing.event, count(), self.needed)
        self.ledger.afford(ComposedDpEvent([*releases, *study.answers]))
        self.pair = KeyPair(self.rng.bytes(32) if self.rng.seeded else None)
        return said.Begun(
            people=Public(
                people,
                "the size of the intersection, outside ε, or the padded length of a "
                "union, within ε; in a horizontal partition the number stays here",
            ),
            needed=Public(
                self.needed,
                "by the budget, public settings, and how many people all share, of a "
                "union within ε",
            ),
            budget=Public(
                asdict(self.budget) if private else None, "the holder's own choice"
            ),
            noise=self.stated_noise(),
            key=Public(self.pair.public, "a fresh public key"),
        )

    def _take_up(self, ask: said.Begin) -> None:
        """Begin anew with this ask, if its settings and schemas are what the holder
        knows of them.
        """
        study = study_from(
            self.kind_of_study, ask, self.name, self.held.schema, self.agreed
        )
        self.forget()
        self.begun = ask
        self.study = study

    def _agree(self, ask: said.Agree) -> said.Agreed:
        self.agreement = self._open(ask)
        outbox = Public(self.agreement.handshake(), "a hash of public keys, sealed")
        return said.Agreed(
            fingerprint=Public(fingerprint(ask.keys), "a hash of public keys"),
            outbox=outbox,
        )

    def _open(self, ask: said.Agree) -> Session:
        """Check what is to be agreed on, and derive a line to every other holder, under
        all that this one was told and what it has in common with that one.
        """
        known = self.study.schemas.keys()
        key_holders = ask.keys.keys()
        if self.name not in key_holders or (
            key_holders != known if self.split else not key_holders <= known
        ):
            raise MessageError(
                f"{self.name}: a key is of a party that was not named, or one is "
                "missing.",
                effect=Effect.NOTHING_SENT,
            )
        check_noise(self.name, ask.noise, self.needed)
        with refusing(self.name):
            self.study.check_noise(ask.noise, len(ask.keys))
            self.study.pricing.check_parties(len(ask.keys))
            whole(chunk=ask.chunk)
            self.study.check_bits(ask.bits, ask.noise)
        if self.begun is None or self.pair is None:
            raise self.unexpected(ask)
        self._drawn_by = hmac.digest(
            self.pair.secret, b"understudy rows that count", "sha256"
        )
        groups = self.study.grid.groups if self.split else ()
        chunks = chunks_of(self.name, groups, ask.cells, ask.chunk, self._people or 0)
        peers = {peer for _, _, held in chunks for peer in held}
        shared = self._shared_with(chunks)
        if self.study.encrypted:
            from understudy.protocols.joint.encrypted import cells_between

            between = cells_between(self.name, ask.cells)
            shared = {peer: shared.get(peer, b"") + between[peer] for peer in between}
            peers = set()
        if ask.seeds.keys() != peers or len(set(ask.seeds.values())) < len(peers):
            raise MessageError(
                f"{self.name}: a party's seed is missing or new.",
                effect=Effect.NOTHING_SENT,
            )
        context = channel_context(self.run, self.begun, ask)
        lines = connect(
            self.name,
            self.pair,
            ask.keys,
            context=context,
            shared=shared,
        )
        return Session(self.study, ask, lines)

    # A stage: what it is of, and the rows that are multiplied for it

    def _stage(self, session: Session, terms: Terms | None = None) -> Stage[Any]:
        """The stage that is due, of these terms, or as it was proposed; where nothing
        was, without terms.
        """
        name = session.next_stage
        if name not in session.stages:
            with refusing(self.name):
                stage = self.study.stage(
                    name, terms or {}, session.noise, session.lasting
                )
            session.begin(name, terms or {}, stage)
        return session.stages[name]

    def _propose(self, ask: said.Propose, session: Session) -> said.Proposed:
        """Tell the others what it will be of: a server that tells each something else
        gets nothing.
        """
        session.require_confirmed(ask)
        self._stage(session, ask.terms)
        outbox = session.confirm(session.about)
        return said.Proposed(
            outbox=Public(outbox, "what the server chose, sealed; no row is in it")
        )

    def _products(self, session: Session) -> "Products | EncryptedProducts | None":
        """This side of the products for the stage that is due, if there are any."""
        stage = self._stage(session)
        if (
            session.products is None
            and isinstance(stage, Multiplied)
            and (product := stage.product) is not None
        ):
            rows = self.rows
            session.products = self._begin_products(
                session,
                product,
                lambda start, stop: stage.vectors(rows, start, stop),
            )
        return session.products

    def _begin_products(
        self,
        session: Session,
        product: Product,
        vectors: Callable[[int, int], NDArray[Any]],
    ) -> "Products | EncryptedProducts":
        arguments = (
            self.name,
            self.study.grid,
            session.agree,
            session.channels,
            product,
            vectors,
            self._people or 0,
            session.about,
        )
        if not self.study.encrypted:
            return products_of(*arguments)
        from understudy.protocols.joint.encrypted import encrypted_products_of

        assert self.pair is not None
        return encrypted_products_of(*arguments, self.pair.secret)

    def _swap(
        self,
        ask: said.Swap,
        session: Session,
        products: "Products | EncryptedProducts",
    ) -> said.Swapped:
        ask = session.require_confirmed(ask)
        if not products.swapped:
            peers = ", ".join(products.peers)
            where = (
                "; which of them hold a person is disclosed"
                if len(session.agree.cells) > 1
                else ""
            )
            release = self.study.releases[session.next_stage]
            keys = fingerprint(session.agree.keys)
            rows = "encrypted" if self.study.encrypted else "masked"
            description = (
                f"{rows} rows for {peers}, sealed: they tell nothing, outside "
                f"ε{where}; for {release}; keys {keys}"
            )
            self.ledger.charge(NoOpDpEvent(), run=self.run, description=description)
        products.take(ask.inbox)
        price = products.price
        if price is not None:
            # Each time: an answer to other rows has noise of its own.
            release = self.study.releases[session.next_stage]
            description = (
                f"sums of encrypted rows for {release}, under noise; keys "
                f"{fingerprint(session.agree.keys)}"
            )
            receipt = self.charge(price, description=description)
            answers = products.send().outbox.value
            return said.Swapped(outbox=Paid(answers, receipt))
        return products.send()

    # The release

    def _release(
        self,
        ask: said.Release,
        session: Session,
        products: "Products | EncryptedProducts | None",
    ) -> said.Released:
        """Charge, and only then count, add noise, and let it leave."""
        name = session.next_stage
        stage = self._stage(session)
        about = session.about
        number = session.released
        noise = session.noise
        pricing = self.study.pricing
        ask = session.require_confirmed(ask)
        if products is not None:
            session.shares[name] = products.shares(ask.inbox, ask.corrections)
        elif ask.inbox or ask.corrections:
            raise MessageError(
                f"{self.name}: a message came that was not due.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        sigmas = pricing.sigmas(number, stage.blocks, noise)
        # refused before anything is charged, or None
        counted = counted_in_parts(self, session, stage)
        receipt = self._pay(session)
        if isinstance(stage, Choice):
            return said.Released(
                parts=Paid(
                    {"chosen": stage.choose(self.rows, noise, self.rng)}, receipt
                )
            )
        own_group = self.study.grid.group_of(self.name)
        parts = (stage.count(self.rows) if counted is None else counted) | stage.across(
            session.shares
        )
        due = {
            key: block.shape
            for key, block in stage.blocks.items()
            if own_group in block.groups
        }
        if {key: tuple(part.shape) for key, part in parts.items()} != due:
            raise PrivacyError(
                f"{self.name}: what was counted is not what the stage says.",
                effect=Effect.NOTHING_SENT,
            )
        ring = session.ring
        released = dict[str, Tensor]()
        for index, (key, block) in enumerate(stage.blocks.items()):
            if key in due:
                holders = [
                    one
                    for one in self.study.grid.holders(block.groups)
                    if one in session.agree.keys
                ]
                noisy = parts[key] + pricing.noise(
                    block, sigmas[key], len(holders), self.rng
                )
                lines = [session.channels[one] for one in holders if one != self.name]
                released[key] = ring.signed(
                    blind(ring.words(noisy), lines, ring, stream=index, about=about)
                )
        return said.Released(parts=Paid(released, receipt))

    def _pay(self, session: Session) -> Receipt:
        """Charge the release that is due, and end the session with the last one."""
        if session.confirmation:
            raise MessageError(
                f"{self.name}: the others have not shown what they were told.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        study = self.study
        number = session.released
        noise = session.noise
        description = (
            f"{study.releases[session.next_stage]} with {session.peers or 'nobody'}; "
            f"keys {fingerprint(session.agree.keys)}"
        )
        # Once, also for a server that puts this party back to before it: masks are
        # for one release.
        receipt = self.charge(
            study.pricing.event(number, noise), description=description, once=True
        )
        session.released = number + 1
        session.products = None
        self.paid = Counter(self.paid) + study.pricing.spend(number, noise)
        if session.released == len(study.releases):
            # a further release takes new keys, and is charged again
            self.agreement = self.pair = None
        return receipt

    @property
    def rows(self) -> Any:
        """This holder's rows as its family sees them, for this session."""
        if self._counted_rows is None:
            held = Holding(
                self.name,
                self.held,
                self._shared_people(),
                lambda: SecureRng(self._drawn_by),
                self._union_places(),
            )
            self._counted_rows = self.study.rows(held)
        return self._counted_rows

    @property
    def _people(self) -> int | None:
        return None if (shared := self._shared_people()) is None else shared.rows

    # In a horizontal partition nobody is aligned

    @staticmethod
    def _roster(study: type[Study[Any]], rows: Any) -> tuple[Any, ...]:
        """What a party is built with, besides its name and its ledger."""
        return ()

    def _shared_people(self) -> "Table | None":
        return None

    def _union_places(self) -> NDArray[Any] | None:
        return None

    def _shared_with(self, chunks: list[Chunk]) -> dict[str, bytes]:
        """What two holders have in common (`AlignedParty.shared_with`)."""
        return {}

    @property
    def _people_at_both(self) -> int:
        return 0

    # The state, as it is saved

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["paid"] = {
            event_to_json(event): count for event, count in self.paid.items()
        }
        if self.begun is not None and self.pair is not None:
            state["begun"] = {
                "ask": asdict(self.begun),
                "secret": self.pair.secret,
                "needed": self.needed,
            }
        if self.agreement is not None:
            state["agreement"] = self.agreement.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.forget()
        self.paid = {
            event_from_json(event): count
            for event, count in state.get("paid", {}).items()
        }
        begun = state.get("begun")
        if begun is None:
            return
        self._take_up(said.Begin(**begun["ask"]))
        self.pair = KeyPair(begun["secret"])
        self.needed = list(begun["needed"])
        held = state.get("agreement")
        if held is not None:
            self.agreement = session = self._open(said.Agree(**held["ask"]))
            session.load_state_dict(held)
            if (
                held["products"] is not None
                and (products := self._products(session)) is not None
            ):
                products.load_state_dict(held["products"])


class AlignedJointParty(JointParty, UnitedParty):
    """The same where holders may have other columns of the same people: the schemas
    show it. Of a union every holder has rows of some of the people alone, at their
    places.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *UnitedParty.messages,
        *said.MESSAGES,
        said.Swap,
        said.Swapped,
    )

    @property
    def alignment(self) -> str | None:
        agreed = getattr(self, "agreed", {})
        return agreed.get("alignment", INTERSECTION) if agreed else None

    @staticmethod
    def _roster(study: type[Study[Any]], rows: Any) -> tuple[Any, ...]:
        return (study.roster(rows),)

    def _take_up(self, ask: said.Begin) -> None:
        super()._take_up(ask)
        if self.study.union != self.united:
            self.forget()
            raise MessageError(
                f"{self.name}: its people were aligned otherwise than the settings "
                "say.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )

    def _shared_people(self) -> "Table | None":
        return self.aligned if self.split else None

    @property
    def _people(self) -> int | None:
        return self.people_in_union if self.split else None

    def _union_places(self) -> NDArray[Any] | None:
        return self.places if self.study.union else None

    def _shared_with(self, chunks: list[Chunk]) -> dict[str, bytes]:
        return self.shared_with(chunks)

    @property
    def _people_at_both(self) -> int:
        return self.people_at_both
