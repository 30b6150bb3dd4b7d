"""Tables from one report a person, beside today's local methods at the same total ε.

    make bench NAME=people DATA=<folder> [QUICK=1]
    python benchmarks/people/bench.py --jobs 6                                  # ours.csv, resumed where it stopped
    python benchmarks/people/bench.py --methods "wake-sleep" LoPub --only credit
    python benchmarks/people/bench.py --liars --only adult --jobs 6             # liars.csv

ε is the price of everything that a person ever sends. People have one or two rows
(`--rows`); who has two reports about one, drawn at random. On what tables settings of
`one-report` were chosen, the README says.

- one-report: the target named; "no target": all pairs alike; "single columns": all
  people on single columns, no pairs.
- wake-sleep, LoPub, LoCop: everybody reports once, as in benchmarks/fed_wae, whose
  README has DP-Fed-WAE besides.
- Without privacy: independent columns, a bootstrap of all rows, and a subsample of so
  many rows ("50 rows", …): what a distance is worth in plain rows.

Columns: `avd2`, `avd3` mean distance of 2- and 3-way tables (0 is equal); `auc`, `f1`,
`brier` of boosting, and with `_mlp` of an MLP, that were trained on synthetic rows and
tested on real ones; `bytes` that all people sent together; `seconds` of the whole run.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import numpy as np
import pandas as pd
from people_figures import SCORES, figures
from people_tables import DATASETS, Data, load

from common.grid import Grid, by_text, grid_options
from common.options import quick
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.evaluate.utility.marginals import bootstrap, shuffle_columns
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
OURS = ("one-report", "one-report, no target", "one-report, single columns")
OTHERS = ("wake-sleep", "LoPub", "LoCop")
ROWS = (25, 50, 100, 200, 500, 1000, 2000)
WITHOUT = ("independent columns", "bootstrap", *(f"{rows} rows" for rows in ROWS))
METHODS = (*OURS, *OTHERS, *WITHOUT)
# of LoPub: two columns together
WIDE = {"census": {"cells": 4096}, "credit": {"cells": 4096}}
ROUNDS = 500  # of wake-sleep, in which all people report once
KEY = ("dataset", "rows", "level", "method", "epsilon_total", "seed")
FIELDS = [
    "dataset",
    "people",
    "rows",
    "level",
    "method",
    "epsilon_total",
    "seed",
    "avd2",
    "avd3",
    *SCORES,
    *(f"{score}_mlp" for score in SCORES),
    "bytes",
    "seconds",
]
GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY))

Job = dict[str, Any]


def measure(job: Job) -> dict[str, Any]:
    """One cell of the grid."""
    data = load(job["dataset"], job["data"])
    start = time.perf_counter()
    rows, facts = drawn(job, data)
    seconds = round(time.perf_counter() - start, 1)
    cell = {key: job[key] for key in KEY} | facts | {"seconds": seconds}
    return cell | figures(data, rows, job["models"])


def drawn(job: Job, data: Data) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Synthetic rows, as many as real ones, and what is to be said of how they came."""
    method = job["method"]
    size = len(data.train)
    rng = np.random.default_rng(job["seed"])
    if method == "independent columns":
        codec = Codec(data.schema)
        return codec.decode(shuffle_columns(codec.codes(data.train), size, rng)), {}
    if method in WITHOUT:
        many = size if method == "bootstrap" else min(size, int(method.split()[0]))
        kept = data.train.iloc[rng.permutation(size)[:many]]
        return kept.iloc[bootstrap(many, size, rng)].reset_index(drop=True), {}
    people = data.people(job["rows"])
    hosted = people["person"].nunique()
    federation = Federation.rehearsal(
        {"phones": people},
        {"phones": replace(data.schema, person="person")},
        budget=Budget(math.inf, 0.0),
        seed=job["seed"],
        same_people=False,
    )
    result = train(**settings(job, data, hosted), federation=federation)
    sent = result.generator.card.get("bytes", "")
    return result.generator.sample(size, seed=job["seed"]), {
        "people": hosted,
        "bytes": sent,
    }


def settings(job: Job, data: Data, people: int) -> dict[str, Any]:
    """The protocol and its settings, everybody reporting once."""
    method = job["method"]
    epsilon = job["epsilon_total"]
    shared = {"seed": job["seed"]}
    if method in OURS:
        target = data.target if method == "one-report" else None
        more = {"share": 1.0} if method == "one-report, single columns" else {}
        return (
            shared
            | more
            | {
                "protocol": "one-report",
                "epsilon_total": epsilon,
                "target": target,
                "device": job["device"],
            }
        )
    if method == "wake-sleep":
        clients_per_round = max(1, people // ROUNDS)
        return shared | {
            "protocol": "wake-sleep",
            "epsilon": epsilon,
            "max_reports": 1,
            "clients_per_round": clients_per_round,
            "rounds": people // clients_per_round,
            "checkpoint_every": 10**6,
            "device": job["device"],
        }
    wide = WIDE.get(job["dataset"], {})
    return (
        shared
        | wide
        | {"protocol": "lopub", "method": method.lower(), "epsilon_total": epsilon}
    )


def jobs(args: argparse.Namespace) -> Iterator[Job]:
    """Only what reports has an ε, and people with a number of rows."""
    for seed in range(args.seeds):
        for dataset in args.only:
            for method in args.methods:
                priced = method not in WITHOUT
                for rows in args.rows if priced else ("",):
                    for epsilon in args.epsilons if priced else ("",):
                        yield {
                            "dataset": dataset,
                            "rows": rows,
                            "level": "local" if priced else "",
                            "method": method,
                            "epsilon_total": epsilon,
                            "seed": seed,
                            "data": args.data,
                            "device": args.device,
                            "models": args.models,
                        }


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, device="cpu")
    parser.add_argument("--only", nargs="*", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--rows", nargs="*", type=int, default=[2])
    parser.add_argument("--models", nargs="*", default=["boosting", "mlp"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--liars", action="store_true", help="people who lie: liars.csv"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    args.models = tuple(args.models)
    if QUICK:
        args.data = None
        args.only = ["adult"]
        args.epsilons = [8.0]
        args.seeds = 1
        args.models = ("boosting",)
        args.methods = ["one-report", "independent columns", "50 rows"]
    elif args.out is None:
        args.out = HERE / ("liars.csv" if args.liars else "ours.csv")
    if args.liars:
        from liars import GRID as LIARS
        from liars import jobs as lies
        from liars import measure as lied

        LIARS.run(lied, lies(args), args)
        return
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
