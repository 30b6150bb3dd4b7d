"""Distances and downstream AUC over ε from ours.csv.

`python benchmarks/fed_wae/plot.py` writes tables.png (needs matplotlib) and prints the tables of the README: the mean
over seeds and, after ±, half their range.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd

HERE = Path(__file__).parent
DATASETS = ("a9a", "adult", "w8a", "census")
TOP = 0.1  # the ξ of the main tables
ORDER = (
    "wake-sleep", "wake-sleep, once", "DP-Fed-WAE", "DP-Fed-WAE, once", "LoPub", "LoCop", "wake-sleep, non-private",
    "non-private", "central", "independent columns",
)  # fmt: skip
PRICED = ORDER[:6]
MODELS = ("mlp", "forest")


def mean(values: pd.Series) -> str:
    half = (values.max() - values.min()) / 2
    return f"{values.mean():.3f}" + (f" ± {half:.3f}" if len(values) > 1 else "")


def main_table(rows: pd.DataFrame, dataset: str) -> str:
    """Rows drawn from the odds of each column; DP-Fed-WAE at ξ = 0.1."""
    part = rows[(rows.dataset == dataset) & (rows.draw != "argmax") & rows.top.isin(["", TOP])]
    real = ", ".join(
        f"{model} {part[f'trtr_{model}_acc'].max():.3f} / {part[f'trtr_{model}_auc'].max():.3f}"
        for model in MODELS
    )
    people = part.people.max()
    lines = [
        f"**{dataset}** — {people:,.0f} people; real rows: {real}",
        "",
        "| method | ε of a report | ε of the run | seeds | 2-way | 4-way | CMD "
        "| MLP: accuracy | AUC | forest: accuracy | AUC |",
        "|---" * 11 + "|",
    ]
    for method in ORDER:
        for epsilon, group in part[part.method == method].groupby("epsilon", sort=False):
            prices = [f"{epsilon:g}", f"{group.epsilon_run.max():g}"] if epsilon != "" else ["–", "–"]
            figures = [mean(group[name]) for name in ("avd2", "avd4", "cmd")]
            figures += [mean(group[f"tstr_{model}_{score}"]) for model in MODELS for score in ("acc", "auc")]
            lines.append("| " + " | ".join([method, *prices, str(len(group)), *figures]) + " |")
    return "\n".join(lines)


def top_table(rows: pd.DataFrame) -> str:
    """What ξ and the way to draw change, seed 0: the 2-way distance, and the MLP's AUC."""
    part = rows[rows.method.isin(["DP-Fed-WAE", "DP-Fed-WAE, once"]) & (rows.seed == 0)]
    tops, draws = sorted(part.top.unique()), ("sample", "argmax")
    heads = [f"ξ={top:g}, {draw}" for top in tops for draw in draws]
    lines = [
        "| table | method | ε of a report | " + " | ".join(heads) + " |",
        "|---" * (3 + len(heads)) + "|",
    ]
    for dataset in DATASETS:
        for (method, epsilon), group in part[part.dataset == dataset].groupby(["method", "epsilon"]):
            found = {
                (row.top, row.draw): f"{row.avd2:.2f}, {row.tstr_mlp_auc:.2f}" for row in group.itertuples()
            }
            cells = [found.get((top, draw), "–") for top in tops for draw in draws]
            lines.append("| " + " | ".join([dataset, method, f"{epsilon:g}", *cells]) + " |")
    return "\n".join(lines)


def draw(rows: pd.DataFrame) -> None:
    part = rows[(rows.draw != "argmax") & rows.top.isin(["", TOP])]
    figure, axes = plt.subplots(2, len(DATASETS), figsize=(3.7 * len(DATASETS), 6), sharex=True)
    colours = dict(zip(PRICED, plt.get_cmap("tab10").colors, strict=False))
    for column, dataset in enumerate(DATASETS):
        here = part[part.dataset == dataset]
        for axis, measure in zip(axes[:, column], ("tstr_mlp_auc", "avd2"), strict=True):
            for method in PRICED:
                groups = here[here.method == method].astype({"epsilon": float}).groupby("epsilon")[measure]
                means = groups.mean()
                bars = [means - groups.min(), groups.max() - means]
                axis.errorbar(
                    means.index, means, yerr=bars, marker="o", markersize=3, capsize=2, label=method,
                    color=colours[method], linestyle="--" if "once" in method else "-",
                )  # fmt: skip
            free = {"central": ":", "independent columns": "-."}
            levels = {name: here[here.method == name][measure].mean() for name in free}
            for name, style in free.items():
                axis.axhline(levels[name], color="black", linestyle=style, linewidth=1, label=name)
            axis.set(xscale="log")
            axis.grid(alpha=0.3)
        axes[0, column].axhline(here.trtr_mlp_auc.max(), color="black", linewidth=1, label="real rows")
        axes[0, column].set_title(dataset)
        axes[1, column].set_xlabel("ε of one report")
        axes[1, column].set_xticks((0.5, 2, 8), ("0.5", "2", "8"))
        axes[1, column].minorticks_off()
    axes[0, 0].set_ylabel("AUC of an MLP, on real rows")
    axes[1, 0].set_ylabel("2-way distance")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), ncols=5, fontsize=8, loc="lower center")
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(HERE / "tables.png", dpi=110)


def main() -> None:
    rows = pd.read_csv(
        HERE / "ours.csv", keep_default_na=False, na_values={"epsilon_run": [""], "people": [""]}
    )
    rows = rows[rows.settings == "{}"]
    for name in ("epsilon", "top"):
        rows[name] = rows[name].map(lambda text: float(text) if text != "" else "")
    figures = [c for c in rows if c.startswith(("avd", "cmd", "tstr", "trtr", "people", "epsilon_run"))]
    rows[figures] = rows[figures].apply(pd.to_numeric, errors="coerce")
    print(*[main_table(rows, dataset) for dataset in DATASETS], top_table(rows), sep="\n\n")
    draw(rows)


if __name__ == "__main__":
    main()
