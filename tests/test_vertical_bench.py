"""The vertical benchmark: its cells, its splits, its scale, on generated rows."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("short_training")


@pytest.fixture(scope="module")
def bench(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("vertical")


ARGS = {
    "data": Path("nowhere"),
    "device": "cpu",
    "rounds": 2,
    "batch": 50,
    "learn": 300,
}


def test_the_two_ends_of_the_scale_stand_where_they_belong(bench: ModuleType) -> None:
    found = {
        method: bench.measure(
            bench.Cell(
                study="main", dataset="toy", method=method, epsilon=None, seed=0
            ),
            ARGS,
        )
        for method in bench.ENDS
    }
    for scope in ("within", "cross"):
        assert (
            found["bootstrap"][f"avd2_{scope}"]
            < 0.05
            < 0.3
            < found["independent"][f"avd2_{scope}"]
        )
    assert found["bootstrap"]["tstr_mlp_acc"] == pytest.approx(
        found["bootstrap"]["trtr_mlp_acc"], abs=0.05
    )


def test_a_cell_of_a_method_says_its_price_and_what_it_sent(bench: ModuleType) -> None:
    cell = bench.Cell(
        study="main", dataset="toy", method="VertiGAN", epsilon=8.0, seed=0
    )
    row = bench.measure(cell, ARGS)
    assert set(row) == set(bench.FIELDS)
    assert 8 < row["epsilon_person"] < 16  # over both parties, who hold the same people
    assert row["up_mb"] > 0
    assert row["down_mb"] > 0
    assert row["rounds"] == 2


def test_a_file_of_finished_cells_is_gone_on_with(
    bench: ModuleType, tmp_path: Path
) -> None:
    every = list(bench.cells(["toy", "a9a", "census"], 2))
    names = [cell.name for cell in every]
    assert len(set(names)) == len(names)
    for cell in every[::7]:
        row = dict.fromkeys(bench.FIELDS, "") | bench.publication.plain(cell)
        bench.GRID.add([row], tmp_path / "ours.csv")
    assert bench.GRID.left(every, tmp_path / "ours.csv") == [
        c for i, c in enumerate(every) if i % 7
    ]


@pytest.mark.parametrize("split", ["random", "correlated"])
def test_every_column_is_with_one_party_in_the_share_that_was_asked_for(
    bench: ModuleType, split: str
) -> None:
    table = bench.load("toy", Path("nowhere"))
    cell = bench.Cell(
        study="split",
        dataset="toy",
        method="VertiGAN",
        epsilon=8.0,
        seed=0,
        split=split,
        share=0.4,
    )
    held = bench.owners(cell, table)
    assert sorted(np.concatenate(list(held.values()))) == sorted(table.schema.names)
    assert [len(columns) for columns in held.values()] == [2, 3]


def test_a_map_has_the_parties_columns_on_two_sides_of_a_line(
    load_bench: Callable[..., ModuleType],
) -> None:
    pytest.importorskip("PIL")
    maps = load_bench("vertical", "maps")
    table = maps.load("toy", Path("nowhere"), 0)
    plain, lined = maps.parted_map(table.train, table.schema, 2)
    assert len(lined) == len(plain) + 1
    assert (lined[2] == maps.GREY).all()
    assert (lined[:, 2] == maps.GREY).all()
    across = np.delete(lined[:2], 2, axis=1)[:, 2:]
    assert (across == plain[:2, 2:]).all()
