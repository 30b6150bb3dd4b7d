"""Products between holders, chunk by chunk: greet, mask, seal, open, multiply, and end with shares.

The arithmetic and its guarantees stand in `privacy/secure/product.py` and `channel.py`; docs/secure_products.md says
who learns what.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from understudy.ground.check import whole
from understudy.ground.errors import MessageError
from understudy.privacy.secure.channel import Channel, fingerprint
from understudy.privacy.secure.product import Dealer, Factor
from understudy.privacy.secure.ring import Bits, Ring, Words
from understudy.protocols.core.base import Ask, Assembly, Public, Reply

SEALED = "rows under one-time masks, sealed for another holder: uniform to it, unreadable to the server"
Chunk = tuple[int, int, tuple[str, ...]]  # people from, to, and who else holds them
Cells = Mapping[tuple[str, ...], int]  # how many people the holders of a cell of the grid share


@dataclass(frozen=True, kw_only=True)
class Delivery(Ask):
    """An ask that brings what the other holders sent to this one."""

    inbox: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Swap(Delivery, kind="joint.swap"):
    """The others' messages about the chunk before; mask and seal the next one for each who holds these people."""

    chunk: int


@dataclass(frozen=True, kw_only=True)
class Swapped(Reply, kind="joint.swapped"):
    """A sealed message for each other party that holds these people."""

    outbox: Public


@dataclass
class Products:
    """One holder's side. People go chunk by chunk, and each chunk is masked once.

    Edges: a message that is missing, changed, repeated or of a wrong shape → MessageError, and nothing is sent.
    """

    ring: Ring
    channels: Mapping[str, Channel]
    factors: Mapping[str, Factor]
    rows: Callable[[int, int], Bits | Words]  # people from, to, in the common order: (people, own width)
    chunks: Sequence[Chunk]
    swapped: int = 0  # chunks

    @property
    def done(self) -> bool:
        return self.swapped == len(self.chunks)

    def swap(self, ask: Swap) -> Swapped:
        """Take the others' messages about the chunk before, and make those about the next."""
        self._take(ask.inbox)
        start, stop, peers = self.chunks[self.swapped]
        rows = self.rows(start, stop)
        masked = {peer: self.ring.to_bytes(self.factors[peer].mask(rows)) for peer in peers}
        self.swapped += 1
        return Swapped(
            outbox=Public({peer: _sealed(self.channels[peer], data) for peer, data in masked.items()}, SEALED)
        )

    def shares(self, inbox: Mapping[str, Tensor], corrections: Mapping[str, Tensor]) -> dict[str, Words]:
        """Take the last messages: this side's share of each product, (first's width, second's width)."""
        if corrections.keys() != {peer for peer, factor in self.factors.items() if not factor.first}:
            raise MessageError("a correction is missing or too many. Nothing was charged or sent.")
        self._take(inbox)
        return {
            peer: factor.share(None if factor.first else self.ring.words(corrections[peer]))
            for peer, factor in self.factors.items()
        }

    def _take(self, inbox: Mapping[str, Tensor]) -> None:
        start, stop, peers = self.chunks[self.swapped - 1] if self.swapped else (0, 0, ())
        if inbox.keys() != set(peers):
            raise MessageError("a message of another holder is missing or too many. Nothing was computed.")
        rows = self.rows(start, stop)
        for peer in peers:
            factor, data = self.factors[peer], self.channels[peer].open(inbox[peer].numpy().tobytes())
            factor.take(self.ring.from_bytes(data, len(rows), factor.peer_width), rows)

    def state_dict(self) -> dict[str, Any]:
        return {
            "swapped": self.swapped,
            "channels": {peer: channel.state_dict() for peer, channel in self.channels.items()},
            "factors": {peer: factor.state_dict() for peer, factor in self.factors.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.swapped = int(state["swapped"])
        for peer, channel in self.channels.items():
            channel.load_state_dict(state["channels"][peer])
        for peer, factor in self.factors.items():
            factor.load_state_dict(state["factors"][peer])


def mask_seed(seed: bytes, keys: Mapping[str, bytes], about: bytes = b"") -> bytes:
    """What the masks of a product follow from: the seed that was dealt, all holders' keys, and what it is `about`.

    Guarantee: masks are independent wherever one of these differs. A holder's own key is fresh in every session: a seed
    that is dealt again, in another session or about other rows in this one, makes no two messages to one holder that
    differ by rows alone. So `about` has whatever a server could still change of the rows that are masked under these
    keys: what it told after the last thing that is paid for once.
    """
    return hmac.digest(seed, f"understudy masks {fingerprint(keys)} ".encode() + about, "sha256")


def cells_of(name: str, cells: Cells) -> list[list[Any]]:
    """The cells of a holder's people, in their order, as it is told them: [number, the other holders of them]."""
    return [[cells[c], [peer for peer in c if peer != name]] for c in cells if name in c]


def cut_as(*told: Any) -> bytes:
    """How a holder's people are cut into messages, by what it was told of that: a part of what masks are `about`."""
    return json.dumps(told).encode()


def chunks_of(
    name: str, groups: Iterable[Sequence[str]], cells: Iterable[Any], chunk: int, aligned: int
) -> list[Chunk]:
    """The chunks in which this holder's people are swapped, with whom: so many at most, and of one cell each.

    `cells`: its people in their order, as [number, the other holders of them]. There are none over rows.
    Edges: other people than were aligned, or not one holder of each other group → an error, and nothing is sent.
    """
    others = [set(group) for group in groups if name not in group]
    chunks: list[Chunk] = []
    start = 0
    for people, peers in map(_cell, cells):
        if len(peers) != len(others) or any(len(group.intersection(peers)) != 1 for group in others):
            raise MessageError(f"{name}: one holder of each group must hold each person. Nothing was sent.")
        whole(people=people)
        stop = start + int(people)
        chunks += [(a, min(a + chunk, stop), tuple(peers)) for a in range(start, stop, chunk)]
        start = stop
    if start != aligned:
        raise MessageError(
            f"{name}: the run is about {start:,} people, but {aligned:,} were aligned. Nothing was sent."
        )
    return chunks


def _cell(told: Any) -> tuple[Any, list[str]]:
    match told:
        case [people, [*peers]] if all(isinstance(peer, str) for peer in peers):
            return people, peers
    raise MessageError("a number of people and their other holders were due. Nothing was sent.")


# Greetings: what holders confirm to each other before anything that is paid for leaves


def told_alike(
    run: str, begin: Assembly, agree: Any, *besides: Any, own: Iterable[str] = ("seeds",)
) -> bytes:
    """A digest of all that a holder was told, for the context of its channels: keys, settings, schemas, and all of
    `agree` but what is each holder's `own`.

    Guarantee: holders who were told anything else, be it the parties in another order, cannot read each other. Who is
    the first in a product goes by that order: two who both took themselves for it would release each other's rows
    times masks that the server dealt.
    """
    apart = {"keys", *own}
    terms = {field.name: getattr(agree, field.name) for field in fields(agree) if field.name not in apart}
    told = [run, asdict(begin), list(begin.schemas), fingerprint(agree.keys), terms, *besides]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).digest()


def greetings(channels: Mapping[str, Channel], keys: Mapping[str, bytes]) -> dict[str, Tensor]:
    """A sealed word for every other holder: all keys, as this one was told them.

    The channel's context holds whatever else was told. A holder that was told anything else cannot open it.
    """
    return said(channels, _word(keys))


def confirm(channels: Mapping[str, Channel], keys: Mapping[str, bytes], inbox: Mapping[str, Tensor]) -> None:
    """Open the other holders' greetings.

    Guarantee: it returns only if whoever holds the secret halves of these keys was told the same, of everybody.
    Edges: a server that made those keys itself speaks for their holders; the fingerprint of the keys, in every ledger,
    is what tells.
    """
    heard(channels, _word(keys), inbox, what="keys")


def said(channels: Mapping[str, Channel], word: bytes) -> dict[str, Tensor]:
    """A word for every other holder, sealed."""
    return {peer: _sealed(channel, word) for peer, channel in channels.items()}


def heard(channels: Mapping[str, Channel], word: bytes, inbox: Mapping[str, Tensor], *, what: str) -> None:
    """Open the other holders' words. Edges: one is missing, too many or another → MessageError."""
    if inbox.keys() != channels.keys():
        raise MessageError("a greeting of another holder is missing or too many. Nothing was charged.")
    for peer, channel in channels.items():
        if not hmac.compare_digest(channel.open(inbox[peer].numpy().tobytes()), word):
            raise MessageError(
                f"{channel.own}: {peer} was told other {what} than {channel.own}. Nothing was charged."
            )


def _word(keys: Mapping[str, bytes]) -> bytes:
    return hashlib.sha256(b"understudy greeting " + fingerprint(keys).encode()).digest()


def _sealed(channel: Channel, data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(channel.seal(data)), dtype=torch.uint8)


class Dealing:
    """The server's side: a dealer for every two holders that share people. `cells`: those who share some.

    Masks follow from `secret`, fresh where none is given, and from the holders' fresh `keys`: a server that comes back
    deals the same to the same session, which asks for nothing new of it, and never the same to another.
    """

    def __init__(
        self,
        ring: Ring,
        widths: Mapping[str, int],
        cells: Iterable[Sequence[str]] | None = None,
        *,
        keys: Mapping[str, bytes],
        secret: bytes | None = None,
        about: Mapping[str, bytes] | None = None,
    ) -> None:
        """`about`: what each holder's rows in these products are, where that is not told by the keys (`mask_seed`)."""
        self.ring = ring
        pairs = dict.fromkeys(pair for cell in cells or [tuple(widths)] for pair in combinations(cell, 2))
        secret, session, about = secret or os.urandom(32), fingerprint(keys), about or {}

        def seed(*whose: str) -> bytes:
            return hmac.digest(secret, json.dumps([session, *whose]).encode(), "sha256")

        def made(whose: str, dealt: bytes) -> bytes:
            return mask_seed(dealt, keys, about.get(whose, b""))

        self._dealt = {(i, k): (seed(i, k, i), seed(i, k, k)) for i, k in pairs}
        self.dealers = {
            (i, k): Dealer(ring, (widths[i], widths[k]), (made(i, one), made(k, other)))
            for (i, k), (one, other) in self._dealt.items()
        }

    def seeds(self, name: str) -> dict[str, bytes]:
        """What is dealt to this holder for its masks, by the other holder."""
        return {
            k if name == i else i: dealt[name == k] for (i, k), dealt in self._dealt.items() if name in (i, k)
        }

    def deal(self, people: int, cell: Sequence[str]) -> None:
        """Go through the masks of one more chunk of people that these holders share."""
        for pair in combinations(cell, 2):
            self.dealers[pair].deal(people)

    def corrections(self, name: str) -> dict[str, Tensor]:
        """What the second holder of each pair needs to complete its share."""
        return {
            i: self.ring.signed(dealer.correction()) for (i, k), dealer in self.dealers.items() if name == k
        }


def relayed(outboxes: Mapping[str, Public], names: Sequence[str]) -> dict[str, dict[str, Tensor]]:
    """Every holder's inbox from what all of them sent."""
    inboxes: dict[str, dict[str, Tensor]] = {name: {} for name in names}
    for sender in names:
        box = outboxes[sender].value
        for receiver in names:
            if sender != receiver:
                if not isinstance(box, dict) or not isinstance(box.get(receiver), Tensor):
                    raise MessageError(f"{sender} sent nothing for {receiver}. Nothing was released.")
                inboxes[receiver][sender] = box[receiver]
    return inboxes
