"""Are pairs better measured on fewer levels than numbers are declared in, where people or ε are few?

    DATA=<folder> python benchmarks/joint/levels.py [--tables adult …] [--jobs 2]

Every number of a public table is declared in 16 levels of about equal weight, and other ordered columns as they are.
Then ordered columns are cut to at most k levels, neighbours together, before anything is measured, as the one-way
tables say (the true ones, so that nothing is paid for the choice: the best case), and all pairs are released with those
of the target once more, as in `few.py`: whole-number noise of the size that one holder has, and the share of the
target's pairs by `again_share`. `auc`: gradient boosting learns from as many drawn rows, and is tested on rows that
were held out, cut alike. At the end stand the means over the seeds. Nothing was chosen by these tables. QUICK=1: one
small table.
"""

import argparse
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from few import DELTA, learned
from fit import Codes, release
from tables import Public, load

from common.options import options, quick
from common.rows import said, write
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Ordinal
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.merged_levels import merged_neighbours
from understudy.privacy.accounts.accounting import DiscreteGaussian, calibrate
from understudy.privacy.noise.rng import FastRng
from understudy.protocols.gram.settings import again_share

QUICK, DECLARED = quick(), 16
KEY = ("dataset", "people", "epsilon", "seed", "k")
CASES = ((4_000, 0.2),)


def declared(table: Public) -> tuple[Codes, list[int], list[bool], int]:
    """All rows, those to learn from first, by level; how many levels, which columns are ordered, how many to learn."""
    frame, codes, sizes, ordered = pd.concat([table.train, table.test]), [], [], []
    for column in table.schema.columns:
        own = Codec(table.schema.select([column.name])).codes(frame)[:, 0].astype(np.int64)
        if hasattr(column, "bins"):
            cuts = np.quantile(frame[column.name], np.linspace(0, 1, DECLARED + 1)[1:-1])
            own = np.unique(np.searchsorted(np.unique(cuts), frame[column.name], side="right"), return_inverse=True)[1]
        codes.append(own)
        sizes.append(int(own.max()) + 1)
        ordered.append(hasattr(column, "bins") or isinstance(column, Ordinal))
    return np.stack(codes, 1), sizes, ordered, len(table.train)


def run(dataset: str, people: int, epsilon: float, seed: int, k: int, folder: Path) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    table = load(dataset, folder, seed)
    codes, sizes, ordered, learns = declared(table)
    target = table.schema.names.index(table.target)
    for j in (j for j, size in enumerate(sizes) if ordered[j] and size > k and j != target):
        held = np.bincount(codes[:learns, j], minlength=sizes[j])
        codes[:, j] = merged_neighbours(torch.from_numpy(held), k)[codes[:, j]]
    sizes = [int(top) + 1 for top in codes.max(0)]
    rows, test = codes[:learns][:people], codes[learns:]
    columns, people = len(sizes), len(rows)
    cells = columns * (columns + 1) // 2
    alone = calibrate(lambda s: {DiscreteGaussian(sigma=s): cells}, epsilon=epsilon, delta=DELTA)
    share = again_share(people, alone)
    first, second = alone / (1 - share) ** 0.5, alone * ((columns - 1) / cells / share) ** 0.5
    column = torch.repeat_interleave(torch.tensor(sizes))
    twice = (column[:, None] == target) ^ (column == target)
    one, other = release(rows, sizes, first, seed), release(rows, sizes, second, seed + 1_000)
    both = (one / first**2 + other / second**2) / (1 / first**2 + 1 / second**2)
    noise = torch.where(twice, (1 / first**2 + 1 / second**2) ** -0.5, first).double()
    gram = torch.where(twice, both, one)
    fitted = fit_gram(gram, sizes, noise=noise, people=people, target=target, steps=30 if QUICK else 1200, seed=seed)
    drawn = np.asarray(fitted.levels(people, FastRng(seed).uniform), dtype=np.int64)
    auc = learned(drawn, test, target)[1] if sizes[target] == 2 else float("nan")
    return dict(zip(KEY, (dataset, people, epsilon, seed, k), strict=True)) | {"auc": round(auc, 4)}


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "levels.csv", data=True)
    parser.add_argument("--tables", nargs="+", default=["toy"] if QUICK else ["adult", "bank", "randhie", "credit"])
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 2)
    parser.add_argument("--jobs", type=int, default=1)
    return parser


def main() -> None:
    args = parser().parse_args()
    cases, levels = (((300, 1.0),), (3, 16)) if QUICK else (CASES, (5, DECLARED))
    jobs = [
        (dataset, people, epsilon, seed, k, args.data)
        for seed, (people, epsilon), dataset, k in product(range(args.seeds), cases, args.tables, levels)
    ]
    rows = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for row in pool.map(run, *zip(*jobs, strict=True)):
            rows.append(row)
            print(said(row), flush=True)
            write(args.out, rows, (*KEY, "auc"))
    found = pd.DataFrame(rows).groupby(["people", "epsilon", "dataset", "k"], sort=False)["auc"]
    print(found.mean().unstack("k").round(3).to_string())


if __name__ == "__main__":
    main()
