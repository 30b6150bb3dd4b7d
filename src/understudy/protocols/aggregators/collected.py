"""A party that collects people's uploads and passes them on: it holds no rows, and could make no upload itself.

When the run begins it tells people, through a `Box`, what the run is, and waits until the collection is over. From then
on it answers as a host of those who uploaded (`host`).

Guarantee: what it passes on was made and paid for by the people themselves, and is bound to this run, these settings
and the second aggregator's key. Its own ledger holds the same price for each of them, before anything is passed on. An
upload is passed on as it came: a party that goes back to an earlier state says the same again, and it is charged once
(`passing_on`).
Edges: a run that costs more than it may here is refused before anybody is told of it. Who uploaded and has too little
left in this party's ledger is left out, and counted as that.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.kinds import TABLE
from understudy.ground.errors import SchemaError
from understudy.ground.pack import Value
from understudy.protocols.aggregators.host import UploadParty
from understudy.protocols.aggregators.messages import Begin, Upload
from understudy.protocols.aggregators.upload import Format
from understudy.protocols.people.host import Hosting, PassingOn, elsewhere


class Box(Protocol):
    """Where people put their uploads."""

    def gather(self, ticket: Mapping[str, Any], context: bytes, form: Format) -> NDArray[np.str_]:
        """Tell people of a run, wait until the collection is over, and say who uploaded; at once, if it is over."""

    def uploads(self, places: Tensor) -> Tensor:
        """The uploads of those people, in that order: uint8, (n, size)."""


class CollectingParty(PassingOn, UploadParty):
    """Guarantee and edges: see the module."""

    def open(self, ask: Begin) -> Hosting:
        if not TABLE.describes(schema := self.schema):
            raise SchemaError(f"{self.name}: uploads are of tables. Nothing was charged or sent.")
        plan = self.told(ask, schema)
        self._within(plan.event, 1)
        ticket = {
            "run": self.run,
            "config": ask.config,
            "schemas": ask.schemas,
            "key": ask.key.hex(),
            "sizes": list(plan.cells.sizes),
        }
        people = self.box.gather(ticket, self.context, plan.format)
        return Hosting(elsewhere(schema, people), plan.event, 1)

    def reports(self, ask: Upload) -> Value:
        """What these people sent, as it came."""
        found: Tensor = self.box.uploads(ask.people)
        return found
