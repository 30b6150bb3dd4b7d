"""What the server and the holders say to each other while they count visits: `Begin`, `Agree`, over columns
`products.Swap` chunk by chunk, and one `Count`.
"""

from dataclasses import dataclass

from torch import Tensor

from understudy.protocols.core import Ask, Assembly, Paid, Public, Reply


@dataclass(frozen=True, kw_only=True)
class Begin(Assembly, kind="visits.begin"):
    """Every party's schema, and the settings."""


@dataclass(frozen=True, kw_only=True)
class Begun(Reply, kind="visits.begun"):
    """The noise multiplier that this party's budget needs, its public key of the run, over columns how many people."""

    multiplier: Public
    budget: Public
    noise: Public
    key: Public
    people: Public


@dataclass(frozen=True, kw_only=True)
class Agree(Ask, kind="visits.agree"):
    """Who takes part, with which keys, and the noise multiplier; over columns seeds of masks, by the other holder.

    `chunk`: people per message.
    """

    keys: dict[str, bytes]
    multiplier: float
    seeds: dict[str, bytes]
    chunk: int


@dataclass(frozen=True, kw_only=True)
class Agreed(Reply, kind="visits.agreed"):
    """The fingerprint of all keys as this party was told them; it is also in the ledger."""

    fingerprint: Public


@dataclass(frozen=True, kw_only=True)
class Count(Ask, kind="visits.count"):
    """Release the tables. Over columns: the others' last messages, and the dealer's corrections."""

    inbox: dict[str, Tensor]
    corrections: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Counted(Reply, kind="visits.counted"):
    """This party's tables with its share of noise, under pads where others have a part in them, too.

    `shared`: over columns its parts of those with each other holder.
    """

    cells: Paid
    shared: Paid
