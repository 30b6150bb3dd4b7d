"""The benchmark of a union beside an intersection, on a few hundred people."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("short_training", "short_fits")


@pytest.fixture(scope="module")
def bench(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("union")


@pytest.mark.parametrize(("presence", "target"), [("random", False), ("skewed", True)])
def test_a_cell_measures_both_alignments_and_is_not_done_twice(
    bench: ModuleType, tmp_path: Path, presence: str, target: bool
) -> None:
    cell = bench.Cell(
        dataset="toy", shares="70/70", presence=presence, target=target, seed=0
    )
    row = bench.measure(cell, {"data": tmp_path, "people": 400})
    assert set(row) == set(bench.FIELDS)
    assert 0.4 < row["people_at_both"] / row["people"] < 0.6
    for alignment in bench.ALIGNMENTS:
        assert 0 < row[f"{alignment}_both_avd2"] < 0.2
        assert 0 < row[f"{alignment}_own_avd2"] < 0.2
        assert row[f"{alignment}_auc"] > 0.7
    assert row["union_both_avd2"] != row["intersection_both_avd2"]
    bench.GRID.add([row], tmp_path / "ours.csv")
    assert not bench.GRID.left([cell], tmp_path / "ours.csv")


def test_a_skewed_holder_has_people_of_upper_levels_twice_as_often(
    bench: ModuleType,
) -> None:
    codes = np.repeat(np.arange(4), 5_000)[:, None]
    cell = bench.Cell(
        dataset="toy", shares="70/70", presence="skewed", target=False, seed=1
    )
    at = bench.present(cell, codes, {"first": 0, "second": 0})
    for name in bench.HOLDERS:
        shares = at[name].reshape(4, -1).mean(1)
        assert shares == pytest.approx([0.467, 0.467, 0.933, 0.933], abs=0.02)
        assert at[name].mean() == pytest.approx(0.7, abs=0.01)
    assert not np.array_equal(at["first"], at["second"])


def test_every_cell_has_a_name_of_its_own(bench: ModuleType) -> None:
    names = [cell.name for cell in bench.cells([*bench.MAY_CHOOSE], 2)]
    assert len(set(names)) == len(names) == 32
