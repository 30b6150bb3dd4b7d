"""SGDE by counted levels: what it costs, what it draws, and what it refuses."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from refusals import raises
from understudy.api.train import train
from understudy.data.encoding.population import Population
from understudy.data.schema import Categorical, Schema
from understudy.data.table import read_table
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise.discrete import DiscreteGaussianNoise
from understudy.privacy.noise.rng import Rng, SecureRng
from understudy.privacy.secure.counts import noise
from understudy.protocols.papers.sgde import offering
from understudy.protocols.papers.sgde.kinds import pooled
from understudy.protocols.papers.sgde.offer import Requirements
from understudy.protocols.papers.sgde.offering import Recipe, noisy_level_counts
from understudy.protocols.papers.sgde.party import train_offers
from understudy.runs.federation import Federation

BUDGET = Budget(1.5, 1e-5)
SCHEMA = Schema(
    columns=(
        Categorical(name="one", categories=("a", "b", "c")),
        Categorical(name="class", categories=("left", "right")),
        Categorical(name="two", categories=("x", "y")),
    )
)
POOL = Requirements(schema=SCHEMA, target="class", epsilon=1.5, delta=1e-5)


def rows(count: int, seed: int = 0) -> pd.DataFrame:
    """ "left" is a and x in nine of ten rows, "right" c and y."""
    rng = np.random.default_rng(seed)
    left = rng.random(count) < 0.5
    odd = rng.random((2, count)) < 0.1
    return pd.DataFrame(
        {
            "one": np.where(odd[0], "b", np.where(left, "a", "c")),
            "class": np.where(left, "left", "right"),
            "two": np.where(left ^ odd[1], "x", "y"),
        }
    )


def offers(frame: pd.DataFrame, **settings: Any) -> tuple[list[Any], Ledger]:
    ledger = Ledger.rehearsal("s", BUDGET)
    recipe = Recipe(kind="marginals", **settings)
    table = read_table(frame, SCHEMA)
    made = train_offers(
        "s",
        table,
        ledger,
        POOL,
        budget=BUDGET,
        run="r",
        recipe=recipe,
        rng=SecureRng.from_seed(1),
    )
    return made, ledger


def test_a_silo_pays_one_use_for_each_column_and_as_much_as_it_may() -> None:
    made, ledger = offers(rows(50))
    ((event, count),) = ledger.spend().items()
    assert count == 2  # columns without the class
    # Independent: two cells move, each by 1, so ρ = 2/(2σ²); the tight figure is below
    # the conversion of ρ.
    rho = 1 / event.sigma**2
    assert made[0].card["epsilon"] <= rho + 2 * math.sqrt(rho * math.log(1e5))
    assert 1.45 < made[0].card["epsilon"] <= 1.5
    assert epsilon({event: 2}, 1e-5) == pytest.approx(made[0].card["epsilon"])


def test_the_noise_that_is_drawn_is_the_noise_that_was_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[tuple[Fraction, tuple[int, ...]]] = []

    def noted(scale: Fraction, rng: Rng, *shape: int) -> torch.Tensor:
        drawn.append((scale, shape))
        return noise(scale, rng, *shape)

    monkeypatch.setattr(offering, "noise", noted)
    _, ledger = offers(rows(50))
    ((event, _),) = ledger.spend().items()
    # once, on every level of both classes
    assert drawn == [(Fraction(event.sigma), (2, 5))]


def test_a_row_more_moves_one_level_of_each_column_in_its_own_class() -> None:
    frame = rows(40)
    before, after = (
        noisy_level_counts(
            *pooled(SCHEMA).first_rows(read_table(part, SCHEMA), SCHEMA, POOL.target),
            2,
            0.0,
            SecureRng.from_seed(0),
        )
        for part in (frame.iloc[:-1], frame)
    )
    moved = (after - before).round()
    assert sorted(moved.flatten().tolist()) == [0.0] * 8 + [1.0] * 2
    assert int(moved.any(1).sum()) == 1


def test_counts_carry_the_noise_that_was_paid_for() -> None:
    sigma = 7.5
    rng = SecureRng.from_seed(2)
    people = 100
    cells = 4000
    # counts so high that nothing is cut off at zero
    filled = torch.full((people, cells), 1.0)
    drawn = noisy_level_counts(filled, torch.zeros(people).long(), 1, sigma, rng)
    variance = DiscreteGaussianNoise(Fraction(sigma)).variance
    assert float(drawn.var()) == pytest.approx(variance, rel=0.1)
    assert float(drawn.mean()) == pytest.approx(
        people + 0.2 * sigma, abs=4 * sigma / math.sqrt(cells)
    )


def test_without_noise_a_generator_draws_the_shares_of_its_class() -> None:
    frame = rows(4000)
    federation = Federation.rehearsal(
        {"s": frame, "t": rows(4000, 1)},
        dict.fromkeys("st", SCHEMA),
        budget=Budget(math.inf, 0.0),
        seed=0,
        same_people=False,
    )
    result = train(
        "sgde",
        federation,
        target="class",
        kind="marginals",
        private=False,
        leave_out="nothing",
    )
    drawn = result.generator.sample(8000, seed=0)
    left = drawn[drawn["class"] == "left"]
    assert len(left) == pytest.approx(4000, abs=200)  # as many of each class
    assert (left["one"] == "a").mean() == pytest.approx(0.9, abs=0.02)
    assert (left["two"] == "x").mean() == pytest.approx(0.9, abs=0.02)


def test_private_offers_of_several_silos_tell_the_classes_apart() -> None:
    tables = {f"silo {k}": rows(150, k) for k in range(4)}
    federation = Federation.rehearsal(
        tables, dict.fromkeys(tables, SCHEMA), budget=BUDGET, seed=3, same_people=False
    )
    result = train("sgde", federation, target="class", kind="marginals")
    drawn = result.generator.sample(4000, seed=0)
    assert (drawn.loc[drawn["class"] == "left", "one"] == "a").mean() > 0.6
    assert (drawn.loc[drawn["class"] == "right", "one"] == "c").mean() > 0.6
    assert not any(offer["flagged"] for offer in result.generator.card["offers"])


def test_a_level_that_nobody_has_keeps_a_share() -> None:
    counted = noisy_level_counts(
        torch.eye(3)[:2], torch.zeros(2).long(), 2, 3.0, SecureRng.from_seed(0)
    )
    assert counted.min() > 0


def test_images_are_refused_before_anything_is_charged() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (30, 28, 28), dtype=np.uint8)
    held = Population.from_arrays(pixels, np.arange(30) % 3, classes=3)
    federation = Federation.rehearsal(
        {"s": held}, budget=BUDGET, seed=0, same_people=False
    )
    with raises(
        ConfigError, effect=Effect.NOTHING_CHARGED, match="images have no levels"
    ):
        train("sgde", federation, kind="marginals")


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="kind"):
        Recipe(kind="copula")
