"""From released moments to Gaussians: what stands out of the noise is kept, and the
rest is shrunk.

`centres` reads the first release, `directions` the second, `fit_cells` the third; what
the first two give is what the next release is asked with. All quantities are in steps
of the frame; every rule is a function of what was released.

- The mean of all is shrunk towards none where it does not stand out of its noise, and
  means of classes towards it, frequency by frequency, by the share of their spread that
  is not noise (empirical Bayes; Efron, Morris 1973).
- Of series, frequency after frequency and all channels of one together: a mean over
  many series hardly swings, so a coefficient is shrunk by the mean square of its
  neighbours, as far as that is above what noise alone would have; one by itself has to
  be above the largest that noise alone would show, σ√(2 ln d) (Donoho, Johnstone 1994).
  Channels often have one level (prices of a day), and are then fused: of all ways to
  put them in groups of one level each, the one with the least squared distance, in
  units of the noise, and a price for each group.
- Of the pooled covariance the eigenvalues above the edge of the noise are kept, and
  shrunk to √(λ² − edge²): optimal in squared error (Gavish, Donoho 2017; Shabalin,
  Nobel 2013). A symmetric matrix of d × d with noise s beside the diagonal and √2·s on
  it has its edge at 2s√d (Wigner).
- A class's covariance in the kept directions is shrunk towards the pooled one, and a
  cell's towards its class's, by the share of its deviation that is not noise.
- A class is cut in cells by the signs of so many leading directions as the noise on a
  cell's mean allows.

Guarantee: reads released numbers alone.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from understudy.data.encoding.frame import Frame
from understudy.models.moments.gaussians import CellGaussians
from understudy.models.moments.lags import fill_tail
from understudy.models.moments.released import Labels, Released, by_labels

_PRICE = 2.0  # of a group of levels beside 2 ln(channels)


def series_mean(values: Tensor, noise: float, channels: int) -> Tensor:
    """Coefficients (frequencies · channels,) under noise of this deviation, without it
    as far as they can be told.
    """
    if not noise:
        return values
    return torch.cat(
        [fused(values[:channels], noise), _swings(values[channels:], noise, channels)]
    )


def _swings(values: Tensor, noise: float, channels: int) -> Tensor:
    if not len(values):
        return values
    width = min(channels, len(values) - 1)
    squares = values.square()
    largest = 2 * math.log(len(values) + channels) * noise**2
    padded = torch.cat(
        [squares[:1].expand(width), squares, squares[-1:].expand(width)]
    ).clamp(max=largest)
    around = padded.unfold(0, 2 * width + 1, 1).mean(1)
    signal = (around - (1 + math.sqrt(2 / (2 * width + 1))) * noise**2).clamp(min=0)
    signal = torch.maximum(signal, squares - largest)
    return values * signal / (signal + noise**2)


def fused(values: Tensor, noise: float) -> Tensor:
    """Values of which those that noise alone may keep apart are one; of a sorted list
    the best cuts follow.
    """
    order = values.argsort()
    price = 2 * math.log(len(values)) + _PRICE
    zero = values.new_zeros(1)
    total, squares = (
        torch.cat([zero, some.cumsum(0)])
        for some in (values[order], values[order].square())
    )
    best = zero
    cuts = [0]
    for end in range(1, len(values) + 1):
        sums = total[end] - total[:end]
        apart = squares[end] - squares[:end] - sums.square() / torch.arange(end, 0, -1)
        costs = best + apart / noise**2 + price
        cuts.append(int(costs.argmin()))
        best = torch.cat([best, costs.amin()[None]])
    levels = torch.empty_like(values)
    end = len(values)
    while end:
        first = cuts[end]
        levels[order[first:end]] = (total[end] - total[first]) / (end - first)
        end = first
    return levels


# By sides of the frame, 1 for series and 2 for images: of the root mean square distance
# from the means, where farther rows are pulled in.
RADIUS = {1: 1.4, 2: 1.2}
# directions; and of images that were turned upright
MOST_KEPT = 50
MOST_TURNED = 100
CLEAR = 1.02  # of the edge: an eigenvalue above it stands out
# how often the noise of its mean a cell's distance from its class must be, squared
SPLIT = 200.0
_SMOOTH = 15  # neighbours in frequency on either side
# of the features that are looked at: from so many on, by this factor
_LEAST = 12
_STEP = 1.5


@dataclass(frozen=True)
class Centres:
    """People and means of the classes (of labels: combinations, `each` in a group), how
    far from them rows are.
    """

    people: Tensor  # (classes,)
    means: Tensor  # (classes, features)
    # (features,): the variance that noise has left in means of classes; 0 of several
    # labels
    marks: Tensor
    spread: float  # the mean squared distance
    pull: float  # where rows are pulled in to, in parts of its root
    # the first of the features that say how an image was turned, and have no neighbours
    poses: int = 0
    each: int = 1

    @property
    def groups(self) -> Tensor:
        return self.people.view(-1, self.each).sum(1).clamp(min=1.0)

    @property
    def whole_means(self) -> Tensor:
        return self.means.round().long()

    @property
    def radius(self) -> int:
        return max(1, round(self.pull * math.sqrt(self.spread)))


def centres(first: Released, frame: Frame, labels: Labels | None = None) -> Centres:
    """Of the first release; of several `labels`, people and means of every combination
    of their levels.
    """
    longest = float(frame.reach)
    if labels is not None and len(labels.sizes) > 1:
        by_combination = by_labels(first, labels)
        people = by_combination.people
        overall = by_combination.whole
        overall_noise = by_combination.whole_noise
        beside = by_combination.beside
        total = people.sum()
        marks = torch.zeros_like(overall)
    else:
        people = first["people"].clamp(min=1.0)
        total = people.sum()
        overall = first["sums"].sum(0) / total
        overall_noise = float(first["sums_noise"] / total) * math.sqrt(len(people))
        beside, marks = _told_apart(first, people, overall)
    middle = (
        series_mean(overall, overall_noise, frame.channels)
        if frame.sides == 1
        else without_noise(overall, overall_noise)
    )
    means = middle + beside
    norms = means.square().sum(1, keepdim=True).sqrt()
    means = means * (longest / norms.clamp(min=longest))
    energy_of_means = (people * means.square().sum(1)).sum() / total
    spread = _spread(first, total, energy_of_means, longest)
    each = 1 if labels is None else labels.each
    return Centres(people, means, marks, spread, RADIUS[frame.sides], frame.poses, each)


def middle(first: Released, frame: Frame) -> tuple[Tensor, int]:
    """The centre that a silo measures about next, in whole steps, and the radius that
    rows are pulled in to.
    """
    longest = float(frame.reach)
    people = first["people"].sum().clamp(min=1.0)
    noise = float(first["sums_noise"] / people) * math.sqrt(len(first["people"]))
    mean = without_noise(first["sums"].sum(0) / people, noise)
    centre = (mean * (longest / mean.norm().clamp(min=longest))).round()
    spread = _spread(first, people, centre.square().sum(), longest)
    return centre.long(), max(1, round(RADIUS[frame.sides] * math.sqrt(spread)))


def _spread(
    first: Released, people: Tensor, energy_of_means: Tensor, longest: float
) -> float:
    """The mean squared distance of rows from centres of this mean square; less than its
    noise cannot be told.
    """
    least = min(
        max(float(first["energy_noise"] / people), 1e-4 * longest**2), longest**2
    )
    return float(
        (first["energy"] / people - energy_of_means).clamp(min=least, max=longest**2)
    )


def _told_apart(
    first: Released, people: Tensor, overall: Tensor
) -> tuple[Tensor, Tensor]:
    """Means of classes about that of all, shrunk as far as they are noise, and the
    variance left in them.
    """
    beside = first["sums"] / people[:, None] - overall
    if len(people) == 1:
        return beside, torch.zeros_like(overall)
    noise = (first["sums_noise"] / people).square()[:, None]
    signal = (smoothed(beside.square().mean(0)) - noise.mean()).clamp(min=0)
    weight = signal / (signal + noise).clamp(min=1e-300)
    return beside * weight, (weight.square() * noise).mean(0)


@dataclass(frozen=True)
class Directions:
    """The pooled covariance: what stands out of it, and the variances of the
    coefficients beside that.
    """

    basis: Tensor  # (features, kept)
    values: Tensor  # (kept,), falling
    tail: Tensor  # (features,)
    pull: float

    @property
    def radius(self) -> int:
        return max(1, round(self.pull * math.sqrt(float(self.values.sum()))))

    def bits(self, people: Tensor, multiplier: float, most: int) -> int:
        """By how many directions' signs to cut: while a cell's mean stands out of the
        third release's noise.
        """
        noise = multiplier * self.radius
        bits = 0
        kept = len(self.values)
        while bits < min(most, kept):
            cell = float(people.median()) / 2 ** (bits + 1)
            apart = float(self.values[bits]) * 2 / math.pi
            if apart < SPLIT * kept * (noise / max(cell, 1.0)) ** 2 or cell < 2 * kept:
                break
            bits += 1
        return bits


def directions(pooled: Released, centre: Centres, frame: Frame) -> Directions:
    """Of the second release: of so many slow features as leave most of the covariance
    above the edge of the noise.
    """
    total = float(centre.people.sum())
    covariance = pooled["moments"] / total
    noise = float(pooled["moments_noise"]) / total
    width = len(covariance)
    sizes = (
        {min(width, round(_LEAST * _STEP**n)) for n in range(64)} if noise else {width}
    )
    max_directions = MOST_TURNED if centre.poses else MOST_KEPT
    candidates = (
        _standing_out(covariance, noise, size, max_directions) for size in sorted(sizes)
    )
    values, vectors = max(candidates, key=lambda one: float(one[0].sum()))
    basis = torch.zeros(width, len(values), dtype=covariance.dtype)
    basis[: len(vectors)] = vectors
    if frame.sides == 1:
        tail = fill_tail(covariance - (basis * values) @ basis.T, noise, frame)
    else:
        explained = (basis.square() * values).sum(1)
        tail = _image_tail(covariance.diagonal() - explained, noise, centre.poses)
        tail[len(vectors) :] = 0  # what was not looked at is left out
    return Directions(basis, values, tail, centre.pull)


def _image_tail(residual: Tensor, noise: float, turned: int) -> Tensor:
    """Variances beside the directions, as far as they stand out of noise on average
    over neighbours; the first `turned` features have none.
    """
    around = torch.cat([residual[:turned], smoothed(residual[turned:])])
    quiet = torch.full_like(around, 2 * math.sqrt(2 / (2 * _SMOOTH + 1)) * noise)
    quiet[:turned] = math.sqrt(2) * noise
    return (around.clamp(min=0).square() - quiet.square()).clamp(min=0).sqrt()


def _standing_out(
    covariance: Tensor, noise: float, size: int, max_directions: int
) -> tuple[Tensor, Tensor]:
    """What stands out of the noise among the first so many features: eigenvalues,
    shrunk, and their directions.
    """
    edge = 2 * noise * math.sqrt(size)
    values, vectors = torch.linalg.eigh(covariance[:size, :size])
    values = values.flip(0)
    vectors = vectors.flip(1)
    n_directions = max(1, min(int((values > CLEAR * edge).sum()), max_directions))
    shrunk = (
        (values[:n_directions].clamp(min=0).square() - edge**2)
        .clamp(min=1e-6 * edge**2 + 1e-12)
        .sqrt()
    )
    return shrunk, vectors[:, :n_directions]


def fit_cells(
    frame: Frame,
    centre: Centres,
    kept: Directions,
    third: Released | None,
    *,
    bits: int = 0,
) -> CellGaussians:
    """The Gaussians of all cells; without a third release all classes have the pooled
    covariance.
    """
    class_people = centre.groups
    classes = len(class_people)
    k = len(kept.values)
    pooled = torch.diag(kept.values)
    if third is None:
        means = torch.zeros(classes, k, dtype=torch.float64)
        return _network(
            frame, centre, kept, class_people, means, pooled.expand(classes, k, k), 1
        )
    if not bits:
        people = class_people
        means = torch.zeros(classes, k, dtype=torch.float64)
        count = 1
        pooled = (pooled + third["moments"].sum(0) / people.sum()) / 2
    else:
        count = 1 << bits
        people = third["people"].clamp(
            min=0.02 * float(class_people.sum()) / (classes * count)
        )
        means = _cell_means(kept, third, people, bits)
        inner = (
            third["moments"]
            - people[:, None, None] * means[:, :, None] * means[:, None, :]
        )
        pooled = inner.sum(0) / people.sum()
        inner = inner.view(classes, count, k, k).sum(1)
        own = people.view(classes, count).sum(1)
        noise = third["moments_noise"] * math.sqrt(count) / own
        pooled = shrunk_covariances(
            inner / own[:, None, None], pooled, noise
        ).repeat_interleave(count, 0)
    own = (
        third["moments"] / people[:, None, None] - means[:, :, None] * means[:, None, :]
    )
    covariances = shrunk_covariances(own, pooled, third["moments_noise"] / people)
    return _network(frame, centre, kept, people, means, covariances, count)


def fit_one_release(frame: Frame, first: Released, second: Released) -> CellGaussians:
    """Gaussians from one release, whose second moments, of all rows or of each class,
    are about the middle.
    """
    centre = centres(first, frame)
    about = (
        centre.people[:, None, None]
        * centre.means[:, :, None]
        * centre.means[:, None, :]
    )
    moments = second["moments"]
    noise = second["moments_noise"]
    if len(moments) < len(about):
        kept = directions(
            {"moments": moments[0] - about.sum(0), "moments_noise": noise},
            centre,
            frame,
        )
        return fit_cells(frame, centre, kept, None)
    each = moments - about
    kept = directions(
        {"moments": each.sum(0), "moments_noise": noise * math.sqrt(len(each))},
        centre,
        frame,
    )
    inside = torch.einsum("fi,cfg,gj->cij", kept.basis, each, kept.basis)
    return fit_cells(frame, centre, kept, {"moments": inside, "moments_noise": noise})


def without_noise(values: Tensor, noise: float) -> Tensor:
    """Coefficients shrunk towards none, those that stand out of noise of this deviation
    least.
    """
    signal = (smoothed(values.square(), 2) - noise**2).clamp(min=0)
    signal = torch.maximum(signal, values.square() - 4 * noise**2)
    return values * signal / (signal + noise**2).clamp(min=1e-300)


def smoothed(values: Tensor, width: int = _SMOOTH) -> Tensor:
    """The mean over neighbours in the order of frequencies."""
    width = min(width, len(values) - 1)
    padded = torch.cat([values[:1].expand(width), values, values[-1:].expand(width)])
    return padded.unfold(0, 2 * width + 1, 1).mean(1)


def _cell_means(kept: Directions, third: Released, people: Tensor, bits: int) -> Tensor:
    """Means of cells about the means of their classes, shrunk towards those of a
    Gaussian that is cut there.
    """
    signs = 2.0 * ((torch.arange(1 << bits)[:, None] >> torch.arange(bits)) & 1) - 1
    prior = torch.zeros(len(people), len(kept.values), dtype=torch.float64)
    prior[:, :bits] = (signs * (kept.values[:bits] * 2 / math.pi).sqrt()).repeat(
        len(people) >> bits, 1
    )
    noise = (third["sums_noise"] / people).square()[:, None]
    beside = third["sums"] / people[:, None] - prior
    signal = (beside.square().mean(0) - noise.mean()).clamp(min=0)
    return prior + beside * signal / (signal + noise).clamp(min=1e-300)


def shrunk_covariances(covariances: Tensor, pooled: Tensor, noise: Tensor) -> Tensor:
    """Covariances (cells, k, k) with noise of these deviations, shrunk towards the
    pooled ones, and made positive.
    """
    beside = covariances - pooled
    k = covariances.shape[-1]
    expected = noise.square() * k * (k + 1)
    distances = beside.square().sum((1, 2))
    prior = (distances - expected).mean().clamp(min=0)
    alone = (distances - expected).clamp(min=0) / distances.clamp(min=1e-300)
    weight = (alone + prior / (prior + expected).clamp(min=1e-300)) / 2
    values, vectors = torch.linalg.eigh(pooled + weight[:, None, None] * beside)
    least = 0.25 * torch.linalg.eigvalsh(pooled).min().clamp(min=0)
    return torch.einsum(
        "cij,cj,ckj->cik", vectors, values.clamp(min=float(least)), vectors
    )


def _network(
    frame: Frame,
    centre: Centres,
    kept: Directions,
    people: Tensor,
    means: Tensor,
    own: Tensor,
    cells: int,
) -> CellGaussians:
    """Of every class and cell: what is of a group's cell, all classes of that group
    have.
    """
    features, k = kept.basis.shape
    network = CellGaussians(
        frame, classes=len(centre.people), cells=cells, directions=k
    )
    values, vectors = torch.linalg.eigh(own)
    factors = vectors * values.clamp(min=0).sqrt()[:, None, :]
    whole: Any = centre.means.repeat_interleave(cells, 0).clone()
    whole[:, :features] += _to_classes(means, centre, cells) @ kept.basis.T
    shares = people / people.sum()
    if centre.each > 1:
        within = people.view(-1, cells) / people.view(-1, cells).sum(1, keepdim=True)
        odds = (centre.people / centre.people.sum()).view(-1, centre.each)
        shares = (odds[:, :, None] * within[:, None, :]).flatten()
    with torch.no_grad():
        network.shares.copy_(shares)
        network.means.copy_(whole)
        network.factors.copy_(_to_classes(factors, centre, cells))
        network.basis[:features] = kept.basis.float()
        network.tail[:features] = kept.tail.sqrt().float()
    return network


def _to_classes(values: Tensor, centre: Centres, cells: int) -> Tensor:
    """Values of every group's cells, (groups · cells, …), as those of every class's."""
    if centre.each == 1:
        return values
    grouped = values.view(-1, cells, *values.shape[1:])
    return grouped.repeat_interleave(centre.each, 0).flatten(0, 1)
