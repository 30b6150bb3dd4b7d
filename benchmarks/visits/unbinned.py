"""Numbers without bins: how near what is drawn comes to them, column by column.

    python benchmarks/visits/unbinned.py --jobs 2 --out benchmarks/visits/unbinned.csv

A cell is one law, bounds, method, ε and seed, δ = 1e-5. 8,000 people have up to 12
visits each, a tenth of them none. A visit has a cost, minutes and a lab value, and a
ward and a day that have bins; a person a group, an age and an income. By the law
`first` shares of the budget were chosen; `second` has other shapes.

    first     cost log-normal, a tenth zero; minutes geometric; lab normal; income
              log-normal
    second    cost Pareto; minutes a multiple of five, skewed; lab with two heaps;
              income gamma

Bounds are `near` (round numbers about what occurs), `wide` (ten times as far off) or
`none`, of the day neither. `even` has 16 even bins in every number, which is how
columns without bins were counted before; `bought` declares none. `ks` is over raw
values of all visits, or people; `real` and `drawn` are medians, with a number that
quantile in per cent, and `real_mean` and `drawn_mean` means.
"""

import argparse
import os
import sys
from dataclasses import dataclass, replace
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
from understudy.data.schema import Categorical, Column, Integer, Real, Schema
from understudy.data.visits import VisitSchema
from understudy.evaluate.utility.values import ks_and_wasserstein

HIGH = {"age": 120, "income": 500_000, "cost": 20_000, "minutes": 1_000, "lab": 200}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run."""

    law: str
    bounds: str
    method: str
    epsilon: float
    seed: int


KEY = tuple(Cell.__dataclass_fields__)
SHOWN = {"": 0.5, "95": 0.95, "99": 0.99}  # quantiles
FIELDS = [
    *KEY,
    "column",
    "ks",
    *(f"{whose}{what}" for what in (*SHOWN, "_mean") for whose in ("real", "drawn")),
]
FIELDS += ["seconds"]
GRID = Grid(
    fields=FIELDS, key=KEY, order=by_text(*KEY, "column"), columns=publication.plain
)


def schema_of(bounds: str, method: str) -> VisitSchema:
    high = {
        name: value * (10 if bounds == "wide" else 1) for name, value in HIGH.items()
    }
    declared = VisitSchema(
        person="id",
        most_events=MOST,
        time="day",
        people=Schema(
            columns=(
                Categorical(name="group", categories=("a", "b")),
                Integer(name="age", low=0, high=high["age"]),
                Real(name="income", low=0, high=high["income"], decimals=0),
            )
        ),
        events=Schema(
            columns=(
                Integer(name="day", low=0, high=999, bins=10),
                Real(name="cost", low=0, high=high["cost"], decimals=2),
                Integer(name="minutes", low=0, high=high["minutes"]),
                Real(name="lab", low=0, high=high["lab"], decimals=1),
                Categorical(name="ward", categories=("x", "y", "z")),
            )
        ),
    )
    if bounds == "none":
        people, events = (
            tuple(map(without_bounds, own.columns)) for own in declared.tables.values()
        )
        declared = replace(
            declared, people=Schema(columns=people), events=Schema(columns=events)
        )
    return declared.even if method == "even" else declared


def without_bounds(column: Column) -> Column:
    return (
        replace(column, low=None, high=None, bins=None)
        if isinstance(column, Integer | Real)
        else column
    )


@lru_cache(maxsize=4)
def drawn(law: str, people: int, seed: int) -> dict[str, pd.DataFrame]:
    """People and their visits by one of the laws."""
    rng = np.random.default_rng([seed, law == "first"])
    numbers = rng.binomial(MOST, 0.55, people) * (rng.random(people) > 0.1)
    owner = np.repeat(np.arange(people), numbers)
    own = rng.normal(size=people)
    many = len(owner)
    ill = 0.6 * own[owner] + 0.8 * rng.normal(size=many)
    if law == "first":
        cost = np.exp(5.3 + 1.1 * ill) * (rng.random(many) > 0.1)
        minutes = rng.geometric(1 / (20 + 10 * (ill > 0)))
        lab = 100 + 15 * ill
        income = np.exp(10.2 + 0.6 * rng.normal(size=people))
    else:
        cost = 60 * (1 - rng.random(many)) ** (-1 / 1.6)
        minutes = 5 * rng.poisson(np.exp(1 + 0.5 * ill))
        lab = np.where(rng.random(many) < 0.3, 140, 85) + 6 * ill
        income = rng.gamma(2, 16_000, people)
    gaps = pd.Series(rng.geometric(1 / 20, many)).groupby(owner).cumsum().to_numpy()
    age = np.clip(rng.normal(50 + 8 * own, 15), 0, 110).astype(int)
    return {
        "people": pd.DataFrame(
            {
                "id": np.arange(people),
                "group": np.where(own + rng.normal(size=people) > 0, "a", "b"),
                "age": age,
                "income": np.clip(income, 0, HIGH["income"]).round(0),
            }
        ),
        "events": pd.DataFrame(
            {
                "id": owner,
                "day": np.minimum(gaps, 999),
                "cost": np.clip(cost, 0, HIGH["cost"]).round(2),
                "minutes": np.minimum(minutes, HIGH["minutes"]),
                "lab": np.clip(lab, 0, HIGH["lab"]).round(1),
                "ward": np.where(
                    ill > 0.7, "x", np.where(rng.random(many) < 0.5, "y", "z")
                ),
            }
        ),
    }


def measure(cell: Cell, args: dict[str, Any]) -> list[dict[str, Any]]:
    """One cell: draw as many people as there are, and look at every number."""
    frames = drawn(cell.law, args["people"], cell.seed)
    generator, seconds = trained(
        frames, schema_of(cell.bounds, cell.method), cell, args
    )
    made = dict(
        zip(frames, generator.visits(args["people"], seed=cell.seed), strict=True)
    )
    found = []
    for part, columns in (
        ("people", ("age", "income")),
        ("events", ("cost", "minutes", "lab")),
    ):
        for column in columns:
            own, other = (
                tables[part][column].to_numpy(float) for tables in (frames, made)
            )
            figures = {
                "column": column,
                "ks": round(ks_and_wasserstein(own, other)[0], 4),
            }
            for whose, one in (("real", own), ("drawn", other)):
                figures |= {
                    f"{whose}{what}": round(float(np.quantile(one, q)), 2)
                    for what, q in SHOWN.items()
                }
                figures[f"{whose}_mean"] = round(float(one.mean()), 2)
            found.append(publication.plain(cell) | figures | {"seconds": seconds})
    return found


def parser() -> argparse.ArgumentParser:
    laws, epsilons = (["second"], [4.0]) if QUICK else (["first", "second"], [1.0])
    parser = law_options(
        __doc__, Path(__file__).parent / "unbinned.csv", laws, epsilons
    )
    parser.add_argument(
        "--bounds", nargs="*", default=["near"] if QUICK else ["near", "wide", "none"]
    )
    parser.add_argument(
        "--methods", nargs="*", default=["bought"] if QUICK else ["even", "bought"]
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    run_all(GRID, measure, Cell, args, bounds=args.bounds, method=args.methods)


if __name__ == "__main__":
    main()
