"""A Gram matrix of counts that one silo has released by itself, as it stands in a file; added up, and the fit to it.

It holds every one- and two-way table of the silo's people. Counts of several silos are added with their noise, and one
mixture of products is fitted to the sum (`fit_gram`).

Guarantee: reads released numbers alone. The same numbers give the same fit.
Edges: one silo is a pool of one; what is drawn of it alone comes from a small fit, fast enough to be looked at.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from understudy.data.encoding.frame import unpacked
from understudy.ground.check import in_range
from understudy.ground.errors import ConfigError
from understudy.models.network import MOST_NOISE, Network, each_whole
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.mixture import MixtureOfProducts

MOST_WIDTH = 1024
LOOK = {"components": 64, "steps": 60}  # of a fit to look at


class OfferedGram(Network):
    """`gram`: the upper triangle of the counts, row by row. The levels of the column `target` have noise of the first
    σ, alone and with those of the other columns; all other cells have the second.
    """

    kind, keys = "gram", ("sizes", "target", "noise")
    gram: Tensor
    latent = 1

    def __init__(self, sizes: Sequence[int], *, target: int, noise: Sequence[float]) -> None:
        super().__init__()
        shapes = gram_shapes(sizes, target, noise)
        self.sizes, self.target, self.noise = tuple(sizes), target, tuple(map(float, noise))
        self.gram = nn.Parameter(torch.zeros(shapes["gram"], dtype=torch.int64), requires_grad=False)

    @property
    def counts(self) -> Tensor:
        """The whole matrix: (width, width)."""
        return unpacked(self.gram.detach(), sum(self.sizes))

    @property
    def deviations(self) -> Tensor:
        """The σ of every cell: (width, width)."""
        own = of_column(self.sizes, self.target)
        return torch.where(own[:, None] | own, self.noise[0], self.noise[1]).double()

    @property
    def alike(self) -> Any:
        """What counts have in common that can be added."""
        return self.sizes, self.target

    @staticmethod
    def added(offers: Sequence["OfferedGram"], *, components: int | None = None, steps: int = 800) -> MixtureOfProducts:
        """One fit, of four components a level (64 to 512) if none are said. ConfigError where columns differ."""
        one = offers[0]
        components = components or max(64, min(4 * sum(one.sizes), 512))
        if any(other.alike != one.alike for other in offers):
            raise ConfigError("counts of other columns cannot be added.")
        counts = torch.stack([offer.counts for offer in offers]).sum(0).double()
        noise = torch.stack([offer.deviations.square() for offer in offers]).sum(0).sqrt()
        with torch.enable_grad():  # a fit may be asked for while something is drawn
            fitted = fit_gram(counts, one.sizes, noise=noise, components=components, steps=steps, seed=0)
        if not math.isfinite(float(fitted.logits.sum())):
            raise ConfigError("nothing can be fitted to these counts.")
        return fitted.eval()

    def aimed(self, z: Tensor, label: int, rng: Any) -> Tensor:
        """As many latent points, of components that are each as likely as they have this class: (n, 1)."""
        odds = self.fit.odds()
        own = odds[:, of_column(self.sizes, self.target)][:, label].double()
        ends = own.clamp(min=1e-12).cumsum(0)
        pick = torch.searchsorted(ends, rng.uniform(len(z)) * ends[-1]).clamp(max=len(ends) - 1)
        points: Tensor = torch.special.ndtri((pick + 0.5) / len(ends))
        return points[:, None].float()

    @cached_property
    def fit(self) -> MixtureOfProducts:
        return self.added([self], **LOOK)

    def rows(self, z: Tensor) -> Tensor:
        return self.fit.rows(z)


def gram_shapes(sizes: Any, target: Any, noise: Any) -> dict[str, tuple[int, ...]]:
    """The tensors of an offer, by arithmetic. ConfigError for what no offer has."""
    for some in (sizes, noise):
        if not isinstance(some, list | tuple):
            raise ConfigError("a Gram matrix has a list of sizes and one of noise.")
    each_whole(sizes=sizes)
    if type(target) is not int or not 0 <= target < len(sizes) or len(noise) != 2:
        raise ConfigError("a Gram matrix has a column for its target, and the noise of two kinds of cells.")
    if (width := sum(sizes)) > MOST_WIDTH:
        raise ConfigError(f"a Gram matrix is offered of at most {MOST_WIDTH:,} levels in all, not {width:,}.")
    for sigma in noise:
        in_range(0, MOST_NOISE, noise=sigma)
    return {"gram": (width * (width + 1) // 2,)}


def of_column(sizes: Sequence[int], column: int) -> Tensor:
    """Which levels are of this column: (width,)."""
    return torch.repeat_interleave(torch.tensor(sizes)) == column
