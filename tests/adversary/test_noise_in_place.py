"""Cells that are released in place of those agreed on cost no more, down to noise of a
fraction of one person.

The oracle is exact. A cell that a person moves by m, under discrete Gaussian noise z,
has the privacy loss (2·m·z + m²)/(2σ²). Over n such cells the loss is a linear function
of the sum of their noise, and the law of that sum is an n-fold convolution.
"""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.privacy.secure.counts import scaled
from understudy.protocols.joint.pricing import NoiseAllocation

EPSILONS = np.linspace(0.0, 60.0, 61)
ROUNDING = 1e-13  # of a transform, in each probability


def law_of_sum(sigma: float, cells: int) -> NDArray[np.float64]:
    """The probabilities of a sum of so many discrete Gaussians, about its middle."""
    reach = math.ceil(12 * sigma * math.sqrt(cells)) + 12
    z = np.arange(-reach, reach + 1)
    one = np.exp(-((z / sigma) ** 2) / 2)
    one /= one.sum()
    transform = np.fft.rfft(np.roll(one, -reach))
    whole = np.fft.irfft(transform**cells, len(z))
    return np.maximum(np.roll(whole, reach), 0.0)


def deltas(sigma: float, cells: int, moved_by: int) -> NDArray[np.float64]:
    """δ at every ε of EPSILONS, of so many cells that a person moves by so much."""
    law = law_of_sum(sigma, cells)
    total = np.arange(len(law)) - len(law) // 2
    loss = (2 * moved_by * total + cells * moved_by**2) / (2 * sigma**2)
    beyond = np.minimum(EPSILONS[:, None] - loss, 0.0)
    return -np.expm1(beyond) @ law


def test_the_oracle_agrees_with_a_sum_over_all_outcomes() -> None:
    sigma = 0.8
    moved_by = 2
    z = np.arange(-14, 15)
    one = np.exp(-((z / sigma) ** 2) / 2)
    one /= one.sum()
    both = np.outer(one, one)
    loss = (2 * moved_by * z + moved_by**2) / (2 * sigma**2)
    gains = [
        np.maximum(0.0, -np.expm1(epsilon - loss[:, None] - loss))
        for epsilon in EPSILONS
    ]
    expected = [float((both * gain).sum()) for gain in gains]
    assert deltas(sigma, 2, moved_by) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("moved_by", [1, 2, 3])
@pytest.mark.parametrize("noise", [0.05, 0.3, 0.6, 0.99, 1.0, 2.9, 3.0, 3.1, 12.0])
def test_cells_in_place_of_others_never_cost_more_than_those(
    noise: float, moved_by: int
) -> None:
    for own, agreed, cells in product((1.0, 0.3), (1, 7), (1, 2, 5, 30)):
        spread = NoiseAllocation({(0, 0): 1.0}, ((1.0, 3), (own, agreed)))
        found = spread.in_place(cells, noise)
        released = scaled(noise, found.factors[0, 0])
        paid = deltas(scaled(noise, own), agreed, moved_by)
        assert (deltas(released, cells, moved_by) <= paid + ROUNDING).all(), (
            own,
            agreed,
            cells,
            released,
        )
        assert found.moved == spread.moved, "what is paid is what was agreed on"
        assert Fraction(released) > 0


def test_without_noise_cells_in_place_of_others_have_none() -> None:
    spread = NoiseAllocation({(0, 0): 1.0}, ((1.0, 3),))
    assert scaled(0.0, spread.in_place(5, 0.0).factors[0, 0]) == 0.0


@pytest.mark.parametrize("noise", [0.05, 0.6, 0.99, 4.0])
def test_more_cells_in_place_of_the_same_never_have_less_noise(noise: float) -> None:
    spread = NoiseAllocation({(0, 0): 1.0}, ((1.0, 4),))
    factors = [spread.in_place(cells, noise).factors[0, 0] for cells in range(1, 40)]
    assert factors == sorted(factors)
