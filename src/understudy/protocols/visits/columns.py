"""Columns of people at several holders, their events at one of these or more: who counts which table, alone or with
another.

A table of columns that one holder has is counted by that holder, as over rows. A table of columns of two holders is
part of the product of their people's vectors (`data/visits/counts.person_vectors`): `root` for the level of each person
column, and the parts of `root` of the person's events for the levels of event columns. In such a table a person's cells
add up to root² at most, as in all others, where the unit is root²: those of two holders' events are the product of two
averages.

Guarantee: made of public schemas alone; a table is counted once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, combinations, pairwise
from typing import Any

from torch import Tensor

from understudy.data.schema import Schema, join
from understudy.data.visits import SeveralLayout, SeveralVisits, VisitLayout, VisitSchema
from understudy.data.visits.counts import Block
from understudy.errors import ConfigError

Pair = tuple[str, str]
_MESSAGE = 1 << 24  # bytes
_EACH = "over columns a holder has events, or a table of the same people with their ids"


@dataclass(frozen=True)
class Split:
    """The joint schema, and who holds which of its columns."""

    schema: VisitSchema | SeveralVisits
    holders: tuple[str, ...]
    owners: tuple[str, ...]  # of each person column of the joint schema
    events: tuple[str, ...]  # who holds events, in the order of the schema's parts

    @classmethod
    def of(cls, schemas: Mapping[str, Any]) -> "Split":
        """As the schemas show it. Edges: a table without ids → ConfigError; events that are called alike →
        SchemaError.
        """
        having = [name for name, schema in schemas.items() if isinstance(schema, VisitSchema)]
        parts: dict[str, Schema] = {}
        for name, schema in schemas.items():
            part = schema.people if name in having else schema
            if name not in having and (not isinstance(part, Schema) or part.person is None):
                raise ConfigError(
                    f"{name} has neither events nor a table with ids: {_EACH}. Nothing was charged."
                )
            if part is not None:
                parts[name] = part
        visits: list[VisitSchema] = [schemas[name] for name in having]
        people = replace(join(parts), person=None) if parts else None
        owners = [name for name, part in parts.items() for _ in part.columns]
        for name, own in zip(having, visits, strict=True):
            derived = len(own.person_schema.columns) - len(own.people.columns if own.people else ())
            owners += [name] * derived
        first = replace(visits[0], people=people)
        others = (replace(own, people=None, person=first.person, rules=()) for own in visits[1:])
        rules = tuple(rule for own in visits[1:] for rule in own.rules)
        joint = SeveralVisits(parts=(first, *others), rules=rules) if len(visits) > 1 else first
        return cls(joint, tuple(schemas), tuple(owners), tuple(having))

    @cached_property
    def layout(self) -> VisitLayout | SeveralLayout:
        """All are measured alike: what two holders count is a product of vectors in parts of one root."""
        if isinstance(self.schema, SeveralVisits):
            return SeveralLayout.of(self.schema)
        return replace(VisitLayout.of(self.schema), even=True)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Every two holders, in their order."""
        return tuple(combinations(self.holders, 2))

    def own(self, name: str) -> VisitLayout:
        """The tables that this holder counts alone."""
        people = tuple(self.layout.people[place] for place in self._columns(name))
        if name not in self.events:
            return VisitLayout(people, (), ordered=False, even=True)
        layout = self.layout
        part = layout.members[self.events.index(name)] if isinstance(layout, SeveralLayout) else layout
        return VisitLayout(people, part.events, part.ordered, even=True)

    def joint(self, name: str, block: Block) -> Block:
        """A table of a holder's own layout, by its place among all."""
        kind, a, b = block
        columns = self._columns(name)
        first = columns[a] if kind in ("person", "across") else a
        return self._kind(kind, name), first, columns[b] if kind == "person" else b

    def _kind(self, kind: str, name: str) -> str:
        """What tables of a kind are called, of this holder's events."""
        if kind == "person" or not isinstance(self.layout, SeveralLayout):
            return kind
        return f"{kind} {self.layout.titles[self.events.index(name)]}"

    def width(self, name: str) -> int:
        """How long a person's vector is at this holder."""
        own = self.own(name)
        return sum(own.people) + sum(own.events)

    def chunk(self, most: int) -> int:
        """People per message: so many at most, and no more than a message holds."""
        row = 8 * max(map(self.width, self.holders)) * (len(self.holders) - 1)  # bytes per person, at most
        return max(1, min(most, _MESSAGE // row))

    def across(self, pair: Pair, product: Tensor) -> dict[Block, Tensor]:
        """The tables of columns of both holders, out of the product of their vectors."""
        rows, columns = self._spans(pair[0]), self._spans(pair[1])
        found = {}
        for block in self.layout.blocks:
            one, other = self._sides(block)
            if one in rows and other in columns:
                found[block] = product[rows[one], columns[other]]
            elif one in columns and other in rows:
                found[block] = product[rows[other], columns[one]].T
        return found

    def _sides(self, block: Block) -> tuple[tuple[str, int], tuple[str, int]]:
        """Which columns a table is of: those of people by their place, those of events by their holder's name too."""
        kind, a, b = block
        first, *named = kind.split()
        if first == "person":
            return ("", a), ("", b)
        if isinstance(self.layout, SeveralLayout):
            whose = [self.events[self.layout.titles.index(title)] for title in named]
        else:
            whose = [*self.events]
        return (("", a) if first == "across" else (whose[0], a)), (whose[-1], b)

    def _columns(self, name: str) -> list[int]:
        return [place for place, owner in enumerate(self.owners) if owner == name]

    def _spans(self, name: str) -> dict[tuple[str, int], slice]:
        """Where each of a holder's columns lies in its people's vectors."""
        own = self.own(name)
        names = [("", place) for place in self._columns(name)]
        names += [(name, place) for place in range(len(own.events))]
        starts = accumulate((*own.people, *own.events), initial=0)
        return {which: slice(a, b) for which, (a, b) in zip(names, pairwise(starts), strict=True)}
