"""The tables of README.md and NOTES.md that compare cell by cell; the others are
declared in tables.toml.
"""

from functools import cache
from pathlib import Path

import pandas as pd

from common.figures import bare
from common.markdown import once, table

HERE = Path(__file__).parent
FIGURES = {
    "avd2": "2-way",
    "avd2_within": "within",
    "avd2_cross": "across",
    "avd3": "3-way",
    "tstr_boosting_f1": "F1",
    "tstr_boosting_auc": "AUC",
}
EQUAL = {"avd2": "2-way", "tstr_boosting_auc": "AUC", "tstr_boosting_f1": "F1"}
BESIDE = {
    "Gram+target": "two holders",
    "one holder": "one holder",
    "AIM-equal": "AIM",
    "MST-equal": "MST",
}
CUTS = tuple(
    f"{name}@{people}"
    for name in ("credit", "randhie")
    for people in (4000, 2000, 1000)
)
TOLD = ("bank", "credit", "diabetes")  # on which it was chosen how a target is drawn
WIDE = ("census", "a9a", "w8a-124", "har")
# at most 30 columns
SMALL = ("adult_pgm", "adult", "bank", "credit", "diabetes", "randhie")
NAMES = {
    "Gram": "**Gram**, two holders",
    "Gram+target": "**Gram**, target named",
    "MST": "*central* MST",
    "AIM": "*central* AIM",
}


def rivals() -> str:
    """In how many cells (table and ε, seed 0) Gram, target named or not, is better than
    each central method.
    """
    rows = pd.read_csv(HERE / "ours.csv").query(
        "partition == 'columns' and holders == 2 and seed == 0 and epsilon > 0"
    )
    wide = rows.pivot_table(list(FIGURES), ["dataset", "epsilon"], "method")

    def won(method: str, rival: str, figure: str) -> str:
        sign = -1 if "avd" in figure else 1
        return (
            f"{int((sign * wide[figure][method] > sign * wide[figure][rival]).sum())} "
            f"of {len(wide)}"
        )

    lines = [
        [
            NAMES[method],
            NAMES[rival],
            *(won(method, rival, figure) for figure in FIGURES),
        ]
        for rival in ("MST", "AIM")
        for method in ("Gram", "Gram+target")
    ]
    return table(("method", "beside", *FIGURES.values()), lines, "llr")


@cache
def at_equal_noise() -> pd.DataFrame:
    """Means over seeds by table, ε and method; Gram with all rows at one holder is a
    method of its own.
    """
    rows = pd.read_csv(HERE / "equal.csv")
    rows.loc[rows.partition == "rows", "method"] = "one holder"
    return (
        rows.groupby(["dataset", "epsilon", "method"], sort=False)[list(EQUAL)]
        .mean()
        .unstack()
    )


def equal_won() -> str:
    """In how many cells Gram is at least as good: 2-way no farther; AUC and F1 no
    lower, but for .002.
    """
    wide = at_equal_noise()
    lines = []
    apart = tuple(name for name in SMALL if name not in TOLD)
    for label, names in (
        ("whole", SMALL),
        (", ".join(TOLD), TOLD),
        (", ".join(apart), apart),
        ("4,000, 2,000 and 1,000 people", CUTS),
    ):
        part = wide[[name in names for name, _ in wide.index]]
        for ours in list(BESIDE)[:2]:
            for theirs in list(BESIDE)[2:]:
                counts = []
                for figure in EQUAL:
                    both = part[figure][[ours, theirs]].dropna()
                    ahead = both[ours] - both[theirs]
                    good = ahead <= 0 if figure == "avd2" else ahead >= -0.002
                    counts.append(f"{int(good.sum())} of {len(both)}")
                lines.append([label, BESIDE[ours], BESIDE[theirs], *counts])
    return table(
        ("tables", "Gram, target named", "central", *EQUAL.values()), lines, "lllr"
    )


def told() -> str:
    """What a target that is drawn by its row's other columns changes, beside one that
    its component draws.
    """
    rows = pd.read_csv(HERE / "told.csv")
    apart = tuple(name for name in SMALL if name not in TOLD)
    lines = []
    for names, label in (
        (TOLD, ", ".join(TOLD)),
        (apart, ", ".join(apart)),
        (CUTS, "4,000 people and fewer"),
        (WIDE, ", ".join(WIDE)),
    ):
        for holders, part in rows[rows.dataset.isin(names)].groupby("holders"):
            cells = [str(len(part))]
            for figure in EQUAL:
                after = part[figure]
                before = part[f"{figure}_component"]
                apart_by = after / before - 1 if figure == "avd2" else after - before
                sure = apart_by.sem()
                many = 1 if figure == "avd2" else 4
                scale, unit = (100, " %") if figure == "avd2" else (1, "")
                cells.append(
                    f"{scale * apart_by.mean():+.{many}f}{unit} ± "
                    f"{scale * sure:.{many}f}{unit}"
                )
            lines.append([label, "one" if holders == 1 else "two", *cells])
    return table(("tables", "holders", "cells", *EQUAL.values()), lines, "llr")


def across() -> str:
    """Three-way tables across two holders: what parts them from those within one, seed
    by seed, ± standard error.
    """
    rows = pd.read_csv(HERE / "across.csv")
    lines = []
    figures = {"auc": "AUC", "f1": "F1", "avd2": "2-way"}
    ways = {"paired": "either holder's two", "any": "any two"}
    wide = rows.pivot_table(
        list(figures), ["dataset", "epsilon", "seed"], "method", sort=False
    ).dropna()
    for key, part in wide.groupby(["dataset", "epsilon"], sort=False):
        said = []
        for figure in figures:
            said.append(bare(part[figure, "held"].mean(), 4))
            gaps = [part[figure, way] - part[figure, "held"] for way in ways]
            said += [
                f"{gap.mean():+.4f} ± {gap.sem():.4f}".replace("0.", ".")
                for gap in gaps
            ]
        lines.append([str(key[0]), f"{key[1]:g}", str(len(part)), *said])
    names = once(line[0] for line in lines)
    heads = (
        f"{figure}: {way}"
        for figure in figures.values()
        for way in ("its holder's two", *ways.values())
    )
    body = [[name, *line[1:]] for name, line in zip(names, lines, strict=True)]
    return table(("table", "ε", "seeds", *heads), body, "lr")


TABLES = {"rivals": rivals, "equal won": equal_won, "told": told, "across": across}
