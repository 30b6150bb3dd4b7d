"""Images and series of people who hold them: what moments by local reports and by two
shares are worth.

    python benchmarks/people/moments.py --data data --jobs 2 [--only usps --epsilons 1]     # moments.csv

ε is the price of everything that a person sends; a person has one image or series, and
is in one part of it.

- nobody is trusted, "class means": each person names one of many random codewords, as a
  rule one of those that are nearest to their own vector, which lies in the block of
  their class. It is the best estimator of a mean of bounded vectors under local privacy
  (k-closest of a rotated code: Isik, Chen, Özgür, Weissman, No, "Exact optimality of
  communication-privacy-utility tradeoffs in distributed mean estimation", NeurIPS 2023;
  it tells as much as PrivUnit, Bhowmick et al. 2018). A fifth of the people report on
  the mean of all, the others on the direction from there in which their row lies. A
  row's class is that of the nearest mean.
- two aggregators, `shared-moments`: everybody uploads their class, their vector in the
  line of the class, and its products; "by class": with 40 features, and the products in
  that line, too. "two groups": a fifth uploads counts and means, and the others second
  moments about what came out; that is a simulation. The sums are made in the clear
  here, with the noise of both. A row's class is by Bayes' rule on the fit of `moments`.

`error`: of a class mean, in parts of a row's length; `expected` what the formula says
of it; `apart`: the mean distance of two class means; `exact`: the accuracy of the same
rule without privacy; `bytes`: of an upload.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import numpy as np
import torch
from classifiers import Data, load
from numpy.typing import NDArray
from scipy.special import ndtri

from common.grid import Grid, by_text, grid_options
from common.loaders import IMAGES
from common.options import quick
from understudy.data.encoding.frame import Frame
from understudy.data.images import ImageSchema
from understudy.models.moments.fit import (
    centres,
    directions,
    fit_cells,
    fit_one_release,
)
from understudy.models.moments.gaussians import CellGaussians, bayes_rule
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise import SecureRng
from understudy.privacy.secure.moments import (
    Crowd,
    bounded,
    needed_multipliers,
    noise_for,
)
from understudy.protocols.aggregators.moments import Config as SharedConfig
from understudy.protocols.aggregators.moments import MomentsPlan
from understudy.protocols.moments.stages import ArrayRows, First, Pooled, finest

HERE = Path(__file__).parent
QUICK = quick()
DELTA = 1e-5
EPSILONS = (1.0, 2.0, 4.0, 8.0)
FEATURES = 100  # of a row, for two groups
FIRST = 0.2  # of the people, for what the others' part is about
LOCAL = 64  # features of a local report on an image
KEY = ("dataset", "trust", "method", "epsilon_total", "seed")
FIELDS = [
    *KEY,
    "people",
    "features",
    "bytes",
    "error",
    "expected",
    "apart",
    "accuracy",
    "exact",
    "seconds",
]
GRID = Grid(fields=FIELDS, key=KEY, order=by_text(*KEY))

Job = dict[str, Any]
Array = NDArray[np.float64]


# Local reports


@cache
def nearest(epsilon: float) -> tuple[float, float, float]:
    """The share of codewords that are near, how often a report names one of them, and
    how long reports are on the mean along the person's own vector: for very many
    codewords, each normal in every direction.
    """

    def told(near: float) -> tuple[float, float]:
        height = math.exp(-(ndtri(near) ** 2) / 2) / math.sqrt(2 * math.pi)
        named = near * math.exp(epsilon) / (near * math.exp(epsilon) + 1 - near)
        return named, height * (named / near - (1 - named) / (1 - near))

    best = max(np.geomspace(1e-5, 0.5, 400).tolist(), key=lambda near: told(near)[1])
    return best, *told(best)


def reported(own: Array, epsilon: float, rng: np.random.Generator) -> Array:
    """What the people's reports about unit vectors (n, d) are on the mean, each of
    them: unbiased, (n, d).

    A codeword is normal along a person's own vector and, whatever it is there, in all
    other directions.
    """
    near, named, length = nearest(epsilon)
    height = rng.random(len(own))
    hit = rng.random(len(own)) < named
    along = ndtri(np.where(hit, 1 - near * height, (1 - near) * height))
    drawn = rng.standard_normal(own.shape)
    drawn += own * (along - (drawn * own).sum(1))[:, None]
    return np.asarray(drawn / length)


def mean_of(vectors: Array, epsilon: float, rng: np.random.Generator) -> Array:
    """The mean of unit vectors by one report each."""
    total = np.zeros(vectors.shape[1])
    for start in range(0, len(vectors), 1000):
        total += reported(vectors[start : start + 1000], epsilon, rng).sum(0)
    return np.asarray(total / len(vectors))


def class_means(data: Data, job: Job) -> dict[str, float]:
    """Directions from the mean of all, averaged class by class; a row's class is that
    of the nearest.
    """
    x, test = features(data, LOCAL)
    reach = math.sqrt(data.x.shape[1]) / 2  # no row about 1/2 is longer
    rng = np.random.default_rng(job["seed"])
    epsilon = job["epsilon_total"]
    classes = data.classes
    order = rng.permutation(len(x))
    early, late = np.split(order, [round(FIRST * len(x))])
    middle = mean_of(lifted(x[early] / reach), epsilon, rng)[:-1] * reach
    rows = units(x[late] - middle)
    y = data.y[late]
    blocks = np.zeros((classes, rows.shape[1]))
    for start in range(0, len(rows), 500):
        part = np.zeros((len(rows[start : start + 500]), classes, rows.shape[1]))
        part[np.arange(len(part)), y[start : start + 500]] = rows[start : start + 500]
        blocks += (
            reported(part.reshape(len(part), -1), epsilon, rng)
            .sum(0)
            .reshape(classes, -1)
        )
    share = np.bincount(y, minlength=classes) / len(y)
    real = np.stack([rows[y == c].mean(0) for c in range(classes)])
    found = blocks / len(y) * classes
    noise = classes / nearest(epsilon)[2] / math.sqrt(len(y)) * math.sqrt(rows.shape[1])
    far = np.linalg.norm(real[:, None] - real[None], axis=2)
    test = test - middle
    return {
        "features": rows.shape[1],
        "error": float(
            np.sqrt(np.square(found - real * share[:, None] * classes).sum(1).mean())
        ),
        "expected": noise,
        "apart": float(far.sum() / (classes * (classes - 1))),
        "accuracy": right(test, found, data.test_y, noise**2),
        "exact": right(test, real, data.test_y, 0.0),
    }


def right(test: Array, means: Array, y: NDArray[np.int64], noise: float) -> float:
    """How often a row is most along the direction of its class, whose length is counted
    without that of its noise.
    """
    lengths = np.square(means).sum(1) - noise
    lengths = np.sqrt(np.maximum(lengths, 0.5 * max(float(lengths.mean()), 1e-12)))
    return float(((test @ means.T / lengths).argmax(1) == y).mean())


def lifted(x: Array) -> Array:
    """Vectors of a length up to 1, with one more coordinate that makes it 1."""
    return np.hstack(
        [x, np.sqrt(np.maximum(1 - np.square(x).sum(1, keepdims=True), 0))]
    )


def units(x: Array) -> Array:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))


def features(data: Data, many: int) -> tuple[Array, Array]:
    """Slow coefficients of images about 1/2; other features as they are, about 1/2."""
    if data.shape is None or data.shape == (17, 33):
        return data.x - 0.5, data.test_x - 0.5
    frame = Frame(data.shape, 2, min(many, math.prod(data.shape)))
    rows = (
        frame.coefficients(part.reshape(-1, *data.shape)) / 4096
        for part in (data.x, data.test_x)
    )
    first, second = rows
    return first, second


# Two aggregators


def rows_of(data: Data, frame: Frame, places: NDArray[np.int64]) -> ArrayRows:
    values = data.x[places].reshape(-1, *frame.shape)
    alone = Crowd.from_starts(np.arange(len(places) + 1))
    return ArrayRows(
        frame.coefficients(values), frame.histograms(values, 32), data.y[places], alone
    )


def with_noise(
    stage: First | Pooled, rows: ArrayRows, multiplier: float, rng: np.random.Generator
) -> Any:
    """What both aggregators together release of it: two full noises."""
    sigma = noise_for(multiplier, stage.sensitivity) * math.sqrt(2)
    each = torch.where(stage.diagonal, sigma * math.sqrt(2), sigma)
    drawn = torch.from_numpy(rng.standard_normal(stage.size)) * each
    return stage.read_sums((stage.sums(rows) + drawn.round()).long(), sigma)


def two_groups(data: Data, job: Job) -> dict[str, float]:
    assert data.shape is not None
    frame = Frame(data.shape, 2, min(FEATURES, math.prod(data.shape)))
    rng = np.random.default_rng(job["seed"])
    (multiplier,) = needed_multipliers(Budget(job["epsilon_total"], DELTA), (1.0,))
    early, late = np.split(rng.permutation(len(data.x)), [round(FIRST * len(data.x))])
    centre = centres(
        with_noise(
            First(frame, data.classes), rows_of(data, frame, early), multiplier, rng
        ),
        frame,
    )
    stage = Pooled(
        centre.whole_means,
        centre.radius,
        frame.features,
        finest(multiplier * math.sqrt(2), 1),
    )
    pooled = with_noise(stage, rows_of(data, frame, late), multiplier, rng)
    more = (1 - FIRST) / FIRST
    # as of the first group's people
    pooled = {name: value / more for name, value in pooled.items()}
    found = classified(
        data, fit_cells(frame, centre, directions(pooled, centre, frame), None)
    )
    return {"features": frame.features, "accuracy": found}


def shared_moments(data: Data, job: Job, **settings: Any) -> dict[str, float]:
    """What `shared-moments` releases: the sums in the clear, with the noise of both,
    and its fit.
    """
    assert data.shape is not None
    schema = ImageSchema(
        height=data.shape[0],
        width=data.shape[1],
        label="class",
        classes=tuple(range(data.classes)),
    )
    config = SharedConfig(
        aggregator="second", epsilon=job["epsilon_total"], delta=DELTA, **settings
    )
    plan = MomentsPlan.joint(config, {"people": schema, "second": schema})
    frame = plan.frame
    cells = plan.cells
    rng = SecureRng.from_seed(job["seed"])
    total = np.zeros(cells.count, np.int64)
    for start in range(0, len(data.x), 500):
        some = slice(start, start + 500)
        own = frame.coefficients(data.x[some].reshape(-1, *frame.shape))
        q = bounded(own, float(frame.reach), cells.radius).astype(np.int64)
        total += cells.counted(data.y[some], q).sum(0)
    noisy = torch.from_numpy(total) * plan.weights + plan.noise(rng) + plan.noise(rng)
    found = classified(data, fit_one_release(frame, *plan.read(noisy)))
    return {"features": frame.features, "bytes": plan.format.size, "accuracy": found}


def classified(data: Data, gaussians: CellGaussians) -> float:
    """How often Bayes' rule on them is right about held-out people."""
    network, weights = bayes_rule(gaussians)
    rows = torch.from_numpy(data.test_x.reshape(len(data.test_x), -1)).float()
    guessed = network.scores(weights[None], rows[None])[0].argmax(1).numpy()
    return float((guessed == data.test_y).mean())


METHODS: dict[str, tuple[str, Callable[[Data, Job], dict[str, float]]]] = {
    "class means": ("nobody", class_means),
    "two groups": ("two aggregators", two_groups),
    "shared-moments": ("two aggregators", shared_moments),
    "shared-moments, by class": (
        "two aggregators",
        partial(shared_moments, by_class=True, features=40),
    ),
}
DATASETS = ("usps", "har", *IMAGES)


def measure(job: Job) -> Job:
    """One cell."""
    torch.set_num_threads(1)
    data = load(job["dataset"], job["data"], job["most"])
    start = time.perf_counter()
    found = METHODS[job["method"]][1](data, job)
    return (
        {key: job[key] for key in KEY}
        | {"people": len(data.x)}
        | {name: round(value, 4) for name, value in found.items()}
        | {"seconds": round(time.perf_counter() - start, 1)}
    )


def jobs(args: argparse.Namespace) -> Iterator[Job]:
    for seed in range(args.seeds):
        for epsilon in args.epsilons:
            for dataset in args.only:
                for method in args.methods:
                    yield {
                        "dataset": dataset,
                        "trust": METHODS[method][0],
                        "method": method,
                        "epsilon_total": epsilon,
                        "seed": seed,
                        "data": args.data,
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
        args.out = HERE / "moments.csv"
    GRID.run(measure, jobs(args), args)


if __name__ == "__main__":
    main()
