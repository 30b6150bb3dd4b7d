"""One report a person: each says once, at random within ε, which cell of some columns
their own row is in.

The server fits a mixture of products to all reports together, at a small ε with columns
that are independent given the target.

Nobody is trusted: a report is ε-LDP by subset selection (`privacy/local/naming.py`) and
small, one to a few bytes. What columns people are asked about is planned in two rounds
(`plan.py`), each person in one; what becomes of the reports stands in `fit.py` and
`given_target.py`.

Guarantee: all that a person ever sends in the run costs `epsilon_total`, pure, against
anyone, the server included, however it chooses its sets.
Edges: tables alone; columns of one level are not asked about. A reply that cannot be
read, or a report that is none, is refused and counted on the card, and the others'
stay.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.column import Binned, Ordinal
from understudy.data.encoding.codec import Codec
from understudy.data.kinds import NoRows
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.ground.errors import ConfigError, Effect
from understudy.models.network import pick_device
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.local.naming import MOST_CELLS, SubsetSelection
from understudy.protocols.core import Parties
from understudy.protocols.cross_device.run import TwoRounds
from understudy.protocols.one_report import party
from understudy.protocols.one_report.fit import Heard, fit_reports, one_ways
from understudy.protocols.one_report.given_target import fit_given_target
from understudy.protocols.one_report.party import (
    CollectingReports,
    Config,
    MarginalsRound,
    OneReportParty,
)
from understudy.protocols.one_report.plan import (
    Asking,
    ReportPlan,
    first_round,
    second_round,
)
from understudy.protocols.one_report.together import read_together

__all__ = ["PROTOCOL", "Config", "train"]

_RATE = 0.15  # of the fit
_SETS_A_STEP = 40


def build_party(
    name: str,
    table: Table | NoRows,
    ledger: Ledger,
    **more: Any,
) -> OneReportParty:
    if isinstance(table, NoRows):
        if table.box is None:
            raise ConfigError(
                f"{name}: one-report has no aggregator.", effect=Effect.NOTHING_CHARGED
            )
        return CollectingReports(
            name,
            table,
            ledger,
            **more,
        )
    return OneReportParty(
        name,
        table,
        ledger,
        **more,
    )


class _OneReportRun(TwoRounds):
    protocol = "one-report"
    begin = party.BeginReports
    config: Config

    def __init__(
        self,
        config: Config,
        parties: Parties,
        schemas: Mapping[str, Schema],
    ) -> None:
        super().__init__(config, parties, schemas)
        self.levels = Codec(self.schema).sizes
        self.target = _place(self.schema, self.levels, config.target)
        self.asking: dict[int, Asking] = {}
        self.refused: dict[int, int] = {}  # reports of each round that are none

    def plan_rounds(self) -> None:
        self.plan = ReportPlan.rule(
            self.config.epsilon_total,
            self.levels,
            sum(self.hosted.values()),
            target=self.target is not None,
            classes=2 if self.target is None else self.levels[self.target],
        )
        if self.config.share is not None:
            self.plan = replace(self.plan, share=self.config.share)
        self.divide(self.plan.share)

    def asks(self, round: int) -> dict[str, MarginalsRound]:
        stage, part, people = self.turn(round)
        asking = self._asking(stage)
        sent = party.as_sent(asking.groups, asking.sets)
        asks = {}
        for number, (name, who) in enumerate(self.who.items()):
            dealt = asking.deal(
                len(who[stage]),
                np.random.default_rng((self.config.seed, 1, stage, number)),
            )
            if name in people:
                asks[name] = MarginalsRound(
                    round=round,
                    people=people[name],
                    which=dealt[part],
                    **sent,
                )
        return asks

    def _asking(self, stage: int) -> Asking:
        if stage not in self.asking:
            ways = one_ways(self.heard(0), self.levels) if stage else []
            self.asking[stage] = (
                first_round(self.levels)
                if not stage
                else second_round(
                    self.plan,
                    ways,
                    ordered=in_order(self.schema),
                    epsilon=self.config.epsilon_total,
                    target=self.target,
                    people=sum(len(who[1]) for who in self.who.values()),
                    seed=self.config.seed,
                )
            )
        return self.asking[stage]

    def heard(self, stage: int) -> list[Heard]:
        """The reports about each set of a round. Those that are none are left out and
        counted.
        """
        if not any(turn[0] == stage for turn in self.turns[: self.done]):
            return []
        sets = self._asking(stage).sets
        mechanisms = [
            SubsetSelection(cells=one.cells, epsilon=self.config.epsilon_total)
            for one in sets
        ]
        named: list[list[Tensor]] = [[] for _ in sets]
        self.refused[stage] = 0
        asks: dict[int, dict[str, MarginalsRound]] = {}
        for turn, name, sent in self.sent(stage):
            asks = asks if turn in asks else {turn: self.asks(turn)}
            which = self.chosen[turn - 1].get(name, asks[turn][name].which)
            self.refused[stage] += _read(sent, which, mechanisms, named)
        return [
            Heard.from_reports(
                about,
                mechanism,
                torch.cat([torch.zeros(0, mechanism.size, dtype=torch.int64), *parts]),
            )
            for about, mechanism, parts in zip(
                sets,
                mechanisms,
                named,
                strict=True,
            )
        ]

    def fit(self) -> MixtureOfProducts:
        config = self.config
        plan = self.plan
        self.all_heard = [*self.heard(0), *self.heard(1)]
        # Large sets of columns that depend on each other would mislead a fit of
        # independent ones.
        heard = self.all_heard if plan.anchored else self.heard(0)
        ways = read_together(heard, self.levels, one_ways(heard, self.levels))
        if plan.paired and self.target is not None:
            return fit_given_target(
                self.all_heard,
                self.levels,
                ways,
                target=self.target,
                ordered=in_order(self.schema),
                components=config.components,
                liars=config.liars,
            ).eval()
        return fit_reports(
            self.all_heard,
            self.levels,
            ways,
            strength=plan.strength,
            anchored=plan.anchored,
            components=config.components,
            steps=config.steps,
            rate=_RATE,
            batch=_SETS_A_STEP,
            liars=config.liars,
            seed=config.seed,
            device=pick_device(config.device),
        ).eval()

    def card_extra(self) -> dict[str, Any]:
        reports = sum(heard.reports for heard in self.all_heard)
        weights = [
            heard.mechanism.most_weight for heard in self.all_heard if heard.reports
        ]
        counts = {
            "plan": asdict(self.plan),
            **self.counted(reports, sum(self.refused.values())),
        }
        return {
            **counts,
            "sets": len(self.all_heard),
            "a liar moves a count by at most": max(weights, default=0.0),
        }


def in_order(schema: Schema) -> list[int]:
    return [
        column.levels if isinstance(column, Binned | Ordinal) else 0
        for column in schema.columns
    ]


def _read(
    sent: Tensor,
    which: Tensor,
    mechanisms: list[SubsetSelection],
    named: list[list[Tensor]],
) -> int:
    """Put a reply's reports to those of their sets. How many were refused: all, where
    the length is not theirs.
    """
    if bool(((which < 0) | (which >= len(mechanisms))).any()):
        return len(which)
    long = party.lengths(which, mechanisms)
    if len(sent) != int(long.sum()):
        return len(which)
    ends = long.cumsum(0)
    refused = 0
    for number in np.unique(which).tolist():
        mechanism = mechanisms[number]
        in_set = which == number
        cells, malformed = mechanism.decode(
            sent[(ends[in_set, None] - mechanism.bytes) + torch.arange(mechanism.bytes)]
        )
        named[number].append(cells[~malformed])
        refused += int(malformed.sum())
    return refused


def _place(
    schema: Schema,
    levels: tuple[int, ...],
    target: str | None,
) -> int | None:
    """The target's number among the columns. ConfigError where nothing can be asked
    about it, or about any column.
    """
    for name, size in zip(schema.names, levels, strict=True):
        if size > MOST_CELLS:
            raise ConfigError(
                f'column "{name}" has {size:,} levels, more than {MOST_CELLS:,}: '
                "declare fewer levels or bins.",
                effect=Effect.NOTHING_CHARGED,
            )
    if max(levels, default=1) < 2:
        raise ConfigError(
            "no column has two levels: there is nothing to report.",
            effect=Effect.NOTHING_CHARGED,
        )
    if target is None:
        return None
    if target not in schema.names:
        raise ConfigError(
            f'target "{target}" is no column of these rows.',
            effect=Effect.NOTHING_CHARGED,
        )
    if levels[index := schema.names.index(target)] < 2:
        raise ConfigError(
            f'target "{target}" has one level, which tells nothing.',
            effect=Effect.NOTHING_CHARGED,
        )
    return index


train = _OneReportRun.train
PROTOCOL = _OneReportRun.record(
    build_party,
    Config,
    paper=__doc__,
    parties=(OneReportParty, CollectingReports),
    audit="one-report",
)
