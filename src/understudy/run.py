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

import json
import signal
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd
import tomli_w

from understudy.answers.rules import check_rules
from understudy.check import plain_name
from understudy.classifier import Classifier
from understudy.data.arrays import ArrayTable
from understudy.data.described import one_kind_of_row
from understudy.data.files import Source
from understudy.data.grid import distinct
from understudy.data.mixed import side_by_side
from understudy.data.no_rows import NoRows
from understudy.data.schema import Schema
from understudy.data.streamed import StreamedTable
from understudy.data.table import Table
from understudy.data.visits import SeveralVisits, VisitSchema
from understudy.data.writing import write_several, write_visits
from understudy.durable import own_folder, replace, replace_json
from understudy.errors import ArtefactError, ConfigError, LedgerError, SchemaError
from understudy.federation import Federation, Holder, open_ledger
from understudy.generator import Generator
from understudy.held import Held, open_held, open_holdout, open_public
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.accounts.rehearsal import first_said
from understudy.privacy.accounts.statement import PrivacyStatement
from understudy.protocols.core import Progress, Watcher, watch_alignment
from understudy.registry import (
    artefact_of,
    config_for,
    file_of_rows,
    of_rows,
    people_of,
    protocol_named,
    require_kinds,
    same_people,
)
from understudy.runfile import RunFile
from understudy.runtime.local import LocalParties, Transcript

Artefact = Generator | Classifier
MOST_DRAWN = 1_000_000  # rows, where nobody says how many


@dataclass(frozen=True)
class Result:
    """What a run gives: a generator or a classifier, its price, and the messages exchanged."""

    artefact: Artefact
    privacy: PrivacyStatement
    transcript: Transcript
    run: str
    people: int
    federation: Federation | None = field(default=None, repr=False, compare=False)

    def sample(self, n: int, **more: Any) -> pd.DataFrame:
        """`n` synthetic rows; free, however many. See `Generator.sample`."""
        return self.generator.sample(n, **more)

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
        """Everything in one folder: privacy.json, transcript.json, and generator/ with synthetic.parquet, or model/.

        `rows` are drawn, by default as many as there are people, and no more than a million. Of people with events,
        synthetic/ holds people.parquet and events.parquet, or a file for each kind of events; `rows` are people then.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / "privacy.json", self.privacy.to_dict())
        _write_json(folder / "transcript.json", self.transcript.rows(self.privacy))
        self.artefact.save(folder / ("generator" if isinstance(self.artefact, Generator) else "model"))
        if isinstance(
            self.artefact, Generator
        ):  # last: what was paid for is saved, whatever becomes of the draw
            schema, said = self.artefact.schema, first_said(self.artefact.card)
            if isinstance(schema, SeveralVisits):
                several = self.artefact.several_visits(rows or self.people)
                for frame in several.values():
                    frame.attrs |= said
                write_several(several, folder / "synthetic", schema, ".parquet")
                return folder
            if isinstance(schema, VisitSchema):
                frames = self.artefact.visits(rows or self.people)
                for frame in frames:
                    frame.attrs |= said
                write_visits(frames, folder / "synthetic", schema, ".parquet")
                return folder
            drawn = self.artefact.sample(rows or min(self.people, MOST_DRAWN))
            drawn.attrs |= said  # pandas writes them into the file, and reads them again
            drawn.to_parquet(folder / "synthetic.parquet", index=False)
        return folder

    def report(
        self,
        out: str | Path = "report.html",
        *,
        publish: bool = False,
        holdout: Source | None = None,
        target: str | None = None,
    ) -> Path:
        """Write the page of this run; returns where. For the holder it compares with the rows that are open here.

        With `publish` it holds nothing that a row could have changed unpaid.
        """
        from understudy.report.page import write_report

        holders = {} if self.federation is None else self.federation.holders
        held = {name: h.table for name, h in holders.items()}
        tables = {
            name: _readable(table) for name, table in held.items() if isinstance(table, Table | ArrayTable)
        }
        books = {name: {"ledger": str(h.ledger.path)} for name, h in holders.items() if h.ledger.path}
        with tempfile.TemporaryDirectory() as folder:
            home = self.save(folder)
            replace_json(home / "run.json", {"run": self.run, "rehearsal": bool(self.privacy.rehearsal)})
            replace(home / "run.toml", tomli_w.dumps({"parties": books}).encode())
            return write_report(
                home, out=out, publish=publish, tables=tables, holdout=holdout, target=target
            ).resolve()

    def _repr_html_(self) -> str:
        own: str = self.artefact._repr_html_() if isinstance(self.artefact, Generator) else ""
        return own + self.privacy._repr_html_()


def train(
    protocol: str,
    federation: Federation,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
    run: str | None = None,
    holdout: Held | None = None,
    public: Held | None = None,
    **settings: Any,
) -> Result:
    """Train `protocol` over the federation. With a folder, checkpoints go there and a run can be resumed.

    `holdout` are public rows on which a classifier is tested while it trains, `public` ones from which an autoencoder
    may begin; they cost nobody anything. `gram` is one name for tables, images and series (`registry.of_rows`).
    """
    protocol = of_rows(protocol, federation.schemas, federation.same_people)
    config = config_for(protocol, settings)
    run = run or f"{protocol}-{uuid.uuid4().hex[:8]}"
    plain_name(run=run, nothing="Nothing was charged.")
    module = protocol_named(protocol)
    more = opened(
        protocol,
        config,
        federation.schemas,
        same_people=_fitting(protocol, federation.same_people),
        holdout=holdout,
        public=public,
    )
    home = None if folder is None else Path(folder)
    held = federation.parties(
        protocol, run=run, folder=None if home is None else home / "parties", config=config
    )
    parties = LocalParties(held)
    with stoppable(watch) as watcher:
        watch_alignment(held.values(), watcher)
        outcome = module.train(
            config,
            parties,
            federation.schemas,
            checkpoint=None if home is None else home / "checkpoint",
            resume=resume,
            watch=watcher,
            **more,
        )
    artefact = getattr(outcome, artefact_of(module))
    return Result(artefact, outcome.privacy, parties.transcript, run, outcome.people, federation)


def _readable(table: Table | ArrayTable[Any]) -> Any:
    """Rows that a page may read: those that are open here, or where they are long, where they lie."""
    if isinstance(table, StreamedTable):
        return table.origin
    return table.frame if isinstance(table, Table) else table


def load(folder: str | Path) -> Artefact:
    """The generator or the classifier that a run left in its folder. ArtefactError if it is missing or damaged."""
    home = Path(folder)
    if home.name == "model" or (home / "model" / "card.json").exists():
        return Classifier.load(home)
    return Generator.load(folder)


def opened(
    protocol: str,
    config: Any,
    schemas: Mapping[str, Any],
    *,
    same_people: bool,
    holdout: Held | None = None,
    public: Held | None = None,
) -> dict[str, Any]:
    """The public rows that a protocol's `train` takes, opened, once its schemas are found to fit together."""
    module = protocol_named(protocol)
    for schema in schemas.values():
        if isinstance(schema, Schema | VisitSchema):
            check_rules(schema)
    if same_people:
        # Two parties with the same column: refused before anything else, unless they may hold other people of it.
        if not any(isinstance(schema, VisitSchema) for schema in schemas.values()):
            side_by_side(schemas if people_of(module) else distinct(schemas))
        require_kinds(protocol, schemas)
    require_kinds(protocol, schemas, visits_alone=True)
    more: dict[str, Any] = {}
    if holdout is not None:
        if artefact_of(module) != "model":
            raise ConfigError(f"{protocol} takes no holdout. Nothing was charged.")
        more["holdout"] = open_holdout(holdout, next(iter(schemas.values())), config.target)
    if public is not None:
        if not getattr(module, "PUBLIC_ROWS", False):
            raise ConfigError(f"{protocol} takes no public rows. Nothing was charged.")
        more["public"] = open_public(public, next(iter(schemas.values())))
    return more


def run_file(
    file: RunFile, *, resume: bool = False, watch: Watcher | None = None, seed: int | None = None
) -> tuple[Result, Path]:
    """Carry out a run file; its artefacts lie in the folder that is returned."""
    file = file_of_rows(file)
    config_for(file.protocol, file.settings)
    if file.rows is not None and artefact_of(protocol_named(file.protocol)) != "generator":
        raise ConfigError(f'"rows": {file.protocol} draws no rows. Nothing was read or charged.')
    out = file.path(file.out)
    told = _told(file, out, resume=resume, rehearsal=seed is not None)
    federation = _federation(file, seed)
    holdout, public = (None if name is None else file.path(name) for name in (file.holdout, file.public))
    with _noted(file, out, told):
        result = train(
            file.protocol, federation, folder=out, resume=resume, watch=watch, run=told["run"], holdout=holdout,
            public=public, **dict(file.settings),
        )  # fmt: skip
    result.save(out, rows=file.rows)
    return result, out


def _told(file: RunFile, out: Path, *, resume: bool, rehearsal: bool) -> dict[str, Any]:
    """The run's name and whether it is a rehearsal: a new run's, or those of the one that is to be resumed."""
    begun = (out / "run.toml").exists()
    if begun and not resume:
        raise ArtefactError(
            f"{out} already has a run in it. Choose another `out`, or resume that run with --resume. "
            "Nothing was read or charged."
        )
    if not resume:
        return {"run": f"{file.protocol}-{uuid.uuid4().hex[:8]}", "rehearsal": rehearsal}
    if not begun:
        raise ArtefactError(f"{out} has no run to resume. Nothing was read or charged.")
    told: dict[str, Any] = json.loads((out / "run.json").read_text())
    if told.get("rehearsal", False) != rehearsal:
        raise ArtefactError(
            f"{out}: a rehearsal is resumed with its --seed, and any other run without one. "
            "Nothing was read or charged."
        )
    return told


def _federation(file: RunFile, seed: int | None) -> Federation:
    """The holders that a run file names, their rows and ledgers opened; with a seed, a rehearsal of them."""
    schemas = file.schemas()
    if seed is None:
        _require_agreement(file)
    sources: dict[str, Held] = {
        name: NoRows(one_kind_of_row(schemas[name])) if section.aggregates else file.source(name)
        for name, section in file.parties.items()
    }
    same = same_people(protocol_named(file.protocol), (schema.names for schema in schemas.values()))
    tables = open_held(sources, schemas, same_people=same)
    holders = []
    for number, (name, section) in enumerate(file.parties.items()):
        if seed is None:
            if section.ledger is None:
                own_folder(file.ledger_path(name).parent)
            ledger = open_ledger(file.ledger_path(name), name, section.total())
        else:
            ledger = Ledger.rehearsal(holder=name, budget=section.total())
        own = None if seed is None else seed * 1_000_003 + number
        elsewhere = section.people_are_elsewhere
        holders.append(Holder(name, tables[name], ledger, section.budget(), own, section.noise, elsewhere))
    return Federation.of(holders, same_people=same)


@contextmanager
def _noted(file: RunFile, out: Path, told: Mapping[str, Any]) -> Iterator[None]:
    """The folder holds this run from now on; one that is refused before it began leaves it free."""
    out.mkdir(parents=True, exist_ok=True)
    replace(out / "run.toml", file.to_toml().encode())
    replace_json(out / "run.json", dict(told))
    try:
        yield
    except (ConfigError, SchemaError):
        if not (out / "checkpoint").exists():
            (out / "run.toml").unlink()
        raise


def _require_agreement(file: RunFile) -> None:
    """LedgerError where a ledger that exists and the run file say different things about its lifetime budget."""
    for name, section in file.parties.items():
        if not (path := file.ledger_path(name)).exists():
            continue
        with Ledger(path, holder=name) as ledger:
            lifetime, spent = ledger.budget, ledger.summary()
        if clash := section.clash(lifetime):
            wanted = max(section.epsilon, section.total().epsilon)
            delta = "" if section.ledger_delta is None else f" --delta {section.ledger_delta:g}"
            raise LedgerError(
                f"{name}: the run file says that {clash}, and the ledger {path} allows {lifetime} for all runs "
                f"together. Change the run file, or, if the holder agrees, the ledger: understudy ledger budget "
                f'{path} --epsilon {wanted:g}{delta} --reason "…". {spent} Nothing was read or charged.'
            )


def _fitting(protocol: str, same_people: bool | None) -> bool:
    """Whether the holders have the same people, if the protocol is for such; of one holder it may say so itself."""
    needs = people_of(protocol_named(protocol))
    if same_people is not None and needs not in (None, same_people):
        raise ConfigError(
            f"{protocol} is for holders of {'the same' if needs else 'different'} people: build the federation "
            f"with same_people={needs}. Nothing was charged."
        )
    return bool(needs if same_people is None else same_people)


@contextmanager
def stoppable(watch: Watcher | None) -> Iterator[Callable[[Progress], None]]:
    """Turn Ctrl-C into a stop between two rounds, or two batches of ids that are masked, so that what is saved is
    complete. A second one is immediate."""
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
