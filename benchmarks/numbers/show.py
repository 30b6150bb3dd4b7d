"""The tables of README.md, from ours.csv: `make tables NAME=numbers`."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from common.figures import bare
from common.markdown import once, table

HERE = Path(__file__).parent
ALL = "(all)"
METHODS = ("bought", "equal", "hand")
SHAPED = ("adult", "wine_quality", "credit_default")
SHAPED_LAWS = ("pareto", "heaped")
TARGET = {20_000: 0.02, 4_000: 0.08}  # of KS
# of the median's error, of a spike's share, and of the means' ratio
MIDDLE = 0.05
SPIKE = 0.02
MEAN = 1.25
GROUPS = {True: "shaped the rules", False: "apart"}


@cache
def rows() -> pd.DataFrame:
    found = pd.read_csv(HERE / "ours.csv")
    shaped = found["dataset"].isin(SHAPED) | (
        found["dataset"].eq("laws") & found["column"].isin(SHAPED_LAWS)
    )
    ratio = np.log(found["mean_ratio"].where(found["mean_ratio"] > 0, 0.001)).abs()
    return found.assign(
        shaped=shaped,
        near=found["ks"] <= found["people"].map(TARGET),
        middle=(found["median_error"] <= MIDDLE) | (found["median_cells"] <= 1),
        kept=(found["spike_error"] <= SPIKE) | found["spike_error"].isna(),
        mean=(ratio <= np.log(MEAN)) | found["mean_ratio"].isna(),
    )


def columns_of(**key: object) -> pd.DataFrame:
    found = rows()[rows()["column"] != ALL]
    for name, value in key.items():
        found = found[found[name] == value]
    return found


def share(flags: "pd.Series[bool]") -> str:
    return f"{int(flags.sum())} of {len(flags)}"


def columns() -> str:
    """ε = 1, bounds ten times too wide: what became of every column, with every
    seed.
    """
    lines = []
    for shaped, group in GROUPS.items():
        for people in TARGET:
            for method in METHODS:
                wide = 1 if method == "hand" else 10
                held = columns_of(
                    shaped=shaped,
                    people=people,
                    method=method,
                    widened=wide,
                    epsilon=1.0,
                )
                flags = (
                    share(held[name]) for name in ("near", "middle", "kept", "mean")
                )
                head = f"{group}, {people:,} people"
                lines.append(
                    (
                        head,
                        method,
                        bare(held["ks"].mean()),
                        bare(held["ks"].max()),
                        *flags,
                    )
                )
    heads = once(line[0] for line in lines)
    return table(
        (
            "columns",
            "method",
            "KS, mean",
            "worst",
            "KS as wanted",
            "median",
            "spikes",
            "mean",
        ),
        [(head, *line[1:]) for head, line in zip(heads, lines, strict=True)],
        "llr",
    )


def wider() -> str:
    """ε = 1: the same by how much too wide the bounds are."""
    lines = []
    for people in TARGET:
        for method in METHODS[:2]:
            each = [
                columns_of(people=people, method=method, widened=by, epsilon=1.0)
                for by in (1, 10, 1_000)
            ]
            found = [
                f"{bare(held['ks'].mean())}, {held['middle'].mean():.0%}"
                for held in each
            ]
            lines.append((f"{people:,}", method, *found))
    heads = once(line[0] for line in lines)
    head = ("people", "method", "as drafted", "10 times", "1,000 times")
    return table(
        head,
        [(head, *line[1:]) for head, line in zip(heads, lines, strict=True)],
        "rlr",
    )


def prices() -> str:
    """KS, mean over all columns, by ε."""
    lines = []
    for people in TARGET:
        for method in METHODS:
            wide = 1 if method == "hand" else 10
            each = [
                columns_of(people=people, method=method, widened=wide, epsilon=e)["ks"]
                for e in (0.2, 1.0, 4.0)
            ]
            lines.append((f"{people:,}", method, *(bare(held.mean()) for held in each)))
    heads = once(line[0] for line in lines)
    return table(
        ("people", "method", "ε = 0.2", "1", "4"),
        [(head, *line[1:]) for head, line in zip(heads, lines, strict=True)],
        "rlr",
    )


def tables() -> str:
    """ε = 1: what a classifier learns, and pairs in the bins made by hand."""
    whole = rows()[(rows()["column"] == ALL) & (rows()["epsilon"] == 1)]
    whole = whole[whole["widened"] == np.where(whole["method"] == "hand", 1, 10)]
    lines = []
    for (dataset, people), held in whole.groupby(["dataset", "people"], sort=False):
        means = held.groupby("method")[["tstr_auc", "avd2", "trtr_auc"]].mean()
        figures = [
            bare(means.loc[method, name])
            for name in ("tstr_auc", "avd2")
            for method in METHODS
        ]
        group = "laws" if dataset == "laws" else GROUPS[dataset in SHAPED]
        real = bare(means["trtr_auc"].mean())
        lines.append((f"{dataset}, {people:,}", group, *figures, real, *_parted(held)))
    names = (f"{what}, {m}" for what in ("AUC", "2-way") for m in METHODS)
    head = ("table, people", "", *names, "AUC, real", "AUC, bought − hand", "seeds")
    return table(head, sorted(lines), "llr")


def _parted(held: pd.DataFrame) -> tuple[str, str]:
    """What parts bought levels from bins made by hand, seed by seed: the mean AUC ± its
    standard error, and seeds.
    """
    seeds = held.pivot_table("tstr_auc", "seed", "method").dropna(
        subset=["bought", "hand"]
    )
    gap = seeds["bought"] - seeds["hand"]
    return f"{gap.mean():+.4f} ± {gap.sem():.4f}".replace("0.", "."), str(len(gap))


def tried() -> str:
    """Other shares and other numbers of levels: AUC beside bins made by hand, seed by
    seed, and the worst KS.
    """
    found = pd.read_csv(HERE / "tried.csv")
    wide = found.pivot_table("tstr_auc", ["dataset", "seed"], "tried")
    names = dict.fromkeys(found["dataset"])
    worst = found.groupby(["tried", "dataset"])["ks_worst"].max()
    lines = []
    for way in dict.fromkeys(found["tried"]):
        said = []
        for name in names:
            gap = (wide[way] - wide["hand"]).loc[name].dropna()
            error = f"{gap.mean():+.4f} ± {gap.sem():.4f}".replace("0.", ".")
            auc = error if way != "hand" else bare(wide[way].loc[name].mean(), 4)
            said.append(f"{auc}, {bare(worst[way, name])}")
        lines.append((way, *said))
    return table(("", *(str(name) for name in names)), lines, "lr")


def missed() -> str:
    """Which columns of 20,000 people are not as wanted, by KS, median or spikes: mean
    over seeds.
    """
    held = columns_of(people=20_000, method="bought", widened=10, epsilon=1.0)
    named = ["ks", "median_error", "median_cells", "spike_error", "mean_ratio"]
    means = held.groupby(["dataset", "column"])[named].mean().reset_index()
    off = (means["median_error"] > MIDDLE) & (means["median_cells"] > 1)
    odd = means[(means["ks"] > TARGET[20_000]) | (means["spike_error"] > SPIKE) | off]
    lines = [
        (
            row.dataset,
            row.column,
            *(
                "" if pd.isna(v) else f"{v:.3g}"
                for v in (getattr(row, n) for n in named)
            ),
        )
        for row in odd.itertuples()
    ]
    if not lines:
        return "None, by the mean over the seeds."
    return table(
        (
            "table",
            "column",
            "KS",
            "median's error",
            "in cells",
            "spikes' error",
            "mean over real",
        ),
        lines,
        "llr",
    )


def tails() -> str:
    """Every column of every draw, those that the reading was looked at on apart."""
    found = pd.read_csv(HERE / "tails.csv")
    drawn = np.where(found["seed"] < 20, "looked at", "other draws")
    found = found.assign(
        drawn=[
            f"{people:,}, {own}"
            for people, own in zip(found["people"], drawn, strict=True)
        ]
    )
    lines = []
    for key, held in found.groupby(
        ["drawn", "table", "holders", "bounds", "code"], sort=True
    ):
        flags = (
            share((held[name] - 1).abs() <= most)
            for name, most in (("p95", 0.1), ("p99", 0.25), ("mean", 0.1))
        )
        lines.append(
            (*map(str, key), bare(held["ks"].mean()), bare(held["ks"].max()), *flags)
        )
    heads = ("people, draws", "table", "holders", "bounds", "code", "KS, mean", "worst")
    return table(
        (*heads, "p95 within 10 %", "p99 within 25 %", "mean within 10 %"),
        lines,
        "lllllr",
    )


def oracle() -> str:
    """Shares of draws that are as wanted, of one who knows a law, or its form."""
    found = pd.read_csv(HERE / "oracle.csv")
    lines = [
        (one.column, one.knows, *(f"{own:.0%}" for own in (one.p95, one.p99, one.mean)))
        for one in found.itertuples()
    ]
    return table(
        (
            "column",
            "who knows",
            "p95 within 10 %",
            "p99 within 25 %",
            "mean within 10 %",
        ),
        lines,
        "llr",
    )


TABLES = {
    "columns": columns,
    "tried": tried,
    "wider": wider,
    "prices": prices,
    "tables": tables,
    "missed": missed,
    "tails": tails,
    "oracle": oracle,
}
