"""What pairs of ordered columns would be if one hidden number moved both: tables with a single parameter.

A table of L × L noisy cells has L² unknowns. Where the order of the levels matters in both columns (age and experience,
income and rent), one number nearly says it: the correlation r of a normal copula with the columns' own one-way tables
(Pearson, "On the correlation of characters not quantitatively measurable", Phil. Trans. 1900). Of some values of r, of
both signs and near 1, each pair has the one under which its noisy cells are likeliest. Where that leaves hardly
anything of what parts the pair from independence, but noise, it is the mean of the pair's prior. How far the table may
lie from it is learned from its own cells (`level_prior`), and nobody has to say which columns are ordered.

The cells in which such a copula has hardly anybody are taken for empty (`empty_cells`): a band along the diagonal stays
one, and noise far from it does not become people. Where noise is large that is a bet. So it is made only where people
who are independent cannot be many beside the copula's, and for two columns that have each other and no third: six
months' bills, which rise together and now and then fall to 0, are better held by what all pairs share.

With x = √r·f + √(1 − r)·e columns are independent given f. So for one r the tables of all pairs are a single product
AᵀA, A being the odds of all levels at some values of f; for −r the other column is read from f's other end.

Guarantee: reads released tables alone, so it is post-processing.
Edges: cells that are exact, or not measured, say nothing here; columns without order keep independence.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

_SHARED = (0.9, 0.95, 0.97, 0.98, 0.99, 0.995)  # |r|
_CLEARLY = 5.0  # in log-likelihood: the gain over independence
_FARTHEST, _NODES = 5.0, 201  # f, in deviations: a node each twentieth
_FITS = 0.1  # of what parts a pair from independence: a copula that leaves no more is the pair, but for noise
_ELSEWHERE = 0.2  # of a pair's people, at most, who may be independent for all that noise lets us see
_SEEN = 3.0  # deviations of its noise: a cell with so many people is not empty
_NOBODY = 0.01  # of a pair's people, in all its cells that have less than an even part of so many
_TINY = 1e-30


def ordered_means(
    counts: Tensor, noise: Tensor, measured: Tensor, ways: Tensor, columns: Tensor, independent: Tensor
) -> tuple[Tensor, Tensor]:
    """Every pair that is a copula but for noise as that copula, in counts, and the cells that it leaves empty.

    Both are (width, width), as are `counts`, the variance of their `noise`, where they are `measured`, and what
    `independent` columns would give, which all other pairs have; `ways` (width,) are the one-way tables; `columns`
    (width, m) says of which column each level is.
    Edges: a pair that is exact, or of which a cell is not measured, is no copula.
    """
    total, sizes, heard = float(ways.sum() / columns.shape[1]), columns.sum(0), measured & (noise > 0)
    weight = torch.where(heard, 1 / noise.clamp(min=_TINY), 0)

    def left(table: Tensor) -> Tensor:
        """Squares over the noise's, of every pair: (m, m)."""
        return columns.T @ ((counts - table).square() * weight) @ columns

    def spread_out(pairs: Tensor) -> Tensor:
        return (columns @ pairs.to(columns.dtype) @ columns.T) > 0

    def elsewhere(way: Tensor, rest: Tensor) -> Tensor:
        """The most, but for two deviations, that people who are independent can be of every pair: (m, m)."""
        known = (columns.T @ (way.square() * weight) @ columns).clamp(min=_TINY)
        return (columns.T @ (way * rest * weight) @ columns) / known + 2 * known.rsqrt()

    cells, apart = columns.T @ heard.to(columns.dtype) @ columns, left(independent)
    best, least = independent, torch.full_like(apart, torch.inf)
    for table in _copulas(ways, columns, total):
        found = left(table)
        best, least = torch.where(spread_out(found < least), table, best), torch.minimum(found, least)
    fits = (least < apart - 2 * _CLEARLY) & (least - cells <= _FITS * (apart - cells))
    fits &= (cells == torch.outer(sizes, sizes)) & (
        elsewhere(independent - best, counts - best) <= _ELSEWHERE
    )
    fits &= (fits.sum(0) == 1) & (fits.sum(0) == 1)[:, None]
    copula = spread_out(fits)
    even = (_NOBODY * total / torch.outer(columns @ sizes, columns @ sizes)).clamp(max=1)
    nobody = copula & (best < even) & (counts <= _SEEN * noise.sqrt())
    return torch.where(copula, best, independent), nobody


def _copulas(ways: Tensor, columns: Tensor, total: float) -> Iterator[Tensor]:
    """All pairs for each r, in counts: (width, width) each."""
    nodes = torch.linspace(-_FARTHEST, _FARTHEST, _NODES, dtype=ways.dtype, device=ways.device)
    mass = torch.exp(-nodes.square() / 2)
    mass = (mass / mass.sum() * total).sqrt()[:, None]
    place = torch.arange(columns.shape[1], dtype=ways.dtype, device=ways.device)
    ends = torch.special.ndtri((ways.cumsum(0) / total - columns @ place).clamp(0, 1))  # of levels, upward
    inner = (columns * columns.cumsum(0)).sum(1) > 1  # levels that begin where another one ends
    for shared in _SHARED:
        below = torch.special.ndtr((ends - shared**0.5 * nodes[:, None]) / (1 - shared) ** 0.5)
        odds = mass * (below - below.roll(1, 1) * inner)  # (nodes, width)
        yield odds.T @ odds
        yield odds.T @ odds.flip(0)
