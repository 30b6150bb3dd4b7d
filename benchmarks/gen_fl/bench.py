"""DP-GenFL beside its paper: accuracy and membership inference over the share γ of
made-up rows.

    make bench NAME=gen_fl DATA=<folder> [QUICK=1]
    python benchmarks/gen_fl/bench.py --data data --only mnist --jobs 4 --out benchmarks/gen_fl/ours.csv

Li, Wei, Ma, Shu, "DP-GenFL" (supplementary file), Appendix E, Table E3: 50 clients, 30
a round, 80 rounds, 5 local steps at 0.02, ε = 4. "private GAN" rows train the GAN's
critic with DP-SGD within the same ε; the paper's GAN has no guarantee. A finished cell
(data set, method, seed) is in the file and is not computed again.
"""

import argparse
import math
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
import torch
from numpy.typing import NDArray
from torch.nn import functional

from common.grid import Grid, grid_options
from common.loaders import IMAGES, Images, images
from common.options import quick
from understudy.api.train import train
from understudy.data.encoding.population import Population
from understudy.generators.classifier import Classifier
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
CLIENTS = 50
EPSILON = 4.0
DELTA = 1e-5
METHODS: dict[str, dict[str, Any]] = {
    "no privacy": {"share": 0.0, "private": False},
    "DP-FL": {"share": 0.0},
    **{f"DP-GenFL γ={share:g}": {"share": share} for share in (1.0, 0.6, 0.2)},
    **{
        f"DP-GenFL γ={share:g}, private GAN": {"share": share, "dp_generator": True}
        for share in (1.0, 0.6, 0.2)
    },
}
FIELDS = [
    "dataset",
    "method",
    "epsilon",
    "delta",
    "real_rows_epsilon",
    "guarantee",
    "participations",
    "seed",
    "clients",
    "rounds",
    "steps",
    "learning_rate",
    "accuracy",
    "mia",
    "seconds",
]


def measure(
    dataset: str,
    rows: Images,
    test: Images,
    method: str,
    *,
    seed: int,
    clients: int = CLIENTS,
    **settings: Any,
) -> dict[str, Any]:
    """One cell: clients of equal shares of the rows, at random."""
    order = np.random.default_rng(seed).permutation(len(rows[1]))
    each = len(order) // clients
    order = order[: each * clients]
    own = rows[0][order], rows[1][order]
    classes = int(max(rows[1].max(), test[1].max())) + 1
    people = Population.from_arrays(*own, classes=classes, rows_per_person=each)
    holdout = Population.from_arrays(
        *test, classes=classes, rows_per_person=len(test[1])
    )
    federation = Federation.rehearsal(
        {"clients": people}, budget=Budget(math.inf, 0.0), seed=seed
    )
    start = time.perf_counter()
    result = train(
        "gen-fl",
        federation,
        holdout=holdout,
        rows=each,
        epsilon=EPSILON,
        delta=DELTA,
        seed=seed,
        checkpoint_every=10**6,
        **(METHODS[method] | settings),
    )
    card = result.model.card
    guarded = card["synthetic_rows"] == "within ε"
    return {
        "dataset": dataset,
        "method": method,
        "epsilon": EPSILON if guarded else "",
        "delta": DELTA,
        "real_rows_epsilon": ""
        if card["real_rows"]["epsilon"] is None
        else round(card["real_rows"]["epsilon"], 3),
        "guarantee": "yes" if guarded else "none",
        "participations": card["config"]["max_reports"],
        "seed": seed,
        "clients": clients,
        "rounds": card["rounds"],
        **{name: card["config"][name] for name in ("steps", "learning_rate")},
        "accuracy": round(card["history"][-1]["accuracy"], 4),
        "mia": round(membership(result.model, own, test, seed), 4),
        "seconds": round(time.perf_counter() - start, 1),
    }


def membership(
    model: Classifier, members: Images, others: Images, seed: int, most: int = 5000
) -> float:
    """How often a threshold on the loss tells members from others: learned on one half,
    tested on the other.

    Yeom et al. (2018), in place of the paper's shadow models: 0.5 is guessing.
    """
    rng = np.random.default_rng(seed)
    size = min(most, len(members[1]), len(others[1]))
    picks = [rng.permutation(len(part[1]))[:size] for part in (members, others)]
    losses = [
        _losses(model, (x[pick], y[pick]))
        for (x, y), pick in zip((members, others), picks, strict=True)
    ]
    half = size // 2
    cuts = np.quantile(
        np.concatenate([part[:half] for part in losses]), np.linspace(0, 1, 201)
    )
    gains = [
        (losses[0][:half] <= cut).mean() - (losses[1][:half] <= cut).mean()
        for cut in cuts
    ]
    cut = cuts[int(np.argmax(gains))]
    return 0.5 + 0.5 * float(
        (losses[0][half:] <= cut).mean() - (losses[1][half:] <= cut).mean()
    )


def _losses(model: Classifier, rows: Images) -> NDArray[np.float64]:
    odds = torch.from_numpy(model.predict_proba(rows[0])).double()
    return np.asarray(
        functional.nll_loss(
            odds.clamp(min=1e-12).log(), torch.from_numpy(rows[1]), reduction="none"
        )
    )


def cell(job: dict[str, Any]) -> dict[str, Any]:
    """One cell in a process of its own."""
    rows, test = images(job["dataset"], job["data"])
    return measure(
        job["dataset"], rows, test, job["method"], seed=job["seed"], **job["settings"]
    )


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every setting once before any twice."""
    fixed = {
        "rounds": args.rounds,
        "gan_steps": args.gan_steps,
        "device": args.device,
        "max_reports": math.ceil(args.rounds * 30 / CLIENTS),
    }
    grid = product(
        range(args.seeds), args.learning_rate, args.steps, args.only, args.methods
    )
    for seed, learning_rate, steps, dataset, method in grid:
        settings = fixed | {"learning_rate": learning_rate, "steps": steps}
        yield {
            "dataset": dataset,
            "method": method,
            "seed": seed,
            "data": args.data,
            "settings": settings,
        }


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    """Where a row stands in the file."""
    setting = float(row["learning_rate"]), int(row["steps"])
    return (
        row["dataset"],
        *setting,
        list(METHODS).index(row["method"]),
        int(row["seed"]),
    )


GRID = Grid(
    fields=FIELDS,
    key=("dataset", "method", "seed", "learning_rate", "steps"),
    order=place,
    columns=lambda job: job | job["settings"],
)


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "ours.csv")
    parser.add_argument(
        "--only",
        nargs="*",
        default=["mnist"] if QUICK else list(IMAGES),
        choices=IMAGES,
    )
    parser.add_argument(
        "--methods",
        nargs="*",
        default=["DP-FL"] if QUICK else list(METHODS),
        choices=METHODS,
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    parser.add_argument("--rounds", type=int, default=2 if QUICK else 80)
    parser.add_argument("--steps", type=int, nargs="*", default=[5])
    parser.add_argument("--learning-rate", type=float, nargs="*", default=[0.02])
    parser.add_argument("--gan-steps", type=int, default=10 if QUICK else 1000)
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(cell, jobs(args), args)


if __name__ == "__main__":
    main()
