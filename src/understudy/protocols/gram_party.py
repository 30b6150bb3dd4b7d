"""A holder's side of a joint Gram matrix: it checks, masks, multiplies, pays, adds noise, and releases once.

The arithmetic stands in `understudy.privacy.secure`, and who learns what in docs/secure_products.md.

Guarantee: before its one release a party charges its ledger for what one person moves in the whole matrix: a cell by
1 for every pair of columns and every column, m(m+1)/2 cells under discrete Gaussian noise of scale σ each. It adds
its own noise to every block that its columns are in, the full σ, so that ε holds against the server, and against the
other parties even if these pool what they know. Over rows it adds its share of σ (`sums.noise_share`).
What leaves earlier, masked and sealed, is uniform to whoever can read it and enters the ledger at no price.
"""

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from understudy.check import not_negative, whole
from understudy.data.codec import Codec, Codes
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.errors import MessageError, PartyError, PrivacyError, PrivacyWarning, SchemaError
from understudy.privacy.budget import Budget
from understudy.privacy.laplace import DiscreteGaussianNoise
from understudy.privacy.ledger import Ledger, Receipt
from understudy.privacy.rng import Rng
from understudy.privacy.secure.channel import Channel, KeyPair, connect, fingerprint
from understudy.privacy.secure.counts import (
    gram_matrix,
    gram_noise,
    moved_cells,
    needed_noise,
    noise,
    one_hot,
    release_event,
)
from understudy.privacy.secure.product import Factor
from understudy.privacy.secure.ring import Bits, Ring
from understudy.privacy.secure.sums import blind, noise_share
from understudy.protocols.alignment import AlignedParty
from understudy.protocols.base import Ask, Keep, Message, Paid, Public, Reply
from understudy.protocols.gram_messages import (
    Agree,
    Agreed,
    Begin,
    Begun,
    Share,
    Shared,
    Sum,
    Summed,
    Swap,
    Swapped,
)

SEALED = "rows under one-time masks, sealed for another holder: uniform to it, unreadable to the server"


@dataclass
class Session:
    """What a party holds between `Agree` and its release. It is dropped with the release, keys and all."""

    agree: Agree
    ring: Ring
    channels: dict[str, Channel]
    factors: dict[str, Factor]
    swapped: int = 0  # chunks


class GramParty(AlignedParty):
    """One holder of columns of shared people, or of rows of its own people.

    Guarantee: see the module. Each ask is answered once and in turn. From `Begin` to the release the state is not saved
    on the server's word (`Keep`): a server that could return to it would have two releases made under the same pads.
    Edges: another schema, less noise than the budget needs, a message of a wrong shape, repeated or out of turn → an
    error, and nothing is charged or sent; a session that is lost begins again with `Begin` and new keys.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages, Begin, Begun, Agree, Agreed, Swap, Swapped, Share, Shared, Sum, Summed,
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
    ) -> None:
        super().__init__(name, table, ledger, run=run, rng=rng, folder=folder)
        table.schema.require_public()
        self.budget = budget
        self.codec = Codec(table.schema)
        self.begun: Begin | None = None
        self.schemas: dict[str, Schema] = {}
        self.pair: KeyPair | None = None
        self.sigma = 0.0
        self.session: Session | None = None

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self.pair is not None:
            raise self.unexpected(ask)
        return super().answer(ask)

    def respond(self, ask: Ask) -> Reply:
        match ask:
            case Begin():
                return self._begin(ask)
            case Agree() if self.begun is not None and (
                self.session is None or self.begun.partition == "rows"
            ):
                return self._agree(ask)
            case Swap() if self.session is not None and ask.chunk == self.session.swapped < self.chunks:
                return self._swap(ask, self.session)
            case Share() if self.session is not None and self.session.swapped == self.chunks > 0:
                return self._share(ask, self.session)
            case Sum() if self.session is not None and not self.session.factors:
                return self._sum(self.session)
        raise self.unexpected(ask)

    # Before anything leaves

    def _begin(self, ask: Begin) -> Begun:
        self._take_up(ask)
        people, budget = len(self.codes), self.budget
        if people < 2:
            raise PartyError(f"{self.name}: {people} people are too few to count. Nothing was charged.")
        if budget.delta >= 1 / people:
            warnings.warn(
                f"{self.name}: δ = {budget.delta:g} is not below 1/{people:,}: it would allow publishing "
                "one person's row outright. Choose a smaller δ.",
                PrivacyWarning,
                stacklevel=2,
            )
        self.sigma = needed_noise(self.cells, budget) if ask.private else 0.0
        self.ledger.afford(release_event(self.sigma), self.cells)
        self.pair, self.session = KeyPair(self._fresh()), None
        disclosed = people if ask.partition == "columns" else None
        return Begun(
            people=Public(
                disclosed, "the size of the intersection, outside ε; over rows the number stays here"
            ),
            sigma=Public(self.sigma, "computed from the budget and public settings"),
            budget=Public(asdict(budget) if ask.private else None, "the holder's own choice"),
            noise=Public(self.rng.name, "the kind of generator, not its state"),
            key=Public(self.pair.public, "a fresh public key"),
        )

    def _agree(self, ask: Agree) -> Agreed:
        session, mark = self._open(ask), fingerprint(ask.keys)
        if session.factors:
            peers = ", ".join(session.factors)
            self._charge(f"masked rows for {peers}, sealed: they tell nothing, outside ε; keys {mark}")
        self.session = session
        return Agreed(fingerprint=Public(mark, "a hash of public keys"))

    # Columns: the products with each other party, chunk by chunk, and then one release

    def _swap(self, ask: Swap, session: Session) -> Swapped:
        if ask.chunk:
            self._receive(ask.inbox, session)
        rows = self._rows_of(ask.chunk)
        sealed = {
            peer: session.channels[peer].seal(session.ring.to_bytes(factor.mask(rows)))
            for peer, factor in session.factors.items()
        }
        session.swapped += 1
        return Swapped(outbox=Public({peer: as_tensor(data) for peer, data in sealed.items()}, SEALED))

    def _receive(self, inbox: Mapping[str, Tensor], session: Session) -> None:
        rows = self._rows_of(session.swapped - 1)
        if inbox.keys() != session.factors.keys():
            raise MessageError(f"{self.name}: a message of another party is missing. Nothing was computed.")
        for peer, factor in session.factors.items():
            data = session.channels[peer].open(inbox[peer].numpy().tobytes())
            factor.take(session.ring.from_bytes(data, len(rows), factor.peer_width), rows)

    def _share(self, ask: Share, session: Session) -> Shared:
        if ask.corrections.keys() != {peer for peer, factor in session.factors.items() if not factor.first}:
            raise MessageError(
                f"{self.name}: a correction is missing or too many. Nothing was charged or sent."
            )
        self._receive(ask.inbox, session)
        ring = session.ring
        shares = {
            peer: factor.share(None if factor.first else ring.words(ask.corrections[peer]))
            for peer, factor in session.factors.items()
        }
        receipt = self._pay(session)
        scale = Fraction(session.agree.sigma)
        cross = {}
        for peer, share in shares.items():
            noisy = share + ring.words(noise(scale, self.rng, *share.shape))
            cross[peer] = ring.signed(blind(noisy, [session.channels[peer]], ring, stream=0))
        own = gram_matrix(self.codes, self.codec) + gram_noise(scale, self.rng, self.codec)
        return Shared(own=Paid(own, receipt), cross=Paid(cross, receipt))

    # Rows: the sum over the parties, in one release

    def _sum(self, session: Session) -> Summed:
        receipt = self._pay(session)
        agree, ring = session.agree, session.ring
        share = noise_share(Fraction(agree.sigma), len(agree.keys), colluding=agree.colluding)
        noisy = gram_matrix(self.codes, self.codec) + gram_noise(share, self.rng, self.codec)
        blinded = blind(ring.words(noisy), session.channels.values(), ring, stream=0)
        return Summed(gram=Paid(ring.signed(blinded), receipt))

    def _pay(self, session: Session) -> Receipt:
        """Charge the release, and end the session: a second one takes new keys, and is charged again."""
        agree = session.agree
        receipt = self.ledger.charge(
            release_event(agree.sigma),
            count=self.cells,
            run=self.run,
            what=f"one joint Gram matrix with {', '.join(session.channels) or 'nobody'}; "
            f"keys {fingerprint(agree.keys)}",
        )
        self.session = self.pair = None
        return receipt

    # What is counted

    @property
    def cells(self) -> int:
        """How many cells of the matrix a person moves, each by 1."""
        schemas = self.schemas.values() if self._columns else [self.table.schema]
        m = sum(len(schema.columns) for schema in schemas)
        return moved_cells(m)

    @property
    def _columns(self) -> bool:
        return self.begun is not None and self.begun.partition == "columns"

    @cached_property
    def codes(self) -> Codes:
        """The level of every cell, (people, columns), in the common order."""
        return self.codec.codes(self.aligned if self._columns else self.table.frame)

    @property
    def chunks(self) -> int:
        """How many chunks the people are swapped in: none over rows."""
        session = self.session
        return -(-len(self.codes) // session.agree.chunk) if session is not None and session.factors else 0

    def _rows_of(self, chunk: int) -> Bits:
        size = 0 if self.session is None else self.session.agree.chunk
        return one_hot(self.codes[chunk * size : (chunk + 1) * size], self.codec)

    # Beginnings, which a saved state repeats

    def _take_up(self, ask: Begin) -> None:
        schemas = {name: Schema.from_dict(schema) for name, schema in ask.schemas.items()}
        own = schemas.get(self.name)
        same = [own] if ask.partition == "columns" else [own, *schemas.values()]
        if any(schema is None or schema.columns != self.table.schema.columns for schema in same):
            raise SchemaError(f"{self.name}: the run is about another schema. Nothing was charged or sent.")
        self.begun, self.schemas, self.pair, self.session = ask, schemas, None, None
        self.__dict__.pop("codes", None)

    def _open(self, ask: Agree) -> Session:
        """Check what was agreed, and derive lines and masks from it."""
        if self.begun is None or self.pair is None:
            raise self.unexpected(ask)
        not_negative(sigma=ask.sigma)
        if ask.sigma < self.sigma:
            raise PrivacyError(
                f"{self.name}: noise of {ask.sigma:g} was asked for, but its budget needs {self.sigma:g}. "
                "Nothing was charged or sent."
            )
        share = noise_share(Fraction(ask.sigma), len(ask.keys), colluding=ask.colluding)
        for scale in {share, Fraction(ask.sigma)} - {Fraction(0)}:
            DiscreteGaussianNoise(scale)  # a scale that cannot be drawn by is refused before it is paid for
        whole(chunk=ask.chunk)
        told = [self.run, asdict(self.begun), sorted(ask.keys), ask.sigma, ask.colluding, ask.bits, ask.chunk]
        context = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).digest()
        channels = connect(self.name, self.pair, ask.keys, context=context)
        order, ring = list(self.schemas), Ring(ask.bits)
        peers = set(order) - {self.name} if self._columns else set()
        if not ask.keys.keys() <= self.schemas.keys() or peers - channels.keys() or ask.seeds.keys() != peers:
            raise MessageError(f"{self.name}: a party's key or seed is missing or new. Nothing was sent.")
        factors = {
            peer: Factor(
                ring,
                ask.seeds[peer],
                first=order.index(self.name) < order.index(peer),
                width=self.codec.width,
                peer_width=Codec(self.schemas[peer]).width,
            )
            for peer in order
            if peer in peers
        }
        return Session(ask, ring, channels, factors)

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self.begun is not None and self.pair is not None:
            state["begun"] = {"ask": asdict(self.begun), "secret": self.pair.secret, "sigma": self.sigma}
        if (session := self.session) is not None:
            state["session"] = {
                "ask": asdict(session.agree),
                "swapped": session.swapped,
                "channels": {peer: channel.state_dict() for peer, channel in session.channels.items()},
                "factors": {peer: factor.state_dict() for peer, factor in session.factors.items()},
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.begun = self.pair = self.session = None
        if (begun := state.get("begun")) is not None:
            self._take_up(Begin(**begun["ask"]))
            self.pair, self.sigma = KeyPair(begun["secret"]), begun["sigma"]
        if (held := state.get("session")) is not None:
            self.session = session = self._open(Agree(**held["ask"]))
            session.swapped = held["swapped"]
            for peer, channel in session.channels.items():
                channel.load_state_dict(held["channels"][peer])
            for peer, factor in session.factors.items():
                factor.load_state_dict(held["factors"][peer])


def as_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
