"""The server's side of a joint Gram matrix: what is released, in which order, and what it adds up to.

Of the parts it sees only uniform numbers; what it can put together is the matrix with every party's noise.

Where levels are bought (`data.encoding.fine`), the fine tables of all columns come first. By them, and by nothing else,
levels are chosen, which all holders are told and assure each other of; pairs are then released on these.

Some pairs may be released twice: after the whole matrix, those with a `target`, and those that `choose` picks by the
first release, and by nothing else, of which the holders assure each other first. Both are whole-number Gaussian, so
the two are one measurement in the end, each cell being the mean of its measurements, weighted by 1/variance.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from understudy.answers.release import kept, tables_of
from understudy.data.encoding.levels import Levels
from understudy.data.schema import Schema
from understudy.ground.errors import BudgetExceeded, MessageError, PartyError
from understudy.protocols.core import Ask, Parties
from understudy.protocols.core.products import relayed
from understudy.protocols.gram.across import Across
from understudy.protocols.gram.adder import Adder, together
from understudy.protocols.gram.agreement import levels_word, pairs_word
from understudy.protocols.gram.beginnings import (
    Began,
    ServerTerms,
    over_columns,
    over_rows,
    products,
    ring_for,
    tables_across,
)
from understudy.protocols.gram.layout import Layout, Spread
from understudy.protocols.gram.messages import (
    Begin,
    Fine,
    Propose,
    ProposeLevels,
    Refine,
    Share,
    TakeLevels,
    Widen,
)
from understudy.protocols.gram.trees import FineTables


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be released. `target`: all pairs with this column twice; `refined`: so many others, too.

    `fine`: the share of the budget for fine tables of all columns, where levels are to be chosen; 0 for none.
    `scouting`: of the rest, the share of all pairs where some are released twice; None: by how many people there
    are (`public_people`, or those whom holders of columns share). `across`: only pairs of columns that
    are with different groups of holders. `triples`: three-way tables, too; `chosen_triples`: up to so many of the
    target and two columns, the three in two groups of holders at most, named after the first release. `most_holders`:
    with how many holders of rows a person may be.
    """

    private: bool = True
    fine: float = 0.0
    across: bool = False
    target: str | None = None
    refined: int = 0
    scouting: float | None = 1.0
    public_people: int | None = None
    triples: tuple[tuple[str, str, str], ...] = ()
    chosen_triples: int = 0
    most_holders: int = 1


@dataclass(frozen=True)
class Released:
    """The released matrix: counts (width, width), the standard deviation of the noise in each cell, 0 where none is.

    `measured` marks the cells that were released; `triples` are three-way tables with their columns' numbers and
    noise; `sigmas` the noise of each release that was agreed on, `releases` the (σ, moved cells) that ε is made of, for
    each σ of each release that took place; `people` their number where it is disclosed; `begun` what each party that
    took part stated. All of it is public, or paid for.
    `kept` are all counts as they were released, before anything was made of them (`answers.release`).
    `made`: how many releases took place; `levels` those that were bought (`data.encoding.levels`), with their fine
    tables, which are the diagonal then; `cells` how many people which holders share, where columns are split.
    `ended`: why a further release did not take place, if one was due; `lost` what it would have been, where holders
    were asked for it and may have paid; `gone` who went away then.
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
    made: int = 1
    levels: dict[str, Tensor] = field(default_factory=dict)
    kept: dict[str, Tensor] = field(default_factory=dict)
    cells: list[list[Any]] = field(default_factory=list)
    ended: str = ""
    lost: list[list[float]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    @property
    def began(self) -> Began:
        """What the parties began with."""
        cells = {tuple(holders): int(people) for people, holders in self.cells}
        return Began(self.begun, self.sigmas, self.people, cells)


# by what was released, and pairs (n, 2) chosen already: others (k, 2)
Choose = Callable[[Released, Tensor], Tensor]
# by what was released, of these pairs (n, 2), at most so many, with this noise: those (k, 2) to go with the target
ChooseTriples = Callable[[Released, Tensor, int, float], Tensor]


def release(
    parties: Parties,
    schemas: Mapping[str, Schema],
    plan: Plan | None = None,
    *,
    choose: Choose | None = None,
    choose_triples: ChooseTriples | None = None,
    chunk: int = 1 << 15,
    colluding: int = 1,
    at_least: int | None = None,
    config: Mapping[str, Any] | None = None,
    secret: bytes | None = None,
    first: Released | None = None,
    keep: Callable[[Released], None] = lambda done: None,
) -> Released:
    """The noisy Gram matrix over all parties, at the noise that the strictest budget needs.

    `config` are the settings of the run, by which a party under a contract knows it. `secret`: what masks are dealt by,
    for a server that may have to deal the same ones again. Where there are several releases, `keep` gets what there is
    after each but the last, before anything else is asked, and `first` is what was kept: only the others are made then.
    Edges: where columns are split a party that goes away before the first release ends the run. Over rows one that goes
    before it is left out while `at_least` remain, and one that goes during it ends the run: without it nothing can be
    unmasked. Who has released by then has paid. Who goes away after it, or has too little left for another, leaves what
    was released, which says so (`ended`). A refusal is raised; of parties that have begun anew since, which hold
    nothing that a further release could be made of, it leaves what was released, too.
    """
    plan = plan or Plan()
    layout = Layout({name: schemas[name] for name in parties.names}, plan.triples, plan.fine > 0)
    for names in layout.triples:
        layout.triple(names)
    layout.check_width()
    layout.together(plan.most_holders)
    again = layout.again(plan.target, plan.refined)
    chosen = layout.choosable(plan.target, plan.chosen_triples)
    spreads = layout.spreads(colluding, across=plan.across, refined=again, chosen=chosen)
    terms = ServerTerms(chunk, at_least, secret or os.urandom(32))
    server = _Server(parties, layout, plan, spreads, terms, choose, choose_triples)
    done = first
    if done is None:
        done = server.first(begin(plan, layout.schemas, colluding, config))
    while done.made < len(spreads):
        if done is not first:
            keep(done)
        price = _releases(spreads[done.made], done.sigmas[done.made])
        try:
            done = server.next(done)
        except BudgetExceeded as refusal:
            return replace(done, ended=str(refusal), lost=price)
        except _Gone as gone:
            return replace(done, ended=str(gone), gone=gone.names, lost=price if gone.asked else [])
        except (MessageError, PartyError) as refusal:
            if first is None:
                raise
            return replace(done, ended=str(refusal))
    return done


def begin(
    plan: Plan, schemas: Mapping[str, Schema], colluding: int, config: Mapping[str, Any] | None = None
) -> Begin:
    """What all holders are told first."""
    return Begin(
        config=dict(config or {}),
        schemas={name: schema.to_dict() for name, schema in schemas.items()},
        **asdict(plan) | {"triples": [list(names) for names in plan.triples], "colluding": colluding},
    )


@dataclass(frozen=True)
class _Server:
    """One release after the other: fine tables where levels are bought, all pairs, and some of them once more."""

    parties: Parties
    layout: Layout
    plan: Plan
    spreads: tuple[Spread, ...]
    terms: ServerTerms
    choose: Choose | None
    choose_triples: ChooseTriples | None

    def first(self, begin: Begin) -> Released:
        """Begin, agree, and make the first release."""
        parties, layout = self.parties, self.layout
        if layout.grid.partition == "rows":
            began = over_rows(parties, begin, self.terms)
        else:
            began = over_columns(parties, layout, begin, self.terms)
        return self._fine(began) if layout.buys else self._pairs(parties, layout, began, 0)

    def next(self, done: Released) -> Released:
        """The release after these, if all who made them are still there."""
        parties, layout = _Staying(self.parties), self.layout
        if done.levels:
            levels = Levels.from_tensors(layout.joint, done.levels)
            layout = layout.on(levels)
            if done.made == 1:
                _tell(parties, levels, list(done.begun))
                return _joined(done, self._pairs(parties, layout, done.began, 1, levels_word(levels)))
        return _joined(done, self._again(parties, layout, done))

    def _fine(self, began: Began) -> Released:
        """Release all columns' fine tables, and choose levels by them; so far each column by itself is known."""
        layout, sigma = self.layout, began.sigmas[0]
        server = Adder(layout, ring_for(began), list(began.begun))
        replies = self.parties.ask({name: Fine(inbox=began.greetings[name]) for name in began.begun})
        sums, noise = server.fine(replies, self.spreads[0], sigma)
        tables = FineTables.of(layout.trees, sums, noise, began.people)
        levels = tables.levels(layout.joint, server.noisiest(self.spreads[1], began.sigmas[1]))
        counts, spread = tables.diagonal(levels)
        only = torch.eye(len(counts), dtype=torch.bool)
        releases = _releases(self.spreads[0], sigma)
        raw = kept("fine", torch.arange(layout.columns)[:, None], tables.noise, sums)
        return self._released(
            began, (counts.diag(), spread.diag(), only), releases, levels=levels.tensors(), kept=raw
        )

    def _pairs(
        self, parties: Parties, layout: Layout, began: Began, number: int, about: bytes = b""
    ) -> Released:
        """Release the whole matrix. `about`: the levels, where they were bought."""
        if layout.grid.partition == "rows":
            share = {name: Share(inbox=began.greetings.get(name, {}), corrections={}) for name in began.begun}
        else:
            share = products(parties, layout, began, self.terms, about)
        server = Adder(layout, ring_for(began), list(began.begun))
        spread, sigma = self.spreads[number], began.sigmas[number]
        replies, last = parties.ask(share), number == len(self.spreads) - 1
        wanted = layout.everything(across=self.plan.across)
        matrices = server.add(replies, wanted, spread, sigma)
        triples = server.triples(replies, spread, sigma) if last else []
        raw = tables_of(*matrices[:2], wanted, layout.sizes, "pairs") | _kept_triples(triples)
        return self._released(began, matrices, _releases(spread, sigma), triples=triples, kept=raw)

    def _again(self, parties: Parties, layout: Layout, done: Released) -> Released:
        """Release some pairs once more, and three-way tables."""
        plan, spread, sigma, holders = self.plan, self.spreads[-1], done.sigmas[-1], list(done.begun)
        pairs, chosen = self._chosen(layout, done)
        inboxes: dict[str, dict[str, Tensor]] = {name: {} for name in holders}
        most = layout.choosable(plan.target, plan.chosen_triples)
        if plan.refined or most:  # where something was chosen, the holders tell each other first what
            told = parties.ask(dict.fromkeys(holders, Propose(pairs=pairs, triples=chosen)))
            inboxes = relayed({name: told[name].outbox for name in holders}, holders)
        wanted = layout.only(pairs, layout.again(plan.target, plan.refined), plan.target)
        layout = layout.also(chosen, most, plan.target)
        corrections: dict[str, dict[str, Tensor]] = {name: {} for name in holders}
        if Across(layout):
            widen, word = Widen(pairs=pairs, triples=chosen, inbox={}), pairs_word(wanted, layout)
            inboxes, corrections = tables_across(
                parties, layout, done.began, self.terms, widen, inboxes, word
            )
        replies = parties.ask(
            {
                name: Refine(pairs=pairs, triples=chosen, inbox=inboxes[name], corrections=corrections[name])
                for name in holders
            }
        )
        server = Adder(layout, ring_for(done.began), holders)
        matrices = server.add(replies, wanted, spread, sigma)
        triples = server.triples(replies, spread, sigma)
        raw = tables_of(*matrices[:2], wanted, layout.sizes, "pairs_again") | _kept_triples(triples)
        return self._released(done.began, matrices, _releases(spread, sigma), triples=triples, kept=raw)

    def _chosen(self, layout: Layout, done: Released) -> tuple[Tensor, Tensor]:
        """The pairs that are released once more, and those that are with the target, by what was released so far."""
        plan, pairs = self.plan, layout.pairs_with(self.plan.target)
        if plan.refined:
            if self.choose is None:
                raise MessageError("pairs are to be refined, but nothing chooses them.")
            pairs = torch.cat([pairs, self.choose(done, pairs)])
        most = layout.choosable(plan.target, plan.chosen_triples)
        if plan.target is None or not most or self.choose_triples is None:
            return pairs, torch.empty(0, 2, dtype=torch.int64)
        beside = layout.beside(plan.target)
        noise = Adder(layout, ring_for(done.began), list(done.begun)).noisiest(
            self.spreads[-1], done.sigmas[-1]
        )
        return pairs, self.choose_triples(done, beside, most, noise)

    def _released(
        self,
        began: Began,
        matrices: tuple[Tensor, Tensor, Tensor],
        releases: list[list[float]],
        **more: Any,
    ) -> Released:
        gram, noise, measured = matrices
        return Released(
            partition=self.layout.grid.partition,
            gram=gram,
            noise=noise,
            measured=measured,
            releases=releases,
            people=began.people,
            begun=began.begun,
            sigmas=began.sigmas,
            cells=[[people, list(holders)] for holders, people in began.cells.items()],
            **more,
        )


class _Gone(PartyError):  # noqa: N818  (a state, not a fault)
    """Who did not answer, and whether it was asked for a release."""

    def __init__(self, names: list[str], *, asked: bool) -> None:
        super().__init__(f"{', '.join(names)} went away")
        self.names, self.asked = names, asked


@dataclass(frozen=True)
class _Staying:
    """The parties of a release, all of whom are needed for the next."""

    parties: Parties

    @property
    def names(self) -> tuple[str, ...]:
        return self.parties.names

    def ask(self, message: Ask | Mapping[str, Ask], *, at_least: int | None = None) -> dict[str, Any]:
        asks = dict.fromkeys(self.names, message) if isinstance(message, Ask) else dict(message)
        replies = self.parties.ask(asks, at_least=0)
        if gone := [name for name in asks if name not in replies]:
            raise _Gone(gone, asked=any(isinstance(ask, Share | Refine) for ask in asks.values()))
        return replies


def _tell(parties: Parties, levels: Levels, holders: list[str]) -> None:
    """All holders are told the same levels, and assure each other of it."""
    groups = {str(place): torch.from_numpy(group) for place, group in enumerate(levels.groups)}
    told = parties.ask(dict.fromkeys(holders, ProposeLevels(groups=groups)))
    inboxes = relayed({name: told[name].outbox for name in holders}, holders)
    parties.ask({name: TakeLevels(inbox=inbox) for name, inbox in inboxes.items()})


def _joined(done: Released, more: Released) -> Released:
    """All that was released so far, as one."""
    gram, noise, measured = together(
        (done.gram, done.noise, done.measured), (more.gram, more.noise, more.measured)
    )
    return replace(
        done,
        gram=gram,
        noise=noise,
        measured=measured,
        triples=more.triples,
        releases=[*done.releases, *more.releases],
        kept=done.kept | more.kept,
        made=done.made + 1,
    )


def _kept_triples(triples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Three-way tables as they were released, the axes of each in the order of its columns."""
    order = [sorted(range(3), key=one["columns"].__getitem__) for one in triples]
    columns = [[one["columns"][axis] for axis in axes] for one, axes in zip(triples, order, strict=True)]
    tables = [one["table"].permute(axes) for one, axes in zip(triples, order, strict=True)]
    return kept("triples", torch.tensor(columns), [one["noise"] for one in triples], tables)


def _releases(spread: Spread, sigma: float) -> list[list[float]]:
    return [[*one] for one in spread.classes(sigma)]
