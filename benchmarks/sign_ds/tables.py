"""The tables of README.md from ours.csv and gamma.csv: `python benchmarks/sign_ds/tables.py` prints them."""

from pathlib import Path

import pandas as pd

ORDER = [
    "SignDS (h=1)", "EM-MDS (h=3)", "EM-MDS (h=5)", "naive (h=3)", "Duchi", "PM", "HM", "PM-SUB", "FedSel (0.1)",
    "FedSel (0.5)",
]  # fmt: skip
TASKS = [
    ("a9a", "logistic"),
    ("usps", "logistic"),
    ("har", "logistic"),
    ("fmnist", "mlp"),
    ("fmnist", "lenet"),
]


def table(rows: pd.DataFrame, dataset: str, model: str) -> str:
    """Mean accuracy, and half the range over the seeds where there are several."""
    part = rows[(rows.dataset == dataset) & (rows.model == model)]
    seeds, most = part.seed.nunique(), part.participations.max()
    plain = part[part.method == "non-private"].accuracy.mean()
    private = part[part.method != "non-private"]
    prices = sorted(private.epsilon_round.unique())
    lines = [
        f"**{dataset}, {model}** — non-private {plain:.3f}; the busiest client gives {most} reports; "
        f"{seeds} seed{'s' if seeds > 1 else ''}",
        "",
        "| method | " + " | ".join(f"ε={price:g}" for price in prices) + " |",
        "|---" * (len(prices) + 1) + "|",
    ]
    for method in [m for m in ORDER if (private.method == m).any()]:
        cells = []
        for price in prices:
            values = private[(private.method == method) & (private.epsilon_round == price)].accuracy
            spread = f" ± {(values.max() - values.min()) / 2:.3f}" if len(values) > 1 else ""
            cells.append(f"{values.mean():.3f}{spread}" if len(values) else "–")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def steps(rows: pd.DataFrame) -> str:
    """Accuracy over the server's step, one seed."""
    rates = sorted(rows.global_rate.unique())
    lines = ["| task | method | ε | " + " | ".join(f"γ={rate:g}" for rate in rates) + " |"]
    lines.append("|---" * (len(rates) + 3) + "|")
    for (dataset, model, method, price), group in rows.fillna({"epsilon_round": 0}).groupby(
        ["dataset", "model", "method", "epsilon_round"]
    ):
        found = dict(zip(group.global_rate, group.accuracy, strict=True))
        cells = " | ".join(f"{found[rate]:.3f}" if rate in found else "–" for rate in rates)
        lines.append(f"| {dataset}, {model} | {method} | {price:g} | {cells} |".replace("| 0 |", "| – |"))
    return "\n".join(lines)


def main() -> None:
    folder = Path(__file__).parent
    rows = pd.read_csv(folder / "ours.csv")
    print("\n\n".join(table(rows, *task) for task in TASKS))
    print("\n" + steps(pd.read_csv(folder / "gamma.csv")))


if __name__ == "__main__":
    main()
