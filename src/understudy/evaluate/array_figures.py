"""Synthetic images or series beside the real ones, for the holder of the real rows: files in, figures out.

Series: `utility/series.py`. Images: distance and coverage as of series, and what a small network learns of their
classes (`utility/images.py`), where the schema has any: of several labels, of each, and how far the labels'
pairs stand apart.

Guarantee: none. A figure is a function of real rows, meant for their holder.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from understudy.data.arrays import ArrayTable
from understudy.data.described import ArraySchema
from understudy.data.kinds import ARRAYS, IMAGES, SERIES, kind_of, read_rows
from understudy.data.reading.files import Source
from understudy.evaluate.figure import Figure
from understudy.evaluate.utility.images import evaluate_images
from understudy.evaluate.utility.marginals import avd
from understudy.evaluate.utility.series import evaluate_distances, evaluate_series
from understudy.ground.errors import ConfigError

Arrays = ArrayTable[Any]
Rows = Source | ArrayTable[ArraySchema]


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


def _label_pairs(
    real: ArrayTable[ArraySchema], made: ArrayTable[ArraySchema], seed: int
) -> tuple[Figure, ...]:
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


def _parted(
    table: ArrayTable[ArraySchema], seed: int
) -> tuple[ArrayTable[ArraySchema], ArrayTable[ArraySchema]]:
    """Four fifths and one fifth of the rows, at random."""
    order = np.random.default_rng([seed, 1]).permutation(table.rows)
    cut = max(1, table.rows // 5)
    first, second = (_some(table, places) for places in (order[cut:], order[:cut]))
    return first, second


def _some(
    table: ArrayTable[ArraySchema], places: "np.ndarray[tuple[int], np.dtype[np.intp]]"
) -> ArrayTable[ArraySchema]:
    starts = np.arange(len(places) + 1)
    return ArrayTable(
        table.values[places],
        np.arange(len(places)),
        starts,
        table.schema,
        table.source,
        None if table.classes is None else table.classes[places],
    )


def _pixels(table: ArrayTable[ArraySchema]) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """(images, height, width), and of colour images (images, 3, height, width)."""
    return table.values if table.values.ndim == 3 else np.moveaxis(table.values, 3, 1)
