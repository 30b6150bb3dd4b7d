"""Further rows of FedSTDG's tables: Central DP-SGD, pre-training, membership inference.

    python benchmarks/fed_stdg/further.py --data data --jobs 2 --out benchmarks/fed_stdg/further.csv
    python benchmarks/fed_stdg/further.py --data data --datasets sine --clips 0.01 0.1 1 --only DP-SGD --out build/clips.csv

Dissertation of X. Jiang, TUM 2024, §5.6: Table 5.3 (its row "Central-DP"), Table 5.4
(100 auxiliary series, 50 epochs) and Table 5.5. Settings are those of `bench.py`.

Central DP-SGD is not described there. Here it protects a person, with all ten series:
1,000 steps, each over people drawn with probability 50/people, whose gradient of the
same loss is clipped to C, with Gaussian noise, then a step of Adam. ε is that of the
whole run, at δ = 1e-5. C was chosen on Sine.

Membership inference is Eq. 5.11: 100 training and 100 held-out series, 10⁴ synthetic
ones, Euclidean distance, five choices of the targets. Control: other held-out series in
the place of synthetic ones. The auxiliary series of pre-training are held-out ones,
which neither the other figures nor the attack see.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import bench
import numpy as np
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from scipy.spatial.distance import cdist

from common.grid import Grid, by_text, grid_options
from common.options import quick
from common.windows import DATASETS, Data, load
from understudy.api.train import train
from understudy.data.encoding.population import population_of
from understudy.data.series import Series
from understudy.evaluate.utility.series import (
    coverage,
    median_distance,
    mmd,
    next_step_mae,
)
from understudy.generators.generator import Generator
from understudy.generators.parts import GeneratorParts
from understudy.models.kernels.clients import Adam
from understudy.models.nets.autoencoder import LocalTraining
from understudy.models.network import pick_device
from understudy.privacy.accounts.accounting import calibrate
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import FastRng
from understudy.protocols.core.common_rule import common_rule
from understudy.protocols.papers.fed_stdg import protocol as fed_stdg
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
DELTA = 1e-5
AUXILIARY = 100  # series of pre-training
PRETRAIN = 200  # steps: 50 epochs of 100 series, 32 at a time, rounded up
TARGETS = 100  # members, and as many others
CHOICES = 5  # of the targets
FILLED = 40  # people: a batch is filled up to a multiple of it
EPSILONS = (0.5, 2.0, 8.0)
KEY = ("dataset", "method", "pretrain", "epsilon", "clip", "rounds", "seed")
FIELDS = [
    "dataset",
    "method",
    "pretrain",
    "epsilon",
    "clip",
    "seed",
    "delta",
    "rounds",
    "people",
    "participations",
    "mmd",
    "coverage",
    "next_step_mae",
    "mia_acc",
    "mia_control",
    "seconds",
    "machine",
    "date",
]


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One cell."""
    torch.set_num_threads(1)
    data = load(job["dataset"], job["data"], seed=job["seed"], most=job["most"])
    auxiliary = data.test[:AUXILIARY]
    data = Data(data.people, data.test[AUXILIARY:])
    start = time.perf_counter()
    drawn, card = draw(job, data, auxiliary)
    seconds = time.perf_counter() - start
    test = data.test[:2000]
    guessed, control = membership(data, drawn, job["seed"])
    return {key: job[key] for key in KEY} | {
        "delta": DELTA if job["method"] == "Central DP-SGD" else "",
        "people": len(data.people.ids),
        "participations": card.get("reports", {}).get("of the busiest person", ""),
        "mmd": round(mmd(test, drawn[:2000], bandwidth=median_distance(test)), 4),
        "coverage": round(coverage(test, drawn[:2000]), 4),
        "next_step_mae": round(
            next_step_mae(drawn, data.test, steps=job["predictor_steps"]), 4
        ),
        "mia_acc": round(guessed, 4),
        "mia_control": round(control, 4),
        "seconds": round(seconds, 1),
        "machine": job["machine"],
        "date": date.today().isoformat(),
    }


def draw(
    job: dict[str, Any], data: Data, auxiliary: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    """Synthetic series in [0, 1], and what the run says of itself."""
    people = len(data.people.ids)
    cohort = min(50, people)
    schema = data.people.schema
    if job["method"] == "Central DP-SGD":
        generator = central_dp(job, data.people, cohort)
        return schema.scaled(generator.series(job["rows"], seed=0)), {}
    settings = bench.METHODS[job["method"]] | {
        "seed": job["seed"],
        "device": job["device"],
        "clients_per_round": cohort,
        "checkpoint_every": 10**6,
        "rounds": job["rounds"],
        "max_reports": math.ceil(1.5 * job["rounds"] * cohort / people) + 10,
        "pretrain": job["pretrain"],
    }
    if job["epsilon"]:
        settings["epsilon"] = job["epsilon"]
    public = None
    if job["pretrain"]:
        ids = np.arange(len(auxiliary))
        public = Series.from_array(schema.unscaled(auxiliary), schema, ids, "public")
    federation = Federation.rehearsal(
        {"phones": data.people},
        budget=Budget(math.inf, 0.0),
        seed=job["seed"],
        same_people=False,
    )
    result = train("fed-stdg", federation, public=public, **settings)
    drawn = result.generator.series(job["rows"], seed=0)
    return schema.scaled(drawn), dict(result.generator.card)


def central_dp(job: dict[str, Any], rows: Series, cohort: int) -> Generator:
    """The network of FedSTDG by DP-SGD in one place.

    Guarantee: (ε, δ)-DP for a person with all series, added or removed: a person's
    gradient is clipped in L2, and people are drawn by Poisson sampling. For public
    rows: the generator of noise is a fast one.
    """
    config = fed_stdg.Config(seed=job["seed"], reporter="none")
    rule = common_rule({"the rows": rows.schema})
    population = population_of(rows)
    people = population.people
    steps = job["rounds"]
    noise = noise_multiplier(cohort / people, steps, job["epsilon"])
    rng = FastRng(job["seed"])
    network = config.network_for(rule)
    device = pick_device(job["device"])
    weights = network.init(rng).to(device).requires_grad_()
    # one step of descent at rate 1 moves by minus the gradient
    gradients = LocalTraining(network, optimizer="sgd", epochs=1, lr=1.0)
    adam = Adam([weights], config.learning_rate)
    series = rule.expand(population.rows).to(device)
    each = len(series) // people
    by_person = series.view(people, each, *series.shape[1:])
    clip = job["clip"]
    for _ in range(steps):
        drawn = torch.nonzero(rng.uniform(people) < cohort / people).flatten()
        total = clip * noise * rng.normal(network.size).to(weights)
        if len(drawn):
            people_series = by_person[drawn.to(device)]
            total += clipped_sum(gradients, weights, people_series, rng, clip)
        adam.step([total / cohort])
    card = {
        "ended": f"after {steps} central steps",
        "privacy": {
            "guarantee": f"ε = {job['epsilon']:g} of a person at δ = {DELTA:g}"
        },
    }
    decoder = network.decoder(weights.detach().cpu())
    return Generator.from_parts(GeneratorParts(decoder, rule.schema, card))


def clipped_sum(
    gradients: LocalTraining,
    weights: torch.Tensor,
    series: torch.Tensor,
    rng: FastRng,
    clip: float,
) -> torch.Tensor:
    """The sum over people of their gradients, each at most `clip` long: (d,).

    Batches are filled up to a few sizes, by people without series, whose gradient is
    zero: on a GPU each size is one replayed graph.
    """
    people, each = series.shape[:2]
    size = math.ceil(people / FILLED) * FILLED
    filled = series.new_zeros(size, *series.shape[1:])
    filled[:people] = series
    mask = torch.zeros(size, each, dtype=torch.bool, device=series.device)
    mask[:people] = True
    slopes = -gradients(weights.detach(), filled, mask, rng)
    norms = slopes.norm(dim=1, keepdim=True)
    return (slopes * (clip / norms).clamp(max=1)).sum(0)


@cache
def noise_multiplier(rate: float, steps: int, epsilon: float) -> float:
    return calibrate(
        lambda noise: {PoissonSampledDpEvent(rate, GaussianDpEvent(noise)): steps},
        epsilon=epsilon,
        delta=DELTA,
    )


def membership(
    data: Data, drawn: np.ndarray[Any, Any], seed: int
) -> tuple[float, float]:
    """How often Eq. 5.11 tells members from others, with synthetic rows and with
    held-out ones, over several choices of the targets.
    """
    size = min(TARGETS, len(data.test) // 2)
    inside = data.people.values  # in [0, 1]
    found = []
    for choice in range(CHOICES):
        rng = np.random.default_rng([seed, choice])
        others = rng.permutation(len(data.test))
        members = rng.choice(len(inside), size, replace=False)
        targets = np.concatenate([inside[members], data.test[others[:size]]])
        control = data.test[others[size:]]
        found.append([right_guesses(targets, rows) for rows in (drawn, control)])
    guessed, plain = np.mean(found, axis=0)
    return float(guessed), float(plain)


def right_guesses(targets: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> float:
    """The share of the first half of the targets among those called members."""
    half = len(targets) // 2
    distances = cdist(targets.reshape(2 * half, -1), rows.reshape(len(rows), -1))
    nearest = distances.min(axis=1)
    share = (distances <= np.median(nearest)).mean(axis=1)
    # ties, such as shares of 0, fall by the nearest distance
    called = np.lexsort((nearest, -share))[:half]
    return float((called < half).mean())


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    cells: list[tuple[str, int, float, float | str]] = [("FL", 0, 0.0, "")]
    cells += [("SubMDS", 0, epsilon, "") for epsilon in args.epsilons]
    cells += [
        ("SubMDS", args.pretrain, epsilon, "")
        for epsilon in args.epsilons
        if epsilon >= 2  # Table 5.4
    ]
    cells += [
        ("Central DP-SGD", 0, epsilon, clip)
        for clip in args.clips
        for epsilon in args.epsilons
    ]
    for seed in args.seeds:
        for dataset in args.datasets:
            for method, pretrain, epsilon, clip in cells:
                if args.only in f"{method}/{pretrain}":
                    yield {
                        "dataset": dataset,
                        "method": method,
                        "pretrain": pretrain,
                        "epsilon": epsilon,
                        "clip": clip,
                        "seed": seed,
                        "rounds": args.rounds,
                        "rows": args.rows,
                        "data": args.data,
                        "device": args.device,
                        "most": args.most,
                        "predictor_steps": args.predictor_steps,
                        "machine": args.machine,
                    }


GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY))


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "further.csv", device="cpu")
    parser.add_argument(
        "--datasets",
        nargs="*",
        default=["sine"] if QUICK else list(DATASETS),
        choices=DATASETS,
    )
    parser.add_argument(
        "--epsilons", nargs="*", type=float, default=[8.0] if QUICK else list(EPSILONS)
    )
    parser.add_argument(
        "--clips", nargs="*", type=float, default=[0.01], help="C of Central DP-SGD"
    )
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--rounds", type=int, default=3 if QUICK else 1000)
    parser.add_argument("--pretrain", type=int, default=2 if QUICK else PRETRAIN)
    parser.add_argument("--rows", type=int, default=200 if QUICK else 10_000)
    parser.add_argument(
        "--most", type=int, default=3000 if QUICK else None, help="series at most"
    )
    parser.add_argument("--predictor-steps", type=int, default=5 if QUICK else 1000)
    parser.add_argument(
        "--only", default="", help="run the cells whose method/pretrain contains this"
    )
    parser.add_argument("--machine", default="", help="written beside each figure")
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
