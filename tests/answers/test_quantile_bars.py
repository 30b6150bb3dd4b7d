"""The interval of a quantile holds it as often as is said: counted over every noise
that there can be.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from understudy.answers.bars import quantile_figure
from understudy.answers.release import Noisy
from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Boolean, Categorical, Integer, Real, Schema
from understudy.runs.federation import Federation

# 0–1, 2–4, 5–8
LEVELS = Codec(Schema(columns=(Integer(name="a", low=0, high=8, bins=(0, 2, 5, 8)),)))
SIGMA = 1.0
NOISE = np.arange(-3, 4)
LAW = np.exp(-(NOISE**2) / (2 * SIGMA**2)) / np.exp(-(NOISE**2) / (2 * SIGMA**2)).sum()


def bars(counts: np.ndarray, q: float, sigma: float) -> tuple[float, float, float]:  # type: ignore[type-arg]
    found = Noisy(counts.astype(float), np.full(len(counts), sigma**2), whole=True)
    made = quantile_figure("q", q, found.counts.clip(min=0) + 1e-9, found, LEVELS, 0)
    return made.low, made.released, made.high


@pytest.mark.long
@pytest.mark.parametrize("q", [0.5, 0.95])
@pytest.mark.parametrize("counts", [(30, 20, 10), (29, 2, 29), (5, 5, 50), (56, 1, 3)])
def test_the_interval_of_a_quantile_holds_it_in_95_of_100_releases_by_enumeration(
    counts: tuple[int, int, int], q: float
) -> None:
    people = np.repeat([1, 3, 6], counts)  # anywhere inside their levels
    truth = {
        float(np.quantile(people, q, method=method)) for method in ("lower", "higher")
    }
    covered = 0.0
    for places in itertools.product(range(len(NOISE)), repeat=3):
        low, middle, high = bars(np.array(counts) + NOISE[list(places)], q, SIGMA)
        assert low <= middle <= high
        covered += math.prod(LAW[list(places)]) * any(
            low <= value <= high for value in truth
        )
    assert covered >= 0.95


def test_without_noise_a_quantile_lies_in_its_own_level() -> None:
    assert bars(np.array([30, 20, 10]), 0.6, 0.0) == (2, 2, 4)
    assert bars(np.array([30, 20, 10]), 0.95, 0.0) == (5, 7, 8)


def test_numbers_that_are_listed_in_any_order_are_put_in_theirs() -> None:
    levels = Codec(Schema(columns=(Categorical(name="a", categories=(7, 1, 3)),)))
    found = Noisy(np.array([10.0, 30, 20]), np.full(3, 0.01), whole=True)
    made = quantile_figure("q", 0.6, found.counts, found, levels, 0)
    assert (made.fit, made.low, made.released, made.high) == (3, 3, 3, 3)


def test_a_quantile_of_nobody_says_why_there_is_none() -> None:
    found = Noisy(np.array([3.0, -4, 2]), np.full(3, 9.0), whole=True)
    made = quantile_figure("q", 0.5, np.array([1.0, 1, 1]), found, LEVELS, 0)
    assert math.isnan(made.released)
    assert "does not stand out of the noise" in made.why


def test_a_tree_tells_where_a_long_last_level_ends_for_all_people_and_for_some():
    rng = np.random.default_rng(5)
    rows = pd.DataFrame(
        {
            "cost": np.round(rng.exponential(300, 8_000), 2),
            "old": rng.random(8_000) < 0.5,
        }
    )
    schema = Schema(
        columns=(Real(name="cost", low=0, high=1e6, decimals=2), Boolean(name="old"))
    )
    held = Federation.rehearsal({"one": rows}, {"one": schema}, budget=2.0, seed=3)
    asked = train("gram", held, components=2, steps=1, seed=3).generator
    for where, some in ((None, rows), ("old == true", rows[rows["old"]])):
        made = (
            asked.figures("cost", where=where)
            .set_index("figure")
            .loc["95 % quantile of cost"]
        )
        assert made["low"] <= some["cost"].quantile(0.95) <= made["high"] < 5_000, (
            "and not a million"
        )
