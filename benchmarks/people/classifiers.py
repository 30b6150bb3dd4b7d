"""Classifiers from people who hold their own rows: one release beside SignDS-FL, at the
same total ε.

    python benchmarks/people/classifiers.py --data data --jobs 6 [--only usps --epsilons 1] # classifiers.csv

ε is the price of everything that a person ever sends; a person has one row. By whom a
person has to trust:

- nobody: `one-report` (a report about a set of columns), `class-means` (a report about
  the rows as they are), and SignDS-FL, everybody reporting once at ε, or ten times at
  ε/10;
- two aggregators who do not collude: all tables of two columns, with the noise of both
  (the sum is made in the clear here, since shares are tested to add up to it);
- one holder of all rows: `gram` on the same tables, and `moments` on the rows as they
  are;
- "real rows": a small network on the people's own rows, without privacy.

Tables of images are public coarse ones: averages of blocks of pixels, cut at 1/6 and
1/2 of white; of HAR, every eleventh feature, cut at -1/2, 0 and 1/2. What tables give
is learned by `generator.classifier` (20,000 drawn rows); moments' is Bayes' rule on the
fit. δ = 10⁻⁵ where there is one; local reports have none.
"""

import argparse
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from common.grid import Grid, by_text, grid_options
from common.loaders import IMAGES, arrays, images
from common.options import quick
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.population import Population
from understudy.data.images import Images, ImageSchema
from understudy.data.schema import Categorical, Schema
from understudy.generators.classifier import Classifier
from understudy.generators.generator import Generator
from understudy.models.network import pick_device
from understudy.models.tables.fit_gram import fit_gram
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure.counts import gram_matrix, mirrored, movable
from understudy.protocols.aggregators.protocol import Config, TableTerms
from understudy.runs.federation import Federation

HERE = Path(__file__).parent
QUICK = quick()
DELTA = 1e-5
EPSILONS = (1.0, 2.0, 4.0, 8.0)
# of SignDS-FL, as in benchmarks/sign_ds
CLIENTS_PER_ROUND = 250
GLOBAL_RATE = 12.5
KEY = ("dataset", "trust", "method", "epsilon_total", "seed")
FIELDS = [*KEY, "people", "classes", "reports", "accuracy", "seconds"]
GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY))

Job = dict[str, Any]


@dataclass(frozen=True)
class Data:
    """Rows to learn from and to test on, as features in [0, 1]; the side of images; and
    the rows as coarse tables.
    """

    x: np.ndarray[Any, Any]
    y: np.ndarray[Any, Any]
    test_x: np.ndarray[Any, Any]
    test_y: np.ndarray[Any, Any]
    shape: tuple[int, int] | None
    coarse: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]

    @property
    def classes(self) -> int:
        return int(max(self.y.max(), self.test_y.max())) + 1

    def table(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> pd.DataFrame:
        levels = self.coarse(x)
        return pd.DataFrame(
            {f"f{n}": levels[:, n] for n in range(levels.shape[1])} | {"class": y}
        )

    def schema(self) -> Schema:
        """Public levels: all that the cuts can give."""
        levels = int(self.coarse(np.ones_like(self.x[:1])).max()) + 1
        width = self.coarse(self.x[:1]).shape[1]
        features = [
            Categorical(name=f"f{n}", categories=tuple(range(levels)))
            for n in range(width)
        ]
        return Schema(
            columns=(
                *features,
                Categorical(name="class", categories=tuple(range(self.classes))),
            )
        )


def blocks(
    side: int, block: int
) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """Average grey of blocks of pixels, in three levels."""

    def coarse(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        cut = side // block
        means = (
            x.reshape(len(x), cut, block, cut, block)
            .mean(axis=(2, 4))
            .reshape(len(x), -1)
        )
        return np.digitize(means, (1 / 6, 1 / 2))

    return coarse


def bits(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Features that are 0 or 1 already."""
    return (x > 0.5).astype(int)


def every_eleventh(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Some features in four levels."""
    return np.digitize(x[:, ::11], (0.25, 0.5, 0.75))


@lru_cache(maxsize=1)
def load(name: str, folder: Path, most: int | None) -> Data:
    """A data set; of those without a test set every fifth row is held out."""
    if name in IMAGES:
        (x, y), (test_x, test_y) = images(name, folder)
        x, test_x = (rows.reshape(len(rows), -1) / 255 for rows in (x, test_x))
        return Data(
            x[:most], y[:most], test_x[:most], test_y[:most], (28, 28), blocks(28, 4)
        )
    if name == "digits":
        x, y = load_digits(return_X_y=True)
        x = x / 16
        shape = (8, 8)
        coarse = blocks(8, 2)
    else:
        (found,) = arrays(folder, f"{name}.npz")
        if name == "a9a":
            x, test_x = (found[key].astype(np.float32) for key in ("X_train", "X_test"))
            y, test_y = (
                (found[key] > 0).astype(np.int64) for key in ("y_train", "y_test")
            )
            return Data(x[:most], y[:most], test_x[:most], test_y[:most], None, bits)
        if name == "usps":
            x = found["X"]
            shape = (16, 16)
            coarse = blocks(16, 2)
        else:
            x = (found["X_int16"] * found["scale"] + 1) / 2
            shape = (17, 33)
            coarse = every_eleventh
        y = found["y"]
    order = np.random.default_rng(0).permutation(len(x))[:most]
    x = x[order]
    y = y[order].astype(np.int64)
    held = np.arange(len(order)) % 5 == 4
    return Data(x[~held], y[~held], x[held], y[held], shape, coarse)


def of_table(data: Data, generator: Generator, seed: int) -> float:
    """How often a classifier that learned from drawn rows is right about held-out
    people.
    """
    return score(data, generator.classifier("class", seed=seed))


def score(data: Data, classifier: Classifier) -> float:
    return classifier.score(
        data.table(data.test_x, data.test_y).drop(columns="class"), data.test_y
    )


def one_report(data: Data, job: Job) -> float:
    table = data.table(data.x, data.y).assign(person=np.arange(len(data.x)))
    schema = Schema(columns=data.schema().columns, person="person")
    federation = Federation.rehearsal(
        {"phones": table},
        {"phones": schema},
        budget=Budget(math.inf, 0.0),
        seed=job["seed"],
        same_people=False,
    )
    settings = {
        "epsilon_total": job["epsilon_total"],
        "target": "class",
        "device": job["device"],
    }
    return of_table(
        data,
        train("one-report", federation, seed=job["seed"], **settings).generator,
        job["seed"],
    )


def two_aggregators(data: Data, job: Job) -> float:
    schema = data.schema()
    table = data.table(data.x, data.y)
    config = Config(
        aggregator="second",
        epsilon=job["epsilon_total"],
        delta=DELTA,
        target="class",
        public_people=len(table),
        seed=job["seed"],
    )
    plan = TableTerms.joint(config, {"people": schema, "second": schema})
    codec = Codec(schema)
    device = pick_device(job["device"])
    gram = gram_matrix(codec.codes(table), codec.sizes).triu()
    rng = SecureRng.from_seed(job["seed"])
    for _ in range(2):
        gram = gram + plan.matrix(plan.noise(rng).numpy())
    noise = torch.where(
        movable(codec.sizes), mirrored(plan.matrix(plan.spread)), torch.inf
    ).float()
    network = fit_gram(
        gram.to(device),
        codec.sizes,
        noise=noise.to(device),
        people=len(table),
        components=config.components,
        steps=config.steps,
        rate=config.rate,
        seed=config.seed,
        target=len(codec.sizes) - 1,
    ).cpu()
    return of_table(data, Generator(network, schema, {"config": {}}), job["seed"])


def gram(data: Data, job: Job) -> float:
    federation = Federation.rehearsal(
        {"one": data.table(data.x, data.y)},
        {"one": data.schema()},
        budget=Budget(job["epsilon_total"], DELTA),
        seed=job["seed"],
        same_people=False,
    )
    result = train(
        "gram", federation, target="class", device=job["device"], seed=job["seed"]
    )
    return of_table(data, result.generator, job["seed"])


def pictured(
    data: Data, budget: Budget, seed: int
) -> tuple[Federation, np.ndarray[Any, Any]]:
    """One holder of the rows as images, and the images to test on."""
    assert data.shape is not None
    pictures, test = (
        np.rint(rows.reshape(-1, *data.shape) * 255).astype(np.uint8)
        for rows in (data.x, data.test_x)
    )
    schema = ImageSchema(
        height=data.shape[0],
        width=data.shape[1],
        label="class",
        classes=tuple(range(data.classes)),
    )
    rows = Images.from_array(pictures, schema, labels=data.y)
    return Federation.rehearsal(
        {"one": rows}, budget=budget, seed=seed, same_people=False
    ), test


def moments(data: Data, job: Job) -> float:
    federation, test = pictured(data, Budget(job["epsilon_total"], DELTA), job["seed"])
    return (
        train("moments", federation, seed=job["seed"])
        .generator.classifier()
        .score(test, data.test_y)
    )


def class_means(data: Data, job: Job) -> float:
    federation, test = pictured(data, Budget(job["epsilon_total"], 0.0), job["seed"])
    result = train(
        "class-means", federation, epsilon_total=job["epsilon_total"], seed=job["seed"]
    )
    return result.model.score(test, data.test_y)


def sign_ds(data: Data, job: Job) -> float:
    """SignDS-FL (h = 1): everybody gives the same number of reports, which share ε."""
    reports = job["reports"]
    clients_per_round = min(CLIENTS_PER_ROUND, len(data.x))
    classes = list(range(data.classes))
    people, test = (
        Population.from_arrays(
            x.astype(np.float32), y, classes=classes, rows_per_person=rows
        )
        for x, y, rows in (
            (data.x, data.y, 1),
            (data.test_x, data.test_y, len(data.test_x)),
        )
    )
    federation = Federation.rehearsal(
        {"phones": people}, budget=Budget(math.inf, 0.0), seed=job["seed"]
    )
    rounds = max(1, len(data.x) // clients_per_round * reports)
    result = train(
        "sign-ds",
        federation,
        holdout=test,
        model="logistic",
        reporter="ps",
        rounds=rounds,
        clients_per_round=clients_per_round,
        max_reports=reports,
        epsilon=job["epsilon_total"] / reports,
        global_rate=GLOBAL_RATE,
        seed=job["seed"],
        evaluate_every=rounds,
        checkpoint_every=10**6,
        device=job["device"],
    )
    return float(result.model.card["history"][-1]["accuracy"])


def real_rows(data: Data, job: Job) -> float:
    """Without privacy."""
    learner = MLPClassifier(random_state=job["seed"], early_stopping=True)
    return float(learner.fit(data.x, data.y).score(data.test_x, data.test_y))


METHODS: dict[str, tuple[str, int, Callable[[Data, Job], float]]] = {
    "SignDS-FL, one report": ("nobody", 1, sign_ds),
    "SignDS-FL, ten reports": ("nobody", 10, sign_ds),
    "one-report": ("nobody", 1, one_report),
    "class-means": ("nobody", 1, class_means),
    "two-aggregators": ("two aggregators", 1, two_aggregators),
    "gram": ("one holder", 1, gram),
    "moments": ("one holder", 1, moments),
    "real rows": ("no privacy", 0, real_rows),
}
DATASETS = ("a9a", "usps", "har", *IMAGES)


def measure(job: Job) -> Job:
    """One cell."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    data = load(job["dataset"], job["data"], job["most"])
    start = time.perf_counter()
    accuracy = METHODS[job["method"]][2](data, job)
    return {key: job[key] for key in (*KEY, "reports")} | {
        "people": len(data.x),
        "classes": data.classes,
        "accuracy": round(accuracy, 4),
        "seconds": round(time.perf_counter() - start, 1),
    }


def jobs(args: argparse.Namespace) -> Iterator[Job]:
    """Moments and class means take no tables of bits."""
    for seed in range(args.seeds):
        for epsilon in args.epsilons:
            for dataset in args.only:
                for method in args.methods:
                    trust, reports, _ = METHODS[method]
                    bits_alone = dataset == "a9a" and method in (
                        "moments",
                        "class-means",
                    )
                    if bits_alone or (not reports and epsilon != args.epsilons[0]):
                        continue
                    yield {
                        "dataset": dataset,
                        "trust": trust,
                        "method": method,
                        "reports": reports,
                        "seed": seed,
                        "epsilon_total": epsilon if reports else "",
                        "data": args.data,
                        "device": args.device,
                        "most": args.most,
                    }


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, device="cpu")
    parser.add_argument(
        "--only", nargs="*", default=["digits"] if QUICK else list(DATASETS)
    )
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument(
        "--epsilons", nargs="*", type=float, default=[8.0] if QUICK else list(EPSILONS)
    )
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 3)
    parser.add_argument("--most", type=int, help="rows of a data set")
    return parser


def main() -> None:
    args = parser().parse_args()
    if args.out is None and not QUICK:
        args.out = HERE / "classifiers.csv"
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
