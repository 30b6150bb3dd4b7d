"""The benchmark of people with many rows: what it compares is what it says."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("light_masks", "short_training")
SMALL = {"steps": 5}


@pytest.fixture(scope="module")
def bench(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("visits")


def measured(
    bench: ModuleType, method: str, tmp_path: Path, epsilon: float | None = 8.0
) -> dict[str, float]:
    cell = bench.Cell(dataset="markov1", method=method, epsilon=epsilon, seed=0)
    args = {"data": tmp_path, "people": 600, "device": "cpu", "settings": SMALL}
    found: dict[str, float] = bench.measure(cell, args)
    return found


def test_real_people_drawn_again_are_nearer_than_columns_by_themselves(
    bench: ModuleType, tmp_path: Path
) -> None:
    again, alone = (
        measured(bench, method, tmp_path) for method in ("bootstrap", "independent")
    )
    for name in ("avd_events", "avd_across", "avd_next"):
        assert again[name] < alone[name]
    assert again["mean_error"] < 0.1
    assert 0.5 < again["again_real"] < 1


def test_every_method_says_what_it_can(bench: ModuleType, tmp_path: Path) -> None:
    distances = set(bench.DISTANCES.values())
    said = {
        method: set(measured(bench, method, tmp_path))
        for method in ("visits", "aggregates", "rows_split")
    }
    assert said["visits"] >= distances | {
        "mean_error",
        "q90_error",
        "avd_second",
        "again_auc",
    }
    assert said["aggregates"] & distances == {"avd_person"}
    assert said["aggregates"] >= {"mean_error", "q90_error"}
    assert said["rows_split"] & distances == {"avd_person", "avd_events", "avd_across"}
    assert "mean_error" not in said["rows_split"], (
        "an event that is nobody's adds to nobody's sum"
    )


@pytest.mark.parametrize("order", [1, 2])
def test_generated_events_follow_the_law_that_is_said(
    load_bench: Callable[..., ModuleType], order: int
) -> None:
    cases = load_bench("visits", "cases")
    case = cases.drawn(order, 4_000, 0)
    events = case.frames["events"].merge(case.frames["people"], on="id")
    before = events.groupby("id")["state"].shift(order)
    known = before.notna()
    moved = ((events["state"] - before)[known] % 4).astype(int)
    group = events["group"][known]
    # Moves by one, but for a tenth that may be anywhere
    assert (moved[group == 1] == 1).mean() == pytest.approx(
        0.9 * 0.8 + 0.1 / 4, abs=0.02
    )
    assert (moved[group == 0] == 1).mean() == pytest.approx(
        0.9 * 0.2 + 0.1 / 4, abs=0.02
    )
    other = (
        (events["state"] - events.groupby("id")["state"].shift(3 - order)).dropna() % 4
    ).astype(int)
    if order == 2:
        assert np.allclose(
            np.bincount(other, minlength=4) / len(other), 1 / 4, atol=0.02
        )


def test_holders_of_a_cut_have_every_cell_once(
    load_bench: Callable[..., ModuleType], tmp_path: Path
) -> None:
    split = load_bench("visits", "split")
    case = split.load("markov1", tmp_path, 0, 200)
    cells = {part: frame[frame.columns[1:]].size for part, frame in case.frames.items()}
    holders = {"place": 1, "rows": 2, "columns": 2, "grid": 4}
    for how, count in holders.items():
        tables, schemas = split.cut(case, how)
        assert len(tables) == len(schemas) == count
        of_people = [
            held["people"] if isinstance(held, dict) else held
            for held in tables.values()
        ]
        events = [held["events"] for held in tables.values() if isinstance(held, dict)]
        assert (
            sum(frame[frame.columns[1:]].size for frame in of_people) == cells["people"]
        )
        assert sum(frame[frame.columns[1:]].size for frame in events) == cells["events"]
    args = {"data": tmp_path, "people": 200, "device": "cpu", "settings": SMALL}
    found = split.measure(split.Cell(dataset="markov1", cut="grid", seed=0), args)
    assert set(split.FIELDS) - set(found) == {"mean_error_2", "q90_error_2"}


def test_laws_of_memory_are_those_that_are_said_and_a_run_is_held_against_them(
    load_bench: Callable[..., ModuleType],
) -> None:
    memory = load_bench("visits", "memory")
    for law, (share, rho) in memory.LAWS.items():
        found = memory.lags(memory.drawn(law, 3_000)["events"])
        assert found == pytest.approx(
            [share + (1 - share) * rho**lag for lag in memory.LAGS], abs=0.06
        )
    cell = memory.Cell(law="both", method="visits", epsilon=4.0, seed=0)
    assert set(
        memory.measure(cell, {"people": 300, "device": "cpu", "settings": SMALL})
    ) == set(memory.FIELDS)


def test_numbers_without_bins_lie_between_bounds_that_may_be_wide(
    load_bench: Callable[..., ModuleType],
) -> None:
    unbinned = load_bench("visits", "unbinned")
    assert {
        column.bins for column in unbinned.schema_of("near", "even").events.columns[1:4]
    } == {16}
    for law in ("first", "second"):
        rows = unbinned.drawn(law, 500, 0)
        for part, own in unbinned.schema_of("wide", "bought").tables.items():
            for name in unbinned.HIGH.keys() & set(own.names):
                assert own.column(name).bins is None
                assert own.column(name).high == 10 * unbinned.HIGH[name]
                assert rows[part][name].between(0, unbinned.HIGH[name]).all()


def test_numbers_and_gaps_of_a_law_are_those_it_says_by_age(
    load_bench: Callable[..., ModuleType],
) -> None:
    by_age = load_bench("visits", "by_age")
    found = by_age.figures(**by_age.drawn("steps", 8_000, 0))
    for kind, said in {"visits": (3.4, 5.2, 9.1), "gap": (75, 50, 28)}.items():
        drawn = [found[f"{kind}, {group}"] for group in by_age.GROUPS]
        assert drawn == pytest.approx(said, rel=0.05)
    assert found["visits, age"] > 0.3
    assert found["gap, age"] < -0.3
    assert found["lab, 5 later"] == pytest.approx(0.1 + 0.9 * 0.75**5, abs=0.03)
