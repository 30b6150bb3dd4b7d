"""Strong pairs with dozens of columns beside them: what a fit to one noisy Gram matrix
leaves of them.

    DATA=<folder> python benchmarks/joint/functional.py

    generated   7,000 people, 47 columns: twelve codes and the four groups of them, a
                recode of eight levels, age beside experience; the others of 2 to 10
                levels, by two hidden numbers
    credit, diabetes   public tables with declared bins (`tables.py`), 24 and 26 columns

Methods: `laws`, as gram fits; `no laws`, where no pair is taken for a function or a
copula (before functions were, copulas were lost on wide tables); `exact`, the oracle,
fitted with the noise that is stated and none added, so that what it misses is the fit's
own. `impossible`: people whom the fit has in cells of the strong pairs that no real
person is in, the mean and the most of them. `v`, `v_real`, `v_released`: Cramér's V,
the mean over these pairs, by the fit, the rows, and the released counts without what
noise adds to χ². Of public tables the strong pairs are the three with the largest V.
`missed` of `tables`: as the card counts them (`answers/bars.py`). ε = 1, δ = 1e-5, one
holder. All choices were made on seeds below 40 of the generated table, and none on
public ones.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import torch
from fit import Codes, release
from numpy.typing import NDArray
from strong import noise
from tables import load

from common.options import options, quick
from common.rows import said, write
from understudy.answers.bars import Missed
from understudy.data.encoding.codec import Codec
from understudy.models.tables import noisy_tables
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.pair_laws import PairLaws

QUICK = quick()
SEEDS = {"generated": (40, 41, 42), "credit": (6, 7, 8), "diabetes": (6, 7, 8)}
METHODS = ("no laws", "laws", "exact")
FIELDS = (
    "dataset",
    "people",
    "columns",
    "method",
    "seed",
    "sigma",
    "impossible",
    "impossible_most",
    "v",
    "v_released",
    "v_real",
    "missed",
    "tables",
    "outside",
    "cells",
    "avd2",
    "seconds",
)
Pairs = list[tuple[int, int]]
Rows = NDArray[np.float64]


def generated(columns: int, people: int, seed: int) -> tuple[Codes, list[int], Pairs]:
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(2, people))

    def levels(values: Rows, many: int) -> Codes:
        return np.searchsorted(
            np.quantile(values, np.cumsum(rng.dirichlet(np.full(many, 4.0)))[:-1]),
            values,
        )

    codes = levels(0.5 * one + rng.normal(size=people), 12)
    groups = np.repeat(np.arange(4), (3, 4, 2, 3))[rng.permutation(12)][codes]
    recoded = levels(0.4 * other + rng.normal(size=people), 8)
    age = rng.uniform(20, 70, people)
    experience = np.maximum(0, age - 20 + rng.normal(0, 1.5, people))
    tenths = [
        np.minimum(np.argsort(np.argsort(years)) * 10 // people, 9)
        for years in (age, experience)
    ]
    found = [codes, groups, recoded, rng.permutation(8)[recoded], *tenths]
    sizes = [12, 4, 8, 8, 10, 10]
    while len(sizes) < columns:
        sizes.append(int(rng.choice([2, 2, 3, 4, 5, 6, 8, 10])))
        a, b = rng.normal(0, 0.5, 2)
        years = 0.02 * (age - 45) * rng.random()
        found.append(
            levels(a * one + b * other + years + rng.normal(size=people), sizes[-1])
        )
    return np.stack(found, 1).astype(np.int64), sizes, [(0, 1), (2, 3), (4, 5)]


def public(name: str, seed: int, folder: Path) -> tuple[Codes, list[int], Pairs]:
    table = load(name, folder, seed)
    codec = Codec(table.schema)
    codes = codec.codes(table.train).astype(np.int64)
    sizes = list(codec.sizes)
    true = release(codes, sizes, 0.0, seed).numpy()
    pairs = [(a, b) for a in range(len(sizes)) for b in range(a + 1, len(sizes))]
    return (
        codes,
        sizes,
        sorted(pairs, key=lambda pair: -cramer(block(true, sizes, *pair)))[:3],
    )


def block(matrix: Rows, sizes: list[int], a: int, b: int) -> Rows:
    ends = np.cumsum(sizes)
    return matrix[ends[a] - sizes[a] : ends[a], ends[b] - sizes[b] : ends[b]]


def cramer(counts: Rows, sigma: float = 0.0) -> float:
    """Cramér's V; of counts with noise of this deviation, less what that adds to χ² on
    average.
    """
    rows = counts.sum(1).clip(min=1e-9)
    columns = counts.sum(0).clip(min=1e-9)
    even = np.outer(rows, columns) / counts.sum()
    squares = (counts - even) ** 2 - sigma**2
    there = even > max(sigma, 1e-9) / 10
    least = min(int((rows > 1e-9).sum()), int((columns > 1e-9).sum())) - 1
    return math.sqrt(
        min(
            1.0,
            max(
                0.0,
                float((squares[there] / even[there]).sum())
                / counts.sum()
                / max(1, least),
            ),
        )
    )


def _no_laws(counts: torch.Tensor, *others: torch.Tensor) -> PairLaws:
    """As of pairs without a law: independence, which comes last."""
    nowhere = torch.zeros_like(counts, dtype=torch.bool)
    return PairLaws(others[-1], nowhere, nowhere)


def run(name: str, method: str, seed: int, folder: Path) -> dict[str, Any]:
    if name == "generated":
        codes, sizes, pairs = generated(
            8 if QUICK else 47, 1_000 if QUICK else 7_000, seed
        )
    else:
        codes, sizes, pairs = public(name, seed, folder)
    people = len(codes)
    sigma = noise(len(sizes))
    true = release(codes, sizes, 0.0, seed).numpy()
    counts = release(codes, sizes, sigma, seed)
    kept = noisy_tables.laws_of_pairs
    start = time.process_time()
    if method == "no laws":
        noisy_tables.laws_of_pairs = _no_laws
    try:
        given = torch.from_numpy(true) if method == "exact" else counts
        fitted = fit_gram(
            given,
            sizes,
            noise=sigma,
            people=people,
            steps=30 if QUICK else 1200,
            seed=seed,
        )
    finally:
        noisy_tables.laws_of_pairs = kept
    seconds = time.process_time() - start
    law = fitted.gram().double()
    found = Missed.from_counts(
        people * law, counts + counts.triu(1).T, torch.full_like(law, sigma), sizes
    )
    parts = [
        tuple(block(one, sizes, *pair) for one in (law.numpy(), true, counts.numpy()))
        for pair in pairs
    ]
    stray = [float(fit[real == 0].sum()) for fit, real, _ in parts]
    member = np.eye(len(sizes))[np.repeat(np.arange(len(sizes)), sizes)]
    apart = member.T @ np.abs(np.triu(law.numpy()) - true / people) @ member / 2
    figures = {
        "sigma": sigma,
        "impossible": np.mean(stray),
        "impossible_most": max(stray),
        "v": np.mean([cramer(fit) for fit, _, _ in parts]),
        "v_released": np.mean([cramer(noisy, sigma) for _, _, noisy in parts]),
        "v_real": np.mean([cramer(real) for _, real, _ in parts]),
        "avd2": apart[np.triu_indices(len(sizes), 1)].mean(),
        "seconds": seconds,
    }
    setting = {
        "dataset": name,
        "people": people,
        "columns": len(sizes),
        "method": method,
        "seed": seed,
    }
    missed = {
        "missed": found.missed,
        "tables": found.tables,
        "outside": found.outside,
        "cells": found.cells,
    }
    return (
        setting
        | {key: round(float(value), 4) for key, value in figures.items()}
        | missed
    )


def parser() -> argparse.ArgumentParser:
    return options(__doc__, out=Path(__file__).parent / "functional.csv", data=True)


def main() -> None:
    args = parser().parse_args()
    rows = []
    for name in ("generated",) if QUICK else ("generated", "credit", "diabetes"):
        for method in METHODS:
            for seed in SEEDS[name][:1] if QUICK else SEEDS[name]:
                rows.append(run(name, method, seed, args.data))
                print(said(rows[-1]), flush=True)
                write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()
