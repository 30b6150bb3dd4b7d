"""Wasserstein autoencoders over a client axis: one loss, and the local training of many clients as one batch.

Tolstikhin, Bousquet, Gelly, Schölkopf, "Wasserstein auto-encoders" (ICLR 2018); as Eq. 4.3 of Jiang, dissertation, TUM
2024: L = mean reconstruction distance + λ · MMD(latent points, prior).
Paper → code: Q_ψ → encode, G_θ → decode, L_rec → distance, L_lat → `mmd`, λ → penalty, p_z = N(0, I) → prior.

The updates are raw: nothing here is private. What leaves a party passes a mechanism and a ledger first.
"""

from abc import abstractmethod
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from understudy.ground.check import not_negative, whole
from understudy.ground.errors import ConfigError
from understudy.models.cohort.training import Batch, Training, descend
from understudy.models.kernels.autoencoders import Mmd
from understudy.models.kernels.clients import Replayed
from understudy.models.kernels.optimisers import Adam
from understudy.models.network import Draws, Flat


class Autoencoder(Flat):
    """A network from rows to latent points and back. Every tensor has a leading client axis."""

    latent: int

    @property
    @abstractmethod
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""

    @property
    @abstractmethod
    def row_floats(self) -> int:
        """About how many numbers one pass over one row keeps; sizes the chunks of a cohort."""

    @abstractmethod
    def encode(self, params: Tensor, x: Tensor) -> Tensor:
        """Rows (clients, rows, *row_shape) → latent points (clients, rows, latent)."""

    @abstractmethod
    def decode(self, params: Tensor, z: Tensor) -> Tensor:
        """Latent points (clients, rows, latent) → outputs (clients, rows, *row_shape), before the last sigmoid."""

    @abstractmethod
    def distance(self, outputs: Tensor, x: Tensor) -> Tensor:
        """How far each row lies from what was made of it: (clients, rows)."""

    @abstractmethod
    def decoder(self, params: Tensor) -> nn.Module:
        """The decoder of one model (d,), as a generator's network."""

    def loss(self, params: Tensor, x: Tensor, real: Tensor, prior: Tensor, penalty: float = 1.0) -> Tensor:
        """Eq. 4.3 for every client; `real` (clients, rows) is 1 where a row is its own, as wide as `prior`."""
        z = self.encode(params, x)
        share = real / real.sum(1, keepdim=True).clamp(min=1)
        return (self.distance(self.decode(params, z), x) * share).sum(1) + penalty * Mmd(real, self.latent)(z, prior)

    def train(
        self, optimizer: str, start: Tensor, batch: Batch, out: Tensor, epochs: int, lr: float, penalty: float
    ) -> None:
        """Every client's update from `start` into `out`; `batch`: x, real, prior (clients, epochs, rows, latent)."""
        x, real, prior = batch
        epoch = count()  # `descend` asks for the loss once an epoch

        def loss(local: Tensor) -> Tensor:
            return self.loss(local, x, real, prior[:, next(epoch)], penalty)

        descend(loss, start, out, epochs, lr, optimizer)

    def adam(self, start: Tensor, batch: Batch, out: Tensor, epochs: int, lr: float, penalty: float) -> None:
        self.train("adam", start, batch, out, epochs, lr, penalty)


class LocalTraining(Training):
    def __init__(self, network: Autoencoder, *, optimizer: str = "adam", penalty: float = 1.0, **settings: Any) -> None:
        super().__init__(optimizer=optimizer, **settings)
        not_negative(penalty=penalty)
        self.network, self.penalty = network, penalty

    def train(self, start: Tensor, batch: Batch, out: Tensor) -> None:
        network, how = self.network, (start, batch, out, self.epochs, self.lr, self.penalty)
        network.adam(*how) if self.optimizer == "adam" else network.train(self.optimizer, *how)

    def __call__(self, params: Tensor, x: Tensor, mask: Tensor, rng: Draws) -> Tensor:
        """The update (clients, d) of every client.

        `x` is (clients, rows, …), `mask` (clients, rows) is true where a row is real. Points of the prior are drawn
        anew for each epoch.

        Guarantee: a client's update depends on `params`, its own real rows and `rng` alone, and by rounding on the
        shape of `x` and its place there, in which no other client's rows may have a say (`Population.apart`).
        Edges: a client without rows → a zero update; shapes that do not fit → ConfigError.
        """
        network = self.network
        network.views(params)
        clients, rows = mask.shape
        if x.shape != (clients, rows, *network.row_shape):
            raise ConfigError(
                f"x must be (clients, rows, …) = {(clients, rows, *network.row_shape)}, not {tuple(x.shape)}."
            )
        real = mask.to(params.dtype)
        x = x.where(mask.view(clients, rows, *(1,) * len(network.row_shape)), 0).to(params.dtype)
        prior = rng.normal(clients, self.epochs, rows, network.latent).to(params.dtype)
        return self.updates(params, (x, real, prior), 4 * network.size + rows * network.row_floats)


def fit(
    network: Autoencoder,
    params: Tensor,
    rows: Tensor,
    rng: Draws,
    *,
    steps: int,
    batch: int = 256,
    lr: float = 0.001,
    penalty: float = 1.0,
    device: torch.device | str | None = None,
) -> Tensor:
    """One model (d,) trained by Adam on rows in one place, `batch` a step: public ones, or for comparison."""
    whole(steps=steps, batch=batch, rows=len(rows))
    local = params.detach().to(device).clone().requires_grad_()
    adam = Adam([local], lr)
    real = local.new_ones(1, batch)

    def slope(model: Tensor, x: Tensor, prior: Tensor) -> Tensor:
        model = model.detach().requires_grad_()
        with torch.enable_grad():
            loss = network.loss(model[None], x[None], real, prior, penalty).sum()
        return torch.autograd.grad(loss, model)[0]

    gradient = Replayed(slope)
    for _ in range(steps):
        x = rows[rng.integers(len(rows), batch)].to(local)
        adam.step([gradient(local, x, rng.normal(1, batch, network.latent).to(local))])
    return local.detach().to(params.device)
