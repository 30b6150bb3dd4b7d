"""Local epochs of many clients: one batch against one client after another.

    make bench NAME=cohort DATA=<folder with usps.npz and fashion_mnist_train15k.npz> [QUICK=1]

Settings of SignDS-FL (§3.5.1): 10 rows a client, 10 full-batch epochs, learning rate
0.001, 250 clients a round. The loop is what one would write first: a `torch.nn` module
and a `torch.optim` optimiser for each client in turn. Both sides start from the same
vector and see the same rows. Times are of single precision and of one core: CPU time of
one thread, so that other work on the machine does not blur them. `generic_ms` is the
batched path without the span trick, where that trick applies. `difference` is how far
the updates of both sides are apart, relative, in double precision. QUICK=1 uses
generated rows and few clients, and leaves ours.csv alone.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# before torch: a later set_num_threads does not reach every thread pool
os.environ["OMP_NUM_THREADS"] = "1"
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from common.loaders import arrays
from common.options import options, quick
from common.rows import write
from understudy.models.cohort.classifier import (
    Classifier,
    LeNet,
    LogisticRegression,
    Mlp,
)
from understudy.models.cohort.training import ClassifierTraining, descend

HERE = Path(__file__).parent
QUICK = quick()
ROWS = 10
EPOCHS = 2 if QUICK else 10
LR = 0.001
# a measurement is repeated until this is spent, three times at most
SECONDS = 0.5 if QUICK else 5.0
OPTIMIZERS: dict[str, Any] = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}

USPS = ("usps", 256)
FMNIST = ("fashion_mnist_train15k", 784)
LR_ = LogisticRegression(256, 10)
MLP = Mlp(784, 96, 10)
LENET = LeNet(10)
CASES: list[tuple[Classifier, tuple[str, int], str, tuple[int, ...]]] = [
    (LR_, USPS, "sgd", (50, 250, 1000)),
    (LR_, USPS, "adam", (250,)),
    (MLP, FMNIST, "sgd", (50, 250, 500)),
    (MLP, FMNIST, "adam", (250,)),
    (LENET, FMNIST, "sgd", (250,)),
    (LENET, FMNIST, "adam", (250,)),
]


class Seeded:
    """Uniform numbers for the initial model."""

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, dtype=torch.float64)


def module(model: Classifier) -> nn.Module:
    match model:
        case LogisticRegression():
            return nn.Linear(model.features, model.classes)
        case Mlp():
            hidden = nn.Linear(model.features, model.hidden)
            return nn.Sequential(
                hidden, nn.ReLU(), nn.Linear(model.hidden, model.classes)
            )
        case _:
            return nn.Sequential(
                nn.Unflatten(1, (1, 28, 28)),
                nn.Conv2d(1, 6, 5),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(6, 16, 5),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Linear(256, 120),
                nn.ReLU(),
                nn.Linear(120, 84),
                nn.ReLU(),
                nn.Linear(84, model.classes),
            )


def loop(
    model: Classifier, params: Tensor, x: Tensor, y: Tensor, optimizer: str
) -> Tensor:
    """One client after another."""
    updates = params.new_empty(len(x), model.size)
    local = module(model).to(params.dtype)
    for client in range(len(x)):
        nn.utils.vector_to_parameters(params.clone(), local.parameters())
        step = OPTIMIZERS[optimizer](local.parameters(), lr=LR)
        for _ in range(EPOCHS):
            step.zero_grad()
            functional.cross_entropy(local(x[client]), y[client]).backward()
            step.step()
        updates[client] = (
            nn.utils.parameters_to_vector(local.parameters()).detach() - params
        )
    return updates


def generic(model: Classifier, params: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Gradient descent as one batch, on the dense weights."""

    def loss(local: Tensor) -> Tensor:
        scores = model.scores(local, x).flatten(0, 1)
        return (
            functional.cross_entropy(scores, y.flatten(), reduction="none")
            .view(-1, ROWS)
            .mean(1)
        )

    out = params.new_empty(len(x), len(params))
    descend(loss, params, out, EPOCHS, LR, "sgd")
    return out


def rows(source: tuple[str, int], clients: int, folder: Path) -> tuple[Tensor, Tensor]:
    """(clients, rows, features) and labels, drawn from the data set or generated in its
    shape.
    """
    name, features = source
    draw = np.random.default_rng(0)
    if QUICK:
        x = draw.random((clients * ROWS, features))
        y = draw.integers(10, size=clients * ROWS)
    else:
        (held,) = arrays(folder, f"{name}.npz")
        chosen = draw.integers(len(held["y"]), size=clients * ROWS)
        x = held["X"][chosen]
        y = held["y"][chosen]
        x = x / 255 if x.dtype == np.uint8 else x
    flat = torch.as_tensor(x.reshape(clients, ROWS, features), dtype=torch.float32)
    return flat, torch.as_tensor(y.astype(np.int64).reshape(clients, ROWS))


def race(*contenders: Callable[[], Tensor]) -> list[float]:
    """Milliseconds of one core for each: the best of up to three turns, taken
    alternately.
    """
    best = [float("inf")] * len(contenders)
    spent = 0.0
    for _ in range(3):
        for number, run in enumerate(contenders):
            start = time.process_time()
            run()
            best[number] = min(best[number], time.process_time() - start)
        spent += sum(best)
        if spent > SECONDS:
            break
    return [1000 * seconds for seconds in best]


def measure(
    model: Classifier,
    source: tuple[str, int],
    optimizer: str,
    clients: int,
    folder: Path,
) -> dict[str, Any]:
    torch.manual_seed(0)
    x, y = rows(source, clients, folder)
    params = model.init(Seeded())

    def cohort(params: Tensor = params, few: slice = slice(None)) -> Tensor:
        return ClassifierTraining(model, epochs=EPOCHS, lr=LR, optimizer=optimizer)(
            params, x[few], y[few]
        )

    few = slice(0, 20)
    alone = loop(model, params.double(), x[few].double(), y[few], optimizer)
    difference = float((cohort(params.double(), few) - alone).norm() / alone.norm())
    contenders = [lambda: loop(model, params, x, y, optimizer), cohort]
    if optimizer == "sgd" and model is not LENET:
        contenders.append(lambda: generic(model, params, x, y))
    loop_ms, cohort_ms, *generic_ms = race(*contenders)
    return {
        "model": model.kind,
        "optimizer": optimizer,
        "clients": clients,
        "loop_ms": round(loop_ms, 1),
        "cohort_ms": round(cohort_ms, 1),
        "generic_ms": round(generic_ms[0], 1) if generic_ms else "",
        "difference": f"{difference:.1e}",
    }


def forming(clients: int) -> str:
    """What the last step of the MLP's span path costs by itself: the dense update,
    once.
    """
    x = torch.rand(clients, ROWS, 784)
    a = torch.rand(clients, ROWS, 96)
    dense = torch.empty(clients, 96, 784)
    formed, copied = race(lambda: torch.bmm(a.mT, x, out=dense), dense.clone)
    size = dense.nbytes / 1e6
    return (
        f"Forming the dense update of {clients} MLPs ({size:.0f} MB): {formed:.1f} "
        f"ms; copying it: {copied:.1f} ms."
    )


def parser() -> argparse.ArgumentParser:
    return options(__doc__, out=HERE / "ours.csv", data=True)


def main() -> None:
    args = parser().parse_args()
    results = []
    print(
        f"{'model':20} {'optimizer':9} {'clients':>7} {'loop_ms':>9} {'cohort_ms':>9} "
        f"{'generic_ms':>10} {'ratio':>7}"
    )
    for model, source, optimizer, sizes in CASES:
        for clients in (5,) if QUICK else sizes:
            row = measure(model, source, optimizer, clients, args.data)
            results.append(row)
            ratio = row["loop_ms"] / row["cohort_ms"]
            print(
                f"{row['model']:20} {optimizer:9} {clients:7} {row['loop_ms']:9.1f} "
                f"{row['cohort_ms']:9.1f} {row['generic_ms']:>10} {ratio:6.1f}×  "
                f"(difference {row['difference']})",
                flush=True,
            )
    print(forming(5 if QUICK else 250))
    write(args.out, results, list(results[0]))


if __name__ == "__main__":
    main()
