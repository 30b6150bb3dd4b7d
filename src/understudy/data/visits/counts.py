"""What is counted of people with many rows, and by how much one person moves it.

Blocks are tables, and in each of them a person with all events has a mass of 1 at most,
spread over its cells:

    person    a, b    the levels of two person columns, or of one (a = b): 1 for each
                      person
    event     q, r    the levels of two columns of an event, or of one (q = r): the
                      average over the person's events
    across    a, q    of a person column and an event column: the average over the
                      person's events
    next      q, r    of an event's column and a column of the next event: the average
                      over consecutive events
    later     q, q    of an event's column and the same column two events later: the
                      average over such pairs
    far       q, q    the same, four events later: with the two above it tells memory
                      that fades from people who differ for good
    between   q, r    of one holder's events and another's (`SeveralLayout`): the
                      product of a person's two averages, whose cells are no less than 0
                      and add up to the product of what these add up to

Whole numbers: masses are in parts of the block's own public unit U. Of n events the one
in place t (from 0) has ⌊U(t + 1)/n⌋ − ⌊Ut/n⌋ parts. These are at least 0 and add up to
U, whatever n is.

*Shares of the budget.* All cells have noise of one size, so that a block with a larger
unit is measured more closely: at one price, units in proportion to ∛(c/T), of c cells
in T tables of a kind, make the sum over kinds of mean distances the least (`weights`).
Of `later` and `far` both have the share of one, each unit by √½.

*One person.* In a block the person's cells are no less than 0 and add up to its unit
or, without events, to 0; so their squares add up to its square at most (`sensitivity`).
Parts depend on the person's own rows alone.

Guarantee: `count_visits` returns whole numbers that one person, with all rows, moves by
at most `sensitivity`, in L2.
Edges: who has no events, or of those that follow one another too few, adds nothing to
those tables.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, combinations_with_replacement, product
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from understudy.data.encoding.values import Codes, Places, take_people
from understudy.data.visits.schema import SeveralVisits, VisitSchema
from understudy.ground.errors import Effect, SchemaError

Block = tuple[str, int, int]  # kind and two columns
_PARTS = 12  # weights are whole numbers of these
# so many at least and at most: a kind is measured at most twice as closely, or half so
_LEAST = 6
_MOST = 24
MOST_CELLS = 1 << 24
# how many events lie between the two of a pair, and 1
AHEAD = {"next": 1, "later": 2, "far": 4}


@dataclass(frozen=True, eq=False)
class VisitCodes:
    """Person after person, and each one's events in their order. Its repr shows no
    rows. `people` are the levels of `VisitSchema.person_schema`, whose last column is
    the number of events; `events` those of `VisitSchema.event_schema`. Person i has the
    events starts[i] … starts[i + 1]. Edges: places that do not rise from 0 to the
    number of events → SchemaError.
    """

    people: Codes = field(repr=False)  # (people, person columns)
    events: Codes = field(repr=False)  # (events, event columns)
    starts: Places = field(repr=False)  # (people + 1,)

    def __post_init__(self) -> None:
        starts = self.starts
        if (
            self.people.ndim != 2
            or self.events.ndim != 2
            or starts.shape != (len(self.people) + 1,)
        ):
            raise SchemaError(
                "people, events and their places do not fit together.",
                effect=Effect.NOTHING_COMPUTED,
            )
        if (
            starts[0] != 0
            or starts[-1] != len(self.events)
            or (np.diff(starts) < 0).any()
        ):
            raise SchemaError(
                "an event is nobody's, or two people's.", effect=Effect.NOTHING_COMPUTED
            )

    def take(self, people: Places) -> "VisitCodes":
        starts, events_taken = take_people(self.starts, people)
        return VisitCodes(self.people[people], self.events[events_taken], starts)

    @property
    def numbers(self) -> Places:
        return np.diff(self.starts)

    @property
    def owner(self) -> Places:
        """Whose each event is, as a place among the people: (events,)."""
        return np.repeat(np.arange(len(self.people)), self.numbers)

    @property
    def order(self) -> Places:
        """Which of its person's events each is, from 0: (events,)."""
        return np.arange(len(self.events)) - np.repeat(self.starts[:-1], self.numbers)


class Blocks(ABC):
    """Tables one after the other in one long vector. `members`: the layout of each kind
    of events, by its title.
    """

    people: tuple[int, ...]
    titles: tuple[str, ...]
    members: "tuple[VisitLayout, ...]"

    def __post_init__(self) -> None:
        if self.size > MOST_CELLS:
            raise SchemaError(
                f"the tables of people and events have {self.size:,} cells, more than "
                f"{MOST_CELLS:,}: declare fewer bins.",
                effect=Effect.NOTHING_READ,
            )

    @cached_property
    @abstractmethod
    def blocks(self) -> tuple[Block, ...]:
        """All tables, in their order."""

    @abstractmethod
    def unit_of(self, kind: str, unit: int) -> int:
        """In how many parts tables of a kind count a person, where the average ones do
        in `unit`.
        """

    def sides(self, kind: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The levels of the columns in rows, and of those in columns, of all tables of
        a kind.
        """
        first, *named = kind.split()
        events = [
            self.members[self.titles.index(title)].events
            for title in named or self.titles
        ]
        if first == "person":
            return self.people, self.people
        return (
            (self.people, events[0]) if first == "across" else (events[0], events[-1])
        )

    def shape(self, block: Block) -> tuple[int, ...]:
        """(levels,) of a table of one column, (levels, levels) of two."""
        kind, a, b = block
        rows, columns = self.sides(kind)
        single = a == b and kind.split()[0] in ("person", "event")
        return (rows[a],) if single else (rows[a], columns[b])

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each block begins in the vector, and its length."""
        sizes = [math.prod(self.shape(block)) for block in self.blocks]
        return (0, *map(int, np.cumsum(sizes)))

    @property
    def size(self) -> int:
        return self.starts[-1]

    def units(self, unit: int) -> dict[Block, int]:
        """In how many parts each block counts a person."""
        return {block: self.unit_of(block[0], unit) for block in self.blocks}

    def sensitivity(self, unit: int) -> float:
        """By how much a person moves all blocks together, in L2."""
        return math.sqrt(
            sum(unit_of_kind**2 for unit_of_kind in self.units(unit).values())
        ) * (1 + 2.0**-40)

    def split(self, vector: NDArray[np.generic]) -> dict[Block, NDArray[np.generic]]:
        return {
            block: vector[start:stop].reshape(self.shape(block))
            for block, start, stop in zip(
                self.blocks, self.starts, self.starts[1:], strict=False
            )
        }


@dataclass(frozen=True)
class VisitLayout(Blocks):
    """Which tables are counted, and where each lies in one long vector. `even`: all are
    measured alike.
    """

    people: tuple[int, ...]  # levels of the person columns, the number of events last
    events: tuple[int, ...]  # levels of the event columns
    ordered: bool
    even: bool = False
    titles: ClassVar = ("",)  # type: ignore[misc]

    @property
    def members(self) -> "tuple[VisitLayout, ...]":  # type: ignore[override]
        return (self,)

    @classmethod
    def from_schema(cls, schema: VisitSchema) -> "VisitLayout":
        tables = (schema.person_schema, schema.event_schema)
        people, events = (
            tuple(column.size for column in part.columns) for part in tables
        )
        return cls(people, events, schema.ordered)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        person_columns = range(len(self.people))
        events = range(len(self.events))
        return (
            *(
                ("person", a, b)
                for a, b in combinations_with_replacement(person_columns, 2)
            ),
            *(("event", q, r) for q, r in combinations_with_replacement(events, 2)),
            *(("across", a, q) for a, q in product(person_columns, events)),
            *(("next", q, r) for q, r in product(events, events) if self.ordered),
            # but for the gap
            *((kind, q, q) for kind in self.apart for q in events[:-1]),
        )

    @property
    def apart(self) -> tuple[str, ...]:
        """The kinds of tables of events further apart than an event and the next, where
        a person can have such.
        """
        return tuple(
            kind
            for kind, far in AHEAD.items()
            if far > 1 and self.ordered and self.people[-1] > 1 + far
        )

    @cached_property
    def weights(self) -> dict[str, int]:
        """How closely each kind of tables is measured, in twelfths of what it would be
        if all were alike.
        """
        cells: dict[str, list[int]] = {}
        for block in self.blocks:
            if block[0] not in self.apart[1:]:
                cells.setdefault(block[0], []).append(math.prod(self.shape(block)))
        raw = {
            kind: (sum(sizes) / len(sizes) ** 2) ** (1 / 3)
            for kind, sizes in cells.items()
        }
        squares = sum(
            len(cells[kind]) * weight**2 for kind, weight in raw.items()
        ) / sum(map(len, cells.values()))
        weights = {
            kind: _PARTS
            if self.even
            else min(max(round(_PARTS * weight / math.sqrt(squares)), _LEAST), _MOST)
            for kind, weight in raw.items()
        }
        return weights | {
            kind: math.isqrt(weights["later"] ** 2 // len(self.apart))
            for kind in self.apart
        }

    def unit_of(self, kind: str, unit: int) -> int:
        return max(1, unit * self.weights[kind] // _PARTS)


@dataclass(frozen=True)
class SeveralLayout(Blocks):
    """Which tables are counted of people with several kinds of events; all are measured
    alike. Kinds of tables are those of `VisitLayout`, followed by the title of the
    events: "across claims"; "between visits claims" are two kinds of events. A person's
    columns are those of all parts, one after the other.
    """

    titles: tuple[str, ...]
    members: tuple[VisitLayout, ...]

    @classmethod
    def from_schema(cls, schema: SeveralVisits) -> "SeveralLayout":
        members = tuple(
            replace(VisitLayout.from_schema(part), even=True) for part in schema.parts
        )
        return cls(tuple(part.title for part in schema.parts), members)

    @cached_property
    def people(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(size for member in self.members for size in member.people)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        person_columns = range(len(self.people))
        blocks: list[Block] = [
            ("person", a, b)
            for a, b in combinations_with_replacement(person_columns, 2)
        ]
        for title, member in zip(self.titles, self.members, strict=True):
            own_blocks = [
                block
                for block in member.blocks
                if block[0] in ("event", "next", "later")
            ]
            blocks += [(f"{kind} {title}", q, r) for kind, q, r in own_blocks]
            blocks += [
                (f"across {title}", a, q)
                for a, q in product(person_columns, range(len(member.events)))
            ]
        for (title_here, first), (title_there, second) in combinations(
            zip(self.titles, self.members, strict=True), 2
        ):
            pairs = product(range(len(first.events)), range(len(second.events)))
            blocks += [(f"between {title_here} {title_there}", q, r) for q, r in pairs]
        return tuple(blocks)

    def unit_of(self, kind: str, unit: int) -> int:
        first, *named = kind.split()
        if len(named) != 1:
            return unit
        return self.members[self.titles.index(named[0])].unit_of(first, unit)


def count_visits(
    codes: VisitCodes, layout: VisitLayout, unit: int
) -> NDArray[np.int64]:
    """All blocks, one after the other, in parts of `layout.units(unit)`: (size,).
    Guarantee: see the module. Edges: a level outside its column → SchemaError, nothing
    is counted.
    """
    if type(unit) is not int or unit < 1:
        raise SchemaError(f"unit must be a whole number of at least 1, not {unit!r}.")
    _check(codes.people, layout.people)
    _check(codes.events, layout.events)
    owner = codes.owner
    order = codes.order
    numbers = codes.numbers
    person, event = (
        codes_of_table.T.astype(np.int64, order="C")
        for codes_of_table in (codes.people, codes.events)
    )
    following = numbers[owner] - order - 1  # events of the same person that follow
    total = np.zeros(layout.size, dtype=np.int64)

    def shares(kind: str, positions: Places, less: int = 0) -> NDArray[np.float64]:
        return parts(
            order[positions],
            numbers[owner[positions]] - less,
            layout.unit_of(kind, unit) if kind in layout.weights else 1,
        )

    all_events = np.arange(len(codes.events))
    whole = np.full(len(codes.people), layout.unit_of("person", unit), dtype=np.float64)
    sides = {
        "person": (person, person, whole),
        "event": (event, event, shares("event", all_events)),
        "across": (person.take(owner, axis=1), event, shares("across", all_events)),
    }
    for kind, far in AHEAD.items() if layout.ordered else ():
        positions = np.flatnonzero(following >= far)
        sides[kind] = (
            event.take(positions, axis=1),
            event.take(positions + far, axis=1),
            shares(kind, positions, far),
        )
    for block, start, stop in zip(
        layout.blocks, layout.starts, layout.starts[1:], strict=False
    ):
        kind, a, b = block
        first, second, mass = sides[kind]
        shape = layout.shape(block)
        cells = first[a] if len(shape) == 1 else first[a] * shape[1] + second[b]
        # Whole numbers below 2⁵³: exact
        total[start:stop] = np.bincount(cells, weights=mass, minlength=stop - start)
    return total


def person_vectors(
    codes: VisitCodes, layout: VisitLayout, root: int
) -> NDArray[np.int64]:
    """Of all people one vector each: `root` for the level of each person column, and
    the parts of `root` of the person's events for the levels of each event column:
    (people, width). Guarantee: in each column a person's numbers are no less than 0 and
    add up to `root`, or without events to 0; so the table that two columns' numbers
    make as a product adds up to root² at most.
    """
    everyone = np.arange(len(codes.people))
    owner = codes.owner
    vectors = np.zeros(
        (len(everyone), sum(layout.people) + sum(layout.events)), dtype=np.int64
    )
    starts = np.cumsum((0, *layout.people, *layout.events))
    for column in range(len(layout.people)):
        vectors[everyone, starts[column] + codes.people[:, column]] = root
    weights = parts(codes.order, codes.numbers[owner], root).astype(np.int64)
    for column in range(len(layout.events)):
        np.add.at(
            vectors,
            (owner, starts[len(layout.people) + column] + codes.events[:, column]),
            weights,
        )
    return vectors


def parts(order: Places, numbers: Places, unit: int) -> NDArray[np.float64]:
    """The parts of `unit` that an event in this place has, among so many: at least 0,
    and `unit` for all of them.
    """
    return np.asarray(
        (unit * (order + 1)) // numbers - (unit * order) // numbers, dtype=np.float64
    )


def _check(codes: NDArray[np.int32], sizes: tuple[int, ...]) -> None:
    good = codes.ndim == 2 and codes.shape[1] == len(sizes) and codes.dtype.kind in "iu"
    if not good or (codes < 0).any() or (codes >= np.array(sizes)).any():
        raise SchemaError(
            "a level lies outside its column.", effect=Effect.NOTHING_COMPUTED
        )
