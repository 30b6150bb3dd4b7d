"""The tables of the README from `ours.csv` and `paper.csv`: accuracy / F1 / AUC, mean ± half the range over seeds."""

import csv
from pathlib import Path

HERE = Path(__file__).parent
METRICS = ("accuracy", "f1", "auc")
METHODS = ("local", "federated", "synthetic", "synthetic, counts", "synthetic, no noise")
Row = dict[str, str]


def main(ours: Path = HERE / "ours.csv") -> None:
    rows, paper = (list(csv.DictReader(path.read_text().splitlines())) for path in (ours, HERE / "paper.csv"))
    for table in ("III", "I"):
        print(
            f"\nTable {table}\n\n| data set | seeds | | {' | '.join(METHODS)} |\n|{'---|' * (3 + len(METHODS))}"
        )
        for dataset in dict.fromkeys(row["dataset"] for row in [*paper, *rows]):
            mine = [row for row in rows if (row["dataset"], row["table"]) == (dataset, table)]
            theirs = [row for row in paper if (row["dataset"], row["table"]) == (dataset, table)]
            seeds = len({row["seed"] for row in mine})
            if mine:
                print(f"| {dataset} | {seeds} | ours | {' | '.join(cells(mine))} |")
            if theirs:
                print(f"| {'' if mine else dataset} | | paper | {' | '.join(cells(theirs))} |")


def cells(rows: list[Row]) -> list[str]:
    """A cell for each method."""
    return [
        " / ".join(spread([float(row[name]) for row in rows if row["method"] == method]) for name in METRICS)
        if any(row["method"] == method for row in rows)
        else ""
        for method in METHODS
    ]


def spread(values: list[float]) -> str:
    half = (max(values) - min(values)) / 2
    middle = f"{sum(values) / len(values):.1f}"
    return middle if len(values) == 1 else f"{middle} ± {half:.1f}"


if __name__ == "__main__":
    main()
