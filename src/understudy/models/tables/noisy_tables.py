"""What a noisy Gram matrix says: total, one-way and two-way tables, with their
precision (`fit_gram`, steps 1 and 2).

What rules forbid (`given_rules`) is 0, and is known: it is no evidence of noise or
dependence, and what all tables are drawn to is 0 there as well.

Guarantee: reads the released matrix and public rules alone, so that all here is
post-processing.
Edges: cells with infinite noise are never read; noise that leaves fewer than one person
counts as one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError
from understudy.models.simplex import to_simplex
from understudy.models.tables.empty_cells import empty_cells, surest
from understudy.models.tables.fitted_levels import Coarse
from understudy.models.tables.given_rules import TINY, Ruled, Tie
from understudy.models.tables.merged_levels import level_count
from understudy.models.tables.pair_laws import laws_of_pairs
from understudy.models.tables.priors import (
    common_share,
    drawn_noise,
    level_prior,
    pooled_tables,
    with_margins,
)

# share of the prior's precision that enters: the mixture itself pools what pairs share
_CAUTION = 0.3
_TIGHTEST = 20.0  # the prior is at most so many times as precise as the measurement
# frequencies nearer than this are the same; stands in for the noise of exact cells
RESOLUTION = 1e-5
# levels: where noise allows fewer, other pairs than a target's are read on these
_FEW = 3


@dataclass(frozen=True)
class NoisyMarginals:
    """What a noisy Gram matrix says, in frequencies; every precision is 0 where nothing
    was measured.

    (width,): one-way cells `ways` and their precision. (width, width): two-way cells as
    released, `measured` with `weight` = 1/noise², and as estimated, `target` with
    `precision`; all of these in an orthogonal `basis` that mixes the levels of one
    column, so that odds P have the tables (P·basis)ᵀ(P·basis). A mean square residual,
    in units of the noise, below `least` follows the noise (none is, where fewer than 18
    two-way cells were measured). A table whose squares add up to no more than `most`
    (m, m) shows no more than noise. `empty` (width, width), by levels: what people
    cost, in shares, in a cell that seems to hold nobody (`empty_cells`). `laws` (width,
    width): the tables of pairs that are a function or a copula, but for noise, and 0
    elsewhere. `cells` is how many two-way cells, each twice, were measured and can hold
    somebody.
    """

    people: float
    ways: Tensor
    ways_precision: Tensor
    measured: Tensor
    weight: Tensor
    target: Tensor
    precision: Tensor
    basis: Tensor
    columns: Tensor
    least: float
    most: Tensor
    empty: Tensor
    cells: int
    laws: Tensor

    def plain(self, table: Tensor) -> Tensor:
        """`measured` or `target` by levels."""
        return self.basis @ table @ self.basis.T


def read_tables(
    gram: Tensor,
    sizes: Sequence[int],
    *,
    noise: float | Tensor,
    people: int | None = None,
    ties: Sequence[Tie] = (),
) -> NoisyMarginals:
    """Steps 1 and 2 of `fit_gram`. No table measured as a whole, and the number of
    people not known → ConfigError.
    """
    counts, variance = checked(gram, sizes, noise)
    columns = (
        functional.one_hot(torch.repeat_interleave(torch.tensor(sizes)))
        .double()
        .to(gram.device)
    )
    never = forbidden(sizes, ties, gram.device)
    counts = torch.where(never, 0, counts)
    exact = torch.where(never, 0, variance)
    none = never.diagonal()
    total, ways, ways_variance = _one_way(counts, exact, columns, none, people)
    measured = ((1 - columns @ columns.T) > 0) & variance.isfinite()
    known = torch.where(measured, variance, 0)
    open_cells = measured & ~never
    independent = torch.outer(ways, ways) / total
    if ties:
        independent = with_margins(
            Ruled.from_ties(ways[None] / total, sizes, ties).gram() * total,
            ways[:, None],
            columns,
        )
    apart, nobody, lawful = laws_of_pairs(
        counts,
        known,
        open_cells,
        ways,
        columns,
        independent * measured,
    )
    # a level that nobody seems to have may have a person
    expected = ways.clamp(min=1) / total**0.5
    # as if all cells were measured alike
    heard = torch.where(never & measured, drawn_noise(known, 1), counts)
    prior = level_prior(heard - apart, known, measured, expected, columns)

    def pool(cells: Tensor, noise: float = 1.0) -> Tensor:
        return (
            pooled_tables(cells, ways, noise * known, measured, columns, independent)
            * measured
        )

    share = common_share(
        heard, known, measured, apart, prior, lambda cells: pool(cells, 2.0)
    )
    mean = torch.where(lawful, apart, apart + share * (pool(counts) - apart))
    pull = _CAUTION * known / prior.variance.clamp(min=TINY)
    pull = torch.where(measured & (known > 0), pull.clamp(max=_TIGHTEST), 0)
    resolution = (RESOLUTION * total) ** 2
    weight = torch.where(measured, total**2 / variance.clamp(min=resolution), 0)
    released = prior.turned(torch.where(measured, counts, 0))
    empty = empty_cells(
        counts,
        known,
        measured,
        ways,
        columns,
        independent if ties else None,
    )
    return NoisyMarginals(
        people=total,
        ways=ways / total,
        ways_precision=total**2 / ways_variance.clamp(min=resolution),
        measured=released / total,
        weight=weight,
        target=(released + pull * prior.turned(mean)) / (1 + pull) * measured / total,
        precision=weight * (1 + pull),
        basis=prior.basis,
        columns=columns,
        least=1 - 3 * (2 / max(int(open_cells.triu().sum()), 1)) ** 0.5,
        most=most_of(columns.T @ open_cells.double() @ columns),
        empty=torch.maximum(empty, surest(known) * nobody) * weight.sqrt(),
        cells=int(open_cells.sum()),
        laws=torch.where(lawful, apart / total, 0),
    )


def read_on_fewer(
    gram: Tensor,
    noise: Tensor,
    sizes: Sequence[int],
    target: int,
    people: int,
) -> NoisyMarginals | None:
    """Where a target's pairs have most of the budget, as people are few and everybody
    knows how many, others hide in their noise: merged to √(n/σ) levels if that is below
    3, and drawn to what they say of these, within one to independence
    (benchmarks/joint). Of fewer than 2σ people these would hide as well.
    """
    column = torch.repeat_interleave(torch.tensor(sizes, device=gram.device))
    other = (
        (column[:, None] != column)
        & (column[:, None] != target)
        & (column != target)
        & noise.isfinite()
    )
    sigma = float(noise[other].square().mean().sqrt()) if bool(other.any()) else 0.0
    if people < 2 * sigma or level_count(people, sigma) >= _FEW:
        return None
    told = read_tables(
        gram,
        sizes,
        noise=torch.where(other, torch.inf, noise),
        people=people,
    )
    coarse = Coarse.from_one_way(
        told.ways * told.people,
        sizes,
        {target},
        level_count(people, sigma),
    )
    if coarse is None:
        return None
    counts, variance = coarse.merged(gram, noise.square())
    read = read_tables(counts, coarse.sizes, noise=variance.sqrt(), people=people)
    member = functional.one_hot(coarse.group).double()
    shares = member * coarse.share[:, None]
    many = member @ member.sum(0)
    near = (
        shares
        @ with_margins(
            read.plain(read.target).clamp(min=0),
            read.ways[:, None],
            read.columns,
        )
        @ shares.T
    )
    pairs = (
        read.columns.T
        @ read.precision
        @ read.columns
        / torch.outer(*2 * (read.columns.sum(0),))
    )
    precision = torch.where(
        other,
        told.columns @ pairs @ told.columns.T * torch.outer(many, many),
        told.precision,
    )
    drawn = torch.where(other, told.basis.T @ near @ told.basis, told.target)
    return replace(
        told,
        ways=shares @ read.ways,
        target=drawn,
        precision=precision,
        least=0.0,
    )


def forbidden(
    sizes: Sequence[int],
    ties: Sequence[Tie],
    device: torch.device,
) -> Tensor:
    """Which cells of the Gram matrix no row that keeps the rules adds to: (width,
    width).
    """
    anything = torch.ones(1, sum(sizes), dtype=torch.float64, device=device)
    column = torch.repeat_interleave(torch.tensor(sizes, device=device))
    counted = (column[:, None] != column) | torch.eye(
        len(column),
        dtype=torch.bool,
        device=device,
    )
    return (Ruled.from_ties(anything, sizes, ties).gram() == 0) & counted


def most_of(
    cells: Tensor,
    tables: int | None = None,
    *,
    chance: float = 0.05,
) -> Tensor:
    """What so many squared normals add up to at most in so many tables, but for a
    `chance` that one of these has more (Wilson, Hilferty 1931).
    """
    tables = int(cells.triu(1).count_nonzero()) if tables is None else tables
    spread = 2 / (9 * cells.clamp(min=1))
    bound = torch.special.ndtri(
        torch.tensor(1 - chance / max(tables, 1), dtype=cells.dtype)
    )
    most: Tensor = cells * (1 - spread + bound * spread.sqrt()) ** 3
    return most


def one_way(
    gram: Tensor,
    sizes: Sequence[int],
    noise: float | Tensor,
) -> tuple[float, Tensor, Tensor]:
    """The number of people that such a matrix says, its one-way tables (width,) in
    counts, and their variances.
    """
    counts, variance = checked(gram, sizes, noise)
    columns = functional.one_hot(torch.repeat_interleave(torch.tensor(sizes)))
    none = torch.zeros(len(counts), dtype=torch.bool)
    return _one_way(counts, variance, columns.double(), none, None)


def _one_way(
    counts: Tensor,
    variance: Tensor,
    columns: Tensor,
    none: Tensor,
    known_people: int | None,
) -> tuple[float, Tensor, Tensor]:
    """The number of people, one-way tables (width,) in counts, and their variances:
    means over all that is whole.
    """
    noise = variance.clamp(min=1e-12)
    own = columns.bool()
    other = 1 - columns
    across = (other @ columns.T) > 0
    pairs = torch.where(across, counts, 0)
    pair_noise = torch.where(across, noise, 0)
    # Row sums (width, m): a level within each other column, and within its own the cell
    # on the diagonal.
    sums = torch.where(own, counts.diagonal()[:, None], pairs @ columns)
    known = 1 / torch.where(own, noise.diagonal()[:, None], _total(pair_noise, columns))
    # Totals (m, m): of each two-way table, and on the diagonal of the one-way table.
    trust = (1 / _total((1 / known).T, columns)).triu()
    people = float(known_people or (columns.T @ sums * trust).sum() / trust.sum())
    if math.isnan(people):
        raise ConfigError(
            "the Gram matrix holds no table measured as a whole, and so no number of "
            "people."
        )
    # what is left of them where noise is larger than their number
    people = max(people, 1.0)
    weight = known.sum(1)
    ways = torch.where(
        weight > 0,
        (sums * known).sum(1) / weight.clamp(min=TINY),
        torch.nan,
    )
    for own_levels in own.T:
        ways[own_levels & ~none] = _known_to_simplex(ways[own_levels & ~none], people)
    return people, ways, 1 / weight


def _total(variance: Tensor, columns: Tensor) -> Tensor:
    """Sums over each column's levels (…, width) → (…, m); infinite where a part of them
    is.
    """
    finite = variance.isfinite()
    total = torch.where(finite, variance, 0) @ columns
    return torch.where((~finite).double() @ columns > 0, torch.inf, total)


def _known_to_simplex(values: Tensor, total: float) -> Tensor:
    """The nearest non-negative values with this sum; unknown (NaN) ones first share
    what the others leave.
    """
    unknown = values.isnan()
    rest = (total - values.nansum()).clamp(min=0) / unknown.sum().clamp(min=1)
    return to_simplex(
        torch.where(unknown, rest, values)[None],
        values.new_tensor([total]),
    )[0]


def checked(
    gram: Tensor,
    sizes: Sequence[int],
    noise: float | Tensor,
) -> tuple[Tensor, Tensor]:
    """Counts and noise variances (width, width), both symmetric; 0 and infinity where
    not measured.
    """
    for size in sizes:
        whole(sizes=size)
    width = sum(sizes)
    if gram.shape != (width, width):
        raise ConfigError(
            f"the Gram matrix is {tuple(gram.shape)}, but {sizes} give a width of "
            f"{width}."
        )
    spread = torch.as_tensor(noise, dtype=torch.float64, device=gram.device).expand(
        width,
        width,
    )
    if bool((spread.isnan() | (spread < 0)).any()):
        raise ConfigError(
            "noise must be 0 or above; infinity marks a cell that was not measured."
        )
    counts = torch.where(spread.isfinite(), gram.double(), 0)
    if not bool(counts.triu().isfinite().all()):
        raise ConfigError(
            "the Gram matrix holds a value that is no number in a measured cell."
        )
    variance = spread.square()
    return counts.triu() + counts.triu(1).T, variance.triu() + variance.triu(1).T
