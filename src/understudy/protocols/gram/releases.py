"""The server's side of a joint Gram matrix: what is released, in which order, and what it adds up to.

Of the parts it sees only uniform numbers; what it can put together is the matrix with every party's noise.

Some pairs may be released twice: after the whole matrix, those with a `target`, and those that `choose` picks by the
first release, and by nothing else, of which the holders assure each other first. Both are whole-number Gaussian, so
the two are one measurement in the end, each cell being the mean of its measurements, weighted by 1/variance.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from understudy.data.schema import Schema
from understudy.errors import BudgetExceeded, MessageError, PartyError
from understudy.protocols.core import Parties, relayed
from understudy.protocols.gram.adder import Adder, together
from understudy.protocols.gram.beginnings import Began, Terms, over_columns, over_rows, products, ring_for
from understudy.protocols.gram.layout import Layout, Spread
from understudy.protocols.gram.messages import Begin, Propose, Refine, Share

# The matrix, the deviation of its noise, pairs (n, 2) that are chosen already → others (k, 2)
Choose = Callable[[Tensor, Tensor, Tensor], Tensor]


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
class Released:
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


def release(
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
    first: Released | None = None,
    keep: Callable[[Released], None] = lambda first: None,
) -> Released:
    """The noisy Gram matrix over all parties, at the noise that the strictest budget needs.

    `config` are the settings of the run, by which a party under a contract knows it. `secret`: what masks are dealt by,
    for a server that may have to deal the same ones again. Where there are two releases, `keep` gets the first before
    anything else is asked, and `first` is one that was kept: then only the second is made.
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
        terms = Terms(chunk, at_least, secret or os.urandom(32))
        first = _first(parties, layout, begin, spreads[0], terms, last=not again)
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


def _first(
    parties: Parties, layout: Layout, begin: Begin, spread: Spread, terms: Terms, *, last: bool
) -> Released:
    """Begin, agree, and release the whole matrix."""
    if layout.grid.partition == "rows":
        began = over_rows(parties, begin, terms)
        share = dict.fromkeys(began.begun, Share(inbox={}, corrections={}))
    else:
        began = over_columns(parties, layout, begin, terms)
        share = products(parties, layout, began, terms)
    server = Adder(layout, ring_for(began), list(began.begun))
    replies, sigma = parties.ask(share), began.sigmas[0]
    matrices = server.add(replies, layout.everything(across=begin.across), spread, sigma)
    triples = server.triples(replies, spread, sigma) if last else []
    releases, partition = _releases(spread, sigma), layout.grid.partition
    return Released(partition, *matrices, releases, began.people, began.begun, triples, began.sigmas)


def _second(
    parties: Parties, layout: Layout, plan: Plan, spread: Spread, first: Released, choose: Choose | None
) -> Released:
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
    server = Adder(layout, ring_for(Began(first.begun, first.sigmas, first.people)), holders)
    again = layout.again(plan.target, plan.refined)
    second = server.add(replies, layout.only(pairs, again, plan.target), spread, sigma)
    gram, noise, measured = together((first.gram, first.noise, first.measured), second)
    triples, releases = server.triples(replies, spread, sigma), [*first.releases, *_releases(spread, sigma)]
    return replace(first, gram=gram, noise=noise, measured=measured, triples=triples, releases=releases)


def _without(first: Released, there: Iterable[str], lost: list[list[float]]) -> Released:
    gone = [name for name in first.begun if name not in set(there)]
    return replace(first, ended=f"{', '.join(gone)} went away", lost=lost, gone=gone)


def _releases(spread: Spread, sigma: float) -> list[list[float]]:
    return [[*one] for one in spread.classes(sigma)]
