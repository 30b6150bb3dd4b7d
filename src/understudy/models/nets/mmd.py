"""MMD: how far each client's latent points lie from points of the prior.

Tolstikhin, Bousquet, Gelly, Schölkopf, "Wasserstein auto-encoders" (ICLR 2018), Algorithm 2; as Eq. 4.4 of Jiang,
dissertation, TUM 2024 (DP-Fed-WAE), with the inverse multiquadratic kernel K(x, y) = κ / (κ + ‖x − y‖²).
Paper → code: q → latent, p → prior, N → a client's real rows, κ = 2·d_z·σ_z² → scale, σ_z → sigma.
Differs from the paper: a client with one row has no pairs, so the terms over pairs are left out for it, and one
without rows has a distance of 0.

The estimate is unbiased over pairs: it can be negative, and is 0 in expectation where both laws are equal.
"""

import torch
from torch import Tensor

from understudy.ground.check import positive
from understudy.ground.errors import ConfigError
from understudy.models.cohort.client_axis import times_transposed


def mmd(latent: Tensor, prior: Tensor, mask: Tensor | None = None, *, sigma: float = 1.0) -> Tensor:
    """The squared MMD of every client: (clients, rows, d_z), twice → (clients,).

    `mask` (clients, rows) is true where a row is real, for clients of unequal size; it holds for both samples.

    Guarantee: a client's distance depends on its own real rows alone; what a masked row holds reaches neither it
    nor its gradient, unless that is not finite.
    """
    positive(sigma=sigma)
    if latent.ndim != 3 or latent.shape != prior.shape:
        raise ConfigError(
            f"samples of shape {tuple(latent.shape)} and {tuple(prior.shape)} cannot be compared."
        )
    real = latent.new_ones(latent.shape[:2]) if mask is None else mask.to(latent.dtype)
    return Mmd(real, latent.shape[2], sigma)(latent, prior)


class Mmd:
    """The distance for clients whose real rows are 1 in `real` (clients, rows), and 0 elsewhere."""

    def __init__(self, real: Tensor, latent: int, sigma: float = 1.0) -> None:
        self.scale = 2 * latent * sigma**2
        count = real.sum(1)[:, None, None]
        both = real[:, :, None] * real[:, None, :]  # (clients, rows, rows)
        different = both * (1 - torch.eye(real.shape[1], dtype=real.dtype, device=real.device))
        self.pairs = different / (count * (count - 1)).clamp(min=1)  # 1/(N(N − 1))
        self.across = 2 * both / count.square().clamp(min=1)  # 2/N²

    def __call__(self, latent: Tensor, prior: Tensor) -> Tensor:
        """Eq. 4.4: (clients,)."""
        own = self.scale / self._far(latent, latent) + self.scale / self._far(prior, prior)
        return (own * self.pairs - self.scale / self._far(latent, prior) * self.across).sum((1, 2))

    def gradient(self, latent: Tensor, prior: Tensor) -> Tensor:
        """Its gradient by the latent points, in closed form: (clients, rows, d_z).

        ∂K/∂x = −2κ (x − y) / (κ + ‖x − y‖²)², and a point of the latent sample is in each of its pairs twice.
        """
        own = self.pairs * (-4 * self.scale) / self._far(latent, latent).square()
        cross = self.across * (2 * self.scale) / self._far(latent, prior).square()
        pull = (own.sum(2) + cross.sum(2))[:, :, None]
        return pull * latent - torch.bmm(own, latent) - torch.bmm(cross, prior)

    def _far(self, x: Tensor, y: Tensor) -> Tensor:
        """κ + ‖x − y‖² between all rows of each client: (clients, rows, rows)."""
        norms = x.square().sum(2)[:, :, None] + y.square().sum(2)[:, None, :]
        return (norms - 2 * times_transposed(x, y)).clamp(min=0) + self.scale
