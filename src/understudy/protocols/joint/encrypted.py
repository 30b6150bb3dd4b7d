"""Products between holders without a dealer, chunk by chunk: a holder's side and the
server's, by encryption.

The same three parts as `products`: what a holder sends chunk by chunk and ends with,
what the server sends with `Agree` (no seeds), and its relay. Of two groups the holders
of the lower one encrypt, once for all others, and those of the other add up and answer
when all people have come. So there is one turn more than chunks, and the last is the
one whose price is charged before it. The arithmetic and its guarantees stand in
`privacy/secure/lwe.py`.

Guarantee: keys, errors and what hides an answer follow from the holder's key of the
session, all keys, how people are cut into messages, what the stage is
(`stage.digest`), and from all that a holder was sent: what is asked again is answered
by the same bytes, and whatever else is asked has keys, errors and noise of its own. No
two people of a holder share a row of the public matrix.
"""

import hashlib
import hmac
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.schema import Block as Groups
from understudy.data.schema import Grid
from understudy.ground.errors import Effect, MessageError
from understudy.privacy.accounts.events import merged_noise
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure.lwe import (
    WORDS,
    Adder,
    Encryptor,
    Room,
    dimension_for,
)
from understudy.privacy.secure.ring import Ring
from understudy.privacy.secure.sums import Channel, fingerprint
from understudy.protocols.core import Parties, Public
from understudy.protocols.joint.messages import Agree, Swap, Swapped
from understudy.protocols.joint.products import (
    Cells,
    ChunkWatcher,
    Inboxes,
    chunks_of,
    cut_as,
    groups_of,
    sealed,
    step_of,
)
from understudy.protocols.joint.stage import Product

# for a person, a level and a dimension (benchmarks/secure_product)
_SECONDS = 1.7e-10
SEALED = "rows under encryption, sealed for another holder: unreadable to the server"


def rooms_of(product: Product, bits: int) -> dict[Groups, Room]:
    """What fits beside counts of so many bits, for each two groups.
    Edges: nothing does → ConfigError.
    """
    widths = product.widths
    # released of a column of a key: a number for each level of those who answer; and of
    # an answer's secret one for each column that was encrypted
    levels = Counter[int]()
    for g, h in product.pairs:
        levels[g] += widths[h]
    told = max([*levels.values(), *(widths[g] for g in levels)], default=0)
    dimension = dimension_for(bits, told)
    return {
        (g, h): Room(
            bits,
            (widths[g], widths[h]),
            dimension,
            product.lengths.get(h, 0.0),
            product.parts,
        )
        for g, h in product.pairs
    }


def seconds_each(product: Product, bits: int) -> float:
    """About how many seconds these products take for each person, at all holders
    together. Edges: as `rooms_of`.
    """
    rooms = rooms_of(product, bits).values()
    return _SECONDS * sum(sum(room.widths) * room.dimension for room in rooms)


def price(product: Product, bits: int) -> DpEvent:
    """What one person pays for all answers of a stage: one for each two groups."""
    events = Counter(room.event for room in rooms_of(product, bits).values())
    return GaussianDpEvent(merged_noise(events))


def cells_between(name: str, cells: Sequence[Sequence[Any]]) -> dict[str, bytes]:
    """By peer, whose people of `cells` both hold, in their order: 32 bytes.
    Guarantee: two who find the same name each person they share alike. Rows that one
    adds up under another's name would not cancel in the other's key, and show who they
    are.
    """
    cells_by_peer: dict[str, list[Any]] = {}
    for people, peers in cells:
        for peer in peers:
            cells_by_peer.setdefault(peer, []).append([people, sorted([name, *peers])])
    return {
        peer: hashlib.sha256(b"understudy cells " + cut_as(some)).digest()
        for peer, some in cells_by_peer.items()
    }


@dataclass(frozen=True)
class Turn:
    """One chunk of people: from, to, who else holds them, and the name that all their
    holders have for them.
    """

    start: int
    stop: int
    peers: tuple[str, ...]
    place: bytes


@dataclass
class EncryptedProducts:
    """One holder's side. Edges: a message that is missing, changed, repeated or of a
    wrong shape → MessageError, and nothing is sent.
    """

    ring: Ring
    channels: Mapping[str, Channel]
    groups: Mapping[str, Groups]  # its own and the other holder's, the lower first
    own: int  # its group
    rooms: Mapping[str, Room]  # by peer
    event: DpEvent  # of all answers of the stage, to anybody
    secret: bytes
    public: bytes
    rows: Callable[[int, int], NDArray[Any]]
    turns: Sequence[Turn]
    swapped: int = 0  # turns
    encryptor: Encryptor | None = None
    adder: Adder = field(init=False)

    def __post_init__(self) -> None:
        self.answers = [peer for peer in self.rooms if not self._encrypts_for(peer)]
        self.adder = Adder(
            self.public, {peer: self.rooms[peer] for peer in self.answers}
        )
        self.masks = dict[str, Tensor]()
        # a digest of all that each sent
        self.heard = dict.fromkeys(self.answers, bytes(32))
        # each peer's last turn: with it comes the public key
        self.last = {
            peer: number for number, one in enumerate(self.turns) for peer in one.peers
        }
        self.keys = dict[str, Tensor]()

    @property
    def peers(self) -> Sequence[str]:
        return [*self.rooms]

    @property
    def answering(self) -> bool:
        """Whether the next turn is the one with the answers."""
        return bool(self.turns) and self.swapped == len(self.turns)

    @property
    def price(self) -> DpEvent | None:
        """What the next messages cost: those with the answers, for all holders."""
        return self.event if self.answering else None

    @property
    def done(self) -> bool:
        return self.swapped == len(self.turns) + bool(self.turns)

    def send(self) -> Swapped:
        """The rows of the next chunk, encrypted; at the end, answers."""
        messages = self._answers() if self.answering else self._encrypted()
        self.swapped += 1
        outbox = {
            peer: sealed(self.channels[peer], data) for peer, data in messages.items()
        }
        return Swapped(outbox=Public(outbox, SEALED))

    def shares(
        self, inbox: Mapping[str, Tensor], corrections: Mapping[str, Tensor]
    ) -> dict[Groups, Tensor]:
        """Take the answers: its share of Σ v_g v_hᵀ with each other group, over all its
        holders.
        """
        asked = [peer for peer in self.rooms if self._encrypts_for(peer)]
        if corrections or inbox.keys() != set(asked):
            raise MessageError(
                "an answer of another holder is missing or too many.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        parts = dict(self.masks)
        for peer in asked:
            data = self._opened(peer, inbox[peer])
            share = self._encryptor().share(data, self.rooms[peer])
            parts[peer] = self.ring.signed(self.ring.words(share))
        block_shares: dict[Groups, Tensor] = {}
        for peer, part in parts.items():
            groups = self.groups[peer]
            block_shares[groups] = (
                block_shares[groups] + part if groups in block_shares else part
            )
        self.forget()
        return block_shares

    def forget(self) -> None:
        """Overwrite the key under which rows are encrypted."""
        if self.encryptor is not None:
            self.encryptor.forget()

    def _encrypts_for(self, peer: str) -> bool:
        return self.own == self.groups[peer][0]

    def _encryptor(self) -> Encryptor:
        """Made when it is first needed, and the same after a state was loaded."""
        if self.encryptor is None:
            room = next(
                room for peer, room in self.rooms.items() if self._encrypts_for(peer)
            )
            self.encryptor = Encryptor(
                self.secret, self.public, room.bits, room.widths[0], room.dimension
            )
        return self.encryptor

    def _encrypted(self) -> dict[str, bytes]:
        """The next chunk for each who adds it up; with its last one the public key."""
        turn = self.turns[self.swapped]
        receivers = [peer for peer in turn.peers if self._encrypts_for(peer)]
        if not receivers:
            return {}
        encryptor = self._encryptor()
        rows = encryptor.encrypt(turn.place, self.rows(turn.start, turn.stop))
        data = WORDS.to_bytes(rows)
        key = b""
        if any(self.last[peer] == self.swapped for peer in receivers):
            key = WORDS.to_bytes(encryptor.public_key())
        return {
            peer: data + key if self.last[peer] == self.swapped else data
            for peer in receivers
        }

    def take(self, inbox: Mapping[str, Tensor]) -> None:
        """Add up the rows of the chunk before."""
        before = self.turns[self.swapped - 1] if self.swapped else None
        senders = [] if before is None else [p for p in before.peers if p in self.heard]
        if inbox.keys() != set(senders):
            raise MessageError(
                "a message of another holder is missing or too many.",
                effect=Effect.NOTHING_COMPUTED,
            )
        if before is None or not senders:
            return
        rows = self.rows(before.start, before.stop)
        words = {}
        for peer in senders:
            room = self.rooms[peer]
            data = self._opened(peer, inbox[peer])
            size = 8 * len(rows) * room.widths[0]
            if self.last[peer] == self.swapped - 1:
                key = WORDS.from_bytes(data[size:], room.dimension, room.widths[0])
                self.keys[peer] = WORDS.signed(key)
                data = data[:size]
            words[peer] = WORDS.from_bytes(data, len(rows), room.widths[0])
        self.adder.add(before.place, words, rows)

    def _opened(self, peer: str, message: Tensor) -> bytes:
        data = self.channels[peer].open(message.numpy().tobytes())
        if peer in self.heard:
            self.heard[peer] = hashlib.sha256(self.heard[peer] + data).digest()
        return data

    def _answers(self) -> dict[str, bytes]:
        answers = {}
        for peer in self.answers:
            key = WORDS.words(self.keys[peer])
            seed = hmac.digest(
                self.secret, b"answer " + self.heard[peer] + peer.encode(), "sha256"
            )
            answers[peer], share = self.adder.answer(peer, key, SecureRng(seed))
            self.masks[peer] = self.ring.signed(self.ring.words(share))
        return answers

    def state_dict(self) -> dict[str, Any]:
        """All but the channels', which are the session's, and its keys, which follow
        from the session's.
        """
        return {
            "swapped": self.swapped,
            "sums": self.adder.state_dict(),
            "masks": self.masks,
            "heard": self.heard,
            "keys": self.keys,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.swapped = int(state["swapped"])
        self.adder.load_state_dict(state["sums"])
        self.masks = dict(state["masks"])
        self.heard = dict(state["heard"])
        self.keys = dict(state["keys"])


def encrypted_products_of(
    name: str,
    grid: Grid,
    agree: Agree,
    channels: Mapping[str, Channel],
    product: Product,
    vectors: Callable[[int, int], NDArray[Any]],
    people: int,
    about: bytes,
    secret: bytes,
) -> EncryptedProducts:
    """A holder's side of a product, as `products.products_of`; `secret`: its key of the
    session.
    Edges: more people than the counts hold, or a flood that does not fit → an error,
    and nothing is sent.
    """
    groups = {peer: groups_of(grid, name, peer) for peer in agree.keys if peer != name}
    rooms = rooms_of(product, agree.bits)
    turns = _turns(name, grid, agree, product, groups, people)
    if any(people > room.holds for room in rooms.values()):
        raise MessageError(
            f"{name}: counts of {people:,} people do not fit into {agree.bits} bits.",
            effect=Effect.NOTHING_CHARGED_OR_SENT,
        )
    common_context = cut_as(fingerprint(agree.keys), agree.bits, agree.chunk) + about
    own_context = common_context + cut_as(agree.cells)

    def rows(start: int, stop: int) -> NDArray[Any]:
        numbers = vectors(start, stop)
        if numbers.dtype != np.bool_ and not product.lengths:
            raise MessageError(
                f"{name}: rows of {numbers.dtype} are not those that were priced.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        return numbers

    met = {peer for one in turns for peer in one.peers}
    return EncryptedProducts(
        ring=Ring(agree.bits),
        channels=channels,
        groups=groups,
        own=grid.group_of(name),
        rooms={peer: rooms[groups[peer]] for peer in agree.keys if peer in met},
        event=price(product, agree.bits),
        secret=hmac.digest(secret, b"understudy encrypted " + own_context, "sha256"),
        public=hashlib.sha256(b"understudy public matrix " + common_context).digest(),
        rows=rows,
        turns=turns,
    )


def _turns(
    name: str,
    grid: Grid,
    agree: Agree,
    product: Product,
    groups: Mapping[str, Groups],
    people: int,
) -> list[Turn]:
    """The chunks that are of this product. All holders of a chunk name it alike: by who
    they are, and by how many of their people came before.
    """
    step = step_of(product, grid, agree.chunk, WORDS)
    before = Counter[str]()
    turns = []
    for start, stop, peers in chunks_of(name, grid.groups, agree.cells, step, people):
        holders = json.dumps(sorted([name, *peers]))
        place = json.dumps([holders, before[holders]]).encode()
        before[holders] += stop - start
        met = tuple(peer for peer in peers if groups[peer] in product.pairs)
        if met:
            turns.append(Turn(start, stop, met, place))
    return turns


# The server's side


def relay(
    parties: Parties,
    grid: Grid,
    product: Product,
    cells: Cells,
    agree: Mapping[str, Agree],
    words: Inboxes,
    *,
    swapped_chunks: int = 0,
    watch: ChunkWatcher | None = None,
) -> Inboxes:
    """Relay encrypted rows chunk by chunk, and then the answers: `products.multiply`
    without masks. Returned are the inboxes for the ask that is due next.
    """
    chunk = next(iter(agree.values())).chunk
    step = step_of(product, grid, chunk, WORDS)
    lines = {cell: _lines(cell, grid, product) for cell in cells}
    inbox = {name: dict(words.get(name, {})) for name in agree}
    swapped = dict.fromkeys(agree, 0)
    turns = [
        lines[cell]
        for cell, people in cells.items()
        for _ in range(0, people if lines[cell] else 0, step)
    ]
    # from those who encrypted to those who added up, and back
    every = dict.fromkeys(line for some in turns for line in some)
    if turns:
        turns.append([(receiver, sender) for sender, receiver in every])
    for number, some in enumerate(turns, 1):
        active = dict.fromkeys(name for line in some for name in line)
        asks = {name: Swap(chunk=swapped[name], inbox=inbox[name]) for name in active}
        for name in active:
            swapped[name] += 1
        if number <= swapped_chunks:
            continue
        replies = parties.ask(asks)
        inbox |= {name: {} for name in active}
        for sender, receiver in some:
            box = replies[sender].outbox.value
            message = box.get(receiver) if isinstance(box, dict) else None
            if not isinstance(message, Tensor):
                raise MessageError(
                    f"{sender} sent nothing for {receiver}.",
                    effect=Effect.NOTHING_RELEASED,
                )
            inbox[receiver][sender] = message
        if watch is not None:
            watch(number, len(turns), inbox)
    return inbox


def _lines(cell: Sequence[str], grid: Grid, product: Product) -> list[tuple[str, str]]:
    """Of holders of the same people: who encrypts for whom."""
    return [
        (one, other) if grid.group_of(one) < grid.group_of(other) else (other, one)
        for one, other in combinations(cell, 2)
        if groups_of(grid, one, other) in product.pairs
    ]
