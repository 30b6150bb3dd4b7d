"""A case for the audit of gram: one person whom no other resembles, looked for in the released matrix.

Everybody has the first level in every column and the canary the last, so that the cells in which two last levels meet
hold the canary alone: 1 or 0, and noise. The adversary sees what the server puts together, and sums these cells, each
by 1/variance: the logarithm of the likelihood ratio, but for a constant, and so the best test there is (Neyman, Pearson
1933).

Guarantee: parties, `train`'s measurement and ledgers are the real ones, and no real row is read.
Edges: across holders the server faces the noise of two of them, and less than the claim is lost to it there. The fit
is left out: it is post-processing. So are refined pairs and levels that are bought, whose choice is: their budget goes
into the others, on levels as declared.
Where the number of people is disclosed (columns), it differs by one between the worlds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from understudy.data.schema import Schema
from understudy.errors import ConfigError
from understudy.evaluate.audit.auditing import SERVER, Case
from understudy.evaluate.audit.canaries import UNREAD, made_up
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import SecureRng
from understudy.protocols.core import Parties, Party, Reply
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.layout import Layout
from understudy.protocols.gram.party import GramParty
from understudy.protocols.gram.releases import Released, release


@dataclass(frozen=True, kw_only=True)
class GramAudit:
    """Gram over these parties, each with so many made-up people."""

    config: gram.Config
    schemas: Mapping[str, Schema]
    budgets: Mapping[str, Budget]
    target: str
    people: int

    def case(self) -> Case:
        """One person there or not, searched by whoever sees the released matrix."""
        if not self.config.private:
            raise ConfigError("private = false claims no guarantee, so there is nothing to refute.")
        schemas = {name: replace(schema, person=None) for name, schema in self.schemas.items()}
        layout = Layout(schemas)
        if layout.grid.partition == "grid":
            raise ConfigError("an audit is of rows or of columns; a grid needs ids, and these are made up.")
        rows = layout.grid.partition == "rows"
        released: list[Released] = []

        def parties(present: bool, trial: int) -> Mapping[str, Party]:
            return {
                name: self._party(name, schemas[name], present or (rows and name != self.target), seed)
                for seed, name in enumerate(schemas, trial * len(schemas))
            }

        def train(parties: Parties) -> object:
            terms = {"colluding": self.config.colluding, "at_least": self.config.at_least}
            plan = replace(self.config, refined=0, fine=0.0).plan
            found = release(parties, schemas, plan, **terms)  # type: ignore[arg-type]
            released[:] = [found]
            return found

        def score(party: Any, replies: list[Reply]) -> float:
            found, last = released[0], np.cumsum(layout.sizes) - 1
            cells = torch.from_numpy(last)
            counts, noise = (matrix[cells][:, cells].double() for matrix in (found.gram, found.noise))
            return float((counts / noise.square()).triu().sum())

        return Case(
            target=self.target,
            parties=parties,
            train=train,
            scores={f"{SERVER}, by the canary's cells": score},
            notes=(f"gram over {layout.grid.partition}, {self.people} people each", UNREAD),
        )

    def _party(self, name: str, schema: Schema, present: bool, seed: int) -> GramParty:
        table = made_up(schema, self.people)
        return gram.build_party(
            name,
            table.take(np.arange(0 if present else 1, self.people)),
            Ledger.rehearsal(holder=name, budget=self.budgets[name]),
            run="audit",
            budget=self.budgets[name],
            rng=SecureRng.from_seed(seed),
        )
