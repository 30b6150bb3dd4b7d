"""From holders to artefacts: open tables and ledgers, build the parties, train, save.

    federation = Federation({"clinic": clinic, "insurer": insurer}, schemas, budget=Budget(epsilon=2, delta=1e-6))
    result = train("verti-gan", federation, rounds=300)
    result.generator.sample(1000)
    print(result.privacy)

    phones = Federation({"phones": rows}, {"phones": schema}, budget=Budget(epsilon=8, delta=0), same_people=False)
    result = train("sign-ds", phones, target="churned", epsilon_total=8, cap=2)
    result.model.predict(new_rows)

A federation's ledgers are real files unless it is a rehearsal; seeds are for rehearsals alone.
"""

import dataclasses
import json
import signal
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from understudy.check import nearest, one_of
from understudy.classifier import Classifier
from understudy.data.schema import Schema, join
from understudy.errors import ArtefactError, ConfigError, SchemaError
from understudy.generator import Generator
from understudy.held import Held, Opened, budgets, description, has_population, open_held, open_holdout
from understudy.privacy.budget import Budget
from understudy.privacy.ledger import Ledger
from understudy.privacy.rng import FastRng, Rng, SecureRng
from understudy.privacy.statement import PrivacyStatement
from understudy.protocols import gram, sign_ds, vd_gan_dpsgd, vd_gan_pate, verti_gan
from understudy.protocols.base import Party, Progress, Watcher
from understudy.runfile import RunFile, known_keys
from understudy.runtime.local import LocalParties, Transcript

PROTOCOLS: dict[str, ModuleType] = {
    "gram": gram,
    "verti-gan": verti_gan,
    "vd-gan-dpsgd": vd_gan_dpsgd,
    "vd-gan-pate": vd_gan_pate,
    "sign-ds": sign_ds,
}

Artefact = Generator | Classifier


@dataclass(frozen=True)
class Holder:
    """One data holder in this process: its rows, its ledger, and what a run may cost it."""

    name: str
    table: Opened
    ledger: Ledger
    budget: Budget
    seed: int | None = None
    noise: str = "secure"

    def rng(self) -> Rng:
        """Fresh randomness, secure unless the holder chose otherwise; under a rehearsal seed the same each time."""
        one_of(("secure", "fast"), noise=self.noise)
        if self.noise == "fast":
            return FastRng(self.seed)
        return SecureRng() if self.seed is None else SecureRng.from_seed(self.seed)


class Federation:
    """Several holders of tables, in this process.

    `tables` are DataFrames or paths, `schemas` public schemas or paths, `budget` one for all or one each,
    `ledgers` the folder with each holder's ledger. With `same_people` the holders have different columns about
    the same people, a row each; without it they have the same columns about different people, who may have
    several rows. A `Population`, from arrays, has its public description in it and needs no schema.
    """

    def __init__(
        self,
        tables: Mapping[str, Held],
        schemas: Mapping[str, Schema | str | Path] | None = None,
        *,
        budget: Budget | Mapping[str, Budget],
        ledgers: str | Path = "ledgers",
        same_people: bool = True,
    ) -> None:
        each = budgets(budget, tables)
        folder = Path(ledgers)
        self.same_people = same_people and not has_population(tables)
        self.holders = {
            name: Holder(name, table, open_ledger(folder / f"{name}.ledger", name, each[name]), each[name])
            for name, table in open_held(tables, schemas or {}, same_people=self.same_people).items()
        }

    @classmethod
    def rehearsal(
        cls,
        tables: Mapping[str, Held],
        schemas: Mapping[str, Schema | str | Path] | None = None,
        *,
        budget: Budget | Mapping[str, Budget],
        seed: int | None = None,
        same_people: bool = True,
    ) -> "Federation":
        """The same with ledgers in memory: for simulations on public rows. A seed makes it repeatable."""
        each = budgets(budget, tables)
        same_people = same_people and not has_population(tables)
        opened = open_held(tables, schemas or {}, same_people=same_people)
        holders = (
            Holder(name, table, Ledger.rehearsal(holder=name, budget=each[name]), each[name],
                   None if seed is None else seed * 1_000_003 + number)
            for number, (name, table) in enumerate(opened.items())
        )  # fmt: skip
        return cls.of(holders, same_people=same_people)

    @classmethod
    def of(cls, holders: Iterable[Holder], *, same_people: bool = True) -> "Federation":
        """A federation of holders that are open already."""
        federation = cls.__new__(cls)
        federation.same_people = same_people
        federation.holders = {holder.name: holder for holder in holders}
        return federation

    @property
    def schemas(self) -> dict[str, Any]:
        """Each holder's public schema, or the features of its population."""
        return {name: description(holder.table) for name, holder in self.holders.items()}

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
    """What a run gives: a generator or a classifier, its price, and what crossed the line."""

    artefact: Artefact
    privacy: PrivacyStatement
    transcript: Transcript
    run: str
    people: int

    @property
    def generator(self) -> Generator:
        """What draws rows. ArtefactError where the run trained something else."""
        if not isinstance(self.artefact, Generator):
            raise ArtefactError("This run trained a classifier, which draws no rows: see `model`.")
        return self.artefact

    @property
    def model(self) -> Classifier:
        """What predicts. ArtefactError where the run trained something else."""
        if not isinstance(self.artefact, Classifier):
            raise ArtefactError("This run trained a generator, which predicts nothing: see `generator`.")
        return self.artefact

    def save(self, folder: str | Path, *, rows: int | None = None) -> Path:
        """Everything in one folder: privacy.json, transcript.json, and generator/ with synthetic.parquet, or model/."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(self.artefact, Generator):
            self.artefact.sample(rows or self.people).to_parquet(folder / "synthetic.parquet", index=False)
        _write_json(folder / "privacy.json", self.privacy.to_dict())
        _write_json(folder / "transcript.json", self.transcript.rows())
        self.artefact.save(folder / ("generator" if isinstance(self.artefact, Generator) else "model"))
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
    holdout: Held | None = None,
    **settings: Any,
) -> Result:
    """Train `protocol` over the federation. With a folder, checkpoints go there and a run can be resumed.

    `holdout` are public rows on which a classifier is tested while it trains; they cost nobody anything.
    """
    config = config_for(protocol, settings)
    module = protocol_named(protocol)
    _fits(protocol, federation.same_people)
    if federation.same_people:
        join(federation.schemas)  # two parties with the same column: refused before anything else
    more = {}
    if holdout is not None:
        if _artefact(module) != "model":
            raise ConfigError(f"{protocol} takes no holdout. Nothing was charged.")
        described = next(iter(federation.schemas.values()))
        more["holdout"] = open_holdout(holdout, described, config.target)
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
            **more,
        )
    artefact = getattr(outcome, _artefact(module))
    return Result(artefact, outcome.privacy, parties.transcript, run, outcome.people)


def run_file(
    file: RunFile, *, resume: bool = False, watch: Watcher | None = None, seed: int | None = None
) -> tuple[Result, Path]:
    """Carry out a run file; its artefacts lie in the folder that is returned."""
    config_for(file.protocol, file.settings)
    module = protocol_named(file.protocol)
    if file.rows is not None and _artefact(module) != "generator":
        raise ConfigError(f'"rows": {file.protocol} draws no rows. Nothing was read or charged.')
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
    paths = {name: file.path(section.table) for name, section in file.parties.items()}
    same_people = _same_people(module)
    if same_people is None:  # either: other columns of the same people, or the same columns of other people
        same_people = len({schema.names for schema in schemas.values()}) > 1
    tables = open_held(paths, schemas, same_people=same_people)
    holders = (
        Holder(
            name,
            tables[name],
            Ledger.rehearsal(holder=name, budget=section.total())
            if seed is not None
            else open_ledger(file.ledger_path(name), name, section.total()),
            section.budget(),
            None if seed is None else seed * 1_000_003 + number,
            section.noise,
        )
        for number, (name, section) in enumerate(file.parties.items())
    )
    federation = Federation.of(holders, same_people=same_people)
    out.mkdir(parents=True, exist_ok=True)
    note.write_text(file.to_toml())
    _write_json(out / "run.json", {"run": run})
    holdout = None if file.holdout is None else file.path(file.holdout)
    try:
        result = train(
            file.protocol, federation, folder=out, resume=resume, watch=watch, run=run, holdout=holdout,
            **dict(file.settings),
        )  # fmt: skip
    except (ConfigError, SchemaError):
        if not (out / "checkpoint").exists():
            note.unlink()  # refused before it began: the folder stays free
        raise
    result.save(out, rows=file.rows)
    return result, out


def open_ledger(path: Path, holder: str, budget: Budget) -> Ledger:
    """The holder's ledger. The budget is for a new one; an existing ledger keeps its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return Ledger(path, holder=holder, budget=None if path.exists() else budget)


def _same_people(module: ModuleType) -> bool | None:
    """Whether the protocol's parties hold columns of the same people, or rows of different ones; None: either."""
    same: bool | None = getattr(module, "SAME_PEOPLE", True)
    return same


def _artefact(module: ModuleType) -> str:
    """What the protocol trains: a "generator" or a "model"."""
    return str(getattr(module, "ARTEFACT", "generator"))


def _fits(protocol: str, same_people: bool) -> None:
    if (needs := _same_people(protocol_named(protocol))) not in (None, same_people):
        raise ConfigError(
            f"{protocol} is for holders of {'the same' if needs else 'different'} people: build the federation "
            f"with same_people={needs}. Nothing was charged."
        )


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
