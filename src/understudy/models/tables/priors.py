"""What two-way tables are like before their noisy cells are believed: a prior for each
pair, and what all pairs share.

*How tables depart from what is expected of them* (`level_prior`). A pair's residual is
taken as a draw of a Gaussian process with covariance v · S_a ⊗ S_b. S_a = D_a^½ K_a
D_a^½ with the expected counts D_a of column a's levels, so that with K_a = I every cell
has variance v·E, E being what independent columns would give. Where the levels of a
column have an order that matters (ages, hours, amounts), neighbours depart alike: K_a =
ρ·exp(−|i − j|/ℓ) + (1 − ρ)·I, and tables of a hundred levels are smoothed as far as
they are smooth. v for each pair, and ρ and ℓ for each column, are those under which the
noisy cells are likeliest (empirical Bayes: Efron and Morris, JASA 1973; Rasmussen and
Williams, 2006, §5.4). A column whose order says nothing keeps K = I, so nobody has to
state which columns are ordered. The noise is alike in all cells of a pair. So with S_a
= Q_a Λ_a Q_aᵀ residual and noise are both uncorrelated in the basis Q_a ⊗ Q_b, and the
prior is one variance for each cell there: v·λ_a·λ_b. `basis` holds all Q_a side by
side.

*What all tables share* (`pooled_tables`). Cell by cell the noise of a wide table drowns
the signal: with m columns its standard deviation grows as m. But the largest eigenvalue
of noise grows as σ√D alone, while that of a dependence which all columns share grows as
D. So of the residuals from independence the eigenvalues above those of noise are kept;
a kept λ is shrunk to √(λ² − λ₀²), λ₀ being the largest eigenvalue of noise, which is
optimal in squared error (Gavish, Donoho, IEEE Trans. Inf. Theory 2017, §V.A, for
singular values; Shabalin, Nobel, JMVA 2013). Two levels of one column are not measured
together: as in a factor analysis by principal axes, those cells are filled with what
the low rank itself says of them, and the eigenvalues are taken again. A count lies
between 0 and the counts of its two levels, and tables have, nearly, the known one-way
tables as margins (iterative proportional fitting; Deming, Stephan 1940). Without this
the error on rare levels exceeds their counts.

*How far the mean of the prior lies on the way from independence to that*
(`common_share`), a share α. The common part was read off the same noise, so residuals
around it look smaller than they are: v is learned around independence, and α on noise
that the common part has not seen. With fresh noise w of the same size, y + w and y − w
are two independent measurements, of twice the variance (Rasines and Young, Biometrika
2023); α is what predicts the second best, the first being known.

Differs from the papers: λ₀ is that of one drawn matrix of noise of the stated
deviations, which may differ from cell to cell (across holders by 2^¼), not that of an
asymptotic formula.
Guarantee: reads released tables alone, so it is post-processing.
Edges: a column with cells of different noise, or with some that are not measured, in
one of its tables keeps K = I.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from understudy.models.tables.given_rules import TINY

# eigenvalues (…, levels), eigenvectors (…, levels, levels) of S
_Axes = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class LevelPrior:
    """Of the residuals basisᵀ R basis: `variance` of each cell, both (width, width)."""

    basis: Tensor
    variance: Tensor

    def turned(self, table: Tensor) -> Tensor:
        """A (width, width) table in the basis."""
        return self.basis.T @ table @ self.basis


def level_prior(
    residual: Tensor,
    noise: Tensor,
    measured: Tensor,
    expected: Tensor,
    columns: Tensor,
) -> LevelPrior:
    """The prior under which noisy residuals are likeliest; `expected` (width,) is D: E
    is its outer product.
    """
    pairs = _PairResiduals(
        residual,
        noise,
        measured,
        expected,
        columns,
    )
    # twice over all columns: the best K of one depends on those of the others
    for _ in range(2):
        for column, axes in pairs.choices.items():
            best = int(pairs.likelihoods(column, axes).argmax())
            pairs.take(column, (axes[0][best], axes[1][best]))
    return pairs.prior()


def common_share(
    counts: Tensor,
    noise: Tensor,
    measured: Tensor,
    independent: Tensor,
    prior: LevelPrior,
    pool: Callable[[Tensor], Tensor],
) -> float:
    """α ∈ [0, 1], 0 without noise; `pool` reads what tables share out of counts with
    twice the `noise`.
    """

    def turned(table: Tensor) -> Tensor:
        return prior.turned(torch.where(measured, table, 0))

    fresh = torch.where(measured, drawn_noise(noise, 0), 0)
    first = counts + fresh
    second = counts - fresh
    weight = torch.where(measured & (noise > 0), 1 / noise.clamp(min=TINY), 0)
    # What the first measurement does not overrule.
    variance = 2 * noise + prior.variance
    prior_weight = 2 * noise / variance.clamp(min=TINY)
    way = turned(pool(first) - independent) * prior_weight
    miss = turned(second - first)
    miss += turned(first - independent) * prior_weight
    gained = (way * miss * weight).sum()
    squares = (way.square() * weight).sum()
    return float((gained / squares.clamp(min=TINY)).clamp(0, 1))


def drawn_noise(variance: Tensor, seed: int) -> Tensor:
    """Symmetric noise of this variance, always the same, so that one matrix gives one
    fit: (width, width).
    """
    draw = _normals(variance, seed)
    symmetric = draw.triu() + draw.triu(1).T
    return variance.sqrt() * symmetric


def _normals(like: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(like.shape, generator=generator, dtype=torch.float64)
    return draw.to(like.device)


class _PairResiduals:
    """The noisy residuals, and the axes that are taken for each column so far. Columns
    with fewer levels than `fewest` keep their own: an order has little to say of them.
    """

    def __init__(
        self,
        residual: Tensor,
        noise: Tensor,
        measured: Tensor,
        expected: Tensor,
        columns: Tensor,
        *,
        fewest: int = 5,
    ) -> None:
        self.columns = columns
        self.measured = measured
        self.residual = torch.where(measured, residual, 0)
        # exact counts, too, have a variance
        self.noise = torch.where(measured, noise, 1).clamp(min=1e-6)
        self.basis = torch.eye(
            len(expected),
            dtype=expected.dtype,
            device=expected.device,
        )
        self.half_turned = self.residual.clone()  # residual · basis
        self.scale = expected.clone()  # λ of every level's axis
        self.blocks = [torch.nonzero(column)[:, 0] for column in columns.T.bool()]
        is_even = self._are_even().tolist()
        self.choices = {
            column: _axes(expected[levels])
            for column, levels in enumerate(self.blocks)
            if is_even[column] and len(levels) >= fewest
        }

    def _are_even(self) -> Tensor:
        """Of which columns all tables have the same noise in all cells: (m,)."""
        sizes = self.columns.sum(0)
        cells = torch.outer(sizes, sizes)
        known = torch.where(self.measured, self.noise, 0)
        mean = self._summed(known) / cells
        square = self._summed(known.square()) / cells
        count = self._summed(self.measured.double())
        has_one_noise = (square - mean**2).abs() <= 1e-9 * mean**2
        is_whole = (count == 0) | (count == cells)
        is_itself = torch.eye(len(sizes), dtype=torch.bool, device=sizes.device)
        return ((has_one_noise & is_whole) | is_itself).all(1)

    def _summed(self, cells: Tensor) -> Tensor:
        """Over the cells of every pair: (m, m)."""
        return self.columns.T @ cells @ self.columns

    def take(self, column: int, axes: _Axes) -> None:
        """Give a column these axes."""
        scale, basis = axes
        levels = self.blocks[column]
        self.scale[levels] = scale
        self.basis[levels[:, None], levels] = basis
        self.half_turned[:, levels] = self.residual[:, levels] @ basis

    def likelihoods(self, column: int, axes: _Axes) -> Tensor:
        """Of all tables of a column, with each of these axes for it: (kernels,). A
        table has one noise in all cells.
        """
        scales, bases = axes
        levels = self.blocks[column]
        is_measured = self.measured[levels[0]]
        others = self.columns[is_measured]
        # (kernels, levels, others' levels)
        turned = bases.mT @ self.half_turned[levels][:, is_measured]
        scale = scales[:, :, None] * self.scale[is_measured]
        noise = self.noise[levels[0], is_measured]

        def summed(cells: Tensor) -> Tensor:
            return cells.sum(-2) @ others

        def spread_out(pairs: Tensor) -> Tensor:
            return (pairs @ others.T)[..., None, :]

        _, likelihood = _likeliest(
            turned,
            scale,
            noise,
            summed,
            spread_out,
        )
        return likelihood.sum(1)

    def prior(self) -> LevelPrior:
        turned = self.basis.T @ self.half_turned
        scale = torch.outer(self.scale, self.scale)

        def summed(cells: Tensor) -> Tensor:
            return self._summed(torch.where(self.measured, cells, 0))

        def spread_out(pairs: Tensor) -> Tensor:
            return self.columns @ pairs @ self.columns.T

        dispersion, _ = _likeliest(
            turned,
            scale,
            self.noise,
            summed,
            spread_out,
        )
        return LevelPrior(self.basis, spread_out(dispersion) * scale)


def _likeliest(
    turned: Tensor,
    scale: Tensor,
    noise: Tensor,
    summed: Callable[[Tensor], Tensor],
    spread_out: Callable[[Tensor], Tensor],
    *,
    multiples: Sequence[float] = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0),
) -> tuple[Tensor, Tensor]:
    """v of every pair, one of some `multiples` of that which matches the second
    moments, and the log-likelihood of its cells, Gaussian with variance v·scale +
    noise. `summed` adds up pairs' measured cells, `spread_out` gives each its pair's.
    """
    square = turned.square()
    weights = summed(scale.square()).clamp(min=TINY)
    moment = summed((square - noise) * scale) / weights
    moment = moment.clamp(min=0)
    factors = torch.tensor(multiples, dtype=moment.dtype, device=moment.device)
    factors = factors.view(-1, *[1] * moment.ndim)
    # fewer cells take as long to be called for as to compute
    at_once = max(1, (1 << 15) // max(1, square.numel()))
    best_v = torch.zeros_like(moment)
    best = torch.full_like(moment, -torch.inf)
    for some in torch.split(factors, at_once):
        variance = spread_out(some * moment) * scale + noise
        losses = summed(variance.log() + square / variance)
        likely, chosen = (losses / -2).max(0)
        tried = some.view(-1)[chosen] * moment
        best_v = torch.where(likely > best, tried, best_v)
        best = torch.maximum(likely, best)
    return best_v, best


def _axes(
    expected: Tensor,
    *,
    lengths: Sequence[float] = (2.0, 5.0, 12.0, 30.0),
    shares: Sequence[float] = (0.5, 0.9, 1.0),
) -> _Axes:
    """The eigenvalues and eigenvectors of S for every K: first for I, then for those
    that are smooth over `lengths` ℓ of levels for `shares` ρ.
    """
    size = len(expected)
    place = torch.arange(size, dtype=expected.dtype, device=expected.device)
    apart = (place[:, None] - place).abs()
    one = torch.eye(size, dtype=expected.dtype, device=expected.device)
    kernels = [
        share * torch.exp(-apart / length) + (1 - share) * one
        for length in lengths
        for share in shares
        if length < size
    ]
    root = expected.sqrt()
    covariances = root[:, None] * torch.stack(kernels) * root
    values, vectors = torch.linalg.eigh(covariances)
    scales = torch.cat([expected[None], values.clamp(min=0)])
    return scales, torch.cat([one[None], vectors])


def pooled_tables(
    counts: Tensor,
    ways: Tensor,
    variance: Tensor,
    measured: Tensor,
    columns: Tensor,
    independent: Tensor | None = None,
) -> Tensor:
    """Tables in counts as all together say; 0 in `independent` stays 0; nothing above
    the noise → independence.
    """
    if independent is None:
        independent = torch.outer(ways, ways) / ways.sum() * columns.shape[1]
    residual = torch.where(measured, counts - independent, 0)
    noise = torch.where(measured, variance, 0)
    part = low_rank(residual, noise.sqrt(), measured)
    if not bool(part.any()):
        return independent
    upper_bound = torch.minimum(ways[:, None], ways[None, :])
    joint = (independent + part).clamp(min=0).minimum(upper_bound)
    possible = joint * (independent > 0)
    return with_margins(possible, ways[:, None], columns)


def with_margins(
    tables: Tensor,
    margins: Tensor,
    columns: Tensor,
    turns: int = 10,
) -> Tensor:
    """Two-way tables scaled by level so that they have, nearly, these margins with each
    column, (width, columns) or (width, 1); what is 0 stays 0.

    Source: iterative proportional fitting (Deming, Stephan 1940), rows and columns at
    once.
    """
    for _ in range(turns):
        ratio = margins / (tables @ columns).clamp(min=TINY)
        scale = ratio.sqrt() @ columns.T
        tables = tables * scale * scale.T
    return tables


def low_rank(residual: Tensor, deviation: Tensor, known: Tensor) -> Tensor:
    """What stands out of such noise: positive eigenvalues, which a mixture can have;
    without noise all of them.
    """
    draw = _normals(residual, 0)
    noise = (torch.where(known, deviation, 0) * draw).triu()
    symmetric = noise + noise.triu(1).T
    edge = max(float(torch.linalg.eigvalsh(symmetric)[-1]), 0.0)
    part = torch.zeros_like(residual)
    for _ in range(3):  # filling what was not measured
        filled = torch.where(known, residual, part)
        values, vectors = torch.linalg.eigh(filled)
        is_out = values > edge
        kept = vectors[:, is_out]
        squares = values[is_out].square() - edge**2
        part = (kept * squares.sqrt()) @ kept.T
    return part
