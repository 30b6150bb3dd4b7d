"""From randomized bits to a distribution: what the server of LoPub and LoCop does with
people's reports.

LoPub: Ren et al., "LoPub: high-dimensional crowdsourced data publication with local
differential privacy" (IEEE TIFS 2018); LoCop: Wang et al., "Locally private
high-dimensional crowdsourced data release based on copula functions" (IEEE TSC 2019);
both as Jiang's dissertation (TUM 2024, §4.5.1) compares them.

For column j with signatures S (levels × bits), unbiased bits z have E[z] = Sᵀe for a
person's one-hot level e. With Sᵀ = QR, u = Qᵀz has E[u] = Re: as many numbers as
levels, and nothing of z is lost that tells of e. Bits of different columns are flipped
apart, so that the mean of u_j ⊗ u_k (⊗ …) has the mean (R_j ⊗ R_k ⊗ …) p for the joint
table p, and p is found by the lasso, p ≥ 0. Its penalty is the noise's own: λ = σ‖x‖√(2
ln cells), at which noise alone leaves no cell (Donoho, Johnstone 1994). What p lacks to
1 was not told from noise: it is spread evenly in a one-way table, and as if the columns
were independent in a joint one.

LoPub: columns j, k depend on each other where their mutual information is at least
min(levels − 1)·φ²/2 (Ren et al., after Chen et al. 2015). Columns are drawn in the
order of a maximum cardinality search over this graph, each given its neighbours that
came before. On a chordal graph that is the junction tree of the paper (Tarjan,
Yannakakis 1984); on others it stands for the triangulation, and a column keeps its
strongest neighbours, at most `clique` − 1. LoCop: the correlation of the normals of
each pair is the one at which a Gaussian copula with these one-way tables has the pair's
covariance of normal scores; Mehler's formula gives that covariance as a power series in
it.
"""

import math
from collections.abc import Sequence
from functools import cached_property, reduce
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from understudy.models.tables.inversion import BayesNet, GaussianCopula
from understudy.privacy.local.rappor import Rappor

Array = NDArray[np.float64]

_CHUNK = 1 << 13  # in work at a time
_TERMS = 100  # of Mehler's series
_MAX_CORRELATION = 0.995  # of a correlation, so that the series has converged


class Estimates:
    """Joint tables of columns, from the reports' bits: uint8, (reports, ⌈width/8⌉),
    packed.
    """

    def __init__(self, rappor: Rappor, packed: Tensor) -> None:
        self.rappor = rappor
        self.reports = len(packed)
        self.sizes = rappor.sizes
        parts = [
            np.linalg.qr(signature.T.astype(np.float64))
            for signature in rappor.signatures
        ]
        # (levels, levels); of a column of one level (0, 1)
        self._factors = [r for _, r in parts]
        self._numbers: list[NDArray[np.float32]] = [
            np.empty((self.reports, len(r)), np.float32) for _, r in parts
        ]
        cuts = np.cumsum([signature.shape[1] for signature in rappor.signatures])[:-1]
        for start in range(0, self.reports, _CHUNK):
            rows = slice(start, start + _CHUNK)
            bits = np.unpackbits(packed[rows].numpy(), axis=1, count=rappor.width)
            z = rappor.unbiased(torch.from_numpy(bits)).numpy()
            for projected, part, (q, _) in zip(
                self._numbers, np.split(z, cuts, axis=1), parts, strict=True
            ):
                projected[rows] = part @ q

    @cached_property
    def marginals(self) -> list[Array]:
        """Every column's one-way table; even where nothing is known."""
        uniforms = [np.full(size, 1 / size) for size in self.sizes]
        estimates = [self._lasso([column]) for column in range(len(self.sizes))]
        return [
            uniform if estimate is None else _fill_with_prior(estimate, uniform)
            for estimate, uniform in zip(estimates, uniforms, strict=True)
        ]

    def joint(self, columns: Sequence[int]) -> Array | None:
        """The joint table of these columns, summing up to 1; None where noise covers
        all of it.
        """
        table = self._lasso(columns)
        if table is None or len(columns) == 1:
            return None if table is None else self.marginals[columns[0]]
        independent = reduce(
            np.multiply.outer, (self.marginals[column] for column in columns)
        )
        return _fill_with_prior(table.reshape(independent.shape), independent)

    def _lasso(self, columns: Sequence[int]) -> Array | None:
        informative = [column for column in columns if self.sizes[column] > 1]
        if not informative:
            return np.ones(1)
        design = reduce(np.kron, (self._factors[column] for column in informative))
        # A number u varies by its flips and by the levels (H bits over as many
        # numbers); of this the levels' part alone is no noise.
        level_variances = [
            self.rappor.hashes / self.sizes[column] for column in informative
        ]
        noise_variance = math.prod(
            self.rappor.variance + part for part in level_variances
        ) - math.prod(level_variances)
        return lasso(
            design,
            self._moments(informative),
            math.sqrt(noise_variance / max(1, self.reports)),
        )

    def _moments(self, columns: Sequence[int]) -> Array:
        """The mean of u_j ⊗ u_k ⊗ …, flat."""
        total: Array = np.zeros(math.prod(self.sizes[column] for column in columns))
        for start in range(0, self.reports, _CHUNK):
            *leading, last = (
                self._numbers[column][start : start + _CHUNK] for column in columns
            )
            left_factor = (
                reduce(_outer, leading)
                if leading
                else np.ones((len(last), 1), np.float32)
            )
            total += (left_factor.T @ last).ravel()
        return total / max(1, self.reports)


def _outer(
    left: NDArray[np.float32], right: NDArray[np.float32]
) -> NDArray[np.float32]:
    return (left[:, :, None] * right[:, None]).reshape(len(left), -1)


def lasso(design: Array, moments: Array, noise: float) -> Array | None:
    """argmin ½‖moments − design·p‖² + λ·Σp over p ≥ 0; None where that is zero."""
    length = float(np.linalg.norm(design, axis=0).max())
    penalty = max(1e-9, noise * length * math.sqrt(2 * math.log(max(2, len(moments)))))
    if (design.T @ moments).max() <= penalty:
        return None
    from sklearn.linear_model import Lasso

    fit = Lasso(
        penalty / len(moments),
        fit_intercept=False,
        positive=True,
        max_iter=20_000,
        tol=1e-6,
        copy_X=False,
    )
    return np.asarray(fit.fit(np.asfortranarray(design), moments).coef_)


def _fill_with_prior(table: Array, prior: Array) -> Array:
    filled = table + max(0.0, 1 - float(table.sum())) * prior
    return np.asarray(filled / filled.sum())


def fit_lopub(
    estimates: Estimates, *, threshold: float, clique: int, cells: int
) -> BayesNet:
    """Dependency graph, order, and each column's odds given its neighbours that come
    before it.
    """
    sizes = estimates.sizes
    marginals = estimates.marginals
    strength = np.zeros((len(sizes), len(sizes)))
    for j, k in combinations([c for c, size in enumerate(sizes) if size > 1], 2):
        table = estimates.joint((j, k))
        information = 0.0 if table is None else mutual_information(table)
        if information >= (min(sizes[j], sizes[k]) - 1) * threshold**2 / 2:
            strength[j, k] = strength[k, j] = information
    parents = parents_by_search(strength, sizes, clique=clique, cells=cells)
    joints: list[Array] = []
    for column, chosen in enumerate(parents):
        while (table := estimates.joint((*chosen, column))) is None and chosen:
            chosen = chosen[:-1]  # the weakest
        parents[column] = chosen
        joints.append(marginals[column] if table is None else table)
    network = BayesNet(sizes, parents)
    for column, joint in enumerate(joints):
        network.table(column).copy_(
            torch.from_numpy(conditional(joint, marginals[column]))
        )
    return network


def mutual_information(table: Array) -> float:
    """Of a two-way table that sums up to 1, in nats."""
    independent = table.sum(1, keepdims=True) * table.sum(0)
    positive = table > 0
    return float(
        (table[positive] * np.log(table[positive] / independent[positive])).sum()
    )


def parents_by_search(
    strength: Array, sizes: Sequence[int], *, clique: int, cells: int
) -> list[tuple[int, ...]]:
    """Each column's neighbours that a maximum cardinality search visits before it,
    strongest first. `strength` is 0 where two columns are no neighbours. A column has
    `clique` − 1 parents at most, and its table `cells` cells. Ties go to the strongest
    tie with what was visited, then to the strongest column, then to the first.
    """
    unvisited = list(range(len(sizes)))
    visited = list[int]()
    parents: list[tuple[int, ...]] = [()] * len(sizes)
    while unvisited:
        ties = strength[:, visited]
        column = max(
            unvisited,
            key=lambda c: (
                int((ties[c] > 0).sum()),
                ties[c].sum(),
                strength[c].sum(),
                -c,
            ),
        )
        cells_left = cells // sizes[column]
        for neighbour in sorted(
            (v for v in visited if strength[column, v] > 0),
            key=lambda v: -strength[column, v],
        ):
            if len(parents[column]) < clique - 1 and sizes[neighbour] <= cells_left:
                parents[column] += (neighbour,)
                cells_left //= sizes[neighbour]
        unvisited.remove(column)
        visited.append(column)
    return parents


def conditional(joint: Array, fallback: Array) -> Array:
    """The odds of the last axis given the others: (combinations, levels); `fallback`
    where nothing was seen.
    """
    flat = joint.reshape(-1, joint.shape[-1])
    return np.where(flat.sum(1, keepdims=True) > 0, flat, fallback)


def fit_locop(estimates: Estimates) -> GaussianCopula:
    """One-way tables, and for each pair the normals' correlation."""
    sizes = estimates.sizes
    marginals = estimates.marginals
    scores, series = zip(*(_scores(marginal) for marginal in marginals), strict=True)
    pairs = list(combinations([c for c, size in enumerate(sizes) if size > 1], 2))
    covariances = []
    for j, k in pairs:
        table = estimates.joint((j, k))
        covariance = (
            0.0
            if table is None
            else scores[j] @ (table - np.outer(table.sum(1), table.sum(0))) @ scores[k]
        )
        covariances.append(covariance)
    correlation = np.eye(len(sizes))
    if pairs:
        products = np.array([series[j] * series[k] for j, k in pairs])  # (pairs, terms)
        first_columns, second_columns = zip(*pairs, strict=True)
        correlations = _solve(products, np.array(covariances))
        correlation[first_columns, second_columns] = correlation[
            second_columns, first_columns
        ] = correlations
    network = GaussianCopula(sizes)
    network.odds.copy_(torch.from_numpy(np.concatenate(marginals)))
    # a correlation matrix near this one, with no eigenvalue below 10⁻⁶ before its
    # diagonal is made 1
    values, vectors = np.linalg.eigh(correlation)
    fixed = (vectors * np.maximum(values, 1e-6)) @ vectors.T
    scale = 1 / np.sqrt(np.diag(fixed))
    network.factor.copy_(
        torch.from_numpy(np.linalg.cholesky(fixed * np.outer(scale, scale)))
    )
    return network


def _scores(marginal: Array) -> tuple[Array, Array]:
    """Each level's mean of the normals that stand for it, and this step function's
    Hermite coefficients 1, 2, …
    """
    cuts = ndtri(np.clip(np.cumsum(marginal)[:-1], 0, 1))
    inner = np.where(np.isfinite(cuts), cuts, 0.0)
    density = np.where(
        np.isfinite(cuts), np.exp(-(inner**2) / 2) / math.sqrt(2 * math.pi), 0.0
    )
    mass = -np.diff(density, prepend=0, append=0)
    scores = np.divide(mass, marginal, out=np.zeros_like(marginal), where=marginal > 0)
    # ∫ h_k φ over a step is h_{k−1}φ/√k at its ends; the h_k are orthonormal.
    previous = np.zeros_like(density)
    current = density
    coefficients = []
    for k in range(1, _TERMS + 1):
        coefficients.append(float((np.diff(scores) * current).sum()) / math.sqrt(k))
        previous, current = (
            current,
            (inner * current - math.sqrt(k - 1) * previous) / math.sqrt(k),
        )
    return scores, np.array(coefficients)


def _solve(products: Array, covariances: Array) -> Array:
    """ρ with Σ_k products_k ρ^k = wanted, by bisection: the covariance of rising
    functions rises with ρ.
    """
    low = np.full(len(covariances), -_MAX_CORRELATION)
    high = np.full(len(covariances), _MAX_CORRELATION)
    for _ in range(40):
        middle = (low + high) / 2
        value = np.zeros_like(middle)
        for term in products.T[::-1]:
            value = (value + term) * middle
        low = np.where(value < covariances, middle, low)
        high = np.where(value < covariances, high, middle)
    return np.where(covariances == 0, 0.0, (low + high) / 2)
