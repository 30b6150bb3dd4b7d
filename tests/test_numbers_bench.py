"""The numbers benchmark measures numbers as they are, on columns of a known law."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SMALL = {"steps": 20, "components": 32}


@pytest.fixture(scope="module")
def bench(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("numbers")


def test_bought_levels_find_incomes_that_equal_bins_lose(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = bench.HistGradientBoostingClassifier
    monkeypatch.setattr(
        bench,
        "HistGradientBoostingClassifier",
        lambda **how: trees(**(how | {"max_iter": 10})),
    )
    args = {"data": tmp_path, "device": "cpu", "settings": SMALL}
    named = {cell.name: cell for cell in bench.cells(["laws"], [2_000], 1)}
    bought, equal = (
        {
            row["column"]: row
            for row in bench.measure(named[f"laws/2000/{method}/10/ε=4/seed=0"], args)
        }
        for method in ("bought", "equal")
    )
    assert list(bought) == [
        "pareto",
        "heaped",
        "log_normal",
        "zero_inflated",
        "bimodal",
        "(all)",
    ]
    assert bought["pareto"]["ks"] < 0.1 < 0.5 < equal["pareto"]["ks"]
    assert bought["pareto"]["median_error"] < 0.1
    assert equal["pareto"]["median_error"] > 10
    assert (
        bought["zero_inflated"]["spike_error"]
        < 0.1
        < equal["zero_inflated"]["spike_error"]
    )
    assert bought["(all)"]["avd2"] < equal["(all)"]["avd2"]
    assert 0.5 < bought["(all)"]["tstr_auc"] < 1
    out = tmp_path / "ours.csv"
    bench.GRID.add([bought["pareto"]], out)
    cells = [*named.values()]
    assert bench.GRID.left(cells, out) == [
        cell for cell in cells if cell.name != "laws/2000/bought/10/ε=4/seed=0"
    ]


def test_figures_of_a_column_by_hand(bench: ModuleType) -> None:
    real = np.array([0.0, 0, 1, 2, 4])
    other = np.array([0.0, 1, 1, 2, np.nan])
    found = bench.column_figures(real, other, np.array([0.0, 1, 2, 3, 4, 5]))
    assert found["ks"] == 0.2, (
        "one of five is above 2, and two of five, not one of four, are 0"
    )
    assert found["median_error"] == 0
    assert found["median_cells"] == 0
    assert found["mean_ratio"] == round(1 / 1.4, 4)
    assert found["spike_error"] == 0.3, (
        "a number that the synthetic rows share too often counts, too"
    )
    assert (
        bench.column_figures(other[:4], real, np.array([0.0, 5]))["median_cells"] == 0
    )


def test_a_schema_says_that_every_row_is_another_person(
    bench: ModuleType, tmp_path: Path
) -> None:
    table = bench.load("laws", tmp_path)
    for schema in (table.draft, table.hand, bench.widened(table.draft, 10)):
        schema.require_unit()
        assert schema.rows_are_people


def test_generated_columns_have_the_law_that_is_said(
    load_bench: Callable[..., ModuleType],
) -> None:
    laws = load_bench("numbers", "laws")
    rows = laws.drawn(40_000)
    assert rows["pareto"].median() == pytest.approx(500 * 2 ** (2 / 3), rel=0.03)
    assert (rows["pareto"] > 50_000).mean() == pytest.approx(0.001, rel=0.5)
    assert rows["log_normal"].median() == pytest.approx(20, rel=0.03)
    assert (rows["zero_inflated"] == 0).mean() == pytest.approx(0.7, abs=0.01)
    assert rows["zero_inflated"][rows["zero_inflated"] > 0].mean() == pytest.approx(
        300, rel=0.05
    )
    assert (rows["heaped"] % 10 == 0).mean() > 2 / 3
    assert ((rows["bimodal"] > 2) & (rows["bimodal"] < 10)).mean() < 0.01
    assert (rows["bimodal"] < 5).mean() == pytest.approx(0.4, abs=0.02)


def test_bounds_are_widened_away_from_zero_and_towards_it(
    load_bench: Callable[..., ModuleType],
) -> None:
    tables = load_bench("numbers", "tables")
    columns = (
        tables.Integer(name="whole", low=-100, high=900),
        tables.Real(name="real", low=2.5, high=5.0, decimals=1),
    )
    wider = tables.widened(tables.Schema(columns=columns), 10).columns
    assert [(c.low, c.high) for c in wider] == [(-1_000, 9_000), (0.25, 50.0)]


def test_what_matters_most_comes_first_and_bins_made_by_hand_are_not_widened(
    bench: ModuleType,
) -> None:
    names = [
        cell.name for cell in bench.cells(["adult", "wine_quality"], [20_000, 4_000], 2)
    ]
    assert len(set(names)) == len(names)
    assert names[0] == "adult/20000/bought/10/ε=1/seed=0"
    assert not any("wine_quality/20000" in name for name in names), (
        "there are not so many"
    )
    assert {name.split("/")[3] for name in names if "/hand/" in name} == {"1"}
