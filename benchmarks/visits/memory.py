"""A lab value that remembers: does what is drawn forget as the law does, or do people
differ for good?

    python benchmarks/visits/memory.py --jobs 2 --out benchmarks/visits/memory.csv

A cell is one law, method, ε and seed, δ = 1e-5. 8,000 people have up to 12 visits each,
a tenth of them none. A visit has a value of mean 100 and deviation 15 in 24 even bins,
a ward that goes with it, and a day; a person a group and an age. The value is the sum
of what is the person's own, a share of the variance, and of what lasts from visit to
visit:

    decays    nothing is the person's own, and the rest is autoregressive with ρ = .85
    both      a share of .3 is, which goes with the group, and the rest has ρ = .7
    fixed     a share of .6 is, and the rest is forgotten at once

`lag1`, `lag2` and `lag5` are correlations of values that are so many visits apart, over
all pairs, of the drawn people; `real1`, … those of the rows. `ks` is that of the
values. `seconds` are of release and fit. Rows of the method `before` are by the release
without pairs four events apart, and the fit that went with it: `--method before` under
that code.
"""

import argparse
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from laws import MOST, QUICK, law_options, run_all, trained

from common import publication
from common.grid import Grid, by_text
from understudy.data.schema import Categorical, Integer, Real, Schema
from understudy.data.visits import VisitSchema
from understudy.evaluate.utility.values import ks_and_wasserstein

LAWS = {"decays": (0.0, 0.85), "both": (0.3, 0.7), "fixed": (0.6, 0.0)}
EPSILONS = (1000.0, 4.0, 1.0)
LAGS = (1, 2, 5)
SCHEMA = VisitSchema(
    person="id",
    most_events=MOST,
    time="day",
    people=Schema(
        columns=(
            Categorical(name="group", categories=("a", "b")),
            Integer(name="age", low=20, high=79, bins=6),
        )
    ),
    events=Schema(
        columns=(
            Integer(name="day", low=0, high=999, bins=10),
            Real(name="lab", low=40, high=160, bins=24),
            Categorical(name="ward", categories=("x", "y", "z")),
        )
    ),
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run."""

    law: str
    method: str
    epsilon: float
    seed: int


KEY = tuple(Cell.__dataclass_fields__)
FIELDS = [
    *KEY,
    *(f"{what}{lag}" for what in ("real", "lag") for lag in LAGS),
    "ks",
    "seconds",
]
GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY), columns=publication.plain)


@lru_cache(maxsize=4)
def drawn(law: str, people: int, seed: int = 0) -> dict[str, pd.DataFrame]:
    """People and their visits by one of the laws."""
    rng, (share, rho) = np.random.default_rng(seed), LAWS[law]
    numbers = rng.binomial(MOST, 0.5, people) * (rng.random(people) > 0.1)
    owner = np.repeat(np.arange(people), numbers)
    order = np.arange(len(owner)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    own = rng.normal(size=people)
    lasting = rng.normal(size=len(owner))
    for place in range(1, MOST):
        at = np.flatnonzero(order == place)
        lasting[at] = rho * lasting[at - 1] + np.sqrt(1 - rho**2) * lasting[at]
    value = 100 + 15 * (np.sqrt(share) * own[owner] + np.sqrt(1 - share) * lasting)
    high = value + 15 * rng.normal(size=len(owner)) > 110
    group = np.where(own + rng.normal(size=people) > 0, "a", "b")
    gaps = (
        pd.Series(rng.geometric(1 / 20, len(owner))).groupby(owner).cumsum().to_numpy()
    )
    return {
        "people": pd.DataFrame(
            {
                "id": np.arange(people),
                "group": group,
                "age": rng.integers(20, 80, people),
            }
        ),
        "events": pd.DataFrame(
            {
                "id": owner,
                "day": np.minimum(gaps, 999),
                "lab": np.clip(value, 40, 160),
                "ward": np.where(
                    high, "x", np.where(rng.random(len(owner)) < 0.5, "y", "z")
                ),
            }
        ),
    }


def lags(events: pd.DataFrame) -> list[float]:
    """The correlations of values so many visits apart."""
    events = events.sort_values(["id", "day"], kind="stable")
    later = [events.groupby("id")["lab"].shift(-lag) for lag in LAGS]
    return [round(float(events["lab"].corr(other)), 3) for other in later]


def measure(cell: Cell, args: dict[str, Any]) -> dict[str, Any]:
    """One cell: draw as many people as there are."""
    frames = drawn(cell.law, args["people"])
    generator, seconds = trained(frames, SCHEMA, cell, args)
    _, events = generator.visits(args["people"], seed=cell.seed)
    found = zip(
        FIELDS[len(KEY) :], [*lags(frames["events"]), *lags(events)], strict=False
    )
    ks, _ = ks_and_wasserstein(
        frames["events"]["lab"].to_numpy(), events["lab"].to_numpy()
    )
    return (
        publication.plain(cell) | dict(found) | {"ks": round(ks, 4), "seconds": seconds}
    )


def parser() -> argparse.ArgumentParser:
    laws, epsilons = (["decays"], [4.0]) if QUICK else ([*LAWS], [*EPSILONS])
    parser = law_options(__doc__, Path(__file__).parent / "memory.csv", laws, epsilons)
    parser.add_argument("--method", default="visits")
    return parser


def main() -> None:
    args = parser().parse_args()
    run_all(GRID, measure, Cell, args, method=[args.method])


if __name__ == "__main__":
    main()
