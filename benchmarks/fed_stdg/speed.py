"""Local training of RWAE for a cohort as one batch, beside `torch.nn` for one client
after another.
"""

import math
import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from understudy.models.kernels.autoencoders import Mmd
from understudy.models.nets.autoencoder import LocalTraining, Rwae
from understudy.models.network import pick_device
from understudy.privacy.noise.rng import FastRng


class One(nn.Module):
    """The same network by `torch.nn`, for one client at a time."""

    def __init__(
        self, length: int, channels: int, hidden: int = 32, latent: int = 16
    ) -> None:
        super().__init__()
        self.length = length
        self.encoder, self.decoder = (
            nn.LSTM(size, hidden, batch_first=True) for size in (channels, hidden)
        )
        self.latent = nn.Linear(length * hidden, latent)
        self.dense = nn.Linear(latent, hidden)
        self.output = nn.Linear(hidden, channels)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.latent(self.encoder(x)[0].flatten(1))
        first = self.dense(z).relu()[:, None].expand(-1, self.length, -1)
        return z, self.output(self.decoder(first)[0]).sigmoid()


def alone(network: One, x: Tensor, epochs: int) -> None:
    """Local training of one client."""
    adam = torch.optim.Adam(network.parameters(), lr=0.001)
    for _ in range(epochs):
        z, made = network(x)
        loss = (
            functional.mse_loss(made, x)
            + Mmd(z.new_ones(1, len(z)), z.shape[1])(
                z[None], torch.randn_like(z)[None]
            ).sum()
        )
        adam.zero_grad()
        torch.autograd.backward(loss)
        adam.step()


def race(
    device: str, *, clients: int = 50, epochs: int = 10, repeats: int = 5
) -> dict[str, Any]:
    """Milliseconds a client: one after another, and as one cohort; the best of some
    turns, taken in turn.
    """
    torch.set_num_threads(1)
    where, (length, channels) = pick_device(device), (24, 6)  # Stock
    x = torch.rand(clients, 10, length, channels, device=where)
    network = Rwae(length, channels)
    first = One(length, channels).to(where)
    params = network.init(FastRng(0))
    mask = torch.ones(clients, 10, dtype=torch.bool, device=where)

    def loop() -> None:
        alone(deepcopy(first), x[0], epochs)

    # kept, as a party keeps it
    training = LocalTraining(network, epochs=epochs, lr=0.001, device=where)

    def cohort() -> None:
        training(params, x, mask, FastRng(1))

    best = {"loop_ms": math.inf, "cohort_ms": math.inf}
    for _ in range(repeats + 1):  # the first warms up
        best = {
            "loop_ms": min(best["loop_ms"], _clock(loop, where)),
            "cohort_ms": min(best["cohort_ms"], _clock(cohort, where) / clients),
        }
    return {
        "model": "rwae",
        "clients": clients,
        "device": str(where),
        **{k: round(v, 3) for k, v in best.items()},
        "ratio": round(best["loop_ms"] / best["cohort_ms"], 1),
    }


def _clock(work: Callable[[], None], device: torch.device) -> float:
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1000
