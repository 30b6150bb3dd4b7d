"""Which pairs of columns are worth a second measurement: none, the strongest, or those
with the column to be predicted?

    python benchmarks/joint/twice.py --data data --jobs 8 --out benchmarks/joint/twice.csv

Gram over two holders of columns. `again` says which pairs are released twice, `share`
for which part of the budget. Scores are those of bench.py: the mean distance of two-way
tables, that of the tables with the target alone, and how well classifiers that learned
from the synthetic rows do on real ones that were held out.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import bench
import numpy as np
import pandas as pd
from tables import Public

from common import publication
from common.grid import Grid, grid_options
from common.options import quick
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.evaluate.utility.fidelity import evaluate_tables

QUICK = quick()
TABLES = ("har", "w8a-124", "a9a", "census", "credit", "adult_pgm")
WAYS = (
    ("none", 0.0),
    ("m strongest", 0.5),
    ("2m strongest", 0.5),
    ("target", 0.05),
    ("target", 0.2),
    ("target", 0.5),
)
KEY = ("dataset", "epsilon", "seed", "again", "share")
FIGURES = (
    "avd2",
    "avd2_target",
    *(f"{model}_{score}" for model in bench.MODELS for score in ("f1", "auc")),
)
GRID = Grid(fields=[*KEY, "seconds", *FIGURES], key=KEY)


def cells(
    datasets: list[str], epsilons: list[float], seeds: int
) -> Iterator[dict[str, Any]]:
    for seed in range(seeds):
        for epsilon in epsilons:
            for dataset in datasets:
                for again, share in WAYS[-2:] if QUICK else WAYS:
                    yield dict(
                        zip(KEY, (dataset, epsilon, seed, again, share), strict=True)
                    )


def settings(table: Public, again: str, share: float) -> dict[str, Any]:
    """What Gram is told."""
    if again == "none":
        return {}
    columns = len(table.schema.names)
    pairs = {
        "m strongest": {"remeasured_pairs": columns},
        "2m strongest": {"remeasured_pairs": 2 * columns},
    }
    return pairs.get(again, {"target": table.target}) | {"first_pass_share": 1 - share}


def measure(job: dict[str, Any], args: dict[str, Any]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    table = bench.opened(job["dataset"], args["data"], job["seed"])
    seed = job["seed"]
    cell = bench.Cell(
        dataset=job["dataset"],
        method="Gram",
        partition="columns",
        holders=2,
        epsilon=job["epsilon"],
        seed=seed,
    )
    owner = bench.owners(cell, table)
    more = settings(table, job["again"], job["share"]) | {
        "device": args["device"],
        "seed": seed,
    }
    federation = bench.federated(cell, table, owner)
    start = time.perf_counter()
    result = train("gram", federation, **more)
    seconds = time.perf_counter() - start
    made = result.generator.sample(len(table.train), seed=seed)[
        list(table.schema.names)
    ]
    found = evaluate_tables(
        table.train, made, table.schema, owners=owner, ways=(2,), models=(), seed=seed
    )
    figures = {figure.name: figure.value for figure in found.figures}
    figures |= {"avd2_target": with_target(table, made)} | bench.learned(
        made, table, seed, args["learn"]
    )
    return job | {"seconds": round(seconds, 1)} | publication.rounded(figures, FIGURES)


def with_target(table: Public, made: pd.DataFrame) -> float:
    """The mean distance of all two-way tables with the target."""
    codec = Codec(table.schema)
    place = table.schema.names.index(table.target)
    sides = [
        codec.codes(frame[list(table.schema.names)]).astype(np.int64)
        for frame in (table.train, made)
    ]
    off = []
    for column, size in enumerate(codec.sizes):
        if column != place:
            cells = [codes[:, place] * size + codes[:, column] for codes in sides]
            shares = [
                np.bincount(own, minlength=codec.sizes[place] * size) / len(own)
                for own in cells
            ]
            off.append(np.abs(shares[0] - shares[1]).sum() / 2)
    return float(np.mean(off))


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__)
    parser.add_argument(
        "--datasets", nargs="*", default=["toy"] if QUICK else list(TABLES)
    )
    parser.add_argument(
        "--epsilons", nargs="*", type=float, default=[8.0] if QUICK else [1.0, 0.5, 2.0]
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 2)
    parser.add_argument(
        "--learn", type=int, default=20_000, help="rows that downstream models train on"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(
        partial(measure, args=vars(args)),
        cells(args.datasets, args.epsilons, args.seeds),
        args,
    )


if __name__ == "__main__":
    main()
