"""Pairs along a diagonal: what they are found to be, and what a fit leaves of them."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.pair_laws import copulas, laws_of_pairs

SIZES = (12, 10, 4)
PEOPLE = 4_000.0


def columns_of(sizes: tuple[int, ...] = SIZES) -> Tensor:
    return one_hot(torch.repeat_interleave(torch.tensor(sizes))).double()


def ways_of(sizes: tuple[int, ...] = SIZES, seed: int = 0) -> Tensor:
    """One-way tables with large and small levels."""
    rng = torch.Generator().manual_seed(seed)
    parts = [
        torch.rand(size, generator=rng, dtype=torch.float64) + 0.1 for size in sizes
    ]
    return torch.cat([PEOPLE * part / part.sum() for part in parts])


def independent_of(ways: Tensor, columns: Tensor) -> Tensor:
    return torch.outer(ways, ways) / PEOPLE * ((columns @ columns.T) == 0)


def found(
    true: Tensor, ways: Tensor, columns: Tensor, deviation: float
) -> tuple[Tensor, Tensor]:
    """What is made of these tables under noise."""
    rng = torch.Generator().manual_seed(1)
    draw = torch.randn(true.shape, generator=rng, dtype=torch.float64).triu()
    measured = (columns @ columns.T) == 0
    noisy = (true + deviation * (draw + draw.triu(1).T)) * measured
    noise = torch.full_like(true, deviation**2) * measured
    return laws_of_pairs(
        noisy, noise, measured, ways, columns, independent_of(ways, columns)
    )[:2]


def test_copulas_have_the_one_way_tables_and_more_on_the_diagonal_the_larger_r_is():
    ways = ways_of()
    columns = columns_of()
    tables = list(copulas(ways, columns, PEOPLE))
    assert len(tables) % 2 == 0
    for table in tables:
        torch.testing.assert_close(table, table.T)
        torch.testing.assert_close(
            table @ columns, ways[:, None].expand(-1, 3), rtol=1e-3, atol=0.5
        )
    corner = [float(table[0, 12] / min(ways[0], ways[12])) for table in tables[::2]]
    assert corner == sorted(corner)
    assert corner[-1] > 0.9
    # −r: the other end
    assert float(tables[-1][0, 12]) < 1e-3 < float(tables[-1][0, 21])


@pytest.mark.parametrize("sign", [0, 1])
def test_a_band_is_found_under_noise_and_cells_far_from_it_are_empty(sign: int) -> None:
    ways = ways_of()
    columns = columns_of()
    independent = independent_of(ways, columns)
    true = independent.clone()
    band = list(copulas(ways, columns, PEOPLE, [0.98]))[sign][:12, 12:22]
    true[:12, 12:22], true[12:22, :12] = band, band.T
    centre, nobody = found(true, ways, columns, 25.0)
    assert float((centre - true).abs()[:12, 12:22].sum() / 2 / PEOPLE) < 0.1
    assert torch.equal(centre[:12, 22:], independent[:12, 22:])
    assert float(band[nobody[:12, 12:22]].sum()) < 0.01 * PEOPLE
    assert float(nobody[:12, 12:22].double().mean()) > 0.4
    assert not nobody[:12, 22:].any()


def test_levels_without_order_and_weak_dependence_stay_independent() -> None:
    ways = ways_of()
    columns = columns_of()
    independent = independent_of(ways, columns)
    even = torch.full_like(ways, PEOPLE) / columns.sum(0)[columns.argmax(1)]
    mixed = independent_of(even, columns)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    band = next(copulas(even, columns, PEOPLE, [0.98]))[:12, 12:22][order]
    mixed[:12, 12:22], mixed[12:22, :12] = band, band.T
    half = independent.clone()
    half[:12, 12:22] = (independent + list(copulas(ways, columns, PEOPLE))[-2])[
        :12, 12:22
    ] / 2
    half[12:22, :12] = half[:12, 12:22].T
    for true, own in ((mixed, even), (half, ways), (independent, ways)):
        centre, nobody = found(true, own, columns, 10.0)
        assert torch.equal(centre, independent_of(own, columns))
        assert not nobody.any()


def test_columns_that_rise_with_several_others_are_left_to_what_all_pairs_share():
    sizes = (12, 10, 12, 8)
    ways = ways_of(sizes)
    columns = columns_of(sizes)
    across = (columns @ columns.T) == 0
    together = next(copulas(ways, columns, PEOPLE, [0.98])) * across
    independent = independent_of(ways, columns)
    lone = columns.argmax(1) < 2
    two = torch.where(lone[:, None] & lone, together, independent)
    assert found(two, ways, columns, 20.0)[1].any()
    assert not found(together, ways, columns, 20.0)[1].any()


def test_a_cell_in_which_people_were_seen_is_not_empty() -> None:
    ways = ways_of()
    columns = columns_of()
    third = columns.argmax(1) == 2
    true = torch.where(
        third[:, None] | third,
        independent_of(ways, columns),
        list(copulas(ways, columns, PEOPLE))[-2],
    )
    true[0, 21] = true[21, 0] = 160.0
    _, nobody = found(true, ways, columns, 20.0)
    assert not nobody[0, 21]
    assert nobody[1, 21]


def test_exact_pairs_and_pairs_with_gaps_say_nothing() -> None:
    ways = ways_of()
    columns = columns_of()
    measured = (columns @ columns.T) == 0
    true = list(copulas(ways, columns, PEOPLE))[-2] * measured
    independent = independent_of(ways, columns)
    noise = torch.full_like(true, 100.0)
    gaps = measured.clone()
    gaps[0, 12] = gaps[12, 0] = gaps[0, 22] = gaps[22, 0] = gaps[12, 22] = gaps[
        22, 12
    ] = False
    for variance, known in ((torch.zeros_like(true), measured), (noise, gaps)):
        centre, nobody, laws = laws_of_pairs(
            true, variance, known, ways, columns, independent
        )
        assert torch.equal(centre, independent)
        assert not nobody.any()
        assert not laws.any()


def test_a_strong_pair_of_ten_columns_is_still_one_after_the_fit() -> None:
    """Age and experience, 4,000 people, ε = 1: σ = 27.7 on every cell."""
    rng = torch.Generator().manual_seed(3)
    people = 4_000
    size = 12
    noise = 27.7
    age = 20 + 50 * torch.rand(people, generator=rng)
    drawn = [age, age - 20 + 2 * torch.randn(people, generator=rng)]
    drawn += [0.02 * age + torch.randn(people, generator=rng) for _ in range(8)]
    codes = torch.stack(
        [column.argsort().argsort() * size // people for column in drawn], 1
    )
    rows = one_hot(codes, size).flatten(1).double()
    gram = (
        rows.T @ rows
        + noise * torch.randn(120, 120, generator=rng, dtype=torch.float64)
    ).triu()
    fitted = fit_gram(
        gram, (size,) * 10, noise=noise, people=people, components=96, seed=0
    ).gram()
    place = torch.arange(size) - (size - 1) / 2
    assert (
        float(
            place
            @ fitted[:12, 12:24]
            @ place
            / (place @ fitted.diagonal()[:12].diag() @ place)
        )
        > 0.9
    )
