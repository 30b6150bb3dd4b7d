"""What the server and the holders say to each other while they count visits: `Begin`, `Agree`, over columns
`products.Swap` chunk by chunk, and one `Count`.
"""

from dataclasses import dataclass

from torch import Tensor

from understudy.protocols.core import Assembly, Delivery, Greeted, Keys, Paid, Public, Reply, Stated


@dataclass(frozen=True, kw_only=True)
class Begin(Assembly, kind="visits.begin"):
    """Every party's schema, and the settings."""


@dataclass(frozen=True, kw_only=True)
class Begun(Stated, kind="visits.begun"):
    """The noise multiplier that this party's budget needs, its public key of the run, over columns how many people."""

    multiplier: Public
    people: Public


@dataclass(frozen=True, kw_only=True)
class Agree(Keys, kind="visits.agree"):
    """Who takes part, with which keys, and the noise multiplier; over columns seeds of masks, by the other holder.

    `chunk`: people per message.
    """

    multiplier: float
    seeds: dict[str, bytes]
    chunk: int


@dataclass(frozen=True, kw_only=True)
class Agreed(Greeted, kind="visits.agreed"):
    """The fingerprint of all keys as this party was told them, and a sealed greeting for every other party."""


@dataclass(frozen=True, kw_only=True)
class Count(Delivery, kind="visits.count"):
    """Release the tables. Over columns: the others' last messages, and corrections; over rows their greetings."""

    corrections: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Counted(Reply, kind="visits.counted"):
    """This party's tables with its share of noise, under pads where others have a part in them, too.

    `shared`: over columns its parts of those with each other holder.
    """

    cells: Paid
    shared: Paid
