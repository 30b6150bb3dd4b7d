"""A case for the audit of two aggregators: one person whom no other resembles, looked for by one of the two.

The server is the first aggregator, and the worst one: it knows everybody else, and leaves its own noise away. What it
then reads is the sum under the second aggregator's noise alone, which is what the price is for. The sum less what all
others add, along what the canary adds, each number by 1/variance, is the logarithm of the likelihood ratio but for a
constant, and so the best test there is (Neyman, Pearson 1933).

Rows are made up. In a table everybody has the first level of every column and the canary the last; of images and series
everybody has the middle value and the first class, and the canary the upper bound and the last class.

Guarantee: hosts, the second aggregator, the check of shares and ledgers are the real ones, and no real row is read.
Edges: of several hosts one alone has the canary: the others' people are all alike. That there is one upload more is
public, and not looked at. The fit is left out: it is post-processing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.described import NoRows
from understudy.data.encoding.codec import Codec
from understudy.data.kinds import kind_of
from understudy.evaluate.audit.auditing import SERVER, Case
from understudy.evaluate.audit.canaries import UNREAD
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import Rng, SecureRng
from understudy.privacy.secure.moments import bounded
from understudy.protocols.aggregators import moments, protocol
from understudy.protocols.aggregators.first import FirstAggregator
from understudy.protocols.aggregators.moments import MomentsPlan
from understudy.protocols.aggregators.terms import Settings
from understudy.protocols.core import Parties, Party, Reply
from understudy.protocols.protocol import Protocol


class _Tables(protocol.Plan):
    """As the server has it who adds no noise."""

    def noise(self, rng: Rng) -> Tensor:
        return torch.zeros(self.cells.count, dtype=torch.int64)

    def counted(self, rows: Any) -> Tensor:
        """What these rows add to the sum: (cells,)."""
        flat = np.zeros(self.cells.count)
        for codes in Codec(self.schema).codes(rows.frame):
            for one, other, table in self.cells.tables(flat):
                table[codes[one], 0 if one == other else codes[other]] += 1
        return torch.from_numpy(flat)


class _Moments(MomentsPlan):
    """As the server has it who adds no noise."""

    def noise(self, rng: Rng) -> Tensor:
        return torch.zeros(self.cells.count, dtype=torch.int64)

    def counted(self, rows: Any) -> Tensor:
        """What these rows add to the sum: (numbers,)."""
        q = bounded(self.frame.coefficients(rows.values), float(self.frame.reach), self.cells.radius)
        classes = np.zeros(len(q), np.int64) if rows.classes is None else rows.classes
        return torch.from_numpy(self.cells.counted(classes, q.astype(np.int64)).sum(0)) * self.weights


@dataclass(frozen=True, kw_only=True)
class AggregatorsAudit:
    """A run of `two-aggregators` or `shared-moments` in which each host has so many made-up people."""

    config: Settings
    schemas: Mapping[str, Any]
    budgets: Mapping[str, Budget]
    target: str
    people: int

    def case(self) -> Case:
        """One person there or not, searched by the server."""
        if self.people < 2:
            raise ConfigError("an audit of two aggregators needs two people. Nothing was audited.")
        config = replace(self.config, key="", least_people=1, at_least=None)
        tables = isinstance(config, protocol.Config)
        schemas = {
            name: replace(schema, person=None) if tables else schema for name, schema in self.schemas.items()
        }
        server: Any = _Tables.joint(config, schemas) if tables else _Moments.joint(config, schemas)
        own, rest = (
            server.counted(self._rows(schemas[self._host], there)).double()
            for there in (slice(0, 1), slice(1, None))
        )
        rest = rest * (len(schemas) - 1)  # every host has the same people beside the canary
        read: list[Tensor] = []

        def train(parties: Parties) -> object:
            found = FirstAggregator.open(server, parties, schemas).released()
            read[:] = [found["sums"]]  # type: ignore[list-item]
            return found

        weights = own / torch.from_numpy(server.scales) ** 2

        def score(party: Any, replies: list[Reply]) -> float:
            return float(((read[0].double() - rest - own / 2) * weights).sum())

        return Case(
            target=self.target,
            parties=lambda present, trial: {
                name: self._party(name, schemas[name], present, trial * len(schemas) + number)
                for number, name in enumerate(schemas)
            },
            train=train,
            scores={f"{SERVER}, its own noise left away": score},
            notes=(f"two aggregators, {self.people} people at each host", UNREAD),
        )

    @property
    def _host(self) -> str:
        """Where the canary is."""
        hosts = [name for name in self.schemas if name != self.config.aggregator]
        return self.target if self.target in hosts else hosts[0]

    def _rows(self, schema: Any, who: slice) -> Any:
        return kind_of(schema).made_up(schema, self.people).take(np.arange(self.people)[who])

    def _party(self, name: str, schema: Any, present: bool, seed: int) -> Party:
        of: Protocol = (protocol if isinstance(self.config, protocol.Config) else moments).PROTOCOL
        first = 0 if present and name == self._host else 1
        rows = NoRows(schema) if name == self.config.aggregator else self._rows(schema, slice(first, None))
        return of.build(
            name, rows, Ledger.rehearsal(holder=name, budget=self.budgets[name]), run="audit",
            budget=self.budgets[name], rng=SecureRng.from_seed(seed),
        )  # fmt: skip
