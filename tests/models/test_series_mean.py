"""The mean of series under noise: levels that are one are fused, and swings that are
noise go.
"""

import math
from collections.abc import Iterator

import pytest
import torch

from understudy.models.moments.fit import fused, series_mean

RNG = torch.Generator().manual_seed(0)


def noisy(values: torch.Tensor, noise: float) -> torch.Tensor:
    return values + noise * torch.randn(len(values), generator=RNG, dtype=torch.float64)


def groupings(n: int) -> Iterator[tuple[int, ...]]:
    """All ways to part n things, each once: the group of every thing, numbered as they
    first come.
    """
    if n == 0:
        yield ()
        return
    for others in groupings(n - 1):
        yield from ((*others, group) for group in range(max(others, default=-1) + 2))


@pytest.mark.parametrize("spread", [0.5, 2.0, 5.0])
def test_of_all_groupings_the_cheapest_is_found(spread: float) -> None:
    values = spread * torch.randn(6, generator=RNG, dtype=torch.float64)

    def cost(groups: tuple[int, ...]) -> float:
        parts = [
            values[torch.tensor([g == one for g in groups])]
            for one in range(6)
            if one in set(groups)
        ]
        price = 2 * math.log(6) + 2
        return sum(float((part - part.mean()).square().sum()) + price for part in parts)

    found = fused(values, 1.0).tolist()
    ours = tuple(sorted(set(found)).index(value) for value in found)
    assert cost(ours) == pytest.approx(min(map(cost, groupings(6))))
    assert sorted(set(found)) == pytest.approx(
        sorted(
            {
                float(values[torch.tensor([g == one for g in ours])].mean())
                for one in set(ours)
            }
        )
    )


def test_channels_of_one_level_get_one_and_another_keeps_its_own() -> None:
    found = fused(noisy(torch.tensor([-8.0, -8, -8, -8, -8, -20]).double(), 0.5), 0.5)
    assert len(set(found[:5].tolist())) == 1
    assert found[0] == pytest.approx(-8, abs=0.7)
    assert found[5] == pytest.approx(-20, abs=1.5)


def test_swings_that_are_noise_go_and_one_that_is_not_stays() -> None:
    truth = torch.zeros(30 * 4, dtype=torch.float64)
    truth[:4], truth[50] = 40.0, 30.0
    found = series_mean(noisy(truth, 1.0), 1.0, 4)
    assert (found - truth).square().sum() < 0.15 * len(truth)
    assert found[50] == pytest.approx(30, abs=3)


def test_a_mean_without_noise_stays_as_it_is() -> None:
    values = torch.randn(12, generator=RNG, dtype=torch.float64)
    assert torch.equal(series_mean(values, 0.0, 3), values)
