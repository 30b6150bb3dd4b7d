"""A case for the audit of any joint release: one person whom no other resembles, looked for in all its stages.

Everybody is alike but the canary, who differs in everything (`Kind.made_up`). The adversary sees what the server puts
together and knows everybody else. What the canary adds to a stage follows from the stage's terms, which the server
chose; the sums, less what all others add, along that, each by 1/variance, are the logarithm of the likelihood ratio but
for a constant, and so the best test there is (Neyman, Pearson 1933).

Guarantee: the party, the server's measurement and the ledger are the real ones, and no real row is read.
Edges: the target alone is audited: over rows the others' rows and noise only hide its person more, and where columns
are split a block of several holders has the noise of all. The fit is left out: it is post-processing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from understudy.data.kinds import kind_of
from understudy.evaluate.audit.auditing import SERVER, Case
from understudy.evaluate.audit.canaries import UNREAD
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import SecureRng
from understudy.protocols.core import Parties, Party, Reply
from understudy.protocols.joint.found import Found
from understudy.protocols.joint.party import JointParty
from understudy.protocols.joint.server import measure
from understudy.protocols.joint.stage import Holding, Study


@dataclass(frozen=True, kw_only=True)
class JointAudit:
    """A study at one party with so many made-up people."""

    study: type[Study[Any]]
    config: Any
    schema: Any
    budget: Budget
    target: str
    people: int

    def case(self) -> Case:
        """One person, with all rows, there or not, searched by whoever sees the released sums."""
        if not self.config.private:
            raise ConfigError("private = false claims no guarantee, so there is nothing to refute.")
        study = self.study(replace(self.config, most_holders=1), {self.target: self.schema})
        canary, others = (
            study.rows(Holding(self.target, self._rows(first, last), None, SecureRng))
            for first, last in ((0, 1), (1, self.people))
        )
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
            notes=(f"{study.family}, {self.people} people", UNREAD),
        )

    def _rows(self, first: int, last: int) -> Any:
        """These people; the canary is the first of all."""
        return kind_of(self.schema).made_up(self.schema, self.people).take(range(first, last))

    def _party(self, present: bool, seed: int) -> Party:
        return JointParty(
            self.study,
            self.target,
            self._rows(0 if present else 1, self.people),
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


def joint_case(
    study: type[Study[Any]],
    config: Any,
    schemas: Mapping[str, Any],
    budgets: Mapping[str, Budget],
    target: str,
    people: int,
) -> Case:
    """The case of this party of a run, whose rows can be counted alone. What the run would refuse is refused here."""
    study(config, schemas)
    try:
        study(replace(config, most_holders=1), {target: schemas[target]})
    except ConfigError as error:
        raise ConfigError(
            f"{target} alone cannot be audited: {error} Name another party. Nothing was audited."
        ) from None
    return JointAudit(
        study=study,
        config=config,
        schema=schemas[target],
        budget=budgets[target],
        target=target,
        people=people,
    ).case()
