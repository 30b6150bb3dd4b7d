"""Few people and a column to predict: a larger part of the budget for its pairs, by the
rule, beside a fifth.

    DATA=<folder> python benchmarks/joint/few.py [--tables adult …] [--people 4000 …] [--epsilon 1 …] [--jobs 2]

Tables are cut to so many people. All pairs are released with noise, and those with the
target once more, as `gram` does with one holder of all columns and declared levels, but
simulated: whole-number noise of the same size on the exact tables. `share` is the
second release's part: .2, and what `again_share` gives for so many people, so many
columns and this ε. Gradient boosting learns from as many drawn rows, and is tested on
the rows that were held out. At the end stand the rule's means over the seeds beside the
fifth's: ratios of distances, differences of F1 and AUC. The rule was chosen on adult
and credit; bank and randhie had no part in it. QUICK=1: one small table.
"""

import argparse
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from fit import Codes, release
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import f1_score, roc_auc_score
from tables import load

from common.options import options, quick
from common.rows import said, write
from understudy.data.encoding.codec import Codec
from understudy.models.tables.fit_gram import fit_gram
from understudy.privacy.accounts.accounting import DiscreteGaussian, calibrate
from understudy.privacy.noise.rng import FastRng
from understudy.protocols.gram.settings import again_share

QUICK = quick()
DELTA = 1e-5
FIFTH = 0.2
CHOSEN = ("adult", "credit")
APART = ("bank", "randhie")
KEY = ("dataset", "people", "epsilon", "seed", "rule")
FIGURES = ("avd2", "avd2_target", "f1", "auc")
FIELDS = (*KEY, "share", *FIGURES)


def run(
    dataset: str, people: int, epsilon: float, seed: int, rule: str, folder: Path
) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    table = load(dataset, folder, seed)
    codec = Codec(table.schema)
    target = table.schema.names.index(table.target)
    codes, test = (
        codec.codes(frame).astype(np.int64) for frame in (table.train, table.test)
    )
    codes = codes[:people]
    sizes = list(codec.sizes)
    columns = len(sizes)
    people = len(codes)
    cells = columns * (columns + 1) // 2
    alone = calibrate(
        lambda s: {DiscreteGaussian(sigma=s): cells}, epsilon=epsilon, delta=DELTA
    )
    share = FIFTH if rule == "fifth" else again_share(people, alone)
    first = alone / (1 - share) ** 0.5
    second = alone * ((columns - 1) / cells / share) ** 0.5
    column = torch.repeat_interleave(torch.tensor(sizes))
    twice = (column[:, None] == target) ^ (column == target)
    one = release(codes, sizes, first, seed)
    other = release(codes, sizes, second, seed + 1_000)
    both = (one / first**2 + other / second**2) / (1 / first**2 + 1 / second**2)
    noise = torch.where(twice, (1 / first**2 + 1 / second**2) ** -0.5, first).double()
    steps = 30 if QUICK else 1200
    fitted = fit_gram(
        torch.where(twice, both, one),
        sizes,
        noise=noise,
        people=people,
        steps=steps,
        seed=seed,
    )
    apart = distances(
        fitted.gram().double(), release(codes, sizes, 0.0, seed) / people, sizes
    )
    drawn = np.asarray(fitted.levels(people, FastRng(seed).uniform), dtype=np.int64)
    upper = torch.triu_indices(columns, columns, 1)
    pairs = apart[upper[0], upper[1]]
    with_it = (upper == target).any(0)
    figures = (
        float(pairs.mean()),
        float(pairs[with_it].mean()),
        *learned(drawn, test, target),
    )
    setting = dict(zip(KEY, (dataset, people, epsilon, seed, rule), strict=True))
    found = {"share": share} | dict(zip(FIGURES, figures, strict=True))
    return setting | {name: round(value, 4) for name, value in found.items()}


def distances(
    fitted: torch.Tensor, true: torch.Tensor, sizes: list[int]
) -> torch.Tensor:
    """Total variation of every pair, of which the upper triangle is given: (columns,
    columns).
    """
    member = torch.nn.functional.one_hot(
        torch.repeat_interleave(torch.tensor(sizes))
    ).double()
    return member.T @ (fitted - true).abs() @ member / 2


def learned(drawn: Codes, test: Codes, target: int) -> tuple[float, float]:
    """Macro F1 and AUC on real rows."""
    (x, y), (real, truth) = (
        (np.delete(rows, target, 1), rows[:, target]) for rows in (drawn, test)
    )
    if len(np.unique(y)) < 2:
        return float(f1_score(truth, np.full_like(truth, y[0]), average="macro")), 0.5
    odds = (
        HistGradientBoostingClassifier(random_state=0)
        .fit(x, y)
        .predict_proba(real)[:, 1]
    )
    return float(f1_score(truth, odds > 0.5, average="macro")), float(
        roc_auc_score(truth, odds)
    )


def ratios(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The means over the seeds, rule over fifth; of F1 and AUC the difference."""
    means = pd.DataFrame(rows).groupby(
        ["dataset", "people", "epsilon", "rule"], sort=False
    )[list(FIGURES)]
    by, fifth = (means.mean().xs(rule, level="rule") for rule in ("few", "fifth"))
    near = list(FIGURES[:2])
    scores = list(FIGURES[2:])
    return pd.concat(
        [by[near] / fifth[near], by[scores] - fifth[scores]], axis=1
    ).round(3)


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "few.csv", data=True)
    parser.add_argument(
        "--tables", nargs="+", default=["toy"] if QUICK else [*CHOSEN, *APART]
    )
    parser.add_argument(
        "--people",
        nargs="+",
        type=int,
        default=[300] if QUICK else [4_000, 2_000, 1_000],
    )
    parser.add_argument(
        "--epsilon", nargs="+", type=float, default=[1.0] if QUICK else [1.0, 0.2]
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    parser.add_argument("--jobs", type=int, default=1)
    return parser


def main() -> None:
    args = parser().parse_args()
    jobs = [
        (dataset, people, epsilon, seed, rule, args.data)
        for dataset in args.tables
        for people in args.people
        for epsilon in args.epsilon
        for seed in range(args.seeds)
        for rule in ("fifth", "few")
    ]
    rows = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for row in pool.map(run, *zip(*jobs, strict=True)):
            rows.append(row)
            print(said(row), flush=True)
            write(args.out, rows, FIELDS)
    print(ratios(rows).to_string())


if __name__ == "__main__":
    main()
