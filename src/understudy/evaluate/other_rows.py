"""Synthetic images, series, or people with their events beside the real ones, for the
holder of the real rows.

Series: `utility/series.py`. Images: distance and coverage as of series, and what a
small network learns of their classes, where the schema has any: of several labels, of
each, and how far the labels' pairs stand apart. Train on synthetic images, test on real
ones, against train on real: Lomurno et al., SGDE (AIPR 2022), §IV, and Jiang,
dissertation (TUM 2024), §4.5. Differs from the papers: one small convolutional network,
trained here, in place of features of a network that was trained elsewhere on other
images, so that the figure depends on these alone. People: `utility/visits.py`. With
people whom no training saw, membership is attacked with a person and all rows as the
target: events side by side are one row, so that what gives a person away may lie in any
of them.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from understudy.data.arrays import ArrayTable
from understudy.data.kinds import ARRAYS, SERIES, ArraySchema, read_rows
from understudy.data.reading.files import Source
from understudy.evaluate.attacks.attack import Attack, judge
from understudy.evaluate.attacks.neighbours import neighbourhood
from understudy.evaluate.figure import Figure
from understudy.evaluate.utility import visits
from understudy.evaluate.utility.distance import Attacked
from understudy.evaluate.utility.downstream import (
    absent_figures,
    classification_scores,
    difference_deviations,
    tstr_figures,
)
from understudy.evaluate.utility.marginals import Marginals
from understudy.evaluate.utility.series import evaluate_distances, evaluate_series
from understudy.ground.check import whole
from understudy.ground.errors import ConfigError, Effect
from understudy.models.kernels.clients import Adam
from understudy.models.network import first_weights

Arrays = ArrayTable[Any]
Labelled = tuple[NDArray[Any], Sequence[int] | NDArray[Any]]
"""Images, as bytes or as numbers in [0, 1], and class numbers.

The shape is (images, height, width) or (images, channels, height, width).
"""
Rows = Source | ArrayTable[ArraySchema]
# events of a person, at most, of each kind, in the row that is attacked
MAX_EVENTS_IN_ROW = 10


def array_figures(
    real: Rows,
    synthetic: Rows,
    schema: ArraySchema,
    *,
    holdout: Rows | None = None,
    epochs: int = 5,
    steps: int = 1_000,
) -> tuple[Figure, ...]:
    """All figures of images or series in two files, and a third that is unseen; without
    it a fifth is kept out.
    """
    real_table = open_arrays(real, schema)
    synthetic_table = open_arrays(synthetic, schema.as_drawn())
    holdout_table = None if holdout is None else open_arrays(holdout, schema)
    if SERIES.describes(schema):
        test = None if holdout_table is None else holdout_table.values
        figures = [
            *evaluate_series(
                real_table.values,
                synthetic_table.values,
                holdout=test,
                steps=steps,
            )
        ]
    else:
        figures = _image_figures(
            real_table,
            synthetic_table,
            holdout_table,
            epochs,
        )
    return (*figures, *_label_pair_figures(real_table, synthetic_table))


def _image_figures(
    real: Arrays,
    synthetic: Arrays,
    holdout: Arrays | None,
    epochs: int,
) -> list[Figure]:
    figures = [*evaluate_distances(real.values, synthetic.values)]
    targets = real.schema.targets
    train, test_set = (real, holdout) if holdout is not None else _split_table(real)
    for target in targets:
        sets = (
            (_pixels(table), table.codes(target.name))
            for table in (train, synthetic, test_set)
        )
        target_figures = evaluate_images(*sets, classes=target.levels, epochs=epochs)
        subject = (target.name,) if len(targets) > 1 else ()
        figures += [
            replace(figure, key=figure.key.with_subjects(*subject))
            for figure in target_figures
        ]
    return figures


def _label_pair_figures(real: Arrays, synthetic: Arrays) -> tuple[Figure, ...]:
    """How far apart every two of several labels stand, if there are several."""
    targets = real.schema.targets
    if len(targets) < 2:
        return ()
    real_labels, synthetic_labels = (
        np.stack([table.codes(target.name) for target in targets], 1)
        for table in (real, synthetic)
    )
    figure = Marginals(real_labels, synthetic_labels, real.schema.label_sizes).avd(2)
    return (replace(figure, key=figure.key.with_subjects("labels")),)


def open_arrays(source: Rows, schema: ArraySchema) -> ArrayTable[ArraySchema]:
    """Images or series of this schema, from wherever they are."""
    if ARRAYS.holds(source):
        return source
    rows = read_rows(source, schema)
    if not ARRAYS.holds(rows):
        raise ConfigError(
            "these are no images and no series.", effect=Effect.NOTHING_COMPUTED
        )
    return rows  # type: ignore[return-value]


def concatenate_tables(
    tables: Sequence[ArrayTable[ArraySchema]],
) -> ArrayTable[ArraySchema]:
    """The rows of several holders as those of one, each standing for itself."""
    values = np.concatenate([table.values for table in tables])
    class_columns = [table.classes for table in tables if table.classes is not None]
    classes = (
        np.concatenate(class_columns) if len(class_columns) == len(tables) else None
    )
    starts = np.arange(len(values) + 1)
    source = ", ".join(table.source for table in tables)
    return ArrayTable(
        values,
        np.arange(len(values)),
        starts,
        tables[0].schema,
        source,
        classes,
    )


def _split_table(table: Arrays) -> list[Arrays]:
    """Four fifths and one fifth of the rows, at random, each standing for itself."""
    order = np.random.default_rng([0, 1]).permutation(table.rows)
    cut = max(1, table.rows // 5)
    one_row_each = concatenate_tables([table])
    return [one_row_each.take(rows) for rows in (order[cut:], order[:cut])]


def _pixels(table: Arrays) -> NDArray[np.float32]:
    """(images, height, width), and of colour images (images, 3, height, width)."""
    return table.values if table.values.ndim == 3 else np.moveaxis(table.values, 3, 1)


def evaluate_images(
    real: Labelled,
    synthetic: Labelled,
    test: Labelled,
    *,
    classes: int,
    rows: int = 10_000,
    epochs: int = 5,
    seed: int = 0,
) -> tuple[Figure, ...]:
    """Accuracy, balanced accuracy, macro-F1, Brier's score and AUC of `small_cnn`:
    `tstr_cnn_acc` and so on.
    """
    whole(classes=classes, rows=rows, epochs=epochs)
    rng = np.random.default_rng([seed, 0])
    pairs = {
        "real": real,
        "synthetic": synthetic,
        "test": test,
    }
    sets = [
        _check_labels(name, images, labels, classes)
        for name, (images, labels) in pairs.items()
    ]
    reason = _untrainable_reason(*sets)
    if reason:
        return absent_figures(reason, models=("cnn",), classes=classes)
    samples = [
        (x[pick], y[pick]) for x, y in sets for pick in [rng.permutation(len(x))[:rows]]
    ]
    (x, y), synthetic_sample, (test_x, test_y) = samples
    score = partial(classification_scores, test_y.numpy())
    shares = np.bincount(y.numpy(), minlength=classes) / len(y)
    naive = score(np.tile(shares, (len(test_y), 1)))
    real_guess, synthetic_guess = (
        class_probabilities(
            small_cnn(
                *pair,
                classes=classes,
                epochs=epochs,
                seed=seed,
            ),
            test_x,
        )
        for pair in ((x, y), synthetic_sample)
    )
    trtr = score(real_guess)
    tstr = score(synthetic_guess)
    note = (
        f"trained on {len(y):,} real and {len(synthetic_sample[1]):,} synthetic "
        f"images, tested on {len(test_y):,} real ones"
    )
    deviations = difference_deviations(test_y.numpy(), real_guess, synthetic_guess)
    return tuple(
        tstr_figures(
            "cnn",
            tstr,
            trtr,
            naive,
            note,
            deviations,
        )
    )


def small_cnn(
    images: Tensor,
    labels: Tensor,
    *,
    classes: int,
    epochs: int = 5,
    seed: int = 0,
) -> nn.Sequential:
    """Two convolutions (16 and 32 maps of 3 × 3, halved by their maxima), 4 × 4 means,
    one hidden layer; trained by Adam at 0.002 on batches of 64. Deterministic by the
    seed.
    """
    with first_weights(seed):
        first = (
            nn.Conv2d(images.shape[1], 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
        )
        second = (
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.AdaptiveAvgPool2d(4),
        )
        head = nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, classes)
        network = nn.Sequential(*first, *second, *head)
        weights = list(network.parameters())
        adam = Adam(weights, lr=0.002)
        for batch in (
            b
            for _ in range(epochs)
            for b in torch.split(torch.randperm(len(images)), 64)
        ):
            loss = nn.functional.cross_entropy(network(images[batch]), labels[batch])
            adam.step(torch.autograd.grad(loss, weights))
    return network


@torch.no_grad()
def class_probabilities(network: nn.Sequential, images: Tensor) -> NDArray[np.float64]:
    return torch.cat(
        [network(x).double().softmax(dim=1) for x in torch.split(images, 1024)]
    ).numpy()


def _unit_pixels(name: str, images: NDArray[Any]) -> Tensor:
    """Numbers in [0, 1], (images, channels, height, width)."""
    array = np.asarray(images)
    array = array[:, None] if array.ndim == 3 else array
    if array.ndim != 4 or array.shape[1] not in (1, 3):
        shape = np.shape(images)
        raise ConfigError(
            f"{name}: images are (n, height, width) or (n, 1 or 3, height, width), "
            f"not {shape}."
        )
    pixels = torch.as_tensor(array).float() / (255 if array.dtype == np.uint8 else 1)
    if not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise ConfigError(f"{name}: pixels must be bytes or numbers in [0, 1].")
    return pixels


def _check_labels(
    name: str,
    images: NDArray[Any],
    labels: Sequence[int] | NDArray[Any],
    classes: int,
) -> tuple[Tensor, Tensor]:
    pixels = _unit_pixels(name, images)
    numbers = torch.as_tensor(np.asarray(labels, dtype=np.int64))
    if len(pixels) != len(numbers):
        raise ConfigError(f"{name}: {len(pixels)} images have {len(numbers)} labels.")
    if bool(((numbers < 0) | (numbers >= classes)).any()):
        raise ConfigError(
            f"{name}: labels must be class numbers from 0 to {classes - 1}."
        )
    return pixels, numbers


def _untrainable_reason(
    real: tuple[Tensor, Tensor],
    synthetic: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
) -> str:
    """Why nothing can be learned or tested, or nothing."""
    for name, (images, _) in (("real", real), ("synthetic", synthetic), ("test", test)):
        if not len(images):
            return f"there are no {name} images."
    if bool((real[1] == real[1][0]).all()):
        return "the real images are of one class: there is nothing to learn."
    return ""


def attack_people(
    real: visits.Tables,
    holdout: visits.Tables,
    synthetic: visits.Tables,
    schema: visits.Events,
) -> tuple[Attack, ...]:
    """Was this person, with all these events, among the people that a generator was
    trained on?
    """
    synthetic_tables = visits.drop_orphan_events(synthetic, schema)[0]
    layouts = visits.event_layouts(schema)
    max_events = [min(part.most_events, MAX_EVENTS_IN_ROW) for part in schema.parts]

    def rows(source: visits.Tables) -> NDArray[np.int32]:
        kinds = visits.event_codes(visits.real_tables(source, schema), schema)
        first, *further = (
            visits.flatten_visits(*kind)[0]
            for kind in zip(kinds, layouts, max_events, strict=True)
        )
        return np.concatenate(
            [
                first,
                *(
                    rows_of_kind[:, len(layouts[0].people) :]
                    for rows_of_kind in further
                ),
            ],
            axis=1,
        )

    tables = Attacked.from_codes(*map(rows, (real, holdout, synthetic_tables)))
    return judge([neighbourhood(tables, score=score) for score in ("share", "nearest")])
