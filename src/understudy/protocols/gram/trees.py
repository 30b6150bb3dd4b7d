"""All columns' fine tables as one release: what is counted of a holder's columns, and what the sums say.

A column whose levels are bought (`data.encoding.fine`) is counted as a tree of its fine cells, `FAN` children a node; a
long list of categories without order, and whatever has declared levels, by its cells alone. Those without a value are
one more node, and where a number's `ends` are bought (`data.encoding.fine`) each of these is one. All nodes of a
group's columns stand side by side, in one row of numbers.

Guarantee: a person moves one node by 1 in every layer of every column's tree, or the one of those without a value,
and one of each column's ends: `moved` of them at most.
Edges: the number of nodes follows from the public schema, and is bounded there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.column import Column, Real
from understudy.data.encoding.codec import Codec, Codes
from understudy.data.encoding.fine import FAN, cell_edges, end_cells, ends_of, is_bought, is_tree, spans
from understudy.data.encoding.levels import Levels
from understudy.data.schema import Schema
from understudy.models.tables.fine_tables import even_but_for_spikes, fine_table, layer_sizes, layers_of
from understudy.models.tables.merged_levels import bought_levels

_SPREAD = 2.0  # a level of many fine cells is known to about so many deviations of one count


@dataclass(frozen=True, eq=False)
class Trees:
    """The trees of one group's columns: `schema` as declared, `fine` with its fine cells."""

    schema: Schema
    fine: Schema

    @property
    def columns(self) -> list[tuple[Column, Column]]:
        """Each column as declared, and with its fine cells."""
        return list(zip(self.schema.columns, self.fine.columns, strict=True))

    @cached_property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """How many nodes the layers of each column's tree have, from the top."""
        return tuple(
            tuple(layer_sizes(fine.levels, FAN)) if is_tree(own) else (fine.levels,) for own, fine in self.columns
        )

    @cached_property
    def codec(self) -> Codec:
        return Codec(self.fine)

    @property
    def moved(self) -> int:
        """How many nodes a person moves, at most."""
        return sum(map(len, self.layers)) + len(self.ended)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many nodes each column has, with those without a value and ends."""
        each = zip(self.layers, self.columns, strict=True)
        return tuple(sum(layers) + fine.nullable + end_cells(own) for layers, (own, fine) in each)

    @property
    def nodes(self) -> int:
        return sum(self.sizes)

    @cached_property
    def ended(self) -> dict[int, Real]:
        """The columns whose ends are counted, by their places."""
        return {j: own for j, own in enumerate(self.schema.columns) if isinstance(own, Real) and end_cells(own)}

    def cells(self, frame: Any) -> Codes:
        """The fine cell of every value, (people, columns), and after these the ends of the columns that have them."""
        ends = [ends_of(own, frame[own.name]) for own in self.ended.values()]
        codes = self.codec.codes(frame)
        return np.column_stack([codes, *ends]) if ends else codes

    def count(self, cells: Codes) -> Tensor:
        """Every node's people, from `cells` of all of them: int64, (nodes,)."""
        ends = dict(zip(self.ended, cells.T[len(self.fine.columns) :], strict=True))
        counts = []
        for place, column in enumerate(self.fine.columns):
            leaves = torch.from_numpy(np.bincount(cells[:, place], minlength=column.size))
            fan = FAN if len(self.layers[place]) > 1 else column.levels
            counts += [*layers_of(leaves[: column.levels], fan), leaves[column.levels :]]
            if place in ends:
                size = end_cells(self.ended[place])
                counts.append(torch.from_numpy(np.bincount(ends[place], minlength=size)[:size]))
        return torch.cat(counts)

    def split(self, nodes: Tensor) -> list["Nodes"]:
        columns, start = [], 0
        for layers, (own, column) in zip(self.layers, self.columns, strict=True):
            sizes = [*layers, int(column.nullable), end_cells(own)]
            *parts, missing, ends = torch.split(nodes[start : (start := start + sum(sizes))], sizes)
            columns.append(Nodes(parts, missing if column.nullable else None, ends))
        return columns


@dataclass(frozen=True)
class Nodes:
    """One column's: the layers of its tree, those without a value where there may be some, and ends where counted."""

    layers: list[Tensor]
    missing: Tensor | None
    ends: Tensor


@dataclass(frozen=True)
class TreesRead:
    """What the trees of all groups say: the number of people, each column's fine table, and the noise of one count."""

    people: float
    tables: list[Tensor]
    noise: list[float]  # of each column's counts
    ends: dict[int, Tensor]  # people by end, of the columns that have them

    @classmethod
    def of(
        cls, trees: Sequence[Trees], sums: Sequence[Tensor], noise: Sequence[float], people: int | None
    ) -> "TreesRead":
        """From every group's nodes and the deviation of their noise; `people` where their number is known."""
        split = [group.split(nodes.double()) for group, nodes in zip(trees, sums, strict=True)]
        each = [(one, sigma) for columns, sigma in zip(split, noise, strict=True) for one in columns]
        total = float(people) if people is not None else max(1.0, _total(each))
        columns = [pair for group in trees for pair in group.columns]
        tables = [
            fine_table(
                nodes.layers,
                FAN,
                noise=sigma,
                missing=nodes.missing,
                total=total,
                ordered=len(nodes.layers) > 1,
                spans=torch.from_numpy(spans(fine)) if is_bought(own) else None,
                edges=torch.from_numpy(cell_edges(fine)),
            )
            for (nodes, sigma), (own, fine) in zip(each, columns, strict=True)
        ]
        ends = {
            j: even_but_for_spikes(nodes.ends, sigma, float(tables[j][: columns[j][1].levels].sum()))
            for j, (nodes, sigma) in enumerate(each)
            if len(nodes.ends)
        }
        return cls(total, tables, [sigma for _, sigma in each], ends)

    def levels(self, schema: Schema, pair_noise: float) -> Levels:
        """The levels that these tables and the noise of a pair's cells allow."""
        groups = bought_levels(schema.columns, self.tables, people=self.people, noise=pair_noise)
        ends = {j: table.numpy() for j, table in self.ends.items()}
        return Levels(schema, groups, [table.numpy() for table in self.tables], ends)

    def diagonal(self, levels: Levels) -> tuple[Tensor, Tensor]:
        """The people of each level, and the standard deviation of that: (width,)."""
        counts, spread = [], []
        for group, weights, sigma in zip(levels.groups, levels.weights, self.noise, strict=True):
            counts.append(torch.from_numpy(np.bincount(group, weights=weights)))
            cells = torch.from_numpy(np.bincount(group)).double()
            spread.append(sigma * cells.sqrt().clamp(max=_SPREAD))
        return torch.cat(counts), torch.cat(spread)


def _total(each: Sequence[tuple[Nodes, float]]) -> float:
    """The people by all top layers, each weighted by 1/variance."""
    sums, weights = [], []
    for nodes, sigma in each:
        top = nodes.layers[0] if nodes.missing is None else torch.cat([nodes.layers[0], nodes.missing])
        sums.append(float(top.sum()))
        weights.append(1 / (len(top) * max(sigma, 1e-9) ** 2))
    return math.fsum(s * w for s, w in zip(sums, weights, strict=True)) / math.fsum(weights)
