"""The local mechanisms alone: what a cohort of 1,000 clients costs at d = 10⁵.

    python benchmarks/cohort/mechanisms.py        # QUICK=1: 50 clients at d = 2,000

Updates are random, k = 0.1 d, ε = 4, randomness is the secure one. Seconds on two threads and CPU seconds of one,
the best of three; and d = 10⁷ for one client, which works because binomials are in log space.
"""

import csv
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch

from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.people.reporting import ESTIMATION, SELECTION, Reporting

HERE = Path(__file__).parent
QUICK = os.environ.get("QUICK") == "1"
CLIENTS, DIMS = (50, 2_000) if QUICK else (1_000, 100_000)


def seconds(
    reporter: str, clients: int, dims: int, turns: int, threads: int, clock: Callable[[], float]
) -> float:
    """The best of some turns on so many threads; building the mechanism, which happens once a run, is not in it."""
    chosen = {"chosen": 5} if reporter in ("em-mds", "naive") else {}
    mechanism = Reporting(reporter=reporter, epsilon=4.0, **chosen).mechanism(dims)  # type: ignore[arg-type]
    updates, rng, best = torch.randn(clients, dims).clamp_(-1, 1), SecureRng(), float("inf")
    torch.set_num_threads(threads)
    for _ in range(turns):
        start = clock()
        mechanism.report(updates, rng)
        best = min(best, clock() - start)
    return best


def main() -> None:
    rows = []
    for reporter in (*SELECTION, *ESTIMATION):
        both = seconds(reporter, CLIENTS, DIMS, 3, 2, time.perf_counter)
        alone = seconds(reporter, CLIENTS, DIMS, 3, 1, time.thread_time)
        row = {"mechanism": reporter, "two_threads": round(both, 3), "cpu_of_one": round(alone, 3)}
        if not QUICK:
            row["one_client_at_1e7"] = round(seconds(reporter, 1, 10**7, 1, 1, time.thread_time), 2)
        rows.append(row)
        print("  ".join(f"{name}={value}" for name, value in row.items()), flush=True)
    print(platform.machine(), os.cpu_count(), "cores, torch", torch.__version__, time.strftime("%Y-%m-%d"))
    if not QUICK:
        with (HERE / "mechanisms.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
