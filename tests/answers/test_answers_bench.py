"""The benchmark of questions runs on few rows and writes what it measured."""

import csv
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest


def test_every_question_is_timed(
    load_bench: Callable[..., ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QUICK", "1")
    monkeypatch.setattr("sys.argv", ["bench.py", "--out", str(tmp_path / "ours.csv")])
    load_bench("answers").main()
    with (tmp_path / "ours.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    assert all(float(row["cpu_seconds"]) >= 0 for row in rows)


def test_every_rehearsal_of_an_interval_is_in_one_cell_and_counts_once(
    load_bench: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = load_bench("answers", "coverage")
    some = [
        "coverage.py",
        "--people",
        "500",
        "--bounds",
        "found",
        "--first",
        "1000",
        "--rehearsals",
    ]
    asked = {}
    for rehearsals in (20, 25):
        monkeypatch.setattr("sys.argv", [*some, str(rehearsals)])
        asked[rehearsals] = list(bench.cells(bench.parser().parse_args()))
    seeds = [
        seed for cell in asked[25] for seed in range(cell["first"], cell["last"] + 1)
    ]
    assert seeds == [*range(1000, 1025)]
    assert asked[25][:2] == asked[20], "more rehearsals go on from those that are done"

    about = {
        "interval": "now",
        "bounds": "found",
        "people": 500,
        "figure": "mean",
        "law": "normal",
        "given": "",
    }
    ends = [
        (10.0, 11.0, 9.0, 12.0),
        (10.0, 9.0, 8.0, 9.5),
        (10.0, float("nan"), float("nan"), float("nan")),
    ]
    rows = [about | dict(zip(bench.ENDS, one, strict=True)) for one in ends]
    (row,) = bench.summary(pd.DataFrame(rows))
    assert row == about | {
        "rehearsals": 3,
        "covered": "33.3",
        "off": "0.0",
        "width": "22.5",
    }
