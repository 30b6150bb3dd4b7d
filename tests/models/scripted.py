"""A generator whose draws are known."""

from typing import Any

from torch import Tensor

from understudy.models.kernels.autoencoders import Mmd
from understudy.models.nets.autoencoder import Autoencoder, LocalTraining


class Scripted:
    """The same points of the prior for both sides."""

    def __init__(self, prior: Tensor) -> None:
        self.prior = prior

    def normal(self, *shape: int) -> Tensor:
        assert shape == self.prior.shape
        return self.prior

    def integers(self, high: int, *shape: int) -> Tensor:
        raise AssertionError


def autoencoder_updates(
    network: Autoencoder,
    params: Tensor,
    x: Tensor,
    mask: Tensor,
    rng: Scripted,
    **settings: Any,
) -> Tensor:
    """One round of local training."""
    return LocalTraining(network, **settings)(params, x, mask, rng)


def mmd(latent: Tensor, prior: Tensor, mask: Tensor | None = None) -> Tensor:
    """The distance of every client's latent points from the prior's, where rows are
    real.
    """
    real = latent.new_ones(latent.shape[:2]) if mask is None else mask.to(latent.dtype)
    return Mmd(real, latent.shape[2])(latent, prior)
