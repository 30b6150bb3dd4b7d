"""The server's side of visits: one release, of which it can put together the sums with the holders' noise.

Of a part that several holders have a share in it sees uniform numbers.
"""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.visits.counts import Block
from understudy.ground.errors import MessageError
from understudy.models.visits.tables import VisitTables
from understudy.protocols.core import Parties, public_values
from understudy.protocols.core.agreeing import Begun, agree_over_rows, greetings_of, keys_of, same_number
from understudy.protocols.core.alignment import align_grid
from understudy.protocols.core.products import Dealing, cells_of, cut_as, swap_all
from understudy.protocols.visits.columns import Split
from understudy.protocols.visits.messages import Agree, Begin, Count
from understudy.protocols.visits.party import RING
from understudy.protocols.visits.terms import Holders


@dataclass(frozen=True)
class Released:
    """The parties that took part with what they stated, the noise multiplier, and all cells in parts of a unit.

    All of it is public, or paid for. `noise`: the deviation of it in each table, (tables,), in the same parts.
    `people`: how many are shared, where columns are split.
    """

    begun: Begun
    multiplier: float
    unit: int
    cells: Tensor
    noise: Tensor
    people: int | None = None

    def tables(self, holders: Holders) -> VisitTables:
        """In people."""
        layout = holders.layout
        exact = VisitTables.read(layout, self.cells, 0.0, self.unit)
        units = torch.tensor(layout.units(self.unit), dtype=torch.float64)
        noise = dict(zip(layout.blocks, (self.noise / units).tolist(), strict=True))
        return VisitTables(layout, exact.tables, noise)


def release(
    parties: Parties,
    holders: Holders,
    begin: Begin,
    *,
    chunk: int = 1 << 15,
    at_least: int | None = None,
    secret: bytes | None = None,
) -> Released:
    """The one release. `secret`: what masks are dealt by, for a server that may have to deal the same ones again.

    Edges: over rows, who goes away before it is left out while `at_least` remain. Else who goes away ends the run, as
    nothing can be unmasked without one of them; who has released by then has paid.
    """
    if holders.split is not None:
        return _over_columns(parties, holders, holders.split, begin, chunk, secret or os.urandom(32))

    def agree(everybody: Begun, left: Begun) -> Agree:
        return Agree(keys=keys_of(left), multiplier=_most(everybody), seeds={}, chunk=1, cells=[])

    everybody, begun, greetings = agree_over_rows(parties, begin, at_least, agree)
    multiplier = _most(everybody)
    terms = holders.terms(multiplier, begin.config["most_holders"])
    replies = parties.ask({name: Count(inbox=box, corrections={}) for name, box in greetings.items()})
    total = sum(_words(name, reply.cells.value, (holders.layout.size,)) for name, reply in replies.items())
    noise = holders.noise(terms, begin.config["colluding"], len(begun))
    return Released(begun, multiplier, terms.unit, RING.signed(np.asarray(total)), _numbers(noise))


def _over_columns(
    parties: Parties, holders: Holders, split: Split, begin: Begin, chunk: int, secret: bytes
) -> Released:
    """Align, agree, relay what the holders send each other, and add their parts up."""
    cells = align_grid(parties, split.grid.groups)
    begun: Begun = public_values(parties.ask(begin))
    same_number(begun, cells)
    multiplier, keys = _most(begun), keys_of(begun)
    widths = {name: split.width_of(name) for name in parties.names}
    terms = holders.terms(multiplier, begin.config["most_holders"])
    about = {name: cut_as(terms.root, chunk, cells_of(name, cells)) for name in parties.names}
    dealing = Dealing(RING, widths, cells, keys=keys, secret=secret, about=about)
    agreed = parties.ask(
        {
            name: Agree(
                keys=keys,
                multiplier=multiplier,
                seeds=dealing.seeds(name),
                chunk=chunk,
                cells=cells_of(name, cells),
            )
            for name in parties.names
        }
    )
    inbox = swap_all(parties, cells, split.chunk(chunk), dealing, greetings_of(agreed))
    replies = parties.ask(
        {name: Count(inbox=box, corrections=dealing.corrections(name)) for name, box in inbox.items()}
    )
    noise = holders.noise(terms, begin.config["colluding"], len(begun))
    return Released(
        begun, multiplier, terms.unit, _together(split, replies), _numbers(noise), sum(cells.values())
    )


def _together(split: Split, replies: dict[str, Any]) -> Tensor:
    """All tables as one vector."""
    tables: dict[Block, Tensor] = {}
    for place, groups in enumerate(split.grid.blocks):
        (one, other), names = groups, split.grid.holders(groups)
        own, alone = split.own(one), one == other
        shape = (own.size,) if alone else (split.width(one), split.width(other))
        sent = {name: replies[name].cells.value if alone else _part(replies[name], place) for name in names}
        total = RING.signed(np.asarray(sum(_words(name, part, shape) for name, part in sent.items())))
        if alone:
            cut = own.split(total.numpy())
            tables |= {split.joint(one, block): torch.from_numpy(np.array(cut[block])) for block in cut}
        else:
            tables |= split.across(groups, total)
    return torch.cat([tables[block].flatten() for block in split.layout.blocks])


def _numbers(noise: list[float]) -> Tensor:
    return torch.tensor(noise, dtype=torch.float64)


def _part(reply: Any, place: int) -> Any:
    sent = reply.shared.value
    return sent.get(str(place)) if isinstance(sent, dict) else None


def _words(name: str, value: Any, shape: tuple[int, ...]) -> Any:
    if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.shape != shape:
        raise MessageError(f"{name}: a part is not {shape} whole numbers. It was discarded.")
    return RING.words(value)


def _most(begun: Begun) -> float:
    return max(float(info["multiplier"]) for info in begun.values())
