"""The benchmark's own code, on a few generated rows."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from understudy.data.schema import Boolean, Schema


@pytest.fixture(scope="module")
def bench(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("fed_wae")


def job(**changes: Any) -> dict[str, Any]:
    usual = {
        "dataset": "toy",
        "method": "DP-Fed-WAE",
        "epsilon": 8.0,
        "top": 0.1,
        "seed": 0,
        "settings": '{"hidden": 8}',
        "data": None,
        "device": "cpu",
        "rounds": 4,
        "clients_per_round": 75,
        "models": ("mlp",),
    }
    return usual | changes


def test_a_row_states_the_price_of_a_report_and_of_the_run(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    # slow, and tested below
    monkeypatch.setattr(bench, "figures", lambda *_, **__: {"avd2": 0.5})
    often, _ = bench.measure(job())
    assert often["participations"] == 2  # 4 rounds of 75 among 150 people
    assert often["epsilon_run"] == 16.0
    assert set(often) <= set(bench.FIELDS)
    once, _ = bench.measure(job(method="DP-Fed-WAE, once"))
    assert (once["rounds"], once["participations"], once["epsilon_run"]) == (2, 1, 8.0)


@pytest.mark.usefixtures("short_training_here")
def test_independent_columns_keep_the_marginals_and_nothing_else(
    bench: ModuleType,
) -> None:
    (row,) = bench.measure(job(method="independent columns", epsilon="", top=""))
    assert 0 < row["avd2"] < row["avd4"] < 1
    assert "epsilon_run" not in row


def test_a_finished_cell_is_not_run_again(bench: ModuleType, tmp_path: Path) -> None:
    row = {name: str(job()[name]) for name in bench.KEY if name != "draw"} | {
        "draw": "sample"
    }
    bench.GRID.add([row], tmp_path / "out.csv")
    args = Namespace(
        out=tmp_path / "out.csv",
        seeds=1,
        only=["toy"],
        methods=["DP-Fed-WAE"],
        epsilons=[8.0],
        tops=[0.1],
        jobs=1,
        set={"hidden": 8},
        data=None,
        device="cpu",
        rounds=4,
        clients_per_round=75,
        models=("mlp",),
    )
    assert bench.GRID.left(bench.jobs(args), args.out) == []
    assert bench.GRID.left(bench.jobs(args), None) == [job()]


def test_the_race_is_between_equal_results(
    load_bench: Callable[..., ModuleType],
) -> None:
    (row,) = load_bench("fed_wae", "speed").race_all(Path("none"), quick=True, out=None)
    assert float(row["difference"]) < 1e-4


def test_a_sheet_holds_64_images(load_bench: Callable[..., ModuleType]) -> None:
    pytest.importorskip("PIL")
    load_bench("fed_wae", "sheets").draw_all(
        Path("none"), device="cpu", quick=True, out=Path("none"), settings={}
    )


def test_shadow_models_of_the_benchmark_find_copies_and_state_what_was_learned(
    load_bench: Callable[..., ModuleType],
) -> None:
    shadows = load_bench("fed_wae", "shadows")
    cell = {
        "dataset": "toy",
        "method": "copies",
        "epsilon": "",
        "seed": 0,
        "data": None,
        "rows": 60,
        "clients_per_round": 10,
        "steps": 2,
        "targets": 6,
        "shadows": 8,
        "tested": 12,
        "machine": "here",
    }
    copied = shadows.measure(cell)
    assert set(copied) == set(shadows.FIELDS)
    assert copied["avd2"] == 0
    assert copied["p"] < 0.05
    private = shadows.measure(
        cell | {"method": "DP-Fed-WAE, once", "epsilon": 8.0, "shadows": 4, "tested": 4}
    )
    assert private["avd2"] > 0
    assert private["p"] > 0.01


@pytest.mark.usefixtures("short_training_here")
@pytest.mark.parametrize(("rows", "reports"), [(2, 1), (20, 10)])
def test_people_with_more_rows_report_more_often_at_the_same_total_price(
    load_bench: Callable[..., ModuleType], rows: int, reports: int
) -> None:
    people = load_bench("fed_wae", "people")
    cell = {
        "study": "people",
        "dataset": "toy",
        "method": "DP-Fed-WAE",
        "records": 200,
        "rows_per_person": rows,
        "epsilon": 8.0,
        "seed": 0,
        "data": None,
        "device": "cpu",
        "models": ("mlp",),
        "settings": '{"hidden": 8, "epochs": 1}',
        "machine": "here",
    }
    row = people.measure(cell)
    assert set(row) <= set(people.FIELDS)
    assert row["people"] * rows == 200
    assert row["max_reports"] == reports
    # everybody reports that often, whatever the split
    assert row["rounds"] * people.CLIENTS_PER_ROUND == 100


@pytest.mark.usefixtures("short_training_here")
@pytest.mark.parametrize("method", ["LoPub", "independent columns"])
def test_distances_of_more_columns_are_larger(
    load_bench: Callable[..., ModuleType], method: str
) -> None:
    ways = load_bench("fed_wae", "ways")
    job = {
        "dataset": "toy",
        "method": method,
        "epsilon": 4.0,
        "seed": 0,
        "data": None,
        "top": 0.1,
        "settings": "{}",
        "device": "cpu",
        "rounds": 2,
        "clients_per_round": 10,
        "machine": "here",
    }
    rows = ways.measure(job)
    assert [row["ways"] for row in rows] == list(ways.WAYS)
    assert all(set(row) == set(ways.FIELDS) for row in rows)
    distances = [row["avd"] for row in rows]
    assert distances == sorted(distances)


def test_computing_times_are_of_the_network_that_the_run_would_have(
    load_bench: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = load_bench("fed_wae", "times")
    monkeypatch.setattr(times, "TURNS", 1)
    monkeypatch.setattr(times, "DRAWN", 100)
    row = times.measure("toy", None, "here")
    assert list(row) == times.FIELDS
    assert min(row["client_ms"], row["server_ms"], row["drawing_s"]) > 0


def test_a_map_shows_what_hangs_together_and_nothing_else(
    load_bench: Callable[..., ModuleType],
) -> None:
    pytest.importorskip("PIL")
    maps = load_bench("common", "maps")
    schema = Schema(columns=tuple(Boolean(name=name) for name in "abc"))
    first = np.arange(40) % 2 == 0
    frame = pd.DataFrame({"a": first, "b": ~first, "c": False})
    square = maps.correlation_map(frame, schema)
    assert square[0, 0].tolist() == [255, 0, 0]
    assert square[0, 1].tolist() == [0, 0, 255]
    assert (square[2] == 255).all()
    assert maps.side_by_side([square, square]).shape[1] == 6 * len(square) + maps.GAP
