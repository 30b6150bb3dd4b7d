"""A party without rows that passes on what people's own devices made: whom it charges, and how often.

Guarantee: its ledger holds the price of each person whose upload it passes on, before that. What is asked for again,
after a crash or at an earlier state, is the same to the bit and charged once; uploads that were made for another ask
are others, and are charged as such.
"""

import hashlib
from typing import Any

import torch
from numpy.typing import NDArray

from understudy.data.encoding.population import Population
from understudy.data.encoding.slots import Slots
from understudy.data.reading.no_rows import NoRows
from understudy.data.schema import Schema
from understudy.ground.errors import BudgetExceeded, LedgerError, PrivacyError
from understudy.privacy.accounts.ledger import Ledger, Receipt
from understudy.protocols.people.host import Call, HostParty


class PassingOn(HostParty):
    """Guarantee: see the module."""

    context: bytes  # what the uploads were made for

    def __init__(self, name: str, data: NoRows, ledger: Ledger, **more: Any) -> None:
        super().__init__(name, data, ledger, **more)  # type: ignore[arg-type]  # of rows, a schema is all it asks for
        self.schema, self.box = data.schema, data.box

    def pay(self, ask: Call, people: NDArray[Any]) -> Receipt:
        batch = hashlib.sha256(
            "\n".join([self.context.hex(), *sorted(people.tolist())]).encode()
        ).hexdigest()[:16]
        what = f"round {ask.round}: {self.what}, batch {batch}"
        try:
            return self.ledger.charge(self.hosting.event, people=people, run=self.run, what=what, once=True)
        except (BudgetExceeded, LedgerError):
            raise
        except PrivacyError:  # it stands there
            what = f"again, to the bit: {what}"
            return self.ledger.charge(self.hosting.event, people=(), run=self.run, what=what)


def elsewhere(schema: Schema, people: NDArray[Any]) -> Population:
    """These people, each with one row, of which nothing is here."""
    nothing, codes = torch.zeros(len(people), 0), torch.zeros(len(people), dtype=torch.int64)
    return Population(Slots(schema), people, nothing, codes, torch.arange(len(people) + 1))
