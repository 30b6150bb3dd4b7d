"""The tables of README.md, from the CSV files beside it: `make tables NAME=visits`."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from common.figures import bare
from common.markdown import once, table

HERE = Path(__file__).parent
DATASETS = ("randhie", "diabetes130", "cdnow", "markov1", "markov2")
METHODS = ("visits", "aggregates", "rows", "rows_split", "independent", "bootstrap")
DISTANCES = ("avd_person", "avd_events", "avd_across", "avd_next")
ERRORS = ("mean_error", "q90_error", "mean_error_2", "q90_error_2")
CUTS = {
    "place": "one holder, all",
    "rows": "two holders, half of the people each",
    "columns": "a hospital and an insurer",
    "grid": "two regions, both of it in each",
}
HEADS = ("people", "events", "across", "next", "sum, mean", "q90", "2nd sum, mean", "q90")


@cache
def rows() -> pd.DataFrame:
    found = pd.read_csv(HERE / "ours.csv")
    found["epsilon"] = found["epsilon"].fillna(0.0)
    return found


def mean(name: str, **key: object) -> float:
    """Over all seeds; NaN where a method does not say."""
    found = rows()
    these = np.logical_and.reduce([found[column] == value for column, value in key.items()])
    return float(found[name][these].mean())


def said(name: str, **key: object) -> str:
    value = mean(name, **key)
    if pd.isna(value):
        return ""
    return f"{value:.1%}" if name in ERRORS else bare(value)


def methods() -> str:
    """ε = 1: all methods."""
    lines = [
        (
            dataset,
            method,
            *(
                said(name, dataset=dataset, method=method, epsilon=0.0 if method == "bootstrap" else 1.0)
                for name in DISTANCES + ERRORS
            ),
        )
        for dataset in DATASETS
        for method in METHODS
    ]
    heads = once(line[0] for line in lines)
    return table(
        ("data set", "method", *HEADS),
        [(head, *line[1:]) for head, line in zip(heads, lines, strict=True)],
        "llr",
    )


def prices() -> str:
    """The protocol by ε."""
    lines = [
        (
            dataset,
            f"{epsilon:g}",
            *(
                said(name, dataset=dataset, method="visits", epsilon=epsilon)
                for name in DISTANCES + ERRORS[:2] + ("again_auc", "again_real")
            ),
        )
        for dataset in DATASETS
        for epsilon in (0.5, 1.0, 2.0, 8.0)
        if not pd.isna(mean("avd_events", dataset=dataset, method="visits", epsilon=epsilon))
    ]
    heads = once(line[0] for line in lines)
    return table(
        ("data set", "ε", *HEADS[:6], "comes again, AUC", "learned from real"),
        [(head, *line[1:]) for head, line in zip(heads, lines, strict=True)],
        "lr",
    )


def second() -> str:
    """A column and itself two events later, ε = 1 and 8, beside chance."""
    asked = (("visits", 1.0), ("visits", 8.0), ("bootstrap", 0.0))
    lines = [
        (
            dataset,
            *(
                said(name, dataset=dataset, method=method, epsilon=epsilon)
                for name in ("avd_later", "avd_second")
                for method, epsilon in asked
            ),
        )
        for dataset in DATASETS
    ]
    heads = ("ε = 1", "ε = 8", "bootstrap", "every event alike: ε = 1", "ε = 8", "bootstrap")
    return table(("data set", *heads), lines, "lr")


def split() -> str:
    """The same people at one holder or at several, ε = 1."""
    found = pd.read_csv(HERE / "split.csv").groupby(["dataset", "cut"]).mean()
    lines = []
    for dataset in ("randhie", "diabetes130", "markov1"):
        for cut, holders in CUTS.items():
            row = found.loc[dataset, cut]
            lines.append(
                (
                    dataset,
                    holders,
                    f"{row['noise']:.1f}",
                    *(bare(row[name]) for name in DISTANCES),
                    *(f"{row[name]:.1%}" for name in ERRORS[:2]),
                    f"{row['release_seconds']:,.1f}",
                    f"{row['seconds']:,.0f}",
                )
            )
    heads = once(line[0] for line in lines)
    return table(
        ("data set", "who holds what", "noise", *HEADS[:6], "released after, s", "in all, s"),
        [(head, *line[1:]) for head, line in zip(heads, lines, strict=True)],
        "llr",
    )


def ratio(name: str) -> str:
    """On randhie at ε = 1, over what one table of aggregates has on people's columns."""
    key = {"dataset": "randhie", "epsilon": 1.0}
    return f"{mean(name, method='visits', **key) / mean('avd_person', method='aggregates', **key):.2f}"


def scale(name: str) -> str:
    """What counting takes, by scale.csv."""
    value = pd.read_csv(HERE / "scale.csv").loc[0, name]
    return f"{value:,.1f}" if name == "seconds" else f"{value:,.0f}"


TABLES = {
    **{
        f"scale {name}": (lambda name=name: scale(name))
        for name in ("people", "events", "tables", "seconds", "peak_mb")
    },
    "methods": methods,
    "prices": prices,
    "second": second,
    "split": split,
    **{f"ratio {name}": (lambda name=name: ratio(name)) for name in DISTANCES},
    **{
        f"randhie {name}": (lambda name=name: said(name, dataset="randhie", method="visits", epsilon=1.0))
        for name in ERRORS
    },
}
