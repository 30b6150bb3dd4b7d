"""Which model to fit to a noisy Gram matrix, and how near its rows come to the real
ones.

    DATA=<folder with adult_pgm.csv.gz> python benchmarks/joint/fit.py [--method …] [--epsilon …] [--seed …]

One Gram matrix of 80 % of Adult's rows is released with Gaussian noise of the size that
its ε costs, rounded to whole numbers, and a model is fitted to it:

    independent  the one-way tables alone
    network      a generator network (128 → 512 → 512 → softmax per column) on the same
                 tables and loss
    plain        the mixture on the noisy cells as they are, without empirical Bayes and
                 without the stop rule
    mixture      `fit_gram`, rows drawn by Latin hypercubes

As many rows as there are real ones are drawn and compared with them: 1-, 2- and 3-way
AVD (3-way: 100 sets of columns), and a gradient boosting classifier trained on the
drawn rows and tested on the other 20 % of real ones. `real` and `bootstrap` are what
real rows give. Seconds are CPU seconds of one thread. Each run adds a line to fit.csv.
QUICK=1 takes generated rows and few steps, and writes nothing.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

# before torch: a later set_num_threads does not reach every thread pool
os.environ["OMP_NUM_THREADS"] = "1"
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
from torch import Tensor

from common.options import options, quick
from common.rows import read, said, write
from common.sources import need
from understudy.evaluate.utility.marginals import Marginals
from understudy.models.nets.gan import BranchedGenerator
from understudy.models.tables import fit_gram as fitting
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import NoisyMarginals, read_tables
from understudy.privacy.accounts.accounting import DiscreteGaussian, calibrate
from understudy.privacy.noise.rng import FastRng

QUICK = quick()
DELTA = 1e-5
STEPS = 20 if QUICK else 1200
SETTING = ("dataset", "method", "epsilon", "delta", "seed", "sigma", "seconds")
FIGURES = ("avd1", "avd2", "avd3", "tstr_acc", "tstr_f1", "tstr_auc")

Codes = NDArray[np.int64]
Rows = Callable[[Tensor], Tensor]  # standard normal latents → probabilities
Draw = Callable[[int, int], Codes]  # how many rows, seed → rows


def adult(folder: Path) -> tuple[Codes, list[int]]:
    """Codes (n, 14) with the label last, and the levels of each column."""
    if QUICK:
        sizes = [5, 3, 4, 2]
        rng = np.random.default_rng(0)
        rank = rng.random((2_000, 1))
        return (
            np.where(rng.random((2_000, 4)) < 0.5, rank, rng.random((2_000, 4))) * sizes
        ).astype(int), sizes
    path, described = need(folder, "adult_pgm.csv.gz", "adult_pgm_domain.json")
    domain = json.loads(described.read_text())
    return pd.read_csv(path)[list(domain)].to_numpy(np.int64), list(domain.values())


def release(codes: Codes, sizes: list[int], sigma: float, seed: int) -> Tensor:
    """The Gram matrix of one-hot rows, with whole noise on and above the diagonal."""
    starts = np.cumsum([0, *sizes[:-1]])
    rows = torch.zeros(len(codes), sum(sizes)).scatter_(
        1, torch.tensor(codes + starts), 1.0
    )
    noise = (
        np.random.default_rng(seed).normal(0, sigma, (sum(sizes), sum(sizes))).round()
    )
    return ((rows.T @ rows).double() + torch.tensor(noise)).triu()


def independent(gram: Tensor, sizes: list[int], sigma: float, seed: int) -> Draw:
    ways = read_tables(gram, sizes, noise=sigma).ways.float()
    return by_odds(lambda z: ways.expand(len(z), -1), 1, sizes)


def mixture(gram: Tensor, sizes: list[int], sigma: float, seed: int) -> Draw:
    fitted = fit_gram(gram, sizes, noise=sigma, steps=STEPS, seed=seed)
    return lambda n, seed: np.asarray(
        fitted.levels(n, FastRng(seed).uniform), dtype=np.int64
    )


def plain(gram: Tensor, sizes: list[int], sigma: float, seed: int) -> Draw:
    """`fit_gram` with the prior's share and the stop rule taken away."""
    tables = read_tables(gram, sizes, noise=sigma)
    tables = replace(
        tables,
        target=tables.measured,
        precision=tables.weight,
        most=torch.zeros_like(tables.most),
    )
    torch.manual_seed(seed)
    model = MixtureOfProducts(sizes, 512)
    with torch.no_grad():
        model.logits.copy_(
            tables.ways.clamp(min=1e-6).log() + 0.5 * torch.randn(512, model.width)
        )
    return by_odds(fitting._descend(model, tables, STEPS, 0.2, None).rows, 1, sizes)


def network(gram: Tensor, sizes: list[int], sigma: float, seed: int) -> Draw:
    """The same loss, descended by the weights of a network, on 512 fresh latents a
    step.
    """
    torch.manual_seed(seed)
    tables = read_tables(gram, sizes, noise=sigma)
    model = BranchedGenerator(128, (512, 512), {"all": ((), tuple(sizes))})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 - step / STEPS) ** 0.5
    )
    for _ in range(STEPS):
        odds = model.rows(torch.randn(512, 128))
        optimizer.zero_grad()
        torch.autograd.backward(odds, slope(odds.detach(), tables))
        optimizer.step()
        schedule.step()
    return by_odds(model.requires_grad_(False).rows, 128, sizes)


def slope(odds: Tensor, tables: NoisyMarginals) -> Tensor:
    """The gradient of the loss in the odds, as `fit_gram` has it."""
    basis = tables.basis.float()
    turned = odds @ basis
    gap = (turned.T @ turned / len(odds) - tables.target) * tables.precision
    step = (
        turned @ gap.float() @ basis.T
        + ((odds.mean(0) - tables.ways) * tables.ways_precision).float()
    )
    return step * float(tables.ways_precision.mean().rsqrt())


def by_odds(rows: Rows, latent: int, sizes: list[int]) -> Draw:
    """Independent rows from a model's probabilities, each column by the inverse of its
    distribution.
    """

    def draw(n: int, seed: int) -> Codes:
        torch.manual_seed(seed)
        columns = [
            (
                torch.rand(n, 1, dtype=torch.float64) * part.sum(1, keepdim=True)
                > part.cumsum(1)
            ).sum(1)
            for part in torch.split(rows(torch.randn(n, latent)).double(), sizes, 1)
        ]
        return np.asarray(torch.stack(columns, 1))

    return draw


def figures(
    real: Codes, drawn: Codes, test: Codes, sizes: list[int]
) -> dict[str, float]:
    pair = Marginals(real.astype(np.int32), drawn.astype(np.int32), sizes, ends=())
    model = HistGradientBoostingClassifier(random_state=0).fit(
        drawn[:, :-1], drawn[:, -1]
    )
    odds = model.predict_proba(test[:, :-1])[:, 1]
    truth = test[:, -1]
    scores = (
        accuracy_score(truth, odds > 0.5),
        f1_score(truth, odds > 0.5),
        roc_auc_score(truth, odds),
    )
    tables = {f"avd{k}": pair.avd(k).value for k in (1, 2, 3)}
    return tables | dict(zip(FIGURES[3:], scores, strict=True))


METHODS: dict[str, Any] = {
    "independent": independent,
    "network": network,
    "plain": plain,
    "mixture": mixture,
}


def run(method: str, epsilon: float, seed: int, folder: Path) -> dict[str, Any]:
    codes, sizes = adult(folder)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(codes))
    real = codes[order[: len(codes) * 4 // 5]]
    test = codes[order[len(codes) * 4 // 5 :]]
    line: dict[str, Any] = {"dataset": "adult", "method": method, "seed": seed}
    if method in ("real", "bootstrap"):
        drawn = (
            real if method == "real" else real[rng.integers(len(real), size=len(real))]
        )
    else:
        # a person is in one cell of each table
        cells = len(sizes) * (len(sizes) + 1) // 2
        sigma = calibrate(
            lambda s: {DiscreteGaussian(sigma=s): cells}, epsilon=epsilon, delta=DELTA
        )
        gram = release(real, sizes, sigma, seed)
        start = time.process_time()
        draw = METHODS[method](gram, sizes, sigma, seed)
        line |= {
            "epsilon": epsilon,
            "delta": DELTA,
            "sigma": sigma,
            "seconds": time.process_time() - start,
        }
        drawn = draw(len(real), seed)
    line |= figures(real, drawn, test, sizes)
    return {
        k: round(v, 4) if isinstance(v, float) and k != "delta" else v
        for k, v in line.items()
    }


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=Path(__file__).parent / "fit.csv", data=True)
    parser.add_argument(
        "--method",
        nargs="+",
        choices=["real", "bootstrap", *METHODS],
        default=list(METHODS),
    )
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.2, 1.0, 8.0])
    parser.add_argument("--seed", nargs="+", type=int, default=[0])
    return parser


def main() -> None:
    chosen = parser().parse_args()
    for method in chosen.method:
        for epsilon in chosen.epsilon if method in METHODS else [float("inf")]:
            for seed in chosen.seed:
                line = run(method, epsilon, seed, chosen.data)
                print(said(line), flush=True)
                write(chosen.out, [*read(chosen.out), line], SETTING + FIGURES)


if __name__ == "__main__":
    main()
