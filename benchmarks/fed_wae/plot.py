"""Distances and downstream AUC over ε from ours.csv.

`python benchmarks/fed_wae/plot.py` writes tables.png (needs matplotlib).
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import pandas as pd

from common.options import command

HERE = Path(__file__).parent
DATASETS = ("a9a", "adult", "w8a", "census")
TOP = 0.1  # the ξ of the main tables
PRICED = (
    "wake-sleep",
    "wake-sleep, once",
    "DP-Fed-WAE",
    "DP-Fed-WAE, once",
    "LoPub",
    "LoCop",
)


def measured() -> pd.DataFrame:
    """The rows at default settings. ε and ξ are numbers, or empty."""
    rows = pd.read_csv(
        HERE / "ours.csv",
        keep_default_na=False,
        na_values={"epsilon_run": [""], "people": [""]},
    )
    rows = rows[rows.settings == "{}"].copy()
    for name in ("epsilon", "top"):
        rows[name] = rows[name].map(lambda text: float(text) if text != "" else "")
    figures = [
        c
        for c in rows
        if c.startswith(("avd", "cmd", "tstr", "trtr", "people", "epsilon_run"))
    ]
    rows[figures] = rows[figures].apply(pd.to_numeric, errors="coerce")
    return rows


def draw(rows: pd.DataFrame) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    part = rows[(rows.draw != "argmax") & rows.top.isin(["", TOP])]
    figure, axes = plt.subplots(
        2, len(DATASETS), figsize=(3.7 * len(DATASETS), 6), sharex=True
    )
    colours = dict(zip(PRICED, plt.get_cmap("tab10").colors, strict=False))
    for column, dataset in enumerate(DATASETS):
        here = part[part.dataset == dataset]
        for axis, measure in zip(
            axes[:, column], ("tstr_mlp_auc", "avd2"), strict=True
        ):
            for method in PRICED:
                groups = (
                    here[here.method == method]
                    .astype({"epsilon": float})
                    .groupby("epsilon")[measure]
                )
                means = groups.mean()
                bars = [means - groups.min(), groups.max() - means]
                axis.errorbar(
                    means.index,
                    means,
                    yerr=bars,
                    marker="o",
                    markersize=3,
                    capsize=2,
                    label=method,
                    color=colours[method],
                    linestyle="--" if "once" in method else "-",
                )
            free = {"central": ":", "independent columns": "-."}
            levels = {name: here[here.method == name][measure].mean() for name in free}
            for name, style in free.items():
                axis.axhline(
                    levels[name],
                    color="black",
                    linestyle=style,
                    linewidth=1,
                    label=name,
                )
            axis.set(xscale="log")
            axis.grid(alpha=0.3)
        axes[0, column].axhline(
            here.trtr_mlp_auc.max(), color="black", linewidth=1, label="real rows"
        )
        axes[0, column].set_title(dataset)
        axes[1, column].set_xlabel("ε of one report")
        axes[1, column].set_xticks((0.5, 2, 8), ("0.5", "2", "8"))
        axes[1, column].minorticks_off()
    axes[0, 0].set_ylabel("AUC of an MLP, on real rows")
    axes[1, 0].set_ylabel("2-way distance")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), ncols=5, fontsize=8, loc="lower center"
    )
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(HERE / "tables.png", dpi=110)


def parser() -> argparse.ArgumentParser:
    return command(__doc__)


def main() -> None:
    parser().parse_args()
    draw(measured())


if __name__ == "__main__":
    main()
