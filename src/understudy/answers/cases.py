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


ANYTHING = Events(
    EVERYTHING,
    _NOTHING,
    wanted=False,
    free=True,
)


@dataclass(frozen=True, eq=False)
class Split:
    """A schema's rules by the tables that they speak of, and a condition (or none)."""

    schema: VisitSchema | SeveralVisits
    condition: Condition | None

    @property
    def later(self) -> bool:
        """Whether something is left to be looked at in what was drawn."""
        settled_rules = len(self._people) + sum(
            len(self._events(part)) + len(self._joint_conditions(part))
            for part in self.schema.parts
        )
        return settled_rules < len(self.schema.rules) or self._untold

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

    def _joint_conditions(self, part: VisitSchema) -> list[Condition]:
        """On columns of people and of these events, without the time and without an
        order between two.
        """
        names = (*self.schema.person_schema.names, *part.event_schema.names)
        alone = {*self._people, *self._events(part)}
        remaining = [
            rule.condition
            for rule in about(self.schema.rules, names)
            if rule not in alone
        ]
        return [
            condition
            for condition in remaining
            if condition
            and not any(isinstance(test, Order) for test in tests(condition))
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
        condition: Condition | bool = (
            True if self._untold or self.condition is None else self.condition
        )
        rules_with_part = [
            (rule, part_index)
            for part_index, part in enumerate(self.schema.parts)
            for rule in self._joint_conditions(part)
        ]
        part_indices = [part_index for _, part_index in rules_with_part]
        for count, (person, wanted, needed) in enumerate(
            self._settle(condition, [rule for rule, _ in rules_with_part])
        ):
            if count == MOST:
                raise TooManyCasesError
            people = _boxes(self.people, person)
            if wanted is False or not people[0]:
                continue
            rules: list[list[Condition | bool]] = [[] for _ in self.schema.parts]
            for part_index, rule in zip(part_indices, needed, strict=True):
                rules[part_index].append(rule)
            for more, ways in self._asked_of_kinds(wanted):
                case_people = (
                    people if not more else _boxes(self.people, [*person, *more])
                )
                if case_people[0]:
                    arguments = zip(self.events, rules, ways, strict=True)
                    yield Case(
                        case_people,
                        tuple(
                            self._events_of(levels, rules_with_part, condition)
                            for levels, rules_with_part, condition in arguments
                        ),
                    )

    def _events_of(
        self,
        levels: Codec,
        rules_of_kind: Sequence[Condition | bool],
        event_condition: EventCondition,
    ) -> Events:
        """One kind of events: those that the rules leave, and of these what is
        asked.
        """
        wanted = event_condition.some is not None
        if any(rule is False for rule in rules_of_kind):
            return Events(_NOTHING, _NOTHING, wanted, free=False)
        rules = [rule for rule in rules_of_kind if not isinstance(rule, bool)]
        if event_condition.never is not None:
            rules.append(Not(event_condition.never))
        if event_condition.some is None:
            free = not rules and not levels.schema.rules
            return Events(
                _boxes(levels, rules),
                _NOTHING,
                wanted=False,
                free=free,
            )
        hit, miss = (
            _boxes(levels, [*rules, event_test])
            for event_test in (event_condition.some, Not(event_condition.some))
        )
        return Events(hit, miss, wanted=True, free=False)

    def _asked_of_kinds(
        self,
        wanted: Condition | bool,
    ) -> Iterator[tuple[list[Condition], list[EventCondition]]]:
        """What is left of a condition, by kinds of events: who has which, and what is
        asked of each.
        """
        nothing = [EventCondition() for _ in self.schema.parts]
        if whatever(wanted, self.schema):
            yield [], nothing
            return
        for presence, remainder in present(wanted, self.schema):
            for way in asked_of_kinds(remainder, self.schema):
                yield (
                    presence,
                    [way.get(index, none) for index, none in enumerate(nothing)],
                )

    def _settle(
        self,
        condition: Condition | bool,
        rules: Sequence[Condition],
    ) -> Iterator[_Settled]:
        """Tests on people's columns, met or not, and what each way of settling them
        leaves of all conditions.
        """
        person_columns = set(self.schema.person_schema.names)
        heap: list[_Settled] = [([], condition, [*rules])]
        while heap:
            settled, first, rest = heap.pop()
            every = (
                test
                for part in (first, *rest)
                if not isinstance(part, bool)
                for test in tests(part)
            )
            test = next(
                (
                    part
                    for part in every
                    if not isinstance(part, Order) and part.column in person_columns
                ),
                None,
            )
            if test is None:
                yield settled, first, rest
                continue
            for so in (False, True):
                truth: dict[Test | Order, bool] = {test: so}
                literal = test if so else Not(test)
                heap.append(
                    (
                        [*settled, literal],
                        left_of(first, truth),
                        [left_of(part, truth) for part in rest],
                    )
                )


def _boxes(levels: Codec, conditions: Sequence[Condition]) -> Boxes:
    """What meets all of these, and the rules."""
    boxes, pieces, left_out = rule_boxes(
        levels,
        MOST,
        condition=And(tuple(conditions)) if conditions else None,
    )
    if left_out:
        raise TooManyCasesError
    return boxes, dict(pieces)


# Kinds of events


def whatever(condition: Condition | bool, schema: VisitSchema | SeveralVisits) -> bool:
    """Whether a condition on events holds whatever events are like."""
    if isinstance(condition, bool):
        return condition
    against = Question.from_condition(
        Not(condition),
        Codec(Schema(columns=schema.row_schema.columns)),
    ).boxes(MOST)
    return against is not None and not against


def present(
    condition: Condition | bool,
    schema: VisitSchema | SeveralVisits,
) -> Iterator[tuple[list[Condition], Condition | bool]]:
    """Who has which of the kinds of events that a condition speaks of, and what it asks
    of these; one stays open.
    """
    kinds = _spoken_of(condition, schema)
    if len(kinds) < 2:
        yield [], condition
        return
    for present_kinds in product((True, False), repeat=len(kinds)):
        settled = list[Condition]()
        remainder = condition
        for kind, so in zip(kinds, present_kinds, strict=True):
            none = OneOf(schema.parts[kind].person_schema.columns[-1].name, (0,))
            settled.append(Not(none) if so else none)
            if not so and not isinstance(remainder, bool):
                remainder = _all_of(_ways(remainder, schema.parts[kind]))
        if remainder is not False:
            yield settled, remainder


def asked_of_kinds(
    condition: Condition | bool,
    schema: VisitSchema | SeveralVisits,
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
    for remainder, some in ways.items():
        event_condition = EventCondition(
            some=_any_of(some) if nothing else None,
            never=enough,
        )
        for way in asked_of_kinds(remainder, schema):
            yield {**way, first: event_condition}


def _spoken_of(
    condition: Condition | bool,
    schema: VisitSchema | SeveralVisits,
) -> list[int]:
    mentioned = set() if isinstance(condition, bool) else set(columns(condition))
    return [
        index
        for index, part in enumerate(schema.parts)
        if mentioned & {column.name for column in part.event_columns}
    ]


def _ways(condition: Condition, part: VisitSchema) -> _Left:
    """What the tests on one kind of events leave of a condition, in all ways in which
    they can turn out.
    """
    names = {column.name for column in part.event_columns}
    every = [
        test for test in dict.fromkeys(tests(condition)) if not isinstance(test, Order)
    ]
    own_tests = [test for test in every if test.column in names]
    if len(own_tests) > _TESTS:
        raise TooManyCasesError
    levels = Codec(Schema(columns=part.event_columns))
    remainders: _Left = {}
    for truth in product((True, False), repeat=len(own_tests)):
        truth_by_test: dict[Test | Order, bool] = dict(
            zip(own_tests, truth, strict=True)
        )
        way = And(
            tuple(
                test if so else Not(test)
                for test, so in zip(own_tests, truth, strict=True)
            )
        )
        if Question.from_condition(way, levels).boxes(MOST) != []:
            remainders.setdefault(left_of(condition, truth_by_test), []).append(way)
    return remainders


def _all_of(ways: _Left) -> Condition | bool:
    remainders = [remainder for remainder in ways if remainder is not True]
    if any(remainder is False for remainder in remainders):
        return False
    parts = tuple(
        remainder for remainder in remainders if not isinstance(remainder, bool)
    )
    if not parts:
        return True
    return parts[0] if len(parts) == 1 else And(parts)


def _any_of(ways: list[Condition]) -> Condition | None:
    if not ways:
        return None
    return ways[0] if len(ways) == 1 else Or(tuple(ways))
