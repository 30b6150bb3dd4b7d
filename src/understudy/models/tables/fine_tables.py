"""One-way tables of many cells out of noisy trees: what a person's value is, as finely as the noise lets it be told.

The fine cells of a column are the leaves of a tree (`fan` children a node), and every layer of it was counted under
noise: a range of cells is then a few nodes, not thousands of leaves, each with its own noise.

- *Upwards*, a node is the mean of its own count and of its children's sum, weighted by 1/variance (Hay, Rastogi,
  Miklau, Suciu, VLDB 2010, §4.2).
- *Downwards*, the children of a node are projected onto the non-negative tables with the node's count: so noise on
  empty regions does not add up. (Clipping negative leaves gives every empty leaf half of its noise.)
- *What noise alone can explain* is not told as if it were known. Where the children that stand out of the noise, and
  those beside them that nearly do, hold nearly all of a node's people, the others have none: bounds that are far too
  wide would else put a few people a thousand times too far out. Where they hold fewer, those that stand out less are
  taken in, step by step. Below the top this is for nodes far beyond all that stand out (`_within_reach`). Children are
  drawn to even ones, by as much as noise explains their differences (James, Stein 1961), but for those that stand out
  of their siblings: else people would stand on one or two cells of each node. Of a long list of categories those that
  stand out have what was counted, and all others together the rest, evenly.

Differs from the paper: its second pass is least squares and may be negative.
Guarantee: reads released counts alone.
Edges: a total below 1 counts as 1, and then all is noise; leaves need not fill the last node.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from understudy.data.encoding.simplex import to_simplex

_CLEAR = 3.0  # deviations of its noise by which a node's count stands out
# the same, first as it should be, and then lower; one less beside a node that stands out
_STEPS = (3.0, 2.0, 1.0)
_REACH = 0.5  # of the length of all that stands out: so far beyond it there may be people who do not
_ROUNDS = 3  # of looking for children that stand out of their siblings
_NEARLY_ALL = 0.9  # of a node's people: with these in children that stand out, the others have none


def layer_sizes(leaves: int, fan: int) -> list[int]:
    """How many nodes each layer has, from the top: up to 2 `fan`, then `fan` times as many, and at last the leaves."""
    sizes = [leaves]
    while sizes[0] > 2 * fan:
        sizes.insert(0, -(-sizes[0] // fan))
    return sizes


def layers_of(counts: Tensor, fan: int) -> list[Tensor]:
    """The tree above these leaves (leaves,): the count of each node, layer by layer from the top."""
    layers = [counts]
    for size in reversed(layer_sizes(len(counts), fan)[:-1]):
        layers.insert(0, _children(layers[0], size, fan, 0).sum(1))
    return layers


def fine_table(
    layers: Sequence[Tensor],
    fan: int,
    *,
    noise: float,
    missing: Tensor | None = None,
    total: float | None = None,
    ordered: bool = True,
    spans: Tensor | None = None,
    edges: Tensor | None = None,
) -> Tensor:
    """The people in each leaf, `total` in all where that is known, and last those without a value where `missing` was
    counted.

    `layers` are noisy counts as `layers_of` has them. Categories are not `ordered`: they have no neighbours. `spans`
    are the lengths of leaves, by which people are even (without: alike; categories as they were counted), `edges`
    (leaves + 1,) the values between which they lie (without: evenly apart).
    """
    means, variances = [layer.double() for layer in layers], [1.0] * len(layers)
    for depth in range(len(layers) - 2, -1, -1):
        below = fan * variances[depth + 1]  # of the children's sum, in units of one count's
        sums = _children(means[depth + 1], len(means[depth]), fan, 0).sum(1)
        means[depth] = (below * means[depth] + sums) / (1 + below)
        variances[depth] = below / (1 + below)
    deviations = [noise * v**0.5 for v in variances]
    near = [_near_data(mean, one, ordered) for mean, one in zip(means, deviations, strict=True)]
    top = means[0] if missing is None else torch.cat([means[0], missing.double().reshape(1)])
    some = torch.cat([near[0], near[0].new_ones(len(_STEPS), len(top) - len(means[0]))], 1)
    people = torch.tensor([max(float(top.sum()) if total is None else total, 1.0)], dtype=torch.float64)
    if not ordered and spans is not None:
        return _standing_out(top, noise, float(people))
    nodes = _among(top[None], some[:, None], people, deviations[0])[0]
    absent, nodes = nodes[len(means[0]) :], nodes[: len(means[0])]
    lengths = [means[-1].new_ones(len(means[-1])) if spans is None else spans.double()]
    for mean in reversed(means[:-1]):
        lengths.insert(0, _children(lengths[0], len(mean), fan, 0).sum(1))
    ends = torch.arange(len(means[-1]) + 1.0, dtype=torch.float64) if edges is None else edges.double()
    for depth in range(1, len(means)):
        layer, one = means[depth], deviations[depth]
        starts = ends[:-1][:: fan ** (len(means) - 1 - depth)]
        close = near[depth][0] | _within_reach(layer, one, torch.cat([starts, ends[-1:]]))
        children = _children(layer, len(nodes), fan, -torch.inf)
        steps, even = (_children(part, len(nodes), fan, 0) for part in (close, lengths[depth]))
        nodes = _among(children, steps[None], nodes, one, even).flatten()[: len(layer)]
    return torch.cat([nodes, absent])


def _among(children: Tensor, near: Tensor, parents: Tensor, noise: float, even: Tensor | None = None) -> Tensor:
    """Each parent's people over its children near data, by the first step at which these hold all, or `even`."""
    left, found_all = children, torch.zeros(len(parents), dtype=torch.bool)
    for step in near:
        kept = step & children.isfinite()
        gone = parents - torch.where(kept, children, 0).sum(1)
        alone = (gone <= (1 - _NEARLY_ALL) * parents) & ~found_all
        if even is None:
            alone &= gone <= _CLEAR * noise * kept.sum(1).clamp(min=1).sqrt() + 1e-9 * parents
        left = torch.where(alone[:, None] & ~step, -torch.inf, left)
        found_all |= alone
    return to_simplex(left if even is None else _drawn_to_even(left, parents, noise, even), parents)


def _drawn_to_even(children: Tensor, parents: Tensor, noise: float, even: Tensor) -> Tensor:
    """Children with less of what noise explains, about as many in all as their parents have; those that stand out
    stay."""
    there = children.isfinite()
    counted, others = torch.where(there, children, 0), there
    for _ in range(_ROUNDS):
        shares, apart = _beside_even(counted, others, even)
        others = others & (apart <= _CLEAR * noise)
    shares, apart = _beside_even(counted, others, even)
    free = (others.sum(1, keepdim=True) - 1).clamp(min=0)
    explained = noise**2 * free / apart.square().sum(1, keepdim=True).clamp(min=1e-9)
    drawn = counted - apart * explained.clamp(max=1) * (shares.sum(1, keepdim=True) > 0)
    missing = parents - drawn.sum(1)
    return torch.where(there, drawn + missing[:, None] * shares, -torch.inf)


def _beside_even(counted: Tensor, others: Tensor, even: Tensor) -> tuple[Tensor, Tensor]:
    """The share of each of these children if they are even, and by how much they differ from that."""
    long = torch.where(others, even, 0)
    shares = long / long.sum(1, keepdim=True).clamp(min=1e-300)
    held = torch.where(others, counted, 0)
    return shares, torch.where(others, held - held.sum(1, keepdim=True) * shares, 0)


def _within_reach(layer: Tensor, deviation: float, ends: Tensor) -> Tensor:
    """Which nodes lie among those that stand out of the noise, or not far beyond, by the values where nodes begin."""
    seen = torch.nonzero(layer > _CLEAR * deviation)[:, 0]
    if not len(seen):
        return torch.zeros(len(layer), dtype=torch.bool)
    first, last = ends[seen[0]], ends[seen[-1] + 1]
    further = _REACH * (last - first)
    return (ends[:-1] >= first - further) & (ends[1:] <= last + further)


def even_but_for_spikes(counts: Tensor, noise: float, people: float) -> Tensor:
    """One table (cells,) with so many people: what stands out as it was counted, the rest drawn to even."""
    total = counts.new_tensor([max(people, 0.0)], dtype=torch.float64)
    cells = counts.double()[None]
    return to_simplex(_drawn_to_even(cells, total, noise, torch.ones_like(cells)), total)[0]


def _standing_out(counts: Tensor, noise: float, people: float) -> Tensor:
    """Counts that stand out of the noise, and the rest of the people evenly on all others."""
    seen = counts > _CLEAR * noise
    rest = people - float(counts[seen].sum())
    if rest <= 0 or bool(seen.all()):
        return to_simplex(counts[None], counts.new_tensor([people]))[0]
    return torch.where(seen, counts, rest / float((~seen).sum()))


def _near_data(layer: Tensor, deviation: float, ordered: bool) -> Tensor:
    """At each step, which nodes stand out of noise of this deviation, or nearly do beside one that does."""
    steps = []
    for clear in _STEPS:
        seen = layer > clear * deviation
        beside = torch.zeros_like(seen)
        beside[1:] |= seen[:-1]
        beside[:-1] |= seen[1:]
        steps.append(seen | (beside & (layer > (clear - 1) * deviation)) | (not ordered))
    return torch.stack(steps)


def _children(layer: Tensor, parents: int, fan: int, empty: float | bool) -> Tensor:
    """A layer by its parents, (parents, fan); the last parent may have fewer."""
    padded = layer.new_full((parents * fan,), empty)
    padded[: len(layer)] = layer
    return padded.view(parents, fan)
