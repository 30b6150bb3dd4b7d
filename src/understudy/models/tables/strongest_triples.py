"""Which pairs of columns are worth a three-way table with the column to predict.

By estimates of the released pairs and by public numbers. Two columns can tell more of the target together than each by
itself only if each tells something: a pair is as strong as the weaker of its columns, by the mutual information with
the target. A table whose noise alone adds up to as many people as there are tells nothing, and one of very many cells
costs the fit more than it tells: neither is chosen.

Guarantee: reads estimates of what was released alone, so that the choice is post-processing.
Edges: fewer than are wanted, or none, where no others can be told from noise.
"""

import math
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from understudy.models.tables.given_rules import blocks_of
from understudy.models.tables.noisy_tables import Tables

MOST_CELLS = 4096  # of a table
_NOISE = 1.0  # of the people: what a table's noise may add up to
_LEAST = 1e-9  # frequency of a cell


def strongest_triples(
    tables: Tables,
    sizes: Sequence[int],
    target: int,
    wanted: int,
    *,
    among: Sequence[Sequence[int]],
    noise: float,
    besides: Collection[frozenset[int]] = (),
) -> Tensor:
    """The numbers of the columns of each pair, the lower first: at most (wanted, 2), int64, in rising order.

    `among`: the pairs of columns that may be chosen; `noise`: the standard deviation of a cell of a three-way table;
    `besides`: three columns each, of tables that are released anyhow.
    """
    told = information(tables, sizes, target)

    def fits(a: int, b: int) -> bool:
        cells = sizes[a] * sizes[b] * sizes[target]
        if {a, b, target} in besides:
            return False
        return cells <= MOST_CELLS and cells * noise * math.sqrt(2 / math.pi) <= _NOISE * tables.people

    pairs = [pair for pair in sorted((min(pair), max(pair)) for pair in among) if fits(*pair)]
    strongest = sorted(pairs, key=lambda pair: -min(told[pair[0]], told[pair[1]]))[:wanted]
    return torch.tensor(sorted(strongest), dtype=torch.int64).reshape(-1, 2)


def information(tables: Tables, sizes: Sequence[int], target: int) -> list[float]:
    """The mutual information of every column with the target, by their estimated two-way tables; 0 of itself."""
    plain, blocks, found = tables.plain(tables.target).cpu(), blocks_of(sizes), []
    for column, block in enumerate(blocks):
        joint = plain[block, blocks[target]].clamp(min=_LEAST)
        joint = joint / joint.sum()
        apart = torch.outer(joint.sum(1), joint.sum(0))
        found.append(float((joint * (joint / apart).log()).sum()) if column != target else 0.0)
    return found
