"""Wake and sleep: the gradient is the likelihood's, dreams follow the decoder's odds,
and the encoder learns them.
"""

import pytest
import torch

from understudy.ground.errors import ConfigError
from understudy.models.nets.wae import (
    TableWae,
    adam,
    cut,
    decoder_size,
    dream,
    encoder_size,
    first_model,
    sleep,
    wake,
)
from understudy.privacy.noise.rng import FastRng

NETWORK = TableWae((2, 3, 1, 4), hidden=5, latent=2)  # slots: 1 + 3 + 1 + 4


def rows(clients: int, each: int) -> torch.Tensor:
    decoder = NETWORK.decoder(NETWORK.init(FastRng(1)))
    points = torch.randn(clients * each, 2, generator=torch.Generator().manual_seed(0))
    return dream(decoder, points, FastRng(2)).view(clients, each, -1)


def test_the_wake_gradient_is_that_of_the_likelihood_at_the_guessed_latents() -> None:
    x = rows(4, 3)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()
    model = first_model(NETWORK, FastRng(3))
    found = wake(NETWORK, model, x, mask, FastRng(4))
    z = NETWORK.encode(model[None, :-2], x.view(1, 12, -1)).view(4, 3, 2)
    z = z + model[-2:] * FastRng(4).normal(4, 3, 2)
    for client in range(4):
        whole = model[:-2].clone().requires_grad_()
        off = NETWORK.distance(
            NETWORK.decode(whole[None], z[client][None]), x[client][None]
        )[0]
        loss = (
            NETWORK.width * (off * mask[client]).sum() / max(1, int(mask[client].sum()))
        )
        (expected,) = torch.autograd.grad(loss, whole)
        torch.testing.assert_close(found[client], -expected[encoder_size(NETWORK) :])
    assert not found[3].any(), "without rows there is nothing to say"


def test_a_gradient_depends_on_the_clients_own_rows_alone() -> None:
    x = rows(3, 2)
    mask = torch.ones(3, 2, dtype=torch.bool)
    model = first_model(NETWORK, FastRng(3))
    other = x.clone()
    other[0] = x[1]
    one, two = (wake(NETWORK, model, data, mask, FastRng(4)) for data in (x, other))
    assert torch.equal(one[1:], two[1:])
    assert not torch.equal(one[0], two[0])
    masked = x.clone()
    masked[:, 1] = torch.nan
    half = torch.tensor([[True, False]] * 3)
    assert wake(NETWORK, model, masked, half, FastRng(4)).isfinite().all()


def test_a_dream_has_one_level_in_each_column_and_follows_the_odds() -> None:
    decoder = NETWORK.decoder(NETWORK.init(FastRng(5)))
    z = torch.tensor([[0.7, -1.2]]).expand(40_000, -1)
    slots = dream(decoder, z, FastRng(6))
    assert set(slots.unique().tolist()) == {0.0, 1.0}
    assert (slots[:, 1:4].sum(1) == 1).all()
    assert (slots[:, 5:].sum(1) == 1).all()
    assert not slots[:, 4].any(), "a column of one level has the code 0"
    odds = decoder.rows(z[:1])[0].detach()
    shares = torch.cat([part / part.sum() for part in odds.split([2, 3, 1, 4])])
    found = slots.mean(0)
    torch.testing.assert_close(found[0], shares[1], atol=0.01, rtol=0)
    torch.testing.assert_close(found[1:4], shares[2:5], atol=0.01, rtol=0)
    torch.testing.assert_close(found[5:], shares[6:], atol=0.01, rtol=0)


def test_sleep_teaches_the_encoder_what_can_be_told_and_the_spread_is_the_rest():
    network = TableWae((2,) * 40, hidden=16, latent=2)
    model = first_model(network, FastRng(0))
    _, decoder, _ = cut(network, model)
    decoder.mul_(6)  # rows that tell much of z
    moments = torch.zeros(2, encoder_size(network))
    taught = sleep(
        network,
        model,
        moments,
        FastRng(1),
        steps_before=0,
        steps=300,
        batch=128,
        rate=0.01,
    )
    encoder, same, spread = cut(network, taught)
    assert torch.equal(same, decoder), "the decoder does not learn from its own dreams"
    z = FastRng(2).normal(4000, 2)
    x = dream(network.decoder(model[:-2]), z, FastRng(3))
    guess = network.encode(taught[None, :-2], x[None])[0]
    missed = (guess - z).square().mean(0).sqrt()
    assert missed.max() < 0.8
    torch.testing.assert_close(spread, missed, atol=0.1, rtol=0)
    assert not torch.equal(encoder, cut(network, model)[0])


def test_adam_is_torchs_adam() -> None:
    ours = torch.ones(6)
    theirs = torch.ones(6, requires_grad=True)
    moments = torch.zeros(2, 6)
    optimizer = torch.optim.Adam([theirs], lr=0.1)
    for step in range(1, 8):
        gradient = torch.randn(6, generator=torch.Generator().manual_seed(step))
        theirs.grad = gradient.clone()
        optimizer.step()
        ours -= 0.1 * adam(moments, gradient, step)
    torch.testing.assert_close(ours, theirs.detach())


def test_the_parts_of_a_model_are_all_of_it() -> None:
    model = first_model(NETWORK, FastRng(0))
    assert sum(map(len, cut(NETWORK, model))) == len(model)
    with pytest.raises(ConfigError, match="has 133 numbers, not"):
        cut(NETWORK, model[1:])
    assert decoder_size(NETWORK) == sum(
        p.numel() for p in NETWORK.decoder(model[:-2]).parameters()
    )
