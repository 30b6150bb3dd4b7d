"""From holders to artefacts: open tables and ledgers, build the parties, train, save.

    federation = Federation({"clinic": clinic, "insurer": insurer}, schemas, budget=Budget(epsilon=2, delta=1e-6))
    result = train("verti-gan", federation, rounds=300)
    result.generator.sample(1000)
    print(result.privacy)

A federation's ledgers are real files unless it is a rehearsal; seeds are for rehearsals alone.
"""

import dataclasses
import json
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pandas as pd

from understudy.check import nearest
from understudy.data.schema import Schema, join
from understudy.data.table import Table, read_table
from understudy.errors import ArtefactError, ConfigError
from understudy.generator import Generator
from understudy.privacy.budget import Budget
from understudy.privacy.ledger import Ledger
from understudy.privacy.rng import Rng, SecureRng
from understudy.privacy.statement import PrivacyStatement
from understudy.protocols import verti_gan
from understudy.protocols.base import Party, Progress, Watcher
from understudy.runfile import RunFile, known_keys
from understudy.runtime.local import LocalParties, Transcript

PROTOCOLS: dict[str, ModuleType] = {"verti-gan": verti_gan}


@dataclass(frozen=True)
class Holder:
    """One data holder in this process: its rows, its ledger, and what a run may cost it."""

    name: str
    table: Table
    ledger: Ledger
    budget: Budget
    seed: int | None = None

    def rng(self) -> Rng:
        """Fresh secure randomness; in a rehearsal with a seed, the same each time."""
        return SecureRng() if self.seed is None else SecureRng.from_seed(self.seed)


class Federation:
    """Several holders of tables about the same people, in this process.

    `tables` are DataFrames or paths, `schemas` public schemas or paths, `budget` one for all or one each,
    `ledgers` the folder with each holder's ledger.
    """

    def __init__(
        self,
        tables: Mapping[str, pd.DataFrame | str | Path],
        schemas: Mapping[str, Schema | str | Path],
        *,
        budget: Budget | Mapping[str, Budget],
        ledgers: str | Path = "ledgers",
    ) -> None:
        budgets = _each(budget, tables)
        folder = Path(ledgers)
        self.holders = {
            name: Holder(
                name, table, open_ledger(folder / f"{name}.ledger", name, budgets[name]), budgets[name]
            )
            for name, table in _tables(tables, schemas).items()
        }

    @classmethod
    def rehearsal(
        cls,
        tables: Mapping[str, pd.DataFrame | str | Path],
        schemas: Mapping[str, Schema | str | Path],
        *,
        budget: Budget | Mapping[str, Budget],
        seed: int | None = None,
    ) -> "Federation":
        """The same with ledgers in memory: for simulations on public rows. A seed makes it repeatable."""
        budgets = _each(budget, tables)
        return cls.of(
            Holder(name, table, Ledger.rehearsal(holder=name, budget=budgets[name]), budgets[name],
                   None if seed is None else seed * 1_000_003 + number)
            for number, (name, table) in enumerate(_tables(tables, schemas).items())
        )  # fmt: skip

    @classmethod
    def of(cls, holders: Iterator[Holder]) -> "Federation":
        """A federation of holders that are open already."""
        federation = cls.__new__(cls)
        federation.holders = {holder.name: holder for holder in holders}
        return federation

    @property
    def schemas(self) -> dict[str, Schema]:
        """Each holder's public schema."""
        return {name: holder.table.schema for name, holder in self.holders.items()}

    def parties(self, protocol: str, *, run: str, folder: Path | None = None) -> dict[str, Party]:
        """One party of this protocol for each holder."""
        build = protocol_named(protocol).build_party
        return {
            name: build(
                name,
                holder.table,
                holder.ledger,
                run=run,
                budget=holder.budget,
                rng=holder.rng(),
                folder=None if folder is None else folder / name,
            )
            for name, holder in self.holders.items()
        }


@dataclass(frozen=True)
class Result:
    """What a run gives: the generator, its price, and what crossed the line."""

    generator: Generator
    privacy: PrivacyStatement
    transcript: Transcript
    run: str
    people: int

    def save(self, folder: str | Path, *, rows: int | None = None) -> Path:
        """Everything in one folder: generator/, synthetic.parquet, privacy.json, transcript.json."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.generator.sample(rows or self.people).to_parquet(folder / "synthetic.parquet", index=False)
        _write_json(folder / "privacy.json", self.privacy.to_dict())
        _write_json(folder / "transcript.json", self.transcript.rows())
        self.generator.save(folder / "generator")
        return folder


def protocol_named(name: str) -> ModuleType:
    """The protocol of that name. ConfigError names the nearest."""
    if name not in PROTOCOLS:
        raise ConfigError(
            f"There is no protocol {name!r}.{nearest(name, PROTOCOLS)} Known: {', '.join(PROTOCOLS)}."
        )
    return PROTOCOLS[name]


def config_for(protocol: str, settings: Mapping[str, Any]) -> Any:
    """The protocol's checked config from plain settings."""
    cls = protocol_named(protocol).Config
    known_keys(settings, (field.name for field in dataclasses.fields(cls)), f"settings of {protocol}")
    return cls(**settings)


def train(
    protocol: str,
    federation: Federation,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
    run: str | None = None,
    **settings: Any,
) -> Result:
    """Train `protocol` over the federation. With a folder, checkpoints go there and a run can be resumed."""
    config = config_for(protocol, settings)
    module = protocol_named(protocol)
    join(federation.schemas)  # two parties with the same column: refused before anything else
    home = None if folder is None else Path(folder)
    run = run or f"{protocol}-{uuid.uuid4().hex[:8]}"
    parties = LocalParties(
        federation.parties(protocol, run=run, folder=None if home is None else home / "parties")
    )
    with _stoppable(watch) as watcher:
        outcome = module.train(
            config,
            parties,
            federation.schemas,
            checkpoint=None if home is None else home / "checkpoint",
            resume=resume,
            watch=watcher,
        )
    return Result(outcome.generator, outcome.privacy, parties.transcript, run, outcome.people)


def run_file(
    file: RunFile, *, resume: bool = False, watch: Watcher | None = None, seed: int | None = None
) -> tuple[Result, Path]:
    """Carry out a run file; its artefacts lie in the folder that is returned."""
    config_for(file.protocol, file.settings)
    out = file.path(file.out)
    note = out / "run.toml"
    if note.exists() and not resume:
        raise ArtefactError(
            f"{out} already has a run in it. Choose another `out`, or go on with that run by --resume. "
            "Nothing was read or charged."
        )
    if resume and not note.exists():
        raise ArtefactError(f"{out} has no run to resume. Nothing was read or charged.")
    run = (
        json.loads((out / "run.json").read_text())["run"]
        if resume
        else f"{file.protocol}-{uuid.uuid4().hex[:8]}"
    )
    schemas = {name: Schema.load(file.path(section.schema)) for name, section in file.parties.items()}
    for schema in schemas.values():
        schema.require_public()
    tables = _tables({name: file.path(section.table) for name, section in file.parties.items()}, schemas)
    federation = Federation.of(
        Holder(
            name,
            tables[name],
            Ledger.rehearsal(holder=name, budget=section.total())
            if seed is not None
            else open_ledger(file.ledger_path(name), name, section.total()),
            section.budget(),
            None if seed is None else seed * 1_000_003 + number,
        )
        for number, (name, section) in enumerate(file.parties.items())
    )
    out.mkdir(parents=True, exist_ok=True)
    note.write_text(file.to_toml())
    _write_json(out / "run.json", {"run": run})
    result = train(
        file.protocol, federation, folder=out, resume=resume, watch=watch, run=run, **dict(file.settings)
    )
    result.save(out, rows=file.rows)
    return result, out


def open_ledger(path: Path, holder: str, budget: Budget) -> Ledger:
    """The holder's ledger. The budget is for a new one; an existing ledger keeps its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return Ledger(path, holder=holder, budget=None if path.exists() else budget)


def _each(budget: Budget | Mapping[str, Budget], tables: Mapping[str, object]) -> Mapping[str, Budget]:
    if isinstance(budget, Budget):
        return dict.fromkeys(tables, budget)
    if missing := sorted(tables.keys() - budget.keys()):
        raise ConfigError(f"{missing[0]} has no budget. Nothing was read or charged.")
    return budget


def _tables(
    tables: Mapping[str, pd.DataFrame | str | Path], schemas: Mapping[str, Schema | str | Path]
) -> dict[str, Table]:
    if missing := sorted(tables.keys() - schemas.keys()):
        raise ConfigError(f"{missing[0]} has no schema. Nothing was read or charged.")
    public = {
        name: schema if isinstance(schema := schemas[name], Schema) else Schema.load(schema)
        for name in tables
    }
    join(public)
    opened = {
        name: read_table(source, public[name], name=name if isinstance(source, pd.DataFrame) else None)
        for name, source in tables.items()
    }
    for name, table in opened.items():
        if table.rows < 2:
            raise ConfigError(
                f"{table.source} has one row, and nobody can hide among one. {name} was not charged."
            )
    return opened


@contextmanager
def _stoppable(watch: Watcher | None) -> Iterator[Callable[[Progress], None]]:
    """Turn Ctrl-C into a stop between two rounds, so that what is saved is whole. A second one is immediate."""
    asked = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    def watcher(progress: Progress) -> None:
        if watch is not None:
            watch(progress)
        if asked.is_set():
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield watcher
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield watcher
    finally:
        signal.signal(signal.SIGINT, before)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
