"""Local epochs of many autoencoders: one batch against one client after another, at the
paper's settings.

The loop is what one would write first: `torch.nn` modules and `torch.optim.Adam` for
each client in turn. Both sides start from the same vector and see the same rows and the
same points of the prior. Times are CPU time of one thread, so that other work on the
machine does not blur them. `difference` is how far the updates of both are apart,
relative.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# before torch: a later set_num_threads does not reach every thread pool
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from common.rows import said, write
from understudy.models.nets.autoencoder import Autoencoder, LocalTraining
from understudy.models.nets.wae import ImageWae, TableWae
from understudy.privacy.noise.rng import FastRng

ROWS = 2
EPOCHS = 10
LR = 0.001
CASES: list[tuple[str, Autoencoder]] = [
    ("a9a", TableWae(sizes=(2,) * 124, hidden=64, latent=16)),
    ("census", TableWae(sizes=(6,) * 66, hidden=96, latent=24)),
    ("mnist", ImageWae()),
]
FIELDS = [
    "model",
    "dims",
    "clients",
    "loop_ms",
    "cohort_ms",
    "ratio",
    "loop_ms_per_client",
    "cohort_ms_per_client",
    "difference",
]


class Given:
    """The same points of the prior for both sides."""

    def __init__(self, prior: Tensor) -> None:
        self.prior = prior

    def normal(self, *shape: int) -> Tensor:
        return self.prior

    def integers(self, high: int, *shape: int) -> Tensor:
        raise NotImplementedError


def modules(network: Autoencoder) -> nn.ModuleList:
    if isinstance(network, TableWae):
        w = network.width
        h = network.hidden
        z = network.latent
        encoder = nn.Sequential(nn.Linear(w, h), nn.ReLU(), nn.Linear(h, z))
        return nn.ModuleList(
            [encoder, nn.Sequential(nn.Linear(z, h), nn.ReLU(), nn.Linear(h, w))]
        )
    c = network.channels
    z = network.latent
    inner = 2 * network.channels * 49
    encoder = nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, c, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(c, 2 * c, 4, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(inner, z),
    )
    decoder = nn.Sequential(
        nn.Linear(z, inner),
        nn.ReLU(),
        nn.Unflatten(1, (2 * c, 7, 7)),
        nn.ConvTranspose2d(2 * c, c, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(c, 1, 4, 2, 1),
        nn.Flatten(1, 2),
    )
    return nn.ModuleList([encoder, decoder])


def loop(network: Autoencoder, params: Tensor, x: Tensor, prior: Tensor) -> Tensor:
    """One client after another."""
    encoder, decoder = both = modules(network)
    updates = []
    for rows, points in zip(x, prior, strict=True):
        nn.utils.vector_to_parameters(params.clone(), both.parameters())
        adam = torch.optim.Adam(both.parameters(), lr=LR)
        for p in points:
            z = encoder(rows)
            out = decoder(z)
            if isinstance(network, TableWae):
                loss = functional.binary_cross_entropy_with_logits(out, rows)
            else:
                loss = functional.mse_loss(out.sigmoid(), rows)
            adam.zero_grad()
            (loss + penalty(z, p)).backward()
            adam.step()
        updates.append(
            nn.utils.parameters_to_vector(both.parameters()).detach() - params
        )
    return torch.stack(updates)


def penalty(q: Tensor, p: Tensor) -> Tensor:
    """Eq. 4.4 for one client."""
    n = len(q)
    kappa = 2 * q.shape[1]
    other = 1 - torch.eye(n)

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return kappa / (kappa + (a[:, None] - b).square().sum(2))

    return ((kernel(q, q) + kernel(p, p)) * other).sum() / (n * (n - 1)) - 2 * kernel(
        q, p
    ).mean()


def rows_of(
    name: str, network: Autoencoder, clients: int, folder: Path | None
) -> Tensor:
    """Rows of the data set, or generated ones with as many ones."""
    draw = np.random.default_rng(0)
    file = (
        None
        if folder is None
        else folder / {"a9a": "a9a.npz", "mnist": "mnist_test.npz"}.get(name, "none")
    )
    if file is not None and file.exists():
        arrays = np.load(file)
        table = arrays["X_train"] if name == "a9a" else arrays["X"] / 255
        rows = table[draw.integers(len(table), size=clients * ROWS)]
        if name == "a9a":
            rows = np.concatenate([rows, draw.integers(2, size=(len(rows), 1))], 1)
    elif isinstance(network, TableWae) and max(network.sizes) > 2:
        # one slot of each column
        slots = draw.integers(6, size=(clients * ROWS, len(network.sizes)))
        rows = np.eye(6)[slots].reshape(len(slots), -1)
    else:
        rows = draw.random((clients * ROWS, *network.row_shape)) < 0.11
    return torch.as_tensor(
        rows.reshape(clients, ROWS, *network.row_shape), dtype=torch.float32
    )


def race(*contenders: Callable[[], Tensor], turns: int) -> list[float]:
    """Milliseconds of one core for each: the best of so many turns, taken
    alternately.
    """
    best = [float("inf")] * len(contenders)
    for _ in range(turns):
        for number, run in enumerate(contenders):
            start = time.process_time()
            run()
            best[number] = min(best[number], 1000 * (time.process_time() - start))
    return best


def measure(
    name: str, network: Autoencoder, clients: int, folder: Path | None, turns: int
) -> dict[str, Any]:
    torch.manual_seed(0)
    x = rows_of(name, network, clients, folder)
    prior = torch.randn(clients, EPOCHS, ROWS, network.latent)
    mask = torch.ones(clients, ROWS, dtype=torch.bool)
    params = network.init(FastRng(0))

    def alone() -> Tensor:
        return loop(network, params, x, prior)

    def together() -> Tensor:
        return LocalTraining(network, epochs=EPOCHS, lr=LR)(
            params, x, mask, Given(prior)
        )

    difference = float((together() - (one := alone())).norm() / one.norm())
    loop_ms, cohort_ms = race(alone, together, turns=turns)
    return {
        "model": f"{network.kind} ({name})",
        "dims": network.size,
        "clients": clients,
        "loop_ms": round(loop_ms, 1),
        "cohort_ms": round(cohort_ms, 1),
        "ratio": round(loop_ms / cohort_ms, 1),
        "loop_ms_per_client": round(loop_ms / clients, 2),
        "cohort_ms_per_client": round(cohort_ms / clients, 3),
        "difference": f"{difference:.1e}",
    }


def race_all(folder: Path, *, quick: bool, out: Path | None) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    results = []
    for name, network in CASES[:1] if quick else CASES:
        for clients in (4,) if quick else (10, 50, 250):
            row = measure(
                name,
                network,
                clients,
                None if quick else folder,
                turns=1 if quick else 3,
            )
            results.append(row)
            print(said(row), flush=True)
    write(out, results, FIELDS)
    return results
