"""People who keep the rules, or who meet a condition, with their events of one kind or
several, from chains.

Conditions and rules fall into cases (`cases`), in each of which people are products cut
to boxes, and their events walks in given sets (`walks`): the number of events is
weighted by how likely so many of them are as they should be. Several kinds of events
are independent given the kind of people. So what is asked for has a closed form,
however rare it is.

Every kind of people is given the rules on people alone, and every kind of events those
on its events alone, as they were fitted (`models/visits`): these change no shares of
kinds, and no chain. Rules between both do, as a condition does. An order between two
columns of one table is kept as a table's rules keep it (`rule_boxes`), values then
drawn until they do.

Guarantee: whoever is drawn keeps all rules and meets the condition: all are looked at,
and who does not is drawn again.
Edges: the time itself, and an order between a person's column and an event's, are left
to drawing again, with a bound on the work; a condition that nobody meets, or that is
too rare for that → ConfigError.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from understudy.answers.cases import (
    ANYTHING,
    EVERYTHING,
    Case,
    Events,
    Split,
    TooManyCasesError,
)
from understudy.answers.drawn_people import Drawn, meets
from understudy.answers.products import Products
from understudy.answers.question import rows_of
from understudy.answers.rules import refilled
from understudy.answers.walks import EventSet, Network, Walks, each_given, kinds_of
from understudy.data.conditions import Order, columns, parse, tests
from understudy.data.encoding.codec import Codec, Uniform
from understudy.data.encoding.values import Codes, Pieced, Places, starts_of, typed
from understudy.data.visits import SeveralVisits, VisitSchema
from understudy.data.visits.reading import declared, timed
from understudy.ground.errors import ConfigError, Effect
from understudy.models.tables.mixture import invert
from understudy.models.visits.chains import MixtureOfChains

_AT_ONCE = 1 << 22  # numbers held at a time
_MOST_DRAWS = 1 << 20  # people, for one question
_FIRST = 1 << 12  # after which it is seen whether these will do
_MOST_NUMBERS = 1 << 28  # held by all cases together: 2 GiB


def people_where(
    network: Network,
    schema: VisitSchema | SeveralVisits,
    where: str | None,
    n: int,
    rng: Uniform,
) -> tuple[pd.DataFrame, ...]:
    """`n` people who keep the rules and meet the condition, and their events of each
    kind. `attrs["probability"]` is what the model, given the rules, gives the
    condition, `attrs["answer"]` whether that is exact, or counts what is left to
    drawing among draws; `attrs["kept"]` is the share of draws that are kept.
    """
    split = Split(schema, None if where is None else parse(where))
    for name in () if split.condition is None else columns(split.condition):
        schema.row_schema.column(name)
    law, given, told = _law(network, split)
    if law.probability == 0:
        asked = repr(where) if where is not None else "the rules"
        raise ConfigError(
            f"nobody meets {asked}: the model gives it the probability 0.",
            effect=Effect.NOTHING_SAMPLED,
        )
    found, kept = _enough_people(n, law, split, where, rng)
    each = [
        declared(found.people, events, starts, part)
        for part, events, starts in zip(
            schema.parts, found.events, found.starts, strict=True
        )
    ]
    frames = (each[0][0], *(events for _, events in each))
    said: dict[str, Any] = {"kept": kept}
    if where is not None:
        exact = told and not split.later
        said["answer"] = "exact" if exact else "counted among draws"
        said["probability"] = law.probability / given * (1.0 if exact else kept)
    for frame in frames:
        frame.attrs |= said
    return frames


def _law(network: Network, split: Split) -> tuple["PeopleLaw", float, bool]:
    """What is drawn from: what is asked, the rules alone, or nothing; what it gives the
    rules; if it tells what is.
    """
    rules: PeopleLaw | None = None
    if split.condition is None or split.schema.rules:
        try:
            rules = PeopleLaw(network, Split(split.schema, None))
        except TooManyCasesError:
            return PeopleLaw(network, split, told=False), 1.0, False
    if split.condition is None:
        assert rules is not None
        return rules, rules.probability, True
    given = 1.0 if rules is None else rules.probability
    try:
        return PeopleLaw(network, split), given, True
    except TooManyCasesError:
        return (
            PeopleLaw(network, split, told=False) if rules is None else rules,
            given,
            False,
        )


def _enough_people(
    n: int, law: "PeopleLaw", split: Split, where: str | None, rng: Uniform
) -> tuple[Drawn, float]:
    """So many people who keep and meet all, and the share of draws that do."""
    found = law.draw(0, rng)
    tried = 0
    have = 0
    asked = n
    while True:
        drawn = law.draw(asked, rng)
        good = np.flatnonzero(meets(drawn, split))
        found = found.with_(drawn.take(good))
        tried = tried + asked
        have = have + len(good)
        if have >= n:
            return found.take(np.arange(n)), have / max(tried, 1)
        if tried >= _MOST_DRAWS or (
            tried >= _FIRST and have / tried * _MOST_DRAWS < n / 2
        ):
            what = " and ".join(
                [repr(where)] * (where is not None)
                + ["the rules"] * bool(split.schema.rules)
            )
            raise ConfigError(
                f"{have:,} of {tried:,} draws meet {what}: {n:,} people would take "
                "too long.",
                effect=Effect.NOTHING_SAMPLED,
            )
        asked = min(
            _MOST_DRAWS // 8,
            max(64, _FIRST if not have else int(1.1 * (n - have) * tried / have) + 1),
        )


class PeopleLaw:
    """The law of people who are as asked, by cases. `told`: what is asked is taken in;
    else the draws are anybody.
    """

    def __init__(self, network: Network, split: Split, *, told: bool = True) -> None:
        self.network = network
        self.split = split
        self.told = told
        anybody = Case(EVERYTHING, tuple(ANYTHING for _ in network.each))
        cases = list(split.cases()) if told else [anybody]
        kinds = kinds_of(network)
        events = (EVERYTHING,) * len(network.each)
        if told:
            _check_room(network, cases)
            people, events = split.ruled_boxes()
            kinds = each_given(kinds, *people, network.kinds)
        sets = [
            EventSet.from_boxes(member, *own)
            for member, own in zip(network.each, events, strict=True)
        ]
        parts = [_Part(network, split, case, sets) for case in cases]
        found = [
            (part, chance)
            for part in parts
            if (chance := part.probability_given(kinds))
        ]
        self.parts = [part for part, _ in found]
        self.chances = [chance for _, chance in found]
        self.probability = float(sum(self.chances))

    def draw(self, n: int, rng: Uniform) -> Drawn:
        """`n` people: of each case as many as its share says, rounded up or down, in
        any order.
        """
        heap = np.cumsum(self.chances) / self.probability
        places = (np.arange(n) + float(rng.uniform(1))) / max(1, n)
        which = np.minimum(np.searchsorted(heap, places, side="right"), len(heap) - 1)
        first, *others = [
            part.draw(int((which == place).sum()), rng)
            for place, part in enumerate(self.parts)
        ]
        for other in others:
            first = first.with_(other)
        if others:
            first = first.take(torch.argsort(rng.uniform(n)).numpy())
        return first


class _Part:
    def __init__(
        self, network: Network, split: Split, case: Case, kept: Sequence[EventSet]
    ) -> None:
        self.network = network
        self.case = case
        self.levels = split.people
        ends = accumulate(len(member.people) for member in network.each)
        # where the numbers of events are, among people's columns
        self.last = [end - 1 for end in ends]
        parts = zip(
            network.each,
            split.schema.parts,
            case.events,
            split.events,
            kept,
            strict=True,
        )
        self.members = [_Member(*part) for part in parts]
        self.pieces = {at: self.levels.pieces(at) for at in self.last} | case.people[1]

    def probability_given(self, kinds: Products) -> float:
        """How likely the case is, after which it can be drawn."""
        cut = kinds.cut(self.pieces)
        kind = torch.arange(len(kinds.weight)) % self.network.kinds
        odds = list(cut.odds)
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
        kind = torch.from_numpy(drawn[:, -1]).long()
        own = drawn[:, :-1]
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
    """One kind of events in a case: how likely so many of them are as they should be,
    and draws of these.
    """

    def __init__(
        self,
        network: MixtureOfChains,
        schema: VisitSchema,
        asked: Events,
        levels: Codec,
        kept: EventSet,
    ) -> None:
        self.network = network
        self.schema = schema
        self.levels = levels
        self.sets = [
            EventSet.from_boxes(network, *own) for own in (asked.hit, asked.miss)
        ]
        hit, miss = self.sets
        self.walks = (
            None if asked.free else Walks(network, hit, miss, kept, wanted=asked.wanted)
        )
        shape = (network.longest + 1, network.chains)
        self.numbers = (
            torch.ones(shape).double() if self.walks is None else self.walks.numbers()
        )

    def means(self, edges: Places) -> Tensor:
        """How likely the events are as they should be, by pieces of their number:
        (pieces, chains).
        """
        # (longest + 2, chains)
        heap = functional.pad(self.numbers.cumsum(0), (0, 0, 1, 0))
        low, after = (torch.from_numpy(part) for part in (edges[:-1], edges[1:]))
        return (heap[after] - heap[low]) / (after - low)[:, None]

    def number(self, kind: Tensor, piece: Codes, edges: Places, rng: Uniform) -> Tensor:
        """How many events each has, within the piece of their number."""
        low, after = (torch.from_numpy(edges[piece + k]) for k in (0, 1))
        found = [torch.zeros(0, dtype=torch.int64)]
        each = torch.arange(len(self.numbers))
        for some in torch.split(torch.arange(len(kind)), max(1, _AT_ONCE // len(each))):
            inside = (low[some, None] <= each) & (each < after[some, None])
            weight = self.numbers.T[kind[some] % self.network.chains]
            found.append(invert(weight * inside, rng.uniform(len(some))))
        return torch.cat(found)

    def events(self, kind: Tensor, number: Tensor, rng: Uniform) -> pd.DataFrame:
        """So many events of people of these kinds, person by person and in order."""
        if self.walks is None:
            return self.levels.decode(
                self.network.events_of(kind, number, rng.uniform).numpy(), rng
            )
        states, hits = self.walks.draw(kind % self.network.chains, number, rng.uniform)
        parts = []
        rows = []
        for own, which in zip(self.sets, (hits, ~hits), strict=True):
            parts.append(
                _values(
                    self.levels, own.draw(states[which], rng.uniform), own.pieces, rng
                )
            )
            rows.append(which.nonzero()[:, 0].numpy())
        return (
            pd.concat(parts, ignore_index=True)
            .iloc[np.argsort(np.concatenate(rows))]
            .reset_index(drop=True)
        )


def _values(levels: Codec, drawn: Codes, pieces: Pieced, rng: Uniform) -> pd.DataFrame:
    """A value of each piece, in an order that the levels' rules keep."""
    found = rows_of(drawn, pieces, levels, rng)
    said = [
        test
        for rule in levels.schema.rules
        if rule.condition is not None
        for test in tests(rule.condition)
    ]
    ordered = any(isinstance(test, Order) for test in said)
    if not ordered:
        return found
    return refilled(
        levels.schema,
        found,
        lambda rows: rows_of(drawn[rows], pieces, levels, rng),
        must=False,
    )


def _check_room(network: Network, cases: Sequence[Case]) -> None:
    """TooManyCasesError where all cases together would hold too many numbers."""
    boxes = sum(len(case.people[0]) for case in cases)
    each = [
        pair for case in cases for pair in zip(network.each, case.events, strict=True)
    ]
    walks = sum(
        2 * own.longest * own.chains * own.states
        for own, events in each
        if not events.free
    )
    width = sum(sum(member.people) for member in network.each) + network.kinds
    if 2 ** len(network.each) * boxes * network.kinds * width + walks > _MOST_NUMBERS:
        raise TooManyCasesError
