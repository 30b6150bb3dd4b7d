"""RWAE: a Wasserstein autoencoder of series, recurrent on both sides.

Jiang, dissertation, TUM 2024, §5.5.1, Fig. 5.2 and §5.6.1 (FedSTDG). Encoder: an LSTM layer of 32 units, whose outputs
of all steps go into a dense layer of 16, the latent features. Decoder: the same in reverse, with a sigmoid at the end.
Mean squared error and λ = 1 times MMD.
Paper → code: L → length, W → channels, d → size.

Its text leaves the layers open; its parameter counts (Table 5.2) settle them: LSTM(W → 32) with one bias, Dense(32·L →
16), Dense(16 → 32), repeated for each step, LSTM(32 → 32), and Dense(32 → W) for each step have 29,269 parameters for
Sine, 26,358 for Stock and 27,485 for Air, as printed, and 29,739 for Energy, where 29,729 is printed.
Differs from the paper: activations of the dense layers and initial weights are not stated there. Here the latent layer
is linear, the decoder's first one has ReLU (else it would be one with the LSTM's own), and weights begin as Keras' do,
the recurrent ones uniform with the variance of its orthogonal ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from understudy.ground.errors import ConfigError
from understudy.models.adam import Adam
from understudy.models.cohort.client_axis import times_transposed
from understudy.models.cohort.flat import Shapes, Uniform, read
from understudy.models.cohort.training import Batch
from understudy.models.nets.autoencoder import Autoencoder
from understudy.models.nets.decoder import Described, filled
from understudy.models.nets.lstm import Lstm, lstm
from understudy.models.nets.mmd import Mmd

_MOST_PARAMETERS = 1 << 28  # 1 GiB: a description from elsewhere cannot ask for more


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
        hidden, gates = self.hidden, 4 * self.hidden
        return {
            "encoder.input": (self.channels, gates), "encoder.recurrent": (hidden, gates), "encoder.bias": (gates,),
            "latent.weight": (self.length * hidden, self.latent), "latent.bias": (self.latent,),
            "dense.weight": (self.latent, hidden), "dense.bias": (hidden,),
            "decoder.input": (hidden, gates), "decoder.recurrent": (hidden, gates), "decoder.bias": (gates,),
            "output.weight": (hidden, self.channels), "output.bias": (self.channels,),
        }  # fmt: skip

    def init(self, rng: Uniform, *, dtype: torch.dtype = torch.float32) -> Tensor:
        """Kernels uniform in ±√(6/(before + after)); biases 0, but 1 at the forget gates."""
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

    def distance(self, outputs: Tensor, x: Tensor) -> Tensor:
        return (outputs.sigmoid() - x).square().mean((2, 3))

    def train(
        self,
        start: Tensor,
        batch: Batch,
        out: Tensor,
        *,
        epochs: int,
        lr: float,
        optimizer: str,
        penalty: float,
    ) -> None:
        if optimizer == "adam":
            _ByHand(self, start, batch, out, penalty).train(epochs, lr)
        else:
            super().train(start, batch, out, epochs=epochs, lr=lr, optimizer=optimizer, penalty=penalty)

    def decoder(self, params: Tensor) -> "SeriesDecoder":
        module = SeriesDecoder(self.length, self.channels, self.hidden, self.latent)
        return filled(module, list(self.views(params).values())[5:])


class SeriesDecoder(Described):
    """The decoder as a generator's network: a point of the prior in, a series in [0, 1] out."""

    kind = "decoder-series"

    def __init__(self, length: int, channels: int, hidden: int, latent: int) -> None:
        super().__init__(length=length, channels=channels, hidden=hidden, latent=latent)
        shapes = list(Rwae(length, channels, hidden, latent).shapes.items())[5:]
        if max(length * channels, hidden * max(latent, channels, 4 * hidden)) > _MOST_PARAMETERS:
            raise ConfigError(f"a decoder of series has at most {_MOST_PARAMETERS:,} weights in a layer.")
        self.length, self.latent = length, latent
        self.layers = nn.ParameterDict([(_plain(name), torch.zeros(shape)) for name, shape in shapes])

    def rows(self, z: Tensor) -> Tensor:
        """Latent points (n, latent) → series in [0, 1] (n, length, channels)."""
        return decode([value[None] for value in self.layers.values()], z[None], self.length)[0].sigmoid()


class _ByHand:
    """Adam for every client of a chunk, with the gradient in closed form, in `out` itself.

    No tape is kept, buffers are made once for all epochs, and each gradient is written where the optimiser reads it.
    """

    def __init__(self, network: Rwae, start: Tensor, batch: Batch, out: Tensor, penalty: float) -> None:
        x, real, self.prior = batch
        self.start, self.out, self.penalty = start, out, penalty
        clients, rows, length, channels = x.shape
        hidden, shapes = network.hidden, network.shapes.values()
        self.grad = torch.empty_like(out)
        self.weights, self.grads = read(out, shapes), read(self.grad, shapes)
        # (clients, L · rows, W): one product projects all steps
        self.x = x.transpose(1, 2).reshape(clients, length * rows, channels)
        share = real / real.sum(1, keepdim=True).clamp(min=1) * (2 / (length * channels))
        self.share = share.repeat(1, length)[:, :, None]  # (clients, L · rows, 1)
        self.far = Mmd(real, network.latent)
        self.encoder = Lstm.room(clients, length, rows, hidden, out)
        self.decoder = Lstm.room(clients, length, rows, hidden, out)

    def train(self, epochs: int, lr: float) -> None:
        self.out.copy_(self.start)
        adam = Adam([self.out], lr)
        with np.errstate(all="ignore"):  # a client whose numbers are not finite spoils its own update alone
            for epoch in range(epochs):
                self._gradient(self.prior[:, epoch])
                adam.step([self.grad])
        self.out.sub_(self.start)

    def _gradient(self, prior: Tensor) -> None:
        """Of the loss, at the weights in `out`, into `grad`."""
        w_x, w_h, b_h, w_z, b_z, w_1, b_1, w_2, w_3, b_3, w_o, b_o = self.weights
        to_x, to_h, to_bh, to_z, to_bz, to_1, to_b1, to_2, to_3, to_b3, to_o, to_bo = self.grads
        encoder, decoder = self.encoder, self.decoder
        clients, length, rows, hidden = encoder.squashed.shape

        torch.baddbmm(b_h[:, None], self.x, w_x, out=encoder.gates.flatten(1, 2))
        states = encoder.forward(w_h).transpose(1, 2).reshape(clients, rows, length * hidden)
        z = torch.baddbmm(b_z[:, None], states, w_z)
        first = torch.baddbmm(b_1[:, None], z, w_1).relu_()
        decoder.gates.copy_(torch.baddbmm(b_3[:, None], first, w_2)[:, None])
        made = decoder.forward(w_3).flatten(1, 2)
        out = torch.baddbmm(b_o[:, None], made, w_o).sigmoid_()

        wrong = (out - self.x).mul_(self.share).mul_(out).mul_(1 - out)  # at the last layer's outputs
        torch.bmm(made.mT, wrong, out=to_o)
        torch.sum(wrong, 1, out=to_bo)
        down = times_transposed(wrong, w_o).view(clients, length, rows, hidden)
        gates = decoder.backward(down, w_3)
        _recurrent(gates, decoder.states, to_3, to_b3)
        summed = gates.sum(1)  # (clients, rows, 4H): all steps have one input
        torch.bmm(first.mT, summed, out=to_2)
        to_first = times_transposed(summed, w_2).mul_(first > 0)
        torch.bmm(z.mT, to_first, out=to_1)
        torch.sum(to_first, 1, out=to_b1)
        to_latent = times_transposed(to_first, w_1).add_(self.far.gradient(z, prior), alpha=self.penalty)
        torch.bmm(states.mT, to_latent, out=to_z)
        torch.sum(to_latent, 1, out=to_bz)
        up = times_transposed(to_latent, w_z).view(clients, rows, length, hidden).transpose(1, 2)
        gates = encoder.backward(up.contiguous(), w_h)
        _recurrent(gates, encoder.states, to_h, to_bh)
        torch.bmm(self.x.mT, gates.flatten(1, 2), out=to_x)


def decode(weights: Sequence[Tensor], z: Tensor, length: int) -> Tensor:
    """Outputs (clients, rows, L, W), before the sigmoid, from latent points (clients, rows, latent)."""
    dense, shift, into, recurrent, bias, weight, out = weights
    first = torch.baddbmm(shift[:, None], z, dense).relu()
    projected = torch.baddbmm(bias[:, None], first, into)
    states = lstm(projected[:, None], recurrent, length)
    return (torch.matmul(states, weight[:, None]) + out[:, None, None]).transpose(1, 2)


def _plain(name: str) -> str:
    return name.replace(".", "_")  # what a module may call a parameter


def _recurrent(gates: Tensor, states: Tensor, to_weight: Tensor, to_bias: Tensor) -> None:
    """The gradient of the recurrent weights and the bias, from that at the gates."""
    flat = gates.flatten(1, 2)  # (clients, L · rows, 4H)
    torch.bmm(states[:, :-1].flatten(1, 2).mT, flat, out=to_weight)
    torch.sum(flat, 1, out=to_bias)
