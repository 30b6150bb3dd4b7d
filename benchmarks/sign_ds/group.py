"""SignDS-FL and three baselines over the number of clients a round, and over the
further ε and h of the paper's Figures 3.5 and 3.8.

    python benchmarks/sign_ds/group.py --data data --workers 2 --out benchmarks/sign_ds/group.csv

Dissertation of X. Jiang, TUM 2024, §3.5.2 and §3.5.4: 100, 250, 500 and 750 clients a
round at ε = 4; one index beside five, chosen together (EM-MDS) or one by one (naive),
at ε = 1, 4, 8 and 12. USPS has 743 clients here, which then all take part. Other
settings are those of `bench.py` with γ = 12.5 for SignDS. A cell that stands in the
file is not run again.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import bench

from common.grid import Grid, by_text, grid_options
from common.options import quick

HERE = Path(__file__).parent
QUICK = quick()
CLIENTS_PER_ROUND = (100, 250, 500, 750)
GROUPED = ("SignDS (h=1)", "PM", "FedSel (0.5)")
STRATEGIES = ("SignDS (h=1)", "EM-MDS (h=5)", "naive (h=5)")
EPSILONS = (1.0, 4.0, 8.0, 12.0)
KEY = (
    "study",
    "dataset",
    "model",
    "method",
    "clients_per_round",
    "epsilon_round",
    "seed",
)
FIELDS = ["study", "clients_per_round", *bench.FIELDS, "machine", "date"]


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One run, in the columns of `bench.py`."""
    row = bench.measure(job)
    return row | {
        "study": job["study"],
        "clients_per_round": job["clients_per_round"],
        "machine": job["machine"],
        "date": date.today().isoformat(),
    }


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The number of clients at ε = 4, then indices and ε at 250 clients."""
    cells = [
        ("group", method, clients, 4.0)
        for method in GROUPED
        for clients in CLIENTS_PER_ROUND
    ]
    cells += [
        ("strategies", method, 250, epsilon)
        for method in STRATEGIES
        for epsilon in EPSILONS
    ]
    for seed in args.seeds:
        for task in args.tasks:
            for study, method, clients, epsilon in cells:
                if study in args.studies:
                    yield {
                        "study": study,
                        "task": task,
                        "method": method,
                        "clients_per_round": clients,
                        "epsilon": epsilon,
                        "seed": seed,
                        "rounds": args.rounds,
                        "data": args.data,
                        "device": args.device,
                        "global_rate": args.global_rate,
                        "machine": args.machine,
                    }


GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY), columns=bench.named)


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "group.csv", device="cpu")
    parser.add_argument(
        "--tasks",
        nargs="*",
        default=["digits"] if QUICK else ["a9a", "usps"],
        choices=bench.TASKS,
    )
    parser.add_argument(
        "--studies",
        nargs="*",
        default=["group", "strategies"],
        choices=["group", "strategies"],
    )
    parser.add_argument(
        "--seeds", nargs="*", type=int, default=[0] if QUICK else [0, 1, 2]
    )
    parser.add_argument("--rounds", type=int, default=5 if QUICK else 500)
    parser.add_argument("--global-rate", type=float, default=12.5)
    parser.add_argument("--machine", default="", help="written beside each figure")
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
