"""The benchmark of the exchange runs, and its members get what they ask for."""

import importlib.util
from pathlib import Path

BENCH = Path(__file__).parents[2] / "benchmarks" / "exchange" / "bench.py"


def test_members_pull_whole_files_without_an_error() -> None:
    spec = importlib.util.spec_from_file_location("exchange_bench", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = module.bench(sizes=[20], counts=[3], seconds=0.3, processes=1, say=lambda text: None)
    assert [row["what"] for row in rows] == ["bare", "pull"]
    for row in rows:
        assert row["requests"] >= 3
        assert row["errors"] == 0
        assert 0 < row["p50_ms"] <= row["p99_ms"]
