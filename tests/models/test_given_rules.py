"""A mixture that is fitted given rules: its law has nothing where they forbid it, and
its tables are those measured.
"""

from collections.abc import Sequence
from itertools import product

import pytest
import torch
from test_fit_gram import gram_of, noisy, pair_distances
from torch import Tensor

from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.given_rules import Ruled, Rules, Tie
from understudy.models.tables.loss import EmptyCells, Triple, TwoWay
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import forbidden, read_tables

SIZES = (4, 5, 3, 6)
# the first is at most the second
BELOW = Tie((0, 1), (torch.eye(4).double(), torch.ones(4, 5).double().triu()))
THREE = Tie(
    (0, 2, 3),
    (
        torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, 0.5]]).double(),
        torch.tensor([[1.0, 1, 1], [1, 0, 0]]).double(),
        torch.tensor([[1.0] * 6, [0, 0, 1, 1, 1, 1]]).double(),
    ),
)
DEAD = Tie((3,), (torch.tensor([[1.0, 1, 1, 1, 1, 0]]).double(),))
ALIKE = Tie(
    (2, 3),
    (
        torch.eye(2, 3).double(),
        torch.tensor([[1.0, 1, 0, 1, 0, 0], [0, 1, 1, 0, 0.5, 0]]).double(),
    ),
)
CASES = [(BELOW,), (THREE,), (DEAD, BELOW), (BELOW, ALIKE)]


def weight(codes: Tensor, ties: tuple[Tie, ...]) -> Tensor:
    """How far each row is allowed."""
    found = torch.ones(len(codes), dtype=torch.float64)
    for tie in ties:
        masks = [
            mask[:, codes[:, column]]
            for column, mask in zip(tie.columns, tie.allowed, strict=True)
        ]
        found *= torch.stack(masks).prod(0).sum(0)
    return found


def rows_given(ties: tuple[Tie, ...], n: int, seed: int = 0) -> Tensor:
    """Rows of a hidden rank, those that are not allowed left out."""
    rng = torch.Generator().manual_seed(seed)
    rank = torch.rand(4 * n, 1, generator=rng)
    own = torch.rand(4 * n, 4, generator=rng)
    follows = torch.rand(4 * n, 4, generator=rng) < 0.5
    codes = (torch.where(follows, rank, own) * torch.tensor(SIZES)).long()
    return codes[torch.rand(4 * n, generator=rng) < weight(codes, ties)][:n]


@pytest.mark.parametrize("ties", CASES)
def test_the_law_is_that_of_all_rows_listed(ties: tuple[Tie, ...]) -> None:
    rng = torch.Generator().manual_seed(1)
    odds = (
        MixtureOfProducts(SIZES, 3)
        .softmax(torch.randn(3, sum(SIZES), generator=rng))
        .double()
    )
    codes = torch.tensor(list(product(*map(range, SIZES))))
    parts = [part[:, codes[:, j]] for j, part in enumerate(odds.split(SIZES, 1))]
    chance = torch.stack(parts).prod(0).mean(0) * weight(codes, ties)
    law = Ruled.from_ties(odds, SIZES, ties)
    torch.testing.assert_close(
        law.table(range(4)).flatten(), chance / chance.sum(), atol=1e-7, rtol=1e-6
    )
    one_hot = torch.cat(
        [
            torch.nn.functional.one_hot(codes[:, j], size)
            for j, size in enumerate(SIZES)
        ],
        1,
    )
    gram = one_hot.double().T @ (one_hot * (chance / chance.sum())[:, None])
    torch.testing.assert_close(law.gram(), gram, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("ties", CASES)
def test_the_slope_is_that_of_the_loss(ties: tuple[Tie, ...]) -> None:
    """By hand, and by differentiating the sum of squares as it is written."""
    gram = gram_of(rows_given(ties, 500), SIZES)
    tables = read_tables(noisy(gram, 9.0), SIZES, noise=9.0, ties=ties)
    # a tied pair and, below, one that may not be
    tables.empty[:4, 4:9] = tables.empty[4:9, :4].T.fill_(3e2)
    tables.empty[9:12, 4:9] = tables.empty[4:9, 9:12].T.fill_(2e2)
    logits = torch.randn(
        5, sum(SIZES), generator=torch.Generator().manual_seed(2)
    ).requires_grad_()
    ties = tuple(tie.to(gram.device, torch.float32) for tie in ties)
    rules = Rules(SIZES, ties)
    law = rules.law_of(MixtureOfProducts(SIZES, 5).softmax(logits))
    by_level = law.gram()
    gap = (
        tables.basis.float().T @ (by_level * (tables.weight > 0)) @ tables.basis.float()
        - tables.target.float()
    )
    loss = (gap.square() * tables.precision.float()).sum() + 2 * (
        by_level * tables.empty.float()
    ).sum()
    (expected,) = torch.autograd.grad(5 / 4 * loss, logits, retain_graph=True)
    two_way = TwoWay(tables, SIZES, 1.0, rules)
    empty = EmptyCells(tables, 1.0, rules)
    tied = law.tied()
    with torch.no_grad():
        slope = two_way.slope(law, *two_way.pairs(law, tied))
        empty.add_to(slope)
    assert law.share is not None
    made = [law.own, law.share, *tied]
    slopes = [slope.own, slope.share, *slope.tied]
    (found,) = torch.autograd.grad(made, logits, slopes)
    torch.testing.assert_close(
        found, expected, rtol=1e-4, atol=2e-6 * float(expected.abs().max())
    )


def furthest_pair(ties: tuple[Tie, ...], seed: int, **size: int) -> float:
    """How far the law's pairs are at most from those of rows that keep the rules, which
    were counted exactly.
    """
    gram = gram_of(rows_given(ties, 4_000, seed), SIZES)
    fitted = fit_gram(gram, SIZES, noise=0, ties=ties, seed=0, **size)
    law = Ruled.from_ties(fitted.odds().double(), SIZES, ties).gram()
    assert not law[forbidden(SIZES, ties, gram.device)].any()
    return float(pair_distances(law, gram / 4_000, SIZES).max())


@pytest.mark.long
@pytest.mark.parametrize("ties", CASES)
def test_exact_tables_of_rows_that_keep_the_rules_are_recovered(
    ties: tuple[Tie, ...],
) -> None:
    # long_audit: 0.002, with 64 and 300
    assert furthest_pair(ties, 0, components=24, steps=120) < 0.01


def test_counts_where_rules_leave_nobody_are_never_read() -> None:
    gram = noisy(gram_of(rows_given((BELOW,), 2_000), SIZES), 5.0)
    wild = torch.where(forbidden(SIZES, (BELOW,), gram.device), 1e6, gram)
    cube = torch.zeros(4, 5, 3)
    triples = [
        [Triple((0, 1, 2), cube + lift * (weight_of_pairs() == 0), 5.0)]
        for lift in (0.0, 1e6)
    ]
    a, b = (
        fit_gram(
            g,
            SIZES,
            noise=5.0,
            ties=(BELOW,),
            triples=own,
            components=16,
            steps=30,
            seed=0,
        )
        for g, own in zip((gram, wild), triples, strict=True)
    )
    assert torch.equal(a.logits, b.logits)


def weight_of_pairs() -> Tensor:
    codes = torch.tensor(list(product(range(4), range(5), range(3), range(1))))
    return weight(codes, (BELOW,)).reshape(4, 5, 3)


def as_a_law_and_as_zeros(seeds: Sequence[int], **size: int) -> tuple[Tensor, Tensor]:
    """How far each pair is from the true one, fitted given a rule, and by counts of
    zero: (seeds, pairs) of each.

    A first column that is at most the second: a third of what columns would give
    without the rule is forbidden.
    """
    sizes = (8, 8, 4, 5)
    n = 3_000
    sigma = 25.0
    rule = Tie((0, 1), (torch.eye(8).double(), torch.ones(8, 8).double().triu()))
    rng = torch.Generator().manual_seed(3)
    rank = torch.rand(2 * n, 1, generator=rng)
    own = torch.rand(2 * n, 4, generator=rng)
    codes = (
        torch.where(torch.rand(2 * n, 4, generator=rng) < 0.4, rank, own)
        * torch.tensor(sizes)
    ).long()
    kept = weight(codes, (rule,)) > 0
    assert kept.double().mean() < 0.7
    codes = codes[kept][:n]
    gram = gram_of(codes, sizes)
    never = forbidden(sizes, (rule,), torch.device("cpu"))
    near = []
    far = []
    for seed in seeds:
        released = noisy(gram, sigma, seed)
        law = fit_gram(released, sizes, noise=sigma, ties=(rule,), seed=0, **size)
        counts = torch.where(never, 0, released)
        spread = torch.where(never, 0.1 * sigma, sigma)
        zeros = fit_gram(counts, sizes, noise=spread, seed=0, **size)
        for one, off in ((law, near), (zeros, far)):
            table = Ruled.from_ties(one.odds().double(), sizes, (rule,)).gram()
            assert not table[never].any()
            off.append(pair_distances(table, gram / n, sizes))
    return torch.stack(near), torch.stack(far)


def test_a_rule_that_forbids_much_is_fitted_better_as_a_law_than_as_zeros() -> None:
    near, far = as_a_law_and_as_zeros(range(2), components=32, steps=200)
    assert near.mean() < 0.9 * far.mean()
    assert near[:, 0].mean() < 0.95 * far[:, 0].mean(), "and the tied pair by itself"
