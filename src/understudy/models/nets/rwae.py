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

import torch
from torch import Tensor, nn

from understudy.models.cohort.training import Batch
from understudy.models.kernels.autoencoders import SeriesByHand
from understudy.models.kernels.lstm import lstm
from understudy.models.nets.autoencoder import Autoencoder
from understudy.models.network import Draws, Network, Shapes, check_weights, filled


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

    def init(self, rng: Draws, *, dtype: torch.dtype = torch.float32) -> Tensor:
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

    def adam(self, start: Tensor, batch: Batch, out: Tensor, epochs: int, lr: float, penalty: float) -> None:
        shapes = self.shapes.values()
        SeriesByHand(shapes, self.hidden, self.latent, start, batch, out, penalty).train(epochs, lr)

    def decoder(self, params: Tensor) -> "SeriesDecoder":
        module = SeriesDecoder(self.length, self.channels, self.hidden, self.latent)
        return filled(module, list(self.views(params).values())[5:])


class SeriesDecoder(Network):
    """The decoder as a generator's network: a point of the prior in, a series in [0, 1] out."""

    kind, keys = "decoder-series", ("length", "channels", "hidden", "latent")

    def __init__(self, length: int, channels: int, hidden: int, latent: int) -> None:
        super().__init__()
        shapes = list(Rwae(length, channels, hidden, latent).shapes.items())[5:]
        widest = max(length * channels, hidden * max(latent, channels, 4 * hidden))
        check_weights("a decoder of series with a layer", widest)
        self.length, self.channels, self.hidden, self.latent = length, channels, hidden, latent
        named = [(name.replace(".", "_"), torch.zeros(shape)) for name, shape in shapes]  # as modules may
        self.layers = nn.ParameterDict(named)

    def rows(self, z: Tensor) -> Tensor:
        return decode([value[None] for value in self.layers.values()], z[None], self.length)[0].sigmoid()


def decode(weights: Sequence[Tensor], z: Tensor, length: int) -> Tensor:
    """Outputs (clients, rows, L, W), before the sigmoid, from latent points (clients, rows, latent)."""
    dense, shift, into, recurrent, bias, weight, out = weights
    first = torch.baddbmm(shift[:, None], z, dense).relu()
    projected = torch.baddbmm(bias[:, None], first, into)
    states = lstm(projected[:, None], recurrent, length)
    return (torch.matmul(states, weight[:, None]) + out[:, None, None]).transpose(1, 2)
