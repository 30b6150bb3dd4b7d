"""Accuracy over rounds: how fast sign-based reports converge, over ε and dimensions.

    python benchmarks/sign_ds/curves.py --data data --workers 2 --out benchmarks/sign_ds/curves.csv

Dissertation of X. Jiang, TUM 2024, Figure 3.9: one index beside five, chosen together
(EM-MDS) or one by one (naive), and the plain mean. Here at several ε, and on tasks of
248 to 76,330 dimensions. Other settings are those of `bench.py` with γ = 12.5, and γ =
30 for the plain mean; held-out accuracy every 25 rounds. A run that stands in the file
is not done again.
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
METHODS = ("SignDS (h=1)", "EM-MDS (h=5)", "naive (h=5)", "non-private")
EPSILONS = (1.0, 8.0)
PLAIN_RATE = 30.0  # gamma.csv: within a point of the best, on every task
KEY = ("dataset", "model", "method", "epsilon_round", "seed")
FIELDS = [*KEY, "dims", "clients_per_round", "round", "accuracy", "machine", "date"]


def measure(job: dict[str, Any]) -> list[dict[str, Any]]:
    """One run: a row for each round at which it was held against held-out rows."""
    result, clients_per_round, _ = bench.run(job)
    name = bench.named(job)
    return [
        {key: name[key] for key in KEY}
        | {
            "dims": result.model.network.size,
            "clients_per_round": clients_per_round,
            "round": point["round"],
            "accuracy": round(point["accuracy"], 4),
            "machine": job["machine"],
            "date": date.today().isoformat(),
        }
        for point in result.model.card["history"]
    ]


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for seed in args.seeds:
        for task in args.tasks:
            for method in args.methods:
                plain = method == "non-private"
                for epsilon in (0.0,) if plain else args.epsilons:
                    yield {
                        "task": task,
                        "method": method,
                        "epsilon": epsilon,
                        "seed": seed,
                        "rounds": args.rounds,
                        "every": args.every,
                        "data": args.data,
                        "device": args.device,
                        "global_rate": PLAIN_RATE if plain else args.global_rate,
                        "every_rate": True,
                        "machine": args.machine,
                    }


GRID = Grid(
    fields=FIELDS,
    key=KEY,
    order=lambda row: [*by_text(*KEY)(row), int(row["round"])],
    columns=bench.named,
)


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "curves.csv", device="cpu")
    parser.add_argument(
        "--tasks",
        nargs="*",
        default=["digits"] if QUICK else ["a9a", "usps", "har"],
        choices=bench.TASKS,
    )
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument(
        "--epsilons", nargs="*", type=float, default=[8.0] if QUICK else EPSILONS
    )
    parser.add_argument(
        "--seeds", nargs="*", type=int, default=[0] if QUICK else [0, 1, 2]
    )
    parser.add_argument("--rounds", type=int, default=4 if QUICK else 500)
    parser.add_argument("--every", type=int, default=2 if QUICK else 25)
    parser.add_argument("--global-rate", type=float, default=12.5)
    parser.add_argument("--machine", default="", help="written beside each figure")
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
