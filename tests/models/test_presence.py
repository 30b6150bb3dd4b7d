"""The law of people at both holders of a union, from tables of several populations."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.models.tables.presence import AmongBoth, among_both

SIZES = ((4, 3), (2, 5))
Codes = NDArray[np.int64]


def people(n: int = 40_000) -> Codes:
    """Columns of which each two go together."""
    rng = np.random.default_rng(5)
    rank = rng.random((n, 1))
    own = np.where(rng.random((n, 4)) < 0.5, rank, rng.random((n, 4)))
    return (own * [4, 3, 2, 5]).astype(np.int64)


def counts(codes: Codes) -> Tensor:
    """The Gram matrix of one-hot rows."""
    sizes = [*itertools.chain(*SIZES)]
    starts = np.cumsum([0, *sizes[:-1]])
    rows = torch.zeros(len(codes), sum(sizes), dtype=torch.float64)
    rows.scatter_(1, torch.tensor(codes + starts), 1.0)
    return rows.T @ rows


def measured(
    codes: Codes, first: Codes, second: Codes, noise: float, seed: int
) -> AmongBoth:
    """What is read of these people's releases; `first` and `second` say who is where
    (0 or 1).
    """
    at_both = (first & second).astype(bool)
    behind = sum(SIZES[0])
    gram = counts(codes[at_both])
    both = torch.cat([gram.diagonal(), torch.tensor([float(at_both.sum())])])
    for there, own in (
        (first, slice(0, behind)),
        (second, slice(behind, None)),
    ):
        gram[own, own] = counts(codes[there.astype(bool)])[own, own]
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(gram.shape, generator=generator, dtype=torch.float64).triu()
    gram = gram + noise * (draw + draw.triu(1).T)
    both = both + noise * torch.randn(len(both), generator=generator).double()
    loud = torch.full_like(gram, noise)
    start = 0
    for size in itertools.chain(*SIZES):
        own = slice(start, start + size)
        loud[own, own] = torch.where(torch.eye(size).bool(), noise, torch.inf)
        start += size
    return among_both(gram, loud, SIZES, both, noise)


def presence(odds: Sequence[float], of: Codes, seed: int) -> Codes:
    """Who is there, by these probabilities of levels."""
    rng = np.random.default_rng(seed)
    return (rng.random(len(of)) < np.array(odds)[of]).astype(np.int64)


def whole_tables(found: AmongBoth) -> list[tuple[slice, slice]]:
    starts = np.cumsum([0, *itertools.chain(*SIZES)]).tolist()
    blocks = [slice(a, b) for a, b in itertools.pairwise(starts)]
    return [*itertools.combinations(blocks, 2)]


def test_each_table_has_one_noise_so_that_ordered_columns_are_smoothed() -> None:
    codes = people()
    leaning = presence([0.2, 0.4, 0.6, 0.9], codes[:, 0], 1)
    found = measured(codes, leaning, presence([0.7] * 4, codes[:, 0], 2), 40.0, 3)
    for table in whole_tables(found):
        assert len(found.noise[table].unique()) == 1
        assert found.noise[table].isfinite().all()


def test_where_presence_does_not_depend_on_levels_a_larger_holder_has_less_noise() -> (
    None
):
    """Its tables are scaled by one share, and so is their noise."""
    codes = people()
    first = presence([0.15] * 4, codes[:, 0], 1)
    second = np.ones_like(first)
    noise = 60.0
    found = measured(codes, first, second, noise, 3)
    truth = counts(codes[first.astype(bool)])
    own = slice(sum(SIZES[0]), None)
    share = first.mean()
    apart = (found.gram - truth)[own, own]
    off = torch.ones_like(apart).triu(1).bool()
    off[:2, :2] = off[2:, 2:] = False
    # sampling of who is at both comes on top
    spread = (truth[own, own][off] * (1 - share)).mean().sqrt()
    assert float(apart[off].square().mean().sqrt()) < 2 * (share * noise + spread)
    claimed = (share * noise) ** 2 + float(truth[own, own][off].mean()) * (1 - share)
    assert float(found.noise[own, own][off].max()) == pytest.approx(claimed**0.5, 0.1)
    one_way = (found.gram.diagonal() - truth.diagonal())[own]
    deviation = found.noise.diagonal()[own]
    assert float((one_way / deviation).square().mean()) < 4
    assert float(deviation.max()) < noise


@pytest.mark.parametrize("noise", [0.0, 5.0])
def test_where_presence_depends_on_levels_tables_are_those_of_people_at_both(
    noise: float,
) -> None:
    """Of one column: then the fit's assumption holds."""
    codes = people()
    first = presence([0.9, 0.7, 0.4, 0.2], codes[:, 0], 1)
    second = presence([1.0] * 4, codes[:, 0], 2)
    found = measured(codes, first, second, noise, 3)
    truth = counts(codes[first.astype(bool)])
    own = slice(0, sum(SIZES[0]))
    for table in whole_tables(found):
        apart = (found.gram - truth)[table].abs().max()
        within_second = table[0].start >= own.stop
        allowed = 350 if within_second else 3 * noise + 1e-6
        assert float(apart) <= allowed
    assert float((found.gram - truth).diagonal().abs().max()) <= 4 * noise + 1e-6
