"""Images over the number of people: what 60,000 would give, beside what others publish
of 60,000.

    python benchmarks/rivals/images.py --data <folder> --device cuda --jobs 12      # images.csv
    python benchmarks/rivals/images.py --more                                       # images_more.csv, from images.csv

`moments` with its default settings, one holder, one image a person, δ = 10⁻⁵, as in
benchmarks/images: a CNN learns from 50,000 drawn images, and is tested on all real test
images. The people are the first so many in an order that the seed gives. ε of 0 stands
for no noise.

`--more` takes the laws error = a + b / n^c, c from .1 to 1.5 and every part a of the
error at the most people alike likely beforehand, and weighs each by how well it fits
the logarithms of all runs of a line beside their scatter over seeds. An error at a
smaller ε is taken to be no less than one at a larger. What is said of 60,000 is the
weighted mean with the range that holds nine tenths of the weight. It is an
extrapolation, two to four times beyond what was measured; if the law is of another
kind, the range is too narrow.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from borrowed import script
from numpy.typing import NDArray

from common.grid import Grid, by_text, grid_options
from common.options import quick
from common.rows import said, write
from understudy.models.network import pick_device

HERE = Path(__file__).parent
QUICK = quick()
PEOPLE = {
    "mnist": (3_750, 7_500, 15_000, 30_000),
    "fashion_mnist": (3_750, 7_500, 15_000),
    "usps": (930, 1_860, 3_720, 7_439),
    "emnist": (3_760, 7_520, 15_040),
}
UPRIGHT = ("mnist", "usps", "emnist")
LEARNERS = ("cnn", "cnn, longer")
KEY = ("dataset", "people", "method", "epsilon", "seed")
FIELDS = (
    *KEY,
    "classifier",
    "accuracy",
    "directions",
    "release_seconds",
    "drawn",
    "device",
)
GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY, "classifier"))
POWERS = np.round(np.arange(0.1, 1.51, 0.05), 2)
# which part of the error at the most people no number of people takes away
FLOORS = np.linspace(0, 1, 41)
LEAST = 0.02  # scatter of an error over seeds, as a part of it, that is taken at least
ASKED = {"mnist": 60_000, "fashion_mnist": 60_000, "emnist": 60_000, "usps": 15_000}
DRAWS = 100_000
MORE = (
    "dataset",
    "method",
    "classifier",
    "epsilon",
    "runs",
    "largest",
    "at_largest",
    "asked",
    "low",
    "mean",
    "high",
)


def measure(job: dict[str, Any]) -> list[dict[str, Any]]:
    """One release, and a row for each classifier."""
    torch.set_num_threads(1)
    bench = script("images", "bench")
    device = pick_device(job["device"])
    x, y, test_x, test_y = bench.load(job["dataset"], job["data"])
    classes = int(y.max()) + 1
    kept = np.random.default_rng([job["seed"], 39]).permutation(len(x))[: job["people"]]
    start = time.perf_counter()
    asked = job | {"split": "one holder"}
    drawn, labels, card, _, _ = bench.drawn_images(asked, x[kept], y[kept], classes)
    row = {key: job[key] for key in KEY} | {
        "directions": card["directions"],
        "release_seconds": round(time.perf_counter() - start, 1),
        "drawn": len(drawn),
        "device": str(device),
    }
    test = (test_x, test_y)
    return [
        row
        | {
            "classifier": learner,
            "accuracy": round(
                bench.accuracy(
                    learner,
                    (drawn, labels),
                    test,
                    classes,
                    device,
                    job["epochs"],
                    job["seed"],
                ),
                4,
            ),
        }
        for learner in job["learners"]
    ]


def jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    common = {
        key: getattr(args, key)
        for key in ("data", "device", "drawn", "epochs", "learners")
    }
    for seed in range(args.seeds):
        for dataset in args.datasets:
            for people in args.people or PEOPLE[dataset]:
                for epsilon in args.epsilons:
                    for method in (
                        "moments",
                        *(["moments, upright"] if dataset in UPRIGHT else []),
                    ):
                        yield common | dict(
                            zip(
                                KEY,
                                (dataset, people, method, epsilon, seed),
                                strict=True,
                            )
                        )


def laws(
    runs: pd.DataFrame, asked: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Errors at so many people, by laws drawn as often as they are likely."""
    n = runs["people"].to_numpy(float)
    error = 1 - runs["accuracy"].to_numpy(float)
    spread = pd.Series(np.log(error)).groupby(n).var().mean()
    scatter = max(float(spread) ** 0.5 if spread == spread else 0.0, LEAST)
    last = np.log(error[n == n.max()]).mean() + scatter * np.linspace(-3, 3, 61)
    held, floor, power = (
        part.ravel() for part in np.meshgrid(np.exp(last), FLOORS, POWERS)
    )

    def law(people: Any) -> Any:
        return held * (floor + (1 - floor) * (n.max() / people) ** power)

    off = np.log(error) - np.log(law(n[:, None])).T  # (laws, runs)
    likely = -np.square(off).sum(1) / (2 * scatter**2)
    weight = np.exp(likely - likely.max())
    return np.asarray(
        law(asked)[rng.choice(len(weight), DRAWS, p=weight / weight.sum())]
    )


def more(runs: pd.DataFrame) -> list[dict[str, Any]]:
    """What more people would give, a row for each line of runs."""
    found = []
    rng = np.random.default_rng(0)
    for line, group in runs.groupby(["dataset", "method", "classifier"], sort=True):
        asked = ASKED[line[0]]
        less = np.zeros(DRAWS)
        for epsilon in sorted(group["epsilon"].unique(), reverse=True):
            part = group[group["epsilon"] == epsilon]
            less = np.maximum(laws(part, asked, rng), less)  # more noise does not help
            low, high = np.quantile(less, (0.05, 0.95))
            largest = int(part["people"].max())
            values = {
                "runs": len(part),
                "largest": largest,
                "at_largest": part.loc[part["people"] == largest, "accuracy"].mean(),
                "asked": asked,
                "low": 1 - high,
                "mean": 1 - less.mean(),
                "high": 1 - low,
            }
            rounded = {
                name: round(float(v), 4) if isinstance(v, float) else v
                for name, v in values.items()
            }
            found.append(
                dict(zip(MORE[:3], line, strict=True)) | {"epsilon": epsilon} | rounded
            )
    return found


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=HERE / "images.csv")
    parser.add_argument(
        "--datasets",
        nargs="*",
        default=["usps"] if QUICK else list(PEOPLE),
        choices=list(PEOPLE),
    )
    parser.add_argument(
        "--people", nargs="*", type=int, default=[300] if QUICK else None
    )
    parser.add_argument(
        "--epsilons", nargs="*", type=float, default=[8.0] if QUICK else [1.0, 10.0]
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    parser.add_argument("--drawn", type=int, default=300 if QUICK else 50_000)
    parser.add_argument("--epochs", type=int, default=1 if QUICK else 6)
    parser.add_argument(
        "--learners",
        nargs="*",
        default=["cnn"] if QUICK else list(LEARNERS),
        choices=LEARNERS,
    )
    parser.add_argument(
        "--more", action="store_true", help="no runs: images_more.csv from images.csv"
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    if args.more:
        rows = more(pd.read_csv(HERE / "images.csv"))
        write(HERE / "images_more.csv", rows, MORE)
        print("\n".join(map(said, rows)))
        return
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
