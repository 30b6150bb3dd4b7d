"""The benchmark of two aggregators measures sums that are right, and compares what it
says.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.usefixtures("short_fits", "short_training")


def test_a_few_people_are_added_up_exactly_and_the_liar_is_found(
    load_bench: Callable[..., ModuleType],
) -> None:
    bench = load_bench("aggregators")
    row = bench.measure(70)
    assert row["exact"]
    assert row["refused"] == 1
    assert row["upload_bytes"] < 50_000
    assert row["cells"] > 10_000


def test_both_methods_publish_the_same_rows(
    load_bench: Callable[..., ModuleType], tmp_path: Path
) -> None:
    quality = load_bench("aggregators", "quality")
    args = {"data": tmp_path, "device": "cpu", "steps": 30, "most": 500}
    for method in quality.METHODS:
        row = quality.measure(
            {"dataset": "toy", "method": method, "epsilon": 8.0, "seed": 0}, args
        )
        assert row["people"] == 500
        assert 0 < row["avd2"] < 0.1
        assert row["tstr_boosting_auc"] > 0.9


def test_noise_by_the_size_of_a_table_costs_the_same(
    load_bench: Callable[..., ModuleType], tmp_path: Path
) -> None:
    balance = load_bench("aggregators", "balance")
    args = {"data": tmp_path, "device": "cpu", "steps": 5, "most": 200}
    row = balance.measure(
        {"dataset": "toy", "power": "1/4", "epsilon": 8.0, "seed": 0}, args
    )
    assert list(row) == balance.FIELDS
    table = balance.quality.load("toy", tmp_path, 0)
    config = balance.quality.Config(aggregator="second", epsilon=8.0, delta=1e-5)
    plan = balance.Balanced.joint(
        config, dict.fromkeys(("people", "second"), table.schema)
    )
    each = [part.flat[0] for _, _, part in plan.cells.tables(plan.scales)]
    assert len(set(each)) > 1
    assert sum(one**-2.0 for one in each) == pytest.approx(
        len(each) / plan.sigma**2, rel=1e-2
    )
