"""The server's side of visits: one release, of which it can put together the sum of all holders with their noise.

Of a holder's part alone it sees uniform numbers.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.visits import VisitSchema
from understudy.errors import MessageError
from understudy.models.visits import VisitTables
from understudy.protocols.core import Parties, Present
from understudy.protocols.visits.messages import Agree, Begin, Count
from understudy.protocols.visits.party import RING
from understudy.protocols.visits.terms import Terms


@dataclass(frozen=True)
class Released:
    """The parties that took part with what they stated, the noise multiplier, and all cells in parts of a unit.

    All of it is public, or paid for. `deviation`: of the noise on each cell, in the same parts.
    """

    begun: dict[str, dict[str, Any]]
    multiplier: float
    unit: int
    cells: Tensor
    deviation: float

    def tables(self, schema: VisitSchema, most_holders: int) -> VisitTables:
        """In people."""
        layout = Terms.of(schema, self.multiplier, most_holders).layout
        return VisitTables.read(layout, self.cells, self.deviation, self.unit)


def release(parties: Parties, schema: VisitSchema, begin: Begin, *, at_least: int | None = None) -> Released:
    """The one release.

    Edges: who goes away before it is left out while `at_least` remain; who goes away during it ends the run, as nothing
    can be unmasked without one of them.
    """
    present = Present(parties, at_least)
    begun = {
        name: {key: public.value for key, public in vars(reply).items()}
        for name, reply in present.ask(begin).items()
    }
    multiplier = max(info["multiplier"] for info in begun.values())
    while True:
        agree = Agree(keys={name: info["key"] for name, info in begun.items()}, multiplier=multiplier)
        agreed = present.ask(dict.fromkeys(begun, agree))
        if agreed.keys() == begun.keys():
            break
        begun = {name: begun[name] for name in agreed}
    terms = Terms.of(schema, multiplier, begin.config["most_holders"])
    cells = _sum(parties.ask(dict.fromkeys(begun, Count())), terms.layout.size)
    deviation = terms.deviation(len(begun), begin.config["colluding"])
    return Released(begun, multiplier, terms.unit, cells, deviation)


def _sum(replies: dict[str, Any], size: int) -> Tensor:
    total = np.zeros(size, dtype=RING.dtype)
    for name, reply in replies.items():
        value = reply.cells.value
        if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.shape != (size,):
            raise MessageError(f"{name}: cells are not {size:,} whole numbers. They were discarded.")
        total += RING.words(value)
    return RING.signed(total)
