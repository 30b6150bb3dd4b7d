"""What ties people to their events: how many they have, how far apart and at what cost,
by age, with nothing declared and with bins made by hand.

    python benchmarks/visits/by_age.py --jobs 2 --out benchmarks/visits/by_age.csv

A cell is one law, method, ε and seed, δ = 1e-5. 8,000 people aged 20 to 89 have about
six visits each. The number of visits, the gaps between them and the kind of a visit go
with age; the cost goes with the kind and with age, and a lab value remembers.

    rise, twist          settings were chosen by these
    steps, hump, fall    these chose nothing

`bought` declares no bins, and `by hand` does: of age 5, of the day 6, of the gap 7, of
the cost 6, of the lab value 8. `before` is `bought` by the release in which the number
of visits had a level for each, and the gap one for each power of two: `--methods
before` under that code.

A row is one figure, of the rows (`real`) and of as many people as were drawn (`drawn`):
mean number of visits and mean gap by third of the ages, their correlation with age
(`age`), mean cost by kind of visit, and the correlation of lab values five visits
apart.
"""

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from laws import QUICK, law_options, run_all, trained
from numpy.typing import NDArray

from common import publication
from common.grid import Grid, by_text
from understudy.data.schema import Categorical, Integer, Real, Schema
from understudy.data.visits import VisitSchema

Ages = NDArray[np.int64]
KINDS = ("clinic", "emergency", "intensive")
GROUPS = {"young": (20, 39), "middle": (40, 64), "old": (65, 89)}
LAG = 5
LAST_DAY = 1_999


@dataclass(frozen=True, kw_only=True)
class Law:
    """Means given age: of the number of visits, whose deviation is `spread` times that,
    and of the gap; chances of the last two kinds of visit; their costs, and how much
    more by decade of age; the lab value's memory, and the share that is the person's.
    """

    number: Callable[[Ages], NDArray[np.float64]]
    gap: Callable[[Ages], NDArray[np.float64]]
    emergency: float = 0.2
    intensive: Callable[[Ages], NDArray[np.float64]] = lambda age: 0.001 * (age - 10)
    costs: tuple[float, float, float] = (80.0, 350.0, 1_300.0)
    dearer: float = 0.05
    spread: float = 0.6
    rho: float = 0.8
    own: float = 0.0
    most: int = 32


def by_group(young: float, middle: float, old: float) -> Callable[[Ages], Any]:
    """A mean for each third of the ages."""
    return lambda age: np.select([age < 40, age < 65], [young, middle], old)


LAWS = {
    "rise": Law(
        number=lambda age: 2 + 0.075 * (age - 20), gap=lambda age: 90 - 0.7 * age
    ),
    "twist": Law(
        number=by_group(8.0, 4.0, 7.0),
        gap=by_group(20.0, 45.0, 70.0),
        spread=0.4,
        rho=0.9,
        most=24,
        dearer=-0.05,
    ),
    "steps": Law(
        number=by_group(3.4, 5.2, 9.1),
        gap=by_group(75.0, 50.0, 28.0),
        spread=0.8,
        rho=0.75,
        own=0.1,
    ),
    "hump": Law(
        number=lambda age: 3 + 6 * np.exp(-(((age - 50) / 15) ** 2)),
        gap=lambda age: 20 + 0.5 * (age - 20),
        costs=(40.0, 200.0, 2_500.0),
        rho=0.85,
        own=0.2,
        most=20,
    ),
    "fall": Law(
        number=lambda age: 10 - 0.09 * (age - 20),
        gap=by_group(30.0, 30.0, 60.0),
        intensive=by_group(0.15, 0.05, 0.02),
        spread=0.5,
        rho=0.7,
        most=40,
    ),
}
BY_HAND = {
    "age": (20, 35, 45, 55, 70, 89),
    "day": (0, 90, 180, 270, 365, 730, LAST_DAY),
    "cost": (0, 50, 120, 300, 800, 2_000, 20_000),
    "lab": (40, 82, 89, 95, 100, 105, 111, 118, 160),
}
GAPS = (0, 8, 21, 45, 90, 180, 400)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run."""

    law: str
    method: str
    epsilon: float
    seed: int


KEY = tuple(Cell.__dataclass_fields__)
FIELDS = [*KEY, "figure", "real", "drawn", "seconds"]
GRID = Grid(
    fields=FIELDS, key=KEY, order=by_text(*KEY, "figure"), columns=publication.plain
)


def schema_of(law: str, method: str) -> VisitSchema:
    bins = BY_HAND if method == "by hand" else {}
    return VisitSchema(
        person="id",
        most_events=LAWS[law].most,
        time="day",
        gaps=GAPS if method == "by hand" else None,
        people=Schema(
            columns=(
                Categorical(name="sex", categories=("f", "m")),
                Integer(name="age", low=20, high=89),
            )
        ),
        events=Schema(
            columns=(
                Integer(name="day", low=0, high=LAST_DAY),
                Categorical(name="kind", categories=KINDS),
                Real(name="cost", low=0, high=20_000, decimals=2),
                Real(name="lab", low=40, high=160, decimals=1),
            )
        ),
    ).binned(bins)


@lru_cache(maxsize=4)
def drawn(name: str, people: int, seed: int) -> dict[str, pd.DataFrame]:
    """People and their visits by one of the laws."""
    law = LAWS[name]
    rng = np.random.default_rng([seed, *name.encode()])
    age = rng.integers(20, 90, people)
    shape = 1 / law.spread**2
    rate = law.number(age) * rng.gamma(shape, 1 / shape, people)
    numbers = np.minimum(rng.poisson(rate), law.most)
    owner = np.repeat(np.arange(people), numbers)
    many = len(owner)
    order = np.arange(many) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    lasting = rng.normal(size=many)
    for place in range(1, law.most):
        at = np.flatnonzero(order == place)
        fresh = np.sqrt(1 - law.rho**2) * lasting[at]
        lasting[at] = law.rho * lasting[at - 1] + fresh
    own = rng.normal(size=people)[owner]
    lab = 100 + 15 * (np.sqrt(law.own) * own + np.sqrt(1 - law.own) * lasting)
    chance = rng.random(many)
    rare = law.intensive(age)[owner]
    kind = np.select([chance < rare, chance < rare + law.emergency], [2, 1], 0)
    dearer = np.exp(law.dearer * (age[owner] - 55) / 10)
    noise = np.exp(0.5 * rng.normal(size=many) - 0.125)
    cost = np.array(law.costs)[kind] * dearer * noise
    gaps = rng.geometric(1 / law.gap(age)[owner])
    gaps[order == 0] = rng.integers(0, 365, int((order == 0).sum()))
    day = pd.Series(gaps).groupby(owner).cumsum().to_numpy()
    return {
        "people": pd.DataFrame(
            {
                "id": np.arange(people),
                "sex": rng.choice(["f", "m"], people),
                "age": age,
            }
        ),
        "events": pd.DataFrame(
            {
                "id": owner,
                "day": np.minimum(day, LAST_DAY),
                "kind": np.array(KINDS)[kind],
                "cost": np.clip(cost, 0, 20_000).round(2),
                "lab": np.clip(lab, 40, 160).round(1),
            }
        ),
    }


def figures(people: pd.DataFrame, events: pd.DataFrame) -> dict[str, float]:
    """What a row of the file says, of rows or of what was drawn."""
    number = events.groupby("id").size()
    people = people.assign(
        visits=people["id"].map(number).fillna(0),
        age=people["age"].astype(float),
    )
    events = events.sort_values(["id", "day"], kind="stable").merge(people, on="id")
    by_id = events.groupby("id")
    gap = by_id["day"].diff()
    found = {}
    for name, (low, high) in GROUPS.items():
        here = people["age"].between(low, high)
        found[f"visits, {name}"] = people["visits"][here].mean()
        found[f"gap, {name}"] = gap[events["age"].between(low, high)].mean()
    found["visits, age"] = people["visits"].corr(people["age"])
    found["gap, age"] = gap.corr(events["age"])
    for kind in KINDS:
        found[f"cost, {kind}"] = events["cost"][events["kind"] == kind].mean()
    later = by_id["lab"].shift(-LAG)
    found[f"lab, {LAG} later"] = events["lab"].astype(float).corr(later.astype(float))
    return {name: round(float(value), 4) for name, value in found.items()}


def measure(cell: Cell, args: dict[str, Any]) -> list[dict[str, Any]]:
    """One cell: draw as many people as there are."""
    frames = drawn(cell.law, args["people"], cell.seed)
    schema = schema_of(cell.law, cell.method)
    generator, seconds = trained(frames, schema, cell, args)
    made = figures(*generator.visits(args["people"], seed=cell.seed))
    return [
        publication.plain(cell)
        | {"figure": name, "real": real, "drawn": made[name], "seconds": seconds}
        for name, real in figures(**frames).items()
    ]


def parser() -> argparse.ArgumentParser:
    laws, epsilons = (["steps"], [4.0]) if QUICK else ([*LAWS], [1.0, 4.0])
    out = Path(__file__).parent / "by_age.csv"
    parser = law_options(__doc__, out, laws, epsilons)
    parser.set_defaults(seeds=1 if QUICK else 2)
    methods = ["bought"] if QUICK else ["by hand", "bought"]
    parser.add_argument("--methods", nargs="*", default=methods)
    return parser


def main() -> None:
    args = parser().parse_args()
    run_all(GRID, measure, Cell, args, method=args.methods)


if __name__ == "__main__":
    main()
