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

from understudy.check import positive
from understudy.errors import ConfigError
from understudy.models.client_axis import times_transposed


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
    scale = 2 * latent.shape[2] * sigma**2
    pairs, across = _weights(latent, mask)
    own = _kernel(latent, latent, scale) + _kernel(prior, prior, scale)  # (clients, rows, rows)
    return (own * pairs - _kernel(latent, prior, scale) * across).sum((1, 2))


def _kernel(x: Tensor, y: Tensor, scale: float) -> Tensor:
    """K between all rows of each client: (clients, rows, rows)."""
    norms = x.square().sum(2)[:, :, None] + y.square().sum(2)[:, None, :]
    return scale / (scale + (norms - 2 * times_transposed(x, y)).clamp(min=0))


def _weights(latent: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """1/(N(N−1)) for each pair of different real rows, and 2/N² for each pair across the samples."""
    clients, rows, _ = latent.shape
    real = latent.new_ones(clients, rows) if mask is None else mask.to(latent.dtype)
    count = real.sum(1)[:, None, None]
    both = real[:, :, None] * real[:, None, :]
    different = both * (1 - torch.eye(rows, dtype=latent.dtype, device=latent.device))
    return different / (count * (count - 1)).clamp(min=1), 2 * both / count.square().clamp(min=1)
