"""Figures from ours.csv: `python benchmarks/vertical/plot.py [ours.csv]` writes the
PNGs beside it (needs matplotlib).

joint.png     two-way distance within a party and across parties, over ε: what each
              method learns of the two
ablations.png four-way distance over rows, split, parties, upload and teachers
"""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import pandas as pd

from common.options import command

HERE = Path(__file__).parent
STUDIES = {
    "rows": "rows",
    "split": "share",
    "parties": "parties",
    "upload": "upload",
    "teachers": "teachers",
}
ORDER = (
    "VertiGAN",
    "VDGAN-DPSGD",
    "VDGAN-PATE",
    "DPLT",
    "DPLT+",
    "Gram",
    "central GAN",
)
ENDS = {"independent": ("grey", "--"), "bootstrap": ("black", ":")}
NAMES = {
    "rows": "people",
    "share": "the smaller party's share of the columns",
    "upload": "share of the gradient sent",
}


def pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def points(axis: Any, part: pd.DataFrame, x: str, y: str, **style: object) -> None:
    """The mean over seeds, with bars from the least to the largest."""
    stats = part.dropna(subset=[y]).groupby(x)[y].agg(["mean", "min", "max"])
    if len(stats):
        mean, low, high = (stats[end].to_numpy() for end in ("mean", "min", "max"))
        bars = [mean - low, high - mean]
        axis.errorbar(
            stats.index.to_numpy(),
            mean,
            yerr=bars,
            marker="o",
            markersize=4,
            capsize=2,
            **style,
        )


def joint(rows: pd.DataFrame, file: Path) -> None:
    """Within above, across below, a column for each table. Open marks on the right:
    without DP.
    """
    plt = pyplot()
    colours = dict(zip(ORDER, plt.get_cmap("tab10").colors, strict=False))
    main = rows[(rows.study == "main") & (rows.dataset != "toy")]
    tables = list(main.dataset.unique())
    right = 4 * float(main.epsilon.max())
    figure, axes = plt.subplots(
        2, len(tables), figsize=(3.4 * len(tables), 6), sharex=True, squeeze=False
    )
    for axis_pair, table in zip(axes.T, tables, strict=True):
        for axis, scope in zip(axis_pair, ("within", "cross"), strict=True):
            part = main[main.dataset == table]
            for method in ORDER:
                own = part[part.method == method]
                look = {"color": colours[method]}
                points(
                    axis,
                    own.dropna(subset=["epsilon"]),
                    "epsilon",
                    f"avd2_{scope}",
                    label=method,
                    **look,
                )
                free = own[own.epsilon.isna()].assign(epsilon=right)
                look = look | {"mfc": "none"}
                points(axis, free, "epsilon", f"avd2_{scope}", linestyle="none", **look)
            for end, (colour, line) in ENDS.items():
                value = part[part.method == end][f"avd2_{scope}"].mean()
                axis.axhline(
                    value, color=colour, linestyle=line, linewidth=1, label=end
                )
            axis.set(xscale="log", xlim=(0.4, 1.4 * right), ylim=(0, None))
            axis.grid(alpha=0.3)
        axis_pair[0].set_title(table)
        axis_pair[1].set_xticks([0.5, 2, 8, right], ["0.5", "2", "8", "no DP"])
        axis_pair[1].minorticks_off()
        axis_pair[1].set_xlabel("ε of each party")
    axes[0, 0].set_ylabel("2-way AVD within a party")
    axes[1, 0].set_ylabel("2-way AVD across parties")
    named = dict(
        pair
        for axis in axes[0]
        for pair in zip(*reversed(axis.get_legend_handles_labels()), strict=True)
    )
    figure.legend(named.values(), named, ncols=5, fontsize=8, loc="lower center")
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(file, dpi=110)


def ablations(rows: pd.DataFrame, file: Path) -> None:
    """A panel for each study; a line for each table, ε and kind of split."""
    plt = pyplot()
    studies = [study for study in STUDIES if (rows.study == study).any()]
    figure, axes = plt.subplots(
        1, len(studies), figsize=(3.6 * len(studies), 3.8), squeeze=False
    )
    for axis, study in zip(axes[0], studies, strict=True):
        part = rows[rows.study == study]
        for (table, epsilon, split), group in part.groupby(
            ["dataset", "epsilon", "split"]
        ):
            label = f"{table}, ε={epsilon:g}" + (
                f", {split}" if part.split.nunique() > 1 else ""
            )
            points(axis, group, STUDIES[study], "avd4", label=label)
        if study in ("rows", "parties", "teachers"):
            axis.set_xscale("log")
        values = sorted(part[STUDIES[study]].unique())
        axis.set_xticks(values, [f"{value:,g}" for value in values])
        axis.minorticks_off()
        axis.set(xlabel=NAMES.get(STUDIES[study], STUDIES[study]), ylim=(0, None))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=6)
    axes[0, 0].set_ylabel("4-way AVD")
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def parser() -> argparse.ArgumentParser:
    parser = command(__doc__)
    parser.add_argument("source", nargs="?", type=Path, default=HERE / "ours.csv")
    return parser


def main() -> None:
    source = parser().parse_args().source
    rows = pd.read_csv(source)
    joint(rows, source.with_name("joint.png"))
    if (rows.study != "main").any():
        ablations(rows, source.with_name("ablations.png"))


if __name__ == "__main__":
    main()
