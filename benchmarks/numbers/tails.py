"""Skewed columns of a known law, with bounds that are ten times too wide and without
any: quantiles far out, and means.

    python benchmarks/numbers/tails.py --code new --out benchmarks/numbers/tails.csv
    PYTHONPATH=<another checkout>/src python benchmarks/numbers/tails.py --code old --out benchmarks/numbers/tails.csv

`gram`, ε = 1 at δ = 1e-6; rows are added to the file. A row is one column of one run:
KS distance, and the synthetic 95 % quantile, 99 % quantile and mean over the real ones;
KS is 1 for a column that was left out. One holder without bounds is `us.synthesize`;
two holders of columns without bounds are new, and have no rows of old code. `others`:
insulin (half zeros), seconds of calls, bytes over eight decades, five-figure costs, a
rate, codes from 0 to 7, and eleven values. How tails are read was looked at on draws 10
and 11 of both tables; `--first 20` are other draws.
"""

import argparse
import csv
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from laws import drawn

import understudy as us
from understudy.api.train import train
from understudy.data.column import Binned
from understudy.data.infer import infer_schema
from understudy.runs.federation import Federation

FIELDS = [
    "code",
    "table",
    "people",
    "holders",
    "bounds",
    "seed",
    "column",
    "ks",
    "p95",
    "p99",
    "mean",
]
ELEVEN = np.array(
    [0.635, 0.7, 1.25, 1.344, 4.021, 4.12, 4.857, 4.961, 4.963, 4.964, 5.045]
)
BUDGET = us.Budget(1.0, 1e-6)


def others(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng([seed, 37])
    return pd.DataFrame(
        {
            "insulin": np.where(
                rng.random(rows) < 0.48,
                0,
                np.rint(rng.gamma(1.9, 80, rows)).clip(14, 846),
            ).astype(int),
            "seconds": np.rint(rng.lognormal(5.2, 0.9, rows)).astype(int),
            "bytes": np.floor(10 ** rng.uniform(0, 8, rows)).astype(int),
            "cost": np.rint(rng.lognormal(9.5, 0.6, rows)).astype(int),
            "rate": np.round(rng.beta(2, 8, rows), 3),
            "code": np.minimum(rng.geometric(0.45, rows) - 1, 7),
            "eleven": rng.choice(
                ELEVEN,
                rows,
                p=[0.02, 0.03, 0.08, 0.1, 0.12, 0.05, 0.25, 0.1, 0.1, 0.1, 0.05],
            ),
        }
    )


def schema_of(frame: pd.DataFrame, *, bounds: bool) -> us.Schema:
    """Ten times too wide, or without."""
    columns = []
    for column in replace(infer_schema(frame), origin="public").columns:
        if not isinstance(column, Binned):
            numbers = column.kind == "ordinal"
            decimals = 0 if frame[column.name].dtype.kind == "i" else 3
            high = 10 * float(frame[column.name].max()) if numbers else 0
            ends: dict[str, Any] = {"low": 0, "high": high} if bounds else {}
            if not numbers:
                columns.append(column)
            elif decimals:
                columns.append(us.Real(name=column.name, decimals=decimals, **ends))
            else:
                columns.append(
                    us.Integer(
                        name=column.name, **{key: int(v) for key, v in ends.items()}
                    )
                )
            continue
        low = column.low
        high = column.high
        wide = {"low": 10 * low if low < 0 else low / 10, "high": 10 * high}
        whole = column.kind == "integer"
        ends = (
            {key: int(v) if whole else float(v) for key, v in wide.items()}
            if bounds
            else {"low": None, "high": None}
        )
        columns.append(replace(column, bins=None, **ends))
    return us.Schema(columns=tuple(columns))


def made_of(frame: pd.DataFrame, holders: int, bounds: bool, seed: int) -> pd.DataFrame:
    if holders == 1 and not bounds:
        with tempfile.TemporaryDirectory() as folder:
            made = us.synthesize(
                frame,
                epsilon=1,
                names_and_kinds_are_public=True,
                rows_are_people=True,
                ledgers=folder,
                seed=seed,
            )
            return made.sample(len(frame), seed=seed)
    schema = schema_of(frame, bounds=bounds)
    names = [schema.names[n::holders] for n in range(holders)]
    tables = {f"h{n}": frame[list(own)] for n, own in enumerate(names)}
    schemas = {f"h{n}": schema.select(own) for n, own in enumerate(names)}
    if holders > 1:
        tables = {
            name: own.assign(id=np.arange(len(own)).astype(str))
            for name, own in tables.items()
        }
        schemas = {name: replace(own, person="id") for name, own in schemas.items()}
    held = Federation.rehearsal(tables, schemas, budget=BUDGET, seed=seed)
    return train("gram", held, seed=seed).generator.sample(len(frame), seed=seed)


def figures(real: np.ndarray, other: np.ndarray) -> dict[str, float]:  # type: ignore[type-arg]
    other = other[~np.isnan(other)]
    places = np.unique(np.concatenate([real, other]))
    shares = [
        np.searchsorted(np.sort(part), places, side="right") / len(part)
        for part in (real, other)
    ]
    ratio = {
        f"p{p}": np.quantile(other, p / 100) / np.quantile(real, p / 100)
        for p in (95, 99)
    }
    found = {
        "ks": np.abs(shares[0] - shares[1]).max(),
        **ratio,
        "mean": other.mean() / real.mean(),
    }
    return {key: round(float(value), 4) for key, value in found.items()}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--code", default="new")
    parser.add_argument("--people", nargs="*", type=int, default=[3_500, 20_000])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=10, help="the first of the seeds")
    parser.add_argument("--out", type=Path, required=True)
    return parser


def main() -> None:
    args = parser().parse_args()
    warnings.simplefilter("ignore")
    with args.out.open("a", newline="") as file:
        rows = csv.DictWriter(file, FIELDS)
        if not file.tell():
            rows.writeheader()
        for people in args.people:
            for seed in range(args.first, args.first + args.seeds):
                tables = {
                    "laws": drawn(people, seed).drop(columns="class"),
                    "others": others(people, seed),
                }
                for table, frame in tables.items():
                    for holders, bounds in (
                        (1, False),
                        (1, True),
                        (2, False),
                        (2, True),
                    ):
                        if args.code == "old" and (holders, bounds) == (2, False):
                            continue
                        made = made_of(frame, holders, bounds, seed)
                        key = {
                            "code": args.code,
                            "table": table,
                            "people": people,
                            "holders": holders,
                            "seed": seed,
                        }
                        key["bounds"] = "10 times too wide" if bounds else "none"
                        for name in frame:
                            kept = name in made and made[name].notna().any()
                            own = (
                                figures(
                                    *(f[name].to_numpy(float) for f in (frame, made))
                                )
                                if kept
                                else {"ks": 1.0}
                            )
                            rows.writerow(key | {"column": name} | own)
                        file.flush()


if __name__ == "__main__":
    main()
