"""The autoencoders of a cohort: what one client at a time would compute with `torch.nn`
and `torch.optim`.
"""

import pytest
import torch
from scripted import Scripted, autoencoder_updates, mmd
from torch import Tensor, nn
from torch.nn import functional

from understudy.ground.errors import ConfigError
from understudy.models.nets.autoencoder import Autoencoder, fit
from understudy.models.nets.wae import (
    ImageDecoder,
    ImageWae,
    TableDecoder,
    TableWae,
    paper_sizes,
)
from understudy.privacy.noise.rng import FastRng

TABLE = TableWae(sizes=(2, 3, 2, 1, 5), hidden=6, latent=3)
IMAGE = ImageWae(height=8, width=8, channels=2, latent=3)


def modules(network: Autoencoder) -> nn.ModuleList:
    """The network as anybody would write it."""
    if isinstance(network, TableWae):
        w = network.width
        h = network.hidden
        z = network.latent
        encoder = nn.Sequential(nn.Linear(w, h), nn.ReLU(), nn.Linear(h, z))
        return nn.ModuleList(
            [encoder, nn.Sequential(nn.Linear(z, h), nn.ReLU(), nn.Linear(h, w))]
        )
    assert isinstance(network, ImageWae)
    c = network.channels
    z = network.latent
    side = network.height // 4
    inner = 2 * c * side * side
    encoder = nn.Sequential(
        nn.Unflatten(1, (1, 4 * side)),
        nn.Conv2d(1, c, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(c, 2 * c, 4, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(inner, z),
    )
    decoder = nn.Sequential(
        nn.Linear(z, inner),
        nn.ReLU(),
        nn.Unflatten(1, (2 * c, side, side)),
        nn.ConvTranspose2d(2 * c, c, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(c, 1, 4, 2, 1),
        nn.Flatten(1, 2),
    )
    return nn.ModuleList([encoder, decoder])


def alone(
    network: Autoencoder,
    params: Tensor,
    x: Tensor,
    prior: Tensor,
    lr: float,
    penalty: float,
) -> Tensor:
    """One client, one epoch after another."""
    both = modules(network).to(params.dtype)
    nn.utils.vector_to_parameters(params.clone(), both.parameters())
    adam = torch.optim.Adam(both.parameters(), lr=lr)
    for points in prior:
        z = both[0](x)
        out = both[1](z)
        if isinstance(network, TableWae):
            loss = functional.binary_cross_entropy_with_logits(out, x)
        else:
            loss = functional.mse_loss(out.sigmoid(), x)
        adam.zero_grad()
        (loss + penalty * mmd(z[None], points[None])[0]).backward()
        adam.step()
    return nn.utils.parameters_to_vector(both.parameters()).detach() - params


def cohort(
    network: Autoencoder, clients: int, rows: int, epochs: int
) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    x = torch.rand(clients, rows, *network.row_shape, dtype=torch.float64)
    if isinstance(network, TableWae):
        x = (x < 0.3).double()
    params = network.init(FastRng(2), dtype=torch.float64)
    return (
        params,
        x,
        torch.randn(clients, epochs, rows, network.latent, dtype=torch.float64),
    )


@pytest.mark.parametrize("network", [TABLE, IMAGE], ids=lambda network: network.kind)
@pytest.mark.parametrize("penalty", [1.0, 0.3])
def test_a_cohorts_updates_are_those_of_one_client_at_a_time(
    network: Autoencoder, penalty: float
) -> None:
    sizes = [3, 1, 0, 2, 3]
    params, x, prior = cohort(network, len(sizes), 3, epochs=4)
    mask = torch.arange(3) < torch.tensor(sizes)[:, None]
    x[~mask] = torch.nan  # what a masked row holds must not matter
    updates = autoencoder_updates(
        network,
        params,
        x,
        mask,
        Scripted(prior),
        epochs=4,
        lr=0.01,
        penalty=penalty,
        chunk=2,
    )
    for client, size in enumerate(sizes):
        wanted = torch.zeros_like(params)
        if size:
            wanted = alone(
                network,
                params,
                x[client, :size],
                prior[client, :, :size],
                0.01,
                penalty,
            )
        torch.testing.assert_close(updates[client], wanted, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("network", [TABLE, IMAGE], ids=lambda network: network.kind)
def test_the_gradient_is_the_numerical_one(network: Autoencoder) -> None:
    params, x, prior = cohort(network, 1, 2, epochs=1)
    real = torch.ones(1, 2, dtype=torch.float64)
    local = params[None].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(
        network.loss(local, x, real, prior[:, 0]).sum(), local
    )
    for place in torch.randperm(
        network.size, generator=torch.Generator().manual_seed(0)
    )[:20].tolist():
        moved = [params[None].clone() for _ in range(2)]
        moved[0][0, place] += 1e-6
        moved[1][0, place] -= 1e-6
        up, down = (network.loss(local, x, real, prior[:, 0]) for local in moved)
        assert float((up - down) / 2e-6) == pytest.approx(
            float(gradient[0, place]), abs=1e-7
        )


def test_written_out_by_hand_adam_does_what_the_tape_would() -> None:
    params, x, prior = cohort(TABLE, 6, 4, epochs=5)
    mask = torch.arange(4) < torch.tensor([4, 2, 1, 0, 3, 4])[:, None]
    by_hand = autoencoder_updates(
        TABLE, params, x, mask, Scripted(prior), epochs=5, lr=0.01
    )
    taped = torch.empty_like(by_hand)
    batch = (x.where(mask[..., None], 0), mask.double(), prior)
    Autoencoder.train(TABLE, "adam", params, batch, taped, 5, 0.01, 1.0)
    torch.testing.assert_close(by_hand, taped, atol=1e-9, rtol=1e-6)


def test_weights_of_slots_that_no_row_of_a_client_fills_do_not_move() -> None:
    params, x, prior = cohort(TABLE, 3, 2, epochs=3)
    updates = autoencoder_updates(
        TABLE, params, x, torch.ones(3, 2).bool(), Scripted(prior), epochs=3, lr=0.1
    )
    moved = TABLE.views(updates)["encoder1.weight"].any(1)
    assert not moved[~x.any(1)].any()
    assert moved[x.any(1)].any()


@pytest.mark.parametrize(
    ("sizes", "width", "layers", "printed"),
    [
        ((2,) * 124, 124, (64, 16), 16_060),  # Adult
        ((2,) * 101, 101, (64, 16), 13_093),  # Vehicle
        # Census has 68 columns and a domain of 2¹⁵⁰ rows. Twitter has 78, most in five
        # bins: its rows are shorter, its domain is larger.
        ((2,) * 22 + (5,) * 34 + (17,) * 12, 396, (96, 24), 76_524),
        ((2,) * 6 + (5,) * 71 + (8,), 369, (128, 36), 94_961),
    ],
)
def test_the_sizes_are_those_of_table_4_3_but_for_the_latent_layers(
    sizes: tuple[int, ...], width: int, layers: tuple[int, int], printed: int
) -> None:
    hidden, latent = paper_sizes(sizes)
    network = TableWae(sizes, hidden, latent)
    assert (network.width, (hidden, latent)) == (width, layers)
    assert network.size - 2 * hidden * latent - hidden - latent == printed


def test_a_decoder_gives_the_odds_of_every_level() -> None:
    params = TABLE.init(FastRng(3))
    decoder = TABLE.decoder(params)
    z = torch.randn(7, 3)
    p = TABLE.decode(params[None], z[None])[0].sigmoid()
    rows = decoder.rows(z)
    assert rows.shape == (7, 13)
    one = torch.ones(7, 1)
    wanted = [
        1 - p[:, :1],
        p[:, :1],
        p[:, 1:4],
        1 - p[:, 4:5],
        p[:, 4:5],
        one,
        p[:, 6:],
    ]
    torch.testing.assert_close(rows, torch.cat(wanted, 1))
    torch.testing.assert_close(
        IMAGE.decoder(params := IMAGE.init(FastRng(3))).rows(z),
        IMAGE.decode(params[None], z[None])[0].sigmoid(),
    )


@pytest.mark.parametrize("network", [TABLE, IMAGE], ids=lambda network: network.kind)
def test_networks_and_decoders_are_rebuilt_from_their_descriptions(
    network: TableWae | ImageWae,
) -> None:
    assert type(network).from_description(network.describe()) == network
    params = network.init(FastRng(0))
    decoder = network.decoder(params)
    again = type(decoder).from_description(decoder.describe())
    again.load_state_dict(decoder.state_dict())
    assert torch.equal(again.rows(torch.ones(2, 3)), decoder.rows(torch.ones(2, 3)))


def test_fit_learns_two_kinds_of_rows() -> None:
    kinds = torch.tensor(
        [[1, 1, 0, 0, 0, 1, 0, 0, 0, 0.0], [0, 0, 0, 1, 1, 0, 0, 0, 0, 1]]
    )
    rows = kinds.repeat(100, 1)
    network = TableWae((2, 3, 2, 5), 16, 2)
    rng = FastRng(1)
    trained = fit(network, network.init(rng), rows, rng, steps=100, batch=32, lr=0.02)
    drawn = network.decoder(trained)(
        torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    ).round()
    near = [(drawn == kind).all(1).double().mean() for kind in kinds]
    assert sum(near) > 0.7
    assert min(near) > 0.2


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: TableWae((2, 0), 3, 3), "sizes must be a whole number"),
        (lambda: ImageWae(height=30), "sides that 4 divides"),
        (
            lambda: TableDecoder.from_description(
                {"kind": "decoder-table", "sizes": [2]}
            ),
            "describes no decoder-table",
        ),
        (lambda: TableDecoder((2, 3), 1 << 20, 1 << 10), "is larger than"),
        (lambda: ImageDecoder(1 << 12, 1 << 12, 64, 64), "is larger than"),
        (
            lambda: TableWae.from_description({"kind": "wae-image"}),
            "describes no wae-table",
        ),
        (
            lambda: TableWae.from_description({"kind": "wae-table", "sizes": [2]}),
            "is described by",
        ),
        (
            lambda: autoencoder_updates(
                TABLE,
                torch.zeros(TABLE.size),
                torch.zeros(2, 3, 4),
                torch.ones(2, 3).bool(),
                FastRng(0),
                epochs=1,
                lr=0.1,
            ),
            "x must be",
        ),
    ],
)
def test_what_does_not_fit_is_refused(build: object, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        build()  # type: ignore[operator]
    assert words in str(error.value)


def test_a_column_whose_every_level_has_vanishing_odds_can_still_be_drawn() -> None:
    decoder = TableDecoder(sizes=(3, 2, 1), hidden=2, latent=2)
    with torch.no_grad():
        decoder.layers[2].weight.zero_()
        decoder.layers[2].bias.copy_(
            torch.tensor([-300.0, -301.0, -400.0, -500.0, 0.0])
        )
    odds = decoder.rows(torch.zeros(1, 2))[0]
    assert torch.allclose(
        odds[:3] / odds[:3].sum(), torch.tensor([-300.0, -301.0, -400.0]).softmax(0)
    )
    assert odds[3] == 1
    assert odds[4] == 0
    assert odds[5] == 1
