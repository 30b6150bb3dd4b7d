"""SGDE beside its paper: what a silo of 5 % gains from a pool of private generators.

    make bench NAME=sgde DATA=<folder> [QUICK=1]
    python benchmarks/sgde/bench.py --data data --only titanic adult --jobs 2 --out benchmarks/sgde/ours.csv
    python benchmarks/sgde/bench.py --speed      # per-sample gradients: ours,
                                                 torch.func, Opacus where it is
                                                 installed

Lomurno et al., "SGDE" (AIPR 2022), §IV, Tables I and III: 20 silos with 5 % of the
training rows each; a model learned at each silo alone (local), by FedAvg over all
(federated), or from the pool (synthetic), tested on silos' own rows (Table I) and on
held-out rows (Table III). "synthetic, counts" has silos offer the levels' counts of
each class under the same ε, in place of β-VAEs (`protocols/papers/sgde/marginals.py`);
"synthetic, pairs" those of all pairs of levels, which the pool adds
(`protocols/papers/sgde/gram.py`). A finished cell (data set, method, seed) is in the file and
is not computed again.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import tasks
from sklearn.model_selection import KFold

from common.grid import Grid, by_text, grid_options
from common.options import quick
from understudy.api.train import train
from understudy.generators.samplers import labelled_images
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.papers.sgde.offering import RECIPES
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
EPSILON = 1.5
DELTA = 1e-5
METHODS = (
    "synthetic",
    "local",
    "federated",
    "synthetic, no noise",
    "synthetic, counts",
    "synthetic, pairs",
)
PRICED = ("synthetic", "synthetic, counts", "synthetic, pairs")
KINDS = {"synthetic, counts": "marginals", "synthetic, pairs": "gram"}  # for tables
SETTINGS, IMAGE_SETTINGS = (
    {
        name: getattr(recipe, name)
        for name in ("latent", "steps", "rate", "learning_rate")
    }
    for recipe in (RECIPES["table"], RECIPES["image"])
)
FIELDS = [
    "dataset",
    "method",
    "table",
    "epsilon",
    "delta",
    "seed",
    "silos",
    "accuracy",
    "f1",
    "auc",
    "flagged",
    "seconds",
]
METRICS = ("accuracy", "f1", "auc")
KEY = ("dataset", "method", "seed")
GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY, "table"))


def measure(
    task: tasks.Task,
    method: str,
    *,
    seed: int,
    device: str = "auto",
    drawn: int = 10_000,
    rounds: int = 40,
    **settings: Any,
) -> list[dict[str, Any]]:
    """The rows of one cell: tested on the silos' own rows, and on the test set."""
    start = time.perf_counter()
    flagged = 0
    if method == "local":
        inside, outside = _local(task, seed, device)
    elif method == "federated":
        inside, outside = _federated(task, seed, device, rounds)
    else:
        rows, flagged = synthetic(
            task,
            seed=seed,
            device=device,
            drawn=drawn,
            private=method in PRICED,
            kind=KINDS.get(method, "beta-vae"),
            **settings,
        )
        predict = tasks.learn(task, rows, seed=seed, device=device)
        inside = [tasks.scores(predict(x), y) for x, y in task.silos]
        outside = [tasks.scores(predict(task.test[0]), task.test[1])]
    seconds = time.perf_counter() - start
    priced = method in PRICED
    return [
        {
            "dataset": task.name,
            "method": method,
            "table": table,
            "epsilon": EPSILON if priced else "",
            "delta": DELTA if priced else "",
            "seed": seed,
            "silos": len(task.silos),
            **{
                name: round(float(np.nanmean([score[name] for score in found])), 2)
                for name in METRICS
            },
            "flagged": flagged if priced else "",
            "seconds": round(seconds, 1),
        }
        for table, found in (("I", inside), ("III", outside))
    ]


def synthetic(
    task: tasks.Task,
    *,
    seed: int,
    device: str,
    drawn: int,
    private: bool,
    **settings: Any,
) -> tuple[tasks.Rows, int]:
    """Rows from the pool of all silos, as many of each class, and how many offers were
    flagged.
    """
    federation = Federation.rehearsal(
        task.held,
        task.schemas or None,
        budget=Budget(EPSILON, DELTA) if private else Budget(np.inf, 0.0),
        seed=seed,
        same_people=False,
    )
    chosen = (IMAGE_SETTINGS if task.image else SETTINGS) | settings
    result = train(
        "sgde",
        federation,
        target=task.target,
        epsilon=EPSILON,
        delta=DELTA,
        private=private,
        device=device,
        seed=seed,
        **chosen,
    )
    flagged = sum(offer["flagged"] for offer in result.generator.card["offers"])
    if task.image:
        images, labels = labelled_images(result.generator, drawn, seed=seed)
        return (
            images.astype(np.float32) / 255,
            np.array(labels, dtype=np.int64),
        ), flagged
    return task.features(result.generator.sample(drawn, seed=seed)), flagged


def _local(
    task: tasks.Task, seed: int, device: str
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    inside = []
    outside = []
    for x, y in task.silos:
        odds = np.zeros((len(y), task.classes))
        folds = KFold(10 if len(y) >= 10 else 2, shuffle=True, random_state=seed)
        for fit, held in folds.split(x):
            odds[held] = tasks.learn(task, (x[fit], y[fit]), seed=seed, device=device)(
                x[held]
            )
        inside.append(tasks.scores(odds, y))
        predict = tasks.learn(task, (x, y), seed=seed, device=device)
        outside.append(tasks.scores(predict(task.test[0]), task.test[1]))
    return inside, outside


def _federated(
    task: tasks.Task, seed: int, device: str, rounds: int
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Table I: trained on nine tenths of each silo and tested on the tenth, all silos'
    tenths together.
    """
    rng = np.random.default_rng(seed)
    kept = []
    held = []
    for x, y in task.silos:
        order = rng.permutation(len(y))
        cut = max(1, len(y) // 10)
        held.append((x[order[:cut]], y[order[:cut]]))
        kept.append((x[order[cut:]], y[order[cut:]]))
    predict = tasks.federated(task, kept, rounds=rounds, seed=seed, device=device)
    x, y = (np.concatenate(parts) for parts in zip(*held, strict=True))
    inside = [tasks.scores(predict(x), y)]
    predict = tasks.federated(task, task.silos, rounds=rounds, seed=seed, device=device)
    return inside, [tasks.scores(predict(task.test[0]), task.test[1])]


def cell(job: dict[str, Any]) -> list[dict[str, Any]]:
    """One cell in a process of its own."""
    task = tasks.load(job["dataset"], job["data"], silos=job["silos"], seed=job["seed"])
    more = {"steps": job["steps"]} if job["steps"] else {}
    return measure(task, job["method"], seed=job["seed"], device=job["device"], **more)


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every data set once before any twice, and what the paper is about first."""
    for seed, method, dataset in product(range(args.seeds), args.methods, args.only):
        if method in KINDS and dataset in tasks.IMAGES:
            continue  # pixels have no levels
        yield {
            "dataset": dataset,
            "method": method,
            "seed": seed,
            "data": args.data,
            "silos": args.silos,
            "device": args.device,
            "steps": args.steps,
        }


def parser() -> argparse.ArgumentParser:
    names = [*tasks.TARGETS, *tasks.IMAGES]
    parser = grid_options(__doc__, out=HERE / "ours.csv")
    parser.add_argument(
        "--only",
        nargs="*",
        default=["breast_cancer_diagnostic"] if QUICK else names,
        choices=names,
    )
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    parser.add_argument("--silos", type=int, default=5 if QUICK else 20)
    parser.add_argument("--steps", type=int, default=20 if QUICK else None)
    parser.add_argument("--speed", action="store_true", help="only time a private step")
    return parser


def main() -> None:
    args = parser().parse_args()
    if args.speed:
        import speed

        speed.main(args.device)
        return
    GRID.run(cell, jobs(args), args)


if __name__ == "__main__":
    main()
