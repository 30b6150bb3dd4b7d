"""A condition on events of several kinds, told by what it asks of each kind.

It is met by a person one of whose events of each kind, taken together, meet it; of a kind that the person does not
have, whatever such an event would be like. So who has which kinds is settled first (`present`): of a kind that is not
there the condition becomes what holds whatever its tests say. What is left is then told kind by kind (`told`): the
ways in which an event of the first kind can turn out leave conditions on the others. Where an event of set A leaves B,
and all others leave nothing, one of A and one of B are wanted. Where one of A is enough, and others leave B, either
one is of A, or none is and one of B is wanted. These do not overlap.

Edges: what needs two different events of one kind has no such form → TooManyCasesError, as has what falls into too
many parts. It is left to drawing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from understudy.answers.question import Question, left_of
from understudy.data.conditions import And, Condition, Not, OneOf, Or, Order, Test, columns, tests
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Schema
from understudy.data.visits import SeveralVisits, VisitSchema

_MOST = 256  # boxes of a condition
_TESTS = 8  # on one kind of events

_Left = dict[Condition | bool, list[Condition]]  # what is left, and in which ways


class TooManyCasesError(Exception):
    """What is asked falls into too many parts."""


@dataclass(frozen=True)
class Asked:
    """Of a person's events of one kind: one at least meets `some`, and none meets `never`."""

    some: Condition | None = None
    never: Condition | None = None


def whatever(condition: Condition | bool, schema: VisitSchema | SeveralVisits) -> bool:
    """Whether a condition on events holds whatever events are like."""
    if isinstance(condition, bool):
        return condition
    against = Question.of(Not(condition), Codec(_free(schema.row_schema))).boxes(_MOST)
    return against is not None and not against


def present(
    condition: Condition | bool, schema: VisitSchema | SeveralVisits
) -> Iterator[tuple[list[Condition], Condition | bool]]:
    """Who has which of the kinds of events that a condition speaks of, and what it asks of these.

    One kind needs not be settled: who has none of it meets what is wanted of an event in no case.
    """
    kinds = _spoken_of(condition, schema)
    if len(kinds) < 2:
        yield [], condition
        return
    for there in product((True, False), repeat=len(kinds)):
        said, left = list[Condition](), condition
        for kind, so in zip(kinds, there, strict=True):
            none = OneOf(schema.parts[kind].person_schema.columns[-1].name, (0,))
            said.append(Not(none) if so else none)
            if not so and not isinstance(left, bool):
                left = _all_of(_ways(left, schema.parts[kind]))
        if left is not False:
            yield said, left


def told(condition: Condition | bool, schema: VisitSchema | SeveralVisits) -> Iterator[Mapping[int, Asked]]:
    """What is asked of each kind of events, in ways that do not overlap, of people who have all of them."""
    if isinstance(condition, bool):
        if condition:
            yield {}
        return
    first, *others = _spoken_of(condition, schema)
    if not others:
        yield {first: Asked(some=condition)}
        return
    ways = _ways(condition, schema.parts[first])
    enough = _any_of(ways.pop(True, []))
    nothing = ways.pop(False, [])
    if enough is not None:
        yield {first: Asked(some=enough)}
    if len(ways) > 1:
        raise TooManyCasesError
    for left, some in ways.items():
        asked = Asked(some=_any_of(some) if nothing else None, never=enough)
        for way in told(left, schema):
            yield {**way, first: asked}


def _spoken_of(condition: Condition | bool, schema: VisitSchema | SeveralVisits) -> list[int]:
    """The kinds of events that a condition speaks of, by their places."""
    said = set() if isinstance(condition, bool) else set(columns(condition))
    return [
        place
        for place, part in enumerate(schema.parts)
        if said & {column.name for column in part.event_columns}
    ]


def _ways(condition: Condition, part: VisitSchema) -> _Left:
    """What the tests on one kind of events leave of a condition, in all ways in which they can turn out."""
    names = {column.name for column in part.event_columns}
    own: list[Test] = [
        test
        for test in dict.fromkeys(tests(condition))
        if not isinstance(test, Order) and test.column in names
    ]
    if len(own) > _TESTS:
        raise TooManyCasesError
    levels = Codec(Schema(columns=part.event_columns))
    found: _Left = {}
    for truth in product((True, False), repeat=len(own)):
        known: dict[Test | Order, bool] = dict(zip(own, truth, strict=True))
        way = And(tuple(test if so else Not(test) for test, so in zip(own, truth, strict=True)))
        if Question.of(way, levels).boxes(_MOST) != []:
            found.setdefault(left_of(condition, known), []).append(way)
    return found


def _all_of(ways: _Left) -> Condition | bool:
    """What holds whatever the tests say."""
    left = [one for one in ways if one is not True]
    if any(one is False for one in left):
        return False
    parts = tuple(one for one in left if not isinstance(one, bool))
    return And(parts) if len(parts) > 1 else parts[0] if parts else True


def _any_of(ways: list[Condition]) -> Condition | None:
    return None if not ways else ways[0] if len(ways) == 1 else Or(tuple(ways))


def _free(schema: Schema) -> Schema:
    return Schema(columns=schema.columns)
