"""Bought levels beside bins made by hand: other shares for the fine tables, and fewer
or more levels.

    python benchmarks/numbers/tried.py --data <folder> [--datasets adult …] [--seeds 10] [--jobs 6]

20,000 people, ε = 1, bounds ten times too wide; cells are those of `bench.py`. `fine`
is the share of the budget for fine tables, .3 by default, and .2 where another `signal`
is tried: what a cell of two average levels holds, in deviations of its noise
(`merged_levels.py`); 1 is the default, less is more levels. Rows are added to the file.
QUICK=1: one small table.
"""

import argparse
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import bench
import pandas as pd

from common.options import options, quick
from common.rows import said, write
from understudy.models.tables import merged_levels

QUICK = quick()
LEVEL_COUNT = merged_levels.level_count
TRIED = {  # fine, signal
    "hand": (0.0, 1.0),
    "bought": (0.3, 1.0),
    "fine 0.2": (0.2, 1.0),
    "fine 0.4": (0.4, 1.0),
    "fine 0.1": (0.1, 1.0),
    "fine 0.05": (0.05, 1.0),
    "signal 0.5": (0.2, 0.5),
    "signal 2": (0.2, 2.0),
    "signal 4": (0.2, 4.0),
    "fine 0.1, signal 2": (0.1, 2.0),
}
FIELDS = (
    "dataset",
    "people",
    "seed",
    "tried",
    "ks",
    "ks_worst",
    "avd2",
    "tstr_auc",
    "levels",
)


def _levels_at(signal: float, people: float, noise: float, *most: int) -> int:
    return LEVEL_COUNT(people, signal * noise, *most)


def run(
    dataset: str, people: int, seed: int, tried: str, folder: Path
) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    fine, signal = TRIED[tried]
    merged_levels.level_count = partial(_levels_at, signal)  # type: ignore[assignment]
    method = "hand" if tried == "hand" else "bought"
    cell = bench.Cell(
        dataset=dataset,
        people=people,
        method=method,
        widened=1 if method == "hand" else 10,
        epsilon=1.0,
        seed=seed,
    )
    *columns, whole = bench.measure(
        cell, {"data": folder, "device": "cpu", "settings": {"fine": fine}}
    )
    near = [row["ks"] for row in columns]
    figures = {"ks": round(sum(near) / len(near), 4), "ks_worst": max(near)}
    figures |= {name: whole[name] for name in ("avd2", "tstr_auc", "levels")}
    return {
        "dataset": dataset,
        "people": people,
        "seed": seed,
        "tried": tried,
    } | figures


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "tried.csv", data=True)
    names = ["laws"] if QUICK else ["adult", "bank_full", "credit_default", "laws"]
    parser.add_argument("--datasets", nargs="+", default=names)
    parser.add_argument("--people", type=int, default=500 if QUICK else 20_000)
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 10)
    parser.add_argument("--tried", nargs="+", default=list(TRIED), choices=TRIED)
    parser.add_argument("--jobs", type=int, default=1)
    return parser


def main() -> None:
    args = parser().parse_args()
    jobs = [
        (dataset, args.people, seed, tried, args.data)
        for seed in range(args.seeds)
        for dataset in args.datasets
        for tried in args.tried
    ]
    rows = pd.read_csv(args.out).to_dict("records") if args.out.exists() else []
    with ProcessPoolExecutor(args.jobs) as pool:
        for row in pool.map(run, *zip(*jobs, strict=True)):
            rows.append(row)
            print(said(row), flush=True)
            write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()
