"""Distance of m-way tables, m from 2 to 6, at ε = 4: Figure 4.5.

    python benchmarks/fed_wae/ways.py --data data --out benchmarks/fed_wae/ways.csv

X. Jiang, dissertation, TUM 2024, §4.5.2: the same sets of columns for every method,
100 of each size. Everybody reports once, ξ = 0.1; other settings as in `bench.py`.
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
from wae_tables import FILES, load

from common.grid import Grid, by_text, grid_options
from common.options import quick
from understudy.data.encoding.codec import Codec
from understudy.evaluate.utility.marginals import Marginals

HERE = Path(__file__).parent
QUICK = quick()
WAYS = (2, 3, 4, 5, 6)
METHODS = ("DP-Fed-WAE, once", "LoPub", "LoCop", "independent columns")
KEY = ("dataset", "method", "epsilon", "seed")
FIELDS = [*KEY, "people", "ways", "avd", "machine", "date"]
GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY, "ways"))
Job = dict[str, Any]


def measure(job: Job) -> list[dict[str, Any]]:
    """One method on one table: a row for each m."""
    folder = job["data"]
    data = bench.generated() if folder is None else load(job["dataset"], folder)
    drawn, _ = bench.draw(job, data)
    rows = drawn.get("sample", drawn.get(""))  # shuffled columns are drawn one way
    codec = Codec(data.schema)
    marginals = Marginals(codec.codes(data.train), codec.codes(rows), codec.sizes)
    cell = {name: job[name] for name in (*KEY, "machine")} | {
        "people": len(data.train) // 2,
        "date": date.today().isoformat(),
    }
    distances = {ways: marginals.avd(ways).value for ways in WAYS}
    return [
        cell | {"ways": ways, "avd": round(value, 4)}
        for ways, value in distances.items()
        if value is not None
    ]


def jobs(args: argparse.Namespace) -> Iterator[Job]:
    """Every table and method; what reports nothing has no ε."""
    for seed in range(args.seeds):
        for dataset in args.only:
            for method in args.methods:
                yield {
                    "dataset": dataset,
                    "method": method,
                    "epsilon": args.epsilon if method in bench.PRICED else "",
                    "seed": seed,
                    "top": 0.1,
                    "settings": "{}",
                    "data": args.data,
                    "device": args.device,
                    "rounds": args.rounds,
                    "clients_per_round": 10,
                    "machine": args.machine,
                }


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "ways.csv", device="cpu")
    parser.add_argument("--only", nargs="*", default=["a9a", "adult"], choices=FILES)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=4 if QUICK else 5000)
    parser.add_argument("--machine", default="", help="written beside each figure")
    return parser


def main() -> None:
    args = parser().parse_args()
    if QUICK:
        args.data = None
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
