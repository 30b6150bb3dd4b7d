"""Alignment to a union beside the intersection: time, bytes and memory.

    python benchmarks/alignment/union.py [--ids 10000 100000] --out benchmarks/alignment/union.csv

Two holders of n whole-number ids each, half of them shared, in one process, one thread
for each core. The union has the made-up people of a run at ε = 1, δ = 10⁻⁵, of which
lengths cost a fiftieth and a tenth (`protocols/core/union.py`); `made_up` is how many of
its places are theirs. `cpu_s` is the processor time of both holders and the server
together, `wall_s` what a clock showed, `sent_mb` what a holder sends in sets of points,
and `peak_mb` the memory of the whole process, interpreter and libraries included. Every
case has a process of its own.
"""

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import numpy as np

from common.aligned import align, unite
from common.grid import Grid, grid_options
from common.options import quick
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import SecureRng
from understudy.protocols.core.union import padding_of

HERE = Path(__file__).parent
BUDGET = Budget(1.0, 1e-5)
KEY = ("alignment", "ids")
FIELDS = [*KEY, "made_up", "cpu_s", "wall_s", "sent_mb", "peak_mb"]
GRID = Grid(
    fields=FIELDS,
    key=KEY,
    order=lambda row: (int(row["ids"]), row["alignment"]),
    alone=True,
)
POINT = 32  # bytes


def jobs(ids: list[int]) -> Iterator[dict[str, Any]]:
    for count in ids:
        for alignment in ("intersection", "union"):
            yield {"alignment": alignment, "ids": count}


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """One alignment, and whether it is right."""
    ids = job["ids"]
    held = {
        "clinic": range(ids),
        "insurer": range(ids // 2, ids // 2 + ids),
    }
    wall = time.perf_counter()
    cpu = time.process_time()
    if job["alignment"] == "union":
        united = unite(held, padding_of([BUDGET]), SecureRng())
        made_up: int | str = united.people - (ids + ids // 2)
        sent = united.sent_bytes
    else:
        rows = align(held)
        made_up = ""
        sent = 2 * ids * POINT  # its own set, and the other's under its key
    wall = time.perf_counter() - wall
    cpu = time.process_time() - cpu
    if job["alignment"] == "union":
        first, second = united.places.values()
        assert np.array_equal(first[ids // 2 :], second[: ids - ids // 2])
        assert len({*first.tolist(), *second.tolist()}) == ids + ids // 2
    else:
        assert set(rows["clinic"]) == set(range(ids // 2, ids))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return job | {
        "made_up": made_up,
        "cpu_s": round(cpu, 1),
        "wall_s": round(wall, 1),
        "sent_mb": round(sent / 1e6, 2),
        "peak_mb": round(peak),
    }


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "union.csv")
    parser.add_argument(
        "--ids",
        nargs="*",
        type=int,
        default=[200] if quick() else [10_000, 100_000],
        help="at each holder",
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(measure, jobs(args.ids), args)


if __name__ == "__main__":
    main()
