"""Central GAN: one holder has all columns, and one critic sees them together.

The reference that VertiGAN (`protocol`) is held against: generator, private critic
steps, accounting and messages are the same, so that what differs is what the split
between parties costs. `private=False` is the "fully centralised setting" of Jiang et
al., "VertiGAN" (PoPETs 2023(2)), §6.2 and Table 4, without a guarantee.
Guarantee: (ε, δ)-DP for a person with all columns, since one party holds them all.
Edges: two parties or more, whose columns one critic cannot see → ConfigError, nothing
is charged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from understudy.data.kinds import AnySchema, Rows
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core import Parties
from understudy.protocols.core.alignment import ROW_NUMBER, SharedPositions
from understudy.protocols.core.loop import Outcome
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.protocols.papers.verti_gan.party import VertiGanParty
from understudy.protocols.protocol import Protocol


@dataclass(frozen=True, kw_only=True)
class Config(verti_gan.Config):
    protocol: ClassVar[str] = "central-gan"


class CentralParty(VertiGanParty):
    """The one holder. Its people need not be matched with anybody's, so no id is
    masked.
    """

    config_type = Config

    def __init__(self, name: str, table: Rows, ledger: Ledger, **more: Any) -> None:
        super().__init__(name, table, ledger, **more)
        self.ids = ROW_NUMBER


def train(
    config: Config, parties: Parties, schemas: Mapping[str, AnySchema], **more: Any
) -> Outcome:
    """Train one generator on the one party's columns, as `verti_gan.train` does on
    several parties'.
    """
    if len(parties.names) != 1:
        raise ConfigError(
            "central-gan is for one party that holds all columns, not for "
            f"{len(parties.names)}: take verti-gan.",
            effect=Effect.NOTHING_CHARGED,
        )
    return verti_gan.train(
        config,
        parties,
        schemas,
        align=lambda parties: parties.ask(SharedPositions(positions=None)),
        **more,
    )


PROTOCOL = Protocol(
    name="central-gan",
    paper=__doc__,
    config=Config,
    party=CentralParty,
    train=train,
    same_people=True,
    kinds=("table", "series", "image"),
    audit="critic",
    spends=verti_gan.spends,
)
