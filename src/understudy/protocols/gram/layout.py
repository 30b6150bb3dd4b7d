"""The joint Gram matrix as server and holders both see it: its columns and their
levels, its blocks, and which cells a release measures.

Holders with the same columns are a group (`data.grid`). A block of the matrix belongs
to two groups, or twice to one, and is a sum of parts from every holder in them. A
horizontal partition has one block; in a vertical one each block has one holder or two.

Guarantee: `marked_in` says how many cells of a block one person moves; prices rest on
it. Levels, pairs and tables that a server names are checked here before they are used.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.column import Binned, is_unbounded
from understudy.data.encoding.codec import Codec, Levels
from understudy.data.encoding.fine import (
    Run,
    end_cells,
    fine_schema,
    is_bought,
    is_tree,
    reach,
    within,
)
from understudy.data.schema import Block, Grid, Schema
from understudy.ground.errors import ConfigError, Effect, MessageError, SchemaError
from understudy.models.tables.merged_levels import (
    MOST_CELLS,
    is_worth_buying,
    most_width,
)
from understudy.models.tables.trees import Trees, named_runs
from understudy.privacy.secure.counts import movable

# levels of all columns together: a matrix of that width has 67 million cells, 512 MiB
WIDEST = 8192
Names = tuple[str, str, str]


@dataclass(frozen=True)
class Place:
    """Where a 3-way marginal is counted: its block, and each column as (group, number
    within the group).
    """

    block: Block
    columns: tuple[tuple[int, int], ...]

    @property
    def across(self) -> bool:
        """Whether two of its columns are with one group, and one with another."""
        return self.block[0] != self.block[1]

    def axes(self, group: int) -> list[int]:
        """Which axes of the table are this group's columns."""
        return [axis for axis, (owner, _) in enumerate(self.columns) if owner == group]


@dataclass(frozen=True, eq=False)
class Layout:
    """`announced`: every holder's public schema. `fine`: the share of the budget for
    fine tables; above 0, they are released first where levels have to be chosen.
    `levels`: the chosen levels, or None while they are as declared. `runs`: the ranges
    of numbers without declared bounds, once "reach" has found them
    (`data.encoding.fine`). `union`: people of either of two groups count, and each
    person's presence is one more coordinate of the product (`presence_moved`).
    """

    announced: Mapping[str, Schema]
    fine: float = 0.0
    levels: Levels | None = None
    runs: Mapping[str, Run] | None = None
    union: bool = False

    @cached_property
    def schemas(self) -> Mapping[str, Schema]:
        """The schemas with bounds in every column: those found, or the widest."""
        if self.unbounded and not self.fine:
            raise self.unbounded[0].error(
                "has no bounds. Declare low and high, or let them be found (`fine` "
                "above 0).",
                effect=Effect.NOTHING_CHARGED,
            )
        return {
            name: within(schema, self.runs) for name, schema in self.announced.items()
        }

    @cached_property
    def unbounded(self) -> list[Binned]:
        """The columns without declared bounds."""
        schemas = self.grid.one_each(self.announced).values()
        return [
            column for one in schemas for column in one.columns if is_unbounded(column)
        ]

    @cached_property
    def grid(self) -> Grid:
        return Grid.from_schemas(self.announced)

    @cached_property
    def groups(self) -> tuple[Schema, ...]:
        """The columns of each group."""
        return tuple(self.grid.one_each(self.schemas).values())

    @cached_property
    def joint(self) -> Schema:
        return self.grid.join(self.schemas)

    @property
    def columns(self) -> int:
        return len(self.joint.columns)

    @cached_property
    def buys(self) -> bool:
        """Whether part of the budget buys levels, by a first release of fine tables."""
        return is_worth_buying(self.joint.columns, self.fine)

    @cached_property
    def trees(self) -> tuple[Trees, ...]:
        """The hierarchical histograms of each group's columns."""
        fine = fine_schema(self.joint)
        unbounded = bool(self.unbounded)
        # How finely any column is cut depends on all of them together, so on those
        # whose bounds are found.
        unbounded_names = frozenset(
            column.name
            for column in self.joint.columns
            if unbounded and is_tree(column)
        )
        return tuple(
            Trees(one, fine.select(one.names), unbounded_names.intersection(one.names))
            for one in self.groups
        )

    @cached_property
    def tops(self) -> dict[int, Trees]:
        """The public cells over all numbers, for groups with columns without bounds."""
        groups = enumerate(self.grid.one_each(self.announced).values())
        public_cells = {
            g: tuple(reach(c) for c in schema.columns if is_unbounded(c))
            for g, schema in groups
        }
        schemas = {
            g: Schema(columns=columns) for g, columns in public_cells.items() if columns
        }
        return {
            g: Trees(schema, schema, frozenset(schema.names), paid=1)
            for g, schema in schemas.items()
        }

    def on_runs(self, runs: Any) -> "Layout":
        """The layout when numbers without bounds lie in these runs of their public
        cells (`named_runs`).
        """
        return replace(
            self,
            runs=named_runs(
                {column.name: reach(column).levels for column in self.unbounded}, runs
            ),
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        if self.levels is not None:
            return tuple(self.levels.sizes)
        return tuple(size for schema in self.groups for size in Codec(schema).sizes)

    @cached_property
    def group_sizes(self) -> tuple[tuple[int, ...], ...]:
        """The levels of each column, group by group."""
        sizes = iter(self.sizes)
        return tuple(tuple(islice(sizes, count)) for count in self._columns)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The length of a one-hot row of each group."""
        return tuple(map(sum, self.group_sizes))

    @property
    def product_widths(self) -> tuple[int, ...]:
        """The length of a group's vectors in a product: with the coordinate of
        presence, where there is one.
        """
        return tuple(width + self.union for width in self.widths)

    @property
    def presence_moved(self) -> int:
        """How many cells a person at both holders moves besides those of all pairs
        across: the one of each column, and that of those who are at both.
        Adjacency: one person with all rows at both holders is added or removed. In the
        product of (x, 1) and (y, 1) such a person adds 1 to one cell for each pair of
        columns across, each column of either holder, and to the last cell; a person at
        one holder alone adds nothing, as the other's vector is zero.
        """
        return self.columns + 1 if self.union else 0

    def on_levels(self, groups: Any) -> "Layout":
        """The layout on levels that the server chose, given as the level of every fine
        cell, by column number.
        Edges: levels that do not fit the schema, or are too many → MessageError.
        """
        columns = self.joint.columns
        keys = [str(number) for number in range(len(columns))]
        dtypes = {
            key: getattr(group, "dtype", None) for key, group in dict(groups).items()
        }
        if dtypes != dict.fromkeys(keys, torch.int32):
            raise MessageError(
                f"levels of {len(keys)} columns were due.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        cells = [groups[key].numpy() for key in keys]
        try:
            ends = {
                j: np.zeros(n_ends)
                for j, n_ends in enumerate(map(end_cells, columns))
                if n_ends
            }
            levels = Levels(
                self.joint, cells, [np.zeros(part.shape) for part in cells], ends
            )
        except SchemaError as error:
            raise MessageError(
                error.message, effect=Effect.NOTHING_CHARGED_OR_SENT
            ) from None
        bought = [
            size
            for column, size in zip(columns, levels.sizes, strict=True)
            if is_bought(column)
        ]
        if sum(bought) > most_width(len(bought)):
            raise MessageError(
                f"{sum(bought):,} levels are too many.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        return replace(self, levels=levels)

    def check_width(self) -> None:
        """Refuse a matrix too wide to be fitted: more than `WIDEST` levels."""
        bought = [
            column for column in self.joint.columns if self.buys and is_bought(column)
        ]
        sizes = {
            column.name: column.size
            for column in self.joint.columns
            if column not in bought
        }
        width = sum(sizes.values()) + (most_width(len(bought)) if bought else 0)
        if width > WIDEST:
            largest = max(sizes.items(), key=lambda one: one[1], default=None)
            widest = "" if largest is None else f", {largest[0]} {largest[1]:,} of them"
            raise ConfigError(
                f"the columns have {width:,} levels together{widest}, and a joint "
                f"table of more than {WIDEST:,} cannot be fitted. Declare fewer, or "
                "let levels be bought: `fine` above 0, and no `bins`.",
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )

    # Marks say which marginals a release measures: (m, m), columns on the diagonal,
    # pairs of columns in the upper triangle

    def all_pairs(self, *, across: bool = False) -> Tensor:
        """Marks of all columns and pairs, or of the pairs `across` groups alone. After
        fine tables, which have the 1-way marginals, only pairs are marked, if any.
        """
        group = torch.repeat_interleave(torch.tensor(self._columns))
        return ((group[:, None] != group) | (not across)).triu(
            int(self.buys and self.columns > 1)
        )

    def pairs_with(self, target: str | None) -> Tensor:
        """All pairs with this column, the lower first: (m − 1, 2); none for None."""
        if target is None:
            return torch.empty(0, 2, dtype=torch.int64)
        if target not in self.joint.names:
            raise ConfigError(
                f'nobody has a column "{target}".', effect=Effect.NOTHING_CHARGED
            )
        index = self.joint.names.index(target)
        others = torch.tensor(
            [n for n in range(self.columns) if n != index], dtype=torch.int64
        )
        return torch.stack([others.clamp(max=index), others.clamp(min=index)], dim=1)

    def marked(self, pairs: Any, expected: int, target: str | None = None) -> Tensor:
        """These pairs of columns, (pairs, 2), marked.
        Edges: not so many pairs, or one with the target is missing → MessageError."""
        marks = torch.zeros(self.columns, self.columns, dtype=torch.bool)
        good = (
            isinstance(pairs, Tensor)
            and pairs.dtype == torch.int64
            and pairs.shape == (expected, 2)
        )
        if good and bool(((pairs >= 0) & (pairs < self.columns)).all()):
            marks[pairs[:, 0], pairs[:, 1]] = True
        if not good or int(marks.triu(1).sum()) != expected:
            raise MessageError(
                f"{expected} different pairs of columns were due, the lower first.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        if not bool(marks[tuple(self.pairs_with(target).T)].all()):
            raise MessageError(
                f"all pairs with {target} were due.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        return marks

    def marked_in(self, block: Block, marks: Tensor) -> int:
        """How many columns and pairs of a block are marked. A person has one level of
        each column, so this is how many of its cells a person moves, each by 1.
        """
        rows, columns = (
            slice(self._starts[group], self._starts[group + 1]) for group in block
        )
        return int(marks[rows, columns].sum())

    def cells(self, block: Block, marks: Tensor) -> Tensor:
        """The cells of the marked marginals in a block, (rows, columns); within a group
        those of the upper triangle.
        """
        rows, columns = (
            torch.repeat_interleave(torch.tensor(self.group_sizes[group]))
            for group in block
        )
        of_group = self._starts[block[0]], self._starts[block[1]]
        marked = marks[rows[:, None] + of_group[0], columns[None, :] + of_group[1]]
        if block[0] == block[1]:
            return (marked & movable(self.group_sizes[block[0]])).triu()
        return marked

    def corner(self, block: Block) -> tuple[slice, slice]:
        starts = [*accumulate(self.widths, initial=0)]
        g, h = block
        return slice(starts[g], starts[g + 1]), slice(starts[h], starts[h + 1])

    # Three-way tables

    def tables_beside(self, target: str) -> Tensor:
        """The pairs of columns, (n, 2), the lower first, that together with the target
        are in no more than two groups: those whose 3-way marginal can be counted.
        """
        index = self.joint.names.index(target)
        group = torch.repeat_interleave(torch.tensor(self._columns))
        others = torch.tensor(
            [n for n in range(self.columns) if n != index], dtype=torch.int64
        )
        pairs = torch.combinations(others).reshape(-1, 2)
        of = group[pairs]
        return pairs[(of[:, 0] == of[:, 1]) | (of == group[index]).any(1)]

    def named_tables(
        self, chosen: Any, max_tables: int, target: str | None = None
    ) -> tuple[Names, ...]:
        """Check 3-way marginals that a server named: columns (n, 3) in rising order, or
        pairs (n, 2) to which the `target` is added.
        Edges: more than `max_tables`, one twice, columns of three groups, or too many
        cells → MessageError.
        """
        last = () if target is None else (self.joint.names.index(target),)
        good = (
            isinstance(chosen, Tensor)
            and chosen.dtype == torch.int64
            and chosen.ndim == 2
        )
        good = (
            good
            and chosen.shape[1] == 3 - len(last)
            and bool((chosen.diff(dim=1) > 0).all())
        )
        good = good and bool(((chosen >= 0) & (chosen < self.columns)).all())
        rows = [(*row, *last) for row in chosen.tolist()] if good else []
        names = [
            (self.joint.names[a], self.joint.names[b], self.joint.names[c])
            for a, b, c in rows
        ]
        small = all(
            math.prod(self.sizes[column] for column in row) <= MOST_CELLS
            for row in rows
        )
        if (
            not good
            or not small
            or not len(set(names)) == len(names) <= max_tables
            or None in map(self.place, names)
        ):
            raise MessageError(
                f"at most {max_tables} different tables of three columns, in two "
                f"groups of holders or one, and of up to {MOST_CELLS:,} cells were "
                "due.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        return tuple(names)

    def place(self, names: Sequence[str]) -> Place | None:
        """Where the 3-way marginal of these columns is counted; None where they are in
        three groups, or unknown.
        """
        every = (
            (name, (g, n))
            for g, schema in enumerate(self.groups)
            for n, name in enumerate(schema.names)
        )
        positions = {name: at for name, at in every if name in names}
        groups = sorted({group for group, _ in positions.values()})
        if len(positions) != 3 or len(groups) > 2:
            return None
        return Place((groups[0], groups[-1]), tuple(positions[name] for name in names))

    def shape_of(self, place: Place) -> tuple[int, ...]:
        """The shape of a 3-way marginal."""
        return tuple(self.group_sizes[group][number] for group, number in place.columns)

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return tuple(accumulate(self._columns, initial=0))

    @cached_property
    def _columns(self) -> tuple[int, ...]:
        return tuple(len(schema.columns) for schema in self.groups)
