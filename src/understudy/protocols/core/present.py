"""The parties that are still there: a protocol over rows continues without one that stays away.

    parties = Present(parties, config.at_least)
    replies = parties.ask(asks)      # of those who are there
    parties.gone                     # {"b": {"rounds": 3, "at": "2026-11-15T09:40:12+00:00"}}

Where every person is with one party, an absence touches neither what the others' people report nor what it costs them.
Who has missed an ask is asked nothing more in this run, also after a restart: it has not kept the rounds since.

Guarantee: a party is left out only when it is away (the runtime's word), never for what it says: a refusal is raised.
Edges: without `at_least` all have to stay, until all has been said. Fewer left than `at_least` → PartyAway; what was
saved stays, and the run can be resumed. What a party that is gone has charged stands in its own ledger; who states a
price for it counts all that it was asked.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError
from understudy.protocols.core.base import Ask, Parties


class Present:
    """`Parties` without those who went away. `round` is how many rounds are done, for the record."""

    def __init__(self, parties: Parties, at_least: int | None) -> None:
        if at_least is not None:
            whole(at_least=at_least)
            if at_least > len(parties.names):
                raise ConfigError(
                    f"at_least={at_least}, and there are {len(parties.names)} parties. Nothing was charged."
                )
        self.parties, self.at_least, self.round = parties, at_least, 0
        self.gone: dict[str, dict[str, Any]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Those who are still there, in order."""
        return tuple(name for name in self.parties.names if name not in self.gone)

    def ask(self, message: Ask | Mapping[str, Ask], *, at_least: int | None = None) -> dict[str, Any]:
        """Ask those who are still there; who does not answer in time is gone from then on.

        `at_least`: of the asked, so many suffice this once; 0 where all that matters has been said, as at a run's end.
        """
        asks = dict.fromkeys(self.names, message) if isinstance(message, Ask) else dict(message)
        asks = {name: ask for name, ask in asks.items() if name not in self.gone}
        if at_least is None:
            if self.at_least is None:
                return self.parties.ask(asks)
            at_least = max(0, len(asks) - (len(self.names) - self.at_least))
        replies = self.parties.ask(asks, at_least=at_least)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self.gone |= {name: {"rounds": self.round, "at": at} for name in asks if name not in replies}
        return replies


def remarks(gone: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """What a privacy statement says of those who went away."""
    return tuple(
        f"what {name} has charged in its own ledger: it went away after {note['rounds']} rounds, and its price here "
        "counts all that it was asked"
        for name, note in gone.items()
    )
