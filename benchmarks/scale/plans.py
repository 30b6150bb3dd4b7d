"""What a plan says a run takes, beside the processor seconds that it took.

    python benchmarks/scale/plans.py

Made-up tables, nothing declared but names, kinds and categories, at ε = 1: `planned` is
the sum of what `us.plan` says for so many people, `cpu` the processor's seconds of
`us.train` in a rehearsal, opening of the rows included; `one_line` those of
`us.synthesize` on the same frame. The two shapes of one holder are those of tables that
were once measured before and after a change of the fit. No constant of a plan was
chosen on these tables. What stands in the CSV is not measured again.
"""

import argparse
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch

import understudy as us
from common.grid import Grid, by_text, grid_options
from common.options import quick
from strangers.law import Law
from understudy.api.train import train
from understudy.data.column import Categorical, Column, Integer, Real
from understudy.data.schema import Schema
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation
from visits import unbinned

QUICK = quick()
BUDGET = Budget(1.0, 1e-6)
WORDS = ["a", "b", "c", "d", "e", "f"]
FIELDS = ["run", "planned", "cpu", "one_line", "parts", "machine", "date"]
Frames = Mapping[str, Any]


def table(columns: int, people: int, seed: int) -> pd.DataFrame:
    """Whole numbers, reals and words in turn, that hang together."""
    law = Law(people, seed)
    makers: list[Callable[[], Any]] = [
        lambda: law.whole(0, 99),
        lambda: np.round(law.skewed(50, 0.7), 2),
        lambda: law.word(WORDS, 0.5),
        lambda: np.ceil(law.skewed(3, 0.8, 0.4)).astype(int),
    ]
    return pd.DataFrame({f"c{k}": makers[k % 4]() for k in range(columns)})


def column(name: str, cells: "pd.Series[Any]") -> Column:
    """Its kind, and what words there are: no bounds."""
    if cells.dtype == object:
        return Categorical(name=name, categories=tuple(WORDS))
    if cells.dtype.kind == "i":
        return Integer(name=name)
    return Real(name=name, decimals=2)


def one_holder(columns: int, people: int) -> tuple[str, Frames, Frames]:
    frame = table(columns, people, columns)
    each = tuple(column(name, frame[name]) for name in frame)
    return "gram", {"holder": frame}, {"holder": Schema(columns=each)}


def two_holders(columns: int, people: int) -> tuple[str, Frames, Frames]:
    """Half of the columns at each, of the same people."""
    _, frames, schemas = one_holder(columns, people)
    whole, schema = frames["holder"], schemas["holder"]
    halves = {"one": schema.names[::2], "other": schema.names[1::2]}
    held = {
        who: whole[list(names)].assign(id=np.arange(people))
        for who, names in halves.items()
    }
    parts = {
        who: Schema(columns=schema.select(names).columns, person="id")
        for who, names in halves.items()
    }
    return "gram", held, parts


def visits(bounds: str, people: int) -> tuple[str, Frames, Frames]:
    frames = unbinned.drawn("second", people, 0)
    return "visits", {"holder": frames}, {"holder": unbinned.schema_of(bounds, "found")}


SIZE = 400 if QUICK else None
RUNS: dict[str, Callable[[], tuple[str, Frames, Frames]]] = {
    "36 columns of 9,105 people": partial(one_holder, 36, SIZE or 9_105),
    "21 columns of 41,188 people": partial(one_holder, 21, SIZE or 41_188),
    "8 columns of 3,000 people": partial(one_holder, 8, SIZE or 3_000),
    "16 columns of 9,105 people at two holders": partial(
        two_holders, 16, SIZE or 9_105
    ),
    "visits of 8,000 people, no bounds": partial(visits, "none", SIZE or 8_000),
    "visits of 8,000 people, bounds": partial(visits, "near", SIZE or 8_000),
}


def measure(job: Mapping[str, str]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    protocol, frames, schemas = RUNS[job["run"]]()
    first = next(iter(frames.values()))
    people = len(first["people"] if isinstance(first, dict) else first)
    forecast = us.plan(protocol, schemas, budget=BUDGET, people=people)
    begun = time.process_time()
    held = Federation.rehearsal(frames, schemas, budget=BUDGET, seed=0)
    train(protocol, held, seed=0)
    cpu = time.process_time() - begun
    row = dict(job) | {
        "planned": round(forecast.seconds or 0.0, 1),
        "cpu": round(cpu, 1),
        "parts": "; ".join(f"{k} {v:.1f}" for k, v in forecast.takes.items()),
        "machine": f"{platform.machine()}, torch {torch.__version__}",
        "date": date.today().isoformat(),
    }
    if isinstance(first, pd.DataFrame) and len(frames) == 1:
        with TemporaryDirectory() as ledgers:
            begun = time.process_time()
            us.synthesize(
                first,
                epsilon=1.0,
                names_and_kinds_are_public=True,
                rows_are_people=True,
                ledgers=ledgers,
            )
            row["one_line"] = round(time.process_time() - begun, 1)
    return row


def jobs() -> Iterator[dict[str, str]]:
    for run in RUNS:
        yield {"run": run}


GRID = Grid(fields=FIELDS, key=("run",), order=by_text("run"))


def parser() -> argparse.ArgumentParser:
    return grid_options(__doc__, out=Path(__file__).parent / "plans.csv")


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, jobs(), args)


if __name__ == "__main__":
    main()
