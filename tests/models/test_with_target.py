"""Tables of three columns with the target: what pairs alone say of them, and how a fit
is drawn there.
"""

from itertools import combinations, product

import pytest
import torch
from torch import Tensor

from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.given_rules import Rules, Tie
from understudy.models.tables.loss import Slope, Triple, WideTable
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import NoisyMarginals, read_tables
from understudy.models.tables.target import MOST_LEVELS, WithTarget, without_interaction

pytestmark = pytest.mark.usefixtures("short_fits")

SIZES = (3, 2, 4, 5)
STARTS = (0, 3, 5, 9)
TARGET = 1
COLUMNS = torch.nn.functional.one_hot(
    torch.repeat_interleave(torch.tensor(SIZES))
).double()
RULE = Tie(
    (0, 2),
    (
        torch.tensor([[1.0, 1, 0], [0, 0, 1]]),
        torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1]]),
    ),
)


def law() -> Tensor:
    """Probabilities of all rows: columns that interact two by two, and no three of
    them.
    """
    rng = torch.Generator().manual_seed(0)
    logits = torch.zeros(SIZES, dtype=torch.float64)
    for one, other in combinations(range(len(SIZES)), 2):
        shape = [size if axis in (one, other) else 1 for axis, size in enumerate(SIZES)]
        logits = logits + torch.randn(shape, generator=rng, dtype=torch.float64)
    return logits.flatten().softmax(0).reshape(SIZES)


def gram_of(odds: Tensor) -> Tensor:
    """Expected x xᵀ of a one-hot row x."""
    gram = torch.zeros(sum(SIZES), sum(SIZES), dtype=torch.float64)
    for levels in product(*map(range, SIZES)):
        row = torch.tensor(
            [start + level for start, level in zip(STARTS, levels, strict=True)]
        )
        gram[row[:, None], row] += odds[levels]
    return gram


def read(noise: float | Tensor = 10.0, people: int = 10_000) -> NoisyMarginals:
    return read_tables(gram_of(law()) * people, SIZES, noise=noise, people=people)


def test_three_columns_that_do_not_interact_are_found_from_their_pairs() -> None:
    rng = torch.Generator().manual_seed(1)
    table = torch.zeros(3, 2, 4, dtype=torch.float64)
    for shape in ((3, 2, 1), (3, 1, 4), (1, 2, 4)):
        table = table + torch.randn(shape, generator=rng, dtype=torch.float64)
    table = table.flatten().softmax(0).reshape(table.shape)  # by a, the target and b
    pairs = torch.ones(9, 9, dtype=torch.float64)
    pairs[:3, 5:], pairs[5:, :3] = table.sum(1), table.sum(1).T
    pairs[:3, 3:5], pairs[5:, 3:5] = table.sum(2), table.sum(0).T
    found = without_interaction(pairs, COLUMNS[:9, :3], pairs[:, 3:5])[:, :3, 5:]
    assert torch.allclose(found.permute(1, 0, 2), table, atol=3e-4)


def test_the_slope_is_that_of_the_squared_gaps_of_all_tables_with_the_target() -> None:
    for ties in ((), (RULE,)):
        rules = Rules(SIZES, ties)
        tables = read()
        part = WithTarget(tables, SIZES, TARGET, 1.0, rules)
        odds = torch.randn(
            6, sum(SIZES), generator=torch.Generator().manual_seed(2)
        ).requires_grad_()
        given = rules.law_of(MixtureOfProducts(SIZES, 6).softmax(odds))
        own = given.own.detach().requires_grad_()
        share = None if given.share is None else given.share.detach().requires_grad_()
        weight = torch.ones(6) if share is None else share
        law = torch.einsum("k,ky,ki,kj->yij", weight, own[:, part.levels], own, own) / 6
        # each pair stands there twice
        loss = 6 / 4 * ((law - part.tables).square() * part.precision).sum()
        expected = torch.autograd.grad(loss, [own] if share is None else [own, share])
        slope = Slope(given, torch.zeros(6, sum(SIZES)), [])
        with torch.no_grad():
            part.add_to(slope)
        assert torch.allclose(slope.own, expected[0], rtol=1e-3, atol=1e-3)
        assert (slope.share is None) == (share is None)
        if share is not None and slope.share is not None:
            assert torch.allclose(slope.share, expected[1], rtol=1e-3, atol=1e-3)


def test_what_was_not_measured_or_what_rules_tie_has_no_weight() -> None:
    noise = torch.full((sum(SIZES), sum(SIZES)), 10.0)
    noise[:3, 3:5] = torch.inf  # the first column with the target
    precision = WithTarget(read(noise), SIZES, TARGET, 1.0, Rules(SIZES, ())).precision
    assert not precision[:5].any()
    assert not precision[:, :5].any()
    assert (precision[5:9, 9:] > 0).all()
    assert not precision[5:9, 5:9].any()
    tied = WithTarget(read(), SIZES, TARGET, 1.0, Rules(SIZES, (RULE,))).precision
    assert not tied[:3, 5:9].any()
    assert (tied[:3, 9:] > 0).all()


def test_a_fit_for_a_target_is_nearer_in_three_way_tables_that_no_pair_shows() -> None:
    truth = law()
    people = 20_000
    noise = 15.0
    rng = torch.Generator().manual_seed(1)
    gaps = []
    drawn = (noise * torch.randn(14, 14, generator=rng, dtype=torch.float64)).triu()
    gram = gram_of(truth) * people + drawn + drawn.triu(1).T
    for target in (None, TARGET):
        fit = fit_gram(
            gram,
            SIZES,
            noise=noise,
            people=people,
            target=target,
            components=32,
            steps=200,
            seed=1,
        )
        a, y, b, _ = fit.odds().double().split(SIZES, 1)
        gaps.append(
            float(
                (torch.einsum("ka,ky,kb->ayb", a, y, b) / 32 - truth.sum(3)).abs().sum()
            )
        )
    assert gaps[1] < 0.9 * gaps[0], gaps


def test_a_released_table_is_drawn_to_its_pairs_only_as_far_as_it_shows_no_more_than_noise():
    tables = read()
    noise = 5.0
    flat = without_interaction(gram_of(law()), COLUMNS, gram_of(law())[:, 3:5])[
        :, :3, 5:9
    ].permute(1, 0, 2)
    turn = (
        0.02 * torch.tensor([1.0, -1.0])[None, :, None] * torch.tensor([1.0, -1, 1, -1])
    )
    turn = turn * torch.tensor([1.0, -1, 0])[:, None, None]  # has no pairs
    found = []
    for table in (flat, flat + turn):
        drawn = (
            torch.randn(table.shape, generator=torch.Generator().manual_seed(3)) * noise
        )
        triple = Triple((2, 0, 1), (table * 10_000 + drawn).permute(2, 0, 1), noise)
        wide = WideTable.from_triple(triple, SIZES, 10_000, 1)
        found.append(
            WithTarget(tables, SIZES, TARGET, 1.0, Rules(SIZES, ()), [wide]).precision
        )
    plain = WithTarget(tables, SIZES, TARGET, 1.0, Rules(SIZES, ())).precision
    assert (found[0][:3, 5:9] > 0.5 * plain[:3, 5:9]).all()
    expected = 1 / (1 / plain[:3, 5:9] + turn.square().mean())
    assert torch.allclose(found[1][:3, 5:9], expected, rtol=0.2)
    assert torch.equal(found[1], found[1].T)
    assert torch.equal(found[1][:3, 9:], plain[:3, 9:]), "no other table"


def test_a_target_with_many_levels_is_fitted_by_its_pairs_alone() -> None:
    gram = gram_of(law()) * 1_000
    many = 3
    assert SIZES[many] > MOST_LEVELS
    with_it, without = (
        fit_gram(
            gram, SIZES, noise=5.0, target=target, components=8, steps=5, seed=0
        ).logits
        for target in (many, None)
    )
    assert torch.equal(with_it, without)
