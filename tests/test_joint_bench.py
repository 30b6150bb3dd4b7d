"""The joint benchmark compares what it says, cell by cell, and takes up central
methods' rows.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from understudy.models.tables import target as target_effects
from understudy.protocols.gram import protocol as gram

pytestmark = pytest.mark.usefixtures("short_training", "light_masks")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits with as little work as five columns of two levels take, and effects on a
    target of few drawn rows.
    """
    for setting, few in (("components", 32), ("steps", 100)):
        monkeypatch.setitem(gram.Config.__init__.__kwdefaults__, setting, few)
    defaults = target_effects.with_effects.__kwdefaults__
    monkeypatch.setitem(defaults, "rows", 1_000)


@pytest.fixture(scope="module")
def bench(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("joint")


def named(bench: ModuleType, name: str) -> Any:
    """The cell of the toy that has this name."""
    return next(cell for cell in bench.cells(["toy"], 1) if cell.name == name)


def arguments(data: Path) -> dict[str, Any]:
    return {"data": data, "device": "cpu", "rounds": 5, "learn": 500, "central": None}


def test_a_cell_is_measured_written_and_not_done_twice(
    bench: ModuleType, tmp_path: Path
) -> None:
    cell = named(bench, "toy/Gram/columns/2/ε=8/seed=0")
    row = bench.measure(cell, arguments(tmp_path))
    assert 0 <= row["avd2_cross"] < 0.1, "the columns of the toy are copies of one bit"
    assert row["tstr_boosting_auc"] > 0.9
    assert row["up_mb"] > 0
    bench.GRID.add([row], tmp_path / "ours.csv")
    assert bench.GRID.left(bench.cells(["toy"], 1), tmp_path / "ours.csv") == [
        other for other in bench.cells(["toy"], 1) if other != cell
    ]


def test_holders_of_rows_and_columns_at_once_are_measured_too(
    bench: ModuleType, tmp_path: Path
) -> None:
    cell = named(bench, "toy/Gram/mixed/4/ε=8/seed=0")
    row = bench.measure(cell, arguments(tmp_path))
    assert 0 <= row["avd2"] < 0.1
    assert row["tstr_boosting_auc"] > 0.9


def test_the_target_that_is_named_is_the_one_that_classifiers_are_to_foretell(
    bench: ModuleType, load_bench: Callable[..., ModuleType], tmp_path: Path
) -> None:
    twice = load_bench("joint", "twice")
    table = bench.load("toy", tmp_path, 0)
    assert twice.settings(table, "none", 0.0) == {}
    assert twice.settings(table, "target", 0.2) == {
        "target": table.target,
        "first_pass_share": 0.8,
    }
    assert twice.settings(table, "2m strongest", 0.5) == {
        "remeasured_pairs": 10,
        "first_pass_share": 0.5,
    }
    args = {"data": tmp_path, "device": "cpu", "learn": 500}
    row = twice.measure(
        next(job for job in twice.cells(["toy"], [8.0], 1) if job["share"] == 0.2), args
    )
    assert row["again"] == "target"
    assert 0 <= row["avd2_target"] < 0.1
    assert row["boosting_auc"] > 0.9
    assert twice.with_target(table, table.train) == 0


def test_what_matters_most_comes_first(bench: ModuleType) -> None:
    names = [cell.name for cell in bench.cells(["toy", "adult"], 2)]
    assert len(set(names)) == len(names)
    first = names.index("adult/Gram/columns/2/ε=1/seed=0")
    later = (
        "toy/Gram/rows/2/ε=1/seed=0",
        "toy/VertiGAN/columns/2/ε=1/seed=0",
        "toy/Gram/columns/2/ε=0.5/seed=0",
    )
    assert all(
        first < names.index(name) < names.index("toy/Gram/columns/2/ε=1/seed=1")
        for name in later
    )


def test_a_central_methods_rows_are_held_against_the_same_real_ones(
    bench: ModuleType, tmp_path: Path
) -> None:
    cell = named(bench, "toy/MST/columns/2/ε=1/seed=0")
    args = arguments(tmp_path) | {"central": tmp_path}
    table = bench.load("toy", tmp_path, 0)
    codes = bench.Codec(table.schema).codes(table.train)
    bench.pd.DataFrame(codes, columns=table.schema.names).to_csv(
        bench.central_file(cell, args), index=False
    )
    (tmp_path / "seconds.csv").write_text("toy-0-MST-1,3.5\n")
    row = bench.measure(cell, args)
    assert row["avd2"] == 0, "real rows are no distance from themselves"
    assert row["seconds"] == "3.5"


def test_a_column_is_foretold_by_bayes_rule_and_by_boosting_on_the_same_rows(
    load_bench: Callable[..., ModuleType], tmp_path: Path
) -> None:
    predict = load_bench("joint", "predict")
    (job,) = predict.cells(["toy"], [8.0], 1)
    rows = predict.measure(job, {"data": tmp_path, "device": "cpu"})
    few = ["bayes", "boosting", "boosting x4", "real"]
    assert [row["method"] for row in rows] == [*few, "classifier", *few]
    assert all(
        row["auc"] > 0.9 and 0 < row["log_loss"] < 0.5
        for row in rows
        if row["known"] == "all"
    )
    predict.GRID.add(rows, tmp_path / "predict.csv")
    assert predict.GRID.left([job], tmp_path / "predict.csv") == []


def test_pairs_near_a_function_are_measured_as_they_are(
    load_bench: Callable[..., ModuleType],
) -> None:
    strong = load_bench("joint", "strong")
    codes, sizes, (a, b) = strong.copies(4, 0, Path())
    assert (codes[:, a] == codes[:, b]).all()
    assert sizes == [10] * 4
    assert strong.correlation(np.eye(10) / 10) == pytest.approx(1)
    assert strong.correlation(np.ones((10, 10)) / 100) == pytest.approx(0)


def test_a_generated_table_has_three_strong_pairs_among_others(
    load_bench: Callable[..., ModuleType],
) -> None:
    functional = load_bench("joint", "functional")
    codes, sizes, pairs = functional.generated(9, 500, 0)
    assert codes.shape == (500, 9)
    assert (codes.max(0) < sizes).all()
    for one, other in pairs[:2]:
        assert len(np.unique(codes[:, [one, other]], axis=0)) == len(
            np.unique(codes[:, one])
        )
    assert functional.cramer(np.eye(4)) == pytest.approx(1)
    assert functional.cramer(np.ones((4, 3))) == pytest.approx(0)


def test_ordered_columns_are_cut_and_others_are_not(
    load_bench: Callable[..., ModuleType],
) -> None:
    levels = load_bench("joint", "levels")
    table = levels.load("toy", Path(), 0)
    codes, sizes, ordered = levels.declared(table, "16")
    assert len(codes) == len(table.train) + len(table.test)
    assert sizes == [2] * 5
    assert not any(ordered)


def test_a_timed_fit_says_what_it_took_and_how_near_it_came(
    load_bench: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = load_bench("joint", "speed")
    monkeypatch.setattr(speed, "QUICK", True)
    row = speed.fit_one("copies", 8.0)
    assert (row["width"], row["columns"], row["steps"]) == (100, 10, 30)
    assert row["seconds"] > 0
    assert row["peak_mb"] > 50
    assert 0 < row["avd2"] < 0.3
    assert set(row) <= set(speed.FIELDS)


def test_rules_in_the_fit_are_compared_on_one_release(
    load_bench: Callable[..., ModuleType],
) -> None:
    rules = load_bench("joint", "rules")
    frame, schema = rules.randhie(Path())
    assert set(schema.names) <= set(frame.columns)
    assert all({"when", "then"} == set(rule) for rule in (*rules.PLANS, *rules.FAMILY))
    assert rules.all_keep(
        rules.replace(schema, rules=rules.PLANS), frame[list(schema.names)]
    ).all()


def test_few_people_are_measured_by_the_rule_and_beside_a_fifth(
    load_bench: Callable[..., ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    few = load_bench("joint", "few")
    monkeypatch.setattr(few, "QUICK", True)
    rows = [few.run("toy", 300, 1.0, 0, rule, tmp_path) for rule in ("fifth", "few")]
    assert [row["people"] for row in rows] == [300, 300]
    assert rows[0]["share"] == 0.2 < rows[1]["share"] <= 0.9
    assert all(0 < row["avd2"] < 0.2 and row["auc"] > 0.9 for row in rows)
    (line,) = few.ratios(rows).itertuples()
    assert line.avd2 == pytest.approx(rows[1]["avd2"] / rows[0]["avd2"], abs=1e-3)
    assert line.auc == pytest.approx(rows[1]["auc"] - rows[0]["auc"], abs=1e-3)


def test_three_columns_with_a_target_are_measured_by_their_pairs_and_beside_chosen_tables(
    load_bench: Callable[..., ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    three = load_bench("joint", "three")
    monkeypatch.setattr(three, "STEPS", 30)
    monkeypatch.setattr(three, "DRAWS", 1)
    rows = [three.run("toy", 1.0, 0, method, tmp_path) for method in three.METHODS]
    assert [row["triples"] > 0 for row in rows] == [False, False, True, True]
    assert all(set(three.FIELDS) == set(row) for row in rows)
    assert len({row["auc"] for row in rows[:3]}) == 3
    assert three.beside(rows).loc[("toy", 1.0)].notna().all()


def test_three_way_tables_across_holders_are_measured_beside_those_of_one(
    load_bench: Callable[..., ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    across = load_bench("joint", "across")
    monkeypatch.setattr(across, "STEPS", 10)
    monkeypatch.setitem(across.learned.__globals__, "DRAWS", 1)
    held, paired, either = (
        across.run("toy", 8.0, 1, method, tmp_path) for method in across.METHODS
    )
    assert held["across"] == 0
    assert 0 < paired["across"] <= paired["triples"]
    assert either["triples"] == across.CHOSEN
    assert all(set(across.FIELDS) == set(row) for row in (held, paired, either))
    found = across.beside([held, paired, either]).loc[("toy", 8.0)]
    assert found["any", "auc"] == pytest.approx(either["auc"] - held["auc"], abs=1e-4)


def test_more_budget_is_measured_on_a_rule_and_beside_a_bootstrap(
    load_bench: Callable[..., ModuleType], tmp_path: Path
) -> None:
    budget = load_bench("joint", "budget")
    rule = budget.rule(tmp_path)
    features = rule.columns[:-1].tolist()
    assert (rule.groupby(features)["label"].nunique() == 1).all()
    assert rule["label"].nunique() == 5
    args = {"data": tmp_path, "settings": {}}
    every = budget.cells(["rule@8000"], budget.BOOTSTRAP, [8.0], 1)
    row = budget.measure(next(every), args)
    assert row["people"] == 8_000
    assert row["f1"] > 0.95
    assert 0 < row["avd2"] < row["avd3"] < 0.05
