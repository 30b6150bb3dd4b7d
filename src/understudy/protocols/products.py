"""A holder's products with every other holder, chunk by chunk: masks, seals, opens, multiplies, and ends with shares.

The arithmetic and its guarantees stand in `privacy/secure/product.py` and `channel.py`; docs/secure_products.md says
who learns what.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from understudy.errors import MessageError
from understudy.privacy.secure.channel import Channel
from understudy.privacy.secure.product import Dealer, Factor
from understudy.privacy.secure.ring import Bits, Ring, Words

SEALED = "rows under one-time masks, sealed for another holder: uniform to it, unreadable to the server"


@dataclass
class Products:
    """One holder's side. `people` of them go chunk by chunk; each chunk is masked once.

    Edges: a message that is missing, changed, repeated or of a wrong shape → MessageError, and nothing is sent.
    """

    ring: Ring
    channels: dict[str, Channel]
    factors: dict[str, Factor]
    rows: Bits  # (people, own width), in the common order
    chunk: int
    swapped: int = 0  # chunks

    @property
    def chunks(self) -> int:
        return -(-len(self.rows) // self.chunk)

    def swap(self, inbox: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Take the others' messages about the chunk before, and make those about the next."""
        if self.swapped:
            self._take(inbox)
        rows = self._chunk(self.swapped)
        sealed = {
            peer: self.channels[peer].seal(self.ring.to_bytes(factor.mask(rows)))
            for peer, factor in self.factors.items()
        }
        self.swapped += 1
        return {peer: torch.frombuffer(bytearray(data), dtype=torch.uint8) for peer, data in sealed.items()}

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
        if inbox.keys() != self.factors.keys():
            raise MessageError("a message of another holder is missing. Nothing was computed.")
        rows = self._chunk(self.swapped - 1)
        for peer, factor in self.factors.items():
            data = self.channels[peer].open(inbox[peer].numpy().tobytes())
            factor.take(self.ring.from_bytes(data, len(rows), factor.peer_width), rows)

    def _chunk(self, number: int) -> Bits:
        return self.rows[number * self.chunk : (number + 1) * self.chunk]

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


class Dealing:
    """The server's side: a dealer for every two holders of these widths."""

    def __init__(self, ring: Ring, widths: Mapping[str, int]) -> None:
        self.ring, self.names = ring, tuple(widths)
        self.dealers = {(i, k): Dealer(ring, (widths[i], widths[k])) for i, k in combinations(widths, 2)}

    def seeds(self, name: str) -> dict[str, bytes]:
        """The seeds of this holder's masks, by the other holder."""
        return {
            k if name == i else i: dealer.seeds[name == k]
            for (i, k), dealer in self.dealers.items()
            if name in (i, k)
        }

    def deal(self, people: int) -> None:
        """Go through the masks of one more chunk of people."""
        for dealer in self.dealers.values():
            dealer.deal(people)

    def corrections(self, name: str) -> dict[str, Tensor]:
        """What the second holder of each pair needs to complete its share."""
        return {
            i: self.ring.signed(dealer.correction()) for (i, k), dealer in self.dealers.items() if name == k
        }


def relayed(outboxes: Mapping[str, Any], names: Sequence[str]) -> dict[str, dict[str, Tensor]]:
    """Every holder's inbox from what all of them sent."""
    inboxes: dict[str, dict[str, Tensor]] = {name: {} for name in names}
    for sender in names:
        for receiver in names:
            if sender != receiver:
                box = outboxes[sender]
                if not isinstance(box, dict) or not isinstance(box.get(receiver), Tensor):
                    raise MessageError(f"{sender} sent nothing for {receiver}. Nothing was released.")
                inboxes[receiver][sender] = box[receiver]
    return inboxes
