"""A condition and rules on people with events (docs/visits.md says what they mean),
case by case: what a person is like, and what that asks of the events.

Each case settles all tests on people's columns that a condition, or a rule on both
tables, makes: so cases do not overlap, and what is left in each of them speaks of
events alone. What is left of the condition is then told by kinds of events. Who has
which kinds is settled first (`present`): of a kind that is not there the condition
becomes what holds whatever its tests say. The rest is told kind by kind
(`asked_of_kinds`): the ways in which an event of the first kind can turn out leave
conditions on the others. Where an event of set A leaves B, and all others leave
nothing, one of A and one of B are wanted. Where one of A is enough, and others leave B,
either one is of A, or none is and one of B is wanted.

Edges: what compares two columns of both tables, or speaks of the time itself, is in no
case (`Split.later`): drawn people are held against it. So is what needs two different
events of one kind, or falls into too many parts (TooManyCasesError).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from understudy.answers.question import Box, Question, left_of
from understudy.answers.rule_boxes import rule_boxes
from understudy.data.conditions import (
    And,
    Condition,
    Not,
    OneOf,
    Or,
    Order,
    Test,
    columns,
    tests,
)
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.values import Pieces
from understudy.data.rules import Rule, about
from understudy.data.schema import Schema
from understudy.data.visits import SeveralVisits, VisitSchema

MOST = 256  # cases, and boxes of one
_TESTS = 8  # on one kind of events

Boxes = tuple[Sequence[Box], dict[int, Pieces]]
EVERYTHING: Boxes = ([{}], {})
_NOTHING: Boxes = ((), {})
_Settled = tuple[list[Condition], Condition | bool, list[Condition | bool]]
_Left = dict[Condition | bool, list[Condition]]  # what is left, and in which ways


class TooManyCasesError(Exception):
    """What is asked falls into too many parts."""


@dataclass(frozen=True)
class EventCondition:
    """Of a person's events of one kind: one at least meets `some`, and none meets
    `never`.
    """

    some: Condition | None = None
    never: Condition | None = None


@dataclass(frozen=True, eq=False)
class Events:
    """A kind of events: hits, misses, and whether one hit is wanted. `free`: they may
    be anything.
    """

    hit: Boxes
    miss: Boxes
    wanted: bool
    free: bool


@dataclass(frozen=True, eq=False)
class Case:
    people: Boxes
    events: tuple[Events, ...]


ANYTHING = Events(EVERYTHING, _NOTHING, wanted=False, free=True)


@dataclass(frozen=True, eq=False)
class Split:
    """A schema's rules by the tables that they speak of, and a condition (or none)."""

    schema: VisitSchema | SeveralVisits
    condition: Condition | None

    @property
    def later(self) -> bool:
        """Whether something is left to be looked at in what was drawn."""
        kept = len(self._people) + sum(
            len(self._events(part)) + len(self._both(part))
            for part in self.schema.parts
        )
        return kept < len(self.schema.rules) or self._untold

    @property
    def _untold(self) -> bool:
        times = {part.time for part in self.schema.parts}
        return self.condition is not None and not times.isdisjoint(
            columns(self.condition)
        )

    @property
    def _people(self) -> tuple[Rule, ...]:
        return about(self.schema.rules, self.schema.person_schema.names)

    def _events(self, part: VisitSchema) -> tuple[Rule, ...]:
        return about(self.schema.rules, part.event_schema.names)

    def _both(self, part: VisitSchema) -> list[Condition]:
        """On columns of people and of these events, without the time and without an
        order between two.
        """
        names = (*self.schema.person_schema.names, *part.event_schema.names)
        alone = {*self._people, *self._events(part)}
        found = [
            rule.condition
            for rule in about(self.schema.rules, names)
            if rule not in alone
        ]
        return [
            one
            for one in found
            if one and not any(isinstance(test, Order) for test in tests(one))
        ]

    @property
    def people(self) -> Codec:
        return Codec(replace(self.schema.person_schema, rules=self._people))

    @property
    def events(self) -> tuple[Codec, ...]:
        return tuple(
            Codec(replace(part.event_schema, rules=self._events(part)))
            for part in self.schema.parts
        )

    def ruled_boxes(self) -> tuple[Boxes, tuple[Boxes, ...]]:
        return _boxes(self.people, ()), tuple(
            _boxes(levels, ()) for levels in self.events
        )

    def cases(self) -> Iterator[Case]:
        """TooManyCasesError where there would be too many."""
        asked: Condition | bool = (
            True if self._untold or self.condition is None else self.condition
        )
        kept = [
            (rule, place)
            for place, part in enumerate(self.schema.parts)
            for rule in self._both(part)
        ]
        places = [place for _, place in kept]
        for count, (person, wanted, needed) in enumerate(
            self._settled(asked, [rule for rule, _ in kept])
        ):
            if count == MOST:
                raise TooManyCasesError
            people = _boxes(self.people, person)
            if wanted is False or not people[0]:
                continue
            rules: list[list[Condition | bool]] = [[] for _ in self.schema.parts]
            for place, rule in zip(places, needed, strict=True):
                rules[place].append(rule)
            for more, ways in self._asked_of_kinds(wanted):
                own = people if not more else _boxes(self.people, [*person, *more])
                if own[0]:
                    each = zip(self.events, rules, ways, strict=True)
                    yield Case(
                        own,
                        tuple(
                            self._events_of(levels, kept, asked)
                            for levels, kept, asked in each
                        ),
                    )

    def _events_of(
        self, levels: Codec, kept: Sequence[Condition | bool], asked: EventCondition
    ) -> Events:
        """One kind of events: those that the rules leave, and of these what is
        asked.
        """
        wanted = asked.some is not None
        if any(rule is False for rule in kept):
            return Events(_NOTHING, _NOTHING, wanted, free=False)
        rules = [rule for rule in kept if not isinstance(rule, bool)]
        if asked.never is not None:
            rules.append(Not(asked.never))
        if asked.some is None:
            free = not rules and not levels.schema.rules
            return Events(_boxes(levels, rules), _NOTHING, wanted=False, free=free)
        hit, miss = (
            _boxes(levels, [*rules, one]) for one in (asked.some, Not(asked.some))
        )
        return Events(hit, miss, wanted=True, free=False)

    def _asked_of_kinds(
        self, wanted: Condition | bool
    ) -> Iterator[tuple[list[Condition], list[EventCondition]]]:
        """What is left of a condition, by kinds of events: who has which, and what is
        asked of each.
        """
        nothing = [EventCondition() for _ in self.schema.parts]
        if whatever(wanted, self.schema):
            yield [], nothing
            return
        for there, left in present(wanted, self.schema):
            for way in asked_of_kinds(left, self.schema):
                yield (
                    there,
                    [way.get(place, none) for place, none in enumerate(nothing)],
                )

    def _settled(
        self, asked: Condition | bool, kept: Sequence[Condition]
    ) -> Iterator[_Settled]:
        """Tests on people's columns, met or not, and what each way of settling them
        leaves of all conditions.
        """
        own = set(self.schema.person_schema.names)
        heap: list[_Settled] = [([], asked, [*kept])]
        while heap:
            said, first, rest = heap.pop()
            every = (
                test
                for one in (first, *rest)
                if not isinstance(one, bool)
                for test in tests(one)
            )
            test = next(
                (
                    one
                    for one in every
                    if not isinstance(one, Order) and one.column in own
                ),
                None,
            )
            if test is None:
                yield said, first, rest
                continue
            for so in (False, True):
                known: dict[Test | Order, bool] = {test: so}
                literal = test if so else Not(test)
                heap.append(
                    (
                        [*said, literal],
                        left_of(first, known),
                        [left_of(one, known) for one in rest],
                    )
                )


def _boxes(levels: Codec, said: Sequence[Condition]) -> Boxes:
    """What meets all of these, and the rules."""
    found, pieces, left_out = rule_boxes(
        levels, MOST, also=And(tuple(said)) if said else None
    )
    if left_out:
        raise TooManyCasesError
    return found, dict(pieces)


# Kinds of events


def whatever(condition: Condition | bool, schema: VisitSchema | SeveralVisits) -> bool:
    """Whether a condition on events holds whatever events are like."""
    if isinstance(condition, bool):
        return condition
    against = Question.from_condition(
        Not(condition), Codec(Schema(columns=schema.row_schema.columns))
    ).boxes(MOST)
    return against is not None and not against


def present(
    condition: Condition | bool, schema: VisitSchema | SeveralVisits
) -> Iterator[tuple[list[Condition], Condition | bool]]:
    """Who has which of the kinds of events that a condition speaks of, and what it asks
    of these; one stays open.
    """
    kinds = _spoken_of(condition, schema)
    if len(kinds) < 2:
        yield [], condition
        return
    for there in product((True, False), repeat=len(kinds)):
        said = list[Condition]()
        left = condition
        for kind, so in zip(kinds, there, strict=True):
            none = OneOf(schema.parts[kind].person_schema.columns[-1].name, (0,))
            said.append(Not(none) if so else none)
            if not so and not isinstance(left, bool):
                left = _all_of(_ways(left, schema.parts[kind]))
        if left is not False:
            yield said, left


def asked_of_kinds(
    condition: Condition | bool, schema: VisitSchema | SeveralVisits
) -> Iterator[Mapping[int, EventCondition]]:
    """What is asked of each kind of events, in ways that do not overlap, of people who
    have all of them.
    """
    if isinstance(condition, bool):
        if condition:
            yield {}
        return
    first, *others = _spoken_of(condition, schema)
    if not others:
        yield {first: EventCondition(some=condition)}
        return
    ways = _ways(condition, schema.parts[first])
    enough = _any_of(ways.pop(True, []))
    nothing = ways.pop(False, [])
    if enough is not None:
        yield {first: EventCondition(some=enough)}
    if len(ways) > 1:
        raise TooManyCasesError
    for left, some in ways.items():
        asked = EventCondition(some=_any_of(some) if nothing else None, never=enough)
        for way in asked_of_kinds(left, schema):
            yield {**way, first: asked}


def _spoken_of(
    condition: Condition | bool, schema: VisitSchema | SeveralVisits
) -> list[int]:
    said = set() if isinstance(condition, bool) else set(columns(condition))
    return [
        place
        for place, part in enumerate(schema.parts)
        if said & {column.name for column in part.event_columns}
    ]


def _ways(condition: Condition, part: VisitSchema) -> _Left:
    """What the tests on one kind of events leave of a condition, in all ways in which
    they can turn out.
    """
    names = {column.name for column in part.event_columns}
    every = [
        test for test in dict.fromkeys(tests(condition)) if not isinstance(test, Order)
    ]
    own = [test for test in every if test.column in names]
    if len(own) > _TESTS:
        raise TooManyCasesError
    levels = Codec(Schema(columns=part.event_columns))
    found: _Left = {}
    for truth in product((True, False), repeat=len(own)):
        known: dict[Test | Order, bool] = dict(zip(own, truth, strict=True))
        way = And(
            tuple(
                test if so else Not(test) for test, so in zip(own, truth, strict=True)
            )
        )
        if Question.from_condition(way, levels).boxes(MOST) != []:
            found.setdefault(left_of(condition, known), []).append(way)
    return found


def _all_of(ways: _Left) -> Condition | bool:
    left = [one for one in ways if one is not True]
    if any(one is False for one in left):
        return False
    parts = tuple(one for one in left if not isinstance(one, bool))
    return And(parts) if len(parts) > 1 else parts[0] if parts else True


def _any_of(ways: list[Condition]) -> Condition | None:
    return None if not ways else ways[0] if len(ways) == 1 else Or(tuple(ways))
