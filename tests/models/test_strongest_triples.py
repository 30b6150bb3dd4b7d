"""Which three-way tables with a target are worth their noise."""

from itertools import combinations

import torch
from torch import Tensor

from understudy.models.tables.noisy_tables import NoisyMarginals, read_tables
from understudy.models.tables.strongest import information, strongest_triples

SIZES = (3, 2, 3, 20, 2)
TARGET = 1
PEOPLE = 4_000


def codes() -> Tensor:
    """The target follows the columns 0, 2 and, most of all, 3; the last column is
    noise.
    """
    rng = torch.Generator().manual_seed(0)
    rows = (torch.rand(PEOPLE, 5, generator=rng) * torch.tensor(SIZES)).long()
    odds = 0.15 + 0.15 * rows[:, 0] / 2 + 0.2 * rows[:, 2] / 2 + 0.4 * (rows[:, 3] > 9)
    rows[:, TARGET] = (torch.rand(PEOPLE, generator=rng) < odds).long()
    return rows


def tables(noise: float = 2.0) -> NoisyMarginals:
    starts = torch.tensor(SIZES).cumsum(0) - torch.tensor(SIZES)
    rows = torch.zeros(PEOPLE, sum(SIZES), dtype=torch.float64).scatter_(
        1, codes() + starts, 1.0
    )
    return read_tables(rows.T @ rows, SIZES, noise=noise, people=PEOPLE)


def test_a_column_tells_of_the_target_what_its_mutual_information_is() -> None:
    rows = codes()
    found = information(tables(0.0), SIZES, TARGET)
    for column in (0, 2, 3):
        joint = torch.zeros(SIZES[column], 2, dtype=torch.float64)
        joint.index_put_(
            (rows[:, column], rows[:, TARGET]),
            torch.tensor(1.0).double(),
            accumulate=True,
        )
        joint /= PEOPLE
        exact = (joint * (joint / torch.outer(joint.sum(1), joint.sum(0))).log()).sum()
        assert abs(found[column] - float(exact)) < 1e-4
    assert found[TARGET] == 0


def test_a_pair_is_as_strong_as_the_weaker_of_its_columns() -> None:
    chosen = strongest_triples(
        tables(), SIZES, TARGET, 3, among=[*combinations([4, 3, 2, 0], 2)], noise=2.0
    )
    assert chosen.tolist() == [[0, 2], [0, 3], [2, 3]], (
        "the column of noise alone is in none"
    )
    (best,) = strongest_triples(
        tables(), SIZES, TARGET, 1, among=[*combinations([0, 2, 3, 4], 2)], noise=2.0
    ).tolist()
    assert best == [2, 3]


def test_columns_of_others_are_never_chosen() -> None:
    chosen = strongest_triples(
        tables(), SIZES, TARGET, 9, among=[*combinations([0, 2, 4], 2)], noise=2.0
    )
    assert chosen.tolist() == [[0, 2], [0, 4], [2, 4]]


def test_a_table_that_is_released_anyhow_is_not_chosen() -> None:
    listed = [frozenset({3, TARGET, 2})]
    chosen = strongest_triples(
        tables(),
        SIZES,
        TARGET,
        3,
        among=[*combinations([0, 2, 3], 2)],
        noise=2.0,
        besides=listed,
    )
    assert chosen.tolist() == [[0, 2], [0, 3]]


def test_tables_that_noise_would_fill_are_left_out_even_if_none_is_left() -> None:
    cells = 3 * 3 * 2
    # with it the smallest table's noise is .8 of the people, and that of the larger
    # ones more
    noise = PEOPLE / cells
    assert strongest_triples(
        tables(), SIZES, TARGET, 9, among=[*combinations([0, 2, 3], 2)], noise=noise
    ).tolist() == [[0, 2]]
    none = strongest_triples(
        tables(), SIZES, TARGET, 9, among=[*combinations([0, 2, 3], 2)], noise=2 * noise
    )
    assert none.shape == (0, 2)
    assert none.dtype == torch.int64
