"""Membership inference by shadow models: a classifier that has seen what a target does to a synthetic table.

Stadler, Oprisanu, Troncoso, "Synthetic data – anonymisation groundhog day" (USENIX Security 2022), as in
Jiang, dissertation (TUM 2024), §4.5.3. For each target the attacker trains pairs of generators on reference
rows with and without it, describes the tables that they make by features, and learns to tell them apart; then
it is given tables from fresh generators and says whether the target was in.
Paper → code: G_in, G_out → `make` on rows with and without the target; F_naive, F_hist, F_corr → `FEATURES`.
Differs from the papers: the reference is cut in two, so that the attacker's shadows and the tables under attack
share no row; every table under attack is made anew, so that guesses are independent; the attacker chooses its
classifier (logistic or forest) by what it says of shadows of its own that it has not learned from, where the
dissertation reports the best of all classifiers on the tables under attack, above ½ by luck alone; a fourth set
of features, how many rows lie within each Hamming distance of the target; the two tables of a pair come from as
many rows, another row standing in the target's place, or the size alone would tell; and a control: tables
without the target, taken for tables with it. Test: other choices, for each target, of the tables that have it.

`make(rows, seed)` trains a generator on the rows and returns a synthetic table. It is called
`pairs` + targets·(`pairs` + 3·`trials`) times.

Edges: targets must not be among the reference rows; no target or too few reference rows → the reason.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from understudy.data.encoding.codec import Codec
from understudy.evaluate.attacks.attack import Attack, Measure
from understudy.evaluate.attacks.rates import Floats, Rate, above, auc, difference, exact, luck, sums, tpr
from understudy.evaluate.figure import What
from understudy.evaluate.utility.association import pearson
from understudy.evaluate.utility.marginals import Codes
from understudy.ground.check import one_of, whole
from understudy.ground.errors import ConfigError

Make = Callable[[pd.DataFrame, int], pd.DataFrame]

FEATURES = ("naive", "histogram", "correlation", "near")
_TREES = 50


@dataclass(frozen=True)
class Target:
    """How often a table with the target (`tpr`) and one without (`fpr`) was said to hold it."""

    tpr: Rate
    fpr: Rate

    @property
    def advantage(self) -> Rate:
        """tpr − fpr: 0 for a guess, 1 for certainty."""
        return difference(self.tpr, self.fpr)


@dataclass(frozen=True, kw_only=True)
class Shadow:
    """The attack over all targets, and each target by itself, in their order."""

    attack: Attack
    targets: tuple[Target, ...] = ()


def shadow(
    make: Make,
    reference: pd.DataFrame,
    targets: pd.DataFrame,
    codec: Codec,
    *,
    rows: int | None = None,
    pairs: int = 10,
    trials: int = 10,
    features: Sequence[str] = FEATURES,
    seed: int = 0,
) -> Shadow:
    """Attack every target with `pairs` pairs of shadows, on `trials` tables with it and `trials` without.

    Each generator is trained on `rows` rows (as many as a quarter of the reference), the target one of them or not.
    """
    whole(pairs=pairs, trials=trials)
    for feature in features:
        one_of(FEATURES, feature=feature)
    rows = max(1, len(reference) // 4) if rows is None else rows
    whole(rows=rows)
    if pairs < 2:
        raise ConfigError("a classifier needs at least 2 pairs of shadows to be chosen by, not 1.")
    if not len(targets) or len(reference) // 2 < rows:
        half = f"either side needs {rows} reference rows, and half of the reference are {len(reference) // 2}."
        why = half if len(targets) else "there is no target."
        return Shadow(attack=Attack.absent(What("shadow"), why))
    people = codec.codes(targets)
    worlds = _Worlds(make, pd.concat([reference, targets], ignore_index=True), codec, len(reference), rows, seed)
    without = [*worlds.tables(worlds.attackers, pairs)]
    scores = []
    for number, person in enumerate(people):
        see = partial(_described, person=person, sizes=codec.sizes, features=features)
        shadows = see([*without, *worlds.tables(worlds.attackers, pairs, number)])
        classify = _learn(shadows, np.repeat([0, 1], pairs), seed)
        scores.append([classify(see(worlds.tables(worlds.holders, trials, who))) for who in (number, None, None)])
    note = f"{len(people)} targets, {pairs} pairs of shadows on {rows:,} rows, {trials} trials a target"
    inside, outside, control = np.array(scores).transpose(1, 0, 2)  # each (targets, trials)
    return _result(inside, outside, control, note)


class _Worlds:
    """Draws of training rows, each turned into a synthetic table: half of the reference for either side."""

    def __init__(self, make: Make, frame: pd.DataFrame, codec: Codec, reference: int, rows: int, seed: int) -> None:
        self.make, self.frame, self.codec, self.reference, self.rows = make, frame, codec, reference, rows
        self.rng = np.random.default_rng([seed, 0])
        order = self.rng.permutation(reference)
        self.attackers, self.holders = order[: reference // 2], order[reference // 2 :]

    def tables(self, side: NDArray[np.int64], count: int, target: int | None = None) -> Iterator[Codes]:
        """Tables from generators trained on rows of this side, the target in place of one where it is named."""
        for _ in range(count):
            picks = self.rng.choice(side, self.rows, replace=False)
            if target is not None:
                picks[self.rng.integers(self.rows)] = self.reference + target
            seed = int(self.rng.integers(1 << 31))
            table = self.codec.codes(self.make(self.frame.iloc[picks].reset_index(drop=True), seed))
            if not len(table):
                raise ConfigError(f"make returned a table without rows, from {self.rows} rows and seed {seed}.")
            yield table


def describe(table: Codes, person: Codes, sizes: Sequence[int], features: Sequence[str] = FEATURES) -> Floats:
    """A table in numbers, as an attacker who looks for this person would see it."""
    counts = [np.bincount(column, minlength=size) for column, size in zip(table.T, sizes, strict=True)]
    parts: list[Floats] = []
    if "naive" in features:
        common = [(c.argmax(), np.where(c > 0, c, len(table) + 1).argmin(), (c > 0).sum()) for c in counts]
        parts += [table.mean(axis=0), table.var(axis=0), np.array(common, dtype=float).ravel()]
    if "histogram" in features:
        parts.append(np.concatenate(counts) / len(table))
    if "correlation" in features:
        parts.append(pearson(table)[0][np.triu_indices(table.shape[1], 1)])
    if "near" in features:
        unlike = np.bincount((table != person).sum(axis=1), minlength=table.shape[1] + 1)
        parts.append(np.cumsum(unlike)[:-1] / len(table))
    return np.concatenate(parts)


def _described(tables: Iterable[Codes], **how: Any) -> Floats:
    return np.stack([describe(table, **how) for table in tables])


def _learn(learn: Floats, labels: NDArray[np.int64], seed: int) -> Callable[[Floats], Floats]:
    """The better of two classifiers by its own shadows, as a function from features to P(target in)."""
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    folds = StratifiedKFold(min(5, len(labels) // 2))
    unseen = cross_val_predict(linear, learn, labels, cv=folds, method="predict_proba")[:, 1]
    chosen = linear.fit(learn, labels)
    if (mark := roc_auc_score(labels, unseen)) < 1:
        forest = RandomForestClassifier(_TREES, oob_score=True, random_state=seed % (1 << 32)).fit(learn, labels)
        if roc_auc_score(labels, forest.oob_decision_function_[:, 1]) > mark:
            chosen = forest
    return lambda features: np.asarray(chosen.predict_proba(features)[:, 1], dtype=float)


def _result(inside: Floats, outside: Floats, other: Floats, note: str) -> Shadow:
    """Scores of (targets, trials) tables with the target, without it, and once more without it."""
    said, unsaid, misled = (np.where(s == 0.5, 0.5, s > 0.5) for s in (inside, outside, other))
    trials = inside.size
    right, luck_alone = (exact(float(yes.sum() + (1 - unsaid).sum()), 2 * trials) for yes in (said, misled))
    pair, same = (inside.ravel(), outside.ravel()), (other.ravel(), outside.ravel())
    said_so = np.concatenate([said.ravel(), misled.ravel()]).astype(float)
    values = sums(said_so, *above(np.concatenate([pair[0], same[0]]), outside.ravel()))
    target = np.tile(np.repeat(np.arange(len(inside)), inside.shape[1]), 2)
    found = luck(values, np.arange(2 * trials) < trials, strata=target)
    measures = (
        Measure("acc", right, luck_alone, Rate.known(0.5), found[0]),
        Measure("auc", auc(*pair), auc(*same), Rate.known(0.5), found[1]),
        Measure("tpr_at_1pct", tpr(*pair), tpr(*same), Rate.known(0.01), found[2]),
    )
    each = tuple(
        Target(exact(float(yes.sum()), len(yes)), exact(float(no.sum()), len(no)))
        for yes, no in zip(said, unsaid, strict=True)
    )
    attack = Attack(what=What("shadow"), measures=measures, note=note, control=trials)
    return Shadow(attack=attack, targets=each)
