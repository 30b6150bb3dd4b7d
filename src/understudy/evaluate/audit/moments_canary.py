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
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.described import ArraySchema
from understudy.data.encoding.frame import Frame
from understudy.data.kinds import kind_of
from understudy.evaluate.audit.auditing import SERVER, Case
from understudy.evaluate.audit.canaries import UNREAD
from understudy.ground.errors import ConfigError
from understudy.models.moments.released import bins_of
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure.moments import Crowd, noise_for
from understudy.protocols.core import Ask, Parties, Party, Reply
from understudy.protocols.moments import protocol as moments
from understudy.protocols.moments.messages import Begin
from understudy.protocols.moments.party import labels_of
from understudy.protocols.moments.releases import Released, Server, release
from understudy.protocols.moments.rows import Rows
from understudy.protocols.moments.stages import Stage, releases


@dataclass(frozen=True)
class _Listening(Server):
    """A server that remembers what each release was of, and what it added up to."""

    heard: list[tuple[Stage, Tensor, float]] = field(default_factory=list)

    def _sum(self, done: Released, asks: Mapping[str, Ask], stage: Stage) -> Tensor:
        total = super()._sum(done, asks, stage)
        sigma = noise_for(done.multipliers[done.made], self.most_holders * stage.reach)
        self.heard.append((stage, total, sigma))
        return total


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
        frame = Frame.declared(self.schema, self.config.features, upright=self.config.upright)
        labels = labels_of(self.schema)
        everybody = kind_of(self.schema).made_up(self.schema, self.people)
        codes = np.zeros(self.people, dtype=np.int64) if everybody.classes is None else everybody.classes
        canary, others = (
            Rows(
                frame.coefficients(everybody.values[here]),
                frame.histograms(everybody.values[here], bins_of(frame)),
                codes[here],
                Crowd.of(np.arange(len(range(self.people)[here]) + 1)),
            )
            for here in (slice(0, 1), slice(1, None))
        )
        heard: list[tuple[Stage, Tensor, float]] = []

        def train(parties: Parties) -> object:
            due = releases(self.config.norms, self.config.shares[2])
            server = _Listening(parties, frame, labels, due, 1, self.config.colluding, self.config.bits)
            begin = Begin(config=asdict(self.config), schemas={self.target: self.schema.to_dict()})
            found = release(server, begin)
            heard[:] = server.heard
            return found

        def score(party: Any, replies: list[Reply]) -> float:
            found = 0.0
            for stage, total, sigma in heard:
                own, rest = (stage.count(rows).double() for rows in (canary, others))
                weights = torch.where(stage.diagonal, 0.5, 1.0) / sigma**2
                found += float(((total.double() - rest - own / 2) * own * weights).sum())
            return found

        return Case(
            target=self.target,
            parties=lambda present, trial: {self.target: self._party(present, trial)},
            train=train,
            scores={f"{SERVER}, by what the canary would add": score},
            notes=(f"moments, {self.people} people", UNREAD),
        )

    def _party(self, present: bool, seed: int) -> Party:
        return moments.build_party(
            self.target,
            kind_of(self.schema)
            .made_up(self.schema, self.people)
            .take(range(0 if present else 1, self.people)),
            Ledger.rehearsal(holder=self.target, budget=self.budget),
            run="audit",
            budget=self.budget,
            rng=SecureRng.from_seed(seed),
        )


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
