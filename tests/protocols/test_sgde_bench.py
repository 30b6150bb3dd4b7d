"""The SGDE benchmark measures what it says, on generated rows."""

import csv
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from understudy.data.samples import toy

pytestmark = pytest.mark.usefixtures("short_fits")

HERE = Path(__file__).parents[2] / "benchmarks" / "sgde"


@pytest.fixture(scope="module")
def bench(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("sgde")


def test_every_method_gives_both_tables(bench: ModuleType, tmp_path: Path) -> None:
    frame, schema = toy(rows=140, seed=1)
    some = ["colour", "smoker", "age"]
    frame = frame[["id", *some]]
    schema = schema.select(some)
    frames = [frame.iloc[k:120:3] for k in range(3)]
    task = bench.tasks.of_frames("toy", schema, "smoker", frames, frame.iloc[120:])
    rows = [
        row
        for method in bench.METHODS
        for row in bench.measure(
            task, method, seed=0, device="cpu", drawn=200, rounds=2, steps=3
        )
        if set(row) == set(bench.FIELDS)
    ]
    assert [(row["method"], row["table"]) for row in rows] == [
        (method, table) for method in bench.METHODS for table in ("I", "III")
    ]
    assert all(0 <= row["accuracy"] <= 100 for row in rows)
    bench.GRID.add(rows, tmp_path / "ours.csv")
    assert (tmp_path / "ours.csv").read_text().count("\n") == 1 + 2 * len(bench.METHODS)


def test_images_are_measured_the_same_way(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.tasks, "_lenet", partial(bench.tasks._lenet, steps=2))
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (90, 28, 28)).astype(np.uint8)
    y = np.arange(90) % 10
    parts = {f"silo {k}": np.s_[k * 30 : (k + 1) * 30] for k in range(3)}
    held = {
        name: bench.tasks.Population.from_arrays(x[part], y[part], classes=10)
        for name, part in parts.items()
    }
    own = [(x[part] / np.float32(255), y[part]) for part in parts.values()]
    task = bench.tasks.Task("mnist", 10, held, {}, own, own[0], None)
    small = {"steps": 1, "channels": (2,), "latent": 2, "drawn": 60}
    rows = bench.measure(task, "synthetic", seed=0, device="cpu", **small)
    assert [(row["epsilon"], row["table"]) for row in rows] == [
        (1.5, "I"),
        (1.5, "III"),
    ]
    assert all(0 <= row["accuracy"] <= 100 for row in rows)


def test_a_sheet_has_a_column_for_each_class(
    load_bench: Callable[..., ModuleType],
) -> None:
    sheets = load_bench("sgde", "sheets")
    shades = np.arange(20, dtype=np.float32).repeat(28 * 28) / 20
    sheet = sheets.sheet(shades.reshape(20, 28, 28), 10)
    assert sheet.shape == (2 * 28, 10 * 28)
    assert (sheet[28:, :28] == round(255 * 10 / 20)).all()
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (40, 28, 28)).astype(np.uint8)
    y = np.arange(40) % 10
    halves = {"a": np.s_[:20], "b": np.s_[20:]}
    held = {
        name: sheets.tasks.Population.from_arrays(x[half], y[half], classes=10)
        for name, half in halves.items()
    }
    own = [(x[half], y[half]) for half in halves.values()]
    whole = sheets.tasks.Task("mnist", 10, held, {}, own, own[0], None)
    alone = sheets.of_one_silo(whole)
    assert list(alone.held) == ["a"]
    small = {"steps": 1, "channels": (2,), "latent": 2}
    images = sheets.rows_of_images(alone, private=True, seed=0, device="cpu", **small)
    assert images.shape == (sheets.ROWS * 10, 28, 28)


def test_every_data_set_comes_once_before_any_comes_twice(bench: ModuleType) -> None:
    args = Namespace(
        only=["titanic", "adult"],
        methods=["synthetic"],
        seeds=2,
        silos=3,
        device="cpu",
        steps=None,
        data=Path(),
    )
    order = [(job["dataset"], job["seed"]) for job in bench.jobs(args)]
    assert order == [("titanic", 0), ("adult", 0), ("titanic", 1), ("adult", 1)]


def test_scores_are_those_of_a_classifier_that_is_right_and_of_one_that_is_wrong(
    bench: ModuleType,
) -> None:
    y = np.array([0, 1, 1, 0])
    right = np.eye(2)[y]
    assert bench.tasks.scores(right, y) == {"accuracy": 100, "f1": 100, "auc": 100}
    assert bench.tasks.scores(right[:, ::-1], y) == {"accuracy": 0, "f1": 0, "auc": 0}


def test_the_papers_figures_stand_beside_for_every_data_set(bench: ModuleType) -> None:
    with (HERE / "paper.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7 * 2 * 3
    assert {row["dataset"] for row in rows} <= {
        *bench.tasks.TARGETS,
        *bench.tasks.IMAGES,
    }


def test_the_declared_schemas_have_their_class(bench: ModuleType) -> None:
    for name, target in bench.tasks.TARGETS.items():
        schema = bench.tasks.Schema.load(bench.HERE / "schemas" / f"{name}.toml")
        assert bench.tasks.TableFeatures(schema, target).labels
    assert isinstance(
        bench.tasks._table("breast_cancer_diagnostic", Path()), pd.DataFrame
    )
