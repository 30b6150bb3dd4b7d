"""The benchmark of questions runs on few rows and writes what it measured."""

import csv
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def test_every_question_is_timed(
    load_bench: Callable[..., ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUICK", "1")
    monkeypatch.setattr("sys.argv", ["bench.py", "--out", str(tmp_path / "ours.csv")])
    load_bench("answers").main()
    with (tmp_path / "ours.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    assert all(float(row["cpu_seconds"]) >= 0 for row in rows)
