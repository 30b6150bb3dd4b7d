"""Which pairs of columns are measured once more, by a first release of all."""

import pytest
import torch
from torch import Tensor

from understudy.ground.errors import ConfigError
from understudy.models.tables.noisy_tables import NoisyMarginals, read_tables
from understudy.models.tables.strongest import pair_strength, strongest_pairs

SIZES = (2, 5, 3, 4, 2)
PEOPLE = 4_000
RARE, FULL, WEAK = (0, 4), (1, 3), (1, 2)


def counts() -> Tensor:
    """The last column is the first, a rare one; 3 follows 1 for the most part, and 2
    follows it a little.
    """
    rng = torch.Generator().manual_seed(0)
    rows = (torch.rand(PEOPLE, 5, generator=rng) * torch.tensor(SIZES)).long()
    rows[:, 0] = (torch.rand(PEOPLE, generator=rng) < 0.04).long()
    rows[:, 4] = rows[:, 0]
    follows = torch.rand(PEOPLE, generator=rng)
    rows[:, 3] = torch.where(follows < 0.6, rows[:, 1].clamp(max=3), rows[:, 3])
    rows[:, 2] = torch.where(follows > 0.85, rows[:, 1] // 2, rows[:, 2])
    starts = torch.tensor(SIZES).cumsum(0) - torch.tensor(SIZES)
    hot = torch.zeros(PEOPLE, sum(SIZES), dtype=torch.float64)
    hot.scatter_(1, rows + starts, 1.0)
    return hot.T @ hot


def read(noise: float, seed: int = 0, gone: Tensor | None = None) -> NoisyMarginals:
    table = counts()
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(table.shape, generator=generator, dtype=torch.float64) * noise
    deviations = torch.full_like(table, noise)
    if gone is not None:
        deviations[gone] = torch.inf
    return read_tables(table + drawn, SIZES, noise=deviations, people=PEOPLE)


def test_of_exact_tables_the_strength_is_cramers_v() -> None:
    strength = pair_strength(read(0.0))
    table = counts() / PEOPLE
    blocks = torch.split(torch.arange(sum(SIZES)), list(SIZES))
    ways = table.diagonal()
    for a, b in (RARE, FULL, WEAK, (0, 1)):
        apart = torch.outer(ways[blocks[a]], ways[blocks[b]])
        gap = table[blocks[a]][:, blocks[b]] - apart
        v = ((gap.square() / apart).sum() / (min(SIZES[a], SIZES[b]) - 1)).sqrt()
        assert float(strength[a, b]) == pytest.approx(float(v), abs=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_a_rare_copy_goes_before_a_pair_with_many_people_off_independence(
    seed: int,
) -> None:
    tables = read(12.0, seed)
    assert strongest_pairs(tables, 1).tolist() == [[*RARE]]
    assert strongest_pairs(tables, 2).tolist() == [[*RARE], [*FULL]]


def test_pairs_that_are_measured_anyhow_are_not_chosen_and_others_in_rising_order() -> (
    None
):
    besides = torch.tensor([RARE, (1, 4)])
    tables = read(12.0)
    assert strongest_pairs(tables, 1, besides=besides).tolist() == [[*FULL]]
    every = strongest_pairs(tables, 8, besides=besides).tolist()
    assert every == sorted(every)
    assert {*map(tuple, every)}.isdisjoint({RARE, (1, 4)})
    with pytest.raises(ConfigError, match="wanted"):
        strongest_pairs(tables, 9, besides=besides)


def test_a_pair_that_was_not_measured_has_no_strength() -> None:
    gone = torch.zeros(sum(SIZES), sum(SIZES), dtype=torch.bool)
    gone[0:2, 14:16] = gone[14:16, 0:2] = True
    strength = pair_strength(read(12.0, gone=gone))
    assert float(strength[RARE]) == 0
    assert float(strength[FULL]) > 0.3
