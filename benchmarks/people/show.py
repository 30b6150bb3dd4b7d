"""The tables of README.md, from the CSV files here and fed_wae's ours.csv: `make tables NAME=people`.

The mean over seeds and, after ±, half their range.
"""

from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from common.markdown import table

HERE = Path(__file__).parent
CHOSEN_ON, APART = ("adult", "a9a"), ("credit", "census", "w8a-124")
FIGURES = ("avd2", "avd3", "auc", "auc_mlp")
THEIR_NAMES = {"w8a-124": "w8a"}


@cache
def measured() -> pd.DataFrame:
    return pd.read_csv(HERE / "ours.csv")


@cache
def fed_wae() -> pd.DataFrame:
    """What the methods of fed_wae reach when all that a person sends is priced; rows drawn from the odds."""
    rows = pd.read_csv(HERE.parent / "fed_wae" / "ours.csv")
    return rows[(rows.settings == "{}") & (rows.draw == "sample") & rows.epsilon_run.notna()]


def mean(values: pd.Series) -> str:
    values = values.dropna()
    if values.empty:
        return "–"
    half = (values.max() - values.min()) / 2
    return f"{values.mean():.3f}" + (f" ± {half:.3f}" if len(values) > 1 else "")


def ours(dataset: str, method: str = "one-report", rows: int = 2) -> pd.DataFrame:
    """Of people with so many rows each."""
    every = measured()
    return every[(every.dataset == dataset) & (every.method == method) & (every.rows == rows)]


def others(dataset: str, epsilon: float) -> tuple[str, str]:
    """The least 2-way distance and the largest AUC of all other local methods at this total ε."""
    theirs = fed_wae()
    theirs = theirs[(theirs.dataset == THEIR_NAMES.get(dataset, dataset)) & (theirs.epsilon_run == epsilon)]
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
    """How many plain rows have this 2-way distance, between those that were measured."""
    every = measured()
    plain = every[(every.dataset == dataset) & every.method.str.fullmatch(r"\d+ rows")]
    if plain.empty:
        return "–"
    found = plain.assign(many=plain.method.str.split().str[0].astype(int)).groupby("many").avd2.mean()
    if not found.min() <= distance <= found.max():
        return f"> {found.index.max():,}" if distance < found.min() else f"< {found.index.min():,}"
    at = np.interp(-np.log(distance), -np.log(found.to_numpy()), np.log(found.index.to_numpy()))
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
        "table", "people", "ε in all", "seeds", "2-way", "3-way", "AUC, boosting", "AUC, MLP", "worth in plain rows",
        "others: 2-way", "others: AUC", "bytes", "seconds",
    )  # fmt: skip
    return table(heads, lines)


def single_rows() -> str:
    """People with one row each, of whom there are twice as many in a table."""
    lines = [
        [
            dataset,
            f"{group.people.max():,.0f}",
            f"{epsilon:g}",
            str(len(group)),
            *(mean(group[name]) for name in FIGURES),
            worth(dataset, group.avd2.mean()),
        ]
        for dataset in (*CHOSEN_ON, *APART)
        for epsilon, group in ours(dataset, rows=1).groupby("epsilon_total")
    ]
    heads = ("table", "people", "ε in all", "seeds", "2-way", "3-way", "AUC, boosting", "AUC, MLP")
    return table((*heads, "worth in plain rows"), lines)


def untargeted() -> str:
    """Without a target, beside people who are all asked about single columns."""
    lines = []
    for dataset in (*CHOSEN_ON, *APART):
        for epsilon, group in ours(dataset, "one-report, no target").groupby("epsilon_total"):
            single = ours(dataset, "one-report, single columns")
            single = single[single.epsilon_total == epsilon]
            lines.append(
                [
                    dataset,
                    f"{epsilon:g}",
                    mean(group.avd2),
                    mean(single.avd2),
                    mean(group.avd3),
                    mean(group.auc),
                ]
            )
    return table(
        ("table", "ε in all", "2-way", "single columns alone: 2-way", "3-way", "AUC, boosting"), lines
    )


def references() -> str:
    """Without privacy."""
    every = measured()
    lines = [
        [dataset, method, *(mean(group[name]) for name in FIGURES)]
        for dataset in (*CHOSEN_ON, *APART)
        for method in ("independent columns", "bootstrap")
        if len(group := every[(every.dataset == dataset) & (every.method == method)])
    ]
    return table(("table", "rows", "2-way", "3-way", "AUC, boosting", "AUC, MLP"), lines)


def liars() -> str:
    rows = pd.read_csv(HERE / "liars.csv")
    lines = [
        [
            f"{epsilon:g}",
            "–" if share == 0 else str(kind),
            f"{share:.0%}",
            f"{expected:.0%}",
            mean(group.avd2),
            mean(group.auc),
            f"{group.voted.mean():.3f} ({group.real.mean():.3f})",
        ]
        for (epsilon, kind, share, expected), group in rows.groupby(
            ["epsilon_total", "kind", "share", "expected"]
        )
    ]
    return table(
        ("ε in all", "liars say", "share", "expected", "2-way", "AUC, boosting", "voted cell (real rows)"),
        lines,
    )


def classifiers() -> str:
    """How often a classifier is right about held-out people: of the same total ε, by whom a person has to trust."""
    rows = pd.read_csv(HERE / "classifiers.csv")
    lines = []
    for dataset, every in rows.groupby("dataset", sort=False):
        every = every.sort_values(["trust", "method"])
        for (trust, method), group in every.groupby(["trust", "method"], sort=False):
            cells = [mean(group[group.epsilon_total == epsilon].accuracy) for epsilon in (1, 2, 4, 8)]
            if method == "real rows":
                cells = [mean(group.accuracy)] * 4
            lines.append([str(dataset), f"{group.people.max():,}", str(trust), str(method), *cells])
    heads = ("rows", "people", "who is trusted", "method", "ε = 1", "ε = 2", "ε = 4", "ε = 8")
    return table(heads, lines)


def means() -> str:
    """Class means by local reports: the error beside the distance that is to be told, and what a rule makes of it."""
    rows, reached = pd.read_csv(HERE / "moments.csv"), pd.read_csv(HERE / "classifiers.csv")
    rows = rows[rows.method == "class means"]

    def beside(dataset: str, method: str, epsilon: float) -> str:
        same = (reached.dataset == dataset) & (reached.method == method) & (reached.epsilon_total == epsilon)
        return mean(reached[same].accuracy)

    lines = [
        [
            dataset,
            f"{group.people.max():,}",
            f"{epsilon:g}",
            f"{group.expected.mean():.2f}",
            f"{group.error.mean():.2f}",
            f"{group.apart.mean():.2f}",
            mean(group.accuracy),
            mean(group.exact),
            beside(dataset, "one-report", epsilon),
        ]
        for (dataset, epsilon), group in rows.groupby(["dataset", "epsilon_total"])
    ]
    heads = (
        "rows", "people", "ε in all", "error by formula", "error", "classes lie apart", "accuracy", "without privacy",
        "one-report",
    )  # fmt: skip
    return table(heads, lines)


def shares() -> str:
    """Moments by two shares of each person, beside tables of the same rows, and moments of a holder of all of them."""
    rows, reached = pd.read_csv(HERE / "moments.csv"), pd.read_csv(HERE / "classifiers.csv")
    names = {
        "two-aggregators": "tables, `two-aggregators`",
        "shared-moments": "`shared-moments`",
        "shared-moments, by class": "`shared-moments`, by class",
        "two groups": "moments in two groups (simulated)",
        "moments": "for comparison: `moments` of one holder",
    }
    every = pd.concat([rows, reached])
    lines = [
        [str(dataset), name, f"{group.bytes.max() / 1000:.1f}" if group.bytes.notna().any() else "–"]
        + [mean(group[group.epsilon_total == epsilon].accuracy) for epsilon in (1, 2, 4, 8)]
        for dataset in sorted(set(rows.dataset))
        for method, name in names.items()
        if len(group := every[(every.dataset == dataset) & (every.method == method)])
    ]
    return table(("rows", "method", "upload, kB", "ε = 1", "ε = 2", "ε = 4", "ε = 8"), lines)


TABLES = {
    "means": means,
    "shares": shares,
    "classifiers": classifiers,
    "chosen": partial(main_table, CHOSEN_ON),
    "apart": partial(main_table, APART),
    "single-rows": single_rows,
    "untargeted": untargeted,
    "references": references,
    "liars": liars,
}
