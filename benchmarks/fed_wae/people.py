"""DP-Fed-WAE over the number of records, and over fewer people with more rows each:
Figures 4.10 to 4.13.

    python benchmarks/fed_wae/people.py --data data --out benchmarks/fed_wae/people.csv

X. Jiang, dissertation, TUM 2024, §4.5.2: ε = 8 over the number of records, two of each
person, everybody reports once; then ε = 2, 4 and 8 of a person, split over the reports
of people who have 2, 20 and 200 rows and report once, 10 and 100 times. Rounds of 10
people, ξ = 0.1, other settings as in `bench.py`. The paper has up to 10⁶ records, drawn
with replacement; here they are those that the table has, and nobody's are doubled.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import bench
import numpy as np
import pandas as pd
from wae_tables import FILES, Data, load

from common.grid import Grid, by_text, grid_options
from common.options import quick
from understudy.api.train import train
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
CLIENTS_PER_ROUND = 10
RECORDS = (2_000, 10_000, 20_000, 32_000)
ROWS = (2, 20, 200)  # of a person
EPSILONS = (2.0, 4.0, 8.0)
METHODS = ("DP-Fed-WAE", "LoPub", "LoCop")
KEY = (
    "study",
    "dataset",
    "method",
    "records",
    "rows_per_person",
    "epsilon",
    "seed",
)
FIELDS = [
    *KEY,
    "people",
    "max_reports",
    "rounds",
    "avd2",
    "avd4",
    "cmd",
    *bench.SCORES,
    "seconds",
    "machine",
    "date",
]
GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY))
Job = dict[str, Any]


def measure(job: Job) -> dict[str, Any]:
    """One cell."""
    folder = job["data"]
    data = bench.generated() if folder is None else load(job["dataset"], folder)
    start = time.process_time()
    drawn, facts = draw(job, data)
    seconds = time.process_time() - start
    return {name: job[name] for name in (*KEY, "machine")} | {
        **facts,
        **bench.figures(data, drawn, models=job["models"]),
        "seconds": round(seconds, 1),
        "date": date.today().isoformat(),
    }


def draw(job: Job, data: Data) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Synthetic rows, as many as real ones, from `records` rows of people with so many
    each.
    """
    each = job["rows_per_person"]
    people = min(job["records"], len(data.train)) // each
    rows = data.train.iloc[: people * each]
    federation = Federation.rehearsal(
        {"phones": rows.assign(person=np.repeat(np.arange(people), each))},
        {"phones": replace(data.schema, person="person")},
        budget=Budget(math.inf, 0.0),
        seed=job["seed"],
        same_people=False,
    )
    shared = {"epsilon_total": job["epsilon"], "seed": job["seed"]}
    facts = {"people": people, "max_reports": 1, "rounds": ""}
    if job["method"] in bench.BASELINES:
        more = bench.WIDE.get(job["dataset"], {})
        method = job["method"].lower()
        result = train("lopub", federation, method=method, **shared, **more)
    else:
        reports = each // 2  # of a person
        facts |= {
            "max_reports": reports,
            "rounds": people * reports // CLIENTS_PER_ROUND,
        }
        result = train(
            "fed-wae",
            federation,
            top=0.1,
            rounds=facts["rounds"],
            clients_per_round=CLIENTS_PER_ROUND,
            max_reports=reports,
            checkpoint_every=10**6,
            device=job["device"],
            **shared,
            **json.loads(job["settings"]),
        )
    return result.generator.sample(len(data.train), seed=job["seed"]), facts


def jobs(args: argparse.Namespace) -> Iterator[Job]:
    """Records at ε = 8 and two rows a person, then people with more rows each."""
    all_records = max(args.records)
    cells = [("records", records, 2, 8.0) for records in args.records]
    cells += [
        ("people", all_records, rows, epsilon)
        for rows in args.rows
        for epsilon in args.epsilons
    ]
    for seed in args.seeds:
        for dataset in args.only:
            for method in args.methods:
                for study, records, rows, epsilon in cells:
                    if study not in args.studies:
                        continue
                    yield {
                        "study": study,
                        "dataset": dataset,
                        "method": method,
                        "records": records,
                        "rows_per_person": rows,
                        "epsilon": epsilon,
                        "seed": seed,
                        "data": args.data,
                        "device": args.device,
                        "models": args.models,
                        "settings": args.settings,
                        "machine": args.machine,
                    }


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "people.csv", device="cpu")
    parser.add_argument("--only", nargs="*", default=["a9a"], choices=FILES)
    parser.add_argument(
        "--studies",
        nargs="*",
        default=["records", "people"],
        choices=["records", "people"],
    )
    parser.add_argument("--methods", nargs="*", default=["DP-Fed-WAE"], choices=METHODS)
    parser.add_argument(
        "--records", nargs="*", type=int, default=[200] if QUICK else list(RECORDS)
    )
    parser.add_argument(
        "--rows", nargs="*", type=int, default=[4] if QUICK else list(ROWS)
    )
    parser.add_argument(
        "--epsilons", nargs="*", type=float, default=[8.0] if QUICK else list(EPSILONS)
    )
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument(
        "--settings", default="{}", help="further settings of fed-wae, as JSON"
    )
    parser.add_argument("--machine", default="", help="written beside each figure")
    return parser


def main() -> None:
    args = parser().parse_args()
    args.models = ("mlp",) if QUICK else ("mlp", "forest")
    if QUICK:
        args.data = None
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
