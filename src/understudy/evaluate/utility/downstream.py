"""Downstream models: train on synthetic rows, test on real ones (TSTR), against train
on real (TRTR).

Zhang, master's thesis (TUM 2022), §5.2.1 (MLP with 100 hidden units, AdaBoost with 50
steps; accuracy and AUC); Jiang, dissertation (TUM 2024), §4.5.2 (random forest);
gradient boosting and a linear model (logistic or ridge regression) besides. A TSTR
figure stands between a naive guess (the class shares or the mean of the real training
rows) and TRTR.
Differs from the papers: multi-class AUC is one class against the rest, averaged over
the classes that the test rows hold (the thesis averages pairs of classes); balanced
accuracy, macro-F1, Brier's score and regression besides; both trainings use at most
`rows` rows, drawn by the seed; the MLP stops early on a tenth of its rows from 5,000
rows on; gradient boosting grows about 100 trees in all, not per class. Features: level
numbers for trees (missing is the last level), indicators of all levels for the others.
Accuracy and AUC carry the standard deviation of TSTR − TRTR over test rows (DeLong et
al., Biometrics 1988).

Edges: a class that the synthetic rows lack gets probability 0; a single class is
predicted always; a constant real target, no features or too few rows → figures with a
reason. What scikit-learn warns of stands in the note.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import rankdata
from sklearn import ensemble
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score, recall_score, roc_auc_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from understudy.evaluate.figure import Better, Figure, FigureKey
from understudy.evaluate.utility.marginals import Codes
from understudy.ground.check import one_of, whole

Scores = dict[str, float | str]
"""A number for each score, or the reason why there is none."""

MODELS = ("mlp", "forest", "adaboost", "boosting", "linear")
QUICK = "quick"  # gradient boosting of few small trees: for columns that nobody named
# gradient boosting of more trees on the numbers themselves: what bins do not show
BY_VALUES = "values"
ON_INDICATORS = ("mlp", "linear")
# rows from which a tenth of them says reliably when the MLP no longer improves
EARLY_STOPPING_ROWS = 5_000
SCORES = {
    "classification": ("acc", "bal_acc", "f1", "brier", "auc"),
    "regression": ("r2", "mae"),
}


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows to learn from or test on: features, as level numbers or, for `BY_VALUES`, as
    values (NaN: missing), and the target, a class number or a number.
    """

    features: NDArray[Any]
    target: NDArray[Any]

    def __len__(self) -> int:
        return len(self.target)

    def take(self, rows: NDArray[np.integer[Any]] | slice) -> "Examples":
        return Examples(self.features[rows], self.target[rows])

    def sample(self, max_rows: int, rng: np.random.Generator) -> "Examples":
        return (
            self
            if len(self) <= max_rows
            else self.take(rng.choice(len(self), max_rows, replace=False))
        )

    def split(
        self, rng: np.random.Generator, share: float = 0.2
    ) -> tuple["Examples", "Examples"]:
        order = rng.permutation(len(self))
        cut = max(1, round(share * len(self)))
        return self.take(order[cut:]), self.take(order[:cut])


def downstream(
    real: Examples,
    synthetic: Examples,
    test: Examples,
    sizes: Sequence[int],
    *,
    classes: int | None,
    models: Sequence[str] = MODELS,
    rows: int = 20_000,
    seed: int = 0,
) -> tuple[Figure, ...]:
    """One figure per model and score, like `tstr_mlp_acc`, up to TRTR; `sizes`: levels;
    `classes`: None: numbers.
    """
    whole(rows=rows)
    for model in models:
        one_of((*MODELS, QUICK, BY_VALUES), model=model)
    reason = _untrainable_reason(real, synthetic, test)
    if reason:
        return absent_figures(reason, models=models, classes=classes)
    rng = np.random.default_rng([seed, 0])
    trains = (real.sample(rows, rng), synthetic.sample(rows, rng))
    test = test.sample(rows, rng)
    note = (
        f"trained on {len(trains[0]):,} of {len(real):,} real and {len(trains[1]):,} "
        f"of {len(synthetic):,} synthetic rows, tested on {len(test):,} real rows"
    )
    if classes is None:
        score = partial(regression_scores, test.target)
        naive = score(np.full(len(test), trains[0].target.mean()))
    else:
        score = partial(classification_scores, test.target)
        shares = np.bincount(trains[0].target, minlength=classes) / len(trains[0])
        naive = score(np.tile(shares, (len(test), 1)))
    figures: list[Figure] = []
    for model in models:
        (trtr, trtr_guess, trtr_warnings), (tstr, tstr_guess, tstr_warnings) = (
            score_model(model, train, test.features, sizes, classes, seed, score)
            for train in trains
        )
        remarks = [f"TRTR: {text}" for text in trtr_warnings] + [
            f"TSTR: {text}" for text in tstr_warnings
        ]
        deviations = (
            {}
            if classes is None or trtr_guess is None or tstr_guess is None
            else difference_deviations(test.target, trtr_guess, tstr_guess)
        )
        figures += tstr_figures(
            model, tstr, trtr, naive, "; ".join([note, *remarks]), deviations
        )
    return tuple(figures)


def absent_figures(
    reason: str, *, models: Sequence[str] = MODELS, classes: int | None
) -> tuple[Figure, ...]:
    """The figures of `downstream`, all with one reason."""
    scores = SCORES["regression" if classes is None else "classification"]
    names = [
        FigureKey("tstr", part=model, score=score)
        for model in models
        for score in scores
    ]
    return tuple(
        Figure.absent(key, reason, better=better_when(key.score)) for key in names
    )


def classification_scores(
    truth: NDArray[np.integer[Any]], probabilities: NDArray[np.floating[Any]]
) -> Scores:
    """Accuracy, balanced accuracy, macro-F1, Brier's score and AUC of class
    probabilities, (rows, classes). Brier's is half the squared error of a row's
    probabilities: 0 to 1, with two classes (p − y)².
    """
    guess = probabilities.argmax(axis=1)
    classes = np.unique(truth)
    happened = np.arange(probabilities.shape[1]) == truth[:, None]
    scores: Scores = {
        "acc": float(accuracy_score(truth, guess)),
        "bal_acc": float(recall_score(truth, guess, labels=classes, average="macro")),
        "f1": float(f1_score(truth, guess, average="macro")),
        "brier": float(np.square(probabilities - happened).sum(1).mean() / 2),
    }
    if len(classes) < 2:
        return scores | {"auc": "the test rows hold only one class."}
    return scores | {
        "auc": float(
            roc_auc_score(truth[:, None] == classes, probabilities[:, classes])
        )
    }


def difference_deviations(
    truth: NDArray[np.integer[Any]],
    real: NDArray[np.floating[Any]],
    synthetic: NDArray[np.floating[Any]],
) -> dict[str, float]:
    """The standard deviations of the differences in accuracy and AUC of two models that
    were tested on the same rows: of the mean over rows of what each row adds to them.
    """
    influences = {
        "acc": (synthetic.argmax(axis=1) == truth) * 1.0
        - (real.argmax(axis=1) == truth)
    }
    classes = np.unique(truth)
    if len(classes) >= 2:
        influences["auc"] = np.mean(
            [
                _auc_influence(truth == label, synthetic[:, label])
                - _auc_influence(truth == label, real[:, label])
                for label in classes
            ],
            axis=0,
        )
    return {
        score: float(influence.std() / np.sqrt(len(truth)))
        for score, influence in influences.items()
    }


def _auc_influence(
    positive: NDArray[np.bool_], guess: NDArray[np.floating[Any]]
) -> NDArray[np.float64]:
    """What each row adds to the AUC of one class: the share of rows of the other kind
    that it is on the right side of, weighted by how few are of its own kind.
    """
    ranks = rankdata(guess)
    influence = np.empty(len(guess))
    for kind in (positive, ~positive):
        others_below = (ranks[kind] - rankdata(guess[kind])) / (~kind).sum()
        placed_right = others_below if kind is positive else 1 - others_below
        influence[kind] = (placed_right - placed_right.mean()) / kind.mean()
    return influence


def regression_scores(truth: NDArray[Any], guess: NDArray[Any]) -> Scores:
    spread = float(((truth - truth.mean()) ** 2).sum())
    r2 = (
        1 - float(((truth - guess) ** 2).sum()) / spread
        if spread
        else "the test rows hold only one value."
    )
    return {"r2": r2, "mae": float(np.abs(truth - guess).mean())}


def _untrainable_reason(real: Examples, synthetic: Examples, test: Examples) -> str:
    """Why nothing can be learned or tested, or nothing."""
    for name, part in (
        ("real training", real),
        ("synthetic", synthetic),
        ("real test", test),
    ):
        if not len(part):
            return f"no {name} row has a target."
    if not real.features.shape[1]:
        return "the table has no column except the target."
    if (real.target == real.target[0]).all():
        return (
            "the target is constant in the real training rows: there is nothing to "
            "learn."
        )
    return ""


def score_model(
    model: str,
    train: Examples,
    test: NDArray[Any],
    sizes: Sequence[int],
    classes: int | None,
    seed: int,
    score: Callable[[NDArray[Any]], Scores],
) -> tuple[Scores, NDArray[np.float64] | None, list[str]]:
    """The scores of a model trained on `train`, or one reason for all of them; what it
    guessed, and what it warned of.
    """

    def features(codes: NDArray[Any]) -> Any:
        if model == BY_VALUES:
            return codes
        return (
            indicators(codes, sizes)
            if model in ON_INDICATORS
            else codes.astype(np.float32)
        )

    # Batches are small: threads that wait for each other made these models up to five
    # times slower.
    with warnings.catch_warnings(record=True) as heard, _pools().limit(limits=1):
        warnings.simplefilter("always")
        try:
            guess = _predict(
                model, train, features(train.features), features(test), classes, seed
            )
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            kind = "regression" if classes is None else "classification"
            reason = f"{model} could not be trained: {_first_line(error)}"
            return dict.fromkeys(SCORES[kind], reason), None, []
        scores = score(guess)
    remarks = dict.fromkeys(
        f"{w.category.__name__} ({_first_line(w.message)})" for w in heard
    )
    if classes is not None and (missing := classes - len(np.unique(train.target))):
        remarks[f"{missing} of {classes} classes have no training row"] = None
    return scores, guess, list(remarks)


@cache
def _pools() -> ThreadpoolController:
    """The pools of threads of the libraries above. To look for them takes 15 ms."""
    return ThreadpoolController()


def _predict(
    model: str,
    train: Examples,
    features: Any,
    test: Any,
    classes: int | None,
    seed: int,
) -> NDArray[np.float64]:
    """Class probabilities (rows, classes), or numbers (rows,), for the test rows."""
    if classes is None:
        fitted = _regressor(model, len(train), seed % (1 << 32)).fit(
            features, train.target
        )
        return np.asarray(fitted.predict(test), dtype=float)
    guess = np.zeros((test.shape[0], classes))
    present, counts = np.unique(train.target, return_counts=True)
    if len(present) == 1:
        guess[:, present] = 1
        return guess
    stop_early = bool(
        counts.min() >= 2 and len(train) >= max(EARLY_STOPPING_ROWS, 10 * len(present))
    )
    fitted = _classifier(model, classes, stop_early, seed % (1 << 32)).fit(
        features, train.target
    )
    guess[:, present] = fitted.predict_proba(test)
    return guess


def _classifier(model: str, classes: int, stop_early: bool, seed: int) -> Any:
    match model:
        case "mlp":
            return MLPClassifier(
                hidden_layer_sizes=(100,),
                early_stopping=stop_early,
                n_iter_no_change=5,
                random_state=seed,
            )
        case "forest":
            return ensemble.RandomForestClassifier(100, n_jobs=-1, random_state=seed)
        case "adaboost":
            return ensemble.AdaBoostClassifier(n_estimators=50, random_state=seed)
        case "boosting":
            # each step grows a tree per class
            steps = 100 if classes == 2 else max(10, 100 // classes)
            return ensemble.HistGradientBoostingClassifier(
                max_iter=steps, early_stopping=False, random_state=seed
            )
        case "quick":
            steps = 25 if classes == 2 else max(8, 50 // classes)
            return ensemble.HistGradientBoostingClassifier(
                learning_rate=0.2,
                max_iter=steps,
                max_leaf_nodes=12,
                early_stopping=False,
                random_state=seed,
            )
        case "values":
            steps = 30 if classes <= 3 else max(10, 90 // classes)
            return ensemble.HistGradientBoostingClassifier(
                learning_rate=0.2,
                max_iter=steps,
                early_stopping=False,
                random_state=seed,
            )
    return LogisticRegression(max_iter=200)


def _regressor(model: str, rows: int, seed: int) -> Any:
    match model:
        case "mlp":
            network = MLPRegressor(
                hidden_layer_sizes=(100,),
                early_stopping=rows >= EARLY_STOPPING_ROWS,
                random_state=seed,
            )
            return TransformedTargetRegressor(network, transformer=StandardScaler())
        case "forest":
            return ensemble.RandomForestRegressor(
                100, max_features="sqrt", n_jobs=-1, random_state=seed
            )
        case "adaboost":
            return ensemble.AdaBoostRegressor(n_estimators=50, random_state=seed)
        case "boosting":
            return ensemble.HistGradientBoostingRegressor(
                early_stopping=False, random_state=seed
            )
    return Ridge()


def indicators(codes: Codes, sizes: Sequence[int]) -> csr_array:
    """One-hot rows as a sparse matrix, float32, (rows, sum of sizes)."""
    rows, columns = codes.shape
    indices = (codes + np.cumsum([0, *sizes[:-1]])).ravel().astype(np.int32)
    ends = np.arange(rows + 1, dtype=np.int32) * columns
    return csr_array(
        (np.ones(indices.size, np.float32), indices, ends), shape=(rows, sum(sizes))
    )


def tstr_figures(
    model: str,
    tstr: Scores,
    trtr: Scores,
    naive: Scores,
    note: str,
    deviations: Mapping[str, float],
) -> list[Figure]:
    """The TSTR scores of a model as figures between the naive guess and TRTR."""
    figures = []
    for score, value in tstr.items():
        key = FigureKey("tstr", part=model, score=score)
        better = better_when(score)
        if isinstance(value, str):
            figures.append(Figure.absent(key, value, better=better))
            continue
        ends = [
            end if isinstance(end, float) else None
            for end in (naive[score], trtr[score])
        ]
        floor, ceiling = ends if better == "higher" else ends[::-1]
        figures.append(
            Figure(
                key,
                value=value,
                floor=floor,
                ceiling=ceiling,
                better=better,
                note=note,
                deviation=deviations.get(score),
            )
        )
    return figures


def better_when(score: str) -> Better:
    return "lower" if score in ("brier", "mae") else "higher"


def _first_line(message: object) -> str:
    return str(message).strip().split("\n", 1)[0].rstrip(".")
