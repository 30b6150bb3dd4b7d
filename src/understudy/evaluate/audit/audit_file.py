"""Audits of whole runs: any protocol as it is, and whatever a run file says.

Guarantee: rows are made up from the public schemas; no table and no ledger of a holder is opened.
Edges: a run is cut down (`canaries.cut_down`), so what breaks only at full size is not seen.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from understudy.data.kinds import ARRAYS, TABLE, load_schema
from understudy.data.schema import Schema
from understudy.evaluate.audit.aggregators_canary import AggregatorsAudit
from understudy.evaluate.audit.auditing import AuditResult, Case, audit_protocol
from understudy.evaluate.audit.canaries import ROUNDS, UNREAD, VertiGanAudit, cut_down
from understudy.evaluate.audit.cohort_canary import codes_case, cohort_case, report_case
from understudy.evaluate.audit.gram_canary import GramAudit
from understudy.evaluate.audit.moments_canary import moments_case
from understudy.evaluate.audit.tied_canary import TiedAudit
from understudy.evaluate.audit.visits_canary import visits_case
from understudy.ground.bounded import read_json
from understudy.ground.check import one_of, whole
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import SecureRng
from understudy.protocols.aggregators.terms import Settings as TwoAggregators
from understudy.protocols.core import AlignedParty, Party
from understudy.protocols.gans import verti_gan
from understudy.protocols.gram import protocol as gram
from understudy.protocols.moments import protocol as moments
from understudy.protocols.moments.settings import common
from understudy.protocols.people import class_means_party as class_means
from understudy.protocols.people.one_report import protocol as one_report
from understudy.protocols.people.reporting import Reporting
from understudy.protocols.tied import protocol as tied
from understudy.protocols.visits import protocol as visits

ASSUMED_RATE = 0.1
PEOPLE = 40


def plain_case(
    module: ModuleType,
    config: Any,
    schemas: Mapping[str, Schema],
    budgets: Mapping[str, Budget],
    *,
    target: str,
    people: int = PEOPLE,
) -> Case:
    """Any protocol as it is, searched by a linear rule over all that the target was paid for.

    Where parties hold the same people, the canary is missing from all of them, otherwise from the target alone.
    Edges: the worlds differ by one in the number of people, and in whatever a protocol derives from that public
    number; a protocol whose noise is small against this needs a case of its own.
    """
    one_of(schemas, target=target)
    whole(people=people)
    tables = {name: TABLE.made_up(schema, people) for name, schema in schemas.items()}
    public = {name: table.schema for name, table in tables.items()}

    def build(name: str, gone: bool, seed: int) -> Party:
        party: Party = module.build_party(
            name,
            tables[name].take(np.arange(int(gone), people)),
            Ledger.rehearsal(holder=name, budget=budgets[name]),
            run="audit",
            budget=budgets[name],
            rng=SecureRng.from_seed(seed),
        )
        return party

    together = isinstance(build(target, False, 0), AlignedParty)
    return Case(
        target=target,
        parties=lambda present, trial: {
            name: build(name, not present and (together or name == target), len(tables) * trial + number)
            for number, name in enumerate(tables)
        },
        train=lambda parties: module.train(config, parties, public),
        notes=(f"{people} people, the protocol as it is", UNREAD),
    )


class RunFile(Protocol):
    """What an audit needs of a run file (`understudy.runs.runfile`)."""

    @property
    def parties(self) -> Mapping[str, Any]: ...

    @property
    def out(self) -> str: ...

    def path(self, text: str) -> Path: ...


def audit_run_file(
    file: RunFile,
    module: ModuleType,
    config: Any,
    *,
    party: str | None = None,
    people: int | None = None,
    trials: int = 1000,
    confidence: float = 0.95,
    seconds: float = 300.0,
    seed: int = 0,
    watch: Callable[[int], None] | None = None,
) -> AuditResult:
    """Audit what a run file says: its protocol, its settings and one party's budget, on made-up rows.

    `module` and `config` are the file's protocol and its checked settings. The party is the one that promises the
    smallest ε, unless named. The number of people sets the sampling rate; it is read from the run's card where the
    run was carried out, and a rate of one in ten is taken where it was not.
    """
    if people is not None:
        whole(people=people)
    name = party or min(file.parties, key=lambda each: float(file.parties[each].epsilon))
    one_of(file.parties, party=name)
    paths = {each: file.path(section.schema) for each, section in file.parties.items()}
    budgets = {each: section.budget() for each, section in file.parties.items()}
    notes = [f"party {name}"]
    of_their_own = moments.Config | tied.Config | visits.Config | TwoAggregators | class_means.Config
    schemas = {} if isinstance(config, of_their_own) else _tables(paths)
    if isinstance(config, tied.Config):
        described = {each: load_schema(path) for each, path in paths.items()}
        case = TiedAudit(
            config=config, schemas=described, budgets=budgets, target=name, people=people or PEOPLE
        ).case()
    elif isinstance(config, moments.Config):
        described = {each: load_schema(path) for each, path in paths.items()}
        common(described)
        case = moments_case(config, described, budgets, name, people or PEOPLE)
    elif isinstance(config, class_means.Config):
        schema = load_schema(paths[name])
        if not ARRAYS.describes(schema):
            raise ConfigError(
                f"{name}: class-means is for images and series with a label. Nothing was audited."
            )
        case = codes_case(config, schema, budgets[name], target=name)
    elif isinstance(config, TwoAggregators):
        described = {each: load_schema(path) for each, path in paths.items()}
        case = AggregatorsAudit(
            config=config, schemas=described, budgets=budgets, target=name, people=people or PEOPLE
        ).case()
    elif isinstance(config, visits.Config):
        described = {each: load_schema(path) for each, path in paths.items()}
        case = visits_case(config, described, budgets, name, people or PEOPLE)
    elif isinstance(config, verti_gan.Config):
        known = people or _people(file.path(file.out))
        if known is None:
            known = math.ceil(config.batch / ASSUMED_RATE)
            notes.append(f"how many people there are is not known yet; {known:,} were assumed")
        small, few = cut_down(config, known)
        case = VertiGanAudit(
            config=small, schema=schemas[name], budget=budgets[name], people=few, name=name
        ).case()
    elif issubclass(module.Config, Reporting):
        case = cohort_case(module, config, schemas[name], budgets[name], target=name)
    elif isinstance(config, one_report.Config):
        case = report_case(config, schemas[name], budgets[name], target=name)
    elif isinstance(config, gram.Config):
        case = GramAudit(
            config=config, schemas=schemas, budgets=budgets, target=name, people=people or PEOPLE
        ).case()
    else:
        if "rounds" in {field.name for field in fields(config)}:
            config = replace(config, rounds=min(config.rounds, ROUNDS))
        case = plain_case(module, config, schemas, budgets, target=name, people=people or PEOPLE)
    return audit_protocol(
        replace(case, notes=(*notes, *case.notes)),
        trials=trials,
        confidence=confidence,
        seconds=seconds,
        seed=seed,
        watch=watch,
    )


def _tables(paths: Mapping[str, Path]) -> dict[str, Schema]:
    """The parties' schemas, of tables alone."""
    schemas: dict[str, Schema] = {}
    for name, path in paths.items():
        described = load_schema(path)
        if not TABLE.describes(described):
            raise ConfigError(
                f"{name} holds rows of the kind {described.kind!r}, and an audit can make up only tables. "
                "Nothing was audited."
            )
        schemas[name] = described
    return schemas


def _people(out: Path) -> int | None:
    """How many people the finished run in this folder had."""
    try:
        return int(read_json(out / "generator" / "card.json")["people"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
