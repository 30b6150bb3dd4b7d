"""Accuracy over ε from ours.csv: `python benchmarks/sign_ds/plot.py` writes
accuracy.png (needs matplotlib).
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import pandas as pd

from common.options import command

HERE = Path(__file__).parent


def draw() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = pd.read_csv(HERE / "ours.csv")
    tuned = pd.read_csv(HERE / "gamma.csv")
    plain = tuned[tuned.method == "non-private"]
    best = plain.groupby(plain.dataset + " (" + plain.model + ")").accuracy.max()
    rows["task"] = rows.dataset + " (" + rows.model + ")"
    tasks = [
        task
        for task in rows.task.unique()
        if rows[rows.task == task].epsilon_round.nunique() > 1
    ]
    figure, axes = plt.subplots(
        1, len(tasks), figsize=(4.4 * len(tasks), 4.2), sharey=True
    )
    methods = [method for method in rows.method.unique() if method != "non-private"]
    colours = dict(zip(methods, plt.get_cmap("tab10").colors, strict=True))
    for axis, task in zip(axes, tasks, strict=True):
        part = rows[rows.task == task]
        for method, group in part.groupby("method", sort=False):
            if method == "non-private":
                axis.axhline(
                    group.accuracy.mean(),
                    color="black",
                    linestyle="--",
                    label="non-private",
                )
                continue
            stats = group.groupby("epsilon_round").accuracy.agg(["mean", "min", "max"])
            if len(stats) < 2:
                continue
            spread = [
                (stats["mean"] - stats["min"]).clip(0),
                (stats["max"] - stats["mean"]).clip(0),
            ]
            style = {
                "color": colours[method],
                "marker": "o",
                "markersize": 3,
                "capsize": 2,
            }
            axis.errorbar(
                stats.index, stats["mean"], yerr=spread, label=method, **style
            )
        if task in best:
            axis.axhline(
                best[task], color="black", linestyle=":", label="non-private, best γ"
            )
        axis.set(xscale="log", xlabel="ε of one report", title=task, ylim=(0, 1))
        axis.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy on held-out rows")
    figure.legend(
        *axes[0].get_legend_handles_labels(), ncols=6, fontsize=8, loc="lower center"
    )
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(HERE / "accuracy.png", dpi=110)


def parser() -> argparse.ArgumentParser:
    return command(__doc__)


def main() -> None:
    parser().parse_args()
    draw()


if __name__ == "__main__":
    main()
