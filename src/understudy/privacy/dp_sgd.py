"""The private gradient of any network made of products: clipped per sample, noised once a batch.

Abadi et al., "Deep learning with differential privacy" (2016), Algorithm 1, for many groups at once (the classes of a
silo, the clients of a cohort), each with its own parameters. Norms without gradients: Goodfellow (2015) for single
products, the choice between two ways for products at many positions is Bu, Mao, Xu, "Scalable and efficient training
of large convolutional neural networks with differential privacy" (2022), §3; that the clipped sum needs no second
backward pass is Bu et al., "Differentially private optimization on large model at small cost" (2023), §3.
Paper → code: C → clip_norm, σ → noise_multiplier, L → the expected batch, by which the caller divides if at all.

A parameter's gradient for one sample is Σ_p δ_p a_pᵀ over positions p, with a what the layer read and δ the loss's
gradient at what it gave. One backward pass gives all δ. With one position ‖G‖² = ‖δ‖²‖a‖²; with several it is
Σ_pq (a_p·a_q)(δ_p·δ_q), or G itself where that is smaller. The clipped sum is one matrix product per parameter.

Why not Opacus or `torch.func`: both form every sample's gradient, and Opacus knows no groups. One step of two classes
of 200 one-hot rows on one busy core: 25 ms here, 126 ms by Opacus 1.6.0, class after class, 326 ms by vmap(grad)
(`benchmarks/sgde/bench.py --speed`).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from understudy.check import not_negative
from understudy.errors import ConfigError
from understudy.privacy.precision import full
from understudy.privacy.rng import Normals

Tap = tuple[
    Tensor | None, Tensor
]  # what a weight read (groups, n, positions, in), None for a bias, and what it gave


def private_sums(
    losses: Tensor,
    taps: Sequence[Tap],
    *,
    clip_norm: float,
    noise_multiplier: float,
    rng: Normals,
    mask: Tensor | None = None,
) -> list[Tensor]:
    """For each parameter, the sum of its clipped gradients + N(0, (noise_multiplier · clip_norm)²): (groups, …).

    `losses` (groups, n) are one per sample; sample j of group g meets parameters of g and nobody else's rows.

    Guarantee: one sample moves the parameters' sums of its group by at most `clip_norm` in L2 (add/remove), and no
    other group's, so that a step costs GaussianDpEvent(noise_multiplier), Poisson-sampled at the rate of its batch.
    Edges: no samples → noise alone; rows with mask 0 count for nothing. The guarantee speaks of real numbers, noise
    and sum are float32. `noise_multiplier=0` is clipped, not private; `clip_norm=inf` is the plain sum.
    """
    not_negative(noise_multiplier=noise_multiplier)
    if not clip_norm > 0 or (noise_multiplier and math.isinf(clip_norm)):
        raise ConfigError(f"clip_norm must be above 0, and finite where there is noise, not {clip_norm!r}.")
    sums = clipped_sums(losses, taps, clip_norm=clip_norm, mask=mask)
    return add_noise(sums, noise_multiplier * clip_norm, rng) if noise_multiplier else sums


def add_noise(sums: list[Tensor], deviation: float, rng: Normals) -> list[Tensor]:
    """Clipped sums, noised in place: once for a batch, also where it was summed in pieces."""
    sizes = [part.numel() for part in sums]
    noise = torch.split(rng.normal(sum(sizes), device=sums[0].device), sizes)
    shaped = [drawn.view_as(part) for part, drawn in zip(sums, noise, strict=True)]
    torch._foreach_add_(sums, shaped, alpha=deviation)
    return sums


def clipped_sums(
    losses: Tensor, taps: Sequence[Tap], *, clip_norm: float, mask: Tensor | None = None
) -> list[Tensor]:
    """The sum over samples of their gradients, each scaled down to `clip_norm` over all parameters together.

    Guarantee: as in `private_sums`, without the noise. Edges: a gradient whose norm is not finite counts for nothing.
    """
    outputs = [given for _, given in taps]
    if not losses.numel():
        return [_summed(read, torch.zeros_like(given)) for read, given in taps]
    deltas = torch.autograd.grad(losses.sum(), outputs)
    with torch.no_grad(), full(losses.device):
        inputs = [read for read, _ in taps]
        weight = torch.ones_like(losses) if mask is None else mask.to(losses.dtype)
        if math.isfinite(clip_norm):
            parts = zip(inputs, deltas, strict=True)
            square = torch.stack([_squared_norm(read, delta) for read, delta in parts]).sum(0)
            sound = square < math.inf  # so written, NaN is not
            weight = torch.where(sound, clip_norm * square.rsqrt(), 0).clamp_max_(1) * weight
            if not bool(sound.all()):  # 0 · inf is not 0
                inputs = [None if read is None else _only(sound, read) for read in inputs]
                deltas = tuple(_only(sound, delta) for delta in deltas)
        scaled = (delta * weight[..., None, None] for delta in deltas)
        return [_summed(read, delta) for read, delta in zip(inputs, scaled, strict=True)]


def _summed(read: Tensor | None, delta: Tensor) -> Tensor:
    if read is None:
        return delta.sum((1, 2))  # (groups, out)
    return torch.bmm(delta.flatten(1, 2).mT, read.flatten(1, 2))  # (groups, out, in)


def _squared_norm(read: Tensor | None, delta: Tensor) -> Tensor:
    """‖G‖² of each sample: (groups, n). Where positions are compared in pairs it is never too small by rounding; where
    they are summed it is off by the rounding of that sum (some 10⁻⁴ of it where positions cancel to 10⁻⁴).
    """
    if read is None:
        return delta.sum(2).square().sum(2)
    positions = delta.shape[2]
    if positions == 1:
        return delta.square().sum((2, 3)) * read.square().sum((2, 3))
    if positions * positions >= delta.shape[3] * read.shape[3]:
        return (delta.mT @ read).square().sum((2, 3))  # (groups, n, out, in) is the smaller
    square: Tensor = ((read @ read.mT) * (delta @ delta.mT)).sum((2, 3))
    # Positions may cancel each other, and then the rounding of the dot products would show: some 8 ulp in each.
    largest: Tensor = (torch.linalg.vector_norm(read, dim=3) * torch.linalg.vector_norm(delta, dim=3)).sum(2)
    return (square + 16 * torch.finfo(delta.dtype).eps * largest.square()).clamp_min_(0)


def _only(sound: Tensor, values: Tensor) -> Tensor:
    return torch.where(sound[..., None, None], values, 0)
