"""The SGDE benchmark measures what it says, on generated rows."""

import csv
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from understudy.data.samples import toy

HERE = Path(__file__).parents[2] / "benchmarks" / "sgde"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(str(HERE))
    for name in ("bench", "tasks"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import bench

    yield bench
    for name in ("bench", "tasks"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_every_method_gives_both_tables(bench, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    frame, schema = toy(rows=140, seed=1)
    frames = [frame.iloc[k:120:3] for k in range(3)]
    task = bench.tasks.of_frames("toy", schema, "smoker", frames, frame.iloc[120:])
    rows = [
        row
        for method in bench.METHODS
        for row in bench.measure(task, method, seed=0, device="cpu", drawn=200, rounds=2, steps=3)
        if set(row) == set(bench.FIELDS)
    ]
    assert [(row["method"], row["table"]) for row in rows] == [
        (method, table) for method in bench.METHODS for table in ("I", "III")
    ]
    assert all(0 <= row["accuracy"] <= 100 for row in rows)
    bench.write(tmp_path / "ours.csv", rows)
    assert len(bench.read(tmp_path / "ours.csv")) == 8


def test_scores_are_those_of_a_classifier_that_is_right_and_of_one_that_is_wrong(bench) -> None:  # type: ignore[no-untyped-def]
    y = np.array([0, 1, 1, 0])
    right = np.eye(2)[y]
    assert bench.tasks.scores(right, y) == {"accuracy": 100, "f1": 100, "auc": 100}
    assert bench.tasks.scores(right[:, ::-1], y) == {"accuracy": 0, "f1": 0, "auc": 0}


def test_the_papers_figures_stand_beside_for_every_data_set(bench) -> None:  # type: ignore[no-untyped-def]
    with (HERE / "paper.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7 * 2 * 3
    assert {row["dataset"] for row in rows} <= {*bench.tasks.TARGETS, *bench.tasks.IMAGES}


def test_the_declared_schemas_have_their_class(bench) -> None:  # type: ignore[no-untyped-def]
    for name, target in bench.tasks.TARGETS.items():
        schema = bench.tasks.Schema.load(bench.HERE / "schemas" / f"{name}.toml")
        assert bench.tasks.TableFeatures(schema, target).labels
    assert isinstance(bench.tasks._table("breast_cancer_diagnostic", Path()), pd.DataFrame)
