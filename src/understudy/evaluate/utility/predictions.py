"""What a model learns of columns from all others, where nobody named one to predict
(TSTR, as in `downstream`).

All columns are looked at by one linear model: ridge regression of the indicators of
every column's classes on those of all other columns, from synthetic rows and from real
ones. Gradient boosting of few trees then learns a few columns: those that depend most
on others in the real rows, and those of which the linear model loses most when it
learns from synthetic rows. Both are tested on real rows that neither learned from. A
number is predicted as a question: is it above the middle? Columns of which the linear
model learns nothing are tried by trees on values, as only these may learn some.

Where none of them loses much, a stronger judge looks again at those that lose most:
more rows, larger trees, and numbers as they are, where the first model saw bins. The
judge that sees more of the loss counts, if it learns as well from real rows.

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
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from understudy.data.column import Binned
from understudy.data.schema import Schema
from understudy.evaluate.figure import Figure, StrongPair
from understudy.evaluate.utility.downstream import (
    BY_VALUES,
    QUICK,
    Examples,
    classification_scores,
    downstream,
    score_model,
)
from understudy.evaluate.utility.marginals import Codes
from understudy.evaluate.utility.values import Values

# columns that are predicted because they depend most on others, and as many because
# they are off most
N_PREDICTED = 3
MAX_ROWS = 3_000
LINEAR_ROWS = 10_000
# of diabetes130 (81,413 people, 3 classes) 3,000 rows show .005 of the .034 that is
# lost in AUC, 20,000 show .027
JUDGED_ROWS = 20_000
MAX_TRIED = 12  # columns that trees alone are tried on: a second
# a class that so few real rows are of is merged with the other rare ones, or makes a
# column constant
MIN_CLASS_SHARE = 0.02
MIN_AUC_GAIN = 0.05  # by so much must AUC be above a half, or there is nothing to lose
MIN_AUC_LOSS = 0.02  # AUC: who loses less than this is not looked at again
CLEAR_LOSS = 0.05  # a score that is further behind is not close, whoever looks again
# AUC: judges that are so near to each other on real rows learn equally well
SAME_AUC = 0.03
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
    columns_searched, losses, unexplained = _linear_losses(
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
            figures = _predict_column(schema, tables, name, seed)
            if figures:
                predicted[name] = figures
    for name in _learned_by_trees(schema, tables, unexplained, n_columns, seed):
        predicted.setdefault(name, _predict_by_values(schema, tables, name, seed))
    every = [figure for figures in predicted.values() for figure in figures]
    if all(_loss(figure) <= CLEAR_LOSS for figure in every):
        by_bins = [name for name in predicted if predicted[name][0].key.part == QUICK]
        by_bins.sort(key=lambda name: -max(map(_loss, predicted[name])))
        for name in by_bins[:n_columns]:
            again = _predict_by_values(schema, tables, name, seed)
            predicted[name] = _harder_judge(predicted[name], again)
    return Predictions(
        tuple(figure for figures in predicted.values() for figure in figures),
        columns_searched,
    )


def predict_target(
    schema: Schema,
    tables: Mapping[str, tuple[Codes, Values]],
    target: str,
    *,
    seed: int = 0,
) -> tuple[Figure, ...]:
    """AUC and accuracy of the classes of the column that was named, by values; nothing
    of numbers.
    """
    if isinstance(schema.column(target), Binned):
        return ()
    figures = _predict_by_values(schema, tables, target, seed)
    return tuple(replace(f, key=replace(f.key, column="")) for f in figures)


def _loss(figure: Figure) -> float:
    if figure.value is None or figure.ceiling is None:
        return 0.0
    return figure.ceiling - figure.value


def _harder_judge(quick: list[Figure], by_values: list[Figure]) -> list[Figure]:
    """The figures of the judge that learns from real rows as well as the other, and
    sees more of a loss.
    """
    aucs = [
        next((f for f in figures if f.key.score == "auc" and f.value is not None), None)
        for figures in (quick, by_values)
    ]
    if aucs[0] is None or aucs[1] is None:
        return quick
    if (aucs[1].ceiling or 0.0) < (aucs[0].ceiling or 0.0) - SAME_AUC:
        return quick
    return by_values if _loss(aucs[1]) >= _loss(aucs[0]) else quick


def _learned_by_trees(
    schema: Schema,
    tables: Mapping[str, tuple[Codes, Values]],
    names: Sequence[str],
    n_columns: int,
    seed: int,
) -> list[str]:
    """Those of these columns that few trees learn from real values, best first."""
    gains = {}
    for name in names[:MAX_TRIED]:
        asked = _examples(schema, tables, name, seed, by_values=True)
        if asked is None:
            continue
        parts, n_classes = asked
        rng = np.random.default_rng([seed, 10])
        train = parts["real"].sample(MAX_ROWS, rng)
        test = parts["held-out"].sample(MAX_ROWS, rng)
        if not len(test) or len(np.unique(train.target)) < 2:
            continue
        score = partial(classification_scores, test.target)
        scores, _, _ = score_model(
            QUICK, train, test.features, (), n_classes, seed, score
        )
        auc = scores["auc"]
        if isinstance(auc, float) and auc >= 0.5 + 2 * MIN_AUC_GAIN:
            gains[name] = auc
    return sorted(gains, key=lambda name: -gains[name])[:n_columns]


def _linear_losses(
    schema: Schema,
    tables: Mapping[str, tuple[Codes, Values]],
    names: Sequence[str],
    seed: int,
) -> tuple[int, dict[str, float], list[str]]:
    """How many columns were looked at, what each loses in AUC when a linear model
    learns from synthetic rows, and of which it learns nothing from real ones.
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
        return 0, {}, []
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
    unexplained = []
    for index, real, synthetic in zip(
        classes, aucs["real"], aucs["synthetic"], strict=True
    ):
        name = schema.names[index]
        if real >= 0.5 + MIN_AUC_GAIN:
            losses[name] = real - synthetic
        else:
            unexplained.append(name)
    return len(classes), losses, unexplained


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


def _predict_by_values(
    schema: Schema, tables: Mapping[str, tuple[Codes, Values]], name: str, seed: int
) -> list[Figure]:
    return _predict_column(
        schema, tables, name, seed, model=BY_VALUES, max_rows=JUDGED_ROWS
    )


def _predict_column(
    schema: Schema,
    tables: Mapping[str, tuple[Codes, Values]],
    name: str,
    seed: int,
    *,
    model: str = QUICK,
    max_rows: int = MAX_ROWS,
) -> list[Figure]:
    asked = _examples(schema, tables, name, seed, by_values=model == BY_VALUES)
    if asked is None:
        return []
    parts, n_classes = asked
    sizes = [column.size for column in schema.columns if column.name != name]
    figures = downstream(
        parts["real"],
        parts["synthetic"],
        parts["held-out"],
        sizes,
        classes=n_classes,
        models=(model,),
        rows=max_rows,
        seed=seed,
    )
    return [
        replace(figure, key=replace(figure.key, column=name))
        for figure in figures
        if figure.key.score in ("auc", "acc")
    ]


def _examples(
    schema: Schema,
    tables: Mapping[str, tuple[Codes, Values]],
    name: str,
    seed: int,
    *,
    by_values: bool,
) -> tuple[dict[str, Examples], int] | None:
    """Each table's rows that have a class, a fifth of the real ones held out where no
    others are, and how many classes there are; None where there are not two.
    """
    index = schema.names.index(name)
    classes = _number_classes(schema, tables, index)
    if classes is None:
        return None
    parts = {}
    for table, (codes, values) in tables.items():
        has_class = classes[table] >= 0
        features = (values if by_values else codes)[has_class]
        parts[table] = Examples(
            np.delete(features, index, axis=1), classes[table][has_class]
        )
    if "held-out" not in parts:
        parts["real"], parts["held-out"] = parts["real"].split(
            np.random.default_rng([seed, 8])
        )
    n_classes = int(max(numbers.max(initial=0) for numbers in classes.values())) + 1
    return parts, n_classes


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
