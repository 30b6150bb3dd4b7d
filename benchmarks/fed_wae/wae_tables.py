"""The benchmark's tables: rows that people train on, rows held out, and a schema that
is fitted on neither.

Numbers are cut at edges that anybody could write down. Category lists are those of the
published data sets, whose documentation states them; they are read from the file here
to save a hundred lines.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from common.sources import need
from understudy.data.schema import Boolean, Categorical, Column, Integer, Schema

FILES = {
    "adult": "adult.csv.gz",
    "a9a": "a9a.npz",
    "w8a": "w8a.npz",
    "census": "census_income_kdd.parquet",
}
MONEY = (0, 1, 1_000, 3_000, 5_000, 8_000, 15_000, 100_000)
EDGES = {
    "adult": {
        "age": (17, 22, 27, 32, 37, 42, 47, 52, 57, 65, 91),
        "fnlwgt": (0, 100_000, 150_000, 200_000, 300_000, 1_500_000),
        "education-num": None,
        "capital-gain": MONEY,
        "capital-loss": (0, 1, 1_500, 2_000, 5_000),
        "hours-per-week": (1, 20, 30, 40, 41, 50, 60, 100),
    },
    "census": {
        "age": (0, 6, 12, 18, 25, 32, 39, 46, 55, 65, 91),
        "wage_per_hour": (0, 1, 500, 1_000, 10_000),
        "capital_gains": MONEY,
        "capital_losses": (0, 1, 1_500, 2_000, 5_000),
        "dividends_from_stocks": (0, 1, 100, 1_000, 10_000, 100_000),
        "weeks_worked_in_year": (0, 1, 20, 40, 52, 53),
    },
}


@dataclass(frozen=True)
class Data:
    """A table cut in two, and what is public about it."""

    train: pd.DataFrame
    test: pd.DataFrame
    schema: Schema
    target: str


def load(name: str, folder: Path) -> Data:
    """The table of this name. Ends with the place of the public original where it is
    missing.
    """
    (file,) = need(folder, FILES[name])
    if file.suffix == ".npz":
        return _binary(name, file)
    frame = pd.read_csv(file) if name == "adult" else pd.read_parquet(file)
    held_out = np.arange(len(frame)) >= 32_561
    if name == "census":
        held_out = (frame.pop("split") == "test").to_numpy()
        # a level of hispanic_origin
        frame = frame.drop(columns="instance_weight").fillna("NA")
    target = "income" if name == "adult" else "income_gt_50k"
    schema = Schema(
        columns=tuple(_column(column, frame[column], EDGES[name]) for column in frame)
    )
    return Data(_apart(frame[~held_out]), _apart(frame[held_out]), schema, target)


def _binary(name: str, file: Path) -> Data:
    """0/1 columns and a label. w8a: its first 124 columns, and every fifth row held
    out.
    """
    arrays = np.load(file)
    if name == "a9a":
        parts = [
            (arrays[f"X_{part}"], arrays[f"y_{part}"]) for part in ("train", "test")
        ]
    else:
        x = arrays["X"][:, :124]
        y = arrays["y"]
        last = np.arange(len(x)) % 5 == 4
        parts = [(x[~last], y[~last]), (x[last], y[last])]
    frames = [
        pd.DataFrame(
            rows.astype(bool), columns=[f"x{i + 1}" for i in range(rows.shape[1])]
        ).assign(label=y > 0)
        for rows, y in parts
    ]
    schema = Schema(columns=tuple(Boolean(name=column) for column in frames[0]))
    return Data(_apart(frames[0]), frames[1], schema, "label")


def _column(
    name: str, values: "pd.Series[object]", edges: dict[str, tuple[int, ...] | None]
) -> Column:
    if name not in edges:
        return Categorical(
            name=name, categories=tuple(sorted(values.unique().tolist()))
        )
    cuts = edges[name]
    if cuts is None:
        return Integer(name=name, low=int(values.min()), high=int(values.max()))
    # `bins` run up to `high` itself, and a column's last level holds it.
    return Integer(name=name, low=cuts[0], high=cuts[-1], bins=cuts)


def _apart(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows in random order, so that two neighbours are one person by chance alone."""
    return frame.sample(frac=1, random_state=0, ignore_index=True)
