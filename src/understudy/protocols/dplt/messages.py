"""What the server and the holders say to each other while they grow a latent tree (`dplt`).

`Begin`, `Agree`, `Group` (step 1), `products.Swap` chunk by chunk, `Correlate` (step 2), `Quantify` (step 4).
"""

from dataclasses import dataclass

from torch import Tensor

from understudy.protocols.core import Ask, Assembly, Paid, Public, Reply
from understudy.protocols.core.keyed import Greeted, Keys, Stated
from understudy.protocols.core.products import Delivery


@dataclass(frozen=True, kw_only=True)
class Begin(Assembly, kind="dplt.begin"):
    """The run's settings, and every party's schema."""


@dataclass(frozen=True, kw_only=True)
class Begun(Stated, kind="dplt.begun"):
    """What this party's holder allows the run to cost, and its public key of the run."""

    people: Public


@dataclass(frozen=True, kw_only=True)
class Agree(Keys, kind="dplt.agree"):
    """Who takes part, with which keys; ε (None: infinity); how messages are cut; the seeds of this party's masks."""

    epsilon: float | None
    bits: int
    chunk: int
    seeds: dict[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Agreed(Greeted, kind="dplt.agreed"):
    """The fingerprint of all keys as this party was told them, and a sealed greeting for each other party."""


@dataclass(frozen=True, kw_only=True)
class Group(Delivery, kind="dplt.group"):
    """The others' greetings, which show that all were told the same: group your attributes."""


@dataclass(frozen=True, kw_only=True)
class Grouped(Reply, kind="dplt.grouped"):
    """The party's binary attributes in groups, the latent one first; for DPLT+ also its index, edges of latent ones."""

    groups: Paid
    index: Paid


@dataclass(frozen=True, kw_only=True)
class Correlate(Delivery, kind="dplt.correlate"):
    """The others' last messages, and the dealer's corrections: how do latent attributes depend on each other?"""

    corrections: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Quantify(Ask, kind="dplt.quantify"):
    """The tree, edges of latent attributes from the first outwards: what are its tables?"""

    edges: Tensor


@dataclass(frozen=True, kw_only=True)
class Tables(Reply, kind="dplt.tables"):
    """Noisy tables of the party's own latent attributes, of its leaves, and its blinded shares of those with others.

    Each is (pairs, 2, 2).
    """

    own: Paid
    leaves: Paid
    cross: Paid
