"""The public tables of the vertical and the joint benchmark: rows, a public schema, a
class to predict, rows held out.

Bins are round numbers. Levels of categorical columns are those of the published
codebooks; they are read off the whole published file here, which is nobody's secret. A
real holder declares them, or buys them.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common.sources import need
from understudy.data.schema import (
    Boolean,
    Categorical,
    Column,
    Integer,
    Ordinal,
    Real,
    Schema,
)

MONEY = (
    -400_000,
    0,
    1,
    1_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    2_000_000,
)
PAID = (0, 1, 1_000, 2_000, 5_000, 10_000, 50_000, 2_000_000)
GAINS = (0, 1, 1_000, 5_000, 10_000, 20_000, 100_000)
BINS: dict[str, dict[str, tuple[float, ...]]] = {
    "adult": {
        "age": (17, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 90),
        "capital-gain": GAINS,
        "capital-loss": (0, 1, 1_500, 1_750, 2_000, 2_500, 5_000),
        "hours-per-week": (1, 20, 35, 40, 41, 50, 60, 99),
    },
    "census": {
        "age": (0, 5, 10, 15, 18, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 90),
        "wage_per_hour": (0, 1, 500, 750, 1_000, 1_500, 2_000, 10_000),
        "capital_gains": GAINS,
        "capital_losses": (0, 1, 1_500, 1_750, 2_000, 2_500, 5_000),
        "dividends_from_stocks": (0, 1, 100, 500, 1_000, 5_000, 100_000),
        "weeks_worked_in_year": (0, 1, 13, 26, 40, 50, 52),
    },
    "credit": {
        "LIMIT_BAL": (
            0,
            30_000,
            50_000,
            100_000,
            150_000,
            200_000,
            300_000,
            400_000,
            1_000_000,
        ),
        "AGE": (18, 25, 30, 35, 40, 45, 50, 60, 80),
        **{f"BILL_AMT{i}": MONEY for i in range(1, 7)},
        **{f"PAY_AMT{i}": PAID for i in range(1, 7)},
    },
}
FILES = {
    "adult": "adult.csv.gz",
    "a9a": "a9a.npz",
    "w8a-124": "w8a.npz",
    "har": "har.npz",
    "census": "census_income_kdd.parquet",
    "credit": "credit_default.csv.gz",
}
# of the papers, and not at hand where this was written: their loaders follow the
# published formats, and have read no row
NOT_AT_HAND = {
    "census-1990": "us_census_1990.csv.gz",
    "twitter": "buzz_twitter.csv.gz",
    "vehicle": "sensit_vehicle.npz",
}
LIKE = "-like"  # ends the name of a generated table of the same shape
# rows, levels of columns, classes: VertiGAN's Table 1, and about the widths of Table 2
SHAPES = {
    "census-1990": (2_458_285, [2] * 19 + [4] * 19 + [5] * 15 + [6] * 14, 3),
    "twitter": (140_707, [5] * 77, 2),
    "vehicle": (98_528, [2] * 100, 3),
}


@dataclass(frozen=True, eq=False)
class Public:
    """A table to learn from and one to test on, in the columns of one schema."""

    train: pd.DataFrame
    test: pd.DataFrame
    schema: Schema
    target: str

    def first(self, rows: int) -> "Public":
        """The same with so many rows to learn from, at most."""
        return replace(self, train=self.train.iloc[:rows].reset_index(drop=True))


@lru_cache(maxsize=2)
def load(name: str, folder: Path, seed: int = 0) -> Public:
    """The table of that name, its rows in an order that the seed gives; a fifth is held
    out.
    """
    if name == "toy":
        frame = _toy()
        target = "z"
    elif name.endswith(LIKE):
        frame = like(*SHAPES[name.removesuffix(LIKE)])
        target = "y"
    else:
        (path,) = need(folder, (FILES | NOT_AT_HAND)[name])
        frame, target = READERS[name](path)
    schema = Schema(
        columns=tuple(
            column(frame[c], BINS.get(name, {}).get(c)) for c in frame.columns
        )
    )
    order = np.random.default_rng([seed, 7]).permutation(len(frame))
    cut = len(frame) // 5
    test, train = (
        frame.iloc[part].reset_index(drop=True) for part in (order[:cut], order[cut:])
    )
    return Public(train, test, schema, target)


def column(cells: "pd.Series[Any]", bins: tuple[float, ...] | None) -> Column:
    """How a column is declared: binned, yes or no, ordered, or categorical."""
    name = str(cells.name)
    if bins is not None and cells.dtype.kind == "i":
        return Integer(
            name=name, low=int(bins[0]), high=int(bins[-1]), bins=tuple(map(int, bins))
        )
    if bins is not None:
        return Real(name=name, low=bins[0], high=bins[-1], bins=bins)
    if cells.dtype == bool:
        return Boolean(name=name)
    levels = tuple(sorted(cells.unique().tolist()))
    return (Categorical if cells.dtype == object else Ordinal)(
        name=name, categories=levels
    )


def _adult(path: Path) -> tuple[pd.DataFrame, str]:
    """Without the sampling weight, and without the words for the years of education."""
    frame = pd.read_csv(path, keep_default_na=False)
    frame.columns = frame.columns.str.replace("_", "-").str.replace(".", "-")
    return frame.drop(columns=["fnlwgt", "education"]), "income"


def _a9a(path: Path) -> tuple[pd.DataFrame, str]:
    held = np.load(path)
    x, y = (
        np.concatenate([held[f"{key}_train"], held[f"{key}_test"]])
        for key in ("X", "y")
    )
    return _bits(x == 1, y == 1), "y"


def _w8a(path: Path) -> tuple[pd.DataFrame, str]:
    held = np.load(path)
    return _bits(held["X"][:, :124] == 1, held["y"] == 1), "y"


def _har(path: Path) -> tuple[pd.DataFrame, str]:
    """Features lie in [−1, 1] by their definition; 0 is the threshold."""
    held = np.load(path)
    return _bits(held["X_int16"] > 0, held["y"].astype(np.int64)), "y"


def _census(path: Path) -> tuple[pd.DataFrame, str]:
    """Without the sampling weight, and without the two recodes that `major_…` repeats
    in fewer levels.
    """
    gone = [
        "instance_weight",
        "split",
        "detailed_industry_recode",
        "detailed_occupation_recode",
    ]
    frame = pd.read_parquet(path).drop(columns=gone)
    whole = frame.columns[[kind.kind == "i" for kind in frame.dtypes]]
    frame[whole] = frame[whole].astype(np.int64)
    return frame.fillna({"hispanic_origin": "NA"}), "income_gt_50k"


def _credit(path: Path) -> tuple[pd.DataFrame, str]:
    return pd.read_csv(path).drop(columns="ID"), "default.payment.next.month"


def _census_1990(path: Path) -> tuple[pd.DataFrame, str]:
    """Levels are numbers already; years of service in three classes."""
    return pd.read_csv(path).drop(columns="caseid").astype(np.int64), "dYrsserv"


def _twitter(path: Path) -> tuple[pd.DataFrame, str]:
    """Each attribute in fifths of its values (the paper: five bins), fewer where many
    are equal; the class stands last.
    """
    frame = pd.read_csv(path)
    *attributes, target = frame.columns
    codes = {target: frame[target].astype(np.int64)}
    for name in attributes:
        cuts = np.unique(np.quantile(frame[name], (0.2, 0.4, 0.6, 0.8)))
        codes[name] = np.searchsorted(cuts, frame[name])
    return pd.DataFrame(codes)[frame.columns], target


def _vehicle(path: Path) -> tuple[pd.DataFrame, str]:
    """An attribute is whether it is above its median (the paper: binary)."""
    held = np.load(path)
    return _bits(held["X"] > np.median(held["X"], axis=0), held["y"].astype(int)), "y"


def like(rows: int, levels: list[int], classes: int) -> pd.DataFrame:
    """A generated table: a class and a hidden number of each person, on which every
    column depends, on some more than on others.
    """
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=rows)
    hidden = rng.normal(size=rows) + y
    columns = {}
    for number, count in enumerate(levels):
        share = rng.uniform(0, 0.9)
        noisy = share * hidden + (1 - share) * rng.normal(size=rows)
        cuts = np.quantile(noisy, np.sort(rng.uniform(0.05, 0.95, count - 1)))
        columns[f"x{number}"] = np.searchsorted(cuts, noisy)
    return pd.DataFrame(columns | {"y": y})


READERS = {
    "adult": _adult,
    "a9a": _a9a,
    "w8a-124": _w8a,
    "har": _har,
    "census": _census,
    "credit": _credit,
    "census-1990": _census_1990,
    "twitter": _twitter,
    "vehicle": _vehicle,
}


def _bits(x: NDArray[np.bool_], y: NDArray[Any]) -> pd.DataFrame:
    return pd.DataFrame({f"x{i}": x[:, i] for i in range(x.shape[1])} | {"y": y})


def _toy(rows: int = 800) -> pd.DataFrame:
    """Two columns for each of two holders, each a noisy copy of one bit, and the bit
    itself.
    """
    rng = np.random.default_rng(0)
    bit = rng.random(rows) < 0.5
    return pd.DataFrame(
        {name: bit ^ (rng.random(rows) < 0.1) for name in "abcd"} | {"z": bit}
    )
