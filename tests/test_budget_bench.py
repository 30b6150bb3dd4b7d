"""A larger budget gives no worse rows, by the joint benchmark's own measure."""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest


@pytest.mark.long
def test_no_figure_falls_by_more_than_its_spread_as_the_budget_grows(
    load_bench: Callable[..., ModuleType], tmp_path: Path
) -> None:
    """A label that follows from all of eight other columns, 8,000 people."""
    budget = load_bench("joint", "budget")
    args = {"data": tmp_path, "settings": {}}
    rows = [
        budget.measure(cell, args)
        for cell in budget.cells(["rule@8000"], "now", [1.0, 8.0, 200.0], 1)
    ]
    # what three seeds differ by in benchmarks/joint/budget.csv; distances may not rise
    spread = {"avd2": 0.0005, "avd3": 0.0022, "auc": -0.003, "f1": -0.024}
    for less, more in pairwise(rows):
        for figure, most in spread.items():
            worse = (more[figure] - less[figure]) * math.copysign(1, most)
            assert worse <= abs(most), figure
