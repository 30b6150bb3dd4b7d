"""The bound on norms: the largest possible, declared, or bought; how far the means are
off, and what comes of it.

    python benchmarks/images/norms.py --data data --jobs 6 --out benchmarks/images/norms.csv

Moments with its default settings, one holder, δ = 10⁻⁵. "declared" has the quantile
that 95 % of the rows do not pass, as somebody might know it who has seen such rows
before; "bought" takes 3 % of the budget for it. `means_off`: the root of the squared
distance of the classes' means, summed over classes, as a part of the largest norm.
`figure`: of images the accuracy of the fit's own classifier, of series the squared MMD.
The rule's one constant was chosen on USPS, Sine and Energy.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import torch
from bench import DELTA
from bench import load as load_images

from common.grid import Grid, by_text, grid_options
from common.windows import DATASETS as SERIES
from common.windows import load as load_series
from understudy.api.train import train
from understudy.data.encoding.frame import Frame
from understudy.data.images import Images, ImageSchema
from understudy.evaluate.utility.series import median_distance, mmd
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

DATASETS = ("mnist", "fashion_mnist", "usps", *SERIES)
EPSILONS = (0.2, 1.0, 4.0)
BOUNDS = ("largest", "declared", "bought")
SHARE = 0.03
QUANTILE = 0.95
FEATURES = 300
KEY = ("dataset", "epsilon", "bound", "seed")
FIELDS = [*KEY, "people", "norm", "means_off", "figure"]


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One run."""
    torch.set_num_threads(1)
    series = job["dataset"] in SERIES
    rows, test = held_series(job) if series else held_images(job)
    frame = Frame.from_schema(rows.schema, FEATURES)
    coefficients = frame.coefficients(rows.values)
    if job["bound"] == "declared":
        longest = (
            np.quantile(np.linalg.norm(coefficients, axis=1), QUANTILE) / frame.reach
        )
        rows = replace(rows, schema=replace(rows.schema, norm=float(longest)))
    budget = Budget(job["epsilon"], DELTA)
    federation = Federation.rehearsal(
        {"one": rows}, budget=budget, seed=job["seed"], same_people=False
    )
    bought = {"norms": SHARE} if job["bound"] == "bought" else {}
    generator = train(
        "moments", federation, bits=0, features=FEATURES, **bought
    ).generator
    network: Any = generator.network
    classes = (
        np.zeros(len(coefficients), np.int64) if rows.classes is None else rows.classes
    )
    real = np.stack(
        [coefficients[classes == c].mean(0) for c in range(classes.max() + 1)]
    )
    off = np.linalg.norm(network.means.detach().numpy() - real) / frame.reach
    if series:
        drawn = rows.schema.scaled(generator.series(2000, seed=0))
        figure = mmd(test[:2000], drawn, bandwidth=median_distance(test[:2000]))
    else:
        figure = generator.classifier().score(*test)
    return {key: job[key] for key in KEY} | {
        "people": len(rows.ids),
        "norm": round(generator.card["norm"], 3),
        "means_off": round(float(off), 4),
        "figure": round(float(figure), 4),
    }


def held_images(job: dict[str, Any]) -> tuple[Any, Any]:
    """Images with classes, and those to test on."""
    x, y, *test = load_images(job["dataset"], job["data"], job["most"])
    schema = ImageSchema(
        height=x.shape[1],
        width=x.shape[2],
        label="class",
        classes=tuple(range(int(y.max()) + 1)),
    )
    return Images.from_array(x, schema, labels=y), test


def held_series(job: dict[str, Any]) -> tuple[Any, Any]:
    """Series of people with ten each, and those to test on."""
    return load_series(job["dataset"], job["data"], seed=0, most=job["most"])


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every cell."""
    for dataset in args.datasets:
        for epsilon in args.epsilons:
            for bound in BOUNDS:
                for seed in range(args.seeds):
                    yield {
                        "dataset": dataset,
                        "epsilon": epsilon,
                        "bound": bound,
                        "seed": seed,
                        "data": args.data,
                        "most": args.most,
                    }


GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY))


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=Path(__file__).parent / "norms.csv")
    parser.add_argument(
        "--datasets", nargs="*", default=list(DATASETS), choices=DATASETS
    )
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--most", type=int, help="rows to use at most")
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
