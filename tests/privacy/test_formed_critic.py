"""Critics without a closed form: each person's gradient formed, clipped, summed and
noised.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from understudy.ground.errors import ConfigError
from understudy.models.nets.gan import Critic, ImageCritic
from understudy.privacy.gradients import critic as formed_critic
from understudy.privacy.gradients.critic import (
    formed_critic_gradient,
    private_critic_gradient,
)
from understudy.privacy.noise.rng import SecureRng

PLAIN: dict[str, Any] = {
    "noise_multiplier": 0.0,
    "expected_batch": 1.0,
    "penalty": 10.0,
}


def image_critic(shape: tuple[int, int] = (6, 5)) -> ImageCritic:
    torch.manual_seed(0)
    return ImageCritic(shape, (3, 2)).double()


def rows(width: int = 30, batch: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    return tuple(
        torch.rand(*s, generator=g).double()
        for s in ((batch, width), (batch, width), (batch,))
    )  # type: ignore[return-value]


def flat(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


def alone(critic: nn.Module, x: Tensor, fake: Tensor, mix: Tensor) -> Tensor:
    """One person's gradient by autograd's double backward."""
    point = torch.lerp(fake, x, mix)[None].requires_grad_()
    (slope,) = torch.autograd.grad(critic(point).sum(), point, create_graph=True)
    loss = critic(fake[None]) - critic(x[None]) + 10 * (slope.norm() - 1) ** 2
    return flat(list(torch.autograd.grad(loss.sum(), list(critic.parameters()))))


@pytest.mark.parametrize("clip_norm", [0.5, 5.0, 50.0, math.inf])
def test_the_clipped_sum_equals_clipping_each_persons_gradient(
    clip_norm: float,
) -> None:
    critic, (real, fake, mix) = image_critic(), rows()
    people = torch.stack(
        [alone(critic, *each) for each in zip(real, fake, mix, strict=True)]
    )
    expected = ((clip_norm / people.norm(dim=1)).clamp(max=1)[:, None] * people).sum(0)
    found = formed_critic_gradient(
        critic,
        real,
        fake,
        mix,
        clip_norm=clip_norm,
        rng=SecureRng.from_seed(1),
        **PLAIN,
    )
    torch.testing.assert_close(flat(found), expected, rtol=1e-9, atol=1e-12)


def test_it_agrees_with_the_closed_form_where_there_is_one() -> None:
    torch.manual_seed(0)
    critic, (real, fake, mix) = Critic(30, (8, 5)).double(), rows()
    settings: dict[str, Any] = {
        "clip_norm": 0.7,
        "noise_multiplier": 1.3,
        "expected_batch": 9.0,
        "penalty": 10.0,
    }
    mask = torch.tensor([1, 0, 1, 1, 0, 1, 1.0]).double()
    formed = formed_critic_gradient(
        critic, real, fake, mix, rng=SecureRng.from_seed(2), mask=mask, **settings
    )
    closed = private_critic_gradient(
        critic.layers,
        real,
        fake,
        mix,
        rng=SecureRng.from_seed(2),
        mask=mask,
        slope=critic.slope,
        **settings,
    )
    torch.testing.assert_close(
        flat(formed), flat([part for pair in closed for part in pair])
    )


def test_leaving_a_person_out_moves_the_sum_by_the_clip_norm_at_most() -> None:
    critic, (real, fake, mix) = image_critic(), rows()

    def total(keep: list[int]) -> Tensor:
        args = (real[keep], fake[keep], mix[keep])
        return flat(
            formed_critic_gradient(
                critic, *args, clip_norm=1.0, rng=SecureRng.from_seed(1), **PLAIN
            )
        )

    everybody = list(range(len(real)))
    moves = [
        (total(everybody) - total([p for p in everybody if p != out])).norm()
        for out in everybody
    ]
    assert 0.99 < max(moves) <= 1 + 1e-9


def test_people_taken_some_at_a_time_give_the_same_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    critic = image_critic()
    given = rows()
    once = formed_critic_gradient(
        critic, *given, clip_norm=1.0, rng=SecureRng.from_seed(1), **PLAIN
    )
    monkeypatch.setattr(
        formed_critic, "ROOM", 2 * sum(p.numel() for p in critic.parameters())
    )
    parts = formed_critic_gradient(
        critic, *given, clip_norm=1.0, rng=SecureRng.from_seed(1), **PLAIN
    )
    torch.testing.assert_close(flat(parts), flat(once), rtol=1e-12, atol=1e-14)


def test_nobody_is_noise_alone_of_the_promised_size() -> None:
    critic, (real, fake, mix) = image_critic((20, 20)).float(), rows(400, 0)
    settings: dict[str, Any] = {
        "clip_norm": 2.0,
        "noise_multiplier": 3.0,
        "expected_batch": 4.0,
        "penalty": 10.0,
    }
    noise = flat(
        formed_critic_gradient(
            critic,
            real.float(),
            fake.float(),
            mix.float(),
            rng=SecureRng.from_seed(3),
            **settings,
        )
    )
    assert float(noise.std()) == pytest.approx(1.5, rel=0.15)


def test_a_critic_without_slope_and_a_gradient_that_overflows_count_for_nothing():
    critic, (real, fake, mix) = image_critic(), rows()
    with torch.no_grad():
        for parameter in critic.parameters():
            parameter.zero_()
    flatly = formed_critic_gradient(
        critic, real, fake, mix, clip_norm=1.0, rng=SecureRng.from_seed(1), **PLAIN
    )
    assert bool(flat(flatly).isfinite().all())
    steep = image_critic()
    with torch.no_grad():
        steep.last.weight.fill_(1e200)
    parts = formed_critic_gradient(
        steep, real, fake, mix, clip_norm=1.0, rng=SecureRng.from_seed(1), **PLAIN
    )
    assert bool(flat(parts).isfinite().all())
    assert float(flat(parts).norm()) <= len(real)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e300])
def test_a_row_that_is_not_sound_counts_for_nothing_and_changes_nobody_elses_part(
    value: float,
) -> None:
    critic, (real, fake, mix) = image_critic(), rows()
    settings: dict[str, Any] = {
        "clip_norm": 1.0,
        "rng": SecureRng.from_seed(1),
        **PLAIN,
    }
    others = formed_critic_gradient(critic, real[1:], fake[1:], mix[1:], **settings)
    real[0, 3] = value
    ours = formed_critic_gradient(critic, real, fake, mix, **settings)
    torch.testing.assert_close(flat(ours), flat(others), rtol=1e-9, atol=1e-12)


def test_settings_that_protect_nobody_are_refused() -> None:
    critic, (real, fake, mix) = image_critic(), rows()
    with pytest.raises(ConfigError, match="clip_norm"):
        formed_critic_gradient(
            critic, real, fake, mix, clip_norm=0.0, rng=SecureRng.from_seed(1), **PLAIN
        )
