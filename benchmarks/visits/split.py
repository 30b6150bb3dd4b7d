"""People with many rows at several holders: what it costs that no holder has all of
them, or all of their columns.

    python benchmarks/visits/split.py --data <folder> --jobs 6 --out benchmarks/visits/split.csv

A cell is one data set, cut and seed, at ε = 1 and δ = 1e-5:

    place      one holder has all rows
    rows       two hospitals, each with half of the people
    columns    a hospital has the events and half of the people's columns, and an
               insurer the other half
    grid       two regions with half of the people, and in each a hospital and an
               insurer as in columns

Distances and errors are those of `bench.py`. `noise` is the largest deviation on a
count of a table, in people; `release_seconds` is the time until the tables are released
(aligned, masked and multiplied, where columns are split), and `seconds` all of it, with
all holders in one process.
"""

import argparse
import os
import sys
import time
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import bench
import pandas as pd
from cases import Case, load

from common import publication
from common.grid import Grid, by_text, grid_options
from common.options import quick
from understudy.api.train import train
from understudy.data.schema import Schema
from understudy.protocols.core import Progress
from understudy.runs.federation import Federation

QUICK = quick()
CUTS = ("place", "rows", "columns", "grid")
EPSILON = 1.0


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run."""

    dataset: str
    cut: str
    seed: int


KEY = tuple(Cell.__dataclass_fields__)
FIELDS = [
    *KEY,
    *bench.DISTANCES.values(),
    "mean_error",
    "q90_error",
    "mean_error_2",
    "q90_error_2",
    "again_auc",
    "noise",
    "release_seconds",
    "seconds",
]
GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY), columns=publication.plain)


def cut(case: Case, how: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Each holder's tables, and what is public of them."""
    schema = case.schema
    key = case.schema.person
    people = case.frames["people"]
    assert schema.people is not None
    hospital = dict(case.frames)
    insurer = None
    if how in ("columns", "grid"):
        other = schema.people.columns[::2]
        own = schema.people.columns[1::2]
        described = Schema(columns=other, person=key)
        schema = replace(schema, people=Schema(columns=own))
        hospital["people"] = people[[key, *(column.name for column in own)]]
        insurer = people[[key, *described.names]]
    tables = {}
    schemas = {}
    regions = {"": people[key]}
    if how in ("rows", "grid"):
        regions = {" north": people[key].iloc[::2], " south": people[key].iloc[1::2]}
    for region, ids in regions.items():

        def own_of(rows: pd.DataFrame, ids: Any = ids) -> pd.DataFrame:
            return rows[rows[key].isin(ids)]

        tables[f"hospital{region}"] = {
            part: own_of(rows) for part, rows in hospital.items()
        }
        schemas[f"hospital{region}"] = schema
        if insurer is not None:
            tables[f"insurer{region}"] = own_of(insurer)
            schemas[f"insurer{region}"] = described
    return tables, schemas


def measure(cell: Cell, args: dict[str, Any]) -> dict[str, Any]:
    """One cell: release, fit, draw as many people as there are, and hold them against
    the real ones.
    """
    warnings.simplefilter("ignore")
    case = load(cell.dataset, args["data"], 0, args["people"])
    tables, schemas = cut(case, cell.cut)
    held = Federation.rehearsal(
        tables, schemas, budget=publication.budget(EPSILON), seed=cell.seed
    )
    start = time.perf_counter()
    released = list[float]()

    def watch(progress: Progress) -> None:
        if progress.rounds == 2 and not released:  # of the release and the fit
            released.append(time.perf_counter() - start)

    settings = {"device": args["device"], "seed": cell.seed} | args["settings"]
    result = train("visits", held, watch=watch, **settings)
    seconds = time.perf_counter() - start
    drawn = result.generator.visits(len(case.frames["people"]), seed=cell.seed)
    made = dict(zip(("people", "events"), drawn, strict=True)) | {"whole": True}
    found = bench.figures(case, made, cell.seed)
    return (
        publication.plain(cell)
        | {key: value for key, value in found.items() if key in FIELDS}
        | {"noise": round(result.generator.card["noise"]["people in a cell"], 1)}
        | {"release_seconds": round(released[0], 1), "seconds": round(seconds, 1)}
    )


def parser() -> argparse.ArgumentParser:
    parser = grid_options(
        __doc__, out=Path(__file__).parent / "split.csv", device="cpu"
    )
    parser.add_argument(
        "--datasets",
        nargs="*",
        default=["markov1"] if QUICK else ["randhie", "diabetes130", "markov1"],
    )
    parser.add_argument("--people", type=int, default=400 if QUICK else None)
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    return parser


def main() -> None:
    args = parser().parse_args()
    asked = (
        Cell(dataset=dataset, cut=how, seed=seed)
        for seed in range(args.seeds)
        for dataset in args.datasets
        for how in reversed(CUTS)  # the longest first
    )
    settings = {"steps": 60} if QUICK else {}
    GRID.run(partial(measure, args=vars(args) | {"settings": settings}), asked, args)


if __name__ == "__main__":
    main()
