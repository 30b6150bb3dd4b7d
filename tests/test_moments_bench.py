"""The benchmarks of images and of series, on a handful of rows."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

Load = Callable[..., ModuleType]


@pytest.mark.parametrize(
    ("split", "method", "epsilon"),
    [
        ("20 silos", "moments", 8.0),
        ("20 silos", "moments", 0.0),
        ("20 silos", "real", 0.0),
        ("offers", "moments", 8.0),
    ],
)
def test_a_cell_of_images_has_a_row_for_each_classifier(
    load_bench: Load,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    split: str,
    method: str,
    epsilon: float,
) -> None:
    rng = np.random.default_rng(0)
    bench = load_bench("images")
    monkeypatch.setitem(bench.SPLITS, split, 3)
    np.savez(
        tmp_path / "usps.npz", X=rng.random((60, 256), np.float32), y=np.arange(60) % 3
    )
    job: dict[str, Any] = {
        "dataset": "usps",
        "split": split,
        "method": method,
        "epsilon": epsilon,
        "seed": 0,
        "data": tmp_path,
        "device": "cpu",
        "most": None,
        "drawn": 40,
        "epochs": 1,
    }
    rows = bench.measure(job)
    fit = ["fit"] if split == "offers" else []
    assert [row["classifier"] for row in rows] == [
        *fit,
        "cnn",
        "cnn, longer",
        "mlp",
        "logistic",
    ]
    assert all(set(row) == set(bench.FIELDS) for row in rows)
    assert all(0 <= row["accuracy"] <= 1 and row["people"] == 48 for row in rows)


def test_a_cell_of_series_states_what_a_person_pays_in_all(load_bench: Load) -> None:
    bench = load_bench("series")
    for method, epsilon in (("moments", 8.0), ("moments, cells", 0.0), ("real", 0.0)):
        row = bench.measure(
            {
                "dataset": "sine",
                "method": method,
                "epsilon_total": epsilon,
                "seed": 0,
                "data": Path(),
                "most": 60,
                "predictor_steps": 2,
            }
        )
        assert set(row) == set(bench.FIELDS)
        assert np.isfinite([row["mmd"], row["coverage"], row["next_step_mae"]]).all()


def test_a_cell_of_norms_says_which_bound_was_used_and_how_far_the_means_are_off(
    load_bench: Load,
) -> None:
    bench = load_bench("images", "norms")
    for bound in ("declared", "bought"):
        job = {
            "dataset": "sine",
            "epsilon": 4.0,
            "bound": bound,
            "seed": 0,
            "data": Path(),
            "most": 60,
        }
        row = bench.measure(job)
        assert set(row) == set(bench.FIELDS)
        assert (0 < row["norm"] < 1) if bound == "declared" else (0 < row["norm"] <= 1)
        assert np.isfinite([row["means_off"], row["figure"]]).all()


def test_a_cell_of_labels_has_a_row_for_each_label(
    load_bench: Load, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    bench = load_bench("images", "labels")
    np.savez(
        tmp_path / "usps.npz", X=rng.random((60, 256), np.float32), y=np.arange(60) % 10
    )
    job = {
        "dataset": "usps",
        "labels": "digit, ink",
        "epsilon": 8.0,
        "seed": 0,
        "data": tmp_path,
        "device": "cpu",
        "most": None,
        "drawn": 40,
        "epochs": 1,
    }
    rows = bench.measure(job)
    assert [row["label"] for row in rows] == ["digit", "ink"]
    assert all(set(row) == set(bench.FIELDS) and 0 <= row["fit"] <= 1 for row in rows)


def test_a_cell_of_lags_splits_what_is_off_into_noise_fit_and_drawing(
    load_bench: Load,
) -> None:
    bench = load_bench("series", "lags")
    job = {"law": "AR(1) 0.8", "people": 300, "epsilon": 0.0, "seed": 0}
    row = bench.measure(job)
    assert set(row) == set(bench.FIELDS)
    assert row["noise"] == 0
    assert row["released"] == pytest.approx(row["real"], abs=0.005)
    assert row["fit"] == pytest.approx(row["released"], abs=0.005)
    assert row["drawn"] == pytest.approx(row["fit"], abs=0.02)
    loud = bench.measure(job | {"epsilon": 1.0})
    assert loud["noise"] > 0.1


def test_every_cell_of_both_has_a_name_of_its_own(load_bench: Load) -> None:
    for name in ("images", "series"):
        bench = load_bench(name)
        args = bench.parser().parse_args([])
        titles = [bench.GRID.title(job) for job in bench.jobs(args)]
        assert len(set(titles)) == len(titles) > 1
