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
        arguments = {key: description[key] for key in cls.keys if key != "frame"}
        arguments["frame"] = Frame.from_description(description)
        return arguments


class FrameValues(nn.Module):
    """What Gaussians in a frame share: factors (cells, k, k) in `basis`, a `tail`, a
    line from `inner` to `outer`.
    """

    frame: Frame

    def make_frame(
        self,
        frame: Frame,
        cells: int,
        directions: int,
    ) -> None:
        factors = torch.zeros(cells, directions, directions)
        basis = torch.zeros(frame.features, directions)
        tail = torch.zeros(frame.features)
        line = torch.linspace(0, 1, KNOTS).repeat(frame.channels, 1)
        self.frame = frame
        self.factors = nn.Parameter(factors)
        self.basis = nn.Parameter(basis)
        self.tail = nn.Parameter(tail)
        self.inner = nn.Parameter(line)
        self.outer = nn.Parameter(line.clone())

    @cached_property
    def _back(self) -> Tensor:
        matrix = torch.from_numpy(self.frame.matrix())  # (features, values)
        return matrix.float()

    @property
    def tail_normals(self) -> int:
        """How many normals a row takes beside those of its directions."""
        of_bursts = 1 if self.frame.sides == 1 else 0
        return self.frame.features + of_bursts

    def varied(
        self,
        means: Tensor,
        cell: Tensor,
        u: Tensor,
        v: Tensor,
    ) -> Tensor:
        """Coefficients of rows of these cells (n,) about their means, by normals (n, k)
        and (n, tail_normals).
        """
        features = self.frame.features
        noise = v[:, :features] * self.tail
        if self.frame.sides == 1:
            exponents = BURST * v[:, features:] - BURST**2
            noise = noise * exponents.exp()
        inside = torch.empty_like(u)
        for index in sorted(set(cell.tolist())):
            of_cell = cell == index
            inside[of_cell] = u[of_cell] @ self.factors[index].T
        return means + inside @ self.basis.T + noise

    def turned_back(self, coefficients: Tensor) -> Tensor:
        """Coefficients (n, features) → values as the Gaussians have them, (n, places,
        channels).
        """
        back = self._back.to(coefficients.device)
        values = 0.5 + coefficients @ back
        if self.frame.upright:
            values = self.frame.leaning(values, coefficients)
        return values.view(len(values), -1, self.frame.channels)

    def shaded(self, raw: Tensor) -> Tensor:
        """Values as the Gaussians have them → values in [0, 1], both (n, places,
        channels).
        """
        channels = zip(
            raw.unbind(2),
            self.inner,
            self.outer,
            strict=True,
        )
        mapped = [
            mapped_through(values, inner, outer) for values, inner, outer in channels
        ]
        return torch.stack(mapped, 2).clamp(0, 1)

    def take_map(self, points: tuple[Tensor, Tensor]) -> None:
        inner, outer = points
        self.inner.copy_(inner)
        self.outer.copy_(outer)


class CellGaussians(FrameValues, InFrame):
    """`classes` × `cells` Gaussians with `directions` shared; a latent point picks the
    cell, and is u and v.
    """

    kind = "gaussians"
    keys = ("frame", "classes", "cells", "directions")

    def __init__(
        self,
        frame: Frame,
        *,
        classes: int,
        cells: int,
        directions: int,
    ) -> None:
        super().__init__()
        whole(classes=classes, cells=cells, directions=directions)
        count = classes * cells
        width = frame.features
        numbers_per_cell = width + directions**2
        numbers = count * numbers_per_cell + width * directions
        if directions > width or count > _MOST_CELLS or numbers > MOST_WEIGHTS:
            raise ConfigError(
                f"{count:,} Gaussians of {directions} directions are too large a model."
            )
        shares = torch.full((count,), 1 / count)
        means = torch.zeros(count, width)
        self.classes = classes
        self.cells = cells
        self.directions = directions
        self.shares = nn.Parameter(shares)
        self.means = nn.Parameter(means)
        self.make_frame(frame, count, directions)
        self.latent = 1 + directions + self.tail_normals

    def pick(self, z: Tensor) -> Tensor:
        """The cell of each latent point: (n,)."""
        ends = self._share_ends()
        uniforms = torch.special.ndtr(z[:, 0].double())
        cells = torch.searchsorted(ends, uniforms * ends[-1], right=True)
        return cells.clamp(max=len(ends) - 1)

    def _share_ends(self) -> Tensor:
        """Where the share of each cell ends on the line of all: (classes · cells,)."""
        shares = self.shares.double().clamp(min=0)
        return shares.cumsum(0)

    def classes_of(self, z: Tensor) -> Tensor:
        cells = self.pick(z)
        return cells // self.cells

    def aimed(self, z: Tensor, one: int) -> Tensor:
        """The same latent points, with their first numbers moved to where they pick
        cells of this class.
        """
        ends = self._share_ends()
        cell_bounds = torch.cat([ends.new_zeros(1), ends / ends[-1]])
        class_bounds = cell_bounds[:: self.cells]
        lower = class_bounds[one]
        upper = class_bounds[one + 1]
        uniforms = torch.special.ndtr(z[:, 0].double())
        within = lower + uniforms * (upper - lower)
        first = torch.special.ndtri(within.clamp(1e-12, 1 - 1e-12))
        return torch.cat([first[:, None].to(z.dtype), z[:, 1:]], 1)

    def coefficients(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → coefficients in the frame (n, features)."""
        cell = self.pick(z)
        normals = z[:, 1:]
        u = normals[:, : self.directions]
        v = normals[:, self.directions :]
        return self.varied(self.means[cell], cell, u, v)

    def raw(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → values as the Gaussians have them, (n, places,
        channels).
        """
        return self.turned_back(self.coefficients(z))

    def rows(self, z: Tensor) -> Tensor:
        values = self.shaded(self.raw(z))
        return values.view(-1, *self.frame.shape)


def mapped_through(
    values: Tensor,
    inner: Tensor,
    outer: Tensor,
) -> Tensor:
    """Values on the line through the points (inner, outer), both rising; constant
    beyond its ends.
    """
    after, part = _between(values, inner)
    lower = outer[after - 1]
    upper = outer[after]
    return lower + part * (upper - lower)


def _between(values: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """The point after each value, and the part of the way to it from the one before."""
    after = torch.searchsorted(points.contiguous(), values.contiguous())
    after = after.clamp(1, len(points) - 1)
    lower = points[after - 1]
    upper = points[after]
    part = (values - lower) / (upper - lower).clamp(min=1e-12)
    return after, part.clamp(0, 1)


LOUD = 0.02  # of all values: what the noise of half of the bins together may have
_DRAWN = 4096  # rows by which a network's own spread is known
_MOST = 1 << 22  # values of them
_BENT = 4.0
# how often the variance of noise is counted in what all channels have in common
_WARY = 2.0
_FINE = 1025  # values at which the spread of a channel is known


def match_shades(
    network: CellGaussians,
    shades: Tensor,
    noise: float,
    people: float,
) -> bool:
    """Give the network a map to these histograms, (channels, bins), in people; whether
    they were quiet enough.
    """
    with torch.no_grad():
        values = math.prod(network.frame.shape)
        raw = network.raw(some_latents(network.latent, values))
        points = shades_map(raw, shades, noise, people)
        quiet = points is not None
        if points is None and network.frame.sides == 1:
            points = _common_map(raw.double(), shades / people, noise / people)
        if points is not None:
            network.take_map(points)
    return quiet


def some_latents(latent: int, values: int) -> Tensor:
    """Always the same points by which a network's own spread is known, where a row has
    so many values.
    """
    rows = max(64, min(_DRAWN, _MOST // values))
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, latent, generator=generator)


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
    ranks = _knot_ranks()
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64)
    inner = []
    outer = []
    for channel, counts in enumerate(shades):
        ascending = raw[:, :, channel].flatten().double().sort().values
        noisy_shares = counts / counts.sum().clamp(min=1.0)
        (shares,) = to_simplex(noisy_shares[None], counts.new_ones(1))
        ends = torch.cat([shares.new_zeros(1), shares.cumsum(0)])
        mean = None if means is None else float(means[channel])
        inner.append(_quantiles(ascending, ranks).float())
        outer.append(_binned_quantiles(ranks, ends, edges, mean).float())
    return torch.stack(inner), torch.stack(outer)


def _knot_ranks() -> Tensor:
    """The shares of all values that lie below the knots."""
    return (torch.arange(KNOTS, dtype=torch.float64) + 0.5) / KNOTS


def _quantiles(ascending: Tensor, ranks: Tensor) -> Tensor:
    """The values at these ranks of the last axis."""
    positions = ranks * (ascending.shape[-1] - 1)
    return ascending[..., positions.round().long()]


def _common_map(
    raw: Tensor,
    shares: Tensor,
    noise: float,
) -> tuple[Tensor, Tensor]:
    """The same by what all histograms (channels, bins), under noise of this deviation,
    have in common.
    """
    channels, bins = shares.shape
    by_channel = raw.permute(2, 0, 1).flatten(1)  # (channels, n · places)
    ascending = by_channel.sort(1).values.contiguous()
    n = ascending.shape[1]
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64)
    differences = shares - _binned_shares(ascending, bins)
    common = _common_difference(differences, noise)
    cumulative = torch.cat([common.new_zeros(1), common.cumsum(0)])
    values = torch.linspace(0, 1, _FINE, dtype=torch.float64)
    grid = values.expand(channels, -1).contiguous()
    n_below = torch.searchsorted(ascending, grid, right=True)
    below = [_off_the_ends(share, values) for share in n_below / n]
    shift = mapped_through(values, edges, cumulative)
    moved = torch.stack(below) + shift
    rising = moved.clamp(0, 1).cummax(1).values
    ranks = _knot_ranks()
    inner = _quantiles(ascending, ranks)
    outer = [mapped_through(ranks, share, values) for share in rising]
    return inner.float(), torch.stack(outer).float()


def _binned_shares(values: Tensor, bins: int) -> Tensor:
    """The share of each channel's values (channels, n) in even bins: (channels,
    bins).
    """
    positions = (values.clamp(0, 1) * bins).long().clamp(max=bins - 1)
    counts = [torch.bincount(channel, minlength=bins) for channel in positions]
    return torch.stack(counts) / values.shape[1]


def _common_difference(differences: Tensor, noise: float) -> Tensor:
    """What noisy differences of histograms (channels, bins) have in common, wave by
    wave, shrunk by the share of it that is not noise: (bins,).
    """
    channels, bins = differences.shape
    waves = torch.from_numpy(dct(bins))[1:]  # the first is their sum, and no difference
    mean = (differences @ waves.T).mean(0)
    noise_variance = _WARY * noise**2 / channels
    squares = mean.square()
    padded = torch.cat([squares[:1], squares, squares[-1:]])
    local_squares = padded.unfold(0, 3, 1).mean(1)
    signal = (local_squares - noise_variance).clamp(min=0)
    shrunk = mean * signal / (signal + noise_variance).clamp(min=1e-300)
    return shrunk @ waves


def _off_the_ends(below: Tensor, values: Tensor) -> Tensor:
    """The spread of a channel, its share `below` each value, with those who are past an
    end evenly among as many next to it. A Gaussian has no end, and all whom it has past
    one would be drawn on it.
    """
    spread = below.double().clone()
    lower_tail = 2 * float(below[0])
    lower = below < lower_tail
    to_lower = values[lower]
    lower_width = max(float(to_lower[-1:].sum()), 1e-12)
    spread[lower] = lower_tail * to_lower / lower_width
    upper_tail = 2 * float(1 - below[-1])
    upper = below > 1 - upper_tail
    to_upper = 1 - values[upper]
    upper_width = max(float(to_upper[:1].sum()), 1e-12)
    spread[upper] = 1 - upper_tail * to_upper / upper_width
    return spread


def _binned_quantiles(
    ranks: Tensor,
    shares: Tensor,
    edges: Tensor,
    mean: float | None,
) -> Tensor:
    """The values at these ranks, where bins end at these shares; of this `mean`, if it
    is known.
    """
    if mean is None:
        return mapped_through(ranks, shares, edges)
    after, part = _between(ranks, shares)
    lower = edges[after - 1]
    width = edges[after] - lower
    # the exponent's logarithm: values fall as it grows
    least_bend = -_BENT
    most_bend = _BENT
    for _ in range(40):
        bend = (least_bend + most_bend) / 2
        values = lower + part ** math.exp(bend) * width
        if float(values.mean()) > mean:
            least_bend = bend
        else:
            most_bend = bend
    return values


@torch.no_grad()
def bayes_rule(
    fit: CellGaussians,
    sizes: Sequence[int] | None = None,
    label: int = 0,
) -> "tuple[Quadratic, Tensor]":
    """The network that scores rows in [0, 1], and its weights; of several labels of
    these `sizes` it tells this one.
    """
    from understudy.models.cohort.classifier import Quadratic, UprightQuadratic

    sizes = sizes or (fit.classes,)
    cells = torch.arange(len(fit.shares)).view(*sizes, -1)
    order = cells.movedim(label, 0).flatten()
    frame = fit.frame
    # (features, values), rows orthonormal
    back = torch.from_numpy(frame.matrix()) * UNIT
    if frame.poses:  # how an image was turned stands before its values
        poses = torch.eye(frame.features, frame.poses, dtype=torch.float64)
        back = torch.cat([poses, back], 1)
    basis = fit.basis.double()
    cell_factors = fit.factors.double()[order] / UNIT
    means = fit.means.double()[order] / UNIT
    shares = fit.shares.double()[order]
    shares = shares.clamp(min=1e-12)
    tail_deviations = fit.tail.double() / UNIT
    tail_variances = tail_deviations.square()
    factors = basis @ cell_factors  # (cells, features, k): A
    factor_variances = factors.square().sum(2).mean(0)
    variances = factor_variances + tail_variances
    least_variance = FLOOR * variances.mean()
    diagonal = tail_variances + least_variance.clamp(min=1e-12)
    centre = (shares @ means) / shares.sum()
    shifts = means - centre
    scaled_factors = factors / diagonal[:, None]
    inner = factors.mT @ scaled_factors
    identity = torch.eye(fit.directions, dtype=torch.float64)
    lower = torch.linalg.cholesky(inner + identity)
    # L⁻¹ Fᵀ
    whitened = torch.linalg.solve_triangular(lower, cell_factors.mT, upper=False)
    # (k, features): Bᵀ D⁻¹, so that R = L⁻¹ Fᵀ Bᵀ D⁻¹
    shared = basis.T / diagonal
    squared_shifts = shifts.square() / diagonal
    distances = squared_shifts.sum(1)
    log_diagonal = lower.diagonal(dim1=1, dim2=2).log()
    log_determinants = log_diagonal.sum(1)
    middle = torch.full((back.shape[1],), 0.5, dtype=torch.float64)
    middle[: frame.poses] = 0.0
    bias = -distances / 2 - log_determinants + shares.log()
    weights = {
        "linear.weight": shifts / diagonal @ back,
        "linear.bias": bias,
        "centre": middle + centre @ back,
        "directions": shared @ back,
        "factors": whitened,
        "shifts": torch.einsum(
            "cjk,kf,cf->cj",
            whitened,
            shared,
            shifts,
        ),
    }
    classes = sizes[label]
    description: dict[str, int] = {
        "features": back.shape[1],
        "directions": fit.directions,
        "cells": len(order) // classes,
        "classes": classes,
    }
    if frame.poses:
        height, width = frame.shape[:2]
        network: Quadratic = UprightQuadratic(**description, height=height, width=width)
    else:
        network = Quadratic(**description)
    single = {name: value.float() for name, value in weights.items()}
    return network, network.flat(single)
