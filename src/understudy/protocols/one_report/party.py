"""The party of `one-report`: a host of people, each of whom reports once, about a row
of their own; and its settings.

A report is about some columns of a row, and the cells that their levels fall into.
Levels of a column are put into groups, the same for all sets of a round. The cells of a
set are all combinations of its columns' groups, or some listed ones; then every other
combination falls into one more cell.

Guarantee: everything that ever leaves a person is one report by subset selection, ε-LDP
in all of the person's rows, charged before a row is touched. Which columns it is about,
and how their levels are grouped, is the server's to say: it may follow from earlier
reports or be malice, the price is the same, since the cell of a row is a function of
that row and of what the server sent, and every row has one.
Edges: a person with several rows reports about one, drawn evenly and in secret, so that
what is learned is the law of a random row of a random person; who has none reports on
the first level of each column. Sets that are none, or another set number than there are
→ MessageError, nothing charged.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.encoding.population import population_of
from understudy.data.kinds import TABLE
from understudy.data.schema import Schema
from understudy.ground.errors import ConfigError, Effect, MessageError, SchemaError
from understudy.ground.pack import Value
from understudy.ground.settings import WHOLE, Takes, between, setting, whole_to
from understudy.models.network import MOST_COMPONENTS
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.local.naming import MOST_CELLS, SubsetSelection
from understudy.privacy.local.reporter import check_epsilon
from understudy.privacy.noise import Rng
from understudy.protocols.core import Paid
from understudy.protocols.core import settings as usual
from understudy.protocols.cross_device.host import (
    Call,
    Hosting,
    HostParty,
    PassingOn,
    Reported,
    elsewhere,
)
from understudy.protocols.cross_device.run import TableOpening, own_table

MOST_SETS = 1 << 12
MOST_COLUMNS = 60  # of a set: combinations of bits still have numbers
# bytes of a report that was handed in
KEY = 16
SET = 2
_MOST_COMBINATIONS = 1 << 62  # so that a combination has a number


@dataclass(frozen=True, kw_only=True)
class Config(usual.PeopleApart):
    """Without `target` all pairs count alike; without `share` by `plan`'s rule. Prices
    of `max_holders_per_person` compose.
    """

    epsilon_total: float = setting(
        8.0,
        Takes("above 0", check_epsilon),
        "price of a person's report and of the run",
    )
    target: str | None = usual.target()
    share: float | None = setting(
        None,
        between(0, 1),
        "share asked about single columns; without it by ε; 1: all",
    )
    liars: float = setting(
        0.0,
        between(0, 0.5),
        "share of reports that may be made up: single ones then weigh less",
    )
    components: int = setting(
        128,
        whole_to(MOST_COMPONENTS),
        "products in the mixture that is fitted",
    )
    steps: int = setting(400, WHOLE, "the most steps of the fit")
    batch: int = setting(1 << 14, WHOLE, "people who are asked at a time")
    device: str = usual.device()


@dataclass(frozen=True, eq=False)
class ColumnSet:
    """`groups`: each level's group, of each column; `listed` (cells − 1, columns): each
    cell's groups, None for all.
    """

    columns: tuple[int, ...]
    groups: tuple[Tensor, ...]
    listed: Tensor | None = None

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(int(group.max()) + 1 for group in self.groups)

    @property
    def cells(self) -> int:
        return math.prod(self.sizes) if self.listed is None else len(self.listed) + 1

    @cached_property
    def _steps(self) -> Tensor:
        return torch.tensor(
            [*accumulate(self.sizes[:0:-1], lambda a, b: a * b, initial=1)][::-1]
        )

    def cell_of(self, rows: Tensor) -> Tensor:
        """The cell of each row of levels (n, all columns): int64, (n,)."""
        grouped = [
            group[rows[:, column].long()]
            for column, group in zip(self.columns, self.groups, strict=True)
        ]
        number = (torch.stack(grouped, 1) * self._steps).sum(1)
        if self.listed is None:
            return number
        listed = (self.listed * self._steps).sum(1)
        numbers, order = listed.sort()
        index = torch.searchsorted(numbers, number)
        index = index.clamp(max=len(numbers) - 1)
        is_listed = numbers[index] == number
        return torch.where(is_listed, order[index], len(numbers))


def as_sent(groups: Sequence[Tensor], sets: Sequence[ColumnSet]) -> dict[str, Any]:
    """The sets as they are sent: levels' groups (width,), each set's columns and its
    list: (0, columns) for all.
    """
    nothing = [torch.zeros(0, len(one.columns), dtype=torch.int64) for one in sets]
    listed = [
        none if one.listed is None else one.listed
        for one, none in zip(sets, nothing, strict=True)
    ]
    return {
        "groups": torch.cat(list(groups)),
        "columns": [list(one.columns) for one in sets],
        "listed": listed,
    }


def read_sets(
    groups: object,
    columns: object,
    listed: object,
    levels: Sequence[int],
) -> list[ColumnSet]:
    """What was sent, checked against the levels of each column. MessageError for what
    is none.
    """
    if (
        not isinstance(groups, Tensor)
        or groups.dtype != torch.int64
        or groups.shape != (sum(levels),)
    ):
        raise _refused(f"have no group for each of {sum(levels):,} levels")
    parts = [groups[a:b] for a, b in pairwise(accumulate(levels, initial=0))]
    for part in parts:
        numbers = np.unique(part.numpy())
        if numbers[0] != 0 or numbers[-1] != len(numbers) - 1:
            raise _refused("have groups that are not 0, 1, 2, …")
    if not isinstance(columns, list) or not isinstance(listed, list):
        raise _refused("are not lists")
    if not 1 <= len(columns) <= MOST_SETS or len(listed) != len(columns):
        raise _refused(f"are not 1 to {MOST_SETS:,}")
    return [
        _read_set(set_columns, cells, parts)
        for set_columns, cells in zip(columns, listed, strict=True)
    ]


def _read_set(
    columns: object,
    listed: object,
    groups: Sequence[Tensor],
) -> ColumnSet:
    if not isinstance(columns, list) or not all(
        type(column) is int for column in columns
    ):
        raise _refused("have columns that are no numbers")
    if not 1 <= len(columns) <= MOST_COLUMNS or len(set(columns)) != len(columns):
        raise _refused(f"do not have 1 to {MOST_COLUMNS} different columns each")
    if not all(0 <= column < len(groups) for column in columns):
        raise _refused("have a column that is not there")
    one = ColumnSet(tuple(columns), tuple(groups[column] for column in columns))
    if math.prod(one.sizes) > _MOST_COMBINATIONS:
        raise _refused("have more combinations than can be numbered")
    if (
        not isinstance(listed, Tensor)
        or listed.dtype != torch.int64
        or listed.ndim != 2
    ):
        raise _refused("list cells that are no numbers")
    outside = listed.shape[1] != len(columns) or (listed < 0) | (
        listed >= torch.tensor(one.sizes)
    )
    if bool(torch.as_tensor(outside).any()):
        raise _refused("list cells outside their columns")
    one = ColumnSet(one.columns, one.groups, listed) if len(listed) else one
    if not 2 <= one.cells <= MOST_CELLS:
        raise _refused(f"do not have 2 to {MOST_CELLS:,} cells each")
    return one


def _refused(why: str) -> MessageError:
    return MessageError(
        f"the sets of columns that were asked for {why}.",
        effect=Effect.NOTHING_CHARGED_OR_SENT,
    )


class BeginReports(TableOpening, kind="one-report.begin"):
    """The run's settings, and the columns that all parties' rows have."""


class MarginalsRound(Call, kind="one-report.round"):
    """Which of the party's people are to report, each about which set of columns, and
    what the cells of the sets are.

    `which` (n,): each person's set.
    """

    which: Tensor
    groups: Tensor
    columns: list[list[int]]
    listed: list[Tensor]


class OneReportParty(HostParty):
    begin_type = BeginReports
    round_type = MarginalsRound

    def open(self, ask: BeginReports) -> Hosting:
        table = own_table(self, ask, "one-report")
        config = Config(**ask.config)
        self.epsilon = config.epsilon_total
        self.levels = Codec(table.schema).sizes
        return Hosting(population_of(table), PureDp(self.epsilon), 1)

    def check(self, ask: MarginalsRound) -> None:
        sets = self._sets(ask)
        which = ask.which
        if (
            not isinstance(which, Tensor)
            or which.dtype != torch.int64
            or which.shape != ask.people.shape
        ):
            raise MessageError(
                f"{self.name}: not everyone is given a set.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        if bool(((which < 0) | (which >= len(sets))).any()):
            raise MessageError(
                f"{self.name}: somebody is given a set that is not there.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )

    def reports(self, ask: MarginalsRound) -> Value:
        """All reports one after the other, each as long as its set says: uint8."""
        indices, some = self.population.one_row_each(ask.people, self.rng)
        rows = torch.where(some[:, None], self.population.rows[indices], 0)
        return randomized(
            rows,
            ask.which,
            self._sets(ask),
            self.epsilon,
            self.rng,
        )

    def _sets(self, ask: MarginalsRound) -> list[ColumnSet]:
        return read_sets(
            ask.groups,
            ask.columns,
            ask.listed,
            self.levels,
        )


def randomized(
    rows: Tensor,
    which: Tensor,
    sets: list[ColumnSet],
    epsilon: float,
    rng: Rng,
) -> Tensor:
    """The reports on these rows of levels, one a row, each about its set: one after the
    other, uint8.
    """
    mechanisms = [SubsetSelection(cells=one.cells, epsilon=epsilon) for one in sets]
    ends = lengths(which, mechanisms).cumsum(0)
    out = torch.zeros(int(ends[-1]) if len(ends) else 0, dtype=torch.uint8)
    for number in np.unique(which).tolist():
        in_set = which == number
        mechanism = mechanisms[number]
        sent = mechanism.encode(mechanism(sets[number].cell_of(rows[in_set]), rng))
        out[(ends[in_set, None] - mechanism.bytes) + torch.arange(mechanism.bytes)] = (
            sent
        )
    return out


def lengths(which: Tensor, mechanisms: list[SubsetSelection]) -> Tensor:
    """How many bytes each report has: (n,)."""
    return torch.tensor([mechanism.bytes for mechanism in mechanisms])[which]


@dataclass(frozen=True)
class ReportForm:
    """Reports of a round that people's devices hand in, with these mechanisms, one for
    each set, as rows of bytes.

    16 bytes   key: random, names the report
    2          the set's number, high byte first
    …          the report (`naming`), and zeros up to the longest of the round
    """

    mechanisms: list[SubsetSelection]

    @property
    def size(self) -> int:
        return KEY + SET + max(mechanism.bytes for mechanism in self.mechanisms)

    def which(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        high = rows[:, KEY].astype(np.int64)
        low = rows[:, KEY + 1]
        return high * 256 + low

    def decodes(self, rows: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which are reports about a set that there is."""
        which = self.which(rows)
        good = which < len(self.mechanisms)
        for index in np.flatnonzero(good):
            mechanism = self.mechanisms[int(which[index])]
            content = rows[index, KEY + SET :]
            report, rest = np.split(content, [mechanism.bytes])
            sent = torch.from_numpy(report.copy())
            _, invalid = mechanism.decode(sent[None])
            good[index] = not rest.any() and not bool(invalid[0])
        return good

    def read(self, rows: NDArray[np.uint8]) -> dict[str, Tensor]:
        """As the server takes them: each person's set, and the reports one after the
        other.
        """
        which = self.which(rows)
        parts = [
            row[KEY + SET :][: self.mechanisms[one].bytes]
            for row, one in zip(rows, which.tolist(), strict=True)
        ]
        joined = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
        return {"which": torch.from_numpy(which), "reports": torch.from_numpy(joined)}


class CollectingReports(PassingOn, OneReportParty):
    """A party that collects people's reports and passes them on: it holds no rows, and
    could make no report itself. A device draws its set by itself, each as often as the
    server dealt it out, and its report says which: so one ticket is for everybody, and
    what a report is about does not follow from the row. Who reported is charged in this
    party's ledger before anything is passed on; the price stands in the person's own
    first. Who is asked and does not come is not charged, and is not in the answer. A
    round is one collection: settings that ask for fewer people at a time → ConfigError,
    before anybody is told of the run.
    """

    description = "one report each, made on people's own devices"

    def open(self, ask: BeginReports) -> Hosting:
        config = Config(**ask.config)
        schema = self.schema
        if (
            not TABLE.describes(schema)
            or Schema.from_dict(ask.schema).columns != schema.columns
        ):
            raise SchemaError(
                f"{self.name}: the run is about another schema.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        people: list[str] | None = self.box.everybody()
        if people is None:
            raise ConfigError(
                f"{self.name}: reports are collected from people with codes: a round "
                "is for some of them.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        if config.batch < len(people):
            raise ConfigError(
                f"{self.name}: batch={config.batch:,}, and {len(people):,} people "
                "have codes here: a round is one "
                "collection, of all of them at once.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        self.epsilon = config.epsilon_total
        self.levels = Codec(schema).sizes
        self.opened_by = ask
        return Hosting(elsewhere(schema, np.array(people)), PureDp(self.epsilon), 1)

    def _round(self, ask: Call) -> Reported:
        assert isinstance(ask, MarginalsRound)
        self._admit(ask.people)
        self.check(ask)
        form = ReportForm(
            [
                SubsetSelection(cells=one.cells, epsilon=self.epsilon)
                for one in self._sets(ask)
            ]
        )
        run = {
            "run": self.run,
            "round": ask.round,
            "config": self.opened_by.config,
            "schema": self.opened_by.schema,
        }
        weights = torch.bincount(ask.which, minlength=len(ask.columns)).tolist()
        cells = {
            "groups": ask.groups.tolist(),
            "columns": ask.columns,
            "listed": [one.tolist() for one in ask.listed],
        }
        ticket: dict[str, Any] = {
            **run,
            "sizes": list(self.levels),
            **cells,
            "weights": weights,
        }
        invited = self.population.ids[self.places[ask.people].numpy()].tolist()
        self.context = context_of(ticket)
        reporters = self.box.gather(
            ticket,
            self.context,
            form,
            among=invited,
            number=ask.round,
        )
        receipt = self.pay(ask, reporters)
        self.participations[ask.people] += 1
        sent = form.read(self.box.uploads(torch.arange(len(reporters))).numpy())
        return Reported(reports=Paid(sent, receipt))


def context_of(ticket: Mapping[str, Any]) -> bytes:
    """What a report is made for."""
    return hashlib.sha256(
        b"understudy report 1 " + json.dumps(ticket, sort_keys=True).encode()
    ).digest()
