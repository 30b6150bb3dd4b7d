"""The same people with events at several holders: visits at the hospital, claims at the insurer.

The first part has the columns of people of all holders, the others events alone. What is counted is

    person             two columns of people of any holder, the numbers of events and first times of all among them
    event, next, later of each holder's events, as of one
    across             a column of people and one of a holder's events
    between            a column of one holder's events and one of another's: the product of a person's two averages

In each a person with all events weighs 1 at most: the cells of a product of averages are no less than 0, and add up to
the product of what these add up to.

Rules stand at the top, whichever holder stated them: on people's columns, the numbers of events and first times of all
parts among them; on one kind of events; or between both.

Guarantee: made of public schemas alone.
Edges: events called alike, a column of one name at two holders, a rule on two kinds of events → SchemaError.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, combinations, combinations_with_replacement, product
from typing import Any, ClassVar, Self

from understudy.data.rules import Rule, read_rules
from understudy.data.schema import Schema
from understudy.data.visits.counts import Block, Blocks, VisitLayout
from understudy.data.visits.schema import PeopleSchema, VisitSchema, check_no_unique
from understudy.ground.check import known_keys, repeated
from understudy.ground.errors import SchemaError

MOST = 8  # holders with events


@dataclass(frozen=True, kw_only=True)
class SeveralVisits(PeopleSchema):
    """People, and events of several kinds, each ordered and bounded by itself."""

    kind: ClassVar[str] = "several-visits"
    parts: tuple[VisitSchema, ...]
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not 2 <= len(self.parts) <= MOST or {*map(type, self.parts)} != {VisitSchema}:
            raise SchemaError(f"events are of 2 to {MOST} holders here.")
        if any(part.people is not None for part in self.parts[1:]):
            raise SchemaError("the first part has the columns of people, and the others have events alone.")
        if twice := repeated([part.title for part in self.parts]):
            raise SchemaError(
                f'two holders have events that are called "{twice[0]}": say in their schemas what each has, such as '
                'title = "claims". Nothing was charged.'
            )
        times = [part.time for part in self.parts if part.time is not None]
        events = [name for part in self.parts for name in part.event_schema.names]
        own = [name for part in self.parts for name in part.person_schema.names]
        if twice := repeated([self.person, *times, *own, *events]):
            raise SchemaError(f'"{twice[0]}" is a column of two holders. Rename one. Nothing was charged.')
        rules = (*read_rules(self.rules), *(rule for part in self.parts for rule in part.rules))
        object.__setattr__(self, "rules", read_rules(tuple(dict.fromkeys(rules))))
        object.__setattr__(self, "parts", tuple(replace(part, rules=()) for part in self.parts))
        check_no_unique(self.rules)
        _ = self.row_schema  # says where a rule makes no sense
        for rule in self.rules:
            if len(titles := self.titles_in(rule.columns)) > 1:
                raise SchemaError(
                    f'rule "{rule}": it speaks of {" and ".join(titles)}, which are different rows. A rule is on '
                    "people, on one kind of events, or between both. Nothing was charged."
                )

    @property
    def person(self) -> str:  # type: ignore[override]
        return self.parts[0].person

    @property
    def people(self) -> Schema | None:
        """The declared columns of people."""
        return self.parts[0].people

    @property
    def tables(self) -> dict[str, Schema]:
        people = {} if self.people is None else {"people": self.people}
        return people | {part.title: part.events for part in self.parts}

    @cached_property
    def person_schema(self) -> Schema:
        columns = tuple(column for part in self.parts for column in part.person_schema.columns)
        return Schema(columns=columns, person=self.person, origin=self.origin)

    def titles_in(self, names: Iterable[str]) -> tuple[str, ...]:
        """The kinds of events that these columns speak of."""
        said = set(names)
        return tuple(
            part.title for part in self.parts if said & {column.name for column in part.event_columns}
        )

    def to_dict(self) -> dict[str, Any]:
        rules = {"rules": [rule.to_dict() for rule in self.rules]} if self.rules else {}
        return {"kind": self.kind} | rules | {"parts": [part.to_dict() for part in self.parts]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        known_keys(
            data, ("kind", "rules", "parts"), "a schema of several kinds of events", raised=SchemaError
        )
        parts = data.get("parts")
        if not isinstance(parts, list | tuple):
            raise SchemaError("parts are a list of schemas of visits.")
        rules = read_rules(data.get("rules", ()))
        return cls(parts=tuple(VisitSchema.from_dict(part) for part in parts), rules=rules)

    def __str__(self) -> str:
        return "\n".join(f"{part.title}: {part}" for part in self.parts)


@dataclass(frozen=True)
class SeveralLayout(Blocks):
    """Which tables are counted of people with several kinds of events; all are measured alike.

    Kinds of tables are those of `VisitLayout`, followed by the title of the events: "across claims"; "between visits
    claims" are two kinds of events. A person's columns are those of all parts, one after the other.
    """

    titles: tuple[str, ...]
    members: tuple[VisitLayout, ...]

    def __post_init__(self) -> None:
        self.check_size()

    @classmethod
    def of(cls, schema: SeveralVisits) -> "SeveralLayout":
        return cls(tuple(part.title for part in schema.parts), tuple(map(VisitLayout.of, schema.parts)))

    @cached_property
    def people(self) -> tuple[int, ...]:
        return tuple(size for member in self.members for size in member.people)

    @cached_property
    def begins(self) -> tuple[int, ...]:
        """Where each part's columns of people begin."""
        return tuple(accumulate((len(member.people) for member in self.members), initial=0))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        own = range(len(self.people))
        found: list[Block] = [("person", a, b) for a, b in combinations_with_replacement(own, 2)]
        for title, member in zip(self.titles, self.members, strict=True):
            alone = [block for block in member.blocks if block[0] in ("event", "next", "later")]
            found += [(f"{kind} {title}", q, r) for kind, q, r in alone]
            found += [(f"across {title}", a, q) for a, q in product(own, range(len(member.events)))]
        for (one, first), (other, second) in combinations(zip(self.titles, self.members, strict=True), 2):
            pairs = product(range(len(first.events)), range(len(second.events)))
            found += [(f"between {one} {other}", q, r) for q, r in pairs]
        return tuple(found)

    def sides(self, kind: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The levels of the columns in rows, and of those in columns, of all tables of a kind."""
        first, *named = kind.split()
        events = [self.members[self.titles.index(title)].events for title in named]
        if first == "person":
            return self.people, self.people
        return (self.people, events[0]) if first == "across" else (events[0], events[-1])

    def shape(self, block: Block) -> tuple[int, ...]:
        kind, a, b = block
        rows, columns = self.sides(kind)
        single = a == b and kind.split()[0] in ("person", "event")
        return (rows[a],) if single else (rows[a], columns[b])

    @property
    def weights(self) -> dict[str, int]:
        return dict.fromkeys((kind for kind, _, _ in self.blocks), 1)

    def unit_of(self, kind: str, unit: int) -> int:
        return unit
