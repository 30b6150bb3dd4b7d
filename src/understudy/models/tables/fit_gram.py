"""Fit a mixture of products to a noisy Gram matrix: one- and two-way tables in, a
generator out.

The Gram matrix Σ x xᵀ of one-hot rows x holds every one-way table (on its diagonal) and
every two-way table.

- *Totals and one-way tables* by weighted least squares: each is measured on the
  diagonal and again in every two-way table; then the projection onto non-negative
  tables with the right total.
- *Two-way tables* by empirical Bayes (`priors`): they lie around what independent
  columns would give and what all pairs say together, as far from it as a pair's own
  cells show. Cells that seem empty are drawn to 0 (`empty_cells`).
- *The mixture* by gradient descent on the sum of both parts, measurement over noise
  variance and prior over its own, from jittered one-way tables, and from the laws of
  pairs that have one (Aydore et al., ICML 2021; Liu, Vietri, Wu, NeurIPS 2021, GEM, fit
  a network likewise). A table weighs the more the farther it is from its noise
  (`loss`). Three-way tables that were released besides enter as they are; where a
  column is to be predicted, all tables of three with it are drawn to what the pairs
  say, and rows draw it by effects of the others (`target`).
- *Stop* when the residual over the noise is smaller than the truth's could be
  (Morozov's discrepancy principle, 1966): its mean square is 1 with variance 2/cells.
  That is asked of all cells together and of every table by itself, since many tables
  without dependence would outvote a strong one. Where empty cells still hold people it
  waits for these, up to a tenth of the steps; so long it always waits where there are
  rules, whose pairs are the strongest, and come last. Then all tables are held but
  those of pairs that are clear of independence, which go on to their own noise.

*Public rules* (`given_rules`): what is fitted is the mixture's law given the rules.
That most draws of the mixture itself should keep them is a small part of the loss: −log
of the probability that they do, for a tenth of the people.

Differs from the papers: all pairs are measured at once, not chosen round by round; the
noise enters the loss.
Guarantee: reads the released matrix alone, so the mixture has the privacy of the
release.
Edges: cells with infinite noise are never read; an unmeasured column is uniform to
begin with. Where columns have more levels together than a fit can take, neighbours are
one in it, and parted afterwards (`fitted_levels`).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from understudy.ground.check import positive, whole
from understudy.models.kernels.clients import Adam, along
from understudy.models.tables.fitted_levels import RAREST, Coarse
from understudy.models.tables.given_rules import Ruled, Rules, Tie, blocks_of
from understudy.models.tables.loss import (
    EmptyCells,
    Slope,
    Triple,
    TwoWay,
    WideTable,
)
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import (
    NoisyMarginals,
    checked,
    forbidden,
    read_on_fewer,
    read_tables,
)
from understudy.models.tables.target import (
    MOST_LEVELS,
    MOST_TOLD,
    WithTarget,
    with_effects,
)

Watch = Callable[[int, float], None]


def fit_gram(
    gram: Tensor,
    sizes: Sequence[int],
    *,
    noise: float | Tensor,
    people: int | None = None,
    triples: Sequence[Triple] = (),
    ties: Sequence[Tie] = (),
    target: int | None = None,
    components: int = 512,
    steps: int = 1200,
    rate: float = 0.2,
    seed: int | None = None,
    watch: Watch | None = None,
) -> MixtureOfProducts:
    """The mixture of products whose one- and two-way tables match a noisy Gram matrix
    of counts.

    `gram` (width, width) is read on and above the diagonal and decides the device.
    `noise` is the standard deviation of its cells, in counts: one for all or one each;
    0 for exact, infinity for not measured. `people`: their number, where it is known.
    `ties`: public rules; what is fitted is the mixture's law given these. `target`: the
    number of the column that is to be predicted from the others, if there is one.
    `watch(step, residual)`, of the mean square in units of the noise, is called before
    every step and at the end, which comes at `steps`, or once the residual falls to the
    least that is not noise, no table is left with more, empty cells are empty, and
    clear pairs are at their own noise; with rules no sooner than at a tenth of the
    steps. The same seed gives the same mixture on one device.
    """
    whole(steps=steps, components=components)
    positive(rate=rate)
    counts, variance = checked(gram, sizes, noise)
    ties = [tie.to(gram.device, torch.float64) for tie in ties]
    in_triples = {column for triple in triples for column in triple.columns}
    coarse = Coarse.from_one_way(counts.diagonal(), sizes, in_triples)
    if coarse is not None:
        counts = torch.where(forbidden(sizes, ties, gram.device), 0, counts)
        counts, variance = coarse.merged(counts, variance)
        ties = [coarse.merged_tie(tie) for tie in ties]
    mixture = MixtureOfProducts(sizes if coarse is None else coarse.sizes, components)
    deviation = variance.sqrt()
    tables = None
    has_few_levels = target is not None and mixture.sizes[target] <= MOST_LEVELS
    if people and target is not None and has_few_levels and not ties and not triples:
        tables = read_on_fewer(
            counts,
            deviation,
            mixture.sizes,
            target,
            people,
        )
    if tables is None:
        tables = read_tables(
            counts,
            mixture.sizes,
            noise=deviation,
            people=people,
            ties=ties,
        )
    else:  # fewer levels are soon fitted
        steps = min(steps, 300)

    generator = torch.Generator()
    generator.seed() if seed is None else generator.manual_seed(seed)
    _begin(mixture, tables, generator)
    n_wide = len(triples) + int(tables.most.triu(1).count_nonzero())
    wide = [
        WideTable.from_triple(
            triple,
            mixture.sizes,
            tables.people,
            n_wide,
            ties,
        )
        for triple in triples
    ]
    fitted = _descend(
        mixture.to(gram.device),
        tables,
        steps,
        rate,
        watch,
        wide,
        ties,
        target,
    )
    has_effects = target is not None and not ties and len(sizes) > 1
    if target is not None and has_effects and sizes[target] <= MOST_TOLD:
        with_target = [triple.columns for triple in triples if target in triple.columns]
        together = [[c for c in columns if c != target] for columns in with_target]

        def uniform(n: int) -> Tensor:
            return torch.rand(n, generator=generator, dtype=torch.float64)

        fitted = with_effects(
            fitted,
            target,
            together,
            uniform,
            tables,
        )
    return fitted if coarse is None else coarse.parted(fitted)


@torch.no_grad()
def _begin(
    mixture: MixtureOfProducts,
    tables: NoisyMarginals,
    generator: torch.Generator,
    *,
    jitter: float = 0.5,
) -> None:
    """Begin at the one-way tables. The logits' `jitter` is enough for components to
    part.
    """
    noise = torch.randn(mixture.components, mixture.width, generator=generator)
    one_way = tables.ways.clamp(min=RAREST).log().cpu()
    mixture.logits.copy_(one_way + noise * jitter)
    _begin_by_laws(mixture, tables, generator)


def _begin_by_laws(
    mixture: MixtureOfProducts,
    tables: NoisyMarginals,
    generator: torch.Generator,
    *,
    own_share: float = 0.97,
) -> None:
    """Give every component one level, mostly, of columns with a law: a descent takes
    long to part them so far. `own_share` is what it has of that level.
    """
    laws = tables.laws.cpu()
    ways = tables.ways.cpu()
    columns = tables.columns.cpu()
    people_with_law = columns.T @ laws @ columns
    pairs = (people_with_law > 0).triu(1).nonzero().tolist()
    blocks = blocks_of(mixture.sizes)
    drawn = dict[int, Tensor]()
    for one, other in pairs:
        table = laws[blocks[one], blocks[other]]
        if one in drawn and other not in drawn:
            drawn[other] = _drawn_by(table, drawn[one], generator)
        elif other in drawn and one not in drawn:
            drawn[one] = _drawn_by(table.T, drawn[other], generator)
        elif one not in drawn:
            cells = _drawn_evenly(table, mixture.components, generator)
            drawn[one] = cells // table.shape[1]
            drawn[other] = cells % table.shape[1]
    for column, levels in drawn.items():
        own = functional.one_hot(levels, mixture.sizes[column])
        others = ways[blocks[column]].clamp(min=RAREST)
        odds = own_share * own + (1 - own_share) * others
        mixture.logits[:, blocks[column]] = odds.log().to(mixture.logits.dtype)


def _drawn_by(table: Tensor, levels: Tensor, generator: torch.Generator) -> Tensor:
    """A level of the table's columns for each of the `levels` of its rows."""
    odds = table[levels].clamp(min=RAREST)
    return torch.multinomial(odds, 1, generator=generator)[:, 0]


def _drawn_evenly(table: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """So many cells of a table, each about as often as its share, in random order."""
    middles = (torch.arange(count) + 0.5) / count
    cumulated = table.flatten().cumsum(0)
    cells = torch.searchsorted(cumulated / cumulated[-1], middles)
    return cells[torch.randperm(count, generator=generator)]


def _descend(
    mixture: MixtureOfProducts,
    tables: NoisyMarginals,
    steps: int,
    rate: float,
    watch: Watch | None,
    triples: Sequence[WideTable] = (),
    ties: Sequence[Tie] = (),
    target: int | None = None,
    *,
    kept_people: float = 0.1,
) -> MixtureOfProducts:
    """Adam on the logits, at a rate that falls to zero as √(1 − t/steps).

    `kept_people`: a part of the people, as if seen to keep the rules, by which most
    draws of the mixture do; a small one, as nobody was seen to.
    """
    # gradients are near 1, far above Adam's epsilon
    scale = float(tables.ways_precision.mean().rsqrt())
    ties = [tie.to(tables.ways.device, torch.float32) for tie in ties]
    rules = Rules(mixture.sizes, tuple(ties))
    loss = _Loss(
        mixture,
        tables,
        scale,
        rules,
        triples,
        target,
    )
    adam = Adam([mixture.logits], lr=rate, betas=(0.9, 0.99))
    for step in range(steps + 1):
        law = rules.law_of(mixture.odds())
        # the law keeps what it computes: first of all with gradients
        own = law.own
        share = law.share
        log_remainder = law.log_remainder
        tied = law.tied()
        wide = [law.table(one.columns) for one in triples]
        with torch.no_grad():
            turned, pairs = loss.two_way.pairs(law, tied)
            residual, is_noise = loss.two_way.residual(pairs)
            if watch is not None:
                watch(step, residual)
            if step == steps:
                break
            is_done = is_noise and loss.is_done(
                law,
                tied,
                wide,
                step,
                steps,
            )
            if is_done and not loss.two_way.is_left(pairs):
                break
            slope = loss.slope(law, turned, pairs)
            wider = loss.wide_slopes(wide)
        adam.lr = rate * (1 - step / steps) ** 0.5
        outputs = [own, *tied, *wide]
        slopes = [slope.own, *slope.tied, *wider]
        if share is not None and log_remainder is not None and slope.share is not None:
            # of −log of what the rules leave of all
            kept = -kept_people * tables.people * scale * share.detach()
            outputs += [share, log_remainder]
            slopes += [slope.share, kept]
        gradient = torch.autograd.grad(along(outputs, slopes), mixture.logits)
        adam.step(gradient)
    return mixture.requires_grad_(False)


class _Loss:
    """All parts of the loss of one fit, and when it is low enough.

    `wait`: a part of all steps, at most for cells to become empty, and at least where
    there are rules, whose pairs are the strongest, and come last. `stray`: of a pair's
    people, in cells that should be empty.
    """

    def __init__(
        self,
        mixture: MixtureOfProducts,
        tables: NoisyMarginals,
        scale: float,
        rules: Rules,
        triples: Sequence[WideTable],
        target: int | None,
        *,
        wait: float = 0.1,
        stray: float = 0.015,
    ) -> None:
        self.triples = triples
        self.has_rules = bool(rules.ties)
        self.components = mixture.components
        self.scale = scale
        self.wait = wait
        self.stray = stray
        sizes = mixture.sizes
        self.two_way = TwoWay(tables, sizes, scale, rules)
        self.empty = EmptyCells(tables, scale, rules)
        self.with_target = None
        if target is not None and sizes[target] <= MOST_LEVELS:
            self.with_target = WithTarget(
                tables,
                sizes,
                target,
                scale,
                rules,
                triples,
            )
        self.ways = tables.ways.float()
        self.ways_precision = (tables.ways_precision * scale).float()

    def is_done(
        self,
        law: Ruled,
        tied: Sequence[Tensor],
        wide: Sequence[Tensor],
        step: int,
        steps: int,
    ) -> bool:
        """Whether nothing is left but noise, where two-way tables have no more, at this
        of so many steps.
        """
        each = zip(self.triples, wide, strict=True)
        if not all(triple.is_noise(table) for triple, table in each):
            return False
        if step >= self.wait * steps:
            return True
        if self.has_rules:
            return False
        return self.empty.largest_stray_share(law, tied) <= self.stray

    def slope(self, law: Ruled, turned: Tensor, pairs: Tensor) -> Slope:
        """The gradient of all parts but three-way tables."""
        slope = self.two_way.slope(law, turned, pairs)
        ways = law.weighed(law.own).mean(0)
        slope.add_ways((ways - self.ways) * self.ways_precision)
        self.empty.add_to(slope)
        if self.with_target is not None:
            self.with_target.add_to(slope)
        return slope

    def wide_slopes(self, wide: Sequence[Tensor]) -> list[Tensor]:
        """The gradients in three-way tables."""
        return [
            triple.slope(table, self.components, self.scale)
            for triple, table in zip(self.triples, wide, strict=True)
        ]
