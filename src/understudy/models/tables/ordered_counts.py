"""The noisy counts of one ordered column, and the scales on which its density is
fitted.

A column's tree has the people of ranges of leaves, layer by layer (hierarchical
histograms; Hay et al., VLDB 2010); `Counted` are the people of any other ranges.

Guarantee: reads released counts alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.models.simplex import to_simplex

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


class Counted(NamedTuple):
    """People between leaves: from each of `places` (n + 1,) to the next; `noise` is its
    deviation, (n,) or one.
    """

    places: Tensor
    counts: Tensor
    noise: Tensor | float


class Ranges(NamedTuple):
    """The same as numbers of NumPy's: from each of `places` (n + 1,) to the next the
    people, and the variance of their noise.
    """

    places: Places
    counts: Floats
    variance: Floats

    @classmethod
    def from_counted(cls, one: Counted) -> "Ranges":
        deviation = torch.as_tensor(one.noise, dtype=torch.float64)
        variance = deviation.square().numpy()
        return cls(
            one.places.numpy(),
            one.counts.double().numpy(),
            np.broadcast_to(variance, one.counts.shape),
        )


@dataclass(eq=False)
class Ordered:
    """One column's counts: of its tree, `layers` from the top, and `also` others.
    `total` people, but for a deviation `sure`; `edges` (leaves + 1,): the values
    between which leaves lie.

    `surest`: in deviations of one count, how well their number is known at best: one
    that is public would have infinite weight beside counts that are not.
    `longest`: a layer of more nodes is not read, as it says little about a smooth law.
    """

    layers: Sequence[Tensor]
    fan: int
    noise: float
    total: float
    sure: float
    edges: Floats
    also: Sequence[Counted] = ()
    surest: float = 0.3
    longest: int = 8192
    counted: list[Ranges] = field(init=False)
    last: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.sure = max(self.sure, self.surest * self.noise)
        self.last = self.layers[-1].double().numpy()
        trees = []
        for depth, layer in enumerate(self.layers):
            if len(layer) <= self.longest:
                places = torch.arange(len(layer) + 1) * self._leaves_of_node(depth)
                within = places.clamp(max=len(self.last))
                trees.append(Counted(within, layer, self.noise))
        self.counted = [Ranges.from_counted(one) for one in (*self.also, *trees)]

    def peaks(self, *, peak: float = 8.0) -> Floats:
        """By how many people those leaves that stand out exceed all others around.

        `peak`: so many deviations. A law fitted to thousands of people in one leaf does
        not come back (`days_since` of benchmarks/strangers, 31 deviations off).
        """
        around = np.sort(neighbours(self.last), axis=1)
        more = self.last - around[:, -2]
        return np.where(more > peak * self.noise, more, 0.0)

    def scales(self) -> tuple[Floats, Floats, Floats]:
        """Where the edges lie on the scales that are tried: about the median, about
        zero, and even.
        """
        edges = self.edges
        tenth, quarter, median, three_quarters, nine_tenths = self._rough_quantiles()
        length = edges[-1] - edges[0]
        least = max(float(np.diff(edges).min()), 1e-9 * length)
        spread = max(three_quarters - median, median - quarter, least) / 2
        smallest = min(abs(tenth), abs(nine_tenths), abs(median)) / 2
        small = max(smallest, least, 1e-6 * abs(median))
        about_median = np.arcsinh((edges - median) / spread)
        about_zero = np.arcsinh(edges / small)
        return about_median, about_zero, edges / spread

    def _rough_quantiles(self) -> Floats:
        """The 10, 25, 50, 75 and 90 % quantiles, by a layer of few nodes."""
        depths = range(len(self.layers))
        small_depths = [d for d in depths if len(self.layers[d]) <= 2 * self.fan**2]
        depth = max(small_depths, default=0)
        layer = self.layers[depth].double()
        total = torch.tensor([self.total], dtype=torch.float64)
        people = to_simplex(layer[None], total)[0].numpy()
        below = cumulated(people) / max(people.sum(), 1e-9)
        nodes = np.arange(len(layer)) * self._leaves_of_node(depth)
        places = np.append(nodes, len(self.edges) - 1)
        quantiles = np.interp((0.1, 0.25, 0.5, 0.75, 0.9), below, self.edges[places])
        return np.asarray(quantiles)

    def _leaves_of_node(self, depth: int) -> int:
        leaves: int = self.fan ** (len(self.layers) - 1 - depth)
        return leaves


def cumulated(parts: NDArray[Any]) -> NDArray[Any]:
    """Sums of the first 0, 1, … parts: one more than there are parts."""
    return np.append(0, np.cumsum(parts))


def neighbours(leaves: Floats, each_side: int = 4) -> Floats:
    """Each leaf's people amid those of so many leaves to each side: (leaves, …)."""
    padded = np.pad(leaves, each_side)
    return np.lib.stride_tricks.sliding_window_view(padded, 2 * each_side + 1)


def layer_sizes(leaves: int, fan: int) -> list[int]:
    """How many nodes each layer has, from the top: up to 2 `fan`, then `fan` times as
    many, and at last the leaves.
    """
    sizes = [leaves]
    while sizes[0] > 2 * fan:
        sizes.insert(0, -(-sizes[0] // fan))
    return sizes


def layers_of(counts: Tensor, fan: int) -> list[Tensor]:
    """The tree above these leaves (leaves,): the count of each node, layer by layer
    from the top.
    """
    layers = [counts]
    for size in reversed(layer_sizes(len(counts), fan)[:-1]):
        layers.insert(0, children_of(layers[0], size, fan, 0).sum(1))
    return layers


def children_of(
    layer: Tensor,
    parents: int,
    fan: int,
    empty: float | bool,
) -> Tensor:
    """A layer by its parents, (parents, fan); the last parent may have fewer."""
    padded = layer.new_full((parents * fan,), empty)
    padded[: len(layer)] = layer
    return padded.view(parents, fan)
