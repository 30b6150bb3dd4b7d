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

import torch
from torch import Tensor

from understudy.data.encoding.frame import Frame
from understudy.models.moments.gaussians import CellGaussians
from understudy.models.moments.lags import fill_tail
from understudy.models.moments.released import Labels, Released, by_labels

_PRICE = 2.0  # of a group of levels beside 2 ln(channels)


def series_mean(
    values: Tensor,
    noise: float,
    channels: int,
) -> Tensor:
    """Coefficients (frequencies · channels,) under noise of this deviation, without it
    as far as they can be told.
    """
    if not noise:
        return values
    levels = fused(values[:channels], noise)
    swings = _shrunk_swings(values[channels:], noise, channels)
    return torch.cat([levels, swings])


def _shrunk_swings(
    values: Tensor,
    noise: float,
    channels: int,
) -> Tensor:
    """Coefficients shrunk by the mean square of their neighbours, or by their own where
    that is above the largest of noise alone.
    """
    if not len(values):
        return values
    width = min(channels, len(values) - 1)
    variance = noise**2
    squares = values.square()
    largest = 2 * math.log(len(values) + channels) * variance
    local = smoothed(squares.clamp(max=largest), width)
    usual = (1 + math.sqrt(2 / (2 * width + 1))) * variance
    signal = (local - usual).clamp(min=0)
    signal = torch.maximum(signal, squares - largest)
    return values * signal / (signal + variance)


def fused(values: Tensor, noise: float) -> Tensor:
    """Values of which those that noise alone may keep apart are one; of a sorted list
    the best cuts follow.
    """
    order = values.argsort()
    ascending = values[order]
    price = 2 * math.log(len(values)) + _PRICE
    zero = values.new_zeros(1)
    sums_below = torch.cat([zero, ascending.cumsum(0)])
    squares_below = torch.cat([zero, ascending.square().cumsum(0)])
    least_costs = zero  # of the first values, by how many they are
    last_starts = [0]  # where the last group of these begins
    for end in range(1, len(values) + 1):
        sizes = torch.arange(end, 0, -1)
        sums = sums_below[end] - sums_below[:end]
        squares = squares_below[end] - squares_below[:end]
        distances = squares - sums.square() / sizes
        costs = least_costs + distances / noise**2 + price
        last_starts.append(int(costs.argmin()))
        least_costs = torch.cat([least_costs, costs.amin()[None]])
    levels = torch.empty_like(values)
    end = len(values)
    while end:
        start = last_starts[end]
        group_sum = sums_below[end] - sums_below[start]
        levels[order[start:end]] = group_sum / (end - start)
        end = start
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
    classes_per_group: int = 1

    @property
    def groups(self) -> Tensor:
        grouped = self.people.view(-1, self.classes_per_group)
        return grouped.sum(1).clamp(min=1.0)

    @property
    def whole_means(self) -> Tensor:
        return self.means.round().long()

    @property
    def radius(self) -> int:
        return _radius(self.pull, self.spread)


def centres(
    first: Released,
    frame: Frame,
    labels: Labels | None = None,
) -> Centres:
    """Of the first release; of several `labels`, people and means of every combination
    of their levels.
    """
    longest = float(frame.reach)
    if labels is not None and len(labels.sizes) > 1:
        by_combination = by_labels(first, labels)
        people = by_combination.people
        overall = by_combination.whole
        overall_noise = by_combination.whole_noise
        offsets = by_combination.offsets
        total = people.sum()
        marks = torch.zeros_like(overall)
    else:
        people = first["people"].clamp(min=1.0)
        total = people.sum()
        overall = first["sums"].sum(0) / total
        overall_noise = float(first["sums_noise"] / total) * math.sqrt(len(people))
        offsets, marks = _told_apart(first, people, overall)
    if frame.sides == 1:
        overall_mean = series_mean(overall, overall_noise, frame.channels)
    else:
        overall_mean = without_noise(overall, overall_noise)
    means = overall_mean + offsets
    norms = means.square().sum(1, keepdim=True).sqrt()
    means = means * (longest / norms.clamp(min=longest))
    energies = means.square().sum(1)
    energy_of_means = (people * energies).sum() / total
    return Centres(
        people=people,
        means=means,
        marks=marks,
        spread=_spread(first, total, energy_of_means, longest),
        pull=RADIUS[frame.sides],
        poses=frame.poses,
        classes_per_group=1 if labels is None else labels.classes_per_group,
    )


def middle(first: Released, frame: Frame) -> tuple[Tensor, int]:
    """The centre that a silo measures about next, in whole steps, and the radius that
    rows are pulled in to.
    """
    longest = float(frame.reach)
    classes = len(first["people"])
    people = first["people"].sum().clamp(min=1.0)
    noise = float(first["sums_noise"] / people) * math.sqrt(classes)
    noisy_mean = first["sums"].sum(0) / people
    mean = without_noise(noisy_mean, noise)
    within_reach = longest / mean.norm().clamp(min=longest)
    centre = (mean * within_reach).round()
    spread = _spread(
        first,
        people,
        centre.square().sum(),
        longest,
    )
    return centre.long(), _radius(RADIUS[frame.sides], spread)


def _radius(pull: float, spread: float) -> int:
    """Where rows of this mean squared distance are pulled in to, in whole steps."""
    return max(1, round(pull * math.sqrt(spread)))


def _spread(
    first: Released,
    people: Tensor,
    energy_of_means: Tensor,
    longest: float,
) -> float:
    """The mean squared distance of rows from centres of this mean square; less than its
    noise cannot be told.
    """
    max_spread = longest**2
    noise = float(first["energy_noise"] / people)
    min_spread = min(max(noise, 1e-4 * max_spread), max_spread)
    spread = first["energy"] / people - energy_of_means
    return float(spread.clamp(min=min_spread, max=max_spread))


def _told_apart(
    first: Released,
    people: Tensor,
    overall: Tensor,
) -> tuple[Tensor, Tensor]:
    """Means of classes about that of all, shrunk as far as they are noise, and the
    variance left in them.
    """
    offsets = first["sums"] / people[:, None] - overall
    if len(people) == 1:
        return offsets, torch.zeros_like(overall)
    noise = (first["sums_noise"] / people).square()[:, None]
    local_squares = smoothed(offsets.square().mean(0))
    signal = (local_squares - noise.mean()).clamp(min=0)
    weight = signal / (signal + noise).clamp(min=1e-300)
    noise_left = weight.square() * noise
    return offsets * weight, noise_left.mean(0)


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
        return _radius(self.pull, float(self.values.sum()))

    def bits(
        self,
        people: Tensor,
        multiplier: float,
        most: int,
    ) -> int:
        """By how many directions' signs to cut: while a cell's mean stands out of the
        third release's noise.
        """
        sums_noise = multiplier * self.radius
        n_directions = len(self.values)
        max_bits = max(0, min(most, n_directions))
        for bits in range(max_bits):
            cell_people = float(people.median()) / 2 ** (bits + 1)
            squared_distance = float(self.values[bits]) * 2 / math.pi
            mean_noise = sums_noise / max(cell_people, 1.0)
            if squared_distance < SPLIT * n_directions * mean_noise**2:
                return bits
            if cell_people < 2 * n_directions:
                return bits
        return max_bits


def directions(
    pooled: Released,
    centre: Centres,
    frame: Frame,
) -> Directions:
    """Of the second release: of so many slow features as leave most of the covariance
    above the edge of the noise.
    """
    total = float(centre.people.sum())
    covariance = pooled["moments"] / total
    noise = float(pooled["moments_noise"]) / total
    features = len(covariance)
    max_directions = MOST_TURNED if centre.poses else MOST_KEPT
    candidates = (
        _standing_out(
            covariance,
            noise,
            size,
            max_directions,
        )
        for size in _candidate_sizes(features, noise)
    )
    values, vectors = max(candidates, key=_explained_variance)
    basis = covariance.new_zeros(features, len(values))
    basis[: len(vectors)] = vectors
    if frame.sides == 1:
        residual = covariance - (basis * values) @ basis.T
        tail = fill_tail(residual, noise, frame)
    else:
        explained = (basis.square() * values).sum(1)
        tail = _image_tail(covariance.diagonal() - explained, noise, centre.poses)
        tail[len(vectors) :] = 0  # what was not looked at is left out
    return Directions(basis, values, tail, centre.pull)


def _explained_variance(candidate: tuple[Tensor, Tensor]) -> float:
    values, _ = candidate
    return float(values.sum())


def _candidate_sizes(features: int, noise: float) -> list[int]:
    """How many of the first features may be looked at, ascending; without noise all."""
    if not noise:
        return [features]
    growing = (round(_LEAST * _STEP**n) for n in range(64))
    return sorted({min(features, size) for size in growing})


def _image_tail(
    residual: Tensor,
    noise: float,
    turned: int,
) -> Tensor:
    """Variances beside the directions, as far as they stand out of noise on average
    over neighbours; the first `turned` features have none.
    """
    variances = torch.cat([residual[:turned], smoothed(residual[turned:])])
    threshold = 2 * math.sqrt(2 / (2 * _SMOOTH + 1)) * noise
    thresholds = torch.full_like(variances, threshold)
    thresholds[:turned] = math.sqrt(2) * noise
    squares = variances.clamp(min=0).square() - thresholds.square()
    return squares.clamp(min=0).sqrt()


def _standing_out(
    covariance: Tensor,
    noise: float,
    size: int,
    max_directions: int,
) -> tuple[Tensor, Tensor]:
    """What stands out of the noise among the first so many features: eigenvalues,
    shrunk, and their directions.
    """
    edge = 2 * noise * math.sqrt(size)
    values, vectors = torch.linalg.eigh(covariance[:size, :size])
    values = values.flip(0)
    vectors = vectors.flip(1)
    n_clear = int((values > CLEAR * edge).sum())
    n_directions = max(1, min(n_clear, max_directions))
    largest = values[:n_directions].clamp(min=0)
    squares = largest.square() - edge**2
    shrunk = squares.clamp(min=1e-6 * edge**2 + 1e-12).sqrt()
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
    people = centre.groups
    classes = len(people)
    k = len(kept.values)
    pooled = torch.diag(kept.values)
    means = torch.zeros(classes, k, dtype=torch.float64)
    cells = 1 << bits
    if third is None:
        covariances = pooled.expand(classes, k, k)
        return _network(
            frame,
            centre,
            kept,
            people,
            means,
            covariances,
            1,
        )
    if bits:
        fewest = 0.02 * float(people.sum()) / (classes * cells)
        people = third["people"].clamp(min=fewest)
        means = _cell_means(kept, third, people, bits)
        class_covariances = _class_covariances(third, people, means, cells)
        pooled = class_covariances.repeat_interleave(cells, 0)
    else:
        measured = third["moments"].sum(0) / people.sum()
        pooled = (pooled + measured) / 2
    noisy = third["moments"] / people[:, None, None] - _outer(means)
    noise = third["moments_noise"] / people
    covariances = shrunk_covariances(noisy, pooled, noise)
    return _network(
        frame,
        centre,
        kept,
        people,
        means,
        covariances,
        cells,
    )


def _class_covariances(
    third: Released,
    people: Tensor,
    means: Tensor,
    cells: int,
) -> Tensor:
    """The covariance within the cells of each class, shrunk towards that of all."""
    k = means.shape[1]
    scatter = third["moments"] - _scatter(people, means)
    pooled = scatter.sum(0) / people.sum()
    class_scatter = scatter.view(-1, cells, k, k).sum(1)
    class_people = people.view(-1, cells).sum(1)
    noise = third["moments_noise"] * math.sqrt(cells) / class_people
    noisy = class_scatter / class_people[:, None, None]
    return shrunk_covariances(noisy, pooled, noise)


def _outer(means: Tensor) -> Tensor:
    """m mᵀ of every mean: (n, k) → (n, k, k)."""
    return means[:, :, None] * means[:, None, :]


def _scatter(people: Tensor, means: Tensor) -> Tensor:
    """The sum of m mᵀ over the people of every mean: (n, k, k)."""
    return people[:, None, None] * means[:, :, None] * means[:, None, :]


def fit_one_release(
    frame: Frame,
    first: Released,
    second: Released,
) -> CellGaussians:
    """Gaussians from one release, whose second moments, of all rows or of each class,
    are about the middle.
    """
    centre = centres(first, frame)
    between = _scatter(centre.people, centre.means)
    moments = second["moments"]
    noise = second["moments_noise"]
    if len(moments) < len(between):
        within = moments[0] - between.sum(0)
        pooled = {"moments": within, "moments_noise": noise}
        return fit_cells(
            frame,
            centre,
            directions(pooled, centre, frame),
            None,
        )
    class_moments = moments - between
    pooled = {
        "moments": class_moments.sum(0),
        "moments_noise": noise * math.sqrt(len(class_moments)),
    }
    kept = directions(pooled, centre, frame)
    basis = kept.basis
    inside = torch.einsum(
        "fi,cfg,gj->cij",
        basis,
        class_moments,
        basis,
    )
    third = {"moments": inside, "moments_noise": noise}
    return fit_cells(frame, centre, kept, third)


def without_noise(values: Tensor, noise: float) -> Tensor:
    """Coefficients shrunk towards none, those that stand out of noise of this deviation
    least.
    """
    variance = noise**2
    squares = values.square()
    signal = (smoothed(squares, 2) - variance).clamp(min=0)
    signal = torch.maximum(signal, squares - 4 * variance)
    return values * signal / (signal + variance).clamp(min=1e-300)


def smoothed(values: Tensor, width: int = _SMOOTH) -> Tensor:
    """The mean over neighbours in the order of frequencies."""
    width = min(width, len(values) - 1)
    before = values[:1].expand(width)
    after = values[-1:].expand(width)
    padded = torch.cat([before, values, after])
    windows = padded.unfold(0, 2 * width + 1, 1)
    return windows.mean(1)


def _cell_means(
    kept: Directions,
    third: Released,
    people: Tensor,
    bits: int,
) -> Tensor:
    """Means of cells about the means of their classes, shrunk towards those of a
    Gaussian that is cut there.
    """
    cells = 1 << bits
    n_classes = len(people) // cells
    cell = torch.arange(cells)[:, None]
    positive = (cell >> torch.arange(bits)) & 1
    signs = 2.0 * positive - 1
    variances = kept.values[:bits]
    half_normal_means = (variances * 2 / math.pi).sqrt()
    cell_means = signs * half_normal_means
    prior = torch.zeros(len(people), len(kept.values), dtype=torch.float64)
    prior[:, :bits] = cell_means.repeat(n_classes, 1)
    deviations = third["sums_noise"] / people
    noise = deviations.square()[:, None]
    means = third["sums"] / people[:, None]
    beside = means - prior
    energy = beside.square().mean(0)
    signal = (energy - noise.mean()).clamp(min=0)
    total = (signal + noise).clamp(min=1e-300)
    return prior + beside * signal / total


def shrunk_covariances(
    covariances: Tensor,
    pooled: Tensor,
    noise: Tensor,
) -> Tensor:
    """Covariances (cells, k, k) with noise of these deviations, shrunk towards the
    pooled ones, and made positive.
    """
    beside = covariances - pooled
    k = covariances.shape[-1]
    expected = noise.square() * k * (k + 1)
    distances = beside.square().sum((1, 2))
    signal = distances - expected
    own_weight = signal.clamp(min=0) / distances.clamp(min=1e-300)
    mean_signal = signal.mean().clamp(min=0)
    total = mean_signal + expected
    shared_weight = mean_signal / total.clamp(min=1e-300)
    weight = (own_weight + shared_weight) / 2
    shrunk = pooled + weight[:, None, None] * beside
    values, vectors = torch.linalg.eigh(shrunk)
    pooled_values = torch.linalg.eigvalsh(pooled)
    least = 0.25 * pooled_values.min().clamp(min=0)
    values = values.clamp(min=float(least))
    return torch.einsum(
        "cij,cj,ckj->cik",
        vectors,
        values,
        vectors,
    )


def _network(
    frame: Frame,
    centre: Centres,
    kept: Directions,
    people: Tensor,
    means: Tensor,
    covariances: Tensor,
    cells: int,
) -> CellGaussians:
    """Of every class and cell: what is of a group's cell, all classes of that group
    have.
    """
    features, k = kept.basis.shape
    network = CellGaussians(
        frame,
        classes=len(centre.people),
        cells=cells,
        directions=k,
    )
    values, vectors = torch.linalg.eigh(covariances)
    deviations = values.clamp(min=0).sqrt()
    factors = vectors * deviations[:, None, :]
    cell_means = centre.means.repeat_interleave(cells, 0)
    cell_means[:, :features] += _to_classes(means, centre, cells) @ kept.basis.T
    shares = people / people.sum()
    if centre.classes_per_group > 1:
        group_people = people.view(-1, cells)
        within = group_people / group_people.sum(1, keepdim=True)
        class_shares = centre.people / centre.people.sum()
        grouped_shares = class_shares.view(-1, centre.classes_per_group)
        shares = (grouped_shares[:, :, None] * within[:, None, :]).flatten()
    with torch.no_grad():
        network.shares.copy_(shares)
        network.means.copy_(cell_means)
        network.factors.copy_(_to_classes(factors, centre, cells))
        network.basis[:features] = kept.basis.float()
        network.tail[:features] = kept.tail.sqrt().float()
    return network


def _to_classes(
    values: Tensor,
    centre: Centres,
    cells: int,
) -> Tensor:
    """Values of every group's cells, (groups · cells, …), as those of every class's."""
    if centre.classes_per_group == 1:
        return values
    grouped = values.view(-1, cells, *values.shape[1:])
    return grouped.repeat_interleave(centre.classes_per_group, 0).flatten(0, 1)
