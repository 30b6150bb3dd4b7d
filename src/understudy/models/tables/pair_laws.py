"""Pairs of columns of which a whole law is known: a normal copula, or a function.

*A copula.* If the order of the levels matters in both columns (age and experience,
income and rent), one number describes nearly all of a table of L² noisy cells: the
correlation r of a normal copula with the columns' own 1-way marginals (Pearson, Phil.
Trans. 1900). For each pair r is the likeliest of some values near 1 and −1. If the
copula explains nearly all that distinguishes the pair from independence, it becomes the
mean of the pair's prior. `level_prior` learns from the pair's own cells how far the
table may be from it, and nobody has to say which columns are ordered.

Cells in which such a copula has hardly anybody are taken for empty. With much noise
that is a bet, so it is made under two conditions: there cannot be many people beside
the copula's who are independent, and each of the two columns has the other as its only
partner. Six months' bills, which rise together and now and then fall to 0, are better
described by what all pairs share. Computation: with x = √r·f + √(1 − r)·e columns are
independent given f, so for one r the tables of all pairs are one product AᵀA, where A
are the probabilities of all levels at some values of f. For −r the other column is read
from f's other end.

*A function.* Each level of one column has all its people in one level of the other, and
the noisy cells say with which odds it is which. This is evidence row by row. A test of
a table's squares instead sees a few strong cells among hundreds and takes them for
noise: with 47 columns and 7,000 people at ε = 1, a code and its group had 38 % of the
people in impossible cells, and have 2 % with this law. It is accepted if its evidence
beats independence, it leaves no more than noise, and noise would not hide people
elsewhere. A column may have several such laws.

Guarantee: reads released tables alone, so it is post-processing.
Edges: exact cells, and such as were not measured, are never taken for empty; columns
without order keep independence.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from understudy.models.tables.evidence import CLEAR
from understudy.models.tables.given_rules import TINY


@dataclass(frozen=True)
class PairLawSettings:
    """When a pair is taken for its law."""

    # in log-likelihood: the gain over independence. A ratio of e⁵ is one that chance
    # alone gives to one pair of 148, for a law that was known before
    gain: float = 5.0
    # of what parts a pair from independence: a copula that leaves no more is the pair,
    # but for noise
    left: float = 0.1
    # of a pair's people, at most, who may be independent for all that noise lets us see
    elsewhere: float = 0.3
    # of a pair's people, in all its cells that have less than an even part of so many:
    # these are taken for empty
    nobody: float = 0.01


_LAW = PairLawSettings()


class PairLaws(NamedTuple):
    """Every pair that is a copula or a function, but for noise, as that law, in counts,
    others `independent`; the cells that it leaves empty; the cells of such pairs.
    """

    tables: Tensor
    nobody: Tensor
    lawful: Tensor


def laws_of_pairs(
    counts: Tensor,
    noise: Tensor,
    measured: Tensor,
    ways: Tensor,
    columns: Tensor,
    independent: Tensor,
) -> PairLaws:
    """The laws of all pairs that have one. An exact pair, or one not measured as a
    whole, has no law.
    """
    pairs = _CopulaTests(
        counts,
        noise,
        measured & (noise > 0),
        ways,
        columns,
    )
    apart = pairs.residual(independent)
    best = independent
    best_misfit = torch.full_like(apart, torch.inf)
    for table in copulas(ways, columns, pairs.total):
        misfit = pairs.residual(table)
        best = torch.where(pairs.cells_of(misfit < best_misfit), table, best)
        best_misfit = torch.minimum(misfit, best_misfit)

    # one way round, and the other
    function, misfit = _functions(pairs)
    left_either = torch.minimum(misfit, misfit.T)
    is_function = left_either < best_misfit
    function = torch.where(pairs.cells_of(misfit < misfit.T), function, function.T)
    best = torch.where(pairs.cells_of(is_function), function, best)
    best_misfit = torch.minimum(best_misfit, left_either)

    has_law = _fits(
        pairs,
        apart,
        best_misfit,
        best,
        independent,
        is_function,
    )
    lawful = pairs.cells_of(has_law)
    sizes = columns.sum(0)
    own_sizes = columns @ sizes
    even = _LAW.nobody * pairs.total / torch.outer(own_sizes, own_sizes)
    is_unlikely = best < even.clamp(max=1)
    is_unseen = counts <= CLEAR * noise.sqrt()
    return PairLaws(
        tables=torch.where(lawful, best, independent),
        nobody=lawful & is_unlikely & is_unseen,
        lawful=lawful,
    )


def _fits(
    pairs: "_CopulaTests",
    apart: Tensor,
    least: Tensor,
    best: Tensor,
    independent: Tensor,
    is_function: Tensor,
) -> Tensor:
    """Which pairs are their `best` law, which leaves the `least` squares, where
    independence leaves them `apart`: (m, m).
    """
    cells = pairs.cells
    is_better = least < apart - 2 * _LAW.gain
    beyond_noise = pairs.residual(best) - cells
    by_chance = CLEAR * (2 * cells).sqrt()
    little = torch.maximum(_LAW.left * (apart - cells), by_chance)
    fewest, most = pairs.elsewhere(independent - best, pairs.counts - best)
    is_all = (most <= _LAW.elsewhere) & ((fewest <= 0) | ~is_function)
    fits = is_better & (beyond_noise <= little) & pairs.is_whole & is_all
    is_alone = (fits & ~is_function).sum(0) == 1
    return fits & (is_function | (is_alone & is_alone[:, None]))


@dataclass(frozen=True, eq=False)
class _CopulaTests:
    """Noisy two-way tables, (width, width), and which of their cells are `heard`."""

    counts: Tensor
    noise: Tensor
    heard: Tensor
    ways: Tensor
    columns: Tensor

    @cached_property
    def total(self) -> float:
        return float(self.ways.sum() / self.columns.shape[1])

    @cached_property
    def weight(self) -> Tensor:
        return torch.where(self.heard, 1 / self.noise.clamp(min=TINY), 0)

    @cached_property
    def cells(self) -> Tensor:
        """How many cells of every pair are heard: (m, m)."""
        return self.summed(self.heard.to(self.columns.dtype))

    @property
    def is_whole(self) -> Tensor:
        sizes = self.columns.sum(0)
        return self.cells == torch.outer(sizes, sizes)

    def summed(self, cells: Tensor) -> Tensor:
        return self.columns.T @ cells @ self.columns

    def cells_of(self, pairs: Tensor) -> Tensor:
        """Which cells are of these pairs."""
        chosen = pairs.to(self.columns.dtype)
        return (self.columns @ chosen @ self.columns.T) > 0

    def residual(self, table: Tensor) -> Tensor:
        """Squares over the noise's, of every pair: (m, m)."""
        gap = self.counts - table
        return self.summed(gap.square() * self.weight)

    def elsewhere(self, way: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the most, but for two deviations, that independent people can
        be of every pair: (m, m).
        """
        known = self.summed(way.square() * self.weight).clamp(min=TINY)
        share = self.summed(way * rest * self.weight) / known
        slack = 2 * known.rsqrt()
        return share - slack, share.clamp(min=0) + slack


def _functions(pairs: _CopulaTests) -> tuple[Tensor, Tensor]:
    """Every pair as if the column of its rows determined the other, in counts: (width,
    width). In which cell a level's people are has odds, by the noise and the other
    column's one-way table. And −2 log-likelihood, averaged over these odds, on the
    scale of squares over the noise's: (m, m).
    """
    columns = pairs.columns
    ways = pairs.ways
    people = ways[:, None]
    prior = (ways / pairs.total).clamp(min=TINY).log()
    evidence = (pairs.counts - people / 2) * people * pairs.weight
    scores = evidence + prior
    highest = torch.stack([scores[:, own].max(1).values for own in columns.T.bool()], 1)
    odds = (scores - highest @ columns.T).exp()
    sums = odds @ columns
    log_likelihood = columns.T @ (sums.log() + highest)
    squares = pairs.summed(pairs.counts.square() * pairs.weight)
    table = people * odds / (sums @ columns.T)
    for _ in range(5):  # proportional fitting, to margins that nearly hold
        down = columns @ (columns.T @ table)
        table = table * ways / down.clamp(min=TINY)
        across = table @ columns @ columns.T
        table = table * people / across.clamp(min=TINY)
    return table, squares - 2 * log_likelihood


def copulas(
    ways: Tensor,
    columns: Tensor,
    total: float,
    correlations: Sequence[float] = (0.9, 0.95, 0.97, 0.98, 0.99, 0.995),
) -> Iterator[Tensor]:
    """All pairs for each r and −r, in counts: (width, width) each. Below such r a
    pair's noisy cells say enough by themselves.
    """
    # ∫ over f by its values within five deviations, a twentieth apart
    nodes = torch.linspace(
        -5.0,
        5.0,
        201,
        dtype=ways.dtype,
        device=ways.device,
    )
    density = torch.exp(-nodes.square() / 2)
    mass = density / density.sum() * total
    root = mass.sqrt()[:, None]
    number = torch.arange(columns.shape[1], dtype=ways.dtype, device=ways.device)
    # of levels, upward
    share_below = ways.cumsum(0) / total - columns @ number
    ends = torch.special.ndtri(share_below.clamp(0, 1))
    # levels that begin where another one ends
    is_inner = (columns * columns.cumsum(0)).sum(1) > 1
    for shared in correlations:
        gap = ends - shared**0.5 * nodes[:, None]
        below = torch.special.ndtr(gap / (1 - shared) ** 0.5)
        begin = below.roll(1, 1) * is_inner
        odds = root * (below - begin)  # (nodes, width)
        yield odds.T @ odds
        yield odds.T @ odds.flip(0)
