import math
from itertools import pairwise

import pytest
import torch
from torch.func import grad, vmap
from torch.nn.functional import leaky_relu
from torch.utils._python_dispatch import TorchDispatchMode

from refusals import raises
from understudy.ground.errors import ConfigError, Effect, PrivacyError
from understudy.privacy.gradients import critic
from understudy.privacy.gradients.critic import (
    clipped_gradient_sum,
    private_critic_gradient,
    require_sound,
)
from understudy.privacy.noise.rng import SecureRng

DOUBLE = torch.float64
SIZES = [
    (5, 1),
    (6, 3, 1),
    (9, 5, 1),
    (4, 7, 1),
    (8, 5, 4, 1),
    (6, 7, 3, 1),
    (7, 6, 5, 4, 1),
]


def make(sizes, batch=24, seed=0, scale=1.5, dtype=DOUBLE):
    """A critic with biases, rows, synthetic rows and mixing shares."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=g, dtype=DOUBLE).to(dtype)

    layers = [
        (normal(b, a) * scale / math.sqrt(a), normal(b)) for a, b in pairwise(sizes)
    ]
    mix = torch.rand(batch, generator=g, dtype=DOUBLE).to(dtype)
    return layers, normal(batch, sizes[0]), normal(batch, sizes[0]).softmax(1), mix


def score(layers, x, slope):
    for weight, bias in layers[:-1]:
        x = leaky_relu(weight @ x + bias, slope)
    weight, bias = layers[-1]
    return (weight @ x + bias).squeeze()


def loss(layers, x, fake, mix, penalty, slope):
    """One person's WGAN-GP loss, written as in the paper."""
    steep = grad(lambda point: score(layers, point, slope))(mix * x + (1 - mix) * fake)
    gap = torch.linalg.vector_norm(steep) - 1
    return score(layers, fake, slope) - score(layers, x, slope) + penalty * gap**2


def per_person(layers, real, fake, mix, penalty=10.0, slope=0.2):
    """Each person's whole gradient, by vmap: a list of (batch, ...) tensors."""
    each = vmap(grad(loss), in_dims=(None, 0, 0, 0, None, None))(
        layers, real, fake, mix, penalty, slope
    )
    return [part for pair in each for part in pair]


def per_person_loop(layers, real, fake, mix, penalty=10.0, slope=0.2):
    """The same by a loop and autograd's double backward."""
    leaves = [part.clone().requires_grad_() for pair in layers for part in pair]
    pairs = list(zip(leaves[::2], leaves[1::2], strict=True))
    rows = []
    for x, f, m in zip(real, fake, mix, strict=True):
        point = (m * x + (1 - m) * f).requires_grad_()
        (steep,) = torch.autograd.grad(
            score(pairs, point, slope), point, create_graph=True
        )
        total = (
            score(pairs, f, slope)
            - score(pairs, x, slope)
            + penalty * (steep.norm() - 1) ** 2
        )
        found = torch.autograd.grad(total, leaves, allow_unused=True)
        rows.append(
            [
                torch.zeros_like(p) if g is None else g
                for p, g in zip(leaves, found, strict=True)
            ]
        )
    return [torch.stack(parts) for parts in zip(*rows, strict=True)]


def norms(parts):
    return sum(part.flatten(1).square().sum(1) for part in parts).sqrt()


def clipped(parts, clip_norm):
    weight = (clip_norm / norms(parts)).clamp(max=1)
    return [torch.tensordot(weight, part, 1) for part in parts]


def flat(total):
    return torch.cat([part.flatten() for pair in total for part in pair])


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("reference", [per_person, per_person_loop])
def test_the_clipped_sum_equals_clipping_each_persons_gradient(sizes, reference):
    layers, real, fake, mix = make(sizes)
    each = reference(layers, real, fake, mix)
    clip_norm = float(norms(each).median())
    assert 0 < int((norms(each) > clip_norm).sum()) < len(real)
    ours = clipped_gradient_sum(
        layers, real, fake, mix, clip_norm=clip_norm, penalty=10.0
    )
    for mine, theirs in zip(
        [part for pair in ours for part in pair], clipped(each, clip_norm), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("sizes", SIZES)
def test_units_of_zeros_that_align_a_wide_critic_change_nothing(sizes, monkeypatch):
    layers, real, fake, mix = make(sizes)
    settings = {"clip_norm": 0.7, "penalty": 10.0}
    expected = clipped_gradient_sum(layers, real, fake, mix, **settings)
    monkeypatch.setattr(critic, "pays", lambda weight: True)
    wider, *rows = critic._padded(layers, real, fake)
    assert all(
        size % 8 == 0
        for matrix in (*(w for w, _ in wider), *rows)
        for size in matrix.shape[1:]
    )
    found = clipped_gradient_sum(layers, real, fake, mix, **settings)
    for pair, other in zip(expected, found, strict=True):
        torch.testing.assert_close(pair, other)


@pytest.mark.parametrize("sizes", [(137, 69, 1), (60, 40, 20, 1)])
def test_float32_agrees_with_float64(sizes):
    layers, real, fake, mix = make(sizes, batch=64, scale=1.0)
    exact = flat(
        clipped_gradient_sum(layers, real, fake, mix, clip_norm=1.0, penalty=10.0)
    )
    single = [(weight.float(), bias.float()) for weight, bias in layers]
    ours = clipped_gradient_sum(
        single, real.float(), fake.float(), mix.float(), clip_norm=1.0, penalty=10.0
    )
    assert float((flat(ours).double() - exact).norm()) < 2e-5 * float(exact.norm())


@pytest.mark.parametrize(
    ("penalty", "slope"), [(0.0, 0.2), (10.0, 0.0), (3.0, 1.0), (1.0, 0.01)]
)
def test_any_penalty_and_any_slope(penalty, slope):
    layers, real, fake, mix = make((6, 5, 4, 1), seed=3)
    expected = clipped(per_person(layers, real, fake, mix, penalty, slope), 2.0)
    ours = clipped_gradient_sum(
        layers, real, fake, mix, clip_norm=2.0, penalty=penalty, slope=slope
    )
    torch.testing.assert_close(
        flat(ours), torch.cat([p.flatten() for p in expected]), rtol=1e-10, atol=1e-10
    )


def test_without_clipping_and_noise_it_is_the_plain_gradient():
    layers, real, fake, mix = make((8, 5, 1))
    expected = torch.cat(
        [part.sum(0).flatten() for part in per_person(layers, real, fake, mix)]
    )
    ours = private_critic_gradient(
        layers,
        real,
        fake,
        mix,
        clip_norm=math.inf,
        noise_multiplier=0,
        expected_batch=len(real),
        penalty=10.0,
        rng=SecureRng(),
    )
    torch.testing.assert_close(flat(ours), expected / len(real), rtol=1e-10, atol=1e-12)


def test_one_persons_leaving_moves_the_sum_by_at_most_the_clip_norm():
    layers, real, fake, mix = make((9, 6, 4, 1), batch=30)
    length = norms(per_person(layers, real, fake, mix))
    clip_norm = float(length.median())
    settings = {"clip_norm": clip_norm, "penalty": 10.0}
    everybody = flat(clipped_gradient_sum(layers, real, fake, mix, **settings))
    for i in range(len(real)):
        stay = torch.arange(len(real)) != i
        others = flat(
            clipped_gradient_sum(layers, real[stay], fake[stay], mix[stay], **settings)
        )
        moved = float((everybody - others).norm())
        assert moved <= clip_norm * (1 + 1e-12)
        assert moved == pytest.approx(min(clip_norm, float(length[i])), rel=1e-9)


def test_rounding_never_lets_a_person_past_the_clip_norm():
    # Score terms of 10⁵ that cancel to a few units: in float32 their norm drowns in
    # rounding.
    moved = []
    for seed in range(40):
        layers, real, _, mix = make(
            (300, 100, 1), batch=1, seed=seed, dtype=torch.float32
        )
        layers[1][0].mul_(1_000)
        fake = real + 2e-4 * torch.randn_like(real)
        ours = flat(
            clipped_gradient_sum(layers, real, fake, mix, clip_norm=1.0, penalty=0.0)
        )
        moved.append(float(ours.double().norm()))
    assert max(moved) <= 1 + 1e-5


def test_masked_rows_count_for_nothing():
    layers, real, fake, mix = make((7, 5, 3, 1), batch=20)
    mask = (torch.arange(20) % 3 > 0).to(DOUBLE)
    keep = mask.bool()
    expected = clipped_gradient_sum(
        layers, real[keep], fake[keep], mix[keep], clip_norm=1.0, penalty=10.0
    )
    real[~keep] = 1e5
    ours = clipped_gradient_sum(
        layers, real, fake, mix, clip_norm=1.0, penalty=10.0, mask=mask
    )
    torch.testing.assert_close(flat(ours), flat(expected), rtol=1e-11, atol=1e-11)


def test_a_mask_of_zeros_is_an_empty_batch():
    layers, real, fake, mix = make((7, 5, 1))
    nobody = clipped_gradient_sum(
        layers,
        real,
        fake,
        mix,
        clip_norm=1.0,
        penalty=1.0,
        mask=torch.zeros(len(real), dtype=DOUBLE),
    )
    empty = clipped_gradient_sum(
        layers, real[:0], fake[:0], mix[:0], clip_norm=1.0, penalty=1.0
    )
    assert float(flat(nobody).abs().max()) == float(flat(empty).abs().max()) == 0
    assert [part.shape for pair in empty for part in pair] == [
        part.shape for pair in layers for part in pair
    ]


def private(layers, real, fake, mix, **changes):
    settings = {
        "clip_norm": 0.5,
        "noise_multiplier": 3.0,
        "expected_batch": 8,
        "penalty": 10.0,
        "slope": 0.2,
    }
    return private_critic_gradient(
        layers, real, fake, mix, **settings | {"rng": SecureRng.from_seed(1)} | changes
    )


def test_an_empty_batch_is_noise_alone():
    layers, real, fake, mix = make((7, 5, 1), dtype=torch.float32)
    ours = flat(private(layers, real[:0], fake[:0], mix[:0]))
    torch.testing.assert_close(
        ours, SecureRng.from_seed(1).normal(len(ours)) * 3.0 * 0.5 / 8
    )


def test_the_divisor_is_the_expected_batch_not_the_drawn_one():
    layers, real, fake, mix = make((7, 5, 1), batch=24)
    total = flat(
        clipped_gradient_sum(layers, real, fake, mix, clip_norm=0.5, penalty=10.0)
    )
    ours = flat(private(layers, real, fake, mix, noise_multiplier=0))
    torch.testing.assert_close(ours, total / 8, rtol=1e-12, atol=1e-12)


def test_the_noise_has_the_promised_spread_in_every_layer():
    layers, real, fake, mix = make((300, 200, 1), batch=4)
    clean = clipped_gradient_sum(layers, real, fake, mix, clip_norm=0.5, penalty=10.0)
    noisy = private(layers, real, fake, mix, rng=SecureRng())
    for (weight, bias), (noisy_weight, noisy_bias) in zip(clean, noisy, strict=True):
        for part, noisy_part in ((weight, noisy_weight), (bias, noisy_bias)):
            noise = (noisy_part * 8 - part).flatten() / (3.0 * 0.5)
            count = len(noise)
            assert abs(float(noise.mean())) < 5 / math.sqrt(count)
            assert float(noise.square().mean()) == pytest.approx(
                1, abs=7 * math.sqrt(2 / count)
            )


def test_two_steps_never_share_their_noise():
    layers, real, fake, mix = make((7, 5, 1))
    rng = SecureRng.from_seed(2)
    first, second = (flat(private(layers, real, fake, mix, rng=rng)) for _ in range(2))
    assert not bool((first == second).any())


def test_a_flat_critic_has_no_penalty_gradient():
    layers, real, fake, mix = make((6, 4, 1))
    layers[1][0].zero_()
    ours = clipped_gradient_sum(
        layers, real, fake, mix, clip_norm=math.inf, penalty=10.0
    )
    scores = clipped_gradient_sum(
        layers, real, fake, mix, clip_norm=math.inf, penalty=0.0
    )
    torch.testing.assert_close(flat(ours), flat(scores))
    assert bool(flat(ours).isfinite().all())


@pytest.mark.parametrize("tiny", [1e-40, 1e-25, 1e-20, 1e-13, 1e-11, 1e-6])
def test_a_nearly_flat_critic_still_gives_a_clipped_gradient(tiny):
    layers, real, fake, mix = make((6, 4, 1), batch=1, dtype=torch.float32)
    layers[1][0].mul_(tiny)
    ours = flat(
        clipped_gradient_sum(layers, real, fake, mix, clip_norm=0.1, penalty=10.0)
    )
    length = float(ours.double().norm())
    assert length == pytest.approx(0.1, rel=1e-4)
    assert length <= 0.1 * (1 + 1e-5)


def test_a_gradient_that_overflows_counts_for_nothing():
    layers, real, fake, mix = make((6, 4, 1), dtype=torch.float32)
    real[0] = 1e6
    layers[1][0].mul_(1e15)
    ours = flat(
        clipped_gradient_sum(layers, real, fake, mix, clip_norm=1.0, penalty=0.0)
    )
    others = flat(
        clipped_gradient_sum(
            layers, real[1:], fake[1:], mix[1:], clip_norm=1.0, penalty=0.0
        )
    )
    assert bool(ours.isfinite().all())
    torch.testing.assert_close(ours, others)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30])
def test_a_row_that_is_not_sound_counts_for_nothing_and_changes_nobody_elses_part(
    value,
):
    layers, real, fake, mix = make((6, 4, 1))
    others = [torch.cat([part[:3], part[4:]]) for part in (real, fake, mix)]
    real[3, 2] = value
    ours = clipped_gradient_sum(layers, real, fake, mix, clip_norm=0.5, penalty=10.0)
    theirs = clipped_gradient_sum(layers, *others, clip_norm=0.5, penalty=10.0)
    torch.testing.assert_close(flat(ours), flat(theirs), rtol=1e-12, atol=1e-12)


def test_rows_that_are_sent_have_to_be_sound():
    require_sound(torch.tensor([[1e6, -1e6, 0.0]]))
    require_sound(torch.empty(0, 3))
    for value in (math.nan, math.inf, -math.inf, 1e7):
        with raises(PrivacyError, effect=Effect.NOTHING_COMPUTED):
            require_sound(torch.tensor([[0.0, value]]))


@pytest.mark.parametrize(
    "change",
    [
        {"clip_norm": 0.0},
        {"clip_norm": -1.0},
        {"clip_norm": math.nan},
        {"clip_norm": math.inf},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": math.inf},
        {"expected_batch": 0},
        {"penalty": -1.0},
        {"clip_norm": 1e-30},
        {"clip_norm": 1e9},
        {"penalty": 4.9e37},
        {"noise_multiplier": 1e30},
    ],
)
def test_settings_that_would_not_protect_are_refused(change):
    with pytest.raises(ConfigError):
        private(*make((6, 4, 1)), **change)


def test_no_graph_is_kept_and_nothing_is_changed():
    layers, real, fake, mix = make((6, 4, 1))
    layers = [
        (weight.requires_grad_(), bias.requires_grad_()) for weight, bias in layers
    ]
    before = [
        part.detach().clone() for part in (*layers[0], *layers[1], real, fake, mix)
    ]
    ours = private(layers, real, fake, mix)
    assert not flat(ours).requires_grad
    for part, old in zip(
        (*layers[0], *layers[1], real, fake, mix), before, strict=True
    ):
        torch.testing.assert_close(part.detach(), old, rtol=0, atol=0)


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return out


def test_no_persons_gradient_is_ever_formed():
    batch = 50
    width = 40
    hidden = 30
    layers, real, fake, mix = make((width, hidden, 1), batch=batch)
    with Largest() as largest:
        clipped_gradient_sum(layers, real, fake, mix, clip_norm=1.0, penalty=10.0)
    assert largest.numel <= 3 * batch * width < batch * width * hidden
