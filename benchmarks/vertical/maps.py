"""Maps of correlations within and across two parties, real beside synthetic: Figure 6.

    python benchmarks/vertical/maps.py --data data --out benchmarks/vertical/maps.png

X. Jiang, Y. Zhang, X. Zhou, J. Grossklags, "VertiGAN", PoPETs 2023(2), §6.2.2: ε = 8.
A pixel is Pearson's correlation of two columns, red above 0 and blue below. A party's
columns stand together, and a grey line parts the two: what is off the diagonal blocks
lies across parties. The paper shows ten columns of each, here are all; a square for the
real rows and one for each method, as in the printed lines.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import bench
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common.maps import GREY, correlation_map, save
from common.options import options, quick
from common.public_tables import FILES, load
from understudy.data.schema import Schema

HERE = Path(__file__).parent
QUICK = quick()
METHODS = ("VertiGAN", "DPLT", "Gram")


def parted_map(
    frame: pd.DataFrame, schema: Schema, first: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The map, and the same with a line after the first party's columns."""
    plain = correlation_map(frame[list(schema.names)], schema)
    lined = np.insert(plain, first, GREY, axis=0)
    return plain, np.insert(lined, first, GREY, axis=1)


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=HERE / "maps.png", data=True, device="cpu")
    parser.add_argument("--only", default="toy" if QUICK else "a9a", choices=FILES)
    parser.add_argument(
        "--methods", nargs="*", default=list(METHODS), choices=bench.METHODS
    )
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument(
        "--rounds", type=int, default=2 if QUICK else 0, help="0: each method's own"
    )
    parser.add_argument(
        "--batch", type=int, default=100 if QUICK else 0, help="0: each method's own"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    table = load(args.only, args.data, 0)
    head = {"study": "main", "dataset": args.only, "epsilon": args.epsilon, "seed": 0}
    split = bench.owners(bench.Cell(method="VertiGAN", **head), table)
    schema = table.schema.select([name for own in split.values() for name in own])
    first = len(next(iter(split.values())))
    real, lined = parted_map(table.train, schema, first)
    maps = [lined]
    for method in args.methods:
        cell = bench.Cell(method=method, **head)
        rows, cost = bench.publish(cell, table, split, vars(args))
        plain, lined = parted_map(rows, schema, first)
        maps.append(lined)
        off = np.abs(plain.astype(int) - real).mean(axis=2) / 255
        within = (off[:first, :first].sum() + off[first:, first:].sum()) / (
            first**2 + (len(off) - first) ** 2
        )
        print(
            f"{method}: mean difference of the maps within {within:.3f}, "
            f"across {off[:first, first:].mean():.3f}; {cost.get('seconds', 0)} s",
            flush=True,
        )
    if args.out is not None:
        save(maps, args.out)


if __name__ == "__main__":
    main()
