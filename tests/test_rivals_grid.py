"""The benchmark of rivals, on a table of 200 people: ours, and a rival where its
environment has been made.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Load = Callable[..., ModuleType]


def row(bench: ModuleType, method: str, holding: str, **more: Any) -> dict[str, Any]:
    noise = "none" if more.get("epsilon", 1.0) is None else "own"
    cell = bench.Cell(
        **{
            "dataset": "chain@200",
            "method": method,
            "holding": holding,
            "noise": noise,
            "epsilon": 8.0,
            "seed": 0,
        }
        | more
    )
    return dict(bench.measure(cell, {"data": Path(), "limit": 60}))


@pytest.mark.long
@pytest.mark.usefixtures("short_fits", "light_masks")
@pytest.mark.parametrize("holding", ["one holder", "two of columns"])
def test_a_cell_of_ours_has_every_figure_that_its_table_allows(
    load_bench: Load, holding: str
) -> None:
    bench = load_bench("rivals")
    found = row(bench, "Gram+target", holding)
    assert found["people"] == 200
    assert found["outcome"] == "ok"
    # the table has no numbers
    assert {name for name in bench.FIGURES if found[name] == ""} == {"ks"}
    assert all(0 <= found[name] <= 1 for name in bench.FIGURES if name != "ks")


def test_real_rows_are_at_no_distance_and_break_no_law(load_bench: Load) -> None:
    found = row(load_bench("rivals"), "real", "one place", epsilon=None)
    assert [found[name] for name in ("avd1", "avd2", "avd3", "impossible")] == [
        0,
        0,
        0,
        0,
    ]


def test_a_rival_is_run_in_its_own_environment(load_bench: Load) -> None:
    bench = load_bench("rivals")
    why = bench.missing("dpmm")
    if why:
        pytest.skip(why)
    found = row(bench, "MST (dpmm)", "one place")
    assert found["outcome"] == "ok"
    assert 0 <= found["avd2"] <= 1


def test_a_run_goes_on_where_another_ended_and_begins_nothing_after_its_minutes(
    load_bench: Load,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench = load_bench("rivals")
    out = tmp_path / "rivals.csv"
    asked = [
        "--datasets",
        "chain@200",
        "--methods",
        "real",
        "AIM (dpmm)",
        "--seeds",
        "2",
        "--out",
        str(out),
    ]
    monkeypatch.setattr(bench, "missing", lambda adapter: "there is none.")
    bench.run(bench.parser().parse_args([*asked, "--only", "seed=0"]))
    bench.run(bench.parser().parse_args([*asked, "--budget-minutes", "-1"]))
    said = capsys.readouterr().out
    assert "AIM (dpmm): left out, as there is none." in said
    assert "1 cells are left." in said
    assert len(out.read_text().splitlines()) == 2
