"""Sheets of drawn images: a column for each class, four rows for each ε, one file for each data set. Handwriting is
turned upright.

python benchmarks/images/sheets.py --data data --datasets mnist fashion_mnist
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import bench
import numpy as np

from common.options import options
from understudy.evaluate.utility.images import sample_sheet

EPSILONS = (0.2, 1.0, 10.0)


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=bench.HERE, data=True)
    parser.add_argument("--datasets", nargs="*", default=["mnist", "fashion_mnist"], choices=bench.DATASETS)
    return parser


def main() -> None:
    args = parser().parse_args()
    for dataset in args.datasets:
        x, y, *_ = bench.load(dataset, args.data)
        classes, images = int(y.max()) + 1, []
        method = bench.UPRIGHT if dataset in bench.HANDWRITING else "moments"
        for epsilon in EPSILONS:
            job = {"split": "one holder", "method": method, "epsilon": epsilon, "seed": 0}
            job["drawn"] = 100 * classes
            drawn, labels, *_ = bench.drawn_images(job, x, y, classes)
            images += [drawn[labels == c][n] for n in range(4) for c in range(classes)]
        print(sample_sheet(np.stack(images), args.out / f"{dataset}.png", columns=classes))


if __name__ == "__main__":
    main()
