"""The benchmark of classifiers at a total price, on a handful of digits."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

Load = Callable[..., ModuleType]
CHEAP = (
    "SignDS-FL, one report",
    "SignDS-FL, ten reports",
    "moments",
    "class-means",
    "real rows",
)


@pytest.fixture(scope="module")
def bench(load_bench: Load) -> ModuleType:
    return load_bench("people", "classifiers")


@pytest.mark.parametrize("method", CHEAP)
def test_a_cell_says_how_often_a_classifier_is_right_and_for_how_many_reports(
    bench: ModuleType, method: str
) -> None:
    args = bench.parser().parse_args(
        ["--only", "digits", "--methods", method, "--epsilons", "8", "--seeds", "1"]
    )
    args.data = Path()
    args.most = 150
    (job,) = bench.jobs(args)
    row = bench.measure(job)
    assert set(row) == set(bench.FIELDS)
    assert row["people"] == 120
    assert 0 <= row["accuracy"] <= 1
    assert row["reports"] == {"SignDS-FL, ten reports": 10, "real rows": 0}.get(
        method, 1
    )


def test_levels_of_coarse_tables_are_those_that_the_public_schema_declares(
    bench: ModuleType,
) -> None:
    data = bench.load("digits", Path(), 200)
    table = data.table(data.x, data.y)
    schema = data.schema()
    for column in schema.columns:
        assert set(table[column.name]) <= set(column.categories)
