"""Several labels beside images: what is learned of each, and what the others cost the
first.

    python benchmarks/images/labels.py --data data --device cuda --jobs 6 --out benchmarks/images/labels.csv

Moments with its default settings, one holder, δ = 10⁻⁵. `labels`: the digit alone; with
its parity and its size, which follow from it (40 combinations, of which ten have
people); or with its ink, of six shades, which is drawn for every image by itself and
makes it paler (60 combinations: sums of each label's classes are released). `fit`:
Bayes' rule on what was fitted; `cnn`: a network that learned from drawn images, if
`--epochs` are not 0.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from bench import DELTA, load
from learners import accuracy

from common.grid import Grid, by_text, grid_options
from understudy.api.train import train
from understudy.data.images import Images, ImageSchema
from understudy.models.network import pick_device
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

DATASETS = ("mnist", "usps")
EPSILONS = (1.0, 4.0, 10.0)
LABELS = ("digit", "digit, parity, size", "digit, ink")
SIZES = {"digit": 10, "parity": 2, "size": 2, "ink": 6}
PALER = 0.12  # by each shade
KEY = ("dataset", "labels", "epsilon", "seed", "label")
FIELDS = [*KEY, "people", "fit", "cnn", "together", "device"]


def labelled(x: Any, y: Any, names: list[str], seed: int) -> tuple[Any, pd.DataFrame]:
    """Images with these labels, by number; where ink is one of them, paler by its
    shade.
    """
    ink = np.random.default_rng(seed).integers(0, SIZES["ink"], len(y))
    known = pd.DataFrame(
        {"digit": y, "parity": y % 2, "size": (y > 4).astype(np.int64), "ink": ink}
    )
    shown = (
        np.rint(x * (1 - PALER * ink)[:, None, None]).astype(np.uint8)
        if "ink" in names
        else x
    )
    return shown, known[names]


def measure(job: dict[str, Any]) -> list[dict[str, Any]]:
    """One run: a line for each label. `together`: the share of drawn digits that have
    the parity they should.
    """
    torch.set_num_threads(1)
    names = job["labels"].split(", ")
    device = pick_device(job["device"])
    x, y, test_x, test_y = load(job["dataset"], job["data"], job["most"])
    x, own = labelled(x, y, names, seed=1)
    test_x, test = labelled(test_x, test_y, names, seed=2)
    labels = {name: tuple(range(SIZES[name])) for name in names}
    schema = ImageSchema(height=x.shape[1], width=x.shape[2], labels=labels)
    held = {"one": Images.from_array(x, schema, labels=own)}
    federation = Federation.rehearsal(
        held, budget=Budget(job["epsilon"], DELTA), seed=job["seed"], same_people=False
    )
    generator = train("moments", federation).generator
    drawn, made = generator.labelled(job["drawn"], seed=job["seed"])
    made = made if isinstance(made, pd.DataFrame) else pd.DataFrame({"digit": made})
    right = (
        f"{(made['parity'] == made['digit'] % 2).mean():.4f}"
        if "parity" in made
        else ""
    )
    lines = []
    for name in names:
        sets = (
            (images, known[name].to_numpy(np.int64))
            for images, known in ((drawn, made), (test_x, test))
        )
        learned = (
            round(
                accuracy("cnn", *sets, SIZES[name], device, job["epochs"], job["seed"]),
                4,
            )
            if job["epochs"]
            else ""
        )
        told = generator.classifier(name).score(test_x, test[name])
        lines.append(
            {key: job[key] for key in KEY[:-1]}
            | {"label": name, "people": len(x), "fit": round(told, 4), "cnn": learned}
            | {"together": right, "device": str(device)}
        )
    return lines


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every cell."""
    common = {
        key: getattr(args, key) for key in ("data", "device", "most", "drawn", "epochs")
    }
    for seed in range(args.seeds):
        for dataset in args.datasets:
            for labels in LABELS:
                for epsilon in args.epsilons:
                    yield {
                        "dataset": dataset,
                        "labels": labels,
                        "epsilon": epsilon,
                        "seed": seed,
                        **common,
                    }


GRID = Grid(fields=FIELDS, key=KEY[:-1], order=by_text(*KEY))


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=Path(__file__).parent / "labels.csv")
    parser.add_argument(
        "--datasets", nargs="*", default=list(DATASETS), choices=DATASETS
    )
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--most", type=int, help="images to use at most")
    parser.add_argument("--drawn", type=int, default=50_000)
    parser.add_argument(
        "--epochs", type=int, default=6, help="of the cnn; 0: without it"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
