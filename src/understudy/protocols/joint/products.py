"""Products between holders, chunk by chunk: a holder's side and the server's, by masks
that the server deals.

This is all that the engine knows of how products are dealt: what a holder sends chunk
by chunk and ends with (`Products`), what the server sends with `Agree` (`seeds_for`),
and its relay (`multiply`). Rows under encryption, with nobody who deals, have the same
three parts (`encrypted`). The arithmetic and its guarantees
stand in `privacy/secure/sums.py`; docs/secure_products.md says who learns what.

Guarantee: masks follow from the seeds that were dealt, all keys, how people are cut
into messages, and what the stage is (`stage.digest`): no two messages to one holder
differ by rows alone, whatever a server tells in between.
"""

import hmac
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.schema import Block as Groups
from understudy.data.schema import Grid
from understudy.ground.check import whole
from understudy.ground.errors import Effect, MessageError
from understudy.privacy.secure.ring import Bits, Ring, Words
from understudy.privacy.secure.sums import Channel, Dealer, Factor, fingerprint
from understudy.protocols.core import Parties, Public
from understudy.protocols.joint.messages import Agree, Swap, Swapped
from understudy.protocols.joint.stage import Product

SEALED = (
    "rows under one-time masks, sealed for another holder: uniform to it, unreadable "
    "to the server"
)
_MESSAGE = 1 << 27  # bytes, at most
Chunk = tuple[int, int, tuple[str, ...]]  # people from, to, and who else holds them
# how many people the holders of a cell of the grid share
Cells = Mapping[tuple[str, ...], int]
Inboxes = dict[str, dict[str, Tensor]]  # what each holder is sent, by sender
ChunkWatcher = Callable[[int, int, Inboxes], None]


def sealed(channel: Channel, data: bytes) -> Tensor:
    """A message for the other end alone."""
    return torch.frombuffer(bytearray(channel.seal(data)), dtype=torch.uint8)


@dataclass
class Products:
    """One holder's side. People go chunk by chunk, and each chunk is masked once.
    Edges: a message that is missing, changed, repeated or of a wrong shape →
    MessageError, and nothing is sent.
    """

    ring: Ring
    channels: Mapping[str, Channel]
    factors: Mapping[str, Factor]
    groups: Mapping[str, Groups]  # its own and the other holder's, the lower first
    # people from, to, in the common order: (people, own width)
    rows: Callable[[int, int], Bits | Words]
    chunks: Sequence[Chunk]
    swapped: int = 0  # chunks

    @property
    def peers(self) -> Sequence[str]:
        """Whom it multiplies with."""
        return [*self.factors]

    @property
    def price(self) -> None:
        """What the next message costs: masked rows tell nothing."""
        return None

    @property
    def done(self) -> bool:
        return self.swapped == len(self.chunks)

    def send(self) -> Swapped:
        """Messages about the next chunk."""
        start, stop, peers = self.chunks[self.swapped]
        rows = self.rows(start, stop)
        masked = {
            peer: self.ring.to_bytes(self.factors[peer].mask(rows)) for peer in peers
        }
        self.swapped += 1
        outbox = {
            peer: sealed(self.channels[peer], data) for peer, data in masked.items()
        }
        return Swapped(outbox=Public(outbox, SEALED))

    def shares(
        self, inbox: Mapping[str, Tensor], corrections: Mapping[str, Tensor]
    ) -> dict[Groups, Tensor]:
        """Take the last messages: its share of Σ v_g v_hᵀ with each other group, over
        all its holders.
        """
        if corrections.keys() != {
            peer for peer, factor in self.factors.items() if not factor.first
        }:
            raise MessageError(
                "a correction is missing or too many.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        self.take(inbox)
        products: dict[Groups, Tensor] = {}
        for peer, factor in self.factors.items():
            share = factor.share(
                None if factor.first else self.ring.words(corrections[peer])
            )
            groups = self.groups[peer]
            part = self.ring.signed(share)
            products[groups] = products[groups] + part if groups in products else part
        return products

    def take(self, inbox: Mapping[str, Tensor]) -> None:
        """Take the others' messages about the chunk before."""
        start, stop, peers = (
            self.chunks[self.swapped - 1] if self.swapped else (0, 0, ())
        )
        if inbox.keys() != set(peers):
            raise MessageError(
                "a message of another holder is missing or too many.",
                effect=Effect.NOTHING_COMPUTED,
            )
        rows = self.rows(start, stop)
        for peer in peers:
            factor = self.factors[peer]
            data = self.channels[peer].open(inbox[peer].numpy().tobytes())
            factor.take(self.ring.from_bytes(data, len(rows), factor.peer_width), rows)

    def forget(self) -> None:
        """Nothing: masks hide rows from others alone, and no key is kept here."""

    def state_dict(self) -> dict[str, Any]:
        """All but the channels', which are the session's."""
        factors = {peer: factor.state_dict() for peer, factor in self.factors.items()}
        return {"swapped": self.swapped, "factors": factors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.swapped = int(state["swapped"])
        for peer, factor in self.factors.items():
            factor.load_state_dict(state["factors"][peer])


def products_of(
    name: str,
    grid: Grid,
    agree: Agree,
    channels: Mapping[str, Channel],
    product: Product,
    vectors: Callable[[int, int], NDArray[Any]],
    people: int,
    about: bytes,
) -> Products:
    """A holder's side of a product: with whoever holds some of its people in a group
    that its own multiplies with.
    """
    ring = Ring(agree.bits)
    own_group = grid.group_of(name)
    step = step_of(product, grid, agree.chunk, ring)
    groups = {peer: groups_of(grid, name, peer) for peer in agree.keys if peer != name}
    cut = chunks_of(name, grid.groups, agree.cells, step, people)
    chunks = [
        (start, stop, tuple(peer for peer in peers if groups[peer] in product.pairs))
        for start, stop, peers in cut
    ]
    chunks = [chunk for chunk in chunks if chunk[2]]
    context = cut_as(agree.bits, agree.chunk, agree.cells) + about
    factors = dict[str, Factor]()
    width = product.widths.get(own_group, 0)
    for peer in agree.keys:
        if any(peer in peers for _, _, peers in chunks):
            seed = mask_seed(agree.seeds[peer], agree.keys, context)
            theirs = grid.group_of(peer)
            factors[peer] = Factor(
                ring,
                seed,
                first=own_group < theirs,
                width=width,
                peer_width=product.widths[theirs],
            )

    def rows(start: int, stop: int) -> Any:
        if start == stop:
            return np.zeros((0, width), dtype=np.bool_)
        numbers = vectors(start, stop)
        return numbers if numbers.dtype == np.bool_ else ring.words(numbers)

    return Products(ring, channels, factors, groups, rows, chunks)


def mask_seed(seed: bytes, keys: Mapping[str, bytes], about: bytes = b"") -> bytes:
    """What the masks of a product follow from: the seed that was dealt, all holders'
    keys, and what it is `about`.
    Guarantee: masks are independent wherever one of these differs. A holder's own key
    is fresh in every session: a seed that is dealt again, in another session or about
    other rows in this one, makes no two messages to one holder that differ by rows
    alone. So `about` has whatever a server could still change of the rows that are
    masked under these keys: what it told after the last thing that is paid for once.
    """
    return hmac.digest(
        seed, f"understudy masks {fingerprint(keys)} ".encode() + about, "sha256"
    )


def cut_as(*told: Any) -> bytes:
    """How a holder's people are cut into messages, by what it was told of that: a part
    of what masks are `about`.
    """
    return json.dumps(told).encode()


def chunks_of(
    name: str,
    groups: Iterable[Sequence[str]],
    cells: Iterable[Any],
    chunk: int,
    aligned: int,
) -> list[Chunk]:
    """The chunks in which this holder's people are swapped, with whom: so many at most,
    and of one cell each. `cells`: its people in their order, as [number, the other
    holders of them]. There are none in a horizontal partition.
    Edges: other people than were aligned, or not one holder of each other group → an
    error, and nothing is sent.
    """
    others = [set(group) for group in groups if name not in group]
    parsed_cells = [_cell(cell) for cell in cells]
    for people, peers in parsed_cells:
        if len(peers) != len(others) or any(
            len(group.intersection(peers)) != 1 for group in others
        ):
            raise MessageError(
                f"{name}: one holder of each group must hold each person.",
                effect=Effect.NOTHING_SENT,
            )
        whole(people=people)
    total = sum(int(people) for people, _ in parsed_cells)
    if total != aligned:  # before a list is made of them: a server may name any number
        raise MessageError(
            f"{name}: the run is about {total:,} people, but {aligned:,} were aligned.",
            effect=Effect.NOTHING_SENT,
        )
    chunks: list[Chunk] = []
    start = 0
    for people, peers in parsed_cells:
        stop = start + int(people)
        chunks += [
            (a, min(a + chunk, stop), tuple(peers)) for a in range(start, stop, chunk)
        ]
        start = stop
    return chunks


def _cell(told: Any) -> tuple[Any, list[str]]:
    match told:
        case [people, [*peers]] if all(isinstance(peer, str) for peer in peers):
            return people, peers
    raise MessageError(
        "a number of people and their other holders were due.",
        effect=Effect.NOTHING_SENT,
    )


def step_of(product: Product, grid: Grid, chunk: int, ring: Ring) -> int:
    """How many people go into one message of such words: as many as fit, and no more
    than was agreed.
    """
    row = (
        max(product.widths.values())
        * ring.dtype.itemsize
        * max(1, len(grid.groups) - 1)
    )
    return max(1, min(chunk, _MESSAGE // max(1, row)))


def groups_of(grid: Grid, one: str, other: str) -> Groups:
    """Of two holders, the lower group first."""
    a = grid.group_of(one)
    b = grid.group_of(other)
    return min(a, b), max(a, b)


# The server's side


def cells_of(name: str, cells: Cells) -> list[list[Any]]:
    """The cells of a holder's people, in their order, as it is told them: [number, the
    other holders of them].
    """
    return [
        [cells[c], [peer for peer in c if peer != name]] for c in cells if name in c
    ]


def seeds_for(
    name: str, cells: Cells, keys: Mapping[str, bytes], secret: bytes
) -> dict[str, bytes]:
    """What is dealt to a holder for its masks, for all products of a session, by the
    other holder.
    """
    pairs = (pair for cell in cells for pair in combinations(cell, 2) if name in pair)
    return {pair[pair[0] == name]: _dealt(secret, keys, *pair, name) for pair in pairs}


def _dealt(secret: bytes, keys: Mapping[str, bytes], *whose: str) -> bytes:
    """Of the first and the second of two holders, the seed of one of them. It follows
    from the server's `secret` and the holders' fresh keys: a server that comes back
    deals the same to the same session, which asks for nothing new of it, and never the
    same to another.
    """
    return hmac.digest(
        secret, json.dumps([fingerprint(keys), *whose]).encode(), "sha256"
    )


def multiply(
    parties: Parties,
    grid: Grid,
    product: Product,
    cells: Cells,
    agree: Mapping[str, Agree],
    secret: bytes,
    about: bytes,
    words: Inboxes,
    *,
    swapped_chunks: int = 0,
    watch: ChunkWatcher | None = None,
) -> tuple[Inboxes, Inboxes]:
    """Relay what the holders of each cell send each other, chunk by chunk, and deal
    their masks. `words` come with the first ask of each holder. Returned are inboxes
    and corrections for the ask that is due next. After each chunk `watch` hears how
    many there were, of how many, and the inboxes; with these as `words`, another call
    goes on after so many `swapped_chunks`.
    """
    first = next(iter(agree.values()))
    ring = Ring(first.bits)
    keys = first.keys
    step = step_of(product, grid, first.chunk, ring)
    widths = {name: product.widths.get(grid.group_of(name), 0) for name in agree}
    pairs = {
        cell: [
            two
            for two in combinations(cell, 2)
            if groups_of(grid, *two) in product.pairs
        ]
        for cell in cells
    }

    def seed(i: str, k: str, own: str) -> bytes:
        context = cut_as(agree[own].bits, agree[own].chunk, agree[own].cells) + about
        return mask_seed(_dealt(secret, keys, i, k, own), keys, context)

    every = dict.fromkeys(two for some in pairs.values() for two in some)
    dealers = {
        (i, k): Dealer(ring, (widths[i], widths[k]), (seed(i, k, i), seed(i, k, k)))
        for i, k in every
    }
    inbox = {name: dict(words.get(name, {})) for name in agree}
    swapped = dict.fromkeys(agree, 0)
    chunks = [
        (cell, min(step, people - start))
        for cell, people in cells.items()
        for start in range(0, people if pairs[cell] else 0, step)
    ]
    for number, (cell, size) in enumerate(chunks, 1):
        for two in pairs[cell]:
            dealers[two].deal(size)
        active = [name for name in cell if any(name in two for two in pairs[cell])]
        asks = {name: Swap(chunk=swapped[name], inbox=inbox[name]) for name in active}
        for name in active:
            swapped[name] += 1
        if number <= swapped_chunks:
            continue
        replies = parties.ask(asks)
        inbox |= {name: {} for name in active}
        for two in pairs[cell]:
            for name, box in relayed({one: replies[one] for one in two}).items():
                inbox[name] |= box
        if watch is not None:
            watch(number, len(chunks), inbox)
    corrections: Inboxes = {name: {} for name in agree}
    for (i, k), dealer in dealers.items():
        corrections[k][i] = ring.signed(dealer.correction())
    return inbox, corrections


def relayed(replies: Mapping[str, Any]) -> Inboxes:
    """Every holder's inbox from what is in the outboxes of all of them."""
    inboxes: Inboxes = {name: {} for name in replies}
    for sender, reply in replies.items():
        box = reply.outbox.value
        for receiver in replies:
            if receiver == sender:
                continue
            if not isinstance(box, dict) or not isinstance(box.get(receiver), Tensor):
                raise MessageError(
                    f"{sender} sent nothing for {receiver}.",
                    effect=Effect.NOTHING_RELEASED,
                )
            inboxes[receiver][sender] = box[receiver]
    return inboxes
