"""The tables of README.md, from ours.csv and gamma.csv: `make tables NAME=sign_ds`."""

from functools import cache, partial
from pathlib import Path

import pandas as pd

from common.figures import found, listed, span, where
from common.markdown import table

HERE = Path(__file__).parent

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


@cache
def measured() -> pd.DataFrame:
    return pd.read_csv(HERE / "ours.csv")


def task(dataset: str, model: str) -> str:
    """Mean accuracy, and half the range over the seeds where there are several."""
    rows = measured()
    part = rows[(rows.dataset == dataset) & (rows.model == model)]
    seeds, most = part.seed.nunique(), part.participations.max()
    plain = part[part.method == "non-private"].accuracy.mean()
    private = part[part.method != "non-private"]
    prices = sorted(private.epsilon_round.unique())
    lines = []
    for method in [m for m in ORDER if (private.method == m).any()]:
        cells = []
        for price in prices:
            values = private[(private.method == method) & (private.epsilon_round == price)].accuracy
            spread = f" ± {(values.max() - values.min()) / 2:.3f}" if len(values) > 1 else ""
            cells.append(f"{values.mean():.3f}{spread}" if len(values) else "–")
        lines.append([method, *cells])
    return (
        f"**{dataset}, {model}** — non-private {plain:.3f}; the busiest client gives {most} reports; "
        f"{seeds} seed{'s' if seeds > 1 else ''}\n\n"
        + table(["method", *(f"ε={price:g}" for price in prices)], lines)
    )


def tasks() -> str:
    return "\n\n".join(task(*names) for names in TASKS)


def steps() -> str:
    """Accuracy over the server's step, one seed."""
    rows = pd.read_csv(HERE / "gamma.csv").fillna({"epsilon_round": 0})
    rates = sorted(rows.global_rate.unique())
    lines = []
    for (dataset, model, method, price), group in rows.groupby(
        ["dataset", "model", "method", "epsilon_round"]
    ):
        found = dict(zip(group.global_rate, group.accuracy, strict=True))
        cells = [f"{found[rate]:.3f}" if rate in found else "–" for rate in rates]
        lines.append([f"{dataset}, {model}", method, f"{price:g}" if price else "–", *cells])
    return table(["task", "method", "ε", *(f"γ={rate:g}" for rate in rates)], lines)


def accuracy(task: tuple[str, str], method: str, epsilon: float | None) -> float:
    dataset, model = task
    row = found(HERE / "ours.csv", dataset=dataset, model=model, method=method, epsilon_round=epsilon)
    return float(row.accuracy)


def plain(task: tuple[str, str]) -> float:
    """Without privacy, at γ = 30."""
    dataset, model = task
    row = found(HERE / "gamma.csv", dataset=dataset, model=model, method="non-private", global_rate=30)
    return float(row.accuracy)


def lost(task: tuple[str, str], method: str, epsilon: float) -> float:
    """Points below the plain mean at γ = 30, at the method's own γ."""
    return 100 * (plain(task) - accuracy(task, method, epsilon))


def spent() -> str:
    row = where(HERE / "ours.csv", dataset="usps", epsilon_round=8).iloc[0]
    most = where(HERE / "ours.csv", dataset="usps").participations.max()
    return f"{row.epsilon_round:g} × {most} = {row.epsilon_round * most:,.0f}"


def one_index() -> str:
    parts = (
        f"{listed((lost(task, 'SignDS (h=1)', e) for e in (4, 8)), 1)} {'points ' * (not n)}on {task[0]}"
        for n, task in enumerate(TASKS[:3])
    )
    return ", ".join(parts)


def mean_estimators() -> str:
    """What they lose on USPS and HAR at ε of 4 and 8, each at its best γ."""
    parts = []
    for methods in (("PM", "PM-SUB"), ("HM",), ("Duchi",)):
        gaps = []
        for task in TASKS[1:3]:
            for epsilon in (4, 8):
                for method in methods:
                    rows = where(HERE / "gamma.csv", dataset=task[0], method=method, epsilon_round=epsilon)
                    best = max(rows.accuracy.max(), accuracy(task, method, epsilon))
                    gaps.append(100 * (plain(task) - best))
        parts.append(f"{' and '.join(methods)} lose{'s' * (len(methods) == 1)} {span(gaps, 0)}")
    return ", ".join(parts)


def fmnist() -> str:
    signs = ("SignDS (h=1)", "EM-MDS (h=3)", "EM-MDS (h=5)")
    mlp, lenet = TASKS[3], TASKS[4]
    return (
        f"{span((lost(mlp, method, 8) for method in signs), 0)} for the MLP, "
        f"{lost(lenet, signs[0], 8):.0f} for LeNet with one index"
    )


def five() -> str:
    """h = 5 beside h = 1 at ε = 8."""
    points = [
        100 * (accuracy(task, "EM-MDS (h=5)", 8) - accuracy(task, "SignDS (h=1)", 8)) for task in TASKS[3:]
    ]
    return f"{points[0]:+.1f} points beside h = 1 for the MLP, {points[1]:+.1f} for LeNet".replace("-", "−")


def seeds(method: str, epsilon: float | None) -> str:
    """LeNet's accuracy in each seed, the least first."""
    rows = where(HERE / "ours.csv", dataset="fmnist", model="lenet", method=method, epsilon_round=epsilon)
    return listed(sorted(rows.accuracy), 2)


TABLES = {
    "spent": spent,
    "tasks": tasks,
    "steps": steps,
    "plain": lambda: listed(plain(task) for task in TASKS),
    "one index": one_index,
    "mean estimators": mean_estimators,
    "fedsel": lambda: span((lost(task, "FedSel (0.5)", 8) for task in TASKS[1:3]), 0),
    "fmnist": fmnist,
    "five": five,
    "pm-sub": partial(seeds, "PM-SUB", 8),
    "lenet": partial(seeds, "non-private", None),
}
