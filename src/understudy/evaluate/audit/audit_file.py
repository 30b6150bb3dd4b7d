"""Audits of whole runs: any protocol as it is, and whatever a run file says.

Guarantee: rows are made up from the public schemas; no table and no ledger of a holder
is opened.
Edges: a run is cut down (`canaries.cut_down`), so what breaks only at full size is not
seen.
"""

import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from understudy.data.kinds import TABLE, load_schema
from understudy.data.schema import Schema
from understudy.evaluate.audit.auditing import (
    UNREAD,
    AuditResult,
    Case,
    audit_protocol,
    rehearsal_options,
)
from understudy.evaluate.audit.bounds import NoGaussianError
from understudy.evaluate.audit.canaries import ROUNDS, VertiGanAudit, shrink_config
from understudy.evaluate.audit.cohort_canary import codes_case, cohort_case, report_case
from understudy.evaluate.audit.joint_canary import AggregatorsAudit, JointAudit
from understudy.ground.check import one_of, whole
from understudy.ground.durable import read_json
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.core import Party
from understudy.protocols.core.alignment import AlignedParty
from understudy.protocols.protocol import Protocol

ASSUMED_RATE = 0.1
PEOPLE = 40


class RunFile(typing.Protocol):
    """What an audit needs of a run file (`understudy.runs.runfile`)."""

    @property
    def parties(self) -> Mapping[str, Any]: ...

    @property
    def out(self) -> str: ...

    def path(self, text: str) -> Path: ...


@dataclass(frozen=True)
class Subject:
    """What is audited: one party of a run. `people`: their number, where it is stated;
    `out`: the run's folder.
    """

    protocol: Protocol
    config: Any
    schemas: Mapping[str, Any]
    budgets: Mapping[str, Budget]
    target: str
    people: int | None
    out: Path

    @property
    def n_people(self) -> int:
        return self.people or PEOPLE

    @property
    def schema(self) -> Any:
        return self.schemas[self.target]

    @property
    def budget(self) -> Budget:
        return self.budgets[self.target]

    @property
    def tables(self) -> Mapping[str, Schema]:
        """All schemas. ConfigError where one is of no table."""
        for name, schema in self.schemas.items():
            if not TABLE.describes(schema):
                raise ConfigError(
                    f"{name} holds rows of the kind {schema.kind!r}, and an audit can "
                    "make up only tables.",
                    effect=Effect.NOTHING_COMPUTED,
                )
        return self.schemas


def _critic_case(subject: Subject) -> Case:
    people = subject.people or _read_people(subject.out)
    notes = []
    if people is None:
        people = math.ceil(subject.config.batch / ASSUMED_RATE)
        notes.append(
            f"how many people there are is not known yet; {people:,} were assumed"
        )
    small, n_people = shrink_config(subject.config, people)
    case = VertiGanAudit(
        config=small,
        schema=subject.tables[subject.target],
        budget=subject.budget,
        people=n_people,
        name=subject.target,
    ).case()
    return replace(case, notes=(*notes, *case.notes))


def _limit_rounds(subject: Subject) -> Any:
    """Its settings; where it takes rounds, so few that it can be run many times."""
    if "rounds" not in subject.protocol.settings:
        return subject.config
    return replace(subject.config, rounds=min(subject.config.rounds, ROUNDS))


def _protocol_case(subject: Subject) -> Case:
    """Any protocol as it is, searched by a linear rule over all that the target was
    paid for.

    Where parties hold the same people, the canary is missing from all of them,
    otherwise from the target alone.
    Edges: the worlds differ by one in the number of people, and in whatever a protocol
    derives from that public number; a protocol whose noise is small against this needs
    a case of its own.
    """
    config = _limit_rounds(subject)
    tables = {
        name: TABLE.made_up(schema, subject.n_people)
        for name, schema in subject.tables.items()
    }
    public = {name: table.schema for name, table in tables.items()}

    def build(name: str, absent: bool, seed: int) -> Party:
        rows = tables[name].take(np.arange(int(absent), subject.n_people))
        return subject.protocol.build(
            name, rows, **rehearsal_options(name, subject.budgets[name], seed)
        )

    same_people = isinstance(build(subject.target, False, 0), AlignedParty)
    return Case(
        target=subject.target,
        parties=lambda present, trial: {
            name: build(
                name,
                not present and (same_people or name == subject.target),
                len(tables) * trial + number,
            )
            for number, name in enumerate(tables)
        },
        train=lambda parties: subject.protocol.train(config, parties, public),
        notes=(f"{subject.n_people} people, the protocol as it is", UNREAD),
    )


def _joint_case(subject: Subject, *, alone: bool = False) -> Case:
    """Joint releases of the record's study; what the run would refuse is refused.
    `alone`: as if the target were the only holder.
    """
    study = subject.protocol.study
    if study is None:
        raise ConfigError(
            f"{subject.protocol.name} names no study of joint releases.",
            effect=Effect.NOTHING_COMPUTED,
        )
    config = _limit_rounds(subject)
    schemas = subject.schemas
    whole_study = study(config, schemas)
    if alone or whole_study.grid.partition == "horizontal":
        if "max_holders_per_person" in subject.protocol.settings:
            config = replace(config, max_holders_per_person=1)
        schemas = {subject.target: subject.schema}
        try:
            study(config, schemas)
        except ConfigError as error:
            raise ConfigError(
                f"{subject.target} alone cannot be audited: {error.message} "
                "Name another party.",
                effect=Effect.NOTHING_COMPUTED,
            ) from None
    else:
        schemas = {
            name: schema.as_drawn() if schema.person else schema
            for name, schema in schemas.items()
        }
    return JointAudit(
        study=study,
        config=config,
        schemas=schemas,
        budgets=subject.budgets,
        target=subject.target,
        people=subject.n_people,
    ).case()


# How a protocol is audited (`Protocol.audit`).
CASES: dict[str, Callable[[Subject], Case]] = {
    "plain": _protocol_case,
    "critic": _critic_case,
    # without `remeasured_pairs`, which are chosen by what was released: their budget
    # goes into the others
    "gram": lambda of: _joint_case(
        replace(of, schemas=of.tables, config=replace(of.config, remeasured_pairs=0))
    ),
    "joint": _joint_case,
    "joint-alone": partial(_joint_case, alone=True),
    "aggregators": lambda of: AggregatorsAudit(
        config=of.config,
        schemas=of.schemas,
        budgets=of.budgets,
        target=of.target,
        people=of.n_people,
    ).case(),
    "reports": lambda of: cohort_case(
        of.protocol, of.config, of.tables[of.target], of.budget, target=of.target
    ),
    "one-report": lambda of: report_case(
        of.config, of.tables[of.target], of.budget, target=of.target
    ),
    "codes": lambda of: codes_case(of.config, of.schema, of.budget, target=of.target),
}


def audit_run_file(
    file: RunFile,
    protocol: Protocol,
    config: Any,
    *,
    party: str | None = None,
    people: int | None = None,
    trials: int = 1000,
    seconds: float = 300.0,
) -> AuditResult:
    """Audit what a run file says: its protocol, its settings and one party's budget, on
    made-up rows. The party is the one that promises the smallest ε, unless named. The
    number of people sets the sampling rate; it is read from the run's card where the
    run was carried out, and a rate of one in ten is taken where it was not.
    """
    case = case_from_run(file, protocol, config, party=party, people=people)
    result = audit_protocol(case, trials=trials, seconds=seconds)
    if case.tight is None:
        return result
    try:
        return replace(result, tight=case.tight(0, min(seconds / 4, trials / 50)))
    except NoGaussianError:
        return result


def case_from_run(
    file: RunFile,
    protocol: Protocol,
    config: Any,
    *,
    party: str | None = None,
    people: int | None = None,
) -> Case:
    if people is not None:
        whole(people=people)
    audited = party or min(
        file.parties, key=lambda party_name: float(file.parties[party_name].epsilon)
    )
    one_of(file.parties, party=audited)
    paths = {
        party_name: file.path(section.schema)
        for party_name, section in file.parties.items()
    }
    budgets = {
        party_name: section.budget() for party_name, section in file.parties.items()
    }
    schemas = {party_name: load_schema(path) for party_name, path in paths.items()}
    protocol.require_kinds(schemas)
    case = CASES[protocol.audit](
        Subject(
            protocol, config, schemas, budgets, audited, people, file.path(file.out)
        )
    )
    return replace(case, notes=(f"party {audited}", *case.notes))


def _read_people(out: Path) -> int | None:
    try:
        return int(read_json(out / "generator" / "card.json")["people"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
