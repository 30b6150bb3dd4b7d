"""Membership by shadow models: an attacker who can run the generator's training.

Stadler, Oprisanu, Troncoso, "Synthetic Data – Anonymisation Groundhog Day" (USENIX
Security 2022), §4; X. Jiang, dissertation (TUM 2024), §4.5.3, Table 4.5. The attacker
knows the method, the target's row and rows of the same population. Training runs with
and without the target are the *shadow models*; classifiers learn from their tables what
a table looks like that knew the target, and are asked about tables of other runs.
Paper → code: reference dataset → `reference`, G_in and G_out → `release` on rows with
and without the target, attackers → `ATTACKERS`.

Differs from the papers: one shadow model serves all targets, each of whom takes part or
not by a lot of their own (Carlini et al., S&P 2022), which saves nearly all training.
What is learned of a table is how frequent the target's levels are in it (Stadler's
histogram, as far as the target is in it) and how near its rows come to the target.
`acc`, `auc` and `tpr_at_1pct` are of the mean rank over all attackers. `highest` is the
dissertation's figure: of each target, the accuracy of the attacker that did best. It is
above ½ where nothing leaks, for the best of several is chosen after the fact; only its
distance to the control says something. Control: the same tables and attackers, who
learn from lots by which nobody took part.
Test: other lots of each target among the tested tables.

Guarantee: none. `release` sees rows, and whoever runs the attack must hold them.
Edges: no target, no column, too few reference rows or tables → the reason.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from understudy.evaluate.attacks.attack import Attack, Measure, ranking
from understudy.evaluate.attacks.rates import (
    Assignments,
    Floats,
    Rate,
    clopper_pearson,
    permutation_p_values,
)
from understudy.evaluate.figure import FigureKey
from understudy.evaluate.utility.distance import EncodedRows, Space
from understudy.evaluate.utility.marginals import Codes
from understudy.ground.check import whole

Release = Callable[[Codes, int], Codes]
"""Training rows and a seed → the synthetic table of a run."""
Lots = NDArray[np.bool_]
"""Who took part in which run: (runs, targets)."""
Classifier = Callable[[int], object]

ATTACKERS: dict[str, Classifier] = {  # the dissertation's list, 000:1543
    "svm": lambda _: SVC(),
    "logistic": lambda _: LogisticRegression(max_iter=200),
    "neighbours": lambda _: KNeighborsClassifier(3),
    "forest": lambda seed: RandomForestClassifier(20, random_state=seed),
    "network": lambda seed: MLPClassifier(
        (16,),
        solver="lbfgs",
        alpha=1.0,  # else weights fitted to a few dozen tables grow without end
        max_iter=50,
        random_state=seed,
    ),
}
# how near the nearest rows, and the usual ones, come to the target
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5)
MIN_RUNS = 4  # with the target and without, twice each


@dataclass(frozen=True)
class _Runs:
    """What is learned of the tables of some runs: one array of (runs, targets,
    features) for each kind of feature.
    """

    features: tuple[Floats, ...]
    lots: Lots


def shadow_models(
    release: Release,
    reference: Codes,
    targets: Codes,
    space: Space,
    *,
    rows: int,
    shadows: int = 32,
    tested: int = 32,
    seed: int = 0,
) -> Attack:
    """Attack `targets` through runs of `release` on `rows` rows: `shadows` to learn
    from, `tested` to be asked about.
    """
    whole(rows=rows, shadows=shadows, tested=tested)
    key = FigureKey("mia", part="shadows")
    reason = _missing_reason(
        reference,
        targets,
        rows,
        min(shadows, tested),
    )
    if reason:
        return Attack.absent(key, reason)
    rng = np.random.default_rng([seed, 0])
    known, asked = (
        _run_all(
            release,
            reference,
            targets,
            space,
            rows,
            2 * (runs // 2),
            rng,
        )
        for runs in (shadows, tested)
    )
    # lots that nobody followed: what is learned from them tells nothing
    fake_lots = _draw_lots(len(known.lots), len(targets), rng)
    scores = _scores(
        known.features,
        known.lots,
        asked.features,
        seed,
    )
    controls = _scores(
        known.features,
        fake_lots,
        asked.features,
        seed,
    )
    order = np.argsort(~asked.lots.ravel(), kind="stable")  # members first
    count = len(order) // 2
    strata = np.tile(np.arange(len(targets)), len(asked.lots))[order]
    hits, control = (
        _ranks(run_scores.mean(axis=0)).ravel()[order]
        for run_scores in (scores, controls)
    )
    measures = ranking(
        hits[:count],
        hits[count:],
        (control[:count], control[count:]),
        strata=strata,
        seed=seed,
    )
    highest = _measure_highest(
        scores,
        controls,
        asked.lots,
        order,
        strata,
        seed,
    )
    note = (
        f"{len(targets):,} targets, {len(known.lots)} shadow models and "
        f"{len(asked.lots)} tables of {rows:,} rows that were asked about"
    )
    return Attack(
        key=key,
        measures=(*measures, highest),
        note=note,
        control=count,
    )


def _missing_reason(
    reference: Codes,
    targets: Codes,
    rows: int,
    runs: int,
) -> str:
    if not len(targets):
        return "there are no targets."
    if not targets.shape[1]:
        return "there are no columns."
    if runs < MIN_RUNS:
        return f"there are {runs} shadow or tested runs and {MIN_RUNS} are needed."
    if rows < len(targets) or len(reference) < rows:
        return (
            f"{rows:,} rows of a run have to hold {len(targets):,} targets, and the "
            f"reference has {len(reference):,}."
        )
    return ""


def _draw_lots(
    runs: int,
    targets: int,
    rng: np.random.Generator,
) -> Lots:
    """Each target takes part in half of the runs, by lots of their own."""
    takes_part = np.arange(runs) < runs // 2
    lots = np.repeat(takes_part[:, None], targets, axis=1)
    return rng.permuted(lots, axis=0)


def _run_all(
    release: Release,
    reference: Codes,
    targets: Codes,
    space: Space,
    rows: int,
    runs: int,
    rng: np.random.Generator,
) -> _Runs:
    """Runs on as many rows each: the targets that take part, and reference rows."""
    lots = _draw_lots(runs, len(targets), rng)
    run_scores = []
    for takes_part in lots:
        others = rng.choice(
            len(reference),
            rows - int(takes_part.sum()),
            replace=False,
        )
        people = np.concatenate([targets[takes_part], reference[others]])
        table = release(rng.permutation(people), int(rng.integers(1 << 31)))
        run_scores.append(_features(table, targets, space))
    return _Runs(tuple(np.stack(kind) for kind in zip(*run_scores, strict=True)), lots)


def _features(
    table: Codes,
    targets: Codes,
    space: Space,
) -> tuple[Floats, Floats]:
    """How frequent each target's levels are, (targets, columns), and how near the
    table's rows come, (targets, quantiles).
    """
    shares = [
        (np.bincount(table[:, j], minlength=size) / len(table))[targets[:, j]]
        for j, size in enumerate(space.sizes)
    ]
    encoded = EncodedRows(table, space)
    nearness = [
        *encoded.map_distances(
            targets,
            lambda distances, _: np.quantile(distances, QUANTILES, axis=1).T,
        )
    ]
    return np.stack(shares, axis=1), np.concatenate(nearness) / space.width


def _scores(
    known: Sequence[Floats],
    lots: Lots,
    asked: Sequence[Floats],
    seed: int,
) -> Floats:
    """How much each table looks as if it knew each target, as ranks among the tables
    asked about: (attackers, tables, targets).
    """
    return np.stack(
        [
            _ranks(_guesses(make, learned, lots, tables, seed))
            for learned, tables in zip(known, asked, strict=True)
            for make in ATTACKERS.values()
        ]
    )


def _guesses(
    make: Classifier,
    learned: Floats,
    lots: Lots,
    tables: Floats,
    seed: int,
) -> Floats:
    """The scores by one attacker, who learns about each target by itself: (tables,
    targets).
    """
    scores = np.empty(tables.shape[:2])
    for target in range(tables.shape[1]):
        pipeline = make_pipeline(StandardScaler(), make(seed))
        with warnings.catch_warnings():
            # an attacker who stops early is an attacker
            warnings.simplefilter("ignore", ConvergenceWarning)
            pipeline.fit(learned[:, target], lots[:, target])
        if hasattr(pipeline, "decision_function"):
            scores[:, target] = pipeline.decision_function(tables[:, target])
        else:
            scores[:, target] = pipeline.predict_proba(tables[:, target])[:, 1]
    return scores


def _ranks(scores: Floats) -> Floats:
    """Among all tables, of each target: a score says nothing beside another target."""
    return np.asarray(rankdata(scores, axis=0), dtype=float)


def _measure_highest(
    scores: Floats,
    controls: Floats,
    lots: Lots,
    order: NDArray[np.int64],
    strata: NDArray[np.int64],
    seed: int,
) -> Measure:
    """The accuracy of each target's best attacker, on average over the targets."""
    called = _call_chances(scores)
    called_by_control = _call_chances(controls)
    place = np.argsort(order)

    def excess(assignments: Assignments) -> Floats:
        members = assignments[:, place].reshape(-1, *lots.shape)
        gain = _highest(called, members) - _highest(called_by_control, members)
        return gain[:, None]

    p_value = permutation_p_values(
        excess,
        np.arange(len(order)) < len(order) // 2,
        strata=strata,
        seed=seed,
    )[0]
    trials = len(order) // 2
    attack, control = (
        clopper_pearson(float(_highest(chances, lots[None])[0]) * trials, trials)
        for chances in (called, called_by_control)
    )
    return Measure(
        "highest",
        attack,
        control,
        Rate.from_exact(0.5),
        p_value,
    )


def _call_chances(scores: Floats) -> Floats:
    """How likely each table is among the better half of its target's, ties by lot."""
    half = scores.shape[1] // 2
    better = rankdata(-scores, method="min", axis=1) - 1
    tied = rankdata(-scores, method="max", axis=1) - better
    return np.asarray(np.clip(half - better, 0, tied) / tied, dtype=float)


def _highest(called: Floats, members: Assignments) -> Floats:
    """The share of members among those called, by the best attacker of each target:
    (draws,).
    """
    half = members.shape[1] // 2
    hits = np.einsum("dnt,ant->dat", members.astype(float), called)
    return np.asarray(hits.max(axis=1).mean(axis=1) / half, dtype=float)
