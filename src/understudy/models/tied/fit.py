"""From released second moments over several holders' columns to one generator of all of
them.

`Joint` is the second release, `Tied` what is made of it, `Classwise` the third;
`fit_tied` joins them. All quantities are sums over people in steps of the frames
(arrays) and in people (tables). Every rule reads released numbers alone.

- Tables: a mixture of products, as Gram fits one (`tables.fit_gram`).
- Arrays given the tables: the line E[q | t] = c + (t − t̄) slope, by least squares from
  Σ t tᵀ and Σ t qᵀ. In the principal directions of the fitted tables its coefficients
  are shrunk frequency by frequency by the share of their size that is not noise
  (empirical Bayes, as `moments.fit`).
- What is left of an array: its covariance less that of the line; what stands out of the
  noise is kept (`moments.fit`).
- What is left between two arrays: the same of Σ q_a q_bᵀ, in the kept directions of
  both; singular values above the edge of the noise only, shrunk (Gavish, Donoho 2017,
  Frobenius norm).
- Classes: a class's second moments in the kept directions, less those of the line
  within that class, shrunk towards the pooled covariance. How arrays go together is the
  same in all classes, beyond their own covariances.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, combinations, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from understudy.data.encoding.frame import Frame
from understudy.models.moments.fit import (
    Centres,
    Directions,
    directions,
    shrunk_covariances,
    smoothed,
)
from understudy.models.moments.gaussians import shades_map, some_latents
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.mixture import MixtureOfProducts, one_hot
from understudy.models.tied.network import ArrayPart, Part, TiedArray, TiedGaussians

_DRAWN = 1 << 14  # rows of tables by which a class's share of the line is known
_CLOSE = 0.995  # the largest correlation of two arrays that is kept
_RARE = 1e-9  # variances of tables below it are directions that nobody varies in


@dataclass(frozen=True)
class Joint:
    """Released sums: `tables` (width, width), arrays' second moments, `ties` (width,
    features), `across`, and noise.
    """

    people: int
    sizes: tuple[int, ...]
    tables: Tensor
    tables_noise: Tensor  # (width, width)
    frames: Mapping[str, Frame]
    centres: Mapping[str, Centres]
    second: Mapping[str, tuple[Tensor, float]]
    ties: Mapping[str, tuple[Tensor, Tensor]]  # noise by level: (width,)
    across: Mapping[tuple[str, str], tuple[Tensor, float]]


@dataclass(frozen=True)
class Classwise:
    """Of an array, the second moments of every class about its centre in some
    directions: (classes, k, k).
    """

    moments: Tensor
    noise: float
    basis: Tensor  # (features, k)


@dataclass(frozen=True)
class LinearFit:
    """What the tables say of an array: in levels, and in directions of the tables that
    vary by 1 and not together.
    """

    slope: Tensor  # (width, features)
    parts: Tensor  # (directions of the tables, features)
    # (features,): how far the mean is from the centre, once far rows are pulled in
    drift: Tensor


@dataclass(frozen=True)
class Tied:
    joint: Joint
    mixture: MixtureOfProducts | None
    lines: Mapping[str, LinearFit]
    kept: Mapping[str, Directions]

    @classmethod
    def from_joint(
        cls,
        joint: Joint,
        *,
        components: int,
        steps: int,
        seed: int,
    ) -> "Tied":
        """The tables, the lines, and what is left beside them."""
        mixture = None
        if joint.sizes:
            mixture = fit_gram(
                joint.tables,
                joint.sizes,
                noise=joint.tables_noise,
                people=joint.people,
                components=components,
                steps=steps,
                seed=seed,
            ).eval()
        lines = {name: _fit_line(joint, name, mixture) for name in joint.frames}
        kept = {}
        for name, line in lines.items():
            moments, noise = joint.second[name]
            explained = joint.people * _explained(line, line)
            residual = {
                "moments": moments - explained,
                "moments_noise": torch.tensor(noise),
            }
            kept[name] = directions(residual, joint.centres[name], joint.frames[name])
        return cls(joint, mixture, lines, kept)

    def radius(self, name: str, basis: Tensor) -> int:
        """Where people are pulled in to in a subspace, about the centre of all."""
        moments, _ = self.joint.second[name]
        inside = basis.T @ moments @ basis / self.joint.people
        spread = float(inside.diagonal().clamp(min=0).sum())
        radius = self.kept[name].pull * math.sqrt(spread)
        return max(1, round(radius))


def _explained(a: LinearFit, b: LinearFit) -> Tensor:
    """What the lines explain of the second moments of two arrays, for one person:
    (features, features).
    """
    by_tables = a.parts.T @ b.parts
    return by_tables + torch.outer(a.drift, b.drift)


def _fit_line(
    joint: Joint,
    name: str,
    mixture: MixtureOfProducts | None,
) -> LinearFit:
    """The line of an array by the tables; without tables there is none."""
    features = joint.frames[name].features
    if mixture is None:
        nothing = torch.zeros(0, features, dtype=torch.float64)
        no_drift = torch.zeros(features, dtype=torch.float64)
        return LinearFit(nothing, nothing, no_drift)
    released_sums, released_noise = joint.ties[name]
    sums = released_sums / joint.people
    noise = released_noise / joint.people
    with torch.no_grad():
        gram = mixture.gram().double()
    level_shares = gram.diagonal()
    # every column's levels add up to all people
    drift = sums.sum(0) / len(joint.sizes)
    covariance = gram - torch.outer(level_shares, level_shares)
    values, vectors = torch.linalg.eigh(covariance)
    varying = values > _RARE
    whitening = vectors[:, varying] / values[varying].sqrt()  # (width, r)
    noisy_parts = whitening.T @ (sums - torch.outer(level_shares, drift))
    noise_variances = (whitening.square() * noise.square()[:, None]).sum(0)
    parts = _without_noise(noisy_parts, noise_variances[:, None])
    return LinearFit(whitening @ parts, parts, drift)


def _without_noise(parts: Tensor, noise_variances: Tensor) -> Tensor:
    """Coefficients (r, features) under noise of these variances (r, 1), shrunk by their
    size beside noise, by neighbours in frequency: of each direction, and of all.
    """
    if not len(parts) or not bool(noise_variances.any()):
        return parts
    n_directions = len(parts)
    squares = parts.square()
    signal_by_direction = torch.stack([smoothed(row) for row in squares])
    signal_by_direction = signal_by_direction - noise_variances
    weights = 1 / noise_variances.clamp(min=1e-300)
    weighted_squares = (weights * squares).sum(0)
    mean_signal = (smoothed(weighted_squares) - n_directions) / weights.sum()
    signal = torch.minimum(signal_by_direction, n_directions * mean_signal)
    signal = signal.clamp(min=0)
    return parts * signal / (signal + noise_variances).clamp(min=1e-300)


def fit_tied(
    tied: Tied,
    parts: Mapping[str, Part | None],
    *,
    label: int | None,
    classwise: Mapping[str, Classwise],
    shades: Mapping[str, tuple[Tensor, float]],
) -> tuple[TiedGaussians, list[str]]:
    """The generator, and which arrays have the contrast of their histograms. `parts`:
    tables, and None for arrays.
    """
    network_parts: list[Part] = []
    for name, part in parts.items():
        if part is None:
            n_directions = len(tied.kept[name].values)
            part = ArrayPart(tied.joint.frames[name], n_directions)
        network_parts.append(part)
    components = 1 if tied.mixture is None else tied.mixture.components
    network = TiedGaussians(network_parts, components=components, label=label)
    rows = _sample_tables(tied, network)
    with torch.no_grad():
        if tied.mixture is not None and network.table is not None:
            network.table.logits.copy_(tied.mixture.logits)
            network.middle.copy_(tied.mixture.gram().diagonal())
        network.mixing.copy_(_mixing(tied))
        for array, name in zip(network.own, tied.lines, strict=True):
            covariances = _class_covariances(
                tied,
                name,
                classwise.get(name),
                rows,
                network.classes,
            )
            _set_array(
                array,
                tied,
                name,
                covariances,
            )
    shaded = _match_shades(
        network,
        list(tied.kept),
        shades,
        tied.joint.people,
    )
    return network.eval(), shaded


def _set_array(
    array: TiedArray,
    tied: Tied,
    name: str,
    covariances: Tensor,
) -> None:
    """Write what was fitted of an array into its part of the network."""
    kept = tied.kept[name]
    features = len(kept.basis)
    values, vectors = torch.linalg.eigh(covariances)
    deviations = values.clamp(min=0).sqrt()
    roots = (vectors * deviations[:, None, :]) @ vectors.mT
    array.mean.copy_(tied.joint.centres[name].means[0])
    array.slope.copy_(tied.lines[name].slope)
    array.basis[:features] = kept.basis.float()
    array.factors.copy_(roots)
    array.tail[:features] = kept.tail.sqrt().float()


class _TableRows(NamedTuple):
    """Sampled rows of tables."""

    centred: Tensor  # (n, width): one-hot levels about their mean
    classes: Tensor  # (n,)
    shares: Tensor  # (classes,)


def _sample_tables(tied: Tied, network: TiedGaussians) -> _TableRows | None:
    """Rows of tables by the mixture, and the class of each."""
    if tied.mixture is None or network.label is None:
        return None
    generator = torch.Generator().manual_seed(0)
    uniform = partial(torch.rand, generator=generator, dtype=torch.float64)
    levels = tied.mixture.levels(_DRAWN, uniform).long()
    with torch.no_grad():
        middle = tied.mixture.gram().diagonal().double()
    start = sum(network.sizes[: network.label])
    one_hot_levels = one_hot(levels, network.sizes).double()
    return _TableRows(
        centred=one_hot_levels - middle,
        classes=levels[:, network.label],
        shares=middle[start : start + network.classes],
    )


def _class_covariances(
    tied: Tied,
    name: str,
    classwise: Classwise | None,
    rows: _TableRows | None,
    classes: int,
) -> Tensor:
    """The covariance of what is left of an array in its kept directions, class by
    class: (classes, k, k).
    """
    kept = tied.kept[name]
    covariances = torch.diag(kept.values).repeat(classes, 1, 1)
    if classwise is None or rows is None:
        return covariances
    line = tied.lines[name]
    k = classwise.basis.shape[1]
    people = (rows.shares * tied.joint.people).clamp(min=1.0)
    explained = rows.centred @ line.slope + line.drift
    explained = explained @ classwise.basis  # (n, k)
    residual = classwise.moments / people[:, None, None]
    for index in range(classes):
        of_class = explained[rows.classes == index]
        if len(of_class):
            residual[index] -= of_class.T @ of_class / len(of_class)
    by_class_mean = (residual * people[:, None, None]).sum(0) / people.sum()
    pooled = (covariances[0, :k, :k] + by_class_mean) / 2
    noise = classwise.noise / people
    covariances[:, :k, :k] = shrunk_covariances(residual, pooled, noise)
    return covariances


def _mixing(tied: Tied) -> Tensor:
    """What turns independent normals into those of all arrays' directions together,
    each with variance 1.
    """
    sizes = [len(kept.values) for kept in tied.kept.values()]
    bounds = pairwise(accumulate(sizes, initial=0))
    blocks = [slice(start, end) for start, end in bounds]
    correlation = torch.eye(sum(sizes), dtype=torch.float64)
    for (a, rows), (b, columns) in combinations(zip(tied.kept, blocks, strict=True), 2):
        between = _correlation(tied, a, b)
        correlation[rows, columns] = between
        correlation[columns, rows] = between.T
    values, vectors = torch.linalg.eigh(correlation)
    root: Tensor = vectors * values.clamp(min=1 - _CLOSE).sqrt()
    deviations = root.square().sum(1, keepdim=True).sqrt()
    return root / deviations


def _correlation(
    tied: Tied,
    a: str,
    b: str,
) -> Tensor:
    """Of two arrays' kept directions, beyond what the lines say of both."""
    people = tied.joint.people
    sums, noise = tied.joint.across[a, b]
    residual = sums / people - _explained(tied.lines[a], tied.lines[b])
    left = tied.kept[a]
    right = tied.kept[b]
    inner = left.basis.T @ residual @ right.basis
    covariance = _without_noisy_values(inner, noise / people)
    variances = torch.outer(left.values, right.values)
    correlation = covariance / variances.sqrt().clamp(min=1e-300)
    u, s, v = torch.linalg.svd(correlation, full_matrices=False)
    bounded: Tensor = (u * s.clamp(max=_CLOSE)) @ v
    return bounded


def _without_noisy_values(matrix: Tensor, noise: float) -> Tensor:
    """A matrix with noise of this deviation in every cell: its singular values above
    the edge, shrunk.
    """
    if not noise:
        return matrix
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    m, n = matrix.shape
    low = noise**2 * (math.sqrt(n) - math.sqrt(m)) ** 2
    high = noise**2 * (math.sqrt(n) + math.sqrt(m)) ** 2
    squares = s.square()
    above_low = (squares - low).clamp(min=0)
    above_high = (squares - high).clamp(min=0)
    shrunk = (above_low * above_high).sqrt() / s.clamp(min=1e-300)
    denoised: Tensor = (u * shrunk) @ v
    return denoised


def _match_shades(
    network: TiedGaussians,
    names: list[str],
    shades: Mapping[str, tuple[Tensor, float]],
    people: int,
) -> list[str]:
    """Give every array the contrast of its histograms, where they are quiet enough;
    which have it.
    """
    shaded = []
    max_values = max(math.prod(array.part.frame.shape) for array in network.own)
    with torch.no_grad():
        _, raw = network.raw(some_latents(network.latent, max_values))
        for array, name, values in zip(
            network.own,
            names,
            raw,
            strict=True,
        ):
            points = shades_map(
                values,
                *shades[name],
                people,
                array.means(),
            )
            if points is not None:
                array.take_map(points)
                shaded.append(name)
    return shaded
