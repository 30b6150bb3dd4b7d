"""A case for the audit of gram: one person whom no other resembles, looked for in all that is released.

Everybody has the first level in every column and the canary the last. The adversary sees what the server puts together,
and knows everybody but the canary: it takes from each cell of the canary (in the matrix, and where levels are bought in
the trees of the fine tables) how many others are there, which leaves 1 or 0, and noise, and sums these, each by
1/variance: the logarithm of the likelihood ratio, but for a constant, and so the best test there is (Neyman, Pearson
1933). Levels are chosen from the fine tables, so nothing is learned from which they are.

Guarantee: parties, `train`'s measurement and ledgers are the real ones, and no real row is read.
Edges: across holders the server faces the noise of two of them, and less than the claim is lost to it there. The fit
is left out: it is post-processing. So are refined pairs, whose choice is: their budget goes into the others.
Where the number of people is disclosed (columns), it differs by one between the worlds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from understudy.data.encoding.codec import Codec
from understudy.data.encoding.levels import Levels
from understudy.data.kinds import TABLE
from understudy.data.schema import Schema
from understudy.evaluate.audit.auditing import SERVER, Case
from understudy.evaluate.audit.canaries import UNREAD
from understudy.ground.errors import ConfigError
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
        layout = Layout(schemas, fine=self.config.fine > 0)
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
            plan = replace(self.config, refined=0).plan
            found = release(parties, schemas, plan, **terms)  # type: ignore[arg-type]
            released[:] = [found]
            return found

        frames = [TABLE.made_up(schemas[name], self.people).frame for name in self._canary_first(schemas)]
        everyone = pd.concat(frames, axis="index" if rows else "columns", ignore_index=rows)

        def score(party: Any, replies: list[Reply]) -> float:
            return _evidence(released[0], layout, everyone[list(layout.joint.names)])

        return Case(
            target=self.target,
            parties=parties,
            train=train,
            scores={f"{SERVER}, by the canary's cells": score},
            notes=(f"gram over {layout.grid.partition}, {self.people} people each", UNREAD),
        )

    def _canary_first(self, names: Iterable[str]) -> list[str]:
        """The target, whose first row is the canary, and the others in their order."""
        return sorted(names, key=lambda name: name != self.target)

    def _party(self, name: str, schema: Schema, present: bool, seed: int) -> GramParty:
        table = TABLE.made_up(schema, self.people)
        return GramParty(
            name,
            table.take(np.arange(0 if present else 1, self.people)),
            Ledger.rehearsal(holder=name, budget=self.budgets[name]),
            run="audit",
            budget=self.budgets[name],
            rng=SecureRng.from_seed(seed),
        )


def _evidence(found: Released, layout: Layout, everyone: pd.DataFrame) -> float:
    """What the cells of the canary, who is the first of everyone, hold beside all others, by 1/variance."""
    codec = Levels.from_tensors(layout.joint, found.levels) if found.levels else Codec(layout.joint)
    codes = codec.codes(everyone)
    alike = torch.from_numpy(codes[1:] == codes[0]).double()
    cells = torch.tensor([block.start for block in codec.blocks]) + torch.from_numpy(codes[0])
    counts, noise = (matrix[cells][:, cells].double() for matrix in (found.gram, found.noise))
    pairs = ((counts - alike.T @ alike) / noise.square()).triu(1 if found.levels else 0).sum()
    return float(pairs) + (_fine_evidence(found, layout, everyone) if found.levels else 0.0)


def _fine_evidence(found: Released, layout: Layout, everyone: pd.DataFrame) -> float:
    """The same of the trees of the fine tables, as they were released."""
    released, deviations = found.kept["fine.counts"].double(), iter(found.kept["fine.deviation"].tolist())
    evidence, start = 0.0, 0
    for trees in layout.trees:
        cells = trees.cells(everyone[list(trees.schema.names)])
        one, others = (trees.count(part).double() for part in (cells[:1], cells[1:]))
        noise = torch.cat(
            [torch.full((size,), next(deviations), dtype=torch.float64) for size in trees.sizes]
        )
        nodes = released[start : start + len(one)]
        evidence += float((one * (nodes - others) / noise.square()).sum())
        start += len(one)
    return evidence
