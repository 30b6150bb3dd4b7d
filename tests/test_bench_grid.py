"""The grid of benchmark cells: stopped, gone on with, added to by several, spoiled by
none.
"""

import importlib
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
FIELDS = ("dataset", "seed", "figure")
JOBS = [{"dataset": name, "seed": seed} for name in ("a", "b") for seed in (0, 1)]


@pytest.fixture(scope="module")
def grid() -> Iterator[ModuleType]:
    sys.path.append(str(FOLDER))
    yield importlib.import_module("common.grid")
    sys.path.remove(str(FOLDER))


def measure(job: dict[str, Any]) -> dict[str, Any]:
    if job["dataset"] == "b" and job["seed"] == 0:
        raise ValueError("this cell is spoiled")
    return job | {"figure": 0.5}


def arguments(out: Path, *, only_list: bool = False) -> Namespace:
    return Namespace(out=out, jobs=1, list=only_list)


def test_a_spoiled_cell_leaves_the_others_and_is_all_that_is_left_to_do(
    grid: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ours.csv"
    key = ("dataset", "seed")
    cells = grid.Grid(fields=FIELDS, key=key, order=grid.by_text(*key))
    with pytest.raises(
        SystemExit, match=r"1 cells failed; the same command tries them again\."
    ):
        cells.run(measure, JOBS, arguments(out))
    said = capfd.readouterr()
    assert "b/0 failed: this cell is spoiled" in said.err
    assert "4 cells to do" in said.out
    assert out.read_text() == "dataset,seed,figure\na,0,0.5\na,1,0.5\nb,1,0.5\n"
    cells.run(measure, JOBS, arguments(out, only_list=True))
    assert capfd.readouterr().out == "b/0\n"
    assert not list(tmp_path.glob("*.part"))


def test_a_cell_may_have_several_rows_and_its_order_is_that_of_the_text(
    grid: ModuleType, tmp_path: Path
) -> None:
    out = tmp_path / "ours.csv"
    cells = grid.Grid(
        fields=FIELDS, key=("dataset",), order=grid.by_text("dataset", "figure")
    )
    cells.add([{"dataset": "b", "figure": 0.25}], out)
    cells.add([{"dataset": "a", "figure": 9.5}, {"dataset": "a", "figure": 10.5}], out)
    assert [(row["dataset"], row["figure"]) for row in grid.read(out)] == [
        ("a", "10.5"),
        ("a", "9.5"),
        ("b", "0.25"),
    ]
    assert cells.left([{"dataset": "a"}, {"dataset": "c"}], out) == [{"dataset": "c"}]


def test_a_file_from_before_a_column_was_added_is_gone_on_with(
    grid: ModuleType, tmp_path: Path
) -> None:
    out = tmp_path / "ours.csv"
    out.write_text("dataset,seed\r\na,0\r\n")
    cells = grid.Grid(fields=FIELDS, key=("dataset", "seed"))
    cells.add([{"dataset": "a", "seed": 1, "figure": 0.5}], out)
    assert out.read_text() == "dataset,seed,figure\na,0,\na,1,0.5\n"


def test_nothing_is_lost_where_several_add_to_one_file(
    grid: ModuleType, tmp_path: Path
) -> None:
    out = tmp_path / "ours.csv"
    cells = grid.Grid(fields=FIELDS, key=("dataset", "seed"))
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda seed: cells.add(
                    [{"dataset": "a", "seed": seed, "figure": 0}], out
                ),
                range(64),
            )
        )
    assert sorted(int(row["seed"]) for row in grid.read(out)) == list(range(64))


def test_without_a_file_everything_is_left_to_do(
    grid: ModuleType, tmp_path: Path
) -> None:
    cells = grid.Grid(fields=FIELDS, key=("dataset", "seed"))
    assert cells.left(JOBS, None) == cells.left(JOBS, tmp_path / "none.csv") == JOBS


@pytest.mark.parametrize(
    "bench",
    [
        "vertical",
        "joint",
        "sgde",
        "gen_fl",
        "fed_wae",
        "fed_stdg",
        "sign_ds",
        "numbers",
    ],
)
def test_the_figures_that_were_measured_stand_in_the_columns_and_in_the_order_of_their_grid(
    grid: ModuleType, load_bench: Callable[..., ModuleType], bench: str
) -> None:
    module = load_bench(bench)
    rows = grid.read(FOLDER / bench / "ours.csv")
    assert set(module.GRID.key) <= set(rows[0]) <= set(module.GRID.fields)
    if module.GRID.order is not None:
        assert rows == sorted(rows, key=module.GRID.order)
