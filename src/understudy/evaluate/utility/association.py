"""How strongly columns hang together: by their level numbers (CMD), and by their
values, whatever the bins.

CMD, the correlation matrix distance: Jiang, dissertation (TUM 2024), Eq. 4.9 (Zhang's
thesis, Eq. 5.2, calls it DCM), 1 − tr(R·S) / (‖R‖_F·‖S‖_F), R and S the Pearson
correlation matrices of level numbers, missing being the last level; 0 = alike up to a
factor. Paper → code: R_real → `real`, R_syn → `synthetic`.
Differs from the paper: the within-party and the cross-party entries are also compared
apart, by the same formula over those entries alone (a cross figure has no diagonal, so
it may reach 2: opposite signs); floor and ceiling as for the marginals. A column that
is constant in the real rows is left out (there is nothing to keep); one that is
constant in the synthetic rows alone counts as uncorrelated with all others; both are
named in the note.

By values: `pearson`, two columns of numbers, along a line; `spearman`, by their ranks;
`cramers_v`, two columns of levels, corrected for many levels and few rows (Bergsma,
JKSS 2013); `correlation_ratio`, levels and numbers: √ of the share of the numbers'
variance that lies between the levels, corrected alike (Kelley's ε², 1935);
`rank_ratio`, the same of the numbers' ranks, which a few large numbers do not hide.

A figure is the root of the mean squared difference between the real and the other table
over pairs of columns, so that one strong pair that is lost shows among many weak ones.
It stands between what real rows reach and what columns shuffled apart reach. For
numbers, rows in which one of the two is missing are left aside; for levels, missing is
a level.

Edges: a pair without a coefficient in the real rows (a constant, fewer than 100 rows
that have both) is left out; where the other table alone has none it counts as 0. At
most 20,000 rows are looked at, and of pairs with levels 2,000 of a kind.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from understudy.data.column import Binned
from understudy.data.schema import Schema
from understudy.evaluate.figure import SCOPES, Figure, FigureKey
from understudy.evaluate.utility.marginals import (
    Codes,
    check_tables,
    count_occupied,
    party_numbers,
    reference_tables,
)
from understudy.evaluate.utility.values import Values

Matrix = NDArray[np.float64]

CHUNK = 1 << 22  # cells of a block of rows that is worked on at once
MAX_ROWS = 20_000
MAX_PAIRS = 2_000
MIN_COMMON_ROWS = (
    100  # rows that have both columns of a pair, at least, or half of a short table
)
# pairs that differ most, of which it is found out how far real rows differ from each
# other
FURTHEST = 20
SPLITS = 10  # of the real rows, for that
MEASURES = ("pearson", "spearman", "cramers_v", "correlation_ratio", "rank_ratio")
# of every kind of pair the one that any monotone change of the numbers leaves as it is
RANK_MEASURES = ("spearman", "cramers_v", "rank_ratio")
# a coefficient from which on two columns are said to depend on each other strongly
STRONG = 0.3


@dataclass(frozen=True)
class Pair:
    measure: str
    first: str
    second: str
    real: float
    synthetic: float
    # the deviation of the difference between two tables of real rows of these sizes
    noise: float | None = None

    @property
    def difference(self) -> float:
        return abs(self.synthetic - self.real)

    @property
    def is_strong(self) -> bool:
        """Whether the columns hang together strongly, by ranks, in either table."""
        strength = max(abs(self.real), abs(self.synthetic))
        return self.measure in RANK_MEASURES and strength >= STRONG


@dataclass(frozen=True, kw_only=True)
class Associations:
    figures: tuple[Figure, ...]
    pairs: tuple[Pair, ...]


def associations(
    schema: Schema,
    truth: Values,
    tables: Sequence[Values],
    *,
    owners: Sequence[Hashable] | None = None,
    noise: bool = False,
    seed: int = 0,
) -> Associations:
    """Hold synthetic, fresh and shuffled rows against the truth; all as `table_values`
    gives them, in any order. With `noise` it is found out how far real rows differ from
    each other in the pairs that differ most.
    """
    rng = np.random.default_rng([seed, 5])
    rows = [table[rng.permutation(len(table))[:MAX_ROWS]] for table in (truth, *tables)]
    party = party_numbers(owners or [None] * len(schema.columns))
    figures: list[Figure] = []
    pairs: list[Pair] = []
    for measure in MEASURES:
        sets = _column_pairs(schema, measure, rng)
        real, *compared = (_strengths(schema, measure, sets, table) for table in rows)
        # a table without a coefficient keeps nothing of it
        compared = [np.nan_to_num(strengths) for strengths in compared]
        has_coefficient = ~np.isnan(real) & _has_enough_rows(rows[0], sets)
        cross = party[sets[:, 0]] != party[sets[:, 1]]
        for scope in SCOPES if owners is not None else SCOPES[:1]:
            where = (
                has_coefficient
                & {"all": np.ones_like(cross), "within": ~cross, "cross": cross}[scope]
            )
            figures.append(
                _figure(
                    FigureKey.for_scope(measure, scope),
                    real[where],
                    [strengths[where] for strengths in compared],
                )
            )
        names = schema.names
        pairs += [
            Pair(measure, names[i], names[j], float(a), float(b))
            for (i, j), a, b in zip(
                sets[has_coefficient].tolist(),
                real[has_coefficient],
                compared[0][has_coefficient],
                strict=True,
            )
        ]
    known_pairs = (
        _estimate_noise(schema, pairs, rows[0], len(rows[1]), rng)
        if noise
        else tuple(pairs)
    )
    return Associations(figures=tuple(figures), pairs=known_pairs)


def _estimate_noise(
    schema: Schema,
    pairs: Sequence[Pair],
    real: Values,
    synthetic_rows: int,
    rng: np.random.Generator,
) -> tuple[Pair, ...]:
    """The pairs, those that differ most with their noise, of all and of strong ones: by
    halves of the real rows, scaled to these sizes.
    """
    by_difference = sorted(
        range(len(pairs)), key=lambda number: -pairs[number].difference
    )
    strong = [number for number in by_difference if pairs[number].is_strong]
    order = dict.fromkeys([*by_difference[:FURTHEST], *strong[:FURTHEST]])
    if len(real) < 4 or not synthetic_rows:
        return tuple(pairs)
    scale = np.sqrt((1 / len(real) + 1 / synthetic_rows) / (4 / len(real)))
    names = {name: index for index, name in enumerate(schema.names)}
    noisy = list(pairs)
    for measure in dict.fromkeys(pairs[number].measure for number in order):
        measured = [number for number in order if pairs[number].measure == measure]
        sets = np.array(
            [[names[pairs[n].first], names[pairs[n].second]] for n in measured]
        )
        differences = []
        for _ in range(SPLITS):
            first, second = np.array_split(real[rng.permutation(len(real))], 2)
            strengths = (
                np.nan_to_num(_strengths(schema, measure, sets, half))
                for half in (first, second)
            )
            differences.append(np.subtract(*strengths))
        noise = scale * np.sqrt(np.mean(np.square(differences), axis=0))
        for number, size in zip(measured, noise.tolist(), strict=True):
            noisy[number] = replace(pairs[number], noise=size)
    return tuple(noisy)


def _has_enough_rows(table: Values, sets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether enough rows have both columns of a pair: the coefficient of a few is
    chance.
    """
    present = (~np.isnan(table)).astype(np.float64)
    common = present.T @ present
    return common[sets[:, 0], sets[:, 1]] >= min(MIN_COMMON_ROWS, len(table) // 2)


def _figure(key: FigureKey, real: Values, compared: Sequence[Values]) -> Figure:
    if not len(real):
        return Figure.absent(key, "no two such columns vary together in the real rows.")
    value, floor, ceiling = (
        float(np.sqrt(np.mean((strengths - real) ** 2))) for strengths in compared
    )
    note = f"over {len(real):,} pair{'s' * (len(real) > 1)} of columns"
    return Figure(key, value=value, floor=floor, ceiling=ceiling, note=note)


def _column_pairs(
    schema: Schema, measure: str, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The pairs of columns that the measure is for, (pairs, 2); of mixed ones the
    levels first. Pairs of numbers are all there: one product has them all.
    """
    numbers = [
        j for j, column in enumerate(schema.columns) if isinstance(column, Binned)
    ]
    levels = [
        j for j, column in enumerate(schema.columns) if not isinstance(column, Binned)
    ]
    kinds: dict[str, Iterator[Any]] = {
        "cramers_v": combinations(levels, 2),
        "correlation_ratio": product(levels, numbers),
        "rank_ratio": product(levels, numbers),
    }
    pairs = np.array(
        [*kinds.get(measure, combinations(numbers, 2))], dtype=np.int64
    ).reshape(-1, 2)
    if measure in ("pearson", "spearman") or len(pairs) <= MAX_PAIRS:
        return pairs
    return pairs[np.sort(rng.permutation(len(pairs))[:MAX_PAIRS])]


def _strengths(
    schema: Schema, measure: str, sets: NDArray[np.int64], table: Values
) -> Values:
    """The coefficient of each pair, NaN where there is none."""
    if measure in ("pearson", "spearman"):
        columns, positions = np.unique(sets, return_inverse=True)
        matrix = pairwise_correlation(table[:, columns], ranks=measure == "spearman")
        first, second = positions.reshape(sets.shape).T
        strengths: Values = matrix[first, second]
        return strengths
    sizes = [column.size for column in schema.columns]
    compute = cramers_v if measure == "cramers_v" else correlation_ratio
    if measure == "rank_ratio":
        table = _with_ranks(table, np.unique(sets[:, 1]))
    return np.array(
        [
            compute(table[:, i], table[:, j], sizes[i], sizes[j])
            for i, j in sets.tolist()
        ]
    )


def _with_ranks(table: Values, columns: NDArray[np.int64]) -> Values:
    """The table with the ranks of these columns' numbers in their place."""
    ranked = table.copy()
    for j in columns.tolist():
        is_present = ~np.isnan(table[:, j])
        ranked[is_present, j] = rankdata(table[is_present, j])
    return ranked


def pairwise_correlation(table: Values, *, ranks: bool = False) -> Values:
    """Pearson's correlation of every two columns over the rows that have both; NaN
    where one is constant.
    """
    present = (~np.isnan(table)).astype(np.float64)
    scaled = np.zeros_like(table)
    for j in range(table.shape[1]):
        is_present = present[:, j] > 0
        values = rankdata(table[is_present, j]) if ranks else table[is_present, j]
        spread = float(np.abs(values - values.mean()).max()) if len(values) else 0.0
        scaled[is_present, j] = (values - values.mean()) / spread if spread else 0.0
    count = present.T @ present
    first = scaled.T @ present
    second = (scaled**2).T @ present
    with np.errstate(invalid="ignore", divide="ignore"):
        # [i, j]: of column i in the rows that have both
        spreads = second - first**2 / count
        spreads = np.where(spreads > 1e-12 * second, spreads, np.nan)
        covariances = scaled.T @ scaled - first * first.T / count
        return np.clip(covariances / np.sqrt(spreads * spreads.T), -1, 1)


def cramers_v(first: Values, second: Values, size: int, width: int) -> float:
    """0 where the levels of two columns are independent, 1 where one tells the
    other.
    """
    a = first.astype(np.int64)
    b = second.astype(np.int64)
    n = len(first)
    level_counts = np.bincount(a, minlength=size), np.bincount(b, minlength=width)
    levels = [int((counts > 0).sum()) for counts in level_counts]
    if min(levels) < 2:
        return float("nan")
    cells, counts = count_occupied(a * width + b, size * width)
    squares = counts.astype(np.float64) ** 2 / (
        level_counts[0][cells // width] * level_counts[1][cells % width]
    )
    excess = max(
        0.0, float(squares.sum()) - 1 - (levels[0] - 1) * (levels[1] - 1) / (n - 1)
    )
    max_excess = min(k - (k - 1) ** 2 / (n - 1) for k in levels) - 1
    return (
        float(min(1.0, np.sqrt(excess / max_excess)))
        if max_excess > 0
        else float("nan")
    )


def correlation_ratio(
    levels: Values, numbers: Values, size: int, _width: int = 0
) -> float:
    """0 where the mean of the numbers is the same at every level, 1 where the level
    tells the number.
    """
    is_present = ~np.isnan(numbers)
    values = numbers[is_present]
    groups = levels[is_present].astype(np.int64)
    if len(values) < 2:
        return float("nan")
    counts = np.bincount(groups, minlength=size)
    used = int((counts > 0).sum())
    n = len(values)
    centred = values - values.mean()
    peak = float(np.abs(centred).max())
    if not peak or used < 2 or n <= used:
        return float("nan")
    centred = centred / peak
    sums = np.bincount(groups, weights=centred, minlength=size)
    between_groups = float((sums[counts > 0] ** 2 / counts[counts > 0]).sum())
    within_share = 1 - between_groups / float((centred**2).sum())
    return float(np.sqrt(max(0.0, 1 - within_share * (n - 1) / (n - used))))


@dataclass(frozen=True, kw_only=True, eq=False)
class Correlations:
    """The figures and the two matrices behind them, for heat maps: 0 where a constant
    column has none.
    """

    figures: tuple[Figure, ...]
    real: Matrix
    synthetic: Matrix


def pearson(codes: Codes) -> tuple[Matrix, NDArray[np.bool_]]:
    """The correlation matrix of the columns, and which vary; a constant one has 1 with
    itself and 0 with the others.
    """
    rows, width = codes.shape
    first = np.zeros(width)
    second = np.zeros((width, width))
    step = max(1, CHUNK // max(1, width))
    for begin in range(0, rows, step):
        block = codes[begin : begin + step].astype(np.float64)
        first += block.sum(axis=0)
        second += block.T @ block
    # Sums of whole numbers are exact up to 2^53, so nothing is lost by centring at the
    # end.
    spread = rows * second - np.outer(first, first)
    scale = np.sqrt(np.maximum(np.diag(spread), 0))
    # beyond 2^53 a constant leaves a rounding error
    varies = scale > 1e-7 * np.sqrt(rows * np.diag(second))
    scale[~varies] = 1
    matrix = np.clip(spread / np.outer(scale, scale), -1, 1) * np.outer(varies, varies)
    np.fill_diagonal(matrix, 1)
    return matrix, varies


def cmd(
    real: Matrix, synthetic: Matrix, where: NDArray[np.bool_] | None = None
) -> float | None:
    """1 − tr(R·S)/(‖R‖‖S‖) over the entries `where`, 1 if S is all 0 there; None if R
    is.
    """
    if where is not None:
        real = real * where
        synthetic = synthetic * where
    norms = float(np.linalg.norm(real)), float(np.linalg.norm(synthetic))
    if not norms[0]:
        return None
    likeness = (
        float((real * synthetic).sum()) / (norms[0] * norms[1]) if norms[1] else 0.0
    )
    return max(0.0, 1 - likeness)


def correlations(
    real: Codes,
    synthetic: Codes,
    *,
    names: Sequence[str] | None = None,
    owners: Sequence[Hashable] | None = None,
    ends: Sequence[Codes] | None = None,
    seed: int = 0,
) -> Correlations:
    """CMD over all entries, with `owners` also within and across, between its ends
    (`ends`: see `Marginals`).
    """
    real, synthetic = check_tables(real=real, synthetic=synthetic).values()
    width = real.shape[1]
    scopes = SCOPES if owners is not None else SCOPES[:1]
    if min(len(real), len(synthetic)) < 2:
        reason = (
            f"{len(real)} real and {len(synthetic)} synthetic rows are too few for a "
            "correlation."
        )
        nothing = np.empty((0, 0))
        figures = tuple(
            Figure.absent(FigureKey.for_scope("cmd", scope), reason) for scope in scopes
        )
        return Correlations(figures=figures, real=nothing, synthetic=nothing)
    reference_codes = (
        reference_tables(real, len(synthetic), seed) if ends is None else ends
    )
    (truth, varies), (synthetic_matrix, synthetic_varies), *reference_matrices = map(
        pearson, (real, synthetic, *reference_codes)
    )
    party = party_numbers(owners or [None] * width)
    labels = np.array(names or range(width), dtype=object)
    matrices = [synthetic_matrix, *(matrix for matrix, _ in reference_matrices)]
    constant_columns = (
        ("constant in the real rows, left out", labels[~varies]),
        (
            "constant only in the synthetic rows, counted as uncorrelated",
            labels[varies & ~synthetic_varies],
        ),
    )
    note = "; ".join(
        f"{fault}: {', '.join(map(str, dict.fromkeys(which)))}"
        for fault, which in constant_columns
        if len(which)
    )
    figures = tuple(
        _cmd_figure(scope, truth, matrices, varies, party, note) for scope in scopes
    )
    return Correlations(figures=figures, real=truth, synthetic=synthetic_matrix)


def _cmd_figure(
    scope: str,
    real: Matrix,
    matrices: list[Matrix],
    varies: NDArray[np.bool_],
    party: Codes,
    note: str,
) -> Figure:
    key = FigureKey.for_scope("cmd", scope)
    same_party = party[:, None] == party
    where = (
        np.outer(varies, varies)
        & {"all": np.ones_like(same_party), "within": same_party, "cross": ~same_party}[
            scope
        ]
    )
    if not varies.any():
        reason = (
            "every column of the real rows is constant."
            if len(varies)
            else "there are no columns."
        )
        return Figure.absent(key, reason)
    if not where.any():
        return Figure.absent(
            key, "no two columns that vary belong to different parties."
        )
    value, floor, ceiling = (cmd(real, matrix, where) for matrix in matrices)
    if value is None:
        return Figure.absent(key, "the real rows have no correlation at all there.")
    return Figure(key, value=value, floor=floor, ceiling=ceiling, note=note)
