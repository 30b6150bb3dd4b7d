"""The server's side of a joint Gram matrix: it deals masks, relays sealed messages, and adds up what comes back.

Of the parts it sees only uniform numbers; what it can put together is the matrix with every party's noise.

Some pairs may be measured twice: after the whole matrix, those with a `target`, and those that `choose` picks by the
first release, and by nothing else, of which the holders assure each other first. Both are whole-number Gaussian, so
the two are one measurement in the end, each cell being the mean of its measurements, weighted by 1/variance.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.errors import MessageError, PartyError
from understudy.privacy.secure.counts import mirrored
from understudy.privacy.secure.ring import Ring
from understudy.protocols.alignment import align_grid
from understudy.protocols.base import Ask, Parties
from understudy.protocols.gram_layout import Block, Layout, Spread
from understudy.protocols.gram_messages import Agree, Begin, Propose, Refine, Share
from understudy.protocols.products import Dealing, Swap, relayed

# The matrix, the deviation of its noise, pairs (n, 2) that are chosen already → others (k, 2)
Choose = Callable[[Tensor, Tensor, Tensor], Tensor]
Cells = Mapping[tuple[str, ...], int]  # how many people the holders of a cell of the grid share

_FAR = 64  # noise beyond so many σ would wrap around: once in e^2048
_MESSAGE = 1 << 27  # bytes, at most


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be released. `target`: all pairs with this column twice; `refined`: so many others, too.

    `scouting`: the first release's share of the budget then. `across`: only pairs of columns that are with different
    groups of holders. `triples`: three-way tables, too.
    """

    private: bool = True
    across: bool = False
    target: str | None = None
    refined: int = 0
    scouting: float = 1.0
    triples: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Measured:
    """The released matrix: counts (width, width), the standard deviation of the noise in each cell, 0 where none is.

    `measured` marks the cells that were released; `triples` are three-way tables with their columns' numbers and
    noise; `releases` the (σ, moved cells) that ε is made of, for each σ of each release; `people` their number where it
    is disclosed; `begun` what each party that took part stated. All of it is public, or paid for.
    """

    partition: str
    gram: Tensor
    noise: Tensor
    measured: Tensor
    releases: list[list[float]]
    people: int | None
    begun: dict[str, dict[str, Any]]
    triples: list[dict[str, Any]] = field(default_factory=list)


def measure(
    parties: Parties,
    schemas: Mapping[str, Schema],
    plan: Plan | None = None,
    *,
    choose: Choose | None = None,
    chunk: int = 1 << 15,
    colluding: int = 1,
    at_least: int | None = None,
    config: Mapping[str, Any] | None = None,
) -> Measured:
    """The noisy Gram matrix over all parties, at the noise that the strictest budget needs.

    `config` are the settings of the run, by which a party under a contract knows it.
    Edges: where columns are split a party that goes away ends the run. Over rows one that goes before the release is
    left out while `at_least` remain, and one that goes during it ends the run: without it nothing can be unmasked.
    Who has released by then has paid.
    """
    plan = plan or Plan()
    layout = Layout({name: schemas[name] for name in parties.names}, plan.triples)
    for names in layout.triples:
        layout.triple(names)
    again = layout.again(plan.target, plan.refined)
    spreads = layout.spreads(colluding, across=plan.across, refined=again)
    begin = Begin(
        config=dict(config or {}),
        schemas={name: schema.to_dict() for name, schema in layout.schemas.items()},
        **asdict(plan) | {"triples": [list(names) for names in plan.triples], "colluding": colluding},
    )
    rows = layout.grid.partition == "rows"
    cells = {} if rows else align_grid(parties, layout.grid.groups)
    begun = _stated(_present(parties, dict.fromkeys(parties.names, begin), at_least if rows else None))
    for name, info in begun.items():
        if info["people"] != (None if rows else sum(cells[cell] for cell in cells if name in cell)):
            raise PartyError("The parties do not agree on how many people they share. Nothing was charged.")
    sigmas = [max(scales) for scales in zip(*(info["sigmas"] for info in begun.values()), strict=True)]
    people = None if rows else sum(cells.values())
    ring = Ring(64) if people is None else Ring.holding(people + len(begun) * _FAR * max(sigmas))
    terms = {"sigmas": sigmas, "bits": ring.bits}
    if rows:
        begun = _agree(parties, begun, terms, at_least)
        share = dict.fromkeys(begun, Share(inbox={}, corrections={}))
    else:
        share = _products(parties, layout, cells, ring, terms | {"keys": _keys(begun)}, chunk)
    noises = list(zip(spreads, sigmas, strict=True))
    holders, server = list(begun), _Adder(layout, ring, list(begun))
    replies = parties.ask(share)
    gram, noise, measured = server.add(replies, layout.everything(across=plan.across), *noises[0])
    if again:
        pairs = layout.pairs_with(plan.target)
        if plan.refined:
            if choose is None:
                raise MessageError("pairs are to be refined, but nothing chooses them.")
            pairs = torch.cat([pairs, choose(gram, noise, pairs)])
        replies = parties.ask(_refine(parties, holders, pairs, chosen=bool(plan.refined)))
        second = server.add(replies, layout.only(pairs, again, plan.target), *noises[1])
        gram, noise, measured = _together((gram, noise, measured), second)
    triples = server.triples(replies, *noises[-1])
    releases: list[list[float]] = [[*one] for spread, sigma in noises for one in spread.classes(sigma)]
    return Measured(layout.grid.partition, gram, noise, measured, releases, people, begun, triples)


def _refine(parties: Parties, holders: Sequence[str], pairs: Tensor, *, chosen: bool) -> dict[str, Refine]:
    """What releases these pairs. Where some were chosen, the holders tell each other first which."""
    inboxes: dict[str, dict[str, Tensor]] = {name: {} for name in holders}
    if chosen:
        told = parties.ask(dict.fromkeys(holders, Propose(pairs=pairs)))
        inboxes = relayed({name: told[name].outbox for name in holders}, holders)
    return {name: Refine(pairs=pairs, inbox=inbox) for name, inbox in inboxes.items()}


def _agree(
    parties: Parties, begun: dict[str, dict[str, Any]], terms: Mapping[str, Any], at_least: int | None
) -> dict[str, dict[str, Any]]:
    """Over rows: until all who are still there have agreed with each other."""
    while True:
        agree = Agree(keys=_keys(begun), chunk=1, seeds={}, cells=[], **terms)
        agreed = _present(parties, dict.fromkeys(begun, agree), at_least)
        if agreed.keys() == begun.keys():
            return begun
        begun = {name: begun[name] for name in agreed}


def _products(
    parties: Parties, layout: Layout, cells: Cells, ring: Ring, terms: Mapping[str, Any], chunk: int
) -> dict[str, Share]:
    """Where columns are split: deal masks, relay what the holders of each cell send each other, and end with the asks
    for their shares.
    """
    names = parties.names
    widths = {name: layout.codecs[layout.grid.group_of(name)].width for name in names}
    row = max(widths.values()) * ring.dtype.itemsize * (len(layout.codecs) - 1)  # bytes per person, at most
    chunk = max(1, min(chunk, _MESSAGE // row))
    dealing = Dealing(ring, widths, cells)
    parties.ask(
        {
            name: Agree(
                seeds=dealing.seeds(name),
                chunk=chunk,
                cells=[[cells[c], [peer for peer in c if peer != name]] for c in cells if name in c],
                **terms,
            )
            for name in names
        }
    )
    inbox: dict[str, dict[str, Tensor]] = {name: {} for name in names}
    swapped = dict.fromkeys(names, 0)
    for cell, people in cells.items():
        for start in range(0, people, chunk):
            replies = parties.ask({name: Swap(chunk=swapped[name], inbox=inbox[name]) for name in cell})
            inbox |= relayed({name: replies[name].outbox for name in cell}, cell)
            for name in cell:
                swapped[name] += 1
            dealing.deal(min(chunk, people - start), cell)
    return {name: Share(inbox=inbox[name], corrections=dealing.corrections(name)) for name in names}


@dataclass(frozen=True)
class _Adder:
    """Adds the holders' parts up: the pads cancel, and the noise of all of them is left."""

    layout: Layout
    ring: Ring
    names: Sequence[str]

    def add(
        self, replies: Mapping[str, Any], wanted: Tensor, spread: Spread, sigma: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The matrix, the standard deviation of its noise, and which cells were released: (width, width)."""
        layout = self.layout
        starts = [0]
        for codec in layout.codecs:
            starts.append(starts[-1] + codec.width)
        width = starts[-1]
        gram = torch.zeros(width, width, dtype=torch.int64)
        noise = torch.zeros(width, width, dtype=torch.float64)
        released = torch.zeros(width, width, dtype=torch.bool)
        for place, block in enumerate(layout.blocks):
            g, h = block
            at = slice(starts[g], starts[g + 1]), slice(starts[h], starts[h + 1])
            parts = {name: replies[name].blocks.value for name in self._present(block)}
            gram[at] = self._sum(parts, place, layout.shape(block))
            cells = layout.cells(block, wanted)
            released[at] = cells
            noise[at] = cells * spread.deviation(block, len(parts), sigma)
        return mirrored(gram), mirrored(noise), released | released.T

    def triples(self, replies: Mapping[str, Any], spread: Spread, sigma: float) -> list[dict[str, Any]]:
        """The three-way tables, with their columns' numbers and the standard deviation of their noise."""
        layout, tables = self.layout, []
        names = layout.joint.names
        for place, triple in enumerate(layout.triples):
            group, columns = layout.triple(triple)
            sizes = [layout.codecs[group].sizes[column] for column in columns]
            parts = {name: replies[name].triples.value for name in self._present((group, group))}
            tables.append(
                {
                    "columns": [names.index(column) for column in triple],
                    "table": self._sum(parts, place, sizes),
                    "noise": spread.deviation((group, group), len(parts), sigma),
                }
            )
        return tables

    def _present(self, block: Block) -> list[str]:
        return [name for name in self.layout.holders(block) if name in self.names]

    def _sum(self, parts: Mapping[str, Any], place: int, shape: Sequence[int]) -> Tensor:
        total = np.zeros(tuple(shape), dtype=self.ring.dtype)
        for name, sent in parts.items():
            value = sent.get(str(place)) if isinstance(sent, dict) else None
            if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.shape != tuple(shape):
                raise MessageError(f"{name}: a part is not {tuple(shape)} whole numbers. It was put aside.")
            total += self.ring.words(value)
        return self.ring.signed(total)


def _together(
    first: tuple[Tensor, Tensor, Tensor], second: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Two measurements as one: where both were made their mean, weighted by 1/variance."""
    (a, a_noise, a_made), (b, b_noise, b_made) = first, second
    both = a_made & b_made
    exact = both & (b_noise == 0)
    weight = torch.where(both, a_noise**2 / (a_noise**2 + b_noise**2).clamp(min=1e-300), b_made.double())
    weight = torch.where(exact, 1.0, weight)
    gram = (1 - weight) * a + weight * b
    noise = torch.sqrt(((1 - weight) * a_noise) ** 2 + (weight * b_noise) ** 2)
    return gram, noise, a_made | b_made


def _present(parties: Parties, asks: Mapping[str, Ask], at_least: int | None) -> dict[str, Any]:
    """The replies; of those who are there, where `at_least` of them suffice."""
    if at_least is None:
        return parties.ask(asks)
    replies: dict[str, Any] = {}
    gone: list[PartyError] = []
    for name, ask in asks.items():
        try:
            replies |= parties.ask({name: ask})
        except PartyError as error:
            gone.append(error)
    if gone and len(replies) < at_least:
        raise PartyError(f"{len(replies)} of at least {at_least} parties are left: {gone[0]}") from gone[0]
    return replies


def _stated(replies: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        name: {key: public.value for key, public in vars(reply).items()} for name, reply in replies.items()
    }


def _keys(begun: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    return {name: info["key"] for name, info in begun.items()}
