"""One-way tables of many cells out of noisy trees: what a person's value is, as finely as the noise lets it be told.

The fine cells of a column are the leaves of a tree (`fan` children a node), and every layer of it was counted under
noise: a range of cells is then a few nodes, not thousands of leaves, each with its own noise.

1. *Upwards*, a node is the mean of its own count and of its children's sum, weighted by 1/variance (Hay, Rastogi,
   Miklau, Suciu, "Boosting the accuracy of differentially private histograms through consistency", VLDB 2010, §4.2).
2. *Downwards*, the children of a node are projected onto the non-negative tables with the node's count (Wang,
   Carreira-Perpiñán 2013), node by node. So noise on empty regions does not add up: a node without people has no
   children. (Clipping negative leaves instead gives every empty leaf half of its noise.)
3. *What noise alone can explain* is not told as if it were known. Where the children that stand out of the noise, and
   those beside them that nearly do, hold nearly all of a node's people, and noise explains the difference, the others
   have none: bounds that are far too wide would else put a few people a thousand times too far out, and no mean
   survives that. Where they hold fewer, those that stand out less are taken in, step by step. Where the children
   differ from even ones by no more than noise does, they are even: else each node's people would stand on one or
   two of its cells, which nobody's values share. Of a long list of categories those that stand out of the noise have
   what was counted, and all others together have the rest, evenly.

Differs from the paper: its second pass is least squares and may be negative.
Guarantee: reads released counts alone.
Edges: a total below 1 counts as 1, and then all is noise; leaves need not fill the last node.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

_CLEAR = 3.0  # deviations of its noise by which a node's count stands out
_STEPS = (
    3.0,
    2.0,
    1.0,
)  # the same, first as it should be, and then lower; one less beside a node that stands out
_DIFFER = 2.0  # deviations of χ² by which the children of a node differ by more than noise does
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
) -> Tensor:
    """The people in each leaf, and last those without a value where `missing` was counted: float64, not negative.

    `layers` are noisy counts as `layers_of` has them, all under `noise` of this standard deviation. `total` is the
    number of people where that is known. The result adds up to it. Categories are not `ordered`: they have no
    neighbours. `spans` are the lengths of the leaves, by which people are even; without them leaves of a tree are
    alike, and categories are as they were counted.
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
    for layer, close, one, long in zip(means[1:], near[1:], deviations[1:], lengths[1:], strict=True):
        children = _children(layer, len(nodes), fan, -torch.inf)
        steps, even = _children(close[0], len(nodes), fan, False)[None], _children(long, len(nodes), fan, 0)
        nodes = _among(children, steps, nodes, one, even).flatten()[: len(layer)]
    return torch.cat([nodes, absent])


def _among(
    children: Tensor, near: Tensor, parents: Tensor, noise: float, even: Tensor | None = None
) -> Tensor:
    """Each parent's people over its children: over those near data alone, by the first step at which these hold all.

    `noise` is a child's deviation. Children that differ from `even` ones by no more than that are even.
    """
    left, found_all = children, torch.zeros(len(parents), dtype=torch.bool)
    for step in near:
        kept = step & children.isfinite()
        gone = parents - torch.where(kept, children, 0).sum(1)
        alone = (gone <= (1 - _NEARLY_ALL) * parents) & ~found_all
        if even is None:
            alone &= gone <= _CLEAR * noise * kept.sum(1).clamp(min=1).sqrt() + 1e-9 * parents
        left = torch.where(alone[:, None] & ~step, -torch.inf, left)
        found_all |= alone
    found, there = to_simplex(left, parents), left.isfinite()
    if even is None:
        return found
    known, long = torch.where(there, left, 0), torch.where(there, even, 0)
    shares = long / long.sum(1, keepdim=True).clamp(min=1e-300)
    apart = torch.where(there, known - known.sum(1, keepdim=True) * shares, 0).square().sum(1)
    free = (there.sum(1) - 1).clamp(min=0).double()
    alike = (apart <= noise**2 * (free + _DIFFER * (2 * free).sqrt())) & (long.sum(1) > 0)
    return torch.where(alike[:, None], parents[:, None] * shares, found)


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


def to_simplex(rows: Tensor, totals: Tensor) -> Tensor:
    """For each row (r, n) the nearest non-negative one with this sum; −∞ stands for a place that there is not."""
    falling = rows.sort(dim=1, descending=True).values
    real = falling.isfinite()
    above = torch.where(real, falling, 0).cumsum(1) - totals[:, None]
    count = torch.arange(1, rows.shape[1] + 1, device=rows.device)
    kept = (real & (falling * count > above)).sum(1).clamp(min=1)  # the largest ones come first
    shift = above.gather(1, kept[:, None] - 1) / kept[:, None]
    return (rows - shift).clamp(min=0)


def _children(layer: Tensor, parents: int, fan: int, empty: float | bool) -> Tensor:
    """A layer by its parents, (parents, fan); the last parent may have fewer."""
    padded = layer.new_full((parents * fan,), empty)
    padded[: len(layer)] = layer
    return padded.view(parents, fan)
