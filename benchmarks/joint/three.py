"""A column to predict: tables of three columns with it, as pairs alone say they are,
and some that are released.

    DATA=<folder> python benchmarks/joint/three.py [--tables adult …] [--epsilon 1 …] [--seeds 4] [--jobs 2]

All pairs are released with noise, and those with the target once more, as `gram` does
with one holder of all columns and declared levels, but simulated: whole-number noise of
the same size on the exact tables. Methods:

    pairs        the mixture is fitted to the pairs alone
    drawn        its tables of three columns with the target are drawn to what the pairs
                 say (`tables/target.py`)
    drawn+4      and four such tables, chosen by the first release
                 (`tables/strongest_triples.py`), are released with the second, for
                 which all of it has more noise
    drawn+8      eight of them

Gradient boosting learns from 20,000 drawn rows at most, and is tested on the rows that
were held out: means of three draws. At the end stand the means over the seeds beside
those of `pairs`: ratios of distances, differences of F1 and AUC. Settings were chosen
on adult and credit; bank and randhie had no part in it. QUICK=1: one small table.
"""

import argparse
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from few import APART, CHOSEN, DELTA, FIFTH, distances
from fit import Codes, release
from tables import load

from common.options import options, quick
from common.rows import said, write
from understudy.data.encoding.codec import Codec
from understudy.evaluate.utility.downstream import (
    Examples,
    classification_scores,
    score_model,
)
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.loss import Triple
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import read_tables
from understudy.models.tables.strongest import strongest_triples
from understudy.privacy.accounts.accounting import DiscreteGaussian, calibrate
from understudy.privacy.noise.rng import FastRng

QUICK = quick()
METHODS = {"pairs": 0, "drawn": 0, "drawn+4": 4, "drawn+8": 8}
KEY = ("dataset", "people", "epsilon", "seed", "method")
FIGURES = ("avd2", "avd2_target", "f1", "auc")
FIELDS = (*KEY, "triples", "steps", *FIGURES)
DRAWS, LEARN, STEPS = (1, 300, 30) if QUICK else (3, 20_000, 1200)


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
    wanted = METHODS[method]
    cells = columns * (columns + 1) // 2
    alone = calibrate(
        lambda s: {DiscreteGaussian(sigma=s): cells}, epsilon=epsilon, delta=DELTA
    )
    first = alone / (1 - FIFTH) ** 0.5
    second = alone * ((columns - 1 + wanted) / cells / FIFTH) ** 0.5
    one = release(codes, sizes, first, seed)
    other = release(codes, sizes, second, seed + 1_000)
    triples = chosen(codes, sizes, target, one, first, second, wanted, seed)
    column = torch.repeat_interleave(torch.tensor(sizes))
    twice = (column[:, None] == target) ^ (column == target)
    both = (one / first**2 + other / second**2) / (1 / first**2 + 1 / second**2)
    noise = torch.where(twice, (1 / first**2 + 1 / second**2) ** -0.5, first).double()
    steps: list[int] = []
    fitted = fit_gram(
        torch.where(twice, both, one),
        sizes,
        noise=noise,
        people=people,
        triples=triples,
        steps=STEPS,
        seed=seed,
        target=None if method == "pairs" else target,
        watch=lambda step, _: steps.append(step),
    )
    apart = distances(
        fitted.gram().double(), release(codes, sizes, 0.0, seed) / people, sizes
    )
    upper = torch.triu_indices(columns, columns, 1)
    pairs = apart[upper[0], upper[1]]
    with_it = (upper == target).any(0)
    figures = (
        float(pairs.mean()),
        float(pairs[with_it].mean()),
        *learned(fitted, people, test, target),
    )
    found = {"triples": len(triples), "steps": steps[-1]} | dict(
        zip(FIGURES, figures, strict=True)
    )
    setting = dict(zip(KEY, (dataset, people, epsilon, seed, method), strict=True))
    return setting | {name: round(value, 4) for name, value in found.items()}


def chosen(
    codes: Codes,
    sizes: list[int],
    target: int,
    one: torch.Tensor,
    first: float,
    second: float,
    wanted: int,
    seed: int,
) -> list[Triple]:
    """Three-way tables with the target as the first release has it, under the second's
    noise.
    """
    tables = read_tables(one, sizes, noise=first, people=len(codes))
    rng = np.random.default_rng(seed)
    found = []
    others = combinations(
        [column for column in range(len(sizes)) if column != target], 2
    )
    for pair in strongest_triples(
        tables, sizes, target, wanted, among=[*others], noise=second
    ).tolist():
        shape = [sizes[column] for column in (*pair, target)]
        flat = np.ravel_multi_index(
            [codes[:, column] for column in (*pair, target)], shape
        )
        counts = np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape)
        noisy = counts + rng.normal(0, second, shape).round()
        found.append(Triple((*pair, target), torch.tensor(noisy), second))
    return found


def learned(
    fitted: MixtureOfProducts, people: int, test: Codes, target: int
) -> tuple[float, float]:
    """Macro F1 and AUC on real rows."""
    sizes = list(fitted.sizes)
    rng = np.random.default_rng(0)
    classes = sizes.pop(target)

    def examples(rows: Codes) -> Examples:
        return Examples(
            np.delete(rows, target, 1).astype(np.int32), rows[:, target]
        ).sample(LEARN, rng)

    real = examples(test)
    scores = []
    for draw in range(DRAWS):
        rows = examples(
            np.asarray(fitted.levels(people, FastRng(draw).uniform), dtype=np.int64)
        )
        score = partial(classification_scores, real.target)
        found, *_ = score_model(
            "boosting", rows, real.features, sizes, classes, 0, score
        )
        scores.append([float(found["f1"]), float(found["auc"])])
    f1, auc = np.mean(scores, axis=0)
    return float(f1), float(auc)


def beside(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The means over the seeds, over those of the pairs alone; of F1 and AUC the
    difference.
    """
    means = (
        pd.DataFrame(rows)
        .groupby(["dataset", "epsilon", "method"], sort=False)[list(FIGURES)]
        .mean()
    )
    near = list(FIGURES[:2])
    scores = list(FIGURES[2:])
    found = {}
    base = means.xs("pairs", level="method")
    for method in list(METHODS)[1:]:
        own = means.xs(method, level="method")
        found[method] = pd.concat(
            [own[near] / base[near], own[scores] - base[scores]], axis=1
        )
    return pd.concat(found, axis=1).round(4)


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "three.csv", data=True)
    parser.add_argument(
        "--tables", nargs="+", default=["toy"] if QUICK else [*CHOSEN, *APART]
    )
    parser.add_argument(
        "--epsilon", nargs="+", type=float, default=[1.0] if QUICK else [1.0, 8.0, 0.2]
    )
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[0] if QUICK else [4, 5, 6, 7]
    )
    parser.add_argument("--jobs", type=int, default=1)
    return parser


def main() -> None:
    args = parser().parse_args()
    jobs = [
        (dataset, epsilon, seed, method, args.data)
        for seed in args.seeds
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
