"""What a model learns of a few columns from all others, where nobody named one to predict (TSTR, as in `downstream`).

The columns are those that depend most on others in the real rows. Gradient boosting of few trees learns each from
synthetic rows and from real ones, and both are tested on real rows that neither learned from. A number is predicted as
a question: is it above the middle?

Edges: a column that is (nearly) constant in the real rows, and a table without dependence → nothing is predicted. At
most `ROWS` rows are learned from and tested on, so that all of it takes seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from understudy.data.column import Binned
from understudy.data.schema import Schema
from understudy.evaluate.figure import Figure, StrongPair
from understudy.evaluate.utility.downstream import QUICK, Examples, downstream
from understudy.evaluate.utility.marginals import Codes
from understudy.evaluate.utility.values import Values

FEW = 3  # columns that are predicted
ROWS = 3_000
RARE = 0.02  # a class that so few real rows are of is merged with the other rare ones, or makes a column constant


def predict_columns(
    schema: Schema, tables: Mapping[str, tuple[Codes, Values]], pairs: Sequence[StrongPair], *, few: int = FEW,
    but: str | None = None, seed: int = 0,
) -> tuple[Figure, ...]:  # fmt: skip
    """AUC and accuracy for each of a few columns, `What.column` says which. `tables` are "real", "synthetic" and, where
    there are rows that no training saw, "held-out"; `pairs` are columns that depend on each other, strongest first;
    `but` is predicted elsewhere.
    """
    predicted: list[list[Figure]] = []
    for name in _by_strength(pairs):
        if len(predicted) == few:
            break
        if name == but:
            continue
        found = _predicted(schema, tables, schema.names.index(name), seed)
        if found:
            predicted.append([replace(figure, what=replace(figure.what, column=name)) for figure in found])
    return tuple(figure for found in predicted for figure in found)


def _by_strength(pairs: Sequence[StrongPair]) -> list[str]:
    """Columns by the strongest pair that each is in, first one of each pair of which neither was in a stronger one."""
    first: list[str] = []
    seen: set[str] = set()
    for pair in pairs:
        if not seen & {pair.one, pair.other}:
            first.append(pair.other)
        seen |= {pair.one, pair.other}
    others = (name for pair in pairs for name in (pair.other, pair.one))
    return list(dict.fromkeys([*first, *others]))


def _predicted(schema: Schema, tables: Mapping[str, tuple[Codes, Values]], place: int, seed: int) -> list[Figure]:
    sizes = [column.size for number, column in enumerate(schema.columns) if number != place]
    classes = _classes(schema, tables, place)
    if classes is None:
        return []
    parts = {}
    for name, (codes, _) in tables.items():
        known = classes[name] >= 0
        parts[name] = Examples(np.delete(codes[known], place, axis=1), classes[name][known])
    if "held-out" not in parts:
        parts["real"], parts["held-out"] = parts["real"].split(np.random.default_rng([seed, 8]))
    several = int(max(own.max(initial=0) for own in classes.values())) + 1
    found = downstream(
        parts["real"], parts["synthetic"], parts["held-out"], sizes, classes=several, models=(QUICK,), rows=ROWS,
        seed=seed,
    )  # fmt: skip
    return [figure for figure in found if figure.what.score in ("auc", "acc")]


def _classes(
    schema: Schema, tables: Mapping[str, tuple[Codes, Values]], place: int
) -> dict[str, NDArray[np.int64]] | None:
    """The class of each row in each table, −1 where there is none; None where real rows are nearly all of one."""
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
    numbers = np.full(column.size, len(kept), dtype=np.int64)  # all others are one class
    numbers[kept] = np.arange(len(kept))
    return {name: numbers[own[:, place]] for name, (own, _) in tables.items()}


def _middle(values: Values) -> float | None:
    """The number that parts the real ones most evenly; None where nearly all are the same."""
    different, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    if len(different) < 2:
        return None
    below = np.cumsum(counts)[:-1] / counts.sum()
    best = int(np.abs(below - 0.5).argmin())
    return float(different[best]) if RARE <= below[best] <= 1 - RARE else None
