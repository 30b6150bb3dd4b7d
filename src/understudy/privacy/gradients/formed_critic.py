"""The private gradient of any WGAN-GP critic, with every person's gradient formed.

For critics that the closed form of `critic.py` does not reach, as convolutions. Loss, clipping, noise and
symbols are the same; a person's gradient goes through the gradient penalty by `torch.func`, which is exact there.
Memory grows with batch × parameters, so people are taken some at a time.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from understudy.privacy.gradients.critic import noised_mean, require_settings
from understudy.privacy.gradients.limits import FACTOR
from understudy.privacy.gradients.precision import full
from understudy.privacy.noise import Normals

ROOM = 1 << 26  # numbers that the formed gradients may take at a time
_FLAT = 1e-24  # a squared slope below this has no direction: its penalty gives no gradient


def formed_critic_gradient(
    critic: nn.Module,
    real: Tensor,
    fake: Tensor,
    mix: Tensor,
    *,
    clip_norm: float,
    noise_multiplier: float,
    expected_batch: float,
    penalty: float,
    rng: Normals,
    mask: Tensor | None = None,
) -> list[Tensor]:
    """One critic step: (clipped sum + N(0, (noise_multiplier · clip_norm)²)) / expected_batch, for each parameter.

    Guarantee: as `private_critic_gradient`: one person moves the sum by at most `clip_norm` in L2 (add/remove).
    The result is finite, whatever weights, rows and settings are.
    Edges: no rows → noise alone; a person whose gradient is not finite, or longer than FACTOR², counts for nothing, by
    itself. A critic that mixes rows (batch normalisation) has no gradient of one person, and must not come here.
    `fake` and `mix` belong to their row: draw them secretly.
    """
    require_settings(clip_norm, noise_multiplier, expected_batch, penalty)
    parameters = {name: value.detach() for name, value in critic.named_parameters()}
    sums = [torch.zeros_like(value) for value in parameters.values()]
    weight = torch.ones_like(mix) if mask is None else mask

    def score(values: dict[str, Tensor], row: Tensor) -> Tensor:
        scores: Tensor = functional_call(critic, values, (row[None],))
        return scores[0]

    def loss(values: dict[str, Tensor], x: Tensor, other: Tensor, share: Tensor) -> Tensor:
        slope = grad(score, argnums=1)(values, torch.lerp(other, x, share))
        square = slope.square().sum()
        steep = torch.where(square > _FLAT, square, 1).sqrt()
        return score(values, other) - score(values, x) + penalty * (steep - 1) ** 2

    step = max(1, ROOM // sum(value.numel() for value in parameters.values()))
    gradients = vmap(grad(loss), in_dims=(None, 0, 0, 0))
    for part in (slice(start, start + step) for start in range(0, len(real), step)):
        formed = list(gradients(parameters, real[part], fake[part], mix[part]).values())
        norms = [torch.linalg.vector_norm(each.flatten(1), dim=1, dtype=torch.float64) for each in formed]
        norm = torch.linalg.vector_norm(torch.stack(norms), dim=0)
        counts = norm <= FACTOR**2  # so written, NaN does not; beyond it a share would underflow
        share = torch.where(counts, (clip_norm / norm).clamp_max(1), 0).to(mix.dtype) * weight[part]
        with full(real.device):
            for total, each in zip(sums, formed, strict=True):
                total += torch.tensordot(share, each.nan_to_num(0, 0, 0), 1)
    noised_mean(sums, clip_norm, noise_multiplier, expected_batch, rng)
    return sums
