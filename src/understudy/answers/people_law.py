"""The law of people with events who are as asked, from a mixture of chains.

A kind of people is a product of columns, but for the time of a first event and the number of events, which go
together: it is two products, of those who have events and of those who have none. Conditions and rules fall into cases
(`cases`), in each of which people are products cut to boxes, and their events walks in given sets (`walks`): the number
of events is weighted by how likely so many of them are as they should be. So what is asked for has a closed form,
however rare it is.

An order between two columns of one table is kept as a table's rules keep it: levels by how far they go together,
values then drawn until they do. Two orders that share a column are taken as independent.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from understudy.answers.cases import Case, Split, TooManyCasesError
from understudy.answers.drawn_people import Drawn, starts_of
from understudy.answers.products import Products
from understudy.answers.rules import each_keeps, replaced
from understudy.answers.walks import EventSet, Walks
from understudy.data.codec import Codec, Uniform
from understudy.data.conditions import Order, tests
from understudy.data.dtypes import typed
from understudy.data.pieces import Pieces
from understudy.data.rules import Rule
from understudy.data.values import Codes
from understudy.data.visits.codes import Places
from understudy.data.visits.frames import timed
from understudy.models.tables import invert
from understudy.models.visits import MixtureOfChains

_TINY = 1e-300  # a divisor in place of 0: kinds of people who never have events
_TRIES = 100  # to find values in the order that rules need
_AT_ONCE = 1 << 22  # numbers held at a time
_MOST_NUMBERS = 1 << 28  # held by all cases together: 2 GiB


ANYBODY = Case(([{}], {}), ([{}], {}), ((), {}), wanted=False, free=True)


class PeopleLaw:
    """The law of people who are as asked, by cases. `told`: what is asked is taken in; else the draws are anybody."""

    def __init__(self, network: MixtureOfChains, split: Split, *, told: bool = True) -> None:
        self.network, self.split, self.told = network, split, told
        cases = list(split.cases()) if told else [ANYBODY]
        if told:
            _check_room(network, cases)
        kinds = kinds_of(network)
        found = [
            (part, chance) for case in cases if (chance := (part := _Part(network, split, case)).given(kinds))
        ]
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
    """People of one case, and their events."""

    def __init__(self, network: MixtureOfChains, split: Split, case: Case) -> None:
        self.network, self.schema, self.case = network, split.schema, case
        self.levels, self.event_levels = split.people, split.events
        self.sets = [EventSet.of(network, *own) for own in (case.hit, case.miss)]
        self.walks = None if case.free else Walks(network, *self.sets, wanted=case.wanted)
        shape = (network.longest + 1, network.chains)
        self.numbers = torch.ones(shape).double() if self.walks is None else self.walks.numbers()
        last = len(self.levels.sizes) - 1
        self.pieces = {last: self.levels.pieces(last)} | case.people[1]

    def given(self, kinds: Products) -> float:
        """How likely the case is, after which it can be drawn."""
        last, edges = len(self.levels.sizes) - 1, self.pieces[len(self.levels.sizes) - 1].edges
        assert edges is not None
        heap = functional.pad(self.numbers.cumsum(0), (0, 0, 1, 0))  # (longest + 2, chains)
        low, after = (torch.from_numpy(part.astype(np.int64)) for part in (edges[:-1], edges[1:]))
        mean = (heap[after] - heap[low]) / (after - low)[:, None]  # (pieces, chains)
        cut = kinds.cut(self.pieces)
        chain = torch.arange(len(kinds.weight)) % self.network.kinds % self.network.chains
        odds = list(cut.odds)
        odds[last] = odds[last] * mean.T[chain]
        boxes = [{last: np.ones(len(mean)), **box} for box in self.case.people[0]]
        probability, self.left = Products(cut.weight, tuple(odds)).given(boxes)
        return probability

    def draw(self, n: int, rng: Uniform) -> Drawn:
        assert self.left is not None
        drawn = self.left.draw(n, rng.uniform).numpy()
        kind, own = torch.from_numpy(drawn[:, -1]).long(), drawn[:, :-1]
        number = self._number(kind, own[:, -1], rng)
        people = _values(self.levels, own, self.pieces, rng)
        column = self.levels.schema.columns[-1]
        people[column.name] = typed(column, number.numpy(), np.zeros(n, dtype=bool))
        starts = starts_of(number.numpy())
        events = self._events(kind, number, rng)
        return Drawn(people, timed(people, events, starts, self.schema), starts)

    def _number(self, kind: Tensor, piece: Codes, rng: Uniform) -> Tensor:
        """How many events each has, within the piece of their number."""
        edges = self.pieces[len(self.levels.sizes) - 1].edges
        assert edges is not None
        low, after = (torch.from_numpy(edges[piece + k].astype(np.int64)) for k in (0, 1))
        found, each = [torch.zeros(0, dtype=torch.int64)], torch.arange(len(self.numbers))
        for some in torch.split(torch.arange(len(kind)), max(1, _AT_ONCE // len(each))):
            inside = (low[some, None] <= each) & (each < after[some, None])
            weight = self.numbers.T[kind[some] % self.network.chains]
            found.append(invert(weight * inside, rng.uniform(len(some))))
        return torch.cat(found)

    def _events(self, kind: Tensor, number: Tensor, rng: Uniform) -> pd.DataFrame:
        if self.walks is None:
            codes = self.network.events_of(kind, number, rng.uniform).numpy()
            return self.event_levels.decode(codes, rng)
        states, hits = self.walks.draw(kind % self.network.chains, number, rng.uniform)
        parts, rows = [], []
        for own, which in zip(self.sets, (hits, ~hits), strict=True):
            parts.append(_values(self.event_levels, own.draw(states[which], rng.uniform), own.pieces, rng))
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


def _check_room(network: MixtureOfChains, cases: Sequence[Case]) -> None:
    """TooManyCasesError where all cases together would hold too many numbers."""
    boxes = sum(len(case.people[0]) for case in cases)
    walks = sum(2 * network.longest * network.chains * network.states for case in cases if not case.free)
    if 2 * boxes * network.kinds * (sum(network.people) + network.kinds) + walks > _MOST_NUMBERS:
        raise TooManyCasesError


def _compares(rule: Rule) -> bool:
    return rule.condition is not None and any(isinstance(test, Order) for test in tests(rule.condition))


def kinds_of(network: MixtureOfChains) -> Products:
    """Kinds of people as weighted products of their columns, and of one more column that says which kind it is."""
    own, number = (part.detach().cpu().double() for part in network.person_odds())
    blocks = torch.split(own, list(network.people[:-1]), 1)
    which = torch.eye(network.kinds, dtype=torch.float64)
    if not network.ordered:
        return Products(
            torch.full((network.kinds,), 1 / network.kinds, dtype=torch.float64), (*blocks, number, which)
        )
    none, some = number[:, :1], functional.pad(number[:, 1:], (1, 0))
    missing = functional.one_hot(torch.tensor(network.people[-2] - 1), network.people[-2]).double()
    nothing = functional.one_hot(torch.tensor(0), network.people[-1]).double()
    weight = torch.cat((1 - none[:, 0], none[:, 0])) / network.kinds
    odds = [torch.cat((block, block)) for block in blocks[:-1]]
    odds.append(torch.cat((blocks[-1], missing.expand(network.kinds, -1))))
    odds.append(
        torch.cat((some / some.sum(1, keepdim=True).clamp(min=_TINY), nothing.expand(network.kinds, -1)))
    )
    return Products(weight, (*odds, torch.cat((which, which))))
