"""The tables of README.md, from ours.csv: `make tables NAME=tied`."""

from pathlib import Path

import pandas as pd

from common.markdown import table

HERE = Path(__file__).parent
NAMES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "energy": "Energy"}
METHODS = ("tied", "tied, one covariance", "apart", "verti-gan")
PROTOTYPE = {
    ("mnist", 1.0): 0.817,
    ("mnist", 4.0): 0.846,
    ("fashion_mnist", 1.0): 0.735,
    ("fashion_mnist", 4.0): 0.763,
}


def measured(split: str) -> pd.DataFrame:
    ours = pd.read_csv(HERE / "ours.csv")
    return ours[ours.split == split]


def label() -> str:
    """Accuracy on real images, a line for each method and classifier."""
    ours = measured("label")
    steps = sorted(set(ours.epsilon) - {0.0})
    lines = []
    for dataset in ("mnist", "fashion_mnist"):
        for classifier in ("mlp", "cnn"):
            rows = ours[(ours.dataset == dataset) & (ours.classifier == classifier)]
            for method in METHODS:
                own = rows[rows.method == method]
                cells = [_mean(own[own.epsilon == step].accuracy) for step in steps]
                lines.append((f"{NAMES[dataset]}, {classifier}" if method == "tied" else "", method, *cells))
            lines.append(
                ("", "real images", *[""] * (len(steps) - 1), _mean(rows[rows.method == "real"].accuracy))
            )
    return table(("data, trained", "method", *(f"ε = {step:g}" for step in steps)), lines)


def halves() -> str:
    """Of halves of digits: what is told of the table from both halves, and distances of correlations."""
    return _together("halves", {"odd": "odd (mlp)", "ink": "ink (mlp)"})


def rooms() -> str:
    """The same of series."""
    return _together("rooms", {"month": "month (mlp)", "load": "load (mlp)"})


def _together(split: str, targets: dict[str, str]) -> str:
    ours = measured(split)
    ours, lines = ours[ours.classifier == "mlp"], []
    for method in (*METHODS, "real"):
        for epsilon in sorted(set(ours[ours.method == method].epsilon)):
            rows = ours[(ours.method == method) & (ours.epsilon == epsilon)]
            first = rows[rows.target == next(iter(targets))]
            lines.append(
                (
                    method,
                    f"{epsilon:g}" if epsilon else "",
                    *(_mean(rows[rows.target == target].accuracy) for target in targets),
                    _mean(first.cmd_within),
                    _mean(first.cmd_cross),
                )
            )
    heads = ("method", "ε", *targets.values(), "correlations within, off by", "across, off by")
    return table(heads, lines)


def better() -> str:
    """By how much the MLP is above the prototype, at the least."""
    ours = measured("label")
    ours = ours[(ours.method == "tied") & (ours.classifier == "mlp")]
    least = min(
        ours[(ours.dataset == dataset) & (ours.epsilon == epsilon)].accuracy.mean() - before
        for (dataset, epsilon), before in PROTOTYPE.items()
    )
    return _bare(least)


def sent() -> str:
    ours = measured("label")
    return f"{ours[(ours.method == 'tied') & (ours.dataset == 'mnist')].up_mb.max():.0f} MB"


def _mean(values: "pd.Series[float]") -> str:
    return _bare(float(values.mean())) if len(values) else "–"


def _bare(value: float) -> str:
    return f"{value:.3f}".removeprefix("0") if value < 1 else "1"


TABLES = {"label": label, "halves": halves, "rooms": rooms, "better": better, "sent": sent}
