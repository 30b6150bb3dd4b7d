"""To predict a column from the others: ask the mixture by Bayes' rule, or train a model
on synthetic rows?

    python benchmarks/joint/predict.py --data data --jobs 6 --out benchmarks/joint/predict.csv

Gram of one holder with the column to predict named (`target`). Then, on real rows that
were held out:

    bayes          `generator.predict_proba`: nothing is trained
    boosting       gradient boosting on as many synthetic rows as there were people
    boosting x4    the same on four times as many
    classifier     `generator.classifier`, from all columns
    real           gradient boosting on the real rows, which no generator may show; not
                   private

`known` says from how many other columns: all of them, or three that the seed draws; a
model is trained on those alone. `auc` and `accuracy` rank and decide, `log_loss` says
whether probabilities are right; `seconds` are those of a processor, for training and
predicting. QUICK=1 takes the toy table.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import bench
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss, roc_auc_score
from tables import Public

from common.grid import Grid, grid_options
from common.options import quick
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.generators.generator import Generator
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

QUICK = quick()
TABLES = ("adult", "bank", "credit", "diabetes", "randhie")
TESTED = 10_000  # rows at most
FEW = 3
KEY = ("dataset", "epsilon", "seed", "known", "method")
FIGURES = ("auc", "accuracy", "log_loss", "seconds")
GRID = Grid(
    fields=[*KEY, *FIGURES], key=KEY, order=lambda row: [str(row[key]) for key in KEY]
)

Odds = NDArray[np.float64]


def cells(
    datasets: list[str], epsilons: list[float], seeds: int
) -> Iterator[dict[str, Any]]:
    for seed in range(seeds):
        for epsilon in epsilons:
            for dataset in datasets:
                yield dict(
                    zip(KEY, (dataset, epsilon, seed, "all", "bayes"), strict=True)
                )


def measure(job: dict[str, Any], args: dict[str, Any]) -> list[dict[str, Any]]:
    """One line for each method, from all columns and from few."""
    warnings.simplefilter("ignore")
    table = bench.opened(job["dataset"], args["data"], job["seed"])
    tested = table.test.iloc[:TESTED]
    federation = Federation.rehearsal(
        {"one": table.train},
        {"one": table.schema},
        budget=Budget(job["epsilon"], bench.DELTA),
        same_people=False,
        seed=job["seed"],
    )
    asked = train(
        "gram",
        federation,
        fine=0.0,
        target=table.target,
        device=args["device"],
        seed=job["seed"],
    ).generator
    others = [name for name in table.schema.names if name != table.target]
    few = np.random.default_rng(job["seed"]).permutation(others)[:FEW].tolist()
    lines = []
    for known, names in (("all", others), (str(len(few)), few)):
        methods: dict[str, Callable[[], Odds]] = {
            "bayes": partial(by_bayes, asked, table, tested[names]),
            "boosting": partial(
                by_drawn, asked, len(table.train), job["seed"], table, names, tested
            ),
            "boosting x4": partial(
                by_drawn, asked, 4 * len(table.train), job["seed"], table, names, tested
            ),
            "real": partial(by_boosting, table.train, table, names, tested),
        }
        if known == "all":
            methods["classifier"] = partial(
                by_classifier, asked, len(table.train), job["seed"], table, tested
            )
        lines += [
            job | {"known": known, "method": name} | scored(work, table, tested)
            for name, work in methods.items()
        ]
    return lines


def by_bayes(asked: Generator, table: Public, tested: pd.DataFrame) -> Odds:
    return asked.predict_proba(tested, table.target).to_numpy()


def by_classifier(
    asked: Generator, count: int, seed: int, table: Public, tested: pd.DataFrame
) -> Odds:
    return (
        asked.classifier(table.target, rows=count, seed=seed)
        .predict_proba(tested)
        .astype(np.float64)
    )


def by_drawn(
    asked: Generator,
    count: int,
    seed: int,
    table: Public,
    names: list[str],
    tested: pd.DataFrame,
) -> Odds:
    return by_boosting(asked.sample(count, seed=seed), table, names, tested)


def by_boosting(
    rows: pd.DataFrame, table: Public, names: list[str], tested: pd.DataFrame
) -> Odds:
    """Of every class of the target, in the schema's order, from these columns."""
    others = Codec(table.schema.select(names))
    own = truth(table, rows)
    model = HistGradientBoostingClassifier(random_state=0).fit(others.codes(rows), own)
    odds = np.full((len(tested), table.schema.column(table.target).levels), 1e-9)
    odds[:, model.classes_] = model.predict_proba(others.codes(tested))
    return odds / odds.sum(1, keepdims=True)


def truth(table: Public, rows: pd.DataFrame) -> NDArray[np.int32]:
    return Codec(table.schema.select([table.target])).codes(rows)[:, 0]


def scored(
    work: Callable[[], Odds], table: Public, tested: pd.DataFrame
) -> dict[str, float]:
    begin = time.process_time()
    own = truth(table, tested)
    odds = work()
    seconds = time.process_time() - begin
    classes = np.arange(odds.shape[1])
    seen = np.unique(own)
    auc = np.mean(
        [
            roc_auc_score(own == one, odds[:, one])
            for one in (seen[-1:] if len(seen) == 2 else seen)
        ]
    )
    found = (
        auc,
        np.mean(odds.argmax(1) == own),
        log_loss(own, odds, labels=classes),
        seconds,
    )
    return {
        name: round(float(value), 4) for name, value in zip(FIGURES, found, strict=True)
    }


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__)
    parser.add_argument(
        "--datasets", nargs="*", default=["toy"] if QUICK else list(TABLES)
    )
    parser.add_argument(
        "--epsilons", nargs="*", type=float, default=[8.0] if QUICK else [1.0, 8.0, 0.2]
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 2)
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(
        partial(measure, args=vars(args)),
        cells(args.datasets, args.epsilons, args.seeds),
        args,
    )


if __name__ == "__main__":
    main()
