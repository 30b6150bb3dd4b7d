"""Next-step error and MMD over ε from ours.csv.

`python benchmarks/fed_stdg/plot.py` writes series.png (needs matplotlib).
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import pandas as pd

from common.options import command

HERE = Path(__file__).parent
EPSILONS = (0.5, 2.0, 8.0)
FREE = ("real", "central", "FL")
METHODS = ("SignDS-S", "SignDS-E", "SignDS-M", "SubMDS", "AdaSubMDS", "AdaSubMDS, once")


def draw(ours: pd.DataFrame) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    honest = ours[ours.poison == ""]
    datasets = list(honest.dataset.unique())
    figure, axes = plt.subplots(
        2, len(datasets), figsize=(3.6 * len(datasets), 6), sharex=True, squeeze=False
    )
    colours = dict(zip(METHODS, plt.get_cmap("tab10").colors, strict=False))
    for column, dataset in enumerate(datasets):
        part = honest[honest.dataset == dataset]
        for axis, measure in zip(
            axes[:, column], ("next_step_mae", "mmd"), strict=True
        ):
            for method in METHODS:
                means = (
                    part[part.method == method].groupby("epsilon_round")[measure].mean()
                )
                axis.plot(
                    means.index,
                    means,
                    marker="o",
                    markersize=3,
                    color=colours[method],
                    label=method,
                )
            for method, style in zip(FREE, (":", "-.", "--"), strict=True):
                level = part[part.method == method][measure].mean()
                axis.axhline(
                    level, color="black", linestyle=style, linewidth=1, label=method
                )
            axis.set(xscale="log", ylim=(0, None))
            axis.grid(alpha=0.3)
        axes[0, column].set_title(dataset)
        axes[1, column].set_xlabel("ε of one report")
        axes[1, column].set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axes[1, column].minorticks_off()
    axes[0, 0].set_ylabel("next-step error")
    axes[1, 0].set_ylabel("squared MMD")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), ncols=9, fontsize=8, loc="lower center"
    )
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(HERE / "series.png", dpi=110)


def parser() -> argparse.ArgumentParser:
    return command(__doc__)


def main() -> None:
    parser().parse_args()
    draw(pd.read_csv(HERE / "ours.csv").fillna({"poison": ""}))


if __name__ == "__main__":
    main()
