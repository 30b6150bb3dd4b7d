"""The tables of README.md, from ours.csv, paper.csv and speed.csv: `make tables NAME=fed_stdg`."""

from pathlib import Path
from typing import Any

import pandas as pd

from common.figures import found, listed
from common.markdown import short, table
from common.rows import read

HERE = Path(__file__).parent
EPSILONS = (0.5, 2.0, 8.0)
FREE = ("real", "central", "FL")
METHODS = ("SignDS-S", "SignDS-E", "SignDS-M", "SubMDS", "AdaSubMDS", "AdaSubMDS, once")


def measured() -> pd.DataFrame:
    return pd.read_csv(HERE / "ours.csv").fillna({"poison": ""})


def errors() -> str:
    """A table a dataset: our error at each ε, the paper's in brackets, squared MMD and coverage."""
    ours, paper = measured(), pd.read_csv(HERE / "paper.csv")
    parts = []
    for dataset, group in ours[ours.poison == ""].groupby("dataset", sort=False):
        said = paper[paper.dataset == dataset]
        free = "; ".join(f"{method} {_cell(group, said, method, None)}" for method in FREE)
        lines = [
            (
                method,
                *(_cell(group, said, method, epsilon) for epsilon in EPSILONS),
                f"{group[group.method == method].participations.max():g}",
            )
            for method in METHODS
        ]
        heads = ("method", *(f"ε={epsilon:g}" for epsilon in EPSILONS), "reports of the busiest")
        parts.append(f"**{dataset}** ({group.people.max():,} people) — {free}\n\n{table(heads, lines)}")
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


def liars() -> str:
    """Error with a fifth of liars."""
    ours = measured()
    rows = ours[ours.method.isin(["SubMDS", "FL"])].copy()
    rows["setting"] = rows.method + rows.epsilon_round.map(lambda e: f" ε={e:g}" if e else "")
    wide = rows.pivot_table("next_step_mae", ["dataset", "setting"], "poison", sort=False)
    wide = wide.reindex(columns=["", "random", "flip"]).dropna(subset=["random"])
    lines = [
        (*names, *(f"{value:.3f}" for value in row))
        for names, row in zip(wide.index, wide.values, strict=True)
    ]
    return table(("dataset", "setting", "honest", "random", "flip"), lines)


def speed() -> str:
    """A cohort beside one client at a time."""
    return table(
        ("machine", "one at a time", "cohort", "ratio"),
        [
            (
                row["machine"],
                f"{short(row['loop_ms'])} ms a client",
                f"{short(row['cohort_ms'])} ms",
                row["ratio"],
            )
            for row in read(HERE / "speed.csv")
        ],
    )


def cell(dataset: str, method: str, epsilon: float = 0.0) -> "pd.Series[Any]":
    """The figures of one cell without liars."""
    return found(HERE / "ours.csv", dataset=dataset, method=method, epsilon_round=epsilon, poison=None)


def stock() -> str:
    row = cell("stock", "SubMDS", 8.0)
    often = (
        f"the busiest {row.participations:.0f} times: at ε = 8 it spends {row.epsilon_run:,.0f} over the run"
    )
    return f"{row.people:.0f} people here, so that each reports some 150 times, {often}"


def indices() -> str:
    sent = (
        f"{method} {listed((cell('sine', method, epsilon).indices for epsilon in EPSILONS), 0)}"
        for method in METHODS[:-1]
    )
    return f"{', '.join(sent)} at ε = 0.5, 2 and 8 (d = {cell('sine', 'SubMDS', 8.0).dims:,.0f})"


def energy() -> str:
    """How far the errors of the SignDS kinds are from the paper's, at most."""
    off = [
        abs(cell("energy", method, epsilon).next_step_mae / paper.next_step_mae - 1)
        for method in METHODS[:3]
        for epsilon in EPSILONS
        for paper in [found(HERE / "paper.csv", dataset="energy", method=method, epsilon_round=epsilon)]
    ]
    return f"{100 * max(off):.0f} %"


def collapse() -> str:
    two, eight, central = cell("air", "AdaSubMDS", 2.0), cell("air", "AdaSubMDS", 8.0), cell("air", "central")
    return (
        f"The error of AdaSubMDS on Air at ε = 2, {two.next_step_mae:.3f}, is below that of training in one place "
        f"({central.next_step_mae:.3f}), and what it made covers {100 * two.coverage:.0f} % of the held-out windows "
        f"at ε = 2 and {100 * eight.coverage:.0f} % at ε = 8, "
        f"where training in one place covers {100 * central.coverage:.0f} %"
    )


TABLES = {
    "stock": stock,
    "rounds": lambda: ", ".join(
        f"{cell(name, 'AdaSubMDS, once', 8.0).rounds:.0f} for {name.title()}" for name in ("sine", "stock")
    ),
    "indices": indices,
    "errors": errors,
    "energy": energy,
    "collapse": collapse,
    "liars": liars,
    "speed": speed,
}
