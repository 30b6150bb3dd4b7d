"""How a row's other columns say the column to predict: one effect for each of their levels.

A mixture that has all pairs right may say anything of one column given a dozen others: few components fit a row, and
these are too sure of it. Of all laws with the mixture's law of the other columns and its pairs with the target, that of
largest entropy is a logistic regression with an effect for each level and none of two columns together (Berger, Della
Pietra, Della Pietra, "A maximum entropy approach to natural language processing", Comput. Linguist. 1996, §3). So a
row's other columns are drawn from the mixture, and its target by these effects: pairs stay as they are, and a
classifier that learns from drawn rows finds what pairs say in place of what a few components have by chance.

The regression is fitted to rows that the mixture draws, each with the target's probabilities by Bayes' rule. Where it
is at its end, the rows' pairs with the target are the same under both.

Guarantee: reads a fitted mixture alone, so that it costs no privacy.
Edges: a level that hardly any row has gets an effect near 0.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.models.tables.bayes import one_hot
from understudy.models.tables.given_rules import blocks_of
from understudy.models.tables.mixture import MixtureOfProducts

MOST_LEVELS = 16  # of a target
_ROWS = 20_000
_RIDGE = 1.0  # rows' worth of evidence that an effect is 0
_STEPS = 300
_NEAR = 1e-6  # of all rows: what a pair's cell may be off by
_TINY = 1e-30  # a probability in place of 0


def main_effects(mixture: MixtureOfProducts, target: int, uniform: Callable[[int], Tensor]) -> Tensor:
    """The effects of all levels on the target's log-odds: (width, levels of the target), 0 for its own.

    `uniform(k)` gives k independent numbers from [0, 1), float64.
    """
    block = blocks_of(mixture.sizes)[target]
    rows = one_hot(mixture.levels(_ROWS, uniform).long(), mixture.sizes)
    rows[:, block] = 0
    odds = mixture.odds().detach().cpu()
    chance = torch.softmax(rows @ odds.clamp(min=_TINY).log().T, 1) @ odds[:, block]
    found = torch.from_numpy(_likeliest(rows.numpy(), chance.double().numpy())).float()
    found[block] = 0
    return found


def _likeliest(rows: NDArray[Any], chance: NDArray[Any]) -> NDArray[Any]:
    """The effects under which rows (n, width) have these probabilities (n, levels) as nearly as they can."""
    from scipy.optimize import minimize  # these take a third of a second to load, and few fits need them
    from scipy.sparse import csr_array
    from scipy.special import log_softmax

    shape, few = (rows.shape[1], chance.shape[1]), csr_array(rows, dtype=np.float64)
    mean = np.log(chance.mean(0).clip(_TINY)) / rows[0].sum()  # of each column, so that effects lie around 0

    def loss(flat: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        effects = flat.reshape(shape)
        said = log_softmax(few @ (effects + mean), axis=1)
        slope = few.T @ (np.exp(said) - chance) + _RIDGE * effects
        value = _RIDGE / 2 * np.square(effects).sum() - (chance * said).sum()
        return float(value) / len(rows), slope.ravel() / len(rows)

    start = np.zeros(shape).ravel()
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "gtol": _NEAR})
    effects: NDArray[Any] = found.x.reshape(shape) + mean
    return effects
