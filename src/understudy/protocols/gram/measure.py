"""The server's side of a joint Gram matrix: it deals masks, relays sealed messages, and adds up what comes back.

Of the parts it sees only uniform numbers; what it can put together is the matrix with every party's noise.

Some pairs may be measured twice: after the whole matrix, those with a `target`, and those that `choose` picks by the
first release, and by nothing else, of which the holders assure each other first. Both are whole-number Gaussian, so
the two are one measurement in the end, each cell being the mean of its measurements, weighted by 1/variance.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.errors import BudgetExceeded, MessageError, PartyError
from understudy.privacy.secure import Ring
from understudy.protocols.core import Dealing, Parties, Present, Swap, align_grid, relayed
from understudy.protocols.gram.adder import Adder, together
from understudy.protocols.gram.layout import Layout, Spread
from understudy.protocols.gram.messages import Agree, Begin, Propose, Refine, Share

# The matrix, the deviation of its noise, pairs (n, 2) that are chosen already → others (k, 2)
Choose = Callable[[Tensor, Tensor, Tensor], Tensor]
Cells = Mapping[tuple[str, ...], int]  # how many people the holders of a cell of the grid share

_FAR = 64  # noise beyond so many σ would wrap around: once in e^2048
_MESSAGE = 1 << 27  # bytes, at most


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be released. `target`: all pairs with this column twice; `refined`: so many others, too.

    `scouting`: the first release's share of the budget then. `across`: only pairs of columns that are with different
    groups of holders. `triples`: three-way tables, too. `most_holders`: with how many holders of rows a person may be.
    """

    private: bool = True
    across: bool = False
    target: str | None = None
    refined: int = 0
    scouting: float = 1.0
    triples: tuple[tuple[str, str, str], ...] = ()
    most_holders: int = 1


@dataclass(frozen=True)
class Measured:
    """The released matrix: counts (width, width), the standard deviation of the noise in each cell, 0 where none is.

    `measured` marks the cells that were released; `triples` are three-way tables with their columns' numbers and
    noise; `sigmas` the noise of each release that was agreed on, `releases` the (σ, moved cells) that ε is made of, for
    each σ of each release that came about; `people` their number where it is disclosed; `begun` what each party that
    took part stated. All of it is public, or paid for.
    `ended`: why a second release did not come about, if one was due; `lost` what it would have been, where holders were
    asked for it and may have paid; `gone` who went away then.
    """

    partition: str
    gram: Tensor
    noise: Tensor
    measured: Tensor
    releases: list[list[float]]
    people: int | None
    begun: dict[str, dict[str, Any]]
    triples: list[dict[str, Any]] = field(default_factory=list)
    sigmas: list[float] = field(default_factory=list)
    ended: str = ""
    lost: list[list[float]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


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
    secret: bytes | None = None,
    first: Measured | None = None,
    keep: Callable[[Measured], None] = lambda first: None,
) -> Measured:
    """The noisy Gram matrix over all parties, at the noise that the strictest budget needs.

    `config` are the settings of the run, by which a party under a contract knows it. `secret`: what masks are dealt by,
    for a server that may have to deal the same ones again. Where there are two releases, `keep` gets the first before
    anything else is asked, and `first` is one that was kept: then only the second is measured.
    Edges: where columns are split a party that goes away before the first release ends the run. Over rows one that goes
    before it is left out while `at_least` remain, and one that goes during it ends the run: without it nothing can be
    unmasked. Who has released by then has paid. Who goes away after it, or has too little left for the second, leaves
    the first, which says so (`ended`). A refusal is raised; of parties that have begun anew since, which hold nothing
    that a second release could be made of, it leaves the first, too.
    """
    plan = plan or Plan()
    layout = Layout({name: schemas[name] for name in parties.names}, plan.triples)
    for names in layout.triples:
        layout.triple(names)
    layout.together(plan.most_holders)
    again = layout.again(plan.target, plan.refined)
    spreads = layout.spreads(colluding, across=plan.across, refined=again)
    kept = first is not None
    if first is None:
        begin = Begin(
            config=dict(config or {}),
            schemas={name: schema.to_dict() for name, schema in layout.schemas.items()},
            **asdict(plan) | {"triples": [list(names) for names in plan.triples], "colluding": colluding},
        )
        first = _first(parties, layout, begin, spreads[0], _Terms(chunk, at_least, secret), last=not again)
        if again:
            keep(first)
    if not again:
        return first
    try:
        return _second(parties, layout, plan, spreads[1], first, choose)
    except BudgetExceeded as refusal:
        return replace(first, ended=str(refusal), lost=_releases(spreads[1], first.sigmas[1]))
    except (MessageError, PartyError) as refusal:
        if not kept:
            raise
        return replace(first, ended=str(refusal))


@dataclass(frozen=True)
class _Terms:
    chunk: int
    at_least: int | None
    secret: bytes | None


def _first(
    parties: Parties, layout: Layout, begin: Begin, spread: Spread, terms: _Terms, *, last: bool
) -> Measured:
    """Align, begin, agree, and release the whole matrix."""
    rows = layout.grid.partition == "rows"
    cells = {} if rows else align_grid(parties, layout.grid.groups)
    present = Present(parties, terms.at_least if rows else None)
    begun = _stated(present.ask(begin))
    for name, info in begun.items():
        if info["people"] != (None if rows else sum(cells[cell] for cell in cells if name in cell)):
            raise PartyError("The parties do not agree on how many people they share. Nothing was charged.")
    sigmas = [max(scales) for scales in zip(*(info["sigmas"] for info in begun.values()), strict=True)]
    people = None if rows else sum(cells.values())
    ring = _ring(people, len(begun), sigmas)
    told = {"sigmas": sigmas, "bits": ring.bits}
    if rows:
        begun = _agree(present, begun, told)
        share = dict.fromkeys(begun, Share(inbox={}, corrections={}))
    else:
        share = _products(parties, layout, cells, ring, told | {"keys": _keys(begun)}, terms)
    server = Adder(layout, ring, list(begun))
    replies = parties.ask(share)
    matrices = server.add(replies, layout.everything(across=begin.across), spread, sigmas[0])
    triples = server.triples(replies, spread, sigmas[0]) if last else []
    releases = _releases(spread, sigmas[0])
    return Measured(layout.grid.partition, *matrices, releases, people, begun, triples, sigmas)


def _second(
    parties: Parties, layout: Layout, plan: Plan, spread: Spread, first: Measured, choose: Choose | None
) -> Measured:
    """Release some pairs once more, and join both; the first alone, if somebody has gone away."""
    sigma, holders = first.sigmas[1], list(first.begun)
    pairs = layout.pairs_with(plan.target)
    if plan.refined:
        if choose is None:
            raise MessageError("pairs are to be refined, but nothing chooses them.")
        pairs = torch.cat([pairs, choose(first.gram, first.noise, pairs)])
    inboxes: dict[str, dict[str, Tensor]] = {name: {} for name in holders}
    if plan.refined:  # where pairs were chosen, the holders tell each other first which
        told = parties.ask(dict.fromkeys(holders, Propose(pairs=pairs)), at_least=0)
        if told.keys() != set(holders):
            return _without(first, told, [])
        inboxes = relayed({name: told[name].outbox for name in holders}, holders)
    asks = {name: Refine(pairs=pairs, inbox=inbox) for name, inbox in inboxes.items()}
    replies = parties.ask(asks, at_least=0)
    if replies.keys() != set(holders):
        return _without(first, replies, _releases(spread, sigma))
    server = Adder(layout, _ring(first.people, len(holders), first.sigmas), holders)
    again = layout.again(plan.target, plan.refined)
    second = server.add(replies, layout.only(pairs, again, plan.target), spread, sigma)
    gram, noise, measured = together((first.gram, first.noise, first.measured), second)
    triples, releases = server.triples(replies, spread, sigma), [*first.releases, *_releases(spread, sigma)]
    return replace(first, gram=gram, noise=noise, measured=measured, triples=triples, releases=releases)


def _without(first: Measured, there: Iterable[str], lost: list[list[float]]) -> Measured:
    gone = [name for name in first.begun if name not in set(there)]
    return replace(first, ended=f"{', '.join(gone)} went away", lost=lost, gone=gone)


def _releases(spread: Spread, sigma: float) -> list[list[float]]:
    return [[*one] for one in spread.classes(sigma)]


def _ring(people: int | None, parties: int, sigmas: Sequence[float]) -> Ring:
    return Ring(64) if people is None else Ring.holding(people + parties * _FAR * max(sigmas))


def _agree(
    parties: Present, begun: dict[str, dict[str, Any]], terms: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Over rows: until all who are still there have agreed with each other."""
    while True:
        agree = Agree(keys=_keys(begun), chunk=1, seeds={}, cells=[], **terms)
        agreed = parties.ask(dict.fromkeys(begun, agree))
        if agreed.keys() == begun.keys():
            return begun
        begun = {name: begun[name] for name in agreed}


def _products(
    parties: Parties, layout: Layout, cells: Cells, ring: Ring, told: Mapping[str, Any], terms: _Terms
) -> dict[str, Share]:
    """Where columns are split: deal masks, relay what the holders of each cell send each other, and end with the asks
    for their shares.
    """
    names = parties.names
    widths = {name: layout.codecs[layout.grid.group_of(name)].width for name in names}
    row = max(widths.values()) * ring.dtype.itemsize * (len(layout.codecs) - 1)  # bytes per person, at most
    chunk = max(1, min(terms.chunk, _MESSAGE // row))
    dealing = Dealing(ring, widths, cells, secret=terms.secret, keys=told["keys"])
    parties.ask(
        {
            name: Agree(
                seeds=dealing.seeds(name),
                chunk=chunk,
                cells=[[cells[c], [peer for peer in c if peer != name]] for c in cells if name in c],
                **told,
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


def _stated(replies: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        name: {key: public.value for key, public in vars(reply).items()} for name, reply in replies.items()
    }


def _keys(begun: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    return {name: info["key"] for name, info in begun.items()}
