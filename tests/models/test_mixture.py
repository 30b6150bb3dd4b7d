import json
from collections.abc import Callable

import numpy as np
import pytest
import torch

from understudy.data.encoding.codec import Codec
from understudy.data.schema import Categorical, Schema
from understudy.generators.generator import Generator
from understudy.ground.errors import ConfigError
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.privacy.noise.rng import FastRng

SIZES = (2, 3, 4)


@pytest.fixture
def mixture() -> MixtureOfProducts:
    mixture = MixtureOfProducts(SIZES, 5)
    with torch.no_grad():
        mixture.logits.copy_(
            2 * torch.randn(5, 9, generator=torch.Generator().manual_seed(0))
        )
    return mixture.requires_grad_(False)


def test_gram_is_the_sum_over_components_and_cells(mixture: MixtureOfProducts) -> None:
    expected = torch.zeros(9, 9)
    for odds in mixture.odds():
        parts = odds.split(SIZES)
        for i, a in enumerate(parts):
            for j, b in enumerate(parts):
                cells = torch.outer(a, b) if i != j else a.diag()
                expected[sum(SIZES[:i]) :, sum(SIZES[:j]) :][: len(a), : len(b)] += (
                    cells / 5
                )
    torch.testing.assert_close(mixture.gram(), expected)


def test_every_component_is_picked_equally_often(mixture: MixtureOfProducts) -> None:
    uniform = (torch.arange(1_000, dtype=torch.float64) + 0.5) / 1_000
    rows = mixture.rows(torch.special.ndtri(uniform)[:, None].float())
    torch.testing.assert_close(rows, mixture.odds().repeat_interleave(200, 0))


def test_latents_far_out_pick_the_first_and_last_component(
    mixture: MixtureOfProducts,
) -> None:
    rows = mixture.rows(torch.tensor([[-40.0], [40.0]]))
    torch.testing.assert_close(rows, mixture.odds()[[0, -1]])


def test_rows_drawn_through_a_generator_have_the_mixtures_gram(
    mixture: MixtureOfProducts,
) -> None:
    columns = [
        Categorical(name=f"c{size}", categories=tuple("abcd"[:size])) for size in SIZES
    ]
    schema = Schema(columns=tuple(columns))
    n = 40_000
    rows = Codec(schema).encode(Generator(mixture, schema, {}).sample(n, seed=1))
    truth = mixture.gram()
    spread = (truth * (1 - truth) / n).sqrt()
    assert ((rows.T @ rows / n - truth).abs() <= 5 * spread + 1e-9).all()


def uniform(seed: int) -> Callable[[int], torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return lambda n: torch.rand(n, generator=rng, dtype=torch.float64)


def test_every_single_row_has_the_mixtures_law(mixture: MixtureOfProducts) -> None:
    """All 24 cells of the joint table, over many draws of seven rows, which are in
    random order.
    """
    draw = uniform(0)
    n = 250 * 7
    rows = torch.cat([mixture.levels(7, draw) for _ in range(250)]).long()
    found = torch.bincount(rows @ torch.tensor([12, 4, 1]), minlength=24) / n
    cells = (
        torch.einsum(
            "ka,kb,kc->abc", *torch.split(mixture.odds(), list(SIZES), 1)
        ).flatten()
        / 5
    )
    assert ((found - cells).abs() <= 4 * (cells * (1 - cells) / n).sqrt()).all()


def test_rows_fall_on_all_components_and_quantiles_alike(
    mixture: MixtureOfProducts,
) -> None:
    """One-way tables are exact up to a person for each component and level."""
    levels = mixture.levels(1_000, uniform(1))
    for column, odds in zip(
        levels.T.long(), torch.split(mixture.odds(), list(SIZES), 1), strict=True
    ):
        counts = torch.bincount(column, minlength=odds.shape[1])
        assert ((counts - 1_000 * odds.mean(0)).abs() <= 5).all(), (
            "independent rows would be off by 15"
        )


def test_drawn_tables_err_less_than_those_of_independent_rows(
    mixture: MixtureOfProducts,
) -> None:
    schema = Schema(
        columns=tuple(
            Categorical(name=f"c{s}", categories=tuple("abcd"[:s])) for s in SIZES
        )
    )
    codec = Codec(schema)
    errors = []
    for draw in (
        lambda seed: mixture.levels(500, uniform(seed)).numpy(),
        _independent(mixture, codec),
    ):
        rows = [codec.encode(codec.decode(draw(seed))).double() for seed in range(25)]
        errors.append(
            torch.stack(
                [(x.T @ x / 500 - mixture.gram()).square() for x in rows]
            ).mean()
        )
    assert errors[0] < 0.6 * errors[1]


def _independent(
    mixture: MixtureOfProducts, codec: Codec
) -> Callable[[int], np.ndarray]:
    def draw(seed: int) -> np.ndarray:
        rng = FastRng(seed)
        return codec.sample_codes(mixture.rows(rng.normal(500, 1)), rng)

    return draw


@pytest.mark.parametrize("n", [0, 1, 3, 5, 7])
def test_any_number_of_rows_is_drawn(mixture: MixtureOfProducts, n: int) -> None:
    levels = mixture.levels(n, uniform(2))
    assert levels.shape == (n, 3)
    assert ((levels >= 0) & (levels < torch.tensor(SIZES))).all()


def test_a_level_of_probability_zero_is_never_drawn(mixture: MixtureOfProducts) -> None:
    mixture.logits[:, [0, 3, 8]] = -1e4
    levels = mixture.levels(5_000, uniform(3))
    assert (levels[:, 0] == 1).all()
    assert (levels[:, 1] != 1).all()
    assert (levels[:, 2] != 3).all()


def test_a_description_rebuilds_the_same_network(mixture: MixtureOfProducts) -> None:
    again = MixtureOfProducts.from_description(
        json.loads(json.dumps(mixture.describe()))
    )
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
        MixtureOfProducts.from_description(
            {"kind": "mixture", "components": 5, "sizes": [2, 3], **change}
        )


def test_a_description_without_a_part_is_refused() -> None:
    with pytest.raises(ConfigError, match="components"):
        MixtureOfProducts.from_description({"kind": "mixture", "sizes": [2, 3]})


def test_odds_sum_to_one_in_every_column(mixture: MixtureOfProducts) -> None:
    for part in torch.split(mixture.odds(), list(SIZES), 1):
        np.testing.assert_allclose(part.sum(1), 1, rtol=1e-6)
