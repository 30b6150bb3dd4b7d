"""The paper's way to a silo's offers: private training of one β-VAE per class, all
classes as one batch (DP-Adam).
Differs from the paper: a batch of a fixed size would be drawn at a rate B/n_c, and the
number n_c of rows of a class is private. Here the rate q is a public setting, the same
for every class: each row is in a step's batch with probability q, whatever its class.
The gradient is the noisy sum itself, divided by the clip norm: Adam's step does not
change with the scale of its gradients, so that no divisor, and with it no count, is
needed.

Guarantee: a step is, for each class, a Gaussian mechanism of noise `noise_multiplier`
on a Poisson sample of rate q. A row is of one class, so adding or removing it moves one
class's sums, and all classes together cost what one costs.
Edges: a class without rows learns noise alone, and no-one can tell by the settings; an
empty batch is noise alone.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from understudy.models.kernels.clients import Adam
from understudy.models.nets.beta_vae import BetaVae
from understudy.models.nets.tapped import Taps
from understudy.models.network import pick_device
from understudy.privacy.accounts.accounting import DpEvent, calibrate
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.gradients.dp_sgd import add_noise, clipped_sums
from understudy.privacy.noise import Rng, poisson_samples
from understudy.protocols.papers.sgde.offering import Offering, Recipe

# numbers that the networks read at once: some 700 images of 28 × 28, which take 4 GB on
# the way
_AT_ONCE = 1 << 19


class Networks(Offering):
    words = "a generator for each"

    @cached_property
    def multiplier(self) -> float:
        return (
            0.0 if self.budget is None else needed_multiplier(self.recipe, self.budget)
        )

    @property
    def spend(self) -> Counter[DpEvent]:
        return self.recipe.spend(self.multiplier)

    def describe(self) -> dict[str, Any]:
        recipe = self.recipe
        return self.pooled.decoder(
            self.schema,
            self.requirements.target,
            recipe.latent,
            channels=recipe.channels,
        )

    def make(self, rows: Any, rng: Rng) -> Sequence[nn.Module]:
        recipe = self.recipe
        target = self.requirements.target
        device = pick_device(self.recipe.device)
        first, codes = self.pooled.first_rows(rows, self.schema, target)
        vae = self.pooled.vae(
            self.schema,
            target,
            len(self.requirements.labels),
            recipe.latent,
            channels=recipe.channels,
            seed=recipe.seed,
        ).to(device)
        fit(vae, first.to(device), codes, recipe, self.multiplier, rng)
        return self.pooled.decoders(vae.to(torch.device("cpu")), self.schema, target)


@lru_cache(maxsize=64)
def needed_multiplier(recipe: Recipe, budget: Budget) -> float:
    return calibrate(recipe.spend, epsilon=budget.epsilon, delta=budget.delta)


def fit(
    vae: BetaVae,
    rows: Tensor,
    codes: Tensor,
    recipe: Recipe,
    noise_multiplier: float,
    rng: Rng,
) -> None:
    """Train the networks in place on `rows` (n, …) of the classes `codes` (n,). It has
    been paid for.
    """
    device = rows.device
    order = codes.argsort(stable=True)
    rows = rows[order.to(device)]
    codes = codes[order]
    # Memory is bounded by the piece, however many rows a silo has.
    piece = max(1, _AT_ONCE // (vae.classes * math.prod(rows.shape[1:])))
    adam = Adam(vae.parameters, lr=recipe.learning_rate)
    clip_norm = recipe.clip_norm
    for batch, mask in batches(codes, vae.classes, recipe.rate, recipe.steps, rng):
        # (classes, n)
        batch = batch.to(device)
        mask = mask.to(device)
        latents = rng.normal(*mask.shape, vae.latent, device=device)
        max_norm = clip_norm if noise_multiplier else math.inf
        sums: list[Tensor] = []
        for start in range(0, batch.shape[1], piece):
            taps = Taps()
            cut = slice(start, start + piece)
            losses = vae.losses(rows[batch[:, cut]], latents[:, cut], recipe.beta, taps)
            piece_sums = clipped_sums(
                losses, taps, clip_norm=max_norm, mask=mask[:, cut]
            )
            sums = (
                [total.add_(part) for total, part in zip(sums, piece_sums, strict=True)]
                if sums
                else piece_sums
            )
        if noise_multiplier:  # once: the pieces together are the batch
            add_noise(sums, noise_multiplier * clip_norm, rng)
        adam.step([gradient.div_(clip_norm) for gradient in sums])


def batches(
    codes: Tensor, classes: int, rate: float, steps: int, rng: Rng
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each step a Poisson sample of the rows (`codes` ascend), class by class:
    places and mask, (classes, most).
    """
    for sampled in poisson_samples(rng, len(codes), rate, steps):
        sampled_codes = codes[sampled]
        counts = torch.bincount(sampled_codes, minlength=classes)
        capacity = max(1, int(counts.max()))
        mask = torch.arange(capacity) < counts[:, None]
        indices = torch.zeros(classes, capacity, dtype=torch.int64)
        indices[mask] = sampled  # both run class by class
        yield indices, mask
