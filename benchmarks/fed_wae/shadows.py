"""Membership inference by shadow models on DP-Fed-WAE's tables: Table 4.5.

    python benchmarks/fed_wae/shadows.py --data data --out benchmarks/fed_wae/shadows.csv

X. Jiang, dissertation, TUM 2024, §4.5.3; `evaluate/attacks/shadows.py`. 30 random rows
of the training part are the targets, and the attacker's reference is the rest of it. A
run is small, as in Stadler et al. (1,000 rows): 500 people with two rows each, who
report once (50 rounds × 10 people), other settings as in `bench.py`, ξ = 0.1. The paper
does not say how many rows its runs have.

`acc` is the share of right guesses by all attackers together, `highest` that by the
best attacker of each target, as in the paper; `control` and `highest_control` are the
same where the attackers learned nothing. "central" trains the same network without
privacy in one place, for --steps steps; "copies" is a generator that gives its rows.
`avd2` is the distance of two-way tables from the training rows: what was learned at all.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
from bench import generated
from wae_tables import FILES, Data, load

from common.central import central
from common.grid import Grid, by_text, grid_options
from common.options import quick
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.data.table import read_table
from understudy.evaluate.attacks.shadows import shadow_models
from understudy.evaluate.utility.distance import Space
from understudy.evaluate.utility.marginals import Codes, Marginals
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.papers.fed_wae import protocol as fed_wae
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
EPSILONS = (0.5, 2.0, 8.0)
METHODS = ("DP-Fed-WAE, once", "non-private, once", "central", "copies")
KEY = ("dataset", "method", "epsilon", "seed")
FIELDS = [
    *KEY,
    "rows",
    "clients_per_round",
    "steps",
    "targets",
    "shadows",
    "tested",
    "avd2",
    "acc",
    "control",
    "p",
    "auc",
    "auc_control",
    "highest",
    "highest_control",
    "p_highest",
    "seconds",
    "machine",
    "date",
]
GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY))
Job = dict[str, Any]


class Generator:
    """One method's training, from rows to a table, as shadow models ask for it."""

    def __init__(self, job: Job, data: Data) -> None:
        self.job = job
        self.schema = data.schema
        self.codec = Codec(data.schema)
        self.distances: list[float] = []

    def release(self, rows: Codes, seed: int) -> Codes:
        table = rows if self.job["method"] == "copies" else self.drawn(rows, seed)
        found = Marginals(rows, table, self.codec.sizes).avd(2).value
        self.distances.append(math.nan if found is None else found)
        return table

    def drawn(self, rows: Codes, seed: int) -> Codes:
        frame = self.codec.decode(rows)
        job = self.job
        if job["method"] == "central":
            config = fed_wae.Config(reporter="none", seed=seed)
            table = read_table(frame, self.schema)
            generator = central(config, table, steps=job["steps"])
            return self.codec.codes(generator.sample(len(rows), seed=seed))
        people = len(rows) // 2
        federation = Federation.rehearsal(
            {"phones": frame.assign(person=np.arange(len(rows)) // 2)},
            {"phones": replace(self.schema, person="person")},
            budget=Budget(math.inf, 0.0),
            seed=seed,
            same_people=False,
        )
        private = job["method"] == "DP-Fed-WAE, once"
        result = train(
            "fed-wae",
            federation,
            rounds=people // job["clients_per_round"],
            clients_per_round=job["clients_per_round"],
            max_reports=1,
            checkpoint_every=10**6,
            seed=seed,
            **({"epsilon": job["epsilon"], "top": 0.1} if private else {}),
            **({} if private else {"reporter": "none"}),
        )
        return self.codec.codes(result.generator.sample(len(rows), seed=seed))


def measure(job: Job) -> dict[str, Any]:
    """One cell."""
    data = generated() if job["data"] is None else load(job["dataset"], job["data"])
    generator = Generator(job, data)
    codec = generator.codec
    codes = codec.codes(data.train)
    order = np.random.default_rng(job["seed"]).permutation(len(codes))
    targets, reference = np.split(codes[order], [job["targets"]])
    start = time.process_time()
    attack = shadow_models(
        generator.release,
        reference,
        targets,
        Space.hamming(codec.sizes),
        rows=job["rows"],
        shadows=job["shadows"],
        tested=job["tested"],
        seed=job["seed"],
    )
    seconds = time.process_time() - start
    acc, auc, highest = (attack[name] for name in ("acc", "auc", "highest"))
    settings = ("rows", "clients_per_round", "targets", "shadows", "tested", "machine")
    return {name: job[name] for name in (*KEY, *settings)} | {
        "steps": job["steps"] if job["method"] == "central" else "",
        "avd2": round(float(np.mean(generator.distances)), 4),
        "acc": round(acc.attack.value, 4),
        "control": round(acc.control.value, 4),
        "p": round(acc.p, 4),
        "auc": round(auc.attack.value, 4),
        "auc_control": round(auc.control.value, 4),
        "highest": round(highest.attack.value, 4),
        "highest_control": round(highest.control.value, 4),
        "p_highest": round(highest.p, 4),
        "seconds": round(seconds, 1),
        "date": date.today().isoformat(),
    }


def jobs(args: argparse.Namespace) -> Iterator[Job]:
    names = ("data", "rows", "clients_per_round", "steps")
    shared = {name: getattr(args, name) for name in names}
    shared |= {name: getattr(args, name) for name in ("targets", "shadows", "tested")}
    for seed in args.seeds:
        for dataset in args.only:
            for method in args.methods:
                private = method == "DP-Fed-WAE, once"
                for epsilon in args.epsilons if private else ("",):
                    yield shared | {
                        "dataset": dataset,
                        "method": method,
                        "epsilon": epsilon,
                        "seed": seed,
                        "machine": args.machine,
                    }


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "shadows.csv", device="cpu")
    parser.add_argument("--only", nargs="*", default=["a9a"], choices=FILES)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--rows", type=int, default=1000, help="of a run")
    parser.add_argument("--clients-per-round", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1000, help="of central training")
    parser.add_argument("--targets", type=int, default=30)
    parser.add_argument("--shadows", type=int, default=16)
    parser.add_argument("--tested", type=int, default=16)
    parser.add_argument("--machine", default="", help="written beside each figure")
    return parser


def main() -> None:
    args = parser().parse_args()
    if QUICK:
        args.data = None
        args.epsilons = [8.0]
        args.seeds = [0]
        args.rows = 40
        args.steps = 5
        args.targets = 4
        args.shadows = args.tested = 4
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
