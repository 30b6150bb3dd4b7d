"""Levels that are chosen from released tables: neighbours together, spikes alone, rare
codes as one.
"""

import numpy as np
import pytest
import torch

from understudy.data.schema import Boolean, Categorical, Column, Integer, Real
from understudy.models.tables.merged_levels import (
    MOST_WIDTH,
    bought_levels,
    is_worth_buying,
    level_count,
    merged_neighbours,
    merged_rare,
)


def table(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_even_cells_become_levels_of_the_same_weight() -> None:
    assert (
        merged_neighbours(torch.ones(16), 4).tolist() == np.repeat(range(4), 4).tolist()
    )


def test_many_declared_bins_are_cut_where_people_are_few_and_stay_where_they_are_enough_for_all():
    columns = [Integer(name=name, low=0, high=159, bins=16) for name in "abc"]
    rare = torch.cat([torch.full((15,), 1000.0), table(1)])
    few, many = (
        bought_levels(columns, [rare] * 3, people=15_001, noise=noise)
        for noise in (600.0, 1.0)
    )
    assert all(
        len(set(group.tolist())) == level_count(15_001, 600.0) == 5 for group in few
    )
    assert all(group.tolist() == list(range(16)) for group in many)


def test_declared_bins_are_cut_where_pairs_have_fewer_cells_by_more_than_that_costs():
    binned = [Integer(name=f"n{n}", low=0, high=159, bins=16) for n in range(3)]
    listed: list[Column] = [
        Categorical(name=f"c{n}", categories=tuple("abcdefgh")) for n in range(30)
    ]
    assert is_worth_buying(binned, 0.2)
    assert not is_worth_buying([*binned, *listed], 0.2)
    assert is_worth_buying([*binned, *listed, Real(name="r", low=0, high=1)], 0.2), (
        "of this levels have to be chosen"
    )
    assert not is_worth_buying(binned, 0.0)
    assert not is_worth_buying(
        [Integer(name="n", low=0, high=159, bins=12), *listed], 0.2
    )


def test_a_cell_with_the_weight_of_a_level_is_one_by_itself() -> None:
    found = merged_neighbours(table(5, 5, 50, 5, 5, 5, 40, 3, 3, 3), 10)
    for spike in (2, 6):
        assert (found == found[spike]).sum() == 1


@pytest.mark.parametrize("seed", range(30))
def test_levels_are_neighbours_no_more_than_asked_for_and_at_least_two(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    weights = torch.from_numpy(
        rng.pareto(0.5 + rng.random(), 2 + 10 * seed) * (rng.random() < 0.9)
    )
    levels = int(rng.integers(2, 30))
    found = merged_neighbours(weights, levels)
    assert set(np.diff(found)) <= {0, 1}
    assert found[0] == 0
    assert 2 <= found.max() + 1 <= levels


@pytest.mark.parametrize(
    ("weights", "expected"),
    [((5,), [0]), ((7, 1), [0, 1]), ((0, 0, 0), [0, 1, 1]), ((9, 0, 0), [0, 1, 1])],
)
def test_two_levels_are_left_where_there_are_two_cells(
    weights: tuple[int, ...], expected: list[int]
) -> None:
    assert merged_neighbours(table(*weights), 3).tolist() == expected


def test_rare_codes_share_one_level_if_they_are_two_or_more() -> None:
    assert merged_rare(table(100, 2, 50, 1, 0), 5, 10).tolist() == [0, 2, 1, 2, 2]
    assert merged_rare(table(100, 2, 50), 5, 10).tolist() == [0, 1, 2]
    assert merged_rare(table(1, 2, 3), 50, 10).tolist() == [1, 1, 0], "two at least"
    assert merged_rare(table(400, 200, 300, 250), 5, 3).tolist() == [0, 2, 1, 2], (
        "no more than allowed"
    )


def test_more_people_or_less_noise_give_more_levels() -> None:
    counts = [level_count(people, 40.0) for people in (10, 1_000, 10_000, 100_000)]
    assert counts == sorted(counts)
    assert counts[0] == 2
    assert level_count(10_000, 10.0) > level_count(10_000, 100.0)
    assert level_count(10_000, 0.0) == level_count(1e30, 1.0)
    assert level_count(-5.0, 3.0) == 2


def test_missing_is_a_level_of_its_own_and_declared_levels_stay() -> None:
    columns: list[Column] = [
        Integer(name="i", low=0, high=99, nullable=True),
        Boolean(name="b", nullable=True),
        Categorical(name="c", categories=tuple(range(70)), nullable=True),
    ]
    tables = [torch.ones(101), torch.ones(3), torch.ones(71)]
    number, boolean, codes = bought_levels(columns, tables, people=300.0, noise=10.0)
    assert number[-1] == number[:-1].max() + 1
    assert boolean.tolist() == [0, 1, 2]
    assert codes[-1] == codes[:-1].max() + 1 == 2


def test_all_columns_together_are_no_wider_than_is_said() -> None:
    columns: list[Column] = [
        Real(name=f"r{n}", low=0, high=1, nullable=True) for n in range(200)
    ]
    groups = bought_levels(columns, [torch.ones(600)] * 200, people=1e9, noise=1.0)
    assert MOST_WIDTH / 2 < sum(int(group.max()) + 1 for group in groups) <= MOST_WIDTH
