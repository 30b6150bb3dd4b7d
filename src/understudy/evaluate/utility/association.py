"""How strongly columns hang together, by their values: the same for every choice of bins.

    pearson            two columns of numbers, along a line
    spearman           two columns of numbers, by their ranks
    cramers_v          two columns of levels, corrected for many levels and few rows (Bergsma, JKSS 2013)
    correlation_ratio  levels and numbers: √ of the share of the numbers' variance that lies between the levels,
                       corrected alike (Kelley's ε², 1935)

A figure is the root of the mean squared difference between the real and the other table over pairs of columns, so
that one strong pair that is lost shows among many weak ones. It stands between what real rows reach and what columns
shuffled apart reach. For numbers, rows in which one of the two is missing are left aside; for levels, missing is a
level.

Guarantee: none. A figure is a function of real rows, meant for their holder. Edges: a pair without a coefficient in
the real rows (a constant, too few rows) is left out; where the other table alone has none it counts as 0. At most
20,000 rows and 1,000 pairs of a kind are looked at.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from understudy.data.column import Binned
from understudy.data.schema import Schema
from understudy.evaluate.figure import SCOPES, Figure, What
from understudy.evaluate.utility.marginals import party_numbers
from understudy.evaluate.utility.values import Values

ROWS, PAIRS = 20_000, 1_000
MEASURES = ("pearson", "spearman", "cramers_v", "correlation_ratio")


@dataclass(frozen=True)
class Pair:
    """Two columns and how strongly they hang together in the real and in the synthetic rows."""

    measure: str
    one: str
    other: str
    real: float
    synthetic: float


@dataclass(frozen=True, kw_only=True)
class Associations:
    """The figures, and every pair behind them."""

    figures: tuple[Figure, ...]
    pairs: tuple[Pair, ...]


def associations(
    schema: Schema,
    truth: Values,
    tables: Sequence[Values],
    *,
    owners: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> Associations:
    """Hold synthetic, fresh and shuffled rows against the truth; all as `table_values` gives them, in any order."""
    rng = np.random.default_rng([seed, 5])
    rows = [table[rng.permutation(len(table))[:ROWS]] for table in (truth, *tables)]
    party = party_numbers(owners or [None] * len(schema.columns))
    figures: list[Figure] = []
    pairs: list[Pair] = []
    for measure in MEASURES:
        sets = _sets(schema, measure, rng)
        real, *others = (_strengths(schema, measure, sets, table) for table in rows)
        # a table without a coefficient keeps nothing of it
        others = [np.nan_to_num(other) for other in others]
        known = ~np.isnan(real)
        cross = party[sets[:, 0]] != party[sets[:, 1]]
        for scope in SCOPES if owners is not None else SCOPES[:1]:
            where = known & {"all": np.ones_like(cross), "within": ~cross, "cross": cross}[scope]
            figures.append(
                _figure(What.within(measure, scope), real[where], [other[where] for other in others])
            )
        names = schema.names
        pairs += [
            Pair(measure, names[i], names[j], float(a), float(b))
            for (i, j), a, b in zip(sets[known].tolist(), real[known], others[0][known], strict=True)
        ]
    return Associations(figures=tuple(figures), pairs=tuple(pairs))


def _figure(what: What, real: Values, others: Sequence[Values]) -> Figure:
    if not len(real):
        return Figure.absent(what, "no two such columns vary together in the real rows.")
    value, floor, ceiling = (float(np.sqrt(np.mean((other - real) ** 2))) for other in others)
    note = f"over {len(real):,} pair{'s' * (len(real) > 1)} of columns"
    return Figure(what, value=value, floor=floor, ceiling=ceiling, note=note)


def _sets(schema: Schema, measure: str, rng: np.random.Generator) -> NDArray[np.int64]:
    """The pairs of columns that the measure is for, (pairs, 2); of mixed ones the levels first."""
    numbers = [j for j, column in enumerate(schema.columns) if isinstance(column, Binned)]
    levels = [j for j, column in enumerate(schema.columns) if not isinstance(column, Binned)]
    kinds: dict[str, Iterator[Any]] = {
        "cramers_v": combinations(levels, 2),
        "correlation_ratio": product(levels, numbers),
    }
    found = np.array([*kinds.get(measure, combinations(numbers, 2))], dtype=np.int64).reshape(-1, 2)
    return found if len(found) <= PAIRS else found[np.sort(rng.permutation(len(found))[:PAIRS])]


def _strengths(schema: Schema, measure: str, sets: NDArray[np.int64], table: Values) -> Values:
    """The coefficient of each pair, NaN where there is none."""
    if measure in ("pearson", "spearman"):
        return linear(table, ranks=measure == "spearman")[sets[:, 0], sets[:, 1]]
    sizes = [column.size for column in schema.columns]
    compute = cramers_v if measure == "cramers_v" else correlation_ratio
    return np.array([compute(table[:, i], table[:, j], sizes[i], sizes[j]) for i, j in sets.tolist()])


def linear(table: Values, *, ranks: bool = False) -> Values:
    """Pearson's correlation of every two columns over the rows that have both; NaN where one is constant."""
    there = (~np.isnan(table)).astype(np.float64)
    scaled = np.zeros_like(table)
    for j in range(table.shape[1]):
        known = there[:, j] > 0
        values = rankdata(table[known, j]) if ranks else table[known, j]
        spread = float(np.abs(values - values.mean()).max()) if len(values) else 0.0
        scaled[known, j] = (values - values.mean()) / spread if spread else 0.0
    count, first, second = there.T @ there, scaled.T @ there, (scaled**2).T @ there
    with np.errstate(invalid="ignore", divide="ignore"):
        spreads = second - first**2 / count  # [i, j]: of column i in the rows that have both
        spreads = np.where(spreads > 1e-12 * second, spreads, np.nan)
        both = scaled.T @ scaled - first * first.T / count
        return np.clip(both / np.sqrt(spreads * spreads.T), -1, 1)


def cramers_v(one: Values, other: Values, size: int, width: int) -> float:
    """0 where the levels of two columns are independent, 1 where one tells the other."""
    a, b, n = one.astype(np.int64), other.astype(np.int64), len(one)
    often = np.bincount(a, minlength=size), np.bincount(b, minlength=width)
    levels = [int((counts > 0).sum()) for counts in often]
    if min(levels) < 2:
        return float("nan")
    cells, counts = np.unique(a * width + b, return_counts=True)
    squares = counts.astype(np.float64) ** 2 / (often[0][cells // width] * often[1][cells % width])
    excess = max(0.0, float(squares.sum()) - 1 - (levels[0] - 1) * (levels[1] - 1) / (n - 1))
    most = min(k - (k - 1) ** 2 / (n - 1) for k in levels) - 1
    return float(min(1.0, np.sqrt(excess / most))) if most > 0 else float("nan")


def correlation_ratio(levels: Values, numbers: Values, size: int, _width: int = 0) -> float:
    """0 where the mean of the numbers is the same at every level, 1 where the level tells the number."""
    known = ~np.isnan(numbers)
    values, groups = numbers[known], levels[known].astype(np.int64)
    if len(values) < 2:
        return float("nan")
    counts = np.bincount(groups, minlength=size)
    used, n = int((counts > 0).sum()), len(values)
    centred = values - values.mean()
    peak = float(np.abs(centred).max())
    if not peak or used < 2 or n <= used:
        return float("nan")
    centred = centred / peak
    sums = np.bincount(groups, weights=centred, minlength=size)
    between = float((sums[counts > 0] ** 2 / counts[counts > 0]).sum())
    inside = 1 - between / float((centred**2).sum())
    return float(np.sqrt(max(0.0, 1 - inside * (n - 1) / (n - used))))
