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
   cells together and of every two-way table by itself, since many tables without dependence would outvote a strong one.

Three-way tables that were released besides enter the descent as they are, by 1/noise².

Differs from the papers: all pairs are measured at once, not chosen round by round; the noise enters the loss.
Guarantee: reads the released matrix alone, so the mixture has the privacy of the release.
Edges: cells with infinite noise are never read; an unmeasured column is uniform to begin with.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

from understudy.check import positive, whole
from understudy.errors import ConfigError
from understudy.models.tables.level_prior import common_share, level_prior
from understudy.models.tables.low_rank import pooled_tables
from understudy.models.tables.mixture import MixtureOfProducts

Watch = Callable[[int, float, float], None]

_CAUTION = 0.3  # share of the prior's precision that enters: the mixture itself pools what pairs share
_TIGHTEST = 20.0  # the prior is at most so many times as precise as the measurement
_RESOLUTION = 1e-5  # frequencies nearer than this are the same; stands in for the noise of exact cells
_RAREST = 1e-6  # least initial probability of a level
_JITTER = 0.5  # of the initial logits: enough for the components to part
_CHANCE = 0.05  # that the truth leaves more in some table than each of them may keep
_TINY = 1e-30  # a divisor in place of 0


@dataclass(frozen=True)
class Tables:
    """What a noisy Gram matrix says, in frequencies; every precision is 0 where nothing was measured.

    (width,): one-way cells `ways` and their precision. (width, width): two-way cells as released, `measured`
    with `weight` = 1/noise², and as estimated, `target` with `precision`; all of these in an orthogonal `basis`
    that mixes the levels of one column, so that odds P have the tables (P·basis)ᵀ(P·basis). A mean square
    residual, in units of the noise, below `least` follows the noise (none is, where fewer than 18 two-way cells
    were measured). A table whose squares add up to no more than `most` (m, m) shows no more than noise.
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

    def plain(self, table: Tensor) -> Tensor:
        """`measured` or `target` by levels."""
        return self.basis @ table @ self.basis.T


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
    `watch(step, residual, least)` is called before every step and at the end, which comes at `steps`, or once
    the residual falls to the least that is not noise, and no table is left with more. The same seed gives the
    same mixture on one device.
    """
    whole(steps=steps)
    positive(rate=rate)
    mixture = MixtureOfProducts(sizes, components)
    tables = read_tables(gram, sizes, noise=noise, people=people)
    generator = torch.Generator()
    generator.seed() if seed is None else generator.manual_seed(seed)
    jitter = torch.randn(components, mixture.width, generator=generator) * _JITTER
    with torch.no_grad():
        mixture.logits.copy_(tables.ways.clamp(min=_RAREST).log().cpu() + jitter)
    wide = [_WideTable.of(triple, sizes, tables.people) for triple in triples]
    return _descend(mixture.to(gram.device), tables, steps, rate, watch, wide)


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
    for step in range(steps + 1):
        odds = mixture.odds()
        with torch.no_grad():
            turned = turn(odds)
            pairs = turned.T @ turned / mixture.components
            left = (pairs - measured).square() * weight
            residual = float(left.sum() / cells)
            if watch is not None:
                watch(step, residual, tables.least)
            if step == steps or (
                residual <= tables.least and bool((columns.T @ left @ columns <= most).all())
            ):
                break
            # By hand: the loss is quadratic in `pairs`, which is symmetric, so one product is enough.
            slope = turn.back(turned @ ((pairs - target) * precision))
            slope += (odds.mean(0) - ways) * ways_precision
            for triple in triples:
                triple.add_slope(odds, float(scale), slope)
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
class _WideTable:
    """A three-way table in frequencies, laid out for one product: (levels a · levels b, levels c)."""

    blocks: tuple[slice, slice, slice]
    target: Tensor
    precision: float

    @classmethod
    def of(cls, triple: Triple, sizes: Sequence[int], people: float) -> "_WideTable":
        ends = list(accumulate(sizes))
        a, b, c = (slice(ends[column] - sizes[column], ends[column]) for column in triple.columns)
        shape = tuple(sizes[column] for column in triple.columns)
        if triple.table.shape != shape:
            raise ConfigError(f"a three-way table is {tuple(triple.table.shape)}, not {shape}.")
        target = (triple.table.double() / people).float().reshape(-1, shape[2])
        return cls((a, b, c), target, 1 / max(triple.noise / people, _RESOLUTION) ** 2)

    def add_slope(self, odds: Tensor, scale: float, slope: Tensor) -> None:
        """Add the gradient of half the weighted squared distance, in the odds, as `_descend` scales it."""
        a, b, c = (odds[:, block] for block in self.blocks)
        ab = (a[:, :, None] * b[:, None, :]).flatten(1)  # (components, levels a · levels b)
        gap = (ab.T @ c / len(odds) - self.target) * (self.precision * scale)
        back = (c @ gap.T).view(len(odds), a.shape[1], b.shape[1])
        slope[:, self.blocks[0]] += (back * b[:, None, :]).sum(2)
        slope[:, self.blocks[1]] += (back * a[:, :, None]).sum(1)
        slope[:, self.blocks[2]] += ab @ gap


def read_tables(
    gram: Tensor, sizes: Sequence[int], *, noise: float | Tensor, people: int | None = None
) -> Tables:
    """Total, one-way and two-way tables out of a noisy Gram matrix (steps 1 and 2 above).

    Edges: no table measured as a whole, and the number of people not known → ConfigError; noise that leaves fewer than
    one person counts as one.
    """
    counts, variance = _checked(gram, sizes, noise)
    columns = functional.one_hot(torch.repeat_interleave(torch.tensor(sizes))).double().to(gram.device)
    total, ways, ways_variance = _one_way(counts, variance, columns, people)
    measured = ((1 - columns @ columns.T) > 0) & variance.isfinite()
    known = torch.where(measured, variance, 0)
    independent = torch.outer(ways, ways) / total * measured
    expected = ways.clamp(min=1) / total**0.5  # a level that nobody seems to have may have a person
    prior = level_prior(counts - independent, known, measured, expected, columns)

    def pool(cells: Tensor, noise: float = 1.0) -> Tensor:
        return pooled_tables(cells, ways, noise * known, measured, columns) * measured

    share = common_share(counts, known, measured, independent, prior, lambda cells: pool(cells, 2.0))
    mean = independent + share * (pool(counts) - independent)
    pull = _CAUTION * known / prior.variance.clamp(min=_TINY)
    pull = torch.where(measured & (known > 0), pull.clamp(max=_TIGHTEST), 0)
    resolution = (_RESOLUTION * total) ** 2
    weight = torch.where(measured, total**2 / variance.clamp(min=resolution), 0)
    cells = int(measured.triu().sum())
    released = prior.turned(torch.where(measured, counts, 0))
    return Tables(
        people=total,
        ways=ways / total,
        ways_precision=total**2 / ways_variance.clamp(min=resolution),
        measured=released / total,
        weight=weight,
        target=(released + pull * prior.turned(mean)) / (1 + pull) * measured / total,
        precision=weight * (1 + pull),
        basis=prior.basis,
        columns=columns,
        least=1 - 3 * (2 / max(cells, 1)) ** 0.5,
        most=_most(columns.T @ measured.double() @ columns),
    )


def _most(cells: Tensor) -> Tensor:
    """What so many squares of standard normals add up to at most, in all tables at once but for `_CHANCE`: (m, m).

    Wilson and Hilferty, "The distribution of chi-square" (PNAS 1931).
    """
    tables, spread = cells.triu(1).count_nonzero().clamp(min=1), 2 / (9 * cells.clamp(min=1))
    bound = torch.special.ndtri(1 - _CHANCE / tables.double())
    most: Tensor = cells * (1 - spread + bound * spread.sqrt()) ** 3
    return most


def _one_way(
    counts: Tensor, variance: Tensor, columns: Tensor, known_people: int | None
) -> tuple[float, Tensor, Tensor]:
    """The number of people, the one-way tables (width,) in counts, and the variance of their cells.

    Weighted means of every whole table (for the total) and of every whole row of a table (for a cell). A
    table or row with an unmeasured cell has infinite variance, hence no weight.
    """
    noise = variance.clamp(min=1e-12)
    own, other = columns.bool(), 1 - columns
    across = (other @ columns.T) > 0
    pairs, pair_noise = torch.where(across, counts, 0), torch.where(across, noise, 0)
    # Row sums (width, m): a level within each other column, and within its own the cell on the diagonal.
    sums = torch.where(own, counts.diagonal()[:, None], pairs @ columns)
    known = 1 / torch.where(own, noise.diagonal()[:, None], _total(pair_noise, columns))
    # Totals (m, m): of each two-way table, and on the diagonal of the one-way table.
    people = float(known_people or _mean(columns.T @ sums, (1 / _total((1 / known).T, columns)).triu()))
    if math.isnan(people):
        raise ConfigError("the Gram matrix holds no table measured as a whole, and so no number of people.")
    people = max(people, 1.0)  # what is left of them where noise is larger than their number
    weight = known.sum(1)
    ways = torch.where(weight > 0, (sums * known).sum(1) / weight.clamp(min=_TINY), torch.nan)
    for own_levels in own.T:
        ways[own_levels] = _to_simplex(ways[own_levels], people)
    return people, ways, 1 / weight


def _total(variance: Tensor, columns: Tensor) -> Tensor:
    """Sums over each column's levels (…, width) → (…, m); infinite where a part of them is."""
    finite = variance.isfinite()
    total = torch.where(finite, variance, 0) @ columns
    return torch.where((~finite).double() @ columns > 0, torch.inf, total)


def _mean(values: Tensor, weights: Tensor) -> float:
    return float((values * weights).sum() / weights.sum())


def _to_simplex(values: Tensor, total: float) -> Tensor:
    """The nearest non-negative values with this sum; unknown (NaN) ones first share what the others leave.

    Wang, Carreira-Perpiñán, "Projection onto the probability simplex" (2013), Alg. 1.
    """
    unknown = values.isnan()
    rest = (total - values.nansum()).clamp(min=0) / unknown.sum().clamp(min=1)
    values = torch.where(unknown, rest, values)
    falling = values.sort(descending=True).values
    shift = (falling.cumsum(0) - total) / torch.arange(1, len(values) + 1, device=values.device)
    return (values - shift[falling > shift][-1]).clamp(min=0)


def _checked(gram: Tensor, sizes: Sequence[int], noise: float | Tensor) -> tuple[Tensor, Tensor]:
    """Counts and noise variances (width, width), both symmetric; 0 and infinity where not measured."""
    for size in sizes:
        whole(sizes=size)
    width = sum(sizes)
    if gram.shape != (width, width):
        raise ConfigError(f"the Gram matrix is {tuple(gram.shape)}, but {sizes} give a width of {width}.")
    spread = torch.as_tensor(noise, dtype=torch.float64, device=gram.device).expand(width, width)
    if bool((spread.isnan() | (spread < 0)).any()):
        raise ConfigError("noise must be 0 or above; infinity marks a cell that was not measured.")
    counts = torch.where(spread.isfinite(), gram.double(), 0)
    if not bool(counts.triu().isfinite().all()):
        raise ConfigError("the Gram matrix holds a value that is no number in a measured cell.")
    return _mirrored(counts), _mirrored(spread.square())


def _mirrored(matrix: Tensor) -> Tensor:
    upper = matrix.triu()
    return torch.where(torch.ones_like(matrix).triu() > 0, upper, upper.T)
