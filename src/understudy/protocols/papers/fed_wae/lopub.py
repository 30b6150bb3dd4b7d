"""LoPub and LoCop: every person sends randomized bits of a row once, and the server
makes a distribution of them.

Ren et al., "LoPub" (IEEE TIFS 2018), and Wang et al., on copula functions (IEEE TSC
2019), the baselines of Jiang, dissertation, TUM 2024, §4.5.1, Eq. 4.7.
Paper → code: H → hashes, φ → threshold, p_f → `Rappor.flip_rate`, w → the columns of
two levels and more.
Differs from the papers: hash functions follow from a public seed; ε is set, and p_f
follows from it; a person who has several rows reports on `max_reports` of them, drawn
at random, and pays for each report. Who has fewer rows reports on one of them again, so
that nobody's number of rows can be seen.

Guarantee: ε-LDP: all reports of a person together cost at most `epsilon_total`, against
anyone, the server included.
Edges: tables alone; columns of one level are not reported and cost nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.encoding.population import population_of
from understudy.data.schema import Schema
from understudy.ground.errors import ConfigError, Effect, MessageError
from understudy.ground.pack import Value
from understudy.ground.settings import (
    POSITIVE,
    WHOLE,
    between,
    choice,
    setting,
    whole_to,
)
from understudy.models.network import Network
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.local.rappor import BOUNDS, Rappor
from understudy.protocols.core import Parties
from understudy.protocols.core.settings import PeopleApart
from understudy.protocols.cross_device.host import Call, Hosting, HostParty, Reported
from understudy.protocols.cross_device.reporting import MOST_REPORTS
from understudy.protocols.cross_device.run import Survey, TableOpening, own_table
from understudy.protocols.papers.fed_wae.lopub_fit import (
    Estimates,
    fit_locop,
    fit_lopub,
)

METHODS = ("lopub", "locop")
MAX_HASHES = 64


@dataclass(frozen=True, kw_only=True)
class Config(PeopleApart):
    """`epsilon_total` is for all `max_reports` reports; `bound`: p_f by Eq. 4.7 or
    exactly; `clique`, `cells` limit tables.
    """

    method: str = setting("lopub", choice(*METHODS), "lopub or locop")
    epsilon_total: float = setting(
        8.0, POSITIVE, "price of all reports of a person together"
    )
    max_reports: int = setting(
        1, whole_to(MOST_REPORTS), "the most reports of one person"
    )
    hashes: int = setting(
        4, whole_to(MAX_HASHES), "hash functions of a column's Bloom filter"
    )
    bound: str = setting(
        "paper",
        choice(*BOUNDS),
        "how the parameter follows from ε: by the paper, or exactly",
    )
    threshold: float = setting(
        0.4, between(0, 1), "dependence from which two columns are joined"
    )
    clique: int = setting(
        3, WHOLE, "the most columns in a group: a column and those that it depends on"
    )
    cells: int = setting(1024, WHOLE, "the most cells of a table")
    batch: int = setting(1 << 14, WHOLE, "people who are asked at a time")

    def mechanism(self, schema: Schema) -> Rappor:
        """What randomizes a row. ConfigError where two columns have more cells than a
        table may.
        """
        sizes = Codec(schema).sizes
        large = sorted(zip(sizes, schema.names, strict=True))[-2:]
        if len(large) == 2:
            (second_size, second_largest), (largest_size, largest) = large
            cells = second_size * largest_size
            if cells > self.cells:
                raise ConfigError(
                    f'columns "{second_largest}" and "{largest}" have {cells:,} cells '
                    "together, more than "
                    f"cells={self.cells}: declare fewer levels or bins.",
                    effect=Effect.NOTHING_CHARGED,
                )
        return Rappor(
            sizes=sizes,
            epsilon=self.epsilon_total / self.max_reports,
            hashes=self.hashes,
            bound=self.bound,
            seed=self.seed,
        )


class LoPubBegin(TableOpening, kind="lopub.begin"):
    """The run's settings, and the columns that all parties' rows have."""


class LoPubRound(Call, kind="lopub.round"):
    """Which of the party's people are to report on a row of theirs: their places,
    (n,).
    """


class LoPubParty(HostParty):
    """A host of people with rows of a table. Guarantee: a report is ε-LDP in the
    content of the person's rows, and stands in the ledger before a row is touched.
    Which of the rows it is about is drawn in secret, and no row twice while there are
    others.
    """

    begin_type = LoPubBegin
    round_type = LoPubRound

    def open(self, ask: LoPubBegin) -> Hosting:
        table = own_table(self, ask, "lopub")
        config = Config(**ask.config)
        self.mechanism = config.mechanism(table.schema)
        self.first: Tensor | None = None  # where each person begins among their rows
        return Hosting(population_of(table), self.mechanism.event, config.max_reports)

    def reports(self, ask: LoPubRound) -> Value:
        """Packed bits: uint8, (people, ⌈width/8⌉)."""
        people = ask.people
        starts = self.population.starts
        sizes = starts.diff()
        if self.first is None:
            self.first = (
                (self.rng.uniform(self.population.people) * sizes)
                .long()
                .clamp(max=sizes - 1)
            )
        # Participations are counted for those who take part, `places` says who they
        # are, in ascending order.
        reports_before = (
            self.participations[torch.searchsorted(self.places, people)] - 1
        )
        rows = starts[people] + (self.first[people] + reports_before) % sizes[people]
        bits = self.mechanism(self.population.rows[rows], self.rng)
        return torch.from_numpy(np.packbits(bits.numpy(), axis=1))

    def state_dict(self) -> dict[str, Any]:
        first = self.first if self.begun is not None else None
        return super().state_dict() | ({} if first is None else {"first": first})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if "first" in state:
            self.first = state["first"]


class LoPub(Survey):
    protocol = "lopub"
    begin = LoPubBegin
    config: Config

    def __init__(
        self, config: Config, parties: Parties, schemas: Mapping[str, Schema]
    ) -> None:
        super().__init__(config, parties, schemas)
        self.mechanism = config.mechanism(self.schema)
        self.reports = list[Tensor]()

    def plan_rounds(self) -> None:
        starts = range(0, max(self.hosted.values()), self.config.batch)
        self.turns = list(product(range(self.config.max_reports), starts))
        self.rounds = len(self.turns)

    def asks(self, round: int) -> dict[str, LoPubRound]:
        start = self.turns[round - 1][1]
        batch = self.config.batch
        stops = {
            name: min(start + batch, people)
            for name, people in self.hosted.items()
            if start < people
        }
        return {
            name: LoPubRound(round=round, people=torch.arange(start, stop))
            for name, stop in stops.items()
        }

    def hear(self, asks: Mapping[str, Any], answers: Mapping[str, Reported]) -> None:
        for name, reply in answers.items():
            value = reply.reports.value
            shape = (len(asks[name].people), math.ceil(self.mechanism.width / 8))
            if (
                not isinstance(value, Tensor)
                or value.dtype != torch.uint8
                or value.shape != shape
            ):
                raise MessageError(
                    f"a party's reports are not {shape} bytes. They were discarded."
                )
            self.reports.append(value)

    def to_save(self) -> dict[str, Any]:
        self.reports = [torch.cat(self.reports)]
        return {"reports": self.reports[0]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.reports = [state["reports"]]

    @property
    def times(self) -> int:
        return 1 + self.turns[self.done - 1][0]

    @property
    def asked_spend(self) -> dict[str, Spend]:
        return {name: {self.mechanism.event: self.times} for name in self.begun}

    def fit(self) -> Network:
        self.estimates, config = (
            Estimates(self.mechanism, torch.cat(self.reports)),
            self.config,
        )
        if config.method == "locop":
            return fit_locop(self.estimates).eval()
        return fit_lopub(
            self.estimates,
            threshold=config.threshold,
            clique=config.clique,
            cells=config.cells,
        ).eval()

    def card_extra(self) -> dict[str, Any]:
        return {
            "reports": {
                "all": self.estimates.reports,
                "of the busiest person": self.times,
            },
            "bits": self.mechanism.width,
            "flip_rate": self.mechanism.flip_rate,
            "epsilon_of_a_report": {
                "charged": self.mechanism.epsilon,
                "tight": self.mechanism.tight,
            },
        }


train = LoPub.train
PROTOCOL = LoPub.record(LoPubParty, Config, paper=__doc__)
