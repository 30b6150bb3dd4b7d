"""Wide matrices on fewer levels: the same people, and a mixture that parts them
again.
"""

from functools import cache
from itertools import accumulate

import pytest
import torch
from torch import Tensor

from understudy.models.tables.fit_gram import Triple, fit_gram
from understudy.models.tables.fitted_levels import FITTED, Coarse
from understudy.models.tables.given_rules import Ruled, Tie
from understudy.models.tables.mixture import MixtureOfProducts

SIZES = (900, 30, 4)


def people(n: int = 600, sizes: tuple[int, ...] = SIZES) -> Tensor:
    """Most in few levels of the first column; the second follows it."""
    rng = torch.Generator().manual_seed(0)
    codes = torch.stack([torch.randint(size, (n,), generator=rng) for size in sizes], 1)
    codes[: n // 2, 0] = 17
    codes[: n // 2, 1] = 3
    return codes


def gram_of(codes: Tensor, sizes: tuple[int, ...]) -> Tensor:
    starts = torch.tensor([0, *accumulate(sizes)][:-1])
    rows = torch.zeros(len(codes), sum(sizes), dtype=torch.float64).scatter_(
        1, codes + starts, 1.0
    )
    return rows.T @ rows


@cache
def coarse_of(sizes: tuple[int, ...] = SIZES) -> Coarse:
    found = Coarse.from_one_way(gram_of(people(sizes=sizes), sizes).diagonal(), sizes)
    assert found is not None
    return found


def test_merged_counts_are_those_of_people_on_merged_levels() -> None:
    codes = people()
    coarse = coarse_of()
    starts = torch.tensor([0, *accumulate(SIZES)][:-1])
    fewer = coarse.group[codes + starts] - torch.tensor(
        [0, *accumulate(coarse.sizes)][:-1]
    )
    gram, variance = coarse.merged(
        gram_of(codes, SIZES), torch.full((sum(SIZES),) * 2, 4.0).double()
    )
    assert torch.equal(gram, gram_of(fewer, coarse.sizes))
    levels = torch.bincount(coarse.group)  # how many became one
    assert torch.equal(
        variance[: coarse.sizes[0], -4:],
        4.0 * torch.outer(levels, levels)[: coarse.sizes[0], -4:],
    )
    assert torch.equal(variance.diagonal(), 4.0 * levels)
    assert variance[0, 1] == torch.inf  # two levels of one column


def test_all_columns_together_have_no_more_levels_than_are_fitted() -> None:
    coarse = coarse_of()
    assert sum(coarse.sizes) <= FITTED
    assert coarse.sizes[1:] == SIZES[1:]  # the widest column gives way
    alone = (coarse.group == coarse.group[17]).sum()
    assert alone == 1  # a level with many people stays alone


def test_a_mixture_is_parted_by_the_one_way_tables() -> None:
    coarse = coarse_of()
    mixture = MixtureOfProducts(coarse.sizes, 5)
    torch.nn.init.normal_(mixture.logits)
    full = coarse.parted(mixture)
    assert full.sizes == SIZES
    merged = torch.zeros(5, sum(coarse.sizes)).index_add_(1, coarse.group, full.odds())
    torch.testing.assert_close(merged, mixture.odds().detach())
    torch.testing.assert_close(
        full.odds(), mixture.odds().detach()[:, coarse.group] * coarse.share.float()
    )


def test_narrow_tables_and_many_small_columns_stay_as_they_are() -> None:
    assert Coarse.from_one_way(torch.ones(FITTED), (FITTED - 8, 8)) is None
    assert Coarse.from_one_way(torch.ones(6 + 2 * FITTED), (2,) * FITTED + (6,)) is None


def test_columns_of_a_three_way_table_keep_their_levels() -> None:
    coarse = Coarse.from_one_way(torch.ones(1_300), (500, 700, 100), whole=(0, 2))
    assert coarse is not None
    assert (coarse.sizes[0], coarse.sizes[2]) == (500, 100)
    assert sum(coarse.sizes) <= FITTED


def test_a_wide_matrix_is_fitted_to_all_its_levels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("understudy.models.tables.fitted_levels.FITTED", 96)
    sizes = (17,) * 6
    n = 2_000
    codes = torch.stack(
        [
            torch.randint(size, (n,), generator=torch.Generator().manual_seed(k))
            for k, size in enumerate(sizes)
        ],
        1,
    )
    codes[:1_500, 0] = 7
    table = torch.zeros(17, 17, 17, dtype=torch.float64)
    table.index_put_(
        tuple(codes[:, :3].T), torch.ones(n, dtype=torch.float64), accumulate=True
    )
    gram = gram_of(codes, sizes)
    triples = [Triple((0, 1, 2), table, 1.0)]
    assert Coarse.from_one_way(gram.diagonal(), sizes, {0, 1, 2}) is not None
    fit = fit_gram(
        gram,
        sizes,
        noise=1.0,
        people=n,
        triples=triples,
        components=8,
        steps=60,
        seed=0,
    )
    assert fit.sizes == sizes
    assert (
        float((fit.gram().diagonal()[:17] - gram.diagonal()[:17] / n).abs().max())
        < 0.02
    )


def test_rules_on_fewer_levels_give_the_same_law() -> None:
    """Tables of all levels given the rules, summed over each group, are those of the
    groups given the rules.
    """
    sizes = (400, 450, 3)
    rng = torch.Generator().manual_seed(0)
    coarse = Coarse.from_one_way(
        torch.rand(sum(sizes), generator=rng).double() * 50, sizes
    )
    assert coarse is not None
    allowed = torch.stack(
        [torch.rand(400, generator=rng) < 0.5, torch.ones(400, dtype=torch.bool)]
    ).double()
    tie = Tie((0, 2), (allowed, torch.tensor([[1.0, 1, 0], [0, 0, 1]]).double()))
    mixture = MixtureOfProducts(coarse.sizes, 4)
    with torch.no_grad():
        mixture.logits.copy_(torch.randn(4, mixture.width, generator=rng))
    whole = Ruled.from_ties(coarse.parted(mixture).odds().double(), sizes, [tie]).gram()
    fewer = Ruled.from_ties(
        mixture.odds().double(), coarse.sizes, [coarse.merged_tie(tie)]
    ).gram()
    summed = coarse._summed(coarse._summed(whole).T)
    torch.testing.assert_close(summed, fewer, atol=1e-6, rtol=1e-5)
