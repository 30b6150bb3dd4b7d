"""Where the laws of columns end: every number of these tables, by simulated releases.

    python benchmarks/strangers/columns.py --data <folder> --method NAME --seeds 2

Of each column of numbers alone, as it comes and with nothing declared, what gram counts
is drawn (`common/column_releases.py`), under noise as of all columns of its table at
ε = 1: no pairs and no fit, so that a rule of columns can be judged in minutes. Rows
without a value are left out, column by column. A cell is a table, a method (the name of
the code that ran) and a seed; cells that stand in the file are not run again. For each
column: the share of people in cells `outside` of those with the smallest and the
largest number, how far these reach `beyond` the real range (in real ranges), KS at the
edges of cells, and p1 and p99 off the real ones (in real ranges).
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from tables import NAMES, load

from common.column_releases import released, usual_noise
from common.grid import Grid, by_text, grid_options
from common.options import quick
from understudy.data.column import Real
from understudy.data.schema import Schema

QUICK = quick()
FIELDS = ["dataset", "column", "method", "seed", "people", "noise"]
FIELDS += ["outside", "beyond", "ks", "p1", "p99"]
MOST_DECIMALS = 6
FEWEST = 200  # values of a column
HERE = Path(__file__).parent

Floats = NDArray[np.float64]


def measure(job: Mapping[str, Any], data: Path, people: int | None) -> list[Any]:
    frame = load(job["dataset"], data).train.head(people)
    noise = usual_noise(frame.shape[1])
    place = NAMES.index(job["dataset"])
    rng = np.random.default_rng([int(job["seed"]), place])
    rows = []
    for name in frame:
        if not is_numeric_dtype(frame[name]) or is_bool_dtype(frame[name]):
            continue
        values = frame[name].dropna().to_numpy(dtype=float)
        values = values[np.isfinite(values)]
        if len(values) < FEWEST:
            continue
        column = Real(name="x", decimals=decimals(values))
        layout, read = released(
            pd.DataFrame({"x": values}), Schema(columns=(column,)), noise, rng
        )
        (fine,) = layout.trees[0].fine.columns
        edges = np.asarray(fine.edges)  # type: ignore[attr-defined]
        held = read.tables[0].numpy()[: len(edges) - 1]
        row = {"column": str(name), "people": len(values), "noise": noise.trees}
        rows.append({**job, **row, **figures(values, edges, held)})
    return rows


def figures(values: Floats, edges: Floats, held: Floats) -> dict[str, float]:
    """What `FIELDS` say of the people `held` between `edges`, beside these values."""
    order = np.sort(values)
    least, most = order[0], order[-1]
    span = max(most - least, 1e-12)
    below = np.append(0.0, np.cumsum(held)) / held.sum()
    first, last = (
        int(np.searchsorted(edges, end, side="right")) - 1 for end in (least, most)
    )
    outside = held[: max(first, 0)].sum() + held[last + 1 :].sum()
    there = np.flatnonzero(held > 1e-6 * held.sum())
    beyond = 0.0
    if there[0] < first:
        beyond = least - edges[there[0] + 1]
    if there[-1] > last:
        beyond = max(beyond, edges[there[-1]] - most)
    real = np.searchsorted(order, edges, side="left") / len(order)
    p1, p99 = np.interp((0.01, 0.99), below, edges)
    real_p1, real_p99 = np.quantile(order, (0.01, 0.99))
    found = {
        "outside": outside / held.sum(),
        "beyond": max(beyond, 0.0) / span,
        "ks": np.abs(below - real).max(),
        "p1": (p1 - real_p1) / span,
        "p99": (p99 - real_p99) / span,
    }
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def decimals(values: Floats) -> int | None:
    for places in range(MOST_DECIMALS + 1):
        if np.allclose(values, np.round(values, places), rtol=0, atol=1e-9):
            return places
    return None


def jobs(names: Sequence[str], method: str, seeds: int) -> Iterator[dict[str, Any]]:
    for seed in range(seeds):
        for name in names:
            yield {"dataset": name, "method": method, "seed": str(seed)}


GRID = Grid(
    fields=FIELDS,
    key=("dataset", "method", "seed"),
    order=by_text("method", "dataset", "seed"),
)


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "columns.csv", device="cpu")
    parser.add_argument("--method", default="latest", help="the name of the code")
    parser.add_argument(
        "--tables", nargs="*", default=["codes"] if QUICK else NAMES, choices=NAMES
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--people", type=int, default=400 if QUICK else None)
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(
        partial(measure, data=args.data, people=args.people),
        jobs(args.tables, args.method, args.seeds),
        args,
    )


if __name__ == "__main__":
    main()
