"""Sheets of drawn images: a column for each class, four rows for each ε, one file for
each data set. Handwriting is turned upright.

python benchmarks/images/sheets.py --data data --datasets mnist fashion_mnist
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import bench
import numpy as np

from common.options import options
from understudy.data.images import png

EPSILONS = (0.2, 1.0, 10.0)


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=bench.HERE, data=True)
    parser.add_argument(
        "--datasets",
        nargs="*",
        default=["mnist", "fashion_mnist"],
        choices=bench.DATASETS,
    )
    return parser


def sheet(images: np.ndarray, columns: int, gap: int = 2) -> np.ndarray:
    """Images (n, height, width), bytes or numbers in [0, 1], row by row on white."""
    pixels = (
        images if images.dtype == np.uint8 else np.rint(255 * images).astype(np.uint8)
    )
    padded = np.pad(pixels, ((0, 0), (0, gap), (0, gap)), constant_values=255)
    _, height, width = padded.shape
    rows = padded.reshape(-1, columns, height, width).swapaxes(1, 2)
    return rows.reshape(-1, columns * width)[:-gap, :-gap]


def main() -> None:
    args = parser().parse_args()
    for dataset in args.datasets:
        x, y, *_ = bench.load(dataset, args.data)
        classes = int(y.max()) + 1
        images = []
        method = bench.UPRIGHT if dataset in bench.HANDWRITING else "moments"
        for epsilon in EPSILONS:
            job = {
                "split": "one holder",
                "method": method,
                "epsilon": epsilon,
                "seed": 0,
            }
            job["drawn"] = 100 * classes
            drawn, labels, *_ = bench.drawn_images(job, x, y, classes)
            images += [drawn[labels == c][n] for n in range(4) for c in range(classes)]
        file = args.out / f"{dataset}.png"
        file.write_bytes(png(sheet(np.stack(images), classes)))
        print(file)


if __name__ == "__main__":
    main()
