"""The private gradient of any network made of products: clipped per sample, noised once
a batch.

Abadi et al., "Deep learning with differential privacy" (2016), Algorithm 1, for many
groups at once (the classes of a silo, the clients of a cohort), each with its own
parameters. Norms without gradients: Goodfellow (2015) for single products, the choice
between two ways for products at many positions is Bu, Mao, Xu, "Scalable and efficient
training of large convolutional neural networks with differential privacy" (2022), §3;
that the clipped sum needs no second backward pass is Bu et al., "Differentially private
optimization on large model at small cost" (2023), §3.
Paper → code: C → clip_norm, σ → noise_multiplier, L → the expected batch, by which the
caller divides if at all.

A parameter's gradient for one sample is Σ_p δ_p a_pᵀ over positions p, with a what the
layer read and δ the loss's gradient at what it gave. One backward pass gives all δ.
With one position ‖G‖² = ‖δ‖²‖a‖²; with several it is Σ_pq (a_p·a_q)(δ_p·δ_q), or G
itself where that is smaller. The clipped sum is one matrix product per parameter.

Why not Opacus or `torch.func`: both form every sample's gradient, and Opacus knows no
groups. One step of two classes of 200 one-hot rows on one busy core: 25 ms here, 126 ms
by Opacus 1.6.0, class after class, 326 ms by vmap(grad) (`benchmarks/sgde/bench.py
--speed`).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from understudy.privacy.gradients.limits import FACTOR, TINY, full, honest
from understudy.privacy.noise import Normals

# what a weight read (groups, n, positions, in), None for a bias, and what it gave
Tap = tuple[Tensor | None, Tensor]


def private_sums(
    losses: Tensor,
    taps: Sequence[Tap],
    *,
    clip_norm: float,
    noise_multiplier: float,
    rng: Normals,
    mask: Tensor | None = None,
) -> list[Tensor]:
    """For each parameter, the sum of its clipped gradients + N(0, (noise_multiplier ·
    clip_norm)²): (groups, …).

    `losses` (groups, n) are one per sample; sample j of group g meets parameters of g
    and nobody else's rows.

    Guarantee: one sample moves the parameters' sums of its group by at most `clip_norm`
    in L2 (add/remove), and no other group's, so that a step costs
    GaussianDpEvent(noise_multiplier), Poisson-sampled at the rate of its batch.
    Edges: no samples → noise alone; rows with mask 0 count for nothing. The guarantee
    speaks of real numbers, noise and sum are float32. `noise_multiplier=0` is clipped,
    not private; `clip_norm=inf` is the plain sum. Settings outside the ranges of
    `limits` → ConfigError.
    """
    require_clipping(clip_norm, noise_multiplier)
    sums = clipped_sums(
        losses,
        taps,
        clip_norm=clip_norm,
        mask=mask,
    )
    return (
        add_noise(sums, noise_multiplier * clip_norm, rng) if noise_multiplier else sums
    )


def require_clipping(clip_norm: float, noise_multiplier: float) -> None:
    """Refuse settings under which nothing is protected, or arithmetic cannot be."""
    honest(noise_multiplier=noise_multiplier)
    if noise_multiplier or clip_norm != math.inf:
        honest(clip_norm=clip_norm)


def add_noise(
    sums: list[Tensor],
    deviation: float,
    rng: Normals,
) -> list[Tensor]:
    """Clipped sums, noised in place: once for a batch, also where it was summed in
    pieces.
    """
    sizes = [part.numel() for part in sums]
    noise = torch.split(rng.normal(sum(sizes), device=sums[0].device), sizes)
    shaped = [values.view_as(part) for part, values in zip(sums, noise, strict=True)]
    torch._foreach_add_(sums, shaped, alpha=deviation)
    return sums


def clipped_sums(
    losses: Tensor,
    taps: Sequence[Tap],
    *,
    clip_norm: float,
    mask: Tensor | None = None,
) -> list[Tensor]:
    """The sum over samples of their gradients, each scaled down to `clip_norm` over all
    parameters together. Guarantee: as in `private_sums`, without the noise; and the sum
    is finite, whatever losses, weights and rows are. Edges: a sample with a factor that
    is not finite, or longer than `limits.FACTOR`, counts for nothing, by itself.
    """
    require_clipping(clip_norm, 0.0)
    outputs = [output for _, output in taps]
    if not losses.numel():
        return [_summed(read, torch.zeros_like(output)) for read, output in taps]
    deltas = torch.autograd.grad(losses.sum(), outputs)
    with torch.no_grad(), full(losses.device):
        parts = [
            _GradientFactors.from_factors(read, delta)
            for (read, _), delta in zip(taps, deltas, strict=True)
        ]
        # so written, NaN is not
        sound = torch.stack([part.longest for part in parts]).amax(0) <= FACTOR**2
        # 0 · inf is not 0; a GPU is not asked
        if losses.device.type != "cpu" or not bool(sound.all()):
            parts = [part.sound_alone(sound) for part in parts]
        weight = torch.ones_like(losses) if mask is None else mask.to(losses.dtype)
        if math.isfinite(clip_norm):
            norm = torch.stack([part.squared_norm() for part in parts]).sum(0).sqrt()
            weight = weight * (clip_norm / norm).clamp_max_(1).to(losses.dtype)
        return [
            _summed(part.read, part.delta * weight[..., None, None]) for part in parts
        ]


def _summed(read: Tensor | None, delta: Tensor) -> Tensor:
    if read is None:
        return delta.sum((1, 2))  # (groups, out)
    return torch.bmm(delta.flatten(1, 2).mT, read.flatten(1, 2))  # (groups, out, in)


class _GradientFactors(NamedTuple):
    """The factors of one parameter's gradients, and their squared lengths ‖a‖² and
    ‖δ‖², (groups, n).
    """

    read: Tensor | None
    delta: Tensor
    read_square: Tensor
    delta_square: Tensor

    @classmethod
    def from_factors(cls, read: Tensor | None, delta: Tensor) -> "_GradientFactors":
        square = _squares(delta)
        return cls(
            read,
            delta,
            torch.ones_like(square) if read is None else _squares(read),
            square,
        )

    @property
    def longest(self) -> Tensor:
        """The larger of the two; NaN stays NaN."""
        return torch.maximum(self.read_square, self.delta_square)

    def sound_alone(self, sound: Tensor) -> "_GradientFactors":
        """Zeros in place of all that is not sound."""
        read = (
            None
            if self.read is None
            else torch.where(sound[..., None, None], self.read, 0)
        )
        squares = (
            torch.where(sound, square, 0)
            for square in (self.read_square, self.delta_square)
        )
        return _GradientFactors(
            read, torch.where(sound[..., None, None], self.delta, 0), *squares
        )

    def squared_norm(self) -> Tensor:
        """‖G‖² of each sample, in float64: (groups, n). It is above 0, and not too
        small by underflow or rounding: what the two may have taken is added, the
        rounding where positions can cancel each other.
        """
        read = self.read
        delta = self.delta
        positions = self.delta.shape[2]
        read_square = self.read_square.double()
        delta_square = self.delta_square.double()
        underflow = (
            TINY * math.prod(delta.shape[2:]),
            0.0 if read is None else TINY * math.prod(read.shape[2:]),
        )
        if positions == 1:
            return (delta_square + underflow[0]) * (read_square + underflow[1])
        lengths = torch.linalg.vector_norm(delta, dim=3)
        if read is None:
            square: Tensor = _squares(delta.sum(2, keepdim=True))
        else:
            lengths = lengths * torch.linalg.vector_norm(read, dim=3)
            if positions * positions >= delta.shape[3] * read.shape[3]:
                # (groups, n, out, in) is the smaller
                square = _squares(delta.mT @ read)
            else:
                square = ((read @ read.mT) * (delta @ delta.mT)).sum((2, 3))
        # The rounding of sums that cancel: some 8 ulp of what stands in them.
        square = square + 16 * torch.finfo(delta.dtype).eps * lengths.sum(2).square()
        lacking: Tensor = underflow[0] * (positions + read_square) + underflow[1] * (
            positions + delta_square
        )
        return lacking + square.clamp_min_(0).double()


def _squares(part: Tensor) -> Tensor:
    return part.square().sum((2, 3))
