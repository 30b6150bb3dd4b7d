"""The server's step γ for the methods that average values: is it γ that holds them back, or the noise?

    python benchmarks/sign_ds/gamma.py --data data --workers 2 --out benchmarks/sign_ds/gamma.csv

The signs are summed (γ = 12.5 on the mean); the mean estimators and the plain mean have γ = 1 in `ours.csv`, as in the
paper. Here they get other γ, one seed, all else as in `bench.py`. γ is the server's own choice and costs nothing.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from bench import measure, read, write

RATES = (0.3, 1.0, 3.0, 10.0, 30.0)
METHODS = ("non-private", "PM", "PM-SUB", "HM", "Duchi")
KEY = ("dataset", "model", "method", "epsilon_round", "global_rate")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DATA") or "data"))
    parser.add_argument("--tasks", nargs="*", default=["usps", "har", "a9a"])
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--epsilons", nargs="*", type=float, default=[8.0, 4.0])
    parser.add_argument("--rates", nargs="*", type=float, default=list(RATES))
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    jobs = [
        {
            "task": task, "method": method, "epsilon": epsilon, "seed": 0, "rounds": args.rounds, "data": args.data,
            "device": args.device, "global_rate": rate, "every_rate": True,
        }
        for method in args.methods
        for task in args.tasks
        for epsilon in (args.epsilons if method != "non-private" else [0.0])
        for rate in args.rates
    ]  # fmt: skip
    rows = read(args.out)
    with ProcessPoolExecutor(args.workers) as pool:
        for done in as_completed([pool.submit(measure, job) for job in jobs]):
            row = done.result()
            print("  ".join(f"{key}={row[key]}" for key in (*KEY, "accuracy")), flush=True)
            same = [str(row[key]) for key in KEY]
            rows = [old for old in rows if [str(old[key]) for key in KEY] != same] + [row]
            if args.out is not None:
                write(args.out, rows)


if __name__ == "__main__":
    main()
