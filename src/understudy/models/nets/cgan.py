"""Conditional GANs of many clients side by side.

Li, Wei, Ma, Shu, "DP-GenFL" (supplementary file), Appendix B.1, Eq. B1 and B2: V = E log D(x, y) + E log(1 − D(G(z, y),
y)).
Paper → code: 𝔾 → `generate`, 𝔻 → `judge` (its logit), z → z, y → labels, one-hot.
Differs from the paper: it does not state the networks; both have one hidden layer. The generator's loss is −log D(G(z,
y), y), the non-saturating form of Goodfellow et al. (2014), §3.
"""

import torch
from torch import Tensor
from torch.nn import functional

from understudy.ground.check import whole
from understudy.models.kernels.taps import Taps, dense_parameters, perceptron


class ConditionalGan:
    def __init__(
        self, clients: int, features: int, classes: int, *, latent: int = 16, hidden: int = 128, seed: int = 0
    ) -> None:
        whole(clients=clients, features=features, classes=classes, latent=latent, hidden=hidden)
        self.clients, self.features, self.classes, self.latent = clients, features, classes, latent
        rng = torch.Generator().manual_seed(seed)  # of no row, and public
        self.generator = _layers(rng, clients, (latent + classes, hidden, features))
        self.critic = _layers(rng, clients, (features + classes, hidden, 1))

    def to(self, device: torch.device) -> "ConditionalGan":
        self.generator = [part.to(device) for part in self.generator]
        self.critic = [part.to(device) for part in self.critic]
        return self

    def generate(self, z: Tensor, labels: Tensor, taps: Taps) -> Tensor:
        """Latent points (clients, n, latent) of classes (clients, n, classes) → rows (clients, n, features)."""
        return perceptron(torch.cat([z, labels], 2), self.generator, taps).sigmoid()

    def judge(self, x: Tensor, labels: Tensor, taps: Taps) -> Tensor:
        """How real rows of these classes look, as logits: (clients, n)."""
        return perceptron(torch.cat([x, labels], 2), self.critic, taps).squeeze(2)

    def real_losses(self, x: Tensor, labels: Tensor, taps: Taps) -> Tensor:
        """−log D(x, y) of each row: all that the critic learns from real rows, (clients, n)."""
        return functional.softplus(-self.judge(x, labels, taps))

    def fake_losses(self, x: Tensor, labels: Tensor, taps: Taps) -> Tensor:
        """−log(1 − D(x, y)) of each generated row: (clients, n)."""
        return functional.softplus(self.judge(x, labels, taps))

    def generator_losses(self, z: Tensor, labels: Tensor, taps: Taps) -> Tensor:
        """−log D(G(z, y), y): (clients, n). The critic stands still: `taps` are the generator's."""
        return functional.softplus(-self.judge(self.generate(z, labels, taps), labels, Untapped()))


class Untapped(Taps):
    """Layers that let gradients through and record nothing."""

    def _tap(self, inputs: Tensor | None, outputs: Tensor) -> Tensor:
        return outputs


def _layers(rng: torch.Generator, clients: int, sizes: tuple[int, ...]) -> list[Tensor]:
    return [part.expand(clients, *part.shape[1:]).clone() for part in dense_parameters(1, sizes, rng)]
