"""The party of `one-report`: a host of people, each of whom reports once, about a row of their own.

Guarantee: everything that ever leaves a person is one report by subset selection, ε-LDP in all of the person's rows,
charged before a row is touched. Which columns it is about, and how their levels are grouped, is the server's to say:
it may follow from earlier reports or be malice, the price is the same.
Edges: a person with several rows reports about one, drawn evenly and in secret, so that what is learned is the law of a
random row of a random person; who has none reports on the first level of each column. Sets that are none, or another
set number than there are → MessageError, nothing charged.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.kinds import population_of
from understudy.ground.errors import MessageError
from understudy.ground.pack import Value
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.local.subset_selection import SubsetSelection
from understudy.privacy.noise import Rng
from understudy.protocols.core import Message, Party
from understudy.protocols.people.host import Begun, Call, Hosting, HostParty, Reported
from understudy.protocols.people.one_report.config import Config
from understudy.protocols.people.one_report.sets import ColumnSet, Sets
from understudy.protocols.people.survey import TableOpening, own_table


@dataclass(frozen=True, kw_only=True)
class Begin(TableOpening, kind="one-report.begin"):
    """The run's settings, and the columns that all parties' rows have."""


@dataclass(frozen=True, kw_only=True)
class Round(Call, kind="one-report.round"):
    """Which of the party's people are to report, each about which set of columns, and what the cells of the sets are.

    `which` (n,): each person's set. `groups`, `columns`, `listed`: see `sets.Sets`.
    """

    which: Tensor
    groups: Tensor
    columns: list[list[int]]
    listed: list[Tensor]


class OneReportParty(HostParty):
    """A host of people with rows of a table."""

    begin_type = Begin
    round_type = Round
    messages: ClassVar[tuple[type[Message], ...]] = (*Party.messages, Begin, Begun, Round, Reported)

    def open(self, ask: Begin) -> Hosting:
        table, config = own_table(self, ask, "one-report"), Config(**ask.config)
        self.epsilon, self.levels = config.epsilon_total, Codec(table.schema).sizes
        return Hosting(population_of(table), PureDp(self.epsilon), 1)

    def check(self, ask: Round) -> None:
        sets, which = self._sets(ask), ask.which
        if not isinstance(which, Tensor) or which.dtype != torch.int64 or which.shape != ask.people.shape:
            raise MessageError(f"{self.name}: not everyone is given a set. Nothing was charged or sent.")
        if bool(((which < 0) | (which >= len(sets))).any()):
            raise MessageError(
                f"{self.name}: somebody is given a set that is not there. Nothing was charged or sent."
            )

    def reports(self, ask: Round) -> Value:
        """All reports one after the other, each as long as its set says: uint8."""
        place, some = self.population.one_row_each(ask.people, self.rng)
        rows = torch.where(some[:, None], self.population.rows[place], 0)
        return randomized(rows, ask.which, self._sets(ask), self.epsilon, self.rng)

    def _sets(self, ask: Round) -> list[ColumnSet]:
        return Sets(ask.groups, ask.columns, ask.listed).read(self.levels)


def randomized(rows: Tensor, which: Tensor, sets: list[ColumnSet], epsilon: float, rng: Rng) -> Tensor:
    """The reports on these rows of levels, one a row, each about its set: one after the other, uint8."""
    mechanisms = [SubsetSelection(cells=one.cells, epsilon=epsilon) for one in sets]
    ends = lengths(which, mechanisms).cumsum(0)
    out = torch.zeros(int(ends[-1]) if len(ends) else 0, dtype=torch.uint8)
    for number in np.unique(which).tolist():
        here = which == number
        mechanism = mechanisms[number]
        sent = mechanism.encode(mechanism(sets[number].cell_of(rows[here]), rng))
        out[(ends[here, None] - mechanism.bytes) + torch.arange(mechanism.bytes)] = sent
    return out


def lengths(which: Tensor, mechanisms: list[SubsetSelection]) -> Tensor:
    """How many bytes each report has: (n,)."""
    return torch.tensor([mechanism.bytes for mechanism in mechanisms])[which]
