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
  expects beside the noise, but for those that stand out of it (Johnstone, Silverman,
  Ann. Statist. 2004). Nobody is drawn beyond an end where so few are left that noise
  may have put them there (`tail_ends`). Of a long list of categories those that stand
  out have what was counted, and all others together the rest, evenly.

Differs from the paper: its second pass is least squares and may be negative.
Guarantee: reads released counts alone.
Edges: a total below 1 counts as 1, and then all is noise; leaves need not fill the last
node.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from understudy.models.simplex import to_simplex
from understudy.models.tables.evidence import CLEAR
from understudy.models.tables.ordered_counts import Counted, Ordered, children_of
from understudy.models.tables.smooth_laws import smooth_laws
from understudy.models.tables.tail_ends import without_ends


@dataclass(frozen=True)
class StandingSettings:
    """Which counts are believed beside a smooth law; σ is the noise of a count."""

    # of looking for what stands out of its siblings: shares of two kinds converge soon
    rounds: int = 4
    # of what a smooth law expects in a node: by so much it may be off, in the mean
    unlike: float = 0.5
    # children of other parents that tell as much of how many stand out as a parent's
    # own: with all of them, rare values of 3,500 people had a KS of .03 to .09 and not
    # of .02 to .07 (benchmarks/numbers/NOTES.md)
    like: float = 8.0
    # in log-odds: against one that stands out where nobody else is, of whom noise makes
    # hundreds in a column
    alone: float = 5.0
    # σ: one that stands out by more is as certain; e⁷² is the largest odds
    certain: float = 12.0


_STANDING = StandingSettings()


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
        if self.missing is None:
            return top
        return torch.cat([top, self.missing.double().reshape(1)])

    @cached_property
    def people(self) -> float:
        total = float(self.top.sum()) if self.total is None else self.total
        return max(total, 1.0)

    @property
    def absent(self) -> Tensor:
        """Those without a value: (1,), or (0,) where not counted."""
        return self.top[len(self.layers[0]) :].clamp(0, self.people)

    @property
    def there(self) -> float:
        """How many people have a value."""
        return max(self.people - float(self.absent.sum()), 1.0)

    @property
    def has_law(self) -> bool:
        return self.ordered and not self.listed and self.noise > 0

    @property
    def own(self) -> Ordered:
        """The same for the fit of a smooth law."""
        values = self.edges
        if values is None:
            values = torch.arange(len(self.layers[-1]) + 1.0)
        return Ordered(
            self.layers,
            self.fan,
            self.noise,
            self.there,
            self.sure,
            values.double().numpy(),
            self.also,
        )


def fine_tables(trees: Sequence[Tree]) -> list[Tensor]:
    """The people in each leaf of each tree, its total in all, and last those without a
    value where counted.
    """
    laws = iter(smooth_laws([tree.own for tree in trees if tree.has_law]))
    tables = []
    for tree in trees:
        if tree.listed:
            table = _standing_out(tree.top, tree.noise, tree.people)
        elif not tree.has_law:
            table = _as_counted(tree)
        else:
            law, spikes = map(torch.from_numpy, next(laws))
            counted = _by_counts(tree, law, spikes)
            edges = torch.from_numpy(tree.own.edges)
            counted = without_ends(counted, edges, tree.noise)
            table = torch.cat([counted, tree.absent])
        tables.append(table)
    return tables


def _as_counted(tree: Tree) -> Tensor:
    """The nearest table without negative cells to the leaves, and those without a
    value.
    """
    leaves = tree.top
    if len(tree.layers) > 1:
        missing = tree.top[len(tree.layers[0]) :]
        leaves = torch.cat([tree.layers[-1].double(), missing])
    return to_simplex(leaves[None], leaves.new_tensor([tree.people]))[0]


def _by_counts(tree: Tree, law: Tensor, spikes: Tensor) -> Tensor:
    """The people in each leaf by a smooth law and its spikes, and by what was counted
    where that says more.
    """
    fan = tree.fan
    means, variances = _upwards(tree.layers, fan)
    expected = [law]
    for layer in reversed(means[:-1]):
        expected.insert(0, children_of(expected[0], len(layer), fan, 0).sum(1))
    nodes = law.new_tensor([tree.there])
    is_out = torch.zeros(1, dtype=torch.bool)
    for depth, (layer, smooth) in enumerate(zip(means, expected, strict=True)):
        parents = len(nodes)
        size = fan if depth else len(layer)
        is_leaf = depth == len(means) - 1
        atoms = spikes if is_leaf else torch.zeros(len(layer))
        drawn, stands_out = _drawn_to_law(
            _Siblings(
                counts=children_of(layer, parents, size, -torch.inf),
                parents=nodes,
                noise=tree.noise * variances[depth] ** 0.5,
                law=children_of(smooth, parents, size, 0),
                parent_is_out=is_out,
                is_spike=children_of(atoms, parents, size, 0) > 0,
                is_past=children_of(_past_ends(smooth), parents, size, True),
            )
        )
        nodes = to_simplex(drawn, nodes).flatten()[: len(layer)]
        is_out = stands_out.flatten()[: len(layer)]
    return nodes


def _upwards(layers: Sequence[Tensor], fan: int) -> tuple[list[Tensor], list[float]]:
    """Each layer as the mean of its own counts and of its children's sums, and the
    variance of that, in units of one count's.
    """
    means = [layer.double() for layer in layers]
    variances = [1.0] * len(layers)
    for depth in range(len(layers) - 2, -1, -1):
        below = fan * variances[depth + 1]  # of the children's sum
        sums = children_of(means[depth + 1], len(means[depth]), fan, 0).sum(1)
        means[depth] = (below * means[depth] + sums) / (1 + below)
        variances[depth] = below / (1 + below)
    return means, variances


def _past_ends(smooth: Tensor) -> Tensor:
    """Which nodes lie before the first or after the last in which a law has people."""
    from_first = smooth.cumsum(0)
    from_last = smooth.flip(0).cumsum(0).flip(0)
    return (from_first == 0) | (from_last == 0)


@dataclass(frozen=True, eq=False)
class _Siblings:
    """The children of all nodes of a layer: their `counts` (parents, fan), −∞ for
    children that there are not; the people of their `parents`; the `noise` of a count;
    the people that the `law` expects; of which parents themselves stood out of it;
    which children are spikes of the law; and which lie past its ends.
    """

    counts: Tensor
    parents: Tensor
    noise: float
    law: Tensor
    parent_is_out: Tensor
    is_spike: Tensor
    is_past: Tensor


def _drawn_to_law(nodes: _Siblings) -> tuple[Tensor, Tensor]:
    """Children at their shares by the law, but for those that stand out of it, and
    which these are: spikes of the law already, or by the odds of their counts. Where a
    parent is out, or some of its children are, others may well be; those past an end
    hardly are.
    """
    is_there = nodes.counts.isfinite()
    counts = torch.where(is_there, nodes.counts, 0)
    parents = nodes.parents
    has_few = (parents < 2 * nodes.noise) | (len(parents) == 1)
    is_alone = (has_few & ~nodes.parent_is_out)[:, None]
    doubt = torch.where(is_alone | nodes.is_past, _STANDING.alone, 0.0)
    standing = nodes.is_spike.double()
    for _ in range(_STANDING.rounds):
        law = nodes.law * (1 - standing)
        unexplained = (parents - (standing * counts).sum(1)).clamp(min=0)
        smooth = law * (unexplained / law.sum(1).clamp(min=1e-300))[:, None]
        log_odds = _prior_odds(nodes, standing, is_there) - doubt
        log_odds = log_odds + _log_ratio((counts - smooth) / nodes.noise)
        likely = torch.sigmoid(log_odds)
        likely = likely * (is_there & (counts > smooth))
        surely = (likely > 0.5).double()
        standing = torch.where(nodes.is_past, surely, likely)
        standing = torch.where(nodes.is_spike, 1.0, standing)
    unlike = (_STANDING.unlike * smooth) ** 2
    by_counts = unlike / (unlike + nodes.noise**2)
    drawn = smooth + torch.maximum(by_counts, standing) * (counts - smooth)
    people = torch.where(is_there, drawn.clamp(min=0), 0)
    # Those who are left over are where the others are: a projection would put as many
    # of them in empty nodes.
    scale = (parents / people.sum(1).clamp(min=1e-9)).clamp(min=1)[:, None]
    return torch.where(is_there, people * scale, -torch.inf), standing > 0.5


def _prior_odds(nodes: _Siblings, standing: Tensor, is_there: Tensor) -> Tensor:
    """The log-odds that a child stands out, by how many of its siblings do and how many
    of all nodes: (parents, 1).
    """
    like = _STANDING.like
    rare = standing.sum() / max(int(is_there.sum()), 1)
    n_standing = standing.sum(1) + nodes.parent_is_out
    share = (n_standing + like * rare) / (is_there.sum(1) + like)
    min_share = 1 / nodes.counts.numel()
    return torch.logit(share.clamp(min_share, 0.5))[:, None]


def _log_ratio(deviations: Tensor) -> Tensor:
    """The log-likelihood ratio of a count that lies so many deviations above the law,
    if what stands out has a quasi-Cauchy law (Johnstone, Silverman, Ann. Statist.
    2004).
    """
    square = deviations.clamp(1e-3, _STANDING.certain) ** 2
    return torch.log(2 * torch.expm1(square / 2) / square)


def _standing_out(counts: Tensor, noise: float, people: float) -> Tensor:
    """Counts that stand out of the noise, and the rest of the people evenly on all
    others.
    """
    is_clear = counts > CLEAR * noise
    rest = people - float(counts[is_clear].sum())
    if rest <= 0 or bool(is_clear.all()):
        return to_simplex(counts[None], counts.new_tensor([people]))[0]
    others = float((~is_clear).sum())
    return torch.where(is_clear, counts, rest / others)
