"""What the server and the holders say to each other while they count visits: `Begin`, `Agree`, where columns are
split `products.Swap` chunk by chunk, and one `Count`.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from understudy.protocols.core import Assembly, Paid, Public, Reply
from understudy.protocols.core.keyed import Greeted, Keys, Stated
from understudy.protocols.core.products import Delivery


@dataclass(frozen=True, kw_only=True)
class Begin(Assembly, kind="visits.begin"):
    """Every party's schema, and the settings."""


@dataclass(frozen=True, kw_only=True)
class Begun(Stated, kind="visits.begun"):
    """The noise multiplier that this party's budget needs, its public key of the run, and how many people it shares.

    `people`: None over rows.
    """

    multiplier: Public
    people: Public


@dataclass(frozen=True, kw_only=True)
class Agree(Keys, kind="visits.agree"):
    """Who takes part, with which keys and noise, how messages are cut, and the seeds of this party's masks.

    `chunk`: people per message. `cells`: where columns are split, this party's people in their order, as [number, the
    other holders of them]; `seeds` are by these.
    """

    multiplier: float
    seeds: dict[str, bytes]
    chunk: int
    cells: list[list[Any]]


@dataclass(frozen=True, kw_only=True)
class Agreed(Greeted, kind="visits.agreed"):
    """The fingerprint of all keys as this party was told them, and a sealed greeting for every other party."""


@dataclass(frozen=True, kw_only=True)
class Count(Delivery, kind="visits.count"):
    """Release the tables. With it come the others' last messages and corrections, or over rows their greetings."""

    corrections: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Counted(Reply, kind="visits.counted"):
    """This party's tables with its share of noise, under pads where others have a part in them, too.

    `shared`: where columns are split its parts of those with each other group of holders, by the place of both groups
    among all pairs of them (`Grid.blocks`).
    """

    cells: Paid
    shared: Paid
