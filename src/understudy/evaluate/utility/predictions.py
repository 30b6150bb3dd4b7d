"""What a model learns of columns from all others, where nobody named one to predict
(TSTR, as in `downstream`).

All columns are looked at by one linear model: ridge regression of the indicators of
every column's classes on those of all other columns, from synthetic rows and from real
ones. Gradient boosting of few trees then learns a few columns: those that depend most
on others in the real rows, and those of which the linear model loses most when it
learns from synthetic rows. Both are tested on real rows that neither learned from. A
number is predicted as a question: is it above the middle?

One matrix is inverted for all columns. With G = XᵀX + λI and B = G⁻¹XᵀY, the ridge
solution whose coefficients of the features j are zero is B − P_j P_jj⁻¹ B_j, where P_j
are the columns j of G⁻¹.

Edges: a column that is (nearly) constant in the real rows, and a table without
dependence → nothing is predicted. Of more than `MOST` columns the linear model looks at
those that depend most on others, then at the first. At most `ROWS` rows are learned
from and tested on (linear: `LINEAR_ROWS`), so that all of it takes seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from understudy.data.column import Binned
from understudy.data.schema import Schema
from understudy.evaluate.figure import Figure, StrongPair
from understudy.evaluate.utility.downstream import QUICK, Examples, downstream
from understudy.evaluate.utility.marginals import Codes
from understudy.evaluate.utility.values import Values

# columns that are predicted because they depend most on others, and as many because
# they are off most
N_PREDICTED = 3
MAX_ROWS = 3_000
LINEAR_ROWS = 10_000
# a class that so few real rows are of is merged with the other rare ones, or makes a
# column constant
MIN_CLASS_SHARE = 0.02
MIN_AUC_GAIN = 0.05  # by so much must AUC be above a half, or there is nothing to lose
MIN_AUC_LOSS = 0.02  # AUC: who loses less than this is not looked at again
MAX_COLUMNS = 400  # columns of the linear model
MAX_INDICATORS = 1_600  # of the linear model, about: inverting takes a second
RIDGE = 1e-2  # per row

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Predictions:
    """Scores of the columns that were predicted, and how many columns the linear model
    looked at.
    """

    figures: tuple[Figure, ...] = ()
    columns_searched: int = 0


def predict_columns(
    schema: Schema,
    tables: Mapping[str, tuple[Codes, Values]],
    pairs: Sequence[StrongPair],
    *,
    n_columns: int = N_PREDICTED,
    exclude: str | None = None,
    seed: int = 0,
) -> Predictions:
    """AUC and accuracy for each of a few columns, `What.column` says which. `tables`
    are "real", "synthetic" and, where there are rows that no training saw, "held-out";
    `pairs` are columns that depend on each other, strongest first; `but` is predicted
    elsewhere.
    """
    by_strength = [name for name in _order_by_strength(pairs) if name != exclude]
    further = [
        name for name in schema.names if name not in by_strength and name != exclude
    ]
    columns_searched, losses = _linear_losses(
        schema, tables, [*by_strength, *further][:MAX_COLUMNS], seed
    )
    most_lost = sorted(
        (name for name in losses if losses[name] > MIN_AUC_LOSS),
        key=lambda name: -losses[name],
    )
    predicted: dict[str, list[Figure]] = {}
    for names in (by_strength, most_lost):
        before = len(predicted)
        for name in names:
            if len(predicted) == before + n_columns:
                break
            if name in predicted:
                continue
            figures = _predict_column(schema, tables, schema.names.index(name), seed)
            if figures:
                predicted[name] = [
                    replace(figure, key=replace(figure.key, column=name))
                    for figure in figures
                ]
    return Predictions(
        tuple(figure for figures in predicted.values() for figure in figures),
        columns_searched,
    )


def _linear_losses(
    schema: Schema,
    tables: Mapping[str, tuple[Codes, Values]],
    names: Sequence[str],
    seed: int,
) -> tuple[int, dict[str, float]]:
    """How many columns were looked at, and what each loses in AUC when a linear model
    learns from synthetic rows.
    """
    rng = np.random.default_rng([seed, 9])
    samples = {name: _some_rows(table, rng) for name, table in tables.items()}
    indices = [schema.names.index(name) for name in names]
    classes = {
        index: numbered
        for index in indices
        if (numbered := _number_classes(schema, samples, index)) is not None
    }
    if (
        len(indices) < 2
        or not classes
        or any(len(codes) < 2 for codes, _ in samples.values())
    ):
        return 0, {}
    max_groups = max(2, min(16, MAX_INDICATORS // len(indices)))
    groups = [
        _group_levels(schema, samples["real"][0], index, max_groups)
        for index in indices
    ]
    features = {
        name: np.concatenate(
            [
                np.eye(max_groups)[groups_of[codes[:, index]]]
                for groups_of, index in zip(groups, indices, strict=True)
            ],
            1,
        )
        for name, (codes, _) in samples.items()
    }
    indicators = {
        name: [
            _class_indicators(groups_of[name], groups_of)
            for groups_of in classes.values()
        ]
        for name in samples
    }
    parts = {
        name: (features[name], np.concatenate(indicators[name], 1)) for name in samples
    }
    if "held-out" not in parts:
        order = rng.permutation(len(features["real"]))
        test, train = np.split(order, [max(1, len(order) // 5)])
        all_rows = parts["real"]
        parts |= {
            "real": (all_rows[0][train], all_rows[1][train]),
            "held-out": (all_rows[0][test], all_rows[1][test]),
        }
    widths = [part.shape[1] for part in indicators["real"]]
    groups_of = [
        np.arange(max_groups) + max_groups * indices.index(index) for index in classes
    ]
    unseen, truth = parts["held-out"]
    aucs = {}
    for name in ("real", "synthetic"):
        scores = _ridge_scores(*parts[name], groups_of, widths, unseen)
        aucs[name] = [
            _mean_auc(score, answer)
            for score, answer in zip(scores, _split_columns(truth, widths), strict=True)
        ]
    losses = {}
    for index, real, synthetic in zip(
        classes, aucs["real"], aucs["synthetic"], strict=True
    ):
        if real >= 0.5 + MIN_AUC_GAIN:
            losses[schema.names[index]] = real - synthetic
    return len(classes), losses


def _some_rows(
    table: tuple[Codes, Values], rng: np.random.Generator
) -> tuple[Codes, Values]:
    codes, values = table
    if len(codes) <= LINEAR_ROWS:
        return table
    rows = rng.choice(len(codes), LINEAR_ROWS, replace=False)
    return codes[rows], values[rows]


def _group_levels(
    schema: Schema, codes: Codes, index: int, max_groups: int
) -> NDArray[np.int64]:
    """The feature of each level: neighbours of about as many rows each; of texts the
    most frequent alone.
    """
    column = schema.columns[index]
    often = np.bincount(codes[:, index], minlength=column.size)
    if isinstance(column, Binned) and column.size > max_groups:
        counts = often[: column.levels]
        middle = (np.cumsum(counts) - counts / 2) / max(1, counts.sum())
        group = (middle * (max_groups - 1)).astype(np.int64)
        return np.append(group, np.full(column.size - column.levels, max_groups - 1))
    rank = np.empty(column.size, dtype=np.int64)
    rank[np.argsort(-often, kind="stable")] = np.arange(column.size)
    return np.minimum(rank, max_groups - 1)


def _class_indicators(
    classes: NDArray[np.int64], all_tables: Mapping[str, NDArray[np.int64]]
) -> Numbers:
    """One column for each class; a row without a class has none."""
    n_classes = 1 + int(max(numbers.max(initial=0) for numbers in all_tables.values()))
    one_hot = np.eye(n_classes + 1)[classes]  # −1 is the last
    return np.asarray(one_hot[:, :n_classes])


def _ridge_scores(
    features: Numbers,
    targets: Numbers,
    own_features: Sequence[NDArray[np.int64]],
    widths: Sequence[int],
    unseen: Numbers,
) -> list[Numbers]:
    """Of each target the scores of unseen rows, by ridge regression on all features but
    those that are its `own`.
    """
    middle = features.mean(0)
    centred = features - middle
    inverse = np.linalg.inv(
        centred.T @ centred + RIDGE * len(features) * np.eye(features.shape[1])
    )
    solutions = inverse @ (centred.T @ (targets - targets.mean(0)))
    scores = []
    for features_of, solution in zip(
        own_features, _split_columns(solutions, widths), strict=True
    ):
        block = inverse[:, features_of]
        coefficients = solution - block @ np.linalg.solve(
            block[features_of], solution[features_of]
        )
        scores.append((unseen - middle) @ coefficients)
    return scores


def _split_columns(columns: Numbers, widths: Sequence[int]) -> list[Numbers]:
    return np.split(columns, np.cumsum(widths)[:-1], axis=1)


def _mean_auc(scores: Numbers, truth: Numbers) -> float:
    """The mean over classes of one against the rest, of rows that have a class; a half
    where there is only one.
    """
    has_class = truth.any(axis=1)
    ranks = rankdata(scores[has_class], axis=0)
    truth = truth[has_class]
    inside = truth.sum(0)
    outside = len(truth) - inside
    has_both = (inside > 0) & (outside > 0)
    if not has_both.any():
        return 0.5
    above = (ranks * truth).sum(0) - inside * (inside + 1) / 2
    return float((above[has_both] / (inside * outside)[has_both]).mean())


def _order_by_strength(pairs: Sequence[StrongPair]) -> list[str]:
    """Columns by the strongest pair that each is in, first one of each pair of which
    neither was in a stronger one.
    """
    first: list[str] = []
    paired: set[str] = set()
    for pair in pairs:
        if not paired & {pair.first, pair.second}:
            first.append(pair.second)
        paired |= {pair.first, pair.second}
    further = (name for pair in pairs for name in (pair.second, pair.first))
    return list(dict.fromkeys([*first, *further]))


def _predict_column(
    schema: Schema, tables: Mapping[str, tuple[Codes, Values]], index: int, seed: int
) -> list[Figure]:
    sizes = [
        column.size for number, column in enumerate(schema.columns) if number != index
    ]
    classes = _number_classes(schema, tables, index)
    if classes is None:
        return []
    parts = {}
    for name, (codes, _) in tables.items():
        has_class = classes[name] >= 0
        parts[name] = Examples(
            np.delete(codes[has_class], index, axis=1), classes[name][has_class]
        )
    if "held-out" not in parts:
        parts["real"], parts["held-out"] = parts["real"].split(
            np.random.default_rng([seed, 8])
        )
    n_classes = int(max(numbers.max(initial=0) for numbers in classes.values())) + 1
    figures = downstream(
        parts["real"],
        parts["synthetic"],
        parts["held-out"],
        sizes,
        classes=n_classes,
        models=(QUICK,),
        rows=MAX_ROWS,
        seed=seed,
    )
    return [figure for figure in figures if figure.key.score in ("auc", "acc")]


def _number_classes(
    schema: Schema, tables: Mapping[str, tuple[Codes, Values]], index: int
) -> dict[str, NDArray[np.int64]] | None:
    """The class of each row in each table, −1 where there is none; None where real rows
    are nearly all of one.
    """
    column = schema.columns[index]
    if isinstance(column, Binned):
        middle = _most_even_split(tables["real"][1][:, index])
        if middle is None:
            return None
        numbered = {}
        for name, (_, values) in tables.items():
            column_values = values[:, index]
            numbered[name] = np.where(
                np.isnan(column_values), -1, column_values > middle
            ).astype(np.int64)
        return numbered
    codes = tables["real"][0][:, index]
    often = np.bincount(codes, minlength=column.size) / max(1, len(codes))
    frequent = np.flatnonzero(often >= MIN_CLASS_SHARE)
    if len(frequent) < 2:
        return None
    # all others are one class
    numbers = np.full(column.size, len(frequent), dtype=np.int64)
    numbers[frequent] = np.arange(len(frequent))
    return {
        name: numbers[column_values[:, index]]
        for name, (column_values, _) in tables.items()
    }


def _most_even_split(values: Values) -> float | None:
    """The number that parts the real ones most evenly; None where nearly all are the
    same.
    """
    different, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    if len(different) < 2:
        return None
    below = np.cumsum(counts)[:-1] / counts.sum()
    best = int(np.abs(below - 0.5).argmin())
    return (
        float(different[best])
        if MIN_CLASS_SHARE <= below[best] <= 1 - MIN_CLASS_SHARE
        else None
    )
