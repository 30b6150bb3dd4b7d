"""Many noisy tables together show what none of them shows alone, and nothing where
there is nothing.
"""

import torch
from torch import Tensor

from understudy.models.tables.priors import low_rank, pooled_tables


def one_hot_rows(people: int, columns: int, lean: float, seed: int = 0) -> Tensor:
    """Binary columns that each follow one hidden trait with probability `lean`:
    (people, 2·columns).
    """
    rng = torch.Generator().manual_seed(seed)
    trait = torch.rand(people, 1, generator=rng) < 0.4
    own = torch.rand(people, columns, generator=rng) < 0.3
    follow = torch.rand(people, columns, generator=rng) < lean
    codes = torch.where(follow, trait, own).long()
    return torch.nn.functional.one_hot(codes, 2).flatten(1).double()


def released(
    rows: Tensor, noise: float, seed: int = 1
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """True matrix, noisy matrix, one-way tables, measured cells, and the columns of the
    levels.
    """
    true = rows.T @ rows
    draw = torch.randn(
        true.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    upper = (true + noise * draw).triu()
    columns = torch.nn.functional.one_hot(torch.arange(len(true)) // 2).double()
    return (
        true,
        upper + upper.triu(1).T,
        true.diagonal(),
        (1 - columns @ columns.T) > 0,
        columns,
    )


def test_a_trait_that_all_columns_share_is_found_under_noise_that_drowns_every_table():
    true, noisy, ways, measured, columns = released(one_hot_rows(2_000, 60, 0.5), 300.0)
    pooled = pooled_tables(
        noisy, ways, torch.full_like(noisy, 300.0**2), measured, columns
    )
    independent = torch.outer(ways, ways) / 2_000
    errors = [
        float((table - true)[measured].abs().mean())
        for table in (pooled, independent, noisy)
    ]
    assert errors[0] < 0.25 * errors[1] < errors[2]


def test_noise_alone_leaves_columns_independent() -> None:
    for seed in range(5):
        _, noisy, ways, measured, columns = released(
            one_hot_rows(2_000, 40, 0.0), 100.0, seed
        )
        pooled = pooled_tables(
            noisy, ways, torch.full_like(noisy, 100.0**2), measured, columns
        )
        independent = torch.outer(ways, ways) / 2_000
        assert float((pooled - independent)[measured].abs().mean()) < 0.2 * 100.0


def test_pooled_tables_have_the_known_margins_and_no_count_above_a_level() -> None:
    _, noisy, ways, measured, columns = released(one_hot_rows(500, 30, 0.8), 80.0)
    pooled = pooled_tables(
        noisy, ways, torch.full_like(noisy, 80.0**2), measured, columns
    )
    margins = pooled @ columns
    off = columns == 0
    torch.testing.assert_close(
        margins[off], ways[:, None].expand_as(margins)[off], rtol=0.1, atol=1.0
    )
    assert float(pooled.min()) >= 0
    torch.testing.assert_close(pooled, pooled.T)


def test_without_noise_a_low_rank_is_kept_whole() -> None:
    factor = torch.randn(
        12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    matrix = factor @ factor.T
    known = torch.ones_like(matrix, dtype=torch.bool)
    torch.testing.assert_close(
        low_rank(matrix, torch.zeros_like(matrix), known), matrix
    )


def test_cells_that_were_not_measured_are_filled_by_the_others() -> None:
    factor = torch.randn(
        40, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    matrix = 50 * factor @ factor.T
    known = ~torch.eye(40, dtype=torch.bool)
    wild = torch.where(known, matrix, 1e6)
    found = low_rank(wild, torch.ones_like(matrix), known)
    assert float((found - matrix).abs().max()) < 0.05 * float(matrix.abs().max())
