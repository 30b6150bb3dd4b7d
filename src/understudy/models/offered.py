"""Sums that one silo has released by itself, as they stand in a file; added up over
silos; and the fit to the total.

*Counts* (`OfferedGram`): every one- and two-way table of the silo's people. A mixture
of products is fitted to the sum (`fit_gram`); what is drawn of one silo alone comes
from a small fit, fast enough to be looked at.

*Moments* (`OfferedMoments`). A silo measures about a centre of its own: the mean of all
of its rows that its first release gave, shrunk (`fit.middle`). Second moments about it
are pulled in to a radius that the same release gave. What differs between silos are the
centres. By the law of total covariance, with n_c people of a class at a silo, a its
centre, μ_c the common means of the classes and m = Σ n_c μ_c / Σ n_c what its mean
would be by its classes alone, the sum of (x − μ_c)(x − μ_c)ᵀ over its people is

    S − Σ n_c (μ_c − m)(μ_c − m)ᵀ + Σ n_c (a − m)(a − m)ᵀ,

where S is about a, and the silo's classes are all taken to lie by a − m from where they
lie elsewhere. What noise leaves in the mean of a class all images drawn of it share,
and a network that learns from them takes it for a mark of the class: so images are
drawn with `VEIL` times its variance besides.

Guarantee: reads released numbers alone. The same numbers give the same fit.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from understudy.data.encoding.frame import Frame, unpacked
from understudy.ground.check import in_range, whole
from understudy.ground.errors import ConfigError
from understudy.models.moments.fit import (
    MOST_KEPT,
    MOST_TURNED,
    RADIUS,
    centres,
    directions,
    fit_cells,
)
from understudy.models.moments.gaussians import CellGaussians, InFrame, match_shades
from understudy.models.moments.released import (
    MOST_OFFERED,
    Released,
    first_size,
    read_first,
    read_moments,
)
from understudy.models.network import (
    MOST_NOISE,
    Network,
    Shapes,
    check_weights,
    each_whole,
)
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.mixture import MixtureOfProducts

MOST_WIDTH = 1024
LOOK = {"components": 64, "steps": 60}  # of a fit to look at
MOST_VALUES = 1 << 14  # of a row
MOST_SCALE = 1 << 10
# of the variance that noise has left in the means of classes: images are drawn with it
# besides
VEIL = 8.0


class _Offered(Network):
    """`fit` is that to this silo's sums alone. Those that are `alike` can be
    `added`.
    """

    fit: Any

    def _hold(self, shapes: Shapes) -> None:
        check_weights("an offer", sum(map(math.prod, shapes.values())))
        for name, shape in shapes.items():
            self.register_parameter(
                name,
                nn.Parameter(
                    torch.zeros(shape, dtype=torch.int64),
                    requires_grad=False,
                ),
            )

    def rows(self, z: Tensor) -> Tensor:
        drawn: Tensor = self.fit.rows(z)
        return drawn


class OfferedGram(_Offered):
    """`gram`: the upper triangle of the counts. Cells with levels of the column
    `target` have the first σ as noise.
    """

    kind = "gram"
    keys = ("sizes", "target", "noise")
    gram: Tensor
    latent = 1

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        target: int,
        noise: Sequence[float],
    ) -> None:
        super().__init__()
        self._hold(gram_shapes(sizes, target, noise))
        self.sizes = tuple(sizes)
        self.target = target
        self.noise = tuple(map(float, noise))

    @property
    def counts(self) -> Tensor:
        """The whole matrix: (width, width)."""
        return unpacked(self.gram.detach(), sum(self.sizes))

    @property
    def deviations(self) -> Tensor:
        """The σ of every cell: (width, width)."""
        is_target = of_column(self.sizes, self.target)
        return torch.where(
            is_target[:, None] | is_target, self.noise[0], self.noise[1]
        ).double()

    @property
    def alike(self) -> Any:
        return self.sizes, self.target

    @staticmethod
    def added(
        offers: Sequence["OfferedGram"],
        *,
        components: int | None = None,
        steps: int = 800,
    ) -> MixtureOfProducts:
        """One fit, of four components a level (64 to 512) if none are said. ConfigError
        where columns differ.
        """
        one = offers[0]
        components = components or max(64, min(4 * sum(one.sizes), 512))
        if any(other.alike != one.alike for other in offers):
            raise ConfigError("counts of other columns cannot be added.")
        counts = torch.stack([offer.counts for offer in offers]).sum(0).double()
        noise = (
            torch.stack([offer.deviations.square() for offer in offers]).sum(0).sqrt()
        )
        with torch.enable_grad():  # a fit may be asked for while something is drawn
            fitted = fit_gram(
                counts,
                one.sizes,
                noise=noise,
                components=components,
                steps=steps,
                seed=0,
            )
        if not math.isfinite(float(fitted.logits.sum())):
            raise ConfigError("nothing can be fitted to these counts.")
        return fitted.eval()

    @property
    def row_numbers(self) -> int:
        return 3 * sum(self.sizes)

    def aimed(self, z: Tensor, label: int, rng: Any) -> Tensor:
        """As many latent points, of components that are each as likely as they have
        this class: (n, 1).
        """
        label_probabilities = self.fit.odds()[:, of_column(self.sizes, self.target)][
            :, label
        ].double()
        ends = label_probabilities.clamp(min=1e-12).cumsum(0)
        pick = torch.searchsorted(ends, rng.uniform(len(z)) * ends[-1]).clamp(
            max=len(ends) - 1
        )
        points: Tensor = torch.special.ndtri((pick + 0.5) / len(ends))
        return points[:, None].float()

    @cached_property
    def fit(self) -> MixtureOfProducts:
        return self.added([self], **LOOK)


def gram_shapes(sizes: Any, target: Any, noise: Any) -> Shapes:
    """The tensors of an offer, by arithmetic. ConfigError for what no offer has."""
    for some in (sizes, noise):
        if not isinstance(some, list | tuple):
            raise ConfigError("a Gram matrix has a list of sizes and one of noise.")
    each_whole(sizes=sizes)
    if type(target) is not int or not 0 <= target < len(sizes) or len(noise) != 2:
        raise ConfigError(
            "a Gram matrix has a column for its target, and the noise of two kinds of "
            "cells."
        )
    width = sum(sizes)
    if width > MOST_WIDTH:
        raise ConfigError(
            f"a Gram matrix is offered of at most {MOST_WIDTH:,} levels in all, not "
            f"{width:,}."
        )
    for sigma in noise:
        in_range(0, MOST_NOISE, noise=sigma)
    return {"gram": (width * (width + 1) // 2,)}


def of_column(sizes: Sequence[int], column: int) -> Tensor:
    """Which levels are of this column: (width,)."""
    return torch.repeat_interleave(torch.tensor(sizes)) == column


class OfferedMoments(_Offered, InFrame):
    """Released: `first`, `pooled`, `cells` about the `centre` in `radius`, which became
    `scales`; `noise`: three σ.
    """

    kind = "moments"
    keys = ("frame", "classes", "scales", "noise")
    first: Tensor
    pooled: Tensor
    cells: Tensor
    centre: Tensor
    radius: Tensor

    def __init__(
        self,
        frame: Frame,
        *,
        classes: int,
        scales: Sequence[int],
        noise: Sequence[float],
    ) -> None:
        super().__init__()
        self._hold(moment_shapes(frame, classes, scales, noise))
        self.frame = frame
        self.classes = classes
        self.scales = tuple(scales)
        self.noise = tuple(map(float, noise))

    def read(self) -> tuple[Released, Released, Released]:
        """What the three releases say, in steps of the frame."""
        d = self.frame.features
        radius = float(self.radius)
        pooled = read_moments(self.pooled, d, radius, self.scales[0], self.noise[1])
        cells = read_moments(self.cells, d, radius, self.scales[1], self.noise[2])
        return (
            read_first(self.frame, self.classes, self.first, self.noise[0]),
            pooled,
            cells,
        )

    @property
    def alike(self) -> Any:
        return self.frame, self.classes

    @staticmethod
    def added(offers: Sequence["OfferedMoments"]) -> CellGaussians:
        """One fit to the sums of several silos. They are of one frame and have the same
        classes: ConfigError if not.
        """
        one = offers[0]
        if any(other.alike != one.alike for other in offers):
            raise ConfigError(
                "moments in another frame, or of other classes, cannot be added."
            )
        read = [offer.read() for offer in offers]
        first, pooled, cells = (_summed(parts) for parts in zip(*read, strict=True))
        centre = centres(first, one.frame)
        for offer, each in zip(offers, read, strict=True):
            people = each[0]["people"].clamp(min=0)
            overall_mean = (people @ centre.means) / people.sum().clamp(min=1.0)
            apart = centre.means - overall_mean
            beside = offer.centre.double() - overall_mean
            # (classes, d, d)
            moved = beside[:, None] * beside - apart[:, :, None] * apart[:, None, :]
            moved *= people[:, None, None]
            pooled["moments"] += moved.sum(0)
            cells["moments"] += moved
        kept = directions(pooled, centre, one.frame)
        if one.frame.sides == 2:
            kept = replace(kept, tail=kept.tail + VEIL * centre.marks)
        cells["moments"] = kept.basis.T @ cells["moments"] @ kept.basis
        network = fit_cells(one.frame, centre, kept, cells)
        match_shades(
            network,
            first["shades"],
            float(first["shades_noise"]),
            float(centre.people.sum()),
        )
        return network.requires_grad_(False).eval()

    @property
    def row_numbers(self) -> int:
        most = MOST_TURNED if self.frame.upright else MOST_KEPT
        return 3 * (math.prod(self.frame.shape) + self.frame.features + most)

    def aimed(self, z: Tensor, label: int, rng: Any) -> Tensor:
        return self.fit.aimed(z, label)

    @cached_property
    def fit(self) -> CellGaussians:
        return self.added([self])

    @property
    def latent(self) -> int:  # type: ignore[override]
        return self.fit.latent

    def classes_of(self, z: Tensor) -> Tensor:
        return self.fit.classes_of(z)


def moment_shapes(
    frame: Frame,
    classes: Any,
    scales: Sequence[Any],
    noise: Sequence[Any],
) -> Shapes:
    """The tensors of an offer, by arithmetic. ConfigError for what no offer has."""
    whole(classes=classes, sides=frame.sides)
    kept = frame.features - frame.poses
    if (
        frame.sides not in RADIUS
        or frame.sides > len(frame.shape)
        or kept > MOST_OFFERED
    ):
        raise ConfigError(
            f"moments are of images or series, in at most {MOST_OFFERED} features."
        )
    if math.prod(frame.shape) > MOST_VALUES or kept > math.prod(frame.shape):
        raise ConfigError(
            f"moments are of rows of at most {MOST_VALUES:,} values, and no more "
            "features."
        )
    if len(scales) != 2 or len(noise) != 3:
        raise ConfigError(
            "moments have the scales of two releases and the noise of three."
        )
    for scale in scales:
        whole(scales=scale)
        if scale > MOST_SCALE:
            raise ConfigError(
                f"second moments have a scale of at most {MOST_SCALE:,}, not {scale:,}."
            )
    for sigma in noise:
        in_range(0, MOST_NOISE, noise=sigma)
    d = frame.features
    triangle = frame.features * (frame.features + 1) // 2
    first = first_size(frame, classes)
    return {
        "first": (first,),
        "pooled": (triangle,),
        "cells": (classes, triangle),
        "centre": (d,),
        "radius": (1,),
    }


def _summed(parts: Sequence[Released]) -> Released:
    every = {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
    noise = {
        name: some.square().sum(0).sqrt()
        for name, some in every.items()
        if name.endswith("_noise")
    }
    return {name: some.sum(0) for name, some in every.items()} | noise
