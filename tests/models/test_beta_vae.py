"""β-VAEs of several classes at once, and the decoders cut from them."""

import math
from copy import copy

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from understudy.ground.errors import ConfigError
from understudy.models.nets.beta_vae import (
    BetaVae,
    ClassDecoder,
    ClassImageDecoder,
    ImageVae,
    TableVae,
)
from understudy.models.nets.tapped import Taps
from understudy.models.plan import Pool
from understudy.privacy.gradients.dp_sgd import clipped_sums
from understudy.privacy.noise.rng import FastRng

SIZES = (3, 2, 4)
LATENT = 2


def table_vae() -> tuple[BetaVae, Tensor]:
    rng = torch.Generator().manual_seed(1)
    codes = torch.stack(
        [torch.randint(size, (2, 6), generator=rng) for size in SIZES], 2
    )
    rows = [
        functional.one_hot(codes[..., column], size)
        for column, size in enumerate(SIZES)
    ]
    return TableVae(2, SIZES, LATENT, seed=3), torch.cat(rows, 2).float()


def image_vae() -> tuple[BetaVae, Tensor]:
    images = torch.rand(2, 6, 9, 6, generator=torch.Generator().manual_seed(1))
    return ImageVae(2, (9, 6), LATENT, channels=(2, 3), seed=3), images


both = pytest.mark.parametrize("build", [table_vae, image_vae])


@both
def test_the_clipped_sum_equals_per_sample_gradients_by_vmap(build) -> None:  # type: ignore[no-untyped-def]
    vae, x = build()
    noise = FastRng(2).normal(2, 6, LATENT)
    taps = Taps()
    sums = clipped_sums(vae.losses(x, noise, 0.7, taps), taps, clip_norm=0.4)

    def loss(parameters: list[Tensor], row: Tensor, drawn: Tensor) -> Tensor:
        one = copy(vae)
        one.parameters = [parameter[None] for parameter in parameters]
        with torch.enable_grad():
            return one.losses(row[None, None], drawn[None, None], 0.7, _Plain()).sum()

    per_sample = vmap(vmap(grad(loss), (None, 0, 0)))(vae.parameters, x, noise)
    square = sum(part.flatten(2).square().sum(2) for part in per_sample)
    weight = (0.4 / square.sqrt()).clamp(max=1)
    assert float(weight.min()) < 1
    for ours, part in zip(sums, per_sample, strict=True):
        theirs = (part * weight.view(2, 6, *(1,) * (part.ndim - 2))).sum(1)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


class _Plain(Taps):
    """Taps that record nothing, for a function that is transformed."""

    def _tap(self, inputs: Tensor | None, outputs: Tensor) -> Tensor:
        return outputs


def test_the_loss_of_a_table_is_its_cross_entropy_and_its_divergence() -> None:
    vae, x = table_vae()
    taps = Taps()
    noise = FastRng(2).normal(2, 6, LATENT)
    losses = vae.losses(x, noise, 2.0, taps)
    mean, log_variance = vae.encode(x, Taps()).chunk(2, 2)
    logits = vae.decode(mean + (log_variance / 2).exp() * noise, Taps())
    odds = [part.log_softmax(2) for part in logits.split(SIZES, 2)]
    surprise = -(torch.cat(odds, 2) * x).sum(2)
    normal = torch.distributions.Normal(mean, (log_variance / 2).exp())
    divergence = torch.distributions.kl_divergence(
        normal, torch.distributions.Normal(0, 1)
    ).sum(2)
    torch.testing.assert_close(losses, surprise + 2.0 * divergence)


def test_a_decoder_draws_what_its_class_has_learned() -> None:
    vae, _ = table_vae()
    z = FastRng(5).normal(7, LATENT)
    logits = vae.decode(z.expand(2, -1, -1), Taps())[1]
    odds = [part.softmax(1) for part in logits.split(SIZES, 1)]
    rows = vae.decoder(1, 2, 2).rows(z)  # type: ignore[attr-defined]
    label = torch.tensor([[0.0, 1.0]]).expand(7, -1)
    torch.testing.assert_close(rows, torch.cat([odds[0], odds[1], label, odds[2]], 1))


def test_a_decoder_of_images_draws_what_its_class_has_learned() -> None:
    vae, _ = image_vae()
    z = FastRng(5).normal(7, LATENT)
    images = vae.decode(z.expand(2, -1, -1), Taps())[1].sigmoid()
    torch.testing.assert_close(vae.decoder(1).rows(z), images)  # type: ignore[attr-defined]
    assert images.shape == (7, 9, 6)


def test_the_papers_images_go_28_14_7_4_and_back() -> None:
    vae = ImageVae(1, (28, 28), 3, channels=(2, 3, 4))
    assert vae.sides == [(28, 28), (14, 14), (7, 7), (4, 4)]
    assert vae.decode(torch.zeros(1, 5, 3), Taps()).shape == (1, 5, 28, 28)


@both
def test_a_description_rebuilds_the_decoder(build) -> None:  # type: ignore[no-untyped-def]
    vae, _ = build()
    one = vae.decoder(0, 1, 2) if isinstance(vae, TableVae) else vae.decoder(0)
    other = type(one).from_description(one.describe())
    other.load_state_dict(one.state_dict())
    z = FastRng(0).normal(3, LATENT)
    assert torch.equal(one.rows(z), other.rows(z))


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "mixture"},
        {"label": [9, 0]},
        {"label": [0, 3]},
        {"label": [True, 0]},
        {"label": [0]},
        {"sizes": [3]},
        {"sizes": 3},
        {"latent": 0},
        {"hidden": [1 << 20, 1 << 20]},
        {"hidden": ["64"]},
    ],
)
def test_a_description_of_anything_else_is_refused(changes: dict[str, object]) -> None:
    said = ClassDecoder(2, (4,), SIZES, (1, 0)).describe()
    with pytest.raises(ConfigError):
        ClassDecoder.from_description(said | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "class-decoder"},
        {"shape": [28]},
        {"channels": [0]},
        {"channels": [1 << 15, 1 << 15]},
    ],
)
def test_a_description_of_other_images_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ClassImageDecoder.from_description(
            ClassImageDecoder(2, (4,), (8, 8)).describe() | changes
        )


def test_a_pool_draws_each_member_by_its_share() -> None:
    members = [ClassDecoder(2, (4,), SIZES, (1, level)) for level in (0, 1, 1)]
    pool = Pool(members, [2.0, 1.0, 1.0])
    z = FastRng(0).normal(40_000, pool.latent)
    picked = torch.bincount(pool.pick(z), minlength=3) / len(z)
    assert picked.tolist() == pytest.approx(
        [0.5, 0.25, 0.25], abs=4 * math.sqrt(0.25 / 40_000)
    )
    rows = pool.rows(z[:100])
    for row, point, place in zip(rows, z[:100], pool.pick(z[:100]), strict=True):
        torch.testing.assert_close(row, members[int(place)].rows(point[None, 1:])[0])


def test_a_pool_is_rebuilt_from_its_description() -> None:
    pool = Pool(
        [ClassDecoder(2, (4,), SIZES, (1, 0)), ClassDecoder(3, (5,), SIZES, (1, 1))],
        [1, 3],
    )
    again = Pool.from_description(pool.describe())
    again.load_state_dict(pool.state_dict())
    z = FastRng(0).normal(9, pool.latent)
    assert torch.equal(pool.rows(z), again.rows(z))
    for strange in (
        {"kind": "class-decoder"},
        {"members": [{"kind": "pool"}]},
        {"shares": [1]},
        {"shares": [1, 0]},
    ):
        with pytest.raises(ConfigError):
            Pool.from_description(pool.describe() | strange)
