"""How a row's other columns say the column to predict: one effect for each of their levels.

A mixture that has all pairs right may say anything of one column given a dozen others: few components fit a row, and
these are too sure of it. Of all laws with the mixture's law of the other columns and its pairs with the target, that of
largest entropy is a logistic regression with an effect for each level and none of two columns together (Berger, Della
Pietra, Della Pietra, "A maximum entropy approach to natural language processing", Comput. Linguist. 1996, §3). So a
row's other columns are drawn from the mixture, and its target by these effects (`mixture.KEPT` of the rows have that of
their component): pairs stay as they are, and a classifier that learns from drawn rows finds what pairs say in place of
what a few components have by chance.
Three-way tables with the target that were released stay as well: two columns that stand in one have effects together.

The regression is fitted to rows that the mixture draws, each with the target's probabilities by Bayes' rule. Where it
is at its end, the rows' tables are the same under both.

Guarantee: reads a fitted mixture alone, so that it costs no privacy.
Edges: a level that hardly any row has gets an effect near 0.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.models.tables.bayes import one_hot
from understudy.models.tables.given_rules import blocks_of
from understudy.models.tables.mixture import MixtureOfProducts

MOST_LEVELS = 16  # of a target
_ROWS, _CELLS = 20_000, 4_000_000  # rows that are drawn; fewer where they have more cells in all
_RIDGE = 1.0  # rows' worth of evidence that an effect is 0
_STEPS = 300
_NEAR = 1e-6  # of all rows: what a table's cell may be off by
_TINY = 1e-30  # a probability in place of 0


def with_effects(
    mixture: MixtureOfProducts,
    target: int,
    together: Sequence[Sequence[int]],
    uniform: Callable[[int], Tensor],
) -> MixtureOfProducts:
    """The same mixture, whose rows' target is drawn by their other columns, and by two `together`.

    `uniform(k)` gives k independent numbers from [0, 1), float64.
    """
    told = MixtureOfProducts(mixture.sizes, mixture.components, target, together).to(mixture.logits.device)
    levels = mixture.levels(min(_ROWS, 1 + _CELLS // len(mixture.sizes)), uniform)
    block = blocks_of(mixture.sizes)[target]
    rows, odds = one_hot(levels.long(), mixture.sizes), mixture.odds().detach().cpu()
    rows[:, block] = 0
    chance = torch.softmax(rows @ odds.clamp(min=_TINY).log().T, 1) @ odds[:, block]
    count = sum(mixture.sizes) + sum(mixture.sizes[a] * mixture.sizes[b] for a, b in told.together)
    effects = _likeliest(told.terms(levels).numpy(), count, chance.double().numpy())
    told.load_state_dict({"logits": mixture.logits, "effects": torch.from_numpy(effects)})
    return told.requires_grad_(False)


def _likeliest(terms: NDArray[Any], count: int, chance: NDArray[Any]) -> NDArray[Any]:
    """So many effects, under which rows of these terms have these probabilities (n, levels) as nearly as they can."""
    from scipy.optimize import minimize  # these take a third of a second to load, and few fits need them
    from scipy.sparse import csr_array
    from scipy.special import log_softmax

    n, each = terms.shape
    rows = csr_array((np.ones(n * each), terms.ravel(), np.arange(0, n * each + 1, each)), shape=(n, count))
    shape, mean = (count, chance.shape[1]), np.log(chance.mean(0).clip(_TINY)) / each  # effects lie around it

    def loss(flat: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        effects = flat.reshape(shape)
        said = log_softmax(rows @ (effects + mean), axis=1)
        slope = rows.T @ (np.exp(said) - chance) + _RIDGE * effects
        value = _RIDGE / 2 * np.square(effects).sum() - (chance * said).sum()
        return float(value) / n, slope.ravel() / n

    start = np.zeros(shape).ravel()
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "gtol": _NEAR})
    effects: NDArray[Any] = found.x.reshape(shape) + mean
    return effects
