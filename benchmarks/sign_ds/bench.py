"""SignDS-FL and its baselines on the paper's tasks: accuracy over ε, three seeds.

    make bench NAME=sign_ds DATA=<folder> [QUICK=1]
    python benchmarks/sign_ds/bench.py --data data --tasks a9a usps har --workers 2 --out benchmarks/sign_ds/ours.csv

Settings of the paper (dissertation of X. Jiang, TUM 2024, §3.5.1): 500 rounds × 250
clients × 10 rows, 10 epochs of gradient descent at 0.001, γ = 0.05, k = 0.1 d. ε is
that of one report; `participations` says how many the busiest client gave,
`epsilon_run` what they cost together (plain sum). `--global-rate` tunes γ; privacy is
never tuned.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import torch
from sklearn.datasets import load_digits

from common.grid import Grid, by_text, grid_options
from common.loaders import IMAGES, arrays
from common.options import quick
from understudy.api.train import train
from understudy.data.encoding.population import Population
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.cross_device.reporting import SELECTION
from understudy.runs.federation import Federation
from understudy.runs.result import Result

QUICK = quick()
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
METHODS: dict[str, dict[str, Any]] = {
    "SignDS (h=1)": {"reporter": "ps"},
    "EM-MDS (h=3)": {"reporter": "em-mds", "chosen": 3},
    "EM-MDS (h=5)": {"reporter": "em-mds", "chosen": 5},
    "naive (h=3)": {"reporter": "naive", "chosen": 3},
    "naive (h=5)": {"reporter": "naive", "chosen": 5},
    "Duchi": {"reporter": "duchi"},
    "PM": {"reporter": "piecewise"},
    "HM": {"reporter": "hybrid"},
    "PM-SUB": {"reporter": "pm-sub"},
    "FedSel (0.1)": {"reporter": "fedsel", "split": 0.1},
    "FedSel (0.5)": {"reporter": "fedsel", "split": 0.5},
    "non-private": {"reporter": "none"},
}
FIELDS = [
    "dataset",
    "model",
    "method",
    "epsilon_round",
    "epsilon_run",
    "participations",
    "clients",
    "dims",
    "rounds",
    "global_rate",
    "seed",
    "accuracy",
    "seconds",
    "up_bytes_per_report",
]
TASKS = {
    "a9a": "logistic",
    "usps": "logistic",
    "har": "logistic",
    "fmnist": "mlp",
    "fmnist-lenet": "lenet",
    "emnist": "mlp",
    "emnist-lenet": "lenet",
}
# scikit-learn's own 8 × 8 digits: for a quick look, needs no file
TASKS["digits"] = "logistic"
FILES = {
    "a9a": ("a9a.npz",),
    "usps": ("usps.npz",),
    "har": ("har.npz",),
    "fmnist": IMAGES["fashion_mnist"],
    "emnist": ("emnist_bymerge_balanced.npz",),
}


def load(task: str, folder: Path, seed: int) -> tuple[Population, Population, int]:
    """Clients of 10 rows each, held-out rows, and how many clients there are. Features
    lie in [0, 1].
    """
    name = task.removesuffix("-lenet")
    if task == "digits":
        x, y = load_digits(return_X_y=True)
        return split(x / 16, y, np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    held = arrays(folder, *FILES[name])
    if name == "a9a":
        (one,) = held
        x = one["X_train"]
        y = one["y_train"]
        tx = one["X_test"]
        ty = one["y_test"]
    elif name == "fmnist":
        x = held[0]["X"] / 255
        y = held[0]["y"]
        tx = held[1]["X"] / 255
        ty = held[1]["y"]
    elif name == "emnist":
        (one,) = held
        x = one["X"] / 255
        flat = x if task.endswith("lenet") else x.reshape(len(x), -1)
        return split(flat, one["y"], rng)
    else:
        (one,) = held
        x = one["X"] if name == "usps" else (one["X_int16"] * one["scale"] + 1) / 2
        return split(x, one["y"], rng)
    if task == "fmnist":
        x = x.reshape(len(x), -1)
        tx = tx.reshape(len(tx), -1)
    return deal(x, y, tx, ty, rng)


def split(
    x: Any, y: Any, rng: np.random.Generator
) -> tuple[Population, Population, int]:
    """Four fifths to the clients, the rest held out."""
    order = rng.permutation(len(x))
    x, y, cut = x[order], y[order], len(x) * 8 // 10
    return deal(x[:cut], y[:cut], x[cut:], y[cut:], rng)


def deal(
    x: Any, y: Any, tx: Any, ty: Any, rng: np.random.Generator
) -> tuple[Population, Population, int]:
    """Ten rows to each client."""
    order = rng.permutation(len(x))[: len(x) // 10 * 10]
    labels = sorted(set(y.tolist()))
    people = Population.from_arrays(
        x[order].astype(np.float32), y[order], classes=labels, rows_per_person=10
    )
    test = Population.from_arrays(
        tx.astype(np.float32), ty, classes=labels, rows_per_person=len(tx)
    )
    return people, test, len(order) // 10


def set_apart(
    test: Population, rows: int, seed: int
) -> tuple[Population | None, Population]:
    """So many of the held-out rows as public ones, and the rest."""
    if not rows:
        return None, test
    order = torch.from_numpy(
        np.random.default_rng((seed, 1)).permutation(len(test.rows))
    )
    public, rest = (
        replace(
            test,
            rows=test.rows[part],
            codes=test.codes[part],
            starts=torch.tensor([0, len(part)]),
        )
        for part in (order[:rows], order[rows:])
    )
    return public, rest


def run(job: dict[str, Any]) -> tuple[Result, int, float]:
    """The run of a job, how many clients took part in a round, and its seconds."""
    task, method, seed, rounds = (
        job[key] for key in ("task", "method", "seed", "rounds")
    )
    people, test, clients = load(task, job["data"], seed)
    public, test = set_apart(test, job.get("public_rows", 0), seed)
    clients_per_round = min(job.get("clients_per_round", 250), clients)
    max_reports = math.ceil(rounds * clients_per_round / clients * 1.5) + 10
    price = {} if method == "non-private" else {"epsilon": job["epsilon"]}
    tuned = METHODS[method]["reporter"] in SELECTION or job.get("every_rate")
    rate = job["global_rate"] if tuned else None
    federation = Federation.rehearsal(
        {"phones": people}, budget=Budget(math.inf, 0.0), seed=seed
    )
    start = time.perf_counter()
    result = train(
        "sign-ds",
        federation,
        holdout=test,
        public=public,
        model=TASKS[task],
        rounds=rounds,
        clients_per_round=clients_per_round,
        max_reports=max_reports,
        seed=seed,
        evaluate_every=job.get("every", rounds),
        checkpoint_every=10**6,
        device=job["device"],
        **({"global_rate": rate} if rate else {}),
        **METHODS[method],
        **price,
    )
    return result, clients_per_round, time.perf_counter() - start


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One run."""
    task, method, epsilon = (job[key] for key in ("task", "method", "epsilon"))
    tuned = METHODS[method]["reporter"] in SELECTION or job.get("every_rate")
    price = method != "non-private"
    result, _, seconds = run(job)
    card = result.model.card
    most = card["reports"]["of the busiest person"]
    line = next(
        line
        for (_, kind), line in result.transcript.lines.items()
        if kind.endswith(".round")
    )
    return {
        "dataset": task.removesuffix("-lenet"),
        "model": TASKS[task],
        "method": method,
        "epsilon_round": epsilon if price else "",
        "epsilon_run": epsilon * most if price else "",
        "participations": most,
        "clients": card["people"],
        "dims": result.model.network.size,
        "rounds": job["rounds"],
        "global_rate": (job["global_rate"] if tuned else None) or "",
        "seed": job["seed"],
        "accuracy": round(card["history"][-1]["accuracy"], 4),
        "seconds": round(seconds, 1),
        "up_bytes_per_report": round(line.up_bytes / card["reports"]["all"], 1),
    }


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Non-private once per seed, the others at every ε."""
    for task in args.tasks:
        for seed in args.seeds:
            for method in args.methods:
                for epsilon in args.epsilons if method != "non-private" else (0.0,):
                    yield {
                        "task": task,
                        "method": method,
                        "epsilon": epsilon,
                        "seed": seed,
                        "rounds": args.rounds,
                        "data": args.data,
                        "device": args.device,
                        "global_rate": args.global_rate,
                    }


def named(job: dict[str, Any]) -> dict[str, Any]:
    """A job in the columns of the file."""
    task = job["task"]
    price = "" if job["method"] == "non-private" else job["epsilon"]
    return job | {
        "dataset": task.removesuffix("-lenet"),
        "model": TASKS[task],
        "epsilon_round": price,
    }


KEY = ("dataset", "model", "method", "epsilon_round", "seed")
GRID = Grid(fields=FIELDS, key=(*KEY, "rounds"), order=by_text(*KEY), columns=named)


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, device="cpu")
    parser.add_argument(
        "--tasks",
        nargs="*",
        default=["digits"] if QUICK else [task for task in TASKS if task != "digits"],
        choices=TASKS,
    )
    parser.add_argument(
        "--methods",
        nargs="*",
        default=["SignDS (h=1)", "non-private"] if QUICK else list(METHODS),
    )
    parser.add_argument(
        "--epsilons", nargs="*", type=float, default=[8.0] if QUICK else list(EPSILONS)
    )
    parser.add_argument(
        "--seeds", nargs="*", type=int, default=[0] if QUICK else [0, 1, 2]
    )
    parser.add_argument("--rounds", type=int, default=30 if QUICK else 500)
    parser.add_argument("--global-rate", type=float, default=None)
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
