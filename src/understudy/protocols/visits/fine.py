"""Numbers without declared bins: their fine cells are released first, and the levels
that tables have follow from them.

By trees, as gram has them (`models/tables/trees.py`): of a column of people a person
has one cell, of one of events the average over those that count
(`data/visits/counts.py`). Pairs are measured on few levels; what is drawn is finer.
So are the number of events, and where the time has no bins the gaps between events:
these and people's columns, which tie people to their events, have fewer levels than
other columns of events (`means_count`).

Where numbers without bounds are is released before that, in public cells of all
numbers, as gram does it: of the time of events by all of these, of which a person's
first and the gaps between them follow.

Guarantee: a person's nodes in each layer of a tree are no less than 0 and add up to the
unit at most, so that the squares of all of a block's add up to its sensitivity squared.
Which bounds or levels a server names changes neither that nor what a person weighs in a
table.
Edges: up to 64 whole numbers or days have a level each, and nothing is bought of them
where bounds are declared.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.column import Binned, is_unbounded
from understudy.data.encoding.fine import LAYERS, Run, fine_schema, public_cells, within
from understudy.data.schema import Schema
from understudy.data.visits import VisitCodes
from understudy.data.visits.counts import parts
from understudy.ground.errors import Effect, MessageError
from understudy.models.tables.trees import Trees, TreesRead, runs_of
from understudy.protocols.joint.measurements import Measurements
from understudy.protocols.joint.pricing import BlockSpec
from understudy.protocols.joint.stage import Stage
from understudy.protocols.visits.columns import Split, grid_of

# bins that a column is drawn in, and how near to its fine table is near enough
_DRAWN = 48
_NEAR = 5e-4
_NEVER = -80.0  # log-odds of a bin with nobody in it
# levels of the number of events: so many stay as they are
_FEW_NUMBERS = 8
_FEWEST = 3  # levels of a column, whatever the noise
# of public cells in which numbers without bounds are, by column
Runs = tuple[tuple[str, Run], ...]


@dataclass(frozen=True)
class VisitRows:
    """A holder's people by their levels and fine cells, between bounds that were found,
    or by public cells before that, made when they are first counted; and its group.
    """

    group: int
    codes: Callable[[Runs | None], VisitCodes]

    def levels(
        self,
        runs: Runs | None,
        columns: Mapping[str, "Bought"],
        some: slice = slice(None),
    ) -> VisitCodes:
        """With the levels of these columns, of some of the people."""
        codes = self.codes(runs)
        codes = (
            codes
            if some == slice(None)
            else codes.take(np.arange(some.start, some.stop))
        )
        local = [one for one in columns.values() if one.group == self.group]
        if local:
            codes = VisitCodes(codes.people.copy(), codes.events.copy(), codes.starts)
        for one in local:
            cells = codes.people if one.side == "people" else codes.events
            cells[:, one.place] = one.levels[cells[:, one.place]]
        return codes


@dataclass(frozen=True, eq=False)
class Bought:
    """A column whose levels are bought: as it is `declared`, as it is counted of
    "people" or "events" in some place of a group's, and with fine cells. `cuts`: those
    at which levels begin.
    """

    declared: str
    own: Binned
    fine: Binned
    group: int
    side: str
    place: int
    cuts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    counts_events: bool = False  # whose first level is none of them
    is_gap: bool = False  # between two events

    @cached_property
    def tree(self) -> Trees:
        paid = 1 if self.own is self.fine else LAYERS  # public cells are one layer
        return Trees(
            Schema(columns=(self.own,)),
            Schema(columns=(self.fine,)),
            paid=paid,
        )

    @property
    def last(self) -> int:
        """No level begins at this cell, or after it: a schema has no bin of the upper
        bound alone.
        """
        return self.fine.levels - bool(
            self.own.bound_at(self.fine.edges[-2].item()) >= self.own.high
        )

    @property
    def bins(self) -> tuple[Any, ...]:
        return (
            self.own.low,
            *map(self.own.bound_at, self.fine.edges[self.cuts[1:]].tolist()),
            self.own.high,
        )

    @cached_property
    def levels(self) -> NDArray[np.int64]:
        """Of every cell, and of the missing one."""
        return (
            np.searchsorted(
                np.append(self.cuts, self.fine.levels),
                np.arange(self.fine.size),
                side="right",
            )
            - 1
        )

    def level_count(self, people: float, noise: float, most: int) -> int:
        """How many levels a server cuts it into: fewer of what ties people to their
        events, by the means of one column given another, than of what else an event
        has, whose pairs are to tell all levels apart.
        """
        from understudy.models.tables.merged_levels import level_count

        ties = self.side == "people" or self.is_gap
        count = means_count if ties else level_count
        return count(people, noise, most)

    def chosen(
        self,
        table: Tensor,
        noise: float,
        max_levels: int,
    ) -> Tensor:
        """The cuts that a server names, by the fine table and the noise of a pair's
        cell.
        """
        from understudy.models.tables.merged_levels import merged_neighbours

        cells = table[: self.fine.levels]
        first = int(self.counts_events)
        some = cells[first:]
        levels = self.level_count(float(some.sum()), noise, max_levels - first)
        groups = merged_neighbours(some, levels)
        cuts = first + np.flatnonzero(np.diff(groups, prepend=-1))
        cuts = np.union1d(cuts, 0)
        return torch.from_numpy(cuts[cuts < self.last])

    def finer(self, table: Tensor) -> "Bought":
        """With the bins in which numbers are drawn evenly: the one that is furthest
        from the fine table, in people or in how far these would be moved, is cut where
        that shows, again and again.
        """
        people = table[: self.fine.levels].double().numpy()
        edges = self.fine.edges.astype(np.float64)
        below = np.append(0, np.cumsum(people)) / max(float(people.sum()), 1e-9)
        far = np.abs((edges[:-1] + edges[1:]) / 2 - np.interp(0.5, below, edges))
        spread = max(float(np.diff(below) @ far), 1e-300)

        def off(first: int, past: int) -> tuple[float, int, int, int]:
            at = edges[first : past + 1]
            cumulative = below[first : past + 1]
            distance = np.abs(
                cumulative - np.interp(at, at[[0, -1]], cumulative[[0, -1]])
            )
            distance[max(self.last - first, 0) :] = 0
            moved = float((distance[:-1] + distance[1:]) @ np.diff(at)) / 2 / spread
            return (
                max(float(distance.max()), moved * bool(distance.any())),
                first,
                past,
                first + int(distance.argmax()),
            )

        bins = [
            off(first, past)
            for first, past in pairwise([*self.cuts.tolist(), self.fine.levels])
        ]
        while len(bins) < _DRAWN and max(bins)[0] > _NEAR:
            _, first, past, cut = bins.pop(bins.index(max(bins)))
            bins += [off(first, cut), off(cut, past)]
        return replace(self, cuts=np.sort([first for _, first, _, _ in bins]))

    def parted(self, finer: "Bought", table: Tensor) -> tuple[Tensor, Tensor]:
        """Of each finer bin, and of the missing one, its level, and the logarithm of
        its share of that.
        """
        level = torch.from_numpy(
            self.levels[[*finer.cuts, *[self.fine.levels] * self.own.nullable]]
        )
        in_bins = torch.bincount(
            torch.from_numpy(finer.levels),
            table.double(),
            len(level),
        )
        whole = torch.bincount(level, in_bins, len(level))[level]
        return level, (in_bins / whole.clamp(min=1e-300)).log().clamp(min=_NEVER)


@dataclass(frozen=True, eq=False)
class Within:
    """What all schemas describe, as they were `announced`, with bounds in every column:
    those that were found, or, before that, the widest.
    """

    announced: Mapping[str, Any]
    runs: Runs | None = None

    @cached_property
    def schemas(self) -> dict[str, Any]:
        runs = None if self.runs is None else dict(self.runs)
        return {
            n: within(schema, runs) if schema.kind == "table" else schema.within(runs)
            for n, schema in self.announced.items()
        }

    def on_bins(self, bought: Mapping[str, Bought]) -> Split:
        """With the bins of these columns."""
        bins = {one.declared: one.bins for one in bought.values()}
        return Split.from_schemas(
            {name: schema.binned(bins) for name, schema in self.schemas.items()}
        )

    @cached_property
    def public(self) -> dict[str, Bought]:
        """Columns without bounds, by the public cells of all numbers; the time is one
        of events.
        """
        free = (
            one
            for one in _counted(self.announced)
            if is_unbounded(one[1]) and one[1].name in one[0].names
        )
        return {
            column.name: Bought(column.name, fine, fine, *at)
            for _, column, fine, at in free
        }

    @cached_property
    def bought(self) -> dict[str, Bought]:
        """Columns whose levels are bought, by the names under which they are
        counted.
        """
        bought: dict[str, Bought] = {}
        for schema, column, fine, at in _counted(self.schemas):
            time = getattr(schema, "time", None)
            if _counts_events(schema, column):
                bought[column.name] = Bought(
                    column.name,
                    fine,
                    fine,
                    *at,
                    counts_events=True,
                )
                continue
            declared = str(time) if column.name == f"first_{time}" else column.name
            if column.name != time and (
                declared in self.public or not np.array_equal(column.edges, fine.edges)
            ):
                bought[column.name] = Bought(
                    declared,
                    replace(fine, bins=None),
                    fine,
                    *at,
                    is_gap=column.name == f"{time}_gap",
                )
        return bought


def means_count(people: float, noise: float, most: int) -> int:
    """Into how many levels of about equal people a column is cut whose pairs are to
    tell how the mean of one column goes with the other.

    With L levels of each column noise σ on a cell moves a correlation ρ by σL/n, and
    what differs within levels takes about 2ρ/L² off it. The sum of both is the least
    for L = ∛(4ρn/σ), which is ∛(n/σ) for a ρ of ¼. Cells as large as their noise, as
    of √(n/σ) levels (`models/tables/merged_levels`), would be two to three times as
    many levels, and a mean is a sum over all of them (benchmarks/visits: numbers and
    gaps by age are half as far off).
    """
    if not noise > 0:
        return most
    levels = round(math.cbrt(max(people, 1.0) / noise))
    return min(max(_FEWEST, levels), most)


def _counts_events(schema: Any, column: Binned) -> bool:
    """Whether it is the number of events, with levels to choose from: these follow from
    a release where those of other columns do.
    """
    return (
        schema.kind == "visits"
        and column.name == schema.person_schema.names[-1]
        and schema.numbers is None
        and schema.has_bought
        and column.levels > _FEW_NUMBERS
    )


def _counted(
    schemas: Mapping[str, Any],
) -> Iterator[tuple[Any, Binned, Binned, tuple[int, str, int]]]:
    """Numbers, days and times of each group of holders: its schema, the column and its
    fine cells; the group, the side, and the place there, the time of events last.
    """
    for group, schema in enumerate(grid_of(schemas).one_each(schemas).values()):
        if schema.kind == "table":
            sides = {
                "people": (schema.columns, fine_schema(public_cells(schema)).columns)
            }
        else:
            sides = {
                "people": (
                    schema.person_schema.columns,
                    schema.fine.person_schema.columns,
                )
            }
            sides["events"] = schema.event_columns, schema.fine.event_columns
        for side, columns in sides.items():
            for number, (column, fine) in enumerate(zip(*columns, strict=True)):
                if isinstance(column, Binned) and isinstance(fine, Binned):
                    yield schema, column, fine, (group, side, number)


def nodes_moved(columns: Mapping[str, Bought]) -> int:
    """How many nodes of all trees a person moves."""
    return sum(one.tree.moved for one in columns.values())


@dataclass(frozen=True, eq=False)
class FineCells(Stage[VisitRows]):
    """The trees of all columns whose levels are bought, or the public cells of those
    without bounds, a block each, in parts of a `unit`.
    """

    columns: Mapping[str, Bought]
    unit: int
    within: Within

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        blocks = {}
        for name, one in self.columns.items():
            moved = one.tree.moved
            groups = (one.group, one.group)
            sensitivity = self.unit * math.sqrt(moved) * (1 + 2.0**-40)
            blocks[name] = BlockSpec(
                groups,
                (one.tree.nodes,),
                sensitivity,
                weight=float(moved),
            )
        return blocks

    def count(self, rows: VisitRows) -> dict[str, Tensor]:
        codes = rows.codes(self.within.runs)
        weighed = {
            "people": (codes.people, np.full(len(codes.people), float(self.unit))),
            "events": (
                codes.events,
                parts(codes.order, codes.numbers[codes.owner], self.unit),
            ),
        }
        sides = {
            name: (one, *weighed[one.side])
            for name, one in self.columns.items()
            if one.group == rows.group
        }
        return {
            name: one.tree.count(cells[:, [one.place]], mass)
            for name, (one, cells, mass) in sides.items()
        }

    def read(
        self,
        sums: Mapping[str, Tensor],
        noise: Mapping[str, float],
    ) -> dict[str, tuple[Tensor, float]]:
        """Every column's nodes, in people, and the deviation of their noise."""
        return {
            name: (sums[name].double() / self.unit, noise[name] / self.unit)
            for name in self.columns
        }

    def on_cuts(self, cuts: Any, max_levels: int) -> dict[str, Bought]:
        """With levels as a server named them. Edges: any that the cells do not have, or
        too many → MessageError.
        """
        announced = cuts if isinstance(cuts, Mapping) else {}
        for name, one in self.columns.items():
            starts: Any = announced.get(name)
            good = (
                isinstance(starts, Tensor)
                and starts.dtype == torch.int64
                and starts.ndim == 1
                and 1 <= len(starts) <= max_levels
            )
            good = (
                good
                and int(starts[0]) == 0
                and int(starts[-1]) < one.last
                and bool((starts.diff() > 0).all())
                and (not one.counts_events or starts[:2].tolist() == [0, 1])
            )
            if not good or announced.keys() != self.columns.keys():
                raise MessageError(
                    f"levels of {', '.join(self.columns)} were due, up to "
                    f"{max_levels} of each, by the fine cell at which each begins.",
                    effect=Effect.NOTHING_CHARGED_OR_SENT,
                )
        return {
            name: replace(one, cuts=announced[name].numpy())
            for name, one in self.columns.items()
        }


def runs_found(measurements: Measurements) -> Tensor:
    """In which run of public cells the people of each column without bounds are:
    (columns, 2).
    """
    columns = measurements.stage("reach").columns  # type: ignore[attr-defined]
    runs: dict[str, Tensor] = {}
    for names, trees, nodes, noise in _alike(columns, measurements["reach"]):
        runs |= zip(names, runs_of(trees, nodes, noise, None), strict=True)
    return torch.stack([runs[name] for name in columns])


def fine_tables(measurements: Measurements) -> dict[str, Tensor]:
    """People by fine cell, and last those without a value, of every column: also by
    what public cells said of it.
    """
    return measurements.once("fine tables", lambda: _fine_tables(measurements))  # type: ignore[no-any-return]


def _fine_tables(measurements: Measurements) -> dict[str, Tensor]:
    from understudy.models.tables.ordered_counts import Counted

    stage = cast(FineCells, measurements.stage("fine"))
    tables = dict[str, Tensor]()
    also = dict[str, Counted]()
    for name, (first, last) in stage.within.runs or ():
        if name in stage.columns:  # not of the time, of which each person's first is
            counts, noise = measurements["reach"][name]
            fine = stage.columns[name].fine
            edges = stage.within.public[name].fine.edges[first + 1 : last + 1]
            positions = np.concatenate(
                [
                    [0],
                    np.searchsorted(fine.edges, edges).clip(max=fine.levels),
                    [fine.levels],
                ]
            )
            also[name] = Counted(
                torch.from_numpy(positions),
                counts[first : last + 1],
                noise,
            )
    for names, trees, nodes, noises in _alike(stage.columns, measurements["fine"]):
        more = {index: [also[name]] for index, name in enumerate(names) if name in also}
        tables |= zip(
            names,
            TreesRead.from_sums(
                trees,
                nodes,
                noises,
                None,
                more,
            ).tables,
            strict=True,
        )
    return tables


def _alike(
    columns: Mapping[str, Bought],
    read: Mapping[str, tuple[Tensor, float]],
) -> Iterator[tuple[list[str], list[Trees], list[Tensor], list[float]]]:
    """The columns that have as many people, their trees, what was counted, and the
    deviation of its noise.
    """
    for whose in {(one.group, one.side) for one in columns.values()}:
        names = [
            name for name, one in columns.items() if (one.group, one.side) == whose
        ]
        yield (
            names,
            [columns[n].tree for n in names],
            [read[n][0] for n in names],
            [read[n][1] for n in names],
        )
