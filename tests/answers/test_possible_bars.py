"""Intervals of figures stay within what is possible, and where there is no answer,
words say why.
"""

import math

import numpy as np
import pytest

from understudy.answers.bars import Figure, ReleasedMarginals, figures
from understudy.answers.release import Noisy
from understudy.data.encoding.codec import Codec
from understudy.data.schema import Integer, Schema

SCHEMA = Schema(
    columns=(
        Integer(name="a", low=0, high=2, bins=(0, 1, 2)),
        Integer(name="b", low=0, high=2, bins=(0, 1, 2)),
    )
)


def found(table: list[list[float]], sigma: float) -> dict[str, Figure]:
    counts = np.array(table, dtype=float)
    noisy = Noisy(counts, np.full(counts.shape, sigma**2), whole=True)
    every = ReleasedMarginals(noisy, [noisy.sum(1), noisy.sum(0)], noisy.sum((0, 1)))
    return {
        figure.name.split(" of ")[0]: figure
        for figure in figures([0, 1], counts, every, Codec(SCHEMA))
    }


@pytest.mark.parametrize(
    "table", [[[90.0, 2.0], [3.0, 80.0]], [[2.0, 95.0], [70.0, 1.0]]]
)
def test_a_correlation_lies_between_minus_1_and_1_and_a_mean_within_the_bounds(
    table: list[list[float]],
) -> None:
    for sigma in (1.0, 8.0, 12.0):
        made = found(table, sigma)
        assert -1 <= made["correlation"].low <= made["correlation"].high <= 1
        assert 0 <= made["mean"].low <= made["mean"].released <= made["mean"].high <= 2
        assert 0 <= made["Cramér's V"].low <= made["Cramér's V"].high <= 1
        assert made["correlation"].sd > 0


def test_columns_that_seem_less_than_independent_leave_room_for_what_noise_hides():
    made = found([[100.0, 100.0], [100.0, 100.0]], 5.0)["Cramér's V"]
    assert (made.low, made.released) == (0, 0)
    assert 0 < made.high < 0.3
    assert made.sd > 0


def test_what_has_no_answer_says_why() -> None:
    made = found([[9.0, 5.0], [4.0, 8.0]], 20.0)
    assert math.isnan(made["correlation"].released)
    assert made["correlation"].why == made["Cramér's V"].why != ""
    assert "does not stand out of the noise" in made["mean"].why
    alike = found([[400.0, 0.0], [0.0, 0.0]], 0.0)["correlation"]
    assert math.isnan(alike.released)
    assert alike.why
