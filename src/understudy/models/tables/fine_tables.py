"""One-way tables of many cells out of noisy trees: what a person's value is, as finely
as the noise lets it be told.

The fine cells of a column are the leaves of a tree (`fan` children a node), and every
layer of it was counted under noise: a range of cells is then a few nodes, not thousands
of leaves, each with its own noise.

- *Upwards*, a node is the mean of its own count and of its children's sum, weighted by
  1/variance (Hay, Rastogi, Miklau, Suciu, VLDB 2010, §4.2).
- *Downwards*, the children of a node are projected onto the non-negative tables with
  the node's count: so noise on empty regions does not add up. (Clipping negative leaves
  gives every empty leaf half of its noise.)
- *What noise alone can explain* is read by a smooth law of all leaves (`smooth_laws`):
  children are drawn to its shares of their parent, the more so the fewer people it
  expects beside the noise, but for those that stand out of it. Nobody is drawn beyond
  an end where so few are left that noise may have put them there. Of a long
  list of categories those that stand out have what was counted, and all others together
  the rest, evenly.

Differs from the paper: its second pass is least squares and may be negative.
Guarantee: reads released counts alone.
Edges: a total below 1 counts as 1, and then all is noise; leaves need not fill the last
node.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from understudy.models.simplex import to_simplex
from understudy.models.tables.evidence import CLEAR
from understudy.models.tables.ordered_counts import Counted, Ordered, children_of
from understudy.models.tables.smooth_laws import smooth_laws

_ROUNDS = 3  # of looking for what stands out of its siblings, or of a smooth law
_UNLIKE = 0.5  # of what a smooth law expects in a node, so much it may be off by
# children of other parents that tell as much of how many stand out as a parent's own
_LIKE = 8.0
_ALONE = 5.0  # in log-odds: against one that stands out where nobody else is
_CERTAIN = 12.0  # deviations: one that stands out by more is as certain
# deviations of people in the tail of which halves are taken, at most and at least: with
# 60 flat laws lose more, with 36 more is left that noise puts far out
_TAIL = 45.0
_SHORTEST = 4.0
_HALVES = 0.5  # deviations of people, down to which halves are extrapolated
_SHRUNK = 0.85  # of the ratio of two halves, as noise makes tails longer
_NEAR = 0.6  # of the last half that was seen: an end no further out is as good
# deviations of people cut off at an end: at most, down to a ratio, and at least; in
# between by a power of it. An even law has a ratio of a half, an exponential one of 1
_CUT = 2.5
_SHRINKS = 0.65
_LEAST = 0.3
_POWER = 6.0
_PART = 0.02  # of all people, at most: tables of 500 people are hardly cut
_NOBODY = 1e-6  # deviations of people, as rounding leaves them
_AMONG = 2.0  # times those cut off: among so many before the end they are put


@dataclass(frozen=True, eq=False)
class Tree:
    """What was counted of one column: `layers` as `layers_of` has them, each with this
    `noise`, and those `missing`.

    `total`: how many people there are, where that is known, but for a deviation `sure`.
    Leaves without an order are taken as they were counted, or are `listed`: a long
    list. `edges` (leaves + 1,): the values between which ordered ones lie (without:
    evenly apart). `also`: what else was counted of ordered ones.
    """

    layers: Sequence[Tensor]
    fan: int
    noise: float
    missing: Tensor | None = None
    total: float | None = None
    sure: float = 0.0
    ordered: bool = True
    listed: bool = False
    edges: Tensor | None = None
    also: Sequence[Counted] = ()

    @cached_property
    def top(self) -> Tensor:
        """The top layer, and last those without a value."""
        top = self.layers[0].double()
        return (
            top
            if self.missing is None
            else torch.cat([top, self.missing.double().reshape(1)])
        )

    @cached_property
    def people(self) -> float:
        return max(float(self.top.sum()) if self.total is None else self.total, 1.0)

    @property
    def absent(self) -> Tensor:
        return self.top[len(self.layers[0]) :].clamp(0, self.people)

    @property
    def there(self) -> float:
        return max(self.people - float(self.absent.sum()), 1.0)

    @property
    def has_law(self) -> bool:
        return self.ordered and not self.listed and self.noise > 0

    @property
    def own(self) -> Ordered:
        values = (
            torch.arange(len(self.layers[-1]) + 1.0)
            if self.edges is None
            else self.edges
        )
        told = (self.layers, self.fan, self.noise, self.there, self.sure)
        return Ordered(*told, values.double().numpy(), self.also)


def fine_tables(trees: Sequence[Tree]) -> list[Tensor]:
    """The people in each leaf of each tree, its total in all, and last those without a
    value where counted.
    """
    laws = iter(smooth_laws([tree.own for tree in trees if tree.has_law]))
    found = []
    for tree in trees:
        if tree.listed:
            found.append(_standing_out(tree.top, tree.noise, tree.people))
        elif not tree.has_law:
            several = len(tree.layers) > 1
            leaves = (
                torch.cat([tree.layers[-1].double(), tree.top[len(tree.layers[0]) :]])
                if several
                else tree.top
            )
            found.append(to_simplex(leaves[None], leaves.new_tensor([tree.people]))[0])
        else:
            law, spikes = map(torch.from_numpy, next(laws))
            counted = _by_counts(
                tree.layers,
                tree.fan,
                tree.noise,
                tree.there,
                law,
                spikes,
            )
            edges = torch.from_numpy(tree.own.edges)
            counted = _without_ends(counted, edges, tree.noise)
            found.append(torch.cat([counted, tree.absent]))
    return found


def _by_counts(
    layers: Sequence[Tensor],
    fan: int,
    noise: float,
    total: float,
    law: Tensor,
    spikes: Tensor,
) -> Tensor:
    """The people in each leaf by a smooth law and its spikes, and by what was counted
    where that says more.
    """
    means = [layer.double() for layer in layers]
    variances = [1.0] * len(layers)
    expected = [law]
    for depth in range(len(layers) - 2, -1, -1):
        # of the children's sum, in units of one count's
        below = fan * variances[depth + 1]
        sums = children_of(means[depth + 1], len(means[depth]), fan, 0).sum(1)
        means[depth] = (below * means[depth] + sums) / (1 + below)
        variances[depth] = below / (1 + below)
        expected.insert(0, children_of(expected[0], len(means[depth]), fan, 0).sum(1))
    nodes = law.new_tensor([total])
    out = torch.zeros(1, dtype=torch.bool)
    for layer, variance, smooth in zip(means, variances, expected, strict=True):
        size = len(layer) if len(nodes) == 1 and layer is means[0] else fan
        counted, even = (
            children_of(part, len(nodes), size, empty)
            for part, empty in ((layer, -torch.inf), (smooth, 0))
        )
        shared = (
            children_of(
                spikes if layer is means[-1] else torch.zeros(len(layer)),
                len(nodes),
                size,
                0,
            )
            > 0
        )
        ended = (smooth.cumsum(0) == 0) | (smooth.flip(0).cumsum(0).flip(0) == 0)
        past = children_of(ended, len(nodes), size, True)
        drawn, standing = _drawn_to_law(
            counted,
            nodes,
            noise * variance**0.5,
            even,
            out,
            shared,
            past,
        )
        nodes = to_simplex(drawn, nodes).flatten()[: len(layer)]
        out = standing.flatten()[: len(layer)]
    return nodes


def _drawn_to_law(
    children: Tensor,
    parents: Tensor,
    noise: float,
    law: Tensor,
    out: Tensor,
    shared: Tensor,
    past: Tensor,
) -> tuple[Tensor, Tensor]:
    """Children at their shares by the law, but for those that stand out of it, and
    which these are: `shared` by the law already, or by the odds of their counts. Where
    a parent is `out`, or some of its children are, others may well be; those `past` an
    end hardly are.
    """
    there = children.isfinite()
    alone = ((parents < 2 * noise) | (len(parents) == 1))[:, None]
    doubt = torch.where(alone & ~out[:, None] | past, _ALONE, 0.0)
    counted = torch.where(there, children, 0)
    standing = shared.double()
    for _ in range(_ROUNDS + 1):
        long = law * (1 - standing)
        left = (parents - (standing * counted).sum(1)).clamp(min=0)
        smooth = long * (left / long.sum(1).clamp(min=1e-300))[:, None]
        rare = standing.sum() / max(int(there.sum()), 1)
        often = (standing.sum(1) + out + _LIKE * rare) / (there.sum(1) + _LIKE)
        more = ((counted - smooth) / noise).clamp(1e-3, _CERTAIN)
        # Johnstone, Silverman (Ann. Statist. 2004): a quasi-Cauchy law of what stands
        # out
        odds = torch.logit(often.clamp(1 / children.numel(), 0.5))[:, None] - doubt
        odds = odds + torch.log(2 * torch.expm1(more**2 / 2) / more**2)
        likely = torch.sigmoid(odds) * (there & (counted > smooth))
        standing = torch.where(
            shared,
            1.0,
            torch.where(past, (likely > 0.5).double(), likely),
        )
    unlike = (_UNLIKE * smooth) ** 2
    drawn = smooth + torch.maximum(unlike / (unlike + noise**2), standing) * (
        counted - smooth
    )
    found = torch.where(there, drawn.clamp(min=0), 0)
    # Those who are left over are where the others are: a projection would put as many
    # of them in empty nodes.
    scale = (parents / found.sum(1).clamp(min=1e-9)).clamp(min=1)[:, None]
    return torch.where(there, found * scale, -torch.inf), standing > 0.5


def _without_ends(
    leaves: Tensor,
    edges: Tensor,
    noise: float,
) -> Tensor:
    """The same people without the first and the last leaves in which so few of them are
    as noise may have put there, further out than the law goes before them.
    """
    upwards = _without_last(leaves, edges, noise)
    return _without_last(upwards.flip(0), -edges.flip(0), noise).flip(0)


def _without_last(
    leaves: Tensor,
    edges: Tensor,
    noise: float,
) -> Tensor:
    """The same people without those past the end that the law has by its last halves
    (Pickands, Ann. Statist. 1975): where half as many people are further out by a step,
    and half of these by another, the ratio of both steps gives all others.

    The less steps shrink, the fewer are cut off. They are put shortly before the end.
    What lies within a number that half of all people share tells nothing.
    """
    above = torch.cat([leaves.flip(0).cumsum(0).flip(0), leaves.new_zeros(1)]) / noise
    last = int((above > _NOBODY).sum())
    leaves = torch.where(torch.arange(len(leaves)) < last, leaves, 0)
    middle = int((above > above[0] / 2).sum())
    many = min(_TAIL, float(above[middle]))
    if many < _SHORTEST:
        return leaves
    quarter = many / 4
    first, second, third = np.interp(
        (-many, -many / 2, -quarter),
        -above.numpy(),
        edges.numpy(),
    )
    if second <= first:
        return leaves
    ratio = (third - second) / (second - first)
    halves = math.ceil(math.log2(quarter / _HALVES))
    steps = (third - second) * (_SHRUNK * ratio) ** np.arange(1, halves + 1)
    end = third + steps.sum()
    if float(edges[last]) <= end + _NEAR * (third - second):
        return leaves

    lost = _CUT * min(1.0, (_SHRINKS / max(ratio, 1e-9)) ** _POWER)
    lost = min(max(lost, _LEAST), _PART * float(above[0]))
    within = int((edges <= end).sum())
    stop = max(within, int((above > lost).sum()))
    if stop >= last:
        return leaves
    past = float(above[stop])
    start = int((above > min(_AMONG * past, quarter)).sum()) - 1
    kept = leaves.clone()
    kept[stop:] = 0
    among = kept[start:stop].clamp(max=noise)
    kept[start:stop] += among * (past * noise / among.sum())
    return kept


def _standing_out(
    counts: Tensor,
    noise: float,
    people: float,
) -> Tensor:
    """Counts that stand out of the noise, and the rest of the people evenly on all
    others.
    """
    seen = counts > CLEAR * noise
    rest = people - float(counts[seen].sum())
    if rest <= 0 or bool(seen.all()):
        return to_simplex(counts[None], counts.new_tensor([people]))[0]
    return torch.where(seen, counts, rest / float((~seen).sum()))
