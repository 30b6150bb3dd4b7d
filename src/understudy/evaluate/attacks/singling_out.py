"""Singling out: can someone write down, from the synthetic table, a predicate that fits exactly one person?

Giomi et al. (PoPETs 2023), §5.1, after Cohen and Nissim (PNAS 2020). Univariate: values that one synthetic
row has alone, and the ends of ordered columns. Multivariate: a random synthetic row in `columns` random
columns, "at least" above the median of an ordered column, "at most" up to it, "equal" elsewhere. Predicates
that fit one synthetic row are kept; an attack succeeds where one fits one training row. Control: one held-out
row. Baseline: as many random predicates, on the training rows.
Paper → code: w, the share of all people that a predicate fits → weights; n·w·(1 − w)^(n−1), the chance that it
fits exactly one of n → `binom.pmf(1, n, weights)`.
Differs from the paper: written for codes, with numpy alone (the authors' library `anonymeter` declares numpy
below 1.27); synthetic rows are compared without repeats, as there, but real rows with repeats, since two equal
people are two. Values are levels, so a bin counts as one value.
A small table is singled out more easily or less than a large one, so the control is brought to the size of the
training table: a larger held-out table is thinned (exactly, by the hypergeometric distribution), a smaller one
extrapolated. The paper takes w as even between 0 and a limit that it fits; here the distribution of w is
estimated by maximum likelihood from the held-out counts (Kiefer and Wolfowitz, 1956; by EM on a grid). From 500
rows to 2,000 it erred by .04–.10 in simulations, the paper's by .07–.15. The interval leaves that error out, so
hold out as many rows as you train on where you can.
Many predicates may single out one and the same unusual person, so they are no independent trials as in the
paper: the Wilson intervals count P·Σk/Σk² trials for P predicates of which k single out each person.

Guarantee: none; the result is a function of real rows, meant for their holder. Edges: fewer predicates than
wished for → the note says so; none → the reason.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, hypergeom

from understudy.check import whole
from understudy.evaluate.attacks.attack import Attack, Measure
from understudy.evaluate.attacks.rates import Rate, effective, wilson
from understudy.evaluate.utility import Codes, Space, lacking, tables
from understudy.evaluate.utility.distance import BLOCK

Ints = NDArray[np.int64]

Predicates = NDArray[np.int64]
"""Conjunctions of tests: (predicates, tests, 4), a test being column, low, high and 1 where it is negated."""

BATCH = 1000
TRIES = 20  # batches are drawn until there are enough predicates, or so many times as many were tried
GRID, STEPS = 200, 1000  # of the weights' distribution: its points, and the steps of its estimate
RANDOM_TESTS = 6  # =, ≠, ≥, ≤, >, < in the baseline; the first two alone where there is no order


def matches(predicates: Predicates, codes: Codes) -> tuple[Ints, Ints]:
    """How many rows each predicate fits, and the first of them (0 where there is none)."""
    small: type[np.integer[Any]] = np.uint8 if codes.max(initial=0) < 255 else np.int32
    levels = np.ascontiguousarray(codes.T, dtype=small)
    ends = np.minimum(predicates[:, :, 1:3], np.iinfo(small).max).astype(small)  # beyond every level anyway
    few, found = max(1, BLOCK // max(1, len(codes))), np.empty((2, len(predicates)), np.int64)
    for begin in range(0, len(predicates), few):
        part = slice(begin, begin + few)
        fits = np.ones((len(predicates[part]), len(codes)), dtype=bool)
        for j in range(predicates.shape[1]):
            level = levels[predicates[part, j, 0]]  # (few, rows)
            inside = (level >= ends[part, j, :1]) & (level <= ends[part, j, 1:])
            fits &= inside ^ (predicates[part, j, 3:] == 1)
        found[:, part] = np.count_nonzero(fits, axis=1), fits.argmax(axis=1)
    return found[0], found[1]


def distinct(predicates: Predicates) -> Predicates:
    """Without repeats, in the order of their first appearance."""
    flat = predicates.reshape(len(predicates), predicates.shape[1] * 4)
    return predicates[np.sort(np.unique(flat, axis=0, return_index=True)[1])]


def singling_out(
    train: Codes,
    holdout: Codes,
    synthetic: Codes,
    *,
    space: Space | None = None,
    columns: int = 3,
    predicates: int = 1000,
    seed: int = 0,
) -> Attack:
    """Attack with up to `predicates` predicates over `columns` columns each; 1 is the univariate attack."""
    whole(columns=columns, predicates=predicates)
    name = "singling_out_univariate" if columns == 1 else f"singling_out_{columns}"
    space, given = tables(space, train=train, holdout=holdout, synthetic=synthetic)
    train, holdout, synthetic = given.values()
    if reason := lacking(given):
        return Attack.absent(name, reason)
    if columns > train.shape[1]:
        return Attack.absent(name, f"{columns} columns are needed and the table has {train.shape[1]}.")
    rng = np.random.default_rng([seed, 0])
    table = np.unique(synthetic, axis=0)
    if columns == 1:
        guesses = univariate(table, space)
        guesses = guesses[rng.permutation(len(guesses))[:predicates]]
    else:
        guesses = multivariate(table, space, columns, predicates, rng)
    if not len(guesses):
        return Attack.absent(name, f"no predicate over {columns} columns fits one synthetic row alone.")
    tried, naive = len(guesses), random_predicates(table, space, columns, len(guesses), rng)
    found, first = matches(guesses, holdout)
    measure = Measure(
        "success",
        _rate(*matches(guesses, train)),
        _rate(found, first, control_rate(found, len(holdout), len(train))),
        _rate(*matches(naive, train)),
    )
    note = f"{tried:,} of {predicates:,} predicates, on {len(train):,} training and {len(holdout):,} held-out rows"
    return Attack(name=name, measures=(measure,), note=note)


def univariate(table: Codes, space: Space) -> Predicates:
    """Every test of one column that fits exactly one row: its only bearer, the lowest, the highest."""
    tests: list[tuple[int, int, int, int]] = []
    for j, size in enumerate(space.sizes):
        rows, present = np.bincount(table[:, j], minlength=size), space.present(j)
        tests += [(j, v, v, 0) for v in np.flatnonzero(rows == 1).tolist()]
        held = np.flatnonzero(rows[:present]).tolist()
        if space.ordered[j] and held:
            ends = ((held[0], 0, held[0]), (held[-1], held[-1], present - 1))
            tests += [(j, low, high, 0) for end, low, high in ends if rows[end] == 1]
    return distinct(np.array(tests, dtype=np.int64).reshape(-1, 1, 4))


def multivariate(
    table: Codes, space: Space, columns: int, wanted: int, rng: np.random.Generator
) -> Predicates:
    """Up to `wanted` distinct predicates that fit exactly one row, each from a random row and random columns."""
    ordered, present = _order(space)
    present_levels = [column[column < most] for column, most in zip(table.T, present, strict=True)]
    middle = np.array([np.median(levels) if len(levels) else 0 for levels in present_levels])
    kept = np.empty((0, columns, 4), dtype=np.int64)
    for _ in range(TRIES * (1 + wanted // BATCH)):
        chosen = _column_sets(table.shape[1], columns, BATCH, rng)
        level = np.take_along_axis(table[rng.integers(len(table), size=BATCH)], chosen, axis=1)
        order, above = ordered[chosen] & (level < present[chosen]), level > middle[chosen]
        low = np.where(order & ~above, 0, level)
        high = np.where(order & above, present[chosen] - 1, level)
        drawn = np.stack([chosen, low, high, np.zeros_like(chosen)], axis=2)
        kept = distinct(np.concatenate([kept, drawn[matches(drawn, table)[0] == 1]]))
        if len(kept) >= wanted:
            break
    return kept[:wanted]


def random_predicates(
    table: Codes, space: Space, columns: int, count: int, rng: np.random.Generator
) -> Predicates:
    """Random columns, random tests, random values among those that the table holds."""
    held = [np.unique(column) for column in table.T]
    chosen = _column_sets(table.shape[1], columns, count, rng)
    drawn = np.stack([values[rng.integers(len(values), size=count)] for values in held], axis=1)
    level = np.take_along_axis(drawn, chosen, axis=1)
    ordered, present = (part[chosen] for part in _order(space))
    test = rng.integers(np.where(ordered & (level < present), RANDOM_TESTS, 2))
    low = np.select([test == 3, test == 4, test == 5], [0, level + 1, 0], level)
    high = np.select([test == 2, test == 4, test == 5], [present - 1, present - 1, level - 1], level)
    empty = low > high  # "above the highest": written as 1 ≤ level ≤ 0, so that no end is negative
    return np.stack([chosen, np.where(empty, 1, low), np.where(empty, 0, high), test == 1], axis=2).astype(
        np.int64
    )


def control_rate(found: Ints, rows: int, size: int) -> float:
    """How often predicates that fit so many of `rows` rows would fit exactly one of `size` such rows."""
    if rows >= size:
        return float(np.mean(hypergeom.pmf(1, rows, found, size)))
    seen, often = np.unique(found, return_counts=True)
    weights = np.append(0, np.geomspace(0.01 / size, 1, GRID))
    likely = binom.pmf(seen[:, None], rows, weights)  # (counts seen, weights)
    prior = np.full(len(weights), 1 / len(weights))
    for _ in range(STEPS):
        posterior = likely * prior
        prior = often @ (posterior / posterior.sum(axis=1, keepdims=True)) / len(found)
    return float(prior @ binom.pmf(1, size, weights))


def _rate(found: Ints, first: Ints, share: float | None = None) -> Rate:
    """The share of predicates that fit one row; as many trials as if each row were singled out but once."""
    trials = effective(len(found), np.bincount(first[found == 1]))
    return wilson((np.mean(found == 1) if share is None else share) * trials, trials)


def _column_sets(width: int, columns: int, count: int, rng: np.random.Generator) -> Ints:
    keys = rng.random((count, width))
    return np.sort(np.argpartition(keys, columns - 1, axis=1)[:, :columns], axis=1)


def _order(space: Space) -> tuple[NDArray[np.bool_], Ints]:
    """Which columns are ordered, and how many levels each has without the missing one."""
    present = [space.present(j) for j in range(len(space.sizes))]
    return np.array(space.ordered), np.array(present, dtype=np.int64)
