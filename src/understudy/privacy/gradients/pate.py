"""A noisy vote of teachers on which way to move each synthetic row.

Zhang, "GAN-Based Differentially Private Publication of Vertically Partitioned Data"
(thesis, TUM 2022), §4.4.2, Algorithm 4, Eq. 4.7–4.14, after the gradient compression of
Wang et al., "DataLens" (CCS 2021), and Papernot et al., PATE (2016).
Paper → code: E → teachers, K → top, c → clip, β → threshold, σ → noise_multiplier ·
sensitivity, m → rows.
Differs from the paper: the sensitivity is √(4K) = 2√K (Eq. 4.16 prints √2·K); the clip
is to [−c, c] (Algorithm 4 prints min(max(g, c), c)); a teacher whose gradient is zero
or not a number abstains.
"""

import math
from dataclasses import dataclass

import torch
from dp_accounting import dp_event
from torch import Tensor

from understudy.ground.check import in_range
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.accounting import DpEvent
from understudy.privacy.gradients.limits import honest
from understudy.privacy.noise import Rng


@dataclass(frozen=True, kw_only=True)
class GradientVote:
    """Each teacher votes ±1 on the `top` steepest columns of a row; what enough of them
    want, under noise, is done.

    Guarantee: where every person is with one teacher alone, and teachers are trained
    apart, adding or removing a person changes one teacher, in whatever way. That
    teacher's vote on a row has at most K entries of ±1 before and after, and the sum of
    all votes moves by at most 2√K in L2: the K entries may turn round. One row is
    `event`, the Gaussian mechanism; rows and rounds compose, even if each was chosen
    after seeing the last.
    Edges: `noise_multiplier=0` is a plain vote, and not private. Votes are summed
    exactly; the guarantee speaks of real numbers, the noise is float32, and of each
    noisy sum only its side of the threshold leaves.
    """

    teachers: int
    top: int
    clip: float
    threshold: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        honest(
            teachers=self.teachers,
            top=self.top,
            clip=self.clip,
            noise_multiplier=self.noise_multiplier,
        )
        in_range(0, 1, threshold=self.threshold)

    @property
    def sensitivity(self) -> float:
        """How far one person moves the sum of votes on a row, in L2."""
        return 2 * math.sqrt(self.top)

    @property
    def event(self) -> DpEvent:
        if not self.noise_multiplier:
            return dp_event.NonPrivateDpEvent()
        return dp_event.GaussianDpEvent(self.noise_multiplier)

    # Algorithm 4, step 1
    def tally(self, gradients: Tensor, rng: Rng) -> Tensor:
        """The sum of some teachers' votes: (n, rows, width) → (rows, width). Nothing of
        it leaves before `decide`.
        """
        _, rows, width = gradients.shape
        if self.top > width:
            raise ConfigError(
                f"top = {self.top} is more than the {width} columns.",
                effect=Effect.NOTHING_SENT,
            )
        # Eq. 4.8: exactly K, ties or not
        indices = gradients.abs().topk(self.top, 2, sorted=False).indices
        votes = stochastic_sign(gradients.gather(2, indices), rng, clip=self.clip)
        indices += width * torch.arange(rows, device=indices.device)[:, None]
        total = votes.new_zeros(rows * width).index_add_(
            0,
            indices.flatten(),
            votes.flatten(),
        )
        return total.view(rows, width)

    # Algorithm 4, step 2
    def decide(self, votes: Tensor, rng: Rng) -> Tensor:
        """Add the noise, keep what passes the threshold: int8 of −1, 0 and 1, like
        `votes` in shape.
        """
        noisy = votes.double()
        if self.noise_multiplier:  # Eq. 4.13
            scale = self.noise_multiplier * self.sensitivity
            noisy = (
                noisy + scale * rng.normal(*votes.shape, device=votes.device).double()
            )
        enough = self.threshold * self.teachers
        # Eq. 4.14
        return (noisy >= enough).to(torch.int8) - (noisy <= -enough).to(torch.int8)


def stochastic_sign(
    values: Tensor,
    rng: Rng,
    *,
    clip: float,
) -> Tensor:
    """Eq. 4.10–4.12: clamp, scale by the largest of the last axis, draw a sign with
    that mean; 0 where it is none.
    """
    values = values.clamp(-clip, clip)
    largest = values.abs().amax(-1, keepdim=True)
    up = rng.uniform(*values.shape, device=values.device) < (1 + values / largest) / 2
    return (2 * up.to(values.dtype) - 1) * (largest > 0)
