import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    balanced_accuracy_score,
    brier_score_loss,
    f1_score,
    r2_score,
    roc_auc_score,
)

from understudy.evaluate.utility.downstream import (
    MODELS,
    SCORES,
    Examples,
    classification_scores,
    difference_deviations,
    downstream,
    indicators,
    regression_scores,
)
from understudy.ground.errors import ConfigError

SIZES = [3, 3, 3, 3]
FAST = ("linear", "adaboost")


def examples(rows, seed, classes=2, noise=0.1):
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 3, (rows, 4))
    target = (features[:, 0] + features[:, 1]) * classes // 5
    return Examples(
        features,
        np.where(rng.random(rows) < noise, rng.integers(0, classes, rows), target),
    )


def by_name(figures):
    return {figure.name: figure for figure in figures}


@given(st.integers(2, 4), st.integers(4, 30), st.integers(0, 999))
@settings(max_examples=15, deadline=None)
def test_scores_equal_scikit_learns(classes, rows, seed):
    rng = np.random.default_rng(seed)
    truth = np.concatenate([np.arange(classes), rng.integers(0, classes, rows)])
    chances = rng.dirichlet(np.ones(classes), len(truth))
    guess = chances.argmax(axis=1)
    scores = classification_scores(truth, chances)
    assert scores["acc"] == pytest.approx((truth == guess).mean())
    assert scores["bal_acc"] == pytest.approx(balanced_accuracy_score(truth, guess))
    assert scores["f1"] == pytest.approx(f1_score(truth, guess, average="macro"))
    if classes == 2:
        assert scores["brier"] == pytest.approx(brier_score_loss(truth, chances[:, 1]))
    binary = (
        {"y_score": chances[:, 1]}
        if classes == 2
        else {"y_score": chances, "multi_class": "ovr"}
    )
    assert scores["auc"] == pytest.approx(roc_auc_score(truth, **binary))


def test_hand_computed_scores_with_a_class_that_the_test_rows_lack():
    truth = np.array([0, 0, 1, 1])
    chances = np.array(
        [[0.8, 0.1, 0.1], [0.1, 0.2, 0.7], [0.3, 0.6, 0.1], [0.2, 0.7, 0.1]]
    )
    scores = classification_scores(truth, chances)
    assert scores["acc"] == 0.75
    assert scores["bal_acc"] == 0.75  # recalls ½ and 1
    assert scores["f1"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert scores["brier"] == pytest.approx((0.06 + 1.34 + 0.26 + 0.14) / 4 / 2)
    # class 0: (.8, .1) against (.3, .2); class 1: perfect
    assert scores["auc"] == pytest.approx((0.5 + 1) / 2)


@pytest.mark.long
def test_the_deviation_of_a_difference_is_that_over_test_rows():
    """Two models of one law are tested on 100 rows, 400 times over."""
    rng = np.random.default_rng(3)
    differences = []
    stated = []
    for _ in range(400):
        truth = rng.integers(0, 3, 100)
        chances = [rng.dirichlet([1, 1, 1], 100) for _ in range(2)]
        for part, weight in zip(chances, (0.3, 0.15), strict=True):
            part[np.arange(100), truth] += weight
        real, synthetic = chances
        scores = [classification_scores(truth, part) for part in (real, synthetic)]
        differences.append([scores[1][key] - scores[0][key] for key in ("acc", "auc")])
        deviations = difference_deviations(truth, real, synthetic)
        stated.append([deviations["acc"], deviations["auc"]])
    assert np.mean(stated, axis=0) == pytest.approx(np.std(differences, 0), rel=0.12)


def test_equal_guesses_differ_by_nothing():
    truth = np.array([0, 0, 1, 1])
    chances = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.6, 0.4]])
    assert difference_deviations(truth, chances, chances) == {"acc": 0, "auc": 0}
    assert "auc" not in difference_deviations(np.zeros(4, int), chances, chances)


def test_regression_scores_equal_their_definitions():
    truth = np.array([1.0, 2.0, 4.0])
    guess = np.array([1.0, 3.0, 3.0])
    scores = regression_scores(truth, guess)
    assert scores["mae"] == pytest.approx(2 / 3)
    assert scores["r2"] == pytest.approx(r2_score(truth, guess))
    assert "one value" in regression_scores(np.ones(3), guess)["r2"]


def test_indicators_are_the_one_hot_rows():
    codes = np.array([[0, 2], [1, 0]])
    assert indicators(codes, [2, 3]).toarray().tolist() == [
        [1, 0, 0, 0, 1],
        [0, 1, 1, 0, 0],
    ]


@pytest.mark.long
def test_every_model_learns_from_faithful_rows():
    figures = by_name(
        downstream(*(examples(200, seed) for seed in (0, 1, 2)), SIZES, classes=2)
    )
    assert list(figures) == [
        f"tstr_{m}_{s}" for m in MODELS for s in SCORES["classification"]
    ]
    for model in MODELS:
        figure = figures[f"tstr_{model}_auc"]
        assert figure.floor == 0.5
        assert figure.ceiling > 0.85
        assert figure.value > 0.85
        assert figure.better == "higher"


def test_rows_with_a_shuffled_target_score_like_a_guess():
    real, rows, test = (examples(400, seed) for seed in (0, 1, 2))
    bad = Examples(rows.features, np.random.default_rng(3).permutation(rows.target))
    figures = by_name(downstream(real, bad, test, SIZES, classes=2, models=FAST))
    for model in FAST:
        assert (
            figures[f"tstr_{model}_auc"].value
            < 0.7
            < 0.85
            < figures[f"tstr_{model}_auc"].ceiling
        )


def test_training_on_the_real_rows_themselves_gives_the_real_score():
    real = examples(200, 4)
    test = examples(200, 5)
    for figure in downstream(real, real, test, SIZES, classes=2, models=FAST):
        assert figure.value == (
            figure.ceiling if figure.better == "higher" else figure.floor
        )


@pytest.mark.long
def test_regressions_lie_between_the_mean_and_the_real_model():
    def numbers(seed):
        rows = examples(200, seed)
        noise = np.random.default_rng(seed).normal(0, 0.1, 200)
        return Examples(
            rows.features, rows.features[:, 0] + 2.0 * rows.features[:, 1] + noise
        )

    figures = by_name(
        downstream(numbers(6), numbers(7), numbers(8), SIZES, classes=None)
    )
    for model in MODELS:
        r2 = figures[f"tstr_{model}_r2"]
        mae = figures[f"tstr_{model}_mae"]
        assert (r2.better, mae.better) == ("higher", "lower")
        assert r2.floor == pytest.approx(0, abs=0.02)
        assert r2.value > 0.7
        assert mae.floor < 0.75 * mae.ceiling
        assert mae.value < 0.75 * mae.ceiling


def test_a_class_that_the_synthetic_rows_lack_is_scored_and_said():
    real = examples(300, 9, classes=3)
    test = examples(300, 10, classes=3)
    poor = examples(300, 11, classes=3)
    poor = poor.take(np.flatnonzero(poor.target != 2))
    figures = by_name(downstream(real, poor, test, SIZES, classes=3, models=FAST))
    for model in FAST:
        figure = figures[f"tstr_{model}_bal_acc"]
        # the class that was never seen is never guessed
        assert 1 / 3 < figure.value <= 2 / 3
        assert "TSTR: 1 of 3 classes have no training row" in figure.note


@pytest.mark.usefixtures("short_training_here")
def test_a_constant_synthetic_target_is_predicted_always():
    real = examples(200, 12)
    test = examples(200, 13)
    constant = Examples(real.features, np.zeros(200, int))
    figures = by_name(downstream(real, constant, test, SIZES, classes=2))
    for model in MODELS:
        assert figures[f"tstr_{model}_acc"].value == (test.target == 0).mean()
        assert figures[f"tstr_{model}_auc"].value == 0.5


@pytest.mark.usefixtures("short_training_here")
@pytest.mark.parametrize("classes", [3, None])
def test_ten_rows_and_single_members_of_classes_give_figures_and_no_traceback(classes):
    rows = [examples(10, seed, classes or 3, noise=0.5) for seed in (14, 15, 16)]
    rows[1] = Examples(rows[1].features, np.array([0] * 9 + [1]))
    figures = downstream(*rows, SIZES, classes=classes)
    assert all(figure.value is not None or figure.reason for figure in figures)
    assert sum(figure.value is not None for figure in figures) >= len(figures) - len(
        MODELS
    )


def test_a_test_set_of_one_class_has_an_accuracy_and_a_reason_for_the_missing_auc():
    real = examples(100, 17)
    test = examples(100, 18)
    one = test.take(np.flatnonzero(test.target == 1))
    figures = by_name(downstream(real, real, one, SIZES, classes=2, models=FAST))
    assert figures["tstr_linear_acc"].value > 0.5
    assert "one class" in figures["tstr_linear_auc"].reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"real": Examples(np.zeros((9, 4), int), np.ones(9, int))}, "constant"),
        ({"synthetic": examples(0, 0)}, "no synthetic row"),
        ({"test": examples(0, 0)}, "no real test row"),
        (
            {"real": Examples(np.zeros((9, 0), int), np.arange(9) % 2)},
            "no column except the target",
        ),
    ],
)
def test_what_hinders_learning_is_said_for_every_figure(change, reason):
    parts = {
        "real": examples(20, 0),
        "synthetic": examples(20, 1),
        "test": examples(20, 2),
    } | change
    figures = downstream(*parts.values(), SIZES, classes=2)
    assert len(figures) == len(MODELS) * len(SCORES["classification"])
    assert all(figure.value is None and reason in figure.reason for figure in figures)


def test_warnings_are_stated_and_not_raised():
    real = examples(40, 19)  # too few for an early stop: the network runs out of epochs
    (figure, *_) = downstream(real, real, real, SIZES, classes=2, models=["mlp"])
    assert "ConvergenceWarning" in figure.note


def test_the_subsample_is_stated_and_drawn_by_the_seed():
    real = examples(500, 20)
    synthetic = examples(600, 21)
    test = examples(300, 22)
    runs = [
        downstream(
            real,
            synthetic,
            test,
            SIZES,
            classes=2,
            models=["linear"],
            rows=50,
            seed=seed,
        )
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1] != runs[2]
    assert runs[0][0].note == (
        "trained on 50 of 500 real and 50 of 600 synthetic rows, tested on 50 real rows"
    )


def test_a_split_holds_out_a_fifth_without_overlap():
    rows = Examples(np.arange(50)[:, None], np.arange(50))
    train, test = rows.split(np.random.default_rng(0))
    assert (len(train), len(test)) == (40, 10)
    assert sorted([*train.target, *test.target]) == list(range(50))
    assert (train.features[:, 0] == train.target).all()


def test_unknown_models_are_refused_with_a_hint():
    rows = examples(20, 0)
    with pytest.raises(ConfigError, match='Did you mean "forest"'):
        downstream(rows, rows, rows, SIZES, classes=2, models=["forrest"])
