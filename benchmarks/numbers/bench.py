"""Numbers as they are: how near synthetic numbers come to real ones where nobody made
bins for them.

    make bench NAME=numbers DATA=<folder>
    python benchmarks/numbers/bench.py --data <folder> --jobs 6 --only ε=1 --out benchmarks/numbers/ours.csv

A cell is one table, number of people, method, widening of the bounds, ε and seed; its
name is dataset/people/method/widened/ε/seed, and `--only` takes texts that must all be
in it. One holder has all rows; `gram`, δ = 1e-5:

    bought   the schema as `schema infer` drafts it, bounds widened by 1, 10 and 1,000:
             levels are bought
    equal    the same schema, and nothing bought: equal bins between the bounds
    hand     bins made by hand, which need no widening

For every column of numbers there is a row: KS distance, error of the median (as a share
of it, and in fine cells of the widened bounds), mean error of the 5, 25, 50, 75 and 95
% quantiles over the real 5–95 % range, the synthetic mean over the real one, the
largest error of the share of a number that 1 % of the real or of the synthetic rows
share, zero included (`spike_error`), and the distance of shares in the bins made by
hand (`avd1`). The row with column "(all)" has the 2-way distance in the bins made by
hand, the AUC of gradient boosting that learned from synthetic rows (`tstr_auc`) and
from real ones (`trtr_auc`) on numbers as they are, tested on rows held out, levels in
all, seconds.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from tables import NAMES, Known, load, widened

from common import publication
from common.grid import Grid, by_text, grid_options
from common.options import quick
from understudy.api.train import train
from understudy.data.column import Binned
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.fine import fine_schema
from understudy.data.encoding.values import numbers_of
from understudy.data.schema import Schema
from understudy.evaluate.utility.downstream import classification_scores
from understudy.evaluate.utility.marginals import Marginals
from understudy.evaluate.utility.values import (
    MIN_ATOM_SHARE,
    QUANTILES,
    ks_and_wasserstein,
)
from understudy.runs.federation import Federation

QUICK = quick()
PEOPLE = (20_000, 4_000)
WIDENED = (10, 1, 1_000)
EPSILONS = (1.0, 0.2, 4.0)
METHODS: dict[str, dict[str, Any]] = {
    "bought": {},
    "equal": {"fine": 0.0},
    "hand": {"fine": 0.0},
}
ALL = "(all)"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run."""

    dataset: str
    people: int
    method: str
    widened: int
    epsilon: float
    seed: int

    @property
    def name(self) -> str:
        shape = f"{self.dataset}/{self.people}/{self.method}/{self.widened}"
        return f"{shape}/{publication.price(self.epsilon)}/seed={self.seed}"


KEY = tuple(Cell.__dataclass_fields__)
FIELDS = [
    "dataset",
    "people",
    "column",
    *KEY[2:],
    "ks",
    "median_error",
    "median_cells",
    "quantile_error",
    "mean_ratio",
    "spike_error",
    "avd1",
    "avd2",
    "tstr_auc",
    "trtr_auc",
    "levels",
    "seconds",
]
GRID = Grid(
    fields=FIELDS,
    key=KEY,
    order=by_text(*KEY, "column"),
    columns=publication.plain,
    name=lambda cell: cell.name,
)


def cells(datasets: list[str], people: list[int], seeds: int) -> Iterator[Cell]:
    """Everything that is compared, what matters most first: ε of 1, bounds ten times
    too wide.
    """
    for seed in range(seeds):
        for epsilon in EPSILONS:
            for wide in WIDENED if epsilon == EPSILONS[0] else WIDENED[:1]:
                for method in METHODS:
                    by = 1 if method == "hand" else wide
                    if method == "hand" and wide != WIDENED[0]:
                        continue
                    for dataset in datasets:
                        for count in (
                            people[1:] if dataset == "wine_quality" else people
                        ):
                            yield Cell(
                                dataset=dataset,
                                people=count,
                                method=method,
                                widened=by,
                                epsilon=epsilon,
                                seed=seed,
                            )


def measure(cell: Cell, args: dict[str, Any]) -> list[dict[str, Any]]:
    """One cell: publish a table as large as the real one, and hold its columns against
    the real ones.
    """
    warnings.simplefilter("ignore")
    table = load(cell.dataset, args["data"], cell.seed).first(cell.people)
    schema = table.hand if cell.method == "hand" else widened(table.draft, cell.widened)
    settings = (
        METHODS[cell.method]
        | {"device": args["device"], "seed": cell.seed}
        | args["settings"]
    )
    held = Federation.rehearsal(
        {"holder": table.train},
        {"holder": schema},
        budget=publication.budget(cell.epsilon),
        seed=cell.seed,
    )
    start = time.perf_counter()
    result = train("gram", held, **settings)
    seconds = time.perf_counter() - start
    made = result.generator.sample(len(table.train), seed=cell.seed)[list(schema.names)]
    coarse = [
        Codec(table.hand).codes(clipped(frame, table.hand))
        for frame in (table.train, made)
    ]
    marginals = Marginals(*coarse, ends=())
    grid = fine_schema(schema)
    rows = []
    for place, column in enumerate(table.draft.columns):
        if isinstance(column, Binned):
            real, other = (
                numbers_of(column, frame[column.name]) for frame in (table.train, made)
            )
            figures = column_figures(
                real, other, np.asarray(grid.columns[place].edges, dtype=float)
            )
            one = marginals.distances(np.array([[place]])).item()
            rows.append({"column": column.name} | figures | {"avd1": round(one, 4)})
    pairs = np.array([(i, j) for j in range(len(schema.names)) for i in range(j)])
    rows.append(
        {
            "column": ALL,
            "avd2": round(float(marginals.distances(pairs).mean()), 4),
            "tstr_auc": learned(made, table, cell.seed),
            "trtr_auc": real_auc(cell.dataset, args["data"], cell.seed, cell.people),
            "levels": sum(result.generator.card["levels"].values()),
            "seconds": round(seconds, 1),
        }
    )
    return [publication.plain(cell) | row for row in rows]


def column_figures(
    real: NDArray[np.float64], other: NDArray[np.float64], edges: NDArray[np.float64]
) -> dict[str, Any]:
    """A column's figures, numbers as they are."""
    real = real[~np.isnan(real)]
    other = other[~np.isnan(other)]
    before = np.quantile(real, QUANTILES)
    after = np.quantile(other, QUANTILES)
    middle = float(np.median(real))
    found = float(np.median(other))
    places = np.searchsorted(edges, [middle, found], side="right")
    (values, counts), (also, others) = (
        np.unique(part, return_counts=True) for part in (real, other)
    )
    often = {
        *values[counts >= MIN_ATOM_SHARE * len(real)],
        *also[others >= MIN_ATOM_SHARE * len(other)],
    }
    errors = [
        abs(float((real == value).mean() - (other == value).mean())) for value in often
    ]
    return {
        "ks": round(ks_and_wasserstein(real, other)[0], 4),
        "median_error": round(abs(found - middle) / abs(middle), 4) if middle else "",
        "median_cells": int(abs(places[0] - places[1])),
        "quantile_error": round(
            float(np.abs(before - after).mean() / ((before[-1] - before[0]) or 1)), 4
        ),
        "mean_ratio": round(float(other.mean() / real.mean()), 4)
        if real.mean()
        else "",
        "spike_error": round(max(errors), 4) if errors else "",
    }


def clipped(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """The same, numbers not beyond the bounds of the bins made by hand."""
    bounds = {c.name: c for c in schema.columns if isinstance(c, Binned)}
    return frame.assign(**{n: frame[n].clip(c.low, c.high) for n, c in bounds.items()})


def learned(rows: pd.DataFrame, table: Known, seed: int) -> float | str:
    """The AUC, on the rows held out, of gradient boosting that learned from these,
    numbers as they are.
    """
    place = table.hand.names.index(table.target)
    (x, y), (x_test, y_test) = (
        features(frame, table.hand, place) for frame in (rows, table.test)
    )
    if len(np.unique(y)) < 2:
        return 0.5
    model = HistGradientBoostingClassifier(
        max_iter=100, early_stopping=False, random_state=seed
    ).fit(x, y)
    guess = np.zeros((len(y_test), Codec(table.hand).sizes[place]))
    guess[:, model.classes_] = model.predict_proba(x_test)
    found = classification_scores(y_test, guess)["auc"]
    return round(found, 4) if isinstance(found, float) else ""


@lru_cache(maxsize=32)
def real_auc(dataset: str, folder: Path, seed: int, people: int) -> float | str:
    table = load(dataset, folder, seed).first(people)
    return learned(table.train, table, seed)


def features(
    frame: pd.DataFrame, schema: Schema, place: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Numbers as they are, of other columns the level; and the class."""
    codes = Codec(schema).codes(clipped(frame, schema))
    x = codes.astype(np.float64)
    for j, column in enumerate(schema.columns):
        if isinstance(column, Binned):
            x[:, j] = numbers_of(column, frame[column.name])
    return np.delete(x, place, axis=1), codes[:, place].astype(np.int64)


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=Path(__file__).parent / "ours.csv", device="cpu")
    parser.add_argument(
        "--datasets", nargs="*", default=["laws"] if QUICK else list(NAMES)
    )
    parser.add_argument(
        "--people", nargs="*", type=int, default=[1_000] if QUICK else list(PEOPLE)
    )
    parser.add_argument("--only", nargs="*", default=["/10/", "ε=1/"] if QUICK else [])
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    return parser


def main() -> None:
    args = parser().parse_args()
    asked = (
        cell
        for cell in cells(args.datasets, args.people, args.seeds)
        if all(text in cell.name for text in args.only)
    )
    GRID.run(partial(measure, args=vars(args) | {"settings": {}}), asked, args)


if __name__ == "__main__":
    main()
