"""The local mechanisms alone: what a cohort of 1,000 clients costs at d = 10⁵.

    python benchmarks/cohort/mechanisms.py        # QUICK=1: 50 clients at d = 2,000

Updates are random, k = 0.1 d, ε = 4, randomness is the secure one. Seconds on two
threads and CPU seconds of one, the best of three; and d = 10⁷ for one client, which
works because binomials are in log space.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import torch

from common.options import options, quick
from common.rows import said, write
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.cross_device.reporting import ESTIMATION, SELECTION, Reporting

HERE = Path(__file__).parent
QUICK = quick()
CLIENTS, DIMS = (50, 2_000) if QUICK else (1_000, 100_000)


def seconds(
    reporter: str,
    clients: int,
    dims: int,
    turns: int,
    threads: int,
    clock: Callable[[], float],
) -> float:
    """The best of some turns on so many threads; building the mechanism, which happens
    once a run, is not in it.
    """
    chosen = {"chosen": 5} if reporter in ("em-mds", "naive") else {}
    mechanism = Reporting(reporter=reporter, epsilon=4.0, **chosen).mechanism(dims)  # type: ignore[arg-type]
    updates = torch.randn(clients, dims).clamp_(-1, 1)
    rng = SecureRng()
    best = float("inf")
    torch.set_num_threads(threads)
    for _ in range(turns):
        start = clock()
        mechanism.report(updates, rng)
        best = min(best, clock() - start)
    return best


def parser() -> argparse.ArgumentParser:
    return options(__doc__, out=HERE / "mechanisms.csv")


def main() -> None:
    args = parser().parse_args()
    rows = []
    for reporter in (*SELECTION, *ESTIMATION):
        both = seconds(reporter, CLIENTS, DIMS, 3, 2, time.perf_counter)
        alone = seconds(reporter, CLIENTS, DIMS, 3, 1, time.thread_time)
        row = {
            "mechanism": reporter,
            "two_threads": round(both, 3),
            "cpu_of_one": round(alone, 3),
        }
        if not QUICK:
            row["one_client_at_1e7"] = round(
                seconds(reporter, 1, 10**7, 1, 1, time.thread_time), 2
            )
        rows.append(row)
        print(said(row), flush=True)
    print(
        platform.machine(),
        os.cpu_count(),
        "cores, torch",
        torch.__version__,
        time.strftime("%Y-%m-%d"),
    )
    write(args.out, rows, list(rows[0]))


if __name__ == "__main__":
    main()
