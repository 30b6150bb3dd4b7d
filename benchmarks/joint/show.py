"""The tables of README.md from ours.csv and twice.csv: `python benchmarks/joint/show.py` prints them."""

from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
METHODS = [
    "Gram", "Gram+target", "MST", "AIM", "DPLT", "VertiGAN", "VertiGAN+gram", "VDGAN-DPSGD", "bootstrap", "independent",
]  # fmt: skip
NAMES = {
    "Gram": "**Gram**, two holders", "Gram+target": "**Gram**, target named", "MST": "*central* MST",
    "AIM": "*central* AIM",
}  # fmt: skip
WAYS = [
    ("none", 0.0), ("m strongest", 0.5), ("2m strongest", 0.5), ("target", 0.05), ("target", 0.2), ("target", 0.5),
]  # fmt: skip
FIGURES = {
    "avd2": "2-way", "avd2_within": "within", "avd2_cross": "across", "avd3": "3-way", "tstr_boosting_f1": "F1",
    "tstr_boosting_auc": "AUC",
}  # fmt: skip


def beside(rows: pd.DataFrame, epsilon: float) -> str:
    """Every method over two holders of columns at one ε, and the two ends of the scale; seed 0."""
    part = rows[(rows.partition == "columns") & (rows.holders == 2) & (rows.seed == 0)]
    part = part[(part.epsilon == epsilon) | part.epsilon.isna()]
    lines = [
        "| table | method | " + " | ".join(FIGURES.values()) + " | MB up, each |",
        "|---|---|" + "---:|" * (len(FIGURES) + 1),
    ]
    for dataset, group in part.groupby("dataset", sort=False):
        first = f"{dataset} ({group['columns'].iloc[0]} columns, {group.people.iloc[0]:,} people)"
        found = group.set_index("method")
        for method in [m for m in METHODS if m in found.index]:
            row = found.loc[method]
            figures = [f"{row[name]:.4f}" if "avd" in name else f"{row[name]:.3f}" for name in FIGURES]
            sent = f"{row.up_mb:,.0f}" if pd.notna(row.up_mb) else "–"
            lines.append("| " + " | ".join([first, NAMES.get(method, method), *figures, sent]) + " |")
            first = ""
    return "\n".join(lines)


def over(rows: pd.DataFrame, figure: str) -> str:
    """Gram over partitions, holders and ε; seed 0."""
    part = rows[(rows.method == "Gram") & (rows.seed == 0)]
    prices = sorted(part.epsilon.unique())
    wide = part.pivot_table(figure, ["dataset", "partition", "holders"], "epsilon", sort=False)
    lines = [
        "| table | partition | holders | " + " | ".join(f"ε={price:g}" for price in prices) + " |",
        "|---|---|---|" + "---:|" * len(prices),
    ]
    last = ""
    for (dataset, partition, holders), row in wide.sort_index().iterrows():
        cells = [f"{row[price]:.4f}" if pd.notna(row[price]) else "–" for price in prices]
        lines.append(
            f"| {dataset if dataset != last else ''} | {partition} | {holders} | " + " | ".join(cells) + " |"
        )
        last = dataset
    return "\n".join(lines)


def prices(rows: pd.DataFrame) -> str:
    """Every private method over two holders of columns at every ε: 2-way distance, then AUC; seed 0."""
    part = rows[(rows.partition == "columns") & (rows.holders == 2) & (rows.seed == 0) & rows.epsilon.notna()]
    every = sorted(part.epsilon.unique())
    lines = [
        "| table | method | " + " | ".join(f"2-way, ε={e:g}" for e in every) + " | "
        + " | ".join(f"AUC, ε={e:g}" for e in every) + " |",
        "|---|---|" + "---:|" * (2 * len(every)),
    ]  # fmt: skip
    for dataset, group in part.groupby("dataset", sort=False):
        first = str(dataset)
        for method in [m for m in METHODS if (group.method == m).any()]:
            found = group[group.method == method].set_index("epsilon")
            cells = [
                f"{found.loc[e, figure]:{form}}" if e in found.index else "–"
                for figure, form in (("avd2", ".4f"), ("tstr_boosting_auc", ".3f"))
                for e in every
            ]
            lines.append("| " + " | ".join([first, NAMES.get(method, method), *cells]) + " |")
            first = ""
    return "\n".join(lines)


def seeds(rows: pd.DataFrame) -> str:
    """Gram over two holders beside central MST at ε=1 where several seeds were run: means, ± half the range."""
    part = rows[(rows.partition == "columns") & (rows.holders == 2) & (rows.epsilon == 1)]
    part = part[part.method.isin(["Gram", "Gram+target", "MST"])]
    lines = [
        "| table | method | seeds | " + " | ".join(FIGURES.values()) + " |",
        "|---|---|---|" + "---:|" * len(FIGURES),
    ]
    for (dataset, method), group in part.groupby(["dataset", "method"], sort=False):
        if len(group) > 1:
            cells = [
                f"{group[name].mean():{'.4f' if 'avd' in name else '.3f'}}"
                + (f" ±{(group[name].max() - group[name].min()) / 2:.3f}" if "avd" not in name else "")
                for name in FIGURES
            ]
            lines.append("| " + " | ".join([dataset, NAMES[method], str(len(group)), *cells]) + " |")
    return "\n".join(lines)


def twice(rows: pd.DataFrame) -> str:
    """What a second measurement of some pairs does: AUC and 2-way distance, means over seeds."""
    ways = list(dict.fromkeys(sorted(zip(rows.again, rows.share, strict=True), key=WAYS.index)))
    named = [again if not share else f"{again}, {share:.0%}" for again, share in ways]
    lines = ["| table | ε | " + " | ".join(named) + " |", "|---|---:|" + "---:|" * len(ways)]
    for dataset, group in rows.groupby("dataset", sort=False):
        first = str(dataset)
        for epsilon, cells in group.groupby("epsilon"):
            means = cells.groupby(["again", "share"])[["boosting_auc", "avd2"]].mean()
            figures = [f"{means.loc[way].boosting_auc:.3f} ({means.loc[way].avd2:.4f})" for way in ways]
            lines.append("| " + " | ".join([first, f"{epsilon:g}", *figures]) + " |")
            first = ""
    return "\n".join(lines)


def main() -> None:
    rows = pd.read_csv(HERE / "ours.csv")
    tables = beside(rows, 1.0), seeds(rows), prices(rows), over(rows, "avd2"), over(rows, "tstr_boosting_auc")
    print(*tables, twice(pd.read_csv(HERE / "twice.csv")), sep="\n\n")


if __name__ == "__main__":
    main()
