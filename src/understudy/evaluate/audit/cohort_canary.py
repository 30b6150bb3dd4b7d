"""The audit's case for protocols in which people report for themselves: local privacy,
over whole runs.

The promise is about what a person's reports say, not about whether they report
(`protocols/cross_device.ADJACENCY`). So in both worlds the canary is asked, in every
round that `max_reports` allows. In one its row differs from everybody's in every
column, in the other it is like everybody's. The server reads the canary's own reports,
laid out over all parameters: sign · 1 at the chosen ones, or the noisy values. A linear
rule is learned from half of the runs.

Where a person reports once (`one-report`), the server is the worst there is: it asks
everyone about one set of columns whose first cell is the canary's row and whose other
cell is every other row, and looks whether the report names the first. In `class-means`
it names a centre on which everybody but the canary lies, and looks whether the report
is one of the codewords that are nearest to the canary's row, or to nobody's.

Guarantee: party, `train` and ledger are the real ones, and no real row is read.
Edges: rounds, cohort and network are cut down, so what breaks only at full size is not
seen. The rule is linear in the reports; a better one may reach more.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import torch

from understudy.data.encoding.codec import Codec
from understudy.data.kinds import TABLE, ArraySchema, kind_of
from understudy.data.schema import Schema
from understudy.evaluate.audit.auditing import UNREAD, Case, rehearsal_options
from understudy.evaluate.audit.canaries import ROUNDS
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.local.naming import SubsetSelection
from understudy.privacy.local.reporter import Report
from understudy.protocols.class_means import protocol as class_means
from understudy.protocols.core import Parties, Party, Reply
from understudy.protocols.cross_device.host import HostParty, Reported
from understudy.protocols.cross_device.reporting import form_of, from_message
from understudy.protocols.one_report import party as one_report_party
from understudy.protocols.one_report import protocol as one_report
from understudy.protocols.one_report.party import MOST_COLUMNS, ColumnSet, as_sent
from understudy.protocols.protocol import Protocol

PEOPLE = 4


def cohort_case(
    protocol: Protocol, config: Any, schema: Schema, budget: Budget, *, target: str
) -> Case:
    """One host of a few people who are all asked as often as `max_reports` allows, at
    most twice.
    """
    if getattr(config, "reporter", "none") == "none":
        raise ConfigError(
            'reporter "none" claims no guarantee, so there is nothing to refute.'
        )
    rounds = min(config.rounds, config.max_reports, ROUNDS)
    # settings that make a run small and leave its prices as they are
    tiny: dict[str, Any] = {
        "hidden": 4,
        "evaluate_every": 10**6,
        "checkpoint_every": 10**6,
        "device": "cpu",
    }
    tiny = {
        field.name: tiny[field.name] for field in fields(config) if field.name in tiny
    }
    small = replace(
        config, rounds=rounds, clients_per_round=PEOPLE, poison=None, **tiny
    )

    def build(present: bool, trial: int) -> Mapping[str, Party]:
        table = TABLE.made_up(schema, PEOPLE, 0 if present else None)
        return {
            target: protocol.build(
                target, table, **rehearsal_options(target, budget, trial)
            )
        }

    described = {target: TABLE.made_up(schema, PEOPLE).schema}
    note = (
        f"{PEOPLE} people, of whom the canary reports {rounds} times of at most "
        f"{config.max_reports}; the claim is for these"
    )
    return Case(
        target=target,
        parties=build,
        train=lambda parties: protocol.train(small, parties, described),
        numbers=canary_reports,
        notes=(note, UNREAD),
    )


def report_case(
    config: one_report.Config, schema: Schema, budget: Budget, *, target: str
) -> Case:
    """One host of a few people, each asked once by a server that asks about nothing but
    the canary's row.
    """
    described = TABLE.made_up(schema, PEOPLE).schema
    sizes = Codec(replace(described, person=None)).sizes
    columns = [column for column, size in enumerate(sizes) if size > 1][:MOST_COLUMNS]
    groups = [
        (torch.arange(size) == size - 1).long() if size > 1 else torch.zeros(1).long()
        for size in sizes
    ]
    canary_groups = tuple(groups[column] for column in columns)
    column_set = ColumnSet(
        tuple(columns), canary_groups, torch.ones(1, len(columns), dtype=torch.int64)
    )
    sent = as_sent(groups, [column_set])

    def build(present: bool, trial: int) -> Mapping[str, Party]:
        table = TABLE.made_up(schema, PEOPLE, 0 if present else None)
        return {
            target: one_report.PROTOCOL.build(
                target, table, **rehearsal_options(target, budget, trial)
            )
        }

    def ask(parties: Parties) -> None:
        public_schema = Schema(columns=described.columns).to_dict()
        parties.ask(
            one_report_party.BeginReports(config=asdict(config), schema=public_schema)
        )
        which = torch.zeros(PEOPLE, dtype=torch.int64)
        parties.ask(
            one_report_party.MarginalsRound(
                round=1, people=torch.arange(PEOPLE), which=which, **sent
            )
        )

    def score_report(value: Any) -> float:
        mechanism = SubsetSelection(
            cells=column_set.cells, epsilon=config.epsilon_total
        )
        cells, _ = mechanism.decode(value.view(PEOPLE, -1))
        return float((cells[0] == 0).any())

    adversary = "a server that asks whether a row is the canary's"
    return _single_report_case(
        target, build, ask, score_report, adversary, "about a set of columns"
    )


def codes_case(
    config: class_means.Config, schema: ArraySchema, budget: Budget, *, target: str
) -> Case:
    """One host of a few people, each asked once for the direction from a centre to the
    canary's row.
    """
    terms = class_means.Terms(config, schema)
    features = terms.frame.features
    near = terms.mechanism.near
    vector = np.zeros(terms.width)
    vector[:features] = terms.frame.coefficients(
        kind_of(schema).made_up(schema, 1).values
    )[0]
    scores = (
        terms.codebook(target, directions=True).block(0, terms.classes - 1) @ vector
    )
    canarys = set(np.argsort(-scores)[:near].tolist())
    nobodys = set(range(near))

    def build(present: bool, trial: int) -> Mapping[str, Party]:
        rows = (
            kind_of(schema)
            .made_up(schema, PEOPLE + 1)
            .take(np.arange(PEOPLE) + (not present))
        )
        return {
            target: class_means.ClassMeansParty(
                target, rows, **rehearsal_options(target, budget, trial)
            )
        }

    def ask(parties: Parties) -> None:
        parties.ask(
            class_means.BeginMeans(config=asdict(config), schema=schema.to_dict())
        )
        centre = torch.zeros(features, dtype=torch.int64)
        parties.ask(
            class_means.MeansRound(
                round=1, people=torch.arange(PEOPLE), directions=True, centre=centre
            )
        )

    def score_report(value: Any) -> float:
        code = int.from_bytes(bytes(value[: class_means.CODE].tolist()), "big")
        return float(code in canarys) - float(code in nobodys)

    adversary = "a server that looks for the codewords nearest to the canary"
    return _single_report_case(
        target, build, ask, score_report, adversary, "for their direction from a centre"
    )


def _single_report_case(
    target: str,
    parties: Callable[[bool, int], Mapping[str, Party]],
    ask: Callable[[Parties], None],
    score_report: Callable[[Any], float],
    adversary: str,
    described: str,
) -> Case:
    """People who report once, and who looks how at the one value that their host
    sends.
    """

    def score(party: Party, replies: list[Reply]) -> float:
        (value,) = [
            reply.reports.value for reply in replies if isinstance(reply, Reported)
        ]
        return score_report(value)

    return Case(
        target=target,
        parties=parties,
        train=ask,
        scores={adversary: score},
        notes=(
            f"{PEOPLE} people, each asked once {described} that was made up to find "
            "the canary",
            UNREAD,
        ),
    )


def canary_reports(party: Party, replies: list[Reply]) -> list[float]:
    """What the canary, who is the first person, claims about every parameter, round
    after round.
    """
    if not isinstance(party, HostParty):
        raise TypeError("only hosts of people have their reports")
    form = form_of(party.reporter)  # type: ignore[attr-defined]
    sent = [reply for reply in replies if isinstance(reply, Reported)]
    claims: list[float] = []
    for report in (from_message(reply.reports.value, form, PEOPLE) for reply in sent):
        indices = None if report.indices is None else report.indices[:1]
        first = Report(
            dims=report.dims,
            values=report.values[:1],
            indices=indices,
            scale=report.scale,
        )
        claims += first.total().to(torch.float64).tolist()
    return claims
