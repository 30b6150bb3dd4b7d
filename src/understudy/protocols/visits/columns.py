"""Columns of people at several holders, their events at some of these: who counts which
table, alone or with others.

Holders with the same columns are a group, each with people of its own (`Grid`): two
hospitals with the visits of their patients, and an insurer of all of them. A table of
columns that one group has is counted by each of its holders. A table of columns of two
groups is part of the product of their people's vectors
(`data/visits/counts.person_vectors`), in parts of root², as all others are then. A
person is with one holder of each group, so what the holders count adds up to what one
holder of each group would have counted.

Guarantee: made of public schemas alone; a table is counted once.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from torch import Tensor

from understudy.data.schema import Block as Groups
from understudy.data.schema import Grid, Schema, join
from understudy.data.visits import (
    SeveralLayout,
    SeveralVisits,
    VisitLayout,
    VisitSchema,
)
from understudy.data.visits.counts import Block
from understudy.ground.errors import ConfigError, Effect
from understudy.protocols.joint.stage import public_part


@dataclass(frozen=True)
class Split:
    """The joint schema, and which group of holders has which of its columns."""

    schema: VisitSchema | SeveralVisits
    grid: Grid
    owners: tuple[int, ...]  # of each person column of the joint schema, the group
    # the groups with events, in the order of the schema's parts
    events: tuple[int, ...]

    @classmethod
    def from_schemas(cls, schemas: Mapping[str, Any]) -> "Split":
        """As the schemas show it. Edges: a table without ids → ConfigError; events that
        are called alike, a column in two groups → SchemaError.
        """
        grid = grid_of(schemas)
        one = next(iter(schemas.values()))
        if len(grid.groups) == 1:
            return cls(one, grid, (0,) * len(one.person_schema.columns), (0,))
        for name, schema in schemas.items():
            if schema.kind != "visits" and (
                schema.kind != "table" or schema.person is None
            ):
                raise ConfigError(
                    f"{name} has neither events nor a table with ids: in a "
                    "vertical partition a "
                    "holder has events, or a table of "
                    "the same people with their ids.",
                    effect=Effect.NOTHING_CHARGED,
                )
        having: dict[int, VisitSchema] = {}
        parts: dict[str, Schema] = {}
        owners: list[int] = []
        for group, names in enumerate(grid.groups):
            part = schemas[names[0]]
            if part.kind == "visits":
                having[group], part = part, part.people
            else:
                rules_of_parts = (
                    rule for name in names for rule in schemas[name].rules
                )
                part = replace(part, rules=tuple(dict.fromkeys(rules_of_parts)))
            if part is not None:
                parts[names[0]] = part
                owners += [group] * len(part.columns)
        for group, events in having.items():
            owners += [group] * (
                len(events.person_schema.columns)
                - len(events.people.columns if events.people else ())
            )
        people = (
            replace(join(parts), person=None, rows_are_people=False) if parts else None
        )
        one, *more = having.values()
        first = replace(one, people=people)
        others = (
            replace(events, people=None, person=first.person, rules=())
            for events in more
        )
        rules = tuple(rule for events in more for rule in events.rules)
        joint = SeveralVisits(parts=(first, *others), rules=rules) if more else first
        return cls(joint, grid, tuple(owners), tuple(having))

    @cached_property
    def layout(self) -> VisitLayout | SeveralLayout:
        """All are measured alike where two groups count a product of vectors, in parts
        of one root.
        """
        if isinstance(self.schema, SeveralVisits):
            return SeveralLayout.from_schema(self.schema)
        return replace(
            VisitLayout.from_schema(self.schema),
            even=len(self.grid.groups) > 1,
        )

    def first(self, group: int) -> str:
        """Who stands for the group where one is named."""
        return self.grid.groups[group][0]

    def own(self, group: int) -> VisitLayout:
        """The tables of this group's columns alone."""
        people = tuple(self.layout.people[column] for column in self._columns(group))
        if group not in self.events:
            return VisitLayout(people, (), ordered=False, even=True)
        part = self.layout.members[self.events.index(group)]
        return VisitLayout(people, part.events, part.ordered, part.even)

    def joint(self, group: int, block: Block) -> Block:
        """A table of a group's own layout, by its place among all."""
        (kind, a, b), columns = block, self._columns(group)
        if kind == "person":
            return kind, columns[a], columns[b]
        title = self.layout.titles[self.events.index(group)]
        return f"{kind} {title}".rstrip(), columns[a] if kind == "across" else a, b

    def n_columns(self, group: int) -> int:
        """How many columns of people and of events the group has."""
        layout = self.own(group)
        return len(layout.people) + len(layout.events)

    def width(self, group: int) -> int:
        layout = self.own(group)
        return sum(layout.people) + sum(layout.events)

    def across(self, groups: Groups, product: Tensor) -> dict[Block, Tensor]:
        """The tables of columns of both groups, out of the product of their vectors."""
        rows = self._spans(groups[0])
        columns = self._spans(groups[1])
        parts = {}
        for block in self.layout.blocks:
            one, other = self._sides(block)
            if one in rows and other in columns:
                parts[block] = product[rows[one], columns[other]]
            elif one in columns and other in rows:
                parts[block] = product[rows[other], columns[one]].T
        return parts

    def groups(self, block: Block) -> Groups:
        """Whose columns a table is of: two groups, the lower number first, or one and
        the same.
        """
        groups = [
            self.owners[column] if group == _PEOPLE else group
            for group, column in self._sides(block)
        ]
        return min(groups), max(groups)

    def _sides(self, block: Block) -> tuple[tuple[int, int], tuple[int, int]]:
        """Which columns a table is of: those of people by their place, those of events
        by their group, too.
        """
        kind, a, b = block
        first, *titles = kind.split()
        if first == "person":
            return (_PEOPLE, a), (_PEOPLE, b)
        whose = [
            self.events[self.layout.titles.index(title)]
            for title in titles or self.layout.titles
        ]
        return ((_PEOPLE, a) if first == "across" else (whose[0], a)), (whose[-1], b)

    def _columns(self, group: int) -> list[int]:
        return [column for column, owner in enumerate(self.owners) if owner == group]

    def _spans(self, group: int) -> dict[tuple[int, int], slice]:
        """Where each of a group's columns lies in its people's vectors."""
        layout = self.own(group)
        names = [
            *((_PEOPLE, column) for column in self._columns(group)),
            *((group, n) for n in range(len(layout.events))),
        ]
        starts = accumulate((*layout.people, *layout.events), initial=0)
        return {
            which: slice(a, b)
            for which, (a, b) in zip(names, pairwise(starts), strict=True)
        }


_PEOPLE = -1  # in the place of a group, where a column is one of people


def grid_of(schemas: Mapping[str, Any]) -> Grid:
    """Who holds the same: tables of the same columns, or people and events by one and
    the same schema.
    """

    def partition_key(schema: Any) -> Any:
        return (
            schema.columns
            if schema.kind == "table"
            else json.dumps(public_part(schema), sort_keys=True)
        )

    return Grid.alike({name: partition_key(schema) for name, schema in schemas.items()})
