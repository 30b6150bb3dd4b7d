"""Hierarchical histograms of all columns: what a holder counts, as one release, and
what the noisy counts say.

A column whose levels are bought (`data.encoding.fine`) is counted at every node of a
tree over its fine cells, `FAN` children a node. A long list of categories without
order, and a column with declared levels, is counted by its cells alone. Missing values
are a node of their own, and so are the ends of a number's range where these are bought.
Where bounds were found by an earlier release, the price was agreed on before: all
`LAYERS` are paid for. A tree with fewer is counted again as often as that pays for,
each time under fresh noise.

`Trees` is the holder's side; `TreesRead` reads the noisy counts (`fine_tables`) into
histograms and levels.

Source: Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially private
histograms through consistency" (VLDB 2010), the queries H of §4.
Differs from the paper: all columns share one release; 16 children a node, not 2.
Guarantee: a person moves one node by 1 in every layer of every column's tree, each time
that it is counted (or the node of missing values), and one of each column's ends:
`moved` nodes at most, out of as many as the schema allows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.column import Binned, Column, Integer, Real
from understudy.data.encoding import fine as grid
from understudy.data.encoding.codec import Codec, Codes, Levels
from understudy.data.encoding.support import likely_run
from understudy.data.encoding.values import codes_of
from understudy.data.schema import Schema
from understudy.ground.errors import Effect, MessageError
from understudy.models.simplex import to_simplex
from understudy.models.tables.evidence import CLEAR
from understudy.models.tables.ordered_counts import Counted, layer_sizes, layers_of


@dataclass(frozen=True)
class RunThresholds:
    """What `runs_of` believes of noisy counts; in deviations of one, where nothing else
    is said.

    strong: a run of cells that is believed anywhere. usual: with fewer, numbers are
    looked for between 1/usual and usual, where those of most columns are (bytes and
    microseconds are not). apart, far_apart: a cell that stands out by itself; among the
    25 cells of usual numbers noise alone is so high in one column of 10,000, and among
    hundreds of others, where one cell may be 10²⁰⁰ away, in one of 10⁶. few: with fewer
    in the last cell some people may be in the next one, where `next_people` would be in
    it if counts fall by as much again.
    """

    strong: float = 4.0
    usual: float = 4096.0
    apart: float = 4.5
    far_apart: float = 6.0
    few: float = 5.0
    next_people: float = 0.25


RUNS = RunThresholds()


@dataclass(frozen=True, eq=False)
class Trees:
    """The trees of one group's columns: `schema` as declared, `fine` with its fine
    cells.

    `found`: columns whose cells follow from a release before this one. Of each, `paid`
    layers are paid for, and where bounds were found, numbers may lie outside of them.
    """

    schema: Schema
    fine: Schema
    found: frozenset[str] = frozenset()
    paid: int = grid.LAYERS

    @property
    def columns(self) -> list[tuple[Column, Column]]:
        """Each column as declared, and with its fine cells."""
        return list(zip(self.schema.columns, self.fine.columns, strict=True))

    @cached_property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """How many nodes the layers of each column's tree have, from the top."""
        layers = []
        for declared, fine in self.columns:
            if self.paid > 1 and grid.is_tree(declared):
                layers.append(tuple(layer_sizes(fine.levels, grid.FAN)))
            else:
                layers.append((fine.levels,))
        return tuple(layers)

    @property
    def moved(self) -> int:
        """How many nodes a person moves by 1, at most: the squared sensitivity."""
        layers = zip(self._paid_layers, self.layers, strict=True)
        return sum(
            max(paid, len(column_layers)) for paid, column_layers in layers
        ) + len(self.ended)

    @property
    def _paid_layers(self) -> list[int]:
        """How many layers of each column were paid for before their number was
        known.
        """
        return [self.paid if name in self.found else 0 for name in self.schema.names]

    @cached_property
    def times(self) -> tuple[int, ...]:
        """How often each column's tree is counted, each time under fresh noise."""
        layers = zip(self._paid_layers, self.layers, strict=True)
        return tuple(
            max(1, paid // len(column_layers)) for paid, column_layers in layers
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many nodes each column has, with those without a value and ends."""
        sizes = []
        each = zip(self.layers, self.times, self.columns, strict=True)
        for layers, times, (declared, fine) in each:
            once = sum(layers) + fine.nullable
            sizes.append(once * times + grid.end_cells(declared))
        return tuple(sizes)

    @property
    def nodes(self) -> int:
        return sum(self.sizes)

    @cached_property
    def ended(self) -> dict[int, Real]:
        """The columns whose ends are counted, by their places."""
        return {
            j: declared
            for j, declared in enumerate(self.schema.columns)
            if isinstance(declared, Real) and grid.end_cells(declared)
        }

    def cells(self, frame: Any) -> Codes:
        """The fine cell of every value, (people, columns), and after these the ends of
        the columns that have them.
        """
        ends = [
            grid.ends_of(declared, frame[declared.name])
            for declared in self.ended.values()
        ]
        codes = np.stack([self._codes(column, frame) for column in self.fine.columns])
        return np.column_stack([codes.T, *ends]) if ends else codes.T

    def _codes(self, column: Column, frame: Any) -> Codes:
        """The fine cells of one column; of numbers outside of bounds that were found,
        the first or the last.
        """
        if isinstance(column, Binned) and column.name in self.found:
            return codes_of(column, grid.clipped(column, frame[column.name]))
        return Codec(self.fine.select([column.name])).codes(frame)[:, 0]

    def count(self, cells: Codes, weights: NDArray[np.float64] | None = None) -> Tensor:
        """Every node's people, from `cells` of all of them, or what these weigh in
        whole numbers: int64, (nodes,).
        """
        ends = dict(zip(self.ended, cells.T[len(self.fine.columns) :], strict=True))
        counts = []
        for index, column in enumerate(self.fine.columns):
            cell_counts = np.bincount(cells[:, index], weights, minlength=column.size)
            leaves = torch.from_numpy(cell_counts.astype(np.int64, copy=False))
            fan = grid.FAN if len(self.layers[index]) > 1 else column.levels
            layers = layers_of(leaves[: column.levels], fan)
            missing = leaves[column.levels :]
            counts += [*layers, missing] * self.times[index]
            if index in ends:
                size = grid.end_cells(self.ended[index])
                at_ends = np.bincount(ends[index], minlength=size)
                counts.append(torch.from_numpy(at_ends[:size]))
        return torch.cat(counts)

    def split(self, nodes: Tensor) -> list["Nodes"]:
        """Every column's; of what was counted several times, the mean."""
        columns = []
        start = 0
        each = zip(self.layers, self.times, self.columns, strict=True)
        for layers, times, (declared, column) in each:
            sizes = [*layers, int(column.nullable)]
            middle = start + times * sum(sizes)
            again = nodes[start:middle].view(times, -1)
            mean = again.double().mean(0) if times > 1 else again[0]
            *parts, missing = torch.split(mean, sizes)
            ends = nodes[middle : middle + grid.end_cells(declared)]
            start = middle + len(ends)
            columns.append(
                Nodes(parts, missing if column.nullable else None, ends, times)
            )
        return columns


@dataclass(frozen=True)
class Nodes:
    """One column's: the layers of its tree, those without a value where there may be
    some, and ends where counted.
    """

    layers: list[Tensor]
    missing: Tensor | None
    ends: Tensor
    times: int = 1  # how often layers were counted

    @property
    def in_a_row(self) -> Tensor:
        """All of it in a row, in whole numbers: of what was counted several times, the
        mean.
        """
        missing = [] if self.missing is None else [self.missing]
        return torch.cat([*self.layers, *missing, self.ends]).round().to(torch.int64)


@dataclass(frozen=True)
class TreesRead:
    """What the trees of all groups say: the number of people, each column's fine table,
    and the noise of one count.
    """

    people: float
    tables: list[Tensor]
    noise: list[float]  # of each column's counts
    ends: dict[int, Tensor]  # people by end, of the columns that have them
    in_a_row: list[Tensor]  # each column's nodes
    # of a union, by column: which part of its holder's people is at both holders
    shared: Sequence[float] = ()

    @classmethod
    def of_each(
        cls,
        trees: Sequence[Trees],
        sums: Sequence[Tensor],
        noise: Sequence[float],
        people: float,
        also: Mapping[int, Sequence[Counted]] | None = None,
    ) -> "TreesRead":
        """The same where each of two groups has people of its own, and both together
        about so many. Tables are of a group's own people; `people` are those at both
        groups, of whom levels have to be clear.
        """
        reads = []
        first = 0
        for group, nodes, sigma in zip(trees, sums, noise, strict=True):
            columns = range(first, first + len(group.columns))
            further_counts = {j - first: (also or {}).get(j, ()) for j in columns}
            reads.append(
                cls.from_sums(
                    [group],
                    [nodes],
                    [sigma],
                    None,
                    further_counts,
                )
            )
            first += len(columns)
        one, other = reads
        shared = one.people + other.people - people
        shared = max(1.0, min(shared, one.people, other.people))
        behind = len(one.tables)
        return cls(
            shared,
            one.tables + other.tables,
            one.noise + other.noise,
            one.ends | {behind + j: ends for j, ends in other.ends.items()},
            one.in_a_row + other.in_a_row,
            [shared / read.people for read in reads for _ in read.tables],
        )

    @classmethod
    def from_sums(
        cls,
        trees: Sequence[Trees],
        sums: Sequence[Tensor],
        noise: Sequence[float],
        people: int | None,
        also: Mapping[int, Sequence[Counted]] | None = None,
    ) -> "TreesRead":
        """From every group's nodes and the deviation of their noise; `people` where
        their number is known; `also` what else was counted, by column.
        """
        # holders count trees, and do not read them
        from understudy.models.tables.fine_tables import Tree, fine_tables

        columns = [pair for group in trees for pair in group.columns]
        is_tree = [grid.is_tree(declared) for declared, _ in columns]
        nodes = []
        deviations = []
        for group, summed, sigma in zip(trees, sums, noise, strict=True):
            for one in group.split(summed.double()):
                nodes.append(one)
                deviations.append(sigma / math.sqrt(one.times))
        each = list(zip(nodes, deviations, strict=True))
        total, sure = _total(each, is_tree, people)
        read = []
        for j, (declared, fine) in enumerate(columns):
            read.append(
                Tree(
                    nodes[j].layers,
                    grid.FAN,
                    deviations[j],
                    nodes[j].missing,
                    total,
                    sure,
                    ordered=is_tree[j],
                    listed=grid.is_bought(declared) and not is_tree[j],
                    edges=torch.from_numpy(grid.cell_edges(fine)),
                    also=(also or {}).get(j, ()),
                )
            )
        tables = fine_tables(read)
        ends = {}
        for j, (one, sigma) in enumerate(each):
            if len(one.ends):
                levels = columns[j][1].levels
                people_there = float(tables[j][:levels].sum())
                counted_once = sigma * math.sqrt(one.times)
                ends[j] = _even_but_for_spikes(one.ends, counted_once, people_there)
        in_a_row = [one.in_a_row for one in nodes]
        return cls(
            total,
            tables,
            deviations,
            ends,
            in_a_row,
        )

    def levels(self, schema: Schema, pair_noise: float) -> Levels:
        """The levels that these tables and the noise of a pair's cells allow."""
        # holders do not merge them, but name them as they are told
        from understudy.models.tables.merged_levels import bought_levels

        tables = self.tables
        if self.shared:
            shares = zip(tables, self.shared, strict=True)
            tables = [table * share for table, share in shares]
        groups = bought_levels(
            schema.columns,
            tables,
            people=self.people,
            noise=pair_noise,
        )
        ends = {j: table.numpy() for j, table in self.ends.items()}
        weights = [table.numpy() for table in self.tables]
        return Levels(schema, groups, weights, ends)

    def diagonal(self, levels: Levels) -> tuple[Tensor, Tensor]:
        """The people of each level, and the standard deviation of that: (width,)."""
        counts = []
        spread = []
        each = zip(levels.groups, levels.weights, self.noise, strict=True)
        for group, weights, sigma in each:
            counts.append(torch.from_numpy(np.bincount(group, weights=weights)))
            cells = torch.from_numpy(np.bincount(group)).double()
            # a level of many fine cells is known to about two deviations of one count
            spread.append(sigma * cells.sqrt().clamp(max=2.0))
        return torch.cat(counts), torch.cat(spread)


def levels_counted(
    levels: Levels,
    counts: Tensor,
    deviations: Tensor,
) -> dict[int, list[Counted]]:
    """What was counted of the levels of ordered columns, by column; `counts` and their
    `deviations` are (width,).
    """
    counted = {}
    start = 0
    each = zip(levels.schema.columns, levels.groups, levels.sizes, strict=True)
    for index, (column, group, size) in enumerate(each):
        n_levels = size - column.nullable
        column_levels = slice(start, start + n_levels)
        start = start + size
        is_heard = bool(deviations[column_levels].isfinite().all())
        if is_heard and grid.is_tree(column):
            cells = group[: len(group) - column.nullable]
            begins = np.searchsorted(cells, np.arange(n_levels + 1))
            counted[index] = [
                Counted(
                    torch.from_numpy(begins),
                    counts[column_levels].cpu(),
                    deviations[column_levels].cpu(),
                )
            ]
    return counted


def runs_of(
    tops: Sequence[Trees],
    sums: Sequence[Tensor],
    noise: Sequence[float],
    people: int | None,
    thresholds: RunThresholds = RUNS,
) -> Tensor:
    """The run of public cells in which each column's people are, by every group's
    counts of them: (columns, 2).

    A cell that stands out by itself, as −200 for a gap does, belongs to it however many
    empty ones lie between. Where the last one holds few, and nearly as many as the one
    before, some may be in the next: that belongs to it. Noise is anywhere: a run that
    hardly shows is looked for where numbers usually are, and nobody's number is zero.
    """
    each = []
    for group, nodes, sigma in zip(tops, sums, noise, strict=True):
        each += [(one, sigma) for one in group.split(nodes.double())]
    total = _total(each, [True] * len(each), people)
    columns = [column for group in tops for column in group.fine.columns]
    runs = [
        _run_of(
            column,
            nodes,
            sigma,
            total,
            thresholds,
        )
        for column, (nodes, sigma) in zip(columns, each, strict=True)
    ]
    return torch.tensor(runs)


def _run_of(
    column: Column,
    nodes: Nodes,
    noise: float,
    people: tuple[float, float],
    thresholds: RunThresholds,
) -> grid.Run:
    """The first and the last cell of one column's run; `people`: their number, and the
    deviation of that.
    """
    counts = nodes.layers[0]
    total, sure = people
    lower = torch.from_numpy(grid.cell_edges(column)[:-1])
    usual = torch.zeros(len(counts), dtype=torch.bool)
    near = ~usual
    first, last = likely_run(
        counts,
        nodes.missing,
        noise,
        total,
        sure,
    )
    if isinstance(column, Integer | Real):
        usual = _is_between(lower, thresholds.usual, thresholds.usual)
        within = counts[first : last + 1]
        weak = thresholds.strong * noise * math.sqrt(len(within))
        if float(within.sum()) < weak:
            usual_counts = torch.where(usual, counts, 0)
            first, last = likely_run(
                usual_counts,
                nodes.missing,
                noise,
                total,
                sure,
            )
        widest = float(lower[[first, last]].abs().max())
        near = _is_between(lower, thresholds.usual, max(thresholds.usual, widest))

    first -= _more_cells(counts.flip(0), near.flip(0), len(counts) - first, noise)
    last += _more_cells(counts, near, last + 1, noise)
    alone = torch.where(usual, thresholds.apart, thresholds.far_apart)
    apart = torch.nonzero(counts > alone * max(noise, 1e-9))[:, 0].tolist()
    if apart:
        first = min(first, apart[0])
        last = max(last, apart[-1])
    if nodes.missing is not None and total - float(nodes.missing) < 2 * noise:
        first = last = int((lower <= 0).sum()) - 1

    before, end = counts[[max(last - 1, 0), last]].tolist()
    is_small = end < min(thresholds.few * noise, 2 * before)
    goes_on = end**2 > thresholds.next_people * noise * before
    if is_small and goes_on and last + 1 < len(counts):
        last += 1
    return first, last


def _is_between(
    numbers: Tensor,
    least: float,
    most: float,
) -> Tensor:
    """Which numbers are 0, or between 1/least and most but for their sign."""
    size = numbers.abs()
    return (size <= most) & ((numbers == 0) | (size > 1 / least))


def _more_cells(
    counts: Tensor,
    near: Tensor,
    start: int,
    noise: float,
) -> int:
    """How many cells from `start` on belong to a run, too: those whose people stand out
    together, though no single cell does. Cells that are not `near` count for nothing.
    """
    people = torch.where(near, counts, 0)[start:].cumsum(0)
    cells = near[start:].cumsum(0).clamp(min=1)
    strength = people / (max(noise, 1e-9) * cells.sqrt())
    if not len(strength) or float(strength.max()) < CLEAR:
        return 0
    return int(strength.argmax()) + 1


def named_runs(cells: Mapping[str, int], runs: Any) -> dict[str, grid.Run]:
    """Runs of public cells, of which columns without bounds have so many, as a server
    named them: (columns, 2).
    Edges: a run of cells that there are not, or of fewer than one → MessageError.
    """
    if not _are_runs(runs, [*cells.values()]):
        raise MessageError(
            f"runs of public cells of {len(cells)} columns were due.",
            effect=Effect.NOTHING_CHARGED_OR_SENT,
        )
    named = zip(cells, runs.tolist(), strict=True)
    return {name: (first, last) for name, (first, last) in named}


def _are_runs(runs: Any, cells: Sequence[int]) -> bool:
    """Whether these are a first and a last of so many cells for each column."""
    if not isinstance(runs, Tensor) or runs.dtype != torch.int64:
        return False
    if runs.shape != (len(cells), 2):
        return False
    first, last = runs.T
    is_rising = (first >= 0) & (first <= last)
    return bool((is_rising & (last < torch.tensor(cells))).all())


def _total(
    each: Sequence[tuple[Nodes, float]],
    ordered: Sequence[bool],
    people: int | None,
    looks: int = 3,
) -> tuple[float, float]:
    """The people by all top layers, each weighted by 1/variance, and the deviation of
    that: of ordered ones by the cells in which people are likely to be, since noise
    adds up in empty ones. `people`: where their number is known.
    """
    if people is not None:
        return float(people), 0.0
    runs = [(0, len(nodes.layers[0]) - 1) for nodes, _ in each]
    total, sure = _total_within(each, runs)
    for _ in range(looks - 1):
        for place, (nodes, sigma) in enumerate(each):
            if ordered[place]:
                top = nodes.layers[0]
                runs[place] = likely_run(
                    top,
                    nodes.missing,
                    sigma,
                    total,
                    sure,
                )
        total, sure = _total_within(each, runs)
    return total, sure


def _total_within(
    each: Sequence[tuple[Nodes, float]],
    runs: Sequence[grid.Run],
) -> tuple[float, float]:
    """The people by the top layers' cells in these runs, and the deviation of that."""
    sums = []
    weights = []
    for (nodes, sigma), (first, last) in zip(each, runs, strict=True):
        top = nodes.layers[0][first : last + 1]
        if nodes.missing is not None:
            top = torch.cat([top, nodes.missing])
        weight = 1 / (len(top) * max(sigma, 1e-9) ** 2)
        sums.append(float(top.sum()) * weight)
        weights.append(weight)
    known = math.fsum(weights)
    return max(1.0, math.fsum(sums) / known), known**-0.5


def _even_but_for_spikes(counts: Tensor, noise: float, people: float) -> Tensor:
    """One table with so many people: what stands out as counted, the rest drawn to even
    as far as noise explains.
    """
    counted = counts.double()
    is_other = torch.ones_like(counts, dtype=torch.bool)

    def apart() -> Tensor:
        """How far others lie from their mean."""
        mean = counted[is_other].sum() / is_other.sum().clamp(min=1)
        return torch.where(is_other, counted - mean, 0)

    for _ in range(3):
        is_other = is_other & (apart() <= CLEAR * noise)
    beside = apart()
    others = int(is_other.sum())
    squares = beside.square().sum().clamp(min=1e-9)
    by_noise = noise**2 * max(others - 1, 0) / squares
    drawn = counted - beside * by_noise.clamp(max=1)
    total = counted.new_tensor([max(people, 0.0)])
    each_more = (total - drawn.sum()) / max(others, 1)
    filled = torch.where(is_other, drawn + each_more, drawn)
    return to_simplex(filled[None], total)[0]
