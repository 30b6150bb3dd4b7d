"""The benchmark of rows at different holders of the same people, on a handful of
them.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.usefixtures("short_fits")
Load = Callable[..., ModuleType]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("mnist_train_a.npz", "mnist_test.npz"):
        pixels = rng.integers(0, 90, (60, 28, 28), dtype=np.uint8)
        np.savez(tmp_path / name, X=pixels, y=np.arange(60) % 10)
    names = [
        "Appliances",
        *(f"{kind}{n}" for n in range(1, 10) for kind in ("T", "RH_")),
    ]
    frame = pd.DataFrame(rng.random((12 * 60, len(names))) * 20 + 5, columns=names)
    frame.to_csv(tmp_path / "timegan_energy.csv.gz", index=False)
    return tmp_path


@pytest.mark.parametrize(
    ("split", "method", "targets"),
    [
        ("label", "tied", 1),
        ("halves", "apart", 2),
        ("rooms", "tied, one covariance", 2),
        ("rooms", "real", 2),
    ],
)
def test_a_cell_has_a_row_for_each_column_and_classifier(
    load_bench: Load, data: Path, split: str, method: str, targets: int
) -> None:
    bench = load_bench("tied")
    job: dict[str, Any] = {
        "dataset": "energy" if split == "rooms" else "mnist",
        "split": split,
        "method": method,
        "epsilon": 8.0,
        "seed": 0,
        "data": data,
        "device": "cpu",
        "most": None,
        "drawn": 40,
        "epochs": 1,
        "rounds": 1,
    }
    rows = bench.measure(job)
    assert [row["classifier"] for row in rows] == ["mlp", "cnn"] * targets
    assert all(set(row) == set(bench.FIELDS) for row in rows)
    assert all(0 <= row["accuracy"] <= 1 and 0 <= row["cmd_cross"] < 2 for row in rows)
    assert (rows[0]["cmd_cross"] == 0) == (method == "real")


def test_every_cell_has_a_name_of_its_own(load_bench: Load) -> None:
    bench = load_bench("tied")
    titles = [
        bench.GRID.title(job) for job in bench.jobs(bench.parser().parse_args([]))
    ]
    assert len(set(titles)) == len(titles) > 1
