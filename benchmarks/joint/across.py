"""Three-way tables with a column to predict where its table is split: within its
holder, or across two holders.

    DATA=<folder> python benchmarks/joint/across.py [--tables adult …] [--epsilon 1 …] [--seeds 6] [--jobs 2]

Columns are dealt at random to two holders. All pairs are released with noise, and those
with the target once more, as `gram` does there with declared levels, but simulated:
whole-number noise of the same size on the exact tables, more of it across holders. Four
three-way tables with the target go with the second release, chosen by the first
(`tables/strongest_triples.py`), at the same price in every method:

    held     of columns that the target's holder has
    paired   two columns of either holder: the other one forms a column of their pairs
             of levels, and multiplies it with the target
    any      any two columns, as `gram` has it: of three, two are always with one of two
             holders

Gradient boosting learns from 20,000 drawn rows at most, and is tested on the rows that
were held out: means of three draws. At the end stand the differences from `held`, seed
by seed: their means and standard errors. QUICK=1: one small table.
"""

import argparse
import math
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from few import DELTA, FIFTH, distances
from fit import Codes, release
from tables import load
from three import STEPS, learned

from common.options import options, quick
from common.rows import said, write
from common.splits import random_columns
from understudy.data.encoding.codec import Codec
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.loss import Triple
from understudy.models.tables.noisy_tables import read_tables
from understudy.models.tables.strongest import strongest_triples
from understudy.privacy.accounts.accounting import DiscreteGaussian, calibrate

QUICK = quick()
CHOSEN = 4
METHODS = ("held", "paired", "any")
KEY = ("dataset", "people", "epsilon", "seed", "method")
FIGURES = ("avd2", "avd2_target", "f1", "auc")
FIELDS = (*KEY, "triples", "across", "steps", *FIGURES)


def run(
    dataset: str, epsilon: float, seed: int, method: str, folder: Path
) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    table = load(dataset, folder, seed)
    codec = Codec(table.schema)
    target = table.schema.names.index(table.target)
    codes, test = (
        codec.codes(frame).astype(np.int64) for frame in (table.train, table.test)
    )
    sizes = list(codec.sizes)
    columns = len(codec.sizes)
    people = len(codes)
    split = random_columns(table.schema.names, ["one", "other"], seed=seed)
    holder = torch.tensor([name in split["one"] for name in table.schema.names])
    apart = holder[:, None] != holder
    # A pair across holders has two shares of noise, each 2^(-1/4) of that within one
    # (`gram.layout`): it costs √2.
    cells = columns * (columns + 1) // 2 + (math.sqrt(2) - 1) * int(apart.triu().sum())
    one = calibrate(
        lambda s: {DiscreteGaussian(sigma=s): 1}, epsilon=epsilon, delta=DELTA
    )
    first = one * (cells / (1 - FIFTH)) ** 0.5
    second = one * ((columns - 1 + CHOSEN) / FIFTH) ** 0.5
    column = torch.repeat_interleave(torch.tensor(sizes))
    wide = apart[column][:, column]
    twice = (column[:, None] == target) ^ (column == target)
    noises = (
        first * torch.where(wide, 2**0.25, 1.0).double(),
        second * torch.where(wide, 2**0.5, 1.0).double(),
    )
    exact = release(codes, sizes, 0.0, seed)
    rng = np.random.default_rng(seed)
    begun, again = (
        exact + torch.tensor(rng.normal(0, noise).round()).triu() for noise in noises
    )
    triples = chosen(
        codes, sizes, target, holder, begun, noises[0], second, method, rng
    )
    weights = [noise**-2 for noise in noises]
    both = (begun * weights[0] + again * weights[1]) / sum(weights)
    steps: list[int] = []
    fitted = fit_gram(
        torch.where(twice, both, begun),
        sizes,
        noise=torch.where(twice, sum(weights) ** -0.5, noises[0]),
        people=people,
        triples=triples,
        steps=STEPS,
        seed=seed,
        target=target,
        watch=lambda step, _: steps.append(step),
    )
    gaps = distances(fitted.gram().double(), exact / people, sizes)
    upper = torch.triu_indices(columns, columns, 1)
    pairs = gaps[upper[0], upper[1]]
    with_it = (upper == target).any(0)
    figures = (
        float(pairs.mean()),
        float(pairs[with_it].mean()),
        *learned(fitted, people, test, target),
    )
    split_ones = sum(one.noise > second for one in triples)
    found = {"triples": len(triples), "across": split_ones, "steps": steps[-1]}
    setting = dict(zip(KEY, (dataset, people, epsilon, seed, method), strict=True))
    return (
        setting
        | found
        | {n: round(value, 5) for n, value in zip(FIGURES, figures, strict=True)}
    )


def chosen(
    codes: Codes,
    sizes: list[int],
    target: int,
    holder: torch.Tensor,
    begun: torch.Tensor,
    noise: torch.Tensor,
    second: float,
    method: str,
    rng: np.random.Generator,
) -> list[Triple]:
    """Three-way tables with the target as the first release has it, under the second's
    noise, or two shares of it.
    """
    tables = read_tables(begun, sizes, noise=noise, people=len(codes))
    found = list[Triple]()
    own = holder == holder[target]
    columns = [
        column
        for column in range(len(sizes))
        if column != target and (method != "held" or own[column])
    ]
    among = [
        (a, b)
        for a, b in combinations(columns, 2)
        if method != "paired" or own[a] == own[b]
    ]
    noisiest = second * math.sqrt(2)  # as `gram` takes it
    for pair in strongest_triples(
        tables, sizes, target, CHOSEN, among=among, noise=noisiest
    ).tolist():
        shape = [sizes[column] for column in (*pair, target)]
        flat = np.ravel_multi_index(
            [codes[:, column] for column in (*pair, target)], shape
        )
        counts = np.bincount(flat, minlength=math.prod(shape)).reshape(shape)
        deviation = second * (1.0 if own[list(pair)].all() else math.sqrt(2))
        noisy = torch.tensor(counts + rng.normal(0, deviation, shape).round())
        found.append(Triple((*pair, target), noisy, deviation))
    return found


def beside(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """What parts each method from `held` at the same seed: means, and standard
    errors.
    """
    wide = pd.DataFrame(rows).pivot_table(
        list(FIGURES), ["dataset", "epsilon", "seed"], "method", sort=False
    )
    found = {}
    for method in METHODS[1:]:
        for figure in FIGURES:
            gap = wide[figure][method] - wide[figure][METHODS[0]]
            by = gap.dropna().groupby(["dataset", "epsilon"], sort=False)
            found[method, figure], found[method, "±" + figure] = by.mean(), by.sem()
    return pd.DataFrame(found).round(4)


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "across.csv", data=True)
    parser.add_argument(
        "--tables", nargs="+", default=["toy"] if QUICK else ["adult", "credit", "bank"]
    )
    parser.add_argument(
        "--epsilon", nargs="+", type=float, default=[1.0] if QUICK else [1.0, 8.0]
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 6)
    parser.add_argument("--jobs", type=int, default=1)
    return parser


def main() -> None:
    args = parser().parse_args()
    jobs = [
        (dataset, epsilon, seed, method, args.data)
        for seed in range(args.seeds)
        for epsilon in args.epsilon
        for dataset in args.tables
        for method in METHODS
    ]
    rows = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for row in pool.map(run, *zip(*jobs, strict=True)):
            rows.append(row)
            print(said(row), flush=True)
            write(args.out, rows, FIELDS)
    print(beside(rows).to_string())


if __name__ == "__main__":
    main()
