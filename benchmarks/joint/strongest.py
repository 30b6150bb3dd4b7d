"""The strongest pairs of whole tables: what gram keeps of them at one price.

    python benchmarks/joint/strongest.py --data <folder> --method now --out benchmarks/joint/strongest.csv
    … --method more --settings remeasured_pairs=12 components=1024 --tables credit randhie
    … --method before --settings remeasured_pairs=0 --holders 2 --target --epsilons .2 1 4 --tables adult@12000

All columns, ids apart, at one holder, or every other one at the second of two: numbers
in 16 quantiles, other columns in their 32 commonest values and one level more
(`common.strong_pairs`), which are what is declared. No target, or the last column. A cell is a table cut to so many people, ε and a seed of the
noise, which is the same for all methods; cells that stand in the file are not run
again. `kept`: of the twelve strongest real pairs, by bias-corrected Cramér's V, the
mean of V synthetic over V real; `strong_avd2` the mean distance of these, `pairs_avd2`
that of all pairs; `auc` that of boosting which learned the last column from synthetic
rows, on up to 5,000 people who are not in the table; `cpu` the seconds of a run. Settings were chosen on the tables
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
from understudy.evaluate.utility.downstream import (
    Examples,
    classification_scores,
    score_model,
)
from understudy.evaluate.utility.marginals import Codes
from understudy.runs.federation import Federation

QUICK = quick()
OTHERS = 5_000  # people, at most, on whom a classifier is tested


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run: a table with its number of people, as "credit@8000"."""

    dataset: str
    method: str
    holders: int
    target: str  # "named", or nothing
    epsilon: float
    seed: int

    @property
    def name(self) -> str:
        priced = publication.price(self.epsilon)
        cut = f"holders={self.holders}/target={self.target}"
        return f"{self.dataset}/{self.method}/{cut}/{priced}/seed={self.seed}"


KEY = tuple(Cell.__dataclass_fields__)
GRID = Grid(
    fields=[*KEY, "people", "columns", *strong_pairs.FIGURES, "auc", "cpu"],
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
    datasets: list[str],
    method: str,
    cut: dict[str, Any],
    epsilons: list[float],
    seeds: int,
) -> Iterator[Cell]:
    for seed in range(seeds):
        for epsilon in epsilons:
            for name in datasets:
                yield Cell(
                    dataset=name, method=method, epsilon=epsilon, seed=seed, **cut
                )


@lru_cache(maxsize=4)
def coded(dataset: str, folder: Path) -> tuple[Codes, Codes, list[int]]:
    """The rows, in a random order, and rows of other people, as level numbers; and how
    many levels there are.
    """
    if QUICK:
        rng = np.random.default_rng(0)
        rank = rng.random((400, 1))
        mixed = np.where(rng.random((400, 4)) < 0.5, rank, rng.random((400, 4)))
        codes = (mixed * 3).astype(np.int64)
        return codes[:300], codes[300:], [3] * 4
    name, _, people = dataset.partition("@")
    every = READERS[name](folder)
    frame = every.sample(min(int(people), len(every)), random_state=0)
    others = every.drop(frame.index)
    others = others.sample(min(OTHERS, len(others)), random_state=0)
    codes, held_out, _ = strong_pairs.common_codes(frame, others)
    # a level that nobody is in is not declared, and somebody else in it is as the first
    levels = [np.unique(column) for column in codes.T]
    varied = [place for place, own in enumerate(levels) if len(own) > 1]
    rows, tests = (
        np.stack([_numbered(table[:, at], levels[at]) for at in varied], 1)
        for table in (codes, held_out)
    )
    return rows, tests, [len(levels[at]) for at in varied]


def _numbered(column: Codes, levels: Codes) -> Codes:
    places = np.searchsorted(levels, column).clip(max=len(levels) - 1)
    return np.where(levels[places] == column, places, 0)


def measure(cell: Cell, args: dict[str, Any]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    codes, held_out, sizes = coded(cell.dataset, args["data"])
    names = [f"c{number}" for number in range(len(sizes))]
    columns = (
        Ordinal(name=name, categories=tuple(range(size)))
        for name, size in zip(names, sizes, strict=True)
    )
    schema = Schema(columns=tuple(columns))
    frame = pd.DataFrame(codes, columns=names)
    shares = {
        f"holder {first + 1}": names[first :: cell.holders]
        for first in range(cell.holders)
    }
    federation = Federation.rehearsal(
        {holder: frame[held] for holder, held in shares.items()},
        {holder: schema.select(held) for holder, held in shares.items()},
        budget=publication.budget(cell.epsilon),
        seed=cell.seed,
        same_people=True,
    )
    target = {"target": names[-1]} if cell.target else {}
    settings = {"fine": 0.0, "device": "cpu"} | target | args["settings"]
    start = time.process_time()
    result = train("gram", federation, seed=cell.seed, **settings)
    cpu = time.process_time() - start
    drawn = result.generator.sample(len(codes), seed=cell.seed)
    synthetic = Codec(schema).codes(drawn[names])
    found = strong_pairs.strong_pairs(codes, synthetic, sizes)
    figures = publication.rounded(
        found.figures | _learned(synthetic, held_out, sizes),
        (*strong_pairs.FIGURES, "auc"),
    )
    size = {"people": len(codes), "columns": len(sizes)}
    return publication.plain(cell) | size | figures | {"cpu": round(cpu, 1)}


def _learned(synthetic: Codes, held_out: Codes, sizes: list[int]) -> dict[str, float]:
    """What boosting learns of the last column, where there are people to test it on."""
    if len(held_out) < 100:
        return {}
    train_rows, test_rows = (
        Examples(rows[:, :-1], rows[:, -1].astype(np.int64))
        for rows in (synthetic, held_out)
    )
    scores, *_ = score_model(
        "boosting",
        train_rows,
        test_rows.features,
        sizes[:-1],
        sizes[-1],
        0,
        partial(classification_scores, test_rows.target),
    )
    auc = scores["auc"]
    return {"auc": auc} if isinstance(auc, float) else {}


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=Path(__file__).parent / "strongest.csv")
    parser.add_argument("--method", default="now", help="the name of what runs")
    parser.add_argument(
        "--settings", nargs="*", default=[], help="of the protocol, as name=value"
    )
    parser.add_argument("--holders", type=int, default=1, choices=(1, 2))
    parser.add_argument(
        "--target", action="store_true", help="the last column is the target"
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
    cut = {"holders": args.holders, "target": "named" if args.target else ""}
    every = cells(args.tables, args.method, cut, args.epsilons, args.seeds)
    GRID.run(partial(measure, args=vars(args) | {"settings": settings}), every, args)


if __name__ == "__main__":
    main()
