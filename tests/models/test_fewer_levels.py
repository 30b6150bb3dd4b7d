"""Pairs that hide in their noise, read on fewer levels: nearer to the people, and the
target's pairs as they were.
"""

import pytest
import torch
from torch import Tensor

from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.noisy_tables import read_on_fewer, read_tables

SIZES = (12, 12, 12, 2)
PEOPLE = 1_000
TARGET = 3
COLUMN = torch.repeat_interleave(torch.tensor(SIZES))
WITH_IT = (COLUMN[:, None] == TARGET) ^ (COLUMN == TARGET)
OTHER = (COLUMN[:, None] != COLUMN) & ~WITH_IT


def counted() -> Tensor:
    """Columns that hardly tell of each other, and of a bit."""
    generator = torch.Generator().manual_seed(0)
    bit = torch.rand(PEOPLE, generator=generator) < 0.4
    codes = (torch.rand(PEOPLE, 3, generator=generator) * (9 + 3 * bit[:, None])).long()
    rows = torch.cat(
        [
            torch.nn.functional.one_hot(codes, 12).flatten(1),
            torch.stack([~bit, bit], 1),
        ],
        1,
    ).double()
    return rows.T @ rows


def released(other: float) -> tuple[Tensor, Tensor]:
    """Counts with noise, and its variance: little where the target is."""
    deviation = torch.where(WITH_IT, 10.0, other).double()
    noise = torch.randn(
        deviation.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    ).triu()
    return counted() + deviation * (noise + noise.triu(1).T), deviation.square()


def test_other_pairs_are_nearer_and_the_targets_stay() -> None:
    counts, variance = released(150.0)
    told = read_on_fewer(counts, variance.sqrt(), SIZES, TARGET, PEOPLE)
    assert told is not None
    declared = read_tables(counts, SIZES, noise=variance.sqrt(), people=PEOPLE)
    alone = read_tables(
        counts,
        SIZES,
        noise=torch.where(OTHER, torch.inf, variance).sqrt(),
        people=PEOPLE,
    )
    near, far = (
        (tables.plain(tables.target) - counted() / PEOPLE)[OTHER].abs().sum()
        for tables in (told, declared)
    )
    assert near < 0.8 * far
    assert torch.equal(told.target[WITH_IT], alone.target[WITH_IT])
    assert torch.equal(told.precision[WITH_IT], alone.precision[WITH_IT])
    assert bool((told.precision[OTHER] > 0).all())


def test_a_fit_reads_so_where_people_are_few_beside_the_noise() -> None:
    counts, variance = released(20.0)
    assert read_on_fewer(counts, variance.sqrt(), SIZES, TARGET, PEOPLE) is None
    counts, variance = released(150.0)
    steps: list[int] = []
    fit_gram(
        counts,
        SIZES,
        noise=variance.sqrt(),
        people=PEOPLE,
        target=TARGET,
        components=8,
        steps=400,
        seed=0,
        watch=lambda step, _: steps.append(step),
    )
    # all of them: the noise of other pairs says nothing of when to stop
    assert steps[-1] == 300


@pytest.mark.long
def test_a_fit_reads_as_declared_where_nobody_knows_how_many_people_there_are() -> None:
    counts, variance = released(150.0)
    steps: list[int] = []
    fit_gram(
        counts,
        SIZES,
        noise=variance.sqrt(),
        target=TARGET,
        components=8,
        steps=400,
        seed=0,
        watch=lambda step, _: steps.append(step),
    )
    # the target's pairs have a fifth of the budget then, and one-way tables need all
    # others
    assert steps[-1] != 300


def test_nothing_to_merge_and_nothing_else_measured() -> None:
    counts, variance = released(150.0)
    assert (
        read_on_fewer(
            counts,
            torch.where(OTHER, torch.inf, variance).sqrt(),
            SIZES,
            TARGET,
            PEOPLE,
        )
        is None
    )
    # 600: these would hide as well
    assert read_on_fewer(counts, 4 * variance.sqrt(), SIZES, TARGET, PEOPLE) is None
    bits = torch.full((6, 6), 200.0, dtype=torch.float64)
    assert read_on_fewer(bits, torch.full_like(bits, 100.0), (2, 2, 2), 2, 400) is None
