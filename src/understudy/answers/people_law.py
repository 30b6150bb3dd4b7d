"""The law of people with events who are as asked, from a mixture of chains.

A kind of people is a product of columns, but for the time of a first event and the number of events, which go
together: it is two products, of those who have events and of those who have none. Conditions and rules fall into cases
(`cases`), in each of which people are products cut to boxes, and their events walks in given sets (`walks`): the number
of events is weighted by how likely so many of them are as they should be. Several kinds of events are independent given
the kind of people. So what is asked for has a closed form, however rare it is.

Every kind of people is given the rules on people alone, and every kind of events those on its events alone, as they
were fitted (`models/visits`): these rules change no shares of kinds, and no chain. Rules between both do, as a
condition does: people are given that all their events keep them.

An order between two columns of one table is kept as a table's rules keep it: levels by how far they go together,
values then drawn until they do. Two orders that share a column are taken as independent.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from understudy.answers.cases import ANYTHING, EVERYTHING, Boxes, Case, Events, Split
from understudy.answers.drawn_people import Drawn
from understudy.answers.kinds_of_events import TooManyCasesError
from understudy.answers.products import Products
from understudy.answers.rules import each_keeps, replaced
from understudy.answers.walks import EventSet, Walks
from understudy.data.arrays import Places, starts_of
from understudy.data.conditions import Order, tests
from understudy.data.encoding.codec import Codec, Uniform
from understudy.data.encoding.values import Codes, Pieces, typed
from understudy.data.rules import Rule
from understudy.data.visits import VisitSchema
from understudy.data.visits.frames import timed
from understudy.models.tables.bayes import invert
from understudy.models.visits.chains import MixtureOfChains
from understudy.models.visits.together import ChainsTogether

_TINY = 1e-300  # a divisor in place of 0: kinds of people who never have events
_TRIES = 100  # to find values in the order that rules need
_AT_ONCE = 1 << 22  # numbers held at a time
_MOST_NUMBERS = 1 << 28  # held by all cases together: 2 GiB


Network = MixtureOfChains | ChainsTogether


class PeopleLaw:
    """The law of people who are as asked, by cases. `told`: what is asked is taken in; else the draws are anybody."""

    def __init__(self, network: Network, split: Split, *, told: bool = True) -> None:
        self.network, self.split, self.told = network, split, told
        anybody = Case(EVERYTHING, tuple(ANYTHING for _ in network.each))
        cases = list(split.cases()) if told else [anybody]
        if told:
            _check_room(network, cases)
        kinds, events = kinds_of(network), (EVERYTHING,) * len(network.each)
        if told:
            people, events = split.kept()
            kinds = _each_given(kinds, people, network.kinds)
        sets = [EventSet.of(member, *own) for member, own in zip(network.each, events, strict=True)]
        parts = [_Part(network, split, case, sets) for case in cases]
        found = [(part, chance) for part in parts if (chance := part.given(kinds))]
        self.parts, self.chances = [part for part, _ in found], [chance for _, chance in found]
        self.probability = float(sum(self.chances))

    def draw(self, n: int, rng: Uniform) -> Drawn:
        """`n` people: of each case as many as its share says, rounded up or down, in any order."""
        heap = np.cumsum(self.chances) / self.probability
        places = (np.arange(n) + float(rng.uniform(1))) / max(1, n)
        which = np.minimum(np.searchsorted(heap, places, side="right"), len(heap) - 1)
        drawn = [part.draw(int((which == place).sum()), rng) for place, part in enumerate(self.parts)]
        first, *others = drawn
        for other in others:
            first = first.with_(other)
        if others:
            first = first.take(torch.argsort(rng.uniform(n)).numpy())
        return first


class _Part:
    """People of one case, and their events of each kind."""

    def __init__(self, network: Network, split: Split, case: Case, kept: Sequence[EventSet]) -> None:
        self.network, self.case, self.levels = network, case, split.people
        ends = accumulate(len(member.people) for member in network.each)
        self.last = [end - 1 for end in ends]  # where the numbers of events are, among people's columns
        parts = zip(network.each, split.schema.parts, case.events, split.events, kept, strict=True)
        self.members = [_Member(*part) for part in parts]
        self.pieces = {at: self.levels.pieces(at) for at in self.last} | case.people[1]

    def given(self, kinds: Products) -> float:
        """How likely the case is, after which it can be drawn."""
        cut = kinds.cut(self.pieces)
        kind, odds = torch.arange(len(kinds.weight)) % self.network.kinds, list(cut.odds)
        for at, member in zip(self.last, self.members, strict=True):
            mean = member.means(self._edges(at))  # (pieces, chains)
            odds[at] = odds[at] * mean.T[kind % member.network.chains]
        every = {at: np.ones(odds[at].shape[1]) for at in self.last}
        boxes = [{**every, **box} for box in self.case.people[0]]
        probability, self.left = Products(cut.weight, tuple(odds)).given(boxes)
        return probability

    def draw(self, n: int, rng: Uniform) -> Drawn:
        assert self.left is not None
        drawn = self.left.draw(n, rng.uniform).numpy()
        kind, own = torch.from_numpy(drawn[:, -1]).long(), drawn[:, :-1]
        numbers = [
            member.number(kind, own[:, at], self._edges(at), rng)
            for at, member in zip(self.last, self.members, strict=True)
        ]
        people = _values(self.levels, own, self.pieces, rng)
        for at, number in zip(self.last, numbers, strict=True):
            column = self.levels.schema.columns[at]
            people[column.name] = typed(column, number.numpy(), np.zeros(n, dtype=bool))
        starts = tuple(starts_of(number.numpy()) for number in numbers)
        events = tuple(
            timed(people, member.events(kind, number, rng), begin, member.schema)
            for member, number, begin in zip(self.members, numbers, starts, strict=True)
        )
        return Drawn(people, events, starts)

    def _edges(self, at: int) -> Places:
        edges = self.pieces[at].edges
        assert edges is not None
        return edges.astype(np.int64)


class _Member:
    """One kind of events in a case: how likely so many of them are as they should be, and draws of these."""

    def __init__(
        self, network: MixtureOfChains, schema: VisitSchema, asked: Events, levels: Codec, kept: EventSet
    ) -> None:
        self.network, self.schema, self.levels = network, schema, levels
        self.sets = [EventSet.of(network, *own) for own in (asked.hit, asked.miss)]
        hit, miss = self.sets
        self.walks = None if asked.free else Walks(network, hit, miss, kept, wanted=asked.wanted)
        shape = (network.longest + 1, network.chains)
        self.numbers = torch.ones(shape).double() if self.walks is None else self.walks.numbers()

    def means(self, edges: Places) -> Tensor:
        """How likely the events are as they should be, by pieces of their number: (pieces, chains)."""
        heap = functional.pad(self.numbers.cumsum(0), (0, 0, 1, 0))  # (longest + 2, chains)
        low, after = (torch.from_numpy(part) for part in (edges[:-1], edges[1:]))
        return (heap[after] - heap[low]) / (after - low)[:, None]

    def number(self, kind: Tensor, piece: Codes, edges: Places, rng: Uniform) -> Tensor:
        """How many events each has, within the piece of their number."""
        low, after = (torch.from_numpy(edges[piece + k]) for k in (0, 1))
        found, each = [torch.zeros(0, dtype=torch.int64)], torch.arange(len(self.numbers))
        for some in torch.split(torch.arange(len(kind)), max(1, _AT_ONCE // len(each))):
            inside = (low[some, None] <= each) & (each < after[some, None])
            weight = self.numbers.T[kind[some] % self.network.chains]
            found.append(invert(weight * inside, rng.uniform(len(some))))
        return torch.cat(found)

    def events(self, kind: Tensor, number: Tensor, rng: Uniform) -> pd.DataFrame:
        """So many events of people of these kinds, person by person and in order."""
        if self.walks is None:
            codes = self.network.events_of(kind, number, rng.uniform).numpy()
            return self.levels.decode(codes, rng)
        states, hits = self.walks.draw(kind % self.network.chains, number, rng.uniform)
        parts, rows = [], []
        for own, which in zip(self.sets, (hits, ~hits), strict=True):
            parts.append(_values(self.levels, own.draw(states[which], rng.uniform), own.pieces, rng))
            rows.append(which.nonzero()[:, 0].numpy())
        return (
            pd.concat(parts, ignore_index=True).iloc[np.argsort(np.concatenate(rows))].reset_index(drop=True)
        )


def _values(levels: Codec, drawn: Codes, pieces: Mapping[int, Pieces], rng: Uniform) -> pd.DataFrame:
    """A value of each piece, in an order that the levels' rules keep."""
    codes = drawn.copy()
    for j, own in pieces.items():
        codes[:, j] = own.level[drawn[:, j]]

    def values(rows: Places) -> pd.DataFrame:
        frame = levels.decode(codes[rows], rng)
        for j, own in pieces.items():
            frame[own.column.name] = own.values(drawn[rows, j], rng.uniform(len(rows)).numpy())
        return frame

    found = values(np.arange(len(drawn)))
    if any(_compares(rule) for rule in levels.schema.rules):
        for _ in range(_TRIES):
            if not len(wrong := np.flatnonzero(~each_keeps(levels.schema, found))):
                break
            again = values(wrong)
            for name in map(str, found.columns):
                found[name] = replaced(found[name], wrong, again[name])
    return found


def _check_room(network: Network, cases: Sequence[Case]) -> None:
    """TooManyCasesError where all cases together would hold too many numbers."""
    boxes = sum(len(case.people[0]) for case in cases)
    walks = sum(
        2 * member.longest * member.chains * member.states
        for case in cases
        for member, events in zip(network.each, case.events, strict=True)
        if not events.free
    )
    width = sum(sum(member.people) for member in network.each) + network.kinds
    if 2 ** len(network.each) * boxes * network.kinds * width + walks > _MOST_NUMBERS:
        raise TooManyCasesError


def _compares(rule: Rule) -> bool:
    return rule.condition is not None and any(isinstance(test, Order) for test in tests(rule.condition))


def kinds_of(network: Network) -> Products:
    """Kinds of people as weighted products of their columns, and of one more column that says which kind it is."""
    which = torch.eye(network.kinds, dtype=torch.float64)
    weight = torch.full((network.kinds,), 1 / network.kinds, dtype=torch.float64)
    found = Products(weight, (which,))
    for member in network.each:
        found = _with_columns(found, member)
    return Products(found.weight, (*found.odds[1:], found.odds[0]))


def _each_given(products: Products, kept: Boxes, kinds: int) -> Products:
    """Every kind of people given the rules on people alone, as it was fitted: kinds keep their shares.

    Edges: a kind that the rules leave nothing has no share.
    """
    boxes, pieces = kept
    cut, inside = products.cut(pieces), torch.zeros(len(products.weight)).double()
    for box in boxes:
        inside += cut.inside(box).exp()
    left = (products.weight * inside).view(-1, kinds).sum(0) * kinds  # (kinds,)
    weight = products.weight.view(-1, kinds) / left.clamp(min=_TINY)
    return Products(weight.flatten(), products.odds)


def _with_columns(kinds: Products, member: MixtureOfChains) -> Products:
    """The same with one member's columns, two products in place of one where its events have an order."""
    own, number = (part.detach().cpu().double() for part in member.person_odds())
    times = len(kinds.weight) // len(own)  # products of each kind so far
    own, number = own.repeat(times, 1), number.repeat(times, 1)
    blocks = torch.split(own, list(member.people[:-1]), 1)
    if not member.ordered:
        return Products(kinds.weight, (*kinds.odds, *blocks, number))
    none, some = number[:, :1], functional.pad(number[:, 1:], (1, 0))
    missing = functional.one_hot(torch.tensor(member.people[-2] - 1), member.people[-2]).double()
    nothing = functional.one_hot(torch.tensor(0), member.people[-1]).double()
    weight = torch.cat((kinds.weight * (1 - none[:, 0]), kinds.weight * none[:, 0]))
    odds = [torch.cat((block, block)) for block in (*kinds.odds, *blocks[:-1])]
    odds.append(torch.cat((blocks[-1], missing.expand(len(own), -1))))
    odds.append(torch.cat((some / some.sum(1, keepdim=True).clamp(min=_TINY), nothing.expand(len(own), -1))))
    return Products(weight, tuple(odds))
