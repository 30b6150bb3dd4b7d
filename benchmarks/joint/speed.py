"""How long a fit takes, and how much memory: wide tables, and beside another version of
the code.

    python benchmarks/joint/speed.py [--beside <another checkout>/src] [--threads 2] [--only codes] [--epsilon 1 8]

    codes    20 columns, 3,000 levels together, 2,000 of them codes of one column, of
             which the second is the first part
    many     42 columns, 476 levels together, in six groups that each follow a rank of
             their own
    named    as many, and a column of two levels is to be predicted
    copies   10 columns of 10 levels, two of them the same

Each fit is a process of its own, on one simulated release (δ = 1e-5, one noise for all
cells), so that its memory is its own, too. `seconds` are by the clock, reading and
fitting without drawing, `cpu_seconds` those of all threads; `peak_mb` is the most that
the process held, `avd2` the mean distance of all pairs from the real ones. With
`--beside` the same releases are fitted by that version, and `ratio` is its CPU seconds
over this version's, `avd2_ratio` this version's distance over its. QUICK=1 takes the
small table and few steps.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from common.options import options, quick
from common.rows import said, write

QUICK = quick()
HERE = Path(__file__).parent
CASES = ("copies", "many", "named", "codes")
FIELDS = (
    "case",
    "width",
    "columns",
    "people",
    "epsilon",
    "threads",
    "steps",
    "seconds",
    "cpu_seconds",
    "peak_mb",
    "avd2",
    "ratio",
    "avd2_ratio",
)


def fit_one(case: str, epsilon: float) -> dict[str, Any]:
    """One fit, in this process, by the version that it imports."""
    import resource
    import time

    import numpy as np
    import torch

    from understudy.models.tables.fit_gram import fit_gram
    from understudy.privacy.accounts.accounting import DiscreteGaussian, calibrate

    rng = np.random.default_rng(0)
    if case == "codes":
        people = 40_000
        sizes = [2_000, 50, *[53] * 17, 49]
        groups = 3
    elif case == "many":
        people = 20_000
        sizes = [*[12] * 35, *[8] * 7]
        groups = 6
    elif case == "named":
        people = 20_000
        sizes = [*[12] * 36, *[8] * 4, 10, 2]
        groups = 6
    else:
        people = 5_000
        sizes = [10] * 10
        groups = 1
    ranks = rng.random((people, groups))[:, np.arange(len(sizes)) % groups]
    follows = rng.random((people, len(sizes))) < 0.6
    levels = np.where(follows, ranks, rng.random((people, len(sizes)))) ** 2 * sizes
    codes = levels.astype(np.int64)
    if case not in ("many", "named"):
        codes[:, 1] = codes[:, 0] * sizes[1] // sizes[0]
    cells = len(sizes) * (len(sizes) + 1) // 2
    sigma = calibrate(
        lambda s: {DiscreteGaussian(sigma=s): cells}, epsilon=epsilon, delta=1e-5
    )
    width = sum(sizes)
    starts = np.cumsum([0, *sizes[:-1]])
    true = torch.zeros(width, width)
    for part in np.array_split(codes, 20):
        rows = torch.zeros(len(part), width).scatter_(
            1, torch.tensor(part + starts), 1.0
        )
        true += rows.T @ rows
    noise = (
        torch.randn(width, width, generator=torch.Generator().manual_seed(0)) * sigma
    )
    released = (true + noise.round()).double().triu()
    seen = []
    del noise
    begun = time.perf_counter()
    worked = time.process_time()
    fitted = fit_gram(
        released,
        sizes,
        noise=sigma,
        people=people,
        steps=30 if QUICK else 1200,
        seed=0,
        target=len(sizes) - 1 if case == "named" else None,
        watch=lambda step, residual: seen.append(step),
    )
    seconds = time.perf_counter() - begun
    worked = time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KiB on Linux
    apart = (fitted.gram() - true / people).abs()
    member = torch.nn.functional.one_hot(
        torch.repeat_interleave(torch.tensor(sizes))
    ).float()
    pairs = (member.T @ apart @ member / 2)[
        *torch.triu_indices(len(sizes), len(sizes), 1)
    ]
    return {
        "case": case,
        "width": width,
        "columns": len(sizes),
        "people": people,
        "epsilon": epsilon,
        "threads": torch.get_num_threads(),
        "steps": seen[-1],
        "seconds": round(seconds, 2),
        "cpu_seconds": round(worked, 2),
        "peak_mb": round(peak),
        "avd2": round(float(pairs.mean()), 5),
    }


def in_its_own_process(
    case: str, epsilon: float, threads: int, source: Path
) -> dict[str, Any]:
    """The fit by the version in `source`."""
    path = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))
    own = {
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
    }
    command = [sys.executable, __file__, "--one", case, str(epsilon)]
    done = subprocess.run(
        command, env=os.environ | own, stdout=subprocess.PIPE, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=HERE / "speed.csv")
    parser.add_argument("--beside", type=Path, help="the sources of another version")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--only", nargs="+", choices=CASES, default=CASES[:1] if QUICK else CASES
    )
    parser.add_argument(
        "--epsilon", nargs="+", type=float, default=[1.0] if QUICK else [1.0, 8.0]
    )
    # what a process of this script is told
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    args = parser().parse_args()
    if args.one:
        print(json.dumps(fit_one(args.one[0], float(args.one[1]))))
        return
    rows: list[dict[str, Any]] = []
    for case in args.only:
        for epsilon in args.epsilon:
            row = in_its_own_process(
                case, epsilon, args.threads, HERE.parents[1] / "src"
            )
            if args.beside:
                other = in_its_own_process(case, epsilon, args.threads, args.beside)
                row["ratio"] = round(other["cpu_seconds"] / row["cpu_seconds"], 2)
                row["avd2_ratio"] = round(row["avd2"] / other["avd2"], 3)
            rows.append(row)
            print(said(row), flush=True)
            write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()
