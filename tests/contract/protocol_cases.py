"""Small cases of every protocol. A new protocol adds one entry here and gets the whole contract."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pandas as pd

from understudy.data.partition import overlap_people
from understudy.data.samples import toy
from understudy.data.schema import Schema
from understudy.privacy.budget import Budget
from understudy.protocols import verti_gan
from understudy.run import Federation

BUDGET = Budget(epsilon=3.0, delta=1e-5)


def vertical(parties: int) -> tuple[dict[str, pd.DataFrame], dict[str, Schema]]:
    """A toy table cut into columns, held by parties with partly the same people."""
    frame, schema = toy(rows=60, seed=3)
    names = [f"holder {number}" for number in range(parties)]
    columns = {
        name: [c for i, c in enumerate(schema.names) if i % parties == n] for n, name in enumerate(names)
    }
    rows = overlap_people(frame, "id", dict.fromkeys(names, 0.9), seed=5)
    tables = {name: frame.loc[rows[name], ["id", *columns[name]]].reset_index(drop=True) for name in names}
    return tables, {name: schema.select(columns[name]) for name in names}


@dataclass(frozen=True)
class Case:
    """One protocol with settings that finish in a second."""

    name: str
    protocol: str
    module: ModuleType
    settings: Mapping[str, Any]
    data: Callable[[], tuple[dict[str, pd.DataFrame], dict[str, Schema]]]
    budget: Budget = BUDGET
    against: tuple[str, ...] = field(default=("outsider", "anyone"))

    def federation(self, seed: int | None = 11, budget: Budget | None = None) -> Federation:
        """A fresh rehearsal."""
        tables, schemas = self.data()
        return Federation.rehearsal(tables, schemas, budget=budget or self.budget, seed=seed)

    def config(self) -> Any:
        return self.module.Config(**self.settings)


SMALL = {"rounds": 3, "critic_steps": 2, "batch": 16, "device": "cpu"}
CASES = [
    Case("VertiGAN, two parties", "verti-gan", verti_gan, SMALL, lambda: vertical(2)),
    Case(
        "VertiGAN, three parties, deep critic, sparse upload", "verti-gan", verti_gan,
        SMALL | {"upload": 0.25, "critic_hidden": (6, 4)}, lambda: vertical(3),
    ),
    Case(
        "VertiGAN, shared batches, outsider's budget", "verti-gan", verti_gan, SMALL | {"sampling": "shared"},
        lambda: vertical(2), Budget(epsilon=3.0, delta=1e-5, against="outsider"), ("outsider",),
    ),
    Case(
        "VertiGAN, shared batches, anyone's budget", "verti-gan", verti_gan, SMALL | {"sampling": "shared"},
        lambda: vertical(2), BUDGET, ("anyone",),
    ),
]  # fmt: skip
