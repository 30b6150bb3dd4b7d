"""The benchmark of the network runs; its figures are measured elsewhere."""

import csv
from pathlib import Path

from forker import Forker

ROOT = Path(__file__).parents[2]


def test_the_network_benchmark_writes_a_row_for_each_place_of_the_journal(
    tmp_path: Path, forker: Forker
) -> None:
    to = tmp_path / "ours.csv"
    program = ROOT / "benchmarks/network/bench.py"
    words = ("--only", "2x0", "--out", to)
    bench = forker.run(
        *words, folder=tmp_path, to=tmp_path / "bench", program=program, QUICK="1"
    )
    assert bench.end(280) == 0, bench.err
    with to.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["journal"] for row in rows} <= {"disk", "memory"}
    assert all(
        float(row["ask_ms"]) > 0 and float(row["raw_grpc_ms"]) > 0 for row in rows
    )
