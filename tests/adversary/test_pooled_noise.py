"""Holders who pool what they know, and people who are with several: what the others'
noise leaves is what is paid for.

The oracle is exact. Of M holders t take their own shares of the noise off; what is left
is a sum of M − t discrete Gaussians, written out by convolution. A person at h holders
moves it by h times as much as at one.
"""

import math
from functools import reduce

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import epsilon
from understudy.protocols.joint.pricing import (
    BlockSpec,
    CellPricing,
    Pricing,
    VectorPricing,
)

DELTAS = (1e-8, 1e-5, 1e-2)
GROUPS = [
    (holders, max_colluding)
    for holders in (2, 3, 5, 8)
    for max_colluding in range(1, holders)
]


def law_of_sum(sigma: float, count: int) -> NDArray[np.float64]:
    """The probabilities of a sum of so many discrete Gaussians: sums of positive
    numbers alone, so tails are exact.
    """
    reach = math.ceil(14 * sigma) + 14
    z = np.arange(-reach, reach + 1)
    one = np.exp(-((z / sigma) ** 2) / 2)
    return reduce(np.convolve, [one / one.sum()] * count)


def true_delta(law: NDArray[np.float64], moved_by: int, stated: float) -> float:
    """δ at this ε of one number under noise of this law, which a person moves by so
    much.
    """
    with_person = np.concatenate([np.zeros(moved_by), law])
    without = np.concatenate([law, np.zeros(moved_by)])
    return float(
        np.maximum(with_person - math.exp(min(stated, 600.0)) * without, 0.0).sum()
    )


def left_by(pricing: Pricing, sigma: float, holders: int) -> NDArray[np.float64]:
    """The law of the noise that those leave who do not collude."""
    honest = max(1, holders - pricing.max_colluding)
    return law_of_sum(float(pricing.share(sigma, holders)), honest)


@pytest.mark.parametrize(("holders", "max_colluding"), GROUPS)
def test_a_cell_costs_no_more_than_is_stated_whoever_colludes_and_wherever_a_person_is(
    holders: int, max_colluding: int
) -> None:
    for moves in range(1, holders + 1):
        pricing = CellPricing(max_colluding, moves, (((1.0, 1),),))
        pricing.check_parties(holders)
        for noise in (0.3, 0.9, 2.0, 7.5, 40.0):
            (sigma,) = pricing.sigmas(
                0, {"one": BlockSpec((0, 0), (1,), 1.0)}, noise
            ).values()
            law = left_by(pricing, sigma, holders)
            for delta in DELTAS:
                stated = epsilon(pricing.spend(0, noise), delta)
                assert true_delta(law, moves, stated) <= delta * (1 + 1e-6), (
                    moves,
                    noise,
                    delta,
                )


@pytest.mark.long
@pytest.mark.parametrize(("holders", "max_colluding"), GROUPS)
def test_a_sum_of_vectors_costs_no_more_than_is_stated_whoever_colludes_and_wherever_a_person_is(
    holders: int, max_colluding: int
) -> None:
    for moves in range(1, holders + 1):
        pricing = VectorPricing(max_colluding, moves)
        for reach, multiplier in ((1, 0.4), (5, 1.0), (20, 4.0)):
            block = BlockSpec((0, 0), (1,), float(reach))
            (sigma,) = pricing.sigmas(0, {"one": block}, multiplier).values()
            law = left_by(pricing, sigma, holders)
            for delta in DELTAS:
                stated = epsilon(pricing.spend(0, multiplier), delta)
                assert true_delta(law, moves * reach, stated) <= delta * (1 + 1e-6), (
                    moves,
                    reach,
                    delta,
                )


def test_one_more_who_colludes_than_is_paid_for_would_make_the_price_false() -> None:
    """The oracle is no looser than what is promised."""
    holders = 5
    sigma = 12.0
    delta = 1e-5
    pricing = CellPricing(2, 1, (((1.0, 1),),))
    stated = epsilon(pricing.spend(0, sigma), delta)
    share = float(pricing.share(sigma, holders))
    assert true_delta(law_of_sum(share, 3), 1, stated) <= delta
    assert true_delta(law_of_sum(share, 2), 1, stated) > delta
    assert true_delta(law_of_sum(share, 3), 2, stated) > delta, (
        "nor a person at two holders"
    )


@pytest.mark.parametrize(("holders", "max_colluding"), [(2, 2), (3, 3), (3, 7)])
def test_as_many_who_collude_as_there_are_holders_are_refused(
    holders: int, max_colluding: int
) -> None:
    with pytest.raises(ConfigError, match="max_colluding"):
        CellPricing(max_colluding, 1, (((1.0, 1),),)).check_parties(holders)
