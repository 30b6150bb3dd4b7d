"""How long it takes to count people with many rows, and how much memory.

    python benchmarks/visits/scale.py [--people 100000] [--out benchmarks/visits/scale.csv]

Made-up people with ten events each on average, ten columns of people and ten of events
with eight levels each, ordered; one process on one core. `seconds` is the time of
`count_visits` alone, `peak_mb` the most memory that the process held.
"""

import argparse
import csv
import os
import resource
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from understudy.data.visits import VisitCodes, VisitLayout, count_visits

LEVELS = 8
COLUMNS = 10
EVENTS = 10
UNIT = 27_720


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "scale.csv")
    return parser


def main() -> None:
    args = parser().parse_args()
    rng = np.random.default_rng(0)
    numbers = rng.poisson(EVENTS, args.people)
    starts = np.concatenate([[0], np.cumsum(numbers)]).astype(np.int64)
    layout = VisitLayout((LEVELS,) * COLUMNS, (LEVELS,) * COLUMNS, ordered=True)
    codes = VisitCodes(
        rng.integers(0, LEVELS, (args.people, COLUMNS), dtype=np.int32),
        rng.integers(0, LEVELS, (int(starts[-1]), COLUMNS), dtype=np.int32),
        starts,
    )
    start = time.perf_counter()
    count_visits(codes, layout, UNIT)
    row = {
        "people": args.people,
        "events": int(starts[-1]),
        "tables": len(layout.blocks),
        "seconds": round(time.perf_counter() - start, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    with args.out.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, row)
        table.writeheader()
        table.writerow(row)
    print(row)


if __name__ == "__main__":
    main()
