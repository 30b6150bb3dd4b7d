"""Moments of whole-number vectors: what one person moves is at most what is paid for,
exactly.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from understudy.data.encoding.frame import Frame, packed, unpacked
from understudy.ground.errors import ConfigError
from understudy.models.moments.released import COUNT
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure.moments import (
    Crowd,
    bounded,
    cell_moments,
    cell_sums,
    moments_event,
    needed_multipliers,
    noise_for,
)
from understudy.protocols.moments import stages as counting
from understudy.protocols.moments.stages import (
    ArrayRows,
    First,
    Lengths,
    Pooled,
    Sums,
    Within,
)

ANY = st.floats(width=64, allow_nan=True, allow_infinity=True)
FRAME = Frame((2, 3), 2, 6)


@settings(max_examples=80)
@given(
    arrays(np.float64, (3, 4), elements=ANY), ANY, st.sampled_from([1, 8, 181, 4096])
)
def test_no_row_comes_out_longer_than_the_scale(
    rows: Any, radius: float, scale: int
) -> None:
    with np.errstate(all="ignore"):
        out = bounded(rows, radius, scale)
    assert np.array_equal(out, np.rint(out))
    assert all(sum(int(x) ** 2 for x in row) <= scale**2 for row in out)


def test_short_rows_keep_their_length_and_long_ones_their_direction() -> None:
    out = bounded(np.array([[30.0, 40.0], [300.0, 400.0]]), 100.0, 1000)
    assert out.tolist() == [[300, 400], [600, 800]]


def stages(rng: Any) -> list[Sums]:
    """Each of the releases, asked as a server might that knows no shame."""
    means = torch.from_numpy(rng.integers(-3000, 3000, (2, 6)))
    basis = torch.from_numpy(rng.integers(-4096, 4097, (6, 3)))
    return [
        Lengths(FRAME),
        First(FRAME, 2),
        Pooled(means, int(rng.integers(1, 9000)), 4, 181),
        Within(means, basis, int(rng.integers(1, 9000)), 0, 181),
        Within(means, basis, int(rng.integers(1, 9000)), 2, 45),
    ]


def people(rng: Any, sizes: list[int]) -> ArrayRows:
    """Rows that are all there is: random, extreme and alike."""
    count = sum(sizes)
    values = rng.choice([0.0, 1.0, 0.5, rng.random()], (count, 2, 3)).astype(np.float32)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    shades = FRAME.histograms(values, 32)
    return ArrayRows(
        FRAME.coefficients(values),
        shades,
        rng.integers(0, 2, count),
        Crowd.from_starts(starts),
    )


def without(rows: ArrayRows, person: int) -> ArrayRows:
    """The same rows but one person's."""
    stay = rows.crowd.owner != person
    sizes = np.delete(rows.crowd.sizes, person)
    return ArrayRows(
        rows.coefficients[stay],
        rows.histograms[stay],
        rows.classes[stay],
        Crowd.from_starts(np.concatenate([[0], np.cumsum(sizes)])),
    )


@pytest.mark.parametrize("sizes", [[1] * 17, [1, 0] * 8 + [1], [1, 3, 2, 1, 4]])
def test_rows_that_are_counted_some_at_a_time_give_the_same_numbers(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    rows = people(rng, sizes)
    every = stages(rng)
    whole = [stage.sums(rows) for stage in every]
    monkeypatch.setattr(counting, "_PIECE", 3)
    for stage, numbers in zip(every, whole, strict=True):
        assert torch.equal(stage.sums(rows), numbers)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e300, 5e-324, -0.0])
def test_a_row_of_any_length_is_in_one_cell_of_norms(odd: float) -> None:
    rows = ArrayRows(
        np.array([[odd] * 6, [0.0] * 6]),
        np.zeros((2, 32)),
        np.zeros(2, dtype=np.int64),
        Crowd.from_starts(np.arange(3)),
    )
    found = Lengths(FRAME).sums(rows).tolist()
    assert sum(found) == 2 * COUNT
    assert found[0] == COUNT * (2 if abs(odd) < 1 else 1)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_one_person_moves_a_release_by_no_more_than_its_reach(
    seed: int, sizes: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    rows = people(rng, sizes)
    person = int(rng.integers(len(sizes)))
    for stage in stages(rng):
        moved = (stage.sums(rows) - stage.sums(without(rows, person))).tolist()
        squares = [
            m * m / (2 if d else 1)
            for m, d in zip(moved, stage.diagonal.tolist(), strict=True)
        ]
        assert math.fsum(squares) <= stage.sensitivity**2
        assert len(moved) == stage.size


def test_the_reach_of_second_moments_is_reached() -> None:
    """No bound below it would do: one long row moves them by all of it."""
    for stage in stages(np.random.default_rng(1))[2:3]:
        rows = ArrayRows(
            np.array([[1e5, 0, 0, 0, 0, 0]]),
            np.zeros((1, 32)),
            np.zeros(1, dtype=np.int64),
            Crowd.from_starts(np.array([0, 1])),
        )
        moved = (
            stage.sums(rows).double() / torch.where(stage.diagonal, math.sqrt(2), 1.0)
        ).norm()
        assert moved >= 0.98 * stage.sensitivity


def test_a_person_with_many_rows_counts_once_by_their_average() -> None:
    rows = np.array([[3.0, 0], [6, 0], [0, 9], [5, 5]])
    cells = np.array([0, 0, 1, 1])
    crowd = Crowd.from_starts(np.array([0, 3, 4]))
    assert cell_sums(rows, cells, 2, crowd).tolist() == [[3, 0], [5, 8]]
    assert cell_moments(rows, cells, 2, crowd).tolist() == [
        [[15, 0], [0, 0]],
        [[25, 25], [25, 52]],
    ]


def test_ten_thousand_equal_rows_of_a_person_are_one_row() -> None:
    one, many = (
        ArrayRows(
            np.tile([[900.0, -70, 5, 0, 0, 1]], (n, 1)),
            np.tile(np.arange(32) == 3, (n, 1)) * 6.0,
            np.ones(n, dtype=np.int64),
            Crowd.from_starts(np.array([0, n])),
        )
        for n in (1, 10_000)
    )
    for stage in stages(np.random.default_rng(2)):
        assert torch.equal(stage.sums(one), stage.sums(many))


def test_sums_over_silos_are_the_sums_over_all() -> None:
    rng = np.random.default_rng(5)
    rows = people(rng, [1, 2, 3, 1])
    for stage in stages(rng):
        alone = [stage.sums(without(without(rows, a), b)) for a, b in ((3, 2), (0, 0))]
        assert torch.equal(alone[0] + alone[1], stage.sums(rows))


def test_triangles_are_packed_and_unpacked() -> None:
    full = torch.arange(16.0).view(4, 4)
    full = full + full.T
    assert torch.equal(unpacked(packed(full), 4), full)


@pytest.mark.parametrize("multiplier", [0.02, 1.0, 17.5])
def test_noise_is_never_less_than_its_price_says(multiplier: float) -> None:
    for stage in stages(np.random.default_rng(3)):
        sigma = noise_for(multiplier, stage.sensitivity)
        assert math.sqrt(sigma**2 - 9) / stage.sensitivity >= multiplier
        assert moments_event(multiplier) == GaussianDpEvent(multiplier)


def test_noise_that_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ConfigError, match="more than can be drawn"):
        noise_for(1e4, 4096.0)


def test_shares_are_of_one_budget() -> None:
    budget = Budget(1.0, 1e-5)
    spent = {
        moments_event(z): 1
        for z in needed_multipliers(budget, (0.3, 0.4, 0.3 - 1e-9))
        if z
    }
    assert 0.99 < epsilon(spent, 1e-5) <= 1.0
    assert needed_multipliers(budget, (0.5, 0.5, 0.0))[2] == 0.0


def test_the_discrete_gaussian_costs_no_more_than_the_gaussian_that_its_price_names():
    """Exactly, on the line: every divergence of the noise at its smallest scale is
    below the bound.
    """
    sigma = 16.0
    move = 40
    z = np.arange(-600, 641)
    p = np.exp(-(z**2) / (2 * sigma**2))
    q = np.exp(-((z - move) ** 2) / (2 * sigma**2))
    p = p / p.sum()
    q = q / q.sum()
    price = {GaussianDpEvent(math.sqrt(sigma**2 - 9) / move): 1}
    for eps in (0.5, 2.0, 5.0, 9.0):
        delta = float(np.maximum(p - math.exp(eps) * q, 0).sum())
        assert epsilon(price, delta) >= eps
