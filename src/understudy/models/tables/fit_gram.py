"""Fit a mixture of products to a noisy Gram matrix: one- and two-way tables in, a generator out.

The Gram matrix Σ x xᵀ of one-hot rows x holds every one-way table (on its diagonal) and every two-way table.
Once it is released under noise of known size, all that follows is post-processing and costs no privacy.

1. *Totals and one-way tables* by weighted least squares: each is measured on the diagonal and again in every
   two-way table; then the projection onto non-negative tables with the right total.
2. *Two-way tables* by empirical Bayes: they lie around what independent columns would give and what all pairs
   say together (`low_rank`), as far from it as a pair's own cells show, and smoothly over the levels of columns
   whose order matters (`level_prior`). Pairs without visible dependence are drawn there, strong ones stay.
3. *The mixture* by gradient descent on the sum of both parts, measurement over noise variance and prior over
   its own, from jittered one-way tables (Aydore et al., ICML 2021, relaxed projection; Liu, Vietri, Wu, NeurIPS
   2021, GEM, fit a network likewise). It makes all tables those of one distribution.
4. *Stop* when the residual over the noise is smaller than the truth's could be: beyond it lies only noise
   (Morozov's discrepancy principle, 1966). The truth's mean square is 1 with variance 2/cells. That is asked of all
   cells together and of every table by itself, since many tables without dependence would outvote a strong one.
   Where empty cells still hold people it waits for these, up to a tenth of the steps: no residual shows them.

Three-way tables that were released besides enter the descent as they are, by 1/noise², and the stop. Cells that a pair
near a function leaves empty are drawn to 0 (`empty_cells`).

Differs from the papers: all pairs are measured at once, not chosen round by round; the noise enters the loss.
Guarantee: reads the released matrix alone, so the mixture has the privacy of the release.
Edges: cells with infinite noise are never read; an unmeasured column is uniform to begin with. Where columns have more
levels together than a fit can take, neighbours are one in it, and parted afterwards (`coarse`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from understudy.check import positive, whole
from understudy.errors import ConfigError
from understudy.models.tables.coarse import Coarse
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import RESOLUTION, Tables, checked, most_of, read_tables

Watch = Callable[[int, float], None]

_RAREST = 1e-6  # least initial probability of a level
_WAIT = 0.1  # of the steps, at most, for cells to become empty
_STRAY = 0.015  # of a pair's people, in cells that should be empty
_SURE = 10.0  # times as precise as its measurement: a cell is surely empty
_JITTER = 0.5  # of the initial logits: enough for the components to part


@dataclass(frozen=True)
class Triple:
    """A released three-way table: its columns' numbers, counts by their levels, and the noise's standard deviation."""

    columns: Sequence[int]
    table: Tensor
    noise: float


def fit_gram(
    gram: Tensor,
    sizes: Sequence[int],
    *,
    noise: float | Tensor,
    people: int | None = None,
    triples: Sequence[Triple] = (),
    components: int = 512,
    steps: int = 1200,
    rate: float = 0.2,
    seed: int | None = None,
    watch: Watch | None = None,
) -> MixtureOfProducts:
    """The mixture of products whose one- and two-way tables match a noisy Gram matrix of counts.

    `gram` (width, width) is read on and above the diagonal and decides the device. `noise` is the standard
    deviation of its cells, in counts: one for all or one each; 0 for exact, infinity for not measured.
    `people`: their number, where it is known.
    `watch(step, residual)`, of the mean square in units of the noise, is called before every step and at the end, which
    comes at `steps`, or once the residual falls to the least that is not noise, no table is left with more, and empty
    cells are empty. The same seed gives the same mixture on one device.
    """
    whole(steps=steps, components=components)
    positive(rate=rate)
    counts, variance = checked(gram, sizes, noise)
    coarse = Coarse.of(counts.diagonal(), sizes, {column for triple in triples for column in triple.columns})
    if coarse is not None:
        counts, variance = coarse.merged(counts, variance)
    mixture = MixtureOfProducts(sizes if coarse is None else coarse.sizes, components)
    tables = read_tables(counts, mixture.sizes, noise=variance.sqrt(), people=people)
    generator = torch.Generator()
    generator.seed() if seed is None else generator.manual_seed(seed)
    jitter = torch.randn(components, mixture.width, generator=generator) * _JITTER
    with torch.no_grad():
        mixture.logits.copy_(tables.ways.clamp(min=_RAREST).log().cpu() + jitter)
    count = len(triples) + int(tables.most.triu(1).count_nonzero())
    wide = [_WideTable.of(triple, mixture.sizes, tables.people, count) for triple in triples]
    fitted = _descend(mixture.to(gram.device), tables, steps, rate, watch, wide)
    return fitted if coarse is None else coarse.parted(fitted)


def _descend(
    mixture: MixtureOfProducts,
    tables: Tables,
    steps: int,
    rate: float,
    watch: Watch | None,
    triples: "Sequence[_WideTable]" = (),
) -> MixtureOfProducts:
    """Adam on the logits, at a rate that falls to zero as √(1 − t/steps)."""
    scale = tables.ways_precision.mean().rsqrt()  # so that gradients are near 1, far above Adam's epsilon
    target, precision = tables.target.float(), (tables.precision * scale).float()
    measured, weight = tables.measured.float(), tables.weight.float()
    turn = _Turn.of(tables.basis.float(), mixture.sizes)
    cells = max(int(torch.count_nonzero(weight)), 1)
    columns, most = tables.columns.float(), tables.most.float()
    ways, ways_precision = tables.ways.float(), (tables.ways_precision * scale).float()
    optimizer = torch.optim.Adam(mixture.parameters(), lr=rate, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 - step / steps) ** 0.5)
    empty = _EmptyCells.of(tables, float(scale))
    for step in range(steps + 1):
        odds = mixture.odds()
        with torch.no_grad():
            turned = turn(odds)
            pairs = turned.T @ turned / mixture.components
            left = (pairs - measured).square() * weight
            residual = float(left.sum() / cells)
            if watch is not None:
                watch(step, residual)
            gaps = [triple.gap(odds) for triple in triples]
            if step == steps or (
                residual <= tables.least
                and bool((columns.T @ left @ columns <= most).all())
                and all(triple.is_noise(gap) for triple, gap in zip(triples, gaps, strict=True))
                and (step >= _WAIT * steps or empty.held(odds) <= _STRAY)
            ):
                break
            # By hand: the loss is quadratic in `pairs`, which is symmetric, so one product is enough.
            slope = turn.back(turned @ ((pairs - target) * precision))
            slope += (odds.mean(0) - ways) * ways_precision
            empty.add_slope(odds, slope)
            for triple, gap in zip(triples, gaps, strict=True):
                triple.add_slope(odds, gap, float(scale), slope)
        (mixture.logits.grad,) = torch.autograd.grad(odds, mixture.logits, slope)
        optimizer.step()
        schedule.step()
    return mixture.requires_grad_(False)


@dataclass(frozen=True)
class _Turn:
    """Into a basis that mixes levels of one column, and back; columns that it leaves as they are cost nothing."""

    blocks: tuple[tuple[slice, Tensor], ...]

    @classmethod
    def of(cls, basis: Tensor, sizes: Sequence[int]) -> "_Turn":
        parts = [slice(end - size, end) for end, size in zip(accumulate(sizes), sizes, strict=True)]
        own = [(part, basis[part, part].contiguous()) for part in parts]
        return cls(tuple((part, axes) for part, axes in own if bool((axes - axes.diag().diag()).any())))

    def __call__(self, odds: Tensor) -> Tensor:
        turned = odds.clone()
        for part, axes in self.blocks:
            turned[:, part] = odds[:, part] @ axes
        return turned

    def back(self, turned: Tensor) -> Tensor:
        odds = turned.clone()
        for part, axes in self.blocks:
            odds[:, part] = turned[:, part] @ axes.T
        return odds


@dataclass(frozen=True)
class _EmptyCells:
    """The levels of pairs with empty cells, the precision of each, as `_descend` scales it, and which are sure."""

    levels: Tensor
    precision: Tensor
    sure: Tensor
    columns: Tensor

    @classmethod
    def of(cls, tables: Tables, scale: float) -> "_EmptyCells":
        levels = tables.empty.any(1).nonzero()[:, 0]
        precision, weight = (cells[levels][:, levels] for cells in (tables.empty, tables.weight))
        sure = (precision > _SURE * weight).float()
        return cls(levels, (precision * scale).float(), sure, tables.columns[levels].float())

    def held(self, odds: Tensor) -> float:
        """The largest share of people whom a pair has in cells that are surely empty."""
        own = odds[:, self.levels]
        stray = self.columns.T @ (own.T @ own / len(odds) * self.sure) @ self.columns
        return float(stray.max()) if len(self.levels) else 0.0

    def add_slope(self, odds: Tensor, slope: Tensor) -> None:
        """Add the gradient of half the weighted squares, in the odds."""
        if len(self.levels):
            own = odds[:, self.levels]
            slope[:, self.levels] += own @ (own.T @ own / len(odds) * self.precision)


@dataclass(frozen=True)
class _WideTable:
    """A three-way table in frequencies, laid out for one product: (levels a · levels b, levels c).

    Squares over the noise's that add up to no more than `most` show no more than noise.
    """

    blocks: tuple[slice, slice, slice]
    target: Tensor
    precision: float
    most: float

    @classmethod
    def of(cls, triple: Triple, sizes: Sequence[int], people: float, tables: int) -> "_WideTable":
        """One of so many `tables`."""
        ends = list(accumulate(sizes))
        a, b, c = (slice(ends[column] - sizes[column], ends[column]) for column in triple.columns)
        shape = tuple(sizes[column] for column in triple.columns)
        if triple.table.shape != shape:
            raise ConfigError(f"a three-way table is {tuple(triple.table.shape)}, not {shape}.")
        target = (triple.table.double() / people).float().reshape(-1, shape[2])
        most = most_of(torch.tensor(float(target.numel()), dtype=torch.float64), tables)
        return cls((a, b, c), target, 1 / max(triple.noise / people, RESOLUTION) ** 2, float(most))

    def gap(self, odds: Tensor) -> Tensor:
        """What parts the odds' table from the released one."""
        return self._first_two(odds).T @ odds[:, self.blocks[2]] / len(odds) - self.target

    def is_noise(self, gap: Tensor) -> bool:
        return float(gap.square().sum()) * self.precision <= self.most

    def _first_two(self, odds: Tensor) -> Tensor:
        a, b, _ = self.blocks
        return (odds[:, a, None] * odds[:, None, b]).flatten(1)  # (components, levels a · levels b)

    def add_slope(self, odds: Tensor, gap: Tensor, scale: float, slope: Tensor) -> None:
        """Add the gradient of half the weighted squared gap, in the odds, as `_descend` scales it."""
        a, b, c = (odds[:, block] for block in self.blocks)
        ab, gap = self._first_two(odds), gap * (self.precision * scale)
        back = (c @ gap.T).view(len(odds), a.shape[1], b.shape[1])
        slope[:, self.blocks[0]] += (back * b[:, None, :]).sum(2)
        slope[:, self.blocks[1]] += (back * a[:, :, None]).sum(1)
        slope[:, self.blocks[2]] += ab @ gap
