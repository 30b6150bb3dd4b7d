"""A case for the audit of moments: one person whom no other resembles, looked for in all releases.

Everybody has rows of the middle value and the first class; the canary's are at the upper bound, of the last class. The
adversary sees what the server puts together and knows everybody else. What the canary adds to a release follows from
the release's means, radius and directions, which the server chose; the sums, less what all others add, along that,
each by 1/variance, are the logarithm of the likelihood ratio but for a constant, and so the best test there is (Neyman,
Pearson 1933).

Guarantee: parties, the server's measurement and ledgers are the real ones, and no real row is read.
Edges: of several parties the target alone is audited: the others' rows and noise only hide its person more. The fit is
left out: it is post-processing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from understudy.data.described import ArraySchema
from understudy.data.kinds import kind_of
from understudy.evaluate.audit.auditing import SERVER, Case
from understudy.evaluate.audit.canaries import UNREAD
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import SecureRng
from understudy.protocols.core import Parties, Party, Reply
from understudy.protocols.joint.found import Found
from understudy.protocols.joint.server import measure
from understudy.protocols.joint.stage import Holding
from understudy.protocols.moments import protocol as moments
from understudy.protocols.moments.study import Moments


@dataclass(frozen=True, kw_only=True)
class MomentsAudit:
    """Moments at one party with so many made-up people."""

    config: moments.Config
    schema: ArraySchema
    budget: Budget
    target: str
    people: int

    def case(self) -> Case:
        """One person there or not, searched by whoever sees the released sums."""
        if not self.config.private:
            raise ConfigError("private = false claims no guarantee, so there is nothing to refute.")
        study = Moments(self.config, {self.target: self.schema})
        everybody = kind_of(self.schema).made_up(self.schema, self.people)
        sides = [everybody.take(who) for who in (range(1), range(1, self.people))]
        canary, others = (study.rows(Holding(self.target, rows, None, SecureRng)) for rows in sides)
        heard: list[Found] = []

        def train(parties: Parties) -> object:
            heard[:] = [measure(study, parties)]
            return heard[0]

        def score(party: Any, replies: list[Reply]) -> float:
            return evidence(heard[0], canary, others)

        return Case(
            target=self.target,
            parties=lambda present, trial: {self.target: self._party(present, trial)},
            train=train,
            scores={f"{SERVER}, by what the canary would add": score},
            notes=(f"moments, {self.people} people", UNREAD),
        )

    def _party(self, present: bool, seed: int) -> Party:
        return moments.PROTOCOL.build(
            self.target,
            kind_of(self.schema)
            .made_up(self.schema, self.people)
            .take(range(0 if present else 1, self.people)),
            Ledger.rehearsal(holder=self.target, budget=self.budget),
            run="audit",
            budget=self.budget,
            rng=SecureRng.from_seed(seed),
        )


def evidence(found: Found, canary: Any, others: Any) -> float:
    """How much likelier what was found is with the canary's rows than without, as a logarithm."""
    total = 0.0
    for name in found:
        stage, noise = found.stage(name), found.deviations(name)
        own, rest = stage.count(canary), stage.count(others)
        for key, block in stage.blocks.items():
            more, less = own[key].double(), rest[key].double()
            halved = torch.zeros(block.shape) if block.diagonal is None else 0.5 * block.diagonal
            off = found.record.sums[name][key].double() - less - more / 2
            total += float((off * more * (1 - halved)).sum()) / noise[key] ** 2
    return total


def moments_case(
    config: moments.Config,
    schemas: Mapping[str, Any],
    budgets: Mapping[str, Budget],
    target: str,
    people: int,
) -> Case:
    """The case of this party of a run."""
    return MomentsAudit(
        config=config, schema=schemas[target], budget=budgets[target], target=target, people=people
    ).case()
