import json

import pytest
import torch

from understudy.ground.errors import ConfigError
from understudy.models.nets import gan
from understudy.models.nets.gan import (
    BlockSoftmax,
    BranchedGenerator,
    Critic,
    critic_hidden,
)

# Table 2: one-hot dimension and parameters of each party's critic, parameters of the
# generator.
TABLE_2 = {
    "Census": ((137, 9_592), (145, 10_732), 53_760),
    "Twitter": ((195, 19_307), (174, 15_313), 94_768),
    "Web": ((124, 7_813), (123, 7_751), 39_416),
    "Vehicle": ((100, 5_101), (102, 5_305), 26_857),
    "HAR": ((562, 158_485), (566, 160_745), 812_949),
    "Dilbert": ((1_500, 788_551), (1_505, 794_190), 2_681_446),
}
BLOCKS = {"clinic": (2, 3, 2, 5), "insurer": (4, 4)}


def parameters(network: torch.nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


@pytest.fixture
def generator() -> BranchedGenerator:
    torch.manual_seed(0)
    return BranchedGenerator(
        6, (8, 7), {name: ((5,), blocks) for name, blocks in BLOCKS.items()}
    )


@pytest.mark.parametrize("dataset", TABLE_2)
def test_critics_have_exactly_the_parameters_of_table_2(dataset):
    for width, count in TABLE_2[dataset][:2]:
        assert parameters(Critic(width)) == count


@pytest.mark.parametrize("dataset", TABLE_2)
def test_generators_have_nearly_the_parameters_of_table_2(dataset):
    (one, _), (two, _), count = TABLE_2[dataset]
    network = BranchedGenerator.for_parties({"1": (one,), "2": (two,)})
    assert parameters(network) == pytest.approx(count, rel=0.014)


def test_the_critic_shrinks_only_where_the_paper_did():
    assert [critic_hidden(w) for w in (1, 2, 137, 562, 1500)] == [1, 1, 69, 281, 525]


@pytest.mark.parametrize(
    "blocks", [(3,), (2, 2, 2), (2, 3, 2, 5, 3), (1, 4, 1), tuple(range(1, 20)) * 3]
)
def test_the_block_softmax_is_a_softmax_in_each_block(blocks):
    logits = torch.randn(7, sum(blocks), dtype=torch.float64) * 5
    expected = torch.cat([part.softmax(1) for part in logits.split(blocks, 1)], 1)
    torch.testing.assert_close(
        BlockSoftmax(blocks)(logits), expected, rtol=1e-12, atol=0
    )


def test_the_block_softmax_survives_large_logits():
    rows = BlockSoftmax((2, 3))(torch.tensor([[1e4, -1e4, 3e4, 3e4, 0.0]]))
    torch.testing.assert_close(rows, torch.tensor([[1.0, 0.0, 0.5, 0.5, 0.0]]))


def test_the_gradient_passes_through_the_block_softmax():
    softmax = BlockSoftmax((2, 3, 2, 1))
    assert torch.autograd.gradcheck(
        softmax, torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    )


def test_every_attribute_of_a_generated_row_is_a_distribution(generator):
    rows = generator(torch.randn(9, 6))
    assert {name: part.shape for name, part in rows.items()} == {
        "clinic": (9, 12),
        "insurer": (9, 8),
    }
    for name, blocks in BLOCKS.items():
        for part in rows[name].split(blocks, 1):
            torch.testing.assert_close(part.sum(1), torch.ones(9))


def test_a_branch_alone_gives_what_the_whole_gives(generator):
    z = torch.randn(4, 6)
    whole = generator(z)
    for name in BLOCKS:
        torch.testing.assert_close(generator.branch(name, z), whole[name])
    torch.testing.assert_close(
        generator.rows(z), torch.cat([whole["clinic"], whole["insurer"]], 1)
    )


def test_aligned_layers_give_what_plain_ones_give(generator, monkeypatch):
    z = torch.randn(5, generator.latent)
    plain = generator.rows(z)
    plain.square().sum().backward()
    slopes = [parameter.grad for parameter in generator.parameters()]
    generator.zero_grad()
    monkeypatch.setattr(gan, "pays", lambda weight: True)
    rows = generator.rows(z)
    rows.square().sum().backward()
    torch.testing.assert_close(rows, plain)
    torch.testing.assert_close(
        [parameter.grad for parameter in generator.parameters()], slopes
    )


def test_a_description_survives_json_and_rebuilds_the_network(generator):
    description = json.loads(json.dumps(generator.describe(), sort_keys=True))
    again = BranchedGenerator.from_description(description)
    again.load_state_dict(generator.state_dict())
    z = torch.randn(3, 6)
    torch.testing.assert_close(again.rows(z), generator.rows(z))
    assert again.describe() == generator.describe()


def test_a_party_downloads_the_common_layers_and_its_branch_alone(generator):
    mine = generator.party_parameters("insurer")
    local = BranchedGenerator.from_description(generator.describe(only="insurer"))
    assert list(mine) == [name for name, _ in local.named_parameters()]
    assert local.widths == {"insurer": 8}
    local.load_state_dict({name: value.detach() for name, value in mine.items()})
    z = torch.randn(5, 6)
    torch.testing.assert_close(local.rows(z), generator.branch("insurer", z))
    everyones = {id(p) for p in generator.parameters()}
    others = {id(p) for p in generator.branches[0].parameters()}
    assert {id(p) for p in mine.values()} == everyones - others


def test_party_names_need_not_be_identifiers():
    network = BranchedGenerator(
        2, (3,), {"St. Mary's": ((2,), (2,)), "keys": ((2,), (3,)), "": ((), (1,))}
    )
    assert network.widths == {"St. Mary's": 2, "keys": 3, "": 1}
    assert network.branch("St. Mary's", torch.zeros(1, 2)).shape == (1, 2)


def test_layers_may_be_left_out():
    network = BranchedGenerator(3, (), {"one": ((), (2, 2))})
    assert parameters(network) == 3 * 4 + 4
    linear = network.branches[0][0]
    expected = BlockSoftmax((2, 2))(linear(torch.ones(2, 3)))
    torch.testing.assert_close(network.rows(torch.ones(2, 3)), expected)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"latent": 0},
        {"latent": 2.5},
        {"latent": "os.system"},
        {"latent": 10**12},
        {"common": [8, -1]},
        {"common": "88"},
        {"branches": []},
        {"branches": [{"party": "a", "hidden": [2]}]},
        {"branches": [{"party": "a", "hidden": [2], "blocks": []}]},
        {"branches": [{"party": "a", "hidden": [2], "blocks": [2, True]}]},
        {"branches": [{"party": "a", "hidden": [2], "blocks": [2]}] * 2},
        {"branches": None},
    ],
)
def test_a_description_that_is_no_generator_is_refused(generator, change):
    with pytest.raises(ConfigError):
        BranchedGenerator.from_description(generator.describe() | change)


def test_an_unknown_party_is_named_with_its_neighbour(generator):
    with pytest.raises(ConfigError, match='Did you mean "clinic"'):
        generator.branch("clinics", torch.zeros(1, 6))


def test_parties_without_columns_are_refused():
    with pytest.raises(ConfigError, match="column"):
        BranchedGenerator.for_parties({"a": (2, 2), "b": ()})


def test_the_critic_is_linear_at_its_output_and_leaky_inside():
    critic = Critic(3, (2, 2))
    for weight, bias in critic.layers:
        torch.nn.init.constant_(weight, -1.0)
        torch.nn.init.zeros_(bias)
    # −3 → leaky −0.6; two of them → 1.2; two of those → −2.4
    torch.testing.assert_close(critic(torch.ones(1, 3)), torch.tensor([-2.4]))
    assert [tuple(weight.shape) for weight, _ in critic.layers] == [
        (2, 3),
        (2, 2),
        (1, 2),
    ]


def test_a_critic_without_a_width_is_refused():
    with pytest.raises(ConfigError, match="width"):
        Critic(0)
