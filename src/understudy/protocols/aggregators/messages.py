"""What the server, who is the first aggregator, says to hosts of people and to the second aggregator.

`Open` to the second, `Begin` to the hosts with its key; batch by batch `Upload` to the hosts, `Take` and `Check` to the
second; `Release` to it, once.
"""

from dataclasses import dataclass

from torch import Tensor

from understudy.protocols.core import Ask, Assembly, Paid, Public, Reply
from understudy.protocols.people.host import Call


@dataclass(frozen=True, kw_only=True)
class Open(Assembly, kind="aggregators.open"):
    """The run's settings and every party's schema, for the second aggregator."""


@dataclass(frozen=True, kw_only=True)
class Opened(Reply, kind="aggregators.opened"):
    """The second aggregator's public key of the run, what it allows, and whose noise it adds."""

    key: Public
    budget: Public
    noise: Public


@dataclass(frozen=True, kw_only=True)
class Begin(Assembly, kind="aggregators.begin"):
    """The run's settings, every party's schema, and the key that the second aggregator's part is to be sealed to."""

    key: bytes


@dataclass(frozen=True, kw_only=True)
class Upload(Call, kind="aggregators.upload"):
    """Which of the party's people are to upload their tables, in two shares: their places, (n,)."""


@dataclass(frozen=True, kw_only=True)
class Take(Ask, kind="aggregators.take"):
    """A batch of uploads, as far as they are for the second aggregator: bytes, (n, size)."""

    batch: int
    uploads: Tensor


@dataclass(frozen=True, kw_only=True)
class Taken(Reply, kind="aggregators.taken"):
    """What the second aggregator drew for the check, which uploads it could open, and its Z and Y of all."""

    coin: Public
    opened: Public
    z: Public
    y: Public


@dataclass(frozen=True, kw_only=True)
class Check(Ask, kind="aggregators.check"):
    """The first aggregator's Z, Y and share of σ for every upload of the batch."""

    batch: int
    z: Tensor
    y: Tensor
    sigma: Tensor


@dataclass(frozen=True, kw_only=True)
class Checked(Reply, kind="aggregators.checked"):
    """The second aggregator's share of σ, by which both know who passes."""

    sigma: Public


@dataclass(frozen=True, kw_only=True)
class Release(Ask, kind="aggregators.release"):
    """Release the sum over all who passed: so many people, and the mark of who they are."""

    people: int
    mark: bytes


@dataclass(frozen=True, kw_only=True)
class Released(Reply, kind="aggregators.released"):
    """The second aggregator's share of the sum, with its noise."""

    sums: Paid
