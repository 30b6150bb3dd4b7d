"""Noise by the size of a table: what it would gain where no target is named.

    python benchmarks/aggregators/balance.py --data data --jobs 3

A table of c cells gets noise in proportion to c to the power −`power`, at the same Σ
1/σ² over all tables, and so at the same price; 1/8 is what `two-aggregators` does, but
for its rounding of sizes. Of noise alone, mean distances are least at 1/3. Everything
else is `quality`'s.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path += [str(Path(__file__).parents[1] / "joint"), str(Path(__file__).parents[1])]

import numpy as np
import quality
from numpy.typing import NDArray

from common.grid import Grid, grid_options
from common.options import quick
from understudy.protocols.aggregators.protocol import TableTerms

HERE = Path(__file__).parent
POWERS = {"1/4": 1 / 4, "1/8": 1 / 8, "0": 0.0, "1/3": 1 / 3}
FIELDS = ["power" if name == "method" else name for name in quality.FIELDS]
GRID = Grid(fields=FIELDS, key=("dataset", "power", "epsilon", "seed"))


class Balanced(TableTerms):
    """A plan whose noise goes by the size of a table."""

    power = 0.0

    @cached_property
    def scales(self) -> NDArray[np.float64]:
        """The noise of one aggregator on each cell, in 256ths."""
        sizes = np.zeros(self.cells.count)
        for _, _, table in self.cells.tables(sizes):
            table[:] = table.size
        scales = sizes**-self.power
        each = np.array([table.flat[0] for _, _, table in self.cells.tables(scales)])
        return np.round(256 * self.sigma * scales * np.sqrt(np.mean(each**-2.0))) / 256


def measure(job: dict[str, Any], args: dict[str, Any]) -> dict[str, Any]:
    """One cell, as `quality` measures it."""
    Balanced.power = POWERS[job["power"]]
    quality.TableTerms = Balanced
    plain = {name: value for name, value in job.items() if name != "power"}
    found = quality.measure(plain | {"method": "two-aggregators"}, args)
    return job | {name: value for name, value in found.items() if name != "method"}


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for seed in range(args.seeds):
        for dataset in args.datasets:
            for epsilon in (1.0, 8.0):
                for power in POWERS:
                    yield {
                        "dataset": dataset,
                        "power": power,
                        "epsilon": epsilon,
                        "seed": seed,
                    }


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "balance.csv")
    parser.add_argument(
        "--datasets", nargs="*", default=["toy"] if quick() else list(quality.DATASETS)
    )
    parser.add_argument("--seeds", type=int, default=1 if quick() else 2)
    parser.add_argument("--steps", type=int, default=50 if quick() else 1200)
    parser.add_argument("--most", type=int, default=100_000, help="people of a table")
    return parser


def main() -> None:
    args = parser().parse_args()
    GRID.run(partial(measure, args=vars(args)), jobs(args), args)


if __name__ == "__main__":
    main()
