"""Numbers without declared bins: their fine cells are released first, and the levels that tables have follow from them.

By trees, as gram has them (`models/tables/trees.py`): of a column of people a person has one cell, of one of events the
average over those that count (`data/visits/counts.py`). Pairs are measured on few levels; what is drawn is finer.

Guarantee: a person's nodes in each layer of a tree are no less than 0 and add up to the unit at most, so that the
squares of all of a block's add up to its sensitivity squared. Which levels a server names changes neither that nor what
a person weighs in a table.
Edges: up to 64 whole numbers or days have a level each, and nothing is bought of them; no bounds → SchemaError.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.column import Binned
from understudy.data.encoding.fine import fine_schema
from understudy.data.schema import Schema
from understudy.data.visits import VisitCodes
from understudy.data.visits.counts import parts
from understudy.ground.errors import MessageError
from understudy.models.tables.merged_levels import level_count, merged_neighbours
from understudy.models.tables.trees import Trees, TreesRead
from understudy.protocols.joint.pricing import BlockSpec
from understudy.protocols.joint.stage import Stage

_DRAWN, _NEAR = 48, 5e-4  # bins that a column is drawn in, and how near to its fine table is near enough
_NEVER = -80.0  # log-odds of a bin with nobody in it


@dataclass(frozen=True)
class Rows:
    """A holder's people by their levels and fine cells, made when they are first counted, and its group."""

    group: int
    codes: Callable[[], VisitCodes]


@dataclass(frozen=True, eq=False)
class Bought:
    """A column whose levels are bought: as it is `declared`, as it is counted of "people" or "events" in some place of
    a group's, and with fine cells. `cuts`: those at which levels begin."""

    declared: str
    own: Binned
    fine: Binned
    group: int
    side: str
    place: int
    cuts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, dtype=np.int64))

    @cached_property
    def tree(self) -> Trees:
        return Trees(Schema(columns=(self.own,)), Schema(columns=(self.fine,)))

    @property
    def last(self) -> int:
        """No level begins at this cell, or after it: a schema has no bin of the upper bound alone."""
        return self.fine.levels - bool(self.own.bound_at(self.fine.edges[-2].item()) >= self.own.high)

    @property
    def bins(self) -> tuple[Any, ...]:
        return (self.own.low, *map(self.own.bound_at, self.fine.edges[self.cuts[1:]].tolist()), self.own.high)

    @cached_property
    def levels(self) -> NDArray[np.int64]:
        """Of every cell, and of the missing one."""
        return np.searchsorted(np.append(self.cuts, self.fine.levels), np.arange(self.fine.size), side="right") - 1

    def chosen(self, table: Tensor, noise: float, most: int) -> Tensor:
        """The cuts that a server names, by the fine table and the noise of a pair's cell."""
        held = table[: self.fine.levels]
        groups = merged_neighbours(held, level_count(float(held.sum()), noise, most))
        cuts = np.flatnonzero(np.diff(groups, prepend=-1))
        return torch.from_numpy(cuts[cuts < self.last])

    def finer(self, table: Tensor) -> "Bought":
        """With the bins in which numbers are drawn evenly: the one that is furthest from the fine table, in people or
        in how far these would be moved, is cut where that shows, again and again."""
        people, edges = table[: self.fine.levels].double().numpy(), self.fine.edges.astype(np.float64)
        below = np.append(0, np.cumsum(people)) / max(float(people.sum()), 1e-9)
        far = np.abs((edges[:-1] + edges[1:]) / 2 - np.interp(0.5, below, edges))
        spread = max(float(np.diff(below) @ far), 1e-300)

        def off(first: int, past: int) -> tuple[float, int, int, int]:
            at, held = edges[first : past + 1], below[first : past + 1]
            apart = np.abs(held - np.interp(at, at[[0, -1]], held[[0, -1]]))
            apart[max(self.last - first, 0) :] = 0
            moved = float((apart[:-1] + apart[1:]) @ np.diff(at)) / 2 / spread
            return max(float(apart.max()), moved * bool(apart.any())), first, past, first + int(apart.argmax())

        bins = [off(first, past) for first, past in pairwise([*self.cuts.tolist(), self.fine.levels])]
        while len(bins) < _DRAWN and max(bins)[0] > _NEAR:
            _, first, past, place = bins.pop(bins.index(max(bins)))
            bins += [off(first, place), off(place, past)]
        return replace(self, cuts=np.sort([first for _, first, _, _ in bins]))

    def parted(self, finer: "Bought", table: Tensor) -> tuple[Tensor, Tensor]:
        """Of each finer bin, and of the missing one, its level, and the logarithm of its share of that."""
        level = torch.from_numpy(self.levels[[*finer.cuts, *[self.fine.levels] * self.own.nullable]])
        held = torch.zeros(len(level), dtype=torch.float64).index_add_(
            0, torch.from_numpy(finer.levels), table.double()
        )
        whole = torch.zeros(len(level), dtype=torch.float64).index_add_(0, level, held)[level]
        return level, (held / whole.clamp(min=1e-300)).log().clamp(min=_NEVER)


def bought_columns(schemas: Iterable[Any]) -> dict[str, Bought]:
    """By the names under which they are counted; each group's schema has its columns."""
    found: dict[str, Bought] = {}
    for group, schema in enumerate(schemas):
        sides = {}
        if schema.kind == "visits":
            sides["people"] = schema.person_schema, schema.fine.person_schema
            sides["events"] = schema.event_schema, schema.fine.event_schema
        else:
            sides["people"] = schema, fine_schema(schema)
        for side, (own, fine) in sides.items():
            for place, (a, b) in enumerate(zip(own.columns, fine.columns, strict=True)):
                if isinstance(a, Binned) and not np.array_equal(a.edges, b.edges):
                    declared = a.name if a.name in schema.names else schema.time  # the time of a first event
                    found[a.name] = Bought(declared, replace(b, bins=None), b, group, side, place)
    return found


@dataclass(frozen=True, eq=False)
class FineCells(Stage[Rows]):
    """The trees of all columns whose levels are bought, a block each, in parts of a `unit`."""

    columns: Mapping[str, Bought]
    unit: int

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        found = {}
        for name, one in self.columns.items():
            moved, groups = one.tree.moved, (one.group, one.group)
            most = self.unit * math.sqrt(moved) * (1 + 2.0**-40)
            found[name] = BlockSpec(groups, (one.tree.nodes,), most, weight=float(moved))
        return found

    def count(self, rows: Rows) -> dict[str, Tensor]:
        codes = rows.codes()
        whole = np.full(len(codes.people), float(self.unit))
        weighed = {
            "people": (codes.people, whole),
            "events": (codes.events, parts(codes.order, codes.numbers[codes.owner], self.unit)),
        }
        sides = {name: (one, *weighed[one.side]) for name, one in self.columns.items() if one.group == rows.group}
        return {name: one.tree.count(cells[:, [one.place]], mass) for name, (one, cells, mass) in sides.items()}

    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> dict[str, Tensor]:
        """People by fine cell, and last those without a value, of every column."""
        found: dict[str, Tensor] = {}
        for whose in {(one.group, one.side) for one in self.columns.values()}:  # all have as many people
            own = {name: one.tree for name, one in self.columns.items() if (one.group, one.side) == whose}
            nodes, deviations = [sums[name].double() / self.unit for name in own], [noise[n] / self.unit for n in own]
            found |= zip(own, TreesRead.of([*own.values()], nodes, deviations, None).tables, strict=True)
        return found


def on_cuts(bought: Mapping[str, Bought], cuts: Any, most: int) -> dict[str, Bought]:
    """With levels as a server named them. Edges: any that the fine cells do not have, or too many → MessageError."""
    named = cuts if isinstance(cuts, Mapping) else {}
    for name, one in bought.items():
        own: Any = named.get(name)
        good = isinstance(own, Tensor) and own.dtype == torch.int64 and own.ndim == 1 and 1 <= len(own) <= most
        good = good and int(own[0]) == 0 and int(own[-1]) < one.last and bool((own.diff() > 0).all())
        if not good or named.keys() != bought.keys():
            raise MessageError(
                f"levels of {', '.join(bought)} were due, up to {most} of each, by the fine cell at which each begins. "
                "Nothing was charged or sent."
            )
    return {name: replace(one, cuts=named[name].numpy()) for name, one in bought.items()}


def on_levels(codes: VisitCodes, group: int, columns: Mapping[str, Bought]) -> VisitCodes:
    """A group's fine cells as levels."""
    if not (own := [one for one in columns.values() if one.group == group]):
        return codes
    sides = {"people": codes.people.copy(), "events": codes.events.copy()}
    for one in own:
        cells = sides[one.side]
        cells[:, one.place] = one.levels[cells[:, one.place]]
    return VisitCodes(sides["people"], sides["events"], codes.starts)
