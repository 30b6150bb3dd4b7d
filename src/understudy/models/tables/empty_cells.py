"""Which cells of pairs hold nobody: of pairs near a function, and of pairs of which a
whole law is known.

*Near a function* (`empty_cells`): copies, recodes, one column that another determines.
Such a table has a few full cells and many empty ones. Noise alone keeps a fit from
saying so: a tenth of σ in each empty cell passes every test of the residual, and a
hundred such cells are a tenth of the people. A cell lies, with probability π, at the
pair's floor, f·E with E what independent columns would give, or it is a draw of the
Gaussian prior around independence, N(E, v·E), as `priors` has it without an order; both
under the noise of its measurement. v matches a pair's second moments; π and f are those
under which its cells are likeliest (Johnstone and Silverman, "Needles and straw in
haystacks", Ann. Statist. 2004, learn the weight of an atom at zero likewise). Only
pairs which that makes clearly likelier, with a floor that is not clearly above 0, have
empty cells: half of a copy is none. In a second round the other cells lie around the
table with the same one-way tables that is independent but for the empty ones
(quasi-independence; Goodman, JASA 1968).
Differs from the paper: no cell is set to 0. People whom the fit has there cost it
something, in proportion, the more the surer the cell is empty, so that a count is
followed only as far as it exceeds a threshold (Tibshirani, JRSS B 1996). A square
instead makes the descent too stiff to reach the other tables, and a cell that is not
empty costs a hundred times too much.

*A law* (`laws_of_pairs`). Where the order of the levels matters in both columns (age
and experience, income and rent), one number nearly says a table of L² noisy cells: the
correlation r of a normal copula with the columns' own one-way tables (Pearson, Phil.
Trans. 1900). Of some values of r, of both signs and near 1, each pair has the one under
which its noisy cells are likeliest. Where that leaves hardly anything of what parts the
pair from independence, but noise, it is the mean of the pair's prior; how far the table
may lie from it is learned from its own cells (`level_prior`), and nobody has to say
which columns are ordered. The cells in which such a copula has hardly anybody are taken
for empty. Where noise is large that is a bet. So it is made only where people who are
independent cannot be many beside the copula's, and for two columns that have each other
and no third: six months' bills, which rise together and now and then fall to 0, are
better held by what all pairs share. With x = √r·f + √(1 − r)·e columns are independent
given f. So for one r the tables of all pairs are a single product AᵀA, A being the odds
of all levels at some values of f; for −r the other column is read from f's other end.
The other law is a function: each level of one column has all its people in one level of
the other, and which it is has odds by the noisy cells. That is evidence row by row,
where a test of a table's squares sees a few strong cells among hundreds and takes them
for noise: with 47 columns and 7,000 people at ε = 1 a code and its group keep 2 % of
the people in impossible cells, and kept 38 %. It is taken where its evidence beats
independence, it leaves no more than noise, and noise would let us see if some people
were elsewhere. A column may have several.

Guarantee: reads released tables alone, so it is post-processing.
Edges: exact cells, and such as were not measured, are never taken for empty; columns
without order keep independence.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from understudy.models.tables.evidence import CLEAR
from understudy.models.tables.given_rules import TINY
from understudy.models.tables.priors import with_margins

_CLEARLY = 10.0  # in log-likelihood: a pair's gain by a floor
_READY = 3.0  # times its odds: in a pair near a function, what may be empty is
_STEEP = 3.0  # deviations of a threshold for each unit of the log odds
_SUREST = 16.0  # deviations: the highest threshold
# people: so many in a cell that is surely empty cost 1, in log-likelihood, at most
_STRAYS = 1.5
_CLEARLY_ORDERED = 5.0  # in log-likelihood: the gain over independence
# of what parts a pair from independence: a copula that leaves no more is the pair, but
# for noise
_FITS = 0.1
# of a pair's people, at most, who may be independent for all that noise lets us see
_ELSEWHERE = 0.3
# of a pair's people, in all its cells that have less than an even part of so many
_NOBODY = 0.01


def empty_cells(
    counts: Tensor,
    noise: Tensor,
    measured: Tensor,
    ways: Tensor,
    columns: Tensor,
    independent: Tensor | None = None,
) -> Tensor:
    """The threshold, in deviations of the noise, below which a count is none, and 0
    elsewhere: (width, width). It is what a person costs there, in 1/noise.
    `independent`: E, where rules leave cells that nobody can be in.
    """
    mean = (
        torch.outer(ways, ways) / (ways.sum() / columns.shape[1])
        if independent is None
        else independent
    )
    never = mean == 0 if independent is not None else torch.zeros_like(measured)
    pairs = _Pairs(
        counts,
        noise,
        measured & (noise > 0) & ~never,
        never,
        mean,
        ways,
        columns,
    )
    share, floor = (torch.full_like(pairs.dispersion, start) for start in (0.5, 0.0))
    share, floor = pairs.likeliest(pairs.mean, share, floor)
    near = (pairs.gain(share, floor) > _CLEARLY) & (floor == 0)
    if not bool(near.any()):
        return torch.zeros_like(counts)
    mean = pairs.mean_of_others(share, floor)
    zero = torch.zeros_like(floor)
    share, _ = pairs.likeliest(mean, share, zero, learn=False)
    odds = _READY * pairs.log_odds(mean, share, zero).clamp(max=20).exp()
    threshold = _STEEP * odds.log1p()
    there = pairs.known & (pairs.spread_out(near.double()) > 0)
    return torch.minimum(threshold, surest(pairs.noise)) * there


def surest(noise: Tensor) -> Tensor:
    """The highest threshold of a cell, from its noise's variance."""
    return (noise.sqrt() / _STRAYS).clamp(max=_SUREST)


@dataclass(frozen=True)
class _Pairs:
    """Noisy two-way tables. π (share) and f (floor) are (m, m); all else is (width,
    width).
    """

    counts: Tensor
    variance: Tensor
    known: Tensor
    never: Tensor
    independent: Tensor
    ways: Tensor
    columns: Tensor

    @cached_property
    def noise(self) -> Tensor:
        return torch.where(self.known, self.variance, 1)

    @cached_property
    def total(self) -> Tensor:
        return self.ways.sum() / self.columns.shape[1]

    @cached_property
    def mean(self) -> Tensor:
        """E: what independent columns would give."""
        return torch.where(self.known, self.independent, 0)

    @cached_property
    def dispersion(self) -> Tensor:
        """v of every pair: (m, m)."""
        rest = (self.counts - self.mean).square() - self.noise
        return (
            self.summed(rest * self.mean)
            / self.summed(self.mean.square()).clamp(min=TINY)
        ).clamp(min=0)

    @cached_property
    def wide(self) -> Tensor:
        """The variance of a cell that is not at the floor."""
        return (
            self.spread_out(self.dispersion) * self.mean.clamp(min=1 / self.total)
            + self.noise
        )

    @cached_property
    def whole(self) -> Tensor:
        """Which pairs are measured as a whole, so that all people are in them:
        (m, m).
        """
        sizes = self.columns.sum(0)
        return self.columns.T @ (
            self.known | self.never
        ).double() @ self.columns == torch.outer(sizes, sizes)

    def summed(self, cells: Tensor) -> Tensor:
        return self.columns.T @ torch.where(self.known, cells, 0) @ self.columns

    def spread_out(self, pairs: Tensor) -> Tensor:
        return self.columns @ pairs @ self.columns.T

    def at(self, floor: Tensor) -> Tensor:
        return self.spread_out(floor) * self.mean

    def log_odds(
        self,
        mean: Tensor,
        share: Tensor,
        floor: Tensor,
    ) -> Tensor:
        """That a cell lies at the floor, others lying around `mean`."""
        gap = self.counts - self.at(floor)
        other = self.counts - mean
        ratio = (
            (self.wide / self.noise).log()
            + other.square() / self.wide
            - gap.square() / self.noise
        )
        return torch.where(self.known, ratio / 2 + self.spread_out(share.logit()), 0)

    def gain(self, share: Tensor, floor: Tensor) -> Tensor:
        """In log-likelihood, over no floor: (m, m)."""
        rest = (1 - share).log()
        return self.summed(
            functional.softplus(self.log_odds(self.mean, share, floor))
            + self.spread_out(rest)
        )

    def likeliest(
        self,
        mean: Tensor,
        share: Tensor,
        floor: Tensor,
        *,
        learn: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """π, and f if it is to be learned, by expectation and maximisation, others
        lying around `mean`.
        """
        cells = self.summed(torch.ones_like(mean)).clamp(min=1)
        for _ in range(6):  # two numbers a pair converge soon
            there = torch.sigmoid(self.log_odds(mean, share, floor))
            share = (self.summed(there) / cells).clamp(1e-3, 1 - 1e-3)
            floor = self._floor(there) if learn else floor
        return share, floor

    def _floor(self, there: Tensor) -> Tensor:
        """f, from what lies there and from what all people but those elsewhere leave,
        by 1/variance: (m, m).
        """
        rest = 1 - there
        counts = self.counts
        noise = self.noise
        parts = (
            there * self.mean,
            there * counts,
            rest * counts,
            there**2 * noise,
            rest**2 * noise,
        )
        held, seen, gone, own, other = self.summed(torch.stack(parts))
        held = held.clamp(min=TINY)
        left = self.total - gone
        own = own.clamp(min=TINY)
        other = torch.where(self.whole, other.clamp(min=TINY), torch.inf)
        floor = (seen / own + left / other) / (1 / own + 1 / other) / held
        return torch.where(
            floor > CLEAR * (1 / own + 1 / other).rsqrt() / held,
            floor,
            0,
        ).clamp(max=1)

    def mean_of_others(self, share: Tensor, floor: Tensor) -> Tensor:
        """Independent but for the floor, with the one-way tables that it leaves
        (Deming, Stephan 1940).
        """
        log_odds = self.log_odds(self.mean, share, floor)
        elsewhere = torch.sigmoid(-log_odds).clamp(min=1e-3)
        on_floor = torch.where(self.known, (1 - elsewhere) * self.at(floor), 0)
        others = self.ways[:, None] - on_floor @ self.columns  # (width, m)
        table = with_margins(
            self.mean * elsewhere,
            others.clamp(min=0),
            self.columns,
            turns=5,
        )
        most = torch.minimum(self.ways[:, None], self.ways[None, :])
        return torch.minimum(table / elsewhere, most)


def laws_of_pairs(
    counts: Tensor,
    noise: Tensor,
    measured: Tensor,
    ways: Tensor,
    columns: Tensor,
    independent: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Every pair that is a copula or a function, but for noise, as that law, in counts,
    others `independent`; the cells that it leaves empty; the cells of such pairs. An
    exact pair, or one not measured as a whole, has no law.
    """
    total = float(ways.sum() / columns.shape[1])
    sizes = columns.sum(0)
    heard = measured & (noise > 0)
    weight = torch.where(heard, 1 / noise.clamp(min=TINY), 0)

    def residual(table: Tensor) -> Tensor:
        """Squares over the noise's, of every pair: (m, m)."""
        return columns.T @ ((counts - table).square() * weight) @ columns

    def spread_out(pairs: Tensor) -> Tensor:
        return (columns @ pairs.to(columns.dtype) @ columns.T) > 0

    def elsewhere(way: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the most, but for two deviations, that independent people can
        be of every pair: (m, m).
        """
        known = (columns.T @ (way.square() * weight) @ columns).clamp(min=TINY)
        share = (columns.T @ (way * rest * weight) @ columns) / known
        return share - 2 * known.rsqrt(), share.clamp(min=0) + 2 * known.rsqrt()

    cells = columns.T @ heard.to(columns.dtype) @ columns
    apart = residual(independent)
    best = independent
    least = torch.full_like(apart, torch.inf)
    for table in copulas(ways, columns, total):
        found = residual(table)
        best = torch.where(spread_out(found < least), table, best)
        least = torch.minimum(found, least)
    function, found = _functions(counts, weight, ways, columns, total)
    several = torch.minimum(found, found.T) < least
    function = torch.where(spread_out(found < found.T), function, function.T)
    best = torch.where(spread_out(several), function, best)
    least = torch.minimum(least, torch.minimum(found, found.T))
    little = torch.maximum(_FITS * (apart - cells), CLEAR * (2 * cells).sqrt())
    fits = (least < apart - 2 * _CLEARLY_ORDERED) & (residual(best) - cells <= little)
    fewest, most = elsewhere(independent - best, counts - best)
    fits &= (
        (cells == torch.outer(sizes, sizes))
        & (most <= _ELSEWHERE)
        & ((fewest <= 0) | ~several)
    )
    alone = (fits & ~several).sum(0) == 1
    fits &= several | (alone & alone[:, None])
    lawful = spread_out(fits)
    even = (_NOBODY * total / torch.outer(columns @ sizes, columns @ sizes)).clamp(
        max=1
    )
    nobody = lawful & (best < even) & (counts <= CLEAR * noise.sqrt())
    return torch.where(lawful, best, independent), nobody, lawful


def _functions(
    counts: Tensor,
    weight: Tensor,
    ways: Tensor,
    columns: Tensor,
    total: float,
) -> tuple[Tensor, Tensor]:
    """Every pair as if the column of its rows determined the other, in counts: (width,
    width). In which cell a level's people are has odds, by the noise and the other
    column's one-way table. And −2 log-likelihood, averaged over these odds, on the
    scale of squares over the noise's: (m, m).
    """
    people = ways[:, None]
    prior = (ways / total).clamp(min=TINY).log()
    scores = (counts - people / 2) * people * weight + prior
    highest = torch.stack([scores[:, own].max(1).values for own in columns.T.bool()], 1)
    odds = (scores - highest @ columns.T).exp()
    sums = odds @ columns
    log_likelihood = columns.T @ (sums.log() + highest)
    squares = columns.T @ (counts.square() * weight) @ columns
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
    nodes = torch.linspace(-5.0, 5.0, 201, dtype=ways.dtype, device=ways.device)
    mass = torch.exp(-nodes.square() / 2)
    mass = (mass / mass.sum() * total).sqrt()[:, None]
    number = torch.arange(columns.shape[1], dtype=ways.dtype, device=ways.device)
    # of levels, upward
    share_below = (ways.cumsum(0) / total - columns @ number).clamp(0, 1)
    ends = torch.special.ndtri(share_below)
    # levels that begin where another one ends
    inner = (columns * columns.cumsum(0)).sum(1) > 1
    for shared in correlations:
        gap = ends - shared**0.5 * nodes[:, None]
        below = torch.special.ndtr(gap / (1 - shared) ** 0.5)
        begin = below.roll(1, 1) * inner
        odds = mass * (below - begin)  # (nodes, width)
        yield odds.T @ odds
        yield odds.T @ odds.flip(0)
