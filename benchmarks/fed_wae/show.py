"""The tables of README.md, from ours.csv, speed.csv and tried.csv: `make tables NAME=fed_wae`.

The mean over seeds and, after ±, half their range.
"""

from functools import cache, partial
from pathlib import Path

import pandas as pd

from common.figures import listed, span
from common.markdown import short, table
from common.rows import as_it_stands, read

HERE = Path(__file__).parent
DATASETS = ("a9a", "adult", "w8a", "census")
TOP = 0.1  # the ξ of the main tables
ORDER = (
    "wake-sleep",
    "wake-sleep, once",
    "DP-Fed-WAE",
    "DP-Fed-WAE, once",
    "LoPub",
    "LoCop",
    "wake-sleep, non-private",
    "non-private",
    "central",
    "independent columns",
)
PRICED = ORDER[:6]
MODELS = ("mlp", "forest")


@cache
def measured() -> pd.DataFrame:
    """The rows at default settings. ε and ξ are numbers, or empty."""
    rows = pd.read_csv(
        HERE / "ours.csv", keep_default_na=False, na_values={"epsilon_run": [""], "people": [""]}
    )
    rows = rows[rows.settings == "{}"].copy()
    for name in ("epsilon", "top"):
        rows[name] = rows[name].map(lambda text: float(text) if text != "" else "")
    figures = [c for c in rows if c.startswith(("avd", "cmd", "tstr", "trtr", "people", "epsilon_run"))]
    rows[figures] = rows[figures].apply(pd.to_numeric, errors="coerce")
    return rows


def mean(values: pd.Series) -> str:
    half = (values.max() - values.min()) / 2
    return f"{values.mean():.3f}" + (f" ± {half:.3f}" if len(values) > 1 else "")


def main_table(dataset: str) -> str:
    """Rows drawn from the odds of each column; DP-Fed-WAE at ξ = 0.1."""
    rows = measured()
    part = rows[(rows.dataset == dataset) & (rows.draw != "argmax") & rows.top.isin(["", TOP])]
    real = ", ".join(
        f"{model} {part[f'trtr_{model}_acc'].max():.3f} / {part[f'trtr_{model}_auc'].max():.3f}"
        for model in MODELS
    )
    people = part.people.max()
    heads = (
        "method",
        "ε of a report",
        "ε of the run",
        "seeds",
        "2-way",
        "4-way",
        "CMD",
        "MLP: accuracy",
        "AUC",
        "forest: accuracy",
        "AUC",
    )
    lines = []
    for method in ORDER:
        for epsilon, group in part[part.method == method].groupby("epsilon", sort=False):
            prices = [f"{epsilon:g}", f"{group.epsilon_run.max():g}"] if epsilon != "" else ["–", "–"]
            figures = [mean(group[name]) for name in ("avd2", "avd4", "cmd")]
            figures += [mean(group[f"tstr_{model}_{score}"]) for model in MODELS for score in ("acc", "auc")]
            lines.append([method, *prices, str(len(group)), *figures])
    return f"**{dataset}** — {people:,.0f} people; real rows: {real}\n\n{table(heads, lines)}"


def top_table() -> str:
    """What ξ and the way to draw change, seed 0: the 2-way distance, and the MLP's AUC."""
    rows = measured()
    part = rows[rows.method.isin(["DP-Fed-WAE", "DP-Fed-WAE, once"]) & (rows.seed == 0)]
    tops, draws = sorted(part.top.unique()), ("sample", "argmax")
    heads = [f"ξ={top:g}, {draw}" for top in tops for draw in draws]
    lines = []
    for dataset in DATASETS:
        for (method, epsilon), group in part[part.dataset == dataset].groupby(["method", "epsilon"]):
            found = {
                (row.top, row.draw): f"{row.avd2:.2f}, {row.tstr_mlp_auc:.2f}" for row in group.itertuples()
            }
            cells = [found.get((top, draw), "–") for top in tops for draw in draws]
            lines.append([dataset, method, f"{epsilon:g}", *cells])
    return table(("table", "method", "ε of a report", *heads), lines)


def speed() -> str:
    """One batch beside one client after another."""
    return table(
        ("network", "dims", "clients", "one after another", "one batch", "ratio", "per client"),
        [
            (
                row["model"],
                f"{int(row['dims']):,}",
                row["clients"],
                f"{short(row['loop_ms'])} ms",
                f"{short(row['cohort_ms'])} ms",
                f"{short(row['ratio'])}×",
                f"{short(row['cohort_ms_per_client'])} ms",
            )
            for row in read(HERE / "speed.csv")
        ],
    )


def rows_of(dataset: str, method: str, epsilon: float | str = "") -> pd.DataFrame:
    """The rows of a line of the main tables."""
    rows = measured()
    part = rows[(rows.draw != "argmax") & rows.top.isin(["", TOP]) & (rows.dataset == dataset)]
    return part[(part.method == method) & (part.epsilon == epsilon)]


def score(name: str, dataset: str, method: str, epsilon: float | str = "") -> float:
    return float(rows_of(dataset, method, epsilon)[name].mean())


def aucs(dataset: str) -> str:
    """DP-Fed-WAE at ε = 8 a report, by both models."""
    return span((score(f"tstr_{model}_auc", dataset, "DP-Fed-WAE", 8.0) for model in MODELS), 2)


def a9a_at_8() -> str:
    parts = []
    for name, word in (("acc", "accuracy"), ("auc", "AUC")):
        ours, real = (
            listed((score(f"{kind}_{model}_{name}", "a9a", "DP-Fed-WAE", 8.0) for model in MODELS), 2)
            for kind in ("tstr", "trtr")
        )
        parts.append(f"{word} {ours} (MLP and forest) against {real} of real rows")
    return "; ".join(parts)


def cmd() -> str:
    ours, shuffled = score("cmd", "a9a", "DP-Fed-WAE", 8.0), score("cmd", "a9a", "independent columns")
    return f"{ours:.2f}, where shuffled columns have {shuffled:.2f}"


def pairs(method: str, epsilon: float, kind: str = "tstr") -> str:
    """Accuracy / AUC of the MLP on the two tables that the defaults were chosen on."""
    return " and ".join(
        " / ".join(f"{score(f'{kind}_mlp_{which}', name, method, epsilon):.3f}" for which in ("acc", "auc"))
        + f" ({name})"
        for name in ("a9a", "adult")
    )


def nearer() -> str:
    ratios = (
        f"{score('avd2', name, 'wake-sleep', 8.0) / score('avd2', name, 'DP-Fed-WAE', 8.0):.2f} ({name})"
        for name in DATASETS
    )
    return ", ".join(ratios)


def once_at_8() -> str:
    seeds = span(rows_of("a9a", "wake-sleep, once", 8.0).tstr_mlp_auc, 2)
    ours, paper = pairs("wake-sleep, once", 8.0), pairs("DP-Fed-WAE, once", 8.0)
    return f"{ours}, where DP-Fed-WAE has {paper}; AUC of the seeds on a9a {seeds}"


TABLES = {
    "a9a at 8": a9a_at_8,
    "cmd": cmd,
    **{f"{name} auc": partial(aucs, name) for name in ("adult", "w8a", "census")},
    "once": lambda: ", ".join(
        f"{score('tstr_mlp_auc', name, 'DP-Fed-WAE, once', 8.0):.2f} and its accuracy "
        f"{score('tstr_mlp_acc', name, 'DP-Fed-WAE, once', 8.0):.2f} ({name})"
        for name in ("a9a", "adult")
    ),
    "central": lambda: ", ".join(
        f"{score('tstr_mlp_auc', name, 'central'):.2f} ({name})" for name in DATASETS
    ),
    "non-private": lambda: span((score("tstr_mlp_auc", name, "non-private") for name in DATASETS), 2),
    "wake-sleep": partial(pairs, "wake-sleep", 8.0),
    "real": partial(pairs, "wake-sleep", 8.0, "trtr"),
    "nearer": nearer,
    "wake-sleep once": once_at_8,
    "at two": lambda: span((score("tstr_mlp_auc", name, "wake-sleep", 2.0) for name in ("a9a", "adult")), 2),
    "w8a free": lambda: f"AUC {score('tstr_mlp_auc', 'w8a', 'wake-sleep, non-private'):.2f}",
    **{dataset: partial(main_table, dataset) for dataset in DATASETS},
    "tried": partial(as_it_stands, HERE / "tried.csv"),
    "tops": top_table,
    "speed": speed,
}
