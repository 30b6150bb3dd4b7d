"""Two aggregators beside Gram over two holders of columns: the same rows, the same
levels, the same ε, noise twice.

    python benchmarks/aggregators/quality.py --data data --jobs 2 [--only adult/two-aggregators]

A cell is one table, method, ε and seed; each finished one is added to `--out`, and
cells that are there already are skipped. Tables, the fifth that is held out and figures
are those of benchmarks/joint. A person has one row. What two aggregators release is the
sum of all tables with the noise of both; here the sum is made in the clear, since what
the shares add up to is tested to be that sum, and the noise is drawn as they draw it.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "joint"))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from tables import Public, load

from common import publication
from common.grid import Grid, grid_options
from common.options import quick
from common.splits import random_columns
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.evaluate.utility.downstream import (
    Examples,
    classification_scores,
    score_model,
)
from understudy.evaluate.utility.marginals import Marginals
from understudy.models.network import pick_device
from understudy.models.tables.fit_gram import fit_gram
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure.counts import gram_matrix, mirrored, movable
from understudy.protocols.aggregators.protocol import Config, TableTerms
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
DATASETS = ("adult", "credit", "bank")
EPSILONS = (1.0, 8.0, 2.0, 0.5)
METHODS = (
    "gram-columns",
    "two-aggregators",
    "gram-columns, target",
    "two-aggregators, target",
)
FIELDS = [
    "dataset",
    "method",
    "epsilon",
    "seed",
    "people",
    "sigma",
    "avd2",
    "avd3",
    "tstr_boosting_auc",
]
GRID = Grid(fields=FIELDS, key=("dataset", "method", "epsilon", "seed"))


def target_of(table: Public, job: dict[str, Any]) -> str | None:
    return table.target if job["method"].endswith("target") else None


def columns(
    table: Public, job: dict[str, Any], fit: dict[str, Any]
) -> tuple[pd.DataFrame, float]:
    """Gram over two holders of columns, and the noise within one of them."""
    held = random_columns(table.schema.names, ["a", "b"], seed=job["seed"])
    federation = Federation.rehearsal(
        {name: table.train[list(names)] for name, names in held.items()},
        {name: table.schema.select(names) for name, names in held.items()},
        budget=publication.budget(job["epsilon"]),
        seed=job["seed"],
    )
    result = train("gram", federation, fine=0.0, target=target_of(table, job), **fit)
    rows = result.generator.sample(len(table.train), seed=job["seed"])[
        list(table.schema.names)
    ]
    return rows, result.generator.card["noise"]["pairs"]


def aggregated(
    table: Public, job: dict[str, Any], fit: dict[str, Any]
) -> tuple[pd.DataFrame, float]:
    """What two aggregators release, and the noise of each."""
    config = Config(
        aggregator="second",
        epsilon=job["epsilon"],
        delta=publication.DELTA,
        target=target_of(table, job),
        public_people=len(table.train),
        **fit,
    )
    plan = TableTerms.joint(config, {"people": table.schema, "second": table.schema})
    codec = Codec(table.schema)
    device = pick_device(config.device)
    gram = gram_matrix(codec.codes(table.train), codec.sizes).triu()
    rng = SecureRng.from_seed(job["seed"])
    for _ in range(2):
        gram = gram + plan.matrix(plan.noise(rng).numpy())
    noise = torch.where(
        movable(codec.sizes), mirrored(plan.matrix(plan.spread)), torch.inf
    ).float()
    network = fit_gram(
        gram.to(device),
        codec.sizes,
        noise=noise.to(device),
        people=len(table.train),
        components=config.components,
        steps=config.steps,
        rate=config.rate,
        seed=config.seed,
        target=None
        if config.target is None
        else table.schema.names.index(config.target),
    )
    uniform = partial(
        torch.rand,
        generator=torch.Generator().manual_seed(job["seed"]),
        dtype=torch.float64,
    )
    return codec.decode(
        network.cpu().levels(len(table.train), uniform).numpy().astype(np.int32)
    ), plan.sigma


def measure(job: dict[str, Any], args: dict[str, Any]) -> dict[str, Any]:
    """One cell: publish, then hold the synthetic rows against the real ones."""
    warnings.simplefilter("ignore")
    table = load(job["dataset"], args["data"], job["seed"]).first(args["most"])
    codec = Codec(table.schema)
    seed = job["seed"]
    fit = {"device": args["device"], "seed": seed, "steps": args["steps"]}
    made, sigma = (columns if job["method"].startswith("gram") else aggregated)(
        table, job, fit
    )
    real, drawn, test = (
        codec.codes(frame[list(table.schema.names)])
        for frame in (table.train, made, table.test)
    )
    found = Marginals(real, drawn, codec.sizes)
    figures = {f"avd{ways}": found.avd(ways).value for ways in (2, 3)}
    place = table.schema.names.index(table.target)
    rng = np.random.default_rng([seed, 0])
    learn, held = (
        Examples(
            np.delete(codes, place, axis=1), codes[:, place].astype(np.int64)
        ).sample(20_000, rng)
        for codes in (drawn, test)
    )
    sizes = [size for column, size in enumerate(codec.sizes) if column != place]
    score = partial(classification_scores, held.target)
    scores, *_ = score_model(
        "boosting", learn, held.features, sizes, codec.sizes[place], seed, score
    )
    figures["tstr_boosting_auc"] = scores["auc"]
    return (
        job
        | {"people": len(real), "sigma": round(sigma, 3)}
        | publication.rounded(figures, FIELDS[-3:])
    )


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What matters most first."""
    for seed in range(args.seeds):
        for epsilons in (EPSILONS[:2], EPSILONS[2:]):
            for dataset in args.datasets:
                for epsilon in epsilons:
                    for method in METHODS:
                        job = {
                            "dataset": dataset,
                            "method": method,
                            "epsilon": epsilon,
                            "seed": seed,
                        }
                        if all(
                            text in f"{dataset}/{method}/ε={epsilon:g}/seed={seed}"
                            for text in args.only
                        ):
                            yield job


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "quality.csv")
    parser.add_argument(
        "--datasets", nargs="*", default=["toy"] if quick() else list(DATASETS)
    )
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=1 if quick() else 3)
    parser.add_argument("--steps", type=int, default=50 if quick() else 1200)
    parser.add_argument("--most", type=int, default=100_000, help="people of a table")
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(partial(measure, args=vars(args)), jobs(args), args)


if __name__ == "__main__":
    main()
