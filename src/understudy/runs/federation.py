"""Holders in one process: their rows, their ledgers, and what a run may cost them.

Holders on machines of their own are a federation, too: `understudy federation` founds it, `network/` runs it, and the
class here has no part in it.

    federation = Federation({"clinic": clinic, "insurer": insurer}, schemas, budget=Budget(epsilon=2, delta=1e-6))

A federation's ledgers are real files unless it is a rehearsal; seeds are for rehearsals alone.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from understudy.data.described import PublicSchema
from understudy.data.reading.files import Source
from understudy.ground.check import one_of, plain_name, plain_names
from understudy.ground.durable import own_folder
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import FastRng, Rng, SecureRng
from understudy.protocols.core import Party
from understudy.protocols.protocol import differ
from understudy.runs.held import Held, Opened, budgets, description, has_population, loaded, open_held
from understudy.runs.registry import protocol_named, require_priced


@dataclass(frozen=True)
class Holder:
    """One data holder in this process: its rows, its ledger, and what a run may cost it.

    `people_are_elsewhere` is its word that other holders of rows may have some of its people, too. `total` is what the
    run may cost together with what was bought for it under its name; without it, that is the run's own budget. `came`:
    where its rows are as they came, if the run sees them through a schema that was bought; a page compares with these.
    """

    name: str
    table: Opened
    ledger: Ledger
    budget: Budget
    seed: int | None = None
    noise: str = "secure"
    people_are_elsewhere: bool = False
    total: Budget | None = None
    came: Source | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        plain_name(holder=self.name, nothing="Nothing was read or charged.")

    def rng(self) -> Rng:
        """Fresh randomness, secure unless the holder chose otherwise; under a rehearsal seed the same each time."""
        one_of(("secure", "fast"), noise=self.noise)
        if self.noise == "fast":
            return FastRng(self.seed)
        return SecureRng() if self.seed is None else SecureRng.from_seed(self.seed)


class Federation:
    """Several holders of tables, all in this process: for one who may see all rows, and for rehearsals.

    Holders who keep their rows to themselves each run a party instead (`understudy federation`, `understudy join`).
    `tables` are DataFrames or paths, `schemas` public schemas or paths, `budget` one for all or one each (a number is
    an ε, at δ = 10⁻⁶; the statement prints both), `ledgers` the folder with each holder's ledger. Holders of different
    columns are taken to have the same people, a row each; holders of the same columns different people, who may have
    several rows; `same_people` says otherwise. Nobody checks that they are different: holders who know that some of
    their people are with others too are named in `people_are_elsewhere`. A `Population` or an `ArrayTable`, from
    arrays, has its public description in it and needs no schema.
    """

    def __init__(
        self,
        tables: Mapping[str, Held],
        schemas: Mapping[str, PublicSchema | str | Path] | None = None,
        *,
        budget: Budget | float | Mapping[str, Budget | float],
        ledgers: str | Path = "ledgers",
        same_people: bool | None = None,
        people_are_elsewhere: Iterable[str] = (),
    ) -> None:
        plain_names(tables, "holder", nothing="Nothing was read or charged.")
        each = budgets(budget, tables)
        folder = own_folder(Path(ledgers))
        public = loaded(schemas or {})
        self.same_people = _same(tables, public, same_people)
        elsewhere = _known(people_are_elsewhere, tables)
        self.holders = {
            name: Holder(
                name,
                table,
                open_ledger(folder / f"{name}.ledger", name, each[name]),
                each[name],
                people_are_elsewhere=name in elsewhere,
            )
            for name, table in open_held(tables, public, same_people=self.same_people is not False).items()
        }

    @classmethod
    def rehearsal(
        cls,
        tables: Mapping[str, Held],
        schemas: Mapping[str, PublicSchema | str | Path] | None = None,
        *,
        budget: Budget | float | Mapping[str, Budget | float],
        seed: int | None = None,
        same_people: bool | None = None,
        people_are_elsewhere: Iterable[str] = (),
    ) -> "Federation":
        """The same with ledgers in memory: for simulations on public rows. A seed makes it repeatable."""
        plain_names(tables, "holder", nothing="Nothing was read or charged.")
        each = budgets(budget, tables)
        public = loaded(schemas or {})
        same_people = _same(tables, public, same_people)
        opened = open_held(tables, public, same_people=same_people is not False)
        elsewhere = _known(people_are_elsewhere, tables)
        holders = (
            Holder(name, table, Ledger.rehearsal(holder=name, budget=each[name]), each[name],
                   None if seed is None else seed * 1_000_003 + number, people_are_elsewhere=name in elsewhere)
            for number, (name, table) in enumerate(opened.items())
        )  # fmt: skip
        return cls.of(holders, same_people=same_people)

    @classmethod
    def of(cls, holders: Iterable[Holder], *, same_people: bool | None = None) -> "Federation":
        """A federation of holders that are open already."""
        federation = cls.__new__(cls)
        federation.holders = {holder.name: holder for holder in holders}
        plain_names(federation.holders, "holder", nothing="Nothing was read or charged.")
        tables = {name: holder.table for name, holder in federation.holders.items()}
        federation.same_people = _same(tables, federation.schemas, same_people)
        return federation

    @property
    def schemas(self) -> dict[str, Any]:
        """Each holder's public schema, or the features of its population."""
        return {name: description(holder.table) for name, holder in self.holders.items()}

    def parties(
        self, protocol: str, *, run: str, folder: Path | None = None, config: Any = None
    ) -> dict[str, Party]:
        """One party of this protocol for each holder; a run costs what the holder allows it, however often it asks.

        `config` are the settings that the holders agreed to. Without them some parties agree to the defaults alone, and
        some, such as Gram's, to whatever the server asks for within the budget.
        """
        record = protocol_named(protocol)
        said = [name for name, holder in self.holders.items() if holder.people_are_elsewhere]
        require_priced(record, self.schemas, config, said)
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
    """The holder of a rehearsal without noise, which no budget could pay for. A real ledger keeps its limit."""
    if holder.ledger.real:
        return holder
    budget = replace(holder.budget, epsilon=math.inf)
    return replace(
        holder, ledger=Ledger.rehearsal(holder=holder.name, budget=budget), budget=budget, total=None
    )


def _same(tables: Mapping[str, object], schemas: Mapping[str, Any], same_people: bool | None) -> bool | None:
    """Whether holders have the same people, as stated or by their columns; None for one holder, who may be either."""
    if has_population(tables):
        return False
    if same_people is not None or len(tables) == 1:
        return same_people
    own = {name: schemas.get(name) or getattr(table, "schema", None) for name, table in tables.items()}
    return differ(getattr(schema, "names", name) for name, schema in own.items())


def _known(said: Iterable[str], tables: Mapping[str, Held]) -> set[str]:
    for name in (names := set(said)):
        one_of(tables, people_are_elsewhere=name)
    return names


def open_ledger(path: Path, holder: str, budget: Budget) -> Ledger:
    """The holder's ledger. The budget is for a new one; an existing ledger keeps its own."""
    return Ledger(path, holder=holder, budget=None if path.exists() else budget)
