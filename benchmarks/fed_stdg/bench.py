"""FedSTDG and its baselines on the paper's series: MMD, coverage, next-step error, over
ε and under attack.

    make bench NAME=fed_stdg DATA=<folder> [QUICK=1]
    python benchmarks/fed_stdg/bench.py --data data --jobs 14 --out benchmarks/fed_stdg/ours.csv
    python benchmarks/fed_stdg/bench.py --only stock/AdaSubMDS     # cells whose name contains this
    python benchmarks/fed_stdg/bench.py --speed [--device cuda]    # a cohort beside one client at a time

Settings of the paper (dissertation of X. Jiang, TUM 2024, §5.6.1): 1000 rounds × 50
clients × 10 series, 10 epochs of Adam at 0.001, k = 0.05 d, ρ = 0.1, ς* = 0.8; γ = 5,
or 25 halved by MagRR with a patience of 50. Every finished cell is added to the file at
once, and a cell that stands there is not run again.

ε is that of one report; `participations` says how many the busiest person gave,
`epsilon_run` what they cost together. "once" is the honest setting: nobody reports
twice, so there are only people/50 rounds (patience: a twentieth of them).

The three real datasets are each one long series, whose overlapping windows (stride 1)
are dealt out to "people" at random, as the paper does: a comparison of mechanisms, and
not a statement about anybody's privacy. Bounds come from these public files, where a
holder would declare them.
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

import numpy as np
import torch

from common.central import central
from common.grid import Grid, by_text, grid_options
from common.options import quick
from common.rows import said
from common.windows import DATASETS, Data, load
from understudy.api.train import train
from understudy.evaluate.utility.series import (
    coverage,
    median_distance,
    mmd,
    next_step_mae,
)
from understudy.models.nets.autoencoder import Rwae
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.core.common_rule import common_rule
from understudy.protocols.papers.fed_stdg import protocol as fed_stdg
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
EPSILONS = (0.5, 2.0, 8.0)
FIXED = {"adaptive": False}
ADAPTIVE = {"adaptive": True}
METHODS: dict[str, dict[str, Any]] = {
    "SignDS-S": {"reporter": "ps"} | FIXED,
    "SignDS-E": {"reporter": "naive"} | FIXED,
    "SignDS-M": {"reporter": "em-mds"} | FIXED,
    "SubMDS": {"reporter": "sub-mds"} | FIXED,
    "AdaSubMDS": {"reporter": "sub-mds"} | ADAPTIVE,
    "AdaSubMDS, once": {"reporter": "sub-mds"} | ADAPTIVE,
    "FL": {"reporter": "none"},
    "central": {},
    "real": {},
}
FREE = ("FL", "central", "real")  # cost no ε, and protect nobody
POISONED = {  # Fig. 5.9; Fig. 9 of the article has SignDS and EM-MDS, too
    "SubMDS": (2.0, 8.0),
    "FL": (0.0,),
    "SignDS-S": (2.0, 8.0),
    "SignDS-M": (2.0, 8.0),
}
FIELDS = [
    "dataset",
    "method",
    "poison",
    "epsilon_round",
    "epsilon_run",
    "participations",
    "people",
    "dims",
    "rounds",
    "indices",
    "seed",
    "mmd",
    "coverage",
    "next_step_mae",
    "seconds",
    "device",
]
KEY = ("dataset", "method", "poison", "epsilon_round", "seed")


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One cell."""
    torch.set_num_threads(1)
    data = load(job["dataset"], job["data"], seed=job["seed"], most=job["most"])
    start = time.perf_counter()
    drawn, card = _draw(job, data)
    seconds = time.perf_counter() - start
    test = data.test[:2000]
    most = card.get("reports", {}).get("of the busiest person", "")
    return {key: job[key] for key in KEY} | {
        "epsilon_run": round(job["epsilon_round"] * most, 4)
        if job["epsilon_round"]
        else "",
        "participations": most,
        "people": len(data.people.ids),
        "dims": Rwae(*data.people.schema.shape).size,
        "rounds": card.get("rounds", ""),
        "indices": card.get("report", {}).get("indices", ""),
        "mmd": round(mmd(test, drawn[:2000], bandwidth=median_distance(test)), 4),
        "coverage": round(coverage(test, drawn[:2000]), 4),
        "next_step_mae": round(
            next_step_mae(drawn, data.test, steps=job["predictor_steps"]), 4
        ),
        "seconds": round(seconds, 1),
        "device": job["device"],
    }


def _draw(
    job: dict[str, Any], data: Data
) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    """Synthetic series in [0, 1], and what the run says of itself."""
    method = job["method"]
    seed = job["seed"]
    people = len(data.people.ids)
    if method == "real":
        return data.people.values, {}
    more = dict(job.get("more", {}))
    clients_per_round = min(more.pop("clients_per_round", 50), people)
    rounds = job["rounds"]
    common = {
        "seed": seed,
        "device": job["device"],
        "clients_per_round": clients_per_round,
        "checkpoint_every": 10**6,
    }
    if method == "central":
        config = fed_stdg.Config(**common, reporter="none")
        generator = central(config, data.people, steps=10 * rounds)
        return _scaled(generator, data), {}
    settings = (
        METHODS[method]
        | common
        | {
            "rounds": rounds,
            "max_reports": math.ceil(1.5 * rounds * clients_per_round / people) + 10,
        }
    )
    if method.endswith("once"):
        rounds = people // clients_per_round
        settings |= {
            "rounds": rounds,
            "max_reports": 1,
            "patience": max(1, rounds // 20),
        }
    if job["epsilon_round"]:
        settings["epsilon"] = job["epsilon_round"]
    if method == "SignDS-E":  # as many indices as SignDS-M, whatever share is left
        with_m = fed_stdg.Config(**settings | METHODS["SignDS-M"])
        dims = with_m.network_for(common_rule({"people": data.people.schema})).size
        settings["chosen"] = with_m.local(dims).chosen
    settings |= more
    if job["poison"]:
        settings["poison"] = {"kind": job["poison"], "share": 0.2}
    federation = Federation.rehearsal(
        {"phones": data.people},
        budget=Budget(math.inf, 0.0),
        seed=seed,
        same_people=False,
    )
    generator = train("fed-stdg", federation, **settings).generator
    return _scaled(generator, data), dict(generator.card)


def _scaled(generator: Any, data: Data) -> np.ndarray[Any, Any]:
    return data.people.schema.scaled(
        generator.series(max(1000, min(10_000, data.people.rows)), seed=0)
    )


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every cell: methods over ε; then the attacks."""
    for seed in range(args.seeds):
        for dataset in args.datasets:
            cells = [
                (method, "", epsilon)
                for method in args.methods
                for epsilon in ((0.0,) if method in FREE else args.epsilons)
            ]
            cells += [
                (m, kind, e)
                for m, steps in POISONED.items()
                if m in args.methods and not args.honest
                for kind in ("random", "flip")
                for e in steps
            ]
            for method, poison, epsilon in cells:
                yield {
                    "dataset": dataset,
                    "method": method,
                    "poison": poison,
                    "epsilon_round": epsilon,
                    "seed": seed,
                    "rounds": args.rounds,
                    "data": args.data,
                    "device": args.device,
                    "most": args.most,
                    "predictor_steps": args.predictor_steps,
                }


def title(job: dict[str, Any]) -> str:
    """dataset/method/poison/ε/seed, with the empty ones left out."""
    return "/".join(
        f"{job[key]:g}" if isinstance(job[key], float) else str(job[key])
        for key in KEY
        if job[key] != ""
    )


GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY), name=title)


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
    parser.add_argument(
        "--methods", nargs="*", default=list(METHODS), choices=list(METHODS)
    )
    parser.add_argument(
        "--honest", action="store_true", help="leave out the cells with liars"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2 if QUICK else 1000)
    parser.add_argument(
        "--most", type=int, default=300 if QUICK else None, help="series to use at most"
    )
    parser.add_argument("--predictor-steps", type=int, default=20 if QUICK else 1000)
    parser.add_argument(
        "--only", default="", help="run the cells whose name contains this"
    )
    parser.add_argument("--speed", action="store_true")
    return parser


def main() -> None:
    args = parser().parse_args()
    if args.speed:
        from speed import race

        print(said(race(args.device)))
        return
    GRID.run(measure, (job for job in jobs(args) if args.only in title(job)), args)


if __name__ == "__main__":
    main()
