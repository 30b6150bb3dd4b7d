"""LoPub and LoCop at both ends: without noise all tables are the counted ones, and
under noise alone both are one.
"""

from itertools import combinations

import numpy as np
import torch

from understudy.api.train import train
from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.local.rappor import Rappor
from understudy.privacy.noise.rng import SecureRng
from understudy.protocols.papers.fed_wae.lopub_fit import Estimates
from understudy.runs.federation import Federation

SIZES = (2, 3, 1, 4)


def rows(n: int) -> torch.Tensor:
    """Codes of four columns that depend on each other."""
    rng = np.random.default_rng(0)
    first = rng.choice(2, n, p=(0.8, 0.2))
    second = np.where(rng.random(n) < 0.7, first, rng.integers(0, 3, n))
    fourth = np.where(rng.random(n) < 0.5, first + second, rng.integers(0, 4, n))
    return torch.from_numpy(np.stack([first, second, 0 * first, fourth], 1))


def test_without_flips_every_joint_table_is_the_counted_one() -> None:
    codes = rows(3000)
    mechanism = Rappor(sizes=SIZES, epsilon=2000.0)
    packed = np.packbits(mechanism(codes, SecureRng.from_seed(0)).numpy(), axis=1)
    estimates = Estimates(mechanism, torch.from_numpy(packed))
    for many in (1, 2, 3, 4):
        for columns in combinations(range(4), many):
            counted = np.zeros([SIZES[column] for column in columns])
            np.add.at(
                counted,
                tuple(codes[:, column].numpy() for column in columns),
                1 / len(codes),
            )
            found = estimates.joint(columns)
            assert found is not None
            np.testing.assert_allclose(found.reshape(counted.shape), counted, atol=1e-4)


def test_where_no_pair_is_told_from_noise_both_draw_the_same_rows() -> None:
    """Equal figures of both at a small ε are no accident: independent columns, one
    inversion, the same latents.
    """
    frame, schema = toy(rows=300, seed=3)

    def drawn(method: str) -> np.ndarray:
        federation = Federation.rehearsal(
            {"a": frame},
            {"a": schema},
            budget=Budget(0.5, 0.0),
            seed=1,
            same_people=False,
        )
        generator = train(
            "lopub", federation, method=method, epsilon_total=0.5
        ).generator
        codes: np.ndarray = Codec(generator.schema).codes(generator.sample(200, seed=5))
        return codes

    np.testing.assert_array_equal(drawn("lopub"), drawn("locop"))
