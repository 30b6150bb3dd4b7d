"""Branches that end in values: images by convolutions, series by linear layers; and the
critic of images.
"""

import json

import pytest
import torch

from understudy.ground.errors import ConfigError
from understudy.models.nets.gan import BranchedGenerator, ImageCritic, Values

OUTPUTS = {
    "table": (2, 3),
    "images": Values((6, 5), image=True),
    "series": Values((4, 2)),
}


@pytest.mark.parametrize("shape", [(28, 28), (8, 8), (6, 5), (1, 3)])
def test_images_of_any_size_come_out_of_the_branch_and_go_into_the_critic(
    shape: tuple[int, int],
) -> None:
    network = BranchedGenerator.for_parties(
        {"images": Values(shape, image=True)}, latent=7
    )
    rows = network.rows(torch.randn(3, 7)).detach()
    assert rows.shape == (3, shape[0] * shape[1])
    assert 0 <= float(rows.min()) <= float(rows.max()) <= 1
    assert ImageCritic(shape)(rows).shape == (3,)


def test_a_pixel_moves_the_score_wherever_it_stands() -> None:
    torch.manual_seed(0)
    critic = ImageCritic((6, 5))
    image = torch.rand(1, 30).requires_grad_()
    (slope,) = torch.autograd.grad(critic(image).sum(), image)
    assert bool((slope != 0).all())


def test_every_party_has_its_own_part_of_a_mixed_row() -> None:
    torch.manual_seed(0)
    network = BranchedGenerator.for_parties(OUTPUTS)
    z = torch.randn(4, network.latent)
    rows = network.rows(z)
    parts = network(z)
    assert network.widths == {"table": 5, "images": 30, "series": 8}
    torch.testing.assert_close(rows, torch.cat(list(parts.values()), 1))
    torch.testing.assert_close(network.branch("images", z), parts["images"])
    torch.testing.assert_close(parts["table"][:, :2].sum(1), torch.ones(4))


def test_a_mixed_network_is_rebuilt_from_its_description_whole_and_one_branch_alone():
    torch.manual_seed(0)
    network = BranchedGenerator.for_parties(OUTPUTS)
    z = torch.randn(4, network.latent)
    again = BranchedGenerator.from_description(
        json.loads(json.dumps(network.describe()))
    )
    again.load_state_dict(network.state_dict())
    torch.testing.assert_close(again.rows(z), network.rows(z))
    for name in OUTPUTS:
        alone = BranchedGenerator.from_description(network.describe(only=name))
        alone.load_state_dict(network.party_parameters(name))
        torch.testing.assert_close(alone.rows(z), network.branch(name, z))


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 4)])
def test_an_image_without_two_sides_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError):
        Values(shape, image=True)


def test_channels_that_are_not_two_layers_are_refused() -> None:
    with pytest.raises(ConfigError, match="two layers"):
        BranchedGenerator(4, (4,), {"images": ((8,), Values((8, 8), image=True))})
