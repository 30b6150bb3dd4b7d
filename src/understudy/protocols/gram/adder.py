"""The server adds up what the holders of a Gram matrix release: pads cancel, and the noise of all of them is left.

Whatever is in here is post-processing of paid replies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.grid import Block
from understudy.ground.errors import MessageError
from understudy.privacy.secure.counts import mirrored
from understudy.privacy.secure.ring import Ring
from understudy.protocols.gram.layout import Layout, Spread


@dataclass(frozen=True)
class Adder:
    """Adds the holders' parts up: the pads cancel, and the noise of all of them is left."""

    layout: Layout
    ring: Ring
    names: Sequence[str]

    def add(
        self, replies: Mapping[str, Any], wanted: Tensor, spread: Spread, sigma: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The matrix, the standard deviation of its noise, and which cells were released: (width, width)."""
        layout = self.layout
        starts = [*accumulate(layout.widths, initial=0)]
        width = starts[-1]
        gram = torch.zeros(width, width, dtype=torch.int64)
        noise = torch.zeros(width, width, dtype=torch.float64)
        released = torch.zeros(width, width, dtype=torch.bool)
        for place, block in enumerate(layout.blocks):
            g, h = block
            at = slice(starts[g], starts[g + 1]), slice(starts[h], starts[h + 1])
            parts = {name: replies[name].blocks.value for name in self._present(block)}
            gram[at] = self._sum(parts, place, layout.shape(block))
            cells = layout.cells(block, wanted)
            released[at] = cells
            noise[at] = cells * spread.deviation(block, len(parts), sigma)
        return mirrored(gram), mirrored(noise), released | released.T

    def fine(
        self, replies: Mapping[str, Any], spread: Spread, sigma: float
    ) -> tuple[list[Tensor], list[float]]:
        """The nodes of each group's trees, and the standard deviation of their noise."""
        layout, sums, noise = self.layout, [], []
        for group, trees in enumerate(layout.trees):
            block = (group, group)
            parts = {name: replies[name].blocks.value for name in self._present(block)}
            sums.append(self._sum(parts, layout.blocks.index(block), (trees.nodes,)))
            noise.append(spread.deviation(block, len(parts), sigma))
        return sums, noise

    def triples(self, replies: Mapping[str, Any], spread: Spread, sigma: float) -> list[dict[str, Any]]:
        """The three-way tables, with their columns' numbers and the standard deviation of their noise."""
        layout, tables = self.layout, []
        names = layout.joint.names
        for number, triple in enumerate(layout.triples):
            place = layout.place(triple)
            assert place is not None
            parts = {name: replies[name].triples.value for name in self._present(place.block)}
            tables.append(
                {
                    "columns": [names.index(column) for column in triple],
                    "table": self._sum(parts, number, layout.shape_of(place)),
                    "noise": spread.deviation(place.block, len(parts), sigma),
                }
            )
        return tables

    def noisiest(self, spread: Spread, sigma: float) -> float:
        """The largest standard deviation of a block's noise."""
        return max(spread.deviation(block, len(self._present(block)), sigma) for block in self.layout.blocks)

    def _present(self, block: Block) -> list[str]:
        return [name for name in self.layout.holders(block) if name in self.names]

    def _sum(self, parts: Mapping[str, Any], place: int, shape: Sequence[int]) -> Tensor:
        total = np.zeros(tuple(shape), dtype=self.ring.dtype)
        for name, sent in parts.items():
            value = sent.get(str(place)) if isinstance(sent, dict) else None
            if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.shape != tuple(shape):
                raise MessageError(f"{name}: a part is not {tuple(shape)} whole numbers. It was discarded.")
            total += self.ring.words(value)
        return self.ring.signed(total)


def together(
    first: tuple[Tensor, Tensor, Tensor], second: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Two measurements as one: where both were made their mean, weighted by 1/variance."""
    (a, a_noise, a_made), (b, b_noise, b_made) = first, second
    both = a_made & b_made
    exact = both & (b_noise == 0)
    weight = torch.where(both, a_noise**2 / (a_noise**2 + b_noise**2).clamp(min=1e-300), b_made.double())
    weight = torch.where(exact, 1.0, weight)
    gram = (1 - weight) * a + weight * b
    noise = torch.sqrt(((1 - weight) * a_noise) ** 2 + (weight * b_noise) ** 2)
    return gram, noise, a_made | b_made
