"""Sheets of synthetic images from one silo's generators, a column for each class:
Figure 3.

    python benchmarks/sgde/sheets.py --data data --out benchmarks/sgde

Lomurno et al., "SGDE", AIPR 2022, §V: four rows for each data set, ε ≤ 1.5 for a silo's
generators together. Here four rows at that ε stand above four without noise.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))

import bench
import numpy as np
import tasks
from numpy.typing import NDArray

from common.options import options, quick
from understudy.data.images import png

HERE = Path(__file__).parent
QUICK = quick()
ROWS = 4  # of images, for each way


def of_one_silo(task: tasks.Task) -> tasks.Task:
    """The task where the first silo is alone."""
    name, rows = next(iter(task.held.items()))
    return tasks.Task(
        task.name, task.classes, {name: rows}, {}, task.silos[:1], task.test, None
    )


def rows_of_images(
    task: tasks.Task, *, private: bool, seed: int, device: str, **settings: int
) -> NDArray[np.float32]:
    """Four images of each class, class after class within a row of the sheet."""
    drawn = 100 * task.classes
    (images, labels), _ = bench.synthetic(
        task, seed=seed, device=device, drawn=drawn, private=private, **settings
    )
    classes = range(task.classes)
    return np.stack([images[labels == c][n] for n in range(ROWS) for c in classes])


def sheet(images: NDArray[np.float32], columns: int) -> NDArray[np.uint8]:
    """Images in [0, 1], so many in a row."""
    pixels = np.rint(255 * images).astype(np.uint8)
    _, height, width = pixels.shape
    rows = pixels.reshape(-1, columns, height, width).swapaxes(1, 2)
    return np.ascontiguousarray(rows.reshape(-1, columns * width))


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=HERE, data=True, device="cpu")
    parser.add_argument(
        "--only", nargs="*", default=list(tasks.IMAGES), choices=tasks.IMAGES
    )
    parser.add_argument("--silos", type=int, default=300 if QUICK else 20)
    parser.add_argument(
        "--steps", type=int, default=int(QUICK), help="0: the recipe's own"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main() -> None:
    args = parser().parse_args()
    more = {"steps": args.steps} if args.steps else {}
    for name in args.only:
        whole = tasks.load(name, args.data, silos=args.silos, seed=args.seed)
        task = of_one_silo(whole)
        how = {"seed": args.seed, "device": args.device, **more}
        parts = [rows_of_images(task, private=way, **how) for way in (True, False)]
        drawn = sheet(np.concatenate(parts), task.classes)
        print(f"{name}: {len(task.silos[0][1])} images, {drawn.shape}", flush=True)
        if args.out is not None:
            (args.out / f"{name}.png").write_bytes(png(drawn))


if __name__ == "__main__":
    main()
