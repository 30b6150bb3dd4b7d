"""FedSTDG's ablations: ε between indices and magnitude, clients a round, decay and
patience.

    python benchmarks/fed_stdg/ablations.py --data data --device cuda --jobs 5 --out benchmarks/fed_stdg/ablations.csv
    python benchmarks/fed_stdg/ablations.py --studies clients --datasets stock

Dissertation of X. Jiang, TUM 2024, §5.6.2: Figure 5.6 (ε_mag of 10, 50 and 90 %), 5.7
(50, 100 and 200 clients) and 5.8 (r of 0.5 and 0.9, T_pat of 10, 50 and 100, 500
rounds, ε = 6), all of AdaSubMDS. Other settings are those of `bench.py`. A cell that
stands in the file is not run again.
"""

import argparse
import json
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
from common.windows import DATASETS

HERE = Path(__file__).parent
QUICK = quick()
EPSILONS = (2.0, 4.0, 8.0)
STUDIES: dict[str, list[dict[str, Any]]] = {
    "split": [{"magnitude_share": share} for share in (0.1, 0.5, 0.9)],
    "clients": [{"clients_per_round": clients} for clients in (50, 100, 200)],
    "decay": [
        {"decay": decay, "patience": patience}
        for decay in (0.5, 0.9)
        for patience in (10, 50, 100)
    ],
}
DECAY_EPSILON = 6.0
DECAY_ROUNDS = 500
KEY = ("study", "settings", "dataset", "epsilon_round", "seed")
FIELDS = [*KEY, *(name for name in bench.FIELDS if name not in KEY), "machine", "date"]


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One cell, in the columns of `bench.py`."""
    return bench.measure(job) | {
        "study": job["study"],
        "settings": job["settings"],
        "machine": job["machine"],
        "date": date.today().isoformat(),
    }


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for seed in args.seeds:
        for study in args.studies:
            late = study == "decay"
            for dataset in args.datasets:
                for more in STUDIES[study]:
                    for epsilon in (DECAY_EPSILON,) if late else args.epsilons:
                        yield {
                            "study": study,
                            "settings": json.dumps(more),
                            "more": more,
                            "dataset": dataset,
                            "method": "AdaSubMDS",
                            "poison": "",
                            "epsilon_round": epsilon,
                            "seed": seed,
                            "rounds": args.rounds or (DECAY_ROUNDS if late else 1000),
                            "data": args.data,
                            "device": args.device,
                            "most": args.most,
                            "predictor_steps": args.predictor_steps,
                            "machine": args.machine,
                        }


GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY))


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "ablations.csv")
    parser.add_argument(
        "--studies", nargs="*", default=list(STUDIES), choices=list(STUDIES)
    )
    parser.add_argument(
        "--datasets",
        nargs="*",
        default=["sine"] if QUICK else list(DATASETS),
        choices=DATASETS,
    )
    parser.add_argument(
        "--epsilons", nargs="*", type=float, default=[8.0] if QUICK else list(EPSILONS)
    )
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument(
        "--rounds", type=int, default=2 if QUICK else 0, help="0: the paper's"
    )
    parser.add_argument(
        "--most", type=int, default=3000 if QUICK else None, help="series at most"
    )
    parser.add_argument("--predictor-steps", type=int, default=5 if QUICK else 1000)
    parser.add_argument("--machine", default="", help="written beside each figure")
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
