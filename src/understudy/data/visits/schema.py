"""The public schema of people with many rows: the columns of people, those of their
events, and how many count (docs/visits.md has the keys of a file, and the three columns
that follow from what is declared).

Rules are kept by every event with its person, and by every person where a rule speaks
of no event. Where the same people have events at several holders the first part has the
columns of people of all holders, the others events alone. Rules stand at the top then,
whoever stated them: on people's columns, the numbers of events and first times of all
parts among them; on one kind of events; or between both.

Guarantee: everything here is declared, nothing is fitted on rows.
Edges: two events at one time keep the order of the file. A bound that nobody reaches
costs nothing but a level. Events called alike, a column of one name at two holders, a
rule on two kinds of events → SchemaError.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from understudy.data.column import EXACT, Binned, Column, Date, Datetime, Integer, OneOf
from understudy.data.encoding.fine import (
    Run,
    bounded,
    fine_schema,
    has_many_bins,
    is_bought,
    public_cells,
    within,
)
from understudy.data.rules import Rule, read_rules
from understudy.data.schema import Document, Schema
from understudy.ground.check import known_keys, repeated
from understudy.ground.errors import Effect, SchemaError

TITLE = "events"
_TITLES = re.compile(r"[a-z][a-z0-9_]{0,39}")
CUTS = ("first", "draw")
MOST_EVENTS = 4096
MOST_PARTS = 8  # holders with events
_KEYS = (
    "kind",
    "person",
    "most_events",
    "cut",
    "time",
    "gaps",
    "numbers",
    "title",
    "note",
    "rules",
    "people",
    "events",
)


class PeopleSchema(Document):
    """What is public about people with events of one kind or of several: `parts` are
    the kinds of events.
    """

    unit: ClassVar[str] = "person"
    person: str
    parts: "tuple[VisitSchema, ...]"
    rules: tuple[Rule, ...]

    @property
    @abstractmethod
    def tables(self) -> dict[str, Schema]:
        """The tables that a holder brings, or a generator draws, by name."""

    @property
    @abstractmethod
    def person_schema(self) -> Schema:
        """What is counted of a person: the declared columns, times of first events,
        numbers of events.
        """

    @property
    def names(self) -> tuple[str, ...]:
        """The declared columns, of people first."""
        return tuple(name for table in self.tables.values() for name in table.names)

    @cached_property
    def row_schema(self) -> Schema:
        """A person with an event of each kind, and their times: what rules and
        conditions may speak of.
        """
        events = [column for part in self.parts for column in part.event_columns]
        columns = (*self.person_schema.columns, *events)
        return Schema(
            columns=columns, person=self.person, origin=self.origin, rules=self.rules
        )

    @property
    def origin(self) -> Any:
        """ "rows" where one of the tables' schemas was read from rows."""
        return (
            "rows"
            if any(part.origin == "rows" for part in self.tables.values())
            else "public"
        )

    def require_public(self, which: str = "this schema") -> None:
        for part in self.tables.values():
            part.require_public(which)

    def require_unit(self, which: str = "this schema") -> None:
        """There is always a person, whose events these are."""

    def _keep_rules(self, rules: tuple[Rule, ...]) -> None:
        """Each of them once. Edges: one that makes no sense here → SchemaError."""
        object.__setattr__(self, "rules", read_rules(tuple(dict.fromkeys(rules))))
        lone = [rule for rule in self.rules if rule.unique]
        if lone:
            raise SchemaError(
                f'rule "{lone[0]}": no two rows alike is a rule of tables with one '
                "row a person."
            )
        _ = self.row_schema  # says what else is wrong with one


@dataclass(frozen=True, kw_only=True)
class VisitSchema(PeopleSchema):
    """The columns of people and of events, and the rule by which a person's events are
    bounded.
    """

    kind: ClassVar[str] = "visits"
    person: str
    events: Schema
    most_events: int
    people: Schema | None = None
    cut: str = "first"
    time: str | None = None
    gaps: tuple[int, ...] | None = None
    numbers: tuple[int, ...] | None = None
    title: str = TITLE
    note: str = ""
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.person, str) or not self.person:
            raise SchemaError(
                f"person must name the id column of both tables, not {self.person!r}."
            )
        max_events = self.most_events
        if type(max_events) is not int or not 1 <= max_events <= MOST_EVENTS:
            raise SchemaError(
                f"most_events must be a whole number from 1 to {MOST_EVENTS:,}, not "
                f"{max_events!r}."
            )
        if self.cut not in CUTS:
            raise SchemaError(f"cut must be {' or '.join(CUTS)}, not {self.cut!r}.")
        if (
            not isinstance(self.title, str)
            or not _TITLES.fullmatch(self.title)
            or self.title == "people"
        ):
            raise SchemaError(
                "title is what events are called, a plain word in small letters, not "
                f"{self.title!r}."
            )
        if not isinstance(self.note, str):
            raise SchemaError(f"note must be text, not {self.note!r}.")
        rules = read_rules(self.rules)
        for part, schema in self.tables.items():
            if type(schema) is not Schema:
                raise SchemaError(
                    f"{part} must be a schema of columns, not {schema!r}."
                )
            groups = [
                column.name for column in schema.columns if isinstance(column, OneOf)
            ]
            if groups:
                raise SchemaError(
                    f'"{groups[0]}" is a group of which one is 1: these are for one '
                    "row a person."
                )
            rules += schema.rules  # of both tables they stand in one place
            object.__setattr__(
                self, part, replace(schema, person=self.person, rules=())
            )
        self._check_time()
        self._check_numbers()
        derived = [*self.person_schema.names, *self.event_schema.names]
        twice = repeated(
            [self.person, *(() if self.time is None else (self.time,)), *derived]
        )
        if twice:
            raise SchemaError(
                f'"{twice[0]}" has two meanings: every column of both tables has its '
                "own name."
            )
        self._keep_rules(rules)

    def _check_time(self) -> None:
        if self.time is None:
            if self.gaps is not None:
                raise SchemaError(
                    "gaps are bins of the time between two events, and no column "
                    "holds the time."
                )
            return
        column = self.events.column(self.time)
        if not isinstance(column, Date | Datetime | Integer) or column.nullable:
            raise SchemaError(
                f'"{self.time}" orders the events: it must be a date, a datetime or '
                "an integer, never missing."
            )
        if self.gaps is not None:
            if (
                not isinstance(self.gaps, list | tuple)
                or not self.gaps
                or self.gaps[0] != 0
            ):
                raise SchemaError(
                    "gaps say where bins of the time between events begin, the first "
                    f"at 0, not {self.gaps!r}."
                )
            object.__setattr__(self, "gaps", tuple(self.gaps))
        self._gap()  # says what else is wrong with gaps

    def _check_numbers(self) -> None:
        if self.numbers is None:
            return
        numbers = self.numbers
        if not isinstance(numbers, list | tuple) or list(numbers[:2]) != [0, 1]:
            raise SchemaError(
                "numbers say where bins of the number of events begin, the first at "
                f"0, the second at 1, not {numbers!r}."
            )
        object.__setattr__(self, "numbers", tuple(numbers))
        self._number()  # says what else is wrong with numbers

    @property
    def parts(self) -> "tuple[VisitSchema, ...]":  # type: ignore[override]
        return (self,)

    @property
    def tables(self) -> dict[str, Schema]:
        return ({} if self.people is None else {"people": self.people}) | {
            "events": self.events
        }

    @property
    def ordered(self) -> bool:
        return self.time is not None

    @property
    def clock(self) -> Binned | None:
        if self.time is None:
            return None
        column = self.events.column(self.time)
        assert isinstance(column, Binned), "which was seen to"
        return column

    @cached_property
    def person_schema(self) -> Schema:
        columns: list[Column] = [] if self.people is None else [*self.people.columns]
        if self.clock is not None:
            columns.append(
                replace(self.clock, name=f"first_{self.time}", nullable=True)
            )
        columns.append(self._number())
        return Schema(columns=tuple(columns), person=self.person, origin=self.origin)

    @cached_property
    def event_schema(self) -> Schema:
        """What is counted of an event: the declared columns without the time, and the
        time since the last one.
        """
        columns = [column for column in self.events.columns if column.name != self.time]
        if self.clock is not None:
            columns.append(self._gap())
        return Schema(columns=tuple(columns), person=self.person, origin=self.origin)

    @cached_property
    def fine(self) -> "VisitSchema":
        """With the fine cells of numbers whose bins are not declared
        (`data.encoding.fine`), the public ones of those without bounds: how rows are
        kept. So has the gap where neither it nor the time has declared bins.
        """
        finer = self.map_tables(lambda table: fine_schema(public_cells(table)))
        if self.clock is None or self.gaps is not None or not _is_free(self.clock):
            return finer
        cells = grid(_span(self.clock), single=32, factor=1.1)
        return replace(finer, gaps=cells[:-1])

    @property
    def has_bought(self) -> bool:
        """Whether a number's levels follow from a release, so that those of the number
        of events may, too, where `numbers` does not say them.
        """
        return any(
            _is_free(column)
            for table in self.tables.values()
            for column in table.columns
        )

    def within(self, runs: Mapping[str, Run] | None = None) -> "VisitSchema":
        """With bounds in every column: those of its run of public cells, or the widest.
        Gaps that are longer than all of the time are left out.
        """
        tables = {name: within(table, runs) for name, table in self.tables.items()}
        span = 0 if self.time is None else _span(tables["events"].column(self.time))
        gaps = (
            None if self.gaps is None else tuple(gap for gap in self.gaps if gap < span)
        )
        return self if tables == self.tables else replace(self, gaps=gaps, **tables)  # type: ignore[arg-type]

    @property
    def even(self) -> "VisitSchema":
        """With declared bins everywhere: those that a column has without them, for
        figures that compare.
        """
        columns = [column for table in self.tables.values() for column in table.columns]
        return self.binned(
            {
                column.name: column.levels
                for column in columns
                if isinstance(column, Binned) and column.bins is None
            }
        )

    def binned(self, bins: Mapping[str, Any]) -> "VisitSchema":
        """With these bins of its columns, by their names, of gaps and of the number of
        events among them.
        """
        numbers = bins.get(self._number().name)
        gaps = bins.get(f"{self.time}_gap")
        binned = self.map_tables(lambda table: table.binned(bins))
        return replace(
            binned,
            numbers=self.numbers if numbers is None else tuple(numbers[:-1]),
            gaps=self.gaps if gaps is None else tuple(gaps[:-1]),
        )

    def map_tables(self, change: Callable[[Schema], Schema]) -> "VisitSchema":
        tables = {name: change(table) for name, table in self.tables.items()}
        return replace(self, **tables)  # type: ignore[arg-type]

    @property
    def event_columns(self) -> tuple[Column, ...]:
        """What rules and conditions may speak of in an event: what is counted, and the
        time.
        """
        return (
            *self.event_schema.columns,
            *(() if self.clock is None else (self.clock,)),
        )

    def _number(self) -> Integer:
        high = self.most_events
        if self.numbers is not None:
            bins: tuple[int, ...] | None = (*self.numbers, high)
        else:
            bins = None if high <= 32 else grid(high, single=16, factor=1.25)
        return Integer(name=f"number_of_{self.title}", low=0, high=high, bins=bins)

    def _gap(self) -> Integer:
        assert self.clock is not None, "without a time there is no gap"
        span = _span(self.clock)
        if self.gaps is not None:
            bins: tuple[int, ...] | None = (*self.gaps, span)
        else:
            bins = None if span <= 12 else grid(span, single=2, factor=2.0)
        return Integer(
            name=f"{self.time}_gap", low=0, high=span, bins=bins, nullable=True
        )

    def to_dict(self) -> dict[str, Any]:
        head = {
            "kind": self.kind,
            "person": self.person,
            "most_events": self.most_events,
            "cut": self.cut,
        }
        title = "" if self.title == TITLE else self.title
        more = {
            "title": title,
            "time": self.time,
            "gaps": [*(self.gaps or ())],
            "numbers": [*(self.numbers or ())],
            "note": self.note,
        }
        return (
            head
            | {key: value for key, value in more.items() if value}
            | ({"rules": [rule.to_dict() for rule in self.rules]} if self.rules else {})
            | {
                name: replace(part, person=None).to_dict()
                for name, part in self.tables.items()
            }
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        known_keys(data, _KEYS, "a schema of visits", raised=SchemaError)
        for key in ("person", "most_events", "events"):
            if key not in data:
                raise SchemaError(f"a schema of visits needs {key}.")
        parts: dict[str, Schema] = {}
        for part in ("people", "events"):
            if part in data:
                if not isinstance(data[part], Mapping) or "person" in data[part]:
                    raise SchemaError(
                        f"{part} is a table of columns; the person stands at the top."
                    )
                parts[part] = Schema.from_dict(data[part])
        return cls(
            **{key: value for key, value in data.items() if key != "kind"} | parts
        )

    def __str__(self) -> str:
        order = f"ordered by {self.time}" if self.time else "in no order"
        head = (
            f"people with up to {self.most_events} events, {order}, person "
            f"{self.person}"
        )
        return "\n".join(
            (head, *(f"{name}: {part}" for name, part in self.tables.items()))
        )


@dataclass(frozen=True, kw_only=True)
class SeveralVisits(PeopleSchema):
    """People, and events of several kinds, each ordered and bounded by itself."""

    kind: ClassVar[str] = "several-visits"
    parts: tuple[VisitSchema, ...]
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not 2 <= len(self.parts) <= MOST_PARTS or {*map(type, self.parts)} != {
            VisitSchema
        }:
            raise SchemaError(f"events are of 2 to {MOST_PARTS} holders here.")
        if any(part.people is not None for part in self.parts[1:]):
            raise SchemaError(
                "the first part has the columns of people, and the others have events "
                "alone."
            )
        twice = repeated([part.title for part in self.parts])
        if twice:
            raise SchemaError(
                f'two holders have events that are called "{twice[0]}": say in their '
                "schemas what each has, such as "
                'title = "claims".',
                effect=Effect.NOTHING_CHARGED,
            )
        times = [part.time for part in self.parts if part.time is not None]
        events = [name for part in self.parts for name in part.event_schema.names]
        person_names = [
            name for part in self.parts for name in part.person_schema.names
        ]
        twice = repeated([self.person, *times, *person_names, *events])
        if twice:
            raise SchemaError(
                f'"{twice[0]}" is a column of two holders. Rename one.',
                effect=Effect.NOTHING_CHARGED,
            )
        rules = (
            *read_rules(self.rules),
            *(rule for part in self.parts for rule in part.rules),
        )
        object.__setattr__(
            self, "parts", tuple(replace(part, rules=()) for part in self.parts)
        )
        self._keep_rules(rules)
        for rule in self.rules:
            columns_by_title = {
                part.title: {column.name for column in part.event_columns}
                for part in self.parts
            }
            titles = [
                title
                for title, names in columns_by_title.items()
                if names & {*rule.columns}
            ]
            if len(titles) > 1:
                raise SchemaError(
                    f'rule "{rule}": it speaks of {" and ".join(titles)}, which are '
                    "different rows. A rule is on "
                    "people, on one kind of events, or between both.",
                    effect=Effect.NOTHING_CHARGED,
                )

    @property
    def person(self) -> str:  # type: ignore[override]
        return self.parts[0].person

    @property
    def people(self) -> Schema | None:
        return self.parts[0].people

    @property
    def tables(self) -> dict[str, Schema]:
        people = {} if self.people is None else {"people": self.people}
        return people | {part.title: part.events for part in self.parts}

    @cached_property
    def person_schema(self) -> Schema:
        columns = tuple(
            column for part in self.parts for column in part.person_schema.columns
        )
        return Schema(columns=columns, person=self.person, origin=self.origin)

    def map_tables(self, change: Callable[[Schema], Schema]) -> "SeveralVisits":
        return replace(
            self, parts=tuple(part.map_tables(change) for part in self.parts)
        )

    def to_dict(self) -> dict[str, Any]:
        rules = {"rules": [rule.to_dict() for rule in self.rules]} if self.rules else {}
        return (
            {"kind": self.kind}
            | rules
            | {"parts": [part.to_dict() for part in self.parts]}
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        known_keys(
            data,
            ("kind", "rules", "parts"),
            "a schema of several kinds of events",
            raised=SchemaError,
        )
        parts = data.get("parts")
        if not isinstance(parts, list | tuple):
            raise SchemaError("parts are a list of schemas of visits.")
        rules = read_rules(data.get("rules", ()))
        return cls(
            parts=tuple(VisitSchema.from_dict(part) for part in parts), rules=rules
        )

    def __str__(self) -> str:
        return "\n".join(f"{part.title}: {part}" for part in self.parts)


def _is_free(column: Column) -> bool:
    """Whether it is a number whose levels follow from a release, and no declared bins
    are merged.
    """
    if not isinstance(column, Binned):
        return False
    return column.unbounded or (is_bought(column) and not has_many_bins(column))


def _span(clock: Column) -> int:
    """The longest time between two events."""
    assert isinstance(clock, Binned), "which was seen to"
    edges = (bounded(clock) if clock.unbounded else clock).edges
    return min(int(edges[-1]) - 1 - int(edges[0]), EXACT)


def grid(high: int, *, single: int, factor: float) -> tuple[int, ...]:
    """Edges from 0 to `high`: a level for each number up to `single`, and then wider by
    `factor`.
    """
    edges = [*range(min(single, high) + 1)]
    while (after := max(edges[-1] + 1, round(edges[-1] * factor))) < high:
        edges.append(after)
    return tuple(edges) if edges[-1] == high else (*edges, high)
