"""A holder's side of DPLT: it groups its attributes, multiplies with the others, and answers under noise, thrice.

Guarantee: each of the three answers is charged before it is made, at the price of what all parties together make of
a person in that step (`dplt_plan.Plan`). The holder's choices are by the exponential mechanism. It adds its own noise
to every table that one of its attributes is in, of the full scale, so that ε holds against the server and against the
other parties, even if these pool what they know. What leaves in between, masked and sealed, is uniform to
whoever can read it and enters the ledger at no price.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from dp_accounting import ComposedDpEvent
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.ground.check import positive, whole
from understudy.ground.errors import MessageError, PrivacyError
from understudy.privacy.accounts.ledger import Ledger, Receipt
from understudy.privacy.noise import DiscreteLaplaceNoise, Exponential, best
from understudy.privacy.secure.channel import fingerprint
from understudy.privacy.secure.product import Factor
from understudy.privacy.secure.ring import Bits, Ring, Words
from understudy.privacy.secure.sums import blind
from understudy.protocols.core import Ask, Message, Paid, Public, Reply
from understudy.protocols.core.alignment import AlignedParty
from understudy.protocols.core.keyed import Agreement as KeyedAgreement
from understudy.protocols.core.keyed import Beginnings, KeyedParty, masked_rows
from understudy.protocols.core.products import Products, Swap, Swapped, mask_seed
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


@dataclass
class Agreement(KeyedAgreement):
    """What a party holds between `Agree` and its last answer."""

    plan: Plan = field(kw_only=True)
    groups: list[list[int]] = field(default_factory=list)
    index: list[Edge] = field(default_factory=list)
    products: Products | None = None  # after step 1
    shares: dict[str, Words] | None = None  # after step 2

    @property
    def ring(self) -> Ring:
        return Ring(self.agree.bits)

    @property
    def latent(self) -> list[int]:
        """The attribute at the centre of each group."""
        return [members[0] for members in self.groups]


class DpltParty(KeyedParty[Agreement], AlignedParty):
    """One holder of columns of shared people.

    Guarantee: see the module, and `KeyedParty`.
    Edges: another schema, a price above the budget, a message of a wrong shape → an error, and nothing is charged or
    sent.
    """

    beginnings: ClassVar = Beginnings(Begin, Begun, Agree, Agreed)
    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages, *beginnings, Group, Grouped, Swap, Swapped, Correlate, Quantify, Tables,
    )  # fmt: skip

    def __init__(self, name: str, table: Table, ledger: Ledger, **more: Any) -> None:
        super().__init__(name, table, ledger, **more)
        table.schema.require_public(f"the schema of {name}")

    def forget(self) -> None:
        super().forget()
        self._binary: Bits | None = None

    def go_on(self, ask: Ask, agreement: Agreement) -> Reply | None:
        products, shares = agreement.products, agreement.shares
        match ask:
            case Group() if products is None:
                self.hear(ask, agreement)
                return self._group(agreement)
            case Swap() if products is not None and not products.done and ask.chunk == products.swapped:
                return products.swap(ask)
            case Correlate() if products is not None and products.done and shares is None:
                return self._correlate(ask, agreement, products)
            case Quantify() if shares is not None:
                return self._quantify(ask, agreement)
        return None

    # Before anything leaves

    def take_up(self, ask: Begin) -> None:
        schemas = {name: Schema.from_dict(schema) for name, schema in ask.schemas.items()}
        if self.name not in schemas or schemas[self.name].columns != self.table.schema.columns:
            raise self.other_schema()
        config = Config(**ask.config)
        self.renew(ask)
        self.config, self.schemas = config, schemas

    @property
    def private(self) -> bool:
        return self.config.private

    def needs(self) -> dict[str, Public]:
        people, budget = len(self.aligned), self.budget
        self.enough(people)
        if self.private and budget.epsilon == math.inf:
            raise PrivacyError(
                f"{self.name}: an ε is needed; `private=False` rehearses without. Nothing was charged."
            )
        allowed = budget.epsilon if self.private else math.inf
        self.ledger.afford(ComposedDpEvent(list(Plan(self.config, self.schemas, allowed).events)))
        return {"people": Public(people, "the size of the intersection, outside ε")}

    def open(self, ask: Agree) -> Agreement:
        whole(chunk=ask.chunk)
        if self.private == (ask.epsilon is None) or (ask.epsilon or 0.0) > self.budget.epsilon:
            raise PrivacyError(
                f"{self.name}: ε={ask.epsilon} was asked for, and this run may cost {self.budget}. "
                "Nothing was charged or sent."
            )
        epsilon = math.inf if ask.epsilon is None else ask.epsilon
        if ask.epsilon is not None:
            positive(epsilon=epsilon)
        people, peers = len(self.aligned), self.schemas.keys() - {self.name}
        channels = self.lines(ask, people, shared=self.shared_with([(0, people, peers)]))
        if not peers or channels.keys() != peers or ask.seeds.keys() != peers:
            raise MessageError(f"{self.name}: a party's key or seed is missing or new. Nothing was sent.")
        return Agreement(ask, channels, plan=Plan(self.config, self.schemas, epsilon))

    # Step 1: latent attributes

    def _group(self, agreement: Agreement) -> Grouped:
        receipt = self._pay(agreement, f"with {agreement.peers}")
        self._charge(f"{masked_rows(agreement.peers)}; keys {fingerprint(agreement.agree.keys)}")
        scores, choose = association(self.binary), partial(self._choose, agreement.plan)
        agreement.groups = group(scores, self.config.group, choose)
        if self.config.plus:
            first = agreement.latent
            agreement.index = index_tree(scores[first][:, first], choose)
        agreement.products = self._products(agreement)
        index = [list(edge) for edge in agreement.index]
        return Grouped(groups=Paid(agreement.groups, receipt), index=Paid(index, receipt))

    def _choose(self, plan: Plan, scores: Tensor, sensitivity: int) -> int:
        if plan.scales is None:
            return best(scores)
        return Exponential(plan.scales[0], sensitivity)(scores, self.rng)

    # Step 2: correlations

    def _correlate(self, ask: Correlate, agreement: Agreement, products: Products) -> Tables:
        shares, plan = products.shares(ask.inbox, ask.corrections), agreement.plan
        receipt = self._pay(agreement, f"{plan.moved[1]:,} pairs over all parties")
        agreement.shares = shares
        return self._release(agreement, plan.pairs({self.name: agreement.index}), [], step=1, receipt=receipt)

    # Step 3 is the server's: the tree. Step 4: its tables

    def _quantify(self, ask: Quantify, agreement: Agreement) -> Tables:
        plan = agreement.plan
        pairs_due = ask.edges.dtype == torch.int64 and ask.edges.ndim == 2 and ask.edges.shape[1] == 2
        edges = [(known, new) for known, new in ask.edges.tolist()] if pairs_due else []
        if not pairs_due or not is_tree(edges, sum(plan.latents.values())):
            raise MessageError(f"{self.name}: these edges are no tree. Nothing was charged or sent.")
        receipt = self._pay(agreement, f"{plan.moved[2]:,} tables over all parties")
        pairs = split_edges(edges, plan.latents)
        # Who was told another tree has other pads: shares of different pairs would tell of rows to who deals the masks.
        reply = self._release(
            agreement, pairs, leaves_of(agreement.groups), step=2, receipt=receipt, about=repr(edges).encode()
        )
        self.forget()
        return reply

    def _counts(self, pairs: list[Edge]) -> Tensor:
        """The two-way tables of these pairs of own binary attributes: (pairs, 2, 2)."""
        rows = both(self.binary).astype(np.float64)  # counts stay below 2⁵³
        counts = (rows.T @ rows).astype(np.int64).reshape(self.binary.shape[1], 2, -1, 2)
        one, other = _columns(pairs)
        return torch.from_numpy(counts[one, :, other])

    def _release(
        self,
        agreement: Agreement,
        pairs: Mapping[tuple[str, str], list[Edge]],
        leaves: list[Edge],
        *,
        step: int,
        receipt: Receipt,
        about: bytes = b"",
    ) -> Tables:
        ring, plan, latent, blinded = agreement.ring, agreement.plan, agreement.latent, {}
        for peer, share in (agreement.shares or {}).items():
            first, second = sorted((self.name, peer), key=list(plan.latents).index)
            one, other = _columns(pairs[first, second])
            cells = share.reshape(-1, 2, plan.latents[second], 2)[one, :, other]  # (pairs, 2, 2)
            noisy = cells + ring.words(self._noise(plan, step, cells.shape))
            # A pad is for one message alone: each step has its own stream.
            lines = [agreement.channels[peer]]
            blinded[peer] = ring.signed(blind(noisy, lines, ring, stream=step, about=about))
        own = [(latent[a], latent[b]) for a, b in pairs[self.name, self.name]]
        counts = self._counts(own + leaves)
        mine, theirs = torch.tensor_split(counts + self._noise(plan, step, counts.shape), [len(own)])
        return Tables(own=Paid(mine, receipt), leaves=Paid(theirs, receipt), cross=Paid(blinded, receipt))

    def _noise(self, plan: Plan, step: int, shape: Iterable[int]) -> Tensor:
        shape = tuple(shape)
        if plan.scales is None:
            return torch.zeros(shape, dtype=torch.int64)
        return DiscreteLaplaceNoise(plan.scales[step]).draw(math.prod(shape), self.rng).view(shape)

    def _pay(self, agreement: Agreement, what: str) -> Receipt:
        step = agreement.released
        what = f"step {step + 1} of 3, {STEPS[step]}: {what}"
        return self.pay(agreement.plan.events[step], what, agreement, of=3)

    @property
    def binary(self) -> Bits:
        """The binary attributes of the shared people, in the common order: (people, bits)."""
        if self._binary is None:
            codec = Codec(self.table.schema)
            self._binary = to_bits(codec.codes(self.aligned), codec.sizes)
        return self._binary

    def _products(self, agreement: Agreement) -> Products:
        ask, order, widths = agreement.agree, list(self.schemas), agreement.plan.latents
        factors = {
            peer: Factor(
                agreement.ring,
                mask_seed(ask.seeds[peer], ask.keys),
                first=order.index(self.name) < order.index(peer),
                width=2 * widths[self.name],
                peer_width=2 * widths[peer],
            )
            for peer in order
            if peer != self.name
        }
        latent, people = agreement.latent, len(self.binary)
        chunks = [(n, min(n + ask.chunk, people), tuple(factors)) for n in range(0, people, ask.chunk)]

        def rows(start: int, stop: int) -> Bits:
            return both(self.binary[start:stop, latent])

        return Products(agreement.ring, agreement.channels, factors, rows, chunks)

    # The state, as it is saved

    def kept(self, agreement: Agreement) -> dict[str, Any]:
        products, shares, ring = agreement.products, agreement.shares, agreement.ring
        return {
            "groups": agreement.groups,
            "index": [list(edge) for edge in agreement.index],
            "products": None if products is None else products.state_dict(),
            "shares": None
            if shares is None
            else {peer: ring.signed(share) for peer, share in shares.items()},
        }

    def restore(self, agreement: Agreement, held: Mapping[str, Any]) -> None:
        agreement.groups, agreement.index = held["groups"], [(a, b) for a, b in held["index"]]
        if held["products"] is not None:
            agreement.products = self._products(agreement)
            agreement.products.load_state_dict(held["products"])
        if held["shares"] is not None:
            agreement.shares = {peer: agreement.ring.words(share) for peer, share in held["shares"].items()}


def _columns(pairs: list[Edge]) -> NDArray[np.int64]:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T
