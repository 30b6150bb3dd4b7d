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
from itertools import combinations
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
from understudy.models.tied.network import ArrayPart, Part, TiedGaussians

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
        cls, joint: Joint, *, components: int, steps: int, seed: int
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
        lines = {name: _line(joint, name, mixture) for name in joint.frames}
        kept = {}
        for name, line in lines.items():
            moments, noise = joint.second[name]
            left = {
                "moments": moments - joint.people * _explained(line, line),
                "moments_noise": torch.tensor(noise),
            }
            kept[name] = directions(left, joint.centres[name], joint.frames[name])
        return cls(joint, mixture, lines, kept)

    def radius(self, name: str, basis: Tensor) -> int:
        """Where people are pulled in to in a subspace, about the centre of all."""
        about = basis.T @ self.joint.second[name][0] @ basis / self.joint.people
        spread = float(about.diagonal().clamp(min=0).sum())
        return max(1, round(self.kept[name].pull * math.sqrt(spread)))


def _explained(a: LinearFit, b: LinearFit) -> Tensor:
    """What the lines explain of the second moments of two arrays, for one person:
    (features, features).
    """
    return a.parts.T @ b.parts + torch.outer(a.drift, b.drift)


def _line(joint: Joint, name: str, mixture: MixtureOfProducts | None) -> LinearFit:
    sums, noise = joint.ties[name]
    features = joint.frames[name].features
    if mixture is None:
        nothing = torch.zeros(0, features, dtype=torch.float64)
        return LinearFit(nothing, nothing, torch.zeros(features, dtype=torch.float64))
    with torch.no_grad():
        gram = mixture.gram().double()
    middle = gram.diagonal()
    found = sums / joint.people
    noise = noise / joint.people
    # every column's levels add up to all people
    drift = found.sum(0) / len(joint.sizes)
    values, vectors = torch.linalg.eigh(gram - torch.outer(middle, middle))
    here = values > _RARE
    turn = vectors[:, here] / values[here].sqrt()  # (width, r)
    parts = turn.T @ (found - torch.outer(middle, drift))
    loud = (turn.square() * noise.square()[:, None]).sum(0)[:, None]  # (r, 1)
    parts = _without_noise(parts, loud)
    return LinearFit(turn @ parts, parts, drift)


def _without_noise(parts: Tensor, loud: Tensor) -> Tensor:
    """Coefficients (r, features), shrunk by their size beside noise, by neighbours in
    frequency: own, and of all.
    """
    if not len(parts) or not bool(loud.any()):
        return parts
    own = torch.stack([smoothed(row) for row in parts.square()]) - loud
    weights = 1 / loud.clamp(min=1e-300)
    all_of_them = (
        smoothed((weights * parts.square()).sum(0)) - len(parts)
    ) / weights.sum()
    signal = torch.minimum(own, len(parts) * all_of_them).clamp(min=0)
    return parts * signal / (signal + loud).clamp(min=1e-300)


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
    arrays = {
        name: ArrayPart(tied.joint.frames[name], len(tied.kept[name].values))
        for name in tied.kept
    }
    made = [arrays[name] if part is None else part for name, part in parts.items()]
    components = 1 if tied.mixture is None else tied.mixture.components
    network = TiedGaussians(made, components=components, label=label)
    rows = _drawn(tied, network)
    with torch.no_grad():
        if tied.mixture is not None and network.table is not None:
            network.table.logits.copy_(tied.mixture.logits)
            network.middle.copy_(tied.mixture.gram().diagonal())
        network.mixing.copy_(_mixing(tied))
        for array, (name, line) in zip(network.own, tied.lines.items(), strict=True):
            kept = tied.kept[name]
            centre = tied.joint.centres[name]
            features = len(kept.basis)
            covariances = _by_class(
                tied, name, classwise.get(name), rows, network.classes
            )
            values, vectors = torch.linalg.eigh(covariances)
            roots = (vectors * values.clamp(min=0).sqrt()[:, None, :]) @ vectors.mT
            array.mean.copy_(centre.means[0])
            array.slope.copy_(line.slope)
            array.basis[:features] = kept.basis.float()
            array.factors.copy_(roots)
            array.tail[:features] = kept.tail.sqrt().float()
    return network.eval(), _shaded(network, list(tied.kept), shades, tied.joint.people)


class _Drawn(NamedTuple):
    about: Tensor  # (n, width): one-hot levels about their mean
    classes: Tensor  # (n,)
    shares: Tensor  # (classes,)


def _drawn(tied: Tied, network: TiedGaussians) -> _Drawn | None:
    """Rows of tables by the mixture, and the class of each."""
    if tied.mixture is None or network.label is None:
        return None
    generator = torch.Generator().manual_seed(0)
    uniform = partial(torch.rand, generator=generator, dtype=torch.float64)
    levels = tied.mixture.levels(_DRAWN, uniform).long()
    with torch.no_grad():
        middle = tied.mixture.gram().diagonal().double()
    start = sum(network.sizes[: network.label])
    shares = middle[start : start + network.classes]
    return _Drawn(
        one_hot(levels, network.sizes).double() - middle,
        levels[:, network.label],
        shares,
    )


def _by_class(
    tied: Tied, name: str, found: Classwise | None, drawn: _Drawn | None, classes: int
) -> Tensor:
    """The covariance of what is left of an array in its kept directions, class by
    class: (classes, k, k).
    """
    kept = tied.kept[name]
    full = torch.diag(kept.values).repeat(classes, 1, 1)
    if found is None or drawn is None:
        return full
    line = tied.lines[name]
    k = found.basis.shape[1]
    people = (drawn.shares * tied.joint.people).clamp(min=1.0)
    said = (drawn.about @ line.slope + line.drift) @ found.basis  # (n, k)
    own = found.moments / people[:, None, None]
    for one in range(classes):
        here = said[drawn.classes == one]
        if len(here):
            own[one] -= here.T @ here / len(here)
    pooled = full[0, :k, :k]
    whole = (own * people[:, None, None]).sum(0) / people.sum()
    full[:, :k, :k] = shrunk_covariances(
        own, (pooled + whole) / 2, found.noise / people
    )
    return full


def _mixing(tied: Tied) -> Tensor:
    """What turns independent normals into those of all arrays' directions together,
    each with variance 1.
    """
    sizes = {name: len(kept.values) for name, kept in tied.kept.items()}
    starts = dict(
        zip(
            sizes,
            [0, *torch.tensor(list(sizes.values())).cumsum(0).tolist()],
            strict=False,
        )
    )
    together = torch.eye(sum(sizes.values()), dtype=torch.float64)
    for a, b in combinations(sizes, 2):
        sums, noise = tied.joint.across[a, b]
        left = sums / tied.joint.people - _explained(tied.lines[a], tied.lines[b])
        p = tied.kept[a]
        q = tied.kept[b]
        inner = _without_noisy_values(
            p.basis.T @ left @ q.basis, noise / tied.joint.people
        )
        unit = inner / torch.outer(p.values, q.values).sqrt().clamp(min=1e-300)
        u, s, v = torch.linalg.svd(unit, full_matrices=False)
        unit = (u * s.clamp(max=_CLOSE)) @ v
        at = (
            slice(starts[a], starts[a] + sizes[a]),
            slice(starts[b], starts[b] + sizes[b]),
        )
        together[at], together[at[1], at[0]] = unit, unit.T
    values, vectors = torch.linalg.eigh(together)
    root: Tensor = vectors * values.clamp(min=1 - _CLOSE).sqrt()
    return root / root.square().sum(1, keepdim=True).sqrt()


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
    shrunk = (
        (squares - low).clamp(min=0) * (squares - high).clamp(min=0)
    ).sqrt() / s.clamp(min=1e-300)
    found: Tensor = (u * shrunk) @ v
    return found


def _shaded(
    network: TiedGaussians,
    names: list[str],
    shades: Mapping[str, tuple[Tensor, float]],
    people: int,
) -> list[str]:
    """Give every array the contrast of its histograms, where they are quiet enough;
    which have it.
    """
    done = []
    most = max(math.prod(array.part.frame.shape) for array in network.own)
    with torch.no_grad():
        _, raw = network.raw(some_latents(network.latent, most))
        for array, name, own in zip(network.own, names, raw, strict=True):
            found = shades_map(own, *shades[name], people, array.means())
            if found is not None:
                array.take_map(found)
                done.append(name)
    return done
