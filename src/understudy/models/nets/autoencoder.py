"""Wasserstein autoencoders over a client axis: one loss, many clients trained as one
batch, and the network of series.

Tolstikhin, Bousquet, Gelly, Schölkopf, "Wasserstein auto-encoders" (ICLR 2018); as Eq.
4.3 of Jiang, dissertation, TUM 2024: L = mean reconstruction distance + λ · MMD(latent
points, prior).
Paper → code: Q_ψ → encode, G_θ → decode, L_rec → distance, L_lat → `mmd`, λ → penalty,
p_z = N(0, I) → prior; L → length, W → channels, d → size. The updates are raw: nothing
here is private. What leaves a party passes a mechanism and a ledger first.

*RWAE*, recurrent on both sides: §5.5.1, Fig. 5.2 and §5.6.1 (FedSTDG). Encoder: an LSTM
layer of 32 units, whose outputs of all steps go into a dense layer of 16, the latent
features. Decoder: the same in reverse, with a sigmoid at the end. Mean squared error
and λ = 1 times MMD. Its text leaves the layers open; its parameter counts (Table 5.2)
settle them: LSTM(W → 32) with one bias, Dense(32·L → 16), Dense(16 → 32), repeated for
each step, LSTM(32 → 32), and Dense(32 → W) for each step have 29,269 parameters for
Sine, 26,358 for Stock and 27,485 for Air, as printed, and 29,739 for Energy, where
29,729 is printed. Differs from the paper: activations of the dense layers and initial
weights are not stated there. Here the latent layer is linear, the decoder's first one
has ReLU (else it would be one with the LSTM's own), and weights begin as Keras' do, the
recurrent ones uniform with the variance of its orthogonal ones.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from understudy.ground.check import not_negative, whole
from understudy.ground.errors import ConfigError
from understudy.models.cohort.training import Batch, Training, descend
from understudy.models.kernels.autoencoders import Mmd, SeriesByHand
from understudy.models.kernels.clients import Adam, Replayed
from understudy.models.kernels.lstm import lstm
from understudy.models.network import (
    Draws,
    Flat,
    Network,
    Shapes,
    check_weights,
    filled,
)


class Autoencoder(Flat):
    """A network from rows to latent points and back. Every tensor has a leading client
    axis.
    """

    latent: int

    @property
    @abstractmethod
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row."""

    @abstractmethod
    def encode(self, params: Tensor, x: Tensor) -> Tensor:
        """Rows (clients, rows, *row_shape) → latent points (clients, rows, latent)."""

    @abstractmethod
    def decode(self, params: Tensor, z: Tensor) -> Tensor:
        """Latent points (clients, rows, latent) → outputs (clients, rows, *row_shape),
        before the last sigmoid.
        """

    def distance(self, outputs: Tensor, x: Tensor) -> Tensor:
        """How far each row lies from what was made of it, by mean squared error if
        nothing else is said.
        """
        return (outputs.sigmoid() - x).square().mean(tuple(range(2, x.ndim)))

    @abstractmethod
    def decoder(self, params: Tensor) -> nn.Module:
        """The decoder of one model (d,), as a generator's network."""

    def loss(
        self,
        params: Tensor,
        x: Tensor,
        real: Tensor,
        prior: Tensor,
        penalty: float = 1.0,
    ) -> Tensor:
        """Eq. 4.3 for every client; `real` (clients, rows) is 1 where a row is its own,
        as wide as `prior`.
        """
        z = self.encode(params, x)
        share = real / real.sum(1, keepdim=True).clamp(min=1)
        return (self.distance(self.decode(params, z), x) * share).sum(
            1
        ) + penalty * Mmd(real, self.latent)(z, prior)

    def train(
        self,
        optimizer: str,
        start: Tensor,
        batch: Batch,
        out: Tensor,
        epochs: int,
        lr: float,
        penalty: float,
    ) -> None:
        """Every client's update from `start` into `out`; `batch`: x, real, prior
        (clients, epochs, rows, latent).
        """
        x, real, prior = batch
        epoch = count()  # `descend` asks for the loss once an epoch

        def loss(local: Tensor) -> Tensor:
            return self.loss(
                local,
                x,
                real,
                prior[:, next(epoch)],
                penalty,
            )

        descend(loss, start, out, epochs, lr, optimizer)

    def adam(
        self,
        start: Tensor,
        batch: Batch,
        out: Tensor,
        epochs: int,
        lr: float,
        penalty: float,
    ) -> None:
        self.train(
            "adam",
            start,
            batch,
            out,
            epochs,
            lr,
            penalty,
        )


class LocalTraining(Training):
    def __init__(
        self,
        network: Autoencoder,
        *,
        optimizer: str = "adam",
        penalty: float = 1.0,
        **settings: Any,
    ) -> None:
        super().__init__(optimizer=optimizer, **settings)
        not_negative(penalty=penalty)
        self.network = network
        self.penalty = penalty

    def train(
        self,
        start: Tensor,
        batch: Batch,
        out: Tensor,
    ) -> None:
        network = self.network
        arguments = (start, batch, out, self.epochs, self.lr, self.penalty)
        network.adam(*arguments) if self.optimizer == "adam" else network.train(
            self.optimizer,
            *arguments,
        )

    def __call__(
        self,
        params: Tensor,
        x: Tensor,
        mask: Tensor,
        rng: Draws,
    ) -> Tensor:
        """The update (clients, d) of every client, by rows `x` (clients, rows, …) where
        `mask` is true. Points of the prior are drawn anew for each epoch.

        Guarantee: a client's update depends on `params`, its own real rows and `rng`
        alone, and by rounding on the shape of `x` and its place there, in which no
        other client's rows may have a say (`Population.apart`).
        Edges: a client without rows → a zero update; shapes that do not fit →
        ConfigError.
        """
        network = self.network
        network.views(params)
        clients, rows = mask.shape
        if x.shape != (expected := (clients, rows, *network.row_shape)):
            raise ConfigError(
                f"x must be (clients, rows, …) = {expected}, not {tuple(x.shape)}."
            )
        real = mask.to(params.dtype)
        x = x.where(mask.view(clients, rows, *(1,) * len(network.row_shape)), 0).to(
            params.dtype
        )
        prior = rng.normal(
            clients,
            self.epochs,
            rows,
            network.latent,
        ).to(params.dtype)
        return self.updates(
            params,
            (x, real, prior),
            4 * network.size + rows * network.row_floats,
        )


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
    """One model (d,) trained by Adam on rows in one place, `batch` a step: public ones,
    or for comparison.
    """
    whole(steps=steps, batch=batch, rows=len(rows))
    local = params.detach().to(device).clone().requires_grad_()
    adam = Adam([local], lr)
    real = local.new_ones(1, batch)

    def slope(
        model: Tensor,
        x: Tensor,
        prior: Tensor,
    ) -> Tensor:
        model = model.detach().requires_grad_()
        with torch.enable_grad():
            loss = network.loss(
                model[None],
                x[None],
                real,
                prior,
                penalty,
            ).sum()
        return torch.autograd.grad(loss, model)[0]

    gradient = Replayed(slope)
    for _ in range(steps):
        x = rows[rng.integers(len(rows), batch)].to(local)
        adam.step([gradient(local, x, rng.normal(1, batch, network.latent).to(local))])
    return local.detach().to(params.device)


@dataclass(frozen=True)
class Rwae(Autoencoder):
    """Weights are (before, after), as products with rows on the left take them."""

    kind: ClassVar[str] = "rwae"
    length: int
    channels: int
    hidden: int = 32
    latent: int = 16

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.length, self.channels

    @property
    def row_floats(self) -> int:
        return self.length * (24 * self.hidden + 4 * self.channels)

    @property
    def shapes(self) -> Shapes:
        hidden = self.hidden
        gates = 4 * self.hidden
        return {
            "encoder.input": (self.channels, gates),
            "encoder.recurrent": (hidden, gates),
            "encoder.bias": (gates,),
            "latent.weight": (self.length * hidden, self.latent),
            "latent.bias": (self.latent,),
            "dense.weight": (self.latent, hidden),
            "dense.bias": (hidden,),
            "decoder.input": (hidden, gates),
            "decoder.recurrent": (hidden, gates),
            "decoder.bias": (gates,),
            "output.weight": (hidden, self.channels),
            "output.bias": (self.channels,),
        }

    def init(self, rng: Draws, *, dtype: torch.dtype = torch.float32) -> Tensor:
        """Kernels uniform in ±√(6/(before + after)); biases 0, but 1 at the forget
        gates.
        """
        parts = []
        for name, shape in self.shapes.items():
            if len(shape) == 1:
                bias = torch.zeros(shape)
                if shape[0] == 4 * self.hidden:
                    bias[2 * self.hidden : 3 * self.hidden] = 1
                parts.append(bias)
                continue
            bound = math.sqrt(3 / shape[1] if "recurrent" in name else 6 / sum(shape))
            parts.append((2 * rng.uniform(*shape).flatten() - 1) * bound)
        return torch.cat(parts).to(dtype)

    def encode(self, params: Tensor, x: Tensor) -> Tensor:
        into, recurrent, bias, weight, shift, *_ = self.views(params).values()
        steps = x.transpose(1, 2)  # (clients, L, rows, W)
        projected = torch.matmul(steps, into[:, None]) + bias[:, None, None]
        states = lstm(projected, recurrent, self.length)
        return torch.baddbmm(shift[:, None], states.transpose(1, 2).flatten(2), weight)

    def decode(self, params: Tensor, z: Tensor) -> Tensor:
        return decode(list(self.views(params).values())[5:], z, self.length)

    def adam(
        self,
        start: Tensor,
        batch: Batch,
        out: Tensor,
        epochs: int,
        lr: float,
        penalty: float,
    ) -> None:
        shapes = self.shapes.values()
        SeriesByHand(
            shapes,
            self.hidden,
            self.latent,
            start,
            batch,
            out,
            penalty,
        ).train(epochs, lr)

    def decoder(self, params: Tensor) -> "SeriesDecoder":
        module = SeriesDecoder(
            self.length,
            self.channels,
            self.hidden,
            self.latent,
        )
        return filled(module, list(self.views(params).values())[5:])


class SeriesDecoder(Network):
    """The decoder as a generator's network: a point of the prior in, a series in [0, 1]
    out.
    """

    kind = "decoder-series"
    keys = ("length", "channels", "hidden", "latent")

    def __init__(
        self,
        length: int,
        channels: int,
        hidden: int,
        latent: int,
    ) -> None:
        super().__init__()
        shapes = list(Rwae(length, channels, hidden, latent).shapes.items())[5:]
        widest = max(length * channels, hidden * max(latent, channels, 4 * hidden))
        check_weights("a decoder of series with a layer", widest)
        self.length = length
        self.channels = channels
        self.hidden = hidden
        self.latent = latent
        # as modules may
        named = [(name.replace(".", "_"), torch.zeros(shape)) for name, shape in shapes]
        self.layers = nn.ParameterDict(named)

    def rows(self, z: Tensor) -> Tensor:
        return decode(
            [value[None] for value in self.layers.values()],
            z[None],
            self.length,
        )[0].sigmoid()


def decode(
    weights: Sequence[Tensor],
    z: Tensor,
    length: int,
) -> Tensor:
    """Outputs (clients, rows, L, W), before the sigmoid, from latent points (clients,
    rows, latent).
    """
    dense, shift, into, recurrent, bias, weight, out = weights
    first = torch.baddbmm(shift[:, None], z, dense).relu()
    projected = torch.baddbmm(bias[:, None], first, into)
    states = lstm(projected[:, None], recurrent, length)
    return (torch.matmul(states, weight[:, None]) + out[:, None, None]).transpose(1, 2)
