"""Which threshold and how many votes of a teacher VDGAN-PATE needs: a sweep of β and K.

    python benchmarks/vd_gan/votes.py --data <folder> --jobs 16 --out benchmarks/vd_gan/votes.csv

The thesis searched a grid and names no β (Zhang 2022, §5.2). The tables here choose the
defaults, and none of them is reported in benchmarks/vertical: bank, diabetes and randhie
of benchmarks/joint, and `bits`, 120 generated binary columns that depend on eight hidden
causes. Two parties have half of the columns each, at random; ε is that of each party, and
"no DP" has no noise. `nonzero` is the share of the answers' entries that passed.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd

from common import publication
from common.grid import Grid, by_text, grid_options
from common.options import quick
from common.public_tables import Public
from common.splits import random_columns
from joint import tables
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Boolean, Schema
from understudy.evaluate.utility.fidelity import evaluate_tables
from understudy.runs.federation import Federation

QUICK = quick()
TABLES = ("bits",) if QUICK else ("bank", "diabetes", "randhie", "bits")
THRESHOLDS = (0.05, 0.5) if QUICK else (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
VOTES = (3,) if QUICK else (3, 10, 30)
EPSILONS = (8.0,) if QUICK else (0.5, 2.0, 8.0, None)
KEY = ("dataset", "threshold", "top", "epsilon", "seed")
FIGURES = ("one_way", "avd2_within", "avd2_cross")
FIELDS = (*KEY, "teachers", "people", "nonzero", *FIGURES, "seconds")
GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY))


def bits(people: int = 40_000, columns: int = 120, causes: int = 8) -> Public:
    """Binary columns, each a noisy copy of one of a few hidden causes, or its opposite."""
    rng = np.random.default_rng(0)
    cause = rng.random((people, causes)) < rng.uniform(0.1, 0.9, causes)
    chosen = rng.integers(0, causes, columns)
    flipped = rng.random((people, columns)) < rng.uniform(0.02, 0.3, columns)
    cells = cause[:, chosen] ^ flipped ^ (rng.random(columns) < 0.5)
    frame = pd.DataFrame({f"x{i}": cells[:, i] for i in range(columns)})
    schema = Schema(columns=tuple(Boolean(name=name) for name in frame.columns))
    cut = people // 5
    test = frame.iloc[:cut].reset_index(drop=True)
    return Public(frame.iloc[cut:].reset_index(drop=True), test, schema, "x0")


def load(dataset: str, seed: int, args: dict[str, Any]) -> Public:
    table = bits() if dataset == "bits" else tables.load(dataset, args["data"], seed)
    return table.first(args["rows"])


def cells(seeds: int) -> Iterator[dict[str, Any]]:
    for seed in range(seeds):
        for dataset in TABLES:
            for threshold in THRESHOLDS:
                for top in VOTES:
                    for epsilon in EPSILONS:
                        yield {
                            "dataset": dataset,
                            "threshold": threshold,
                            "top": top,
                            "epsilon": "" if epsilon is None else epsilon,
                            "seed": seed,
                        }


def one_way(real: pd.DataFrame, synthetic: pd.DataFrame, schema: Schema) -> float:
    """The mean distance of a column's table."""
    codec = Codec(schema)
    real_codes = codec.codes(real)
    synthetic_codes = codec.codes(synthetic)
    distances = []
    for column, size in enumerate(codec.sizes):
        counts = [
            np.bincount(codes[:, column], minlength=size) / len(codes)
            for codes in (np.asarray(real_codes), np.asarray(synthetic_codes))
        ]
        distances.append(np.abs(counts[0] - counts[1]).sum() / 2)
    return float(np.mean(distances))


def measure(cell: dict[str, Any], args: dict[str, Any]) -> dict[str, Any]:
    """One run, and how far its rows are from the real ones."""
    warnings.simplefilter("ignore")
    seed = cell["seed"]
    table = load(cell["dataset"], seed, args)
    split = random_columns(table.schema.names, 2, seed)
    epsilon = None if cell["epsilon"] == "" else cell["epsilon"]
    people = len(table.train)
    teachers = min(2000, people // 10)
    federation = Federation.rehearsal(
        {name: table.train[list(columns)] for name, columns in split.items()},
        {name: table.schema.select(columns) for name, columns in split.items()},
        budget=publication.budget(epsilon),
        seed=seed,
    )
    start = time.perf_counter()
    settings = {"rounds": args["rounds"]} if args["rounds"] else {}
    result = train(
        "vd-gan-pate",
        federation,
        threshold=cell["threshold"],
        top=cell["top"],
        teachers=teachers,
        seed=seed,
        private=epsilon is not None,
        checkpoint_every=10**6,
        device=args["device"],
        **settings,
    )
    seconds = time.perf_counter() - start
    rows = result.generator.sample(people, seed=seed)[list(table.schema.names)]
    owners = {column: name for name, columns in split.items() for column in columns}
    evaluated = evaluate_tables(
        table.train,
        rows,
        table.schema,
        owners=owners,
        ways=(2,),
        models=(),
        seed=seed,
    )
    figures = {figure.name: figure.value for figure in evaluated.figures}
    figures["one_way"] = one_way(table.train, rows, table.schema)
    return (
        cell
        | {
            "teachers": teachers,
            "people": people,
            "nonzero": result.generator.card["nonzero"],
            "seconds": round(seconds, 1),
        }
        | publication.rounded(figures, FIGURES)
    )


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--rows", type=int, default=4_000 if QUICK else 100_000, help="people at most"
    )
    parser.add_argument(
        "--rounds", type=int, default=3 if QUICK else 0, help="0: the protocol's own"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(partial(measure, args=vars(args)), cells(args.seeds), args)


if __name__ == "__main__":
    main()
