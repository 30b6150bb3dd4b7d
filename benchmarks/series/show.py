"""The tables of README.md, from ours.csv, prototype.csv and fed_stdg's ours.csv: `make tables NAME=series`."""

from pathlib import Path

import pandas as pd

from common.markdown import table

HERE = Path(__file__).parent
NAMES = {"sine": "Sine", "energy": "Energy", "air": "Air", "stock": "Stock"}


def figures() -> str:
    """Next-step error / squared MMD / coverage."""
    ours = pd.read_csv(HERE / "ours.csv")
    theirs = pd.read_csv(HERE.parent / "fed_stdg" / "ours.csv").fillna({"poison": ""})
    theirs = theirs[(theirs.method == "AdaSubMDS, once") & (theirs.poison == "")]
    steps = sorted(set(ours.epsilon_total) - {0.0})
    lines = []
    for dataset, name in NAMES.items():
        for method in ("moments", "moments, cells"):
            rows = ours[(ours.dataset == dataset) & (ours.method == method)]
            lines.append(
                (
                    f"{name}, {rows.people.max():,} people" if method == "moments" else "",
                    method,
                    *(_cell(rows[rows.epsilon_total == step]) for step in (*steps, 0.0)),
                )
            )
        once = theirs[theirs.dataset == dataset]
        lines.append(
            ("", "FedSTDG, one report", *(_cell(once[once.epsilon_round == step]) for step in (*steps, 0.0)))
        )
        lines.append(
            (
                "",
                "real series",
                *[""] * len(steps),
                _cell(ours[(ours.dataset == dataset) & (ours.method == "real")]),
            )
        )
    return table(("data", "method", *(f"ε = {step:g} in all" for step in steps), "no noise"), lines)


def _cell(rows: pd.DataFrame) -> str:
    if not len(rows):
        return "–"
    return f"{rows.next_step_mae.mean():.3f} / {rows.mmd.mean():.3f} / {rows.coverage.mean():.2f}"


def prototype() -> str:
    """A prototype's cells, of one seed, beside ours with half of the range over seeds."""
    ours, first = pd.read_csv(HERE / "ours.csv"), pd.read_csv(HERE / "prototype.csv")
    lines = []
    for row in first.itertuples():
        mine = ours[(ours.dataset == row.dataset) & (ours.epsilon_total == row.epsilon_total)]
        lines.append(
            (
                NAMES[str(row.dataset)],
                f"{row.epsilon_total:g}",
                _cell(first.loc[[row.Index]]),
                *(_spread(mine[mine.method == method]) for method in ("moments", "moments, cells")),
            )
        )
    return table(("data", "ε in all", "prototype", "moments", "moments, cells"), lines)


def _spread(rows: pd.DataFrame) -> str:
    measures = (("next_step_mae", 3), ("mmd", 3), ("coverage", 2))
    return " / ".join(
        f"{rows[one].mean():.{digits}f} ± {(rows[one].max() - rows[one].min()) / 2:.{digits}f}"
        for one, digits in measures
    )


TABLES = {"figures": figures, "prototype": prototype}
