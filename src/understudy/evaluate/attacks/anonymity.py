"""Linkability and attribute inference: what the synthetic table tells about people who are partly known.

Giomi et al. (PoPETs 2023), §5.2 and §5.3; with `singling_out` these are the three criteria of the Article 29
Working Party's opinion on anonymisation (2014).
- *Linkability*: an attacker holds a person's columns of one kind here and of another kind there (two parties'
  columns) and wants to know that they belong together. The attack succeeds where the same synthetic row is
  among the `neighbours` nearest to both.
- *Inference*: an attacker knows all columns but one and guesses the secret of the nearest synthetic row.
Control: the same against held-out people. Baseline: synthetic rows drawn by lot, without looking at what is
known; its success is computed and not drawn.
Differs from the paper: written for codes, with numpy alone (the authors' library `anonymeter` declares numpy
below 1.27); where several synthetic rows are equally near, the attacker takes one by lot. The library takes
the first, and on coarse columns then links everybody through row 0. A secret is guessed when its level is.
Test: other choices of the training people among all that were attacked.

Guarantee: none; the result is a function of real rows, meant for their holder. Edges: no columns to know, or
no rows → the reason; fewer people than `targets` → all of them.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.evaluate.attacks.attack import Attack, Measure
from understudy.evaluate.attacks.chance import more
from understudy.evaluate.attacks.rates import Rate, wilson
from understudy.evaluate.figure import What
from understudy.evaluate.utility.distance import Distances, Rows, Space, lacking, tables
from understudy.evaluate.utility.marginals import Codes
from understudy.ground.check import whole
from understudy.ground.errors import ConfigError

Ints = NDArray[np.int64]


def linkability(
    train: Codes,
    holdout: Codes,
    synthetic: Codes,
    left: Sequence[int],
    right: Sequence[int],
    *,
    space: Space | None = None,
    neighbours: int = 1,
    targets: int = 1000,
    seed: int = 0,
) -> Attack:
    """Link people's columns `left` to their columns `right`, say those of two parties, by column number."""
    whole(neighbours=neighbours, targets=targets)
    space, given = tables(space, train=train, holdout=holdout, synthetic=synthetic)
    train, holdout, synthetic = given.values()
    _in_table([*left, *right], train.shape[1])
    if reason := lacking(given) or ("" if left and right else "one of the two sides has no columns."):
        return Attack.absent(What("linkability"), reason)
    rng = np.random.default_rng([seed, 0])
    sides = [(list(side), Rows(synthetic[:, side], space.take(side))) for side in (left, right)]
    count = min(neighbours, len(synthetic))

    inside, outside = (table[rng.permutation(len(table))[:targets]] for table in (train, holdout))
    people = np.concatenate([inside, outside])
    one, other = (
        _nearest(rows, people[:, side], count, [seed, 1, number]) for number, (side, rows) in enumerate(sides)
    )
    linked = (one[:, :, None] == other[:, None]).any(axis=(1, 2)).astype(float)
    # Two sets of k of n rows, drawn by lot, miss each other with C(n − k, k) / C(n, k).
    lot = 1 - math.comb(len(synthetic) - count, count) / math.comb(len(synthetic), count)
    measure = _measure(linked[: len(inside)], linked[len(inside) :], Rate.known(lot), seed)
    note = f"{len(left)} columns to {len(right)}, {count} nearest of {len(synthetic):,} synthetic rows"
    return Attack(what=What("linkability"), measures=(measure,), note=note, control=len(outside))


def inference(
    train: Codes,
    holdout: Codes,
    synthetic: Codes,
    secret: int,
    known: Sequence[int] | None = None,
    *,
    space: Space | None = None,
    targets: int = 1000,
    seed: int = 0,
) -> Attack:
    """Guess people's level in column `secret` from the columns `known` (all others), by column number."""
    whole(targets=targets)
    space, given = tables(space, train=train, holdout=holdout, synthetic=synthetic)
    train, holdout, synthetic = given.values()
    known = [j for j in range(train.shape[1]) if j != secret] if known is None else list(known)
    _in_table([secret, *known], train.shape[1])
    if secret in known:
        raise ConfigError(f"column {secret} is both known and secret. Nothing was attacked.")
    if reason := lacking(given) or ("" if known else "nothing is known except the secret."):
        return Attack.absent(What("inference"), reason)
    rng = np.random.default_rng([seed, 0])
    rows, answers = Rows(synthetic[:, known], space.take(known)), synthetic[:, secret]
    shares = np.bincount(answers, minlength=space.sizes[secret]) / len(answers)

    def right(people: Codes) -> NDArray[np.float64]:
        truth = people[:, secret]

        def share(distances: Distances, part: slice) -> NDArray[np.float64]:
            near = distances == distances.min(axis=1, keepdims=True)
            return np.asarray((near & (answers == truth[part, None])).sum(axis=1) / near.sum(axis=1))

        return np.concatenate([*rows.each(people[:, known], share)])

    inside, outside = (table[rng.permutation(len(table))[:targets]] for table in (train, holdout))
    naive = _mean(shares[inside[:, secret]])
    measure = _measure(right(inside), right(outside), naive, seed)
    note = f"1 column from {len(known)}, nearest of {len(synthetic):,} synthetic rows"
    return Attack(what=What("inference"), measures=(measure,), note=note, control=len(outside))


def _nearest(rows: Rows, people: Codes, count: int, seed: list[int]) -> Ints:
    """The `count` nearest rows of each person, (people, count), equally near ones by lot."""

    def work(distances: Distances, part: slice) -> Ints:
        last = np.partition(distances, count - 1, axis=1)[:, count - 1, None]
        lots = np.random.default_rng([*seed, part.start]).random(distances.shape, dtype=np.float32)
        lots[distances < last] = -1
        lots[distances > last] = 2
        return np.argpartition(lots, count - 1, axis=1)[:, :count]

    return np.concatenate([*rows.each(people, work)])


def _measure(inside: NDArray[np.float64], outside: NDArray[np.float64], baseline: Rate, seed: int) -> Measure:
    """`success` by each person's chance of it."""
    return Measure("success", _mean(inside), _mean(outside), baseline, more(inside, outside, seed=seed))


def _mean(chances: NDArray[np.float64]) -> Rate:
    """The mean chance of success; a chance varies less than its coin, so the interval is wide enough."""
    # a sum of thirds may pass by a rounding
    return wilson(min(float(chances.sum()), len(chances)), len(chances))


def _in_table(columns: Sequence[int], width: int) -> None:
    if wrong := [j for j in columns if not 0 <= j < width]:
        raise ConfigError(f"there is no column {wrong[0]}: the table has {width}. Nothing was attacked.")
