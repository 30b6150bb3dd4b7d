"""A party that collects people's uploads and passes them on: it holds no rows, and could make no upload itself.

When the run begins it tells people, through a `Box`, what the run is, and waits until the collection is over. From then
on it answers as a host of those who uploaded (`host`).

Guarantee: what it passes on was made and paid for by the people themselves, and is bound to this run, these settings
and the second aggregator's key. Its own ledger holds the same price for each of them, before anything is passed on. An
upload is passed on as it came: a party that goes back to an earlier state says the same again.
A batch that is asked for again, after a crash or at an earlier state, is charged once: it is the same to the bit.
Edges: a run that costs more than it may here is refused before anybody is told of it. Who uploaded and has too little
left in this party's ledger is left out, and counted as that.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.no_rows import NoRows
from understudy.data.population import Population
from understudy.data.schema import Schema
from understudy.data.slots import Slots
from understudy.errors import BudgetExceeded, LedgerError, PrivacyError, SchemaError
from understudy.pack import Value
from understudy.privacy.accounts.ledger import Ledger, Receipt
from understudy.protocols.aggregators.host import UploadParty
from understudy.protocols.aggregators.messages import Begin, Upload
from understudy.protocols.aggregators.upload import Format
from understudy.protocols.people.host import Call, Hosting


class Box(Protocol):
    """Where people put their uploads."""

    def gather(self, ticket: Mapping[str, Any], context: bytes, form: Format) -> NDArray[np.str_]:
        """Tell people of a run, wait until the collection is over, and say who uploaded; at once, if it is over."""

    def uploads(self, places: Tensor) -> Tensor:
        """The uploads of those people, in that order: uint8, (n, size)."""


class CollectingParty(UploadParty):
    """Guarantee and edges: see the module."""

    def __init__(self, name: str, data: NoRows, ledger: Ledger, **more: Any) -> None:
        super().__init__(name, data, ledger, **more)  # type: ignore[arg-type]  # of rows, a schema is all it asks for
        self.schema, self.box = data.schema, data.box

    def open(self, ask: Begin) -> Hosting:
        if not isinstance(schema := self.schema, Schema):
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
        # Everybody has one row, of which nothing is here.
        nothing, codes = torch.zeros(len(people), 0), torch.zeros(len(people), dtype=torch.int64)
        population = Population(Slots(schema), people, nothing, codes, torch.arange(len(people) + 1))
        return Hosting(population, plan.event, 1)

    def pay(self, ask: Call, people: NDArray[Any]) -> Receipt:
        batch = hashlib.sha256("\n".join(sorted(people.tolist())).encode()).hexdigest()[:16]
        what = f"round {ask.round}: {self.what}, batch {batch}"
        try:
            return self.ledger.charge(self.hosting.event, people=people, run=self.run, what=what, once=True)
        except (BudgetExceeded, LedgerError):
            raise
        except PrivacyError:  # it stands there
            what = f"again, to the bit: {what}"
            return self.ledger.charge(self.hosting.event, people=(), run=self.run, what=what)

    def reports(self, ask: Upload) -> Value:
        """What these people sent, as it came."""
        found: Tensor = self.box.uploads(ask.people)
        return found
