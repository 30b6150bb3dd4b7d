"""What the server and the holders say to each other: `Begin`, `Agree`, `Means`, and then, once for all second moments
and once for those by class, `Measure`, `products.Swap` chunk by chunk, and `Share`.
"""

import hashlib
import json
from dataclasses import dataclass

from torch import Tensor

from understudy.protocols.core import Ask, Assembly, Paid, Public, Reply
from understudy.protocols.core.keyed import Greeted, Keys, Stated
from understudy.protocols.core.products import Delivery


@dataclass(frozen=True, kw_only=True)
class Begin(Assembly, kind="tied.begin"):
    """Every party's schema, and the settings, which say what is to be released."""


@dataclass(frozen=True, kw_only=True)
class Begun(Stated, kind="tied.begun"):
    """The noise multiplier that this party's budget needs in each release, and its public key of the run."""

    people: Public
    multipliers: Public


@dataclass(frozen=True, kw_only=True)
class Agree(Keys, kind="tied.agree"):
    """Who takes part, with which keys, the noise multiplier of each release, and how products are made."""

    multipliers: list[float]
    bits: int
    chunk: int


@dataclass(frozen=True, kw_only=True)
class Agreed(Greeted, kind="tied.agreed"):
    """The fingerprint of all keys as this party was told them, and a sealed greeting for every other party."""


@dataclass(frozen=True, kw_only=True)
class Means(Delivery, kind="tied.means"):
    """Release the mean, the energy and the histograms of your images or series.

    Where a bound on norms is bought, also how long they are. `inbox`: the others' greetings.
    """


@dataclass(frozen=True, kw_only=True)
class Summed(Reply, kind="tied.summed"):
    """This party's sums with its noise; nothing of a table."""

    sums: Paid


@dataclass(frozen=True, kw_only=True)
class Measure(Ask, kind="tied.measure"):
    """Make your people's vectors for the next release, and masks for products with others from these seeds.

    Of images and series: about `centre`, (features,), pulled in to `radius`; by class in the subspace of `basis`,
    (features, directions). `widths`: by class, how long the others' vectors are.
    """

    centre: Tensor | None
    radius: int
    basis: Tensor | None
    seeds: dict[str, bytes]
    widths: dict[str, int]


def what_is_measured(release: int, *, centre: Tensor | None, radius: int, basis: Tensor | None) -> bytes:
    """What a holder's vectors of a release follow from besides its rows: masks are for these alone (`mask_seed`)."""
    parts = [[] if part is None else part.tolist() for part in (centre, basis)]
    return hashlib.sha256(json.dumps([release, radius, *parts]).encode()).digest()


@dataclass(frozen=True, kw_only=True)
class Measured(Reply, kind="tied.measured"):
    """How long this party's vectors are."""

    width: Public


@dataclass(frozen=True, kw_only=True)
class Share(Delivery, kind="tied.share"):
    """Release. The others' last messages, and the dealer's corrections."""

    corrections: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Shared(Reply, kind="tied.shared"):
    """This party's noisy part of every block that it has one in, by the block's number, blinded where it is of two."""

    blocks: Paid
