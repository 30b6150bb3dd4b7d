"""Public rules in the fit: how near the two-way tables come to the real ones, with and
without them.

    DATA=<folder with adult.csv.gz> python benchmarks/joint/rules.py [--dataset randhie adult]

    randhie   5,220 people, 18 columns of two holders, three rules: which plans have a
              deductible of their own, and that visits cost something
    adult     39,073 people, 14 columns, four rules: husbands are men, wives are women,
              both are married, and who has no work has no occupation

    none      the fit without rules, and its tables as they are
    asked     the same fit; its tables are given the rules
    zeros     forbidden cells are counts of 0 with a tenth of the noise, and tables are
              given the rules
    law       what is fitted is the law given the rules (`given_rules`)

`avd2` is the mean distance of all pairs, `avd2_ruled` that of pairs which rules tie,
`kept` the share of draws that keep the rules. ε = 1, δ = 1e-5, one noise for all cells.
Some real rows break the rules: `broken` of them.
"""

import argparse
import os
import sys
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from fit import release
from strong import BINS, noise

from common.options import options, quick
from common.rows import read, said, write
from common.sources import need
from understudy.answers.rule_boxes import rule_ties
from understudy.answers.rules import all_keep
from understudy.data.encoding.codec import Codec
from understudy.data.samples import rand_health
from understudy.data.schema import Categorical, Schema, join
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.given_rules import Ruled
from understudy.models.tables.noisy_tables import forbidden

QUICK = quick()
FIELDS = (
    "dataset",
    "method",
    "epsilon",
    "seed",
    "people",
    "broken",
    "avd2",
    "avd2_ruled",
    "kept",
    "seconds",
)
METHODS = ("none", "asked", "zeros", "law")
PLANS = (
    {"when": "coinsurance in (25, 50, 95)", "then": "deductible == false"},
    {"when": "coinsurance == 100", "then": "deductible == true"},
    {"when": "visits > 0", "then": "outpatient >= 1"},
)
FAMILY = (
    {"when": "relationship == 'Husband'", "then": "sex == 'Male'"},
    {"when": "relationship == 'Wife'", "then": "sex == 'Female'"},
    {
        "when": "relationship in ('Husband', 'Wife')",
        "then": "`marital-status` in ('Married-civ-spouse', 'Married-AF-spouse')",
    },
    {"when": "workclass in ('?', 'Never-worked')", "then": "occupation == '?'"},
)


def randhie(_: Path) -> tuple[pd.DataFrame, Schema]:
    tables, schemas = rand_health()
    one, two = tables.values()
    return one.merge(two, on="zper"), join(schemas)


def adult(folder: Path) -> tuple[pd.DataFrame, Schema]:
    (path,) = need(folder, "adult.csv.gz")
    frame = pd.read_csv(path, keep_default_na=False).drop(columns="fnlwgt")
    for name, edges in BINS.items():
        frame[name] = pd.cut(frame[name], edges, right=False, labels=False)
    columns = tuple(
        Categorical(name=n, categories=tuple(sorted(frame[n].unique().tolist())))
        for n in frame
    )
    return frame.sample(frac=0.8, random_state=0), Schema(columns=columns)


TABLES = {"randhie": (randhie, PLANS), "adult": (adult, FAMILY)}


def run(
    name: str, seed: int, folder: Path, methods: tuple[str, ...] = METHODS
) -> list[dict[str, Any]]:
    load, rules = TABLES[name]
    frame, schema = load(folder)
    frame = frame[list(schema.names)]
    codec = Codec(replace(schema, rules=rules))
    sizes = list(codec.sizes)
    ties = rule_ties(codec)
    people = len(frame)
    codes = codec.codes(frame).astype(np.int64)
    sigma = noise(len(codec.sizes))
    gram, real = (release(codes, sizes, deviation, seed) for deviation in (sigma, 0.0))
    real = (real + real.triu(1).T) / people
    never = forbidden(sizes, ties, gram.device)
    more = {"people": people, "seed": seed, "steps": 20 if QUICK else 1200}
    ways = {
        "none": lambda: fit_gram(gram, sizes, noise=sigma, **more),
        "zeros": lambda: fit_gram(
            gram * ~never, sizes, noise=torch.where(never, 0.1 * sigma, sigma), **more
        ),
        "law": lambda: fit_gram(gram, sizes, noise=sigma, ties=ties, **more),
    }
    made: dict[str, tuple[torch.Tensor, float]] = {}
    rows = []
    for method in methods:
        start = time.process_time()
        own = "none" if method == "asked" else method
        if own not in made:
            made[own] = ways[own]().odds().double(), time.process_time() - start
        odds, seconds = made[own]
        law = Ruled.from_ties(odds, sizes, ties)
        gap = (
            (Ruled.from_ties(odds, sizes) if method == "none" else law).gram() - real
        ).abs()
        member = torch.nn.functional.one_hot(
            torch.repeat_interleave(torch.tensor(sizes))
        ).double()
        apart = member.T @ gap @ member / 2
        assert law.left is not None
        figures = {
            "broken": float(1 - all_keep(codec.schema, frame).mean()),
            "avd2": float(
                apart[tuple(torch.triu_indices(len(sizes), len(sizes), 1))].mean()
            ),
            "avd2_ruled": float(
                np.mean(
                    [
                        float(apart[pair])
                        for tie in ties
                        for pair in combinations(tie.columns, 2)
                    ]
                )
            ),
            "kept": float(law.left.exp().mean()),
            "seconds": seconds,
        }
        setting = {
            "dataset": name,
            "method": method,
            "epsilon": 1.0,
            "seed": seed,
            "people": people,
        }
        rows.append(setting | {key: round(value, 5) for key, value in figures.items()})
    return rows


def parser() -> argparse.ArgumentParser:
    found = options(__doc__, out=Path(__file__).parent / "rules.csv", data=True)
    found.add_argument(
        "--dataset", nargs="+", choices=list(TABLES), default=list(TABLES)
    )
    found.add_argument("--seeds", type=int, default=3)
    return found


def main() -> None:
    args = parser().parse_args()
    rows = read(args.out)
    for name in args.dataset:
        for seed in range(1 if QUICK else args.seeds):
            new = run(name, seed, args.data)
            rows = [
                row
                for row in rows
                if (row["dataset"], int(row["seed"])) != (name, seed)
            ] + new
            for row in new:
                print(said(row), flush=True)
            write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()
