"""What many noisy two-way tables say together: the part of them that stands out of the noise.

Cell by cell the noise of a wide table drowns the signal: with m columns its standard deviation grows as m. But the
largest eigenvalue of noise grows as σ√D alone, while that of a dependence which all columns share grows as D. So of the
residuals from independence the eigenvalues above those of noise are kept and the others set to zero; a kept λ is shrunk
to √(λ² − λ₀²), λ₀ being the largest eigenvalue of noise, which is optimal in squared error (Gavish, Donoho, IEEE Trans.
Inf. Theory 2017, §V.A, for singular values; Shabalin, Nobel, JMVA 2013).

- Two levels of one column are not measured together. As in a factor analysis by principal axes, those cells are filled
  with what the low rank itself says of them, and the eigenvalues are taken again.
- A count lies between 0 and the counts of its two levels, and tables have, nearly, the known one-way tables as margins
  (iterative proportional fitting; Deming, Stephan 1940). Without this the error on rare levels exceeds their counts.

Differs from the papers: λ₀ is that of one drawn matrix of noise of the stated deviations, which may differ from cell to
cell (across holders by 2^¼), not that of an asymptotic formula.
Guarantee: reads the released matrix alone.
"""

import torch
from torch import Tensor

_TURNS = 3
_MARGINS = 10  # turns of proportional fitting
_TINY = 1e-30


def pooled_tables(
    counts: Tensor,
    ways: Tensor,
    variance: Tensor,
    measured: Tensor,
    columns: Tensor,
    independent: Tensor | None = None,
) -> Tensor:
    """Two-way tables as all measured ones together say they are, in counts: (width, width).

    `counts` and the noise's `variance` are (width, width), known where `measured`; `ways` (width,) are the one-way
    tables; `columns` (width, m) says of which column each level is. `independent` tables that are 0 somewhere, as rules
    have it, stay 0 there.
    Edges: nothing stands out of the noise, or nothing is measured → independence.
    """
    if independent is None:
        independent = torch.outer(ways, ways) / ways.sum() * columns.shape[1]
    residual = torch.where(measured, counts - independent, 0)
    noise = torch.where(measured, variance, 0)
    part = low_rank(residual, noise.sqrt(), measured)
    if not bool(part.any()):
        return independent
    joint = (independent + part).clamp(min=0).minimum(torch.minimum(ways[:, None], ways[None, :]))
    return with_margins(joint * (independent > 0), ways, columns)


def with_margins(tables: Tensor, ways: Tensor, columns: Tensor) -> Tensor:
    """Two-way tables scaled by level so that they have, nearly, these one-way tables; what is 0 stays 0."""
    for _ in range(_MARGINS):
        scale = (ways[:, None] / (tables @ columns).clamp(min=_TINY)).sqrt() @ columns.T
        tables = tables * scale * scale.T
    return tables


def low_rank(residual: Tensor, deviation: Tensor, known: Tensor) -> Tensor:
    """The part of a symmetric residual that stands out of noise of these deviations, all (width, width).

    Only dependence that a mixture can have is kept: positive eigenvalues. `known` marks the cells that were measured.
    Edges: nothing stands out → zeros; no noise → all positive eigenvalues.
    """
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(residual.shape, generator=generator, dtype=torch.float64).to(residual.device)
    noise = (torch.where(known, deviation, 0) * draw).triu()
    edge = max(float(torch.linalg.eigvalsh(noise + noise.triu(1).T)[-1]), 0.0)
    part = torch.zeros_like(residual)
    for _ in range(_TURNS):
        values, vectors = torch.linalg.eigh(torch.where(known, residual, part))
        out = values > edge
        kept = vectors[:, out]
        part = (kept * (values[out].square() - edge**2).sqrt()) @ kept.T
    return part
