"""What the server and the holders say to each other while they count visits: `Begin`, `Agree`, and one `Count`."""

from dataclasses import dataclass

from understudy.protocols.core import Ask, Assembly, Paid, Public, Reply


@dataclass(frozen=True, kw_only=True)
class Begin(Assembly, kind="visits.begin"):
    """Every party's schema, which all are alike, and the settings."""


@dataclass(frozen=True, kw_only=True)
class Begun(Reply, kind="visits.begun"):
    """The noise multiplier that this party's budget needs, and its public key of the run."""

    multiplier: Public
    budget: Public
    noise: Public
    key: Public


@dataclass(frozen=True, kw_only=True)
class Agree(Ask, kind="visits.agree"):
    """Who takes part, with which keys, and the noise multiplier."""

    keys: dict[str, bytes]
    multiplier: float


@dataclass(frozen=True, kw_only=True)
class Agreed(Reply, kind="visits.agreed"):
    """The fingerprint of all keys as this party was told them; it is also in the ledger."""

    fingerprint: Public


@dataclass(frozen=True, kw_only=True)
class Count(Ask, kind="visits.count"):
    """Release the tables of people and of their events."""


@dataclass(frozen=True, kw_only=True)
class Counted(Reply, kind="visits.counted"):
    """This party's tables with its share of noise, under pads where others take part, too."""

    cells: Paid
