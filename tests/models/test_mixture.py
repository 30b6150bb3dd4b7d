import json

import numpy as np
import pytest
import torch

from understudy.data.codec import Codec
from understudy.data.schema import Categorical, Schema
from understudy.errors import ConfigError
from understudy.generator import Generator
from understudy.models.mixture import MixtureOfProducts

SIZES = (2, 3, 4)


@pytest.fixture
def mixture() -> MixtureOfProducts:
    mixture = MixtureOfProducts(SIZES, 5)
    with torch.no_grad():
        mixture.logits.copy_(2 * torch.randn(5, 9, generator=torch.Generator().manual_seed(0)))
    return mixture.requires_grad_(False)


def test_gram_is_the_sum_over_components_and_cells(mixture: MixtureOfProducts) -> None:
    expected = torch.zeros(9, 9)
    for odds in mixture.odds():
        parts = odds.split(SIZES)
        for i, a in enumerate(parts):
            for j, b in enumerate(parts):
                cells = torch.outer(a, b) if i != j else a.diag()
                expected[sum(SIZES[:i]) :, sum(SIZES[:j]) :][: len(a), : len(b)] += cells / 5
    torch.testing.assert_close(mixture.gram(), expected)


def test_every_component_is_picked_equally_often(mixture: MixtureOfProducts) -> None:
    uniform = (torch.arange(1_000, dtype=torch.float64) + 0.5) / 1_000
    rows = mixture.rows(torch.special.ndtri(uniform)[:, None].float())
    torch.testing.assert_close(rows, mixture.odds().repeat_interleave(200, 0))


def test_latents_far_out_pick_the_first_and_last_component(mixture: MixtureOfProducts) -> None:
    rows = mixture.rows(torch.tensor([[-40.0], [40.0]]))
    torch.testing.assert_close(rows, mixture.odds()[[0, -1]])


def test_rows_drawn_through_a_generator_have_the_mixtures_gram(mixture: MixtureOfProducts) -> None:
    columns = [Categorical(name=f"c{size}", categories=tuple("abcd"[:size])) for size in SIZES]
    schema, n = Schema(columns=tuple(columns)), 40_000
    rows = Codec(schema).encode(Generator(mixture, schema, {}).sample(n, seed=1))
    truth = mixture.gram()
    spread = (truth * (1 - truth) / n).sqrt()
    assert ((rows.T @ rows / n - truth).abs() <= 5 * spread + 1e-9).all()


def test_a_description_rebuilds_the_same_network(mixture: MixtureOfProducts) -> None:
    again = MixtureOfProducts.from_description(json.loads(json.dumps(mixture.describe())))
    again.load_state_dict(mixture.state_dict())
    z = torch.randn(20, mixture.latent)
    assert torch.equal(again.rows(z), mixture.rows(z))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "branched"},
        {"sizes": "234"},
        {"sizes": [2, 0]},
        {"sizes": [2, 1.5]},
        {"sizes": []},
        {"components": True},
        {"components": 1 << 21},
        {"components": 1 << 18, "sizes": [1 << 12]},
    ],
)
def test_a_description_of_something_else_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        MixtureOfProducts.from_description({"kind": "mixture", "components": 5, "sizes": [2, 3], **change})


def test_a_description_without_a_part_is_refused() -> None:
    with pytest.raises(ConfigError, match="components"):
        MixtureOfProducts.from_description({"kind": "mixture", "sizes": [2, 3]})


def test_odds_sum_to_one_in_every_column(mixture: MixtureOfProducts) -> None:
    for part in mixture.odds().split(SIZES, 1):
        np.testing.assert_allclose(part.sum(1), 1, rtol=1e-6)
