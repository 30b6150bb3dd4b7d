"""The strongest pairs of whole tables: what gram keeps of them at one price.

    python benchmarks/joint/strongest.py --data <folder> --method now --out benchmarks/joint/strongest.csv
    … --method more --settings remeasured_pairs=12 components=1024 --tables credit randhie

One holder of all rows, all columns, ids apart: numbers in 16 quantiles, other columns
in their 32 commonest values and one level more (`common.strong_pairs`), which are what
is declared. No target. A cell is a table cut to so many people, ε and a seed of the
noise, which is the same for all methods; cells that stand in the file are not run
again. `kept`: of the twelve strongest real pairs, by bias-corrected Cramér's V, the
mean of V synthetic over V real; `strong_avd2` the mean distance of these, `pairs_avd2`
that of all pairs; `cpu` the seconds of a run. Settings were chosen on the tables
CHOSEN; those in APART had no part in it.
"""

import argparse
import ast
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd

from common import publication, strong_pairs
from common.grid import Grid, by_text, grid_options
from common.options import quick
from common.sources import need
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Ordinal, Schema
from understudy.evaluate.utility.marginals import Codes
from understudy.runs.federation import Federation

QUICK = quick()


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run: a table with its number of people, as "credit@8000"."""

    dataset: str
    method: str
    epsilon: float
    seed: int

    @property
    def name(self) -> str:
        priced = publication.price(self.epsilon)
        return f"{self.dataset}/{self.method}/{priced}/seed={self.seed}"


KEY = tuple(Cell.__dataclass_fields__)
GRID = Grid(
    fields=[*KEY, "people", "columns", *strong_pairs.FIGURES, "cpu"],
    key=KEY,
    order=by_text(*KEY),
    columns=publication.plain,
    name=lambda cell: cell.name,
)


def _csv(file: str, *without: str, **options: Any) -> Callable[[Path], pd.DataFrame]:
    def read(folder: Path) -> pd.DataFrame:
        (path,) = need(folder, file)
        return pd.read_csv(path, **options).drop(columns=list(without))

    return read


def _once(read: Callable[[Path], pd.DataFrame], person: str) -> Any:
    """The first row of each person."""
    return lambda folder: read(folder).drop_duplicates(person).drop(columns=person)


def _census(folder: Path) -> pd.DataFrame:
    (path,) = need(folder, "census_income_kdd.parquet")
    return pd.read_parquet(path).drop(columns=["instance_weight", "split"])


_DIABETES = _csv(
    "diabetes130.csv.gz", "encounter_id", keep_default_na=False, low_memory=False
)
READERS = {
    "credit": _csv("credit_default.csv.gz", "ID"),
    "randhie": _once(_csv("randhie.csv.gz", low_memory=False), "zper"),
    "mushroom": _csv("mushroom.csv.gz"),
    "air": _csv("air_quality_uci.csv.gz", "Date"),
    "adult": _csv("adult.csv.gz", "fnlwgt", keep_default_na=False),
    "bank": _csv("bank_full.csv.gz", keep_default_na=False),
    "diabetes": _once(_DIABETES, "patient_nbr"),
    "census": _census,
    "wine": _csv("wine_quality.csv.gz"),
    "energy": _csv("timegan_energy.csv.gz"),
}
CHOSEN = ("credit@8000", "credit@24000", "randhie@5000", "mushroom@8000", "air@9000")
APART = (
    "adult@12000",
    "bank@8000",
    "diabetes@20000",
    "census@20000",
    "wine@6000",
    "energy@19000",
)


def cells(
    datasets: list[str], method: str, epsilons: list[float], seeds: int
) -> Iterator[Cell]:
    for seed in range(seeds):
        for epsilon in epsilons:
            for dataset in datasets:
                yield Cell(dataset=dataset, method=method, epsilon=epsilon, seed=seed)


@lru_cache(maxsize=4)
def coded(dataset: str, folder: Path) -> tuple[Codes, list[int]]:
    """The rows, in a random order, as level numbers; and how many levels there are."""
    if QUICK:
        rng = np.random.default_rng(0)
        rank = rng.random((400, 1))
        mixed = np.where(rng.random((400, 4)) < 0.5, rank, rng.random((400, 4)))
        return (mixed * 3).astype(np.int64), [3] * 4
    name, _, people = dataset.partition("@")
    frame = READERS[name](folder)
    frame = frame.sample(min(int(people), len(frame)), random_state=0)
    codes, *_ = strong_pairs.common_codes(frame, frame.head(0))
    # a level that nobody is in is not declared
    levels = [np.unique(column, return_inverse=True) for column in codes.T]
    varied = [own for own in levels if len(own[0]) > 1]
    return np.stack([own for _, own in varied], 1), [len(own) for own, _ in varied]


def measure(cell: Cell, args: dict[str, Any]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    codes, sizes = coded(cell.dataset, args["data"])
    names = [f"c{number}" for number in range(len(sizes))]
    columns = (
        Ordinal(name=name, categories=tuple(range(size)))
        for name, size in zip(names, sizes, strict=True)
    )
    schema = Schema(columns=tuple(columns))
    budget = publication.budget(cell.epsilon)
    holder = {"holder": pd.DataFrame(codes, columns=names)}
    federation = Federation.rehearsal(
        holder, {"holder": schema}, budget=budget, seed=cell.seed
    )
    start = time.process_time()
    result = train(
        "gram", federation, fine=0.0, seed=cell.seed, device="cpu", **args["settings"]
    )
    cpu = time.process_time() - start
    drawn = result.generator.sample(len(codes), seed=cell.seed)
    found = strong_pairs.strong_pairs(codes, Codec(schema).codes(drawn[names]), sizes)
    figures = publication.rounded(found.figures, strong_pairs.FIGURES)
    size = {"people": len(codes), "columns": len(sizes)}
    return publication.plain(cell) | size | figures | {"cpu": round(cpu, 1)}


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=Path(__file__).parent / "strongest.csv")
    parser.add_argument("--method", default="now", help="the name of what runs")
    parser.add_argument(
        "--settings", nargs="*", default=[], help="of the protocol, as name=value"
    )
    parser.add_argument("--tables", nargs="*", default=[*CHOSEN, *APART])
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0])
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 2)
    return parser


def main() -> None:
    args = parser().parse_args()
    settings = {
        name: ast.literal_eval(value)
        for name, value in (text.split("=", 1) for text in args.settings)
    }
    every = cells(args.tables, args.method, args.epsilons, args.seeds)
    GRID.run(partial(measure, args=vars(args) | {"settings": settings}), every, args)


if __name__ == "__main__":
    main()
