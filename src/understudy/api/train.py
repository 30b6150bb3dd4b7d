"""From holders to artefacts: open tables and ledgers, build the parties, train, save.

    holders = {"clinic": clinic, "insurer": insurer}
    federation = Federation(holders, schemas, budget=Budget(epsilon=2, delta=1e-6))
    result = train("verti-gan", federation, rounds=300)
    result.generator.sample(1000)
    print(result.privacy)

A classifier's result has a `model` in place of the generator.
"""

import json
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from understudy.answers.rules import check_rules
from understudy.data.kinds import (
    TABLE,
    VISITS,
    NoRows,
    distinct,
    one_kind_of_row,
    side_by_side,
)
from understudy.ground.check import plain_name
from understudy.ground.durable import own_folder, replace, replace_json
from understudy.ground.errors import (
    ArtefactError,
    ConfigError,
    Effect,
    LedgerError,
    SchemaError,
)
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core import Party, Progress, Watcher
from understudy.protocols.core.alignment import watch_alignment
from understudy.protocols.core.loop import Checkpoint
from understudy.protocols.joint.server import STOPPED
from understudy.runs.federation import (
    Federation,
    Holder,
    HolderSource,
    open_classified,
    open_ledger,
    open_public,
    open_sources,
)
from understudy.runs.registry import protocol_named, resolve_protocol, resolve_run_file
from understudy.runs.result import Result
from understudy.runs.runfile import RunFile
from understudy.runtime.local import LocalParties

_STOPPING = (
    "Stopping after this step, so that the run can be resumed. Ctrl-C again stops at "
    "once.\n"
)
_STOPPED = (
    "stopped between two steps: what was finished is saved, where there is a folder"
)


def train(
    protocol: str,
    federation: Federation,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
    run: str | None = None,
    holdout: HolderSource | None = None,
    public: HolderSource | None = None,
    tune: Mapping[str, Sequence[Any]] | None = None,
    **settings: Any,
) -> Result:
    """Train `protocol` over the federation. With a folder, checkpoints go there and a
    run can be resumed. `holdout` are public rows on which a classifier is tested while
    it trains, `public` ones from which a network may begin; they cost nobody
    anything. `tune` lists values of settings, of which the best are chosen within the
    holders' budgets (`api.tune`). `gram` is one name for tables, images and series
    (`registry.resolve_protocol`).
    """
    protocol = resolve_protocol(protocol, federation.schemas, federation.same_people)
    run = run or f"{protocol}-{uuid.uuid4().hex[:8]}"
    plain_name(run=run, effect=Effect.NOTHING_CHARGED)
    if tune:
        from understudy.api.tune import train_tuned

        return train_tuned(
            partial(train, watch=watch, holdout=holdout, public=public),
            protocol,
            federation,
            tune,
            settings,
            run=run,
            folder=None if folder is None else Path(folder),
            resume=resume,
        )
    config = protocol_named(protocol).configured(settings)
    schemas = federation.schemas
    same_people = _have_same_people(protocol, federation.same_people)
    public_rows = open_public_rows(
        protocol,
        config,
        schemas,
        same_people=same_people,
        holdout=holdout,
        public=public,
    )
    party_folder, checkpoint = (
        None if folder is None else Path(folder) / name
        for name in ("parties", "checkpoint")
    )
    party_of = federation.parties(protocol, run=run, folder=party_folder, config=config)
    parties = LocalParties(party_of)
    if checkpoint is not None:
        _take_up(checkpoint, party_of, resume=resume)
    with stoppable(watch) as watcher:
        watch_alignment(party_of.values(), watcher)
        try:
            outcome = protocol_named(protocol).train(
                config,
                parties,
                schemas,
                checkpoint=checkpoint,
                resume=resume,
                watch=watcher,
                **public_rows,
            )
        except KeyboardInterrupt:
            if checkpoint is not None and Checkpoint(checkpoint, parties).has(STOPPED):
                for party in party_of.values():
                    party.stop()
            raise
    return Result.from_outcome(
        outcome, parties.transcript, run, federation, schemas=schemas
    )


def open_public_rows(
    protocol: str,
    config: Any,
    schemas: Mapping[str, Any],
    *,
    same_people: bool,
    holdout: HolderSource | None = None,
    public: HolderSource | None = None,
) -> dict[str, Any]:
    """The public rows that a protocol's `train` takes, opened, once its schemas are
    found to fit together.
    """
    record = protocol_named(protocol)
    for schema in (TABLE.among(schemas) | VISITS.among(schemas)).values():
        check_rules(schema)
    if same_people and not VISITS.among(schemas):
        # Two parties with the same column: refused before anything else, unless they
        # may hold other people of it.
        side_by_side(schemas if record.same_people else distinct(schemas))
    record.require_kinds(schemas)
    opened: dict[str, Any] = {}
    if holdout is not None:
        if record.artefact != "model":
            raise ConfigError(
                f"{protocol} takes no holdout.", effect=Effect.NOTHING_CHARGED
            )
        opened["holdout"] = open_classified(
            holdout, next(iter(schemas.values())), config.target, "holdout"
        )
    if public is not None:
        if not record.public_rows:
            raise ConfigError(
                f"{protocol} takes no public rows.", effect=Effect.NOTHING_CHARGED
            )
        described = next(iter(schemas.values()))
        opened["public"] = (
            open_classified(public, described, config.target, "public rows")
            if record.artefact == "model"
            else open_public(public, described)
        )
    return opened


def run_file(
    file: RunFile,
    *,
    resume: bool = False,
    watch: Watcher | None = None,
    seed: int | None = None,
) -> tuple[Result, Path]:
    """Carry out a run file; its artefacts lie in the folder that is returned."""
    file = resolve_run_file(file)
    budgets = {name: section.budget() for name, section in file.parties.items()}
    for candidate in _candidates(file):
        config = protocol_named(file.protocol).configured(
            {**file.settings, **candidate}
        )
        protocol_named(file.protocol).require_price(config, budgets)
    if file.rows is not None and protocol_named(file.protocol).artefact != "generator":
        raise ConfigError(
            f'"rows": {file.protocol} draws no rows.',
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    out = file.path(file.out)
    run_facts = _run_facts(file, out, resume=resume, rehearsal=seed is not None)
    federation = _federation(file, seed)
    holdout, public = (
        None if name is None else file.path(name)
        for name in (file.holdout, file.public)
    )
    with _claim_folder(file, out, run_facts):
        result = train(
            file.protocol,
            federation,
            folder=out,
            resume=resume,
            watch=watch,
            run=run_facts["run"],
            holdout=holdout,
            public=public,
            tune=file.tune,
            **dict(file.settings),
        )
    result.save(out, rows=file.rows)
    return result, out


def _candidates(file: RunFile) -> Sequence[Mapping[str, Any]]:
    """The settings that a run file leaves open: one choice where it leaves none."""
    if not file.tune:
        return [{}]
    from understudy.api.tune import candidates_of

    return candidates_of(file.tune)


def _run_facts(
    file: RunFile, out: Path, *, resume: bool, rehearsal: bool
) -> dict[str, Any]:
    """The run's name and whether it is a rehearsal: a new run's, or those of the one
    that is to be resumed.
    """
    exists = (out / "run.toml").exists()
    if exists and not resume:
        raise ArtefactError(
            f"{out} already has a run in it. Choose another `out`, or resume that run "
            "with --resume.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    if not resume:
        return {
            "run": f"{file.protocol}-{uuid.uuid4().hex[:8]}",
            "rehearsal": rehearsal,
        }
    if not exists:
        raise ArtefactError(
            f"{out} has no run to resume.", effect=Effect.NOTHING_READ_OR_CHARGED
        )
    run_facts: dict[str, Any] = json.loads((out / "run.json").read_text())
    if run_facts.get("rehearsal", False) != rehearsal:
        raise ArtefactError(
            f"{out}: a rehearsal is resumed with its --seed, and any other run without "
            "one.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    return run_facts


def _federation(file: RunFile, seed: int | None) -> Federation:
    """The holders that a run file names, their rows and ledgers opened; with a seed, a
    rehearsal of them.
    """
    schemas = file.schemas()
    if seed is None:
        _require_agreement(file)
    sources: dict[str, HolderSource] = {
        name: NoRows(one_kind_of_row(schemas[name]))
        if section.aggregates
        else file.source(name)
        for name, section in file.parties.items()
    }
    same_people = protocol_named(file.protocol).holds_same_people(
        schema.names for schema in file.schemas_in_run().values()
    )
    tables = open_sources(
        sources, schemas, same_people=same_people, shared=file.shared_columns
    )
    holders = []
    for number, (name, section) in enumerate(file.parties.items()):
        if seed is None:
            if section.ledger is None:
                own_folder(file.ledger_path(name).parent)
            ledger = open_ledger(file.ledger_path(name), name, section.total())
        else:
            ledger = Ledger.rehearsal(holder=name, budget=section.total())
        holder_seed = None if seed is None else seed * 1_000_003 + number
        elsewhere = section.people_are_elsewhere
        holders.append(
            Holder(
                name,
                tables[name],
                ledger,
                section.budget(),
                holder_seed,
                section.noise,
                elsewhere,
            )
        )
    return Federation.from_holders(holders, same_people=same_people)


@contextmanager
def _claim_folder(
    file: RunFile, out: Path, run_facts: Mapping[str, Any]
) -> Iterator[None]:
    """The folder holds this run from now on; one that is refused before it began leaves
    it free.
    """
    out.mkdir(parents=True, exist_ok=True)
    replace(out / "run.toml", file.to_toml().encode())
    replace_json(out / "run.json", dict(run_facts))
    try:
        yield
    except (ConfigError, SchemaError):
        if not any((out / name).exists() for name in ("checkpoint", "candidates")):
            (out / "run.toml").unlink()
        raise


def _require_agreement(file: RunFile) -> None:
    """LedgerError where a ledger that exists and the run file say different things
    about its lifetime budget.
    """
    for name, section in file.parties.items():
        path = file.ledger_path(name)
        if not path.exists():
            continue
        with Ledger(path, holder=name) as ledger:
            lifetime = ledger.budget
            spent = ledger.summary()
        clash = section.clash(lifetime)
        if clash:
            needed_epsilon = max(section.epsilon, section.total().epsilon)
            delta = (
                ""
                if section.ledger_delta is None
                else f" --delta {section.ledger_delta:g}"
            )
            raise LedgerError(
                f"{name}: the run file says that {clash}, and the ledger {path} "
                f"allows {lifetime} for all runs "
                "together. Change the run file, or, if the holder agrees, the "
                "ledger: understudy ledger budget "
                f'{path} --epsilon {needed_epsilon:g}{delta} --reason "…". {spent}',
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )


def _have_same_people(protocol: str, same_people: bool | None) -> bool:
    """Whether the holders have the same people, if the protocol is for such; of one
    holder it may say so itself.
    """
    required = protocol_named(protocol).same_people
    if same_people is not None and required not in (None, same_people):
        raise ConfigError(
            f"{protocol} is for holders of {'the same' if required else 'different'} "
            "people: build the federation "
            f"with same_people={required}.",
            effect=Effect.NOTHING_CHARGED,
        )
    return bool(required if same_people is None else same_people)


def _take_up(checkpoint: Path, party_of: Mapping[str, Party], *, resume: bool) -> None:
    """Put the parties where they stood when their server was stopped between two asks.
    A stop of which a state is missing is none: the run goes on from its last release.
    """
    store = Checkpoint(checkpoint, LocalParties(party_of))
    states = {name: party.stopped() for name, party in party_of.items()}
    if not (resume and store.has(STOPPED)) or None in states.values():
        store.forget(STOPPED)
        return
    for name, state in states.items():
        party_of[name].load_state_dict(state or {})


@contextmanager
def stoppable(watch: Watcher | None) -> Iterator[Callable[[Progress], None]]:
    """Turn Ctrl-C into a stop between two rounds, releases, chunks of people or batches
    of ids that are masked, so that what is saved is complete. The first says so; a
    second one is immediate.
    """
    stop_requested = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if stop_requested.is_set():
            raise KeyboardInterrupt
        stop_requested.set()
        sys.stderr.write(_STOPPING)

    def watcher(progress: Progress) -> None:
        if watch is not None:
            watch(progress)
        if stop_requested.is_set():
            raise KeyboardInterrupt(_STOPPED)

    if threading.current_thread() is not threading.main_thread():
        yield watcher
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield watcher
    finally:
        signal.signal(signal.SIGINT, before)
