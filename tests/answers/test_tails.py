"""What is not known of the values inside a level is in the interval of a mean."""

import warnings
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.answers.release import Noisy
from understudy.answers.tails import Mixture, Tail, level_means, tail_beyond
from understudy.data.encoding.codec import Levels
from understudy.data.schema import Integer, Schema


def test_a_tail_without_noise_has_the_mean_of_its_law() -> None:
    for law, upper in (
        (lambda u: -300 * np.log(u), 1e5),
        (lambda u: 1000 * (1 - u), 1e3),
        (lambda u: 300 * (u**-0.5 - 1), 1e6),
        (lambda u: 300 * (u**-0.5 - 1), np.inf),
    ):
        values = np.sort(law((np.arange(4_000) + 0.5) / 4_000))
        first = float(np.quantile(values, 0.75))
        nodes = np.array(
            [first, *np.geomspace(first * 1.05, min(upper, 1e6), 30)[:-1], upper]
        )
        levels = np.array([0, first / 2, first, upper])
        edges = np.append(levels[:2], nodes)
        counts = [np.histogram(values, own)[0].astype(float) for own in (levels, nodes)]
        tail = tail_beyond(
            Tail(edges, *(Noisy(own, np.zeros(len(own)), whole=True) for own in counts))
        )
        assert tail.middle - first == pytest.approx(
            (values[values >= first] - first).mean(), rel=0.08
        )
        assert tail.weight @ tail.people == pytest.approx(1_000, abs=1)


def test_the_quantiles_of_a_mixture_are_those_of_its_draws() -> None:
    one = Mixture(np.array([0.7, 0.3]), np.array([0.0, 5.0]), np.array([1.0, 4.0]))
    two = Mixture(np.ones(1), np.array([2.0]), np.array([0.25]))
    rng = np.random.default_rng(0)
    part = (rng.random(200_000) < 0.3).astype(int)
    drawn = rng.normal(one.mean[part], np.sqrt(one.variance[part])) + rng.normal(
        2.0, 0.5, len(part)
    )
    both = one.plus(two)
    assert both.middle == pytest.approx(3.5)
    variance = both.weight @ (both.variance + (both.mean - both.middle) ** 2)
    assert variance == pytest.approx(drawn.var(), rel=0.02)
    for q in (0.025, 0.5, 0.975):
        assert both.quantile(q) == pytest.approx(np.quantile(drawn, q), abs=0.05)


class _OneLevel:
    """A column of four numbers in the middle level, none of it noise."""

    def __init__(self) -> None:
        schema = Schema(columns=(Integer(name="x", low=0, high=199),))
        cells = Levels(schema, [np.arange(200, dtype=np.int32)], [np.ones(200)]).sizes[
            0
        ]
        group = np.digitize(np.arange(cells), [100, 108]).astype(np.int32)
        self.levels = Levels(
            schema,
            [group],
            [np.isin(np.arange(cells), [0, 101, 103, 106, 107, 199]) * 1.0],
        )

    def nodes(self, place: int) -> tuple[np.ndarray, np.ndarray, Noisy]:
        return (
            np.array([0, 100, 108]),
            np.arange(3),
            Noisy(np.array([1.0, 4, 1]), np.zeros(3), True),
        )

    def joint(self, places: list[int]) -> Noisy:
        return Noisy(np.array([1.0, 4, 1]), np.zeros(3), True)

    def has_found_bounds(self, place: int) -> bool:
        return False


def test_the_variance_of_some_of_a_levels_people_is_that_of_all_ways_to_choose_them():
    values = np.array([101.0, 103, 106, 107])
    known = level_means(
        _OneLevel(),  # type: ignore[arg-type]
        0,
        np.array([0.0, values.mean(), 199.0]),
        Noisy(np.array([1.0, 2, 1]), np.zeros(3), True),
    )
    exact = np.var([np.mean(some) for some in combinations(values, 2)])
    assert known.mean[1] == values.mean()
    within = values.var() + 1 / 12  # whole numbers ± ½
    assert known.variance[1] == pytest.approx(within * (1 / 2 - 1 / 4))
    # of N − 1 for N people
    assert known.variance[1] == pytest.approx(exact * 3 / 4 * within / values.var())


def _asked(
    rows: pd.DataFrame, schema: Schema, seed: int, epsilon: float = 1
) -> us.Generator:
    """A generator that was hardly fitted: its release is what counts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        budget = us.Budget(epsilon=epsilon, delta=1e-5)
        holder = us.Federation.rehearsal(
            {"h": rows}, {"h": schema}, budget=budget, seed=seed
        )
        made: us.Generator = us.train("gram", holder, components=2, steps=1).generator
    return made


@pytest.mark.long
@pytest.mark.parametrize(
    "cost", [Integer(name="cost", low=0, high=1_000_000), Integer(name="cost")]
)
def test_the_interval_of_a_long_tailed_mean_holds_the_mean_of_the_rows(
    cost: Integer,
) -> None:
    held = []
    wide = []
    for seed in range(12):
        rank = np.random.default_rng(seed).random(4_000)
        drawn = np.where(
            rank < 0.5,
            0,
            np.minimum(100 * np.maximum(2 * (1 - rank), 1e-9) ** (-1 / 1.7), 1e6),
        )
        rows = pd.DataFrame({"cost": drawn.astype(np.int64)})
        asked = _asked(rows, Schema(columns=(cost,)), seed)
        mean = asked.figures("cost").set_index("figure").loc["mean of cost"]
        held.append(mean["low"] <= rows["cost"].mean() <= mean["high"])
        wide.append((mean["high"] - mean["low"]) / mean["released"])
    assert sum(held) >= 10
    assert np.median(wide) < 1


def test_the_mean_of_a_column_without_bounds_may_lie_beyond_those_that_were_found():
    rank = (np.arange(20_000) + 0.5) / 20_000
    rows = pd.DataFrame(
        {"cost": np.floor(100 * (1 - rank) ** (-1 / 1.7)).astype(np.int64)}
    )
    asked = _asked(rows, Schema(columns=(Integer(name="cost"),)), 0, epsilon=0.15)
    assert asked.release is not None
    assert asked.release.has_found_bounds(0)
    bound = asked.release.levels.schema.columns[0].high
    assert rows["cost"].max() > bound  # so that some were counted on the bound
    mean = asked.figures("cost").set_index("figure").loc["mean of cost"]
    assert mean["low"] <= rows["cost"].mean() <= mean["high"]
    assert mean["high"] > rows["cost"].clip(upper=bound).mean()


@pytest.mark.long
def test_a_number_that_many_share_at_an_end_is_no_tail() -> None:
    rng = np.random.default_rng(0)
    score = np.where(rng.random(20_000) < 0.3, 100, rng.integers(0, 100, 20_000))
    for column in (
        Integer(name="score"),
        Integer(name="score", low=-1_000, high=1_000),
    ):
        rows = pd.DataFrame({"score": score})
        held = 0
        for seed in range(4):
            figures = _asked(rows, Schema(columns=(column,)), seed).figures("score")
            mean = figures.set_index("figure").loc["mean of score"]
            held += bool(mean["low"] <= score.mean() <= mean["high"])
            assert mean["high"] - mean["low"] < 3
        assert held >= 3  # of four intervals at 95 %
