"""Does more budget buy more? What gram's rows are like as ε grows to where noise no
longer matters.

    python benchmarks/joint/budget.py --data <folder> --method now
    … --method more --settings components=1024 --tables rule@8000 --epsilons 8 1000

A target, the last column, is named; all columns are at one holder, coded and declared
as in `strongest.py`. Two tables besides: in `rule` the label follows from the eight
other columns, which are independent, by a tree of them; in `score` from nine that hang
together, by a sum of points. A cell is a table cut to so many people, ε and a seed.
`avd2` and `avd3` are mean distances of pairs and of up to 100 sets of three columns;
`auc` and `f1` (macro) those of boosting which learned the last column from synthetic
rows, on people who are not in the table; `cpu` the seconds of a run. Method `bootstrap`
draws the real rows with replacement: what no noise at all leaves.
"""

import argparse
import ast
import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from strongest import QUICK, READERS, coded

from common import publication
from common.grid import Grid, by_text, grid_options
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Ordinal, Schema
from understudy.evaluate.utility.downstream import (
    Examples,
    classification_scores,
    score_model,
)
from understudy.evaluate.utility.marginals import Codes, Marginals
from understudy.runs.federation import Federation

FIGURES = ("avd2", "avd3", "auc", "f1")
BOOTSTRAP = "bootstrap"
PEOPLE = 12_000  # of generated tables, those included on whom a classifier is tested


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run: a table with its number of people, as "rule@8000"."""

    dataset: str
    method: str
    epsilon: float
    seed: int

    @property
    def name(self) -> str:
        priced = publication.price(self.epsilon)
        return f"{self.dataset}/{self.method}/{priced}/seed={self.seed}"


KEY = tuple(Cell.__dataclass_fields__)
GRID = Grid(
    fields=[*KEY, "people", "columns", *FIGURES, "cpu"],
    key=KEY,
    order=by_text(*KEY),
    columns=publication.plain,
    name=lambda cell: cell.name,
)


def rule(folder: Path) -> pd.DataFrame:
    """Whom a school takes first: five classes by a tree of eight independent
    columns.
    """
    sizes = {
        "work": 3,
        "care": 5,
        "family": 4,
        "siblings": 4,
        "housing": 3,
        "means": 2,
        "social": 3,
        "health": 3,
    }
    rng = np.random.default_rng(0)
    draws = {name: rng.integers(size, size=PEOPLE) for name, size in sizes.items()}
    frame = pd.DataFrame(draws)
    needs = np.maximum(frame["work"], frame["care"] - 2)
    crowded = frame["family"] + frame["siblings"] >= 3
    home = np.where(crowded, frame["housing"], np.maximum(frame["housing"] - 1, 0))
    pressed = home + np.where(needs == 2, frame["means"], 0)
    urgent = 2 * needs + pressed + np.where(frame["social"] == 2, 2, 0)
    class_ = 1 + np.digitize(urgent, [1, 4, 7])
    return frame.assign(label=np.where(frame["health"] == 2, 0, class_)).astype(str)


def score(folder: Path) -> pd.DataFrame:
    """Nine columns of four levels that hang together, and whether their points, of
    which some count for others alone, are many.
    """
    rng = np.random.default_rng(1)
    hidden = rng.normal(size=(PEOPLE, 1))
    levels = np.digitize(0.7 * hidden + rng.normal(size=(PEOPLE, 9)), [-1, 0, 1])
    both = np.minimum(levels[:, 0:4], levels[:, 4:8]).sum(1)
    either = levels[:, 8] * (levels[:, 0] > 1)
    frame = pd.DataFrame(levels, columns=[f"answer {n}" for n in range(9)])
    return frame.assign(label=both + either >= 6).astype(str)


READERS |= {"rule": rule, "score": score}
CHOSEN = ("rule@8000", "wine@5000")
APART = ("adult@8000", "mushroom@6000", "score@8000", "credit@8000")


def cells(
    datasets: list[str], method: str, epsilons: list[float], seeds: int
) -> Iterator[Cell]:
    for seed in range(seeds):
        for epsilon in epsilons:
            for name in datasets:
                yield Cell(dataset=name, method=method, epsilon=epsilon, seed=seed)


def measure(cell: Cell, args: dict[str, Any]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    codes, held_out, sizes = coded(cell.dataset, args["data"])
    start = time.process_time()
    if cell.method == BOOTSTRAP:
        rng = np.random.default_rng(cell.seed)
        drawn = codes[rng.integers(len(codes), size=len(codes))]
    else:
        drawn = synthetic(codes, sizes, cell, args["settings"])
    cpu = time.process_time() - start
    compared = Marginals(codes, drawn, sizes)
    learned = _learned(drawn, held_out, sizes)
    figures = {
        "avd2": compared.avd(2).value,
        "avd3": compared.avd(3).value,
        "auc": learned["auc"],
        "f1": learned["f1"],
    }
    size = {"people": len(codes), "columns": len(sizes)}
    rounded = publication.rounded(figures, FIGURES)
    return publication.plain(cell) | size | rounded | {"cpu": round(cpu, 1)}


def synthetic(
    codes: Codes, sizes: list[int], cell: Cell, settings: dict[str, Any]
) -> Codes:
    """As many rows as there are people, of one holder's whole run."""
    names = [f"c{number}" for number in range(len(sizes))]
    columns = (
        Ordinal(name=name, categories=tuple(range(size)))
        for name, size in zip(names, sizes, strict=True)
    )
    schema = Schema(columns=tuple(columns))
    federation = Federation.rehearsal(
        {"holder": pd.DataFrame(codes, columns=names)},
        {"holder": schema},
        budget=publication.budget(cell.epsilon),
        seed=cell.seed,
        same_people=True,
    )
    settings = {"target": names[-1], "fine": 0.0, "device": "cpu"} | settings
    result = train("gram", federation, seed=cell.seed, **settings)
    drawn = result.generator.sample(len(codes), seed=cell.seed)
    return Codec(schema).codes(drawn[names])


def _learned(drawn: Codes, held_out: Codes, sizes: list[int]) -> dict[str, Any]:
    """What boosting learns of the last column."""
    train_rows, test_rows = (
        Examples(rows[:, :-1], rows[:, -1].astype(np.int64))
        for rows in (drawn, held_out)
    )
    scores, *_ = score_model(
        "boosting",
        train_rows,
        test_rows.features,
        sizes[:-1],
        sizes[-1],
        0,
        partial(classification_scores, test_rows.target),
    )
    return scores


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=Path(__file__).parent / "budget.csv")
    parser.add_argument("--method", default="now", help="the name of what runs")
    parser.add_argument(
        "--settings", nargs="*", default=[], help="of the protocol, as name=value"
    )
    parser.add_argument("--tables", nargs="*", default=[*CHOSEN, *APART])
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 8.0, 1000.0])
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 2)
    return parser


def main() -> None:
    args = parser().parse_args()
    settings = {
        name: ast.literal_eval(value)
        for name, value in (text.split("=", 1) for text in args.settings)
    }
    every = cells(args.tables, args.method, args.epsilons, args.seeds)
    GRID.run(partial(measure, args=vars(args) | {"settings": settings}), every, args)


if __name__ == "__main__":
    main()
