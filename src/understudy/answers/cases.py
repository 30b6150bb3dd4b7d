"""A condition and rules on people with events, case by case: what a person is like, and what that asks of the events.

A *condition* is met by a person one of whose events, with the person's columns beside it, meets it; who has no events
meets it where it holds whatever an event is like. A *rule* is kept by every event with its person, and by every person,
where it speaks of no event.

Each case settles all tests on people's columns that a condition, or a rule on both tables, makes: so cases do not
overlap, and what is left of the condition and of these rules in each of them speaks of events alone.

Edges: what compares two columns of both tables, or speaks of the time itself, is in no case (`Split.later`): drawn
people are held against it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from understudy.answers.question import Box, Question, left_of
from understudy.answers.rule_boxes import rule_boxes
from understudy.data.codec import Codec
from understudy.data.conditions import And, Condition, Not, Order, Test, columns, tests
from understudy.data.pieces import Pieces
from understudy.data.rules import Rule, about
from understudy.data.visits import VisitSchema

MOST = 256  # cases, and boxes of one

Boxes = tuple[Sequence[Box], dict[int, Pieces]]


class TooManyCasesError(Exception):
    """What is asked falls into too many parts."""


@dataclass(frozen=True, eq=False)
class Case:
    """People in boxes, and their events: hits, misses, and whether one hit is wanted. `free`: they may be anything."""

    people: Boxes
    hit: Boxes
    miss: Boxes
    wanted: bool
    free: bool


@dataclass(frozen=True, eq=False)
class Split:
    """A schema's rules by the tables that they speak of, and a condition (or none)."""

    schema: VisitSchema
    condition: Condition | None

    @property
    def later(self) -> bool:
        """Whether something is left to be looked at in what was drawn."""
        return (
            len(self._people) + len(self._events) + len(self._both) < len(self.schema.rules) or self._untold
        )

    @property
    def _untold(self) -> bool:
        return self.condition is not None and self.schema.time in columns(self.condition)

    @property
    def _people(self) -> tuple[Rule, ...]:
        return about(self.schema.rules, self.schema.person_schema.names)

    @property
    def _events(self) -> tuple[Rule, ...]:
        return about(self.schema.rules, self.schema.event_schema.names)

    @property
    def _both(self) -> tuple[Rule, ...]:
        """On columns of both, without the time and without an order between two."""
        names = (*self.schema.person_schema.names, *self.schema.event_schema.names)
        alone = {*self._people, *self._events}
        return tuple(
            rule
            for rule in about(self.schema.rules, names)
            if rule not in alone
            and rule.condition is not None
            and not any(isinstance(test, Order) for test in tests(rule.condition))
        )

    @property
    def people(self) -> Codec:
        """People's columns, under the rules on them alone."""
        return Codec(replace(self.schema.person_schema, rules=self._people))

    @property
    def events(self) -> Codec:
        """Events' columns, under the rules on them alone."""
        return Codec(replace(self.schema.event_schema, rules=self._events))

    def cases(self) -> Iterator[Case]:
        """TooManyCasesError where there would be too many."""
        asked: Condition | bool = True if self._untold or self.condition is None else self.condition
        kept = [rule.condition for rule in self._both if rule.condition is not None]
        for count, (person, wanted, needed) in enumerate(self._settled(asked, kept)):
            if count == MOST:
                raise TooManyCasesError
            people = _boxes(self.people, person)
            if wanted is False or not people[0]:
                continue
            wanted = self.whatever(wanted) or wanted
            if any(rule is False for rule in needed):
                yield Case(people, ((), {}), ((), {}), wanted is not True, free=False)
                continue
            rules = [rule for rule in needed if not isinstance(rule, bool)]
            if isinstance(wanted, bool):
                free = not rules and not self._events
                yield Case(people, _boxes(self.events, rules), ((), {}), wanted=False, free=free)
            else:
                hit, miss = (_boxes(self.events, [*rules, one]) for one in (wanted, Not(wanted)))
                yield Case(people, hit, miss, wanted=True, free=False)

    def _settled(
        self, asked: Condition | bool, kept: Sequence[Condition]
    ) -> Iterator[tuple[list[Condition], Condition | bool, list[Condition | bool]]]:
        """Tests on people's columns, met or not, and what each way of settling them leaves of all conditions."""
        own = set(self.schema.person_schema.names)
        heap: list[tuple[list[Condition], Condition | bool, list[Condition | bool]]] = [([], asked, [*kept])]
        while heap:
            said, first, rest = heap.pop()
            test = next((test for one in (first, *rest) for test in _tests(one) if test.column in own), None)
            if test is None:
                yield said, first, rest
                continue
            for so in (False, True):
                known: dict[Test | Order, bool] = {test: so}
                literal = test if so else Not(test)
                heap.append(([*said, literal], _left(first, known), [_left(one, known) for one in rest]))

    def whatever(self, condition: Condition | bool) -> bool:
        """Whether a condition on events holds whatever an event is like."""
        if isinstance(condition, bool):
            return condition
        against = Question.of(Not(condition), Codec(replace(self.schema.row_schema, rules=()))).boxes(MOST)
        return against is not None and not against


def _boxes(levels: Codec, said: Sequence[Condition]) -> Boxes:
    """What meets all of these, and the rules."""
    found, pieces, left_out = rule_boxes(levels, MOST, also=And(tuple(said)) if said else None)
    if left_out:
        raise TooManyCasesError
    return found, dict(pieces)


def _tests(condition: Condition | bool) -> list[Test]:
    found = [] if isinstance(condition, bool) else tests(condition)
    return [test for test in found if not isinstance(test, Order)]


def _left(condition: Condition | bool, known: Mapping[Test | Order, bool]) -> Condition | bool:
    return condition if isinstance(condition, bool) else left_of(condition, known)
