"""How a silo of SGDE makes its offers, within what a pool requires: its own choice; and the paper's way, private
training of one β-VAE per class, all classes as one batch (DP-Adam).

Lomurno et al., "SGDE" (AIPR 2022), §IV-E: Adam on clipped and noised gradients.
Differs from the paper: a batch of a fixed size would be drawn at a rate B/n_c, and the number n_c of rows of a class
is private. Here the rate q is a public setting, the same for every class: each row is in a step's batch with
probability q, whatever its class. The gradient is the noisy sum itself, divided by the clip norm: Adam's step does
not change with the scale of its gradients, so that no divisor, and with it no count, is needed.

Guarantee: a step is, for each class, a Gaussian mechanism of noise `noise_multiplier` on a Poisson sample of rate q.
A row is of one class, so adding or removing it moves one class's sums, and all classes together cost what one costs.
Edges: a class without rows learns noise alone, and no-one can tell by the settings; an empty batch is noise alone.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent
from torch import Tensor

from understudy.data.kinds import IMAGES, SERIES, TABLE
from understudy.ground.errors import ConfigError
from understudy.ground.settings import TRUTH, Declared, between, choice, setting, whole_to
from understudy.models.kernels.optimisers import Adam
from understudy.models.kernels.taps import Taps
from understudy.models.moments.offered import MOST_FEATURES
from understudy.models.nets.beta_vae import CHANNELS, BetaVae
from understudy.privacy.accounts.accounting import DpEvent, calibrate
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.gradients.dp_sgd import add_noise, clipped_sums
from understudy.privacy.gradients.limits import LAYERS, within_limits
from understudy.privacy.noise import Rng, poisson_samples
from understudy.protocols.core import settings as usual
from understudy.protocols.sgde.sums import ADDED, LEAST, MOST

KINDS = ("beta-vae", "marginals", *ADDED)  # `offering` has them all
# numbers that the networks read at once: some 700 images of 28 × 28, which take 4 GB on the way
_AT_ONCE = 1 << 19


@dataclass(frozen=True, kw_only=True)
class Recipe(Declared):
    """How a silo trains. `rate` is a row's chance to be in a step's batch; it and `steps` are public.

    The paper tunes `latent` and `beta` for each data set; one setting serves all here. `channels` are for images.
    The other kinds (`offering`) need none of these.
    """

    kind: str = setting(
        "beta-vae",
        choice(*KINDS),
        "a network for each class, one-way tables of each, or sums of all, which a pool adds",
    )
    latent: int = setting(4, within_limits("latent"), "size of the latent space; without it as in the paper")
    channels: tuple[int, ...] = setting(CHANNELS, LAYERS, "channels of the layers for images")
    beta: float = setting(1.0, within_limits("beta"), "weight of the latent term of the loss")
    steps: int = setting(100, within_limits("steps"), "training steps of a generator")
    rate: float = setting(0.25, within_limits("rate"), "probability that a row is used in a step")
    clip_norm: float = setting(1.0, within_limits("clip_norm"), "the longest gradient of one person")
    learning_rate: float = setting(0.01, within_limits("learning_rate"), "learning rate of a generator")
    features: int = setting(
        128,
        whole_to(MOST_FEATURES),
        "kind moments: the most coefficients of the frame to measure, from the lowest frequency on",
    )
    upright: bool = setting(
        False, TRUTH, "of kind moments, images are first turned upright (`data/encoding/upright.py`)"
    )
    quality_epsilon: float | None = setting(
        None,
        between(LEAST, MOST),
        "kinds gram, moments: the part of the offer's ε for a figure of quality; without it, no figure",
    )
    private: bool = usual.private()
    device: str = usual.device()
    seed: int = usual.seed()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.upright and self.kind != "moments":
            raise ConfigError(
                f'upright is for kind="moments" alone, not for kind="{self.kind}". Nothing was charged.'
            )
        if self.quality_epsilon is not None and (self.kind not in ADDED or not self.private):
            raise ConfigError(
                'a figure of quality is paid for under noise, and is for kind="gram" or kind="moments" alone: '
                "without quality_epsilon there is none. Nothing was charged."
            )

    def spend(self, noise_multiplier: float) -> Counter[DpEvent]:
        """What a silo's networks cost together: every step, the person of a row."""
        if not noise_multiplier:
            return Counter({NonPrivateDpEvent(): self.steps})
        return Counter({PoissonSampledDpEvent(self.rate, GaussianDpEvent(noise_multiplier)): self.steps})


RECIPES = {  # where a silo says nothing, by the kind of its rows
    TABLE.name: Recipe(),
    IMAGES.name: Recipe(latent=8, steps=200, learning_rate=0.002),
    SERIES.name: Recipe(kind="moments"),
}


@lru_cache(maxsize=64)
def needed_multiplier(recipe: Recipe, budget: Budget) -> float:
    """The least noise multiplier that keeps the networks within the budget."""
    return calibrate(recipe.spend, epsilon=budget.epsilon, delta=budget.delta)


def fit(vae: BetaVae, rows: Tensor, codes: Tensor, recipe: Recipe, noise_multiplier: float, rng: Rng) -> None:
    """Train the networks in place on `rows` (n, …) of the classes `codes` (n,). It has been paid for."""
    device = rows.device
    order = codes.argsort(stable=True)
    rows, codes = rows[order.to(device)], codes[order]
    # Memory is bounded by the piece, however many rows a silo has.
    piece = max(1, _AT_ONCE // (vae.classes * math.prod(rows.shape[1:])))
    adam, clip_norm = Adam(vae.parameters, lr=recipe.learning_rate), recipe.clip_norm
    for batch, mask in batches(codes, vae.classes, recipe.rate, recipe.steps, rng):
        batch, mask = batch.to(device), mask.to(device)  # (classes, n)
        drawn = rng.normal(*mask.shape, vae.latent, device=device)
        most = clip_norm if noise_multiplier else math.inf
        sums: list[Tensor] = []
        for start in range(0, batch.shape[1], piece):
            taps, cut = Taps(), slice(start, start + piece)
            losses = vae.losses(rows[batch[:, cut]], drawn[:, cut], recipe.beta, taps)
            found = clipped_sums(losses, taps, clip_norm=most, mask=mask[:, cut])
            sums = [one.add_(other) for one, other in zip(sums, found, strict=True)] if sums else found
        if noise_multiplier:  # once: the pieces together are the batch
            add_noise(sums, noise_multiplier * clip_norm, rng)
        adam.step([gradient.div_(clip_norm) for gradient in sums])


def batches(
    codes: Tensor, classes: int, rate: float, steps: int, rng: Rng
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each step a Poisson sample of the rows, class by class: places and mask, (classes, most), padded.

    `codes` ascend. A batch has room for one row at least, so that every shape is one that a product takes.
    """
    for drawn in poisson_samples(rng, len(codes), rate, steps):
        own = codes[drawn]
        counts = torch.bincount(own, minlength=classes)
        room = max(1, int(counts.max()))
        mask = torch.arange(room) < counts[:, None]
        places = torch.zeros(classes, room, dtype=torch.int64)
        places[mask] = drawn  # both run class by class
        yield places, mask
