"""Tables of three columns with the column to predict, as pairs alone say they are.

A mixture that has all two-way tables right may have any three-way ones. What it has there by chance a classifier that
learns from its rows takes for a rule: few components fit a row, and these are too sure of its target. Of all laws with
the same pairs that of largest entropy has no interaction of three columns, p(a, b, y) = f(a, b)·g(a, y)·h(b, y); it is
found by iterative proportional fitting (Deming, Stephan 1940), for all pairs of columns with the target at once. The
mixture is drawn there, with `_TRUST` of the precision of the measured pairs.

Three-way tables that were released besides enter the loss by themselves. What they have left, beyond their noise, to
what pairs say of them is the variance of their interaction (empirical Bayes): the more it is, the less they are drawn.

Guarantee: reads the released pairs alone, so that it costs no privacy.
Edges: pairs that were not measured, with each other or with the target, have no weight, nor have columns that rules tie
to each other or to the target. The target's commonest level is what the pairs leave to it. Each other one costs a step
two products of the pairs' size: a target with more than `MOST_LEVELS` is fitted without.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from understudy.models.tables.given_rules import Rules, blocks_of, put
from understudy.models.tables.loss import Slope, WideTable
from understudy.models.tables.noisy_tables import Tables

MOST_LEVELS = 4
_TRUST = 0.6  # of a pair's precision
_TURNS = 15  # of proportional fitting
_LEAST = 1e-7  # frequency of a cell, to begin with
_TINY = 1e-30  # a divisor in place of 0


class WithTarget:
    """What all tables (a, b, target) add to the loss of a mixture of columns with so many levels."""

    def __init__(
        self,
        tables: Tables,
        sizes: Sequence[int],
        target: int,
        scale: float,
        rules: Rules,
        triples: Sequence[WideTable] = (),
    ) -> None:
        blocks = blocks_of(sizes)
        block = blocks[target]
        pairs = tables.plain(tables.target)
        pairs = ((pairs + pairs.T) / 2).clamp(min=_LEAST)
        rarer = tables.ways[block].sort().indices[:-1]
        joint = without_interaction(pairs, tables.columns, pairs[:, block])
        self.tables = joint[rarer].float()
        self.levels = [block.start + level for level in rarer.tolist()]
        weight = tables.weight.clone()
        for a, b, cells in rules.tied:
            put(weight, a, b, cells, torch.zeros_like(cells, dtype=weight.dtype))
        known = (weight[:, block] > 0).all(1).double()
        precision = weight * torch.outer(known, known) * _TRUST
        for triple in triples:
            if target in triple.columns:
                order = sorted(range(3), key=lambda axis: triple.columns[axis] != target)  # the target first
                one, other = (blocks[triple.columns[axis]] for axis in order[1:])
                apart = interaction(triple, triple.target.permute(order) - joint[:, one, other])
                for at in ((one, other), (other, one)):
                    precision[at] = 1 / (1 / precision[at] + apart)
        self.precision = (precision * scale).float()

    def add_to(self, slope: Slope) -> None:
        """A table is the mean of the product of its columns' odds: by hand, for one level of the target at a time."""
        law, odds, rows = slope.law, slope.law.own, torch.zeros_like(slope.law.own)
        for table, level in zip(self.tables, self.levels, strict=True):
            own = odds[:, level]
            weighed = law.weighed(own[:, None] * odds)
            step = odds @ ((weighed.T @ odds / len(odds) - table) * self.precision)
            half = (step * odds).sum(1) / 2
            rows += own[:, None] * step
            rows[:, level] += half
            if slope.share is not None:
                slope.share += own * half
        slope.own += law.weighed(rows)


def interaction(triple: WideTable, gap: Tensor) -> float:
    """The variance, cell by cell, of what a released table has besides its noise, by its `gap` to what pairs say."""
    return max(float(gap.square().mean()) - 1 / triple.precision, 0.0)


def without_interaction(pairs: Tensor, columns: Tensor, target: Tensor) -> Tensor:
    """All tables (a, b, y) with these two-way tables and no interaction of three columns: (levels of y, width, width).

    `pairs` (width, width), above 0; `columns` (width, m) says of which column each level is; `target` (width, levels of
    y) are the two-way tables with y.
    Edges: two-way tables that contradict each other, as noisy ones do → those of a and b hold, the others nearly.
    """
    with_y = target.T[:, :, None]
    joint = with_y * with_y.mT
    for _ in range(_TURNS):
        joint = joint * ((with_y / (joint @ columns).clamp(min=_TINY)) @ columns.T)
        joint = joint * (columns @ (with_y.mT / (columns.T @ joint).clamp(min=_TINY)))
        joint = joint * (pairs / joint.sum(0).clamp(min=_TINY))
    return (joint + joint.mT) / 2
