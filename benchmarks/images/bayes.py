"""The classifier that comes with the fit of moments (`generator.classifier`), tested on
real images.

    python benchmarks/images/bayes.py --data data --out benchmarks/images/bayes.csv

One holder, δ = 10⁻⁵, as in `bench.py`; nothing is drawn. `seconds`: to make it and to
tell all test images.
"""

import argparse
import csv
import sys
import time
from itertools import product
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from bench import DATASETS, DELTA, EPSILONS, HANDWRITING, UPRIGHT, load

from understudy.api.train import train
from understudy.data.images import Images, ImageSchema
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Federation

FIELDS = ("dataset", "people", "method", "epsilon", "seed", "accuracy", "seconds")


def measured(
    dataset: str, method: str, epsilon: float, folder: Path, most: int | None
) -> tuple[object, ...]:
    """One line."""
    x, y, test_x, test_y = load(dataset, folder, most)
    schema = ImageSchema(
        height=x.shape[1],
        width=x.shape[2],
        label="class",
        classes=tuple(range(int(y.max()) + 1)),
    )
    held = {"one": Images.from_array(x, schema, labels=y)}
    federation = Federation.rehearsal(
        held, budget=Budget(epsilon, DELTA), seed=0, same_people=False
    )
    generator = train("moments", federation, upright=method == UPRIGHT).generator
    start = time.process_time()
    accuracy = generator.classifier().score(test_x, test_y)
    return (
        dataset,
        len(x),
        method,
        epsilon,
        0,
        round(accuracy, 4),
        round(time.process_time() - start, 2),
    )


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "bayes.csv")
    parser.add_argument(
        "--datasets", nargs="*", default=list(DATASETS), choices=DATASETS
    )
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--most", type=int, help="images to use at most")
    return parser


def main() -> None:
    args = parser().parse_args()
    with args.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for dataset, epsilon in product(args.datasets, args.epsilons):
            for method in (
                ("moments", UPRIGHT) if dataset in HANDWRITING else ("moments",)
            ):
                line = measured(dataset, method, epsilon, args.data, args.most)
                writer.writerow(line)
                file.flush()
                print(*line, flush=True)


if __name__ == "__main__":
    main()
