"""Layers that remember what they read and gave, so that each sample's gradient can be
had in factors; conditional GANs.

Goodfellow, "Efficient per-example gradient computations" (2015): a linear layer's
gradient for one sample is the outer product of what it read and of the loss's gradient
at what it gave. Convolutions are the same product at every position of the image
(Rochette, Manoel, Tramel 2019), and so are transposed ones, before their patches are
folded together. Everything has a leading axis of groups (classes of a silo, clients of
a cohort): group g's samples meet group g's weights and no others. Weights need no
gradient of their own here, so that a backward pass computes none.

*Conditional GANs* of many clients: Li, Wei, Ma, Shu, "DP-GenFL" (supplementary file),
Appendix B.1, Eq. B1 and B2: V = E log D(x, y) + E log(1 − D(G(z, y), y)). Paper → code:
𝔾 → `generate`, 𝔻 → `judge` (its logit), z → z, y → labels, one-hot. Differs from the
paper: it does not state the networks; both have one hidden layer. The generator's loss
is −log D(G(z, y), y), the non-saturating form of Goodfellow et al. (2014), §3.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from understudy.ground.check import whole
from understudy.models.kernels.clients import times_transposed

KERNEL = 3
SLOPE = 0.2  # of leaky ReLUs


class Tap(NamedTuple):
    """What a parameter met: `inputs` (groups, n, positions, in), or None for a bias,
    and what came out of it.
    """

    inputs: Tensor | None
    outputs: Tensor  # (groups, n, positions, out)


class Taps(list[Tap]):
    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        """x·Wᵀ at every position: (groups, n, positions, in), (groups, out, in) →
        (groups, n, positions, out).
        """
        groups, n, positions, _ = x.shape
        flat = times_transposed(x.flatten(1, 2), weight)
        outputs = flat.view(groups, n, positions, weight.shape[1])
        return self._tap(x.detach(), outputs)

    def shift(self, x: Tensor, bias: Tensor) -> Tensor:
        """x + b: (groups, n, positions, out), (groups, out)."""
        return self._tap(None, x + bias[:, None, None])

    def dense(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
    ) -> Tensor:
        """A linear layer: (groups, n, in) → (groups, n, out)."""
        products = self.product(x.unsqueeze(2), weight)
        return self.shift(products, bias).squeeze(2)

    def conv(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        stride: int = 2,
    ) -> Tensor:
        """A convolution, 3 × 3: (groups, n, in, h, w), weights (groups, out, in·9) →
        (groups, n, out, ⌈h/stride⌉, ⌈w/stride⌉).
        """
        groups, n, _, *sides = x.shape
        height, width = (-(-side // stride) for side in sides)
        images = x.flatten(0, 1)
        # (groups·n, positions, in·9)
        patches = functional.unfold(
            images,
            KERNEL,
            padding=1,
            stride=stride,
        ).mT
        grouped = patches.view(groups, n, *patches.shape[1:])
        outputs = self.shift(self.product(grouped, weight), bias)
        return outputs.mT.reshape(
            groups,
            n,
            weight.shape[1],
            height,
            width,
        )

    def conv_transposed(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        side: tuple[int, int],
    ) -> Tensor:
        """Its transpose, up to the size `side`: (groups, n, in, h, w) → (groups, n,
        out, *side).
        """
        groups, n = x.shape[:2]
        channels = bias.shape[1]
        patches = self.product(x.flatten(3).mT, weight)  # (groups, n, positions, out·9)
        columns = patches.flatten(0, 1).mT
        images = functional.fold(
            columns,
            side,
            KERNEL,
            padding=1,
            stride=2,
        )
        flat = images.view(groups, n, channels, math.prod(side))
        outputs = self.shift(flat.mT, bias)
        return outputs.mT.reshape(groups, n, channels, *side)

    def _tap(self, inputs: Tensor | None, outputs: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            # the first layer: nothing before it asks for a gradient
            if not outputs.requires_grad:
                outputs.requires_grad_()
            self.append(Tap(inputs, outputs))
        return outputs


def perceptron(
    x: Tensor,
    parameters: Sequence[Tensor],
    taps: Taps,
) -> Tensor:
    """Linear layers with leaky ReLUs between them; weights and biases in turn."""
    *hidden, last = zip(parameters[::2], parameters[1::2], strict=True)
    for weight, bias in hidden:
        outputs = taps.dense(x, weight, bias)
        x = functional.leaky_relu(outputs, SLOPE)
    last_weight, last_bias = last
    return taps.dense(x, last_weight, last_bias)


def dense_parameters(
    groups: int,
    sizes: Sequence[int],
    generator: torch.Generator,
) -> list[Tensor]:
    """Weights and biases of linear layers, drawn as `torch.nn.Linear` draws them."""
    parameters = []
    for before, after in pairwise(sizes):
        weight = drawn_uniform(
            generator,
            before,
            groups,
            after,
            before,
        )
        bias = drawn_uniform(generator, before, groups, after)
        parameters += [weight, bias]
    return parameters


def drawn_uniform(
    generator: torch.Generator,
    fan_in: int,
    *shape: int,
) -> Tensor:
    """Uniform between ±1/√(fan-in)."""
    uniforms = torch.rand(shape, generator=generator)
    return (uniforms * 2 - 1) / math.sqrt(fan_in)


class ConditionalGan:
    def __init__(
        self,
        clients: int,
        features: int,
        classes: int,
        *,
        latent: int = 16,
        hidden: int = 128,
        seed: int = 0,
    ) -> None:
        whole(
            clients=clients,
            features=features,
            classes=classes,
            latent=latent,
            hidden=hidden,
        )
        self.clients = clients
        self.features = features
        self.classes = classes
        self.latent = latent
        rng = torch.Generator().manual_seed(seed)  # of no row, and public
        self.generator = _layers(rng, clients, (latent + classes, hidden, features))
        self.critic = _layers(rng, clients, (features + classes, hidden, 1))

    def to(self, device: torch.device) -> "ConditionalGan":
        self.generator = [part.to(device) for part in self.generator]
        self.critic = [part.to(device) for part in self.critic]
        return self

    def generate(
        self,
        z: Tensor,
        labels: Tensor,
        taps: Taps,
    ) -> Tensor:
        """Latent points (clients, n, latent) of classes (clients, n, classes) → rows
        (clients, n, features).
        """
        inputs = torch.cat([z, labels], 2)
        return perceptron(inputs, self.generator, taps).sigmoid()

    def judge(
        self,
        x: Tensor,
        labels: Tensor,
        taps: Taps,
    ) -> Tensor:
        """How real rows of these classes look, as logits: (clients, n)."""
        inputs = torch.cat([x, labels], 2)
        return perceptron(inputs, self.critic, taps).squeeze(2)

    def real_losses(
        self,
        x: Tensor,
        labels: Tensor,
        taps: Taps,
    ) -> Tensor:
        """−log D(x, y) of each row: all that the critic learns from real rows,
        (clients, n).
        """
        logits = self.judge(x, labels, taps)
        return functional.softplus(-logits)

    def fake_losses(
        self,
        x: Tensor,
        labels: Tensor,
        taps: Taps,
    ) -> Tensor:
        """−log(1 − D(x, y)) of each generated row: (clients, n)."""
        logits = self.judge(x, labels, taps)
        return functional.softplus(logits)

    def generator_losses(
        self,
        z: Tensor,
        labels: Tensor,
        taps: Taps,
    ) -> Tensor:
        """−log D(G(z, y), y): (clients, n). The critic stands still: `taps` are the
        generator's.
        """
        rows = self.generate(z, labels, taps)
        logits = self.judge(rows, labels, Untapped())
        return functional.softplus(-logits)


class Untapped(Taps):
    """Layers that let gradients through and record nothing."""

    def _tap(self, inputs: Tensor | None, outputs: Tensor) -> Tensor:
        return outputs


def _layers(
    rng: torch.Generator,
    clients: int,
    sizes: tuple[int, ...],
) -> list[Tensor]:
    """One network's weights and biases, the same for every client."""
    shared = dense_parameters(1, sizes, rng)
    return [part.expand(clients, *part.shape[1:]).clone() for part in shared]
