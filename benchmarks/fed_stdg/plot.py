"""Next-step error and MMD over ε from ours.csv, beside the paper's Table 5.3.

`python benchmarks/fed_stdg/plot.py` writes series.png (needs matplotlib) and prints the tables of the README.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd

HERE = Path(__file__).parent
EPSILONS = (0.5, 2.0, 8.0)
FREE = ("real", "central", "FL")
METHODS = ("SignDS-S", "SignDS-E", "SignDS-M", "SubMDS", "AdaSubMDS", "AdaSubMDS, once")


def tables(ours: pd.DataFrame, paper: pd.DataFrame) -> str:
    """A table a dataset: our error at each ε, the paper's in brackets, squared MMD and coverage."""
    parts = []
    for dataset, group in ours[ours.poison == ""].groupby("dataset", sort=False):
        said = paper[paper.dataset == dataset]
        free = "; ".join(f"{method} {_cell(group, said, method, None)}" for method in FREE)
        who = f"**{dataset}** ({group.people.max():,} people) — {free}"
        head = f"{who}\n\n| method | " + " | ".join(f"ε={epsilon:g}" for epsilon in EPSILONS)
        lines = [head + " | reports of the busiest |", "|" + "---|" * (len(EPSILONS) + 2)]
        for method in METHODS:
            cells = " | ".join(_cell(group, said, method, epsilon) for epsilon in EPSILONS)
            most = group[group.method == method].participations.max()
            lines.append(f"| {method} | {cells} | {most:g} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _cell(ours: pd.DataFrame, paper: pd.DataFrame, method: str, epsilon: float | None) -> str:
    got, said = (
        rows[(rows.method == method) & ((rows.epsilon_round == epsilon) if epsilon else True)]
        for rows in (ours, paper)
    )
    if not len(got):
        return "–"
    theirs = f" ({said.next_step_mae.mean():.3f})" if len(said) else ""
    return f"{got.next_step_mae.mean():.3f}{theirs} / {got.mmd.mean():.2f} / {got.coverage.mean():.2f}"


def liars(ours: pd.DataFrame) -> str:
    """Error with a fifth of liars."""
    rows = ours[ours.method.isin(["SubMDS", "FL"])].copy()
    rows["setting"] = rows.method + rows.epsilon_round.map(lambda e: f" ε={e:g}" if e else "")
    wide = rows.pivot_table("next_step_mae", ["dataset", "setting"], "poison", sort=False)
    wide = wide.reindex(columns=["", "random", "flip"]).dropna(subset=["random"])
    lines = ["| dataset | setting | honest | random | flip |", "|---|---|---|---|---|"]
    lines += [
        f"| {d} | {s} | " + " | ".join(f"{v:.3f}" for v in row) + " |"
        for (d, s), row in zip(wide.index, wide.values, strict=True)
    ]
    return "\n".join(lines)


def draw(ours: pd.DataFrame) -> None:
    honest = ours[ours.poison == ""]
    datasets = list(honest.dataset.unique())
    figure, axes = plt.subplots(
        2, len(datasets), figsize=(3.6 * len(datasets), 6), sharex=True, squeeze=False
    )
    colours = dict(zip(METHODS, plt.get_cmap("tab10").colors, strict=False))
    for column, dataset in enumerate(datasets):
        part = honest[honest.dataset == dataset]
        for axis, measure in zip(axes[:, column], ("next_step_mae", "mmd"), strict=True):
            for method in METHODS:
                means = part[part.method == method].groupby("epsilon_round")[measure].mean()
                axis.plot(means.index, means, marker="o", markersize=3, color=colours[method], label=method)
            for method, style in zip(FREE, (":", "-.", "--"), strict=True):
                level = part[part.method == method][measure].mean()
                axis.axhline(level, color="black", linestyle=style, linewidth=1, label=method)
            axis.set(xscale="log", ylim=(0, None))
            axis.grid(alpha=0.3)
        axes[0, column].set_title(dataset)
        axes[1, column].set_xlabel("ε of one report")
        axes[1, column].set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axes[1, column].minorticks_off()
    axes[0, 0].set_ylabel("next-step error")
    axes[1, 0].set_ylabel("squared MMD")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), ncols=9, fontsize=8, loc="lower center")
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(HERE / "series.png", dpi=110)


def main() -> None:
    ours, paper = pd.read_csv(HERE / "ours.csv"), pd.read_csv(HERE / "paper.csv")
    ours["poison"] = ours.poison.fillna("")
    print(tables(ours, paper), liars(ours), sep="\n\n")
    draw(ours)


if __name__ == "__main__":
    main()
