"""The server's step γ for the methods that average values: is it γ that holds them
back, or the noise?

    python benchmarks/sign_ds/gamma.py --data data --workers 2 --out benchmarks/sign_ds/gamma.csv

The signs are summed (γ = 12.5 on the mean); the mean estimators and the plain mean have
γ = 1 in `ours.csv`, as in the paper. Here they get other γ, one seed, all else as in
`bench.py`. γ is the server's own choice and costs nothing. A finished cell is not run
again.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import bench

from common.grid import grid_options

RATES = (0.3, 1.0, 3.0, 10.0, 30.0)
METHODS = ("non-private", "PM", "PM-SUB", "HM", "Duchi")
KEY = ("dataset", "model", "method", "epsilon_round", "global_rate")
GRID = replace(bench.GRID, key=KEY)


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, device="cpu")
    parser.add_argument("--tasks", nargs="*", default=["usps", "har", "a9a"])
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--epsilons", nargs="*", type=float, default=[8.0, 4.0])
    parser.add_argument("--rates", nargs="*", type=float, default=list(RATES))
    parser.add_argument("--rounds", type=int, default=500)
    return parser


def main() -> None:
    args = parser().parse_args()
    jobs = [
        {
            "task": task,
            "method": method,
            "epsilon": epsilon,
            "seed": 0,
            "rounds": args.rounds,
            "data": args.data,
            "device": args.device,
            "global_rate": rate,
            "every_rate": True,
        }
        for method in args.methods
        for task in args.tasks
        for epsilon in (args.epsilons if method != "non-private" else [0.0])
        for rate in args.rates
    ]
    GRID.run(bench.measure, jobs, args)


if __name__ == "__main__":
    main()
