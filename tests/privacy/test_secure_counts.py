"""A person moves exactly the cells that are paid for, and every one of them gets its
own noise.
"""

from fractions import Fraction

import numpy as np
import pytest
import torch
from dp_accounting import NonPrivateDpEvent

from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.ground.errors import PrivacyError
from understudy.privacy.accounts.accounting import DiscreteGaussian, epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise.rng import SecureRng
from understudy.privacy.secure.counts import (
    gram_matrix,
    mirrored,
    movable,
    needed_noise,
    noise,
    noise_on,
    one_hot,
    release_event,
)

FRAME, SCHEMA = toy(rows=50, seed=1)
CODEC = Codec(SCHEMA)
CODES = CODEC.codes(FRAME)


def test_the_matrix_is_the_sum_of_outer_products() -> None:
    rows = CODEC.encode(FRAME).double()
    assert np.array_equal(one_hot(CODES, CODEC.sizes), rows.numpy() > 0)
    assert torch.equal(gram_matrix(CODES, CODEC.sizes), (rows.T @ rows).long())
    assert not gram_matrix(CODES[:0], CODEC.sizes).any()


def test_one_person_moves_one_cell_by_one_for_every_column_and_pair_and_no_more():
    for gone in range(len(CODES)):
        moved = gram_matrix(CODES, CODEC.sizes) - gram_matrix(
            np.delete(CODES, gone, axis=0), CODEC.sizes
        )
        upper = moved.triu()
        assert sorted(set(upper.flatten().tolist())) == [0, 1]
        assert int(upper.sum()) == 8 * 9 // 2


def test_noise_lies_on_every_cell_that_a_person_can_move_and_on_no_other() -> None:
    cells = movable(CODEC.sizes).triu()
    seeds = map(SecureRng.from_seed, range(12))
    drawn = torch.stack([mirrored(noise_on(cells, Fraction(9), rng)) for rng in seeds])
    column = torch.repeat_interleave(torch.tensor(CODEC.sizes))
    moved = (column[:, None] != column) | torch.eye(len(column), dtype=torch.bool)
    assert torch.equal((drawn != 0).any(0), moved)
    assert torch.equal(drawn, drawn.mT)
    upper = drawn[:, moved.triu()].double()
    assert float(upper.var()) == pytest.approx(81, rel=0.05)
    assert len({tuple(cell) for cell in upper.T.tolist()}) == upper.shape[1], (
        "two cells share their noise"
    )


def test_no_noise_is_zero_and_priced_as_no_guarantee() -> None:
    assert not noise(Fraction(0), SecureRng.from_seed(0), 3, 2).any()
    assert release_event(0.0) == NonPrivateDpEvent()
    assert release_event(2.5) == DiscreteGaussian(2.5)


@pytest.mark.parametrize("target", [0.3, 4.0])
def test_the_needed_noise_spends_the_budget_and_no_more(target: float) -> None:
    sigma = needed_noise(36, Budget(target, 1e-6))
    assert 0.99 * target <= epsilon({DiscreteGaussian(sigma): 36}, 1e-6) <= target
    assert Fraction(sigma).denominator <= 2**20


def test_a_budget_at_delta_zero_is_out_of_reach() -> None:
    with pytest.raises(PrivacyError, match="no noise"):
        needed_noise(3, Budget(1.0, 0.0))
