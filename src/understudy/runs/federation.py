"""Holders in one process: their rows, opened, their ledgers, and what a run may cost
them.

    holders = {"clinic": clinic, "insurer": insurer}
    federation = Federation(holders, schemas, budget=Budget(epsilon=2, delta=1e-6))

A federation's ledgers are real files unless it is a rehearsal; seeds are for rehearsals
alone. With the same people at every holder (columns are split) a person has one row,
and no two holders the same column.

Guarantee: rows that were opened here fit their public schema; nothing was charged for
it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from understudy.data import kinds
from understudy.data.arrays import ArrayTable
from understudy.data.encoding.features import Features
from understudy.data.encoding.population import Population
from understudy.data.kinds import (
    FLAT,
    TABLE,
    VISITS,
    ArraySchema,
    NoRows,
    PublicSchema,
    load_schema,
    read_rows,
)
from understudy.data.reading.files import Source
from understudy.data.shared_columns import (
    Owners,
    read_schema,
    run_schema,
    run_schemas,
    with_own_names,
)
from understudy.data.table import read_table
from understudy.data.visits import TwoSources, Visits, VisitSchema
from understudy.ground.check import one_of, plain_name, plain_names
from understudy.ground.durable import own_folder
from understudy.ground.errors import ConfigError, Effect, LedgerError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import FastRng, Rng, SecureRng
from understudy.protocols.core import Party
from understudy.protocols.protocol import differ
from understudy.runs.registry import protocol_named, require_priced

# A DataFrame or a path, or two of them; rows with their description in them; or
# nothing, at an aggregator.
HolderSource = Source | TwoSources | Population | ArrayTable[Any] | Visits | NoRows
OpenedRows = kinds.AnyRows | Population | NoRows
Schemas = Mapping[str, PublicSchema | str | Path]
Budgets = Budget | float | Mapping[str, Budget | float]
# kinds.Rows that were read before, by a description that is in them.
_READ: kinds.Family[ArraySchema | VisitSchema, ArrayTable[Any] | Visits] = kinds.Family(
    ArraySchema | VisitSchema, ArrayTable | Visits
)


@dataclass(frozen=True)
class Holder:
    """One data holder in this process: its rows, its ledger, and what a run may cost
    it. `people_are_elsewhere` is its word that other holders of rows may have some of
    its people, too. `total` is what the run may cost together with what was bought for
    it under its name; without it, that is the run's own budget.
    """

    name: str
    table: OpenedRows
    ledger: Ledger
    budget: Budget
    seed: int | None = None
    noise: str = "secure"
    people_are_elsewhere: bool = False
    total: Budget | None = None
    came: Source | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        plain_name(holder=self.name, effect=Effect.NOTHING_READ_OR_CHARGED)

    def rng(self) -> Rng:
        """Fresh randomness, secure unless the holder chose otherwise; under a rehearsal
        seed the same each time.
        """
        one_of(("secure", "fast"), noise=self.noise)
        if self.noise == "fast":
            return FastRng(self.seed)
        return SecureRng() if self.seed is None else SecureRng.from_seed(self.seed)


class Federation:
    """Several holders of tables, all in this process: for one who may see all rows, and
    for rehearsals.

    Holders who keep their rows to themselves each run a party instead (`understudy
    federation`, `understudy join`). `tables` are DataFrames or paths, `schemas` public
    schemas or paths, `budget` one for all or one each (a number is an ε, at δ = 10⁻⁶;
    the statement prints both), `ledgers` the folder with each holder's ledger. Holders
    of different columns are taken to have the same people, a row each; holders of the
    same columns different people, who may have several rows; `same_people` says
    otherwise. Nobody checks that they are different: holders who know that some of
    their people are with others too are named in `people_are_elsewhere`. Columns that
    several holders of the same people have stand in `shared_columns`, with the holder
    whose copy is used, or "each". A `Population`
    or an `ArrayTable`, from arrays, has its public description in it and needs no
    schema.
    """

    def __init__(
        self,
        tables: Mapping[str, HolderSource],
        schemas: Schemas | None = None,
        *,
        budget: Budgets,
        ledgers: str | Path = "ledgers",
        same_people: bool | None = None,
        people_are_elsewhere: Iterable[str] = (),
        shared_columns: Owners | None = None,
    ) -> None:
        self._hold(
            tables,
            schemas,
            budget,
            same_people,
            people_are_elsewhere,
            Path(ledgers),
            None,
            shared_columns or {},
        )

    def _hold(
        self,
        tables: Mapping[str, HolderSource],
        schemas: Schemas | None,
        budget: Budgets,
        same_people: bool | None,
        people_are_elsewhere: Iterable[str],
        ledgers: Path | None,
        seed: int | None,
        shared: Owners,
    ) -> None:
        plain_names(tables, "holder", effect=Effect.NOTHING_READ_OR_CHARGED)
        budget_of = budgets_by_holder(budget, tables)
        public = load_schemas(schemas or {})
        in_run = run_schemas(public, shared)
        self.same_people = _have_same_people(tables, in_run, same_people)
        for name in (elsewhere := set(people_are_elsewhere)):
            one_of(tables, people_are_elsewhere=name)
        self.holders: dict[str, Holder] = {}
        opened = open_sources(
            tables, public, same_people=self.same_people is not False, shared=shared
        )
        for number, (name, table) in enumerate(opened.items()):
            if ledgers is None:
                book = Ledger.rehearsal(holder=name, budget=budget_of[name])
            else:
                book = open_ledger(
                    own_folder(ledgers) / f"{name}.ledger", name, budget_of[name]
                )
            holder_seed = None if seed is None else seed * 1_000_003 + number
            self.holders[name] = Holder(
                name,
                table,
                book,
                budget_of[name],
                holder_seed,
                people_are_elsewhere=name in elsewhere,
            )

    @classmethod
    def rehearsal(
        cls,
        tables: Mapping[str, HolderSource],
        schemas: Schemas | None = None,
        *,
        budget: Budgets,
        seed: int | None = None,
        same_people: bool | None = None,
        people_are_elsewhere: Iterable[str] = (),
        shared_columns: Owners | None = None,
    ) -> "Federation":
        """The same with ledgers in memory: for simulations on public rows. A seed makes
        it repeatable.
        """
        federation = cls.__new__(cls)
        federation._hold(
            tables,
            schemas,
            budget,
            same_people,
            people_are_elsewhere,
            None,
            seed,
            shared_columns or {},
        )
        return federation

    @classmethod
    def from_holders(
        cls, holders: Iterable[Holder], *, same_people: bool | None = None
    ) -> "Federation":
        """A federation of holders that are open already."""
        federation = cls.__new__(cls)
        federation.holders = {holder.name: holder for holder in holders}
        plain_names(federation.holders, "holder", effect=Effect.NOTHING_READ_OR_CHARGED)
        tables = {name: holder.table for name, holder in federation.holders.items()}
        federation.same_people = _have_same_people(
            tables, federation.schemas, same_people
        )
        return federation

    @property
    def schemas(self) -> dict[str, Any]:
        return {
            name: public_description(holder.table)
            for name, holder in self.holders.items()
        }

    def parties(
        self, protocol: str, *, run: str, folder: Path | None = None, config: Any = None
    ) -> dict[str, Party]:
        """One party of this protocol for each holder; a run costs what the holder
        allows it, however often it asks. `config` are the settings that the holders
        agreed to. Without them some parties agree to the defaults alone, and some, such
        as Gram's, to whatever the server asks for within the budget.
        """
        record = protocol_named(protocol)
        elsewhere = [
            name for name, holder in self.holders.items() if holder.people_are_elsewhere
        ]
        require_priced(record, self.schemas, config, elsewhere)
        holders = self.holders
        if getattr(config, "private", True) is False:
            holders = {name: _without_limit(holder) for name, holder in holders.items()}
        return {
            name: record.build(
                name,
                holder.table,
                holder.ledger.within(run, holder.total or holder.budget),
                run=run,
                budget=holder.budget,
                rng=holder.rng(),
                folder=None if folder is None else folder / name,
                config=config,
            )
            for name, holder in holders.items()
        }


def _without_limit(holder: Holder) -> Holder:
    """The holder of a rehearsal without noise, which no budget could pay for: a real
    ledger would refuse it.
    """
    if holder.ledger.real:
        why = (
            "private = false is for rehearsals on public rows: `understudy run --seed "
            "0`, or Federation.rehearsal"
        )
        raise ConfigError(f"{holder.name}: {why}.", effect=Effect.NOTHING_CHARGED)
    budget = replace(holder.budget, epsilon=math.inf)
    return replace(
        holder,
        ledger=Ledger.rehearsal(holder=holder.name, budget=budget),
        budget=budget,
        total=None,
    )


def _have_same_people(
    tables: Mapping[str, object], schemas: Mapping[str, Any], same_people: bool | None
) -> bool | None:
    """Whether holders have the same people, as stated or by their columns; None for one
    holder, who may be either.
    """
    # from arrays, who are nobody else's
    if any(isinstance(table, Population) for table in tables.values()):
        return False
    if same_people is not None or len(tables) == 1:
        return same_people
    descriptions = {
        name: schemas.get(name) or getattr(table, "schema", None)
        for name, table in tables.items()
    }
    return differ(
        getattr(schema, "names", name) for name, schema in descriptions.items()
    )


def open_ledger(path: Path, holder: str, budget: Budget) -> Ledger:
    """The holder's ledger. The budget is for a new one; an existing ledger keeps its
    own.
    """
    return Ledger(path, holder=holder, budget=None if path.exists() else budget)


def open_lifetime_ledger(
    path: Path,
    holder: str,
    price: Budget,
    lifetime: float | None,
    lifetime_word: str,
    price_word: str,
) -> Ledger:
    """The same; a new one allows `lifetime` for all that is ever done, or this price
    alone; another one is an error.
    """
    if lifetime is not None and lifetime < price.epsilon:
        raise ConfigError(
            f"{lifetime_word} {lifetime:g} is below {price_word} {price.epsilon:g}.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    book = open_ledger(
        path,
        holder,
        Budget(price.epsilon if lifetime is None else lifetime, price.delta),
    )
    if lifetime not in (None, book.budget.epsilon):
        raise LedgerError(
            f"{path} is not new and allows {book.budget} for everything together, not "
            f"ε={lifetime:g}. Leave "
            f"{lifetime_word} out, or first: understudy ledger budget {path} "
            f"--epsilon {lifetime:g} "
            '--reason "…".',
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    return book


def open_sources(
    sources: Mapping[str, HolderSource],
    schemas: Schemas,
    *,
    same_people: bool,
    shared: Owners | None = None,
) -> dict[str, OpenedRows]:
    """Each holder's rows, checked, without the columns of which another holder's copy
    is used (`data.shared_columns`). Arrays have their public description in them and
    need no schema.
    """
    owners = shared or {}
    tables = {
        name: source
        for name, source in sources.items()
        if not isinstance(source, Population | NoRows) and not _READ.holds(source)
    }
    missing = sorted(tables.keys() - schemas.keys())
    if missing:
        raise ConfigError(
            f"{missing[0]} has no schema.", effect=Effect.NOTHING_READ_OR_CHARGED
        )
    whole = load_schemas({name: schemas[name] for name in tables})
    public = {name: read_schema(name, one, owners) for name, one in whole.items()}
    in_run = {name: run_schema(name, one, owners) for name, one in whole.items()}
    if same_people and (flat := FLAT.among(in_run)):
        kinds.side_by_side(kinds.distinct(flat))
    opened: dict[str, OpenedRows] = {}
    for name, source in sources.items():
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
                f"{table.source} has one row, and nobody can hide among one. {name} "
                "was not charged."
            )
        opened[name] = with_own_names(name, table, owners)
    return opened


def load_schemas(schemas: Schemas) -> dict[str, PublicSchema]:
    return {
        name: load_schema(schema) if isinstance(schema, str | Path) else schema
        for name, schema in schemas.items()
    }


def open_classified(
    rows: HolderSource,
    described: PublicSchema | Features,
    target: str | None,
    name: str,
) -> Population:
    """Public rows with their classes, to begin from or to test on, read as the parties
    read theirs; each row stands for itself.
    """
    if isinstance(rows, Population):
        return rows
    if (
        _READ.holds(rows)
        or isinstance(rows, NoRows | Mapping)
        or not (TABLE.describes(described) and target)
    ):
        raise ConfigError(
            f"{name} must be a population, as the parties' rows are.",
            effect=Effect.NOTHING_CHARGED,
        )
    return Population.from_table(
        read_table(rows, replace(described, person=None)), target
    )


def open_public(public: HolderSource, described: PublicSchema | Features) -> kinds.Rows:
    """Public rows to begin from, read as the parties read theirs; each row stands for
    itself.
    """
    if kinds.ARRAYS.holds(public):
        return public
    if (
        isinstance(public, Population | NoRows | Mapping)
        or VISITS.holds(public)
        or not FLAT.describes(described)
    ):
        raise ConfigError(
            "public rows are a table, series or images by a schema.",
            effect=Effect.NOTHING_CHARGED,
        )
    return read_rows(public, replace(described, person=None), one_row_each=False)


def public_description(rows: OpenedRows) -> PublicSchema | Features:
    return rows.features if isinstance(rows, Population) else rows.schema


def budgets_by_holder(
    budget: Budgets, holders: Mapping[str, object]
) -> dict[str, Budget]:
    """A budget for each holder; a number is an ε, at the usual δ."""
    if not isinstance(budget, Mapping):
        return dict.fromkeys(holders, Budget.coerce(budget))
    missing = sorted(holders.keys() - budget.keys())
    if missing:
        raise ConfigError(
            f"{missing[0]} has no budget.", effect=Effect.NOTHING_READ_OR_CHARGED
        )
    return {name: Budget.coerce(budget[name]) for name in holders}
