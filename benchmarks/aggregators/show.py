"""The tables of README.md, from ours.csv and quality.csv: `make tables NAME=aggregators`."""

from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import fmean

from common.markdown import short, table
from common.rows import read

HERE = Path(__file__).parent
COLUMNS = {
    "upload, bytes": "upload_bytes", "to the second, bytes": "second_bytes", "one upload, ms": "client_ms",
    "all uploads, s": "host_s", "server, s": "first_s", "second aggregator, s": "second_s", "peak, MB": "peak_mb",
    "liars found": "refused",
}  # fmt: skip
METHODS = ("gram-columns", "two-aggregators")
Means = dict[tuple[str, str, str], dict[str, float]]


def ours() -> str:
    return table(
        ("people", *COLUMNS),
        [
            (f"{int(row['people']):,}", *(short(row[name]) for name in COLUMNS.values()))
            for row in read(HERE / "ours.csv")
        ],
        "r",
    )


def means() -> Means:
    """Of every table, method and ε the mean over seeds."""
    cells = defaultdict(list)
    for row in read(HERE / "quality.csv"):
        cells[row["dataset"], row["method"], row["epsilon"]].append(row)
    figures = ("sigma", "avd2", "avd3", "tstr_boosting_auc")
    return {
        key: {name: fmean(float(row[name]) for row in rows) for name in figures}
        for key, rows in cells.items()
    }


def quality(kind: str = "") -> str:
    found, rows = means(), []
    for dataset, epsilon in sorted(
        {(key[0], key[2]) for key in found if key[1] == METHODS[1] + kind},
        key=lambda key: (key[0], float(key[1])),
    ):
        gram, ours = (found[dataset, method + kind, epsilon] for method in METHODS)
        rows.append(
            (
                dataset, f"{float(epsilon):g}", *(f"{one['avd2']:.4f}" for one in (gram, ours)),
                f"{ours['avd2'] / gram['avd2']:.2f}", *(f"{one['avd3']:.4f}" for one in (gram, ours)),
                *(f"{one['tstr_boosting_auc']:.3f}" for one in (gram, ours)),
            )
        )  # fmt: skip
    sides = ("`gram`", "two aggregators")
    heads = [f"{figure}, {side}" for figure in ("2-way", "3-way", "AUC") for side in sides]
    return table(("table", "ε", *heads[:2], "ratio", *heads[2:]), rows, "lr")


def ratio() -> str:
    """The mean of the ratios of 2-way distances."""
    found = means()
    pairs = {(key[0], key[2]) for key in found if key[1] == METHODS[1]}
    return f"{fmean(found[d, METHODS[1], e]['avd2'] / found[d, METHODS[0], e]['avd2'] for d, e in pairs):.2f}"


def balance() -> str:
    """Of every table and ε the mean over seeds, by power."""
    cells = defaultdict(list)
    for row in read(HERE / "balance.csv"):
        cells[row["dataset"], row["epsilon"], row["power"]].append(row)
    powers, rows = ("0", "1/8", "1/4", "1/3"), []
    for dataset, epsilon in sorted({key[:2] for key in cells}):
        means = [
            [fmean(float(row[name]) for row in cells[dataset, epsilon, power]) for power in powers]
            for name in ("avd2", "tstr_boosting_auc")
        ]
        rows.append(
            (
                dataset,
                f"{float(epsilon):g}",
                *(f"{one:.4f}" for one in means[0]),
                *(f"{one:.3f}" for one in means[1]),
            )
        )
    heads = [f"{figure}, {power}" for figure in ("2-way", "AUC") for power in powers]
    return table(("table", "ε", *heads), rows, "lr")


TABLES = {
    "ours": ours,
    "quality": quality,
    "targeted": partial(quality, ", target"),
    "balance": balance,
    "ratio": ratio,
}
