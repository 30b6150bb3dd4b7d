"""Which three columns go together beyond their pairs: one sum of every three columns, all of them released at once.

The server names two halves of every column's levels, by what was released: each person has a sign for each column, and
of every three columns Σ s·s·s over people is counted. The pairs say what it is where the three have no effect together:
that of the table 2 × 2 × 2 with these pairs and no more (iterative proportional fitting; Deming and Stephan 1940). What
is farther from it than noise and chance explain is worth a three-way table on all levels. Two columns of an effect
and a third that goes with the other one show the same effect again, weaker: such echoes are not chosen.

Guarantee: a person moves every sum by 1, whichever halves are named. The choice reads what was released alone.
Edges: an effect that halves do not show is not found; columns with different holders, or more than 64 → ConfigError.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from understudy.ground.errors import MessageError
from understudy.models.tables.given_rules import blocks_of
from understudy.models.tables.noisy_tables import Tables
from understudy.models.tables.strongest import is_worth_its_cells
from understudy.protocols.gram.layout import Layout
from understudy.protocols.gram.rows import Rows
from understudy.protocols.joint.pricing import BlockSpec
from understudy.protocols.joint.stage import Stage

MOST_COLUMNS = 64
_ROWS = 1 << 18  # at a time: their sums are exact in float32
_BEYOND = 4.0  # deviations of noise and chance
_ROUNDS = 40  # of the fit of three halves to their pairs
_LEAST = 1e-9  # frequency of a cell


def threes(columns: int) -> Tensor:
    """All sets of three columns, in rising order: (n, 3)."""
    return torch.combinations(torch.arange(columns), 3)


@dataclass(frozen=True, eq=False)
class Threes(Stage[Rows]):
    """`upper`: which levels of all columns, one after the other, are in their column's upper half."""

    layout: Layout
    upper: Any

    def __post_init__(self) -> None:
        good = isinstance(self.upper, Tensor) and self.upper.dtype == torch.bool
        if not good or self.upper.shape != (sum(self.layout.sizes),):
            raise MessageError("a half for every level of every column was due. Nothing was charged or sent.")

    @cached_property
    def blocks(self) -> Mapping[str, BlockSpec]:
        many = math.comb(self.layout.columns, 3)
        return {"threes": BlockSpec((0, 0), (many,), math.sqrt(many))}

    def count(self, rows: Rows) -> dict[str, Tensor]:
        starts = np.cumsum([0, *self.layout.sizes[:-1]])
        sign = np.where(self.upper.numpy(), np.float32(1), np.float32(-1))
        total = torch.zeros(math.comb(self.layout.columns, 3), dtype=torch.int64)
        for codes in rows.code_batches(self.layout):
            for first in range(0, len(codes), _ROWS):
                total += sums_of_threes(torch.from_numpy(sign[codes[first : first + _ROWS] + starts]))
        return {"threes": total}

    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> tuple[Tensor, float]:
        """The sums, and the deviation of their noise."""
        return sums["threes"], noise["threes"]


def sums_of_threes(signs: Tensor) -> Tensor:
    """Σ s·s·s over rows of signs (n, columns), for every three columns, in the order of `threes`: int64."""
    found = []
    for one in range(signs.shape[1] - 2):
        others = signs[:, one + 1 :]
        products = (others * signs[:, one, None]).T @ others
        found.append(products[tuple(torch.combinations(torch.arange(others.shape[1])).T)])
    return torch.cat(found).long()


def halves(tables: Tables, sizes: Sequence[int]) -> Tensor:
    """Each column cut where its lower levels have about half of the people."""
    ways, upper = tables.ways.cpu().clamp(min=0), list[Tensor]()
    for block, size in zip(blocks_of(sizes), sizes, strict=True):
        below = ways[block].cumsum(0) / ways[block].sum().clamp(min=_LEAST)
        cut = int((below[: max(1, size - 1)] - 0.5).abs().argmin())
        upper.append(torch.arange(size) > cut)
    return torch.cat(upper)


def found_threes(
    tables: Tables, sizes: Sequence[int], stage: Threes, sums: Tensor, noise: float, wanted: int, *,
    cells_noise: float, besides: Collection[frozenset[int]] = (),
) -> Tensor:  # fmt: skip
    """At most (wanted, 3) columns whose sum is the farthest from what their pairs say; `cells_noise`: of a table's."""
    members = functional.one_hot(torch.repeat_interleave(torch.tensor(sizes))).double()
    signs = members * torch.where(stage.upper, 1.0, -1.0)[:, None]
    plain, people = tables.plain(tables.target).cpu().double(), float(tables.people)
    both = signs.T @ plain @ signs
    single = signs.T @ tables.ways.cpu().double()
    every = threes(len(sizes))
    beyond = sums / people - _without_effect(
        single[every], torch.stack([both[tuple(every[:, two].T)] for two in _TWO], 1)
    )
    clear = beyond.abs() > _BEYOND * math.sqrt(noise**2 + people) / people
    order = beyond.abs().argsort(descending=True)
    chosen: list[list[int]] = []
    for columns in every[order[clear[order]]].tolist():
        echo = any(len({*columns, *one}) < 5 for one in (*chosen, *besides))
        if len(chosen) < wanted and not echo:
            cells = math.prod(sizes[column] for column in columns)
            chosen += [columns] if is_worth_its_cells(cells, cells_noise, tables.people) else []
    return torch.tensor(sorted(chosen), dtype=torch.int64).reshape(-1, 3)


_TWO = [[0, 1], [0, 2], [1, 2]]


def _without_effect(single: Tensor, both: Tensor) -> Tensor:
    """E[s·s·s] of tables of three signs with these means (n, 3) and products of two (n, 3), and no further effect."""
    sign = torch.tensor([-1.0, 1.0], dtype=single.dtype)
    cells = torch.full((len(single), 2, 2, 2), 1 / 8, dtype=single.dtype)
    pairs = []
    for number, (one, other) in enumerate(_TWO):
        lone = single[:, one, None, None] * sign[:, None] + single[:, other, None, None] * sign
        pairs.append(((1 + lone + both[:, number, None, None] * torch.outer(sign, sign)) / 4).clamp(min=_LEAST))
    for _ in range(_ROUNDS):
        for pair, axis in zip(pairs, (3, 2, 1), strict=True):
            cells = cells * (pair / cells.sum(axis).clamp(min=_LEAST)).unsqueeze(axis)
    return torch.einsum("nabc,a,b,c->n", cells, sign, sign, sign) / cells.sum((1, 2, 3))
