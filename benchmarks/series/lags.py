"""Memory of one step: how a fit to released moments keeps it, on laws that are known.

    python benchmarks/series/lags.py --out benchmarks/series/lags.csv

A cell draws people from a law (autoregressive, with a seasonal mean or white noise in
some), one series each, and runs `moments` with two releases. Lag 1 is the correlation
of a value with the next one, over all series, the mean of two channels. It is computed
at every stage, so that a loss would have its place:

    real       the people's series
    released   the released moments as they are, with nothing fitted: what noise, and
               pulling in of long rows, do
    noise      the deviation of `released` by noise alone, from the release's own σ
    kept       the directions that stand out of noise, and nothing beside them
    fit        the same, and the variance beside them (`lags.fill_tail`)
    drawn      drawn series, after the histograms' map and the ends of [0, 1]
"""

import argparse
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import torch
from scipy.signal import lfilter

from common.grid import Grid, by_text, grid_options
from common.options import quick
from understudy.api.train import train
from understudy.data.schema import Real
from understudy.data.series import Series, SeriesSchema
from understudy.evaluate.utility.series import autocorrelation
from understudy.models.moments import fit, lags
from understudy.models.moments.gaussians import CellGaussians
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

QUICK = quick()
DELTA = 1e-5
STEPS = 48
CHANNELS = 2
BEFORE = 400  # steps until a law forgets where it began
DRAWN = 3000
EPSILONS = (1.0, 8.0, 0.0)  # 0: no noise
PEOPLE = (500, 5000)


class Law(NamedTuple):
    """An autoregression of variance 1, and what is added to it."""

    coefficients: tuple[float, ...]
    white: float = 0.0  # deviation of white noise
    season: float = 0.0  # height of a wave of seven steps, alike for all


LAWS = {
    "AR(1) 0.967": Law((0.967,)),
    "AR(1) 0.8": Law((0.8,)),
    "AR(1) 0.5": Law((0.5,)),
    "AR(2) 1.3, -0.4": Law((1.3, -0.4)),
    "AR(1) 0.99 + white": Law((0.99,), white=0.3),
    "AR(1) 0.9 + weekly": Law((0.9,), season=0.7),
}
STAGES = ("real", "released", "kept", "fit", "drawn")
FIELDS = ["law", "people", "epsilon", "seed", *STAGES, "noise", "directions"]
KEY = ("law", "people", "epsilon", "seed")


def people_of(law: Law, people: int, seed: int) -> Series:
    """One series each, of deviation 1/10 about 1/2."""
    rng = np.random.default_rng(seed)
    shocks = rng.normal(size=(people, BEFORE + STEPS, CHANNELS))
    recursion = [1.0, *(-one for one in law.coefficients)]
    series = lfilter([1.0], recursion, shocks, axis=1)[:, BEFORE:]
    series /= series.std()
    series += law.white * rng.normal(size=series.shape)
    wave = np.sin(2 * np.pi * np.arange(STEPS) / 7)
    series += law.season * wave[:, None]
    values = np.clip(0.5 + 0.1 * series / series.std(), 0, 1)
    channels = tuple(Real(name=f"channel_{c}", low=0, high=1) for c in range(CHANNELS))
    schema = SeriesSchema(channels=channels, length=STEPS)
    return Series.from_array(values, schema, np.arange(people), "people")


def stages_of(
    pooled: Any, centre: fit.Centres, kept: fit.Directions, network: CellGaussians
) -> dict[str, float]:
    """Lag 1 of what was released, and of the fit as it grows."""
    frame = network.frame
    memory = lags.memory(network, pooled, centre.people, centre.means)
    swings = centre.means[0].clone()
    swings[: frame.channels] = 0
    directions = (kept.basis * kept.values) @ kept.basis.T + torch.outer(swings, swings)
    back = torch.from_numpy(frame.matrix())
    return {
        "released": memory.released,
        "noise": memory.noise,
        "kept": float(lags.lag_1(directions, back, frame.channels).mean()),
        "fit": memory.drawn,
    }


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One cell. ε of 0 stands for no noise."""
    torch.set_num_threads(1)
    people = people_of(LAWS[job["law"]], job["people"], job["seed"])
    budget = Budget(job["epsilon"] or math.inf, DELTA)
    federation = Federation.rehearsal(
        {"holder": people}, budget=budget, seed=job["seed"], same_people=False
    )
    with mock.patch.object(fit, "directions", wraps=fit.directions) as called:
        result = train(
            "moments", federation, shares=(0.3, 0.7, 0.0), private=bool(job["epsilon"])
        )
    pooled, centre, frame = called.call_args.args
    kept = fit.directions(pooled, centre, frame)
    generator = result.generator
    drawn = people.schema.scaled(generator.series(DRAWN, seed=0))
    stages = stages_of(pooled, centre, kept, generator.network)
    stages["real"] = float(autocorrelation(people.values, 1).mean())
    stages["drawn"] = float(autocorrelation(drawn, 1).mean())
    row = {key: job[key] for key in KEY}
    row |= {name: round(stages[name], 4) for name in (*STAGES, "noise")}
    return row | {"directions": len(kept.values)}


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for law in args.laws:
        for people in args.people:
            for epsilon in args.epsilons:
                for seed in range(args.seeds if epsilon else 1):
                    yield {
                        "law": law,
                        "people": people,
                        "epsilon": epsilon,
                        "seed": seed,
                    }


GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY))


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__)
    parser.add_argument(
        "--laws",
        nargs="*",
        default=list(LAWS)[:1] if QUICK else list(LAWS),
        choices=LAWS,
    )
    parser.add_argument(
        "--people", nargs="*", type=int, default=[500] if QUICK else list(PEOPLE)
    )
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
