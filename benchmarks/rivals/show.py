"""The tables of README.md and NOTES.md: losses first, then counts, then every cell."""

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from common.figures import bare
from common.markdown import once, table

Array = npt.NDArray[np.float64]
HERE = Path(__file__).parent
OURS = ("one holder", "two of columns", "three of rows")
COUNTED = ("one holder", "one holder, people public", "two of columns", "three of rows")
SHOWN = (*COUNTED, "one holder, no target", "two of columns, no target")
LARGEST = 24  # losses that the first page shows
# name, digits, whether more is better, how much better is not yet a difference
FIGURES = {
    "avd1": ("1-way", 3, False, 0.0),
    "avd2": ("2-way", 3, False, 0.0),
    "avd3": ("3-way", 3, False, 0.0),
    "boosting_auc": ("AUC", 3, True, 0.002),
    "boosting_f1": ("F1", 3, True, 0.002),
    "boosting_brier": ("Brier", 3, False, 0.002),
    "linear_auc": ("AUC, logistic", 3, True, 0.002),
    "linear_f1": ("F1, logistic", 3, True, 0.002),
    "linear_brier": ("Brier, logistic", 3, False, 0.002),
    "impossible": ("impossible rows", 3, False, 0.002),
    "ks": ("KS", 3, False, 0.0),
}
SAID = (
    "avd2",
    "avd3",
    "boosting_auc",
    "boosting_f1",
    "boosting_brier",
    "linear_auc",
    "impossible",
    "ks",
)
# of losses; the others stand in NOTES.md
FIRST = ("avd2", "avd3", "boosting_auc", "boosting_f1")
KEY = ["dataset", "epsilon"]


@cache
def rows() -> pd.DataFrame:
    """Every cell; ours with the target named is told by its holding, a rival by its
    name, and by its noise.
    """
    found = pd.read_csv(HERE / "rivals.csv", keep_default_na=True)
    found["who"] = found.method.where(
        found.noise != "equal", found.method + ", equal noise"
    )
    told = found.method == "Gram+target"
    found.loc[told, "who"] = found.holding[told]
    found.loc[found.method == "Gram", "who"] = found.holding + ", no target"
    found.loc[found.method == "Gram+target+people", "who"] = (
        found.holding + ", people public"
    )
    found.loc[found.method == "Gram+target+threes", "who"] = (
        found.holding + ", threes searched"
    )
    return found


@cache
def rivals() -> list[str]:
    return [
        who
        for who in dict.fromkeys(rows().who)
        if not who.startswith(OURS) and who not in ("real", "independent")
    ]


def head(who: str) -> str:
    return f"ours, {who}" if who.startswith(OURS) else who


@cache
def wide(figure: str) -> pd.DataFrame:
    """A line for each table, ε and seed, a column for each method."""
    done = rows()[rows().outcome == "ok"]
    return done[done.epsilon.notna()].pivot_table(
        figure, [*KEY, "seed"], "who", sort=False
    )


def ahead(figure: str, ours: str, theirs: str) -> Array:
    """By how much ours is better, in every cell that both have; below 0 where the rival
    is.
    """
    every = wide(figure)
    if ours not in every or theirs not in every:
        return np.zeros(0)
    gap = every[ours].to_numpy() - every[theirs].to_numpy()
    gap = gap[~np.isnan(gap)]
    return gap if FIGURES[figure][2] else -gap


def counts(*, every: bool = False) -> str:
    """In how many cells a rival is better, of those that both have; by its own
    accounting, people unknown, or all.
    """
    lines = []
    for ours in COUNTED if every else OURS:
        for theirs in (
            who for who in rivals() if every or not who.endswith("equal noise")
        ):
            cells = []
            for figure in SAID:
                gap = ahead(figure, ours, theirs)
                cells.append(
                    f"{int((gap < -FIGURES[figure][3]).sum())}/{len(gap)}"
                    if len(gap)
                    else "–"
                )
            if any(cell != "–" for cell in cells):
                lines.append([head(ours), theirs, *cells])
    names = once(line[0] for line in lines)
    body = [[name, *line[1:]] for name, line in zip(names, lines, strict=True)]
    return table(
        ("ours, target named", "lost to", *(FIGURES[figure][0] for figure in SAID)),
        body,
        "llr",
    )


def losses(figures: tuple[str, ...] = FIRST, most: int | None = None) -> str:
    """Where the best rival is better than one of ours, the largest difference first;
    the first seed.
    """
    lines = []
    for figure in figures:
        name, digits, more, least = FIGURES[figure]
        first = wide(figure).xs(0, level="seed")
        others = first[
            [
                who
                for who in rivals()
                if who in first and not who.endswith("equal noise")
            ]
        ]
        mine = first.reindex(columns=OURS).to_numpy()
        for key, line, ours in zip(others.index, others.to_numpy(), mine, strict=True):
            if np.isnan(line).all():
                continue
            best = np.nanargmax(line) if more else np.nanargmin(line)
            gap = np.nanmax(
                [*(line[best] - ours if more else ours - line[best]), -np.inf]
            )
            if gap > least:
                said = [
                    "" if np.isnan(value) else bare(value, digits)
                    for value in (*ours, line[best])
                ]
                lines.append(
                    (
                        gap,
                        [
                            str(key[0]),
                            f"{key[1]:g}",
                            name,
                            *said,
                            str(others.columns[best]),
                        ],
                    )
                )
    ordered = [line for _, line in sorted(lines, key=lambda pair: -pair[0])]
    heads = ("table", "ε", "figure", *map(head, OURS), "best rival", "which")
    return table(heads, ordered[:most], "lrlrrrrl")


def cells() -> str:
    """2-way distance and AUC of every cell of the first seed."""
    found = rows()[rows().epsilon.notna() & (rows().seed == 0)]
    lines = []
    heads = [who for who in (*SHOWN, *rivals()) if (found.who == who).any()]
    cell = [*KEY, "who"]
    first = found.drop_duplicates(cell).set_index(cell).outcome.astype(str)
    said = first.str.partition(":")[0].to_dict()
    done = found[found.outcome == "ok"].groupby(cell)[["avd2", "boosting_auc"]].mean()
    said |= {key: f"{bare(avd2)} / {bare(auc)}" for key, avd2, auc in done.itertuples()}
    for table_, epsilon in found.drop_duplicates(KEY)[KEY].itertuples(index=False):
        lines.append(
            [
                table_,
                f"{epsilon:g}",
                *(said.get((table_, epsilon, who), "") for who in heads),
            ]
        )
    return table(("table", "ε", *map(head, heads)), lines, "lr")


def costs() -> str:
    """CPU seconds and memory of those that ended, and how many did not within their
    limit.
    """
    lines = []
    found = rows()[rows().epsilon.notna()]
    for who, part in found.groupby("who", sort=False):
        done = part[part.outcome == "ok"]
        over = part.outcome.str.startswith("over")
        lines.append(
            [
                head(str(who)),
                str(len(part)),
                f"{done.seconds.median():.1f}",
                f"{done.seconds.max():,.0f}",
                f"{done.peak_mb.max():,.0f}",
                str(int(over.sum())),
            ]
        )
    heads = (
        "method",
        "cells",
        "CPU seconds, median",
        "most",
        "MB, most",
        "over the limit",
    )
    return table(heads, lines, "lr")


TABLES = {
    "losses": lambda: losses(most=LARGEST),
    "all losses": losses,
    "more losses": lambda: losses(SAID[len(FIRST) :]),
    "counts": counts,
    "all counts": lambda: counts(every=True),
    "cells": cells,
    "costs": costs,
}
