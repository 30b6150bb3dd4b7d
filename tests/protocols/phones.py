"""People with rows of their own, hosted by one rehearsing party: where the tests of
autoencoders begin.
"""

import math
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from understudy.api.train import train
from understudy.data.encoding.population import Population
from understudy.data.samples import toy
from understudy.data.schema import Boolean, Categorical, Schema
from understudy.ground.errors import ConfigError, SchemaError
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.core.common_rule import common_rule
from understudy.protocols.cross_device.host import BeginTraining
from understudy.runs.federation import Federation
from understudy.runs.result import Result

FREE = Budget(math.inf, 0.0)


def of(
    table: Any, schema: Any = None, *, budget: Budget = FREE, seed: int = 1
) -> Federation:
    schemas = {} if schema is None else {"phones": schema}
    return Federation.rehearsal(
        {"phones": table}, schemas, budget=budget, seed=seed, same_people=False
    )


def uneven() -> tuple[pd.DataFrame, Schema]:
    """Fifteen people with one to seven rows each."""
    frame, schema = toy(rows=60, seed=3)
    schema = schema.drop(["treated", "visits", "joined"])
    frame = frame[["id", *schema.names]]
    return frame.assign(
        id=np.repeat(np.arange(15), [1, 2, 3, 4, 5, 6, 7] * 2 + [4])
    ), schema


def begun(
    protocol: str, module: ModuleType, federation: Federation, settings: dict[str, Any]
) -> Any:
    """The party of a federation, which has begun."""
    (party,) = federation.parties(protocol, run="r").values()
    config = module.Config(**settings)
    network = config.network_for(common_rule(federation.schemas))
    party.answer(BeginTraining(config=vars(config), network=network.describe()))
    return party


def check_participations(
    federation: Federation, result: Result, *, reports: int, max_reports: int
) -> None:
    """At ε = 2 a report, of fifteen people: the ledger holds each one, nobody is asked
    beyond `max_reports`.
    """
    ledger = federation.holders["phones"].ledger
    said = result.generator.card["reports"]
    spends = [ledger.spend(person).get(PureDp(2.0), 0) for person in range(15)]
    assert sum(spends) == said["all"] == reports
    assert max(spends) == said["of the busiest person"] <= max_reports
    assert result.privacy.epsilon() == 2.0 * max(spends) == ledger.spent()


def uncharged(federation: Federation) -> bool:
    return not any(
        entry.count for entry in federation.holders["phones"].ledger.entries()
    )


def of_two_kinds(
    kind: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[pd.DataFrame, Schema]:
    """People with two rows each: of the one kind six columns are mostly true and the
    letter is a; of the other, c.
    """
    flips = rng.random((len(kind), 6)) < 0.03
    columns = {f"x{j}": kind ^ flips[:, j] for j in range(6)}
    frame = pd.DataFrame(
        columns | {"letter": np.where(kind, "a", "c"), "who": np.arange(len(kind)) // 2}
    )
    letters = Categorical(name="letter", categories=("a", "b", "c"))
    return frame, Schema(
        columns=(*(Boolean(name=name) for name in columns), letters), person="who"
    )


def likeness(drawn: pd.DataFrame) -> float:
    """How often a drawn row is of one of the two kinds, in its letter and all six
    columns but one.
    """
    ones = drawn.filter(like="x").sum(1)
    good = ((drawn["letter"] == "a") & (ones >= 5)) | (
        (drawn["letter"] == "c") & (ones <= 1)
    )
    return float(good.mean())


def refuses_other_rows(
    protocol: str,
    party: Any,
    begin: Any,
    table: tuple[pd.DataFrame, Schema],
    **settings: Any,
) -> None:
    """Parties whose columns differ, a beginning with another schema than the party's,
    and arrays are refused by a protocol of tables.
    """
    frame, schema = table
    fewer = schema.drop(["age"])
    fed = Federation.rehearsal(
        {"a": frame, "b": frame},
        {"a": schema, "b": fewer},
        budget=Budget(8.0, 0.0),
        same_people=False,
    )
    with pytest.raises(ConfigError, match="do not describe their rows in the same way"):
        train(protocol, fed, **settings)
    with pytest.raises(SchemaError, match="another schema"):
        party.answer(begin(config={}, schema=fewer.to_dict()))
    people = Population.from_arrays(torch.zeros(4, 2), torch.zeros(4), classes=2)
    arrays = Federation.rehearsal({"a": people}, budget=Budget(8.0, 0.0))
    with pytest.raises(ConfigError, match="for tables"):
        train(protocol, arrays, **settings)
