import numpy as np
import pytest
import torch

from understudy.evaluate.other_rows import (
    class_probabilities,
    evaluate_images,
    small_cnn,
)
from understudy.evaluate.utility.downstream import SCORES
from understudy.ground.errors import ConfigError


def bars(count, seed, size=8):
    """Upright bars (class 0) and level ones (class 1), with noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    images = 0.2 * rng.random((count, size, size))
    for image, label, place in zip(
        images, labels, rng.integers(0, size, count), strict=True
    ):
        (image if label else image.T)[place] += 0.7
    return images, labels


def by_name(figures):
    return {figure.name: figure for figure in figures}


@pytest.mark.long
def test_a_classifier_learns_from_faithful_images_and_not_from_wrong_labels():
    real = bars(150, 0, 6)
    good = bars(150, 1, 6)
    test = bars(150, 2, 6)
    wrong = good[0], 1 - good[1]
    faithful = by_name(evaluate_images(real, good, test, classes=2, epochs=12))
    assert list(faithful) == [f"tstr_cnn_{score}" for score in SCORES["classification"]]
    figure = faithful["tstr_cnn_acc"]
    assert figure.floor < 0.6
    assert figure.ceiling > 0.85
    assert figure.value > 0.85
    assert (
        by_name(evaluate_images(real, wrong, test, classes=2, epochs=12))[
            "tstr_cnn_acc"
        ].value
        < 0.15
    )


def test_the_real_images_themselves_give_the_real_score_and_rows_are_capped():
    real = bars(60, 3)
    test = bars(40, 4)
    figures = evaluate_images(real, real, test, classes=2, rows=50, epochs=1, seed=5)
    assert figures == evaluate_images(
        real, real, test, classes=2, rows=50, epochs=1, seed=5
    )
    assert (
        "trained on 50 real and 50 synthetic images, tested on 40 real ones"
        in figures[0].note
    )


@pytest.mark.parametrize("shape", [(3, 3), (1, 5, 7), (3, 28, 28), (3, 1, 1)])
def test_images_of_any_size_and_colour_have_probabilities(shape):
    images = torch.rand(4, *(shape if len(shape) == 3 else (1, *shape)))
    network = small_cnn(images, torch.tensor([0, 1, 2, 0]), classes=3, epochs=1)
    chances = class_probabilities(network, images)
    assert chances.shape == (4, 3)
    assert chances.sum(axis=1) == pytest.approx(1)


def test_training_leaves_torchs_seed_alone():
    images = torch.rand(4, 1, 4, 4)
    labels = torch.tensor([0, 1, 0, 1])
    torch.manual_seed(1)
    before = torch.rand(1)
    torch.manual_seed(1)
    small_cnn(images, labels, classes=2, epochs=1)
    assert torch.rand(1) == before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"synthetic": bars(0, 0)}, "no synthetic images"),
        ({"test": bars(0, 0)}, "no test images"),
        ({"real": (np.zeros((4, 8, 8)), [1, 1, 1, 1])}, "one class"),
    ],
)
def test_what_cannot_be_computed_has_a_reason(change, reason):
    parts = {"real": bars(9, 0), "synthetic": bars(9, 1), "test": bars(9, 2)} | change
    figures = evaluate_images(*parts.values(), classes=2)
    assert all(reason in figure.reason for figure in figures)


def test_a_class_that_the_synthetic_images_lack_is_scored():
    images, labels = bars(60, 5)
    one = images[labels == 0], labels[labels == 0]
    figures = by_name(
        evaluate_images(bars(60, 6), one, bars(60, 7), classes=2, epochs=1)
    )
    assert all(figure.value is not None for figure in figures.values())


@pytest.mark.parametrize(
    "images", [np.zeros((2, 2)), np.zeros((1, 2, 3, 3)), np.full((1, 2, 2), 7.0)]
)
def test_what_is_no_picture_is_refused(images):
    with pytest.raises(ConfigError):
        evaluate_images((images, [0] * len(images)), bars(3, 0), bars(3, 1), classes=2)


@pytest.mark.parametrize("labels", [[0, 1], [0, 1, 2], [0, -1, 1]])
def test_labels_that_do_not_fit_are_refused(labels):
    with pytest.raises(ConfigError):
        evaluate_images(
            (np.zeros((3, 4, 4)), labels), bars(3, 0), bars(3, 1), classes=2
        )
