"""How one table is cut over holders: groups with the same columns, and in each group holders of different people.

rows      one group: every holder has all columns of its own people
columns   every group is one holder, with its columns of the shared people
grid      both: two hospitals, each with the clinical columns of its own patients, and an insurer of all of them
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import TypeVar

from understudy.data.schema import Schema, join
from understudy.ground.check import whole
from understudy.ground.errors import ConfigError

T = TypeVar("T")
Block = tuple[int, int]  # two groups, the lower number first


@dataclass(frozen=True)
class Grid:
    """The holders by group; groups and holders in the order in which they were named."""

    groups: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, schemas: Mapping[str, Schema]) -> "Grid":
        """As the schemas show it: the same columns in the same order make a group."""
        return cls.alike({name: schema.columns for name, schema in schemas.items()})

    @classmethod
    def alike(cls, held: Mapping[str, Hashable]) -> "Grid":
        """Holders of equal things are a group."""
        groups: dict[Hashable, list[str]] = {}
        for name, what in held.items():
            groups.setdefault(what, []).append(name)
        return cls(tuple(map(tuple, groups.values())))

    @property
    def partition(self) -> str:
        """ "rows", "columns" or "grid"."""
        if len(self.groups) == 1:
            return "rows"
        return "grid" if any(len(group) > 1 for group in self.groups) else "columns"

    def group_of(self, name: str) -> int:
        """The number of the holder's group."""
        return next(number for number, group in enumerate(self.groups) if name in group)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Every group by itself, and every two: what holders of both, or of one, have a part in."""
        return tuple(combinations_with_replacement(range(len(self.groups)), 2))

    def holders(self, block: Block) -> tuple[str, ...]:
        """Who has a part in the block."""
        return tuple(name for group in sorted(set(block)) for name in self.groups[group])

    def one_each(self, values: Mapping[str, T]) -> dict[str, T]:
        """What the first holder of each group has, by its name."""
        return {group[0]: values[group[0]] for group in self.groups}

    def check_most_holders(self, most_holders: int) -> None:
        """ConfigError unless a person can be with so many holders of every column."""
        whole(most_holders=most_holders)
        if most_holders > (most := min(map(len, self.groups))):
            raise ConfigError(
                f"most_holders={most_holders} is for rows at so many holders or more, and here {most} have the same "
                "columns; where columns are split, alignment makes sure that a person is with one holder of each "
                "column. Nothing was charged."
            )

    def join(self, schemas: Mapping[str, Schema]) -> Schema:
        """The columns of all groups side by side. Edges: a column in two groups → SchemaError."""
        joint = join(self.one_each(schemas))
        return replace(joint, rules=tuple(dict.fromkeys(r for one in schemas.values() for r in one.rules)))
