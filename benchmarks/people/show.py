"""The first tables of README.md, beside other methods and plain rows; the others are
declared in tables.toml.

The mean over seeds and, after ±, half their range.
"""

from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from common.markdown import table

HERE = Path(__file__).parent
CHOSEN_ON = ("adult", "a9a")
APART = ("credit", "census", "w8a-124")
FIGURES = ("avd2", "avd3", "auc", "auc_mlp")
THEIR_NAMES = {"w8a-124": "w8a"}


@cache
def measured() -> pd.DataFrame:
    return pd.read_csv(HERE / "ours.csv")


@cache
def fed_wae() -> pd.DataFrame:
    """What the methods of fed_wae reach when all that a person sends is priced; rows
    drawn from the odds.
    """
    rows = pd.read_csv(HERE.parent / "fed_wae" / "ours.csv")
    return rows[
        (rows.settings == "{}") & (rows.draw == "sample") & rows.epsilon_run.notna()
    ]


def mean(values: pd.Series) -> str:
    values = values.dropna()
    if values.empty:
        return "–"
    half = (values.max() - values.min()) / 2
    return f"{values.mean():.3f}" + (f" ± {half:.3f}" if len(values) > 1 else "")


def ours(dataset: str, method: str = "one-report", rows: int = 2) -> pd.DataFrame:
    """Of people with so many rows each."""
    every = measured()
    return every[
        (every.dataset == dataset) & (every.method == method) & (every.rows == rows)
    ]


def others(dataset: str, epsilon: float) -> tuple[str, str]:
    """The least 2-way distance and the largest AUC of all other local methods at this
    total ε.
    """
    theirs = fed_wae()
    theirs = theirs[
        (theirs.dataset == THEIR_NAMES.get(dataset, dataset))
        & (theirs.epsilon_run == epsilon)
    ]
    here = measured()
    here = here[
        (here.dataset == dataset)
        & here.method.isin(["wake-sleep", "LoPub", "LoCop"])
        & (here.epsilon_total == epsilon)
    ]
    each = theirs.groupby(["method", "top"], dropna=False)  # DP-Fed-WAE at its best ξ
    far = [*each.avd2.mean(), *here.groupby("method").avd2.mean()]
    good = [
        *each.tstr_mlp_auc.mean(),
        *here.groupby("method")[["auc", "auc_mlp"]].mean().max(axis=1),
    ]
    return (f"{min(far):.3f}", f"{max(good):.3f}") if far else ("–", "–")


def worth(dataset: str, distance: float) -> str:
    """How many plain rows have this 2-way distance, between those that were
    measured.
    """
    every = measured()
    plain = every[(every.dataset == dataset) & every.method.str.fullmatch(r"\d+ rows")]
    if plain.empty:
        return "–"
    found = (
        plain.assign(many=plain.method.str.split().str[0].astype(int))
        .groupby("many")
        .avd2.mean()
    )
    if not found.min() <= distance <= found.max():
        return (
            f"> {found.index.max():,}"
            if distance < found.min()
            else f"< {found.index.min():,}"
        )
    at = np.interp(
        -np.log(distance), -np.log(found.to_numpy()), np.log(found.index.to_numpy())
    )
    return f"{float(f'{np.exp(at):.2g}'):,.0f}"


def main_table(datasets: tuple[str, ...]) -> str:
    lines = []
    for dataset in datasets:
        for epsilon, group in ours(dataset).groupby("epsilon_total"):
            figures = [mean(group[name]) for name in FIGURES]
            lines.append(
                [
                    dataset,
                    f"{group.people.max():,.0f}",
                    f"{epsilon:g}",
                    str(len(group)),
                    *figures,
                    worth(dataset, group.avd2.mean()),
                    *others(dataset, epsilon),
                    f"{(group.bytes / group.people).mean():.1f}",
                    f"{group.seconds.mean():.0f}",
                ]
            )
    heads = (
        "table",
        "people",
        "ε in all",
        "seeds",
        "2-way",
        "3-way",
        "AUC, boosting",
        "AUC, MLP",
        "worth in plain rows",
        "others: 2-way",
        "others: AUC",
        "bytes",
        "seconds",
    )
    return table(heads, lines)


TABLES = {"chosen": partial(main_table, CHOSEN_ON), "apart": partial(main_table, APART)}
