"""The series of FedSTDG's paper, as people with ten each: sines, and the windows of
three long public series.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from common.sources import need
from understudy.data.samples import sines
from understudy.data.schema import Real
from understudy.data.series import Series, SeriesSchema, read_series

FILES = {
    "stock": "timegan_stock.csv.gz",
    "energy": "timegan_energy.csv.gz",
    "air": "air_quality_uci.csv.gz",
}
DATASETS = ("sine", *FILES)


class Data(NamedTuple):
    """Series of people with ten each, and series held out; all in [0, 1]."""

    people: Series
    test: np.ndarray[Any, Any]


def load(name: str, folder: Path, *, seed: int = 0, most: int | None = None) -> Data:
    """A dataset, nine tenths of it with people and one tenth held out, at random."""
    if name == "sine":
        values, schema = sines(most or 50_000, seed=seed)
    else:
        values, schema = _windows(name, folder)
    order = np.random.default_rng(seed).permutation(len(values))[:most]
    cut = len(order) // 10
    held = order[:cut]
    kept = order[cut : cut + (len(order) - cut) // 10 * 10]
    people = Series.from_array(values[kept], schema, np.arange(len(kept)) // 10, name)
    return Data(people, schema.scaled(values[held]))


def _windows(name: str, folder: Path) -> tuple[np.ndarray[Any, Any], SeriesSchema]:
    """All windows of 24 steps of one long series, in its own units."""
    (path,) = need(folder, FILES[name])
    # rv2 repeats rv1
    frame = pd.read_csv(path).drop(columns=["Date", "Time", "rv2"], errors="ignore")
    # −200 is "missing" there
    frame = frame.replace(-200, 0).fillna(0) if name == "air" else frame
    frame = frame.astype(float)
    channels = tuple(
        Real(name=c, low=frame[c].min(), high=frame[c].max()) for c in frame.columns
    )
    schema = SeriesSchema(channels=channels, length=24, stride=1)
    return schema.unscaled(read_series(frame, schema, name).values), schema
