"""SignDS-FL from public weights: accuracy over rounds, with and without a start that
was trained on a few public rows.

    python benchmarks/sign_ds/public.py --data data --out benchmarks/sign_ds/public.csv

The article proposes it and does not measure it (Jiang, Zhou, Grossklags, "SignDS-FL",
ACM TIST 2022, §6.2). Public rows are drawn from those held out, and the accuracy is
that on the rest; `start` is the model's before the first round. Other settings are
those of `bench.py` with γ = 12.5. Public rows of the same law are the best case: a
deployment's are of another.
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
METHOD = "SignDS (h=1)"
EPSILONS = (0.5, 2.0, 8.0)
PUBLIC_ROWS = (0, 50, 200)
EARLY = 50  # rounds after which the accuracy is noted, too
KEY = ("dataset", "model", "epsilon_round", "public_rows", "seed")
FIELDS = [
    *KEY,
    "method",
    "global_rate",
    "rounds",
    "start",
    "early_rounds",
    "early",
    "accuracy",
    "machine",
    "date",
]


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One start, at one ε."""
    # a step that moves nothing
    still = job | {"rounds": 1, "every": 1, "global_rate": 1e-12}
    (first,) = accuracies(still)
    found = accuracies(job | {"every": min(EARLY, job["rounds"])})
    columns = bench.named(job)
    return {name: columns[name] for name in KEY} | {
        "method": METHOD,
        "global_rate": job["global_rate"],
        "rounds": job["rounds"],
        "start": round(first, 4),
        "early_rounds": min(EARLY, job["rounds"]),
        "early": round(found[0], 4),
        "accuracy": round(found[-1], 4),
        "machine": job["machine"],
        "date": date.today().isoformat(),
    }


def accuracies(job: dict[str, Any]) -> list[float]:
    result, _, _ = bench.run(job)
    return [line["accuracy"] for line in result.model.card["history"]]


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for seed in args.seeds:
        for task in args.tasks:
            for public_rows in args.public_rows:
                for epsilon in args.epsilons:
                    yield {
                        "task": task,
                        "method": METHOD,
                        "epsilon": epsilon,
                        "public_rows": public_rows,
                        "seed": seed,
                        "rounds": args.rounds,
                        "data": args.data,
                        "device": args.device,
                        "global_rate": args.global_rate,
                        "machine": args.machine,
                    }


GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY), columns=bench.named)


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "public.csv", device="cpu")
    parser.add_argument(
        "--tasks",
        nargs="*",
        default=["digits"] if QUICK else ["usps", "har"],
        choices=bench.TASKS,
    )
    parser.add_argument(
        "--epsilons", nargs="*", type=float, default=[8.0] if QUICK else list(EPSILONS)
    )
    parser.add_argument(
        "--public-rows",
        nargs="*",
        type=int,
        default=[0, 50] if QUICK else list(PUBLIC_ROWS),
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
