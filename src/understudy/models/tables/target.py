"""The column to predict: tables of three columns with it as pairs alone say they are,
and effects by which it is drawn.

A mixture that has all two-way tables right may say anything of one column given a dozen
others: few components fit a row, and these are too sure of its target. What it has
there by chance a classifier that learns from its rows takes for a rule.

*In the fit* (`WithTarget`): of all laws with the same pairs that of largest entropy has
no interaction of three columns, p(a, b, y) = f(a, b)·g(a, y)·h(b, y); it is found by
iterative proportional fitting (Deming, Stephan 1940), for all pairs of columns with the
target at once. The mixture is drawn there, with a part of the precision of the
measured pairs (`trust`). Three-way tables that were released besides enter the loss by
themselves. What they have left, beyond their noise, to what pairs say of them is the
variance of their interaction (empirical Bayes): the more it is, the less they are
drawn.

*In rows* (`with_effects`): of all laws with the mixture's law of the other columns and
its pairs with the target, that of largest entropy is a logistic regression with an
effect for each level and none of two columns together (Berger, Della Pietra, Della
Pietra, Comput. Linguist. 1996, §3). So a row's other columns are drawn from the
mixture, and its target by these effects (`mixture.KEPT` of the rows have that of their
component). Two columns that stand in a released three-way table with the target have
effects together. The regression is fitted to rows that the mixture draws, each with the
target's probabilities by Bayes' rule. A fit that stops where noise begins has its pairs
too weak: so all effects are taken times one *strength*, at least 1, the likeliest by
the released pairs with the target, around 1 before these are looked at.

Guarantee: reads the released tables, and a mixture that was fitted to them, alone: it
costs no privacy.
Edges: pairs that were not measured, with each other or with the target, have no weight,
nor have columns that rules tie to each other or to the target. The target's commonest
level is what the pairs leave to it. Each other one costs a step two products of the
pairs' size: a target with more than `MOST_LEVELS` is fitted without. A level that
hardly any row has gets an effect near 0.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.models.tables.given_rules import TINY, Rules, blocks_of, put
from understudy.models.tables.loss import Slope, WideTable
from understudy.models.tables.mixture import KEPT, MixtureOfProducts, one_hot
from understudy.models.tables.noisy_tables import NoisyMarginals

# levels of a target that is fitted with tables of three columns: each but one takes as
# long as all pairs
MOST_LEVELS = 4
# levels of a target that is drawn by effects: a row draws it by a sum over all columns
# for each
MOST_TOLD = 16


class WithTarget:
    """What all tables (a, b, target) add to the loss of a mixture of columns with so
    many levels.

    `trust`: of a measured pair's precision, by which the mixture is drawn to what pairs
    say of three columns: AUC rises by .008 ± .001 (benchmarks/joint/three.csv, 48 runs,
    "drawn" less "pairs").
    """

    def __init__(
        self,
        tables: NoisyMarginals,
        sizes: Sequence[int],
        target: int,
        scale: float,
        rules: Rules,
        triples: Sequence[WideTable] = (),
        *,
        trust: float = 0.6,
    ) -> None:
        blocks = blocks_of(sizes)
        block = blocks[target]
        pairs = tables.plain(tables.target)
        pairs = ((pairs + pairs.T) / 2).clamp(min=1e-7)
        rarer = tables.ways[block].sort().indices[:-1]
        joint = without_interaction(pairs, tables.columns, pairs[:, block])
        self.tables = joint[rarer].float()
        self.levels = [block.start + level for level in rarer.tolist()]
        weight = tables.weight.clone()
        for a, b, cells in rules.tied:
            nothing = torch.zeros_like(cells, dtype=weight.dtype)
            put(
                weight,
                a,
                b,
                cells,
                nothing,
            )
        is_known = (weight[:, block] > 0).all(1)
        known = is_known.double()
        precision = weight * torch.outer(known, known) * trust
        for triple in triples:
            if target in triple.columns:
                _trust_less(
                    precision,
                    triple,
                    target,
                    joint,
                    blocks,
                )
        self.precision = (precision * scale).float()

    def add_to(self, slope: Slope) -> None:
        """A table is the mean of the product of its columns' odds: by hand, for one
        level of the target at a time.
        """
        law = slope.law
        probabilities = law.own
        rows = torch.zeros_like(probabilities)
        for table, level in zip(self.tables, self.levels, strict=True):
            target_probability = probabilities[:, level]
            weighed = law.weighed(target_probability[:, None] * probabilities)
            gap = weighed.T @ probabilities / len(probabilities) - table
            step = probabilities @ (gap * self.precision)
            half = (step * probabilities).sum(1) / 2
            rows += target_probability[:, None] * step
            rows[:, level] += half
            if slope.share is not None:
                slope.share += target_probability * half
        slope.own += law.weighed(rows)


def _trust_less(
    precision: Tensor,
    triple: WideTable,
    target: int,
    joint: Tensor,
    blocks: Sequence[slice],
) -> None:
    """Lower the precision of two columns' cells, in place, by how far a released table
    with the target lies from what pairs say: noise, and interaction.
    """
    target_axis = triple.columns.index(target)
    others = [axis for axis in range(3) if axis != target_axis]
    one, other = (blocks[triple.columns[axis]] for axis in others)
    released = triple.target.permute(target_axis, *others)
    gap = released - joint[:, one, other]
    interaction = float(gap.square().mean()) - 1 / triple.precision
    apart = max(interaction, 0.0)
    for at in ((one, other), (other, one)):
        precision[at] = 1 / (1 / precision[at] + apart)


def without_interaction(
    pairs: Tensor,
    columns: Tensor,
    target: Tensor,
    *,
    turns: int = 15,
) -> Tensor:
    """All tables (levels of y, width, width) with these two-way `pairs`, above 0, and
    those with y (width, levels of y), and no interaction of three columns. Where they
    contradict each other, those of pairs hold, the others nearly.
    """
    with_y = target.T[:, :, None]
    joint = with_y * with_y.mT
    for _ in range(turns):
        across = (joint @ columns).clamp(min=TINY)
        joint = joint * ((with_y / across) @ columns.T)
        down = (columns.T @ joint).clamp(min=TINY)
        joint = joint * (columns @ (with_y.mT / down))
        joint = joint * (pairs / joint.sum(0).clamp(min=TINY))
    return (joint + joint.mT) / 2


if TYPE_CHECKING:
    from scipy.sparse import csr_array


def with_effects(
    mixture: MixtureOfProducts,
    target: int,
    together: Sequence[Sequence[int]],
    uniform: Callable[[int], Tensor],
    tables: NoisyMarginals | None = None,
    *,
    rows: int = 20_000,
) -> MixtureOfProducts:
    """The mixture, whose rows' target is drawn by their other columns, and two
    `together`, as `tables` say. The effects are those of so many `rows` that it draws,
    or fewer where these have very many cells.
    """
    sizes = mixture.sizes
    by_effects = MixtureOfProducts(sizes, mixture.components, target, together)
    by_effects = by_effects.to(mixture.logits.device)
    rows = min(rows, 1 + 4_000_000 // len(sizes))
    levels = mixture.levels(rows, uniform)
    block = blocks_of(sizes)[target]
    others = one_hot(levels.long(), sizes)
    others[:, block] = 0
    odds = mixture.odds().detach().cpu()
    scores = others @ odds.clamp(min=TINY).log().T
    components = torch.softmax(scores, 1)
    chance = (components @ odds[:, block]).double().numpy()
    pairs = sum(sizes[one] * sizes[other] for one, other in by_effects.together)
    count = sum(sizes) + pairs
    terms = _indicators(by_effects.terms(levels).numpy(), count)
    effects = _likeliest(terms, chance)
    if tables is not None:
        effects = _as_strong(
            effects,
            terms,
            chance,
            tables,
            block,
        )
    state = {"logits": mixture.logits, "effects": torch.from_numpy(effects)}
    by_effects.load_state_dict(state)
    return by_effects.requires_grad_(False)


def _indicators(terms: NDArray[Any], count: int) -> "csr_array":
    """Which of so many effects each row has: (n, terms) → (n, count)."""
    # these take a third of a second to load, and few fits need them
    from scipy.sparse import csr_array

    n, each = terms.shape
    ends = np.arange(0, n * each + 1, each)
    return csr_array((np.ones(n * each), terms.ravel(), ends), shape=(n, count))


def _likeliest(rows: "csr_array", chance: NDArray[Any]) -> NDArray[Any]:
    """The effects under which rows that have these have these probabilities (n, levels)
    as nearly as they can.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    n, count = rows.shape
    each = rows.nnz // n
    # effects lie around it
    mean = np.log(chance.mean(0).clip(TINY)) / each
    shape = (count, chance.shape[1])

    def loss(flat: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        effects = flat.reshape(shape)
        log_odds = log_softmax(rows @ (effects + mean), axis=1)
        # one row's worth of evidence that an effect is 0
        penalty = np.square(effects).sum() / 2
        value = penalty - (chance * log_odds).sum()
        slope = rows.T @ (np.exp(log_odds) - chance) + effects
        return float(value) / n, slope.ravel() / n

    optimum = minimize(
        loss,
        np.zeros(shape).ravel(),
        jac=True,
        method="L-BFGS-B",
        # a table's cell may be off by 10⁻⁶ of all rows
        options={"maxiter": 300, "gtol": 1e-6},
    )
    effects: NDArray[Any] = optimum.x.reshape(shape) + mean
    return effects


def _as_strong(
    effects: NDArray[Any],
    rows: "csr_array",
    chance: NDArray[Any],
    tables: NoisyMarginals,
    block: slice,
    *,
    spread: float = 0.5,
    strongest: float = 4.0,
) -> NDArray[Any]:
    """The effects times their strength, at least 1 and no more than the `strongest`,
    the target's shares as they were; `spread`: of the logarithm of a strength before
    any table is looked at.
    """
    from scipy.optimize import minimize_scalar

    n = rows.shape[0]
    each = rows.nnz // n
    released = tables.plain(tables.measured)[:, block].cpu().numpy()
    weight = tables.weight[:, block].cpu().numpy()
    share = chance.mean(0).clip(TINY)
    scores = rows @ effects
    scores -= scores.max(1, keepdims=True)

    def pairs(strength: float) -> NDArray[Any]:
        weights = np.exp(strength * scores)
        weights *= _tilt(weights, share)
        by_effects = weights / weights.sum(1, keepdims=True)
        drawn = KEPT * chance + (1 - KEPT) * by_effects
        tables: NDArray[Any] = (rows.T @ drawn)[: len(weight)] / n
        return tables

    def loss(log: float) -> float:
        gap = pairs(np.exp(log)) - released
        by_tables = (weight * np.square(gap)).sum()
        return float(by_tables) + (log / spread) ** 2

    optimum = minimize_scalar(
        loss,
        bounds=(0, np.log(strongest)),
        method="bounded",
        options={"xatol": 0.01},
    )
    strength = float(np.exp(optimum.x))
    shift = np.log(_tilt(np.exp(strength * scores), share))
    stronger: NDArray[Any] = strength * effects + shift / each
    return stronger


def _tilt(odds: NDArray[Any], share: NDArray[Any]) -> NDArray[Any]:
    """What to take each level's odds (n, levels) times, so that all rows together have
    these shares of the levels.
    """
    tilt = np.ones(len(share))
    for _ in range(20):
        norms = odds @ tilt
        shares = tilt * (odds.T @ (1 / norms)) / len(odds)
        tilt *= share / shares.clip(TINY)
    return tilt
