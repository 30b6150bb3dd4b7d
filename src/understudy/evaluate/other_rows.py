"""Synthetic images, series, or people with their events beside the real ones, for the holder of the real rows.

Series: `utility/series.py`. Images: distance and coverage as of series, and what a small network learns of their
classes, where the schema has any: of several labels, of each, and how far the labels' pairs stand apart. People:
`utility/visits.py`. With people whom no training saw, membership is attacked with a person and all rows as the target:
events side by side are one row, so that what gives a person away may lie in any of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.data.arrays import ArrayTable
from understudy.data.described import ArraySchema
from understudy.data.kinds import ARRAYS, IMAGES, SERIES, kind_of, read_rows
from understudy.data.reading.files import Source
from understudy.evaluate.attacks.attack import Attack, judge
from understudy.evaluate.attacks.neighbours import neighbourhood
from understudy.evaluate.figure import Figure
from understudy.evaluate.utility.images import evaluate_images
from understudy.evaluate.utility.marginals import avd
from understudy.evaluate.utility.series import evaluate_distances, evaluate_series
from understudy.evaluate.utility.visits import (
    Events,
    Tables,
    evaluate_visits,
    event_codes,
    event_layouts,
    flat,
    real_tables,
    with_a_person,
)
from understudy.ground.errors import ConfigError

Arrays = ArrayTable[Any]
Rows = Source | ArrayTable[ArraySchema]
SIDE_BY_SIDE = 10  # events of a person, at most, of each kind, in the row that is attacked


def array_figures(
    real: Rows,
    synthetic: Rows,
    schema: ArraySchema,
    *,
    holdout: Rows | None = None,
    epochs: int = 5,
    steps: int = 1_000,
    seed: int = 0,
) -> tuple[Figure, ...]:
    """All figures of images or series in two files, and in a third that the generator has not seen, if there is one.

    Without `holdout` a fifth of the real rows is kept out of what is learned from them.
    """
    own, made = opened(real, schema), opened(synthetic, kind_of(schema).as_drawn(schema))
    seen = None if holdout is None else opened(holdout, schema)
    found = _FIGURES[schema.kind](own, made, seen, epochs=epochs, steps=steps, seed=seed)
    return (*found, *_label_pairs(own, made, seed))


def _of_series(
    own: Arrays, made: Arrays, seen: Arrays | None, *, steps: int, seed: int, **_: Any
) -> list[Figure]:
    test = None if seen is None else seen.values
    return [*evaluate_series(own.values, made.values, holdout=test, steps=steps, seed=seed)]


def _of_images(
    own: Arrays, made: Arrays, seen: Arrays | None, *, epochs: int, seed: int, **_: Any
) -> list[Figure]:
    figures, targets = [*evaluate_distances(own.values, made.values, seed=seed)], own.schema.targets
    train, test_set = (own, seen) if seen is not None else _parted(own, seed)
    for target in targets:
        sets = ((_pixels(table), table.codes(target.name)) for table in (train, made, test_set))
        found = evaluate_images(*sets, classes=target.levels, epochs=epochs, seed=seed)
        several = (target.name,) if len(targets) > 1 else ()
        figures += [replace(figure, what=figure.what.about(*several)) for figure in found]
    return figures


_FIGURES: dict[str, Callable[..., list[Figure]]] = {SERIES.name: _of_series, IMAGES.name: _of_images}


def _label_pairs(real: Arrays, made: Arrays, seed: int) -> tuple[Figure, ...]:
    """How far apart every two of several labels stand, if there are several."""
    targets = real.schema.targets
    if len(targets) < 2:
        return ()
    own, drawn = (np.stack([table.codes(one.name) for one in targets], 1) for table in (real, made))
    found = avd(own, drawn, 2, sizes=real.schema.label_sizes, seed=seed)
    return (replace(found, what=found.what.about("labels")),)


def opened(source: Rows, schema: ArraySchema) -> ArrayTable[ArraySchema]:
    """Images or series of this schema, from wherever they are."""
    if ARRAYS.holds(source):
        return source
    found = read_rows(source, schema)
    if not ARRAYS.holds(found):
        raise ConfigError("these are no images and no series. Nothing was compared.")
    return found  # type: ignore[return-value]


def together(tables: Sequence[ArrayTable[ArraySchema]]) -> ArrayTable[ArraySchema]:
    """The rows of several holders as those of one, each standing for itself."""
    values = np.concatenate([table.values for table in tables])
    known = [table.classes for table in tables if table.classes is not None]
    classes = np.concatenate(known) if len(known) == len(tables) else None
    starts, source = np.arange(len(values) + 1), ", ".join(table.source for table in tables)
    return ArrayTable(values, np.arange(len(values)), starts, tables[0].schema, source, classes)


def _parted(table: Arrays, seed: int) -> list[Arrays]:
    """Four fifths and one fifth of the rows, at random, each standing for itself."""
    order, cut = np.random.default_rng([seed, 1]).permutation(table.rows), max(1, table.rows // 5)
    return [_alone(table, places) for places in (order[cut:], order[:cut])]


def _alone(table: Arrays, places: NDArray[np.intp]) -> Arrays:
    classes = None if table.classes is None else table.classes[places]
    ids, starts = np.arange(len(places)), np.arange(len(places) + 1)
    return ArrayTable(table.values[places], ids, starts, table.schema, table.source, classes)


def _pixels(table: Arrays) -> NDArray[np.float32]:
    """(images, height, width), and of colour images (images, 3, height, width)."""
    return table.values if table.values.ndim == 3 else np.moveaxis(table.values, 3, 1)


# People with their events


def people_figures(
    real: Tables, synthetic: Tables, schema: Events, *, holdout: Tables | None = None, seed: int = 0
) -> tuple[Figure | Attack, ...]:
    """All figures of two sets of tables; with `holdout`, people whom the generator has not seen, attacks besides."""
    figures = evaluate_visits(real, synthetic, schema, holdout=holdout, seed=seed)
    if holdout is None:
        return figures
    return (*figures, *attack_people(real, holdout, synthetic, schema, seed=seed))


def attack_people(
    real: Tables, holdout: Tables, synthetic: Tables, schema: Events, *, seed: int = 0
) -> tuple[Attack, ...]:
    """Was this person, with all these events, among the people that a generator was trained on?"""
    drawn, layouts = with_a_person(synthetic, schema)[0], event_layouts(schema)
    most = [min(part.most_events, SIDE_BY_SIDE) for part in schema.parts]

    def rows(source: Tables) -> NDArray[np.int32]:
        kinds = event_codes(real_tables(source, schema), schema, seed)
        first, *others = (flat(*one)[0] for one in zip(kinds, layouts, most, strict=True))
        return np.concatenate([first, *(other[:, len(layouts[0].people) :] for other in others)], axis=1)

    train, outside, made = map(rows, (real, holdout, drawn))
    return judge(
        [neighbourhood(train, outside, made, score=score, seed=seed) for score in ("share", "nearest")]
    )
