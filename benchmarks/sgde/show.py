"""The tables of README.md, from ours.csv, paper.csv and speed.csv: `make tables NAME=sgde`.

Accuracy / F1 / AUC in per cent, mean ± half the range over seeds.
"""

import math
from functools import partial
from pathlib import Path

import pandas as pd

from common.figures import found, listed, span, where
from common.markdown import table
from common.rows import Row, as_it_stands, read

HERE = Path(__file__).parent
SETS = {
    "titanic": "Titanic",
    "breast_cancer_diagnostic": "Breast Cancer (diagnostic)",
    "breast_cancer_wisconsin": "Breast Cancer (Wisconsin)",
    "mushroom": "Mushroom",
    "adult": "Adult",
    "wine_quality": "Wine Quality",
}
METRICS = ("accuracy", "f1", "auc")
METHODS = {
    "local": "local",
    "federated": "federated",
    "synthetic": "synthetic, ε = 1.5",
    "synthetic, counts": "counts, ε = 1.5",
    "synthetic, pairs": "pairs, ε = 1.5",
    "synthetic, no noise": "synthetic, no noise",
}


def results(number: str) -> str:
    """One of the paper's tables, ours above the paper's."""
    rows, paper = (read(HERE / name) for name in ("ours.csv", "paper.csv"))
    lines = []
    for dataset in dict.fromkeys(row["dataset"] for row in [*paper, *rows]):
        mine, theirs = (
            [row for row in held if (row["dataset"], row["table"]) == (dataset, number)]
            for held in (rows, paper)
        )
        seeds = str(len({row["seed"] for row in mine}))
        if mine:
            lines.append([dataset, seeds, "ours", *cells(mine)])
        if theirs:
            lines.append(["" if mine else dataset, "", "paper", *cells(theirs)])
    return table(("data set", "seeds", "", *METHODS.values()), lines)


def cells(rows: list[Row]) -> list[str]:
    """A cell for each method."""
    return [
        " / ".join(spread([float(row[name]) for row in rows if row["method"] == method]) for name in METRICS)
        if any(row["method"] == method for row in rows)
        else ""
        for method in METHODS
    ]


def spread(values: list[float]) -> str:
    half = (max(values) - min(values)) / 2
    middle = f"{math.fsum(values) / len(values) + 1e-9:.1f}"  # a half goes up on every machine
    return middle if len(values) == 1 else f"{middle} ± {half:.1f}"


def on_test(dataset: str, method: str, metric: str = "accuracy", **key: object) -> float:
    return float(found(HERE / "ours.csv", dataset=dataset, method=method, table="III", **key)[metric])


def below() -> str:
    """By how many points the pool is below local training, at least and at most."""
    gaps = {name: on_test(name, "local") - on_test(name, "synthetic") for name in SETS}
    least, most = min(gaps, key=gaps.__getitem__), max(gaps, key=gaps.__getitem__)
    return f"{gaps[least]:.1f} ({SETS[least]}) to {gaps[most]:.1f} points ({SETS[most]})"


def counts() -> str:
    return ", ".join(
        f"{on_test(name, 'synthetic, counts'):.1f} % on {SETS[name]} instead of {on_test(name, 'synthetic'):.1f}"
        for name in ("wine_quality", "titanic", "breast_cancer_wisconsin")
    )


def pairs() -> str:
    """Counts of all pairs beside counts of levels, on the same seed."""
    return ", ".join(
        f"{on_test(name, 'synthetic, pairs', seed=0):.1f} % on {SETS[name]} "
        f"(counts of levels {on_test(name, 'synthetic, counts', seed=0):.1f}, "
        f"a silo alone {on_test(name, 'local', seed=0):.1f})"
        for name in ("mushroom", "wine_quality", "adult", "breast_cancer_wisconsin", "titanic")
    )


def by_seed(dataset: str, method: str, metric: str, *seeds: int) -> str:
    return listed((on_test(dataset, method, metric, seed=seed) for seed in seeds), 1)


def seed_0(dataset: str) -> str:
    """Accuracy and AUC of the networks' pool."""
    return listed((on_test(dataset, "synthetic", metric, seed=0) for metric in ("accuracy", "auc")), 1)


def flagged() -> str:
    """Tables on which offers were flagged, by networks and by counts."""
    rows = where(HERE / "ours.csv", table="III")
    parts = []
    for method, word in (("synthetic", "networks"), ("synthetic, counts", "counts")):
        own = rows[(rows.method == method) & rows.dataset.isin(SETS)]
        some: pd.Series[float] = own.groupby("dataset").flagged.max()
        each = (
            f"{SETS[str(name)]} {span(own[own.dataset == name].flagged, 0)}" for name in some[some > 0].index
        )
        parts.append(f"{', '.join(each)} ({word})")
    return "; ".join(parts)


TABLES = {
    "test set": partial(results, "III"),
    "own rows": partial(results, "I"),
    "below": below,
    "auc": lambda: span((on_test(name, "synthetic", "auc") for name in SETS), 0),
    "flagged images": lambda: listed(
        (on_test(name, "synthetic", "flagged") for name in ("mnist", "fashion_mnist")), 0
    ),
    "counts": counts,
    "pairs": pairs,
    "speed": partial(as_it_stands, HERE / "speed.csv"),
    "fresh seeds": partial(by_seed, "wine_quality", "synthetic, counts", "accuracy", 1, 2),
    "seeds differ": partial(by_seed, "breast_cancer_diagnostic", "synthetic", "auc", 0, 1, 2),
    "flagged": flagged,
    "wine before": partial(seed_0, "wine_quality"),
    "cancer before": partial(seed_0, "breast_cancer_diagnostic"),
    "titanic before": partial(seed_0, "titanic"),
}
