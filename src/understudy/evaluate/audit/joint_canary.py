"""A case for the audit of any joint release: one person whom no other resembles, looked for in all its stages.

Everybody is alike but the canary, who differs in everything (`Kind.made_up`). The adversary sees what the server puts
together and knows everybody else. What the canary adds to a stage follows from the stage's terms, which the server
chose; the sums, less what all others add, along that, each by 1/variance, are the logarithm of the likelihood ratio but
for a constant, and so the best test there is (Neyman, Pearson 1933).

Guarantee: parties, the server's measurement and ledgers are the real ones, and no real row is read.
Edges: over rows the target alone is audited: the others' rows and noise only hide its person more. Over columns the
canary is with all holders, and across them the server faces the noise of two; the number of people, which alignment
discloses, differs by one between the worlds. The fit is left out: it is post-processing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.grid import Block as Groups
from understudy.data.kinds import kind_of
from understudy.evaluate.audit.auditing import SERVER, Case
from understudy.evaluate.audit.canaries import UNREAD
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import SecureRng
from understudy.protocols.core import Parties, Party, Reply
from understudy.protocols.joint.found import Found
from understudy.protocols.joint.party import AlignedJointParty, JointParty
from understudy.protocols.joint.server import measure
from understudy.protocols.joint.stage import Holding, Study


@dataclass(frozen=True, kw_only=True)
class JointAudit:
    """A study of these parties with so many made-up people: one party over rows, all of them over columns.

    `stages`: those that are searched; none for all.
    """

    study: type[Study[Any]]
    config: Any
    schemas: Mapping[str, Any]
    budgets: Mapping[str, Budget]
    target: str
    people: int
    stages: tuple[str, ...] = ()

    def case(self) -> Case:
        """One person, with all rows, there or not, searched by whoever sees the released sums."""
        if not self.config.private:
            raise ConfigError("private = false claims no guarantee, so there is nothing to refute.")
        study = self.study(self.config, self.schemas)
        if study.grid.partition == "grid":
            raise ConfigError("an audit is of rows or of columns; a grid needs ids, and these are made up.")
        canary, others = (
            {name: study.rows(self._held(name, first, last)) for name in self.schemas}
            for first, last in ((0, 1), (1, self.people))
        )
        heard: list[Found] = []

        def train(parties: Parties) -> object:
            heard[:] = [measure(study, parties)]
            return heard[0]

        def score(party: Any, replies: list[Reply]) -> float:
            return evidence(heard[0], canary, others, self.people, self.stages)

        return Case(
            target=self.target,
            parties=lambda present, trial: {
                name: self._party(name, present, trial * len(self.schemas) + number)
                for number, name in enumerate(self.schemas)
            },
            train=train,
            scores={f"{SERVER}, by what the canary would add": score},
            notes=(f"{study.family} over {study.grid.partition}, {self.people} people", UNREAD),
        )

    def _rows(self, name: str, first: int, last: int) -> Any:
        """These people; the canary is the first of all."""
        schema = self.schemas[name]
        return kind_of(schema).made_up(schema, self.people).take(range(first, last))

    def _held(self, name: str, first: int, last: int) -> Holding:
        rows = self._rows(name, first, last)
        roster = kind_of(rows.schema).roster(rows, several=True).frame if len(self.schemas) > 1 else None
        return Holding(name, rows, roster, SecureRng)

    def _party(self, name: str, present: bool, seed: int) -> Party:
        kind = AlignedJointParty if len(self.schemas) > 1 else JointParty
        return kind(
            self.study,
            name,
            self._rows(name, 0 if present else 1, self.people),
            Ledger.rehearsal(holder=name, budget=self.budgets[name]),
            run="audit",
            budget=self.budgets[name],
            rng=SecureRng.from_seed(seed),
        )


def evidence(
    found: Found,
    canary: Mapping[str, Any],
    others: Mapping[str, Any],
    people: int,
    stages: Collection[str] = (),
) -> float:
    """How much likelier what was found (in these stages) is with the canary's rows than without, as a logarithm."""
    total = 0.0
    own_parts, rest_parts = _counted(found, canary, 1), _counted(found, others, people - 1)
    for name in stages or found:
        noise, own, rest = found.deviations(name), own_parts[name], rest_parts[name]
        for key, block in found.stage(name).blocks.items():
            more, less = own[key].double(), rest[key].double()
            halved = torch.zeros(block.shape) if block.diagonal is None else 0.5 * block.diagonal
            off = found.record.sums[name][key].double() - less - more / 2
            total += float((off * more * (1 - halved)).sum()) / noise[key] ** 2
    return total


def _counted(found: Found, rows: Mapping[str, Any], people: int) -> dict[str, dict[str, Tensor]]:
    """What these people add to every stage, without noise."""
    grid, counted = found.study.grid, dict[str, dict[str, Tensor]]()
    products: dict[str, dict[Groups, Tensor]] = {}
    for name in found:
        stage, parts = found.stage(name), dict[str, Tensor]()
        for own in rows.values():
            parts |= stage.count(own)
        if (product := stage.product) is not None:
            vectors = {
                grid.group_of(who): stage.vectors(own, 0, people).astype(np.int64)
                for who, own in rows.items()
                if grid.group_of(who) in product.widths
            }
            products[name] = {(g, h): torch.from_numpy(vectors[g].T @ vectors[h]) for g, h in product.pairs}
        counted[name] = parts | stage.across(products)
    return counted


def joint_case(
    study: type[Study[Any]],
    config: Any,
    schemas: Mapping[str, Any],
    budgets: Mapping[str, Budget],
    target: str,
    people: int,
    *,
    alone: bool = False,
) -> Case:
    """The case of this party of a run. What the run would refuse is refused here.

    `alone`: where columns are split, too, the target is audited as if it were the only holder.
    """
    whole = study(config, schemas)
    if alone or whole.grid.partition == "rows":
        if any(one.name == "most_holders" for one in fields(config)):
            config = replace(config, most_holders=1)
        schemas = {target: schemas[target]}
        try:
            study(config, schemas)
        except ConfigError as error:
            raise ConfigError(
                f"{target} alone cannot be audited: {error} Name another party. Nothing was audited."
            ) from None
    else:
        schemas = {name: replace(schema, person=None) for name, schema in schemas.items()}
    return JointAudit(
        study=study, config=config, schemas=schemas, budgets=budgets, target=target, people=people
    ).case()
