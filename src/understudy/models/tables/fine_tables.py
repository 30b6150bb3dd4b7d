"""One-way tables of many cells out of noisy trees: what a person's value is, as finely as the noise lets it be told.

The fine cells of a column are the leaves of a tree (`fan` children a node), and every layer of it was counted under
noise: a range of cells is then a few nodes, not thousands of leaves, each with its own noise.

- *Upwards*, a node is the mean of its own count and of its children's sum, weighted by 1/variance (Hay, Rastogi,
  Miklau, Suciu, VLDB 2010, §4.2).
- *Downwards*, the children of a node are projected onto the non-negative tables with the node's count: so noise on
  empty regions does not add up. (Clipping negative leaves gives every empty leaf half of its noise.)
- *What noise alone can explain* is read by a smooth law of all leaves (`smooth_law`): children are drawn to its shares
  of their parent, the more so the fewer people it expects there beside the noise, but for those that stand out of it.
  Ends beyond which fewer people are left than a part of one deviation are cut: nobody is drawn there. Of a long list of
  categories those that stand out have what was counted, and all others together the rest, evenly.

Differs from the paper: its second pass is least squares and may be negative.
Guarantee: reads released counts alone.
Edges: a total below 1 counts as 1, and then all is noise; leaves need not fill the last node.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from understudy.data.encoding.reach import to_simplex
from understudy.models.tables.smooth_law import Counted, clearly, smooth_law

_CLEAR = 3.0  # deviations of its noise by which a node's count stands out
_ROUNDS = 3  # of looking for children that stand out of their siblings
_UNLIKE = 0.5  # of what a smooth law expects in a node, so much it may be off by
_LOST = 0.15  # deviations: with fewer people beyond, an end is cut


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
    sure: float = 0.0,
    ordered: bool = True,
    listed: bool = False,
    edges: Tensor | None = None,
    also: Sequence[Counted] = (),
) -> Tensor:
    """The people in each leaf, `total` in all where that is known, but for a deviation `sure`, and last those without a
    value where `missing` was counted.

    `layers` are noisy counts as `layers_of` has them. Leaves without an order are taken as they were counted, or are
    `listed`: a long list. `edges` (leaves + 1,): the values between which ordered ones lie (without: evenly apart).
    `also`: what else was counted of ordered ones.
    """
    top = layers[0].double() if missing is None else torch.cat([layers[0].double(), missing.double().reshape(1)])
    people = max(float(top.sum()) if total is None else total, 1.0)
    if listed:
        return _standing_out(top, noise, people)
    if not ordered or not noise:
        leaves = top if len(layers) == 1 else torch.cat([layers[-1].double(), top[len(layers[0]) :]])
        return to_simplex(leaves[None], leaves.new_tensor([people]))[0]
    absent = top[len(layers[0]) :].clamp(0, people)
    there = max(people - float(absent.sum()), 1.0)
    values = torch.arange(len(layers[-1]) + 1.0) if edges is None else edges
    law = smooth_law(layers, fan, noise, there, values, sure, also)
    return torch.cat([_without_ends(_by_counts(layers, fan, noise, there, law), _LOST * noise), absent])


def _by_counts(layers: Sequence[Tensor], fan: int, noise: float, total: float, law: Tensor) -> Tensor:
    """The people in each leaf by a smooth law, and by what was counted where that says more."""
    means, variances, expected = [layer.double() for layer in layers], [1.0] * len(layers), [law]
    for depth in range(len(layers) - 2, -1, -1):
        below = fan * variances[depth + 1]  # of the children's sum, in units of one count's
        sums = _children(means[depth + 1], len(means[depth]), fan, 0).sum(1)
        means[depth] = (below * means[depth] + sums) / (1 + below)
        variances[depth] = below / (1 + below)
        expected.insert(0, _children(expected[0], len(means[depth]), fan, 0).sum(1))
    nodes, out = law.new_tensor([total]), torch.zeros(1, dtype=torch.bool)
    for layer, variance, smooth in zip(means, variances, expected, strict=True):
        size = len(layer) if len(nodes) == 1 and layer is means[0] else fan
        counted, even = (_children(part, len(nodes), size, empty) for part, empty in ((layer, -torch.inf), (smooth, 0)))
        drawn, standing = _drawn_to_law(counted, nodes, noise * variance**0.5, even, out)
        nodes, out = to_simplex(drawn, nodes).flatten()[: len(layer)], standing.flatten()[: len(layer)]
    return nodes


def _drawn_to_law(children: Tensor, parents: Tensor, noise: float, law: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """Each parent's children, drawn to their shares by the law, and which ones stand out of it: these stay. Where the
    parent stood `out` itself, one of its few children does, not of all.
    """
    there, alone = children.isfinite(), (parents < 2 * noise) | (len(parents) == 1)
    clear = clearly(children.numel(), alone[:, None])
    few = clearly(children.shape[1] * int(out.sum()), torch.zeros_like(alone))[:, None]
    clear = torch.where(out[:, None], few, clear) * noise
    counted, others = torch.where(there, children, 0), there
    for _ in range(_ROUNDS + 1):
        long = torch.where(others, law, 0)
        left = (parents - torch.where(others, 0, counted).sum(1)).clamp(min=0)
        smooth = long * (left / long.sum(1).clamp(min=1e-300))[:, None]
        others = others & (counted - smooth <= clear)
    unlike = (_UNLIKE * smooth) ** 2
    drawn = smooth + unlike / (unlike + noise**2) * (counted - smooth)
    found = torch.where(there, torch.where(others, drawn, counted).clamp(min=0), 0)
    # Those who are left over are where the others are: a projection would put as many of them in empty nodes.
    more = (parents / found.sum(1).clamp(min=1e-9)).clamp(min=1)[:, None]
    return torch.where(there, found * more, -torch.inf), there & ~others


def _without_ends(leaves: Tensor, lost: float) -> Tensor:
    """The same people without the first and the last leaves that have so few of them together."""
    below, above = leaves.cumsum(0), leaves.flip(0).cumsum(0).flip(0)
    kept = torch.where((below > lost) & (above > lost), leaves, 0)
    return kept * (leaves.sum() / kept.sum()) if kept.sum() > 0 else leaves


def even_but_for_spikes(counts: Tensor, noise: float, people: float) -> Tensor:
    """One table (cells,) with so many people: what stands out as it was counted, the rest drawn to even as far as noise
    explains that it is not.
    """
    counted, others = counts.double(), torch.ones_like(counts, dtype=torch.bool)

    def apart() -> Tensor:
        return torch.where(others, counted - counted[others].sum() / others.sum().clamp(min=1), 0)

    for _ in range(_ROUNDS):
        others = others & (apart() <= _CLEAR * noise)
    beside, rest = apart(), int(others.sum())
    drawn = counted - beside * (noise**2 * max(rest - 1, 0) / beside.square().sum().clamp(min=1e-9)).clamp(max=1)
    total = counted.new_tensor([max(people, 0.0)])
    return to_simplex((drawn + others * (total - drawn.sum()) / max(rest, 1))[None], total)[0]


def _standing_out(counts: Tensor, noise: float, people: float) -> Tensor:
    """Counts that stand out of the noise, and the rest of the people evenly on all others."""
    seen = counts > _CLEAR * noise
    rest = people - float(counts[seen].sum())
    if rest <= 0 or bool(seen.all()):
        return to_simplex(counts[None], counts.new_tensor([people]))[0]
    return torch.where(seen, counts, rest / float((~seen).sum()))


def _children(layer: Tensor, parents: int, fan: int, empty: float | bool) -> Tensor:
    """A layer by its parents, (parents, fan); the last parent may have fewer."""
    padded = layer.new_full((parents * fan,), empty)
    padded[: len(layer)] = layer
    return padded.view(parents, fan)
