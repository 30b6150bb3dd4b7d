"""Which pairs of columns of a wide table are worth a second measurement, and which
three columns a three-way table.

*Pairs*, by estimates of a first, noisier release of all (`noisy_tables`): by Cramér's V
of each pair's table, drawn to what all pairs say together and to independence as far as
noise explains it. So few large cells do not outweigh a rare level that another column
tells for sure, and a pair that hides in its noise does not pass for a strong one.

*Triples*, by estimates of the released pairs: two columns can tell more of the target
together than each by itself only if each tells something. So a pair is as strong as the
weaker of its columns, by the mutual information with the target. A table whose noise
alone adds up to as many people as there are tells nothing, and one of very many cells
costs the fit more than it tells: neither is chosen.

*Threes* of any columns, by a sum of each (`protocols.gram`): every person has a sign
for each column, by two halves of its levels, and of every three columns Σ s·s·s over
people was released. The pairs say what it is where the three have no effect together:
that of the table 2 × 2 × 2 with these pairs and no more (iterative proportional
fitting; Deming and Stephan 1940). What is farther from it than noise and chance explain
is worth a three-way table on all levels. Two columns of an effect and a third that goes
with the other one show the same effect again, weaker: such echoes are not chosen. An
effect that halves do not show is not found.

Guarantee: reads what was released, or was fitted to it, alone: the choice is
post-processing.
Edges: more pairs than may be chosen → ConfigError; fewer triples than are wanted, or
none, where no others can be told from noise.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations

import torch
from torch import Tensor
from torch.nn import functional

from understudy.ground.check import in_range
from understudy.models.tables.given_rules import blocks_of
from understudy.models.tables.merged_levels import MOST_CELLS
from understudy.models.tables.noisy_tables import NoisyMarginals


def strongest_pairs(
    tables: NoisyMarginals,
    wanted: int,
    *,
    besides: Tensor | None = None,
) -> Tensor:
    """(wanted, 2) columns, the lower first, in rising order, but for `besides`
    (n, 2).
    """
    strength = pair_strength(tables)
    free = torch.ones_like(strength, dtype=torch.bool).triu(1)
    if besides is not None:
        free[tuple(besides.T)] = False
    pairs = free.nonzero()
    in_range(1, len(pairs), wanted=wanted)
    order = strength[free].argsort(descending=True, stable=True)[:wanted]
    return pairs[order.sort().values]


def pair_strength(tables: NoisyMarginals) -> Tensor:
    """Cramér's V of every estimated two-way table, 0 where none was measured: (columns,
    columns).
    """
    columns = tables.columns
    independent = torch.outer(tables.ways, tables.ways)
    expected = independent.clamp(min=1 / tables.people)
    estimated = tables.plain(tables.target)
    gap = estimated.clamp(min=0) - expected
    is_measured = tables.weight > 0
    is_apart = columns @ columns.T == 0
    counted = torch.where(is_measured & is_apart, gap, 0)
    chi_squared = columns.T @ (counted.square() / expected) @ columns

    is_present = tables.ways > 0
    levels = columns.T @ is_present.to(columns.dtype)
    freedom = (levels - 1).clamp(min=1)
    fewest = torch.minimum(freedom[:, None], freedom)
    v_squared = chi_squared / fewest
    return v_squared.clamp(max=1).sqrt().cpu()


def strongest_triples(
    tables: NoisyMarginals,
    sizes: Sequence[int],
    target: int,
    wanted: int,
    *,
    among: Sequence[Sequence[int]],
    noise: float,
    besides: Collection[frozenset[int]] = (),
) -> Tensor:
    """At most (wanted, 2) of the pairs `among`, in rising order, but for triples
    `besides`; `noise`: of a cell.
    """
    bits = information(tables, sizes, target)

    def fits(a: int, b: int) -> bool:
        if {a, b, target} in besides:
            return False
        cells = sizes[a] * sizes[b] * sizes[target]
        return is_worth_its_cells(cells, noise, tables.people)

    def weaker(pair: tuple[int, int]) -> float:
        one, other = pair
        return min(bits[one], bits[other])

    ordered = sorted((min(pair), max(pair)) for pair in among)
    pairs = [pair for pair in ordered if fits(*pair)]
    strongest = sorted(pairs, key=weaker, reverse=True)
    chosen = sorted(strongest[:wanted])
    return torch.tensor(chosen, dtype=torch.int64).reshape(-1, 2)


def is_worth_its_cells(
    cells: int,
    noise: float,
    people: float,
) -> bool:
    """Whether a three-way table of so many, each with such noise, can tell something of
    so many people: its noise adds up to no more than they are.
    """
    if cells > MOST_CELLS:
        return False
    mean_noise = noise * math.sqrt(2 / math.pi)  # E|N(0, σ²)|
    return cells * mean_noise <= people


def information(
    tables: NoisyMarginals,
    sizes: Sequence[int],
    target: int,
) -> list[float]:
    """The mutual information of every column with the target, by their estimated
    two-way tables; 0 of itself.
    """
    plain = tables.plain(tables.target).cpu()
    blocks = blocks_of(sizes)
    bits = []
    for column, block in enumerate(blocks):
        if column == target:
            bits.append(0.0)
            continue
        joint = plain[block, blocks[target]].clamp(min=1e-9)
        joint = joint / joint.sum()
        rows = joint.sum(1)
        levels = joint.sum(0)
        independent = torch.outer(rows, levels)
        ratio = joint / independent
        bits.append(float((joint * ratio.log()).sum()))
    return bits


# Threes

_TWO = [*map(list, combinations(range(3), 2))]


def halves(tables: NoisyMarginals, sizes: Sequence[int]) -> Tensor:
    """Each column cut where its lower levels have about half of the people, or its
    commonest level alone has.
    """
    ways = tables.ways.cpu().clamp(min=0)
    upper = list[Tensor]()
    for block, size in zip(blocks_of(sizes), sizes, strict=True):
        total = ways[block].sum()
        share = ways[block] / total.clamp(min=1e-9)
        cuts = max(1, size - 1)
        below = share.cumsum(0)[:cuts]
        off = (below - 0.5).abs()
        commonest_off = float((share.max() - 0.5).abs())
        levels = torch.arange(size)
        if commonest_off < float(off.min()):
            is_upper = levels == share.argmax()
        else:
            is_upper = levels > off.argmin()
        upper.append(is_upper)
    return torch.cat(upper)


def strongest_threes(
    tables: NoisyMarginals,
    sizes: Sequence[int],
    upper: Tensor,
    sums: Tensor,
    noise: float,
    pairs_noise: Tensor,
    wanted: int,
    *,
    cells_noise: float,
    besides: Collection[frozenset[int]] = (),
    deviations: float = 4.0,
) -> Tensor:
    """At most (wanted, 3) columns whose sum is the farthest from what their pairs say,
    by more than so many `deviations` of noise and chance; `cells_noise`: of a table's.

    `upper`: which levels of all columns, one after the other, are in their column's
    upper half. `pairs_noise`: of each cell of the pairs, (width, width), which is felt
    in what they say as far as the third column's halves are uneven.
    """
    people = float(tables.people)
    columns = torch.repeat_interleave(torch.tensor(sizes))
    members = functional.one_hot(columns).double()
    level_signs = torch.where(upper, 1.0, -1.0)
    signs = members * level_signs[:, None]
    ways = tables.ways.cpu().double()
    single = signs.T @ ways
    plain = tables.plain(tables.target).cpu().double()
    products = signs.T @ plain @ signs
    cell_variance = pairs_noise.cpu().double() ** 2
    variance = members.T @ cell_variance @ members

    every = torch.combinations(torch.arange(len(sizes)), 3)
    column_pairs = [tuple(every[:, two].T) for two in _TWO]
    pairs = torch.stack([products[place] for place in column_pairs], 1)
    pairs_variance = torch.stack([variance[place] for place in column_pairs], 1)
    third = single[every].flip(1)  # the third column of each of these pairs
    expected_variance = (pairs_variance * third**2).sum(1)
    expected = _without_effect(single[every], pairs)
    beyond = sums / people - expected
    chance = (noise**2 + people + expected_variance).sqrt() / people
    is_clear = beyond.abs() > deviations * chance

    order = beyond.abs().argsort(descending=True)
    chosen: list[list[int]] = []
    for three in every[order[is_clear[order]]].tolist():
        if len(chosen) == wanted:
            break
        if _is_echo(three, (*chosen, *besides)):
            continue
        cells = math.prod(sizes[column] for column in three)
        if is_worth_its_cells(cells, cells_noise, tables.people):
            chosen.append(three)
    return torch.tensor(sorted(chosen), dtype=torch.int64).reshape(-1, 3)


def _is_echo(three: Collection[int], others: Iterable[Collection[int]]) -> bool:
    """Whether two of the three columns are among another three."""
    return any(len({*three, *other}) < 5 for other in others)


def _without_effect(single: Tensor, both: Tensor) -> Tensor:
    """E[s·s·s] of tables of three signs with these means (n, 3) and products of two (n,
    3), and no further effect.
    """
    sign = torch.tensor([-1.0, 1.0], dtype=single.dtype)
    signs = torch.outer(sign, sign)
    pairs = []
    for number, (one, other) in enumerate(_TWO):
        first = single[:, one, None, None] * sign[:, None]
        second = single[:, other, None, None] * sign
        product = both[:, number, None, None] * signs
        pair = (1 + (first + second) + product) / 4
        pairs.append(pair.clamp(min=1e-9))

    cells = torch.full((len(single), 2, 2, 2), 1 / 8, dtype=single.dtype)
    for _ in range(40):
        for pair, axis in zip(pairs, (3, 2, 1), strict=True):
            margin = cells.sum(axis)
            scale = pair / margin.clamp(min=1e-9)
            cells = cells * scale.unsqueeze(axis)
    products = torch.einsum(
        "nabc,a,b,c->n",
        cells,
        sign,
        sign,
        sign,
    )
    return products / cells.sum((1, 2, 3))
