"""Series by one release: distance, coverage and next-step error at the ε of a person in
all.

    make bench NAME=series DATA=<folder> [QUICK=1]
    python benchmarks/series/bench.py --data data --jobs 6 --out benchmarks/series/ours.csv

Moments (`protocols/moments`) with two releases, and with a third for cells, on the
people of benchmarks/fed_stdg, who have ten series each and count once, by their
average; δ = 10⁻⁵. Its rules were chosen on Sine and Energy, but for how far the mean is
shrunk, which Air and Stock showed. There ε is that of one of many reports; here it is
all that a person pays.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import torch

from common.grid import Grid, by_text, grid_options
from common.options import quick
from common.windows import DATASETS, load
from understudy.api.train import train
from understudy.evaluate.utility.series import (
    coverage,
    median_distance,
    mmd,
    next_step_mae,
)
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 8.0)
METHODS: dict[str, dict[str, Any]] = {
    "moments": {"shares": (0.3, 0.7, 0.0)},
    "moments, cells": {"shares": (0.3, 0.3, 0.4)},
}
FIELDS = [
    "dataset",
    "people",
    "method",
    "epsilon_total",
    "seed",
    "next_step_mae",
    "mmd",
    "coverage",
    "directions",
    "cells",
    "histograms",
    "seconds",
]
KEY = ("dataset", "method", "epsilon_total", "seed")


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One cell. ε of 0 stands for no noise."""
    torch.set_num_threads(1)
    data = load(job["dataset"], job["data"], seed=job["seed"], most=job["most"])
    card = {}
    start = time.perf_counter()
    drawn = data.people.values
    if job["method"] != "real":
        budget = Budget(job["epsilon_total"] or math.inf, DELTA)
        federation = Federation.rehearsal(
            {"phones": data.people}, budget=budget, seed=job["seed"], same_people=False
        )
        settings = METHODS[job["method"]] | (
            {} if job["epsilon_total"] else {"private": False}
        )
        generator = train("moments", federation, **settings).generator
        count = max(1000, min(10_000, data.people.rows))
        drawn = data.people.schema.scaled(generator.series(count, seed=0))
        card = dict(generator.card)
    seconds = time.perf_counter() - start
    test = data.test[:2000]
    return (
        {key: job[key] for key in KEY}
        | {
            "people": len(data.people.ids),
            "mmd": round(mmd(test, drawn[:2000], bandwidth=median_distance(test)), 4),
            "coverage": round(coverage(test, drawn[:2000]), 4),
            "next_step_mae": round(
                next_step_mae(drawn, data.test, steps=job["predictor_steps"]), 4
            ),
            "seconds": round(seconds, 1),
        }
        | {key: card.get(key, "") for key in ("directions", "cells", "histograms")}
    )


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every cell."""
    common = {key: getattr(args, key) for key in ("data", "most", "predictor_steps")}
    for dataset in args.datasets:
        cells = [
            (method, epsilon) for method in METHODS for epsilon in (*args.epsilons, 0.0)
        ]
        for method, epsilon in (*cells, ("real", 0.0)):
            for seed in range(args.seeds if epsilon else 1):
                yield common | {
                    "dataset": dataset,
                    "method": method,
                    "epsilon_total": epsilon,
                    "seed": seed,
                }


GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY))


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__)
    parser.add_argument(
        "--datasets",
        nargs="*",
        default=["sine"] if QUICK else list(DATASETS),
        choices=DATASETS,
    )
    parser.add_argument(
        "--epsilons", nargs="*", type=float, default=[8.0] if QUICK else list(EPSILONS)
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    parser.add_argument(
        "--most", type=int, default=300 if QUICK else None, help="series to use at most"
    )
    parser.add_argument("--predictor-steps", type=int, default=20 if QUICK else 1000)
    parser.add_argument(
        "--only", default="", help="run the cells whose name contains this"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, (job for job in jobs(args) if args.only in GRID.title(job)), args)


if __name__ == "__main__":
    main()
