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
from understudy.errors import MessageError
from understudy.models.visits import VisitTables
from understudy.protocols.core import Dealing, Parties, Swap, align_people, public_values, relayed
from understudy.protocols.core.agreeing import Begun, agree_over_rows, greetings_of, keys_of, same_number
from understudy.protocols.visits.columns import Split
from understudy.protocols.visits.messages import Agree, Begin, Count
from understudy.protocols.visits.party import RING
from understudy.protocols.visits.terms import Holders, Terms


@dataclass(frozen=True)
class Released:
    """The parties that took part with what they stated, the noise multiplier, and all cells in parts of a unit.

    All of it is public, or paid for. `noise`: the deviation of it in each table, (tables,), in the same parts.
    `people`: how many are shared, over columns.
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
        return Agree(keys=keys_of(left), multiplier=_most(everybody), seeds={}, chunk=1)

    everybody, begun, greetings = agree_over_rows(parties, begin, at_least, agree)
    multiplier = _most(everybody)
    terms = holders.terms(multiplier, begin.config["most_holders"])
    replies = parties.ask({name: Count(inbox=box, corrections={}) for name, box in greetings.items()})
    total = sum(_words(name, reply.cells.value, (holders.layout.size,)) for name, reply in replies.items())
    deviation = terms.deviation(len(begun), begin.config["colluding"])
    noise = torch.full((len(holders.layout.blocks),), deviation, dtype=torch.float64)
    return Released(begun, multiplier, terms.unit, RING.signed(np.asarray(total)), noise)


def _over_columns(
    parties: Parties, holders: Holders, split: Split, begin: Begin, chunk: int, secret: bytes
) -> Released:
    """Align, agree, relay what the holders send each other, and add their parts up."""
    people = align_people(parties)
    begun: Begun = public_values(parties.ask(begin))
    same_number(begun, people)
    multiplier, keys = _most(begun), keys_of(begun)
    widths = {name: split.width(name) for name in split.holders}
    dealing = Dealing(RING, widths, keys=keys, secret=secret)
    agreed = parties.ask(
        {
            name: Agree(keys=keys, multiplier=multiplier, seeds=dealing.seeds(name), chunk=chunk)
            for name in split.holders
        }
    )
    inbox = greetings_of(agreed)
    step = split.chunk(chunk)
    for number, start in enumerate(range(0, people, step)):
        replies = parties.ask({name: Swap(chunk=number, inbox=inbox[name]) for name in split.holders})
        inbox = relayed({name: replies[name].outbox for name in split.holders}, split.holders)
        dealing.deal(min(step, people - start), split.holders)
    replies = parties.ask(
        {name: Count(inbox=inbox[name], corrections=dealing.corrections(name)) for name in split.holders}
    )
    terms = holders.terms(multiplier, 1)
    cells, noise = _together(split, terms, replies)
    return Released(begun, multiplier, terms.unit, cells, noise, people)


def _together(split: Split, terms: Terms, replies: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """All tables as one vector, and the deviation of the noise in each."""
    tables: dict[Block, Tensor] = {}
    alone: set[Block] = set()
    for name in split.holders:
        own = split.own(name)
        cells = RING.signed(_words(name, replies[name].cells.value, (own.size,)))
        for block, table in own.split(cells.numpy()).items():
            tables[split.joint(name, block)] = torch.from_numpy(np.array(table))
            alone.add(split.joint(name, block))
    for pair in split.pairs:
        shape = tuple(map(split.width, pair))
        both = [_words(a, _part(replies[a], b), shape) for a, b in (pair, pair[::-1])]
        tables |= split.across(pair, RING.signed(np.asarray(both[0] + both[1])))
    blocks = split.layout.blocks
    deviations = terms.deviation(1, 1), terms.deviation(2, 1)
    noise = torch.tensor([deviations[block not in alone] for block in blocks], dtype=torch.float64)
    return torch.cat([tables[block].flatten() for block in blocks]), noise


def _part(reply: Any, peer: str) -> Any:
    sent = reply.shared.value
    return sent.get(peer) if isinstance(sent, dict) else None


def _words(name: str, value: Any, shape: tuple[int, ...]) -> Any:
    if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.shape != shape:
        raise MessageError(f"{name}: a part is not {shape} whole numbers. It was discarded.")
    return RING.words(value)


def _most(begun: Begun) -> float:
    return max(float(info["multiplier"]) for info in begun.values())
