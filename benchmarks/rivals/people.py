"""One report a person beside independent columns, on tables that no setting of it was
chosen by: where it turns.

    DATA=<folder> python benchmarks/rivals/people.py [--tables bank …] [--epsilon 0.5 …] [--seeds 3] [--jobs 2]

Every person has one row and sends one report; ε is the price of everything that a
person ever sends. Methods:

    one-report        pairs too, the target named
    single columns    the same people report on single columns alone: independent
                      columns from reports
    independent       real columns, each shuffled by itself, without privacy: what no
                      independent columns can better
    bootstrap         real rows, drawn with replacement, without privacy

`avd2` is the mean distance of tables of two columns, `avd2_target` of those with the
target, `auc` that of boosting that learned from drawn rows and is tested on real ones.
None of these tables stands in benchmarks/people.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from borrowed import script

from common.grid import Grid, by_text, grid_options
from common.options import quick
from common.public_tables import Public, column
from common.sources import need
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Schema
from understudy.evaluate.utility.downstream import (
    Examples,
    classification_scores,
    score_model,
)
from understudy.evaluate.utility.marginals import Marginals, bootstrap, shuffle_columns
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
TABLES = ("bank", "diabetes", "mushroom", "wine", "randhie")
REPORTS = {"one-report": {}, "single columns": {"share": 1.0}}
METHODS = (*REPORTS, "independent", "bootstrap")
EPSILONS = (2.0, 1.0, 4.0, 8.0, 0.5)
KEY = ("dataset", "method", "epsilon", "seed")
FIELDS = (*KEY, "people", "columns", "avd2", "avd2_target", "auc", "seconds")
GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY))


def load(name: str, folder: Path, seed: int) -> Public:
    """The table of that name; a fifth is held out."""
    if name == "wine":
        known = script("numbers", "tables").load("wine_quality", folder, seed)
        return Public(known.train, known.test, known.hand, known.target)
    if name != "mushroom":
        found: Public = script("joint", "tables").load(name, folder, seed)
        return found
    (path,) = need(folder, "mushroom.csv.gz")
    # which has one level
    frame = pd.read_csv(path, keep_default_na=False).drop(columns="veil-type")
    order = np.random.default_rng([seed, 7]).permutation(len(frame))
    cut = len(frame) // 5
    test, train = (
        frame.iloc[part].reset_index(drop=True) for part in (order[:cut], order[cut:])
    )
    return Public(
        train,
        test,
        Schema(columns=tuple(column(frame[c], None) for c in frame.columns)),
        "class",
    )


def measure(job: dict[str, Any]) -> dict[str, Any]:
    table = load(job["dataset"], job["data"], job["seed"])
    codec = Codec(table.schema)
    size = len(table.train)
    real = codec.codes(table.train)
    test = codec.codes(table.test)
    start = time.process_time()
    made = drawn(job, table, codec, real)
    seconds = round(time.process_time() - start, 1)
    place = table.schema.names.index(table.target)
    marginals = Marginals(real, made, codec.sizes, ends=())
    pairs = np.array([(i, place) for i in range(len(codec.sizes)) if i != place])
    found = {
        "people": size,
        "columns": len(codec.sizes),
        "avd2": marginals.avd(2).value,
        "avd2_target": float(marginals.distances(pairs).mean()),
        "auc": learned(made, test, codec, place),
    }
    rounded = {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in found.items()
    }
    return {key: job[key] for key in KEY} | rounded | {"seconds": seconds}


def drawn(job: dict[str, Any], table: Public, codec: Codec, real: Any) -> Any:
    """Codes of as many rows as there are people."""
    size = len(real)
    rng = np.random.default_rng(job["seed"])
    if job["method"] == "independent":
        return shuffle_columns(real, size, rng)
    if job["method"] == "bootstrap":
        return real[bootstrap(size, size, rng)]
    federation = Federation.rehearsal(
        {"phones": table.train.assign(person=np.arange(size))},
        {"phones": replace(table.schema, person="person")},
        budget=Budget(math.inf, 0.0),
        seed=job["seed"],
        same_people=False,
    )
    target = table.target if job["method"] == "one-report" else None
    asked = {
        "epsilon_total": job["epsilon"],
        "target": target,
        "seed": job["seed"],
        "device": job["device"],
    }
    result = train("one-report", federation, **asked, **REPORTS[job["method"]])
    return codec.codes(
        result.generator.sample(size, seed=job["seed"])[list(table.schema.names)]
    )


def learned(made: Any, test: Any, codec: Codec, place: int) -> float:
    rest = [column for column in range(len(codec.sizes)) if column != place]
    rows, real = (
        Examples(codes[:, rest], codes[:, place].astype(np.int64)).sample(
            20_000, np.random.default_rng(0)
        )
        for codes in (made, test)
    )
    score = partial(classification_scores, real.target)
    sizes = [codec.sizes[column] for column in rest]
    found, *_ = score_model(
        "boosting", rows, real.features, sizes, codec.sizes[place], 0, score
    )
    auc = found["auc"]
    return float(auc) if isinstance(auc, float) else 0.5


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for seed in range(args.seeds):
        for method in ("independent", "bootstrap"):
            for dataset in args.tables:
                yield {
                    "dataset": dataset,
                    "method": method,
                    "epsilon": "",
                    "seed": seed,
                    "data": args.data,
                }
        for epsilon in args.epsilon:
            for dataset in args.tables:
                for method in REPORTS:
                    yield {
                        "dataset": dataset,
                        "method": method,
                        "epsilon": epsilon,
                        "seed": seed,
                        "data": args.data,
                        "device": args.device,
                    }


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "people.csv", device="cpu")
    parser.add_argument(
        "--tables",
        nargs="+",
        default=["wine"] if QUICK else list(TABLES),
        choices=TABLES,
    )
    parser.add_argument(
        "--epsilon", nargs="+", type=float, default=[8.0] if QUICK else list(EPSILONS)
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
