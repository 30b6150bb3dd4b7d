"""The strangers benchmark measures a table as it came, by the one line alone."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.usefixtures("short_fits")


@pytest.fixture(scope="module")
def bench(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("strangers")


def test_a_cell_has_a_row_for_every_column_and_one_for_all(bench: ModuleType, tmp_path: Path) -> None:
    (cell,) = bench.cells(["codes"], "now", [4.0], 1)
    small = {"components": 4, "steps": 2}
    rows = bench.measure(cell, {"data": tmp_path, "people": 400, "settings": small})
    assert [row["column"] for row in rows] == ["kind", "satisfied", "school", "affairs", "share", "left", "(all)"]
    assert {row["people"] for row in rows} == {400}
    assert all(0 <= row["ks"] <= 1 for row in rows[:5] if not row["left_out"])
    assert 0 <= rows[-1]["tstr_auc"] <= 1 >= rows[-1]["trtr_auc"] > 0.6
    out = tmp_path / "ours.csv"
    bench.GRID.add(rows, out)
    assert not bench.GRID.left([cell], out)


@pytest.mark.parametrize(
    ("real", "made", "found"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 3], {"kind": "number", "ks": 0.25, "form": "", "mean": 0.9}),
        ([1, 2, 3, 4], [1.0, None, 3, 4], {"form": "int64 as float64; gaps", "gap": 0.25}),
        ([0.5, 1.5], [0.51, 1.5], {"form": "2 decimals for 1"}),
        (["a", "b"], ["a", "(other)"], {"kind": "text", "tv": 0.5, "form": "new words: (other)"}),
        (["2001-02-03", "2001-02-05"], ["2001-02-03", "2001-02-04"], {"kind": "day", "ks": 0.5, "form": ""}),
        (["2001-02-03"], ["03/02/01"], {"kind": "day", "ks": 1.0, "form": "days"}),
        ([None, None], [None, None], {"kind": "unsaid"}),
    ],
)
def test_figures_of_a_column_by_hand(bench: ModuleType, real: list, made: list, found: dict) -> None:  # type: ignore[type-arg]
    figures = bench.column_figures(pd.Series(real), pd.Series(made))
    assert {name: figures[name] for name in found} == found
    assert bench.column_figures(pd.Series(real), None)["left_out"] == 1


def test_twenty_tables_half_of_them_apart_and_the_generated_ones_have_the_law_that_is_said(
    bench: ModuleType, load_bench: Callable[..., ModuleType], tmp_path: Path
) -> None:
    tables, show = load_bench("strangers", "tables"), load_bench("strangers", "show")
    assert len(tables.NAMES) == 20
    assert tables.CHOSEN == show.CHOSEN
    assert len(tables.CHOSEN) == 10
    assert set(tables.CHOSEN) < set(tables.NAMES)
    clinic = tables.load("clinic_5000", tmp_path).train
    assert (clinic["insulin"] == 0).mean() == pytest.approx(0.5, abs=0.03)
    assert clinic["insulin"].max() > 700
    traffic = tables.load("traffic", tmp_path).train
    assert traffic["received"].max() > 1e6 > 10 > traffic["received"][traffic["received"] > 0].min()
    assert traffic["service"].nunique() == 67
    assert traffic["errors"].between(0, 1).all()
    assert tables.load("calls", tmp_path).train["euribor"].nunique() == 11
    odd = tables.load("odd", tmp_path).train
    assert odd["nothing"].isna().all()
    assert np.array_equal(odd["pay"], odd["pay_again"])
    assert [tables.load(name, tmp_path).people for name in ("clinic", "codes", "costs")] == [768, 3_464, 8_933]
