"""The benchmark of the network runs; its figures are measured elsewhere."""

import csv
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_network_benchmark_writes_a_row_for_each_place_of_the_journal(tmp_path: Path) -> None:
    to = tmp_path / "ours.csv"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "QUICK": "1"}
    program = [sys.executable, str(ROOT / "benchmarks/network/bench.py"), "--only", "2x0", "--out", str(to)]
    ended = subprocess.run(program, capture_output=True, text=True, env=environment, timeout=280, check=False)
    assert ended.returncode == 0, ended.stderr
    with to.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["journal"] for row in rows} <= {"disk", "memory"}
    assert all(float(row["ask_ms"]) > 0 and float(row["raw_grpc_ms"]) > 0 for row in rows)
