"""A holder's side of DPLT: it groups its attributes, multiplies with the others, and answers under noise, thrice.

Guarantee: each of the three answers is charged before it is made, at the price of what all parties together make of
a person in that step (`dplt_plan.Plan`). The holder's choices are by the exponential mechanism. It adds its own noise
to every table that one of its attributes is in, of the full scale, so that ε holds against the server and against the
other parties, even if these pool what they know. What leaves in between, masked and sealed, is uniform to
whoever can read it and enters the ledger at no price.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from dp_accounting import ComposedDpEvent
from numpy.typing import NDArray
from torch import Tensor

from understudy.check import positive, whole
from understudy.data.codec import Codec
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.errors import MessageError, PartyError, PrivacyError, SchemaError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger, Receipt
from understudy.privacy.noise import DiscreteLaplaceNoise, Exponential, Rng, best
from understudy.privacy.secure import Bits, Channel, Factor, KeyPair, Ring, Words, blind, connect, fingerprint
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
    told_alike,
)
from understudy.protocols.dplt.messages import (
    Agree,
    Agreed,
    Begin,
    Begun,
    Correlate,
    Group,
    Grouped,
    Quantify,
    Tables,
)
from understudy.protocols.dplt.plan import STEPS, Config, Plan
from understudy.protocols.dplt.tree import (
    Edge,
    association,
    both,
    group,
    index_tree,
    is_tree,
    leaves_of,
    split_edges,
    to_bits,
)


class DpltParty(AlignedParty):
    """One holder of columns of shared people.

    Guarantee: see the module. Each ask is answered once and in turn. From `Begin` to the last answer the state is not
    saved on the server's word (`Keep`): a server that could return to it would have two answers made under one pad.
    Whatever state it is put back to, a step is charged once under its keys.
    Edges: another schema, a price above the budget, a message of a wrong shape, repeated or out of turn → an error,
    and nothing is charged or sent.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages,
        Begin, Begun, Agree, Agreed, Group, Grouped, Swap, Swapped, Correlate, Quantify, Tables,
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
        table.schema.require_public(f"the schema of {name}")
        self.budget = budget
        self.forget()

    def forget(self) -> None:
        self.begun: Begin | None = None
        self.pair: KeyPair | None = None
        self.agreed: Agree | None = None
        self.channels: dict[str, Channel] = {}
        self.groups: list[list[int]] = []
        self.index: list[Edge] = []
        self.products: Products | None = None
        self.shares: dict[str, Words] | None = None
        self._binary: Bits | None = None

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self.pair is not None:
            raise self.unexpected(ask)
        return super().answer(ask)

    def respond(self, ask: Ask) -> Reply:
        agreed, products = self.agreed, self.products
        match ask:
            case Begin():
                return self._begin(ask)
            case Agree() if self.pair is not None and self.agreed is None:
                return self._agree(ask)
            case Group() if agreed is not None and products is None:
                return self._group(ask, agreed)
            case Swap() if products is not None and self.shares is None:
                if ask.chunk == products.swapped and not products.done:
                    return products.swap(ask)
            case Correlate() if agreed and products is not None and products.done and self.shares is None:
                return self._correlate(ask, agreed, products)
            case Quantify() if agreed is not None and self.shares is not None:
                return self._quantify(ask, agreed)
        raise self.unexpected(ask)

    # Before anything leaves

    def _begin(self, ask: Begin) -> Begun:
        self._take_up(ask)
        config, people, budget = self.config, len(self.aligned), self.budget
        if people < 2:
            raise PartyError(f"{self.name}: {people} people are too few to count. Nothing was charged.")
        if config.private and budget.epsilon == math.inf:
            raise PrivacyError(
                f"{self.name}: an ε is needed; `private=False` rehearses without. Nothing was charged."
            )
        allowed = budget.epsilon if config.private else math.inf
        self.ledger.afford(ComposedDpEvent(list(Plan(config, self.schemas, allowed).events)))
        self.pair = KeyPair(self._fresh())
        return Begun(
            people=Public(people, "the size of the intersection, outside ε"),
            budget=Public(asdict(budget) if config.private else None, "the holder's own choice"),
            noise=self.stated_noise(),
            key=Public(self.pair.public, "a fresh public key"),
        )

    def _agree(self, ask: Agree) -> Agreed:
        self._open(ask)
        self.agreed = ask
        return Agreed(
            fingerprint=Public(fingerprint(ask.keys), "a hash of public keys"),
            outbox=Public(
                greetings(self.channels, ask.keys), "what the server told, sealed; no row is in it"
            ),
        )

    # Step 1: latent attributes

    def _group(self, ask: Group, agreed: Agree) -> Grouped:
        confirm(self.channels, agreed.keys, ask.inbox)
        peers, mark = ", ".join(self.channels), fingerprint(agreed.keys)
        receipt = self._pay(0, f"with {peers}", agreed)
        self._charge(f"masked rows for {peers}, sealed: they tell nothing, outside ε; keys {mark}")
        scores = association(self.binary)
        self.groups = group(scores, self.config.group, self._choose)
        if self.config.plus:
            first = [members[0] for members in self.groups]
            self.index = index_tree(scores[first][:, first], self._choose)
        self.products = self._products(agreed)
        return Grouped(
            groups=Paid(self.groups, receipt), index=Paid([list(edge) for edge in self.index], receipt)
        )

    def _choose(self, scores: Tensor, sensitivity: int) -> int:
        if self.plan.scales is None:
            return best(scores)
        return Exponential(self.plan.scales[0], sensitivity)(scores, self.rng)

    # Step 2: correlations

    def _correlate(self, ask: Correlate, agreed: Agree, products: Products) -> Tables:
        shares = products.shares(ask.inbox, ask.corrections)
        receipt = self._pay(1, f"{self.plan.moved[1]:,} pairs over all parties", agreed)
        self.shares = shares
        return self._release(self.plan.pairs({self.name: self.index}), [], step=1, receipt=receipt)

    # Step 3 is the server's: the tree. Step 4: its tables

    def _quantify(self, ask: Quantify, agreed: Agree) -> Tables:
        edges = [(int(known), int(new)) for known, new in ask.edges.view(-1, 2).tolist()]
        if not is_tree(edges, sum(self.plan.latents.values())):
            raise MessageError(f"{self.name}: these edges are no tree. Nothing was charged or sent.")
        receipt = self._pay(2, f"{self.plan.moved[2]:,} tables over all parties", agreed)
        pairs = split_edges(edges, self.plan.latents)
        reply = self._release(pairs, leaves_of(self.groups), step=2, receipt=receipt)
        self.forget()
        return reply

    def _counts(self, pairs: list[Edge]) -> Tensor:
        """The two-way tables of these pairs of own binary attributes: (pairs, 2, 2)."""
        rows = both(self.binary).astype(np.float64)  # counts stay below 2⁵³
        counts = (rows.T @ rows).astype(np.int64).reshape(self.binary.shape[1], 2, -1, 2)
        one, other = _columns(pairs)
        return torch.from_numpy(counts[one, :, other])

    def _release(
        self, pairs: Mapping[tuple[str, str], list[Edge]], leaves: list[Edge], *, step: int, receipt: Receipt
    ) -> Tables:
        ring, latents, blinded = Ring(self.bits), self.plan.latents, {}
        for peer, share in (self.shares or {}).items():
            first, second = sorted((self.name, peer), key=list(latents).index)
            one, other = _columns(pairs[first, second])
            cells = share.reshape(-1, 2, latents[second], 2)[one, :, other]  # (pairs, 2, 2)
            noisy = cells + ring.words(self._noise(step, cells.shape))
            # A pad is for one message alone: each step has its own stream.
            blinded[peer] = ring.signed(blind(noisy, [self.channels[peer]], ring, stream=step))
        latent = [members[0] for members in self.groups]
        own = [(latent[a], latent[b]) for a, b in pairs[self.name, self.name]]
        counts = self._counts(own + leaves)
        mine, theirs = torch.tensor_split(counts + self._noise(step, counts.shape), [len(own)])
        return Tables(own=Paid(mine, receipt), leaves=Paid(theirs, receipt), cross=Paid(blinded, receipt))

    def _noise(self, step: int, shape: Iterable[int]) -> Tensor:
        shape = tuple(shape)
        if self.plan.scales is None:
            return torch.zeros(shape, dtype=torch.int64)
        return DiscreteLaplaceNoise(self.plan.scales[step]).draw(math.prod(shape), self.rng).view(shape)

    def _pay(self, step: int, what: str, agreed: Agree) -> Receipt:
        return self.ledger.charge(
            self.plan.events[step],
            run=self.run,
            what=f"step {step + 1} of 3, {STEPS[step]}: {what}; keys {fingerprint(agreed.keys)}",
            once=True,  # also for a server that puts this party back to before it: pads are for one answer
        )

    @property
    def binary(self) -> Bits:
        """The binary attributes of the shared people, in the common order: (people, bits)."""
        if self._binary is None:
            codec = Codec(self.table.schema)
            self._binary = to_bits(codec.codes(self.aligned), codec.sizes)
        return self._binary

    # Beginnings, which a saved state repeats

    def _take_up(self, ask: Begin) -> None:
        schemas = {name: Schema.from_dict(schema) for name, schema in ask.schemas.items()}
        if self.name not in schemas or schemas[self.name].columns != self.table.schema.columns:
            raise SchemaError(f"{self.name}: the run is about another schema. Nothing was charged or sent.")
        config = Config(**ask.config)
        self.forget()
        self.begun, self.config, self.schemas = ask, config, schemas

    def _open(self, ask: Agree) -> None:
        """Check what was agreed, and derive prices and lines from it."""
        if self.begun is None or self.pair is None:
            raise self.unexpected(ask)
        whole(chunk=ask.chunk)
        if self.config.private == (ask.epsilon is None) or (ask.epsilon or 0.0) > self.budget.epsilon:
            raise PrivacyError(
                f"{self.name}: ε={ask.epsilon} was asked for, and this run may cost {self.budget}. "
                "Nothing was charged or sent."
            )
        epsilon = math.inf if ask.epsilon is None else ask.epsilon
        if ask.epsilon is not None:
            positive(epsilon=epsilon)
        context = told_alike(self.run, self.begun, ask, len(self.aligned))
        channels = connect(self.name, self.pair, ask.keys, context=context)
        peers = self.schemas.keys() - {self.name}
        if not peers or channels.keys() != peers or ask.seeds.keys() != peers:
            raise MessageError(f"{self.name}: a party's key or seed is missing or new. Nothing was sent.")
        self.plan, self.channels, self.bits = Plan(self.config, self.schemas, epsilon), channels, ask.bits

    def _products(self, ask: Agree) -> Products:
        ring, order, widths = Ring(ask.bits), list(self.schemas), self.plan.latents
        factors = {
            peer: Factor(
                ring,
                ask.seeds[peer],
                first=order.index(self.name) < order.index(peer),
                width=2 * widths[self.name],
                peer_width=2 * widths[peer],
            )
            for peer in order
            if peer != self.name
        }
        latent, people = [members[0] for members in self.groups], len(self.binary)
        chunks = [(n, min(n + ask.chunk, people), tuple(factors)) for n in range(0, people, ask.chunk)]
        return Products(
            ring, self.channels, factors, lambda start, stop: both(self.binary[start:stop, latent]), chunks
        )

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self.begun is not None and self.pair is not None:
            state["begun"] = {"ask": asdict(self.begun), "secret": self.pair.secret}
        if self.agreed is not None:
            lines = {peer: channel.state_dict() for peer, channel in self.channels.items()}
            state["agreed"] = {"ask": asdict(self.agreed), "channels": lines}
        if self.products is not None:
            state["grouped"] = {
                "groups": self.groups,
                "index": [list(edge) for edge in self.index],
                "products": self.products.state_dict(),
            }
        if self.shares is not None:
            ring = Ring(self.bits)
            state["shares"] = {peer: ring.signed(share) for peer, share in self.shares.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.forget()
        if (begun := state.get("begun")) is not None:
            self._take_up(Begin(**begun["ask"]))
            self.pair = KeyPair(begun["secret"])
        if (held := state.get("agreed")) is not None:
            self.agreed = Agree(**held["ask"])
            self._open(self.agreed)
            for peer, channel in self.channels.items():
                channel.load_state_dict(held["channels"][peer])
        if self.agreed is not None and (held := state.get("grouped")) is not None:
            self.groups, self.index = held["groups"], [(a, b) for a, b in held["index"]]
            self.products = self._products(self.agreed)
            self.products.load_state_dict(held["products"])
        if (shares := state.get("shares")) is not None:
            ring = Ring(self.bits)
            self.shares = {peer: ring.words(share) for peer, share in shares.items()}


def _columns(pairs: list[Edge]) -> NDArray[np.int64]:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T
