"""The tables of README.md from ours.csv: `python benchmarks/vertical/tables.py [dataset …]` prints them.

Mean over the seeds that were run, and ± half their range where there are several.
"""

import argparse
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
METHODS = [
    "independent", "bootstrap", "VertiGAN", "VDGAN-DPSGD", "VDGAN-PATE", "DPLT", "DPLT+", "Gram", "central GAN",
]  # fmt: skip
COLUMNS = {
    "2-way within": "avd2_within", "2-way across": "avd2_cross", "4-way within": "avd4_within",
    "4-way across": "avd4_cross", "CMD within": "cmd_within", "CMD across": "cmd_cross",
}  # fmt: skip

STUDIES = {
    "rows": "rows", "split": "share", "parties": "parties", "upload": "upload", "teachers": "teachers",
}  # fmt: skip


def table(rows: pd.DataFrame, dataset: str) -> str:
    """All methods of the main study on one table."""
    part = rows[(rows.study == "main") & (rows.dataset == dataset)]
    truth, seeds = part.iloc[0], part.seed.nunique()
    scores = ", ".join(
        f"{part[f'trtr_{model}_acc'].mean():.3f} / {part[f'trtr_{model}_auc'].mean():.3f} ({name})"
        for model, name in (("mlp", "MLP"), ("adaboost", "AdaBoost"))
    )
    lines = [
        f"**{dataset}** — {truth.people:,} people, width {truth.width}; {seeds} seed{'s' * (seeds > 1)}; real rows: "
        f"{scores}; control of the attack {part.mia_control.mean():.3f}",
        "",
        "| method | ε | person | "
        + " | ".join(COLUMNS)
        + " | TSTR, MLP | TSTR, AdaBoost | MIA | MB up / down | s |",
        "|---" * (len(COLUMNS) + 8) + "|",
    ]
    for method in METHODS:
        for price, group in part[part.method == method].groupby("epsilon", dropna=False):
            lines.append(_line(method, float(str(price)), group))
    return "\n".join(lines)


def _line(method: str, price: float, group: pd.DataFrame) -> str:
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
    return f"| {name} | {paid} | {person} | " + " | ".join(cells) + " |"


def _mean(values: "pd.Series[float]") -> str:
    spread = f" ±{(values.max() - values.min()) / 2:.3f}".replace("0.", ".") if len(values) > 1 else ""
    return f"{values.mean():.3f}{spread}" if values.notna().any() else "–"


def ablation(rows: pd.DataFrame, study: str) -> str:
    """4-way distance (and, after the stroke, AUC of AdaBoost) over what one study varies."""
    part, over = rows[rows.study == study], STUDIES[study]
    values = sorted(part[over].unique())
    kinds = ["dataset", "epsilon", *(["split"] if part.split.nunique() > 1 else [])]
    lines = [
        f"| {over} | {' | '.join(f'{value:,g}' for value in values)} |",
        "|---" * (len(values) + 1) + "|",
    ]
    for kind, group in part.groupby(kinds):
        table, price, *split = kind
        cells = (group[group[over] == value] for value in values)
        shown = (f"{_mean(cell.avd4)} / {cell.tstr_adaboost_auc.mean():.2f}" for cell in cells)
        lines.append(f"| {', '.join([table, f'ε = {price:g}', *split])} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("datasets", nargs="*")
    args = parser.parse_args()
    rows = pd.read_csv(HERE / "ours.csv")
    known = [name for name in rows[rows.study == "main"].dataset.unique() if name != "toy"]
    print("\n\n".join(table(rows, name) for name in args.datasets or known))
    if not args.datasets:
        print("\n" + "\n\n".join(ablation(rows, study) for study in STUDIES if (rows.study == study).any()))


if __name__ == "__main__":
    main()
