"""What is not known of the values inside a level is in the interval of a mean."""

import warnings
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.answers.release import Noisy
from understudy.answers.tails import level_means, mean_beyond
from understudy.data.encoding.codec import Levels
from understudy.data.schema import Integer, Schema


def test_a_tail_without_noise_has_the_mean_of_its_law() -> None:
    for law, upper in (
        (lambda u: -300 * np.log(u), 1e5),
        (lambda u: 1000 * (1 - u), 1e3),
        (lambda u: 300 * (u**-0.5 - 1), 1e6),
    ):
        values = np.sort(law((np.arange(4_000) + 0.5) / 4_000))
        first = float(np.quantile(values, 0.75))
        edges = np.array([0, first / 2, first, *np.geomspace(first * 1.05, upper, 30)])
        counts = np.histogram(values, edges)[0].astype(float)
        mean, variance = mean_beyond(edges, Noisy(counts, np.zeros(len(counts)), True), 2, 4_000.0, 1_000.0)
        assert mean - first == pytest.approx((values[values >= first] - first).mean(), rel=0.08)
        assert variance < (0.1 * mean) ** 2


class _OneLevel:
    """A column of four numbers in the middle level, none of it noise."""

    def __init__(self) -> None:
        schema = Schema(columns=(Integer(name="x", low=0, high=199),))
        cells = Levels(schema, [np.arange(200, dtype=np.int32)], [np.ones(200)]).sizes[0]
        group = np.digitize(np.arange(cells), [100, 108]).astype(np.int32)
        self.levels = Levels(schema, [group], [np.isin(np.arange(cells), [0, 101, 103, 106, 107, 199]) * 1.0])

    def nodes(self, place: int) -> tuple[np.ndarray, np.ndarray, Noisy]:
        return np.array([0, 100, 108]), np.arange(3), Noisy(np.array([1.0, 4, 1]), np.zeros(3), True)

    def joint(self, places: list[int]) -> Noisy:
        return Noisy(np.array([1.0, 4, 1]), np.zeros(3), True)


def test_the_variance_of_some_of_a_levels_people_is_that_of_all_ways_to_choose_them() -> None:
    values = np.array([101.0, 103, 106, 107])
    means, variance = level_means(
        _OneLevel(),  # type: ignore[arg-type]
        0,
        np.array([0.0, values.mean(), 199.0]),
        Noisy(np.array([1.0, 2, 1]), np.zeros(3), True),
    )
    exact = np.var([np.mean(some) for some in combinations(values, 2)])
    assert means[1] == values.mean()
    within = values.var() + 1 / 12  # whole numbers ± ½
    assert variance[1] == pytest.approx(within * (1 / 2 - 1 / 4))
    assert variance[1] == pytest.approx(exact * 3 / 4 * within / values.var())  # of N − 1 for N people


def test_the_interval_of_a_long_tailed_mean_holds_the_mean_of_the_rows() -> None:
    schema, held = Schema(columns=(Integer(name="cost", low=0, high=1_000_000),)), []
    wide = []
    for seed in range(12):
        rank = np.random.default_rng(seed).random(4_000)
        cost = np.where(rank < 0.5, 0, np.minimum(100 * np.maximum(2 * (1 - rank), 1e-9) ** (-1 / 1.7), 1e6))
        rows = pd.DataFrame({"cost": cost.astype(np.int64)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            budget = us.Budget(epsilon=1, delta=1e-5)
            holder = us.Federation.rehearsal({"h": rows}, {"h": schema}, budget=budget, seed=seed)
            asked = us.train("gram", holder, components=2, steps=1).generator
        mean = asked.figures("cost").set_index("figure").loc["mean of cost"]
        held.append(mean["low"] <= rows["cost"].mean() <= mean["high"])
        wide.append((mean["high"] - mean["low"]) / mean["released"])
    assert sum(held) >= 9
    assert np.median(wide) < 1
