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
FEW = 3
ROWS = 3_000
LINEAR_ROWS = 10_000
# a class that so few real rows are of is merged with the other rare ones, or makes a
# column constant
RARE = 0.02
LEARNED = 0.05  # by so much must AUC be above a half, or there is nothing to lose
LOST = 0.02  # AUC: who loses less than this is not looked at again
MOST = 400  # columns of the linear model
INDICATORS = 1_600  # of the linear model, about: inverting takes a second
RIDGE = 1e-2  # per row

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Predictions:
    """Scores of the columns that were predicted, and how many columns the linear model
    looked at.
    """

    figures: tuple[Figure, ...] = ()
    looked_at: int = 0


def predict_columns(
    schema: Schema,
    tables: Mapping[str, tuple[Codes, Values]],
    pairs: Sequence[StrongPair],
    *,
    few: int = FEW,
    but: str | None = None,
    seed: int = 0,
) -> Predictions:
    """AUC and accuracy for each of a few columns, `What.column` says which. `tables`
    are "real", "synthetic" and, where there are rows that no training saw, "held-out";
    `pairs` are columns that depend on each other, strongest first; `but` is predicted
    elsewhere.
    """
    by_strength = [name for name in _by_strength(pairs) if name != but]
    others = [name for name in schema.names if name not in by_strength and name != but]
    looked_at, losses = _linear_losses(
        schema, tables, [*by_strength, *others][:MOST], seed
    )
    off_most = sorted(
        (name for name in losses if losses[name] > LOST), key=lambda name: -losses[name]
    )
    predicted: dict[str, list[Figure]] = {}
    for names in (by_strength, off_most):
        before = len(predicted)
        for name in names:
            if len(predicted) == before + few:
                break
            if name in predicted:
                continue
            found = _predicted(schema, tables, schema.names.index(name), seed)
            if found:
                predicted[name] = [
                    replace(figure, what=replace(figure.what, column=name))
                    for figure in found
                ]
    return Predictions(
        tuple(figure for found in predicted.values() for figure in found), looked_at
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
    some = {name: _some_rows(table, rng) for name, table in tables.items()}
    places = [schema.names.index(name) for name in names]
    classes = {
        place: found
        for place in places
        if (found := _classes(schema, some, place)) is not None
    }
    if (
        len(places) < 2
        or not classes
        or any(len(codes) < 2 for codes, _ in some.values())
    ):
        return 0, {}
    most = max(2, min(16, INDICATORS // len(places)))
    groups = [_groups(schema, some["real"][0], place, most) for place in places]
    features = {
        name: np.concatenate(
            [
                np.eye(most)[own[codes[:, place]]]
                for own, place in zip(groups, places, strict=True)
            ],
            1,
        )
        for name, (codes, _) in some.items()
    }
    indicators = {
        name: [_indicators(own[name], own) for own in classes.values()] for name in some
    }
    parts = {
        name: (features[name], np.concatenate(indicators[name], 1)) for name in some
    }
    if "held-out" not in parts:
        order = rng.permutation(len(features["real"]))
        test, train = np.split(order, [max(1, len(order) // 5)])
        whole = parts["real"]
        parts |= {
            "real": (whole[0][train], whole[1][train]),
            "held-out": (whole[0][test], whole[1][test]),
        }
    widths = [one.shape[1] for one in indicators["real"]]
    own = [np.arange(most) + most * places.index(place) for place in classes]
    unseen, truth = parts["held-out"]
    aucs = {}
    for name in ("real", "synthetic"):
        scores = _left_out(*parts[name], own, widths, unseen)
        aucs[name] = [
            _auc(score, answer)
            for score, answer in zip(scores, _cut(truth, widths), strict=True)
        ]
    losses = {}
    for place, real, synthetic in zip(
        classes, aucs["real"], aucs["synthetic"], strict=True
    ):
        if real >= 0.5 + LEARNED:
            losses[schema.names[place]] = real - synthetic
    return len(classes), losses


def _some_rows(
    table: tuple[Codes, Values], rng: np.random.Generator
) -> tuple[Codes, Values]:
    codes, values = table
    if len(codes) <= LINEAR_ROWS:
        return table
    rows = rng.choice(len(codes), LINEAR_ROWS, replace=False)
    return codes[rows], values[rows]


def _groups(schema: Schema, codes: Codes, place: int, most: int) -> NDArray[np.int64]:
    """The feature of each level: neighbours of about as many rows each; of texts the
    most frequent alone.
    """
    column = schema.columns[place]
    often = np.bincount(codes[:, place], minlength=column.size)
    if isinstance(column, Binned) and column.size > most:
        there = often[: column.levels]
        middle = (np.cumsum(there) - there / 2) / max(1, there.sum())
        group = (middle * (most - 1)).astype(np.int64)
        return np.append(group, np.full(column.size - column.levels, most - 1))
    rank = np.empty(column.size, dtype=np.int64)
    rank[np.argsort(-often, kind="stable")] = np.arange(column.size)
    return np.minimum(rank, most - 1)


def _indicators(
    classes: NDArray[np.int64], every: Mapping[str, NDArray[np.int64]]
) -> Numbers:
    """One column for each class; a row without a class has none."""
    several = 1 + int(max(own.max(initial=0) for own in every.values()))
    found = np.eye(several + 1)[classes]  # −1 is the last
    return np.asarray(found[:, :several])


def _left_out(
    features: Numbers,
    targets: Numbers,
    own: Sequence[NDArray[np.int64]],
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
    every = inverse @ (centred.T @ (targets - targets.mean(0)))
    found = []
    for features_of, solution in zip(own, _cut(every, widths), strict=True):
        block = inverse[:, features_of]
        rest = solution - block @ np.linalg.solve(
            block[features_of], solution[features_of]
        )
        found.append((unseen - middle) @ rest)
    return found


def _cut(columns: Numbers, widths: Sequence[int]) -> list[Numbers]:
    return np.split(columns, np.cumsum(widths)[:-1], axis=1)


def _auc(scores: Numbers, truth: Numbers) -> float:
    """The mean over classes of one against the rest, of rows that have a class; a half
    where there is only one.
    """
    known = truth.any(axis=1)
    ranks = rankdata(scores[known], axis=0)
    truth = truth[known]
    inside = truth.sum(0)
    outside = len(truth) - inside
    held = (inside > 0) & (outside > 0)
    if not held.any():
        return 0.5
    above = (ranks * truth).sum(0) - inside * (inside + 1) / 2
    return float((above[held] / (inside * outside)[held]).mean())


def _by_strength(pairs: Sequence[StrongPair]) -> list[str]:
    """Columns by the strongest pair that each is in, first one of each pair of which
    neither was in a stronger one.
    """
    first: list[str] = []
    seen: set[str] = set()
    for pair in pairs:
        if not seen & {pair.one, pair.other}:
            first.append(pair.other)
        seen |= {pair.one, pair.other}
    others = (name for pair in pairs for name in (pair.other, pair.one))
    return list(dict.fromkeys([*first, *others]))


def _predicted(
    schema: Schema, tables: Mapping[str, tuple[Codes, Values]], place: int, seed: int
) -> list[Figure]:
    sizes = [
        column.size for number, column in enumerate(schema.columns) if number != place
    ]
    classes = _classes(schema, tables, place)
    if classes is None:
        return []
    parts = {}
    for name, (codes, _) in tables.items():
        known = classes[name] >= 0
        parts[name] = Examples(
            np.delete(codes[known], place, axis=1), classes[name][known]
        )
    if "held-out" not in parts:
        parts["real"], parts["held-out"] = parts["real"].split(
            np.random.default_rng([seed, 8])
        )
    several = int(max(own.max(initial=0) for own in classes.values())) + 1
    found = downstream(
        parts["real"],
        parts["synthetic"],
        parts["held-out"],
        sizes,
        classes=several,
        models=(QUICK,),
        rows=ROWS,
        seed=seed,
    )
    return [figure for figure in found if figure.what.score in ("auc", "acc")]


def _classes(
    schema: Schema, tables: Mapping[str, tuple[Codes, Values]], place: int
) -> dict[str, NDArray[np.int64]] | None:
    """The class of each row in each table, −1 where there is none; None where real rows
    are nearly all of one.
    """
    column = schema.columns[place]
    if isinstance(column, Binned):
        middle = _middle(tables["real"][1][:, place])
        if middle is None:
            return None
        found = {}
        for name, (_, values) in tables.items():
            own = values[:, place]
            found[name] = np.where(np.isnan(own), -1, own > middle).astype(np.int64)
        return found
    codes = tables["real"][0][:, place]
    often = np.bincount(codes, minlength=column.size) / max(1, len(codes))
    kept = np.flatnonzero(often >= RARE)
    if len(kept) < 2:
        return None
    # all others are one class
    numbers = np.full(column.size, len(kept), dtype=np.int64)
    numbers[kept] = np.arange(len(kept))
    return {name: numbers[own[:, place]] for name, (own, _) in tables.items()}


def _middle(values: Values) -> float | None:
    """The number that parts the real ones most evenly; None where nearly all are the
    same.
    """
    different, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    if len(different) < 2:
        return None
    below = np.cumsum(counts)[:-1] / counts.sum()
    best = int(np.abs(below - 0.5).argmin())
    return float(different[best]) if RARE <= below[best] <= 1 - RARE else None
