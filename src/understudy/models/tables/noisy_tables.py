"""Estimates of the total and of all 1-way and 2-way marginals from a noisy Gram matrix,
each with its precision (`fit_gram`, steps 1 and 2).

- *Total and 1-way marginals.* A column is measured on the diagonal and again as the row
  sums of each of its 2-way marginals. Their inverse-variance weighted mean is projected
  onto the non-negative tables with the right total (`simplex`).
- *2-way marginals.* `measured` is what was released, and `target` the estimate
  under the priors of `priors`, `pair_laws` and `empty_cells`.

Cells that public rules forbid (`given_rules`) are known to be 0. They are no evidence
of noise or dependence, and the priors are 0 there as well.

Sources: the weighted mean over overlapping marginals is the mutual consistency of
Qardaji, Yang, Li, "PriView" (SIGMOD 2014); the rest is named where it is done.
Guarantee: reads the released matrix and public rules alone, so it is post-processing.
Edges: cells with infinite noise are never read; a total below one person counts as one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

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
from understudy.models.tables.pair_laws import PairLaws, laws_of_pairs
from understudy.models.tables.priors import (
    LevelPrior,
    common_share,
    drawn_noise,
    level_prior,
    pooled_tables,
    with_margins,
)

# frequencies nearer than this are the same; stands in for the noise of exact cells: no
# number of drawn rows that anybody asks for shows less
RESOLUTION = 1e-5


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
    (m, m) shows no more than noise; one that is clear of independence is followed down
    to `clear_most` (m, m), which is infinite for others (`_clear_most`). `empty`
    (width, width), by levels: what people cost, in shares, in a cell that seems to hold
    nobody (`empty_cells`). `laws` (width, width): the tables of pairs that are a
    function or a copula, but for noise, and 0 elsewhere. `cells` is how many two-way
    cells, each twice, were measured and can hold somebody.
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
    clear_most: Tensor
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
    caution: float = 0.3,
    tightest: float = 20.0,
) -> NoisyMarginals:
    """Steps 1 and 2 of `fit_gram`. No table measured as a whole, and the number of
    people not known → ConfigError.

    `caution`: the part of the prior's precision that enters, as the mixture itself
    pools what pairs share; all of it gains nothing (benchmarks/joint/NOTES.md, "no
    gain"). `tightest`: the prior is at most so many times as precise as a measurement,
    so that a fit that stops where noise begins still follows the cells.
    """
    counts, variance = checked(gram, sizes, noise)
    columns = _members(sizes, gram.device)
    never = forbidden(sizes, ties, gram.device)
    counts = torch.where(never, 0, counts)
    total, ways, ways_variance = _one_way(
        counts,
        torch.where(never, 0, variance),
        columns,
        never.diagonal(),
        people,
    )
    is_pair = (1 - columns @ columns.T) > 0
    measured = is_pair & variance.isfinite()
    known = torch.where(measured, variance, 0)
    open_cells = measured & ~never
    independent = _independent(
        ways,
        total,
        columns,
        sizes,
        ties,
    )
    laws = laws_of_pairs(
        counts,
        known,
        open_cells,
        ways,
        columns,
        independent * measured,
    )
    pairs = _NoisyPairs(
        counts,
        known,
        measured,
        ways,
        total,
        columns,
        independent,
    )
    # as if all cells were measured alike
    heard = torch.where(never & measured, drawn_noise(known, 1), counts)
    prior, mean = _prior_of_pairs(pairs, heard, laws)
    pull = caution * known / prior.variance.clamp(min=TINY)
    is_noisy = measured & (known > 0)
    pull = torch.where(is_noisy, pull.clamp(max=tightest), 0)
    least_variance = (RESOLUTION * total) ** 2
    precision = total**2 / variance.clamp(min=least_variance)
    weight = torch.where(measured, precision, 0)
    released = prior.turned(torch.where(measured, counts, 0))
    estimated = (released + pull * prior.turned(mean)) / (1 + pull)
    empty = empty_cells(
        counts,
        known,
        measured,
        ways,
        columns,
        independent if ties else None,
    )
    empty = torch.maximum(empty, surest(known) * laws.nobody)
    cells_of_pair = columns.T @ open_cells.double() @ columns
    departure = torch.where(open_cells, counts - independent, 0)
    squares = departure.square() / known.clamp(min=TINY)
    n_cells = max(int(open_cells.triu().sum()), 1)
    return NoisyMarginals(
        people=total,
        ways=ways / total,
        ways_precision=total**2 / ways_variance.clamp(min=least_variance),
        measured=released / total,
        weight=weight,
        target=estimated * measured / total,
        precision=weight * (1 + pull),
        basis=prior.basis,
        columns=columns,
        least=1 - 3 * (2 / n_cells) ** 0.5,
        most=most_of(cells_of_pair),
        clear_most=_clear_most(columns.T @ squares @ columns, cells_of_pair),
        empty=empty * weight.sqrt(),
        cells=int(open_cells.sum()),
        laws=torch.where(laws.lawful, laws.tables / total, 0),
    )


def _members(sizes: Sequence[int], device: torch.device) -> Tensor:
    """Which column each level is of: (width, m), 0 or 1."""
    column = torch.repeat_interleave(torch.tensor(sizes))
    return functional.one_hot(column).double().to(device)


def _independent(
    ways: Tensor,
    total: float,
    columns: Tensor,
    sizes: Sequence[int],
    ties: Sequence[Tie],
) -> Tensor:
    """The tables that columns have which are independent but for rules."""
    if not ties:
        return torch.outer(ways, ways) / total
    ruled = Ruled.from_ties(ways[None] / total, sizes, ties)
    return with_margins(ruled.gram() * total, ways[:, None], columns)


@dataclass(frozen=True, eq=False)
class _NoisyPairs:
    """Two-way tables in counts, (width, width), the variance of their noise, and
    one-way tables (width,) of so many people.
    """

    counts: Tensor
    noise: Tensor
    measured: Tensor
    ways: Tensor
    total: float
    columns: Tensor
    independent: Tensor

    def pooled(self, counts: Tensor, times: float = 1.0) -> Tensor:
        """What all tables share, by counts with so many times the noise's variance."""
        tables = pooled_tables(
            counts,
            self.ways,
            times * self.noise,
            self.measured,
            self.columns,
            self.independent,
        )
        return tables * self.measured


def _prior_of_pairs(
    pairs: _NoisyPairs,
    heard: Tensor,
    laws: PairLaws,
) -> tuple[LevelPrior, Tensor]:
    """Around what pairs lie, and how far; `heard` are the counts as if all cells were
    measured alike.
    """
    apart = laws.tables
    # a level that nobody seems to have may have a person
    expected = pairs.ways.clamp(min=1) / pairs.total**0.5
    prior = level_prior(
        heard - apart,
        pairs.noise,
        pairs.measured,
        expected,
        pairs.columns,
    )
    share = common_share(
        heard,
        pairs.noise,
        pairs.measured,
        apart,
        prior,
        partial(pairs.pooled, times=2.0),
    )
    mean = apart + share * (pairs.pooled(pairs.counts) - apart)
    return prior, torch.where(laws.lawful, apart, mean)


def read_on_fewer(
    gram: Tensor,
    noise: Tensor,
    sizes: Sequence[int],
    target: int,
    people: int,
    *,
    most_levels: int = 2,
) -> NoisyMarginals | None:
    """Where a target's pairs have most of the budget, as people are few and everybody
    knows how many, others hide in their noise: merged to √(n/σ) levels if these are no
    more than `most_levels`, and drawn to what they say of these, within one to
    independence. Of fewer than 2σ people these would hide as well.

    At three levels adult gains nothing, and credit loses 5 % in 2-way distance
    (benchmarks/joint/NOTES.md, "Fewer levels than declared").
    """
    column = torch.repeat_interleave(torch.tensor(sizes, device=gram.device))
    is_pair = column[:, None] != column
    has_target = (column[:, None] == target) | (column == target)
    other = is_pair & ~has_target & noise.isfinite()
    sigma = 0.0
    if bool(other.any()):
        sigma = float(noise[other].square().mean().sqrt())
    levels = level_count(people, sigma)
    if people < 2 * sigma or levels > most_levels:
        return None
    with_target = torch.where(other, torch.inf, noise)
    on_all_levels = read_tables(gram, sizes, noise=with_target, people=people)
    coarse = Coarse.from_one_way(
        on_all_levels.ways * on_all_levels.people, sizes, {target}, levels
    )
    if coarse is None:
        return None
    counts, variance = coarse.merged(gram, noise.square())
    read = read_tables(counts, coarse.sizes, noise=variance.sqrt(), people=people)
    return _with_others(on_all_levels, read, coarse, other)


def _with_others(
    told: NoisyMarginals,
    read: NoisyMarginals,
    coarse: Coarse,
    other: Tensor,
) -> NoisyMarginals:
    """Tables as `told`, and of the pairs `other` what was `read` on the fewer levels
    of `coarse`.
    """
    member = functional.one_hot(coarse.group).double()
    shares = member * coarse.share[:, None]
    own_levels = member @ member.sum(0)
    estimated = read.plain(read.target).clamp(min=0)
    fewer = with_margins(estimated, read.ways[:, None], read.columns)
    near = shares @ fewer @ shares.T
    sizes = read.columns.sum(0)
    sums = read.columns.T @ read.precision @ read.columns
    pairs = sums / torch.outer(sizes, sizes)
    spread = told.columns @ pairs @ told.columns.T
    spread = spread * torch.outer(own_levels, own_levels)
    drawn = told.basis.T @ near @ told.basis
    return replace(
        told,
        ways=shares @ read.ways,
        target=torch.where(other, drawn, told.target),
        precision=torch.where(other, spread, told.precision),
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
    is_pair = column[:, None] != column
    is_level = torch.eye(len(column), dtype=torch.bool, device=device)
    law = Ruled.from_ties(anything, sizes, ties)
    return (law.gram() == 0) & (is_pair | is_level)


def most_of(
    cells: Tensor,
    tables: int | None = None,
    *,
    chance: float = 0.05,
) -> Tensor:
    """What so many squared normals add up to at most in so many tables, but for a
    `chance` that one of these has more (Wilson, Hilferty 1931).
    """
    if tables is None:
        tables = int(cells.triu(1).count_nonzero())
    spread = 2 / (9 * cells.clamp(min=1))
    share = 1 - chance / max(tables, 1)
    bound = torch.special.ndtri(torch.tensor(share, dtype=cells.dtype))
    cube_root = 1 - spread + bound * spread.sqrt()
    most: Tensor = cells * cube_root**3
    return most


def _clear_most(departure: Tensor, cells: Tensor, *, clear: float = 5.0) -> Tensor:
    """Down to how many squares over the noise's a fit follows pairs of so many cells
    whose `departure` from independence, in such squares, is `clear` deviations more
    than noise has: to one deviation below its mean, as a fit takes up a part of the
    noise (m, m).

    `most` is what noise leaves in the worst of all pairs, which is more than it leaves
    in a given one: three times as much among hundreds of 12 cells. A pair that is so
    far off is no chance find.
    """
    deviation = (2 * cells).sqrt()
    is_clear = departure - cells > clear * deviation
    return torch.where(is_clear, cells - deviation, torch.inf)


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
    return _one_way(
        counts,
        variance,
        columns.double(),
        none,
        None,
    )


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
    is_of_column = columns.bool()
    other = 1 - columns
    across = (other @ columns.T) > 0
    pairs = torch.where(across, counts, 0)
    pair_noise = torch.where(across, noise, 0)
    # Row sums (width, m): a level within each other column, and within its own the cell
    # on the diagonal.
    sums = torch.where(is_of_column, counts.diagonal()[:, None], pairs @ columns)
    sums_noise = _total(pair_noise, columns)
    known = 1 / torch.where(is_of_column, noise.diagonal()[:, None], sums_noise)
    # Totals (m, m): of each two-way table, and on the diagonal of the one-way table.
    trust = (1 / _total((1 / known).T, columns)).triu()
    totals = columns.T @ sums
    people = float(known_people or (totals * trust).sum() / trust.sum())
    if math.isnan(people):
        raise ConfigError(
            "the Gram matrix holds no table measured as a whole, and so no number of "
            "people."
        )
    # what is left of them where noise is larger than their number
    people = max(people, 1.0)
    weight = known.sum(1)
    means = (sums * known).sum(1) / weight.clamp(min=TINY)
    ways = torch.where(weight > 0, means, torch.nan)
    for own_levels in is_of_column.T:
        possible = own_levels & ~none
        ways[possible] = _known_to_simplex(ways[possible], people)
    return people, ways, 1 / weight


def _total(variance: Tensor, columns: Tensor) -> Tensor:
    """Sums over each column's levels (…, width) → (…, m); infinite where a part of them
    is.
    """
    is_finite = variance.isfinite()
    total = torch.where(is_finite, variance, 0) @ columns
    infinite = (~is_finite).double() @ columns
    return torch.where(infinite > 0, torch.inf, total)


def _known_to_simplex(values: Tensor, total: float) -> Tensor:
    """The nearest non-negative values with this sum; unknown (NaN) ones first share
    what the others leave.
    """
    is_unknown = values.isnan()
    unassigned = (total - values.nansum()).clamp(min=0)
    rest = unassigned / is_unknown.sum().clamp(min=1)
    guess = torch.where(is_unknown, rest, values)
    return to_simplex(guess[None], values.new_tensor([total]))[0]


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
    deviation = torch.as_tensor(noise, dtype=torch.float64, device=gram.device)
    deviation = deviation.expand(width, width)
    if bool((deviation.isnan() | (deviation < 0)).any()):
        raise ConfigError(
            "noise must be 0 or above; infinity marks a cell that was not measured."
        )
    counts = torch.where(deviation.isfinite(), gram.double(), 0)
    if not bool(counts.triu().isfinite().all()):
        raise ConfigError(
            "the Gram matrix holds a value that is no number in a measured cell."
        )
    return _symmetric(counts), _symmetric(deviation.square())


def _symmetric(upper: Tensor) -> Tensor:
    """The same with what lies on and above the diagonal below it as well."""
    return upper.triu() + upper.triu(1).T
