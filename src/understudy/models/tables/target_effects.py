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

A fit that stops where noise begins has its pairs too weak: it comes from independent columns, and what it has left to
the released tables is not noise alone. So all effects are taken times one *strength*, at least 1: the likeliest one by
the released pairs with the target, around 1 before these are looked at. One number follows noise but little.

Guarantee: reads a fitted mixture, and the released tables that it was fitted to, so that it costs no privacy.
Edges: a level that hardly any row has gets an effect near 0.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.models.tables.bayes import one_hot
from understudy.models.tables.given_rules import blocks_of
from understudy.models.tables.mixture import KEPT, MixtureOfProducts
from understudy.models.tables.noisy_tables import Tables

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MOST_LEVELS = 16  # of a target
_ROWS, _CELLS = 20_000, 4_000_000  # rows that are drawn; fewer where they have more cells in all
_RIDGE = 1.0  # rows' worth of evidence that an effect is 0
_STEPS = 300
_NEAR = 1e-6  # of all rows: what a table's cell may be off by
_STRONGEST, _SPREAD = 4.0, 0.5  # of a strength, and of its logarithm around 0 before any table is looked at
_TURNS = 20  # that leave the target's levels their shares
_TINY = 1e-30  # a probability in place of 0


def with_effects(
    mixture: MixtureOfProducts,
    target: int,
    together: Sequence[Sequence[int]],
    uniform: Callable[[int], Tensor],
    tables: Tables | None = None,
) -> MixtureOfProducts:
    """The same mixture, whose rows' target is drawn by their other columns, and by two `together`.

    `uniform(k)` gives k independent numbers from [0, 1), float64. With the `tables` that the mixture was fitted to,
    effects are as strong as these say.
    """
    told = MixtureOfProducts(mixture.sizes, mixture.components, target, together).to(mixture.logits.device)
    levels = mixture.levels(min(_ROWS, 1 + _CELLS // len(mixture.sizes)), uniform)
    block = blocks_of(mixture.sizes)[target]
    rows, odds = one_hot(levels.long(), mixture.sizes), mixture.odds().detach().cpu()
    rows[:, block] = 0
    chance = (torch.softmax(rows @ odds.clamp(min=_TINY).log().T, 1) @ odds[:, block]).double().numpy()
    count = sum(mixture.sizes) + sum(mixture.sizes[a] * mixture.sizes[b] for a, b in told.together)
    terms = _indicators(told.terms(levels).numpy(), count)
    effects = _likeliest(terms, chance)
    if tables is not None:
        effects = _as_strong(effects, terms, chance, tables, block)
    told.load_state_dict({"logits": mixture.logits, "effects": torch.from_numpy(effects)})
    return told.requires_grad_(False)


def _indicators(terms: NDArray[Any], count: int) -> "csr_array":
    """Which of so many effects each row has: (n, terms) → (n, count)."""
    from scipy.sparse import csr_array  # these take a third of a second to load, and few fits need them

    n, each = terms.shape
    return csr_array((np.ones(n * each), terms.ravel(), np.arange(0, n * each + 1, each)), shape=(n, count))


def _likeliest(rows: "csr_array", chance: NDArray[Any]) -> NDArray[Any]:
    """The effects under which rows that have these have these probabilities (n, levels) as nearly as they can."""
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    (n, count), each = rows.shape, rows.nnz // rows.shape[0]
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


def _as_strong(
    effects: NDArray[Any], rows: "csr_array", chance: NDArray[Any], tables: Tables, block: slice
) -> NDArray[Any]:
    """The effects times their strength, at least 1, the target's shares as they were."""
    from scipy.optimize import minimize_scalar

    n, each = rows.shape[0], rows.nnz // rows.shape[0]
    released, weight = (
        part[:, block].cpu().numpy() for part in (tables.plain(tables.measured), tables.weight)
    )
    scores, share = rows @ effects, chance.mean(0).clip(_TINY)
    scores -= scores.max(1, keepdims=True)

    def pairs(strength: float) -> NDArray[Any]:
        odds = np.exp(strength * scores)
        odds *= _tilt(odds, share)
        drawn = odds / odds.sum(1, keepdims=True)
        found: NDArray[Any] = (rows.T @ (KEPT * chance + (1 - KEPT) * drawn))[: len(weight)] / n
        return found

    def loss(log: float) -> float:
        return float((weight * np.square(pairs(np.exp(log)) - released)).sum()) + (log / _SPREAD) ** 2

    found = minimize_scalar(loss, bounds=(0, np.log(_STRONGEST)), method="bounded", options={"xatol": 0.01})
    strength = float(np.exp(found.x))
    shift = np.log(_tilt(np.exp(strength * scores), share))
    stronger: NDArray[Any] = strength * effects + shift / each
    return stronger


def _tilt(odds: NDArray[Any], share: NDArray[Any]) -> NDArray[Any]:
    """What to take each level's odds (n, levels) times, so that all rows together have these shares of the levels."""
    tilt = np.ones(len(share))
    for _ in range(_TURNS):
        had = tilt * (odds.T @ (1 / (odds @ tilt))) / len(odds)
        tilt *= share / had.clip(_TINY)
    return tilt
