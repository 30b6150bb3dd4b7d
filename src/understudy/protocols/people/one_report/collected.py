"""A party that collects people's reports and passes them on: it holds no rows, and could make no report itself.

In each round it tells those whom the server asks, through its box, the round's sets of columns, and waits until the
collection is over. A device draws its set by itself, each as often as the server dealt it out, and its report says
which: so one ticket is for everybody, and what a report is about does not follow from the row.

    16 bytes   key: random, names the report
    2          the set's number, high byte first
    …          the report (`subset_selection`), and zeros up to the longest of the round

Guarantee: a report is ε-LDP against everybody, this party included. Who reported is charged in this party's ledger
before anything is passed on (`passing_on`); the price stands in the person's own first.
Edges: people are those with codes. Who is asked and does not come is not charged, and is not in the answer. A round is
one collection: settings that ask for fewer people at a time → ConfigError, before anybody is told of the run.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.kinds import TABLE
from understudy.data.schema import Schema
from understudy.ground.errors import ConfigError, SchemaError
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.local.subset_selection import SubsetSelection
from understudy.protocols.core import Paid
from understudy.protocols.people.host import Call, Hosting, PassingOn, Reported, elsewhere
from understudy.protocols.people.one_report.party import Begin, Config, OneReportParty, Round

KEY, SET = 16, 2  # bytes


@dataclass(frozen=True)
class ReportForm:
    """Reports of a round with these mechanisms, one for each set, as rows of bytes."""

    mechanisms: list[SubsetSelection]

    @property
    def size(self) -> int:
        return KEY + SET + max(mechanism.bytes for mechanism in self.mechanisms)

    def which(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The set that each says it is about."""
        return rows[:, KEY].astype(np.int64) * 256 + rows[:, KEY + 1]

    def decodes(self, rows: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which are reports about a set that there is."""
        good = self.which(rows) < len(self.mechanisms)
        for place in np.flatnonzero(good):
            mechanism = self.mechanisms[int(self.which(rows[place : place + 1])[0])]
            own, rest = np.split(rows[place, KEY + SET :], [mechanism.bytes])
            _, none = mechanism.decode(torch.from_numpy(own.copy()[None]))
            good[place] = not rest.any() and not bool(none[0])
        return good

    def read(self, rows: NDArray[np.uint8]) -> dict[str, Tensor]:
        """As the server takes them: each person's set, and the reports one after the other."""
        which = self.which(rows)
        parts = [
            row[KEY + SET :][: self.mechanisms[one].bytes]
            for row, one in zip(rows, which.tolist(), strict=True)
        ]
        joined = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
        return {"which": torch.from_numpy(which), "reports": torch.from_numpy(joined)}


class CollectingReports(PassingOn, OneReportParty):
    """Guarantee and edges: see the module."""

    what = "one report each, made on people's own devices"

    def open(self, ask: Begin) -> Hosting:
        config, schema = Config(**ask.config), self.schema
        if not TABLE.describes(schema) or Schema.from_dict(ask.schema).columns != schema.columns:
            raise SchemaError(f"{self.name}: the run is about another schema. Nothing was charged or sent.")
        people: list[str] | None = self.box.everybody()
        if people is None:
            raise ConfigError(
                f"{self.name}: reports are collected from people with codes: a round is for some of them. "
                "Nothing was charged or sent."
            )
        if config.batch < len(people):
            raise ConfigError(
                f"{self.name}: batch={config.batch:,}, and {len(people):,} people have codes here: a round is one "
                "collection, of all of them at once. Nothing was charged or sent."
            )
        self.epsilon, self.levels, self.told = config.epsilon_total, Codec(schema).sizes, ask
        return Hosting(elsewhere(schema, np.array(people)), PureDp(self.epsilon), 1)

    def _round(self, ask: Call) -> Reported:
        assert isinstance(ask, Round)
        self._admit(ask.people)
        self.check(ask)
        form = ReportForm([SubsetSelection(cells=one.cells, epsilon=self.epsilon) for one in self._sets(ask)])
        ticket = self._ticket(ask)
        asked = self.population.ids[self.places[ask.people].numpy()].tolist()
        self.context = context_of(ticket)
        came = self.box.gather(ticket, self.context, form, among=asked, number=ask.round)
        receipt = self.pay(ask, came)
        self.participations[ask.people] += 1
        sent = form.read(self.box.uploads(torch.arange(len(came))).numpy())
        return Reported(reports=Paid(sent, receipt))

    def _ticket(self, ask: Round) -> dict[str, Any]:
        return {
            "run": self.run,
            "round": ask.round,
            "config": self.told.config,
            "schema": self.told.schema,
            "sizes": list(self.levels),
            "groups": ask.groups.tolist(),
            "columns": ask.columns,
            "listed": [listed.tolist() for listed in ask.listed],
            "weights": torch.bincount(ask.which, minlength=len(ask.columns)).tolist(),
        }


def context_of(ticket: Mapping[str, Any]) -> bytes:
    """What a report is made for."""
    return hashlib.sha256(b"understudy report 1 " + json.dumps(ticket, sort_keys=True).encode()).digest()
