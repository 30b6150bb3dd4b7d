"""Images by one release: what classifiers learn from synthetic images alone, over ε,
for one holder and for silos.

    make bench NAME=images DATA=<folder> [QUICK=1]
    python benchmarks/images/bench.py --data data --device cuda --jobs 6 --out benchmarks/images/ours.csv
    python benchmarks/images/bench.py --only fashion_mnist --epsilons 1 10

Moments (`protocols/moments`) with its default settings, one image a person, δ = 10⁻⁵;
of handwriting, which leans, also with `upright`. Three classifiers are trained on
50,000 drawn images and tested on real ones, the CNN also for longer; the Fréchet
distance is taken in a fixed space of random convolutions. "real" trains on the people's
own images. USPS and EMNIST have no test set here: every fifth image is held out.
"offers": each of 20 silos releases its sums alone, with the whole noise, and a pool
adds them (`sgde`, kind="moments"); beside the three, "fit" is Bayes' rule on what was
fitted, where nothing is drawn.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import torch
from learners import LEARNERS, accuracy, frechet

from common.grid import Grid, by_text, grid_options
from common.loaders import IMAGES, arrays, images
from common.options import quick
from understudy.api.train import train
from understudy.data.encoding.population import Population
from understudy.data.images import Images, ImageSchema
from understudy.generators.classifier import Classifier
from understudy.models.network import pick_device
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
DELTA = 1e-5
EPSILONS = (0.2, 1.0, 1.5, 2.0, 4.0, 8.0, 10.0)
OTHERS = {
    "emnist": ("emnist_bymerge_balanced.npz", 28, 255.0),
    "usps": ("usps.npz", 16, 1.0),
}
DATASETS = (*IMAGES, *OTHERS)
HANDWRITING = ("mnist", "emnist", "usps")
UPRIGHT = "moments, upright"
SPLITS = {"one holder": 1, "20 silos": 20, "offers": 20}
FIELDS = [
    "dataset",
    "people",
    "split",
    "method",
    "epsilon",
    "seed",
    "classifier",
    "accuracy",
    "frechet",
    "directions",
    "cells",
    "release_seconds",
    "up_mb",
    "drawn",
    "device",
]
KEY = ("dataset", "split", "method", "epsilon", "seed")


def load(name: str, folder: Path, most: int | None = None) -> tuple[Any, Any, Any, Any]:
    """Images in [0, 255] and classes: of people, and to test on."""
    if name in IMAGES:
        (x, y), (test_x, test_y) = images(name, folder)
    else:
        file, side, high = OTHERS[name]
        (found,) = arrays(folder, file)
        x = np.rint(found["X"].reshape(-1, side, side) * (255 / high)).astype(np.uint8)
        y = found["y"].astype(np.int64)
        held = np.arange(len(x)) % 5 == 4
        x, y, test_x, test_y = x[~held], y[~held], x[held], y[held]
    return x[:most], y[:most], test_x[:most], test_y[:most]


def measure(job: dict[str, Any]) -> list[dict[str, Any]]:
    """One run, and a row for each classifier."""
    torch.set_num_threads(1)
    x, y, test_x, test_y = load(job["dataset"], job["data"], job["most"])
    classes = int(y.max()) + 1
    device = pick_device(job["device"])
    start = time.perf_counter()
    drawn, labels, card, up, own = (
        (x, y, {}, 0.0, None)
        if job["method"] == "real"
        else drawn_images(job, x, y, classes)
    )
    seconds = time.perf_counter() - start
    row = {key: job[key] for key in KEY} | {
        "people": len(x),
        "frechet": round(frechet(test_x, drawn[:10_000], device), 3),
        "directions": card.get("directions", ""),
        "cells": card.get("cells", ""),
        "release_seconds": round(seconds, 1) if card else "",
        "up_mb": round(up, 2) if card else "",
        "drawn": len(drawn),
        "device": str(device),
    }
    fit = (
        []
        if own is None
        else [
            {"classifier": "fit", "accuracy": round(agreement(own, test_x, test_y), 4)}
        ]
    )
    return [row | one for one in fit] + [
        row
        | {
            "classifier": learner,
            "accuracy": round(
                accuracy(
                    learner,
                    (drawn, labels),
                    (test_x, test_y),
                    classes,
                    device,
                    job["epochs"],
                    job["seed"],
                ),
                4,
            ),
        }
        for learner in LEARNERS
    ]


def agreement(model: Classifier, x: Any, y: Any) -> float:
    """How often a classifier is right."""
    return float((np.asarray(model.predict(x)) == y).mean())


def drawn_images(
    job: dict[str, Any], x: Any, y: Any, classes: int
) -> tuple[Any, Any, dict[str, Any], float, Classifier | None]:
    """Synthetic images with classes, what the run says of itself, the megabytes that
    the busiest holder sent, and of offers the fit's own classifier.
    """
    schema = ImageSchema(
        height=x.shape[1],
        width=x.shape[2],
        label="class",
        classes=tuple(range(classes)),
    )
    silos = SPLITS[job["split"]]
    offered = job["split"] == "offers"
    held: dict[str, Any] = {
        f"silo {n}": Population.from_arrays(x[n::silos], y[n::silos], classes=classes)
        if offered
        else Images.from_array(x[n::silos], schema, labels=y[n::silos])
        for n in range(silos)
    }
    budget = Budget(job["epsilon"] or math.inf, DELTA)
    federation = Federation.rehearsal(
        held, budget=budget, seed=job["seed"], same_people=False
    )
    settings = {"private": bool(job["epsilon"]), "upright": job["method"] == UPRIGHT}
    if offered:
        pool = {"epsilon": budget.epsilon, "delta": DELTA, "leave_out": "nothing"}
        result = train("sgde", federation, kind="moments", **pool, **settings)
    else:
        result = train("moments", federation, **settings)
    rows = result.transcript.rows(result.privacy)
    sent = {
        name: sum(row["up_bytes"] for row in rows if row["party"] == name)
        for name in held
    }
    drawn, labels = result.generator.labelled(job["drawn"], seed=job["seed"])
    card = dict(result.generator.card)
    if offered:
        card |= {"directions": result.generator.network.directions, "cells": 1}
    own = result.generator.classifier() if offered else None
    return drawn, labels.astype(np.int64), card, max(sent.values()) / 1e6, own


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every cell; ε of 0 stands for no noise."""
    common = {
        key: getattr(args, key) for key in ("data", "device", "most", "drawn", "epochs")
    }
    for dataset in args.datasets:
        methods = ("moments", UPRIGHT) if dataset in HANDWRITING else ("moments",)
        cells = [
            ("one holder", method, epsilon)
            for method in methods
            for epsilon in (*args.epsilons, 0.0)
        ]
        cells += [("one holder", "real", 0.0)]
        if dataset in IMAGES:
            cells += [
                ("20 silos", "moments", 1.5),
                *(("offers", method, 1.5) for method in methods),
            ]
        for split, method, epsilon in cells:
            for seed in range(args.seeds if epsilon else 1):
                yield common | {
                    "dataset": dataset,
                    "split": split,
                    "method": method,
                    "epsilon": epsilon,
                    "seed": seed,
                }


GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY, "classifier"))


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__)
    parser.add_argument(
        "--datasets",
        nargs="*",
        default=["usps"] if QUICK else list(DATASETS),
        choices=DATASETS,
    )
    parser.add_argument(
        "--epsilons", nargs="*", type=float, default=[8.0] if QUICK else list(EPSILONS)
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    parser.add_argument(
        "--most", type=int, default=300 if QUICK else None, help="images to use at most"
    )
    parser.add_argument("--drawn", type=int, default=300 if QUICK else 50_000)
    parser.add_argument("--epochs", type=int, default=1 if QUICK else 6)
    parser.add_argument(
        "--only", default="", help="run the cells whose name contains this"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, (job for job in jobs(args) if args.only in GRID.title(job)), args)


if __name__ == "__main__":
    main()
