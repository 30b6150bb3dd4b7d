"""Images or series drawn from Gaussians in a public frame, each of a cell of a class,
and spread as histograms say.

A row is m_c + B F_c u + t ∘ v with u and v standard normal: the cell's mean, its own
covariance in the directions B that all cells share, and beside them the small variances
t² of the coefficients. Of series t is multiplied by exp(a w − a²), with w normal and
one for a row, which leaves t² as it is on average: a few rows have most of what is
beside the directions (`BURST`). It is then turned back from the frame
(`data.encoding.frame`), an image that was turned upright to how it leaned.

A Gaussian has no notion of a value that most places share (the black of a digit's
ground), nor of an end. So values are mapped, channel by channel, by a rising line
through `KNOTS` points, rank by rank to those of the noisy histogram of all rows:
contrast comes back. The network's own spread is known by drawing from it, which costs
nothing. Histograms whose noise would move a share by more than `LOUD` of all values are
not believed channel by channel. Of series what all channels have in common is still
looked at: how their histograms differ from the network's own, wave by wave over the
bins, on average over the channels, and shrunk by the share of it that is not noise.

*The likeliest class* (`bayes_rule`). A cell has the mean m and the covariance A Aᵀ + D
with A = B F, and D, a diagonal, is the same for all. With I + Aᵀ D⁻¹ A = L Lᵀ and R =
L⁻¹ Aᵀ D⁻¹ (Woodbury), the part of a row's log density that differs between cells is

    yᵀ D⁻¹ μ − ½ μᵀ D⁻¹ μ + ½ |R (y − μ)|² − Σ log L_ii + log share,

y and μ being the row and the mean about the mean of all. What was not told from noise
is in no covariance, and rows do vary there: so D is the fit's own diagonal and `FLOOR`
of the mean variance besides. It was chosen on MNIST (ε = 1: .933 with 0.1, .938 with
0.3, .945 with 1) and left so (Fashion-MNIST: .758, .784, .791).

Guarantee: reads released numbers alone, and is the same for the same numbers.
Edges: loud histograms of images, or none, are left aside, and values are cut to [0, 1]
as they are. Probabilities of classes are surer than they should be; their order is what
is good.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from understudy.data.encoding.frame import UNIT, Frame, dct
from understudy.ground.check import whole
from understudy.ground.errors import ConfigError
from understudy.models.network import MOST_WEIGHTS, Network
from understudy.models.simplex import to_simplex

if TYPE_CHECKING:
    from understudy.models.cohort.classifier import Quadratic

KNOTS = 257
# a in exp(a w − a²): half of all series have less than exp(−2a²) of the variance beside
# the directions. By benchmarks/series, Sine and Energy.
BURST = 1.0
FLOOR = 1.0
_MOST_CELLS = 1 << 16


class InFrame(Network):
    frame: Frame

    @classmethod
    def arguments(cls, description: Mapping[str, Any]) -> dict[str, Any]:
        given = {key: description[key] for key in cls.keys if key != "frame"}
        return {"frame": Frame.from_description(description), **given}


class FrameValues(nn.Module):
    """What Gaussians in a frame share: factors (cells, k, k) in `basis`, a `tail`, a
    line from `inner` to `outer`.
    """

    frame: Frame

    def make_frame(self, frame: Frame, cells: int, directions: int) -> None:
        self.frame = frame
        self.factors = nn.Parameter(torch.zeros(cells, directions, directions))
        self.basis = nn.Parameter(torch.zeros(frame.features, directions))
        self.tail = nn.Parameter(torch.zeros(frame.features))
        line = torch.linspace(0, 1, KNOTS).repeat(frame.channels, 1)
        self.inner = nn.Parameter(line)
        self.outer = nn.Parameter(line.clone())

    @cached_property
    def _back(self) -> Tensor:
        return torch.from_numpy(self.frame.matrix()).float()  # (features, values)

    @property
    def beside(self) -> int:
        """How many normals a row takes beside those of its directions."""
        return self.frame.features + (self.frame.sides == 1)

    def varied(self, means: Tensor, cell: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Coefficients of rows of these cells (n,) about their means, by normals (n, k)
        and (n, beside).
        """
        features = self.frame.features
        noise = v[:, :features] * self.tail
        if self.frame.sides == 1:
            noise = noise * (BURST * v[:, features:] - BURST**2).exp()
        moved = torch.empty_like(u)
        for one in sorted(set(cell.tolist())):
            here = cell == one
            moved[here] = u[here] @ self.factors[one].T
        return means + moved @ self.basis.T + noise

    def turned_back(self, coefficients: Tensor) -> Tensor:
        """Coefficients (n, features) → values as the Gaussians have them, (n, places,
        channels).
        """
        flat = 0.5 + coefficients @ self._back.to(coefficients.device)
        if self.frame.upright:
            flat = self.frame.leaning(flat, coefficients)
        return flat.view(len(flat), -1, self.frame.channels)

    def shaded(self, raw: Tensor) -> Tensor:
        """Values as the Gaussians have them → values in [0, 1], both (n, places,
        channels).
        """
        mapped = [
            mapped_through(raw[:, :, c], self.inner[c], self.outer[c])
            for c in range(raw.shape[2])
        ]
        return torch.stack(mapped, 2).clamp(0, 1)

    def take_map(self, points: tuple[Tensor, Tensor]) -> None:
        self.inner.copy_(points[0])
        self.outer.copy_(points[1])


class CellGaussians(FrameValues, InFrame):
    """`classes` × `cells` Gaussians with `directions` shared; a latent point picks the
    cell, and is u and v.
    """

    kind = "gaussians"
    keys = ("frame", "classes", "cells", "directions")

    def __init__(
        self, frame: Frame, *, classes: int, cells: int, directions: int
    ) -> None:
        super().__init__()
        whole(classes=classes, cells=cells, directions=directions)
        count = classes * cells
        width = frame.features
        numbers = count * (width + directions**2) + width * directions
        if directions > width or count > _MOST_CELLS or numbers > MOST_WEIGHTS:
            raise ConfigError(
                f"{count:,} Gaussians of {directions} directions are too large a model."
            )
        self.classes = classes
        self.cells = cells
        self.directions = directions
        self.shares = nn.Parameter(torch.full((count,), 1 / count))
        self.means = nn.Parameter(torch.zeros(count, width))
        self.make_frame(frame, count, directions)
        self.latent = 1 + directions + self.beside

    def pick(self, z: Tensor) -> Tensor:
        """The cell of each latent point: (n,)."""
        ends = self.shares.double().clamp(min=0).cumsum(0)
        at = torch.special.ndtr(z[:, 0].double()) * ends[-1]
        return torch.searchsorted(ends, at, right=True).clamp(max=len(ends) - 1)

    def classes_of(self, z: Tensor) -> Tensor:
        return self.pick(z) // self.cells

    def aimed(self, z: Tensor, one: int) -> Tensor:
        """The same latent points, with their first numbers moved to where they pick
        cells of this class.
        """
        ends = self.shares.double().clamp(min=0).cumsum(0)
        ends = torch.cat([ends.new_zeros(1), ends / ends[-1]])[:: self.cells]
        at = ends[one] + torch.special.ndtr(z[:, 0].double()) * (
            ends[one + 1] - ends[one]
        )
        first = torch.special.ndtri(at.clamp(1e-12, 1 - 1e-12))
        return torch.cat([first[:, None].to(z.dtype), z[:, 1:]], 1)

    def coefficients(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → coefficients in the frame (n, features)."""
        cell = self.pick(z)
        u = z[:, 1 : 1 + self.directions]
        v = z[:, 1 + self.directions :]
        return self.varied(self.means[cell], cell, u, v)

    def raw(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → values as the Gaussians have them, (n, places,
        channels).
        """
        return self.turned_back(self.coefficients(z))

    def rows(self, z: Tensor) -> Tensor:
        return self.shaded(self.raw(z)).view(-1, *self.frame.shape)


def mapped_through(values: Tensor, inner: Tensor, outer: Tensor) -> Tensor:
    """Values on the line through the points (inner, outer), both rising; constant
    beyond its ends.
    """
    after, part = _between(values, inner)
    return outer[after - 1] + part * (outer[after] - outer[after - 1])


def _between(values: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """The point after each value, and the part of the way to it from the one before."""
    after = torch.searchsorted(points.contiguous(), values.contiguous()).clamp(
        1, len(points) - 1
    )
    low = points[after - 1]
    high = points[after]
    return after, ((values - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)


LOUD = 0.02  # of all values: what the noise of half of the bins together may have
_DRAWN = 4096  # rows by which a network's own spread is known
_MOST = 1 << 22  # values of them
_BENT = 4.0
# how often the variance of noise is counted in what all channels have in common
_WARY = 2.0
_FINE = 1025  # values at which the spread of a channel is known


def match_shades(
    network: CellGaussians, shades: Tensor, noise: float, people: float
) -> bool:
    """Give the network a map to these histograms, (channels, bins), in people; whether
    they were quiet enough.
    """
    with torch.no_grad():
        raw = network.raw(some_latents(network.latent, math.prod(network.frame.shape)))
        found = shades_map(raw, shades, noise, people)
        quiet = found is not None
        if found is None and network.frame.sides == 1:
            found = _common_map(raw.double(), shades / people, noise / people)
        if found is not None:
            network.take_map(found)
    return quiet


def some_latents(latent: int, values: int) -> Tensor:
    """Always the same points by which a network's own spread is known, where a row has
    so many values.
    """
    rows = max(64, min(_DRAWN, _MOST // values))
    return torch.randn(rows, latent, generator=torch.Generator().manual_seed(0))


def shades_map(
    raw: Tensor,
    shades: Tensor,
    noise: float,
    people: float,
    means: Tensor | None = None,
) -> tuple[Tensor, Tensor] | None:
    """Points through which values (n, places, channels) are mapped to these histograms,
    (channels, knots) twice; None where they are loud. Within a bin values are even, or
    nearer to one end, as known `means` of channels ask.
    """
    bins = shades.shape[1]
    if noise / people * math.sqrt(bins) / 2 > LOUD:
        return None
    at = (torch.arange(KNOTS, dtype=torch.float64) + 0.5) / KNOTS
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64)
    inner = []
    outer = []
    for channel, counts in enumerate(shades):
        own = raw[:, :, channel].flatten().double().sort().values
        shares = to_simplex(
            (counts / counts.sum().clamp(min=1.0))[None], counts.new_ones(1)
        )[0]
        shares = torch.cat([torch.zeros(1, dtype=torch.float64), shares.cumsum(0)])
        inner.append(own[(at * (len(own) - 1)).round().long()].float())
        outer.append(
            _placed(
                at, shares, edges, None if means is None else float(means[channel])
            ).float()
        )
    return torch.stack(inner), torch.stack(outer)


def _common_map(raw: Tensor, shares: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """The same by what all histograms (channels, bins), under noise of this deviation,
    have in common.
    """
    channels, bins = shares.shape
    # (channels, n · places)
    own = raw.permute(2, 0, 1).flatten(1).sort(1).values.contiguous()
    cells = (own.clamp(0, 1) * bins).long().clamp(max=bins - 1)
    spread = (
        torch.stack([torch.bincount(some, minlength=bins) for some in cells])
        / own.shape[1]
    )
    waves = torch.from_numpy(dct(bins))[1:]  # the first is their sum, and no difference
    found = ((shares - spread) @ waves.T).mean(0)
    loud = _WARY * noise**2 / channels
    squares = found.square()
    signal = (
        torch.cat([squares[:1], squares, squares[-1:]]).unfold(0, 3, 1).mean(1) - loud
    ).clamp(min=0)
    more = (found * signal / (signal + loud).clamp(min=1e-300)) @ waves
    more = torch.cat([more.new_zeros(1), more.cumsum(0)])
    at = (torch.arange(KNOTS, dtype=torch.float64) + 0.5) / KNOTS
    edges, values = (
        torch.linspace(0, 1, n, dtype=torch.float64) for n in (bins + 1, _FINE)
    )
    below = (
        torch.searchsorted(own, values.expand(channels, -1).contiguous(), right=True)
        / own.shape[1]
    )
    below = torch.stack([_off_the_ends(some, values) for some in below])
    below = (below + mapped_through(values, edges, more)).clamp(0, 1).cummax(1).values
    inner = own[:, (at * (own.shape[1] - 1)).round().long()]
    return inner.float(), torch.stack(
        [mapped_through(at, some, values) for some in below]
    ).float()


def _off_the_ends(below: Tensor, values: Tensor) -> Tensor:
    """The spread of a channel, its share `below` each value, with those who are past an
    end evenly among as many next to it. A Gaussian has no end, and all whom it has past
    one would be drawn on it.
    """
    found = below.double().clone()
    past = 2 * float(below[0])
    near = below < past
    found[near] = past * values[near] / max(float(values[near][-1:].sum()), 1e-12)
    past = 2 * float(1 - below[-1])
    near = below > 1 - past
    found[near] = 1 - past * (1 - values[near]) / max(
        float((1 - values[near])[:1].sum()), 1e-12
    )
    return found


def _placed(at: Tensor, shares: Tensor, edges: Tensor, mean: float | None) -> Tensor:
    """The values at these ranks, where bins end at these shares."""
    if mean is None:
        return mapped_through(at, shares, edges)
    after, part = _between(at, shares)
    # the exponent's logarithm: values fall as it grows
    few = -_BENT
    many = _BENT
    for _ in range(40):
        bend = (few + many) / 2
        placed = edges[after - 1] + part ** math.exp(bend) * (
            edges[after] - edges[after - 1]
        )
        few, many = (bend, many) if float(placed.mean()) > mean else (few, bend)
    return placed


@torch.no_grad()
def bayes_rule(
    fit: CellGaussians, sizes: Sequence[int] | None = None, label: int = 0
) -> "tuple[Quadratic, Tensor]":
    """The network that scores rows in [0, 1], and its weights; of several labels of
    these `sizes` it tells this one.
    """
    from understudy.models.cohort.classifier import Quadratic, UprightQuadratic

    sizes = sizes or (fit.classes,)
    order = torch.arange(len(fit.shares)).view(*sizes, -1).movedim(label, 0).flatten()
    # (features, values), rows orthonormal
    back = torch.from_numpy(fit.frame.matrix()) * UNIT
    turned = fit.frame.poses
    if turned:  # how an image was turned stands before its values
        back = torch.cat(
            [torch.eye(fit.frame.features, turned, dtype=torch.float64), back], 1
        )
    own_means = fit.means.double()[order]
    own_factors = fit.factors.double()[order]
    means = own_means / UNIT
    tail = fit.tail.double() / UNIT
    factors = fit.basis.double() @ (own_factors / UNIT)  # (cells, features, k): A
    shares = fit.shares.double()[order].clamp(min=1e-12)
    varied = factors.square().sum(2).mean(0) + tail.square()
    diagonal = tail.square() + (FLOOR * varied.mean()).clamp(min=1e-12)
    centre = (shares @ means) / shares.sum()
    about = means - centre
    inner = factors.mT @ (factors / diagonal[:, None])
    lower = torch.linalg.cholesky(
        inner + torch.eye(fit.directions, dtype=torch.float64)
    )
    # L⁻¹ Fᵀ
    own = torch.linalg.solve_triangular(lower, own_factors.mT / UNIT, upper=False)
    # (k, features): Bᵀ D⁻¹, so that R = L⁻¹ Fᵀ Bᵀ D⁻¹
    shared = fit.basis.double().T / diagonal
    bias = (
        -(about.square() / diagonal).sum(1) / 2
        - lower.diagonal(dim1=1, dim2=2).log().sum(1)
        + shares.log()
    )
    classes = sizes[label]
    wide = {
        "directions": fit.directions,
        "cells": len(order) // classes,
        "classes": classes,
    }
    if turned:
        height, width = fit.frame.shape[:2]
        network: Quadratic = UprightQuadratic(
            features=back.shape[1], **wide, height=height, width=width
        )
    else:
        network = Quadratic(features=back.shape[1], **wide)
    middle = torch.full((back.shape[1],), 0.5, dtype=torch.float64)
    middle[:turned] = 0.0
    named = {
        "linear.weight": about / diagonal @ back,
        "linear.bias": bias,
        "centre": middle + centre @ back,
        "directions": shared @ back,
        "factors": own,
        "shifts": torch.einsum("cjk,kf,cf->cj", own, shared, about),
    }
    return network, network.flat({name: value.float() for name, value in named.items()})
