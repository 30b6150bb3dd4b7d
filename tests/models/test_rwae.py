"""The recurrent autoencoders of a cohort: what one client at a time would compute with
`torch.nn.LSTM`.
"""

import pytest
import torch
from scripted import Scripted, autoencoder_updates, mmd
from torch import Tensor, nn
from torch.nn import functional

from understudy.ground.errors import ConfigError
from understudy.models.kernels.lstm import Lstm, lstm
from understudy.models.nets.autoencoder import Rwae, SeriesDecoder
from understudy.privacy.noise.rng import FastRng

SMALL = Rwae(length=5, channels=3, hidden=4, latent=2)
# torch keeps the gates as i, f, g, o, and here they lie as o, i, f, g
ORDER = (1, 2, 3, 0)


def torch_order(weight: Tensor) -> Tensor:
    """(before, 4H) or (4H,) as `torch.nn.LSTM` keeps it."""
    gates = weight.chunk(4, dim=-1)
    return torch.cat([gates[k] for k in ORDER], dim=-1).transpose(0, -1)


class Plain(nn.Module):
    """The network as anybody would write it."""

    def __init__(self, network: Rwae, params: Tensor) -> None:
        super().__init__()
        length = network.length
        channels = network.channels
        hidden = network.hidden
        latent = network.latent
        self.length = length
        self.encoder = nn.LSTM(channels, hidden, batch_first=True)
        self.latent = nn.Linear(length * hidden, latent)
        self.dense = nn.Linear(latent, hidden)
        self.decoder = nn.LSTM(hidden, hidden, batch_first=True)
        self.output = nn.Linear(hidden, channels)
        self.to(params.dtype)
        values = network.views(params)
        with torch.no_grad():
            for name in ("encoder", "decoder"):
                layer = getattr(self, name)
                layer.weight_ih_l0.copy_(torch_order(values[f"{name}.input"]))
                layer.weight_hh_l0.copy_(torch_order(values[f"{name}.recurrent"]))
                layer.bias_ih_l0.copy_(torch_order(values[f"{name}.bias"]))
                # one bias, as Keras has it
                layer.bias_hh_l0.zero_().requires_grad_(False)
            for name in ("latent", "dense", "output"):
                layer = getattr(self, name)
                layer.weight.copy_(values[f"{name}.weight"].T)
                layer.bias.copy_(values[f"{name}.bias"])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.latent(self.encoder(x)[0].flatten(1))
        first = self.dense(z).relu()[:, None].expand(-1, self.length, -1)
        return z, self.output(self.decoder(first)[0]).sigmoid()


def alone(
    network: Rwae, params: Tensor, x: Tensor, prior: Tensor, lr: float, penalty: float
) -> Plain:
    """One client, one epoch after another."""
    plain = Plain(network, params)
    adam = torch.optim.Adam([p for p in plain.parameters() if p.requires_grad], lr=lr)
    for points in prior:
        z, made = plain(x)
        adam.zero_grad()
        (
            functional.mse_loss(made, x) + penalty * mmd(z[None], points[None])[0]
        ).backward()
        adam.step()
    return plain


def cohort(clients: int, rows: int, epochs: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    params = SMALL.init(FastRng(2), dtype=torch.float64)
    params += 0.1 * torch.randn_like(params)
    x = torch.rand(clients, rows, *SMALL.row_shape, dtype=torch.float64)
    return (
        params,
        x,
        torch.randn(clients, epochs, rows, SMALL.latent, dtype=torch.float64),
    )


@pytest.mark.parametrize(
    ("length", "channels", "size"),
    [(30, 5, 29_269), (24, 6, 26_358), (24, 13, 27_485), (24, 27, 29_739)],
)
def test_the_paper_counts_the_same_parameters(
    length: int, channels: int, size: int
) -> None:
    assert Rwae(length, channels).size == size  # Table 5.2; of Energy it prints 29,729


@pytest.mark.parametrize("penalty", [1.0, 0.3])
def test_a_cohorts_updates_are_those_of_one_client_at_a_time(penalty: float) -> None:
    sizes = [3, 1, 0, 2, 3]
    params, x, prior = cohort(len(sizes), 3, epochs=4)
    mask = torch.arange(3) < torch.tensor(sizes)[:, None]
    x[~mask] = torch.nan  # what a masked row holds must not matter
    updates = autoencoder_updates(
        SMALL,
        params,
        x,
        mask,
        Scripted(prior),
        epochs=4,
        lr=0.01,
        penalty=penalty,
        chunk=2,
    )
    assert not updates[2].any()
    for client, size in enumerate(sizes):
        if not size:
            continue
        plain = alone(
            SMALL, params, x[client, :size], prior[client, :, :size], 0.01, penalty
        )
        wanted = Plain(SMALL, params + updates[client])
        for (name, got), value in zip(
            wanted.named_parameters(), plain.parameters(), strict=True
        ):
            torch.testing.assert_close(
                got,
                value,
                atol=1e-9,
                rtol=1e-6,
                msg=lambda text, name=name: f"{name}: {text}",
            )


def test_gradient_descent_goes_through_autograd_to_the_same_first_step() -> None:
    params, x, prior = cohort(2, 3, epochs=1)
    mask = torch.ones(2, 3, dtype=torch.bool)
    by_sgd = autoencoder_updates(
        SMALL, params, x, mask, Scripted(prior), epochs=1, lr=1.0, optimizer="sgd"
    )
    by_adam = autoencoder_updates(
        SMALL, params, x, mask, Scripted(prior), epochs=1, lr=1e-3
    )
    moved = by_sgd.abs() > 1e-4
    # Adam's first step is the sign of the gradient
    assert torch.equal(by_sgd[moved].sign(), by_adam[moved].sign())
    real = torch.ones(2, 3, dtype=torch.float64)
    local = params.expand(2, -1).clone().requires_grad_()
    (gradient,) = torch.autograd.grad(
        SMALL.loss(local, x, real, prior[:, 0]).sum(), local
    )
    torch.testing.assert_close(by_sgd, -gradient)


def test_the_gradient_is_the_numerical_one() -> None:
    params, x, prior = cohort(1, 2, epochs=1)
    real = torch.ones(1, 2, dtype=torch.float64)
    local = params[None].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(
        SMALL.loss(local, x, real, prior[:, 0]).sum(), local
    )
    for place in torch.randperm(SMALL.size, generator=torch.Generator().manual_seed(0))[
        :20
    ].tolist():
        moved = [params[None].clone() for _ in range(2)]
        moved[0][0, place] += 1e-6
        moved[1][0, place] -= 1e-6
        up, down = (SMALL.loss(local, x, real, prior[:, 0]) for local in moved)
        assert float((up - down) / 2e-6) == pytest.approx(
            float(gradient[0, place]), abs=1e-7
        )


def test_a_client_whose_series_are_not_finite_spoils_its_own_update_alone() -> None:
    params, x, prior = cohort(3, 2, epochs=2)
    mask = torch.ones(3, 2, dtype=torch.bool)
    clean = autoencoder_updates(
        SMALL, params, x, mask, Scripted(prior), epochs=2, lr=0.01
    )
    x[1, 0, 0, 0] = torch.inf
    spoilt = autoencoder_updates(
        SMALL, params, x, mask, Scripted(prior), epochs=2, lr=0.01
    )
    assert torch.equal(clean[[0, 2]], spoilt[[0, 2]])
    assert not spoilt[1].isfinite().all()


def test_the_chunk_does_not_change_the_updates() -> None:
    params, x, prior = cohort(7, 3, epochs=2)
    mask = torch.ones(7, 3, dtype=torch.bool)
    whole, cut = (
        autoencoder_updates(
            SMALL, params, x, mask, Scripted(prior), epochs=2, lr=0.01, chunk=chunk
        )
        for chunk in (7, 3)
    )
    torch.testing.assert_close(whole, cut, atol=1e-12, rtol=0)


def test_the_layer_by_hand_is_the_plain_one_with_its_gradient() -> None:
    torch.manual_seed(3)
    projected = torch.randn(2, 6, 3, 16, dtype=torch.float64, requires_grad=True)
    recurrent = torch.randn(2, 4, 16, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 6, 3, 4, dtype=torch.float64)
    states = lstm(projected, recurrent, 6)
    wanted = torch.autograd.grad((states * weight).sum(), projected)[0]
    layer = Lstm.room(2, 6, 3, 4, projected.detach())
    for _ in range(2):  # buffers are used anew
        layer.gates.copy_(projected.detach())
        torch.testing.assert_close(layer.forward(recurrent.detach()), states.detach())
        torch.testing.assert_close(
            layer.backward(weight.clone(), recurrent.detach()), wanted
        )


def test_the_decoder_draws_what_the_network_decodes() -> None:
    params = SMALL.init(FastRng(5))
    decoder = SMALL.decoder(params)
    z = torch.randn(9, 2)
    series = decoder.rows(z)
    torch.testing.assert_close(series, SMALL.decode(params[None], z[None])[0].sigmoid())
    assert series.shape == (9, 5, 3)
    again = SeriesDecoder.from_description(decoder.describe())
    again.load_state_dict(decoder.state_dict())
    assert torch.equal(again.rows(z), series)


@pytest.mark.parametrize(
    "change", [{"length": 0}, {"hidden": 2.5}, {"surplus": 1}, {"hidden": 1 << 20}]
)
def test_a_description_that_cannot_be_built_is_refused(
    change: dict[str, object],
) -> None:
    with pytest.raises(ConfigError):
        SeriesDecoder.from_description(
            SMALL.decoder(SMALL.init(FastRng(0))).describe() | change
        )
