"""The tables of README.md, from ours.csv, paper.csv and toy.csv: `make tables NAME=vertical`.

Mean over the seeds that were run, and ± half their range where there are several.
"""

from functools import partial
from pathlib import Path

import pandas as pd

from common.figures import frame
from common.markdown import table

HERE = Path(__file__).parent
DATASETS = ("adult", "har", "w8a-124", "a9a", "credit", "census")
METHODS = [
    "independent",
    "bootstrap",
    "VertiGAN",
    "VDGAN-DPSGD",
    "VDGAN-PATE",
    "DPLT",
    "DPLT+",
    "Gram",
    "central GAN",
]
COLUMNS = {
    "2-way within": "avd2_within",
    "2-way across": "avd2_cross",
    "4-way within": "avd4_within",
    "4-way across": "avd4_cross",
    "CMD within": "cmd_within",
    "CMD across": "cmd_cross",
}

STUDIES = {
    "rows": "rows",
    "split": "share",
    "parties": "parties",
    "upload": "upload",
    "teachers": "teachers",
}


def measured() -> pd.DataFrame:
    return frame(HERE / "ours.csv")


def main_study(dataset: str) -> str:
    """All methods of the main study on one table."""
    rows = measured()
    part = rows[(rows.study == "main") & (rows.dataset == dataset)]
    truth, seeds = part.iloc[0], part.seed.nunique()
    scores = ", ".join(
        f"{part[f'trtr_{model}_acc'].mean():.3f} / {part[f'trtr_{model}_auc'].mean():.3f} ({name})"
        for model, name in (("mlp", "MLP"), ("adaboost", "AdaBoost"))
    )
    heads = (
        "method",
        "ε",
        "person",
        *COLUMNS,
        "TSTR, MLP",
        "TSTR, AdaBoost",
        "MIA",
        "MB up / down",
        "s",
    )
    lines = [
        _line(method, float(str(price)), group)
        for method in METHODS
        for price, group in part[part.method == method].groupby("epsilon", dropna=False)
    ]
    return (
        f"**{dataset}** — {truth.people:,} people, width {truth.width}; {seeds} seed{'s' * (seeds > 1)}; real rows: "
        f"{scores}; control of the attack {part.mia_control.mean():.3f}\n\n{table(heads, lines)}"
    )


def _line(method: str, price: float, group: pd.DataFrame) -> list[str]:
    ends = method in ("independent", "bootstrap")
    name = f"{method} columns" if method == "independent" else method
    paid = f"{price:g}" if price == price else "–" if ends else "none"
    person = f"{group.epsilon_person.mean():.2f}" if price == price else "–"
    cells = [_mean(group[column]) for column in COLUMNS.values()]
    cells += [
        f"{_mean(group[f'tstr_{model}_acc'])} / {_mean(group[f'tstr_{model}_auc'])}"
        for model in ("mlp", "adaboost")
    ]
    cells.append(_mean(group.mia_acc))
    cells += (
        ["–", "–"]
        if ends
        else [f"{group.up_mb.mean():.1f} / {group.down_mb.mean():.1f}", f"{group.seconds.mean():.1f}"]
    )
    return [name, paid, person, *cells]


def _mean(values: "pd.Series[float]") -> str:
    spread = f" ±{(values.max() - values.min()) / 2:.3f}".replace("0.", ".") if len(values) > 1 else ""
    return f"{values.mean():.3f}{spread}" if values.notna().any() else "–"


def ablation(study: str) -> str:
    """4-way distance (and, after the stroke, AUC of AdaBoost) over what one study varies."""
    rows = measured()
    part, over = rows[rows.study == study], STUDIES[study]
    values = sorted(part[over].unique())
    kinds = ["dataset", "epsilon", *(["split"] if part.split.nunique() > 1 else [])]
    lines = []
    for (name, price, *split), group in part.groupby(kinds):
        cells = (group[group[over] == value] for value in values)
        shown = (f"{_mean(cell.avd4)} / {cell.tstr_adaboost_auc.mean():.2f}" for cell in cells)
        lines.append([", ".join([name, f"ε = {price:g}", *split]), *shown])
    return table((over, *(f"{value:,g}" for value in values)), lines)


def beside_paper() -> str:
    """Accuracy of an MLP on HAR and of the attack without DP: ours, and the paper's."""
    paper = pd.read_csv(HERE / "paper.csv")
    rows = measured()
    main = rows[rows.study == "main"]
    har = (
        ("central GAN", None),
        ("VertiGAN", None),
        *((m, e) for m in ("VertiGAN", "DPLT") for e in (0.5, 2.0, 8.0)),
    )
    cases = [("har", "tstr_mlp_acc", *case) for case in har]
    cases += [(name, "mia_acc", "VertiGAN", None) for name in ("har", "w8a-124")]
    lines = []
    for dataset, measure, method, epsilon in cases:
        said = paper[(paper.dataset == dataset) & (paper.measure == measure) & (paper.method == method)]
        said = said[said.epsilon.isna() if epsilon is None else said.epsilon == epsilon].iloc[0]
        own = main[(main.dataset == dataset) & (main.method == method)]
        own = own[own.epsilon.isna() if epsilon is None else own.epsilon == epsilon]
        what = {"tstr_mlp_acc": "TSTR, MLP", "mia_acc": "MIA"}[measure]
        price = "no DP" if epsilon is None else f"ε = {epsilon:g}"
        source = said["source"].rpartition(", ")[2]
        lines.append(
            [
                what,
                f"{said.paper_dataset} / {dataset}",
                method,
                price,
                f"{said.value:.3f} ({source})",
                _mean(own[measure]),
            ]
        )
    return table(("figure", "the paper's table / ours", "method", "", "the paper", "ours"), lines)


def toy() -> str:
    """The toy's figures; Gram's are in a file of their own."""
    rows = measured()
    both = pd.concat([rows[rows.dataset == "toy"], pd.read_csv(HERE / "toy.csv")])
    lines = []
    for method in ("bootstrap", "central GAN", "VertiGAN", "independent", "Gram"):
        row = both[both.method == method].iloc[0]
        ends = method in ("bootstrap", "independent")
        price = f"{row.epsilon:g}" if row.epsilon == row.epsilon else "–" if ends else "none"
        figures = (f"{row[name]:.3f}" for name in ("avd2_within", "avd2_cross", "cmd_cross", "tstr_mlp_acc"))
        lines.append(["independent columns" if method == "independent" else method, price, *figures])
    real = both.trtr_mlp_acc.max()
    return table(
        ("method", "ε", "2-way within", "2-way across", "CMD across", f"TSTR, MLP (real rows: {real:.3f})"),
        lines,
    )


TABLES = {
    **{dataset: partial(main_study, dataset) for dataset in DATASETS},
    "beside the paper": beside_paper,
    **{study: partial(ablation, study) for study in STUDIES},
    "toy": toy,
}
