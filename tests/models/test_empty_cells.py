"""Cells that a pair near a function leaves empty stay empty, and nothing else is taken
for empty.
"""

import math
from dataclasses import replace
from itertools import accumulate

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from understudy.models.tables import empty_cells as marking
from understudy.models.tables.empty_cells import empty_cells
from understudy.models.tables.fit_gram import fit_gram

MULTIPLIER = 3.733  # the noise of one count at ε = 1, δ = 1e-5


def draws(people: int, sizes: tuple[int, ...], seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.stack(
        [torch.randint(size, (people,), generator=rng) for size in sizes], 1
    )


def released(
    codes: Tensor, sizes: tuple[int, ...], noise: float, seed: int = 0
) -> Tensor:
    starts = torch.tensor([0, *accumulate(sizes)][:-1])
    rows = torch.zeros(len(codes), sum(sizes), dtype=torch.float64).scatter_(
        1, codes + starts, 1.0
    )
    rng = torch.Generator().manual_seed(seed)
    upper = (
        noise * torch.randn(sum(sizes), sum(sizes), generator=rng, dtype=torch.float64)
    ).triu()
    return rows.T @ rows + upper + upper.triu(1).T


def emptied(
    codes: Tensor, sizes: tuple[int, ...], noise: float, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """`empty_cells` of what would be released of these people."""
    gram = released(codes, sizes, noise, seed)
    columns = one_hot(torch.repeat_interleave(torch.tensor(sizes))).double()
    measured = (columns @ columns.T) == 0
    ways = released(codes, sizes, 0.0).diagonal()
    return empty_cells(gram, torch.full_like(gram, noise**2), measured, ways, columns)


def copied(people: int, sizes: tuple[int, ...]) -> Tensor:
    codes = draws(people, sizes)
    codes[:, 1] = codes[:, 0]
    return codes


@pytest.mark.parametrize("columns", [5, 10])
def test_copies_of_ten_levels_stay_copies_at_epsilon_one(columns: int) -> None:
    """5,000 people, noise as a run at ε = 1 has it: at most 2 % of the people in cells
    that hold nobody.
    """
    sizes = (10,) * columns
    noise = MULTIPLIER * math.sqrt(math.comb(columns + 1, 2))
    gram = released(copied(5_000, sizes), sizes, noise)
    fitted = fit_gram(
        gram, sizes, noise=noise, people=5_000, components=256, seed=0
    ).gram()
    pair = fitted[:10, 10:20]
    assert float(pair.sum() - pair.diagonal().sum()) <= 0.02
    assert float((pair.diagonal() - 0.1).abs().max()) < 0.03


def test_a_column_that_another_determines_has_empty_cells_where_no_row_can_be() -> None:
    sizes = (12, 3, 4)
    codes = draws(5_000, sizes)
    codes[:, 1] = codes[:, 0] // 4
    sure = emptied(codes, sizes, 25.0)
    possible = one_hot(torch.arange(12) // 4).bool()
    assert float(sure[:12, 12:15][possible].max()) < 0.01
    assert float(sure[:12, 12:15][~possible].min()) > 1
    assert not sure[:15, 15:].any()  # the third column has nothing to do with it


def test_codes_and_their_groups_survive_among_dozens_of_other_columns() -> None:
    """7,000 people and 40 columns at ε = 1: a full cell has five deviations of its
    noise, among 48 of the pair.
    """
    sizes = (12, 4, *(3,) * 38)
    noise = MULTIPLIER * math.sqrt(math.comb(len(sizes) + 1, 2))
    codes = draws(7_000, sizes)
    codes[:, 1] = codes[:, 0] % 4
    gram = released(codes, sizes, noise)
    pair = fit_gram(
        gram, sizes, noise=noise, people=7_000, components=256, seed=0
    ).gram()[:12, 12:16]
    possible = one_hot(torch.arange(12) % 4).bool()
    assert float(pair[~possible].sum()) <= 0.05
    assert float((pair[possible] - 1 / 12).abs().max()) < 0.03


@pytest.mark.long
@pytest.mark.parametrize("lean", [0.4, 0.6, 0.8, 0.9])
def test_half_a_copy_is_not_taken_for_a_whole_one(lean: float) -> None:
    """Off the diagonal a cell holds less than 1.5 deviations of its noise, and all of
    them together most people.
    """
    sizes = (8, 8, 2)
    people = 5_000
    codes = draws(people, sizes)
    follow = torch.rand(people, generator=torch.Generator().manual_seed(1)) < lean
    codes[:, 1] = torch.where(follow, codes[:, 0], codes[:, 1])
    assert not emptied(codes, sizes, 25.0).any()
    fitted = fit_gram(
        released(codes, sizes, 25.0),
        sizes,
        noise=25.0,
        people=people,
        components=64,
        steps=200,
        seed=0,
    ).gram()[:8, 8:16]
    apart = float(fitted.sum() - fitted.diagonal().sum())
    assert apart == pytest.approx((1 - lean) * 7 / 8, abs=0.045)


def test_empty_cells_do_not_keep_the_fit_from_the_other_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Codes and what sums them up, many people and little noise: hundreds of cells are
    empty, some only seem so.
    """
    sizes = (20, 5, 5, 12, 4, 20, 6)
    people = 50_000
    noise = 15.0
    rng = torch.Generator().manual_seed(5)
    shares = torch.rand(5, people, generator=rng)
    home = (shares[0].square() * 20).long()
    work = (shares[1].square() * 12).long()
    born = torch.where(shares[2] < 0.9, home, (shares[3] * 20).long())
    task = torch.where(shares[4] < 0.97, work // 2, 5)
    codes = torch.stack(
        [home, home // 4, home * 7 % 10 // 2, work, work // 3, born, task], 1
    )
    gram = released(codes, sizes, noise)
    true = released(codes, sizes, 0.0) / people
    apart = torch.repeat_interleave(torch.tensor(sizes))[
        :, None
    ] != torch.repeat_interleave(torch.tensor(sizes))
    far = []
    usual = marking.EmptySettings()
    for settings in (usual, replace(usual, surest=0.0)):
        monkeypatch.setattr(marking, "_EMPTY", settings)
        fit = fit_gram(
            gram, sizes, noise=noise, people=people, components=48, steps=120, seed=0
        ).gram()
        far.append(float((fit - true)[apart].abs().sum()))
    assert far[0] < 1.1 * far[1]


def test_independent_columns_have_no_empty_cells() -> None:
    sizes = (10, 10, 5, 2)
    for seed in range(10):
        assert not emptied(draws(2_000, sizes), sizes, 30.0, seed).any()


def test_noise_alone_has_no_empty_cells() -> None:
    sizes = (10, 10, 5, 2)
    for seed in range(10):
        assert not emptied(draws(200, sizes), sizes, 60.0, seed).any()


def test_exact_cells_and_such_as_were_not_measured_are_never_taken_for_empty() -> None:
    sizes = (10, 10)
    gram = released(copied(5_000, sizes), sizes, 0.0)
    columns = one_hot(torch.repeat_interleave(torch.tensor(sizes))).double()
    measured = (columns @ columns.T) == 0
    ways = gram.diagonal()
    assert not empty_cells(gram, torch.zeros_like(gram), measured, ways, columns).any()
    noise = torch.full_like(gram, 400.0)
    half = measured & (torch.arange(20) % 2 == 0)
    sure = empty_cells(gram, noise, half & half.T, ways, columns)
    assert sure.any()
    assert not sure[~(half & half.T)].any()
