"""The tables of README.md, from ours.csv and paper.csv: `make tables NAME=gen_fl`."""

from pathlib import Path

import pandas as pd

from common.figures import found
from common.markdown import table

HERE = Path(__file__).parent
SETS = ("mnist", "fashion_mnist")
KINDS = ("", ", private GAN")
METHODS = (
    "no privacy",
    "DP-FL",
    *(f"DP-GenFL γ={share}{kind}" for kind in KINDS for share in ("0.2", "0.6", "1")),
)


def results(dataset: str) -> str:
    """Our means over seeds, ± half their range where there are several, beside the paper's figures."""
    ours, paper = (pd.read_csv(HERE / name) for name in ("ours.csv", "paper.csv"))
    ours, paper = (rows[rows.dataset == dataset] for rows in (ours, paper))
    lines = []
    for method in METHODS:
        own, said = ours[ours.method == method], paper[paper.method == method]
        lines.append(
            (
                method.replace("=", " = "),
                "none" if own.epsilon.isna().all() else f"ε = {own.epsilon.max():g}",
                str(len(own)),
                mean(own.accuracy),
                theirs(said.accuracy),
                mean(own.mia),
                theirs(said.mia),
                f"{own.seconds.mean():.0f}",
            )
        )
    return table(("method", "guarantee", "seeds", "accuracy", "paper", "MIA", "paper", "s"), lines)


def mean(values: "pd.Series[float]") -> str:
    half = (values.max() - values.min()) / 2
    return f"{values.mean():.3f}" + (f" ± {half:.3f}" if len(values) > 1 else "")


def theirs(values: "pd.Series[float]") -> str:
    return f"{values.iloc[0]:.3f}" if len(values) else ""


def gain(method: str, dataset: str, file: str = "ours.csv", **key: object) -> str:
    """Points of accuracy over DP-FL."""
    with_it, without = (
        found(HERE / file, dataset=dataset, method=name, **key).accuracy for name in (method, "DP-FL")
    )
    return f"{100 * (with_it - without):.1f}".replace("-", "−")


def gains() -> str:
    """What the share of made-up rows brings, on both data sets."""
    paper = [gain("DP-GenFL γ=0.2", name, "paper.csv") for name in SETS]
    few, more, all_ = (
        [gain(f"DP-GenFL γ={share}", name, seed=0) for name in SETS] for share in ("0.2", "0.6", "1")
    )
    return (
        f"It gains {paper[0]} points on MNIST and {paper[1]} on Fashion-MNIST with γ = 0.2 over DP-FL; "
        f"here γ = 0.2 brings {few[0]} and {few[1]}, "
        f"γ = 0.6 {more[0]} and {more[1]}, γ = 1 {all_[0]} and {all_[1]} points (seed 0)"
    )


def private_gains() -> str:
    points = [gain("DP-GenFL γ=0.2, private GAN", name, seed=0) for name in SETS]
    return f"γ = 0.2 brings {points[0]} and {points[1]} points over DP-FL (seed 0)"


TABLES = {
    "mnist": lambda: results("mnist"),
    "fashion_mnist": lambda: results("fashion_mnist"),
    "gains": gains,
    "private gains": private_gains,
}
