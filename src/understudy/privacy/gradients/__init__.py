"""Gradients that may leave: clipped for each person, summed, and noised once a batch.

`dp_sgd` for networks of products, `critic` for WGAN-GP critics in closed form, `pate` for votes of teachers;
`limits` proves that no sum under- or overflows.
"""

from understudy.privacy.gradients.critic import (
    clipped_gradient_sum,
    formed_critic_gradient,
    private_critic_gradient,
    require_sound,
)
from understudy.privacy.gradients.dp_sgd import add_noise, clipped_sums, private_sums
from understudy.privacy.gradients.limits import coarse, honest, honest_layers, sound_weights
from understudy.privacy.gradients.pate import GradientVote

__all__ = [
    "GradientVote", "add_noise", "clipped_gradient_sum", "clipped_sums", "coarse", "formed_critic_gradient", "honest",
    "honest_layers", "private_critic_gradient", "private_sums", "require_sound", "sound_weights",
]  # fmt: skip
