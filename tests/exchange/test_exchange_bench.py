"""The benchmark of the exchange runs, and its members get what they ask for."""

from collections.abc import Callable
from types import ModuleType


def test_members_pull_whole_files_without_an_error(
    load_bench: Callable[..., ModuleType],
) -> None:
    module = load_bench("exchange")
    rows = module.bench(
        sizes=[20], counts=[3], seconds=0.3, processes=1, say=lambda text: None
    )
    assert [row["what"] for row in rows] == ["bare", "pull"]
    for row in rows:
        assert row["requests"] >= 3
        assert row["errors"] == 0
        assert 0 < row["p50_ms"] <= row["p99_ms"]


def test_the_worst_offers_cost_the_server_nothing(
    load_bench: Callable[..., ModuleType],
) -> None:
    module = load_bench("exchange")
    some = ("one wide layer", "300,000 layers")
    rows = module.worst(units=256, say=lambda text: None, some=some)
    assert [(row["offer"], row["status"]) for row in rows] == [
        (some[0], 201),
        (some[1], 422),
    ]
    for row in rows:
        assert row["server_mb"] + row["checker_mb"] <= 64 + 8 * row["file_mb"]
