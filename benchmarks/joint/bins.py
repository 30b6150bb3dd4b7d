"""Many declared bins: pairs as declared, beside pairs on as many levels as people and
noise allow.

    DATA=<folder> python benchmarks/joint/bins.py [--tables adult …] [--seeds 3] [--jobs 16]

`gram`, whole runs, target named, by two holders of columns, or by one whose number of
people is not public. Numbers are declared in 16 bins of about equal weight.

    declared  `fine = 0`: all pairs are measured on the declared bins
    cut       the default: fine tables of the bins first, where that may save cells;
              pairs on the levels that these give

`avd1`, `avd2`, `avd3`: mean distances of tables of one, two and three columns, in
declared bins; boosting learns from drawn rows, 10,000 at least, and is tested on rows
that were held out. At the end stand the means over seeds and tables, and those of each
table. That columns of more than a dozen bins are cut, and when, was chosen on adult,
bank, credit, randhie and diabetes by other seeds; wine, air and energy had no part in
it. QUICK=1: one small table.
"""

import argparse
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from few import DELTA
from levels import declared
from tables import Public, load

from common.options import options, quick
from common.rows import said, write
from common.sources import need
from understudy.api.train import train
from understudy.data.column import (
    Binned,
    Boolean,
    Categorical,
    Column,
    Integer,
    Ordinal,
    Real,
)
from understudy.data.schema import Schema
from understudy.evaluate.utility.downstream import (
    Examples,
    classification_scores,
    score_model,
)
from understudy.evaluate.utility.marginals import Marginals
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

QUICK = quick()
KEY = ("dataset", "people", "epsilon", "holders", "way", "seed")
FIGURES = ("avd1", "avd2", "avd3", "f1", "auc")
WAYS: dict[str, dict[str, float]] = {"declared": {"fine": 0}, "cut": {}}
CASES = (
    (1_000, 1.0),
    (2_000, 0.2),
    (4_000, 0.2),
    (4_000, 1.0),
    (4_000, 4.0),
    (33_000, 0.2),
    (33_000, 1.0),
    (33_000, 8.0),
)
CHOSEN = ("adult", "bank", "credit", "randhie", "diabetes")
APART = {
    "wine": ("wine_quality.csv.gz", "quality", 5.5),
    "air": ("air_quality_uci.csv.gz", "C6H6_GT", 8.0),
    "energy": ("timegan_energy.csv.gz", "Appliances", 60.0),
}
# rows that are drawn at least, and the first of the seeds
ROWS = 10_000
FIRST = 10


def table_of(name: str, folder: Path, seed: int) -> Public:
    """One of the tables, rows in an order that the seed gives; of those apart the
    numbers alone.
    """
    if name not in APART:
        return load(name, folder, seed)
    file, target, above = APART[name]
    frame = (
        pd.read_csv(need(folder, file)[0])
        .select_dtypes("number")
        .sample(frac=1, random_state=seed)
    )
    frame = frame.assign(**{target: frame[target] > above}).reset_index(drop=True)
    columns = [
        Real(name=c, low=float(frame[c].min()), high=float(frame[c].max()))
        for c in frame
        if c != target
    ]
    cut = len(frame) // 5
    schema = Schema(columns=(*columns, Boolean(name=target)))
    return Public(
        *(part[list(schema.names)] for part in (frame[cut:], frame[:cut])),
        schema,
        target,
    )


def columns_of(
    schema: Schema, sizes: list[int], ordered: list[bool]
) -> tuple[Column, ...]:
    """Numbers as whole numbers in so many bins, all others as lists of codes."""
    found: list[Column] = []
    for column, size, order in zip(schema.columns, sizes, ordered, strict=True):
        if isinstance(column, Binned) and size > 1:
            found.append(Integer(name=column.name, low=0, high=size - 1, bins=size))
        else:
            found.append(
                (Ordinal if order else Categorical)(
                    name=column.name, categories=tuple(range(size))
                )
            )
    return tuple(found)


def run(
    dataset: str,
    people: int,
    epsilon: float,
    holders: int,
    way: str,
    seed: int,
    folder: Path,
) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    table = table_of(dataset, folder, seed)
    codes, sizes, ordered = declared(table, "16")
    names = table.schema.names
    target = table.schema.names.index(table.target)
    schema = Schema(columns=columns_of(table.schema, sizes, ordered))
    frame = pd.DataFrame(codes, columns=list(names))
    rows = frame[: len(table.train)][:people]
    test = codes[len(table.train) :]
    parts = {f"holder {n}": names[n::holders] for n in range(holders)}
    tables = {name: rows[list(own)] for name, own in parts.items()}
    schemas = {name: schema.select(own) for name, own in parts.items()}
    if holders > 1:
        tables = {
            name: own.assign(id=rows.index.astype(str)) for name, own in tables.items()
        }
        schemas = {name: replace(own, person="id") for name, own in schemas.items()}
    held = Federation.rehearsal(
        tables, schemas, budget=Budget(epsilon, DELTA), seed=seed
    )
    steps = {"steps": 10} if QUICK else {}
    made = train("gram", held, seed=seed, target=table.target, **WAYS[way], **steps)
    drawn = (
        made.generator.sample(max(len(rows), ROWS), seed=seed)[list(names)]
        .astype(np.int64)
        .to_numpy()
    )
    marginals = Marginals(
        rows.to_numpy(np.int32), drawn.astype(np.int32), sizes, ends=()
    )
    found = {f"avd{k}": marginals.avd(k).value for k in (1, 2, 3)}
    rng = np.random.default_rng(0)
    others = [size for j, size in enumerate(sizes) if j != target]
    learn, real = (
        Examples(np.delete(part, target, 1).astype(np.int32), part[:, target]).sample(
            2 * ROWS, rng
        )
        for part in (drawn, test)
    )
    score = partial(classification_scores, real.target)
    scores, *_ = score_model(
        "boosting", learn, real.features, others, sizes[target], 0, score
    )
    found |= {name: float(scores[name]) for name in ("f1", "auc")}
    setting = dict(
        zip(KEY, (dataset, people, epsilon, holders, way, seed), strict=True)
    )
    return setting | {name: round(value, 4) for name, value in found.items()}


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "bins.csv", data=True)
    parser.add_argument(
        "--tables", nargs="+", default=["toy"] if QUICK else [*CHOSEN, *APART]
    )
    parser.add_argument("--ways", nargs="+", default=[*WAYS], choices=WAYS)
    parser.add_argument(
        "--cases", nargs="+", type=int, default=[0] if QUICK else range(len(CASES))
    )
    parser.add_argument("--holders", nargs="+", type=int, default=[2, 1])
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    parser.add_argument("--jobs", type=int, default=1)
    return parser


def main() -> None:
    args = parser().parse_args()
    seeds = range(FIRST, FIRST + args.seeds)
    each = product(seeds, args.holders, args.cases, args.tables, args.ways)
    jobs = [
        (dataset, *CASES[case], holders, way, seed, args.data)
        for seed, holders, case, dataset, way in each
    ]
    rows = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for row in pool.map(run, *zip(*jobs, strict=True)):
            rows.append(row)
            print(said(row), flush=True)
            write(args.out, rows, (*KEY, *FIGURES))
    for keys in (
        ["holders", "people", "epsilon", "way"],
        ["holders", "people", "epsilon", "dataset", "way"],
    ):
        print(
            pd.DataFrame(rows)
            .groupby(keys, sort=False)[list(FIGURES)]
            .mean()
            .round(4)
            .to_string()
        )


if __name__ == "__main__":
    main()
