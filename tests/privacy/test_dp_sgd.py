"""The private gradient of products, against the sample-by-sample loop."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from understudy.ground.errors import ConfigError
from understudy.models.nets.tapped import Taps
from understudy.privacy.gradients.dp_sgd import clipped_sums, private_sums
from understudy.privacy.noise.rng import FastRng

GROUPS = 2
SAMPLES = 5


def random(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=rng) for shape in shapes]


def convolved(x: Tensor, parameters: list[Tensor], taps: Taps) -> Tensor:
    """An image down, up again, and down to a number: every kind of layer,
    (groups, n).
    """
    a, b, c, d, e, f = parameters
    x = functional.silu(taps.conv(x, a, b))
    x = functional.silu(taps.conv_transposed(x, c, d, (7, 5)))
    return taps.dense(x.flatten(2), e, f).squeeze(2).square()


def network() -> tuple[Tensor, list[Tensor]]:
    x, *parameters = random(
        (GROUPS, SAMPLES, 2, 7, 5),
        (GROUPS, 6, 18),
        (GROUPS, 6),
        (GROUPS, 27, 6),
        (GROUPS, 3),
        (GROUPS, 1, 105),
        (GROUPS, 1),
    )
    return x, [parameter * 0.3 for parameter in parameters]


def plain(x: Tensor, parameters: list[Tensor], group: int) -> Tensor:
    """The same network by torch's own layers, on one sample."""
    a, b, c, d, e, f = (parameter[group] for parameter in parameters)
    x = functional.silu(
        functional.conv2d(x[None], a.view(6, 2, 3, 3), b, stride=2, padding=1)
    )
    # a weight of a transposed convolution is (in, out, 3, 3); here it is (out · 9, in)
    kernel = c.T.reshape(6, 3, 3, 3)
    x = functional.silu(functional.conv_transpose2d(x, kernel, d, stride=2, padding=1))
    return functional.linear(x.flatten(1), e, f).square().sum()


def looped(
    x: Tensor, parameters: list[Tensor], clip_norm: float, keep: Tensor | None = None
) -> list[Tensor]:
    """The oracle: one autograd gradient per sample, clipped, summed."""
    sums = [torch.zeros_like(parameter) for parameter in parameters]
    for group in range(GROUPS):
        for sample in range(x.shape[1]):
            if keep is not None and not keep[group, sample]:
                continue
            leaves = [parameter.clone().requires_grad_() for parameter in parameters]
            gradient = torch.autograd.grad(
                plain(x[group, sample], leaves, group), leaves
            )
            norm = torch.cat([part.flatten() for part in gradient]).norm()
            for total, part in zip(sums, gradient, strict=True):
                total += part * min(1.0, clip_norm / float(norm))
    return sums


@pytest.mark.parametrize("clip_norm", [0.05, 1.0, 1e6, math.inf])
def test_the_clipped_sum_equals_the_loop_over_samples(clip_norm: float) -> None:
    x, parameters = network()
    taps = Taps()
    sums = clipped_sums(convolved(x, parameters, taps), taps, clip_norm=clip_norm)
    for ours, theirs in zip(sums, looped(x, parameters, clip_norm), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)


def test_masked_samples_count_for_nothing() -> None:
    x, parameters = network()
    keep = torch.tensor([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0]])
    taps = Taps()
    sums = clipped_sums(convolved(x, parameters, taps), taps, clip_norm=0.5, mask=keep)
    for ours, theirs in zip(sums, looped(x, parameters, 0.5, keep), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)
        assert not ours[1].any()


def test_one_sample_moves_the_sum_of_its_own_group_by_at_most_the_clip_norm() -> None:
    x, parameters = network()
    without = torch.ones(GROUPS, SAMPLES)
    without[0, 3] = 0
    moved = []
    for mask in (torch.ones(GROUPS, SAMPLES), without):
        taps = Taps()
        sums = clipped_sums(
            convolved(x, parameters, taps), taps, clip_norm=0.3, mask=mask
        )
        moved.append(torch.cat([part.flatten(1) for part in sums], 1))
    distance = (moved[0] - moved[1]).norm(dim=1)
    assert 0.299 < float(distance[0]) <= 0.3 * (1 + 1e-5)
    assert float(distance[1]) == 0


def test_a_gradient_that_overflows_counts_for_nothing() -> None:
    x, parameters = network()
    x[0, 2] = 1e30
    taps = Taps()
    sums = clipped_sums(convolved(x, parameters, taps), taps, clip_norm=0.5)
    keep = torch.ones(GROUPS, SAMPLES)
    keep[0, 2] = 0
    for ours, theirs in zip(sums, looped(x, parameters, 0.5, keep), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)


def test_no_samples_are_noise_alone_of_the_promised_size() -> None:
    _, parameters = network()
    taps = Taps()
    losses = convolved(torch.zeros(GROUPS, 0, 2, 7, 5), parameters, taps)
    sums = private_sums(
        losses, taps, clip_norm=0.5, noise_multiplier=4.0, rng=FastRng(1)
    )
    assert [part.shape for part in sums] == [
        parameter.shape for parameter in parameters
    ]
    flat = torch.cat([part.flatten() for part in sums])
    assert float(flat.std()) == pytest.approx(2.0, rel=4 / math.sqrt(2 * len(flat)))


def test_the_noise_stands_on_top_of_the_clipped_sum() -> None:
    x, parameters = network()
    taps = Taps()
    again = Taps()
    clean = clipped_sums(convolved(x, parameters, taps), taps, clip_norm=0.5)
    noisy = private_sums(
        convolved(x, parameters, again),
        again,
        clip_norm=0.5,
        noise_multiplier=2.0,
        rng=FastRng(7),
    )
    noise = FastRng(7).normal(sum(part.numel() for part in clean))
    ours = torch.cat([(a - b).flatten() for a, b in zip(noisy, clean, strict=True)])
    torch.testing.assert_close(ours, noise, rtol=1e-4, atol=1e-5)


def test_noise_without_a_clip_norm_is_refused() -> None:
    with pytest.raises(ConfigError, match="clip_norm"):
        private_sums(
            torch.zeros(1, 1),
            [],
            clip_norm=math.inf,
            noise_multiplier=1.0,
            rng=FastRng(0),
        )
