"""Where columns of known laws end, by the releases of gram alone: nobody far past a
bound, and tails as long as counts say.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

import column_releases
from column_releases import usual_noise
from understudy.data.column import Real
from understudy.data.schema import Schema

COLUMNS = 5  # of each law
# people, and how far KS and p99 may be off for them, in the mean
ALLOWED = {5_000: (0.07, 0.7), 20_000: (0.02, 0.22), 300_000: (0.004, 0.04)}
PEOPLE = [
    pytest.param(5_000, marks=pytest.mark.long),
    20_000,
    pytest.param(300_000, marks=pytest.mark.long),
]
Draw = Callable[[np.random.Generator, int], np.ndarray]  # type: ignore[type-arg]


def uniform(rng: np.random.Generator, people: int) -> np.ndarray:  # type: ignore[type-arg]
    low, width = rng.integers(-200, 400), rng.integers(10, 1_000)
    return np.asarray(low + width * rng.random(people))


def beta(rng: np.random.Generator, people: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.asarray(100 * rng.beta(*rng.uniform(0.7, 1.5, 2), people))


def normal(rng: np.random.Generator, people: int) -> np.ndarray:  # type: ignore[type-arg]
    return rng.normal(rng.uniform(-50, 200), rng.uniform(3, 30), people)


def power(rng: np.random.Generator, people: int) -> np.ndarray:  # type: ignore[type-arg]
    exponent = rng.uniform(1.5, 3.0)
    return np.asarray(rng.uniform(1, 100) * rng.random(people) ** (-1 / exponent))


def lognormal(rng: np.random.Generator, people: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.asarray(
        np.exp(rng.normal(rng.uniform(1, 6), rng.uniform(0.3, 1.2), people))
    )


def half_zeros(rng: np.random.Generator, people: int) -> np.ndarray:  # type: ignore[type-arg]
    above = np.exp(rng.normal(rng.uniform(3, 7), rng.uniform(0.3, 1.0), people))
    return np.where(rng.random(people) < rng.uniform(0.4, 0.7), 0.0, above)


def far_groups(rng: np.random.Generator, people: int) -> np.ndarray:  # type: ignore[type-arg]
    near, far = rng.normal(0, 1, people), rng.normal(rng.uniform(50, 500), 3, people)
    return np.where(rng.random(people) < rng.uniform(0.15, 0.3), far, near)


def ends(draw: Draw, people: int, seed: int) -> pd.DataFrame:
    """Of each column the people outside of its range, as a part of all; how far they
    are from it, in ranges; KS; and p99 over the real one, from the median on.
    """
    rng = np.random.default_rng([seed, people])
    columns = [np.round(draw(rng, people), 1) for _ in range(COLUMNS)]
    found = []
    for values in columns:
        layout, read = column_releases.released(
            pd.DataFrame({"x": values}),
            Schema(columns=(Real(name="x", decimals=1),)),
            usual_noise(10),
            rng,
        )
        edges = layout.trees[0].fine.columns[0].edges  # type: ignore[attr-defined]
        table = read.tables[0].numpy()[: len(edges) - 1]
        table = table / table.sum()
        least, most = values.min(), values.max()
        outside = (edges[:-1] < least - 1e-9) | (edges[:-1] > most + 1e-9)
        there = np.flatnonzero(table > 1e-6)
        beyond = max(edges[there[-1]] - most, least - edges[there[0] + 1])
        below = np.append(0, table.cumsum())
        real = np.searchsorted(np.sort(values), edges, side="left") / people
        p99 = np.quantile(values, 0.99)
        middle = np.median(values)
        found.append(
            (
                table[outside].sum(),
                max(beyond, 0) / (most - least),
                np.abs(below - real).max(),
                (np.interp(0.99, below, edges) - middle) / (p99 - middle),
            )
        )
    return pd.DataFrame(found, columns=["outside", "beyond", "ks", "p99"])


@pytest.mark.long
@pytest.mark.parametrize("people", PEOPLE)
@pytest.mark.parametrize("draw", [uniform, beta, normal])
def test_nobody_is_far_past_the_end_of_a_bounded_or_a_normal_column(
    draw: Draw, people: int
) -> None:
    found = ends(draw, people, 1)
    assert found["beyond"].max() < 0.15  # .61 where a long tail of noise was kept
    assert found["outside"].mean() < 0.01
    ks, p99 = ALLOWED[people]
    assert found["ks"].mean() < ks
    assert (found["p99"] - 1).abs().mean() < p99


@pytest.mark.long
@pytest.mark.parametrize("people", PEOPLE)
@pytest.mark.parametrize("draw", [power, lognormal, half_zeros])
def test_long_tails_are_as_long_as_counts_say(draw: Draw, people: int) -> None:
    found = ends(draw, people, 1)
    ks, p99 = ALLOWED[people]
    assert found["ks"].mean() < ks
    assert (found["p99"] - 1).abs().mean() < p99


@pytest.mark.long
@pytest.mark.parametrize("people", PEOPLE)
def test_of_two_groups_far_apart_none_is_taken_for_a_tail(people: int) -> None:
    found = ends(far_groups, people, 1)
    assert found["ks"].mean() < ALLOWED[people][0]
    assert found["p99"].between(0.85, 1.15).all()
    assert found["beyond"].max() < 0.15
