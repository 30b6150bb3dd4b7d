"""What a DP-GenFL client computes for itself, for many clients at once: synthetic rows,
and a local model.

Li, Wei, Ma, Shu, "DP-GenFL" (supplementary file), Algorithm B1 (`fit_gan`, `draw`) and
Algorithm B2, lines 5–12 (`local_models`). Paper → code: γ → share, D̃_i → synthetic
rows, C → clip_norm, q_m → `ratio`.
Differs from the paper: real rows are clipped and noised one by one, in secret Poisson
batches (its Algorithm A1 clips one gradient a round); the two kinds of rows are two
sums, weighted 1 − γ and γ, so that noise stands on the real one alone; the critic of
the GAN can be trained the same way.

Guarantee: rows enter through `private_sums` alone (and `ratio`'s counts), each with a
chance of `rate` to be in a batch. The divisor is the expected batch, a public number:
how many rows a client has changes neither.
Edges: a client without rows gets noise alone; with `noise_multiplier` 0 nothing is
private. A cohort's batches are padded to its largest, so that a sum's rounding, far
below the noise on it, can tell the size of another's batch.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor
from torch.nn import functional

from understudy.models.cohort.classifier import Cnn, Dense
from understudy.models.kernels.clients import Adam
from understudy.models.nets.tapped import ConditionalGan, Taps
from understudy.models.network import on_device
from understudy.privacy.gradients.dp_sgd import clipped_sums, private_sums
from understudy.privacy.noise import DiscreteGaussianNoise, Rng

BETAS = (0.5, 0.999)  # Radford, Metz, Chintala (2016), §4


def poisson_batches(mask: Tensor, rate: float, rng: Rng) -> tuple[Tensor, Tensor]:
    """Sample each real row with probability `rate`: indices and mask, (clients,
    capacity), from `mask` (clients, rows).
    """
    included = mask & (rng.uniform(*mask.shape) < rate)
    capacity = max(1, int(included.sum(1).max())) if included.numel() else 1
    indices = included.to(torch.int8).argsort(dim=1, descending=True, stable=True)[
        :, :capacity
    ]
    return indices, included.gather(1, indices)


def ratio(y: Tensor, mask: Tensor, classes: int, noise: float, rng: Rng) -> Tensor:
    """The share of each class among a client's rows, from noisy counts (Algorithm B1,
    line 2): (clients, classes).
    Guarantee: a row moves one whole number by 1; each gets discrete Gaussian noise of
    parameter `noise`. Edges: counts below 0 become 0; where none is left, all classes
    are as likely.
    """
    counts = (functional.one_hot(y, classes) * mask[..., None]).sum(1)
    if noise:
        noise_draws = DiscreteGaussianNoise(Fraction(noise)).draw(counts.numel(), rng)
        counts = counts + noise_draws.view_as(counts)
    weights = counts.clamp(min=0).double()
    weights[weights.sum(1) == 0] = 1
    return weights / weights.sum(1, keepdim=True)


def labels(shares: Tensor, rows: int, rng: Rng) -> Tensor:
    """Classes drawn by their shares (clients, classes): (clients, rows)."""
    draws = rng.uniform(len(shares), rows).to(shares.device)
    return torch.searchsorted(shares.cumsum(1), draws).clamp_(max=shares.shape[1] - 1)


@dataclass(frozen=True, kw_only=True)
class Descent:
    """So many steps, each over a batch that has each real row with chance `rate`, by a
    gradient over `batch` rows.
    """

    steps: int
    batch: int
    rate: float
    clip_norm: float
    noise_multiplier: float
    learning_rate: float

    def real_sums(
        self, losses: Tensor, taps: Taps, mask: Tensor, rng: Rng
    ) -> list[Tensor]:
        """The sums of the gradients over real rows: clipped and noised, where there is
        noise.
        """
        clip = self.clip_norm if self.noise_multiplier else math.inf
        return private_sums(
            losses,
            taps,
            mask=mask,
            rng=rng,
            clip_norm=clip,
            noise_multiplier=self.noise_multiplier,
        )


def fit_gan(
    gan: ConditionalGan,
    x: Tensor,
    y: Tensor,
    mask: Tensor,
    shares: Tensor,
    descent: Descent,
    rng: Rng,
) -> None:
    """Train in place on the host's rows x (clients, rows, features). Noise is for the
    critic's real part alone.
    """
    device = gan.generator[0].device
    x = on_device(x, device)
    y = on_device(y, device)
    batch = descent.batch
    rate = descent.learning_rate
    critic, generator = (
        Adam(part, lr=rate, betas=BETAS) for part in (gan.critic, gan.generator)
    )
    real = functional.one_hot(y, gan.classes).float()
    for _ in range(descent.steps):
        indices, included = (
            on_device(part, device) for part in poisson_batches(mask, descent.rate, rng)
        )
        z, fake_y = _latent(gan, shares, batch, rng, device)
        taps = Taps()
        losses = gan.real_losses(
            _gather_rows(x, indices), _gather_rows(real, indices), taps
        )
        sums = descent.real_sums(losses, taps, included, rng)
        with torch.no_grad():
            fake = gan.generate(z, fake_y, Taps())
        taps = Taps()
        fake_sums = clipped_sums(
            gan.fake_losses(fake, fake_y, taps), taps, clip_norm=math.inf
        )
        critic.step(
            [
                (part + fake_part) / batch
                for part, fake_part in zip(sums, fake_sums, strict=True)
            ]
        )
        z, fake_y = _latent(gan, shares, batch, rng, device)
        taps = Taps()
        sums = clipped_sums(
            gan.generator_losses(z, fake_y, taps), taps, clip_norm=math.inf
        )
        generator.step([part / batch for part in sums])


def draw(
    gan: ConditionalGan, shares: Tensor, rows: int, rng: Rng
) -> tuple[Tensor, Tensor]:
    """Algorithm B1, lines 3–6: rows (clients, rows, features) in the clients' class
    ratios, and their classes.
    """
    device = gan.generator[0].device
    y = labels(shares, rows, rng)
    z = rng.normal(gan.clients, rows, gan.latent, device=device)
    with torch.no_grad():
        x = gan.generate(
            z, functional.one_hot(y, gan.classes).float().to(device), Taps()
        )
    return x.cpu(), y


def local_models(
    network: Dense | Cnn,
    weights: Tensor,
    real: tuple[Tensor, Tensor, Tensor] | None,
    synthetic: tuple[Tensor, Tensor] | None,
    share: float,
    descent: Descent,
    rng: Rng,
) -> Tensor:
    """What local steps change for each client: (clients, d); `real` or `synthetic` None
    where `share` leaves it out.
    """
    device = weights.device
    rows = (
        None
        if real is None
        else (on_device(real[0], device), on_device(real[1], device), real[2])
    )
    clients = 0
    if real is not None:
        clients = len(real[0])
    elif synthetic is not None:
        clients = len(synthetic[0])
    local = weights.expand(clients, -1).clone()
    for _ in range(descent.steps):
        changes: list[Tensor] = []
        if rows is not None:
            x, y, mask = rows
            indices, included = (
                on_device(part, device)
                for part in poisson_batches(mask, descent.rate, rng)
            )
            taps = Taps()
            losses = _losses(
                network, local, _gather_rows(x, indices), y.gather(1, indices), taps
            )
            sums = _flat(descent.real_sums(losses, taps, included, rng))
            changes.append(sums.mul_(1 - share))
        if synthetic is not None:
            x, y = synthetic
            indices = on_device(
                rng.integers(x.shape[1], clients, descent.batch), device
            )
            taps = Taps()
            losses = _losses(
                network, local, _gather_rows(x, indices), y.gather(1, indices), taps
            )
            sums = _flat(clipped_sums(losses, taps, clip_norm=math.inf))
            changes.append(sums.mul_(share))
        # in place: a change is as long as all clients' models
        change = changes[0] if len(changes) == 1 else changes[0].add_(changes[1])
        local -= change.mul_(descent.learning_rate).div_(descent.batch)
    return local - weights


def _losses(
    network: Dense | Cnn, local: Tensor, x: Tensor, y: Tensor, taps: Taps
) -> Tensor:
    """The cross-entropy of each row under its client's own model: (clients, n)."""
    if isinstance(network, Cnn):
        convolutions, parameters = network.layers(local)
        x = _convolved(network.images(x), convolutions, taps)
    else:
        parameters = list(network.views(local).values())
    *hidden, last = zip(parameters[::2], parameters[1::2], strict=True)
    for weight, bias in hidden:
        x = taps.dense(x, weight, bias).relu()
    scores = taps.dense(x, *last)
    return functional.cross_entropy(
        scores.flatten(0, 1), y.flatten(), reduction="none"
    ).view(y.shape)


def _convolved(
    images: Tensor, convolutions: list[tuple[Tensor, Tensor]], taps: Taps
) -> Tensor:
    """Images (clients, n, channels, height, width) behind all convolutions: (clients,
    n, values).
    """
    clients, n = images.shape[:2]
    for weight, bias in convolutions:
        filtered = taps.conv(images, weight.flatten(2), bias, stride=1)
        pooled = functional.max_pool2d(filtered.flatten(0, 1), 2).relu()
        images = pooled.view(clients, n, *pooled.shape[1:])
    return images.flatten(2)


def _flat(sums: list[Tensor]) -> Tensor:
    return torch.cat([part.flatten(1) for part in sums], 1)


def _gather_rows(x: Tensor, indices: Tensor) -> Tensor:
    """Each client's rows at its own places: (clients, rows, width), (clients, n) →
    (clients, n, width).
    """
    return x.gather(1, indices[..., None].expand(-1, -1, x.shape[2]))


def _latent(
    gan: ConditionalGan, shares: Tensor, rows: int, rng: Rng, device: torch.device
) -> tuple[Tensor, Tensor]:
    y = on_device(
        functional.one_hot(labels(shares, rows, rng), gan.classes).float(), device
    )
    return rng.normal(gan.clients, rows, gan.latent, device=device), y
