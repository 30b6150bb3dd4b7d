"""Whom to ask about which columns: a rule from ε, levels, columns and people, and from
reports that are there already.

Round 1: single columns, to a `share` of the people. Round 2: sets of columns, to the
others. Everyone is in one set of one round, since a person's ε in two halves tells less
than the whole of it once.

A report about K cells costs the same whatever K is, and tells of each cell as much as
long as K is small against e^ε; beyond it, the noise of every cell grows. So a set grows
as long as `reach`·e^ε of its likeliest cells, by round 1 and as if its columns were
independent, hold nearly all people; what is not among them shares one cell. With a
target and ε below 3 a set is a column and the target, but for wide tables of bits and
for targets of many levels; the fewer people are to each, the more are asked in round 1.
Rare levels of a column share one group, where round 2 could not tell them from noise;
levels in order, such as those of a number, share it with their neighbours.

Sets are chosen one after another, each for the pairs of columns that were asked about
least (greedy, as a covering design). Pairs with a named `target` are wanted more than
others; at small ε they alone are, since few pairs can be learned there, and a table
whose use is known is worth more than one that is a little wrong everywhere.

Guarantee: reads reports alone; a server that plans otherwise learns no more of a person
than ε.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.protocols.one_report.party import ColumnSet

Array = NDArray[np.float64]

_LARGE = 6.0  # ε from which pairs without the target are worth people
# ε from which any pairs are, where no target is named, and more levels can be told from
# noise
_MIDDLE = 3.0
# columns beyond which few sets would have the target by themselves, and few people a
# pair with it
_WIDE = 60
# beyond which what columns have in common tells more of the target than each by itself
_FEW_CLASSES = 3
_PEOPLE_A_LEVEL = 10  # so many at least are asked about single columns
# With a target some people are asked about a column alone, others about it and the
# target, which tells a third to a half as much of the column. Where a cell's noise is
# `_LOUD` or more a tenth are: independent columns are then 4 % farther off than if
# nobody were, 15 % with half of them (bank, 5,000 people, ε = 2), and a classifier
# learns little either way. Up to `_QUIET` half are: worth an AUC .03 more than a fifth
# (adult, 16,000 people, ε = 2).
_FEW_IN_PAIRS = 0.9
_HALF_IN_PAIRS = 0.5
_QUIET = 0.025
_LOUD = 0.075
_LEAST_CELLS = 4
_SETS = 120
_MOST_CELLS = 1 << 12
_REFUSED = 6  # columns in a row that no longer fit, after which a set is full
_RAREST = 1e-6
# of a set: if columns exclude each other, its likeliest cells are not those of round 1
_MOST_COLUMNS = 20


@dataclass(frozen=True)
class ReportPlan:
    share: float  # of the people, for single columns
    others: float  # how much a pair without the target is wanted against one with it
    always: bool  # whether the target is in every set
    reach: float  # cells of a set by e^ε
    mass: float  # which share of people the listed cells of a set hold at least
    sets: int  # how many are chosen
    # below how many standard deviations of what round 2 can tell a level shares a group
    rare: float
    # sets are a column and the target each, and columns depend on each other by it
    # alone
    paired: bool
    strength: float  # else, of the penalty
    # whether the fit keeps the one-way tables that all reports show together
    anchored: bool

    @classmethod
    def rule(
        cls,
        epsilon: float,
        levels: Sequence[int],
        people: int,
        *,
        target: bool,
        classes: int = 2,
    ) -> "ReportPlan":
        """By ε, columns and people, and a target (of so many `classes`) if named; else
        for single columns.
        """
        large = epsilon >= _LARGE
        informative = sum(size > 1 for size in levels)
        min_share = _PEOPLE_A_LEVEL * sum(size - 1 for size in levels) / max(people, 1)
        others = min(1 / 3, 5 / len(levels)) if large else 0.0
        paired = (
            target
            and epsilon < _MIDDLE
            and len(levels) <= _WIDE
            and classes <= _FEW_CLASSES
        )
        if epsilon >= _MIDDLE:
            share = 0.15 if large else 0.4
        elif paired:
            share = _single_share(cell_noise(epsilon, informative, people))
        else:
            share = _HALF_IN_PAIRS if target else 1.0
        return cls(
            share=min(1.0, max(share, min_share)),
            others=others if target else 1.0,
            always=target and (not large or len(levels) > _WIDE),
            reach=0.2 if large else 0.4,
            mass=0.97,
            sets=max(1, informative - 1) if paired else _SETS,
            rare=1.0 if epsilon >= _MIDDLE else 2.0,
            paired=paired,
            strength=0.6,
            anchored=not large,
        )


@dataclass(frozen=True, eq=False)
class Asking:
    """The sets of a round, every level's group, and which share of the round's people
    is asked about each set.
    """

    groups: tuple[Tensor, ...]
    sets: tuple[ColumnSet, ...]
    shares: Array

    def deal(self, people: int, rng: np.random.Generator) -> Tensor:
        """Each person's set, in a random order: int64, (people,)."""
        shares = np.cumsum(self.shares / self.shares.sum())
        ends = np.floor(shares * people + 0.5)
        which = np.searchsorted(ends, np.arange(people), side="right")
        which = which.clip(max=len(self.sets) - 1)
        return torch.from_numpy(rng.permutation(which))


def cell_noise(
    epsilon: float,
    columns: int,
    people: int,
) -> float:
    """The deviation of a cell's share, nearly, where people are asked about so many
    columns, one each.
    """
    factor = 2 * math.exp(epsilon / 2) / math.expm1(epsilon)
    return factor * math.sqrt(columns / max(people, 1))


def _single_share(noise: float) -> float:
    """Which share is asked about single columns, where a cell has this noise."""
    loud = min(max((noise - _QUIET) / (_LOUD - _QUIET), 0.0), 1.0)
    return _HALF_IN_PAIRS + loud * (_FEW_IN_PAIRS - _HALF_IN_PAIRS)


def first_round(levels: Sequence[int]) -> Asking:
    """Each column by itself; a share of people as (levels − 1)^⅔: the sum of errors,
    each levels/√people, is least.
    """
    groups = tuple(torch.arange(size) for size in levels)
    informative = [column for column, size in enumerate(levels) if size > 1]
    sets = tuple(ColumnSet((column,), (groups[column],)) for column in informative)
    return Asking(
        groups,
        sets,
        np.array([(levels[column] - 1) ** (2 / 3) for column in informative]),
    )


def second_round(
    plan: ReportPlan,
    ways: Sequence[Tensor],
    *,
    ordered: Sequence[int],
    epsilon: float,
    people: int,
    target: int | None,
    seed: int,
) -> Asking:
    """Sets of columns for so many people, by round 1's one-way tables. `ordered`: how
    many levels have an order.
    """
    informative = [column for column, way in enumerate(ways) if len(way) > 1]
    noise = cell_noise(epsilon, len(informative), people)
    groups = tuple(
        grouped(way, plan.rare * noise, ordered=n_ordered)
        for way, n_ordered in zip(ways, ordered, strict=True)
    )
    each = zip(groups, ways, strict=True)
    tables = [
        np.maximum(np.bincount(group.numpy(), weights=way.numpy()), _RAREST)
        for group, way in each
    ]
    tables = [table / table.sum() for table in tables]
    cells = min(
        max(_LEAST_CELLS, int(plan.reach * math.exp(min(epsilon, 50.0)))), _MOST_CELLS
    )
    weights = np.zeros((len(ways), len(ways)))
    for i, j in combinations(informative, 2):
        weights[i, j] = weights[j, i] = 1.0 if target in (i, j) else plan.others
    chosen: dict[tuple[int, ...], ColumnSet] = {}
    times: dict[tuple[int, ...], int] = {}
    times_asked = np.zeros_like(weights)
    rng = np.random.default_rng(seed)
    for _ in range(plan.sets):
        columns, listed = _grow(
            plan,
            tables,
            weights,
            times_asked,
            target,
            cells,
            rng,
        )
        for i, j in combinations(columns, 2):
            times_asked[i, j] += 1
            times_asked[j, i] += 1
        order = np.argsort(columns)
        key = tuple(int(columns[index]) for index in order)
        whole = len(listed) == math.prod(len(tables[column]) for column in key)
        times[key] = times.get(key, 0) + 1
        cells_of = (
            None if whole else torch.from_numpy(np.ascontiguousarray(listed[:, order]))
        )
        chosen[key] = ColumnSet(key, tuple(groups[column] for column in key), cells_of)
    shares = [times[key] * math.sqrt(one.cells - 1) for key, one in chosen.items()]
    return Asking(groups, tuple(chosen.values()), np.array(shares))


def grouped(
    way: Tensor,
    min_share: float,
    *,
    ordered: int = 0,
) -> Tensor:
    """Each level's group: its own, or one for all below `min_share` (the first
    `ordered`: neighbours); never one alone.
    """
    if ordered > 1:
        first = _neighbours(way[:ordered], min_share)
        others = torch.arange(len(way) - ordered)
        return torch.cat([first, int(first.max()) + 1 + others])
    rare = way < min_share
    if len(way) <= 2 or int(rare.sum()) < 2:
        return torch.arange(len(way))
    if bool(rare.all()):
        rare[int(way.argmax())] = False  # one group would tell nothing
    usual = ~rare
    n_usual = int(usual.sum())
    group = torch.empty(len(way), dtype=torch.int64)
    group[usual] = torch.arange(n_usual)
    group[rare] = n_usual
    return group


def _neighbours(way: Tensor, min_share: float) -> Tensor:
    """The least of all groups goes with the lesser one beside it, until none is below
    `min_share` or two are left.
    """
    shares = way.tolist()
    sizes = [1] * len(way)
    while len(shares) > 2 and min(shares) < min_share:
        at = shares.index(min(shares))
        beside = [index for index in (at - 1, at + 1) if 0 <= index < len(shares)]
        neighbour = min(beside, key=shares.__getitem__)
        first = min(at, neighbour)
        both = slice(first, first + 2)
        shares[both] = [sum(shares[both])]
        sizes[both] = [sum(sizes[both])]
    return torch.repeat_interleave(torch.tensor(sizes))


def _grow(
    plan: ReportPlan,
    tables: Sequence[Array],
    weights: Array,
    times_asked: Array,
    target: int | None,
    cells: int,
    rng: np.random.Generator,
) -> tuple[list[int], NDArray[np.int64]]:
    """One set's columns in their order, and its cells (cells, columns); first the pair
    asked least but wanted most.
    """
    chance = rng.random(weights.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        lack = np.where(
            weights > 0, (times_asked + 1e-3 * (chance + chance.T)) / weights, np.inf
        )
    if plan.always and target is not None and np.isfinite(lack[target]).any():
        columns = [target, int(np.argmin(lack[target]))]
    elif np.isfinite(lack).any():
        columns = [
            int(index) for index in np.unravel_index(int(np.argmin(lack)), lack.shape)
        ]
    else:  # a table of one column that tells anything
        columns = [max(range(len(tables)), key=lambda column: len(tables[column]))]
    share = np.ones(1)
    listed = np.zeros((1, 0), dtype=np.int64)
    for column in columns:
        share = np.outer(share, tables[column]).ravel()
        listed = _with(listed, len(tables[column]))
    if len(share) > _MOST_CELLS:
        likely = _likeliest(share, _MOST_CELLS - 1)
        share = share[likely]
        listed = listed[likely]
    if plan.paired:
        return columns, listed
    worth = weights / (1 + times_asked / np.maximum(weights, _RAREST)) ** 2
    remaining = {
        column for column in range(len(tables)) if len(tables[column]) > 1
    } - set(columns)
    misses = 0
    while remaining and misses < _REFUSED and len(columns) < _MOST_COLUMNS:
        gain = worth[columns].sum(0)
        column = max(remaining, key=lambda c: (gain[c], -c))
        if gain[column] <= 0:
            break
        remaining.remove(column)
        joint = np.outer(share, tables[column]).ravel()
        likely = (
            _likeliest(joint, cells - 1)
            if len(joint) > cells
            else np.arange(len(joint))
        )
        if len(joint) > cells and joint[likely].sum() < plan.mass:
            misses += 1
            continue
        share = joint[likely]
        listed = _with(listed, len(tables[column]))[likely]
        columns.append(column)
    return columns, listed


def _likeliest(share: Array, count: int) -> NDArray[np.int64]:
    return np.sort(np.argsort(-share, kind="stable")[:count])


def _with(listed: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    before = np.repeat(listed, size, axis=0)
    more = np.tile(np.arange(size), len(listed))
    return np.concatenate([before, more[:, None]], axis=1)
