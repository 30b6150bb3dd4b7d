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
    law, rules_probability, is_exact = _law(network, split)
    if law.probability == 0:
        question = repr(where) if where is not None else "the rules"
        raise ConfigError(
            f"nobody meets {question}: the model gives it the probability 0.",
            effect=Effect.NOTHING_SAMPLED,
        )
    sampled, kept_share = _enough_people(
        n,
        law,
        split,
        where,
        rng,
    )
    declared_tables = [
        declared(sampled.people, events, starts, part)
        for part, events, starts in zip(
            schema.parts,
            sampled.events,
            sampled.starts,
            strict=True,
        )
    ]
    frames = (declared_tables[0][0], *(events for _, events in declared_tables))
    attributes: dict[str, Any] = {"kept": kept_share}
    if where is not None:
        exact = is_exact and not split.later
        attributes["answer"] = "exact" if exact else "counted among draws"
        attributes["probability"] = (
            law.probability / rules_probability * (1.0 if exact else kept_share)
        )
    for frame in frames:
        frame.attrs |= attributes
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
            return PeopleLaw(network, split, conditioned=False), 1.0, False
    if split.condition is None:
        assert rules is not None
        return rules, rules.probability, True
    rules_probability = 1.0 if rules is None else rules.probability
    try:
        return PeopleLaw(network, split), rules_probability, True
    except TooManyCasesError:
        return (
            PeopleLaw(network, split, conditioned=False) if rules is None else rules,
            rules_probability,
            False,
        )


def _enough_people(
    n: int,
    law: "PeopleLaw",
    split: Split,
    where: str | None,
    rng: Uniform,
) -> tuple[Drawn, float]:
    """So many people who keep and meet all, and the share of draws that do."""
    accepted = law.draw(0, rng)
    n_tried = 0
    n_accepted = 0
    n_draws = n
    while True:
        sampled = law.draw(n_draws, rng)
        good = np.flatnonzero(meets(sampled, split))
        accepted = accepted.with_(sampled.take(good))
        n_tried = n_tried + n_draws
        n_accepted = n_accepted + len(good)
        if n_accepted >= n:
            return accepted.take(np.arange(n)), n_accepted / max(n_tried, 1)
        too_rare = n_tried >= _FIRST and n_accepted / n_tried * _MOST_DRAWS < n / 2
        if n_tried >= _MOST_DRAWS or too_rare:
            requirements = [] if where is None else [repr(where)]
            if split.schema.rules:
                requirements.append("the rules")
            raise ConfigError(
                f"{n_accepted:,} of {n_tried:,} draws meet "
                f"{' and '.join(requirements)}: {n:,} people would take too long.",
                effect=Effect.NOTHING_SAMPLED,
            )
        n_draws = _FIRST
        if n_accepted:
            n_draws = int(1.1 * (n - n_accepted) * n_tried / n_accepted) + 1
        n_draws = min(_MOST_DRAWS // 8, max(64, n_draws))


class PeopleLaw:
    """The law of people who are as asked, by cases. `conditioned`: the condition is
    part of it; else the draws are anybody.
    """

    def __init__(
        self,
        network: Network,
        split: Split,
        *,
        conditioned: bool = True,
    ) -> None:
        self.network = network
        self.split = split
        self.is_conditioned = conditioned
        anybody = Case(EVERYTHING, tuple(ANYTHING for _ in network.mixtures))
        cases = list(split.cases()) if conditioned else [anybody]
        kinds = kinds_of(network)
        events = (EVERYTHING,) * len(network.mixtures)
        if conditioned:
            _check_room(network, cases)
            people, events = split.ruled_boxes()
            kinds = each_given(kinds, *people, network.kinds)
        sets = [
            EventSet.from_boxes(member, *boxes)
            for member, boxes in zip(network.mixtures, events, strict=True)
        ]
        parts = [_ConditionedCase(network, split, case, sets) for case in cases]
        possible_parts = [
            (part, chance)
            for part in parts
            if (chance := part.probability_given(kinds))
        ]
        self.parts = [part for part, _ in possible_parts]
        self.chances = [chance for _, chance in possible_parts]
        self.probability = float(sum(self.chances))

    def draw(self, n: int, rng: Uniform) -> Drawn:
        """`n` people: of each case as many as its share says, rounded up or down, in
        any order.
        """
        heap = np.cumsum(self.chances) / self.probability
        quantiles = (np.arange(n) + float(rng.uniform(1))) / max(1, n)
        which = np.minimum(
            np.searchsorted(heap, quantiles, side="right"),
            len(heap) - 1,
        )
        first, *others = [
            part.draw(int((which == index).sum()), rng)
            for index, part in enumerate(self.parts)
        ]
        for other in others:
            first = first.with_(other)
        if others:
            first = first.take(torch.argsort(rng.uniform(n)).numpy())
        return first


class _ConditionedCase:
    def __init__(
        self,
        network: Network,
        split: Split,
        case: Case,
        rule_sets: Sequence[EventSet],
    ) -> None:
        self.network = network
        self.case = case
        self.levels = split.people
        ends = accumulate(len(member.people) for member in network.mixtures)
        # where the numbers of events are, among people's columns
        self.last = [end - 1 for end in ends]
        parts = zip(
            network.mixtures,
            split.schema.parts,
            case.events,
            split.events,
            rule_sets,
            strict=True,
        )
        self.members = [_Member(*part) for part in parts]
        self.pieces = {
            column: self.levels.pieces(column) for column in self.last
        } | case.people[1]

    def probability_given(self, kinds: Products) -> float:
        """How likely the case is, after which it can be drawn."""
        cut = kinds.cut(self.pieces)
        kind = torch.arange(len(kinds.weight)) % self.network.kinds
        probabilities = list(cut.probabilities)
        every = {}
        for column, member in zip(self.last, self.members, strict=True):
            mean = member.means(self._edges(column))  # (pieces, chains)
            chain = kind % member.network.chains
            probabilities[column] = probabilities[column] * mean.T[chain]
            n_pieces = probabilities[column].shape[1]
            every[column] = np.ones(n_pieces)
        person_boxes, _ = self.case.people
        boxes = [{**every, **box} for box in person_boxes]
        weighted = Products(cut.weight, tuple(probabilities))
        probability, self.conditioned = weighted.condition_on(boxes)
        return probability

    def draw(self, n: int, rng: Uniform) -> Drawn:
        assert self.conditioned is not None
        sampled = self.conditioned.draw(n, rng.uniform).numpy()
        kind = torch.from_numpy(sampled[:, -1]).long()
        codes = sampled[:, :-1]
        numbers = [
            member.number(
                kind,
                codes[:, index],
                self._edges(index),
                rng,
            )
            for index, member in zip(self.last, self.members, strict=True)
        ]
        people = _values(self.levels, codes, self.pieces, rng)
        is_missing = np.zeros(n, dtype=bool)
        for index, number in zip(self.last, numbers, strict=True):
            column = self.levels.schema.columns[index]
            people[column.name] = typed(column, number.numpy(), is_missing)
        starts = []
        tables = []
        for member, number in zip(self.members, numbers, strict=True):
            begin = starts_of(number.numpy())
            events = member.events(kind, number, rng)
            starts.append(begin)
            tables.append(timed(people, events, begin, member.schema))
        return Drawn(people, tuple(tables), tuple(starts))

    def _edges(self, column: int) -> Places:
        edges = self.pieces[column].edges
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
        event_boxes: Events,
        levels: Codec,
        rule_set: EventSet,
    ) -> None:
        self.network = network
        self.schema = schema
        self.levels = levels
        self.sets = [
            EventSet.from_boxes(network, *boxes)
            for boxes in (event_boxes.hit, event_boxes.miss)
        ]
        hit, miss = self.sets
        self.walks = (
            None
            if event_boxes.free
            else Walks(
                network,
                hit,
                miss,
                rule_set,
                wanted=event_boxes.wanted,
            )
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

    def number(
        self,
        kind: Tensor,
        piece: Codes,
        edges: Places,
        rng: Uniform,
    ) -> Tensor:
        """How many events each has, within the piece of their number."""
        low, after = (torch.from_numpy(edges[piece + k]) for k in (0, 1))
        numbers = [torch.zeros(0, dtype=torch.int64)]
        possible = torch.arange(len(self.numbers))
        for some in torch.split(
            torch.arange(len(kind)),
            max(1, _AT_ONCE // len(possible)),
        ):
            inside = (low[some, None] <= possible) & (possible < after[some, None])
            weight = self.numbers.T[kind[some] % self.network.chains]
            numbers.append(invert(weight * inside, rng.uniform(len(some))))
        return torch.cat(numbers)

    def events(
        self,
        kind: Tensor,
        number: Tensor,
        rng: Uniform,
    ) -> pd.DataFrame:
        """So many events of people of these kinds, person by person and in order."""
        if self.walks is None:
            return self.levels.decode(
                self.network.events_of(kind, number, rng.uniform).numpy(),
                rng,
            )
        states, hits = self.walks.draw(kind % self.network.chains, number, rng.uniform)
        parts = []
        rows = []
        for event_set, which in zip(self.sets, (hits, ~hits), strict=True):
            parts.append(
                _values(
                    self.levels,
                    event_set.draw(states[which], rng.uniform),
                    event_set.pieces,
                    rng,
                )
            )
            rows.append(which.nonzero()[:, 0].numpy())
        return (
            pd.concat(parts, ignore_index=True)
            .iloc[np.argsort(np.concatenate(rows))]
            .reset_index(drop=True)
        )


def _values(
    levels: Codec,
    codes: Codes,
    pieces: Pieced,
    rng: Uniform,
) -> pd.DataFrame:
    """A value of each piece, in an order that the levels' rules keep."""
    frame = rows_of(codes, pieces, levels, rng)
    rule_tests = [
        test
        for rule in levels.schema.rules
        if rule.condition is not None
        for test in tests(rule.condition)
    ]
    ordered = any(isinstance(test, Order) for test in rule_tests)
    if not ordered:
        return frame
    return refilled(
        levels.schema,
        frame,
        lambda rows: rows_of(codes[rows], pieces, levels, rng),
        must=False,
    )


def _check_room(network: Network, cases: Sequence[Case]) -> None:
    """TooManyCasesError where all cases together would hold too many numbers."""
    boxes = sum(len(case.people[0]) for case in cases)
    member_events = [
        pair
        for case in cases
        for pair in zip(network.mixtures, case.events, strict=True)
    ]
    walks = sum(
        2 * member.longest * member.chains * member.states
        for member, events in member_events
        if not events.free
    )
    width = sum(sum(member.people) for member in network.mixtures) + network.kinds
    if (
        2 ** len(network.mixtures) * boxes * network.kinds * width + walks
        > _MOST_NUMBERS
    ):
        raise TooManyCasesError
