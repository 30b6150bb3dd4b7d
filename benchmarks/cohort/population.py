"""A round of SignDS-FL over its population: its time is that of the cohort, whoever
else there is.

    python benchmarks/cohort/population.py        # QUICK=1 is small

Logistic regression on 30 generated features, two rows a person, EM-MDS at ε = 1, one
host with a real ledger in a file. `start_s` is all before the first round (parties
built, the population indexed, the ledger opened), `round_ms` the median of the rounds,
`peak_mb` the most memory that the process ever held. Each line is a process of its own.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np

from common.options import options, quick
from common.rows import write

HERE = Path(__file__).parent
QUICK = quick()
ROUNDS = 5 if QUICK else 20
CASES = (
    [(1_000, 50), (2_000, 50)]
    if QUICK
    else [
        (10_000, 250),
        (100_000, 250),
        (1_000_000, 250),
        (100_000, 1_000),
        (100_000, 4_000),
    ]
)


def measure(people: int, clients_per_round: int) -> dict[str, float]:
    """One run of a few rounds."""
    from understudy import Budget, Federation, Population, train

    rng = np.random.default_rng(0)
    x = rng.random((2 * people, 30), dtype=np.float32)
    population = Population.from_arrays(
        x, (x[:, 0] > 0.5).astype(int), classes=[0, 1], rows_per_person=2
    )
    marks = [time.perf_counter()]
    with tempfile.TemporaryDirectory() as folder:
        federation = Federation(
            {"phones": population},
            budget=Budget(epsilon=1.0, delta=0.0),
            ledgers=folder,
        )
        train(
            "sign-ds",
            federation,
            epsilon=1.0,
            max_reports=1,
            rounds=ROUNDS,
            clients_per_round=clients_per_round,
            chosen=3,
            device="cpu",
            watch=lambda _: marks.append(time.perf_counter()),
        )
    rounds = np.diff(marks)
    return {
        "people": people,
        "clients_per_round": clients_per_round,
        "start_s": round(float(rounds[0] - statistics.median(rounds[1:])), 2),
        "round_ms": round(1000 * statistics.median(rounds[1:]), 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=HERE / "population.csv")
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    args = parser().parse_args()
    if args.one:
        print(json.dumps(measure(*args.one)))
        return
    rows = []
    for people, clients_per_round in CASES:
        command = [
            sys.executable,
            __file__,
            "--one",
            str(people),
            str(clients_per_round),
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(
            "  ".join(f"{name}={value:,}" for name, value in rows[-1].items()),
            flush=True,
        )
    print(
        platform.machine(),
        platform.processor(),
        os.cpu_count(),
        "cores,",
        time.strftime("%Y-%m-%d"),
    )
    write(args.out, rows, list(rows[0]))


if __name__ == "__main__":
    main()
