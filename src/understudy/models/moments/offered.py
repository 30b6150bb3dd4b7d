"""Moments that one silo has released by itself, as they stand in a file; added up over silos; and the fit to the sum.

A silo measures about a centre of its own: the mean of all of its rows that its first release gave, shrunk (`middle`).
Second moments about it are pulled in to a radius that the same release gave. Several silos' sums are added with their
noise; what differs are the centres. By the law of total covariance, with n_c people of a class at a silo, a its centre,
μ_c the common means of the classes and m = Σ n_c μ_c / Σ n_c what its mean would be by its classes alone, the sum of (x
− μ_c)(x − μ_c)ᵀ over its people is

    S − Σ n_c (μ_c − m)(μ_c − m)ᵀ + Σ n_c (a − m)(a − m)ᵀ,

where S is about a, and the silo's classes are all taken to lie by a − m from where they lie elsewhere. What noise
leaves in the mean of a class all images drawn of it share, and a network that learns from them takes it for a mark of
the class: so images are drawn with `VEIL` times its variance besides.

Guarantee: reads released numbers alone. The same numbers give the same fit.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from understudy.data.encoding.frame import Frame
from understudy.ground.check import in_range, whole
from understudy.ground.errors import ConfigError
from understudy.models.moments.fit import RADIUS, centres, directions, fit_cells, without_noise
from understudy.models.moments.gaussians import CellGaussians, InFrame, match_shades
from understudy.models.moments.released import MOST_OFFERED, Released, first_size, read_first, read_moments
from understudy.models.network import MOST_NOISE

MOST_VALUES = 1 << 14  # of a row
MOST_SCALE = 1 << 10
VEIL = 8.0  # of the variance that noise has left in the means of classes: images are drawn with it besides


class OfferedMoments(InFrame):
    """Released: `first`, `pooled`, `cells` about the `centre` in `radius`, which became `scales`; `noise`: three σ."""

    kind, keys = "moments", ("frame", "classes", "scales", "noise")
    first: Tensor
    pooled: Tensor
    cells: Tensor
    centre: Tensor
    radius: Tensor

    def __init__(self, frame: Frame, *, classes: int, scales: Sequence[int], noise: Sequence[float]) -> None:
        super().__init__()
        self.frame, self.classes = frame, classes
        self.scales, self.noise = tuple(scales), tuple(map(float, noise))
        shapes = moment_shapes(frame, classes, self.scales, self.noise)
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape, dtype=torch.int64), requires_grad=False))

    def read(self) -> tuple[Released, Released, Released]:
        """What the three releases say, in steps of the frame."""
        d, noise = self.frame.features, torch.full(self.first.shape, self.noise[0], dtype=torch.float64)
        radius = float(self.radius)
        return (
            read_first(self.frame, self.classes, self.first, noise),
            read_moments(self.pooled, d, radius, self.scales[0], self.noise[1]),
            read_moments(self.cells, d, radius, self.scales[1], self.noise[2]),
        )

    @property
    def alike(self) -> Any:
        """What sums have in common that can be added."""
        return self.frame, self.classes

    @staticmethod
    def added(offers: Sequence["OfferedMoments"]) -> CellGaussians:
        """One fit to the sums of several silos. They are of one frame and have the same classes: ConfigError if not."""
        one = offers[0]
        if any(other.alike != one.alike for other in offers):
            raise ConfigError("moments in another frame, or of other classes, cannot be added.")
        read = [offer.read() for offer in offers]
        first = _summed([each[0] for each in read])
        centre = centres(first, one.frame)
        pooled, cells = _summed([each[1] for each in read]), _summed([each[2] for each in read])
        for offer, each in zip(offers, read, strict=True):
            people = each[0]["people"].clamp(min=0)
            own = (people @ centre.means) / people.sum().clamp(min=1.0)
            apart, beside = centre.means - own, offer.centre.double() - own
            moved = beside[:, None] * beside - apart[:, :, None] * apart[:, None, :]  # (classes, d, d)
            moved *= people[:, None, None]
            pooled["moments"] += moved.sum(0)
            cells["moments"] += moved
        kept = directions(pooled, centre)
        if one.frame.sides == 2:
            kept = replace(kept, tail=kept.tail + VEIL * centre.marks)
        cells["moments"] = kept.basis.T @ cells["moments"] @ kept.basis
        network = fit_cells(one.frame, centre, kept, cells)
        match_shades(network, first["shades"], float(first["shades_noise"]), float(centre.people.sum()))
        return network.requires_grad_(False).eval()

    def aimed(self, z: Tensor, label: int, rng: Any) -> Tensor:
        return self.fit.aimed(z, label)

    @cached_property
    def fit(self) -> CellGaussians:
        return self.added([self])

    @property
    def latent(self) -> int:  # type: ignore[override]
        return self.fit.latent

    def rows(self, z: Tensor) -> Tensor:
        return self.fit.rows(z)

    def classes_of(self, z: Tensor) -> Tensor:
        return self.fit.classes_of(z)


def moment_shapes(
    frame: Frame, classes: Any, scales: Sequence[Any], noise: Sequence[Any]
) -> dict[str, tuple[int, ...]]:
    """The tensors of an offer, by arithmetic. ConfigError for what no offer has."""
    whole(classes=classes, sides=frame.sides)
    kept = frame.features - frame.poses
    if frame.sides not in RADIUS or frame.sides > len(frame.shape) or kept > MOST_OFFERED:
        raise ConfigError(f"moments are of images or series, in at most {MOST_OFFERED} features.")
    if math.prod(frame.shape) > MOST_VALUES or kept > math.prod(frame.shape):
        raise ConfigError(f"moments are of rows of at most {MOST_VALUES:,} values, and no more features.")
    if len(scales) != 2 or len(noise) != 3:
        raise ConfigError("moments have the scales of two releases and the noise of three.")
    for scale in scales:
        whole(scales=scale)
        if scale > MOST_SCALE:
            raise ConfigError(f"second moments have a scale of at most {MOST_SCALE:,}, not {scale:,}.")
    for sigma in noise:
        in_range(0, MOST_NOISE, noise=sigma)
    d = frame.features
    triangle = d * (d + 1) // 2
    return {
        "first": (first_size(frame, classes),),
        "pooled": (triangle,),
        "cells": (classes, triangle),
        "centre": (d,),
        "radius": (1,),
    }


def middle(first: Released, frame: Frame) -> tuple[Tensor, int]:
    """The centre that a silo measures about next, in whole steps, and the radius that rows are pulled in to."""
    most, classes = float(frame.reach), len(first["people"])
    people = first["people"].sum().clamp(min=1.0)
    noise = float(first["sums_noise"] / people) * math.sqrt(classes)
    mean = without_noise(first["sums"].sum(0) / people, noise)
    centre = (mean * (most / mean.norm().clamp(min=most))).round()
    least = min(max(float(first["energy_noise"] / people), 1e-4 * most**2), most**2)
    spread = float((first["energy"] / people - centre.square().sum()).clamp(min=least, max=most**2))
    return centre.long(), max(1, round(RADIUS[frame.sides] * math.sqrt(spread)))


def _summed(parts: Sequence[Released]) -> Released:
    return {
        name: torch.stack([part[name].square() for part in parts]).sum(0).sqrt()
        if name.endswith("_noise")
        else torch.stack([part[name] for part in parts]).sum(0)
        for name in parts[0]
    }


def fit_one_release(frame: Frame, first: Released, second: Released) -> CellGaussians:
    """Gaussians from one release, whose second moments, of all rows or of each class, are about the middle."""
    centre = centres(first, frame)
    about = centre.people[:, None, None] * centre.means[:, :, None] * centre.means[:, None, :]
    moments, noise = second["moments"], second["moments_noise"]
    if len(moments) < len(about):
        kept = directions({"moments": moments[0] - about.sum(0), "moments_noise": noise}, centre)
        return fit_cells(frame, centre, kept, None)
    each = moments - about
    pooled = {"moments": each.sum(0), "moments_noise": noise * math.sqrt(len(each))}
    kept = directions(pooled, centre)
    inside = torch.einsum("fi,cfg,gj->cij", kept.basis, each, kept.basis)
    return fit_cells(frame, centre, kept, {"moments": inside, "moments_noise": noise})
