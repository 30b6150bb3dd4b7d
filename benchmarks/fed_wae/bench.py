"""DP-Fed-WAE beside its baselines on four tables: marginals, correlations, and models
trained on synthetic rows.

    make bench NAME=fed_wae DATA=<folder> [QUICK=1]
    python benchmarks/fed_wae/bench.py --data data --jobs 14 --out benchmarks/fed_wae/ours.csv
    python benchmarks/fed_wae/bench.py --only adult --methods "DP-Fed-WAE" --epsilons 8 --set global_rate=0.3
    python benchmarks/fed_wae/bench.py --speed            # one batch against one client after another
    python benchmarks/fed_wae/bench.py --images           # sheets of samples, as PNG

Settings of DP-Fed-WAE are the paper's (X. Jiang, dissertation, TUM 2024, §4.5.1): 2
rows a person, 5000 rounds × 10 people, 10 epochs of Adam at 0.001, ξ = k/d ∈ {0.05,
0.1, 0.25}. The paper draws 10⁵ rows, with replacement where there are fewer; here
nobody is doubled, so that with fewer than 50,000 people some report several times. ε is
that of one report; `participations` says how many the busiest person gave and
`epsilon_run` what they cost together. "once" is the setting in which everybody reports
once at most, so that both are equal. "wake-sleep" is `papers/fed_wae/wake_sleep.py` at its
defaults, with as many reports. A cell that stands in --out already is not run again;
every finished cell is written at once. QUICK=1 uses generated rows and takes seconds.
"""

import argparse
import json
import math
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from wae_tables import FILES, Data, load

from common.central import central
from common.grid import Grid, by_text, grid_options
from common.options import quick
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.data.table import read_table
from understudy.evaluate.utility.association import correlations
from understudy.evaluate.utility.downstream import Examples, downstream
from understudy.evaluate.utility.marginals import Marginals, shuffle_columns
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.papers.fed_wae import protocol as fed_wae
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
EPSILONS = (0.5, 2.0, 8.0)
TOPS = (0.05, 0.1, 0.25)
# rounds of wake-sleep; the cohort is as large as gives the same number of reports as
# the paper's rounds
DREAMT = 500
PAPER = ("DP-Fed-WAE", "DP-Fed-WAE, once")  # these choose by ξ
OURS = ("wake-sleep", "wake-sleep, once")
BASELINES = ("LoPub", "LoCop")
WIDE = {"census": {"cells": 4096}}  # two of its columns have 2,652 cells together
PRICED = (*PAPER, *OURS, *BASELINES)
WITHOUT = ("non-private", "wake-sleep, non-private")
METHODS = (*OURS, *PAPER, *WITHOUT, "central", *BASELINES, "independent columns")
SCORES = [
    f"{kind}_{model}_{score}"
    for kind in ("tstr", "trtr")
    for model in ("mlp", "forest")
    for score in ("acc", "auc")
]
KEY = ("dataset", "method", "epsilon", "top", "seed", "settings", "draw")
FIELDS = [
    *KEY,
    "epsilon_run",
    "participations",
    "rounds",
    "clients_per_round",
    "people",
    "dims",
    "seconds",
    "peak_mb",
    "avd2",
    "avd4",
    "cmd",
    *SCORES,
]
# a cell's peak memory is its own
GRID = Grid(fields=FIELDS, key=KEY[:-1], order=by_text(*KEY), alone=True)

Drawn = dict[str, pd.DataFrame]  # by how rows were drawn
Job = dict[str, Any]


def measure(job: Job) -> list[dict[str, Any]]:
    """One cell of the grid: a row for each way to draw."""
    data = generated() if job["data"] is None else load(job["dataset"], job["data"])
    start = time.perf_counter()
    drawn, facts = draw(job, data)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cell = {key: job[key] for key in KEY if key != "draw"} | {
        "seconds": round(seconds, 1),
        "peak_mb": round(peak),
    }
    return [
        cell | facts | {"draw": how} | figures(data, rows, models=job["models"])
        for how, rows in drawn.items()
    ]


def draw(job: Job, data: Data) -> tuple[Drawn, dict[str, Any]]:
    """Synthetic rows, as many as real ones, and what they cost."""
    method = job["method"]
    seed = job["seed"]
    size = len(data.train)
    if method == "independent columns":
        codec = Codec(data.schema)
        mixed = shuffle_columns(
            codec.codes(data.train), size, np.random.default_rng(seed)
        )
        return {"": codec.decode(mixed)}, {}
    more = json.loads(job["settings"])
    shared = {"device": job["device"], "seed": seed}
    if method == "central":
        config = fed_wae.Config(reporter="none", **shared, **more)
        generator = central(
            config, read_table(data.train, data.schema), steps=job["rounds"]
        )
        return both(generator, size), {"rounds": job["rounds"]}
    people = len(data.train) // 2
    rows = data.train.iloc[: 2 * people].assign(person=np.repeat(np.arange(people), 2))
    federation = Federation.rehearsal(
        {"phones": rows},
        {"phones": replace(data.schema, person="person")},
        budget=Budget(math.inf, 0.0),
        seed=seed,
        same_people=False,
    )
    if method in BASELINES:
        result = train(
            "lopub",
            federation,
            method=method.lower(),
            epsilon_total=job["epsilon"],
            seed=seed,
            **WIDE.get(job["dataset"], {}) | more,
        )
        facts = {"epsilon_run": job["epsilon"], "participations": 1, "people": people}
        return {"sample": result.generator.sample(size, seed=seed)}, facts
    reports = (
        min(people, job["rounds"] * job["clients_per_round"])
        if "once" in method
        else job["rounds"] * job["clients_per_round"]
    )
    if method.startswith("wake-sleep"):
        protocol = "wake-sleep"
        clients_per_round = max(1, reports // DREAMT)
    else:
        protocol = "fed-wae"
        clients_per_round = min(job["clients_per_round"], people)
    rounds = reports // clients_per_round
    price: dict[str, Any] = (
        {"reporter": "none"} if method in WITHOUT else {"epsilon": job["epsilon"]}
    )
    if method in PAPER:
        price["top"] = job["top"]
    result = train(
        protocol,
        federation,
        rounds=rounds,
        clients_per_round=clients_per_round,
        max_reports=math.ceil(rounds * clients_per_round / people),
        checkpoint_every=10**6,
        **shared,
        **price | more,
    )
    card = result.generator.card
    most = card["reports"]["of the busiest person"]
    facts = {
        "epsilon_run": "" if method in WITHOUT else job["epsilon"] * most,
        "participations": most,
        "rounds": card["rounds"],
        "clients_per_round": clients_per_round,
        "people": people,
        "dims": card["dims"],
    }
    return both(result.generator, size), facts


def both(generator: Any, size: int) -> Drawn:
    return {
        how: generator.sample(size, seed=0, draw=how) for how in ("sample", "argmax")
    }


def figures(
    data: Data, rows: pd.DataFrame, *, models: tuple[str, ...]
) -> dict[str, float]:
    """How far synthetic rows are from real ones, and what a model learns from them."""
    codec = Codec(data.schema)
    real, test, made = (codec.codes(frame) for frame in (data.train, data.test, rows))
    marginals = Marginals(real, made, codec.sizes)
    place = data.schema.names.index(data.target)
    rest = [column for column in range(len(codec.sizes)) if column != place]
    real_rows, made_rows, test_rows = (
        Examples(codes[:, rest], codes[:, place].astype(np.int64))
        for codes in (real, made, test)
    )
    scores = downstream(
        real_rows,
        made_rows,
        test_rows,
        [codec.sizes[column] for column in rest],
        classes=codec.sizes[place],
        models=models,
    )
    found = {
        "avd2": marginals.avd(2),
        "avd4": marginals.avd(4),
        "cmd": correlations(real, made).figures[0],
    }
    out = {
        name: round(figure.value, 4)
        for name, figure in found.items()
        if figure.value is not None
    }
    for figure in scores:
        if figure.name in SCORES and figure.value is not None:
            out[figure.name] = round(figure.value, 4)
            if figure.ceiling is not None:
                out[figure.name.replace("tstr", "trtr")] = round(figure.ceiling, 4)
    return out


def generated() -> Data:
    """A few rows of a toy table."""
    frame, schema = toy(rows=400, seed=0, person=None)
    return Data(frame.iloc[:300], frame.iloc[300:], schema, "smoker")


def jobs(args: argparse.Namespace) -> Iterator[Job]:
    """Only what reports under ε has one, and only what chooses has ξ."""
    for seed in range(args.seeds):
        for dataset in args.only:
            for method in args.methods:
                if dataset == "census" and method.endswith("once"):
                    continue  # more people than reports: nobody reports twice anyway
                for epsilon in args.epsilons if method in PRICED else ("",):
                    for top in args.tops if method in PAPER else ("",):
                        yield {
                            "dataset": dataset,
                            "method": method,
                            "epsilon": epsilon,
                            "top": top,
                            "seed": seed,
                            "settings": json.dumps(args.set, sort_keys=True),
                            "data": args.data,
                            "device": args.device,
                            "rounds": args.rounds,
                            "clients_per_round": args.clients_per_round,
                            "models": args.models,
                        }


def setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "ours.csv")
    parser.add_argument("--only", nargs="*", default=list(FILES), choices=FILES)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--tops", nargs="*", type=float, default=list(TOPS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--clients-per-round", type=int, default=10)
    parser.add_argument(
        "--set", nargs="*", type=setting, default=[], metavar="NAME=VALUE"
    )
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--images", action="store_true")
    return parser


def main() -> None:
    args = parser().parse_args()
    args.set = dict(args.set)
    args.models = ("mlp", "forest")
    if args.speed:
        from speed import race_all

        race_all(args.data, quick=QUICK, out=None if QUICK else HERE / "speed.csv")
        return
    if args.images:
        from sheets import draw_all

        draw_all(
            args.data, device=args.device, quick=QUICK, out=HERE, settings=args.set
        )
        return
    if QUICK:
        args.data = None
        args.only = ["adult"]
        args.epsilons = [8.0]
        args.tops = [0.1]
        args.rounds = 10
        args.clients_per_round = 5
        args.models = ("mlp",)
        args.device = "cpu"
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
