"""One linear model of all columns: each is predicted from all others, as by a model of
its own.
"""

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

from understudy.evaluate.utility.predictions import RIDGE, _mean_auc, _ridge_scores


def test_leaving_a_columns_own_features_out_is_what_ridge_regression_without_them_learns():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 9))
    unseen = rng.normal(size=(50, 9))
    targets = features[:, :4] @ rng.normal(size=(4, 5)) + rng.normal(size=(200, 5))
    own = [np.array([0, 1]), np.array([4, 5, 6])]
    scores = _ridge_scores(features, targets, own, [2, 3], unseen)
    for features_of, found, answers in zip(
        own, scores, np.split(targets, [2], axis=1), strict=True
    ):
        rest = np.delete(np.arange(9), features_of)
        model = Ridge(alpha=RIDGE * 200).fit(features[:, rest], answers)
        # the mean of the targets moves all scores alike, and no rank
        assert np.allclose(found, model.predict(unseen[:, rest]) - answers.mean(0))


def test_auc_is_that_of_one_class_against_the_rest_with_ties() -> None:
    rng = np.random.default_rng(1)
    answers = rng.integers(-1, 3, 300)
    scores = rng.integers(0, 6, (300, 3)).astype(float)
    truth = np.eye(4)[answers][:, :3]
    known = answers >= 0
    each = [roc_auc_score(answers[known] == k, scores[known, k]) for k in range(3)]
    assert np.isclose(_mean_auc(scores, truth), np.mean(each))
