"""What holders bring to a run, opened: tables, series and images read by their schemas, or people from arrays.

With the same people at every holder (columns are split) a person has one row, and no two holders the same
column. With different people at each (rows are split) a person may have several rows.

Guarantee: whatever comes from here fits its public schema; nothing was charged.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from understudy.data.arrays import ArrayTable
from understudy.data.described import AnyRows, ArraySchema, NoRows, PublicSchema, Rows
from understudy.data.encoding.features import Features
from understudy.data.encoding.population import Population
from understudy.data.kinds import ARRAYS, FLAT, TABLE, VISITS, Family, load_schema, read_rows, side_by_side
from understudy.data.kinds.brought import distinct
from understudy.data.reading.files import Source
from understudy.data.table import read_table
from understudy.data.visits import TwoSources, Visits, VisitSchema
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget

# A DataFrame or a path, or two of them; rows with their description in them; or nothing, at an aggregator.
Held = Source | TwoSources | Population | ArrayTable[Any] | Visits | NoRows
Opened = AnyRows | Population | NoRows
# Rows that were read before, by a description that is in them.
_READ: Family[ArraySchema | VisitSchema, ArrayTable[Any] | Visits] = Family(
    ArraySchema | VisitSchema, ArrayTable | Visits
)


def open_held(
    held: Mapping[str, Held], schemas: Mapping[str, PublicSchema | str | Path], *, same_people: bool
) -> dict[str, Opened]:
    """Each holder's rows, checked. Arrays have their public description in them and need no schema."""
    tables = {
        name: source
        for name, source in held.items()
        if not isinstance(source, Population | NoRows) and not _READ.holds(source)
    }
    if missing := sorted(tables.keys() - schemas.keys()):
        raise ConfigError(f"{missing[0]} has no schema. Nothing was read or charged.")
    public = loaded({name: schemas[name] for name in tables})
    if same_people and (flat := FLAT.among(public)):
        side_by_side(distinct(flat))
    opened: dict[str, Opened] = {}
    for name, source in held.items():
        if isinstance(source, Population | NoRows):
            opened[name] = source
            continue
        title = name if isinstance(source, pd.DataFrame) else None
        table = opened[name] = (
            source
            if _READ.holds(source)
            else read_rows(source, public[name], name=title, one_row_each=same_people)
        )
        if same_people and table.rows < 2:
            raise ConfigError(
                f"{table.source} has one row, and nobody can hide among one. {name} was not charged."
            )
    return opened


def loaded(schemas: Mapping[str, PublicSchema | str | Path]) -> dict[str, PublicSchema]:
    """The schemas, read where they are paths."""
    return {n: load_schema(one) if isinstance(one, str | Path) else one for n, one in schemas.items()}


def open_holdout(holdout: Held, described: PublicSchema | Features, target: str | None) -> Population:
    """Public rows to test on, read as the parties read theirs; each row stands for itself."""
    if isinstance(holdout, Population):
        return holdout
    if (
        _READ.holds(holdout)
        or isinstance(holdout, NoRows | Mapping)
        or not (TABLE.describes(described) and target)
    ):
        raise ConfigError("holdout must be a population, as the parties' rows are. Nothing was charged.")
    return Population.from_table(read_table(holdout, replace(described, person=None)), target)


def open_public(public: Held, described: PublicSchema | Features) -> Rows:
    """Public rows to begin from, read as the parties read theirs; each row stands for itself."""
    if ARRAYS.holds(public):
        return public
    if (
        isinstance(public, Population | NoRows | Mapping)
        or VISITS.holds(public)
        or not FLAT.describes(described)
    ):
        raise ConfigError("public rows are a table, series or images by a schema. Nothing was charged.")
    return read_rows(public, replace(described, person=None), one_row_each=False)


def has_population(held: Mapping[str, object]) -> bool:
    """Whether some holder brings people from arrays, who are nobody else's."""
    return any(isinstance(source, Population) for source in held.values())


def description(held: Opened) -> PublicSchema | Features:
    """What is public about a holder's rows."""
    return held.features if isinstance(held, Population) else held.schema


def budgets(
    budget: Budget | float | Mapping[str, Budget | float], held: Mapping[str, object]
) -> dict[str, Budget]:
    """A budget for each holder; a number is an ε, at the usual δ."""
    if not isinstance(budget, Mapping):
        return dict.fromkeys(held, Budget.of(budget))
    if missing := sorted(held.keys() - budget.keys()):
        raise ConfigError(f"{missing[0]} has no budget. Nothing was read or charged.")
    return {name: Budget.of(budget[name]) for name in held}
