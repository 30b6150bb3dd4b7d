"""What the utility figures of a large table cost, and the marginals beside a pandas
group-by.

    avd4       100 sets of four columns, real against synthetic alone: ours, and
               `groupby(…).size()`
    avd4_ends  the same sets with the sampling floor and the independent-columns ceiling, ours alone
    all        `evaluate_tables`: marginals of 1–4 columns and correlations over all,
               within and across two parties, and five downstream models, each trained
               on real and on synthetic rows

Ours and pandas take turns on ten sets at a time, and must agree. Wall and processor
seconds are printed: on a busy machine only the second says what the work costs.
`QUICK=1` takes a small table and writes nothing unless told to.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common.options import options, quick
from common.rows import Row, write
from understudy.data.schema import Categorical, Schema
from understudy.evaluate.utility.fidelity import evaluate_tables
from understudy.evaluate.utility.marginals import Marginals, attribute_sets

QUICK = quick()
ROWS, COLUMNS, SETS, TRAINED = (
    (2_000, 20, 20, 300) if QUICK else (100_000, 100, 100, 20_000)
)
FIELDS = (
    "figure",
    "rows",
    "columns",
    "sets",
    "seconds",
    "cpu_seconds",
    "pandas_seconds",
    "ratio",
    "peak_mb",
)


def table(rows: int, sizes: NDArray[np.int64], seed: int) -> NDArray[np.int32]:
    """Columns of 2 to 20 levels that all lean on one hidden rank, more and less."""
    rng = np.random.default_rng(seed)
    rank = rng.random((rows, 1))
    lean = np.linspace(0.1, 0.7, len(sizes))
    mixed = np.where(
        rng.random((rows, len(sizes))) < lean, rank, rng.random((rows, len(sizes)))
    )
    return (mixed * sizes).astype(np.int32)


def by_groups(real: pd.DataFrame, synthetic: pd.DataFrame, columns: list[int]) -> float:
    """½·Σ|P_real − P_synthetic| by two group-bys, the way it is usually written."""
    p, q = (t.groupby(columns, sort=False).size() / len(t) for t in (real, synthetic))
    return float(p.sub(q, fill_value=0).abs().sum() / 2)


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What the work gives, and its wall and processor seconds."""
    wall = time.perf_counter()
    cpu = time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def marginals(
    real: NDArray[np.int32], synthetic: NDArray[np.int32], sizes: list[int]
) -> list[Row]:
    sets = attribute_sets([None] * COLUMNS, 4, count=SETS, rng=np.random.default_rng(0))
    frames = pd.DataFrame(real), pd.DataFrame(synthetic)
    pair, wall, cpu = timed(lambda: Marginals(real, synthetic, sizes, ends=()))
    theirs = 0.0
    for some in np.array_split(sets, SETS // 10):
        ours, *spent = timed(lambda some=some: pair.distances(some)[:, 0])
        groups, taken, _ = timed(
            lambda some=some: [by_groups(*frames, s) for s in some.tolist()]
        )
        np.testing.assert_allclose(ours, groups, atol=1e-9)
        wall = wall + spent[0]
        cpu = cpu + spent[1]
        theirs = theirs + taken
    _, ends_wall, ends_cpu = timed(
        lambda: Marginals(real, synthetic, sizes).distances(sets)
    )
    return [
        {
            "figure": "avd4",
            "seconds": wall,
            "cpu_seconds": cpu,
            "pandas_seconds": theirs,
            "ratio": theirs / wall,
        },
        {"figure": "avd4_ends", "seconds": ends_wall, "cpu_seconds": ends_cpu},
    ]


def everything(
    real: NDArray[np.int32], synthetic: NDArray[np.int32], sizes: list[int]
) -> Row:
    names = [f"c{j}" for j in range(COLUMNS)]
    schema = Schema(
        columns=tuple(
            Categorical(name=n, categories=tuple(range(s)))
            for n, s in zip(names, sizes, strict=True)
        )
    )
    frames = pd.DataFrame(real, columns=names), pd.DataFrame(synthetic, columns=names)
    owners = {
        name: "left" if j < COLUMNS // 2 else "right" for j, name in enumerate(names)
    }
    binary = names[max(j for j, size in enumerate(sizes) if size == 2)]
    evaluation, wall, cpu = timed(
        lambda: evaluate_tables(
            *frames, schema, target=binary, owners=owners, rows=TRAINED
        )
    )
    print(evaluation, "\n")
    return {"figure": "all", "seconds": wall, "cpu_seconds": cpu}


def peak() -> float | None:
    """The largest resident set of this process so far, in MB (Linux alone counts
    it).
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next(
        (int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")),
        None,
    )


def parser() -> argparse.ArgumentParser:
    return options(__doc__, out=Path(__file__).parent / "ours.csv")


def main() -> None:
    args = parser().parse_args()
    sizes = np.array([2, 2, 3, 4, 5, 7, 10, 12, 16, 20] * (COLUMNS // 10))
    real = table(ROWS, sizes, seed=0)
    synthetic = table(ROWS, sizes, seed=1)
    rows = [
        *marginals(real, synthetic, sizes.tolist()),
        everything(real, synthetic, sizes.tolist()),
    ]
    rows[-1]["peak_mb"] = peak()
    for row in rows:
        row |= {"rows": ROWS, "columns": COLUMNS} | (
            {} if row["figure"] == "all" else {"sets": SETS}
        )
        row |= {
            key: round(value, 2)
            for key, value in row.items()
            if isinstance(value, float)
        }
        print(
            ", ".join(
                f"{key} {row[key]}" for key in FIELDS if row.get(key) is not None
            ),
            flush=True,
        )
    write(args.out, rows, FIELDS)


if __name__ == "__main__":
    main()
