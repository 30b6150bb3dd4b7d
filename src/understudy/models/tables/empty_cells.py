"""Which cells of pairs near a function hold nobody.

If one column is a copy or a recoding of another, or determined by it, their 2-way
marginal has a few full cells and many empty ones. A fit to noisy cells does not find
that by itself: a tenth of σ in each empty cell passes every test of the residual, and a
hundred such cells are a tenth of the people.

The model of a cell has two parts, both under the noise of its measurement. With
probability π the cell is at the pair's floor f·E, where E is the count under
independence. Otherwise it is a draw of the Gaussian prior around independence,
N(E, v·E), as in `priors` without an order. v matches the pair's second moments; π and f
maximise the likelihood of its cells (Johnstone and Silverman, "Needles and straw in
haystacks", Ann. Statist. 2004, learn the weight of an atom at zero likewise). A pair
has empty cells only if this model is clearly likelier than none, and its floor is not
clearly above 0: half of a copy is no copy. In a second round the other cells lie around
quasi-independence (Goodman, JASA 1968): the table with the same 1-way marginals that is
independent but for the empty cells.
Differs from the paper: no cell is set to 0. The fit pays for people in such a cell, in
proportion to their number, and more the surer it is that the cell is empty. So it
follows a count only as far as that exceeds a threshold (Tibshirani, JRSS B 1996). A
squared cost instead would make the descent too stiff to reach the other tables, and
overcharge a cell that is not empty a hundred times.

Guarantee: reads released tables alone, so it is post-processing.
Edges: exact cells, and such as were not measured, are never taken for empty.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from understudy.models.tables.evidence import CLEAR
from understudy.models.tables.given_rules import TINY
from understudy.models.tables.priors import with_margins


@dataclass(frozen=True)
class EmptySettings:
    """Which cells are taken for empty, and what people in them cost."""

    # in log-likelihood: a pair's gain by a floor. A ratio of e¹⁰ is one that chance
    # alone gives to one pair of 22,000, for a floor that was known before
    gain: float = 10.0
    # times its odds: in a pair near a function, what may be empty is. By `ready` and
    # `steep` copies leave 1.4 % of the people in impossible cells, of 6.6 to 15.4 %
    # without (benchmarks/joint/NOTES.md, "Pairs near a function")
    ready: float = 3.0
    # deviations of a threshold for each unit of the log odds
    steep: float = 3.0
    # deviations: the highest threshold, where σ is more than 24 people; else `strays`
    # decides
    surest: float = 16.0
    # people: so many in a cell that is surely empty cost 1, in log-likelihood, at most:
    # with a large budget no cell is known more nearly than by a person and a half
    strays: float = 1.5
    # expectation and maximisation: two numbers a pair converge soon
    turns: int = 6


_EMPTY = EmptySettings()


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
    if independent is None:
        total = ways.sum() / columns.shape[1]
        mean = torch.outer(ways, ways) / total
        never = torch.zeros_like(measured)
    else:
        mean = independent
        never = mean == 0
    is_noisy = measured & (noise > 0) & ~never
    pairs = _EmptyCellMixture(
        counts,
        noise,
        is_noisy,
        never,
        mean,
        ways,
        columns,
    )
    share = torch.full_like(pairs.dispersion, 0.5)
    floor = torch.zeros_like(pairs.dispersion)
    share, floor = pairs.likeliest(pairs.mean, share, floor)
    is_near = (pairs.gain(share, floor) > _EMPTY.gain) & (floor == 0)
    if not bool(is_near.any()):
        return torch.zeros_like(counts)
    mean = pairs.mean_of_others(share, floor)
    zero = torch.zeros_like(floor)
    share, _ = pairs.likeliest(mean, share, zero, learn=False)
    log_odds = pairs.log_odds(mean, share, zero)
    odds = _EMPTY.ready * log_odds.clamp(max=20).exp()
    threshold = _EMPTY.steep * odds.log1p()
    is_there = pairs.known & (pairs.spread_out(is_near.double()) > 0)
    return torch.minimum(threshold, surest(pairs.noise)) * is_there


def surest(noise: Tensor) -> Tensor:
    """The highest threshold of a cell, from its noise's variance."""
    by_people = noise.sqrt() / _EMPTY.strays
    return by_people.clamp(max=_EMPTY.surest)


@dataclass(frozen=True)
class _EmptyCellMixture:
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
        gap = self.counts - self.mean
        rest = gap.square() - self.noise
        squares = self.summed(self.mean.square())
        moment = self.summed(rest * self.mean) / squares.clamp(min=TINY)
        return moment.clamp(min=0)

    @cached_property
    def wide(self) -> Tensor:
        """The variance of a cell that is not at the floor."""
        expected = self.mean.clamp(min=1 / self.total)
        return self.spread_out(self.dispersion) * expected + self.noise

    @cached_property
    def whole(self) -> Tensor:
        """Which pairs are measured as a whole, so that all people are in them:
        (m, m).
        """
        sizes = self.columns.sum(0)
        is_told = (self.known | self.never).double()
        cells = self.columns.T @ is_told @ self.columns
        return cells == torch.outer(sizes, sizes)

    def summed(self, cells: Tensor) -> Tensor:
        return self.columns.T @ torch.where(self.known, cells, 0) @ self.columns

    def spread_out(self, pairs: Tensor) -> Tensor:
        return self.columns @ pairs @ self.columns.T

    def at(self, floor: Tensor) -> Tensor:
        return self.spread_out(floor) * self.mean

    def log_odds(self, mean: Tensor, share: Tensor, floor: Tensor) -> Tensor:
        """That a cell lies at the floor, others lying around `mean`."""
        gap = self.counts - self.at(floor)
        other = self.counts - mean
        by_size = (self.wide / self.noise).log()
        by_other = other.square() / self.wide
        by_floor = gap.square() / self.noise
        ratio = by_size + by_other - by_floor
        prior = self.spread_out(share.logit())
        return torch.where(self.known, ratio / 2 + prior, 0)

    def gain(self, share: Tensor, floor: Tensor) -> Tensor:
        """In log-likelihood, over no floor: (m, m)."""
        odds = self.log_odds(self.mean, share, floor)
        rest = self.spread_out((1 - share).log())
        return self.summed(functional.softplus(odds) + rest)

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
        for _ in range(_EMPTY.turns):
            there = torch.sigmoid(self.log_odds(mean, share, floor))
            share = (self.summed(there) / cells).clamp(1e-3, 1 - 1e-3)
            if learn:
                floor = self._floor(there)
        return share, floor

    def _floor(self, there: Tensor) -> Tensor:
        """f, from what lies there and from what all people but those elsewhere leave,
        by 1/variance: (m, m).
        """
        rest = 1 - there
        parts = torch.stack(
            [
                there * self.mean,
                there * self.counts,
                rest * self.counts,
                there**2 * self.noise,
                rest**2 * self.noise,
            ]
        )
        expected, counted, elsewhere, variance, others = self.summed(parts)
        expected = expected.clamp(min=TINY)
        on_floor = self.total - elsewhere
        variance = variance.clamp(min=TINY)
        others = torch.where(self.whole, others.clamp(min=TINY), torch.inf)
        precision = 1 / variance + 1 / others
        mean = (counted / variance + on_floor / others) / precision
        floor = mean / expected
        is_clear = floor > CLEAR * precision.rsqrt() / expected
        return torch.where(is_clear, floor, 0).clamp(max=1)

    def mean_of_others(self, share: Tensor, floor: Tensor) -> Tensor:
        """Independent but for the floor, with the one-way tables that it leaves
        (Deming, Stephan 1940).
        """
        log_odds = self.log_odds(self.mean, share, floor)
        elsewhere = torch.sigmoid(-log_odds).clamp(min=1e-3)
        on_floor = (1 - elsewhere) * self.at(floor)
        on_floor = torch.where(self.known, on_floor, 0)
        others = self.ways[:, None] - on_floor @ self.columns  # (width, m)
        margins = others.clamp(min=0)
        table = with_margins(self.mean * elsewhere, margins, self.columns, turns=5)
        upper_bound = torch.minimum(self.ways[:, None], self.ways[None, :])
        return torch.minimum(table / elsewhere, upper_bound)
