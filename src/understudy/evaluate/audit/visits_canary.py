"""A case for the audit of visits: one person whom no other resembles, with more events than count.

Everybody has the first level of every column and one event; the canary has the last levels, and events without end, all
alike and at one time: so its cells in a table are as long as they can be. The adversary sees what the server puts
together and knows everybody else. The cells, less what all others add, along what the canary adds, are the logarithm of
the likelihood ratio but for a constant, and so the best test there is (Neyman, Pearson 1933).

Guarantee: the party, the server's measurement and the ledger are the real ones, and no real row is read.
Edges: the target alone is audited: over rows the others' rows and noise only hide its person more, and over columns and
grids a table of several holders has the noise of all. There noise is that of fewer tables: the bound is of the same
rule. The fit is left out: it is post-processing.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from understudy.data.kinds import VISITS
from understudy.data.visits import VisitLayout, Visits, VisitSchema, count_visits
from understudy.evaluate.audit.auditing import SERVER, Case
from understudy.evaluate.audit.canaries import UNREAD
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import SecureRng
from understudy.protocols.core import Parties, Party, Reply
from understudy.protocols.visits import protocol as visits
from understudy.protocols.visits.messages import Begin
from understudy.protocols.visits.releases import Released, release
from understudy.protocols.visits.terms import Holders


@dataclass(frozen=True, kw_only=True)
class VisitsAudit:
    """Visits at one party with so many made-up people."""

    config: visits.Config
    schema: VisitSchema
    budget: Budget
    target: str
    people: int

    def case(self) -> Case:
        """One person, with all events, there or not, searched by whoever sees the released tables."""
        if not self.config.private:
            raise ConfigError("private = false claims no guarantee, so there is nothing to refute.")
        holders = Holders.of({self.target: self.schema})
        seen: list[Released] = []

        def train(parties: Parties) -> object:
            begin = Begin(
                config=asdict(self.config) | {"most_holders": 1}, schemas={self.target: self.schema.to_dict()}
            )
            seen[:] = [release(parties, holders, begin)]
            return seen[0]

        def score(party: Any, replies: list[Reply]) -> float:
            (done,) = seen
            own, rest = (
                count_visits(
                    self._rows(first, last).codes(SecureRng.from_seed(0)),
                    VisitLayout.of(self.schema),
                    done.unit,
                )
                for first, last in ((0, 1), (1, self.people))
            )
            left = done.cells.numpy() - rest - own / 2
            return float((left * own).sum()) / float(done.noise[0]) ** 2

        return Case(
            target=self.target,
            parties=lambda present, trial: {self.target: self._party(present, trial)},
            train=train,
            scores={f"{SERVER}, by what the canary would add": score},
            notes=(f"visits, {self.people} people, one with more events than count", UNREAD),
        )

    def _rows(self, first: int, last: int) -> Visits:
        """These people; the canary is the first of all."""
        return VISITS.made_up(self.schema, self.people).take(np.arange(first, last))

    def _party(self, present: bool, seed: int) -> Party:
        return visits.PROTOCOL.build(
            self.target,
            self._rows(0 if present else 1, self.people),
            Ledger.rehearsal(holder=self.target, budget=self.budget),
            run="audit",
            budget=self.budget,
            rng=SecureRng.from_seed(seed),
        )


def visits_case(
    config: visits.Config,
    schemas: Mapping[str, Any],
    budgets: Mapping[str, Budget],
    target: str,
    people: int,
) -> Case:
    """The case of this party of a run, which has events."""
    Holders.of(schemas)
    schema = schemas[target]
    if not VISITS.describes(schema):
        raise ConfigError(
            f"{target} has a table, and an audit of visits is of the party with the events. Nothing was audited."
        )
    return VisitsAudit(
        config=config, schema=schema, budget=budgets[target], target=target, people=people
    ).case()
