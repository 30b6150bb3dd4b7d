"""Columns of people at several holders, their events at one of these: who counts which table, alone or with another.

A table of columns that one holder has is counted by that holder, as over rows. A table of columns of two holders is
part of the product of their people's vectors (`data/visits/counts.person_vectors`): `root` for the level of each person
column, and the parts of `root` of the person's events for the levels of event columns. In such a table a person's cells
add up to root² at most, as in all others, where the unit is root².

Guarantee: made of public schemas alone; a table is counted once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, combinations, pairwise
from typing import Any

from torch import Tensor

from understudy.data.schema import Schema, join
from understudy.data.visits import VisitLayout, VisitSchema
from understudy.data.visits.counts import Block
from understudy.errors import ConfigError

Pair = tuple[str, str]
_MESSAGE = 1 << 24  # bytes
_EACH = "over columns one holder has events, and the others a table of the same people with their ids"


@dataclass(frozen=True)
class Split:
    """The joint schema, and who holds which of its columns."""

    schema: VisitSchema
    holders: tuple[str, ...]
    owners: tuple[str, ...]  # of each person column of the joint schema
    events: str  # who holds the events

    @classmethod
    def of(cls, schemas: Mapping[str, Any]) -> "Split":
        """As the schemas show it. Edges: events at two holders or at none, a table without ids → ConfigError."""
        having = [name for name, schema in schemas.items() if isinstance(schema, VisitSchema)]
        if len(having) != 1:
            raise ConfigError(f"{' and '.join(having) or 'nobody'} has events: {_EACH}. Nothing was charged.")
        visits: VisitSchema = schemas[having[0]]
        parts: dict[str, Schema] = {}
        for name, schema in schemas.items():
            part = visits.people if name == having[0] else schema
            if name != having[0] and (not isinstance(part, Schema) or part.person is None):
                raise ConfigError(
                    f"{name} has neither events nor a table with ids: {_EACH}. Nothing was charged."
                )
            if part is not None:
                parts[name] = part
        people = replace(join(parts), person=None)
        own = [name for name, part in parts.items() for _ in part.columns]
        joint = replace(visits, people=people)
        derived = len(joint.person_schema.columns) - len(own)
        return cls(joint, tuple(schemas), (*own, *[having[0]] * derived), having[0])

    @cached_property
    def layout(self) -> VisitLayout:
        """All are measured alike: what two holders count is a product of vectors in parts of one root."""
        return replace(VisitLayout.of(self.schema), even=True)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Every two holders, in their order."""
        return tuple(combinations(self.holders, 2))

    def own(self, name: str) -> VisitLayout:
        """The tables that this holder counts alone."""
        people = tuple(self.layout.people[place] for place in self._columns(name))
        has = name == self.events
        return VisitLayout(people, self.layout.events if has else (), has and self.layout.ordered, even=True)

    def joint(self, name: str, block: Block) -> Block:
        """A table of a holder's own layout, by its place among all."""
        kind, a, b = block
        columns = self._columns(name)
        first = columns[a] if kind in ("person", "across") else a
        return kind, first, columns[b] if kind == "person" else b

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
            kind, a, b = block
            if kind not in ("person", "across"):
                continue
            one, other = ("person", a), (kind if kind == "person" else "event", b)
            if one in rows and other in columns:
                found[block] = product[rows[one], columns[other]]
            elif one in columns and other in rows:
                found[block] = product[rows[other], columns[one]].T
        return found

    def _columns(self, name: str) -> list[int]:
        return [place for place, owner in enumerate(self.owners) if owner == name]

    def _spans(self, name: str) -> dict[tuple[str, int], slice]:
        """Where each of a holder's columns lies in its people's vectors."""
        own = self.own(name)
        names = [("person", place) for place in self._columns(name)]
        names += [("event", place) for place in range(len(own.events))]
        starts = accumulate((*own.people, *own.events), initial=0)
        return {which: slice(a, b) for which, (a, b) in zip(names, pairwise(starts), strict=True)}
