"""What the server and the holders say to each other while they measure a joint Gram matrix.

Columns over holders: `Begin`, `Agree`, `Swap` chunk by chunk, `Share`. Rows over holders: `Begin`, `Agree`, `Sum`.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from understudy.protocols.base import Ask, Paid, Public, Reply


@dataclass(frozen=True, kw_only=True)
class Begin(Ask):
    """How the table is cut ("columns" or "rows"), and every party's schema. `private=False` asks for no noise."""

    partition: str
    schemas: dict[str, dict[str, Any]]
    private: bool


@dataclass(frozen=True, kw_only=True)
class Begun(Reply):
    """The noise that this party's budget needs, and its public key of the run. `people`: None over rows."""

    people: Public
    sigma: Public
    budget: Public
    noise: Public
    key: Public


@dataclass(frozen=True, kw_only=True)
class Agree(Ask):
    """Who takes part, with which keys; the noise; how messages are cut; and the seeds of this party's masks."""

    keys: dict[str, bytes]
    sigma: float
    colluding: int
    bits: int
    chunk: int
    seeds: dict[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Agreed(Reply):
    """The fingerprint of all keys as this party was told them; it stands in the ledger too."""

    fingerprint: Public


@dataclass(frozen=True, kw_only=True)
class Swap(Ask):
    """The others' messages about the chunk before; mask and seal the next one for each of them."""

    chunk: int
    inbox: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Swapped(Reply):
    """A sealed message for each other party."""

    outbox: Public


@dataclass(frozen=True, kw_only=True)
class Share(Ask):
    """The others' last messages, and the dealer's corrections."""

    inbox: dict[str, Tensor]
    corrections: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Shared(Reply):
    """This party's own block with noise, and its blinded, noisy share of each block with another party."""

    own: Paid
    cross: Paid


@dataclass(frozen=True, kw_only=True)
class Sum(Ask):
    """Release your blinded, noisy Gram matrix."""


@dataclass(frozen=True, kw_only=True)
class Summed(Reply):
    """The Gram matrix of this party's rows under noise and pads."""

    gram: Paid
