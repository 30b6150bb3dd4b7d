"""Which released tables a fit misses: the truth hardly any, independence those that
depend.
"""

import pytest
import torch
from scipy.stats import binom
from torch import Tensor
from torch.nn.functional import one_hot

from understudy.answers.bars import Missed, is_beyond_chance

SIZES = [8, 8, *[5] * 20]
PEOPLE = 5_000
SIGMA = 60.0


def counted() -> Tensor:
    """Columns of no dependence, but for the second, which is the first once more."""
    rng = torch.Generator().manual_seed(0)
    codes = torch.stack(
        [torch.randint(0, size, (PEOPLE,), generator=rng) for size in SIZES], 1
    )
    codes[:, 1] = codes[:, 0]
    rows = torch.cat(
        [one_hot(codes[:, j], size) for j, size in enumerate(SIZES)], 1
    ).double()
    return rows.T @ rows


def released(true: Tensor) -> tuple[Tensor, Tensor]:
    draw = (
        torch.randn(
            true.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
        )
        * SIGMA
    ).round()
    return true + draw.triu() + draw.triu(1).T, torch.full_like(true, SIGMA)


@pytest.mark.parametrize("many", [4, 25, 64, 400, 20_000])
def test_beyond_chance_is_the_binomial_law(many: int) -> None:
    for some in (0, 1, 2, 3, 5, 7, 8, 30, 900, 1_100):
        if some <= many:
            assert is_beyond_chance(many, some) == (
                float(binom.sf(some - 1, many, 0.05)) < 0.05
            ), some


def test_the_truth_has_one_cell_in_twenty_outside_and_misses_no_more_than_one_table_in_twenty():
    true = counted()
    found = Missed.from_counts(true, *released(true), SIZES)
    assert found.tables == len(SIZES) * (len(SIZES) - 1) // 2
    assert found.outside / found.cells == pytest.approx(0.05, abs=0.01)
    assert found.missed <= 0.05 * found.tables + 6
    assert "warning" not in found.card
    assert (
        found.card["fit"]["said"]
        == f"The fit misses {found.missed} of 231 released pairs of columns."
    )


def test_independence_misses_the_copy_and_a_fit_of_noise_is_warned_of() -> None:
    true = counted()
    counts, noise = released(true)
    ways = true.diagonal()
    independent = torch.outer(ways, ways) / PEOPLE
    copy = torch.zeros_like(noise)
    copy[:8, 8:16] = SIGMA
    found = Missed.from_counts(independent, counts, copy, SIZES)
    assert (found.tables, found.missed, found.cells) == (1, 1, 64)
    assert (
        "do not rely on its pairs"
        in Missed.from_counts(independent + 100.0, counts, noise, SIZES).card["warning"]
    )


def test_exact_counts_and_such_as_were_not_released_are_not_counted() -> None:
    true = counted()
    for noise in (torch.zeros_like(true), torch.full_like(true, torch.inf)):
        assert Missed.from_counts(true + 9.0, true, noise, SIZES).card == {}
